"""Figures 2 to 5 of the paper's supplement, and Proposition 1 and Theorem 2 as figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from lstd.experiments import protocol
from lstd.experiments.reproduce.results import (
    Results,
    Row,
    Sweep,
    column,
    levels,
    points_above,
    select,
    sensitivity_limits,
)
from lstd.report.style import COLOURS, LINES, MARKERS, REFERENCE, mean_and_band, new_figure
from lstd.types import Array

WIDTHS = {"uncorrected": 2.0, "boyan": 1.8}  # of lines; 1.4 for others
VARIANTS = ("uncorrected", "mixed", "boyan")
QUANTITIES = (("error_A", "A / T"), ("error_b", "b / T"), ("error_theta", "weights θ"))
# Error bars of simulated values, in standard errors: about 95 % of them cover the exact value.
BAR = 2.0
LABELLED = {0, 20, 40, 60, 80, 90, 95, 100}  # values of λ, in hundredths, named beside their colours
ERROR_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0, 1.5, 2.0)
LEADING: dict[str, Any] = {"color": "black", "linestyle": (0, (4, 2)), "linewidth": 1.0}
_TINY = 1e-300


def drawn(name: str, results: Results) -> Figure:
    """Draw a figure by the name of its files."""
    if name in ("figure2", "differences"):
        return {"figure2": figure2, "differences": differences}[name](results)
    if name in results.theory:
        return {"proposition1": proposition1, "theorem2": theorem2}[name](results.theory[name])
    return sensitivity(results, next(problem for problem, figure in protocol.FIGURE_OF.items() if figure == name))


def figure2(results: Results) -> Figure:
    """Draw Figure 2, the best error over α against λ: a row of panels per problem, columns are features."""
    figure = _against_lmbda(results, _best_panel, "normalised MSE", 2.35, 0.18)
    return _with_legend(figure, [_handle(name, marker=MARKERS[name]) for name in protocol.FIGURE2_ALGORITHMS])


def differences(results: Results) -> Figure:
    """Draw the best errors of Uncorrected and Mixed less Boyan's in the same runs, in % of Boyan's, against λ."""
    figure = _against_lmbda(results, _difference_panel, "less Boyan's, %", 2.1, 0.24)
    return _with_legend(figure, [_handle(name) for name in VARIANTS])


def _line(algorithm: str) -> dict[str, Any]:
    return {
        "color": COLOURS[algorithm], "linestyle": LINES[algorithm], "linewidth": WIDTHS.get(algorithm, 1.4),
    }  # fmt: skip


def _handle(algorithm: str, **more: Any) -> Line2D:
    return Line2D([], [], label=protocol.ALGORITHM_NAMES[algorithm], **_line(algorithm), **more)


def _with_legend(figure: Figure, handles: Sequence[Line2D]) -> Figure:
    figure.legend(handles=handles, loc="upper center", ncols=len(handles), columnspacing=1.2, handlelength=3.0)
    return figure


def _against_lmbda(
    results: Results, draw: Callable[[Axes, dict[str, Sweep]], None], unit: str, height_of_row: float, wspace: float
) -> Figure:
    n_rows = len(results.problems)
    figure = new_figure(9.6, height := 0.75 + height_of_row * n_rows)
    axes = figure.subplots(n_rows, 3, squeeze=False)
    figure.subplots_adjust(0.08, 0.46 / height, 0.985, 1 - 0.62 / height, wspace=wspace, hspace=0.3)
    for row, problem in zip(axes, results.problems, strict=True):
        for ax, features in zip(row, protocol.FEATURES, strict=True):
            ax.set_title(f"{protocol.FEATURE_NAMES[features]} features")
            draw(ax, {name: results.sweeps[problem, features, name] for name in results.algorithms})
        row[0].set_ylabel(f"{protocol.PROBLEM_NAMES[problem]}\n{unit}")
    for ax in axes[-1]:
        ax.set_xlabel("λ")
    return figure


def _difference_panel(ax: Axes, sweeps: dict[str, Sweep]) -> None:
    """Draw the mean difference over runs, with a band of two standard errors."""
    ax.axhline(0.0, **_line("boyan"))
    less = sweeps["boyan"].best_errors
    for name in ("uncorrected", "mixed"):
        with np.errstate(invalid="ignore"):  # infinite where both diverged
            difference = 100.0 * (sweeps[name].best_errors - less) / less.mean(axis=0)
        mean_and_band(ax, sweeps[name].lmbdas, difference, **_line(name))


def _best_panel(ax: Axes, sweeps: dict[str, Sweep]) -> None:
    """Draw the lowest mean error of each λ; with an error bar, a standard deviation, at tenths, as in the paper."""
    for position, name in enumerate(protocol.FIGURE2_ALGORITHMS):
        sweep = sweeps[name]
        best = np.arange(len(sweep.lmbdas)), sweep.best_alpha
        mean, std = np.where(np.isfinite(sweep.mean[best]), sweep.mean[best], np.nan), np.nan_to_num(sweep.std[best])
        ax.plot(sweep.lmbdas, mean, **_line(name))
        tenths = np.flatnonzero((np.abs(10 * sweep.lmbdas - np.round(10 * sweep.lmbdas)) < 1e-9) & np.isfinite(mean))
        bars = std[tenths] if std[tenths].any() else None  # one run has no standard deviation: markers only
        ax.errorbar(
            sweep.lmbdas[tenths] + 0.007 * (position - 1.5), mean[tenths], bars, fmt=MARKERS[name],
            color=COLOURS[name], markersize=3.2, elinewidth=0.8, capsize=1.8, capthick=0.8,
        )  # fmt: skip
    ax.set(xlim=(-0.03, 1.03), xticks=np.linspace(0, 1, 6), ylim=(max(0.0, ax.get_ylim()[0]), ax.get_ylim()[1]))
    ax.axhline(1.0, color=REFERENCE, linewidth=0.7, zorder=1)


def sensitivity(results: Results, problem: str) -> Figure:
    """Draw Figure 3, 4 or 5, the error against α for every λ: rows are variants, columns are features.

    The panels of a column share their vertical axis, which ends at `protocol.TOP` or below; each panel says how many
    of its points lie above.
    """
    figure = new_figure(9.6, 8.9)
    figure.suptitle(protocol.PROBLEM_NAMES[problem], fontsize=10.5, fontweight="bold")
    axes = figure.subplots(3, 3)
    figure.subplots_adjust(0.08, 0.145, 0.985, 0.905, wspace=0.18, hspace=0.15)
    for panels, features in zip(axes.T, protocol.FEATURES, strict=True):
        limits = sensitivity_limits(results, problem, features)
        for ax, algorithm in zip(panels, protocol.SENSITIVITY_ROWS, strict=True):
            _alpha_panel(ax, results.sweeps[problem, features, algorithm], *limits)
            ax.tick_params(labelbottom=ax is panels[-1])
        panels[0].set_title(f"{protocol.FEATURE_NAMES[features]} features", pad=17)
        panels[-1].set_xlabel("regularisation coefficient α")
    for ax, algorithm in zip(axes[:, 0], protocol.SENSITIVITY_ROWS, strict=True):
        ax.set_ylabel(f"{protocol.ALGORITHM_NAMES[algorithm]}\nnormalised MSE")
    lmbdas = next(iter(results.sweeps.values())).lmbdas
    n = len(lmbdas)
    mappable = ScalarMappable(BoundaryNorm(np.arange(n + 1), n), ListedColormap(_in_order(n)))
    place = figure.add_axes((0.08, 0.055, 0.905, 0.017))
    bar = figure.colorbar(mappable, cax=place, orientation="horizontal", label="λ")
    few = [k for k, lmbda in enumerate(lmbdas) if round(100 * lmbda) in LABELLED]
    bar.ax.set_xticks([k + 0.5 for k in few], [f"{lmbdas[k]:g}" for k in few])
    bar.ax.tick_params(length=0, labelsize=8)
    bar.outline.set_visible(False)
    return figure


def _in_order(n: int, last: float = 0.93) -> Array:
    """`n` colours from dark to light in the order of λ; equal steps, as λ is dense near 1."""
    return np.asarray(colormaps["viridis"](np.linspace(0, last, n)))


def _alpha_panel(ax: Axes, sweep: Sweep, bottom: float, top: float) -> None:
    # Far above the axis: the line leaves it in the right direction, and no coordinate is infinite.
    curves = [np.column_stack([sweep.alphas, np.minimum(curve, 1e6 * top)]) for curve in sweep.mean]
    ax.add_collection(LineCollection(curves, colors=_in_order(len(curves)), linewidths=1.0))
    ax.axhline(1.0, color=REFERENCE, linewidth=0.7, zorder=1)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set(xlim=(sweep.alphas.min() / 1.25, sweep.alphas.max() * 1.25), ylim=(bottom, top))
    ax.xaxis.set_major_locator(FixedLocator(list(sweep.alphas[::4])))
    ax.yaxis.set_major_locator(FixedLocator(list(ERROR_TICKS)))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    _without_minor_ticks(ax)
    if above := points_above(sweep, top):
        text = f"↑ {above} of {sweep.mean.size} above"
        ax.text(1.0, 1.01, text, transform=ax.transAxes, ha="right", va="bottom", fontsize=8.5)


def _without_minor_ticks(ax: Axes) -> None:
    """Leave out the minor ticks of logarithmic axes, which take half of the time of a figure."""
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_minor_locator(NullLocator())


def proposition1(theory: Row) -> Figure:
    """Draw Proposition 1 against T for each λ: bias of Uncorrected and Boyan's, variances, and their ratio minus 1."""
    rows, ratios = theory["rows"], theory["ratio_rows"]
    lmbdas = levels(rows, "lmbda")
    colours = dict(zip(lmbdas, map(tuple, _in_order(len(lmbdas), 0.88)), strict=True))
    figure = new_figure(9.6, 8.0)
    axes = figure.subplots(2, 2)
    figure.subplots_adjust(0.075, 0.065, 0.985, 0.91, wspace=0.2, hspace=0.28)
    sign = -1.0 if float(theory["mu"]) >= 0 else 1.0
    titles = (
        "bias of Uncorrected LSTD(λ), sign reversed",
        "bias of Boyan's LSTD(λ): none",
        "variance: Uncorrected (solid) and Boyan's (dotted)",
        "variance ratio Boyan's / Uncorrected, minus 1",
    )
    for number, (ax, title) in enumerate(zip(axes.flat, titles, strict=True)):
        ax.set(title=title, xlabel="steps T", xscale="log")
        if number != 1:  # the bias of Boyan's has both signs
            ax.set_yscale("log", nonpositive="clip")
        _without_minor_ticks(ax)
    for index, (lmbda, colour) in enumerate(colours.items()):
        jitter = 1.05 ** (index - (len(lmbdas) - 1) / 2)
        uncorrected, boyan = (select(rows, lmbda=lmbda, variant=name) for name in ("uncorrected", "boyan"))
        ratio = select(ratios, lmbda=lmbda)
        _curve(axes[0, 0], uncorrected, "bias", jitter, colour, factor=sign, leading=True)
        _curve(axes[0, 1], boyan, "bias", jitter, colour, color="black", linewidth=1.0)
        _curve(axes[1, 0], uncorrected, "variance", jitter, colour)
        _curve(axes[1, 0], boyan, "variance", jitter, colour, linestyle=":")
        _curve(axes[1, 1], ratio, "ratio", jitter, colour, offset=1.0, leading=True)
    kinds = [
        Line2D([], [], color=REFERENCE, label="exact"),
        Line2D([], [], **LEADING, label="leading term"),
        Line2D([], [], color=REFERENCE, marker="o", linestyle="", label="simulated ± 2 standard errors"),
    ]
    kinds += [Line2D([], [], color=colour, label=f"λ = {lmbda:g}") for lmbda, colour in colours.items()]
    return _with_legend(figure, kinds)


def _curve(
    ax: Axes, rows: Sequence[Row], name: str, jitter: float, colour: Any,
    *, factor: float = 1.0, offset: float = 0.0, leading: bool = False, **line: Any,
) -> None:  # fmt: skip
    """Draw leading term and exact values as lines, simulated values as points with error bars."""
    T = column(rows, "T")
    if leading:
        ax.plot(T, factor * column(rows, f"{name}_asymptotic") - offset, **LEADING, zorder=3)
    ax.plot(T, factor * column(rows, f"{name}_exact") - offset, **{"color": colour, **line})
    simulated, error = factor * column(rows, f"{name}_simulated") - offset, column(rows, f"{name}_stderr")
    yerr = BAR * np.nan_to_num(error)
    ax.errorbar(T * jitter, simulated, yerr, fmt="o", color=colour, markersize=3.4, elinewidth=0.9, capsize=1.8)


def theorem2(theory: Row) -> Figure:
    """Draw Theorem 2, distances to the limit against T: rows are A/T, b/T, θ; columns are λ; the guide is T^(-1/2)."""
    rows = theory["rows"]
    lmbdas = levels(rows, "lmbda")
    figure = new_figure(9.6, 8.0)
    axes = figure.subplots(len(QUANTITIES), len(lmbdas), sharex=True, sharey="row", squeeze=False)
    figure.subplots_adjust(0.085, 0.065, 0.985, 0.915, wspace=0.1, hspace=0.12)
    axes[0, 0].set_xscale("log")
    for panels, (quantity, label) in zip(axes, QUANTITIES, strict=True):
        panels[0].set_yscale("log", nonpositive="clip")
        panels[0].set_ylabel(f"relative distance of {label}")
        for ax, lmbda in zip(panels, lmbdas, strict=True):
            _distance_panel(ax, select(rows, lmbda=lmbda), quantity)
    for ax, last, lmbda in zip(axes[0], axes[-1], lmbdas, strict=True):
        ax.set_title(f"λ = {lmbda:g}")
        last.set_xlabel("steps T")
    handles = [_handle(name, marker=MARKERS[name]) for name in VARIANTS]
    return _with_legend(figure, [*handles, Line2D([], [], color=REFERENCE, linewidth=1.0, label="slope −1/2")])


def _distance_panel(ax: Axes, rows: Iterable[Row], quantity: str) -> None:
    for position, variant in enumerate(VARIANTS):
        path = select(rows, variant=variant)
        T = column(path, "T")
        ax.plot(T, column(path, quantity), **_line(variant), marker=MARKERS[variant], markersize=3.4)
        if quantity == "error_theta":
            low, high = (np.maximum(column(path, name), _TINY) for name in ("low_theta", "high_theta"))
            ax.vlines(T * 1.06 ** (position - 1), low, high, color=COLOURS[variant], linewidth=0.9)
        if position == 0:  # a line of slope −1/2 a little below its distance at the longest T
            guide = 0.6 * path[-1][quantity] * np.sqrt(T[-1] / T)
            ax.plot(T, guide, color=REFERENCE, linewidth=1.0, zorder=1)
    ax.yaxis.set_major_locator(LogLocator(numticks=7))
    _without_minor_ticks(ax)
