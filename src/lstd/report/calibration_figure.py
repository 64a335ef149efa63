"""Mean return against mean prediction, and how often actions were logged against their probabilities."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from lstd.estimators.base import Predictor
from lstd.metrics import Calibration
from lstd.ope.action_calibration import action_calibration
from lstd.report.figure_data import Evaluation, Options, evaluate, half_widths
from lstd.report.formatting import share
from lstd.report.style import BLUE, REFERENCE, WIDE, axes_for, figure_style, given_axes, new_figure, plain
from lstd.statistics.intervals import check_level

_BARS: dict[str, Any] = {
    "fmt": "o", "color": BLUE, "markersize": 4.2, "elinewidth": 0.9, "capsize": 2.2, "zorder": 3,
}  # fmt: skip


def plot_calibration(
    model: Predictor, X: Any, y: ArrayLike, *, n_bins: int = 10, ax: Any = None, **data: Unpack[Options]
) -> list[Artist]:
    """Draw the mean return against the mean prediction, by decile of the prediction, with the diagonal.

    Bars are intervals of the mean return. They take groups as independent, or episodes without `groups`; if fewer than
    ten episodes have scored rows, they take blocks of at least two horizons instead. Returns that were cut off are
    completed by the prediction there, corrected by what the figure shows for such predictions: see
    :func:`lstd.metrics.calibration`.

    Parameters
    ----------
    model, X, y, ax, **data
        As in :func:`plot_predictions`, with the same errors.
    n_bins : int, default 10
        Most bins; see :func:`lstd.metrics.calibration`.

    Returns
    -------
    list of matplotlib.artist.Artist
        The points of each reward, or the words that no return was observed.

    Examples
    --------
    >>> import numpy as np
    >>> from lstd import LSTD
    >>> from lstd.report import plot_calibration
    >>> X, y, done = np.tile(np.eye(2), (20, 1)), np.ones(40), np.tile([False, True], 20)
    >>> (points,) = plot_calibration(LSTD().fit(X, y, terminated=done), X, y, terminated=done)
    >>> points.axes.get_ylabel()
    'mean return'
    """
    return draw_calibration(evaluate(model, X, y, **data), n_bins, ax)


@figure_style()
def draw_calibration(evaluation: Evaluation, n_bins: int = 10, ax: Any = None) -> list[Artist]:
    """Draw the figure of :func:`plot_calibration`."""
    axes = given_axes(ax, evaluation.n_panels) or _new_axes(evaluation.n_panels)
    artists = [_panel(panel, evaluation, reward, n_bins) for reward, panel in enumerate(axes)]
    if ax is None:
        figure: Any = artists[0].figure
        figure.tight_layout(pad=0.6)
    return artists


def _new_axes(m: int) -> list[Axes]:
    columns = min(2, m)
    lines = -(-m // columns)
    axes = new_figure(4.3 if columns == 1 else WIDE, 4.1 * lines).subplots(lines, columns, squeeze=False).ravel()
    for ax in axes[m:]:
        ax.set_axis_off()
    return list(axes[:m])


def _panel(ax: Axes, evaluation: Evaluation, reward: int, n_bins: int) -> Artist:
    ax.set_xlabel("mean prediction")
    ax.set_ylabel("mean return" + ("" if evaluation.share == 1.0 else f", {share(evaluation.share)} observed"))
    if len(evaluation.rewards) > 1:
        ax.set_title(plain(evaluation.rewards[reward]), loc="left")
    if evaluation.calibrates:
        table = evaluation.calibration(reward, n_bins)
        return draw_points(ax, table, half_widths(table, evaluation.level))
    ax.set(xticks=[], yticks=[])
    return ax.text(0.5, 0.5, "no return was observed", transform=ax.transAxes, ha="center", color=REFERENCE)


def draw_points(ax: Axes, table: Calibration, half: NDArray[np.float64]) -> Artist:
    """Draw the bins of a calibration with bars of half a width each, NaN for none, and the diagonal."""
    known = np.isfinite(table.observed)
    predicted, observed, half = table.predicted[known], table.observed[known], np.nan_to_num(half[known])
    both = np.concatenate([predicted, observed])
    reach = np.ptp(both) or abs(both[0]) or 1.0
    # The bar of a bin with few groups can be many times longer than everything else.
    bars = np.maximum(observed - half, both.min() - reach), np.minimum(observed + half, both.max() + reach)
    edges = np.concatenate([both, *bars])
    low, high = edges.min() - 0.05 * np.ptp(edges), edges.max() + 0.05 * np.ptp(edges)
    if not high > low:
        low, high = low - 0.5 * reach, high + 0.5 * reach
    ax.plot([low, high], [low, high], color=REFERENCE, linewidth=0.9, zorder=1)
    points: Artist = ax.errorbar(predicted, observed, yerr=half if half.any() else None, **_BARS)[0]
    ax.set_xlim(low, high)
    ax.set_ylim(low, high)
    ax.set_aspect("equal")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(nbins=6))
    return points


def plot_action_calibration(
    actions: ArrayLike, behavior_probability: ArrayLike, *, n_bins: int = 10, labels: Any = None, level: float = 0.95,
    ax: Any = None,
) -> list[Artist]:  # fmt: skip
    """Draw how often actions were taken against their probabilities, with the diagonal.

    With probabilities of all actions, there is a point for each bin of each action.
    With probabilities of logged actions only, one point per action shows the mean over all rows of 1 / probability
    where the action was taken, and 0 elsewhere. That should be 1 if the action is possible in every row. It is below 1
    if it is not, and above only by chance.

    Parameters
    ----------
    actions, behavior_probability, n_bins, labels
        As in :func:`lstd.ope.action_calibration`, with the same errors and warnings.
    level : float in (0, 1), default 0.95
        Level of the bars.
    ax : matplotlib.axes.Axes, optional
        As in :func:`plot_predictions`.

    Returns
    -------
    list of matplotlib.artist.Artist
        The points.

    Examples
    --------
    >>> import numpy as np
    >>> from lstd.report import plot_action_calibration
    >>> (points,) = plot_action_calibration(np.array([0, 1, 1, 1] * 50), np.full((200, 2), [0.25, 0.75]))
    >>> points.axes.get_ylabel()
    'share of rows with the action'
    """
    level = check_level(level)
    table = action_calibration(actions, behavior_probability, n_bins, labels=labels)
    half = table.standard_error * stats.norm.ppf(0.5 + 0.5 * level)
    with axes_for(ax, 4.3, 4.1) as panel:
        if np.ndim(behavior_probability) == 2:
            panel.set(xlabel="probability of the action", ylabel="share of rows with the action")
            return [draw_points(panel, table, half)]
        names = np.unique(np.asarray(actions)) if labels is None else labels
        panel.axhline(1.0, color=REFERENCE, linewidth=0.9, zorder=1)
        places = np.arange(len(names))
        points: Artist = panel.errorbar(places, table.observed, yerr=half, **_BARS)[0]
        panel.set(xlabel="action", ylabel="mean of 1 / probability where taken", ylim=(0.0, None))
        if len(names) <= 30:
            panel.set_xticks(places, [str(name) for name in names])
        return [points]
