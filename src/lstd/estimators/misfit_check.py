"""Check for misfit: whether returns depend on the features in ways that a weighted sum of them cannot follow.

Test functions of the features are correlated with what a fit with λ = 1, the regression of completed returns, leaves of
the returns. They are squares of up to 64 features, products of up to eight directions (the features, or the predictions
and principal components of many features), each clipped at three standard deviations, and a boosted tree. The tree is
grown on returns less predictions, both without the fold of groups or episodes that it is applied to. Test functions are
made uncorrelated with the features and with one another, and of mean square one. So the linear part of the returns,
which depends on λ and α too, is not tested again: see :mod:`lstd.estimators.bias_check`.

Let θ be the weights of the features, S and A_e the sums of λ = 1 over all T rows and over block e, and z_t the traces
of the test functions. With TD errors δ_t and with Δ_e = (S − c A_e)⁻¹ g_e, g_e = b_e − A_e θ, c = 3/4,

    s = Σ z_t δ_t / T,   u_e = [Σ_{t in e} z_t (δ_t + c (φ_t − γ φ_{t+1})ᵀ Δ_e) − Σ z_t (φ_t − γ φ_{t+1})ᵀ Δ_e] / T.

So u_e is the score of block e, with weights that count only a quarter of the block: c = 0 would raise false alarms
where a few blocks have most of the rows, and c = 1, the jackknife, misses most of what there is. If no return depends
on the test functions, the signs of the blocks are arbitrary (wild cluster bootstrap; Kline and Santos 2012). So |s|²
over the squares and products, and s of the tree, are each ranked among those of Σ ±u_e with random signs; a tree counts
only if it predicts, s > 0. The p-value is the rank of the smaller of the two ranks.

With M = Σ z_t (ψ_t − γ ψ_{t+1})ᵀ / T over the test functions ψ, d = M⁻¹ s are their weights. |d|² estimates the mean
square of the systematic part with the bias Σ |M⁻¹ u_e|².
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse
from threadpoolctl import threadpool_limits

from lstd.data.feature_arrays import Features, check_finite, dense
from lstd.data.rows import Rows
from lstd.errors import MisfitWarning, warn
from lstd.estimators.folds import (
    check_enough,
    folds_of,
    held_out_weights,
    lambda_returns,
    mean_product,
    total_weight,
    transition_weights,
)
from lstd.estimators.model import Model
from lstd.estimators.model_parts import SIGNIFICANT, MisfitCheck
from lstd.statistics.blocks import default_limit, no_blocks
from lstd.statistics.intervals import sums_of_block
from lstd.statistics.solve import check_range
from lstd.statistics.system import System
from lstd.statistics.threads import one_blas_thread
from lstd.types import Array

_FEWEST = (10, 100)  # episodes, and rows of one
_LEFT_OUT = 0.75  # c
_DRAWS = 1999  # of signs
_MOST_DIRECTIONS, _MOST_FEATURES, _CLIP = 8, 64, 3.0
_RIDGE = 2.0**-36  # changes no relevant digit, in units of the mean square of a column
_DEPENDENT = 1e-6  # share of the mean square below which a column is a weighted sum of others
_ROUNDING = 1e-18  # share of the mean square of the predictions that is rounding
_FOLDS, _TREE_ENTRIES = 5, 2**20
_TREE: dict[str, Any] = {
    "max_iter": 20, "max_depth": 3, "min_samples_leaf": 20, "early_stopping": False, "random_state": 0,
}  # fmt: skip


def check_misfit(rows: Rows, model: Model, *, tree: bool = True, note: str = "") -> MisfitCheck:
    """Look for what a model of `rows` leaves out; see :meth:`lstd.LSTD.misfit_check`.

    If the model has an intercept, the rows must have the column of ones. Without `tree`, the test functions are squares
    and products only. A warning ends with `note`.
    """
    check_enough("A check of misfit", rows, *_FEWEST)
    check_finite("X", rows.X, rows.names)
    with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
        gram = mean_product(rows, rows.X, rows.X)
        check_range(gram)
        tests, r = _test_functions(rows, gram, model, tree)
        s, u, M, size = _scores_of(tests, rows, gram)
        found = [
            _tested(s[own, j], u[:, own, j], M[np.ix_(own, own)], size[j], r)
            for j in range(s.shape[1]) for own in [[*range(r), r + j] if tree else [*range(r)]]
        ]  # fmt: skip
    errors = None if model.no_intervals else model.influence.standard_error(rows.X[:, : model.n_features]).mean(axis=0)
    systematic, expected, p_value = np.transpose(found)
    check = MisfitCheck(systematic, expected, errors, p_value, (p_value < SIGNIFICANT) & (systematic > 0.0))
    if np.any(check.misfit):
        warn(check.message + note, MisfitWarning)
    return check.first() if model.statistics.single else check


# ---------------------------------------------------------------- test functions


def _test_functions(rows: Rows, gram: Array, model: Model, tree: bool) -> tuple[Array, int]:
    """Compute test functions of rows and then of `X_next`, if given; squares and products come first.

    Over the full transitions, they are uncorrelated with the features and of mean square one, or zero; products are
    orthonormal, and the column of each reward's tree is orthogonal to them. Also return the number of products.
    """
    phi = rows.X if rows.X_next is None else _stacked(rows.X, rows.X_next)
    n_rows = len(rows)

    def residuals(columns: Array) -> Array:
        along = mean_product(rows, rows.X, columns[:n_rows])
        regression = System.of_regression(gram, along, _ROUNDING * gram.diagonal())
        fitted = np.asarray(phi @ regression.solve().weights)
        return _scaled(columns - fitted, rows, least=_DEPENDENT * _mean_square(columns, rows))

    products = residuals(_products(phi, gram, model, rows))
    values, vectors = linalg.eigh(mean_product(rows, products[:n_rows], products[:n_rows]))
    kept = values > _DEPENDENT
    products = products @ (vectors[:, kept] / np.sqrt(values[kept]))
    if not tree:
        return products, products.shape[1]
    boosted = residuals(_boosted(rows, phi, gram, model))
    rest = boosted - products @ mean_product(rows, products[:n_rows], boosted[:n_rows])
    return np.hstack([products, _scaled(rest, rows, least=_DEPENDENT)]), products.shape[1]


def _products(phi: Features, gram: Array, model: Model, rows: Rows) -> Array:
    """Compute products of directions, squares of features, and ones unless they are a feature."""
    n = model.n_features
    X, square = phi[:, :n], gram.diagonal()[:n]
    mean = mean_product(rows, X[: len(rows)], np.ones((len(rows), 1))).reshape(-1)
    variance = square - mean**2
    scale = 1.0 / np.sqrt(np.where(variance > _DEPENDENT * square, variance, np.inf))

    def clipped(along: Array) -> Array:
        columns = _scaled(np.asarray(X @ along) - mean @ along, rows)
        return np.clip(columns, -_CLIP, _CLIP)

    if n <= _MOST_DIRECTIONS:
        directions, squares = clipped(np.diag(scale)), np.empty((phi.shape[0], 0))
    else:
        directions = clipped(_directions(gram, model, mean, scale))
        k = _largest(gram, model)
        squares = np.clip((dense(X[:, k]) - mean[k]) * scale[k], -_CLIP, _CLIP) ** 2
    i, j = np.triu_indices(directions.shape[1])
    ones = np.ones((phi.shape[0], int(not model.settings.fit_intercept)))
    columns = np.ascontiguousarray(directions.T)
    return np.hstack([(columns[i] * columns[j]).T, squares, ones])


def _directions(gram: Array, model: Model, mean: Array, scale: Array) -> Array:
    """Return the weights of the predictions and of principal components, (n, 8)."""
    n = len(mean)
    predictions = model.solution.weights[:n, :_MOST_DIRECTIONS]
    first = n - _MOST_DIRECTIONS + predictions.shape[1]
    if first == n:
        return predictions
    correlation = scale[:, np.newaxis] * (gram[:n, :n] - np.outer(mean, mean)) * scale
    _, vectors = linalg.eigh(correlation, subset_by_index=[first, n - 1])
    return np.hstack([predictions, scale[:, np.newaxis] * vectors])


def _largest(gram: Array, model: Model) -> NDArray[np.intp]:
    """Return the columns of the features that contribute most to predictions."""
    n = model.n_features
    size = np.abs(model.solution.weights[:n]).max(axis=1) * np.sqrt(gram.diagonal()[:n])
    return np.sort(np.argsort(-size, kind="stable")[:_MOST_FEATURES])


def _boosted(rows: Rows, phi: Features, gram: Array, model: Model) -> Array:
    """Predict returns less predictions by a tree that is grown without the row's fold; shape (T, m)."""
    from sklearn.ensemble import HistGradientBoostingRegressor  # takes a second to import

    folds = folds_of(rows, _FOLDS)
    fold = np.repeat(np.arange(len(folds)), [len(part) for part in folds])
    held = zip(folds, held_out_weights(folds, model.settings), strict=True)
    residuals = [lambda_returns(part, 1.0, weights) - np.asarray(part.X @ weights) for part, weights in held]
    targets, full = np.concatenate(residuals), np.concatenate([part.full for part in folds])
    check_range(targets)
    targets = _scaled(targets, rows)  # a tree computes in single precision
    X = dense(phi[:, _largest(gram, model)])
    boosted, where = np.zeros((len(X), targets.shape[1])), np.resize(fold, len(X))
    step = -(-X.size // _TREE_ENTRIES)
    for k in range(len(folds)):
        grown = np.flatnonzero(full & (fold != k))[::step]
        for j, target in enumerate(targets.T):
            sample_weight = rows.weight[grown] if "weight" in rows.given else None
            with threadpool_limits(1, "openmp"):
                regressor = HistGradientBoostingRegressor(**_TREE).fit(X[grown], target[grown], sample_weight)
                boosted[where == k, j] = regressor.predict(X[where == k])
    return boosted


# ---------------------------------------------------------------- tests


def _scores_of(tests: Array, rows: Rows, gram: Array) -> tuple[Array, Array, Array, Array]:
    """Compute s (r, m), u (E, r, m), M (r, r), and the mean squares of the predictions (m,).

    All are sums of a stream whose rows have the test functions beside their features.
    """
    n, total, square = rows.n_features, total_weight(rows), gram.diagonal()
    X_next = None if rows.X_next is None else _beside(rows.X_next, tests[len(rows) :])
    wide = rows.changed(X=_beside(rows.X, tests[: len(rows)]), X_next=X_next, names=None, intercept=False)
    blocks = no_blocks(wide, 1.0, max(_FEWEST[0], default_limit(wide.n_features))).extended(wide)
    ridge = np.zeros(wide.n_features)
    ridge[:n] = _RIDGE * np.where(square > 0.0, total * square, 1.0)
    whole = System.of(blocks.total, "boyan", ridge, intercept=False)
    A, b = whole.A, whole.b
    of_features = whole.only(np.arange(len(A)) < n)
    theta = of_features.solve().weights
    u = []
    for e in range(len(blocks.shares)):
        A_e, b_e = sums_of_block(blocks, whole, e)
        g_e = b_e - A_e[:, :n] @ theta
        rest = of_features.without(_LEFT_OUT * A_e[:n, :n], _LEFT_OUT * b_e[:n])
        change = rest.solve(g_e[:n]).weights
        u.append(g_e[n:] + (_LEFT_OUT * A_e[n:, :n] - A[n:, :n]) @ change)
    s, scores, M = ((b - A[:, :n] @ theta)[n:] / total, np.array(u) / total, A[n:, n:] / total)
    size = np.einsum("im,ij,jm->m", theta, gram, theta)
    check_range(scores, s, M, size)
    return s, scores, M, size


def _beside(phi: Features, tests: Array) -> Features:
    return sparse.hstack([phi, tests], format="csr") if sparse.issparse(phi) else np.hstack([phi, tests])


def _tested(s: Array, u: Array, M: Array, size: float, n_products: int) -> tuple[float, float, float]:
    """Compute the systematic part, what chance contributes, and the p-value; the tree, if any, is the last of s."""
    both = System.of_regression(M, np.column_stack([s, u.T]), _RIDGE).solve().weights
    d, q = both[:, 0], both[:, 1:]
    if not d @ d > _ROUNDING * (size + d @ d):
        return 0.0, float(np.sqrt(np.sum(q**2))), 1.0
    used = np.arange(len(d)) < (n_products if s[n_products:].sum() <= 0.0 else len(d))
    expected = float(np.sum(q[used] ** 2))
    systematic = np.sqrt(max(0.0, float(d[used] @ d[used]) - expected))
    return systematic, np.sqrt(expected), _p_value(s, u, n_products)


def _p_value(s: Array, u: Array, n_products: int) -> float:
    signs = 2.0 * np.random.default_rng(0).integers(0, 2, (_DRAWS, len(u))) - 1.0
    draws = np.vstack([s, signs @ u])
    ranks = [_ranks(np.sum(draws[:, :n_products] ** 2, axis=1))]
    if len(s) > n_products:
        ranks.append(_ranks(draws[:, -1]))
    least = np.min(ranks, axis=0)
    return float(np.mean(least <= least[0]))


def _ranks(draws: Array) -> NDArray[np.intp]:
    """Count the draws that are at least as large as each."""
    return len(draws) - np.searchsorted(np.sort(draws), draws)


def _mean_square(columns: Array, rows: Rows) -> Array:
    """Compute the mean square of columns over the full transitions of rows, which are the first ones, by weight."""
    square = columns[: len(rows)] ** 2
    return np.asarray(transition_weights(rows) @ square / total_weight(rows))


def _scaled(columns: Array, rows: Rows, least: float | Array = 0.0) -> Array:
    """Scale columns to mean square one over the full transitions; zero where the mean square is at most `least`."""
    square = _mean_square(columns, rows)
    return np.where(square > least, columns / np.sqrt(np.where(square > least, square, 1.0)), 0.0)


def _stacked(one: Features, two: Features) -> Features:
    return sparse.vstack([one, two], format="csr") if sparse.issparse(one) else np.vstack([one, two])
