"""From (A, b, α) to weights, the condition number, and what went wrong.

The system M = A + αI is factorised, never inverted, after its rows and columns are multiplied by powers of two that
bring their absolute sums close together:

    S = R M C,   S x = R b,   θ = C x

Powers of two do not round. So the scale of the features matters only through the ridge term. The condition number and
every message refer to S.

A singular system has the weights that a vanishing ridge term gives, the limit of (M + εD)⁻¹ b as ε falls to zero, with
D the diagonal matrix of the penalties. Let the columns of U and V span the left and the right null space of S, and let
x₀ be its solution of least norm. The terms of order ε of (S + ε D') x = R b, with D' = R D C, have a solution where

    Uᵀ D' (x₀ + V c) = 0,   x = x₀ + V c.

The weights grow without bound instead if Uᵀ R b ≠ 0 or Uᵀ D' V is singular; then the result has c = 0.

The column of ones, which has no penalty, repeats one-hot features: there are w with Xw = 1. Then (w, −1) spans both
null spaces, and no prediction depends on it. With x₀ = (θ, 0), θ the weights without that column, the limit has the
intercept wᵀDθ / wᵀDw, and the condition number is that of the system without it.

A state seen only in horizon rows leaves the equation 0 = 0; in the limit its prediction would be the intercept, which
no data determine. Then, and where weights grow without bound, we solve without the column of ones: the weights are
(θ, 0), θ the limit without it. The test is that (w, −1) is in both null spaces, and that the system without the ones
and the equations 0 = 0 is well-conditioned. Where weights grow, an intercept would spread the growth over all states,
those with well-determined values included.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from lstd._kernels.scales import balance
from lstd.errors import IllConditionedWarning, InvalidInputError, warn
from lstd.types import Array

_EPS = float(np.finfo(np.float64).eps)
_WARN_FROM = 1e10  # condition number from which fewer than five digits are correct
_NULL = 16.0 * _EPS  # singular value, relative to the largest and times n, up to which a direction is of the null space
_NEGLIGIBLE = 1e-8  # relative size of a quantity that is zero but for rounding
_LARGEST = 2.0**300  # of an entry while scales are sought, so that no sum overflows
_ROUNDING = 20.0 * _EPS  # of the sums and of the solution, relative; times the condition number it bounds the error


class Outcome(Enum):
    """How a system of equations determines its weights."""

    SOLVED = "solved"
    LIMIT = "limit"  # the system is singular; a vanishing ridge term gives these weights
    UNBOUNDED = "unbounded"  # the system is singular, and as the ridge term vanishes, weights grow without bound

    def packed(self) -> str:
        """Return the name that files have."""
        return self.value

    @classmethod
    def unpacked(cls, name: Any) -> Self:
        """Return the outcome of that name."""
        return cls(name)


@dataclass(frozen=True)
class Solution:
    """Weights, and how accurate they are."""

    weights: Annotated[Array, "n m"]
    condition_number: Annotated[float, (0.0, np.inf)]  # estimate, in the 1-norm, for S; infinite when singular
    outcome: Outcome = Outcome.SOLVED
    without_ones: bool = False  # the system is singular, and solved without the column of ones, which repeats others

    @property
    def singular(self) -> bool:
        """Whether the system is singular to working precision."""
        return self.outcome is not Outcome.SOLVED

    @property
    def unbounded(self) -> bool:
        """Whether the weights grow without bound as the ridge term vanishes."""
        return self.outcome is Outcome.UNBOUNDED

    @property
    def is_accurate(self) -> bool:
        """Whether at least five digits are correct."""
        return self.condition_number <= _WARN_FROM


def equilibration(M: Array) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return exponents r and c, (n,), that bring the absolute row and column sums of 2^r_i M_ij 2^c_j close together.

    They start from the diagonal, as for a Gram matrix, so that features scaled by powers of two give the same S; where
    that is zero, from the largest entry beside others. Then rows and columns are divided by their sums in turn
    (Sinkhorn and Knopp 1967). Rows and columns of zeros keep their scale.
    """
    size = np.abs(M)
    diagonal = M.diagonal()
    _, exponents = np.frexp(diagonal)
    start = -(exponents // 2)
    known = diagonal != 0.0  # where the scale is found
    while np.count_nonzero(known) < len(known):
        beside_known = np.maximum(size, size.T)[:, known] * np.exp2(start[known])
        largest = beside_known.max(axis=1, initial=0.0)
        is_new = ~known & (largest > 0.0)
        if not is_new.any():
            break
        _, exponents = np.frexp(largest[is_new])
        start[is_new] = -exponents
        known = known | is_new
    factors = np.exp2(start)
    scaled = np.minimum(size * factors[:, np.newaxis] * factors, _LARGEST)
    scales, sums = np.empty((2, 2, len(M)))
    balance(scaled, scales, sums)
    row_exponents, column_exponents = start + np.rint(np.log2(scales)).astype(np.intp)
    return row_exponents, column_exponents


class _Factors(NamedTuple):
    """The factorised system S = R M C."""

    lu: Array
    pivots: NDArray[np.intp]
    rows: NDArray[np.intp]  # exponents of R
    columns: NDArray[np.intp]  # exponents of C
    condition_number: float  # of S; infinite if it is singular to working precision

    @classmethod
    def of(cls, M: Array) -> Self:
        """Factorise a matrix, (n, n)."""
        rows, columns = equilibration(M)
        S = np.ldexp(M, rows[:, np.newaxis] + columns)
        check_range(S)
        lu, pivots, info = lapack.dgetrf(S)
        reciprocal = 0.0
        if info == 0:
            norm = lapack.dlange("I", S.T)  # the 1-norm of S, whose rows follow one another in memory
            reciprocal, _ = lapack.dgecon(lu, norm, norm="1")
        condition = np.inf
        if reciprocal > 0.0:
            condition = 1.0 / reciprocal
        return cls(lu, pivots, rows, columns, float(condition))

    def is_singular(self, rounding: float) -> bool:
        """Return whether the system is singular but for the relative rounding of its entries."""
        return not 1.0 / self.condition_number > rounding

    def solve(self, b: Array) -> Array:
        """Solve M x = b, (n, m)."""
        right = np.ldexp(b, self.rows[:, np.newaxis])
        check_range(right)
        x, _ = lapack.dgetrs(self.lu, self.pivots, right)
        return np.asarray(np.ldexp(x, self.columns[:, np.newaxis]))


@np.errstate(over="ignore", invalid="ignore")  # `check_range` reports overflow
def solve(A: Array, b: Array, ridge: float | Array, penalty: Array, rounding: float = _EPS) -> Solution:
    """Solve (A + diag(ridge)) θ = b.

    :class:`lstd.statistics.system.System` has these arguments together.

    Parameters
    ----------
    A : ndarray of shape (n, n)
    b : ndarray of shape (n, m)
    ridge : float or ndarray of shape (n,)
        Ridge coefficient of all features, or of each.
    penalty : ndarray of shape (n,)
        Penalty of each weight in the vanishing ridge term of a singular system; zero in the last place for the column
        of ones.
    rounding : float, optional
        Relative size of singular values that are zero but for rounding; larger where terms of the sums cancel.

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
    >>> solve(np.diag([1.0, 3.0]), np.array([[2.0], [4.0]]), 1.0, np.ones(2)).weights.ravel()
    array([1., 1.])
    """
    M = A.copy()
    np.einsum("ii->i", M)[...] += ridge  # the diagonal
    if not len(M):
        return Solution(np.zeros_like(b), 1.0)
    check_range(M, b)
    factors = _Factors.of(M)
    solution = None
    if factors.condition_number > _WARN_FROM:
        solution = _without_ones(M, b, penalty)
    if solution is None and factors.is_singular(rounding):
        solution = _limit_of(M, b, penalty, factors.condition_number, rounding)
    if solution is None:
        solution = Solution(factors.solve(b), factors.condition_number)
    check_range(solution.weights)
    return solution


def warn_of_condition(solution: Solution, M: Array, b: Array) -> None:
    """Give an IllConditionedWarning if fewer than five digits of the solution of M θ = b are correct."""
    if solution.is_accurate:
        return
    n_unseen = int(np.sum(~M.any(axis=1) & ~b.any(axis=1)))
    warn(_message(solution, n_unseen), IllConditionedWarning)


def _without_ones(M: Array, b: Array, penalty: Array) -> Solution | None:
    """Solve a system in which the last column, without a penalty, repeats the others; None if it does not."""
    kept = _others(M, b, penalty)
    if kept is None:
        return None
    right = np.column_stack([b[kept], M[kept, -1]])
    rest = solve(M[np.ix_(kept, kept)], right, 0.0, np.ones(len(kept)))
    theta = rest.weights[:, :-1]
    w = rest.weights[:, -1]
    weights = np.zeros_like(b)
    weights[kept] = theta
    if len(kept) < len(M) - 1:
        return Solution(weights, np.inf, Outcome.LIMIT, without_ones=True)
    weighted = penalty[:-1] * w
    weights[-1] = weighted @ theta / (weighted @ w)
    weights[:-1] -= np.outer(w, weights[-1])
    return Solution(weights, rest.condition_number)


def _limit_of(M: Array, b: Array, penalty: Array, condition: float, rounding: float) -> Solution:
    """Return the weights of a singular system that a vanishing ridge term gives."""
    weights, unbounded = _limit(M, b, penalty, rounding)
    if not unbounded:
        return Solution(weights, condition, Outcome.LIMIT)
    without_ones = _ones_repeat(M, b, penalty)
    if without_ones:
        weights[:-1], _ = _limit(M[:-1, :-1], b[:-1], penalty[:-1], rounding)
        weights[-1] = 0.0
    return Solution(weights, condition, Outcome.UNBOUNDED, without_ones)


def _ones_repeat(M: Array, b: Array, penalty: Array) -> bool:
    """Return whether the last column, without a penalty, repeats the others: see `_others`; M may be singular."""
    if len(M) < 2 or penalty[-1] != 0.0 or not penalty[:-1].any():
        return False
    terms = np.vstack([M[:, :-1], M[:-1].T, b[:-1].T])  # times w, if it exists, they are:
    wanted = np.concatenate([M[:, -1], M[-1], b[-1]])
    w = np.linalg.lstsq(terms, wanted)[0]
    return _equal(terms @ w, wanted, abs(terms) @ abs(w) + abs(wanted))


def _others(M: Array, b: Array, penalty: Array) -> NDArray[np.intp] | None:
    """Return the other equations but 0 = 0 if the last column, without a penalty, repeats the others; else None.

    It repeats them if w exists such that (w, −1) is orthogonal to the columns of M and b and to the rows of M. The
    equations that are left must be well-conditioned; where they are 0 = 0, w may be anything.
    """
    if len(M) < 2 or penalty[-1] != 0.0 or not penalty[:-1].any():
        return None
    kept = _equations(M, b, penalty)[:-1]
    empty = np.setdiff1d(np.arange(len(M) - 1), kept)  # equations 0 = 0
    inner = M[np.ix_(kept, kept)]

    # wᵀ M = the last row of M determines w
    left = solve(inner.T, M[-1, kept, np.newaxis], 0.0, np.ones(len(kept)))
    w = left.weights[:, 0]
    if left.condition_number > _WARN_FROM or not w.any():
        return None
    # M (w, −1) must be zero, for some entries of w at the equations 0 = 0
    residual = M[kept, -1] - inner @ w
    size = abs(inner) @ abs(w) + abs(M[kept, -1])
    if len(empty):
        outer = M[np.ix_(kept, empty)]
        residual = residual - outer @ np.linalg.lstsq(outer, residual)[0]
    if not _equal(residual, 0.0, size):
        return None
    # and so must (w, −1)ᵀ (M, b)
    rows = np.column_stack([M, b])
    if not _equal(w @ rows[kept], rows[-1], abs(w) @ abs(rows[kept])):
        return None
    return kept


def _equal(one: Array, two: Array | float, size: Array) -> bool:
    """Return whether two arrays are equal but for rounding, relative to the size of their terms."""
    return bool((np.abs(one - two) <= _NEGLIGIBLE * size).all())


def _equations(M: Array, b: Array, penalty: Array) -> NDArray[np.intp]:
    """Return which equations are not 0 = 0, which leaves a penalised weight at zero, exactly."""
    kept = np.arange(len(M))
    while True:  # without the columns of some equations, others may be 0 = 0
        has_entries = M[np.ix_(kept, kept)].any(axis=1) | b[kept].any(axis=1)
        used = has_entries | (penalty[kept] == 0.0)
        if used.all():
            return kept
        kept = kept[used]


def _limit(M: Array, b: Array, penalty: Array, rounding: float) -> tuple[Array, bool]:
    """Compute the limit of (M + ε diag(penalty))⁻¹ b as ε falls to zero; return it and whether it is unbounded."""
    kept = _equations(M, b, penalty)
    theta = np.zeros_like(b)
    theta[kept], unbounded = _limit_by_null_space(M[np.ix_(kept, kept)], b[kept], penalty[kept], rounding)
    return theta, unbounded


def _limit_by_null_space(M: Array, b: Array, penalty: Array, rounding: float) -> tuple[Array, bool]:
    """Compute `_limit` as the header of this module says, for a system without equations 0 = 0."""
    if not len(M):
        return b, False
    rows, columns = equilibration(M)
    S = np.ldexp(M, rows[:, np.newaxis] + columns)
    right = np.ldexp(b, rows[:, np.newaxis])
    scaled_penalty = _scaled_penalty(penalty, rows + columns)
    left, sizes, transposed = np.linalg.svd(S)
    negligible = max(_NULL * len(S), rounding) * sizes[0]
    rank = int(np.sum(sizes > negligible))
    along = (left[:, :rank].T @ right) / sizes[:rank, np.newaxis]
    x = transposed[:rank].T @ along  # the solution of least norm, x₀
    unbounded = False
    if rank < len(S):
        U = left[:, rank:]
        V = transposed[rank:].T
        weighted = U.T * scaled_penalty  # Uᵀ D'
        system = weighted @ V
        wanted = weighted @ x
        check_range(x, wanted)
        c = np.linalg.lstsq(system, wanted, rcond=_NEGLIGIBLE)[0]
        outside = np.abs(U.T @ right).max(axis=0) > _NEGLIGIBLE * np.abs(right).max(axis=0)
        unsolved = np.abs(system @ c - wanted).max(axis=0) > _NEGLIGIBLE * np.abs(x).max(axis=0)
        unbounded = bool((outside | unsolved).any())
        if not unbounded:
            x = x - V @ c  # `c` has the opposite sign of that of the header
    return np.ldexp(x, columns[:, np.newaxis]), unbounded


def _scaled_penalty(penalty: Array, exponents: NDArray[np.intp]) -> Array:
    """Return the diagonal of D' = R D C, times a power of two so that it is at most one."""
    sizes = np.frexp(penalty)[1] + exponents
    largest = np.max(sizes, where=penalty > 0.0, initial=-(2**20))
    return np.asarray(np.ldexp(penalty, exponents - largest))


def null_space(M: Array, rounding: float) -> Array:
    """Return vectors, (n, k), whose product with M is zero but for the relative rounding of its entries."""
    if not _Factors.of(M).is_singular(rounding):
        return np.empty((len(M), 0))
    rows, columns = equilibration(M)
    _, sizes, transposed = np.linalg.svd(np.ldexp(M, rows[:, np.newaxis] + columns))
    negligible = max(_NULL * len(M), rounding) * sizes[0]
    return np.asarray(np.ldexp(transposed[sizes <= negligible].T, columns[:, np.newaxis]))


def check_range(*arrays: NDArray[np.floating[Any]]) -> None:
    """Raise InvalidInputError if sums or weights overflowed."""
    for array in arrays:
        if np.count_nonzero(np.isfinite(array)) < array.size:  # in less time than `all` takes for small arrays
            raise InvalidInputError(
                "The sums over the data, or the weights, must be below 1e308; they overflowed. Scale features and "
                "rewards (`X`, `y`) to order 1, and look for huge values in them and in the importance ratios, if any."
            )


def sure_digits(condition: float) -> int:
    """Count the decimal digits of the largest weights that rounding leaves, with features scaled alike.

    Examples
    --------
    >>> sure_digits(1e10)
    4
    """
    return max(0, math.floor(-math.log10(condition * _ROUNDING)))


def _message(solution: Solution, n_unseen: int) -> str:
    """Say what is wrong with a system of which `n_unseen` equations are 0 = 0, and what to do."""
    condition = solution.condition_number
    remedy = "Increase `alpha`, or drop or combine features that are zero or repeat each other."
    if solution.outcome is Outcome.SOLVED:
        digits = sure_digits(condition) or "no"
        return (
            f"The system A + αI is ill-conditioned (condition number {condition:.1e}): with features on one scale, "
            f"{digits} digits of the largest weights are accurate. {remedy}"
        )
    singular = f"The system A + αI is singular to working precision (condition number {condition:.1e})"
    if solution.outcome is Outcome.UNBOUNDED:
        return (
            f"{singular}, and its weights grow without bound as the ridge term vanishes. The cause: at `gamma` 1, no "
            "end is reached from some rows. These weights are one solution of many. Drop these rows, or use a `gamma` "
            "below 1; without an intercept, a larger `alpha` bounds the weights."
        )
    but = ""
    if solution.without_ones:
        but = " without the intercept"
    if n_unseen:
        features = "feature"
        if n_unseen > 1:
            features = "features"
        but += f": zero for the {n_unseen} {features} that no full transition starts from"
    return f"{singular}; the weights are those that a vanishing ridge term gives{but}. {remedy}"
