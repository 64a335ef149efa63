"""Sums of matrices, which may be zeros that take no memory, or in Fortran order as those of sparse rows are."""

from __future__ import annotations

import numpy as np
from scipy.linalg import blas

from lstd._kernels.add_outer import add_with_outer
from lstd._kernels.dense_product import add_product
from lstd.types import Array

_ZERO = bytes(8)


def no_sum(*shape: int) -> Array:
    """Return zeros that take no memory and cannot be written to."""
    return np.ndarray(shape, np.float64, _ZERO, strides=(0,) * len(shape))


def is_no_sum(array: Array) -> bool:
    """Return whether an array is one of `no_sum`."""
    return not any(array.strides)


def writable(A: Array) -> Array:
    """Return a matrix, or a copy, in C order that can be written to."""
    return A if A.flags.writeable and A.flags.c_contiguous else np.array(A, order="C")


def transposed(A: Array) -> Array:
    """Return a matrix, or a copy, in Fortran order that can be written to."""
    if is_no_sum(A):
        return np.zeros(A.shape, order="F")
    return A if A.flags.writeable and A.flags.f_contiguous else np.array(A, order="F")


def plus(one: Array, two: Array) -> Array:
    """Return one + two, in the memory of `one` if it may be written to."""
    if is_no_sum(one):
        return two
    return np.add(one, two, out=one if one.flags.writeable else None)


def plus_product(A: Array, left: Array, right: Array, factor: float = 1.0) -> Array:
    """Return A + factor leftᵀ right, in the memory of A if it may be written to."""
    if is_no_sum(A) and factor == 1.0:
        return np.asarray(left.T @ right)
    A = writable(A)
    add_product(A, left, right, factor)
    return A


def plus_outer(A: Array, u: Array, v: Array) -> Array:
    """Return A + u vᵀ; the result may be A, as statistics never change."""
    if not (u.any() and v.any()):
        return A
    if is_no_sum(A):
        return np.outer(u, v)
    if A.flags.fnc:
        return plus_outer(A.T, v, u).T
    return np.asarray(blas.dger(1.0, v, u, a=A.copy().T, overwrite_a=True).T)


def sum_and_outer(one: Array, two: Array, u: Array, v: Array) -> Array:
    """Return one + two + u vᵀ; the result may share memory with an argument, as statistics never change."""
    if not (u.any() and v.any()):
        if is_no_sum(one) or is_no_sum(two):
            return two if is_no_sum(one) else one
        return np.add(one, two)
    if one.flags.fnc and two.flags.fnc:
        return sum_and_outer(one.T, two.T, v, u).T
    out = np.empty(one.shape)
    # In one pass, and without the BLAS, whose threads take longer to start than to add.
    add_with_outer(np.ascontiguousarray(one), np.ascontiguousarray(two), u, v, out)
    return out
