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
episodes, whose returns are noisier, and 1/4 for folds of rows.

The constants were chosen on random Markov reward processes, and confirmed on others: ``benchmarks/selection.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from lstd.data.check_arguments import check_grid, check_integer
from lstd.data.check_features import check_finite
from lstd.data.feature_products import dense
from lstd.data.returns import unobserved_shares
from lstd.data.rows import Rows
from lstd.data.settings import ALPHA, LMBDA, LMBDAS, Settings, alphas_for
from lstd.errors import InvalidInputError, NothingToChooseWarning, UnobservedWarning, warn
from lstd.estimators.check_results import Checks
from lstd.estimators.folds import are_whole, folds_of, lambda_returns, times_weights, without_each
from lstd.estimators.model import Selection
from lstd.estimators.run_checks import checks_of_choice
from lstd.statistics.merging import LSTDStatistics
from lstd.statistics.solve import check_range, solve, without_rounding
from lstd.statistics.summing import check_weighted
from lstd.statistics.threads import one_blas_thread

Array = NDArray[np.float64]
OnProgress = Callable[[str, float, float], None]  # called with the name of the task, the work done and in all
Choice = tuple[Settings, Selection, Checks]

_START = (LMBDA, ALPHA)  # pair of the first reference, α in units of the mean squared length of a row
STAGES = (0.9, 0.9, 1.0)  # λ* of the targets
CAUTION_OF_EPISODES, CAUTION_OF_ROWS = 1.0, 0.25  # standard errors, in the last stage
_LARGEST_CONDITION = 1e10
_MOST_JOBS = 1024  # threads
_OPERATIONS_PER_BYTE = 100.0  # that take as long as reading a byte does


def choose(rows: Rows, settings: Settings, on_progress: OnProgress | None = None) -> Choice:
    """Choose the settings in `settings.choose` from the first rows of large data.

    `on_progress` is given the work in bytes that could be read meanwhile. Raises as :func:`select` does.
    """
    if isinstance(settings.alpha, tuple):
        settings = replace(settings, alpha=1.0, penalty=settings.alpha)
    n = rows.n_features
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
    """Choose λ and α, then check the model of the first rows for bias and misfit; `options` are those of `select`."""
    selection = select(rows, settings, **options)
    settings = replace(settings, lmbda=selection.lmbda, alpha=selection.alpha)
    if settings.gamma == 1.0 and selection.observed_share < 0.5:
        warn(
            f"Only {100 * selection.observed_share:.0f} % of the discounted weight of the held-out returns was "
            "observed; predictions complete the rest. So the data can hardly tell which `lmbda` and `alpha` are best, "
            "and predictions may be far off. Use a `gamma` below 1, or longer episodes.",
            UnobservedWarning,
        )
    return settings, selection, checks_of_choice(rows, settings)


def select(
    rows: Rows, settings: Settings, *, lmbdas: ArrayLike | None = None, alphas: ArrayLike | None = None,
    cv: int | None = None, n_jobs: int | None = None, on_progress: OnProgress | None = None,
) -> Selection:  # fmt: skip
    """Choose λ and α for rows from `check_rows`; with an intercept, the rows must have the column of ones.

    The other parameters are those of :class:`LSTDCV`. After each trace decay, `on_progress` is called.

    Raises
    ------
    InvalidInputError
        When a parameter breaks a rule, there are too few transitions to hold some out, or no pair has a
        well-conditioned system.
    """
    from joblib import Parallel, delayed  # takes 0.1 s to import, for the shell

    check_finite("X", rows.X)
    n_full = int(rows.full.sum())
    if n_full < 2:
        raise InvalidInputError(
            f"`X` must hold at least two full transitions to choose from; got n_samples={len(rows)} with "
            f"{n_full}. Pass more rows, or set `lmbda` and `alpha` of LSTD yourself."
        )
    check_weighted(float(_row_weights(rows).sum()), n_full)
    if n_jobs is not None and check_integer("n_jobs", n_jobs, -_MOST_JOBS, _MOST_JOBS) == 0:
        raise InvalidInputError("`n_jobs` must be None or an integer other than 0; got 0.")
    folds = folds_of(rows, cv)
    grid = _Grid.of(rows, lmbdas, alphas, settings)
    tasks = (delayed(_solved)(folds, lmbda, grid, settings.variant) for lmbda in grid.lmbdas)
    solved = []
    parallel = Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator")
    with one_blas_thread():  # several threads would be slower: the systems are small
        for done, solutions in enumerate(parallel(tasks), 1):
            solved.append(solutions)
            if on_progress is not None:
                on_progress("choosing lmbda and alpha", done, len(grid.lmbdas))
    weights, outside, condition = (np.stack(arrays) for arrays in zip(*solved, strict=True))
    return _chosen(rows, [len(fold) for fold in folds], grid, weights, outside, condition)


def _row_weights(rows: Rows) -> Array:
    """Return the weight of each row, (T,); zero for horizon rows."""
    return rows.full.astype(np.float64) if rows.weights is None else rows.full * rows.weights


@dataclass(frozen=True, eq=False)
class _Grid:
    lmbdas: Array
    alphas: Array
    unit: float  # mean squared length of a row, the unit of α
    ridge: Array  # (n,) penalty of each weight in the ridge term
    intercept: bool  # whether the last weight is that of the column of ones

    @classmethod
    @np.errstate(over="ignore")
    def of(cls, rows: Rows, lmbdas: Any, alphas: Any, settings: Settings) -> _Grid:
        X, n, full = rows.X, rows.n_features - settings.fit_intercept, rows.full
        ones = [0.0] * settings.fit_intercept
        ridge = np.append(np.ones(n) if settings.penalty is None else settings.penalty, ones)
        if settings.penalty is None:
            lengths = X.multiply(X).sum(axis=1) if sparse.issparse(X) else np.einsum("ij,ij->i", X, X)
            lengths = np.asarray(lengths).reshape(-1) - len(ones)
        else:  # of features scaled so that the penalty of each is one
            scale = np.divide(1.0, ridge, out=np.zeros(len(ridge)), where=ridge > 0.0)
            lengths = np.asarray((X.multiply(X) if sparse.issparse(X) else X * X) @ scale).reshape(-1)
        lengths = lengths if rows.weights is None else lengths * rows.weights
        unit = float(lengths[full].mean()) or 1.0
        default = alphas_for(n, int(full.sum()))
        values = default * unit if alphas is None else check_grid("alphas", alphas, 0.0, np.inf)
        check_range(values, np.array(unit))
        lmbdas = LMBDAS if lmbdas is None else check_grid("lmbdas", lmbdas, 0.0, 1.0)
        return cls(lmbdas, values, unit, ridge, settings.fit_intercept)

    @np.errstate(over="ignore")  # of units near the least float
    def start(self) -> tuple[int, int]:
        """Indices of the pair nearest to the first reference."""
        distance = np.abs(np.log(np.maximum(self.alphas, 1e-300) / (_START[1] * self.unit)))
        return int(np.argmin(np.abs(self.lmbdas - _START[0]))), int(np.argmin(distance))


def _solved(folds: list[Rows], lmbda: float, grid: _Grid, variant: str) -> tuple[Array, Array, Array]:
    """Weights from all data (α, n, m) and without each fold (K, α, n, m), largest condition (α,), for one λ."""
    sums = [LSTDStatistics.from_rows(fold, lmbda) for fold in folds]
    with np.errstate(over="ignore", invalid="ignore"):  # `solve` checks the sums
        without = list(without_each(sums))
        total = reduce(LSTDStatistics.then, sums)
    whole = total.total_weight or 1.0
    n, m = total.b.shape
    penalty = np.append(np.ones(n - grid.intercept), [0.0] * grid.intercept)
    weights, outside = np.empty((len(grid.alphas), n, m)), np.empty((len(folds), len(grid.alphas), n, m))
    condition = np.zeros(len(grid.alphas))
    for statistics, share, out in [(total, 1.0, weights)] + [
        (rest, (rest.total_weight or whole / len(folds)) / whole, outside[k]) for k, rest in enumerate(without)
    ]:
        A = statistics.matrix(variant)
        A = without_rounding(A, statistics.total_weight) if grid.intercept else A
        for i, alpha in enumerate(grid.alphas):
            solution = solve(A, statistics.b, alpha * share * grid.ridge, penalty=penalty, warn=False)
            out[i] = solution.weights
            if statistics.total_weight:  # without any, all weights are zero
                condition[i] = max(condition[i], solution.condition_number)
    return weights, outside, condition


def _chosen(rows: Rows, lengths: list[int], grid: _Grid, weights: Array, outside: Array, condition: Array) -> Selection:
    """Choose a pair in three stages, from weights of all data and without each fold."""
    allowed = condition < _LARGEST_CONDITION
    if not allowed.any() and grid.intercept and rows.gamma == 1.0 and np.isinf(condition).all():
        raise InvalidInputError(
            "`terminated` must be set for some row outside of each fold: at `gamma` 1, data without an end determine "
            "no intercept. Pass data that terminate more often, or use a `gamma` below 1."
        )
    if not allowed.any():
        raise InvalidInputError(
            f"`alphas` must hold a value with a well-conditioned system; the least condition number is "
            f"{condition.min():.1e}. Give larger ones, or drop features that are zero or repeat each other."
        )
    pair = grid.start()
    if not allowed[pair]:
        near = np.argwhere(allowed)
        i, j = near[np.abs(near - pair).sum(axis=1).argmin()].tolist()
        pair = (i, j)
    with np.errstate(over="ignore", invalid="ignore"):  # `check_range` checks the results
        errors = _HeldOut(rows, lengths, outside)
    caution = CAUTION_OF_EPISODES if are_whole(rows) else CAUTION_OF_ROWS
    for stage, decay in enumerate(STAGES, 1):
        with np.errstate(over="ignore", invalid="ignore"):
            squared, variance = errors.of(lambda_returns(rows, decay, weights[pair]))
        check_range(squared, variance)
        squared = np.mean(squared / np.where(variance > 0.0, variance, 1.0), axis=-1)  # (K, λ, α)
        difference = squared - squared[(slice(None), *pair)][:, np.newaxis, np.newaxis]
        with np.errstate(over="ignore", invalid="ignore"):  # a spread beyond float64 counts as infinite
            spread = np.nan_to_num(np.sqrt(len(lengths)) * difference.std(axis=0, ddof=1), nan=np.inf)
        penalty = caution * spread if stage == len(STAGES) else 0.0
        cost = np.where(allowed, difference.sum(axis=0) + penalty, np.inf)
        pair = _least(cost, pair)
    if allowed.sum() > 1 and not difference[:, allowed].any():
        warn(
            "All values of `lmbda` and `alpha` predict the held-out rows alike, so there is nothing to choose by: the "
            "features, the rewards, the importance ratios or the penalties are all zero. The pair nearest to (0.9, 1) "
            "is used.",
            NothingToChooseWarning,
        )
    return _selection(grid, pair, squared, cost, condition, allowed, errors.counts, rows)


def _least(cost: Array, pair: tuple[int, int]) -> tuple[int, int]:
    """Pair of least cost. Among ties up to rounding, `pair` wins, else the largest α and then the smallest λ."""
    ties = np.argwhere(cost <= cost.min() + 1e-12 * max(1e-3, abs(cost.min())))
    if any(tuple(tie) == pair for tie in ties):
        return pair
    i, j = min(ties.tolist(), key=lambda tie: (-tie[1], tie[0]))
    return i, j


class _HeldOut:
    """Weighted squared errors on the held-out rows of K folds, from sums over them; `outside` is (λ, K, α, n, m)."""

    def __init__(self, rows: Rows, lengths: list[int], outside: Array) -> None:
        weights, edges = _row_weights(rows), np.cumsum([0, *lengths])
        self._folds = [np.flatnonzero(weights[a:b]) + a for a, b in pairwise(edges.tolist())]
        self._X, self._outside, self._weights = rows.X, outside, rows.weights
        self.counts = np.array([weights[fold].sum() for fold in self._folds])
        self._quadratic = np.stack([self._squares(k, fold) for k, fold in enumerate(self._folds)])  # (K, λ, α, m)

    def _squares(self, k: int, fold: NDArray[np.intp]) -> Array:
        phi = self._X[fold]
        gram = dense(phi.T @ self._weighted(phi, fold))
        weights = self._outside[:, k]
        return np.asarray(
            np.einsum("lanm,lanm->lam", weights, np.einsum("ij,lajm->laim", gram, weights, optimize=True))
        )

    def _weighted(self, columns: Any, fold: NDArray[np.intp]) -> Any:
        return times_weights(columns, None if self._weights is None else self._weights[fold])

    def of(self, targets: Array) -> tuple[Array, Array]:
        """Compute Σ (target − prediction)² on each fold, (K, λ, α, m), and the variance of the targets, (m,)."""
        squared = np.empty_like(self._quadratic)
        for k, fold in enumerate(self._folds):
            weighted = self._weighted(targets[fold], fold)
            along = np.asarray(self._X[fold].T @ weighted)  # (n, m)
            crossed = np.einsum("lanm,nm->lam", self._outside[:, k], along)
            squared[k] = self._quadratic[k] - 2.0 * crossed + np.sum(targets[fold] * weighted, axis=0)
        held = np.concatenate(self._folds)
        weights = None if self._weights is None else self._weights[held]
        mean = np.average(targets[held], axis=0, weights=weights)
        return np.maximum(squared, 0.0), np.average((targets[held] - mean) ** 2, axis=0, weights=weights)


@np.errstate(over="ignore")  # a spread of scores beyond float64 counts as infinite
def _selection(
    grid: _Grid, pair: tuple[int, int], squared: Array, cost: Array, condition: Array, allowed: NDArray[np.bool_],
    counts: Array, rows: Rows,
) -> Selection:  # fmt: skip
    scores = np.where(allowed, 1.0 - squared / np.where(counts > 0.0, counts, 1.0)[:, np.newaxis, np.newaxis], np.nan)
    mean = np.where(allowed, 1.0 - squared.sum(axis=0) / counts.sum(), np.nan)
    cautious = np.where(allowed, mean[pair] - (cost - cost[pair]) / counts.sum(), np.nan)
    order = np.where(allowed, cost, np.inf).reshape(-1)
    lmbda, alpha = np.meshgrid(grid.lmbdas, grid.alphas, indexing="ij")
    columns = {
        "lmbda": lmbda, "alpha": alpha, "mean_test_score": mean, "std_test_score": scores.std(axis=0),
        "cautious_test_score": cautious, "rank_test_score": np.searchsorted(np.sort(order), order) + 1,
        "condition_number": condition, "observed_share": np.full(mean.shape, _observed_share(rows)),
        **{f"split{k}_test_score": score for k, score in enumerate(scores)},
    }  # fmt: skip
    results = {name: np.asarray(values).reshape(-1) for name, values in columns.items()}
    chosen = float(grid.lmbdas[pair[0]]), float(grid.alphas[pair[1]]), float(mean[pair])
    return Selection(*chosen, len(counts), len(rows), results)


def _observed_share(rows: Rows) -> float:
    """Return the share of the discounted weight of the last targets that was observed."""
    weights = None if rows.weights is None else rows.weights[rows.full]
    return float(1.0 - np.average(unobserved_shares(rows)[rows.full], weights=weights))
