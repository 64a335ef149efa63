"""Buffers whose rows start at cache lines, so that no vector load or store touches two lines."""

from __future__ import annotations

import numpy as np

from lstd._kernels.compilation import kernel

LINE = 8  # float64 in a cache line of 64 bytes


@kernel
def padded(n):  # type: ignore[no-untyped-def]
    """The least multiple of LINE that is at least `n`."""
    return (n + LINE - 1) // LINE * LINE


@kernel
def aligned_zeros(rows, columns):  # type: ignore[no-untyped-def]
    """Zeros of shape (rows, columns) that start at a cache line; so does each row when LINE divides `columns`."""
    buffer = np.zeros(rows * columns + LINE)
    skip = (-(buffer.ctypes.data // 8)) % LINE
    return buffer[skip : skip + rows * columns].reshape((rows, columns))
