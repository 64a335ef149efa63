"""Proposition 1 and Theorem 2 as figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter

from lstd.experiments.reproduce.display_names import ALGORITHM_NAMES
from lstd.experiments.reproduce.results import Array, Row, column, levels, select
from lstd.report.style import COLOURS, LINES, MARKERS, REFERENCE, new_figure

THEOREM2_VARIANTS = ("uncorrected", "mixed", "boyan")
QUANTITIES = (("error_A", "A / T"), ("error_b", "b / T"), ("error_theta", "weights θ"))
# Error bars of simulated values, in standard errors: about 95 % of them cover the exact value.
BAR = 2.0
DASHED = (0, (4, 2))
_TINY = 1e-300


def proposition1(theory: Row) -> Figure:
    """Draw Proposition 1 against T for each λ: bias of Uncorrected and Boyan's, variances, and their ratio minus 1."""
    rows, ratios = theory["rows"], theory["ratio_rows"]
    lmbdas = levels(rows, "lmbda")
    colours = dict(zip(lmbdas, colormaps["viridis"](np.linspace(0, 0.88, len(lmbdas))), strict=True))
    figure = new_figure(9.6, 8.0)
    axes = figure.subplots(2, 2)
    figure.subplots_adjust(left=0.085, right=0.985, bottom=0.065, top=0.875, wspace=0.24, hspace=0.3)
    reversed_sign = -1.0 if float(theory["mu"]) >= 0 else 1.0
    for index, (lmbda, colour) in enumerate(colours.items()):
        jitter = 1.05 ** (index - (len(lmbdas) - 1) / 2)
        uncorrected, boyan = (select(rows, lmbda=lmbda, variant=name) for name in ("uncorrected", "boyan"))
        ratio = select(ratios, lmbda=lmbda)
        _curve(axes[0, 0], uncorrected, "bias", jitter, colour, factor=reversed_sign, leading=True)
        _curve(axes[0, 1], boyan, "bias", jitter, colour, color="black", linewidth=1.0)
        _curve(axes[1, 0], uncorrected, "variance", jitter, colour)
        _curve(axes[1, 0], boyan, "variance", jitter, colour, linestyle=":")
        _curve(axes[1, 1], ratio, "ratio", jitter, colour, offset=1.0, leading=True)
    for ax in axes.flat:
        ax.set_xscale("log")
    for ax in axes.flat[[0, 2, 3]]:
        ax.set_yscale("log", nonpositive="clip")
    titles = (
        "bias of Uncorrected LSTD(λ), sign reversed",
        "bias of Boyan's LSTD(λ): none",
        "variance: Uncorrected (solid) and Boyan's (dotted)",
        "variance ratio Boyan's / Uncorrected, minus 1",
    )
    for ax, title in zip(axes.flat, titles, strict=True):
        ax.set_title(title)
        ax.set_xlabel("steps T")
    _theory_legend(figure, colours)
    return figure


def _curve(
    ax: Axes, rows: Sequence[Row], name: str, jitter: float, colour: Array,
    *, factor: float = 1.0, offset: float = 0.0, leading: bool = False, **line: Any,
) -> None:  # fmt: skip
    """Draw leading term and exact values as lines, simulated values as points with error bars."""
    T = column(rows, "T")
    if leading:
        values = factor * column(rows, f"{name}_asymptotic") - offset
        ax.plot(T, values, color="black", linestyle=DASHED, linewidth=1.0, zorder=3)
    ax.plot(T, factor * column(rows, f"{name}_exact") - offset, **{"color": colour, **line})
    simulated, error = factor * column(rows, f"{name}_simulated") - offset, column(rows, f"{name}_stderr")
    yerr = BAR * np.nan_to_num(error)
    ax.errorbar(T * jitter, simulated, yerr, fmt="o", color=colour, markersize=3.4, elinewidth=0.9, capsize=1.8)


def _log_log(ax: Axes) -> None:
    ax.set_xscale("log")
    ax.set_yscale("log", nonpositive="clip")


def _theory_legend(figure: Figure, colours: dict[float, Array]) -> None:
    handles = [Line2D([], [], color=tuple(colour), label=f"λ = {lmbda:g}") for lmbda, colour in colours.items()]
    kinds = [
        Line2D([], [], color=REFERENCE, label="exact"),
        Line2D([], [], color="black", linestyle=DASHED, linewidth=1.0, label="leading term"),
        Line2D([], [], color=REFERENCE, marker="o", linestyle="", label="simulated ± 2 standard errors"),
    ]
    figure.legend(handles=kinds, loc="upper center", ncols=3, bbox_to_anchor=(0.53, 1.0), borderaxespad=0.4)
    figure.legend(handles=handles, loc="upper center", ncols=8, bbox_to_anchor=(0.53, 0.968), borderaxespad=0.4)


def theorem2(theory: Row) -> Figure:
    """Draw Theorem 2, distances to the limit against T: rows are A/T, b/T, θ; columns are λ; the guide is T^(-1/2)."""
    rows = theory["rows"]
    lmbdas = levels(rows, "lmbda")
    figure = new_figure(9.6, 8.0)
    axes = figure.subplots(len(QUANTITIES), len(lmbdas), sharex=True, sharey="row", squeeze=False)
    figure.subplots_adjust(left=0.085, right=0.985, bottom=0.065, top=0.915, wspace=0.1, hspace=0.12)
    for i, (quantity, label) in enumerate(QUANTITIES):
        for j, lmbda in enumerate(lmbdas):
            _distance_panel(axes[i, j], select(rows, lmbda=lmbda), quantity)
        axes[i, 0].set_ylabel(f"relative distance of {label}")
    for j, lmbda in enumerate(lmbdas):
        axes[0, j].set_title(f"λ = {lmbda:g}")
        axes[-1, j].set_xlabel("steps T")
    handles = [
        Line2D([], [], color=COLOURS[v], linestyle=LINES[v], marker=MARKERS[v], label=ALGORITHM_NAMES[v])  # type: ignore[arg-type]
        for v in THEOREM2_VARIANTS
    ]
    handles.append(Line2D([], [], color=REFERENCE, linewidth=1.0, label="slope −1/2"))
    figure.legend(handles=handles, loc="upper center", ncols=4, bbox_to_anchor=(0.53, 1.0), handlelength=3.4)
    return figure


def _distance_panel(ax: Axes, rows: Sequence[Row], quantity: str) -> None:
    for position, variant in enumerate(THEOREM2_VARIANTS):
        path = select(rows, variant=variant)
        T = column(path, "T")
        colour, marker, style = COLOURS[variant], MARKERS[variant], LINES[variant]
        width = {"uncorrected": 2.2, "mixed": 1.6, "boyan": 1.8}[variant]
        ax.plot(
            T, column(path, quantity), color=colour, linestyle=style, marker=marker, markersize=3.4, linewidth=width
        )
        if quantity == "error_theta":
            low, high = (np.maximum(column(path, name), _TINY) for name in ("low_theta", "high_theta"))
            ax.vlines(T * 1.06 ** (position - 1), low, high, color=colour, linewidth=0.9)
    _guide(ax, rows, quantity)
    _log_log(ax)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(LogLocator(numticks=7))
        axis.set_minor_formatter(NullFormatter())


def _guide(ax: Axes, rows: Sequence[Row], quantity: str) -> None:
    """A line of slope −1/2 a little below the Uncorrected estimator's distance at the longest T."""
    path = select(rows, variant="uncorrected")
    T, error = column(path, "T"), column(path, quantity)
    ax.plot(T, 0.6 * error[-1] * np.sqrt(T[-1] / T), color=REFERENCE, linewidth=1.0, zorder=1)
