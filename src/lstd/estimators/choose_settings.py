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
the grid grows, and the last stage compares the new pairs with it, with a caution of 2.

The constants were chosen on random Markov reward processes, and confirmed on others: ``benchmarks/selection.py``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

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

STAGES = (0.9, 0.9, 1.0)  # λ* of the targets
CAUTION_OF_EPISODES, CAUTION_OF_ROWS = 1.0, 0.25  # standard errors, in the last stage
SMALLEST_ALPHA, LARGEST_ALPHA = 2.0**-20, 2.0**8  # bounds of the grid, in units of α
_FAR = 16.0  # spreads between zero and a centre that is subtracted
CAUTION_OF_GROWTH, _GAIN = 2.0, 1e-4  # standard errors, and R², by which a pair beyond the grid must be better
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

    return choose_settings(
        rows, settings,
        lmbdas=None if "lmbda" in settings.choose else [settings.lmbda],
        alphas=None if "alpha" in settings.choose else [settings.alpha], on_progress=report,
    )  # fmt: skip


def choose_settings(rows: Rows, settings: Settings, **options: Any) -> Choice:
    """Choose λ and α, then check the model of some rows for bias and misfit; `options` are those of `select`."""
    selection, settings, rows = select(rows, settings, **options)
    free = options.get("solver") is not None
    if free:
        return settings, selection, Checks(needs_matrix("bias_check"), needs_matrix("misfit_check"))
    return settings, selection, checks_of_choice(rows, replace(settings, centre=None))


def select(
    rows: Rows, settings: Settings, *, lmbdas: ArrayLike | None = None, alphas: ArrayLike | None = None,
    cv: int | None = None, n_jobs: int | None = None, solver: Solver | None = None,
    on_progress: OnProgress | None = None,
) -> tuple[Selection, Settings, Rows]:  # fmt: skip
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
    check_finite("X", rows.X, rows.names)
    n_full = int(rows.full.sum())
    if n_full < 2:
        raise InvalidInputError(
            f"`X` must hold at least two full transitions to choose from; got n_samples={len(rows)} with "
            f"{n_full}. Pass more rows, or set `lmbda` and `alpha` of LSTD yourself."
        )
    check_weighted(float((rows.full * rows.weight).sum()), n_full)
    if n_jobs is not None and check_integer("n_jobs", n_jobs, -_MOST_JOBS, _MOST_JOBS) == 0:
        raise InvalidInputError("`n_jobs` must be None or an integer other than 0; got 0.")
    rows, settings, unit = in_units(rows, settings)
    grid = _usual_grid(rows.n_features - settings.fit_intercept, solver)
    lmbdas = grid.lmbdas if lmbdas is None else check_grid("lmbdas", lmbdas, 0.0, 1.0)
    folds = folds_of(rows, _FEW_FOLDS if cv is None and solver is not None else cv)
    search = (_Search if solver is None else partial(_FreeSearch, solver))(rows, folds, settings, lmbdas, unit, n_jobs)
    with np.errstate(over="ignore"):
        default = alphas_for(rows.n_features - settings.fit_intercept, n_full)[:: grid.step] * unit
    search.add(default if alphas is None else check_grid("alphas", alphas, 0.0, np.inf), on_progress)
    search.choose()
    while alphas is None and len(more := search.beyond(grid.growth)):
        search.add(more)
        search.improve(STAGES[-1], CAUTION_OF_GROWTH, _GAIN)
    selection = search.selection()
    return selection, replace(settings, lmbda=selection.lmbda, alpha=selection.alpha), rows


def _usual_grid(n_features: int, solver: Solver | None) -> _Grid:
    """Return the grid of a choice with so many features, without the matrix if there is a solver."""
    if solver is not None:
        return _WITHOUT_MATRIX
    if n_features >= _MANY_FEATURES:
        return _COARSE
    return _Grid(LMBDAS, 1, np.arange(1.0, 5.0))


def held_out_score(rows: Rows, model: Model) -> float | None:
    """Return R² on held-out rows: that of the choice of settings, or of folds of these rows with the model's settings.

    None if it cannot be computed. Rows have no column of ones.
    """
    if model.selection is not None:
        return model.selection.score
    s, n = model.settings, rows.n_features
    settings = replace(s, choose=(), alpha=1.0, centre=None, penalty=tuple(model.ridge[:n].tolist()))
    rows = rows_from_all_over(rows.with_ones() if s.fit_intercept else rows, _ENTRIES_OF_SCORE // (n + 1))
    with warnings.catch_warnings(action="ignore"):
        try:
            return None if model.matrix_free else select(rows, settings, lmbdas=[s.lmbda], alphas=[1.0])[0].score
        except InvalidInputError:
            return None


@np.errstate(over="ignore", invalid="ignore")  # what is out of range is refused
def in_units(rows: Rows, settings: Settings) -> tuple[Rows, Settings, float]:
    """Return rows with centred features, settings with the centre and the penalty of each feature, and the unit of α.

    The penalty is the squared spread of the feature unless it is given; where names are `unpenalised`, it is 0. The
    unit is the sum over the features of their mean square about the centre, each divided by the penalty. With an
    intercept, no prediction depends on the centre but for rounding, so only features far from zero are centred.
    """
    full, n = rows.full, rows.n_features - settings.fit_intercept
    weights = rows.weight[full] if "weight" in rows.given else None
    X = rows.X if full.all() else rows.X[full]
    centre, spread, square = column_spread(X[:, :n], weights, about_zero=not settings.fit_intercept)
    penalty = spread if settings.penalty is None else np.array(settings.penalty)
    if settings.penalty is not None and "alpha" in settings.choose:  # 0 or 1, by name
        penalty = penalty * spread
    terms = np.divide(square, penalty, out=np.zeros(n), where=penalty > 0.0)
    unit = float(terms.sum() * rows.weight[full].mean())
    check_range(penalty, np.array(unit))
    settings = replace(settings, penalty=tuple(penalty.tolist()))
    centre = np.where(centre**2 > _FAR**2 * spread, centre, 0.0)
    if centre.any() and not any(sparse.issparse(features) for features in (rows.X, rows.X_next)):
        rows, settings = rows.less(np.append(centre, 0.0)), replace(settings, centre=tuple(centre.tolist()))
    return rows, settings, unit or 1.0


class _Search:
    """Pairs of λ and α, with their errors on the held-out rows of K folds, and the best pair so far.

    The squared errors of weights w are wᵀ G w − 2 wᵀ c + d, with sums G, c and d over the rows of a fold.
    """

    measure = "condition_number"  # by which systems are allowed

    def __init__(
        self, rows: Rows, folds: list[Rows], settings: Settings, lmbdas: Array, unit: float, n_jobs: int | None
    ) -> None:
        self.rows, self.folds, self.settings, self.lmbdas, self.unit, self.n_jobs = (
            rows, folds, settings, lmbdas, unit, n_jobs,
        )  # fmt: skip
        weights, edges = rows.full * rows.weight, np.cumsum([0, *map(len, folds)])
        self.held = [np.flatnonzero(weights[a:b]) + a for a, b in pairwise(edges.tolist())]
        self.counts = np.array([weights[fold].sum() for fold in self.held])
        L, K, n, m = len(lmbdas), len(folds), rows.n_features, rows.y.shape[1]
        self.alphas, self.pair = np.empty(0), (0, 0)
        self.ridge = np.append(np.array(settings.penalty), [0.0] * settings.fit_intercept)
        self.weights, self.outside = np.empty((L, 0, n, m)), np.empty((K, L, 0, n, m))
        self.condition, self.quadratic = np.empty((L, 0)), np.empty((K, L, 0, m))
        self.systems: dict[float, _Systems] = {}  # by trace decay, as far as memory allows

    @property
    def allowed(self) -> NDArray[np.bool_]:
        """Whether the system of each pair is well-conditioned, (λ, α)."""
        return np.asarray(self.condition < _LARGEST_CONDITION)

    def add(self, alphas: Array, report: OnProgress | None = None) -> None:
        """Solve for more ridge coefficients, all below or all above those so far."""
        check_range(alphas)
        weights, outside, condition = self._solutions(alphas, report)
        with np.errstate(over="ignore", invalid="ignore"):  # `check_range` checks the errors
            quadratic = np.stack([self._squares(*fold) for fold in zip(self.held, outside, strict=True)])
        below = len(self.alphas) > 0 and bool(alphas[-1] < self.alphas[0])
        self.pair = self.pair[0], self.pair[1] + below * len(alphas)
        new = {"alphas": alphas, "weights": weights, "outside": outside, "condition": condition, "quadratic": quadratic}
        for (name, array), axis in zip(new.items(), (0, 1, 2, 1, 2), strict=True):
            both = [array, getattr(self, name)] if below else [getattr(self, name), array]
            setattr(self, name, np.concatenate(both, axis=axis))

    def _solutions(self, alphas: Array, report: OnProgress | None) -> tuple[Array, Array, Array]:
        """Weights from all data (λ, α, n, m) and without each fold (K, λ, α, n, m), largest condition (λ, α)."""
        tasks = [partial(self._solved, lmbda, alphas) for lmbda in self.lmbdas.tolist()]
        weights, outside, condition = map(np.stack, zip(*self._in_parallel(tasks, report), strict=True))
        return weights, outside.swapaxes(0, 1), condition

    def _solved(self, lmbda: float, alphas: Array) -> _Solved:
        """Solve the systems of one trace decay, whose sums are kept for further ridge coefficients."""
        systems = self.systems.get(lmbda)
        if systems is None:
            systems = _Systems.of(self.folds, lmbda, self.settings)
        if len(self.lmbdas) * systems.n_bytes <= BYTES_OF_SUMS:
            self.systems[lmbda] = systems
        return systems.solved(alphas, self.ridge)

    def _in_parallel(self, tasks: Sequence[Callable[[], Any]], report: OnProgress | None) -> list[Any]:
        """Return the results of tasks."""
        from joblib import Parallel, delayed  # takes 0.1 s to import, for the shell

        results, parallel = [], Parallel(n_jobs=self.n_jobs, prefer="threads", return_as="generator")
        with one_blas_thread():  # several threads would be slower: the systems are small
            for done, result in enumerate(parallel(delayed(task)() for task in tasks), 1):
                results.append(result)
                if report is not None:
                    report("choosing lmbda and alpha", done, len(tasks))
        return results

    def _squares(self, fold: NDArray[np.intp], outside: Array) -> Array:
        phi = self.rows.X[fold]
        gram = dense(phi.T @ times_weights(phi, self.rows.weight[fold]))
        return np.asarray(
            np.einsum("lanm,lanm->lam", outside, np.einsum("ij,lajm->laim", gram, outside, optimize=True))
        )

    def choose(self) -> None:
        """Choose a pair in three stages, from the one nearest to the first reference.

        Raises InvalidInputError when no system is well-conditioned.
        """
        self._check_allowed()
        with np.errstate(over="ignore"):  # of units near the least float
            distance = np.abs(np.log(np.maximum(self.alphas, 1e-300) / (ALPHA * self.unit)))
        start = np.argmin(np.abs(self.lmbdas - LMBDA)), np.argmin(distance)
        near = np.argwhere(self.allowed)
        i, j = near[np.abs(near - start).sum(axis=1).argmin()].tolist()
        self.pair = i, j
        caution = CAUTION_OF_EPISODES if are_whole(self.rows) else CAUTION_OF_ROWS
        for decay in STAGES:
            self.improve(decay, caution if decay == STAGES[-1] else 0.0)

    def _check_allowed(self) -> None:
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

    def beyond(self, steps: Array) -> Array:
        """Return the next ridge coefficients beyond the end at which the pair lies; none inside, or at the bounds.

        They are these powers of two beyond it.
        """
        if self.pair[1] == 0:
            more = self.alphas[0] * np.exp2(-steps[::-1])
            return np.asarray(more[more >= 0.99 * SMALLEST_ALPHA * self.unit])
        more = self.alphas[-1] * np.exp2(steps)
        at_end = self.pair[1] == len(self.alphas) - 1
        return np.asarray(more[(more <= 1.01 * LARGEST_ALPHA * self.unit) & at_end])

    def improve(self, decay: float, caution: float, gain: float = 0.0) -> None:
        """Move to the pair of least cost on λ*-returns bootstrapped by the weights of the pair, which others must beat.

        Among ties up to rounding, the pair wins, else the largest α and then the smallest λ.
        """
        targets, pair = lambda_returns(self.rows, decay, self.weights[self.pair]), self.pair
        with np.errstate(over="ignore", invalid="ignore"):
            self.sums, variance = self._errors(targets), self._variance(targets)
        check_range(self.sums, variance)
        self.squared = _in_units(self.sums, variance)  # (K, λ, α)
        self.difference = self.squared - self.squared[(slice(None), *pair)][:, np.newaxis, np.newaxis]
        with np.errstate(over="ignore", invalid="ignore"):  # a spread beyond float64 counts as infinite
            spread = np.nan_to_num(np.sqrt(len(self.folds)) * self.difference.std(axis=0, ddof=1), nan=np.inf)
        penalty = np.full_like(spread, gain * self.counts.sum()) + (caution * spread if caution else 0.0)
        penalty[pair] = 0.0
        self.cost = np.where(self.allowed, self.difference.sum(axis=0) + penalty, np.inf)
        ties = np.argwhere(self.cost <= self.cost.min() + 1e-12 * max(1e-3, abs(self.cost.min()))).tolist()
        if [*pair] not in ties:
            i, j = min(ties, key=lambda tie: (-tie[1], tie[0]))
            self.pair = i, j

    def _errors(self, targets: Array) -> Array:
        """Compute Σ (target − prediction)² on each fold, (K, λ, α, m)."""
        squared = np.empty_like(self.quadratic)
        for k, fold in enumerate(self.held):
            weighted = times_weights(targets[fold], self.rows.weight[fold])
            along = np.asarray(self.rows.X[fold].T @ weighted)  # (n, m)
            crossed = np.einsum("lanm,nm->lam", self.outside[k], along)
            own = np.sum(targets[fold] * weighted, axis=0)
            squared[k] = self.quadratic[k] - 2.0 * crossed + own
            squared[k][squared[k] <= 32.0 * np.finfo(float).eps * (self.quadratic[k] + own)] = 0.0  # rounding alone
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
        differences = np.abs(self.difference[:, self.allowed])
        if self.allowed.sum() > 1 and differences.max() <= 1e-12 * max(self.counts.max(), self.squared.max()):
            warn(
                "All values of `lmbda` and `alpha` predict the held-out rows alike, so there is nothing to choose by: "
                "the returns are all the same (as with equal rewards and no ends), or the features, the rewards, the "
                "importance ratios or the penalties are all zero. The pair nearest to (0.9, 1) is used.",
                NothingToChooseWarning,
            )
        pair, counts, total = self.pair, self.counts, self.counts.sum()
        nothing = np.zeros_like(self.weights[pair])
        with np.errstate(over="ignore", invalid="ignore"):  # a spread of scores beyond float64 counts as infinite
            scores = 1.0 - self.squared / np.where(counts > 0.0, counts, 1.0)[:, np.newaxis, np.newaxis]
            mean = 1.0 - self.squared.sum(axis=0) / total
            observed = self._variance(lambda_returns(self.rows, STAGES[-1], nothing))
            tests = {
                "mean_test_score": mean, "std_test_score": scores.std(axis=0),
                "cautious_test_score": mean[pair] - (self.cost - self.cost[pair]) / total,
                "observed_test_score": 1.0 - _in_units(self.sums, observed).sum(axis=0) / total,
                **{f"split{k}_test_score": score for k, score in enumerate(scores)},
            }  # fmt: skip
        lmbda, alpha = np.meshgrid(self.lmbdas, self.alphas, indexing="ij")
        order, share = self.cost.reshape(-1), 1.0 - unobserved_shares(self.rows)
        full = self.rows.full
        columns = {
            "lmbda": lmbda, "alpha": alpha,
            **{name: np.where(self.allowed, test, np.nan) for name, test in tests.items()},
            "rank_test_score": np.searchsorted(np.sort(order), order) + 1, self.measure: self.condition,
            "observed_share": np.full(mean.shape, np.average(share[full], weights=self.rows.weight[full])),
        }  # fmt: skip
        results = {name: np.asarray(values).reshape(-1) for name, values in columns.items()}
        chosen = float(lmbda[pair]), float(alpha[pair]), float(mean[pair])
        return Selection(*chosen, len(counts), len(self.rows), results)


class _FreeSearch(_Search):
    """The same without the matrix: a pair is allowed if all of its systems are solved within `max_iter` products."""

    measure = "n_iter"

    def __init__(self, solver: Solver, *args: Any) -> None:
        super().__init__(*args)
        self.solver = replace(solver, tol=max(solver.tol, _TOL_OF_CHOICE))

    def _solutions(self, alphas: Array, report: OnProgress | None) -> tuple[Array, Array, Array]:
        rows, edges = self.rows, np.cumsum([0, *map(len, self.folds)]).tolist()
        whole = float((rows.full * rows.weight).sum()) or 1.0

        def solved(fold: tuple[int, int]) -> tuple[Array, Array]:
            """Solve without a fold: the rows before it and those after it are two streams."""
            (first, end), last = fold, rows.last.copy()
            last[first - 1 : first] = last[end - 1 : end] = True
            rest = rows.changed(last=last)
            kept = rest.full * rest.weight
            kept[first:end] = 0.0
            share = (float(kept.sum()) or whole / len(self.folds)) / whole
            ridges = [alpha * share * self.ridge for alpha in alphas]
            return solve_grid(rest, self.settings, self.lmbdas.tolist(), ridges, self.solver, fold)

        tasks = [partial(solved, fold) for fold in [(0, 0), *pairwise(edges)]]
        (weights, *outside), counts = zip(*self._in_parallel(tasks, report), strict=True)
        return weights, np.stack(outside), np.maximum.reduce(counts)

    def _squares(self, fold: NDArray[np.intp], outside: Array) -> Array:
        phi, weight = self.rows.X[fold], self.rows.weight[fold]
        return np.array([[weight @ (phi @ one) ** 2 for one in of_lmbda] for of_lmbda in outside])


def _in_units(squared: Array, variance: Array) -> Array:
    """Divide squared errors (…, m) by the variance of each reward's returns, (m,), and average over the rewards."""
    return np.asarray(np.mean(squared / np.where(variance > 0.0, variance, 1.0), axis=-1))


class _Solved(NamedTuple):
    """Solutions for one trace decay and J ridge coefficients; n weights, m rewards, K folds."""

    weights: Array  # from all data, (J, n, m)
    outside: Array  # without each fold, (K, J, n, m)
    condition: Array  # largest condition number, (J,)


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
        no_ridge = np.zeros(total.n_features - settings.fit_intercept)
        intercept = settings.fit_intercept
        parts = [total, *rests]
        systems = [System.of(part, settings.variant, no_ridge, intercept=intercept) for part in parts]
        whole = total.total_weight or 1.0
        weight = np.array([part.total_weight for part in parts])
        assumed = np.full(len(parts), whole / len(folds))  # where all weights are zero
        assumed[0] = whole
        return cls(systems, np.where(weight > 0.0, weight, assumed) / whole, weight > 0.0)

    @property
    def n_bytes(self) -> int:
        """Memory of the sums."""
        return sum(system.A.nbytes + system.b.nbytes for system in self.systems)

    def solved(self, alphas: Array, ridge: Array) -> _Solved:
        """Solve with the ridge coefficients α times those of the features, in proportion to the weight of the data."""
        ridges = alphas[np.newaxis, :, np.newaxis] * self.shares[:, np.newaxis, np.newaxis] * ridge
        stacked = len(ridge) <= _MANY_FEATURES
        weights, conditions = solve_for_ridges(self.systems, ridges, stacked=stacked)
        condition = np.max(conditions, axis=0, where=self.have_weight[:, np.newaxis], initial=0.0)
        return _Solved(weights[0], weights[1:], condition)
