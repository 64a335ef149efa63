"""Choose λ and α by cross-validation on returns, in three stages.

Folds have consecutive groups or episodes, or consecutive rows if there are no groups and few episodes. Without fold k,
the rows before it are a stream that is cut there, and the rows after it are another stream, so no trace crosses the
gap. The statistics of both follow from the statistics of the folds by merging. The target of a row is its λ*-return,
bootstrapped by reference weights w,

    G_t = φ_tᵀw + d_t,   d_t = ρ_t (r_{t+1} + g_{t+1} φ_{t+1}ᵀw − φ_tᵀw + λ* g_{t+1} d_{t+1}).

Monte-Carlo returns, λ* = 1, are unbiased but noisy; with λ* < 1 the noise is less, with a bias towards the reference.
The first stage uses λ* = 0.9 and w from λ = 0.9 and an ordinary α, the second one the same λ* and w from the pair of
the first. The last stage uses λ* = 1. There the choice changes only if another pair is clearly better: it minimises
Σ_k D_k + c √K sd(D_k), where D_k is the difference of the squared errors on fold k. The caution c is 1 for folds of
episodes, whose returns are noisier, and 1/4 for folds of rows. While the best pair lies at an end of the default grid,
the grid grows, and the last stage compares the new pairs with it, with a caution of 2; of 1 for folds of episodes with
many features.

The constants were chosen on random Markov reward processes, and confirmed on others: ``benchmarks/selection.py``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from lstd.data.arguments import check_grid, check_integer
from lstd.data.feature_arrays import check_finite, column_spread, dense
from lstd.data.returns import unobserved_shares
from lstd.data.rows import Rows
from lstd.data.settings import ALPHA, LMBDA, LMBDAS, Settings, Solver, alphas_for
from lstd.errors import InvalidInputError, NothingToChooseWarning, warn
from lstd.estimators.bias_check import checks_of_choice
from lstd.estimators.folds import (
    are_whole,
    folds_of,
    lambda_returns,
    left_out,
    rows_from_all_over,
    times_weights,
)
from lstd.estimators.model import Model
from lstd.estimators.model_parts import Checks, Selection, needs_matrix
from lstd.estimators.sparse_solver import solve_grid
from lstd.statistics.counts import check_weighted
from lstd.statistics.merging import LSTDStatistics
from lstd.statistics.solve import check_range
from lstd.statistics.stacked_solve import solve_for_ridges
from lstd.statistics.system import System
from lstd.statistics.threads import one_blas_thread
from lstd.types import Array, Flags

OnProgress = Callable[[str, float, float], None]  # called with the name of the task, the work done and in all
Choice = tuple[Settings, Selection, Checks]
T = TypeVar("T")

STAGES = (0.9, 0.9, 1.0)  # λ* of the targets
CAUTION_OF_EPISODES = 1.0  # standard errors, in the last stage
CAUTION_OF_ROWS = 0.25
SMALLEST_ALPHA = 2.0**-20  # bounds of the grid, in units of α
LARGEST_ALPHA = 2.0**8
_FAR = 16.0  # spreads between zero and a centre that is subtracted
CAUTION_OF_GROWTH = 2.0  # standard errors by which a pair beyond the grid must be better
_GAIN = 1e-4  # R² by which it must be better
_LARGEST_CONDITION = 1e10
_MOST_JOBS = 1024  # threads
_FEW_FOLDS = 5  # without the matrix, where each pair and fold is a solve
_TOL_OF_CHOICE = 1e-5  # relative residual of these solves
_ENTRIES_OF_SCORE = 2**22  # features of the rows that are held out in turn
_MANY_FEATURES = 64  # from which the grid is coarse, and systems are solved one by one
BYTES_OF_SUMS = 2**28  # of the systems of all trace decays, which are kept while the grid grows
_OPERATIONS_PER_BYTE = 100.0  # that take as long as reading a byte does


class _Grid(NamedTuple):
    """Trace decays and ridge coefficients to choose from, where no others are given."""

    lmbdas: Array
    step: int  # of the usual ridge coefficients, powers of two, those to choose from
    growth: Array  # powers of two by which the grid grows at a time
    caution: float = CAUTION_OF_GROWTH


_COARSE = _Grid(np.array([0.0, 0.3, 0.6, 0.8, 0.9, 0.95, 0.98, 1.0]), 2, np.array([2.0, 4.0]))
_WITHOUT_MATRIX = _Grid(np.array([0.0, 0.3, 0.6, 0.8, 0.9, 0.95, 1.0]), 2, np.arange(1.0, 5.0))


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
        search = _Search(rows, folds_of(rows, cv), settings, tried, unit, n_jobs)
    else:
        folds = folds_of(rows, _FEW_FOLDS if cv is None else cv)
        search = _SearchWithoutMatrix(solver, rows, folds, settings, tried, unit, n_jobs)

    if alphas is None:
        with np.errstate(over="ignore"):
            first_alphas = alphas_for(n_features, n_full)[:: grid.step] * unit
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


def _usual_grid(n_features: int, solver: Solver | None, *, whole: bool) -> _Grid:
    """Return the grid of a choice with so many features, without the matrix if there is a solver.

    With many features and noisy returns of whole groups or episodes, a large α is often right, so it need not win by as
    much as elsewhere.
    """
    if solver is not None:
        return _WITHOUT_MATRIX
    if n_features < _MANY_FEATURES:
        return _Grid(LMBDAS, 1, np.arange(1.0, 5.0))
    if whole:
        return _COARSE._replace(caution=CAUTION_OF_EPISODES)
    return _COARSE


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


class _WeightsOfGrid(NamedTuple):
    """Solutions for J ridge coefficients; n weights, m rewards, K folds. Those of L trace decays are stacked."""

    weights: Array  # from all data, (J, n, m) or (L, J, n, m)
    outside: Array  # without each fold, (K, J, n, m) or (K, L, J, n, m)
    condition: Array  # largest condition number, (J,) or (L, J)


class _Systems(NamedTuple):
    """The systems of one trace decay: of all data, and then without each fold."""

    systems: list[System]
    shares: Array  # of the weight of all data, (K + 1,)
    have_weight: Flags  # (K + 1,)

    @classmethod
    def of(cls, folds: list[Rows], lmbda: float, settings: Settings) -> _Systems:
        """Sum the folds, and merge them to all data and to the data without each fold."""
        sums = [LSTDStatistics.from_rows(fold, lmbda) for fold in folds]
        with np.errstate(over="ignore", invalid="ignore"):  # the solver checks the sums
            total, rests = left_out(sums)
        parts = [total, *rests]
        intercept = settings.fit_intercept
        no_ridge = np.zeros(total.n_features - intercept)
        systems = [System.of(part, settings.variant, no_ridge, intercept=intercept) for part in parts]

        whole = total.total_weight or 1.0
        weight = np.array([part.total_weight for part in parts])
        assumed = np.full(len(parts), whole / len(folds))  # where all weights are zero
        assumed[0] = whole
        has_weight = weight > 0.0
        return cls(systems, np.where(has_weight, weight, assumed) / whole, has_weight)

    @property
    def n_bytes(self) -> int:
        """Memory of the sums."""
        return sum(system.A.nbytes + system.b.nbytes for system in self.systems)

    def solved(self, alphas: Array, ridge: Array) -> _WeightsOfGrid:
        """Solve with the ridge coefficients α times those of the features, in proportion to the weight of the data."""
        factors = alphas * self.shares[:, np.newaxis]
        ridges = factors[:, :, np.newaxis] * ridge
        stacked = len(ridge) <= _MANY_FEATURES
        weights, conditions = solve_for_ridges(self.systems, ridges, stacked=stacked)
        condition = np.max(conditions, axis=0, where=self.have_weight[:, np.newaxis], initial=0.0)
        return _WeightsOfGrid(weights[0], weights[1:], condition)


class _Search:
    """Pairs of λ and α, with their errors on the held-out rows of K folds, and the best pair so far.

    The squared errors of weights w are wᵀ G w − 2 wᵀ c + d, with sums G, c and d over the rows of a fold.
    """

    measure = "condition_number"  # by which systems are allowed

    def __init__(
        self, rows: Rows, folds: list[Rows], settings: Settings, lmbdas: Array, unit: float, n_jobs: int | None
    ) -> None:
        self.rows = rows
        self.folds = folds
        self.settings = settings
        self.lmbdas = lmbdas
        self.unit = unit
        self.n_jobs = n_jobs
        weights = rows.full * rows.weight
        self.held = [np.flatnonzero(weights[first:end]) + first for first, end in self._edges]
        self.counts = np.array([weights[fold].sum() for fold in self.held])
        self.ridge = np.append(np.array(settings.penalty), [0.0] * settings.fit_intercept)
        self.systems: dict[float, _Systems] = {}  # by trace decay, as far as memory allows

        n_lmbdas = len(lmbdas)
        n_folds = len(folds)
        n = rows.n_features
        m = rows.y.shape[1]
        self.alphas = np.empty(0)
        self.pair = (0, 0)
        self.weights = np.empty((n_lmbdas, 0, n, m))
        self.outside = np.empty((n_folds, n_lmbdas, 0, n, m))
        self.condition = np.empty((n_lmbdas, 0))
        self.quadratic = np.empty((n_folds, n_lmbdas, 0, m))

    @property
    def _edges(self) -> list[tuple[int, int]]:
        """First row and end of each fold."""
        edges = np.cumsum([0, *map(len, self.folds)])
        return list(pairwise(edges.tolist()))

    @property
    def allowed(self) -> Flags:
        """Whether the system of each pair is well-conditioned, (λ, α)."""
        return np.asarray(self.condition < _LARGEST_CONDITION)

    # ------------------------------------------------------------ pairs

    def add(self, alphas: Array, report: OnProgress | None = None) -> None:
        """Solve for more ridge coefficients, all below or all above those so far."""
        check_range(alphas)
        solved = self._solutions(alphas, report)
        with np.errstate(over="ignore", invalid="ignore"):  # `check_range` checks the errors
            squares = [self._squares(fold, outside) for fold, outside in zip(self.held, solved.outside, strict=True)]
        below = len(self.alphas) > 0 and bool(alphas[-1] < self.alphas[0])
        if below:
            i, j = self.pair
            self.pair = (i, j + len(alphas))

        def joined(before: Array, new: Array, axis: int) -> Array:
            if below:
                return np.concatenate([new, before], axis=axis)
            return np.concatenate([before, new], axis=axis)

        self.alphas = joined(self.alphas, alphas, 0)
        self.weights = joined(self.weights, solved.weights, 1)
        self.outside = joined(self.outside, solved.outside, 2)
        self.condition = joined(self.condition, solved.condition, 1)
        self.quadratic = joined(self.quadratic, np.stack(squares), 2)

    def _solutions(self, alphas: Array, report: OnProgress | None) -> _WeightsOfGrid:
        """Solve for all trace decays."""
        tasks = [partial(self._solved, lmbda, alphas) for lmbda in self.lmbdas.tolist()]
        solved = self._in_parallel(tasks, report)
        return _WeightsOfGrid(
            weights=np.stack([one.weights for one in solved]),
            outside=np.stack([one.outside for one in solved], axis=1),
            condition=np.stack([one.condition for one in solved]),
        )

    def _solved(self, lmbda: float, alphas: Array) -> _WeightsOfGrid:
        """Solve the systems of one trace decay, whose sums are kept for further ridge coefficients."""
        systems = self.systems.get(lmbda)
        if systems is None:
            systems = _Systems.of(self.folds, lmbda, self.settings)
        if len(self.lmbdas) * systems.n_bytes <= BYTES_OF_SUMS:
            self.systems[lmbda] = systems
        return systems.solved(alphas, self.ridge)

    def _in_parallel(self, tasks: Sequence[Callable[[], T]], report: OnProgress | None) -> list[T]:
        """Return the results of tasks."""
        from joblib import Parallel, delayed  # takes 0.1 s to import, for the shell

        results: list[T] = []
        parallel = Parallel(n_jobs=self.n_jobs, prefer="threads", return_as="generator")
        with one_blas_thread():  # several threads would be slower: the systems are small
            for result in parallel(delayed(task)() for task in tasks):
                results.append(result)
                if report is not None:
                    report("choosing lmbda and alpha", len(results), len(tasks))
        return results

    def _squares(self, fold: NDArray[np.intp], outside: Array) -> Array:
        """Compute wᵀ G w on a fold, (λ, α, m), for the weights without it, (λ, α, n, m)."""
        phi = self.rows.X[fold]
        gram = dense(phi.T @ times_weights(phi, self.rows.weight[fold]))
        projected = np.einsum("ij,lajm->laim", gram, outside, optimize=True)
        return np.asarray(np.einsum("lanm,lanm->lam", outside, projected))

    # ------------------------------------------------------------ the choice

    def choose(self) -> None:
        """Choose a pair in three stages, from the one nearest to the first reference.

        Raises InvalidInputError when no system is well-conditioned.
        """
        self._check_allowed()
        with np.errstate(over="ignore"):  # of units near the least float
            distance = np.abs(np.log(np.maximum(self.alphas, 1e-300) / (ALPHA * self.unit)))
        start = (np.argmin(np.abs(self.lmbdas - LMBDA)), np.argmin(distance))
        allowed = np.argwhere(self.allowed)
        nearest = np.abs(allowed - start).sum(axis=1).argmin()
        i, j = allowed[nearest].tolist()
        self.pair = (i, j)

        caution = CAUTION_OF_ROWS
        if are_whole(self.rows):
            caution = CAUTION_OF_EPISODES
        *first_stages, last_stage = STAGES
        for decay in first_stages:
            self.improve(decay, 0.0)
        self.improve(last_stage, caution)

    def grow(self, grid: _Grid) -> None:
        """Try ridge coefficients beyond the end at which the pair lies, as a grid grows, while they are better."""
        more = self._beyond(grid.growth)
        while len(more):
            self.add(more)
            self.improve(STAGES[-1], grid.caution, _GAIN)
            more = self._beyond(grid.growth)

    def _beyond(self, steps: Array) -> Array:
        """Return the next ridge coefficients beyond the end at which the pair lies; none inside, or at the bounds."""
        _, j = self.pair
        if j == 0:
            more = self.alphas[0] * np.exp2(-steps[::-1])
            return np.asarray(more[more >= 0.99 * SMALLEST_ALPHA * self.unit])
        if j < len(self.alphas) - 1:
            return np.empty(0)
        more = self.alphas[-1] * np.exp2(steps)
        return np.asarray(more[more <= 1.01 * LARGEST_ALPHA * self.unit])

    def _check_allowed(self) -> None:
        """Raise InvalidInputError when no system is well-conditioned."""
        if self.allowed.any():
            return
        if self.measure == "n_iter":
            raise InvalidInputError(
                "`alphas` must hold a value for which the iterative solver converges; none does within `max_iter` "
                'products. Give larger ones, increase `max_iter`, or use solver="direct" if the matrix fits in memory.'
            )
        if self.settings.fit_intercept and self.rows.gamma == 1.0 and np.isinf(self.condition).all():
            raise InvalidInputError(
                "`terminated` must be set for some row outside of each fold: at `gamma` 1, data without an end "
                "determine no intercept. Pass data that terminate more often, or use a `gamma` below 1."
            )
        raise InvalidInputError(
            f"`alphas` must hold a value with a well-conditioned system; the least condition number is "
            f"{self.condition.min():.1e}. Give larger ones, or drop features that are zero or repeat each other."
        )

    def improve(self, decay: float, caution: float, gain: float = 0.0) -> None:
        """Move to the pair of least cost on λ*-returns bootstrapped by the weights of the pair, which others must beat.

        Among ties up to rounding, the pair wins, else the largest α and then the smallest λ.
        """
        i, j = self.pair
        targets = lambda_returns(self.rows, decay, self.weights[i, j])
        with np.errstate(over="ignore", invalid="ignore"):
            self.sums = self._errors(targets)
            variance = self._variance(targets)
        check_range(self.sums, variance)
        self.squared = _in_units(self.sums, variance)  # (K, λ, α)
        of_pair = self.squared[:, i, j]
        self.difference = self.squared - of_pair[:, np.newaxis, np.newaxis]

        penalty = np.full(self.condition.shape, gain * self.counts.sum())
        if caution:
            penalty += self._caution(caution)
        penalty[i, j] = 0.0
        self.cost = np.where(self.allowed, self.difference.sum(axis=0) + penalty, np.inf)
        least = self.cost.min()
        is_tie = self.cost <= least + 1e-12 * max(1e-3, abs(least))
        if not is_tie[i, j]:
            ties = np.argwhere(is_tie).tolist()
            i, j = min(ties, key=lambda tie: (-tie[1], tie[0]))
            self.pair = (i, j)

    def _caution(self, caution: float) -> Array:
        """Compute so many standard errors of the sum of the differences over the folds, (λ, α)."""
        with np.errstate(over="ignore", invalid="ignore"):  # a spread beyond float64 counts as infinite
            spread = caution * (np.sqrt(len(self.folds)) * self.difference.std(axis=0, ddof=1))
        return np.where(np.isnan(spread), np.inf, spread)

    # ------------------------------------------------------------ errors and scores

    def _errors(self, targets: Array) -> Array:
        """Compute Σ (target − prediction)² on each fold, (K, λ, α, m)."""
        squared = np.empty_like(self.quadratic)
        for k, fold in enumerate(self.held):
            weighted = times_weights(targets[fold], self.rows.weight[fold])
            along = np.asarray(self.rows.X[fold].T @ weighted)  # (n, m)
            crossed = np.einsum("lanm,nm->lam", self.outside[k], along)
            own = np.sum(targets[fold] * weighted, axis=0)
            of_fold = self.quadratic[k] - 2.0 * crossed + own
            rounding = 32.0 * np.finfo(float).eps * (self.quadratic[k] + own)
            squared[k] = np.where(of_fold <= rounding, 0.0, of_fold)
        return squared

    def _variance(self, targets: Array) -> Array:
        """Compute the variance (m,) of the targets on the held-out rows."""
        held = np.concatenate(self.held)
        weights = self.rows.weight[held]
        mean = np.average(targets[held], axis=0, weights=weights)
        variance = np.asarray(np.average((targets[held] - mean) ** 2, axis=0, weights=weights))
        return np.where(variance > (1e-12 * mean) ** 2, variance, 0.0)  # equal returns differ by rounding

    def selection(self) -> Selection:
        """Return the pair with the scores of all pairs."""
        self._warn_if_alike()
        i, j = self.pair
        scores = self._scores()
        lmbda, alpha = np.meshgrid(self.lmbdas, self.alphas, indexing="ij")
        order = self.cost.reshape(-1)
        columns = {
            "lmbda": lmbda,
            "alpha": alpha,
            **{name: np.where(self.allowed, score, np.nan) for name, score in scores.items()},
            "rank_test_score": np.searchsorted(np.sort(order), order) + 1,
            self.measure: self.condition,
            "observed_share": np.full(lmbda.shape, self._observed_share()),
        }
        results = {name: np.asarray(values).reshape(-1) for name, values in columns.items()}
        return Selection(
            float(self.lmbdas[i]),
            float(self.alphas[j]),
            float(scores["mean_test_score"][i, j]),
            len(self.counts),
            len(self.rows),
            results,
        )

    def _scores(self) -> dict[str, Array]:
        """Compute R² of all pairs, (λ, α), by the names of `cv_results_`."""
        total = self.counts.sum()
        counts = np.where(self.counts > 0.0, self.counts, 1.0)
        nothing = np.zeros_like(self.weights[0, 0])
        with np.errstate(over="ignore", invalid="ignore"):  # a spread of scores beyond float64 counts as infinite
            of_folds = 1.0 - self.squared / counts[:, np.newaxis, np.newaxis]
            mean = 1.0 - self.squared.sum(axis=0) / total
            observed = self._variance(lambda_returns(self.rows, STAGES[-1], nothing))
            return {
                "mean_test_score": mean,
                "std_test_score": of_folds.std(axis=0),
                "cautious_test_score": mean[self.pair] - (self.cost - self.cost[self.pair]) / total,
                "observed_test_score": 1.0 - _in_units(self.sums, observed).sum(axis=0) / total,
                **{f"split{k}_test_score": score for k, score in enumerate(of_folds)},
            }

    def _observed_share(self) -> float:
        """Compute the share of the discounted weight of the returns that was observed."""
        share = 1.0 - unobserved_shares(self.rows)
        full = self.rows.full
        return float(np.average(share[full], weights=self.rows.weight[full]))

    def _warn_if_alike(self) -> None:
        """Warn if all pairs have the same errors."""
        if self.allowed.sum() < 2:
            return
        largest = np.abs(self.difference[:, self.allowed]).max()
        if largest <= 1e-12 * max(self.counts.max(), self.squared.max()):
            warn(
                "All values of `lmbda` and `alpha` predict the held-out rows alike, so there is nothing to choose by: "
                "the returns are all the same (as with equal rewards and no ends), or the features, the rewards, the "
                "importance ratios or the penalties are all zero. The pair nearest to (0.9, 1) is used.",
                NothingToChooseWarning,
            )


class _SearchWithoutMatrix(_Search):
    """The same without the matrix: a pair is allowed if all of its systems are solved within `max_iter` products."""

    measure = "n_iter"

    def __init__(self, solver: Solver, *args: Any) -> None:
        super().__init__(*args)
        self.solver = replace(solver, tol=max(solver.tol, _TOL_OF_CHOICE))

    def _solutions(self, alphas: Array, report: OnProgress | None) -> _WeightsOfGrid:
        """Solve from all data, and without each fold; the counts of products take the place of condition numbers."""
        tasks = [partial(self._solved_without, fold, alphas) for fold in [(0, 0), *self._edges]]
        solved = self._in_parallel(tasks, report)
        weights, *outside = (theta for theta, _ in solved)
        counts = [count for _, count in solved]
        return _WeightsOfGrid(weights, np.stack(outside), np.maximum.reduce(counts))

    def _solved_without(self, fold: tuple[int, int], alphas: Array) -> tuple[Array, Array]:
        """Solve without a fold for all pairs: the rows before it and those after it are two streams."""
        rows = self.rows
        first, end = fold
        last = rows.last.copy()
        last[first - 1 : first] = True
        last[end - 1 : end] = True
        rest = rows.changed(last=last)
        weight = rest.full * rest.weight
        weight[first:end] = 0.0
        whole = float((rows.full * rows.weight).sum()) or 1.0
        share = (float(weight.sum()) or whole / len(self.folds)) / whole
        ridges = [alpha * share * self.ridge for alpha in alphas]
        return solve_grid(rest, self.settings, self.lmbdas.tolist(), ridges, self.solver, fold)

    def _squares(self, fold: NDArray[np.intp], outside: Array) -> Array:
        """Compute wᵀ G w from the predictions, without the matrix G."""
        phi = self.rows.X[fold]
        weight = self.rows.weight[fold]
        return np.array([[weight @ (phi @ theta) ** 2 for theta in of_lmbda] for of_lmbda in outside])


def _in_units(squared: Array, variance: Array) -> Array:
    """Divide squared errors (…, m) by the variance of each reward's returns, (m,), and average over the rewards."""
    units = np.where(variance > 0.0, variance, 1.0)
    return np.asarray(np.mean(squared / units, axis=-1))
