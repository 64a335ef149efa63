"""Regression on features, cross-fitted: each row is predicted from rows of other folds.

The target is regressed on (1, v) by least squares, and what that leaves on the standardised features by ridge
regression. Its coefficient is chosen by leaving out one more fold at a time. Folds have whole subjects, or consecutive
rows of a stream; then rows within k steps of a fold are left out with it, since their rewards are partly the same.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from lstd.types import Array, Flags

FOLDS = 10
RIDGES: Array = np.exp2(np.arange(-10.0, 11.0, 2.0))  # per row, of columns of variance 1
_MOST_COLUMNS = 512  # principal components that are kept


class Folds(NamedTuple):
    """Fold of each row, (N,), and the rows that are left out with each fold, (K, N)."""

    fold: NDArray[np.intp]
    near: Flags

    @classmethod
    def of_subjects(cls, subject: NDArray[np.intp]) -> Folds:
        """Put subjects 0, 1, … into folds in turn."""
        fold = subject % min(FOLDS, int(subject.max()) + 1)
        return cls(fold, fold == np.arange(fold.max() + 1)[:, np.newaxis])

    @classmethod
    def of_stream(cls, row: NDArray[np.intp], steps: int) -> Folds:
        """Cut rows in time order into consecutive folds; `row` (N,) numbers them in the stream."""
        fold = np.arange(len(row)) * FOLDS // len(row)
        starts = np.flatnonzero(np.diff(fold, prepend=-1))
        first, last = row[starts, np.newaxis], row[np.append(starts[1:], len(row)) - 1, np.newaxis]
        return cls(fold, (row >= first - steps) & (row <= last + steps))


def standardised(X: Array) -> Array:
    """Centre and scale columns (N, n) to variance 1; constant ones to 0. More columns than rows become fewer."""
    spread, size = X.std(axis=0), np.abs(X).max(axis=0, initial=0.0)
    X = np.divide(X - X.mean(axis=0), spread, out=np.zeros_like(X), where=spread > 1e-12 * size)
    if X.shape[1] > min(len(X), _MOST_COLUMNS):  # a rotation changes no ridge regression
        U, s, _ = linalg.svd(X, full_matrices=False)
        X = (U * s)[:, :_MOST_COLUMNS]
    return X


def cross_fitted(target: Array, value: Array, X: Array, folds: Folds) -> Array:
    """Predict each target (N,) from value (N,) and standardised features (N, n) by rows of other folds."""
    design, found = np.column_stack([np.ones(len(value)), value]), np.empty(len(target))
    gram = X.T @ X
    for own, near in enumerate(folds.near):
        held, kept = folds.fold == own, ~near
        base = design @ np.linalg.lstsq(design[kept], target[kept])[0]
        rest, errors = target - base, np.zeros(len(RIDGES))
        for other, also in enumerate(folds.near):
            if other != own and (tested := (folds.fold == other) & kept).any():
                predicted = _ridge(X, rest, gram, ~(near | also), RIDGES)[tested]
                errors += ((predicted - rest[tested, np.newaxis]) ** 2).sum(axis=0)
        best = RIDGES[[np.argmin(errors)]]
        found[held] = base[held] + _ridge(X, rest, gram, kept, best)[held, 0]
    return found


def _ridge(X: Array, target: Array, gram: Array, kept: Flags, ridges: Array) -> Array:
    """Predict all rows, (N, R), by ridge regressions with an intercept on the rows that are `kept`."""
    size, left_out = kept.sum(), X[~kept]
    centre, mean = X[kept].mean(axis=0), target[kept].mean()
    covariance = (gram - left_out.T @ left_out) / size - np.outer(centre, centre)
    along = X[kept].T @ target[kept] / size - centre * mean
    d, Q = linalg.eigh(covariance)
    weights = Q @ ((Q.T @ along)[:, np.newaxis] / (np.maximum(d, 0.0)[:, np.newaxis] + ridges))
    return np.asarray(mean + (X - centre) @ weights)
