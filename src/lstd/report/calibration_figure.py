"""Mean observed return against mean prediction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from lstd.data.check_rows import PerRow
from lstd.data.returns import TOLERANCE
from lstd.estimators.base import Predictor
from lstd.estimators.metrics import Calibration
from lstd.report.evaluation import LEVEL, MAX_REWARDS, Evaluation, evaluate, half_widths
from lstd.report.style import BLUE, REFERENCE, WIDE, figure_style, new_figure, plain


def plot_calibration(
    model: Predictor, X: Any, y: ArrayLike, *, n_bins: int = 10, episode: PerRow = None, terminated: PerRow = None,
    discount: PerRow = None, tolerance: float = TOLERANCE, level: float = LEVEL,
    rewards: Sequence[str] | None = None,
) -> Figure:  # fmt: skip
    """Draw the mean observed return against the mean prediction, by decile of the prediction, with the diagonal.

    Bars are intervals of the mean observed return. They take episodes as independent; if fewer than ten episodes have
    observed returns, they take blocks of at least two horizons instead.

    Parameters
    ----------
    model, X, y, episode, terminated, discount, tolerance, level, rewards
        As in :func:`plot_predictions`.
    n_bins : int, default 10
        Most bins; see :func:`lstd.estimators.metrics.calibration`.

    Returns
    -------
    matplotlib.figure.Figure
        A panel for each reward. A panel without an observed return says so.

    Raises
    ------
    InvalidInputError
        If an array breaks the data contract or does not fit the model.

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
    return draw_calibration(evaluate(
        model, X, y, episode=episode, terminated=terminated, discount=discount, tolerance=tolerance, level=level,
        rewards=rewards,
    ), n_bins)  # fmt: skip


def draw_calibration(evaluation: Evaluation, n_bins: int = 10) -> Figure:
    """Draw the figure of :func:`plot_calibration`."""
    m = min(MAX_REWARDS, len(evaluation.rewards))
    columns = min(2, m)
    lines = -(-m // columns)
    with figure_style():
        figure = new_figure(4.3 if columns == 1 else WIDE, 4.1 * lines)
        axes = figure.subplots(lines, columns, squeeze=False).ravel()
        for ax in axes[m:]:
            ax.set_axis_off()
        for reward, ax in enumerate(axes[:m]):
            if evaluation.observed.counts.any():
                _panel(ax, evaluation.calibration(reward, n_bins), evaluation.level)
            else:
                ax.text(0.5, 0.5, "no return was observed", transform=ax.transAxes, ha="center", color=REFERENCE)
                ax.set(xticks=[], yticks=[])
            ax.set_xlabel("mean prediction")
            ax.set_ylabel("mean observed return")
            if len(evaluation.rewards) > 1:
                ax.set_title(plain(evaluation.rewards[reward]), loc="left")
        figure.tight_layout(pad=0.6)
    return figure


def _panel(ax: Axes, table: Calibration, level: float) -> None:
    half = np.nan_to_num(half_widths(table, level))
    both = np.concatenate([table.predicted, table.observed])
    reach = np.ptp(both) or abs(both[0]) or 1.0
    # The bar of a bin with few groups can be many times longer than everything else.
    bars = np.maximum(table.observed - half, both.min() - reach), np.minimum(table.observed + half, both.max() + reach)
    edges = np.concatenate([both, *bars])
    low, high = edges.min() - 0.05 * np.ptp(edges), edges.max() + 0.05 * np.ptp(edges)
    if not high > low:
        low, high = low - 0.5 * reach, high + 0.5 * reach
    ax.plot([low, high], [low, high], color=REFERENCE, linewidth=0.9, zorder=1)
    ax.errorbar(
        table.predicted, table.observed, yerr=half if half.any() else None, fmt="o", color=BLUE, markersize=4.2,
        elinewidth=0.9, capsize=2.2, zorder=3,
    )  # fmt: skip
    ax.set_xlim(low, high)
    ax.set_ylim(low, high)
    ax.set_aspect("equal")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(nbins=6))
