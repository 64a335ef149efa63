"""A product of two dense matrices, added to a third by the BLAS of SciPy without Python's lock.

`scipy.linalg.blas.dgemm` is the same function, but keeps the lock: threads would sum in turns.
"""

from __future__ import annotations

from ctypes import CFUNCTYPE, byref, c_char, c_double, c_int, c_void_p

import numpy as np
from numba.extending import get_cython_function_address

from lstd.types import Array

_dgemm = CFUNCTYPE(None, *[c_void_p] * 13)(get_cython_function_address("scipy.linalg.cython_blas", "dgemm"))


def add_product(A: Array, left: Array, right: Array, factor: float) -> None:
    """A ← A + factor leftᵀ right; `A` (n, k) in C order, which is changed, `left` (T, n), `right` (T, k)."""
    left, right = np.ascontiguousarray(left, np.float64), np.ascontiguousarray(right, np.float64)
    n_rows, n, k = byref(c_int(len(left))), byref(c_int(left.shape[1])), byref(c_int(right.shape[1]))
    one, scale = byref(c_double(1.0)), byref(c_double(factor))
    # In the Fortran order of the BLAS, which sees transposes: Aᵀ ← Aᵀ + factor rightᵀ left.
    _dgemm(
        byref(c_char(b"N")), byref(c_char(b"T")), k, n, n_rows, scale, right.ctypes.data, k, left.ctypes.data, n, one,
        A.ctypes.data, k,
    )  # fmt: skip
