"""From (A, b, α) to weights, the condition number, and what went wrong.

The system M = A + αI is factorised, never inverted, after rows and columns were multiplied by powers of two that make
their absolute sums alike:

    S = R M C,   S x = R b,   θ = C x

Powers of two round nothing, so the scale of the features does not matter beyond what the ridge term makes of it. All
that is said of a system, its condition number first, is said of S. A system that is singular, or so ill-conditioned
that no digit of the weights would be right, gives a warning with the condition number and the remedy; x is then of
least norm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from lstd.errors import IllConditionedWarning, InvalidInputError
from lstd.errors import warn as give_warning

Array = NDArray[np.float64]
Exponents = NDArray[np.intc]

_EPS = float(np.finfo(np.float64).eps)
_WARN_FROM = 1e10  # condition number from which fewer than five digits are sure
_ROUNDING = 20.0 * _EPS  # of the sums and of the solution, relative; times the condition number it bounds the error
_SWEEPS = 30
_ALIKE = 1.5  # sums of rows, and of columns, that differ by less than this factor are alike
_LARGEST = 2.0**300  # of an entry while scales are sought, so that no sum overflows


@dataclass(frozen=True)
class Solution:
    """Weights and how far they can be trusted."""

    weights: Array  # (n, m)
    condition_number: float  # estimate in the 1-norm of the equilibrated A + αI; infinite when singular
    singular: bool  # the weights are those of least norm, in the units of the equilibrated system


def solve(A: Array, b: Array, alpha: float | Array, *, warn: bool = True) -> Solution:
    """Solve (A + diag(α)) θ = b.

    Parameters
    ----------
    A : ndarray of shape (n, n)
    b : ndarray of shape (n, m)
    alpha : float or ndarray of shape (n,)
        Ridge coefficient, one for all features or one for each.
    warn : bool, default True
        Give an IllConditionedWarning where the weights cannot be trusted.

    Returns
    -------
    Solution

    Raises
    ------
    InvalidInputError
        When the sums or the weights overflow.

    Examples
    --------
    >>> import numpy as np
    >>> from lstd.statistics.solve import solve
    >>> solve(np.diag([1.0, 3.0]), np.array([[2.0], [4.0]]), 1.0).weights.ravel()
    array([1., 1.])
    """
    M = A.copy()
    M[np.diag_indices_from(M)] += alpha
    if not len(M):
        return Solution(np.zeros_like(b), 1.0, False)
    check_range(M, b)
    rows, columns = equilibration(M)
    with np.errstate(over="ignore"):  # `check_range` looks at what comes out
        S, right = np.ldexp(M, rows[:, np.newaxis] + columns), np.ldexp(b, rows[:, np.newaxis])
    check_range(S, right)
    factors, pivots, info = lapack.dgetrf(S)
    reciprocal = 0.0
    if info == 0:
        reciprocal, _ = lapack.dgecon(factors, np.abs(S).sum(axis=0).max(), norm="1")
    condition = 1.0 / reciprocal if reciprocal > 0.0 else np.inf
    singular = not reciprocal > _EPS
    x = np.linalg.lstsq(S, right, rcond=None)[0] if singular else lapack.dgetrs(factors, pivots, right)[0]
    with np.errstate(over="ignore"):
        weights = np.ldexp(x, columns[:, np.newaxis])
    check_range(weights)
    if warn and condition > _WARN_FROM:
        give_warning(_message(condition, singular), IllConditionedWarning)
    return Solution(weights, float(condition), singular)


def equilibration(M: Array) -> tuple[Exponents, Exponents]:
    """Exponents r and c, of shape (n,), for which the rows and columns of 2^r_i M_ij 2^c_j have absolute sums alike.

    They start from the diagonal, as for a Gram matrix, which makes them follow a change of the features' scale by
    powers of two exactly; then rows and columns are divided by their sums in turn (Sinkhorn and Knopp 1967). A row or
    column of zeros keeps its scale.
    """
    start = _from_diagonal(M)
    with np.errstate(over="ignore", under="ignore"):
        size = np.minimum(np.abs(np.ldexp(M, start[:, np.newaxis] + start)), _LARGEST)
    row, column = np.ones((2, len(M)))
    for _ in range(_SWEEPS):
        if _alike(row * (size @ column)) and _alike(column * (row @ size)):
            break
        row = _reciprocals(size @ column)
        column = _reciprocals(row @ size)
    return start + _exponents(row), start + _exponents(column)


def _from_diagonal(M: Array) -> Exponents:
    """Exponents that bring the diagonal near one; where it is zero, the largest entry beside features known by then."""
    diagonal = np.abs(M.diagonal())
    start = -(np.frexp(diagonal)[1] // 2)
    known = diagonal > 0.0
    while not known.all() and known.any():
        missing = np.flatnonzero(~known)
        beside = np.maximum(np.abs(M[missing][:, known]), np.abs(M[known][:, missing].T))
        with np.errstate(over="ignore", under="ignore"):
            largest = np.ldexp(beside, start[known]).max(axis=1)
        if not largest.any():
            break
        start[missing] = -np.frexp(largest)[1]
        known[missing[largest > 0.0]] = True
    return np.asarray(start, dtype=np.intc)


def _alike(sums: Array) -> bool:
    some = sums[sums > 0.0]
    return not len(some) or bool(some.max() <= _ALIKE * some.min())


def _reciprocals(sums: Array) -> Array:
    """1/s, and 1 for s = 0."""
    return np.asarray(1.0 / np.where(sums > 0.0, np.clip(sums, 1.0 / _LARGEST, _LARGEST), 1.0))


def _exponents(factors: Array) -> Exponents:
    return np.asarray(np.rint(np.log2(factors)), dtype=np.intc)


def check_range(*arrays: NDArray[np.floating[Any]]) -> None:
    """Refuse sums or weights that overflowed."""
    if not all(np.isfinite(array).all() for array in arrays):
        raise InvalidInputError(
            "The sums over the data, or the weights, must be below 1e308; they overflowed. Scale features and rewards "
            "(`X`, `y`) to order 1, and look for huge values of theirs and of importance ratios, if any."
        )


def _message(condition: float, singular: bool) -> str:
    remedy = (
        "Increase `alpha`, drop or combine features that are zero or repeat each other, "
        'or use variant="uncorrected", whose matrix is better conditioned.'
    )
    if singular:
        return (
            f"The system A + αI is singular to working precision (condition number {condition:.1e}); the weights are "
            f"those of least norm among its least-squares solutions, with features scaled alike. {remedy}"
        )
    digits = max(0, math.floor(-math.log10(condition * _ROUNDING)))
    return (
        f"The system A + αI is ill-conditioned (condition number {condition:.1e}): of the largest weights, with "
        f"features scaled alike, {digits or 'no'} digits are sure. {remedy}"
    )
