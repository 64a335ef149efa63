"""Figures 2 to 5 of the paper's supplement, and Proposition 1 and Theorem 2 as figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

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
from lstd.report.style import COLOURS, LINES, MARKERS, REFERENCE, new_figure
from lstd.types import Array

# Best errors that differ by more than this factor within one panel are drawn on a log axis.
LOG_SPAN = 20.0
VARIANTS = ("uncorrected", "mixed", "boyan")
THEOREM2_VARIANTS = {"uncorrected": 2.2, "mixed": 1.6, "boyan": 1.8}  # and the widths of their lines
QUANTITIES = (("error_A", "A / T"), ("error_b", "b / T"), ("error_theta", "weights θ"))
# Error bars of simulated values, in standard errors: about 95 % of them cover the exact value.
BAR = 2.0
LABELLED = {0, 20, 40, 60, 80, 90, 95, 100}  # values of λ, in hundredths, named beside their colours
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
    handles = [_handle(algorithm, markersize=4.5, **_line(algorithm)) for algorithm in protocol.FIGURE2_ALGORITHMS]
    figure.legend(handles=handles, loc="upper center", ncols=4, handlelength=3.4)
    return figure


def differences(results: Results) -> Figure:
    """Draw the best errors of Uncorrected and Mixed less Boyan's in the same runs, in % of Boyan's, against λ."""
    figure = _against_lmbda(results, _difference_panel, "less Boyan's, %", 2.1, 0.24)
    handles = [Line2D([], [], label=protocol.ALGORITHM_NAMES[name], **_line(name)) for name in VARIANTS]
    figure.legend(handles=handles, loc="upper center", ncols=3, handlelength=3.4)
    return figure


def _against_lmbda(
    results: Results, draw: Callable[[Axes, Results, str, str], None], unit: str, height_of_row: float, wspace: float
) -> Figure:
    n_rows = len(results.problems)
    figure = new_figure(9.6, height := 0.75 + height_of_row * n_rows)
    axes = figure.subplots(n_rows, 3, squeeze=False)
    figure.subplots_adjust(0.08, 0.46 / height, 0.985, 1 - 0.62 / height, wspace=wspace, hspace=0.3)
    for row, problem in zip(axes, results.problems, strict=True):
        for ax, features in zip(row, protocol.FEATURES, strict=True):
            ax.set_title(f"{protocol.FEATURE_NAMES[features]} features")
            draw(ax, results, problem, features)
        row[0].set_ylabel(f"{protocol.PROBLEM_NAMES[problem]}\n{unit}")
    for ax in axes[-1]:
        ax.set_xlabel("λ")
    return figure


def _difference_panel(ax: Axes, results: Results, problem: str, features: str) -> None:
    ax.axhline(0.0, **_line("boyan"))
    for name in ("uncorrected", "mixed"):
        _difference(ax, *(results.sweeps[problem, features, each] for each in (name, "boyan")), algorithm=name)


def _difference(ax: Axes, sweep: Sweep, boyan: Sweep, *, algorithm: str) -> None:
    """Draw the mean difference over runs, with a band of two standard errors."""
    errors, less = (one.errors[:, np.arange(len(one.lmbdas)), one.best_alpha] for one in (sweep, boyan))
    with np.errstate(invalid="ignore"):  # infinite where both diverged
        difference = 100.0 * (errors - less) / less.mean(axis=0)
    difference[:, ~np.isfinite(difference).all(axis=0)] = np.nan
    mean = difference.mean(axis=0)
    ax.plot(sweep.lmbdas, mean, **_line(algorithm))
    if len(difference) > 1:
        half = BAR * difference.std(axis=0, ddof=1) / np.sqrt(len(difference))
        ax.fill_between(sweep.lmbdas, mean - half, mean + half, color=COLOURS[algorithm], alpha=0.2, linewidth=0)


def _handle(algorithm: str, **look: Any) -> Line2D:
    return Line2D([], [], marker=MARKERS[algorithm], label=protocol.ALGORITHM_NAMES[algorithm], **look)


def _best_panel(ax: Axes, results: Results, problem: str, features: str) -> None:
    means, spreads = [], []
    for position, algorithm in enumerate(protocol.FIGURE2_ALGORITHMS):
        sweep = results.sweeps[problem, features, algorithm]
        lmbdas, best = sweep.lmbdas, (np.arange(len(sweep.lmbdas)), sweep.best_alpha)
        mean, std = sweep.mean[best], sweep.std[best]
        on_tenths = np.abs(lmbdas * 10 - np.round(lmbdas * 10)) < 1e-9  # with an error bar in the paper's Figure 2
        ax.plot(lmbdas, np.where(np.isfinite(mean), mean, np.nan), **_line(algorithm))
        drawn = on_tenths & np.isfinite(mean)
        error = np.nan_to_num(std[drawn])
        ax.errorbar(
            lmbdas[drawn] + 0.007 * (position - 1.5), mean[drawn],
            error if error.any() else None,  # one run has no standard deviation: markers only
            fmt=MARKERS[algorithm], color=COLOURS[algorithm], markersize=3.2, elinewidth=0.8, capsize=1.8, capthick=0.8,
        )  # fmt: skip
        means.append(mean)
        spreads.append(np.nan_to_num(np.where(on_tenths, std, 0.0)))
    ax.set_xlim(-0.03, 1.03)
    ax.set_xticks(np.linspace(0, 1, 6))
    _best_limits(ax, np.concatenate(means), np.concatenate(spreads))
    ax.axhline(1.0, color=REFERENCE, linewidth=0.7, zorder=1)


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


def sensitivity(results: Results, problem: str) -> Figure:
    """Draw Figure 3, 4 or 5, the error against α for every λ: rows are variants, columns are features.

    The panels of a column share their vertical axis, which ends at `protocol.TOP` or below; each panel says how many
    of its points lie above.
    """
    figure = new_figure(9.6, 8.9)
    figure.suptitle(protocol.PROBLEM_NAMES[problem], fontsize=10.5, fontweight="bold")
    axes = figure.subplots(3, 3, sharex=False)
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


def _in_order(n: int) -> Array:
    """`n` colours from dark to light in the order of λ; equal steps, as λ is dense near 1."""
    return np.asarray(colormaps["viridis"](np.linspace(0, 0.93, n)))


def _alpha_panel(ax: Axes, sweep: Sweep, bottom: float, top: float) -> None:
    # Far above the axis: the line leaves it in the right direction, and no coordinate is infinite.
    mean = np.minimum(sweep.mean, 1e6 * top)
    for curve, colour in zip(mean, _in_order(len(mean)), strict=True):
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


def proposition1(theory: Row) -> Figure:
    """Draw Proposition 1 against T for each λ: bias of Uncorrected and Boyan's, variances, and their ratio minus 1."""
    rows, ratios = theory["rows"], theory["ratio_rows"]
    lmbdas = levels(rows, "lmbda")
    colours = dict(zip(lmbdas, map(tuple, colormaps["viridis"](np.linspace(0, 0.88, len(lmbdas)))), strict=True))
    figure = new_figure(9.6, 8.0)
    axes = figure.subplots(2, 2)
    figure.subplots_adjust(0.075, 0.065, 0.985, 0.91, wspace=0.2, hspace=0.28)
    sign = -1.0 if float(theory["mu"]) >= 0 else 1.0
    for index, (lmbda, colour) in enumerate(colours.items()):
        jitter = 1.05 ** (index - (len(lmbdas) - 1) / 2)
        uncorrected, boyan = (select(rows, lmbda=lmbda, variant=name) for name in ("uncorrected", "boyan"))
        ratio = select(ratios, lmbda=lmbda)
        _curve(axes[0, 0], uncorrected, "bias", jitter, colour, factor=sign, leading=True)
        _curve(axes[0, 1], boyan, "bias", jitter, colour, color="black", linewidth=1.0)
        _curve(axes[1, 0], uncorrected, "variance", jitter, colour)
        _curve(axes[1, 0], boyan, "variance", jitter, colour, linestyle=":")
        _curve(axes[1, 1], ratio, "ratio", jitter, colour, offset=1.0, leading=True)
    titles = (
        "bias of Uncorrected LSTD(λ), sign reversed",
        "bias of Boyan's LSTD(λ): none",
        "variance: Uncorrected (solid) and Boyan's (dotted)",
        "variance ratio Boyan's / Uncorrected, minus 1",
    )
    for ax, title in zip(axes.flat, titles, strict=True):
        ax.set(title=title, xlabel="steps T", xscale="log")
    for ax in axes.flat[[0, 2, 3]]:
        ax.set_yscale("log", nonpositive="clip")
    kinds = [
        Line2D([], [], color=REFERENCE, label="exact"),
        Line2D([], [], **LEADING, label="leading term"),
        Line2D([], [], color=REFERENCE, marker="o", linestyle="", label="simulated ± 2 standard errors"),
    ]
    kinds += [Line2D([], [], color=colour, label=f"λ = {lmbda:g}") for lmbda, colour in colours.items()]
    figure.legend(handles=kinds, loc="upper center", ncols=len(kinds), columnspacing=1.2)
    return figure


def _curve(
    ax: Axes, rows: Sequence[Row], name: str, jitter: float, colour: Any,
    *, factor: float = 1.0, offset: float = 0.0, leading: bool = False, **line: Any,
) -> None:  # fmt: skip
    """Draw leading term and exact values as lines, simulated values as points with error bars."""
    T = column(rows, "T")
    if leading:
        values = factor * column(rows, f"{name}_asymptotic") - offset
        ax.plot(T, values, **LEADING, zorder=3)
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
    for i, (quantity, label) in enumerate(QUANTITIES):
        for j, lmbda in enumerate(lmbdas):
            _distance_panel(axes[i, j], select(rows, lmbda=lmbda), quantity)
        axes[i, 0].set_ylabel(f"relative distance of {label}")
    for j, lmbda in enumerate(lmbdas):
        axes[0, j].set_title(f"λ = {lmbda:g}")
        axes[-1, j].set_xlabel("steps T")
    handles = [_handle(v, color=COLOURS[v], linestyle=LINES[v]) for v in THEOREM2_VARIANTS]
    handles.append(Line2D([], [], color=REFERENCE, linewidth=1.0, label="slope −1/2"))
    figure.legend(handles=handles, loc="upper center", ncols=4, handlelength=3.4)
    return figure


def _distance_panel(ax: Axes, rows: Sequence[Row], quantity: str) -> None:
    for position, (variant, width) in enumerate(THEOREM2_VARIANTS.items()):
        path = select(rows, variant=variant)
        T, colour = column(path, "T"), COLOURS[variant]
        look: dict[str, Any] = {"linestyle": LINES[variant], "marker": MARKERS[variant], "linewidth": width}
        ax.plot(T, column(path, quantity), color=colour, markersize=3.4, **look)
        if quantity == "error_theta":
            low, high = (np.maximum(column(path, name), _TINY) for name in ("low_theta", "high_theta"))
            ax.vlines(T * 1.06 ** (position - 1), low, high, color=colour, linewidth=0.9)
    # A line of slope −1/2 a little below the Uncorrected estimator's distance at the longest T.
    path = select(rows, variant="uncorrected")
    T, error = column(path, "T"), column(path, quantity)
    ax.plot(T, 0.6 * error[-1] * np.sqrt(T[-1] / T), color=REFERENCE, linewidth=1.0, zorder=1)
    ax.set_xscale("log")
    ax.set_yscale("log", nonpositive="clip")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(LogLocator(numticks=7))
        axis.set_minor_formatter(NullFormatter())
