"""Choose λ and α by cross-validation on returns.

Features are put into units of their spread, and a grid of pairs is searched (:mod:`lstd.estimators.pair_search`):
that of the user, or a usual one, which is coarse with many features or without the matrix, and grows where the best
pair lies at its end.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from lstd.data.arguments import check_grid, check_integer
from lstd.data.feature_arrays import check_finite, column_spread
from lstd.data.rows import Rows
from lstd.data.settings import ALPHAS, LMBDAS, Settings, Solver, alphas_for
from lstd.errors import InvalidInputError
from lstd.estimators.bias_check import checks_of_choice
from lstd.estimators.folds import are_whole, folds_of, rows_from_all_over
from lstd.estimators.model import Model
from lstd.estimators.model_parts import Checks, Selection, needs_matrix
from lstd.estimators.pair_search import (
    CAUTION_OF_EPISODES,
    MANY_FEATURES,
    Grid,
    OnProgress,
    Search,
    SearchWithoutMatrix,
)
from lstd.statistics.counts import check_weighted
from lstd.statistics.solve import check_range
from lstd.types import Array

Choice = tuple[Settings, Selection, Checks]

_FAR = 16.0  # spreads between zero and a centre that is subtracted
_MOST_JOBS = 1024  # threads
_FEW_FOLDS = 5  # without the matrix, where each pair and fold is a solve
_ENTRIES_OF_SCORE = 2**22  # features of the rows that are held out in turn
_OPERATIONS_PER_BYTE = 100.0  # that take as long as reading a byte does
_COARSE = Grid(np.array([0.0, 0.3, 0.6, 0.8, 0.9, 0.95, 0.98, 1.0]), 2, np.array([2.0, 4.0]))
_WITHOUT_MATRIX = Grid(np.array([0.0, 0.3, 0.6, 0.8, 0.9, 0.95, 1.0]), 2, np.arange(1.0, 5.0))


def choose(rows: Rows, settings: Settings, on_progress: OnProgress | None = None) -> Choice:
    """Choose the settings in `settings.choose` from the first rows of large data.

    `on_progress` is given the work in bytes that could be read meanwhile. Raises as :func:`select` does.
    """
    n = rows.n_features
    if isinstance(settings.alpha, tuple):
        settings = replace(settings, alpha=1.0, penalty=settings.alpha)
    elif "alpha" not in settings.choose:
        settings = replace(settings, penalty=settings.penalty or (1.0,) * (n - settings.fit_intercept))
    work = (len(rows) * n**2 + 200.0 * n**3) / _OPERATIONS_PER_BYTE

    def report(text: str, done: float, total: float) -> None:
        if on_progress is not None:
            on_progress(text, done * work, total * work)

    lmbdas = None
    if "lmbda" not in settings.choose:
        lmbdas = [settings.lmbda]
    alphas = None
    if "alpha" not in settings.choose:
        alphas = [settings.alpha]
    return choose_settings(rows, settings, lmbdas=lmbdas, alphas=alphas, on_progress=report)


def choose_settings(rows: Rows, settings: Settings, **options: Any) -> Choice:
    """Choose λ and α, then check the model of some rows for bias and misfit; `options` are those of `select`."""
    selection, settings, rows = select(rows, settings, **options)
    if options.get("solver") is not None:
        return settings, selection, Checks(needs_matrix("bias_check"), needs_matrix("misfit_check"))
    return settings, selection, checks_of_choice(rows, replace(settings, centre=None))


def select(
    rows: Rows,
    settings: Settings,
    *,
    lmbdas: ArrayLike | None = None,
    alphas: ArrayLike | None = None,
    cv: int | None = None,
    n_jobs: int | None = None,
    solver: Solver | None = None,
    on_progress: OnProgress | None = None,
) -> tuple[Selection, Settings, Rows]:
    """Choose λ and α for rows from `check_rows`; with an intercept, the rows must have the column of ones.

    The other parameters are those of :class:`LSTDCV`; a `solver` works without the matrix. After each trace decay, or
    fold of a solver, `on_progress` is called. Returns the choice, the settings with it and with the penalties, and the
    rows with centred features.

    Raises
    ------
    InvalidInputError
        When a parameter breaks a rule, there are too few transitions to hold some out, or no pair has a
        well-conditioned system.
    """
    n_full = _check_enough_rows(rows)
    if n_jobs is not None and check_integer("n_jobs", n_jobs, -_MOST_JOBS, _MOST_JOBS) == 0:
        raise InvalidInputError("`n_jobs` must be None or an integer other than 0; got 0.")
    rows, settings, unit = in_units(rows, settings)
    n_features = rows.n_features - settings.fit_intercept
    grid = _usual_grid(n_features, solver, whole=are_whole(rows))
    tried = grid.lmbdas
    if lmbdas is not None:
        tried = check_grid("lmbdas", lmbdas, 0.0, 1.0)
    if solver is None:
        search = Search(rows, folds_of(rows, cv), settings, tried, unit, n_jobs)
    else:
        folds = folds_of(rows, _FEW_FOLDS if cv is None else cv)
        search = SearchWithoutMatrix(solver, rows, folds, settings, tried, unit, n_jobs)

    if alphas is None:
        powers = alphas_for(n_features, n_full)[:: grid.step]
        if grid.per_episode:
            powers = _alphas_per_episode(n_features, int(rows.begins.sum()), grid.step)
        with np.errstate(over="ignore"):
            first_alphas = powers * unit
    else:
        first_alphas = check_grid("alphas", alphas, 0.0, np.inf)
    search.add(first_alphas, on_progress)
    search.choose()
    if alphas is None:
        search.grow(grid)
    selection = search.selection()
    return selection, replace(settings, lmbda=selection.lmbda, alpha=selection.alpha), rows


def _check_enough_rows(rows: Rows) -> int:
    """Return the number of full transitions, of which some can be held out; raises InvalidInputError."""
    check_finite("X", rows.X, rows.names)
    n_full = int(rows.full.sum())
    if n_full < 2:
        raise InvalidInputError(
            f"`X` must hold at least two full transitions to choose from; got n_samples={len(rows)} with "
            f"{n_full}. Pass more rows, or set `lmbda` and `alpha` of LSTD yourself."
        )
    check_weighted(float((rows.full * rows.weight).sum()), n_full)
    return n_full


def _usual_grid(n_features: int, solver: Solver | None, *, whole: bool) -> Grid:
    """Return the grid of a choice with so many features, without the matrix if there is a solver.

    With many features and noisy returns of whole groups or episodes, a large α is often right: rows of one episode are
    worth less than as many others. So it is tried at once unless episodes are many, and a larger one need not win by as
    much as elsewhere.
    """
    if solver is not None:
        return _WITHOUT_MATRIX
    if n_features < MANY_FEATURES:
        return Grid(LMBDAS, 1, np.arange(1.0, 5.0))
    if whole:
        return _COARSE._replace(caution=CAUTION_OF_EPISODES, per_episode=True)
    return _COARSE


def _alphas_per_episode(n_features: int, n_episodes: int, step: int) -> Array:
    """Return the powers of two to choose from, at least up to 16 n/E for n features and E groups or episodes, and 1."""
    powers = ALPHAS[::step]
    largest = max(1.0, 16.0 * n_features / n_episodes)
    return powers[: np.searchsorted(powers, largest) + 1]


def held_out_score(rows: Rows, model: Model) -> float | None:
    """Return R² on held-out rows: that of the choice of settings, or of folds of these rows with the model's settings.

    None if it cannot be computed. Rows have no column of ones.
    """
    if model.selection is not None:
        return model.selection.score
    if model.matrix_free:
        return None
    n = rows.n_features
    penalty = tuple(model.ridge[:n].tolist())
    settings = replace(model.settings, choose=(), alpha=1.0, centre=None, penalty=penalty)
    if settings.fit_intercept:
        rows = rows.with_ones()
    some = rows_from_all_over(rows, _ENTRIES_OF_SCORE // (n + 1))
    with warnings.catch_warnings(action="ignore"):
        try:
            selection, _, _ = select(some, settings, lmbdas=[settings.lmbda], alphas=[1.0])
        except InvalidInputError:
            return None
    return selection.score


@np.errstate(over="ignore", invalid="ignore")  # what is out of range is refused
def in_units(rows: Rows, settings: Settings) -> tuple[Rows, Settings, float]:
    """Return rows with centred features, settings with the centre and the penalty of each feature, and the unit of α.

    The penalty is the squared spread of the feature unless it is given; where names are `unpenalised`, it is 0. The
    unit is the sum over the features of their mean square about the centre, each divided by the penalty. With an
    intercept, no prediction depends on the centre but for rounding, so only features far from zero are centred.
    """
    full = rows.full
    n = rows.n_features - settings.fit_intercept
    X = rows.X
    if not full.all():
        X = X[full]
    weights = None
    if "weight" in rows.given:
        weights = rows.weight[full]
    centre, spread, square = column_spread(X[:, :n], weights, about_zero=not settings.fit_intercept)

    penalty = spread
    if settings.penalty is not None:
        penalty = np.array(settings.penalty)
        if "alpha" in settings.choose:  # 0 or 1, by name
            penalty = penalty * spread
    terms = np.divide(square, penalty, out=np.zeros(n), where=penalty > 0.0)
    unit = float(terms.sum() * rows.weight[full].mean())
    check_range(penalty, np.array(unit))
    settings = replace(settings, penalty=tuple(penalty.tolist()))

    centre = np.where(centre**2 > _FAR**2 * spread, centre, 0.0)
    has_sparse = sparse.issparse(rows.X) or sparse.issparse(rows.X_next)
    if centre.any() and not has_sparse:
        rows = rows.less(np.append(centre, 0.0))
        settings = replace(settings, centre=tuple(centre.tolist()))
    return rows, settings, unit or 1.0
