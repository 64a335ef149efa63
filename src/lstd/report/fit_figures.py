"""Predictions beside the returns that were observed: over time, and by decile of the prediction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray

from lstd.data.returns import TOLERANCE
from lstd.estimators.base import Predictor
from lstd.report.fit_data import MOST_REWARDS, Evaluation, evaluate, half_widths
from lstd.report.style import BLUE, REFERENCE, VERMILION, WIDE, empty_panel, figure_style, new_figure, plain

Array = NDArray[np.float64]

PREDICTION, OBSERVED, FLAGGED = BLUE, VERMILION, "#000000"
_SHADE = "#F3F3F3"
_FOOT = 0.03  # of the height of a panel
_FLAG: dict[str, Any] = {
    "marker": "x", "color": FLAGGED, "linestyle": "", "markersize": 3.5, "markeredgewidth": 0.7,
}  # fmt: skip


def plot_predictions(
    model: Predictor,
    X: Any,
    y: ArrayLike,
    *,
    episode: ArrayLike | None = None,
    terminated: ArrayLike | None = None,
    discount: ArrayLike | None = None,
    tolerance: float = TOLERANCE,
    level: float = 0.95,
    rewards: Sequence[str] | None = None,
) -> Figure:
    """Predictions with intervals, and the returns that were observed, over a stretch of the rows.

    The stretch begins with the first episode that has an observed return, is some ten horizons or episodes long, and
    at most 400 of its rows are drawn. The interval is that of the value, an expectation: single returns scatter about
    it, and most may lie outside.

    Parameters
    ----------
    model : fitted estimator
        A fitted :class:`lstd.LSTD`.
    X, y, episode, terminated, discount, tolerance
        As in :meth:`lstd.LSTD.score`.
    level : float in (0, 1), default 0.95
        Of the intervals, which are left out where there is too little data for them.
    rewards : sequence of str, optional
        Names of the rewards; those of the columns of `y` where it has names. The first six rewards are drawn.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    InvalidInputError
        When an array breaks the data contract or does not fit the model.

    Examples
    --------
    >>> import numpy as np
    >>> from lstd import LSTD
    >>> from lstd.report import plot_predictions
    >>> X, y, done = np.tile(np.eye(2), (20, 1)), np.ones(40), np.tile([False, True], 20)
    >>> figure = plot_predictions(LSTD().fit(X, y, terminated=done), X, y, terminated=done)
    >>> [ax.get_xlabel() for ax in figure.axes]
    ['row']
    """
    found = evaluate(
        model, X, y, episode=episode, terminated=terminated, discount=discount, tolerance=tolerance, level=level,
        rewards=rewards,
    )  # fmt: skip
    return draw_predictions(found)


def draw_predictions(found: Evaluation) -> Figure:
    """See :func:`plot_predictions`."""
    m = min(MOST_REWARDS, len(found.rewards))
    with figure_style():
        height = 0.95 + 2.1 * m
        figure = new_figure(WIDE, height)
        axes = figure.subplots(m, 1, squeeze=False, sharex=True)[:, 0]
        figure.subplots_adjust(left=0.085, right=0.985, bottom=0.48 / height, top=1 - 0.45 / height, hspace=0.22)
        rows = found.drawn
        intervals = found.interval(rows)
        for reward, ax in enumerate(axes):
            _over_time(ax, found, rows, reward)
            if intervals is not None:
                _band(ax, found, rows, (intervals.lower[:, reward], intervals.upper[:, reward]))
                flagged = rows[intervals.flagged[:, reward]]
                ax.plot(flagged, np.full(len(flagged), _FOOT), transform=ax.get_xaxis_transform(), **_FLAG)
            _shown_range(ax, found, rows, reward, intervals is not None)
            if len(found.rewards) > 1:
                ax.set_title(plain(found.rewards[reward]), fontsize=9.5, pad=3, loc="left")
            ax.set_ylabel("discounted return")
        step = rows[1] - rows[0] if len(rows) > 1 else 1
        axes[-1].set_xlabel("row" if step == 1 else f"row (one in {step} is drawn)")
        axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True, nbins=9))
        _legend(figure, found, rows, intervals is not None and bool(intervals.flagged[:, :m].any()))
    return figure


def _over_time(ax: Axes, found: Evaluation, rows: NDArray[np.intp], reward: int) -> None:
    first, end = found.stretch
    starts = first + np.flatnonzero(np.diff(found.episode[first:end], prepend=found.episode[first] - 1))
    for start, stop in list(zip(starts, [*starts[1:], end], strict=True))[1::2]:
        ax.axvspan(start - 0.5, stop - 0.5, color=_SHADE, linewidth=0, zorder=0)
    counts = found.observed.counts[rows]
    size = 9 if len(rows) <= 250 else 5
    returns = found.returns[rows, reward]
    ax.scatter(rows[counts], returns[counts], s=size, color=OBSERVED, alpha=0.75, linewidths=0, zorder=3)
    at, value = _broken(found, rows, found.prediction[rows, reward])
    marker = "." if len(rows) <= 250 else ""
    ax.plot(at, value, color=PREDICTION, linewidth=1.2, marker=marker, markersize=3, zorder=4)
    ax.set_xlim(first - 0.5 - 0.01 * (end - first), end - 0.5 + 0.01 * (end - first))


def _broken(found: Evaluation, rows: NDArray[np.intp], *curves: Array) -> list[Array]:
    """Rows and curves with a NaN between episodes, so that no line joins them."""
    at = np.flatnonzero(np.diff(found.episode[rows])) + 1
    return [np.insert(np.asarray(values, dtype=np.float64), at, np.nan) for values in (rows, *curves)]


def _band(ax: Axes, found: Evaluation, rows: NDArray[np.intp], edges: tuple[Array, Array]) -> None:
    at, lower, upper = _broken(found, rows, *edges)
    ax.fill_between(at, lower, upper, color=PREDICTION, alpha=0.25, linewidth=0, zorder=2)
    number = found.episode[rows]
    alone = np.bincount(number - number[0])[number - number[0]] == 1  # the only row of its episode, without an area
    ax.vlines(rows[alone], edges[0][alone], edges[1][alone], color=PREDICTION, alpha=0.25, linewidth=2.0, zorder=2)


def _shown_range(ax: Axes, found: Evaluation, rows: NDArray[np.intp], reward: int, bands: bool) -> None:
    """Predictions and returns whole; of the bands as much as leaves those two readable."""
    shown = [found.prediction[rows, reward], found.returns[rows, reward][found.observed.counts[rows]]]
    values = np.concatenate(shown)
    low, high = float(values.min()), float(values.max())
    margin = 0.05 * (high - low) or 0.05 * abs(high) or 0.05
    bottom, top = ax.get_ylim() if bands else (low, high)
    reach = max(high - low, margin)
    limits = max(bottom, low - reach) - margin, min(top, high + reach) + margin
    if bands and (bottom < low - reach or top > high + reach):
        ax.text(0.995, 0.97, "bands go on", transform=ax.transAxes, ha="right", va="top", fontsize=8, color=REFERENCE)
    ax.set_ylim(*limits)


def _legend(figure: Figure, found: Evaluation, rows: NDArray[np.intp], flagged: bool) -> None:
    handles: list[Any] = [Line2D([], [], color=PREDICTION, label="prediction")]
    if found.influence is not None:
        name = f"{100 * found.level:g} % interval of the value"
        handles.append(Patch(color=PREDICTION, alpha=0.25, linewidth=0, label=name))
    if found.observed.counts[rows].any():
        handles.append(Line2D([], [], color=OBSERVED, marker="o", linestyle="", markersize=4, label="observed return"))
    if flagged:
        handles.append(Line2D([], [], **_FLAG, label="flagged: interval may be off"))
    figure.legend(
        handles=handles, loc="upper left", ncols=len(handles), bbox_to_anchor=(0.075, 1.0), fontsize=8.5,
        handlelength=1.6, columnspacing=1.4,
    )  # fmt: skip


def plot_calibration(
    model: Predictor,
    X: Any,
    y: ArrayLike,
    *,
    n_bins: int = 10,
    episode: ArrayLike | None = None,
    terminated: ArrayLike | None = None,
    discount: ArrayLike | None = None,
    tolerance: float = TOLERANCE,
    level: float = 0.95,
    rewards: Sequence[str] | None = None,
) -> Figure:
    """Mean observed return against mean prediction, by decile of the prediction, with the diagonal.

    Bars are intervals of the mean observed return. They take episodes as independent, or stretches of at least two
    horizons where there are fewer than ten episodes with observed returns.

    Parameters
    ----------
    model : fitted estimator
    X, y, episode, terminated, discount, tolerance
        As in :meth:`lstd.LSTD.score`.
    n_bins : int, default 10
        Most bins; see :func:`lstd.estimators.metrics.calibration`.
    level, rewards
        As in :func:`plot_predictions`.

    Returns
    -------
    matplotlib.figure.Figure
        A panel for each reward; one without an observed return says so.

    Raises
    ------
    InvalidInputError
        When an array breaks the data contract or does not fit the model.

    Examples
    --------
    >>> import numpy as np
    >>> from lstd import LSTD
    >>> from lstd.report import plot_calibration
    >>> X, y, done = np.tile(np.eye(2), (20, 1)), np.ones(40), np.tile([False, True], 20)
    >>> figure = plot_calibration(LSTD().fit(X, y, terminated=done), X, y, terminated=done)
    >>> [ax.get_ylabel() for ax in figure.axes]
    ['mean observed return']
    """
    found = evaluate(
        model, X, y, episode=episode, terminated=terminated, discount=discount, tolerance=tolerance, level=level,
        rewards=rewards,
    )  # fmt: skip
    return draw_calibration(found, n_bins)


def draw_calibration(found: Evaluation, n_bins: int = 10) -> Figure:
    """See :func:`plot_calibration`."""
    m = min(MOST_REWARDS, len(found.rewards))
    columns = min(2, m)
    lines = -(-m // columns)
    with figure_style():
        figure = new_figure(4.3 if columns == 1 else WIDE, 4.1 * lines)
        axes = figure.subplots(lines, columns, squeeze=False).ravel()
        for ax in axes[m:]:
            ax.set_axis_off()
        for reward, ax in enumerate(axes[:m]):
            if found.observed.counts.any():
                _calibrated(ax, found, reward, n_bins)
            else:
                empty_panel(ax, "no return was observed whole")
            ax.set_xlabel("mean prediction")
            ax.set_ylabel("mean observed return")
            if len(found.rewards) > 1:
                ax.set_title(plain(found.rewards[reward]), loc="left")
        figure.tight_layout(pad=0.6)
    return figure


def _calibrated(ax: Axes, found: Evaluation, reward: int, n_bins: int) -> None:
    table = found.calibration(reward, n_bins)
    half = np.nan_to_num(half_widths(table, found.level))
    both = np.concatenate([table.predicted, table.observed])
    reach = np.ptp(both) or abs(both[0]) or 1.0
    # A bar of two groups can be many times as long as all else.
    edges = np.concatenate([both, np.maximum(table.observed - half, both.min() - reach)])
    edges = np.concatenate([edges, np.minimum(table.observed + half, both.max() + reach)])
    low, high = edges.min() - 0.05 * np.ptp(edges), edges.max() + 0.05 * np.ptp(edges)
    if not high > low:
        low, high = low - 0.5 * reach, high + 0.5 * reach
    ax.plot([low, high], [low, high], color=REFERENCE, linewidth=0.9, zorder=1)
    ax.errorbar(
        table.predicted, table.observed, yerr=half if half.any() else None, fmt="o", color=PREDICTION, markersize=4.2,
        elinewidth=0.9, capsize=2.2, zorder=3,
    )  # fmt: skip
    ax.set_xlim(low, high)
    ax.set_ylim(low, high)
    ax.set_aspect("equal")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(nbins=6))
