"""The centre and the spread of each column of features: the units in which a ridge term penalises them alike."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from lstd.data.check_features import Features
from lstd.data.feature_products import dense
from lstd.types import Array

ENTRIES = 2**20  # of the columns that are compared at a time, 8 MiB


_CONSTANT = 2.0**-40  # spread, relative to the largest value, that is rounding


@np.errstate(over="ignore", under="ignore", invalid="ignore")  # the caller checks the range
def column_spread(X: Features, weights: Array | None = None, *, about_zero: bool = False) -> tuple[Array, Array, Array]:
    """Return the centre of each column, its squared spread, and its mean square about the centre, (n,) each.

    The centre is the value that at least half of the rows have, by weight; else it is the mean, or zero if `about_zero`
    is true. The squared spread is the mean square about a common value over the rows with another value, so that of
    one-hot columns is 1 however rare their states are. It is 1 for constant columns, and the variance where no value is
    common.

    Parameters
    ----------
    X : ndarray or sparse of shape (T, n), T at least 1
    weights : ndarray of shape (T,), optional
        Weights of the rows, not all zero.
    about_zero : bool, default False
        Whether the centre of each column is zero.

    Examples
    --------
    >>> import numpy as np
    >>> from lstd.data.column_spread import column_spread
    >>> for numbers in column_spread(np.array([[0.0, 10.0], [0.0, 11.0], [0.0, 12.0], [3.0, 15.0]])):
    ...     print(numbers)
    [ 0. 12.]
    [9.  3.5]
    [2.25 3.5 ]
    """
    if not sparse.issparse(X):
        return _of_columns(X, weights, about_zero)
    share = np.full(X.shape[0], 1.0) if weights is None else weights
    share = share / share.sum()
    others, square = share @ (X != 0.0).astype(np.float64), share @ X.power(2)
    spread = np.where(square > 0.0, square / np.where(others > 0.0, others, 1.0), 1.0)
    numbers = np.stack([np.zeros_like(spread), spread, square])
    (filled,) = np.nonzero(others >= 0.5)
    if len(filled) and not about_zero:
        numbers[:, filled] = _of_columns(X.tocsc()[:, filled], weights, about_zero)
    return numbers[0], numbers[1], numbers[2]


def _of_columns(X: Features, weights: Array | None, about_zero: bool) -> tuple[Array, Array, Array]:
    """Return the three numbers of each column."""
    step = max(1, ENTRIES // X.shape[0])
    parts = [
        _of_some(np.ascontiguousarray(dense(X[:, first : first + step]).T, np.float64), weights, about_zero)
        for first in range(0, X.shape[1], step)
    ]
    centre, spread, square = np.concatenate(parts, axis=1)
    return centre, spread, square


def _of_some(x: Array, weights: Array | None, about_zero: bool) -> Array:
    """Return the three numbers of some columns, x (n, T)."""
    values = np.zeros((1, len(x), 1)) if about_zero else _medians(x, weights)
    shares = [np.average(x != value, axis=1, keepdims=True, weights=weights) for value in values]
    others = np.min(shares, axis=0)
    value = np.where(shares[0] == others, values[0], values[-1])
    common = about_zero | (others <= 0.5)
    centre = np.where(common, value, np.average(x, axis=1, keepdims=True, weights=weights))
    square = np.average((x - centre) ** 2, axis=1, keepdims=True, weights=weights)
    spread = square / np.where(common & (others > 0.0), others, 1.0)
    varies = spread > (_CONSTANT * np.abs(x).max(axis=1, keepdims=True)) ** 2
    return np.hstack([centre, np.where(varies, spread, 1.0), square]).T


def _medians(x: Array, weights: Array | None) -> Array:
    """Return the lower and the upper median of each column, (2, n, 1), by weight."""
    if weights is None:
        middle = [(x.shape[1] - 1) // 2, x.shape[1] // 2]
        return np.partition(x, middle, axis=1)[:, middle].T[:, :, np.newaxis]
    order = np.argsort(x, axis=1)
    below = np.cumsum(weights[order], axis=1)
    half = 0.5 * below[:, [-1]]
    places = np.stack([np.argmax(below >= half, axis=1), np.argmax(below > half, axis=1)], axis=1)
    return np.take_along_axis(x, np.take_along_axis(order, places, axis=1), axis=1).T[:, :, np.newaxis]
