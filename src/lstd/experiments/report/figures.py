"""Figures 2 to 5 of the paper's supplement, from stored results."""

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

from lstd.experiments.protocol import FEATURES
from lstd.experiments.report.names import algorithm_name, feature_name, problem_name
from lstd.experiments.report.results import FloatArray, Results, Sweep
from lstd.report.style import COLOURS, LINES, MARKERS, REFERENCE, empty_panel, new_figure

FIGURE2_ALGORITHMS = ("uncorrected", "mixed", "boyan", "true_online_td")
SENSITIVITY_ROWS = ("mixed", "uncorrected", "boyan")
# Predicting zero everywhere has a normalised error of exactly 1, so most of what matters lies below;
# an estimator that blows up reaches 1e6 and would flatten everything else.
TOP = 2.5
# Best errors that differ by more than this factor within one panel are drawn on a log axis.
LOG_SPAN = 20.0


def figure2(results: Results) -> Figure:
    """Figure 2: best error over α against λ; rows are problems, columns are features.

    Parameters
    ----------
    results : Results

    Returns
    -------
    Figure
        One row of panels for each problem in the results.

    Examples
    --------
    >>> figure2(load("lstd-results")).savefig("figure2.pdf")  # doctest: +SKIP
    """
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
            ax.set_title(f"{feature_name(features)} features")
            _best_panel(ax, results, problem, features)
            if row == len(rows) - 1:
                ax.set_xlabel("λ")
        axes[row, 0].set_ylabel("normalised MSE")
        _row_heading(figure, axes[row], problem_name(problem))
    _variant_legend(figure)
    return figure


def _best_panel(ax: Axes, results: Results, problem: str, features: str) -> None:
    sweeps = {
        algorithm: results.sweeps[problem, features, algorithm]
        for algorithm in FIGURE2_ALGORITHMS
        if (problem, features, algorithm) in results.sweeps
    }
    if not sweeps:
        empty_panel(ax)
        return
    means, spreads = [], []
    for position, (algorithm, sweep) in enumerate(sweeps.items()):
        mean, std = best(sweep)
        ax.plot(sweep.lmbdas, np.where(np.isfinite(mean), mean, np.nan), **_line(algorithm))
        _error_bars(ax, sweep.lmbdas, mean, std, algorithm, shift=0.007 * (position - 1.5))
        spread = np.nan_to_num(np.where(on_tenths(sweep.lmbdas), std, 0.0))
        means.append(mean)
        spreads.append(spread)
    ax.set_xlim(-0.03, 1.03)
    ax.set_xticks(np.linspace(0, 1, 6))
    _best_limits(ax, np.concatenate(means), np.concatenate(spreads))
    ax.axhline(1.0, color=REFERENCE, linewidth=0.7, zorder=1)


def best(sweep: Sweep) -> tuple[FloatArray, FloatArray]:
    """Mean and standard deviation over the runs at the α with the lowest mean, for each λ."""
    rows = np.arange(len(sweep.lmbdas))
    return sweep.mean[rows, sweep.best_alpha], sweep.std[rows, sweep.best_alpha]


def on_tenths(lmbdas: FloatArray) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which λ are i/10: the only ones with an error bar in the paper's Figure 2."""
    tenths: np.ndarray[tuple[int], np.dtype[np.bool_]] = np.abs(lmbdas * 10 - np.round(lmbdas * 10)) < 1e-9
    return tenths


def _error_bars(ax: Axes, lmbdas: FloatArray, mean: FloatArray, std: FloatArray, algorithm: str, shift: float) -> None:
    drawn = on_tenths(lmbdas) & np.isfinite(mean)
    error = np.nan_to_num(std[drawn])
    ax.errorbar(
        lmbdas[drawn] + shift,
        mean[drawn],
        # One run has no standard deviation: markers only.
        yerr=error if error.any() else None,
        fmt=MARKERS[algorithm],
        color=COLOURS[algorithm],
        markersize=3.2,
        elinewidth=0.8,
        capsize=1.8,
        capthick=0.8,
    )


def _best_limits(ax: Axes, mean: FloatArray, spread: FloatArray) -> None:
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
        Line2D([], [], marker=MARKERS[a], markersize=4.5, label=algorithm_name(a), **_line(a))
        for a in FIGURE2_ALGORITHMS
    ]
    figure.legend(
        handles=handles,
        loc="upper center",
        ncols=4,
        bbox_to_anchor=(0.53, 1.0),
        handlelength=3.4,
        borderaxespad=0.4,
    )


def _row_heading(figure: Figure, axes: Sequence[Axes], text: str) -> None:
    """Centre `text` above a row of panels, over their titles."""
    left, right = axes[0].get_position(), axes[-1].get_position()
    y = left.y1 + 0.29 / figure.get_figheight()
    figure.text((left.x0 + right.x1) / 2, y, text, ha="center", va="bottom", fontsize=10.5, fontweight="bold")


def sensitivity(results: Results, problem: str) -> Figure:
    """Figures 3, 4, 5: error against α for every λ; rows are variants, columns are features.

    Parameters
    ----------
    results : Results
    problem : str
        One of `results.problems`.

    Returns
    -------
    Figure
        Panels of one column share their vertical axis, which ends at `TOP` at the latest; each panel says how
        many of its points lie above.

    Examples
    --------
    >>> sensitivity(load("lstd-results"), "small").savefig("figure3.pdf")  # doctest: +SKIP
    """
    figure = new_figure(9.6, 8.9)
    axes = figure.subplots(3, 3, sharex=False)
    figure.subplots_adjust(left=0.115, right=0.985, bottom=0.145, top=0.92, wspace=0.2, hspace=0.15)
    lmbdas = np.unique(np.concatenate([s.lmbdas for key, s in results.sweeps.items() if key[0] == problem]))
    colours = rainbow(len(lmbdas))
    for column, features in enumerate(FEATURES):
        _alpha_column(axes[:, column], results, problem, features, lmbdas, colours)
    for row, algorithm in enumerate(SENSITIVITY_ROWS):
        _row_labels(axes[row, 0], algorithm)
    figure.suptitle(problem_name(problem), fontsize=10.5, fontweight="bold", y=0.99, x=0.55)
    _lmbda_bar(figure, lmbdas, colours)
    return figure


def _alpha_column(
    axes: Sequence[Axes], results: Results, problem: str, features: str, lmbdas: FloatArray, colours: FloatArray
) -> None:
    limits = sensitivity_limits(results, problem, features)
    for ax, algorithm in zip(axes, SENSITIVITY_ROWS, strict=True):
        sweep = results.sweeps.get((problem, features, algorithm))
        if sweep is None:
            empty_panel(ax)
            continue
        _alpha_panel(ax, sweep, limits, colours[np.searchsorted(lmbdas, sweep.lmbdas)])
        ax.tick_params(labelbottom=algorithm == SENSITIVITY_ROWS[-1])
    axes[0].set_title(f"{feature_name(features)} features", pad=17)
    axes[-1].set_xlabel("regularisation coefficient α")


def _row_labels(ax: Axes, algorithm: str) -> None:
    for x, text, weight in ((-0.165, "normalised MSE", "normal"), (-0.25, algorithm_name(algorithm), "bold")):
        ax.text(x, 0.5, text, transform=ax.transAxes, rotation=90, ha="right", va="center", size=9.5, weight=weight)


def rainbow(n: int) -> FloatArray:
    """`n` colours of the rainbow, in the order of λ; equal steps, as λ is dense near 1."""
    colours: FloatArray = colormaps["rainbow"](np.linspace(0, 1, n))
    return colours


def sensitivity_limits(results: Results, problem: str, features: str) -> tuple[float, float]:
    """Vertical limits shared by the three variants: from their lowest mean error up to at most `TOP`."""
    means = [
        results.sweeps[key].mean
        for key in ((problem, features, algorithm) for algorithm in SENSITIVITY_ROWS)
        if key in results.sweeps
    ]
    values = np.concatenate([mean.ravel() for mean in means]) if means else np.ones(1)
    values = values[np.isfinite(values) & (values > 0)]
    if not len(values):
        return 0.5, TOP
    top = min(TOP, 1.04 * values.max())
    return min(values.min() * 0.94, 0.5 * top), max(top, 1.06)


def points_above(sweep: Sweep, top: float) -> int:
    """How many (λ, α) of `sweep` have a mean error above `top` or infinite."""
    return int((sweep.mean > top).sum())


def _alpha_panel(ax: Axes, sweep: Sweep, limits: tuple[float, float], colours: FloatArray) -> None:
    bottom, top = limits
    # Far above the axis: the line leaves it in the right direction, and no coordinate is infinite.
    mean = np.minimum(sweep.mean, 1e6 * top)
    for curve, colour in zip(mean, colours, strict=True):
        ax.plot(sweep.alphas, curve, color=colour, linewidth=1.0)
    ax.axhline(1.0, color=REFERENCE, linewidth=0.7, zorder=1)
    _alpha_axis(ax, sweep.alphas)
    ax.set_yscale("log")
    ax.set_ylim(bottom, top)
    _plain_log_ticks(ax, bottom, top)
    above = points_above(sweep, top)
    if above:
        ax.text(
            1.0,
            1.01,
            f"↑ {above} of {sweep.mean.size} above",
            transform=ax.transAxes,
            ha="right",
            va="bottom",
            fontsize=8.5,
        )


def _alpha_axis(ax: Axes, alphas: FloatArray) -> None:
    exponents = np.arange(np.ceil(np.log2(alphas.min())), np.floor(np.log2(alphas.max())) + 1)
    step = 4 if len(exponents) > 9 else 2
    major = exponents[exponents % step == 0]
    ax.set_xscale("log", base=2)
    ax.set_xlim(alphas.min() / 1.25, alphas.max() * 1.25)
    ax.xaxis.set_major_locator(FixedLocator(list(2.0**major)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"$2^{{{int(np.round(np.log2(value)))}}}$"))
    ax.xaxis.set_minor_locator(FixedLocator(list(2.0**exponents)))
    ax.xaxis.set_minor_formatter(NullFormatter())


def _plain_log_ticks(ax: Axes, bottom: float, top: float) -> None:
    """Label a log axis of a decade or less with plain numbers, about five of them."""
    decades = 10.0 ** np.arange(np.floor(np.log10(bottom)), np.ceil(np.log10(top)) + 1)
    for digits in (
        (1,),
        (1, 3),
        (1, 2, 5),
        (1, 1.5, 2, 3, 4, 6, 8),
        (1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 4, 5, 6, 7, 8, 9),
    ):
        ticks = np.unique(np.outer(decades, digits))
        ticks = ticks[(ticks >= bottom) & (ticks <= top)]
        if len(ticks) >= 4:
            break
    ax.yaxis.set_major_locator(FixedLocator(list(ticks)))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.yaxis.set_minor_locator(NullLocator())


def _lmbda_bar(figure: Figure, lmbdas: FloatArray, colours: FloatArray) -> None:
    n = len(lmbdas)
    mappable = ScalarMappable(BoundaryNorm(np.arange(n + 1), n), ListedColormap(colours))
    ax = figure.add_axes((0.115, 0.055, 0.87, 0.017))
    bar = figure.colorbar(mappable, cax=ax, orientation="horizontal", ticks=np.arange(n) + 0.5)
    labels = [f"{lmbda:g}" for lmbda in lmbdas]
    labels[0], labels[-1] = f"λ = {labels[0]}", f"λ = {labels[-1]}"
    bar.ax.set_xticklabels(labels)
    bar.ax.tick_params(length=0, labelsize=8)
    bar.outline.set_visible(False)
