"""Mean return against mean prediction."""

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
from lstd.metrics import Calibration
from lstd.report.evaluation import LEVEL, MAX_REWARDS, Evaluation, evaluate, half_widths
from lstd.report.numbers import share
from lstd.report.style import BLUE, REFERENCE, WIDE, figure_style, new_figure, plain


def plot_calibration(
    model: Predictor, X: Any, y: ArrayLike, *, n_bins: int = 10, episode: PerRow = None, terminated: PerRow = None,
    X_next: Any = None, discount: PerRow = None, importance_ratio: PerRow = None, trace_coefficient: PerRow = None,
    weight: PerRow = None, groups: PerRow = None, unobserved: str = "predict", tolerance: float = TOLERANCE,
    level: float = LEVEL, rewards: Sequence[str] | None = None,
) -> Figure:  # fmt: skip
    """Draw the mean return against the mean prediction, by decile of the prediction, with the diagonal.

    Bars are intervals of the mean return. They take groups as independent, or episodes without `groups`; if fewer than
    ten episodes have scored rows, they take blocks of at least two horizons instead. Returns that were cut off are
    completed by the prediction there, corrected by what the figure shows for such predictions: see
    :func:`lstd.metrics.calibration`.

    Parameters
    ----------
    model, X, y, episode, terminated, X_next, discount, importance_ratio, trace_coefficient, weight, groups,
    unobserved, tolerance, level, rewards
        As in :func:`plot_predictions`.
    n_bins : int, default 10
        Most bins; see :func:`lstd.metrics.calibration`.

    Returns
    -------
    matplotlib.figure.Figure
        A panel for each reward. A panel without any observed part of a return says so.

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
    ['mean return']
    """
    return draw_calibration(evaluate(
        model, X, y, episode=episode, terminated=terminated, X_next=X_next, discount=discount,
        importance_ratio=importance_ratio, trace_coefficient=trace_coefficient, weight=weight, groups=groups,
        unobserved=unobserved, tolerance=tolerance, level=level, rewards=rewards,
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
            if evaluation.calibrates:
                _panel(ax, evaluation.calibration(reward, n_bins), evaluation.level)
            else:
                ax.text(0.5, 0.5, "no return was observed", transform=ax.transAxes, ha="center", color=REFERENCE)
                ax.set(xticks=[], yticks=[])
            ax.set_xlabel("mean prediction")
            ax.set_ylabel("mean return" + ("" if evaluation.share == 1.0 else f", {share(evaluation.share)} observed"))
            if len(evaluation.rewards) > 1:
                ax.set_title(plain(evaluation.rewards[reward]), loc="left")
        figure.tight_layout(pad=0.6)
    return figure


def _panel(ax: Axes, table: Calibration, level: float) -> None:
    known = np.isfinite(table.observed)
    predicted, observed, half = table.predicted[known], table.observed[known], half_widths(table, level)[known]
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
    ax.errorbar(
        predicted, observed, yerr=half if half.any() else None, fmt="o", color=BLUE, markersize=4.2,
        elinewidth=0.9, capsize=2.2, zorder=3,
    )  # fmt: skip
    ax.set_xlim(low, high)
    ax.set_ylim(low, high)
    ax.set_aspect("equal")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(nbins=6))
