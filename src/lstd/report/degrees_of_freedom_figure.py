"""Effective degrees of freedom of each feature: how far the data, rather than the ridge term, decides its weight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from lstd.estimators.base import Predictor
from lstd.metrics import effective_degrees_of_freedom
from lstd.report.style import BLUE, VERMILION, WIDE, figure_style, given_axes, new_figure, plain
from lstd.statistics.intervals import FEW

Array = NDArray[np.float64]

MAX_NAMED = 40  # features that have a line and a name each; more are drawn in order, without names
_MAX_DOTS = 400
_PLAIN: dict[str, Any] = {"color": BLUE, "marker": "o", "linestyle": ""}
_FLAGGED: dict[str, Any] = {"color": VERMILION, "marker": "D", "linestyle": ""}


def plot_degrees_of_freedom(model: Predictor, *, ax: Axes | None = None) -> list[Line2D]:
    """Draw the effective degrees of freedom of each feature: 0 if the ridge term decides, 1 if the data does.

    Diamonds mark features that little data supports: the interval of :meth:`lstd.LSTD.predict_interval` for that
    feature alone has fewer than 5 degrees of freedom. More than 40 features are drawn in order, without names.

    Parameters
    ----------
    model : fitted estimator
        A fitted :class:`lstd.LSTD`.
    ax : matplotlib.axes.Axes, optional
        As in :func:`plot_predictions`.

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
    return draw_degrees_of_freedom(values, model.model_.feature_names, flagged_features(model), ax)


def flagged_features(model: Predictor) -> NDArray[np.bool_]:
    """Flag the features that little data supports; none without intervals."""
    n = model.n_features_in_
    if model.model_.no_intervals:
        return np.zeros(n, dtype=np.bool_)
    return np.asarray(model.model_.interval(np.eye(n), 0.95).flagged.reshape(n, -1).any(axis=1))


def draw_degrees_of_freedom(
    values: Array, names: Sequence[str], flagged: NDArray[np.bool_], ax: Any = None
) -> list[Line2D]:
    """Draw the figure of :func:`plot_degrees_of_freedom`."""
    given, named = given_axes(ax), len(values) <= MAX_NAMED
    width, height = (4.4, 0.9 + 0.2 * max(2, len(values))) if named else (WIDE, 3.2)
    words = f"fewer than {FEW:g} degrees of freedom for this feature alone"
    with figure_style():
        handle = Line2D([], [], **_FLAGGED, markersize=4, label=words)
        panel = given[0] if given else new_figure(width, height).subplots()
        artists = _named(panel, values, names, flagged) if named else _ranked(panel, values, flagged)
        if given and flagged.any():
            panel.legend(handles=[handle], fontsize=8.5)
        elif not given:
            figure: Any = panel.figure
            figure.tight_layout(rect=(0, 0, 1, 1 - (0.26 if flagged.any() else 0.05) / height), pad=0.5)
            if flagged.any():
                top = 1 - 0.04 / height
                figure.legend(handles=[handle], loc="upper center", bbox_to_anchor=(0.5, top), fontsize=8.5)
    return artists


def _named(ax: Axes, values: Array, names: Sequence[str], flagged: NDArray[np.bool_]) -> list[Line2D]:
    n = len(values)
    at, artists = np.arange(n), []
    for kind, look in ((~flagged, _PLAIN), (flagged, _FLAGGED)):
        ax.hlines(at[kind], 0.0, values[kind], color=look["color"], linewidth=1.1)
        # Layouts take an empty line that is not clipped to lie in the corner of the figure.
        artists += ax.plot(values[kind], at[kind], **look, markersize=4.5, clip_on=not kind.any())
    ax.set_yticks(at, [plain(name, 26) for name in names])
    ax.set_ylim(n - 0.4, -0.6)
    ax.grid(False, axis="y")
    ax.set_xlim(min(0.0, values.min(initial=0.0)), max(1.0, values.max(initial=1.0)))
    ax.set_xlabel("effective degrees of freedom")
    return artists


def _ranked(ax: Axes, values: Array, flagged: NDArray[np.bool_]) -> list[Line2D]:
    order = np.argsort(-values, kind="stable")
    place = np.unique(np.linspace(0, len(order) - 1, _MAX_DOTS).round().astype(np.intp))
    order, artists = order[place], []
    for kind, look in ((~flagged[order], _PLAIN), (flagged[order], _FLAGGED)):
        artists += ax.plot(place[kind] + 1, values[order][kind], **look, markersize=3)
    ax.set_ylim(min(0.0, 1.05 * values.min()) - 0.02, max(1.0, 1.05 * values.max()) + 0.02)
    ax.set_xlabel(f"features in decreasing order ({len(values)} in all)")
    ax.set_ylabel("effective degrees of freedom")
    return artists
