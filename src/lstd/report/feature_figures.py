"""The coefficient of each feature with its interval, and how far the data, rather than the ridge term, decides it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from lstd.estimators.base import Predictor
from lstd.estimators.summary import coefficient_interval
from lstd.metrics import effective_degrees_of_freedom
from lstd.report.figure_data import LEVEL, fitted_with
from lstd.report.style import (
    BLUE,
    REFERENCE,
    VERMILION,
    WIDE,
    axes_for,
    figure_style,
    given_axes,
    name_rows,
    new_figure,
)
from lstd.statistics.intervals import FEW, check_level
from lstd.types import Array

MAX_NAMED = 40  # features that have a line and a name each; more are drawn in order, without names
_MAX_DOTS = 400
_PLAIN: dict[str, Any] = {"color": BLUE, "marker": "o", "linestyle": ""}
_LITTLE: dict[str, Any] = {"color": VERMILION, "marker": "D", "linestyle": ""}


def plot_coefficients(
    model: Predictor, *, level: float = LEVEL, reward: int = 0, ax: Axes | None = None
) -> ErrorbarContainer:
    """Draw the coefficient of each feature with its interval, without the intercept.

    Parameters
    ----------
    model : fitted LSTD or LSTDCV
    level : float in (0, 1), default 0.95
        Level of the intervals.
    reward : int, default 0
        Which of several rewards.
    ax : matplotlib.axes.Axes, optional
        As in :func:`plot_predictions`.

    Returns
    -------
    matplotlib.container.ErrorbarContainer

    Raises
    ------
    InvalidInputError
        When the model has no intervals, or an argument breaks a rule.

    Examples
    --------
    >>> import numpy as np
    >>> from lstd import LSTD
    >>> from lstd.report import plot_coefficients
    >>> X, y, done = np.tile(np.eye(2), (20, 1)), np.ones(40), np.tile([False, True], 20)
    >>> artists = plot_coefficients(LSTD().fit(X, y, terminated=done))
    >>> [label.get_text() for label in artists[0].axes.get_yticklabels()]
    ['x0', 'x1']
    """
    fitted = fitted_with(model, reward)
    n, found = fitted.n_features, coefficient_interval(fitted, check_level(level))
    coef, low, high = (a[:n, reward] for a in (found.prediction, found.lower, found.upper))
    bars = np.stack([coef - low, high - coef])
    with axes_for(ax, 4.4, 0.9 + 0.2 * max(2, n)) as panel:
        artists = panel.errorbar(coef, np.arange(n), xerr=bars, fmt="o", color=BLUE, elinewidth=0.9, capsize=2.2)
        panel.axvline(0.0, color=REFERENCE, linewidth=0.9, zorder=1)
        name_rows(panel, fitted.feature_names)
        panel.set_xlabel(f"coefficient, {100 * level:g} % interval")
    return artists


def plot_degrees_of_freedom(model: Predictor, *, ax: Axes | None = None) -> list[Line2D]:
    """Draw the effective degrees of freedom of each feature: 0 if the ridge term decides, 1 if the data does.

    Diamonds mark features that little data supports: the interval of :meth:`lstd.LSTD.predict_interval` for that
    feature alone has fewer than 5 degrees of freedom. More than 40 features are drawn in order, without names.

    Parameters
    ----------
    model, ax
        As in :func:`plot_coefficients`.

    Returns
    -------
    list of matplotlib.lines.Line2D
        The dots, and the diamonds.

    Examples
    --------
    >>> import numpy as np
    >>> from lstd import LSTD
    >>> from lstd.report import plot_degrees_of_freedom
    >>> X, y, done = np.tile(np.eye(2), (20, 1)), np.ones(40), np.tile([False, True], 20)
    >>> dots, diamonds = plot_degrees_of_freedom(LSTD().fit(X, y, terminated=done))
    >>> [label.get_text() for label in dots.axes.get_yticklabels()]
    ['x0', 'x1']
    """
    values = effective_degrees_of_freedom(model)
    return draw_degrees_of_freedom(values, model.model_.feature_names, features_with_little_data(model), ax)


def features_with_little_data(model: Predictor) -> NDArray[np.bool_]:
    """Flag the features that little data supports; none without intervals."""
    n = model.n_features_in_
    if model.model_.no_intervals:
        return np.zeros(n, dtype=np.bool_)
    return np.asarray(model.model_.interval(np.eye(n), 0.95).little_data.reshape(n, -1).any(axis=1))


@figure_style()
def draw_degrees_of_freedom(
    values: Array, names: Sequence[str], little: NDArray[np.bool_], ax: Any = None
) -> list[Line2D]:
    """Draw the figure of :func:`plot_degrees_of_freedom`."""
    given, named, any_little = given_axes(ax), len(values) <= MAX_NAMED, bool(little.any())
    width, height = (4.4, 0.9 + 0.2 * max(2, len(values))) if named else (WIDE, 3.2)
    panel = given[0] if given else new_figure(width, height).subplots()
    artists = _named(panel, values, names, little) if named else _ranked(panel, values, little)
    words = f"fewer than {FEW:g} degrees of freedom for this feature alone"
    legend: dict[str, Any] = {"handles": [Line2D([], [], **_LITTLE, markersize=4, label=words)], "fontsize": 8.5}
    if given and any_little:
        panel.legend(**legend)
    elif not given:
        figure: Any = panel.figure
        figure.tight_layout(rect=(0, 0, 1, 1 - (0.26 if any_little else 0.05) / height), pad=0.5)
        if any_little:
            figure.legend(**legend, loc="upper center", bbox_to_anchor=(0.5, 1 - 0.04 / height))
    return artists


def _named(ax: Axes, values: Array, names: Sequence[str], little: NDArray[np.bool_]) -> list[Line2D]:
    at, artists = np.arange(len(values)), []
    for kind, look in ((~little, _PLAIN), (little, _LITTLE)):
        ax.hlines(at[kind], 0.0, values[kind], color=look["color"], linewidth=1.1)
        # Layouts take an empty line that is not clipped to lie in the corner of the figure.
        artists += ax.plot(values[kind], at[kind], **look, markersize=4.5, clip_on=not kind.any())
    name_rows(ax, names)
    ax.grid(False, axis="y")
    ax.set_xlim(min(0.0, values.min(initial=0.0)), max(1.0, values.max(initial=1.0)))
    ax.set_xlabel("effective degrees of freedom")
    return artists


def _ranked(ax: Axes, values: Array, little: NDArray[np.bool_]) -> list[Line2D]:
    order = np.argsort(-values, kind="stable")
    place = np.unique(np.linspace(0, len(order) - 1, _MAX_DOTS).round().astype(np.intp))
    order, artists = order[place], []
    for kind, look in ((~little[order], _PLAIN), (little[order], _LITTLE)):
        artists += ax.plot(place[kind] + 1, values[order][kind], **look, markersize=3)
    ax.set_ylim(min(0.0, 1.05 * values.min()) - 0.02, max(1.0, 1.05 * values.max()) + 0.02)
    ax.set_xlabel(f"features in decreasing order ({len(values)} in all)")
    ax.set_ylabel("effective degrees of freedom")
    return artists
