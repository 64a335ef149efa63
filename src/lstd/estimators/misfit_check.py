"""Check for misfit: whether returns depend on the features in ways that a weighted sum of them cannot follow.

Test functions of the features are fitted beside the features with λ = 1, the regression of completed returns. They are
squares and products of up to eight directions (the features, or the predictions and principal components of many
features), each clipped at three standard deviations, and a boosted tree. The tree is grown on returns less predictions,
both without the fold of groups or episodes that it is applied to. Test functions are made uncorrelated with the
features and with one another, and of mean square one. So the linear part of the returns, which depends on λ and α too,
is not tested again: see :mod:`lstd.estimators.bias_check`.

Let d be the weights of the test functions and q_e their influence vectors, each from the data without block e, as for
intervals (:mod:`lstd.estimators.intervals`), but with more blocks. Of r squares and products,

    F = (ν − r + 1)/(r ν) dᵀ V⁻¹ d,   V = Σ q_e q_eᵀ,   r and ν − r + 1 degrees of freedom,

with ν the degrees of freedom of Σ q_eᵀ V⁻¹ q_e. The weight of the tree is tested by Student's t on one side, since only
a positive one predicts. The p-value is twice the smaller one of the two. Σ d² estimates the mean square of the
systematic part with the bias tr V.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse, special
from threadpoolctl import threadpool_limits

from lstd.data.feature_matrix import Features, check_finite, dense
from lstd.data.rows import Rows
from lstd.errors import MisfitWarning, warn
from lstd.estimators.bias_check import check_enough
from lstd.estimators.check_results import SIGNIFICANT, MisfitCheck
from lstd.estimators.cross_validation import folds_of, lambda_returns, without_each
from lstd.estimators.intervals import degrees_of_freedom, influence_of
from lstd.estimators.model import Model
from lstd.statistics.blocks import Layout, no_blocks
from lstd.statistics.solve import check_range, solve
from lstd.statistics.statistics import LSTDStatistics
from lstd.statistics.threads import one_blas_thread

Array = NDArray[np.float64]

_FEWEST = (10, 100)  # episodes, and rows of one
_MOST_BLOCKS, _BYTES = 256, 2**28  # longer blocks would hide from ν the kurtosis of their scores
_MOST_DIRECTIONS, _CLIP, _BLOCKS_PER_TERM = 8, 3.0, 6
_RIDGE = 2.0**-36  # changes no relevant digit, in units of the mean square of a column
_DEPENDENT = 1e-6  # share of the mean square below which a column is a weighted sum of others
_ROUNDING = 1e-18  # share of the mean square of the predictions that is rounding
_FOLDS, _TREE_FEATURES, _TREE_ENTRIES = 5, 64, 2**20
_TREE: dict[str, Any] = {
    "max_iter": 20, "max_depth": 3, "min_samples_leaf": 20, "early_stopping": False, "random_state": 0,
}  # fmt: skip


def check_misfit(rows: Rows, model: Model, *, tree: bool = True) -> MisfitCheck:
    """Look for what a model of `rows` leaves out; see :meth:`lstd.LSTD.misfit_check`.

    If the model has an intercept, the rows must have the column of ones. Without `tree`, the test functions are squares
    and products only.
    """
    check_enough("misfit", rows, *_FEWEST)
    check_finite("X", rows.X)
    n = rows.n_features + _MOST_DIRECTIONS * (_MOST_DIRECTIONS + 1) // 2
    layout = Layout(max(_FEWEST[0], min(_MOST_BLOCKS, _BYTES // (16 * n**2))))
    _, starts = layout.extended(rows.begins)
    lengths = np.diff([0, *starts, len(rows)])
    blocks = float(len(rows) ** 2 / np.sum(lengths**2))  # of equal length that would vary as much
    with one_blas_thread(), threadpool_limits(1, "openmp"), np.errstate(over="ignore", invalid="ignore"):
        gram = dense(rows.X.T @ rows.X) / len(rows)
        check_range(gram)
        tests, r = _test_functions(rows, gram, model, int(blocks) // _BLOCKS_PER_TERM, tree)
        found = []
        for j in range(rows.y.shape[1]):
            own = np.hstack([tests[:, :r], tests[:, r + j : r + j + 1]])
            found.append(_tested(*_weights_of(own, replace(rows, y=rows.y[:, j : j + 1]), gram, layout.limit), r))
    errors = None if model.no_intervals else model.influence.standard_error(rows.X[:, : model.n_features]).mean(axis=0)
    systematic, expected, p_value = np.transpose(found)
    check = MisfitCheck(systematic, expected, errors, p_value, (p_value < SIGNIFICANT) & (systematic > 0.0))
    if np.any(check.misfit):
        warn(check.message, MisfitWarning)
    if not model.statistics.single:
        return check
    numbers: dict[str, Any] = {name: None if x is None else x[0].item() for name, x in vars(check).items()}
    return MisfitCheck(**numbers)


# ---------------------------------------------------------------- test functions


def _test_functions(rows: Rows, gram: Array, model: Model, most: int, tree: bool) -> tuple[Array, int]:
    """Compute test functions of rows and then of `X_next`, if given; at most about `most` products, which come first.

    Over the rows, they are uncorrelated with the features and of mean square one, or zero; products are orthonormal,
    and the column of each reward's tree is orthogonal to them. Also return the number of products.
    """
    phi = rows.X if rows.X_next is None else _stacked(rows.X, rows.X_next)
    n_rows = len(rows)

    def residuals(columns: Array) -> Array:
        along = dense(rows.X.T @ columns[:n_rows]) / n_rows
        fitted = np.asarray(phi @ solve(gram, along, _ROUNDING * gram.diagonal(), warn=False).weights)
        return _scaled(columns - fitted, n_rows, least=_DEPENDENT * np.mean(columns[:n_rows] ** 2, axis=0))

    products = residuals(_products(_directions(phi, gram, model, n_rows, most), model))
    values, vectors = linalg.eigh(products[:n_rows].T @ products[:n_rows] / n_rows)
    kept = values > _DEPENDENT
    products = products @ (vectors[:, kept] / np.sqrt(values[kept]))
    if not tree:
        return products, products.shape[1]
    boosted = residuals(_boosted(rows, phi, gram, model))
    rest = boosted - products @ (products[:n_rows].T @ boosted[:n_rows]) / n_rows
    return np.hstack([products, _scaled(rest, n_rows, least=_DEPENDENT)]), products.shape[1]


def _directions(phi: Features, gram: Array, model: Model, n_rows: int, most: int) -> Array:
    """Compute directions with at most `most` products, of mean zero and variance one, clipped; shape (T, q)."""
    n, count = model.n_features, min(_MOST_DIRECTIONS, max(1, int(np.sqrt(2.0 * most + 0.25) - 0.5)))
    X, square = phi[:, :n], gram.diagonal()[:n]
    mean = np.asarray(X[:n_rows].mean(axis=0)).reshape(-1)
    variance = square - mean**2
    scale = 1.0 / np.sqrt(np.where(variance > _DEPENDENT * square, variance, np.inf))
    along = np.diag(scale)
    if n > count:
        along = model.solution.weights[:n, :count]
        if (first := n - count + along.shape[1]) < n:
            correlation = scale[:, np.newaxis] * (gram[:n, :n] - np.outer(mean, mean)) * scale
            _, vectors = linalg.eigh(correlation, subset_by_index=[first, n - 1])
            along = np.hstack([along, scale[:, np.newaxis] * vectors])
    return np.clip(_scaled(np.asarray(X @ along) - mean @ along, n_rows), -_CLIP, _CLIP)


def _products(directions: Array, model: Model) -> Array:
    """Compute squares and products of directions (T, q), and ones unless they are a feature."""
    i, j = np.triu_indices(directions.shape[1])
    products = directions[:, i] * directions[:, j]
    return products if model.settings.fit_intercept else np.hstack([np.ones((len(products), 1)), products])


def _boosted(rows: Rows, phi: Features, gram: Array, model: Model) -> Array:
    """Predict returns less predictions by a tree that is grown without the row's fold; shape (T, m)."""
    from sklearn.ensemble import HistGradientBoostingRegressor  # takes a second to import

    folds = folds_of(rows, rows.full, _FOLDS)
    sums = [LSTDStatistics.from_rows(fold, model.settings.lmbda) for fold in folds]
    fold = np.repeat(np.arange(len(folds)), [len(part) for part in folds])
    residuals = []
    for part, rest in zip(folds, without_each(sums), strict=True):
        share = max(1, rest.n_transitions) / max(1, model.statistics.n_transitions)
        weights = solve(rest.matrix(model.settings.variant), rest.b, share * model.ridge, warn=False).weights
        residuals.append(lambda_returns(part, 1.0, weights) - np.asarray(part.X @ weights))
    targets, full = np.concatenate(residuals), np.concatenate([part.full for part in folds])
    check_range(targets)
    targets = _scaled(targets, len(targets))  # a tree computes in single precision
    size = np.abs(model.solution.weights[: model.n_features]).max(axis=1) * np.sqrt(gram.diagonal()[: model.n_features])
    columns = np.sort(np.argsort(-size, kind="stable")[:_TREE_FEATURES])
    X = dense(phi[:, columns])
    boosted, where = np.zeros((len(X), targets.shape[1])), np.resize(fold, len(X))
    step = -(-X.size // _TREE_ENTRIES)
    for k in range(len(folds)):
        grown = np.flatnonzero(full & (fold != k))[::step]
        for j, target in enumerate(targets.T):
            regressor = HistGradientBoostingRegressor(**_TREE).fit(X[grown], target[grown])
            boosted[where == k, j] = regressor.predict(X[where == k])
    return boosted


# ---------------------------------------------------------------- tests


def _weights_of(tests: Array, rows: Rows, gram: Array, limit: int) -> tuple[Array, Array, Array, float]:
    """Fit test functions (T, r) beside the features with λ = 1, for one reward.

    Returns their weights (r,), their influence vectors (E, r), the shares of the blocks (E,) and the mean square of the
    predictions.
    """
    n_rows, r = len(rows), tests.shape[1]
    X_next = None if rows.X_next is None else _beside(tests[n_rows:], rows.X_next)
    both = replace(rows, X=_beside(tests[:n_rows], rows.X), X_next=X_next)
    blocks = no_blocks(both, 1.0, limit).extended(both)
    ridge = n_rows * _RIDGE * np.concatenate([np.ones(r), gram.diagonal()])
    weights = solve(blocks.total.matrix("boyan"), blocks.total.b, ridge, warn=False).weights
    influence = influence_of(blocks, weights, ridge, "boyan", intercept=False)
    d, features = weights[:r, 0], weights[r:, 0]
    size = float(d @ d + features @ gram @ features)
    check_range(influence.vectors, np.array(size))
    return d, influence.vectors[:, 0, :r], influence.shares, size


def _tested(d: Array, q: Array, shares: Array, size: float, n_products: int) -> tuple[float, float, float]:
    """Compute the systematic part, what chance contributes, and the p-value; the tree, if any, is the last of d."""
    if not d @ d > _ROUNDING * size:
        return 0.0, float(np.sqrt(np.sum(q**2))), 1.0
    p_values = [_p_of_products(d[:n_products], q[:, :n_products], shares)] if n_products else []
    if len(d) > n_products:  # a tree that predicts worse than none has a negative weight
        square = q[:, -1] ** 2
        t = -d[-1] / np.sqrt(max(square.sum(), _ROUNDING * size))
        p_values.append(float(special.stdtr(_freedom(square, shares), t)))
        d = np.append(d[:-1], max(0.0, d[-1]))
        q = q if d[-1] > 0.0 else q[:, :-1]
    expected = float(np.sum(q**2))
    systematic = np.sqrt(max(0.0, float(d @ d) - expected))
    return systematic, np.sqrt(expected), min(1.0, len(p_values) * min(p_values, default=1.0))


def _p_of_products(d: Array, q: Array, shares: Array) -> float:
    values, vectors = linalg.eigh(q.T @ q)
    kept = values > max(_ROUNDING, len(values) * np.finfo(float).eps) * values[-1]
    scores = q @ (vectors[:, kept] / np.sqrt(values[kept]))  # (E, r), ΣΣᵀ = 1
    r = scores.shape[1]
    if not r:
        return 0.0
    nu = _freedom(np.sum(scores**2, axis=1), shares)
    square = float(np.sum((vectors[:, kept].T @ d) ** 2 / values[kept]))
    rest = max(1.0, nu - r + 1.0)
    return float(special.fdtrc(r, rest, square * rest / (r * nu)))


def _freedom(squares: Array, shares: Array) -> float:
    return float(degrees_of_freedom(squares[np.newaxis, :, np.newaxis], shares)[0, 0])


def _scaled(columns: Array, n_rows: int, least: float | Array = 0.0) -> Array:
    """Scale columns to mean square one over the first rows; zero where the mean square is at most `least`."""
    square = np.mean(columns[:n_rows] ** 2, axis=0)
    return np.where(square > least, columns / np.sqrt(np.where(square > least, square, 1.0)), 0.0)


def _stacked(one: Features, two: Features) -> Features:
    return sparse.vstack([one, two], format="csr") if sparse.issparse(one) else np.vstack([one, two])


def _beside(tests: Array, phi: Features) -> Features:
    return sparse.hstack([tests, phi], format="csr") if sparse.issparse(phi) else np.hstack([tests, phi])
