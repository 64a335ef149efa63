"""A product of two dense matrices, added to a third by the BLAS of SciPy without Python's lock.

`scipy.linalg.blas.dgemm` is the same function, but keeps the lock: threads would sum in turns.
"""

from __future__ import annotations

from ctypes import CFUNCTYPE, byref, c_char, c_double, c_int, c_void_p
from functools import lru_cache
from typing import Any

import numpy as np
from numba.extending import get_cython_function_address

from lstd.types import Array

_dgemm = CFUNCTYPE(None, *[c_void_p] * 13)(get_cython_function_address("scipy.linalg.cython_blas", "dgemm"))
_ONE, _PLAIN, _TRANSPOSED = byref(c_double(1.0)), byref(c_char(b"N")), byref(c_char(b"T"))


def add_product(goal: Array, left: Array, right: Array, factor: float = 1.0) -> None:
    """goal ← goal + factor leftᵀ right; `left` (T, n), `right` (T, k), the first k columns of `goal` (n, at least k).

    `goal` is in C order, and may be the first rows of a larger array.
    """
    left, right = np.ascontiguousarray(left, np.float64), np.ascontiguousarray(right, np.float64)
    n, k = _integer(left.shape[1]), _integer(right.shape[1])
    # In the Fortran order of the BLAS, which sees transposes: goalᵀ ← goalᵀ + factor rightᵀ left.
    _dgemm(
        _PLAIN, _TRANSPOSED, k, n, _integer(len(left)), byref(c_double(factor)), _address(right), k, _address(left), n,
        _ONE, _address(goal), _integer(goal.shape[1]),
    )  # fmt: skip


@lru_cache(maxsize=256)
def _integer(number: int) -> Any:
    return byref(c_int(number))


def _address(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]  # `array.ctypes` takes twice as long
    return address
