"""Numbers of each row and column of a matrix: ranges, and scales that bring the sums of a system close together."""

from __future__ import annotations

import numpy as np

from lstd._kernels.compilation import kernel, lean_kernel

_ROWS, _COLUMNS = range(2)
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


@lean_kernel
def balance(size, scales, sums):  # type: ignore[no-untyped-def]
    """Fill `scales` (2, n) with factors of the rows and columns of `size` (n, n) that bring their sums close together.

    `size` is not negative, and `sums` (2, n) is scratch. Rows and columns are divided by their sums in turn (Sinkhorn
    and Knopp 1967). Those of zeros keep their scale.
    """
    for i in range(len(size)):
        scales[_ROWS, i] = 1.0
        scales[_COLUMNS, i] = 1.0
    for _ in range(_SWEEPS):
        _add_up(size, scales, sums)
        if _spread(_ROWS, scales, sums) <= _ALIKE and _spread(_COLUMNS, scales, sums) <= _ALIKE:
            break
        _divide(_ROWS, sums, scales)
        _add_up(size, scales, sums)
        _divide(_COLUMNS, sums, scales)


@lean_kernel
def _add_up(size, scales, sums):  # type: ignore[no-untyped-def]
    """Set `sums` to those of the rows with their columns scaled, and of the columns with their rows scaled."""
    for j in range(len(size)):
        sums[_COLUMNS, j] = 0.0
    for i in range(len(size)):
        of_row = 0.0
        for j in range(len(size)):
            of_row += size[i, j] * scales[_COLUMNS, j]
            sums[_COLUMNS, j] += size[i, j] * scales[_ROWS, i]
        sums[_ROWS, i] = of_row


@lean_kernel
def _spread(which, scales, sums):  # type: ignore[no-untyped-def]
    """Return the ratio of the largest sum, once it is scaled, to the smallest, but for those of zeros."""
    least = np.inf
    most = 0.0
    for i in range(scales.shape[1]):
        if sums[which, i] > 0.0:
            scaled_sum = scales[which, i] * sums[which, i]
            least = min(least, scaled_sum)
            most = max(most, scaled_sum)
    return most / least


@lean_kernel
def _divide(which, sums, scales):  # type: ignore[no-untyped-def]
    """Make the sums of rows, or columns, one by new scales; that of zeros is one."""
    for i in range(scales.shape[1]):
        scales[which, i] = 1.0
        if sums[which, i] > 0.0:
            scales[which, i] = 1.0 / min(max(sums[which, i], 1.0 / _LARGEST), _LARGEST)
