"""Numbers of each row and column of a matrix: ranges, and scales that bring the sums of a system close together."""

from __future__ import annotations

import numpy as np

from lstd._kernels.compilation import kernel

_SWEEPS = 30
_ALIKE = 1.5  # largest ratio of two sums of rows, or of columns, that are close enough
_LARGEST = 2.0**300  # of a factor, so that no sum overflows


@kernel
def any_outside(X, ranges):  # type: ignore[no-untyped-def]
    """Return whether an entry of `X` (T, n) is below the first or above the second row of `ranges` (2, n)."""
    for t in range(X.shape[0]):
        for j in range(X.shape[1]):
            if X[t, j] < ranges[0, j] or X[t, j] > ranges[1, j]:
                return True
    return False


@kernel
def widen(X, counted, ranges):  # type: ignore[no-untyped-def]
    """Widen `ranges` (2, n), the least and the greatest value of each column, to those of counted rows of `X` (T, n).

    `counted` (T,) says which rows these are. NaN is skipped.
    """
    for t in range(X.shape[0]):
        if not counted[t]:
            continue
        for j in range(X.shape[1]):
            x = X[t, j]
            least = ranges[0, j]
            most = ranges[1, j]
            ranges[0, j] = x if x < least else least  # without a branch: one vector instruction
            ranges[1, j] = x if x > most else most


@kernel
def balance(size):  # type: ignore[no-untyped-def]
    """Return factors of the rows and columns of `size` (n, n), not negative, that bring their sums close together.

    Rows and columns are divided by their sums in turn (Sinkhorn and Knopp 1967). Those of zeros keep their scale.
    """
    n = len(size)
    rows = np.ones(n)
    columns = np.ones(n)
    for _ in range(_SWEEPS):
        if _are_close(size, rows, columns) and _are_close(size.T, columns, rows):
            break
        _divide(size, rows, columns)
        _divide(size.T, columns, rows)
    return rows, columns


@kernel
def _are_close(size, rows, columns):  # type: ignore[no-untyped-def]
    """Return whether the sums of scaled rows are close together, but for rows of zeros."""
    least = np.inf
    most = 0.0
    for i in range(len(rows)):
        total = _sum_of_row(size, i, columns)
        if total > 0.0:
            scaled_total = rows[i] * total
            least = min(least, scaled_total)
            most = max(most, scaled_total)
    return most <= _ALIKE * least


@kernel
def _divide(size, rows, columns):  # type: ignore[no-untyped-def]
    """Make the sums of scaled rows one, by new factors of rows; that of a row of zeros is one."""
    for i in range(len(rows)):
        total = _sum_of_row(size, i, columns)
        rows[i] = 1.0
        if total > 0.0:
            rows[i] = 1.0 / min(max(total, 1.0 / _LARGEST), _LARGEST)


@kernel
def _sum_of_row(size, i, columns):  # type: ignore[no-untyped-def]
    """Return the sum of row i with its columns scaled."""
    total = 0.0
    for j in range(len(columns)):
        total += size[i, j] * columns[j]
    return total
