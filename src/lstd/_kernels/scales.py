"""Scales of the rows and columns of a system, for `lstd.statistics.solve`, and ranges of the columns of rows.

Of small arrays, they take a tenth of the time of NumPy.
"""

from __future__ import annotations

import math

import numpy as np

from lstd._kernels.compilation import kernel

_SWEEPS = 30
_ALIKE = 1.5  # largest ratio of two sums of rows, or of columns, that are close enough
_LARGEST = 2.0**300  # of an entry while scales are sought, so that no sum overflows


@kernel
def equilibration(M):  # type: ignore[no-untyped-def]
    """Return exponents r and c, (n,), that bring the absolute row and column sums of 2^r_i M_ij 2^c_j close together.

    They start from the diagonal, as for a Gram matrix, so that features scaled by powers of two give the same S. Then
    rows and columns are divided by their sums in turn (Sinkhorn and Knopp 1967). Rows and columns of zeros keep their
    scale.
    """
    n, start = len(M), _from_diagonal(M)
    size, rows, columns, factors = np.empty((n, n)), np.ones(n), np.ones(n), np.exp2(start)
    for i in range(n):
        for j in range(n):
            size[i, j] = min(abs(M[i, j] * factors[i] * factors[j]), _LARGEST)
    for _ in range(_SWEEPS):
        of_rows, of_columns = _sums(size, rows, columns)
        if _alike(rows * of_rows) and _alike(columns * of_columns):
            break
        _invert(of_rows, rows)
        of_rows, of_columns = _sums(size, rows, columns)
        _invert(of_columns, columns)
    r, c = start.copy(), start
    for i in range(n):
        r[i] += np.int32(np.rint(np.log2(rows[i])))
        c[i] += np.int32(np.rint(np.log2(columns[i])))
    return r, c


@kernel
def _from_diagonal(M):  # type: ignore[no-untyped-def]
    """Return exponents that bring the diagonal near one; where that is zero, the largest known entry."""
    n, changes = len(M), True
    start, known = np.zeros(n, np.int32), np.zeros(n, np.bool_)
    for i in range(n):
        start[i] = -(math.frexp(abs(M[i, i]))[1] // 2)
        known[i] = abs(M[i, i]) > 0.0
    while changes:
        changes, before = False, known.copy()
        for i in range(n):
            if not before[i]:
                largest = 0.0
                for j in range(n):
                    if before[j]:
                        largest = max(largest, math.ldexp(max(abs(M[i, j]), abs(M[j, i])), start[j]))
                start[i] = -math.frexp(largest)[1]
                known[i] = largest > 0.0
                changes = changes or known[i]
    return start


@kernel
def _sums(size, rows, columns):  # type: ignore[no-untyped-def]
    """Return the sums of the rows, times the factors of columns, and those of the columns, times those of rows."""
    of_rows, of_columns = np.zeros(len(size)), np.zeros(len(size))
    for i in range(len(size)):
        row, factor = size[i], rows[i]
        of_rows[i] = np.dot(row, columns)
        for j in range(len(size)):
            of_columns[j] += row[j] * factor
    return of_rows, of_columns


@kernel
def _alike(sums):  # type: ignore[no-untyped-def]
    least, most = np.inf, 0.0
    for value in sums:
        if value > 0.0:
            least, most = min(least, value), max(most, value)
    return most <= _ALIKE * least


@kernel
def _invert(sums, factors):  # type: ignore[no-untyped-def]
    """Set factors to 1/s, and to 1 for s = 0."""
    for i in range(len(sums)):
        factors[i] = 1.0 / min(max(sums[i], 1.0 / _LARGEST), _LARGEST) if sums[i] > 0.0 else 1.0


@kernel
def any_outside(X, ranges):  # type: ignore[no-untyped-def]
    """Return whether an entry of `X` (T, n) is below the first or above the second row of `ranges` (2, n)."""
    for t in range(X.shape[0]):
        for j in range(X.shape[1]):
            if X[t, j] < ranges[0, j] or X[t, j] > ranges[1, j]:
                return True
    return False


@kernel
def widen(X, ranges):  # type: ignore[no-untyped-def]
    """Widen `ranges` (2, n), the least and the greatest value of each column, to those of `X` (T, n); skip NaN."""
    for t in range(X.shape[0]):
        for j in range(X.shape[1]):
            x, least, most = X[t, j], ranges[0, j], ranges[1, j]
            ranges[0, j] = x if x < least else least  # without a branch: one vector instruction
            ranges[1, j] = x if x > most else most
