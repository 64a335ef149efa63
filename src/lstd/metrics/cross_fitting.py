"""Cross-fitted regressions of a backtest: each row is predicted from rows of other folds.

The target is regressed on (1, v) by least squares, v the value of a row, and what that leaves on the standardised
features x by ridge regression. With Z = UDVᵀ, the features less their means, the leverages of N rows and the fitted
values of a ridge coefficient α are

    h_i = 1/N + Σ_j u_ij² d_j² / (d_j² + α),   ŷ = ȳ + Σ_j u_j d_j² / (d_j² + α) u_jᵀy,

and the coefficient is that of the least Σ_i ((y_i − ŷ_i) / (1 − h_i))², the squared errors of rows that are left out
(Golub, Heath and Wahba 1979).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler

from lstd.types import Array

FOLDS = 10
RIDGES: Array = np.exp2(np.arange(-10.0, 11.0, 2.0))  # per row, of columns of variance 1
Split = tuple[NDArray[np.intp], NDArray[np.intp]]  # rows to fit to, and rows to predict


def folds_of_subjects(subject: NDArray[np.intp]) -> list[Split]:
    """Put subjects 0, 1, … into folds in turn; `subject` has that of each row, (N,)."""
    n_folds = min(FOLDS, int(subject.max()) + 1)
    fold = subject % n_folds
    return [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(n_folds)]


def folds_of_stream(row: NDArray[np.intp], steps: int) -> list[Split]:
    """Cut rows in time order into consecutive folds; `row` (N,) numbers them in the stream."""
    splits = []
    fold = np.arange(len(row)) * FOLDS // len(row)
    for k in range(FOLDS):
        (own,) = np.nonzero(fold == k)
        far = (row < row[own[0]] - steps) | (row > row[own[-1]] + steps)
        splits.append((np.flatnonzero(far), own))
    return splits


def cross_fitted(target: Array, value: Array, X: Array, folds: list[Split]) -> Array:
    """Predict each target (N,) from value (N,) and features (N, n) by a regression on rows of other folds."""
    Z = StandardScaler().fit_transform(X)
    predicted = np.empty(len(target))
    for taught, own in folds:
        mean, slope = line(value[taught], target[taught])
        rest = target[taught] - (mean + slope * value[taught])
        intercept, weights = ridge_regression(Z[taught], rest)
        predicted[own] = mean + slope * value[own] + intercept + Z[own] @ weights
    return predicted


def line(x: Array, y: Array) -> tuple[float, float]:
    """Return the intercept and the slope of y on x, both (N,), by least squares; equal x have no slope."""
    centred = x - x.mean()
    square = float(centred @ centred)
    if not square:
        return float(y.mean()), 0.0
    slope = float(centred @ (y - y.mean())) / square
    return float(y.mean() - slope * x.mean()), slope


def ridge_regression(Z: Array, y: Array) -> tuple[float, Array]:
    """Return the intercept and the weights (n,) of y (N,) on Z (N, n), with the ridge coefficient of the module."""
    N = len(y)
    centre = Z.mean(axis=0)
    U, d, Vt = np.linalg.svd(Z - centre, full_matrices=False)
    rest = y - y.mean()
    along = U.T @ rest
    kept = d[:, np.newaxis] ** 2 / (d[:, np.newaxis] ** 2 + N * RIDGES)  # (n, number of ridge coefficients)
    leverage = 1.0 / N + U**2 @ kept
    error = (rest[:, np.newaxis] - U @ (kept * along[:, np.newaxis])) / (1.0 - leverage)
    best = N * RIDGES[np.argmin(np.sum(error**2, axis=0))]
    weights = Vt.T @ (along * d / (d**2 + best))
    return float(y.mean() - centre @ weights), weights
