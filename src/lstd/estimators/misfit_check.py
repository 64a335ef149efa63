"""Check for misfit: whether returns depend on the features in ways that a weighted sum of them cannot follow.

Test functions are correlated with what a fit with λ = 1, the regression of completed returns, leaves of the returns.
They form groups, each with a rank of its own:

features    squares of up to 64 features, and products of up to eight directions (the features, or the predictions and
            principal components of many features), each clipped at three standard deviations
age         e^(−s), e^(−s/4) and e^(−s/16), with s steps since the episode began: short-lived effects of a beginning,
            which features without a clock cannot show. Among products, they would be one voice of fifty
time        the same of the steps since the earliest time of the log, if times are known and rows of one time differ in
            age: what changed in all episodes at once
tree        a boosted tree of the features, grown on returns less predictions, both without the fold of groups or
            episodes that it is applied to

Test functions are made uncorrelated with the features, those of a group with one another, and of mean square one. So
the linear part of the returns, which depends on λ and α too, is not tested again: see
:mod:`lstd.estimators.bias_check`.

Let θ be the weights of the features, S and A_e the sums of λ = 1 over all T rows and over block e, and z_t the traces
of the test functions. With TD errors δ_t and with Δ_e = (S − c A_e)⁻¹ g_e, g_e = b_e − A_e θ, c = 3/4,

    s = Σ z_t δ_t / T,   u_e = [Σ_{t in e} z_t (δ_t + c (φ_t − γ φ_{t+1})ᵀ Δ_e) − Σ z_t (φ_t − γ φ_{t+1})ᵀ Δ_e] / T.

So u_e is the score of block e, with weights that count only a quarter of the block: c = 0 would raise false alarms
where a few blocks have most of the rows, and c = 1, the jackknife, misses most of what there is.

If no return depends on the test functions, the signs of the blocks are arbitrary (wild cluster bootstrap; Kline and
Santos 2012). So |s|² over each group, and s of the tree, are each ranked among those of Σ ±u_e with random signs; a
tree counts only if it predicts, s > 0. The p-value is the rank of the smallest of the ranks.

With M = Σ z_t (ψ_t − γ ψ_{t+1})ᵀ / T over test functions ψ, d = M⁻¹ s are their weights. |d|² estimates the mean
square of the systematic part with the bias Σ |M⁻¹ u_e|². It is that of the age or of the time if that is clear and its
rank the smallest (of equal ones, if its |s|² − Σ |u_e|² is larger), else that of the features and the tree. A misfit
that is clear but less than a hundredth of the mean squared residual gives no warning: to fit it would change no
prediction by much.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from lstd.data.feature_arrays import Features, check_finite, dense
from lstd.data.rows import Rows
from lstd.errors import MisfitWarning, warn
from lstd.estimators.folds import (
    check_enough,
    folds_of,
    held_out_weights,
    lambda_returns,
    mean_product,
    mean_square,
    total_weight,
)
from lstd.estimators.model import Model
from lstd.estimators.model_parts import MATERIAL, SIGNIFICANT, MisfitCheck
from lstd.statistics.blocks import default_limit, no_blocks
from lstd.statistics.solve import check_range
from lstd.statistics.system import System
from lstd.statistics.threads import one_blas_thread, one_openmp_thread
from lstd.types import Array, Flags

FEWEST = (10, 100)  # episodes, and rows of one
_LEFT_OUT = 0.75  # c
_FEWEST_AGES = 50  # groups or episodes below which ages and times are not tested
_SCALES_OF_AGE = (1.0, 4.0, 16.0)  # steps
_DRAWS = 1999  # of signs
_MOST_DIRECTIONS = 8
_MOST_FEATURES = 64
_CLIP = 3.0  # standard deviations
_RIDGE = 2.0**-36  # changes no relevant digit, in units of the mean square of a column
_DEPENDENT = 1e-6  # share of the mean square below which a column is a weighted sum of others
_ROUNDING = 1e-18  # share of the mean square of the predictions that is rounding
_FOLDS = 5
_TREE_ENTRIES = 2**20  # features of the rows that a tree is grown on
_TREE: dict[str, Any] = {
    "max_iter": 20,
    "max_depth": 3,
    "min_samples_leaf": 20,
    "early_stopping": False,
    "random_state": 0,
}


def check_misfit(rows: Rows, model: Model, *, tree: bool = True, note: str = "") -> MisfitCheck:
    """Look for what a model of `rows` leaves out; see :meth:`lstd.LSTD.misfit_check`.

    If the model has an intercept, the rows must have the column of ones. Without `tree`, the test functions are
    squares, products, ages and times only. A warning ends with `note`.
    """
    check_enough("A check of misfit", rows, *FEWEST)
    check_finite("X", rows.X, rows.names)
    weights = model.solution.weights
    intercept = model.settings.fit_intercept
    with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
        gram = mean_product(rows, rows.X, rows.X)
        check_range(gram)
        tests = TestFunctions.of(rows, gram, weights, intercept=intercept)
        if tree:
            tests = tests.with_trees(rows, gram, model)
        scores = scores_of(tests, rows, gram)
    errors = None
    if not model.no_intervals:
        without_ones = rows.X[:, : model.n_features]
        errors = model.influence.standard_error(without_ones).mean(axis=0)
    return result(tests, scores, errors, note=note, single=model.statistics.single)


# ---------------------------------------------------------------- test functions


@dataclass(frozen=True, eq=False)
class TestFunctions:
    """Test functions of rows, and then of `X_next` if given; k functions, those of one group beside one another.

    Attributes
    ----------
    columns : ndarray of shape (T, k) or (2 T, k)
    n_products, n_ages, n_times : int
        Number of products and squares, and of functions of the age and of the time, which follow them in this order.
    n_trees : int
        Number of trees, one for each reward, which come last; 0 for none.
    """

    __test__ = False  # for pytest

    columns: Array
    n_products: int
    n_ages: int
    n_times: int
    n_trees: int = 0

    @classmethod
    def of(cls, rows: Rows, gram: Array, weights: Array, *, intercept: bool) -> TestFunctions:
        """Compute products, squares, and functions of the age and of the time.

        `gram` (n, n) are mean products of the features, and `weights` (n, m) those of the predictions; with an
        `intercept`, the last feature is the column of ones.
        """
        phi = _with_successors(rows)

        def group(columns: Array) -> Array:
            """Make functions uncorrelated with the features, and with one another."""
            uncorrelated = _residuals(columns, phi, rows, gram)
            return _orthonormal(uncorrelated, rows)

        products = group(_products(phi, gram, weights, rows, intercept))
        ages = group(_ages(rows))
        times = group(_times(rows))
        columns = np.hstack([products, ages, times])
        return cls(
            columns=columns,
            n_products=products.shape[1],
            n_ages=ages.shape[1],
            n_times=times.shape[1],
        )

    def with_trees(self, rows: Rows, gram: Array, model: Model) -> TestFunctions:
        """Add the boosted tree of each reward, less what products say."""
        phi = _with_successors(rows)
        products = self.columns[:, : self.n_products]
        predicted = _boosted(rows, phi, gram, model)
        boosted = _residuals(predicted, phi, rows, gram)
        along = mean_product(rows, products[: len(rows)], boosted[: len(rows)])  # products are orthonormal
        trees = _scaled(boosted - products @ along, rows, least=_DEPENDENT)
        return replace(self, columns=np.hstack([self.columns, trees]), n_trees=trees.shape[1])

    def groups(self, reward: int) -> Groups:
        """Return the places of the groups that test a reward."""
        places = np.arange(self.columns.shape[1])
        ends = np.cumsum([self.n_products, self.n_ages, self.n_times])
        products, ages, times, trees = np.split(places, ends)
        return Groups(products, ages, times, trees[reward : reward + 1])


class Groups(NamedTuple):
    """Places of the test functions of each group; empty for a group that is left out."""

    products: NDArray[np.intp]
    ages: NDArray[np.intp]
    times: NDArray[np.intp]
    tree: NDArray[np.intp]


def _residuals(columns: Array, phi: Features, rows: Rows, gram: Array) -> Array:
    """Return columns less their fit by the features, of mean square one over the full transitions, or zero."""
    along = mean_product(rows, rows.X, columns[: len(rows)])
    regression = System.of_regression(gram, along, _ROUNDING * gram.diagonal())
    fitted = np.asarray(phi @ regression.solve().weights)
    least = _DEPENDENT * mean_square(rows, columns[: len(rows)])
    return _scaled(columns - fitted, rows, least=least)


def _orthonormal(columns: Array, rows: Rows) -> Array:
    """Return combinations of columns that are orthonormal over the full transitions; none depends on others."""
    if not columns.shape[1]:
        return columns
    of_rows = columns[: len(rows)]
    covariance = mean_product(rows, of_rows, of_rows)
    values, vectors = linalg.eigh(covariance)
    kept = values > _DEPENDENT
    combinations = vectors[:, kept] / np.sqrt(values[kept])
    return np.asarray(columns @ combinations)


def _products(phi: Features, gram: Array, weights: Array, rows: Rows, intercept: bool) -> Array:
    """Compute products of directions, squares of features, and ones unless they are a feature."""
    n = len(gram) - intercept
    X = phi[:, :n]
    square = gram.diagonal()[:n]
    mean = mean_product(rows, X[: len(rows)], np.ones((len(rows), 1))).reshape(-1)
    variance = square - mean**2
    varies = variance > _DEPENDENT * square
    scale = 1.0 / np.sqrt(np.where(varies, variance, np.inf))

    along = np.diag(scale)  # each feature is a direction
    squares = np.empty((phi.shape[0], 0))  # those of directions are among the products
    if n > _MOST_DIRECTIONS:
        along = _directions(gram, weights[:n], mean, scale)
        k = _largest(gram, weights[:n])
        standardised = (dense(X[:, k]) - mean[k]) * scale[k]
        squares = np.clip(standardised, -_CLIP, _CLIP) ** 2
    centred = np.asarray(X @ along) - mean @ along
    directions = np.clip(_scaled(centred, rows), -_CLIP, _CLIP)

    i, j = np.triu_indices(directions.shape[1])  # each pair once, and each direction with itself
    columns = np.ascontiguousarray(directions.T)
    products = (columns[i] * columns[j]).T
    ones = np.ones((phi.shape[0], int(not intercept)))
    return np.hstack([products, squares, ones])


def _directions(gram: Array, weights: Array, mean: Array, scale: Array) -> Array:
    """Return the weights of the predictions and of principal components, (n, 8)."""
    n = len(mean)
    predictions = weights[:, :_MOST_DIRECTIONS]
    first = n - _MOST_DIRECTIONS + predictions.shape[1]
    if first == n:
        return predictions
    covariance = gram[:n, :n] - np.outer(mean, mean)
    correlation = scale[:, np.newaxis] * covariance * scale
    _, vectors = linalg.eigh(correlation, subset_by_index=[first, n - 1])
    return np.hstack([predictions, scale[:, np.newaxis] * vectors])


def _largest(gram: Array, weights: Array) -> NDArray[np.intp]:
    """Return the columns of the features, of `weights` (n, m), that contribute most to predictions."""
    n = len(weights)
    size = np.abs(weights).max(axis=1) * np.sqrt(gram.diagonal()[:n])
    by_size = np.argsort(-size, kind="stable")  # the largest first
    return np.sort(by_size[:_MOST_FEATURES])


def _ages(rows: Rows) -> Array:
    """Compute functions of the steps since each episode began; none of few episodes."""
    return _decays(rows, rows.age.astype(np.float64))


def _times(rows: Rows) -> Array:
    """Compute functions of the steps since the log began; none of few episodes, and where ages say the same."""
    if rows.time is None or not _ages_differ(rows.age, rows.time):
        return _decays(rows, None)
    return _decays(rows, rows.time)


def _ages_differ(age: NDArray[np.intp], time: Array) -> bool:
    """Return whether rows of one time, in whole steps, differ in age: whether episodes did not all begin at once."""
    moments, of_row = np.unique(np.rint(time), return_inverse=True)
    youngest = np.full(len(moments), np.iinfo(np.intp).max, np.intp)
    np.minimum.at(youngest, of_row, age)
    return bool(np.any(age > youngest[of_row]))


def _decays(rows: Rows, steps: Array | None) -> Array:
    """Compute e^(−s), e^(−s/4) and e^(−s/16) of steps s, of rows and successors; none of few episodes, or of None."""
    n_rows = len(rows)
    if rows.X_next is not None:
        n_rows = 2 * len(rows)
    if steps is None or np.count_nonzero(rows.begins) < _FEWEST_AGES:
        return np.empty((n_rows, 0))
    if rows.X_next is not None:
        steps = np.append(steps, steps + 1.0)
    exponents = -steps[:, np.newaxis] / np.array(_SCALES_OF_AGE)
    return np.asarray(np.exp(exponents))


def _boosted(rows: Rows, phi: Features, gram: Array, model: Model) -> Array:
    """Predict returns less predictions by a tree that is grown without the row's fold; shape (T, m)."""
    from sklearn.ensemble import HistGradientBoostingRegressor  # takes a second to import

    folds = folds_of(rows, _FOLDS)
    fold = np.repeat(np.arange(len(folds)), [len(part) for part in folds])  # of each row
    full = np.concatenate([part.full for part in folds])
    targets = _held_out_residuals(folds, model)
    check_range(targets)
    targets = _scaled(targets, rows)  # a tree computes in single precision

    of_features = model.solution.weights[: model.n_features]
    X = dense(phi[:, _largest(gram, of_features)])
    boosted = np.zeros((len(X), targets.shape[1]))
    where = np.resize(fold, len(X))  # of rows, and of successors if they are given
    step = -(-X.size // _TREE_ENTRIES)  # a tree is grown on every step-th row
    for k in range(len(folds)):
        grown = np.flatnonzero(full & (fold != k))[::step]
        sample_weight = None
        if "weight" in rows.given:
            sample_weight = rows.weight[grown]
        for j, target in enumerate(targets.T):
            with one_openmp_thread():
                regressor = HistGradientBoostingRegressor(**_TREE).fit(X[grown], target[grown], sample_weight)
                boosted[where == k, j] = regressor.predict(X[where == k])
    return boosted


def _held_out_residuals(folds: list[Rows], model: Model) -> Array:
    """Return the returns of the rows of all folds less predictions by weights without each, (T, m)."""
    residuals = []
    for fold, weights in zip(folds, held_out_weights(folds, model.settings), strict=True):
        returns = lambda_returns(fold, 1.0, weights)
        residuals.append(returns - np.asarray(fold.X @ weights))
    return np.concatenate(residuals)


# ---------------------------------------------------------------- scores


class Scores(NamedTuple):
    """What the test functions say of the residuals; k test functions, E blocks, m rewards.

    Attributes
    ----------
    s : ndarray of shape (k, m)
    u : ndarray of shape (E, k, m)
    M : ndarray of shape (k, k)
    size : ndarray of shape (m,)
        Mean square of the predictions.
    residual : ndarray of shape (m,)
        Mean squared residual of the completed returns.
    """

    s: Array
    u: Array
    M: Array
    size: Array
    residual: Array


def scores_of(tests: TestFunctions, rows: Rows, gram: Array) -> Scores:
    """Compute the scores by the sums of a stream whose rows have the test functions beside their features."""
    n = rows.n_features
    total = total_weight(rows)
    square = gram.diagonal()
    wide = _with_tests(rows, tests)
    limit = max(FEWEST[0], default_limit(wide.n_features))
    blocks = no_blocks(wide, 1.0, limit).extended(wide)

    ridge = np.zeros(wide.n_features)
    ridge[:n] = _RIDGE * np.where(square > 0.0, total * square, 1.0)
    whole = System.of(blocks.total, "boyan", ridge, intercept=False)
    A = whole.A
    of_features = whole.only(np.arange(len(A)) < n)
    theta = of_features.solve().weights
    score = whole.b - A[:, :n] @ theta  # of features, and then of tests

    score_of_blocks = []
    for e in range(blocks.n_blocks):
        A_e, b_e = blocks.own(e, whole)
        g_e = b_e - A_e[:, :n] @ theta
        rest = of_features.without(_LEFT_OUT * A_e[:n, :n], _LEFT_OUT * b_e[:n])
        change = rest.solve(g_e[:n]).weights  # Δ_e
        by_change = (_LEFT_OUT * A_e[n:, :n] - A[n:, :n]) @ change
        score_of_blocks.append(g_e[n:] + by_change)

    residual = lambda_returns(rows, 1.0, theta) - np.asarray(rows.X @ theta)
    scores = Scores(
        s=score[n:] / total,
        u=np.array(score_of_blocks) / total,
        M=A[n:, n:] / total,
        size=np.einsum("im,ij,jm->m", theta, gram, theta),
        residual=mean_square(rows, residual),
    )
    check_range(*scores)
    return scores


def _with_tests(rows: Rows, tests: TestFunctions) -> Rows:
    """Return rows that have the test functions beside their features."""
    X = _beside(rows.X, tests.columns[: len(rows)])
    X_next = None
    if rows.X_next is not None:
        X_next = _beside(rows.X_next, tests.columns[len(rows) :])
    return rows.changed(X=X, X_next=X_next, names=None, intercept=False)


def _beside(phi: Features, columns: Array) -> Features:
    """Return features with further columns."""
    if sparse.issparse(phi):
        return sparse.hstack([phi, columns], format="csr")
    return np.hstack([phi, columns])


# ---------------------------------------------------------------- what is found


def result(
    tests: TestFunctions, scores: Scores, errors: Array | None, *, note: str, single: bool, has_age: bool = False
) -> MisfitCheck:
    """Test each reward, warn of a misfit with `note` at the end, and return what was found.

    `errors` (m,) are the mean standard errors of the predictions, if known; `has_age` says that the model has columns
    of the age.
    """
    tested = [Tested.of(tests.groups(j), scores, j) for j in range(scores.s.shape[1])]
    systematic = np.array([one.systematic for one in tested])
    p_value = np.array([one.p_value for one in tested])
    is_clear = (p_value < SIGNIFICANT) & (systematic > 0.0)
    is_material = systematic**2 >= MATERIAL * scores.residual
    check = MisfitCheck(
        systematic=systematic,
        expected=np.array([one.expected for one in tested]),
        standard_error=errors,
        residual=np.sqrt(scores.residual),
        p_value=p_value,
        of_age=np.array([one.of_age for one in tested]),
        misfit=is_clear & is_material,
        of_time=np.array([one.of_time for one in tested]),
        has_age=np.full(len(tested), has_age),
    )
    if np.any(check.misfit):
        warn(check.message + note, MisfitWarning)
    if single:
        return check.first()
    return check


class Tested(NamedTuple):
    """What the test functions say of one reward: see :class:`lstd.inference.MisfitCheck`."""

    systematic: float
    expected: float
    p_value: float
    of_age: bool
    of_time: bool

    @classmethod
    def of(cls, groups: Groups, scores: Scores, j: int) -> Tested:
        """Test reward j."""
        s = scores.s[:, j]
        u = scores.u[:, :, j]
        ranks = Ranks.of(groups, s, u)
        least = np.minimum.reduce(ranks)
        p_value = float(np.mean(least <= least[0]))
        of_features = ranks.features[0]
        of_ages = ranks.ages[0]
        of_times = ranks.times[0]
        of_clock = p_value < SIGNIFICANT and min(of_ages, of_times) < of_features
        is_time_first = of_times < of_ages
        if of_times == of_ages:  # both are larger than all draws, as ages and times go together
            is_time_first = _excess(s, u, groups.times) > _excess(s, u, groups.ages)
        of_age = bool(of_clock and not is_time_first)
        of_time = bool(of_clock and is_time_first)

        # the size of the misfit is that of the functions that found it
        if of_age:
            places = groups.ages
            used = places
        elif of_time:
            places = groups.times
            used = places
        else:
            places = np.append(groups.products, groups.tree)
            used = places
            if s[groups.tree].sum() <= 0.0:  # a tree predicts the residual only if they go together
                used = groups.products
        systematic, expected = _systematic(
            s=s[places],
            u=u[:, places],
            M=scores.M[np.ix_(places, places)],
            used=np.isin(places, used),
            size=scores.size[j],
        )
        if np.isnan(systematic):
            return cls(0.0, expected, 1.0, of_age, of_time)
        return cls(systematic, expected, p_value, of_age, of_time)


def _systematic(s: Array, u: Array, M: Array, used: Flags, size: float) -> tuple[float, float]:
    """Return the root mean square of the systematic part of `used` test functions, and what chance contributes to it.

    The first is NaN where all is rounding beside the mean square of the predictions, `size`.
    """
    right = np.column_stack([s, u.T])
    both = System.of_regression(M, right, _RIDGE).solve().weights
    d = both[:, 0]  # M⁻¹ s
    q = both[:, 1:]  # M⁻¹ u_e
    square = d @ d
    if not square > _ROUNDING * (size + square):
        return np.nan, float(np.sqrt(np.sum(q**2)))
    expected = float(np.sum(q[used] ** 2))
    systematic = max(0.0, float(d[used] @ d[used]) - expected)
    return np.sqrt(systematic), np.sqrt(expected)


def _excess(s: Array, u: Array, places: NDArray[np.intp]) -> float:
    """Return the squared length of s at some places, less what chance contributes."""
    return float(np.sum(s[places] ** 2) - np.sum(u[:, places] ** 2))


class Ranks(NamedTuple):
    """Ranks of s, and of the sums of u_e with random signs, the largest first, (1 + draws,) each."""

    features: NDArray[np.intp]  # and trees
    ages: NDArray[np.intp]
    times: NDArray[np.intp]

    @classmethod
    def of(cls, groups: Groups, s: Array, u: Array) -> Ranks:
        """Rank the squared length of each group, and the tree; a group that is left out has the last rank."""
        generator = np.random.default_rng(0)
        signs = 2.0 * generator.integers(0, 2, (_DRAWS, len(u))) - 1.0
        draws = np.vstack([s, signs @ u])
        with np.errstate(over="ignore", invalid="ignore"):
            squares = draws**2
            check_range(squares.sum(axis=1))

        def ranked(places: NDArray[np.intp]) -> NDArray[np.intp]:
            """Rank the squared length at some places."""
            if not len(places):
                return np.full(len(draws), len(draws))
            return _counted(np.sum(squares[:, places], axis=1))

        of_features = _counted(np.sum(squares[:, groups.products], axis=1))
        if len(groups.tree):
            of_features = np.minimum(of_features, _counted(draws[:, groups.tree[0]]))
        return cls(of_features, ranked(groups.ages), ranked(groups.times))


def _counted(draws: Array) -> NDArray[np.intp]:
    """Count the draws that are at least as large as each."""
    n_smaller = np.searchsorted(np.sort(draws), draws)
    return len(draws) - n_smaller


def _scaled(columns: Array, rows: Rows, least: float | Array = 0.0) -> Array:
    """Scale columns to mean square one over the full transitions; zero where the mean square is at most `least`."""
    square = mean_square(rows, columns[: len(rows)])
    is_large = square > least
    size = np.sqrt(np.where(is_large, square, 1.0))
    return np.where(is_large, columns / size, 0.0)


def _with_successors(rows: Rows) -> Features:
    """Return the features of rows, and then of `X_next` if given."""
    if rows.X_next is None:
        return rows.X
    if sparse.issparse(rows.X):
        return sparse.vstack([rows.X, rows.X_next], format="csr")
    return np.vstack([rows.X, rows.X_next])
