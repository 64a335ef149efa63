"""Mean return against mean prediction."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray

from lstd.estimators.base import Predictor
from lstd.metrics import Calibration
from lstd.report.figure_data import Evaluation, Options, evaluate, half_widths
from lstd.report.formatting import share
from lstd.report.style import BLUE, REFERENCE, WIDE, figure_style, given_axes, new_figure, plain


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


def draw_calibration(evaluation: Evaluation, n_bins: int = 10, ax: Any = None) -> list[Artist]:
    """Draw the figure of :func:`plot_calibration`."""
    given = given_axes(ax, evaluation.n_panels)
    with figure_style():
        axes = given or _new_axes(evaluation.n_panels)
        artists = [_panel(panel, evaluation, reward, n_bins) for reward, panel in enumerate(axes)]
        if not given:
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
    predicted, observed, half = table.predicted[known], table.observed[known], half[known]
    half = np.nan_to_num(half)
    both = np.concatenate([predicted, observed])
    reach = np.ptp(both) or abs(both[0]) or 1.0
    # The bar of a bin with few groups can be many times longer than everything else.
    bars = np.maximum(observed - half, both.min() - reach), np.minimum(observed + half, both.max() + reach)
    edges = np.concatenate([both, *bars])
    low, high = edges.min() - 0.05 * np.ptp(edges), edges.max() + 0.05 * np.ptp(edges)
    if not high > low:
        low, high = low - 0.5 * reach, high + 0.5 * reach
    ax.plot([low, high], [low, high], color=REFERENCE, linewidth=0.9, zorder=1)
    points: Artist = ax.errorbar(
        predicted, observed, yerr=half if half.any() else None, fmt="o", color=BLUE, markersize=4.2,
        elinewidth=0.9, capsize=2.2, zorder=3,
    )[0]  # fmt: skip
    ax.set_xlim(low, high)
    ax.set_ylim(low, high)
    ax.set_aspect("equal")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(nbins=6))
    return points
