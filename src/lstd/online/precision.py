"""Condition number of a matrix and error of its inverse, independent of the units of features.

A matrix M is scaled to R M C, whose rows and columns have largest entries of order 1. R and C are diagonal with powers
of two, so that scaling is exact. Neither R M C nor the weights divided by C depend on the units of features.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack

from lstd.statistics.solve import equilibration
from lstd.types import Array


class Factorised(NamedTuple):
    """Result of factorising M."""

    condition: float  # estimated condition number of R M C in the 1-norm; infinite if M is singular
    inverse: Array | None  # (n, n); None if M is singular or not finite
    scale: Array  # (n,) the diagonal of C


def scales(M: Array) -> tuple[Array, Array]:
    """Compute the diagonals of R and C, (n,) each, in three passes over M; `equilibration` may take tens of passes.

    The diagonal comes first, as for a Gram matrix, then the largest entries of rows, then of columns.
    """
    start = _inverse_power(np.sqrt(np.abs(M.diagonal())))
    size = start[:, np.newaxis] * np.abs(M) * start
    rows = _inverse_power(size.max(axis=1))
    return start * rows, start * _inverse_power((rows[:, np.newaxis] * size).max(axis=0))


def _inverse_power(sizes: Array) -> Array:
    """Round 1 / size to a power of two; 1 if the size is zero or not finite."""
    usable = (sizes > 0.0) & np.isfinite(sizes)
    return np.ldexp(1.0, -np.frexp(np.where(usable, sizes, 0.5))[1])


def condition_number(M: Array, inverse: Array, rows: Array, columns: Array) -> float:
    """Compute the condition number of R M C in the 1-norm from M and its inverse."""
    scaled = float(((rows @ np.abs(M)) * columns).max())
    return scaled * float((((1.0 / columns) @ np.abs(inverse)) / rows).max())


def relative_size(move: Array, value: Array, scale: Array) -> float:
    """Compute |move / scale| / |value / scale| in the maximum norm, the largest over columns if there are several.

    0 if nothing moves, NaN if numbers overflowed.
    """
    moved, size = (np.abs(v.T / scale).max(axis=-1) for v in (move, value))
    still = moved == 0.0
    return float(np.where(still, 0.0, np.divide(moved, np.where(still, 1.0, size))).max())


def factorise(M: Array) -> Factorised:
    """Compute the condition number and the inverse of M by an LU factorisation of R M C."""
    if not np.isfinite(M).all():
        return Factorised(np.inf, None, np.ones(len(M)))
    rows, columns = (np.ldexp(1.0, exponents) for exponents in equilibration(M))
    singular = Factorised(np.inf, None, columns)
    scaled = rows[:, np.newaxis] * M * columns
    factors, pivots, info = lapack.dgetrf(scaled)
    if info != 0:
        return singular
    reciprocal, _ = lapack.dgecon(factors, np.abs(scaled).sum(axis=0).max(), norm="1")
    inverse, info = lapack.dgetri(factors, pivots)
    if info != 0 or not reciprocal > 0.0:
        return singular
    return Factorised(float(1.0 / reciprocal), columns[:, np.newaxis] * inverse * rows, columns)
