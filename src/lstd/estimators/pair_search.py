"""Search a grid of pairs of λ and α by cross-validation on returns, in three stages.

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
many features. With folds of rows, the caution is 1 too, and of the pairs that are so much better, the one of least
error on returns with λ* = 0.9 is chosen: where features change slowly, observed returns hardly tell large α apart.

Where hardly an episode was seen to end and more than a quarter of the returns lies behind cuts, predictions would
complete all of them, and squared errors would be least near the pair that made these. There pairs are judged by their
predictions beside those of a reference (:mod:`lstd.estimators.covariance_penalty`). A first pair has the least D + 2 C
beside λ = 0.9. Then λ changes only if D + C beside λ = 1, plus a quarter of its standard error, is less: what chance
may explain of a difference counts as bias, since a bias that is overlooked costs more than noise. With this λ, α has
the least D + 2 C.

The constants were chosen on random Markov reward processes, logs of purchases and times to an end, and confirmed on
others: ``benchmarks/selection.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from lstd.data.feature_arrays import dense
from lstd.data.returns import TOLERANCE, unobserved_shares
from lstd.data.rows import Rows
from lstd.data.settings import ALPHA, LMBDA, Settings, Solver
from lstd.errors import InvalidInputError, NothingToChooseWarning, warn
from lstd.estimators.covariance_penalty import BesideReference, Pair, Products
from lstd.estimators.folds import (
    are_whole,
    lambda_returns,
    left_out,
    mean_product,
    times_weights,
    total_weight,
    transition_weights,
)
from lstd.estimators.model_parts import Selection
from lstd.estimators.sparse_solver import solve_grid
from lstd.statistics.merging import LSTDStatistics
from lstd.statistics.solve import check_range
from lstd.statistics.stacked_solve import solve_for_ridges
from lstd.statistics.system import System
from lstd.statistics.threads import one_blas_thread
from lstd.types import Array, Flags

OnProgress = Callable[[str, float, float], None]  # called with the name of the task, the work done and in all
T = TypeVar("T")

STAGES = (0.9, 0.9, 1.0)  # λ* of the targets
CAUTION_OF_EPISODES = 1.0  # standard errors, in the last stage
CAUTION_OF_ROWS = 0.25
SMALLEST_ALPHA = 2.0**-20  # bounds of the grid, in units of α
LARGEST_ALPHA = 2.0**8
MUCH_UNOBSERVED = 0.25  # share of the returns, beyond which none is completed,
FEW_COMPLETE = 0.02  # if no more of the rows have a return that was observed to the end
SHARE_FOR_LMBDA = 0.5  # of the covariance penalty
CAUTION_BESIDE_ONE = 0.25  # standard errors by which another pair must be better beside λ = 1
CAUTION_OF_GROWTH = 2.0  # standard errors by which a pair beyond the grid must be better,
CAUTION_OF_BOTH = 1.0  # and where λ*-returns decide among those that are
_GAIN = 1e-4  # R² by which it must be better
_ROUNDING = 1e-14  # costs that differ by less are ties: for each unit of weight,
_RELATIVE = 1e-12  # and relative to the least cost
_LARGEST_CONDITION = 1e10
_TOL_OF_CHOICE = 1e-5  # relative residual of these solves
BYTES_OF_SUMS = 2**28  # of the systems of all trace decays, which are kept while the grid grows
MANY_FEATURES = 64  # from which the grid is coarse; systems of more weights are solved one by one


class Grid(NamedTuple):
    """Trace decays and ridge coefficients to choose from, where no others are given."""

    lmbdas: Array
    step: int  # of the usual ridge coefficients, powers of two, those to choose from
    growth: Array  # powers of two by which the grid grows at a time
    caution: float = CAUTION_OF_GROWTH
    per_episode: bool = False  # whether the first ones depend on the number of episodes, not of rows


class _BesideOne(NamedTuple):
    """The reference with λ = 1, and what a choice of each λ costs, (λ,): 0 for the one that was chosen."""

    reference: Pair
    of_lmbda: Array

    def moved(self, n_alphas: int) -> _BesideOne:
        """Return the same where so many ridge coefficients were added below."""
        i, j = self.reference
        return self._replace(reference=(i, j + n_alphas))


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
        stacked = len(ridge) <= MANY_FEATURES
        weights, conditions = solve_for_ridges(self.systems, ridges, stacked=stacked)
        condition = np.max(conditions, axis=0, where=self.have_weight[:, np.newaxis], initial=0.0)
        return _WeightsOfGrid(weights[0], weights[1:], condition)


class Search:
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
        self.pair: Pair = (0, 0)
        self.beside_one: _BesideOne | None = None  # where much of the returns was not observed
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
            if self.beside_one is not None:
                self.beside_one = self.beside_one.moved(len(alphas))

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
        self.pair = self._nearest(LMBDA)
        whole = are_whole(self.rows)
        if whole and self._are_mostly_unobserved():
            self._choose_beside_references()
            return

        caution = CAUTION_OF_ROWS
        if whole:
            caution = CAUTION_OF_EPISODES
        *first_stages, last_stage = STAGES
        for decay in first_stages:
            self.improve(decay, 0.0)
        self.improve(last_stage, caution)

    def _nearest(self, lmbda: float) -> Pair:
        """Return the pair that is allowed nearest to a trace decay and an ordinary ridge coefficient."""
        with np.errstate(over="ignore"):  # of units near the least float
            distance = np.abs(np.log(np.maximum(self.alphas, 1e-300) / (ALPHA * self.unit)))
        wanted = (np.argmin(np.abs(self.lmbdas - lmbda)), np.argmin(distance))
        allowed = np.argwhere(self.allowed)
        nearest = np.abs(allowed - wanted).sum(axis=1).argmin()
        i, j = allowed[nearest].tolist()
        return i, j

    def _are_mostly_unobserved(self) -> bool:
        """Return whether much of the returns was not observed, and hardly one of them to its end."""
        is_complete = self.rows.full & (unobserved_shares(self.rows) < TOLERANCE)
        share = is_complete.sum() / self.rows.full.sum()
        return bool(share <= FEW_COMPLETE) and self._observed_share() < 1.0 - MUCH_UNOBSERVED

    def _choose_beside_references(self) -> None:
        """Choose without returns that a prediction completes: λ beside λ = 0.9, then beside λ = 1, and then α."""
        first = self._beside(self.pair)
        self.pair = self._least(first.error(1.0))

        reference = self._nearest(1.0)
        beside = self._beside(reference)
        i, j = self.pair
        error = beside.error(SHARE_FOR_LMBDA)
        cost = error - error[i, j] + CAUTION_BESIDE_ONE * beside.standard_error(self.pair)
        self.pair = self._least(cost)
        of_lmbda = np.where(self.allowed, cost, np.inf).min(axis=1)
        self.beside_one = _BesideOne(reference, of_lmbda - of_lmbda.min())
        self._choose_alpha(self.beside_one)

    def _choose_alpha(self, chosen: _BesideOne, gain: float = 0.0) -> None:
        """Move to the ridge coefficient of least error beside λ = 1, if it gains as much R²; λ keep their costs."""
        error = np.where(self.allowed, self._beside(chosen.reference).error(1.0), np.inf)
        least = error.min(axis=1, keepdims=True)
        above_least = np.subtract(error, least, out=np.full_like(error, np.inf), where=np.isfinite(error))
        cost = above_least + chosen.of_lmbda[:, np.newaxis] + gain
        cost[self.pair] -= gain
        self.cost = self.counts.sum() * cost
        self.pair = self._least(self.cost, self.counts.sum())
        self._compare(STAGES[-1])

    def _beside(self, reference: Pair) -> BesideReference:
        """Compare all pairs with a reference, in units of the variance of the returns that it completes."""
        returns = lambda_returns(self.rows, STAGES[-1], self.weights[reference])
        variance = _units(self._variance(returns))
        beside = BesideReference.of(self.weights, self.outside, reference, self._products(), variance)
        check_range(*beside)
        return beside

    def _products(self) -> Products:
        """Return what computes the mean product over the rows of the predictions of two stacks of weights."""
        gram = mean_product(self.rows, self.rows.X, self.rows.X)

        def products(one: Array, two: Array) -> Array:
            projected = np.einsum("ij,...jm->...im", gram, two, optimize=True)
            return np.asarray(np.einsum("...im,...im->...m", one, projected))

        return products

    def grow(self, grid: Grid) -> None:
        """Try ridge coefficients beyond the end at which the pair lies, as a grid grows, while they are better."""
        improve = self.improve_by_both
        if are_whole(self.rows):
            improve = partial(self.improve, STAGES[-1], grid.caution, _GAIN)
        more = self._beyond(grid.growth)
        while len(more):
            self.add(more)
            if self.beside_one is not None:
                self._choose_alpha(self.beside_one, _GAIN)
            else:
                improve()
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
        """Move to the pair of least cost on λ*-returns bootstrapped by the weights of the pair, unless it is that."""
        self.cost = self._cost(decay, caution, gain)
        self.pair = self._least(self.cost, self.counts.sum())

    def improve_by_both(self) -> None:
        """Move to the pair of least error on returns with λ* = 0.9 among those clearly better on observed returns."""
        self._compare(STAGES[0])
        by_lambda_returns = self.difference.sum(axis=0)
        cost = self._cost(STAGES[-1], CAUTION_OF_BOTH, _GAIN)
        self.cost = np.where(cost < 0.0, by_lambda_returns, cost)
        self.pair = self._least(self.cost, self.counts.sum())

    def _cost(self, decay: float, caution: float, gain: float) -> Array:
        """Compute by how much each pair is worse than the pair, plus the margin by which it must be better, (λ, α)."""
        self._compare(decay)
        margin = np.full(self.condition.shape, gain * self.counts.sum())
        if caution:
            margin += self._caution(caution)
        margin[self.pair] = 0.0
        return np.where(self.allowed, self.difference.sum(axis=0) + margin, np.inf)

    def _compare(self, decay: float) -> None:
        """Compute the errors of all pairs on λ*-returns bootstrapped by the weights of the pair, less those of it."""
        i, j = self.pair
        targets = lambda_returns(self.rows, decay, self.weights[i, j])
        with np.errstate(over="ignore", invalid="ignore"):
            self.sums = self._errors(targets)
            variance = self._variance(targets)
        check_range(self.sums, variance)
        self.squared = _in_units(self.sums, variance)  # (K, λ, α)
        of_pair = self.squared[:, i, j]
        self.difference = self.squared - of_pair[:, np.newaxis, np.newaxis]

    def _least(self, cost: Array, weight: float = 1.0) -> Pair:
        """Return the pair of least cost; of ties up to rounding this one, else that of the largest α and least λ.

        A cost is a sum over rows of this weight, in units of the variance of the returns.
        """
        cost = np.where(self.allowed, cost, np.inf)
        least = cost.min()
        is_tie = cost <= least + max(_ROUNDING * weight, _RELATIVE * abs(least))
        if is_tie[self.pair]:
            return self.pair
        ties = np.argwhere(is_tie).tolist()
        i, j = min(ties, key=lambda tie: (-tie[1], tie[0]))
        return i, j

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


class SearchWithoutMatrix(Search):
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

    def _products(self) -> Products:
        """The same from the predictions of one pair after the other."""
        phi = self.rows.X
        weight = transition_weights(self.rows) / total_weight(self.rows)

        def products(one: Array, two: Array) -> Array:
            first, second = np.broadcast_arrays(one, two)
            shape = (*first.shape[:-2], first.shape[-1])
            found = np.empty(shape)
            for place in np.ndindex(shape[:-1]):
                found[place] = weight @ ((phi @ first[place]) * (phi @ second[place]))
            return found

        return products


def _in_units(squared: Array, variance: Array) -> Array:
    """Divide squared errors (…, m) by the variance of each reward's returns, (m,), and average over the rewards."""
    return np.asarray(np.mean(squared / _units(variance), axis=-1))


def _units(variance: Array) -> Array:
    """Return the variance of each reward's returns, (m,), or 1 where they do not vary."""
    return np.where(variance > 0.0, variance, 1.0)
