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
    if name == "figure2":
        return figure2(results)
    if name == "differences":
        return differences(results)
    if name == "proposition1":
        return proposition1(results.theory[name])
    if name == "theorem2":
        return theorem2(results.theory[name])
    problem_of = {figure: problem for problem, figure in protocol.FIGURE_OF.items()}
    return sensitivity(results, problem_of[name])


def figure2(results: Results) -> Figure:
    """Draw Figure 2, the best error over α against λ: a row of panels per problem, columns are features."""
    figure = _against_lmbda(results, _best_panel, unit="normalised MSE", height_of_row=2.35, wspace=0.18)
    handles = [_handle(name, marker=MARKERS[name]) for name in protocol.FIGURE2_ALGORITHMS]
    return _with_legend(figure, handles)


def differences(results: Results) -> Figure:
    """Draw the best errors of Uncorrected and Mixed less Boyan's in the same runs, in % of Boyan's, against λ."""
    figure = _against_lmbda(results, _difference_panel, unit="less Boyan's, %", height_of_row=2.1, wspace=0.24)
    return _with_legend(figure, [_handle(name) for name in VARIANTS])


def _line(algorithm: str) -> dict[str, Any]:
    """Return the options of an algorithm's line."""
    return {
        "color": COLOURS[algorithm],
        "linestyle": LINES[algorithm],
        "linewidth": WIDTHS.get(algorithm, 1.4),
    }


def _handle(algorithm: str, **more: Any) -> Line2D:
    """Return the line of an algorithm in a legend."""
    return Line2D([], [], label=protocol.ALGORITHM_NAMES[algorithm], **_line(algorithm), **more)


def _with_legend(figure: Figure, handles: Sequence[Line2D]) -> Figure:
    """Put a legend of one row above all panels."""
    figure.legend(handles=handles, loc="upper center", ncols=len(handles), columnspacing=1.2, handlelength=3.0)
    return figure


def _against_lmbda(
    results: Results,
    draw: Callable[[Axes, dict[str, Sweep]], None],
    *,
    unit: str,
    height_of_row: float,
    wspace: float,
) -> Figure:
    """Draw a panel for each problem (rows) and features (columns) from the sweeps of all algorithms, by `draw`."""
    n_rows = len(results.problems)
    height = 0.75 + height_of_row * n_rows  # inches, with titles and legend
    figure = new_figure(9.6, height)
    axes = figure.subplots(n_rows, 3, squeeze=False)
    figure.subplots_adjust(0.08, 0.46 / height, 0.985, 1 - 0.62 / height, wspace=wspace, hspace=0.3)
    for row, problem in zip(axes, results.problems, strict=True):
        for ax, features in zip(row, protocol.FEATURES, strict=True):
            ax.set_title(f"{protocol.FEATURE_NAMES[features]} features")
            sweeps = {name: results.sweeps[problem, features, name] for name in results.algorithms}
            draw(ax, sweeps)
        row[0].set_ylabel(f"{protocol.PROBLEM_NAMES[problem]}\n{unit}")
    for ax in axes[-1]:
        ax.set_xlabel("λ")
    return figure


def _difference_panel(ax: Axes, sweeps: dict[str, Sweep]) -> None:
    """Draw the mean difference over runs, with a band of two standard errors."""
    ax.axhline(0.0, **_line("boyan"))
    boyan = sweeps["boyan"].best_errors
    for name in ("uncorrected", "mixed"):
        with np.errstate(invalid="ignore"):  # infinite where both diverged
            difference = 100.0 * (sweeps[name].best_errors - boyan) / boyan.mean(axis=0)
        mean_and_band(ax, sweeps[name].lmbdas, difference, **_line(name))


def _best_panel(ax: Axes, sweeps: dict[str, Sweep]) -> None:
    """Draw the lowest mean error of each λ; with an error bar, a standard deviation, at tenths, as in the paper."""
    for position, name in enumerate(protocol.FIGURE2_ALGORITHMS):
        sweep = sweeps[name]
        lmbdas = sweep.lmbdas
        best = (np.arange(len(lmbdas)), sweep.best_alpha)
        is_finite = np.isfinite(sweep.mean[best])
        mean = np.where(is_finite, sweep.mean[best], np.nan)
        std = np.nan_to_num(sweep.std[best])
        ax.plot(lmbdas, mean, **_line(name))

        is_tenth = np.abs(10 * lmbdas - np.round(10 * lmbdas)) < 1e-9
        tenths = np.flatnonzero(is_tenth & is_finite)
        bars = None  # one run has no standard deviation: markers only
        if std[tenths].any():
            bars = std[tenths]
        beside = 0.007 * (position - 1.5)  # so that bars of several algorithms do not cover one another
        ax.errorbar(
            lmbdas[tenths] + beside,
            mean[tenths],
            bars,
            fmt=MARKERS[name],
            color=COLOURS[name],
            markersize=3.2,
            elinewidth=0.8,
            capsize=1.8,
            capthick=0.8,
        )
    bottom, top = ax.get_ylim()
    ax.set(xlim=(-0.03, 1.03), xticks=np.linspace(0, 1, 6), ylim=(max(0.0, bottom), top))
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
    first_sweep = next(iter(results.sweeps.values()))
    _add_bar_of_lmbdas(figure, first_sweep.lmbdas)
    return figure


def _add_bar_of_lmbdas(figure: Figure, lmbdas: Array) -> None:
    """Draw the colours of all λ below the panels, and name some of them."""
    n = len(lmbdas)
    mappable = ScalarMappable(BoundaryNorm(np.arange(n + 1), n), ListedColormap(_in_order(n)))
    place = figure.add_axes((0.08, 0.055, 0.905, 0.017))
    bar = figure.colorbar(mappable, cax=place, orientation="horizontal", label="λ")
    labelled = [k for k, lmbda in enumerate(lmbdas) if round(100 * lmbda) in LABELLED]
    bar.ax.set_xticks([k + 0.5 for k in labelled], [f"{lmbdas[k]:g}" for k in labelled])
    bar.ax.tick_params(length=0, labelsize=8)
    bar.outline.set_visible(False)


def _in_order(n: int, last: float = 0.93) -> Array:
    """Return `n` colours from dark to light in the order of λ, (n, 4); equal steps, as λ is dense near 1."""
    return np.asarray(colormaps["viridis"](np.linspace(0, last, n)))


def _alpha_panel(ax: Axes, sweep: Sweep, bottom: float, top: float) -> None:
    """Draw the mean error against α, a curve for each λ, and count the points above the panel."""
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
    n_above = points_above(sweep, top)
    if n_above:
        text = f"↑ {n_above} of {sweep.mean.size} above"
        ax.text(1.0, 1.01, text, transform=ax.transAxes, ha="right", va="bottom", fontsize=8.5)


def _without_minor_ticks(ax: Axes) -> None:
    """Leave out the minor ticks of logarithmic axes, which take half of the time of a figure."""
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_minor_locator(NullLocator())


def proposition1(theory: Row) -> Figure:
    """Draw Proposition 1 against T for each λ: bias of Uncorrected and Boyan's, variances, and their ratio minus 1."""
    rows = theory["rows"]
    lmbdas = levels(rows, "lmbda")
    colours = [tuple(colour) for colour in _in_order(len(lmbdas), last=0.88)]
    figure = new_figure(9.6, 8.0)
    axes = figure.subplots(2, 2)
    figure.subplots_adjust(0.075, 0.065, 0.985, 0.91, wspace=0.2, hspace=0.28)
    (bias_uncorrected, bias_boyan), (variance, variance_ratio) = axes
    bias_uncorrected.set_title("bias of Uncorrected LSTD(λ), sign reversed")
    bias_boyan.set_title("bias of Boyan's LSTD(λ): none")
    variance.set_title("variance: Uncorrected (solid) and Boyan's (dotted)")
    variance_ratio.set_title("variance ratio Boyan's / Uncorrected, minus 1")
    for ax in axes.flat:
        ax.set(xlabel="steps T", xscale="log")
        if ax is not bias_boyan:  # which has both signs
            ax.set_yscale("log", nonpositive="clip")
        _without_minor_ticks(ax)

    sign = 1.0
    if float(theory["mu"]) >= 0:
        sign = -1.0  # the bias of Uncorrected is −γμ/((1−γ)²T), to be drawn on a logarithmic axis
    for index, (lmbda, colour) in enumerate(zip(lmbdas, colours, strict=True)):
        jitter = 1.05 ** (index - (len(lmbdas) - 1) / 2)
        uncorrected = select(rows, lmbda=lmbda, variant="uncorrected")
        boyan = select(rows, lmbda=lmbda, variant="boyan")
        ratio = select(theory["ratio_rows"], lmbda=lmbda)
        _curve(bias_uncorrected, uncorrected, "bias", jitter, colour, factor=sign, leading=True)
        _curve(bias_boyan, boyan, "bias", jitter, colour, color="black", linewidth=1.0)
        _curve(variance, uncorrected, "variance", jitter, colour)
        _curve(variance, boyan, "variance", jitter, colour, linestyle=":")
        _curve(variance_ratio, ratio, "ratio", jitter, colour, offset=1.0, leading=True)

    handles = [
        Line2D([], [], color=REFERENCE, label="exact"),
        Line2D([], [], **LEADING, label="leading term"),
        Line2D([], [], color=REFERENCE, marker="o", linestyle="", label="simulated ± 2 standard errors"),
    ]
    for lmbda, colour in zip(lmbdas, colours, strict=True):
        handles.append(Line2D([], [], color=colour, label=f"λ = {lmbda:g}"))
    return _with_legend(figure, handles)


def _curve(
    ax: Axes,
    rows: Sequence[Row],
    name: str,
    jitter: float,
    colour: Any,
    *,
    factor: float = 1.0,
    offset: float = 0.0,
    leading: bool = False,
    **line: Any,
) -> None:
    """Draw `factor` times a quantity, less `offset`, against T.

    The exact values and, if `leading`, the leading term are lines; simulated values are points with error bars, whose T
    are multiplied by `jitter`.
    """
    T = column(rows, "T")
    if leading:
        ax.plot(T, factor * column(rows, f"{name}_asymptotic") - offset, **LEADING, zorder=3)
    ax.plot(T, factor * column(rows, f"{name}_exact") - offset, **{"color": colour, **line})
    simulated = factor * column(rows, f"{name}_simulated") - offset
    half_width = BAR * np.nan_to_num(column(rows, f"{name}_stderr"))
    ax.errorbar(
        T * jitter,
        simulated,
        half_width,
        fmt="o",
        color=colour,
        markersize=3.4,
        elinewidth=0.9,
        capsize=1.8,
    )


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
    for top, bottom, lmbda in zip(axes[0], axes[-1], lmbdas, strict=True):
        top.set_title(f"λ = {lmbda:g}")
        bottom.set_xlabel("steps T")
    handles = [_handle(name, marker=MARKERS[name]) for name in VARIANTS]
    handles.append(Line2D([], [], color=REFERENCE, linewidth=1.0, label="slope −1/2"))
    return _with_legend(figure, handles)


def _distance_panel(ax: Axes, rows: Iterable[Row], quantity: str) -> None:
    """Draw the distance of each variant against T, for the weights with its quartiles over the seeds."""
    for position, variant in enumerate(VARIANTS):
        path = select(rows, variant=variant)
        T = column(path, "T")
        ax.plot(T, column(path, quantity), **_line(variant), marker=MARKERS[variant], markersize=3.4)
        if quantity == "error_theta":
            low = np.maximum(column(path, "low_theta"), _TINY)
            high = np.maximum(column(path, "high_theta"), _TINY)
            ax.vlines(T * 1.06 ** (position - 1), low, high, color=COLOURS[variant], linewidth=0.9)
        if position == 0:  # a line of slope −1/2 a little below its distance at the longest T
            guide = 0.6 * path[-1][quantity] * np.sqrt(T[-1] / T)
            ax.plot(T, guide, color=REFERENCE, linewidth=1.0, zorder=1)
    ax.yaxis.set_major_locator(LogLocator(numticks=7))
    _without_minor_ticks(ax)
