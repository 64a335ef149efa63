"""What λ and α do to a fit: error over a grid of both, and effective degrees of freedom of each feature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from lstd.data.checks import check_array, check_real
from lstd.errors import InvalidInputError
from lstd.estimators.base import Predictor
from lstd.estimators.intervals import FEW
from lstd.estimators.metrics import effective_degrees_of_freedom
from lstd.report.style import BLUE, VERMILION, WIDE, figure_style, new_figure, plain

Array = NDArray[np.float64]

NAMED = 40  # features that have a line and a name each; more are drawn in order of their degrees of freedom
_MOST_DOTS = 400
_MOST_RATIO = 2.0  # of an error to the lowest that has a colour of its own
_LEAST_RANGE = 0.01  # of colours, so that differences of no account have none
_MOST_CELLS = 2000  # that are drawn one by one
_NOTHING = "#C8C8C8"


@dataclass(frozen=True, eq=False)
class Grid:
    """Cross-validated errors of pairs (λ, α): 1 − R² for held-out rows.

    Attributes
    ----------
    lmbdas, alphas : ndarray
        In growing order.
    error : ndarray of shape (lmbdas, alphas)
        NaN where a pair was not tried or has no finite score.
    spread : ndarray of the same shape
        Standard deviation over the folds.
    chosen : tuple of int
        Indices of the chosen pair; it need not be the one of lowest error.
    cautious : bool
        The choice weighed how sure differences are.
    """

    lmbdas: Array
    alphas: Array
    error: Array
    spread: Array
    chosen: tuple[int, int]
    cautious: bool

    @property
    def lowest(self) -> tuple[int, int]:
        """Indices of the pair of lowest error."""
        i, j = np.unravel_index(np.nanargmin(self.error), self.error.shape)
        return int(i), int(j)

    @property
    def on_edge(self) -> list[str]:
        """Parameters whose chosen value is the least or the largest of several, and could go further."""
        i, j = self.chosen
        beyond = {"λ": i in (0, len(self.lmbdas) - 1) and 0.0 < self.lmbdas[i] < 1.0 and len(self.lmbdas) > 1}
        beyond["α"] = j in (0, len(self.alphas) - 1) and self.alphas[j] > 0.0 and len(self.alphas) > 1
        return [name for name, found in beyond.items() if found]


def grid_of(cv_results: Mapping[str, Any], lmbda: float, alpha: float) -> Grid:
    """Errors over the grid from scores of pairs.

    Raises
    ------
    InvalidInputError
        When an array is missing or of another shape, no score is finite, one is above 1, or the chosen pair is not on
        the grid.
    """
    missing = [name for name in ("lmbda", "alpha", "mean_test_score") if name not in cv_results]
    if missing:
        raise InvalidInputError(
            f"`cv_results` must have the arrays lmbda, alpha and mean_test_score; {missing[0]} is missing. Pass the "
            "cv_results_ of an LSTDCV."
        )
    tried_lmbda = check_array("cv_results['lmbda']", cv_results["lmbda"], (None,))
    tried_alpha = check_array("cv_results['alpha']", cv_results["alpha"], (len(tried_lmbda),))
    score = np.asarray(cv_results["mean_test_score"], dtype=np.float64)
    spread = np.asarray(cv_results.get("std_test_score", np.full(score.shape, np.nan)), dtype=np.float64)
    for name, array in (("mean_test_score", score), ("std_test_score", spread)):
        if array.shape != tried_lmbda.shape:
            raise InvalidInputError(
                f"`cv_results['{name}']` must have shape {tried_lmbda.shape}, as 'lmbda' does; got {array.shape}."
            )
    if not np.isfinite(score).any():
        raise InvalidInputError("`cv_results['mean_test_score']` must have a finite entry; got none.")
    if np.nanmax(score) > 1.0:
        raise InvalidInputError(f"`cv_results['mean_test_score']` must be R², at most 1; got {np.nanmax(score):g}.")
    lmbdas, i = np.unique(tried_lmbda, return_inverse=True)
    alphas, j = np.unique(tried_alpha, return_inverse=True)
    errors, spreads = np.full((2, len(lmbdas), len(alphas)), np.nan)
    errors[i, j], spreads[i, j] = np.where(np.isfinite(score), 1.0 - score, np.nan), spread
    chosen = _at("lmbda", lmbdas, lmbda), _at("alpha", alphas, alpha)
    return Grid(lmbdas, alphas, errors, spreads, chosen, "cautious_test_score" in cv_results)


def _at(name: str, values: Array, chosen: float) -> int:
    number = check_real(name, chosen, 0.0, np.inf)
    found = np.flatnonzero(np.isclose(values, number, rtol=1e-9, atol=0.0))
    if not len(found):
        raise InvalidInputError(f"`{name}` must be on the grid of `cv_results`; got {number:g}.")
    return int(found[0])


def plot_grid(cv_results: Mapping[str, Any], lmbda: float, alpha: float) -> Figure:
    """Cross-validated error over a grid of (λ, α), with the chosen pair.

    The error is 1 − R², the share of the variance of held-out returns that was not predicted; colours are ratios to
    the lowest, up to 2 at most. Beside it, the lowest error that each λ reaches with any α.

    Parameters
    ----------
    cv_results : mapping
        With arrays "lmbda", "alpha" and "mean_test_score", R², of one shape (n_pairs,), as the `cv_results_` of an
        LSTDCV.
    lmbda, alpha : float
        The chosen pair.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    InvalidInputError
        When an array is missing or of another shape, no score is finite, one is above 1, or the chosen pair is not on
        the grid.

    Examples
    --------
    >>> from lstd.report import plot_grid
    >>> scores = {"lmbda": [0, 0, 1, 1], "alpha": [1, 2, 1, 2], "mean_test_score": [0.4, 0.5, 0.7, 0.6]}
    >>> [ax.get_xlabel() for ax in plot_grid(scores, 1, 1).axes[::2]]
    ['ridge coefficient α', 'lowest error, 1 − R²']
    """
    return draw_grid(grid_of(cv_results, lmbda, alpha))


def draw_grid(found: Grid) -> Figure:
    """See :func:`plot_grid`."""
    with figure_style():
        height = float(np.clip(1.9 + 0.13 * len(found.lmbdas), 2.9, 5.5))
        figure = new_figure(WIDE, height)
        bottom, top = 0.5 / height, 1 - 0.35 / height
        ax = figure.add_axes((0.075, bottom, 0.54, top - bottom))
        scale = figure.add_axes((0.63, bottom, 0.014, top - bottom))
        side = figure.add_axes((0.745, bottom, 0.235, top - bottom))
        _map(ax, scale, found)
        _lowest_by_lmbda(side, found)
        for panel in (ax, side):
            _category_ticks(panel, "y", [f"{lmbda:.4g}" for lmbda in found.lmbdas], 21)
            panel.set_ylim(-0.5, len(found.lmbdas) - 0.5)
        side.tick_params(labelleft=False)
        ax.set_ylabel("trace decay λ")
        _category_ticks(ax, "x", _alpha_labels(found.alphas), 9)
        ax.set_xlabel("ridge coefficient α")
        figure.legend(
            handles=_marks(found), loc="upper left", ncols=3, fontsize=8.5,
            bbox_to_anchor=(0.065, 1.0), borderaxespad=0.2, handlelength=1.2,
        )  # fmt: skip
    return figure


_CHOSEN: dict[str, Any] = {
    "marker": "*", "color": VERMILION, "markeredgecolor": "white", "markersize": 13, "linestyle": "",
}  # fmt: skip
_LOWEST: dict[str, Any] = {
    "marker": "o", "markerfacecolor": "none", "markeredgecolor": VERMILION, "markersize": 8, "linestyle": "",
}  # fmt: skip


def _marks(found: Grid) -> list[Line2D]:
    marks = [Line2D([], [], label="chosen", **_CHOSEN)]
    if found.lowest != found.chosen:
        marks.append(Line2D([], [], label="lowest error", **_LOWEST))
    if np.isnan(found.error).any():
        marks.append(Line2D([], [], label="no error", marker="s", color=_NOTHING, markersize=8, linestyle=""))
    return marks


def _map(ax: Axes, scale: Axes, found: Grid) -> None:
    shown, norm, beyond = _colours(found)
    edges = [np.arange(length + 1) - 0.5 for length in shown.shape]
    ax.set_facecolor(_NOTHING)
    ax.pcolormesh(
        edges[1], edges[0], shown, cmap="viridis", norm=norm, rasterized=shown.size > _MOST_CELLS, edgecolors="face",
        linewidth=0.2,
    )  # fmt: skip
    ax.grid(False)
    for (i, j), mark in ((found.lowest, _LOWEST), (found.chosen, _CHOSEN)):
        if mark is _CHOSEN or found.lowest != found.chosen:
            ax.plot([j], [i], **mark, zorder=5)
    bar = scale.figure.colorbar(
        ScalarMappable(norm, "viridis"), cax=scale, extend="max" if beyond else "neither", extendfrac=0.04
    )
    bar.set_label("error ÷ lowest error" if norm.vmin == 1.0 else "error − lowest error")


def _colours(found: Grid) -> tuple[Array, Normalize, bool]:
    """What is shown as a colour: ratios to the lowest error, or differences where that is zero."""
    lowest = found.error[found.lowest]
    if lowest > 0.0:
        shown, start, most = found.error / lowest, 1.0, _MOST_RATIO
    else:
        shown, start, most = found.error - lowest, 0.0, np.inf
    high, middle = float(np.nanmax(shown)), float(np.nanmedian(shown))
    # Small α may be far worse than all else, and it is the differences near the lowest that matter.
    top = min(high, most, start + 4.0 * (middle - start) if middle > start else np.inf)
    return shown, Normalize(start, max(top, start + _LEAST_RANGE)), high > max(top, start + _LEAST_RANGE)


def _lowest_by_lmbda(ax: Axes, found: Grid) -> None:
    usable = np.isfinite(found.error).any(axis=1)
    at = np.flatnonzero(usable)
    lowest = np.nanmin(found.error[usable], axis=1)
    ax.plot(lowest, at, color=BLUE, marker="o", markersize=3, linewidth=1.0)
    ax.plot([found.error[found.chosen]], [found.chosen[0]], **_CHOSEN, zorder=5)
    least, most = lowest.min(), max(lowest.max(), found.error[found.chosen], (1.0 + _LEAST_RANGE) * lowest.min())
    margin = 0.06 * (most - least) or 1.0
    if np.isfinite(margin):
        ax.set_xlim(least - margin, most + margin)
    ax.set_xlabel("lowest error, 1 − R²")
    ax.xaxis.set_major_locator(MaxNLocator(nbins=3))
    ax.ticklabel_format(axis="x", useOffset=False)


def _category_ticks(ax: Axes, axis: str, labels: Sequence[str], most: int) -> None:
    step = max(1, -(-len(labels) // most))
    at = np.arange(len(labels))[::step]
    setter = ax.set_xticks if axis == "x" else ax.set_yticks
    setter(at, [labels[i] for i in at])


def _alpha_labels(alphas: Array) -> list[str]:
    """Powers of two or ten as such, where all are."""
    for base in (2, 10):
        with np.errstate(divide="ignore"):
            exponents = np.log(alphas) / np.log(base)
        if len(alphas) > 1 and np.isfinite(exponents).all() and np.allclose(exponents, exponents.round(), atol=1e-9):
            return [f"${base}^{{{exponent:.0f}}}$" for exponent in exponents]
    return [f"{float(f'{alpha:.2g}'):g}" for alpha in alphas]


def plot_degrees_of_freedom(model: Predictor) -> Figure:
    """Effective degrees of freedom of each feature: 0 where the ridge term decides its weight, 1 where the data does.

    Features are marked on which too little data bears: a row that has them alone has fewer than 5 degrees of freedom
    for its interval, which are those of :meth:`lstd.LSTD.predict_interval`. With more than 40 features they are drawn
    without names, in order.

    Parameters
    ----------
    model : fitted estimator

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> import numpy as np
    >>> from lstd import LSTD
    >>> from lstd.report import plot_degrees_of_freedom
    >>> X, y, done = np.tile(np.eye(2), (20, 1)), np.ones(40), np.tile([False, True], 20)
    >>> figure = plot_degrees_of_freedom(LSTD().fit(X, y, terminated=done))
    >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
    ['feature 0', 'feature 1']
    """
    return draw_degrees_of_freedom(effective_degrees_of_freedom(model), feature_names(model), flagged_features(model))


def feature_names(model: Predictor) -> list[str]:
    """Names of a model's features, or their numbers."""
    names = getattr(model, "feature_names_in_", None)
    return [f"feature {i}" for i in range(model.n_features_in_)] if names is None else [str(name) for name in names]


def flagged_features(model: Predictor) -> NDArray[np.bool_]:
    """Features of which a row that has them alone would have too few degrees of freedom; none without intervals."""
    try:
        influence = model._fitted.influence
    except InvalidInputError:
        return np.zeros(model.n_features_in_, dtype=np.bool_)
    alone = np.eye(model.n_features_in_)
    unused = np.zeros((len(alone), model.statistics_.b.shape[1]))  # degrees of freedom do not depend on predictions
    return np.asarray((influence.interval(alone, unused, 0.95).degrees_of_freedom < FEW).any(axis=1))


def draw_degrees_of_freedom(values: Array, names: Sequence[str], flagged: NDArray[np.bool_]) -> Figure:
    """See :func:`plot_degrees_of_freedom`."""
    with figure_style():
        figure = _named(values, names, flagged) if len(values) <= NAMED else _ranked(values, flagged)
        if flagged.any():
            words = f"a row of this feature alone has fewer than {FEW:g} degrees of freedom"
            handle = Line2D([], [], color=VERMILION, marker="D", linestyle="", markersize=4, label=words)
            top = 1 - 0.04 / figure.get_figheight()
            figure.legend(handles=[handle], loc="upper center", bbox_to_anchor=(0.5, top), fontsize=8.5)
    return figure


def _named(values: Array, names: Sequence[str], flagged: NDArray[np.bool_]) -> Figure:
    n = len(values)
    height = 0.9 + 0.2 * max(2, n)
    figure = new_figure(4.4, height)
    ax = figure.subplots()
    at = np.arange(n)
    for kind, colour, marker in ((~flagged, BLUE, "o"), (flagged, VERMILION, "D")):
        ax.hlines(at[kind], 0.0, values[kind], color=colour, linewidth=1.1)
        ax.plot(values[kind], at[kind], color=colour, marker=marker, linestyle="", markersize=4.5, clip_on=False)
    ax.set_yticks(at, [plain(name, 26) for name in names])
    ax.set_ylim(n - 0.4, -0.6)
    ax.grid(False, axis="y")
    ax.set_xlim(min(0.0, values.min(initial=0.0)), max(1.0, values.max(initial=1.0)))
    ax.set_xlabel("effective degrees of freedom")
    figure.tight_layout(rect=(0, 0, 1, 1 - (0.26 if flagged.any() else 0.05) / height), pad=0.5)
    return figure


def _ranked(values: Array, flagged: NDArray[np.bool_]) -> Figure:
    order = np.argsort(-values, kind="stable")
    # Those that are flagged are few, or all much the same: as many dots as can be told apart.
    place = np.unique(np.linspace(0, len(order) - 1, _MOST_DOTS).round().astype(np.intp))
    order = order[place]
    figure = new_figure(WIDE, 3.2)
    ax = figure.subplots()
    for kind, colour, marker in ((~flagged[order], BLUE, "o"), (flagged[order], VERMILION, "D")):
        ax.plot(place[kind] + 1, values[order][kind], color=colour, marker=marker, linestyle="", markersize=3)
    ax.set_ylim(min(0.0, 1.05 * values.min()) - 0.02, max(1.0, 1.05 * values.max()) + 0.02)
    ax.set_xlabel(f"features, those that the data decides first ({len(values)} in all)")
    ax.set_ylabel("effective degrees of freedom")
    figure.tight_layout(rect=(0, 0, 1, 0.93 if flagged.any() else 0.99), pad=0.5)
    return figure
