"""Effective degrees of freedom of each feature: how far the data, rather than the ridge term, decides its weight."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from lstd.estimators.base import Predictor
from lstd.estimators.intervals import FEW
from lstd.metrics import effective_degrees_of_freedom
from lstd.report.style import BLUE, VERMILION, WIDE, figure_style, new_figure, plain

Array = NDArray[np.float64]

MAX_NAMED = 40  # features that have a line and a name each; more are drawn in order, without names
_MAX_DOTS = 400


def plot_degrees_of_freedom(model: Predictor) -> Figure:
    """Draw the effective degrees of freedom of each feature: 0 if the ridge term decides, 1 if the data does.

    Diamonds mark features that little data supports: the interval of :meth:`lstd.LSTD.predict_interval` for that
    feature alone has fewer than 5 degrees of freedom. More than 40 features are drawn in order, without names.

    Parameters
    ----------
    model : fitted estimator
        A fitted :class:`lstd.LSTD`.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> import numpy as np
    >>> from lstd import LSTD
    >>> from lstd.report import plot_degrees_of_freedom
    >>> X, y, done = np.tile(np.eye(2), (20, 1)), np.ones(40), np.tile([False, True], 20)
    >>> figure = plot_degrees_of_freedom(LSTD().fit(X, y, terminated=done))
    >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
    ['x0', 'x1']
    """
    values = effective_degrees_of_freedom(model)
    return draw_degrees_of_freedom(values, model.model_.feature_names, flagged_features(model))


def flagged_features(model: Predictor) -> NDArray[np.bool_]:
    """Flag the features that little data supports; none without intervals."""
    n = model.n_features_in_
    if model.model_.no_intervals:
        return np.zeros(n, dtype=np.bool_)
    return np.asarray(model.model_.interval(np.eye(n), 0.95).flagged.reshape(n, -1).any(axis=1))


def draw_degrees_of_freedom(values: Array, names: Sequence[str], flagged: NDArray[np.bool_]) -> Figure:
    """Draw the figure of :func:`plot_degrees_of_freedom`."""
    with figure_style():
        figure = _named(values, names, flagged) if len(values) <= MAX_NAMED else _ranked(values, flagged)
        if flagged.any():
            words = f"fewer than {FEW:g} degrees of freedom for this feature alone"
            handle = Line2D([], [], color=VERMILION, marker="D", linestyle="", markersize=4, label=words)
            top = 1 - 0.04 / figure.get_figheight()
            figure.legend(handles=[handle], loc="upper center", bbox_to_anchor=(0.5, top), fontsize=8.5)
    return figure


def _named(values: Array, names: Sequence[str], flagged: NDArray[np.bool_]) -> Figure:
    n = len(values)
    height = 0.9 + 0.2 * max(2, n)
    figure = new_figure(4.4, height)
    ax = figure.subplots()
    at = np.arange(n)
    for kind, colour, marker in ((~flagged, BLUE, "o"), (flagged, VERMILION, "D")):
        ax.hlines(at[kind], 0.0, values[kind], color=colour, linewidth=1.1)
        ax.plot(values[kind], at[kind], color=colour, marker=marker, linestyle="", markersize=4.5, clip_on=False)
    ax.set_yticks(at, [plain(name, 26) for name in names])
    ax.set_ylim(n - 0.4, -0.6)
    ax.grid(False, axis="y")
    ax.set_xlim(min(0.0, values.min(initial=0.0)), max(1.0, values.max(initial=1.0)))
    ax.set_xlabel("effective degrees of freedom")
    figure.tight_layout(rect=(0, 0, 1, 1 - (0.26 if flagged.any() else 0.05) / height), pad=0.5)
    return figure


def _ranked(values: Array, flagged: NDArray[np.bool_]) -> Figure:
    order = np.argsort(-values, kind="stable")
    place = np.unique(np.linspace(0, len(order) - 1, _MAX_DOTS).round().astype(np.intp))
    order = order[place]
    figure = new_figure(WIDE, 3.2)
    ax = figure.subplots()
    for kind, colour, marker in ((~flagged[order], BLUE, "o"), (flagged[order], VERMILION, "D")):
        ax.plot(place[kind] + 1, values[order][kind], color=colour, marker=marker, linestyle="", markersize=3)
    ax.set_ylim(min(0.0, 1.05 * values.min()) - 0.02, max(1.0, 1.05 * values.max()) + 0.02)
    ax.set_xlabel(f"features in decreasing order ({len(values)} in all)")
    ax.set_ylabel("effective degrees of freedom")
    figure.tight_layout(rect=(0, 0, 1, 0.93 if flagged.any() else 0.99), pad=0.5)
    return figure
