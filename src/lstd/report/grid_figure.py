"""Errors over a grid of (λ, α): that which settings were chosen from, and that of a sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import Normalize
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike

from lstd.data.arguments import check_array, check_real, shown
from lstd.errors import InvalidInputError
from lstd.report.rendering import share
from lstd.report.style import COLOURS, INK, LINES, legend_above, mean_and_band, panels
from lstd.types import Array

_MAX_RATIO = 2.0  # of an error to the lowest one, in the scale of colours
_MIN_RANGE = 0.1  # of the scale of colours, so that negligible differences look alike
_TINY = float(np.finfo(np.float64).tiny)
_NO_ERROR = "#C8C8C8"
_CHOSEN: dict[str, Any] = {
    "label": "chosen",
    "marker": "*",
    "color": INK,
    "markeredgecolor": "white",
    "markersize": 13,
    "linestyle": "",
    "zorder": 5,
}
_LOWEST: dict[str, Any] = {
    "label": "lowest error",
    "marker": "o",
    "markerfacecolor": "none",
    "markeredgecolor": INK,
    "markersize": 8,
    "linestyle": "",
    "zorder": 5,
}


@dataclass(frozen=True, eq=False)
class Grid:
    """Cross-validated errors of pairs (λ, α)."""

    lmbdas: Array  # in ascending order
    alphas: Array  # in ascending order
    error: Array  # (lmbdas, alphas) 1 − R² for held-out rows; NaN if a pair was not tried or has no finite score
    spread: Array  # (lmbdas, alphas) standard deviation of the error over the folds
    chosen: tuple[int, int]  # indices of the chosen pair, which need not have the lowest error
    cautious: bool  # whether the choice changes only if another pair is clearly better
    observed: float | None  # share of the discounted weight of held-out returns that was observed, if it is known

    @property
    def lowest(self) -> tuple[int, int]:
        """Indices of the pair with the lowest error."""
        i, j = np.unravel_index(np.nanargmin(self.error), self.error.shape)
        return int(i), int(j)

    @property
    def largest(self) -> float:
        """The largest error."""
        return float(np.nanmax(self.error))

    @property
    def on_edge(self) -> list[str]:
        """Parameters whose chosen value is at an edge of the grid, if there are values beyond it."""
        i, j = self.chosen
        names = []
        if _is_at_end(i, self.lmbdas) and 0.0 < self.lmbdas[i] < 1.0:
            names.append("λ")
        if _is_at_end(j, self.alphas) and self.alphas[j] > 0.0:
            names.append("α")
        return names

    def name(self, pair: tuple[int, int]) -> str:
        """Name a pair of indices by its values."""
        return f"λ = {self.lmbdas[pair[0]]:g}, α = {self.alphas[pair[1]]:.4g}"


def _is_at_end(place: int, values: Array) -> bool:
    """Return whether a place is the first or the last of several values."""
    return len(values) > 1 and place in (0, len(values) - 1)


def grid_of(cv_results: Mapping[str, Any], lmbda: float, alpha: float) -> Grid:
    """Arrange the scores of pairs as a grid. Parameters and errors as in :func:`plot_grid`."""
    if not isinstance(cv_results, Mapping):
        raise InvalidInputError(
            f"`cv_results` must be a mapping of arrays; got {shown(cv_results)}. Pass the `cv_results_` of an LSTDCV."
        )
    names = ("lmbda", "alpha", "mean_test_score")
    missing = [name for name in names if name not in cv_results]
    if missing:
        raise InvalidInputError(
            f"`cv_results` must have the arrays {names[0]}, {names[1]} and {names[2]}; {missing[0]} is missing. Pass "
            "the `cv_results_` of an LSTDCV."
        )
    lmbda_of_pair = check_array("cv_results['lmbda']", cv_results["lmbda"], (None,))
    alpha_of_pair = check_array("cv_results['alpha']", cv_results["alpha"], lmbda_of_pair.shape)
    score = np.asarray(cv_results["mean_test_score"], dtype=np.float64)
    if score.shape != lmbda_of_pair.shape:
        raise InvalidInputError(
            f"`cv_results['mean_test_score']` must have shape {lmbda_of_pair.shape}, as 'lmbda' does; got "
            f"{score.shape}."
        )
    finite = score[np.isfinite(score)]
    if not len(finite) or finite.max() > 1.0:
        largest = f"{finite.max():g}" if len(finite) else "none"
        raise InvalidInputError(
            f"`cv_results['mean_test_score']` must be R², at most 1, with a finite entry; got {largest}."
        )

    lmbdas, i = np.unique(lmbda_of_pair, return_inverse=True)
    alphas, j = np.unique(alpha_of_pair, return_inverse=True)
    errors = np.full((len(lmbdas), len(alphas)), np.nan)
    errors[i, j] = np.where(np.isfinite(score), 1.0 - score, np.nan)
    spreads = np.full((len(lmbdas), len(alphas)), np.nan)
    spreads[i, j] = cv_results.get("std_test_score", np.nan)
    observed = None
    if "observed_share" in cv_results:
        observed = float(cv_results["observed_share"][0])
    return Grid(
        lmbdas=lmbdas,
        alphas=alphas,
        error=errors,
        spread=spreads,
        chosen=(_at("lmbda", lmbdas, lmbda), _at("alpha", alphas, alpha)),
        cautious="cautious_test_score" in cv_results,
        observed=observed,
    )


def _at(name: str, values: Array, chosen: float) -> int:
    """Return the place of the chosen value among those of the grid."""
    place = int(np.argmin(np.abs(values - check_real(name, chosen, 0.0, np.inf))))
    if not np.isclose(values[place], chosen, rtol=1e-9, atol=0.0):
        raise InvalidInputError(f"`{name}` must be on the grid of `cv_results`; got {chosen:g}.")
    return place


def plot_grid(cv_results: Mapping[str, Any], lmbda: float, alpha: float, *, ax: Axes | None = None) -> list[Artist]:
    """Draw the cross-validated error over a grid of (λ, α), with the chosen pair.

    The error is 1 − R², the share of the variance of held-out returns that is not predicted. Colours show its ratio to
    the lowest error, up to 2; their scale is beside the panel.

    Parameters
    ----------
    cv_results : mapping
        Arrays "lmbda", "alpha" and "mean_test_score" (R²) of shape (n_pairs,), such as `cv_results_` of an LSTDCV.
    lmbda, alpha : float
        The chosen pair.
    ax : matplotlib.axes.Axes, optional
        As in :func:`plot_predictions`.

    Returns
    -------
    list of matplotlib.artist.Artist
        The colours, and the star of the chosen pair.

    Raises
    ------
    InvalidInputError
        If an array is missing or has another shape, no score is finite, a score is above 1, the chosen pair is not on
        the grid, or `ax` is not one axes.

    Examples
    --------
    >>> from lstd.report import plot_grid
    >>> scores = {"lmbda": [0, 0, 1, 1], "alpha": [1, 2, 1, 2], "mean_test_score": [0.4, 0.5, 0.7, 0.6]}
    >>> colours, star = plot_grid(scores, 1, 1)
    >>> colours.axes.get_xlabel()
    'ridge coefficient α'
    """
    grid = grid_of(cv_results, lmbda, alpha)
    ratio = grid.error / max(grid.error[grid.lowest], _TINY)
    largest = float(np.nanmax(ratio))
    # The differences near the lowest error matter; the error of a small α may be larger by orders of magnitude.
    top = min(_MAX_RATIO, largest, 4.0 * float(np.nanmedian(ratio)) - 3.0)  # 1 + 4 (median − 1)
    top = max(1.0 + _MIN_RANGE, top)
    height = float(np.clip(1.9 + 0.13 * len(grid.lmbdas), 2.9, 5.5))
    with panels(ax, 6.4, height) as (panel,):
        panel.set_facecolor(_NO_ERROR)
        colours = panel.pcolormesh(
            np.arange(len(grid.alphas)),
            np.arange(len(grid.lmbdas)),
            ratio,
            shading="nearest",
            cmap="Blues",
            norm=Normalize(1.0, top),
            edgecolors="face",
            linewidth=0.2,
        )
        panel.grid(False)
        handles = panel.plot(*grid.chosen[::-1], **_CHOSEN)  # (column, row)
        if grid.lowest != grid.chosen:
            handles += panel.plot(*grid.lowest[::-1], **_LOWEST)
        if np.isnan(grid.error).any():
            handles.append(Line2D([], [], label="no error", marker="s", color=_NO_ERROR, markersize=8, linestyle=""))

        extend = "max" if largest > top else "neither"
        bar = panel.figure.colorbar(colours, ax=panel, extend=extend, extendfrac=0.04)
        label = "error ÷ lowest error"
        if grid.observed is not None:
            label += f"; {share(grid.observed)} of the returns observed"
        bar.set_label(label)
        _category_ticks(panel.yaxis, [f"{lmbda:.4g}" for lmbda in grid.lmbdas], 21)
        _category_ticks(panel.xaxis, _alpha_labels(grid.alphas), 9)
        panel.set(ylabel="trace decay λ", xlabel="ridge coefficient α")
        legend_above(panel, handles, 3)
    return [colours, handles[0]]


def plot_sweep(errors: Mapping[str, ArrayLike], lmbdas: ArrayLike, *, ax: Axes | None = None) -> list[Artist]:
    """Draw the lowest error over α against λ for each algorithm of a sweep, as in Figure 2 of the paper.

    Parameters
    ----------
    errors : mapping
        Errors of shape (n_runs, n_lmbdas, n_alphas) by algorithm, as `lstd.experiments.run_sweep` returns for a list.
    lmbdas : array-like of shape (n_lmbdas,)
        The trace decays.
    ax : matplotlib.axes.Axes, optional
        As in :func:`plot_predictions`.

    Returns
    -------
    list of matplotlib.artist.Artist
        One line per algorithm: at each λ the mean over runs at its best α. Bands show two standard errors.

    Raises
    ------
    InvalidInputError
        If errors have another shape, or `ax` is not one axes.

    Examples
    --------
    >>> from lstd.report import plot_sweep
    >>> lines = plot_sweep({"boyan": [[[0.4, 0.2], [0.3, 0.5]]]}, [0.0, 0.9])
    >>> lines[0].get_ydata().tolist()
    [0.2, 0.3]
    """
    if not isinstance(errors, Mapping):
        raise InvalidInputError(
            f"`errors` must be a mapping of arrays by algorithm; got {shown(errors)}. Pass what `run_sweep` "
            "returns for a list of algorithms."
        )
    at = np.asarray(lmbdas, dtype=np.float64)
    with panels(ax, 6.4, 3.6) as (panel,):
        lines: list[Artist] = []
        for number, (name, found) in enumerate(errors.items()):
            array = np.asarray(found, dtype=np.float64)
            if array.ndim != 3 or array.shape[1] != len(at):
                rule = f"shape (n_runs, {len(at)}, n_alphas), with a λ of `lmbdas` for each of the second"
                raise InvalidInputError(f"`errors[{name!r}]` must have {rule}; got {array.shape}.")
            best_alpha = array.mean(axis=0).argmin(axis=1)
            best = array[:, np.arange(len(at)), best_alpha]
            look: dict[str, Any] = {"color": COLOURS.get(name, f"C{number}"), "linestyle": LINES.get(name, "-")}
            lines.append(mean_and_band(panel, at, best, label=name.replace("_", " "), **look))
        panel.set(xlabel="trace decay λ", ylabel="lowest error over α")
        panel.legend()
    return lines


def _category_ticks(axis: Axis, labels: Sequence[str], most: int) -> None:
    """Label at most so many of the places 0, 1, … of an axis."""
    step = max(1, -(-len(labels) // most))
    axis.set_ticks(range(0, len(labels), step), labels[::step])


def _alpha_labels(alphas: Array) -> list[str]:
    """Labels of α: powers if all are powers of two, or of ten."""
    for base in (2, 10):
        with np.errstate(divide="ignore"):
            exponents = np.log(alphas) / np.log(base)
        if len(alphas) > 1 and np.isfinite(exponents).all() and np.allclose(exponents, exponents.round(), atol=1e-9):
            return [f"${base}^{{{exponent:.0f}}}$" for exponent in exponents]
    return [f"{float(f'{alpha:.2g}'):g}" for alpha in alphas]
