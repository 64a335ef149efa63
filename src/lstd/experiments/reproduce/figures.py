"""Figures 2 to 5 of the paper's supplement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator
from numpy.typing import NDArray

from lstd.experiments.protocol import FEATURES
from lstd.experiments.reproduce.display_names import ALGORITHM_NAMES, FEATURE_NAMES, PROBLEM_NAMES
from lstd.experiments.reproduce.panels import FIGURE2_ALGORITHMS, SENSITIVITY_ROWS, points_above, sensitivity_limits
from lstd.experiments.reproduce.results import Array, Results, Sweep
from lstd.report.style import COLOURS, LINES, MARKERS, REFERENCE, new_figure

# Best errors that differ by more than this factor within one panel are drawn on a log axis.
LOG_SPAN = 20.0


def figure2(results: Results) -> Figure:
    """Draw Figure 2, the best error over α against λ: a row of panels per problem, columns are features."""
    rows = results.problems
    height = 0.95 + 2.55 * len(rows)
    figure = new_figure(9.6, height)
    axes = figure.subplots(len(rows), 3, squeeze=False)
    figure.subplots_adjust(
        left=0.075, right=0.985, bottom=0.46 / height, top=1 - 0.92 / height, wspace=0.2, hspace=0.42
    )
    for row, problem in enumerate(rows):
        for column, features in enumerate(FEATURES):
            ax = axes[row, column]
            ax.set_title(f"{FEATURE_NAMES[features]} features")
            _best_panel(ax, results, problem, features)
            if row == len(rows) - 1:
                ax.set_xlabel("λ")
        axes[row, 0].set_ylabel("normalised MSE")
        _row_heading(figure, axes[row], PROBLEM_NAMES[problem])
    _variant_legend(figure)
    return figure


def _best_panel(ax: Axes, results: Results, problem: str, features: str) -> None:
    means, spreads = [], []
    for position, algorithm in enumerate(FIGURE2_ALGORITHMS):
        sweep = results.sweeps[problem, features, algorithm]
        rows = np.arange(len(sweep.lmbdas))
        mean, std = sweep.mean[rows, sweep.best_alpha], sweep.std[rows, sweep.best_alpha]
        ax.plot(sweep.lmbdas, np.where(np.isfinite(mean), mean, np.nan), **_line(algorithm))
        _error_bars(ax, sweep.lmbdas, mean, std, algorithm, shift=0.007 * (position - 1.5))
        means.append(mean)
        spreads.append(np.nan_to_num(np.where(_on_tenths(sweep.lmbdas), std, 0.0)))
    ax.set_xlim(-0.03, 1.03)
    ax.set_xticks(np.linspace(0, 1, 6))
    _best_limits(ax, np.concatenate(means), np.concatenate(spreads))
    ax.axhline(1.0, color=REFERENCE, linewidth=0.7, zorder=1)


def _on_tenths(lmbdas: Array) -> NDArray[np.bool_]:
    """Find the λ that are i/10: the only ones with an error bar in the paper's Figure 2."""
    return np.asarray(np.abs(lmbdas * 10 - np.round(lmbdas * 10)) < 1e-9)


def _error_bars(ax: Axes, lmbdas: Array, mean: Array, std: Array, algorithm: str, shift: float) -> None:
    drawn = _on_tenths(lmbdas) & np.isfinite(mean)
    error = np.nan_to_num(std[drawn])
    x, y, colour, marker = lmbdas[drawn] + shift, mean[drawn], COLOURS[algorithm], MARKERS[algorithm]
    # One run has no standard deviation: markers only.
    yerr = error if error.any() else None
    ax.errorbar(x, y, yerr, fmt=marker, color=colour, markersize=3.2, elinewidth=0.8, capsize=1.8, capthick=0.8)


def _best_limits(ax: Axes, mean: Array, spread: Array) -> None:
    """Linear from the lowest bar to the highest, cut at 0; logarithmic where the means span decades."""
    finite = np.isfinite(mean)
    if not finite.any():
        return
    mean, spread = mean[finite], spread[finite]
    if 0 < LOG_SPAN * mean.min() < mean.max():
        ax.set_yscale("log")
        ax.set_ylim(0.7 * mean.min(), 1.4 * (mean + spread).max())
        return
    bottom, top = (mean - spread).min(), (mean + spread).max()
    margin = 0.05 * (top - bottom) or 0.05
    ax.set_ylim(max(0.0, bottom - margin), top + margin)


def _line(algorithm: str) -> dict[str, Any]:
    width = {"uncorrected": 2.0, "boyan": 1.8}.get(algorithm, 1.4)
    return {"color": COLOURS[algorithm], "linestyle": LINES[algorithm], "linewidth": width}


def _variant_legend(figure: Figure) -> None:
    handles = [
        Line2D([], [], marker=MARKERS[a], markersize=4.5, label=ALGORITHM_NAMES[a], **_line(a))
        for a in FIGURE2_ALGORITHMS
    ]
    figure.legend(
        handles=handles, loc="upper center", ncols=4, bbox_to_anchor=(0.53, 1.0), handlelength=3.4, borderaxespad=0.4
    )


def _row_heading(figure: Figure, axes: Sequence[Axes], text: str) -> None:
    """Centre `text` above a row of panels, over their titles."""
    left, right = axes[0].get_position(), axes[-1].get_position()
    y = left.y1 + 0.29 / figure.get_figheight()
    figure.text((left.x0 + right.x1) / 2, y, text, ha="center", va="bottom", fontsize=10.5, fontweight="bold")


def sensitivity(results: Results, problem: str) -> Figure:
    """Draw Figure 3, 4 or 5, the error against α for every λ: rows are variants, columns are features.

    The panels of a column share their vertical axis, which ends at `TOP` or below; each panel says how many of its
    points lie above.
    """
    figure = new_figure(9.6, 8.9)
    axes = figure.subplots(3, 3, sharex=False)
    figure.subplots_adjust(left=0.115, right=0.985, bottom=0.145, top=0.92, wspace=0.2, hspace=0.15)
    for column, features in enumerate(FEATURES):
        _alpha_column(axes[:, column], results, problem, features)
    for ax, algorithm in zip(axes[:, 0], SENSITIVITY_ROWS, strict=True):
        style: dict[str, Any] = {"rotation": 90, "ha": "right", "va": "center", "size": 9.5}
        ax.text(-0.165, 0.5, "normalised MSE", transform=ax.transAxes, **style)
        ax.text(-0.25, 0.5, ALGORITHM_NAMES[algorithm], transform=ax.transAxes, weight="bold", **style)
    figure.suptitle(PROBLEM_NAMES[problem], fontsize=10.5, fontweight="bold", y=0.99, x=0.55)
    _lmbda_bar(figure, next(iter(results.sweeps.values())).lmbdas)
    return figure


def _alpha_column(axes: Sequence[Axes], results: Results, problem: str, features: str) -> None:
    limits = sensitivity_limits(results, problem, features)
    for ax, algorithm in zip(axes, SENSITIVITY_ROWS, strict=True):
        _alpha_panel(ax, results.sweeps[problem, features, algorithm], limits)
        ax.tick_params(labelbottom=algorithm == SENSITIVITY_ROWS[-1])
    axes[0].set_title(f"{FEATURE_NAMES[features]} features", pad=17)
    axes[-1].set_xlabel("regularisation coefficient α")


def _rainbow(n: int) -> Array:
    """`n` colours of the rainbow, in the order of λ; equal steps, as λ is dense near 1."""
    return np.asarray(colormaps["rainbow"](np.linspace(0, 1, n)))


def _alpha_panel(ax: Axes, sweep: Sweep, limits: tuple[float, float]) -> None:
    bottom, top = limits
    # Far above the axis: the line leaves it in the right direction, and no coordinate is infinite.
    mean = np.minimum(sweep.mean, 1e6 * top)
    for curve, colour in zip(mean, _rainbow(len(mean)), strict=True):
        ax.plot(sweep.alphas, curve, color=colour, linewidth=1.0)
    ax.axhline(1.0, color=REFERENCE, linewidth=0.7, zorder=1)
    _alpha_axis(ax, sweep.alphas)
    ax.set_yscale("log")
    ax.set_ylim(bottom, top)
    _plain_log_ticks(ax, bottom, top)
    if above := points_above(sweep, top):
        text = f"↑ {above} of {sweep.mean.size} above"
        ax.text(1.0, 1.01, text, transform=ax.transAxes, ha="right", va="bottom", fontsize=8.5)


def _alpha_axis(ax: Axes, alphas: Array) -> None:
    exponents = np.arange(np.ceil(np.log2(alphas.min())), np.floor(np.log2(alphas.max())) + 1)
    ax.set_xscale("log", base=2)
    ax.set_xlim(alphas.min() / 1.25, alphas.max() * 1.25)
    ax.xaxis.set_major_locator(FixedLocator(list(2.0 ** exponents[exponents % 4 == 0])))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"$2^{{{int(np.round(np.log2(value)))}}}$"))
    ax.xaxis.set_minor_locator(FixedLocator(list(2.0**exponents)))
    ax.xaxis.set_minor_formatter(NullFormatter())


def _plain_log_ticks(ax: Axes, bottom: float, top: float) -> None:
    """Label a log axis of a decade or less with plain numbers, about five of them."""
    decades = 10.0 ** np.arange(np.floor(np.log10(bottom)), np.ceil(np.log10(top)) + 1)
    fine = (1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 4, 5, 6, 7, 8, 9)
    for digits in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 6, 8), fine):
        ticks = np.unique(np.outer(decades, digits))
        ticks = ticks[(ticks >= bottom) & (ticks <= top)]
        if len(ticks) >= 4:
            break
    ax.yaxis.set_major_locator(FixedLocator(list(ticks)))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.yaxis.set_minor_locator(NullLocator())


def _lmbda_bar(figure: Figure, lmbdas: Array) -> None:
    n = len(lmbdas)
    mappable = ScalarMappable(BoundaryNorm(np.arange(n + 1), n), ListedColormap(_rainbow(n)))
    ax = figure.add_axes((0.115, 0.055, 0.87, 0.017))
    bar = figure.colorbar(mappable, cax=ax, orientation="horizontal", ticks=np.arange(n) + 0.5)
    labels = [f"{lmbda:g}" for lmbda in lmbdas]
    labels[0], labels[-1] = f"λ = {labels[0]}", f"λ = {labels[-1]}"
    bar.ax.set_xticklabels(labels)
    bar.ax.tick_params(length=0, labelsize=8)
    bar.outline.set_visible(False)
