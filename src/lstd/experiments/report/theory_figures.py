"""Proposition 1 and Theorem 2 as figures, from the stored theory.json."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter

from lstd.experiments.report.names import algorithm_name
from lstd.experiments.report.results import FloatArray, Row
from lstd.experiments.report.selecting import column, levels, select
from lstd.report.style import COLOURS, LINES, MARKERS, REFERENCE, new_figure

THEOREM2_VARIANTS = ("uncorrected", "mixed", "boyan")
QUANTITIES = (("error_A", "A / T"), ("error_b", "b / T"), ("error_theta", "weights θ"))
# Error bars of simulated values, in standard errors: about 95 % of them cover the exact value.
BAR = 2.0
_TINY = 1e-300


def proposition1(theory: Row) -> Figure:
    """Proposition 1: bias, variance and variance ratio against T, for each λ.

    Parameters
    ----------
    theory : dict
        The entry "proposition1" of theory.json.

    Returns
    -------
    Figure
        Four panels: bias of Uncorrected, bias of Boyan's, the two variances, their ratio minus 1.

    Examples
    --------
    >>> proposition1(load("lstd-results").theory["proposition1"])  # doctest: +SKIP
    """
    rows, ratios = theory["rows"], theory["ratio_rows"]
    lmbdas = levels(rows, "lmbda")
    colours = dict(zip(lmbdas, colormaps["viridis"](np.linspace(0, 0.88, len(lmbdas))), strict=True))
    figure = new_figure(9.6, 8.0)
    axes = figure.subplots(2, 2)
    figure.subplots_adjust(left=0.085, right=0.985, bottom=0.065, top=0.875, wspace=0.24, hspace=0.3)
    for index, (lmbda, colour) in enumerate(colours.items()):
        jitter = 1.05 ** (index - (len(lmbdas) - 1) / 2)
        _uncorrected_bias(axes[0, 0], theory, select(rows, lmbda=lmbda, variant="uncorrected"), colour, jitter)
        _boyan_bias(axes[0, 1], select(rows, lmbda=lmbda, variant="boyan"), colour, jitter)
        _variances(axes[1, 0], rows, lmbda, colour, jitter)
        _variance_ratio(axes[1, 1], select(ratios, lmbda=lmbda), colour, jitter)
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


def _uncorrected_bias(ax: Axes, theory: Row, rows: Sequence[Row], colour: FloatArray, jitter: float) -> None:
    sign = -1.0 if float(theory["mu"]) >= 0 else 1.0
    T = column(rows, "T")
    ax.plot(
        T,
        sign * column(rows, "bias_asymptotic"),
        color="black",
        linestyle=(0, (4, 2)),
        linewidth=1.0,
        zorder=3,
    )
    ax.plot(T, sign * column(rows, "bias_exact"), color=colour)
    _bars(ax, T * jitter, sign * column(rows, "bias_simulated"), column(rows, "bias_stderr"), colour)
    _log_log(ax)


def _boyan_bias(ax: Axes, rows: Sequence[Row], colour: FloatArray, jitter: float) -> None:
    T = column(rows, "T")
    ax.plot(T, column(rows, "bias_exact"), color="black", linewidth=1.0)
    _bars(ax, T * jitter, column(rows, "bias_simulated"), column(rows, "bias_stderr"), colour)
    ax.set_xscale("log")


def _variances(ax: Axes, rows: Sequence[Row], lmbda: float, colour: FloatArray, jitter: float) -> None:
    for variant in ("uncorrected", "boyan"):
        found = select(rows, lmbda=lmbda, variant=variant)
        T = column(found, "T")
        ax.plot(
            T,
            column(found, "variance_exact"),
            color=colour,
            linestyle="-" if variant == "uncorrected" else ":",
        )
        _bars(ax, T * jitter, column(found, "variance_simulated"), column(found, "variance_stderr"), colour)
    _log_log(ax)


def _variance_ratio(ax: Axes, rows: Sequence[Row], colour: FloatArray, jitter: float) -> None:
    T = column(rows, "T")
    ax.plot(T, column(rows, "ratio_asymptotic") - 1, color="black", linestyle=(0, (4, 2)), linewidth=1.0, zorder=3)
    ax.plot(T, column(rows, "ratio_exact") - 1, color=colour)
    _bars(ax, T * jitter, column(rows, "ratio_simulated") - 1, column(rows, "ratio_stderr"), colour)
    _log_log(ax)


def _bars(ax: Axes, x: FloatArray, y: FloatArray, stderr: FloatArray, colour: FloatArray) -> None:
    ax.errorbar(
        x,
        y,
        yerr=BAR * np.nan_to_num(stderr),
        fmt="o",
        color=colour,
        markersize=3.4,
        elinewidth=0.9,
        capsize=1.8,
    )


def _log_log(ax: Axes) -> None:
    ax.set_xscale("log")
    ax.set_yscale("log", nonpositive="clip")


def _theory_legend(figure: Figure, colours: dict[float, FloatArray]) -> None:
    handles = [Line2D([], [], color=tuple(colour), label=f"λ = {lmbda:g}") for lmbda, colour in colours.items()]
    kinds = [
        Line2D([], [], color=REFERENCE, label="exact"),
        Line2D([], [], color="black", linestyle=(0, (4, 2)), linewidth=1.0, label="leading term"),
        Line2D([], [], color=REFERENCE, marker="o", linestyle="", label="simulated ± 2 standard errors"),
    ]
    figure.legend(handles=kinds, loc="upper center", ncols=3, bbox_to_anchor=(0.53, 1.0), borderaxespad=0.4)
    figure.legend(handles=handles, loc="upper center", ncols=8, bbox_to_anchor=(0.53, 0.968), borderaxespad=0.4)


def theorem2(theory: Row) -> Figure:
    """Theorem 2: relative distance of A/T, b/T and θ to their limits against T, for each λ.

    Parameters
    ----------
    theory : dict
        The entry "theorem2" of theory.json.

    Returns
    -------
    Figure
        Rows are A/T, b/T, θ; columns are λ; the grey line falls as T^(-1/2).

    Examples
    --------
    >>> theorem2(load("lstd-results").theory["theorem2"])  # doctest: +SKIP
    """
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
        Line2D([], [], color=COLOURS[v], linestyle=LINES[v], marker=MARKERS[v], label=algorithm_name(v))  # type: ignore[arg-type]
        for v in THEOREM2_VARIANTS
    ]
    handles.append(Line2D([], [], color=REFERENCE, linewidth=1.0, label="slope −1/2"))
    figure.legend(handles=handles, loc="upper center", ncols=4, bbox_to_anchor=(0.53, 1.0), handlelength=3.4)
    return figure


def _distance_panel(ax: Axes, rows: Sequence[Row], quantity: str) -> None:
    widths = {"uncorrected": 2.2, "mixed": 1.6, "boyan": 1.8}
    for position, variant in enumerate(THEOREM2_VARIANTS):
        found = select(rows, variant=variant)
        if not found:
            continue
        T, error = column(found, "T"), column(found, quantity)
        ax.plot(
            T,
            error,
            color=COLOURS[variant],
            linestyle=LINES[variant],
            marker=MARKERS[variant],
            markersize=3.4,
            linewidth=widths[variant],
        )
        if quantity == "error_theta":
            low, high = (np.maximum(column(found, name), _TINY) for name in ("low_theta", "high_theta"))
            ax.vlines(T * 1.06 ** (position - 1), low, high, color=COLOURS[variant], linewidth=0.9)
    _guide(ax, rows, quantity)
    _log_log(ax)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(LogLocator(numticks=7))
        axis.set_minor_formatter(NullFormatter())


def _guide(ax: Axes, rows: Sequence[Row], quantity: str) -> None:
    """A line of slope −1/2 a little below the Uncorrected estimator's distance at the longest T."""
    found = select(rows, variant="uncorrected") or list(rows)
    T, error = column(found, "T"), column(found, quantity)
    usable = np.isfinite(error) & (error > 0)
    if usable.any():
        T, last = T[usable], error[usable][-1]
        ax.plot(T, 0.6 * last * np.sqrt(T[-1] / T), color=REFERENCE, linewidth=1.0, zorder=1)


THEORY_FIGURES: dict[str, Callable[[Row], Figure]] = {"proposition1": proposition1, "theorem2": theorem2}
