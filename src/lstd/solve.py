"""From (A, b, α) to weights, the condition number, and what went wrong.

The system is factorised, never inverted. A matrix that is singular, or so ill-conditioned that no digit of the weights
would be right, gives a warning with the condition number and the remedy; the weights are then those of least norm.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from lstd.errors import IllConditionedWarning, InvalidInputError

Array = NDArray[np.float64]

_EPS = float(np.finfo(np.float64).eps)
_WARN_FROM = 1e10  # condition number from which fewer than six digits are sure


@dataclass(frozen=True)
class Solution:
    """Weights and how far they can be trusted."""

    weights: Array  # (n, m)
    condition_number: float  # estimate in the 1-norm of A + αI; infinite when singular
    singular: bool  # the weights are those of least norm


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
    >>> from lstd.solve import solve
    >>> solve(np.diag([1.0, 3.0]), np.array([[2.0], [4.0]]), 1.0).weights.ravel()
    array([1., 1.])
    """
    M = A.copy()
    M[np.diag_indices_from(M)] += alpha
    if not len(M):
        return Solution(np.zeros_like(b), 1.0, False)
    check_range(M, b)
    factors, pivots, info = lapack.dgetrf(M)
    reciprocal = 0.0
    if info == 0:
        reciprocal, _ = lapack.dgecon(factors, np.abs(M).sum(axis=0).max(), norm="1")
    condition = 1.0 / reciprocal if reciprocal > 0.0 else np.inf
    singular = not reciprocal > _EPS
    if singular:
        weights = np.linalg.lstsq(M, b, rcond=None)[0]
    else:
        weights, _ = lapack.dgetrs(factors, pivots, b)
    check_range(weights)
    if warn and condition > _WARN_FROM:
        warnings.warn(_message(condition, singular), IllConditionedWarning, stacklevel=2)
    return Solution(np.asarray(weights), float(condition), singular)


def check_range(*arrays: NDArray[np.floating[Any]]) -> None:
    """Refuse sums or weights that overflowed."""
    if not all(np.isfinite(array).all() for array in arrays):
        raise InvalidInputError(
            "The sums over the data, or the weights, must be below 1e308; they overflowed. Scale features and rewards "
            "to order 1, and look for huge values of `importance_ratio`."
        )


def _message(condition: float, singular: bool) -> str:
    remedy = (
        "Increase `alpha`, drop or combine features that are zero or repeat each other, scale them alike, "
        'or use variant="uncorrected", whose matrix is better conditioned.'
    )
    if singular:
        return (
            f"The system A + αI is singular to working precision (condition number {condition:.1e}); the weights are "
            f"those of least norm among its least-squares solutions. {remedy}"
        )
    digits = max(0.0, -np.log10(condition * _EPS))
    return (
        f"The system A + αI is ill-conditioned (condition number {condition:.1e}): about {digits:.0f} digits of the "
        f"weights are sure. {remedy}"
    )
