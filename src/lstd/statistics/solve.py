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

How much of the predictions the ridge term decides. Let θ(α) = (A + αD)⁻¹ b, D the penalties of the weights. For
symmetric A, bᵀθ is the mean square of the predictions plus that of the ridge term. The movement

    |bᵀ(θ(α/2) − θ(α))| / |bᵀθ(α)|

is (α/2)/(g + α/2) in a direction in which A is g: 0 where the data decide, 1 where the ridge term does. An intercept is
eliminated first, so that the movement is that about the mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from lstd._kernels.scales import balance
from lstd.data.feature_arrays import column_spread
from lstd.data.rows import Rows
from lstd.errors import IllConditionedWarning, InvalidInputError, RidgeWarning
from lstd.errors import warn as give_warning
from lstd.types import Array

_EPS = float(np.finfo(np.float64).eps)
_WARN_FROM = 1e10  # condition number from which fewer than five digits are correct
_NULL = 16.0 * _EPS  # singular value, relative to the largest and times n, up to which a direction is of the null space
_NEGLIGIBLE = 1e-8  # relative size of a quantity that is zero but for rounding
_NO_END = 1e-13  # mean of 1 − γ below which no end is reached
_LARGEST = 2.0**300  # of an entry while scales are sought, so that no sum overflows
_ROUNDING = 20.0 * _EPS  # of the sums and of the solution, relative; times the condition number it bounds the error
MOST = 0.5  # movement from which there is a warning; at most 0.3 for chosen settings on small data
_FAR, _LEAST = 2.0**-20, 2.0**-60  # factors of α, or of A if it is less, at which weights without a bound still grow
_ALIKE = 1e3  # ratio of penalties, by ranges, below which spreads need not be computed
_UNEQUAL, _ENTRIES, _ROWS = 1e6, 2**13, 64  # ratio of penalties from which there is a warning; what shows it
NOTHING = 1e-12  # share of bᵀθ that is rounding


@dataclass(frozen=True)
class Solution:
    """Weights, and how accurate they are."""

    weights: Annotated[Array, "n m"]
    condition_number: Annotated[float, (0.0, np.inf)]  # estimate, in the 1-norm, for S; infinite when singular
    singular: bool
    unbounded: bool = False  # the system is singular, and the weights grow without bound as the ridge term vanishes
    left_out: bool = False  # the system is singular, and solved without the column of ones, which repeats the others


def equilibration(M: Array) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return exponents r and c, (n,), that bring the absolute row and column sums of 2^r_i M_ij 2^c_j close together.

    They start from the diagonal, as for a Gram matrix, so that features scaled by powers of two give the same S; where
    that is zero, from the largest entry beside others. Then rows and columns are divided by their sums in turn
    (Sinkhorn and Knopp 1967). Rows and columns of zeros keep their scale.
    """
    size, known = np.abs(M), M.diagonal() != 0.0
    start = -(np.frexp(M.diagonal())[1] // 2)
    while not known.all():
        largest = (np.maximum(size, size.T)[:, known] * np.exp2(start[known])).max(axis=1, initial=0.0)
        found = ~known & (largest > 0.0)
        if not found.any():
            break
        start[found], known = -np.frexp(largest[found])[1], known | found
    factors = np.exp2(start)
    rows, columns = balance(np.minimum(size * factors[:, np.newaxis] * factors, _LARGEST))
    return start + np.rint(np.log2(rows)).astype(np.intp), start + np.rint(np.log2(columns)).astype(np.intp)


@np.errstate(over="ignore", invalid="ignore")  # `check_range` reports overflow
def solve(A: Array, b: Array, alpha: float | Array, *, penalty: Array | None = None, warn: bool = True) -> Solution:
    """Solve (A + diag(α)) θ = b.

    Parameters
    ----------
    A : ndarray of shape (n, n)
    b : ndarray of shape (n, m)
    alpha : float or ndarray of shape (n,)
        Ridge coefficient of all features, or of each.
    penalty : ndarray of shape (n,), optional
        Penalty of each weight in the vanishing ridge term of a singular system; by default 1 for all. Zero in the last
        place for the column of ones.
    warn : bool, default True
        Whether to give an IllConditionedWarning.

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
    np.einsum("ii->i", M)[...] += alpha  # the diagonal
    if not len(M):
        return Solution(np.zeros_like(b), 1.0, False)
    check_range(M, b)
    rows, columns = equilibration(M)
    S, right = np.ldexp(M, rows[:, np.newaxis] + columns), np.ldexp(b, rows[:, np.newaxis])
    check_range(S, right)
    factors, pivots, info = lapack.dgetrf(S)
    reciprocal = 0.0
    if info == 0:
        reciprocal, _ = lapack.dgecon(factors, np.abs(S).sum(axis=0).max(), norm="1")
    condition = 1.0 / reciprocal if reciprocal > 0.0 else np.inf
    singular, unbounded, left_out = not reciprocal > _EPS, False, False
    if condition > _WARN_FROM and penalty is not None and (limit := _without_ones(M, b, penalty)) is not None:
        weights, singular = limit.weights, limit.singular
        left_out = singular
        condition = np.inf if singular else limit.condition_number
    elif singular:
        weights, unbounded = _limit(M, b, np.ones(len(M)) if penalty is None else penalty)
        if unbounded and penalty is not None and (left_out := _ones_repeat(M, b, penalty)):
            weights = np.append(_limit(M[:-1, :-1], b[:-1], penalty[:-1])[0], np.zeros((1, b.shape[1])), axis=0)
    else:
        weights = np.ldexp(lapack.dgetrs(factors, pivots, right)[0], columns[:, np.newaxis])
    check_range(weights)
    if warn and condition > _WARN_FROM:
        n_unseen = int(np.sum(~M.any(axis=1) & ~b.any(axis=1)))
        give_warning(_message(condition, singular, unbounded, n_unseen, left_out), IllConditionedWarning)
    return Solution(weights, float(condition), singular, unbounded, left_out)


def without_rounding(A: Array, total_weight: float) -> Array:
    """Return A, (n, n), with zeros in the column of ones, the last one, if that is zero but for rounding.

    So it is in the sums of rows from which no end is reached at γ = 1.
    """
    if abs(A[-1, -1]) <= _NO_END * total_weight:
        A = A.copy()
        A[:, -1] = 0.0
    return A


def _without_ones(M: Array, b: Array, penalty: Array) -> Solution | None:
    """Solve a system in which the last column, without a penalty, repeats the others; None if it does not."""
    kept = _others(M, b, penalty)
    if kept is None:
        return None
    rest = solve(M[np.ix_(kept, kept)], np.column_stack([b[kept], M[kept, -1]]), 0.0, warn=False)
    theta, w = rest.weights[:, :-1], rest.weights[:, -1]
    weights = np.zeros_like(b)
    weights[kept] = theta
    if len(kept) < len(M) - 1:
        return Solution(weights, rest.condition_number, True)
    weighted = penalty[:-1] * w
    weights[-1] = weighted @ theta / (weighted @ w)
    weights[:-1] -= np.outer(w, weights[-1])
    return Solution(weights, rest.condition_number, False)


def ones_left_out(A: Array, b: Array) -> bool:
    """Return whether `solve` leaves out the last column, the only one without a penalty, at a vanishing ridge term."""
    penalty = np.asarray(np.arange(len(A)) < len(A) - 1, dtype=np.float64)
    return solve(A, b, 0.0, penalty=penalty, warn=False).left_out


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
    equations that are left must be well-conditioned; w is free where they are 0 = 0.
    """
    if len(M) < 2 or penalty[-1] != 0.0 or not penalty[:-1].any():
        return None
    kept = _equations(M, b, penalty)[:-1]
    free = np.setdiff1d(np.arange(len(M) - 1), kept)
    inner, rows = M[np.ix_(kept, kept)], np.column_stack([M, b])
    left = solve(inner.T, M[-1, kept, np.newaxis], 0.0, warn=False)
    w = left.weights[:, 0]
    if left.condition_number > _WARN_FROM or not w.any():
        return None
    right, size = M[kept, -1] - inner @ w, abs(inner) @ abs(w) + abs(M[kept, -1])
    if len(free):
        outer = M[np.ix_(kept, free)]
        right = right - outer @ np.linalg.lstsq(outer, right)[0]
    repeats = _equal(w @ rows[kept], rows[-1], abs(w) @ abs(rows[kept])) and _equal(right, 0.0, size)
    return kept if repeats else None


def _equal(one: Array, two: Array | float, size: Array) -> bool:
    """Return whether two arrays are equal but for rounding, relative to the size of their terms."""
    return bool((np.abs(one - two) <= _NEGLIGIBLE * size).all())


def _equations(M: Array, b: Array, penalty: Array) -> NDArray[np.intp]:
    """Return which equations are not 0 = 0, which leaves a penalised weight at zero, exactly."""
    kept = np.arange(len(M))
    while not (used := M[np.ix_(kept, kept)].any(axis=1) | b[kept].any(axis=1) | (penalty[kept] == 0.0)).all():
        kept = kept[used]
    return kept


def _limit(M: Array, b: Array, penalty: Array) -> tuple[Array, bool]:
    """Compute the limit of (M + ε diag(penalty))⁻¹ b as ε falls to zero; return it and whether it is unbounded."""
    kept = _equations(M, b, penalty)
    theta = np.zeros_like(b)
    theta[kept], unbounded = _limit_by_null_space(M[np.ix_(kept, kept)], b[kept], penalty[kept])
    return theta, unbounded


def _limit_by_null_space(M: Array, b: Array, penalty: Array) -> tuple[Array, bool]:
    if not len(M):
        return b, False
    rows, columns = equilibration(M)
    S, right = np.ldexp(M, rows[:, np.newaxis] + columns), np.ldexp(b, rows[:, np.newaxis])
    size = np.frexp(penalty)[1] + rows + columns
    penalty = np.ldexp(penalty, rows + columns - np.max(size, where=penalty > 0.0, initial=-(2**20)))  # at most one
    left, sizes, transposed = np.linalg.svd(S)
    rank = int(np.sum(sizes > _NULL * len(S) * sizes[0]))
    x = transposed[:rank].T @ ((left[:, :rank].T @ right) / sizes[:rank, np.newaxis])
    unbounded = False
    if rank < len(S):
        U, V = left[:, rank:], transposed[rank:].T
        weighted = U.T * penalty
        system, wanted = weighted @ V, weighted @ x
        check_range(x, wanted)
        c = np.linalg.lstsq(system, wanted, rcond=_NEGLIGIBLE)[0]
        outside = np.abs(U.T @ right).max(axis=0) > _NEGLIGIBLE * np.abs(right).max(axis=0)
        unsolved = np.abs(system @ c - wanted).max(axis=0) > _NEGLIGIBLE * np.abs(x).max(axis=0)
        unbounded = bool((outside | unsolved).any())
        x = x if unbounded else x - V @ c
    return np.ldexp(x, columns[:, np.newaxis]), unbounded


def check_range(*arrays: NDArray[np.floating[Any]]) -> None:
    """Raise InvalidInputError if sums or weights overflowed."""
    for array in arrays:
        if not np.isfinite(array).all():
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


def _message(
    condition: float, singular: bool, unbounded: bool = False, n_unseen: int = 0, left_out: bool = False
) -> str:
    remedy = "Increase `alpha`, or drop or combine features that are zero or repeat each other."
    if unbounded:
        return (
            f"The system A + αI is singular to working precision (condition number {condition:.1e}), and its weights "
            "grow without bound as the ridge term vanishes. The cause: at `gamma` 1, no end is reached from some rows. "
            "These weights are one solution of many. Drop these rows, or use a `gamma` below 1; without an intercept, "
            "a larger `alpha` bounds the weights."
        )
    if singular:
        zero = " without the intercept" if left_out else ""
        if n_unseen:
            zero += f": zero for the {n_unseen} feature{'s' * (n_unseen > 1)} that no full transition starts from"
        return (
            f"The system A + αI is singular to working precision (condition number {condition:.1e}); the weights are "
            f"those that a vanishing ridge term gives{zero}. {remedy}"
        )
    return (
        f"The system A + αI is ill-conditioned (condition number {condition:.1e}): with features on one scale, "
        f"{sure_digits(condition) or 'no'} digits of the largest weights are accurate. {remedy}"
    )


# ------------------------------------------------------------ the ridge term


def ridge_movement(
    A: Array, b: Array, ridge: Array, weights: Array, factor: float = 0.5, about_mean: bool = True, *,
    intercept: bool = False,
) -> Array:  # fmt: skip
    """Compute how far θ moves as the ridge term falls by a factor, relative to its size, (m,); 0 where it cannot.

    Parameters
    ----------
    A : ndarray of shape (n, n)
    b : ndarray of shape (n, m)
    ridge : ndarray of shape (n,)
        Ridge coefficient of each weight; zero in the last place for the column of ones.
    weights : ndarray of shape (n, m)
        θ(α).
    factor : float, default 0.5
    about_mean : bool, default True
        Whether the size leaves out the mean, which an intercept fits.
    intercept : bool, default False
        Whether the last weight is that of the column of ones.

    Examples
    --------
    >>> import numpy as np
    >>> from lstd.statistics.solve import ridge_movement
    >>> A, b = np.diag([3.0, 0.0]), np.eye(2)
    >>> ridge_movement(A, b, np.full(2, 2.0), np.diag([0.2, 0.5]))  # (α/2)/(3 + α/2) and 1
    array([0.25, 1.  ])
    """
    total = np.zeros(b.shape[1])
    if len(ridge) > 1 and intercept:
        if not A[-1, -1]:
            return total
        total = b[-1] ** 2 / abs(A[-1, -1])
        means = A[:-1, [-1]] / A[-1, -1]
        A, b = A[:-1] - means * A[-1], b[:-1] - means * b[-1]
        A, ridge, weights = A[:, :-1], ridge[:-1], weights[:-1]
    if not ridge.any():
        return np.zeros(b.shape[1])
    try:
        moved = np.linalg.solve(A + np.diag(factor * ridge), b)
    except np.linalg.LinAlgError:
        return np.zeros(b.shape[1])
    before, after = np.sum(b * weights, axis=0), np.sum(b * moved, axis=0)
    size, whole = np.abs(before), np.abs(before) + total
    some = size > NOTHING * whole
    moves = np.divide(np.abs(after - before), size if about_mean else whole, out=np.zeros_like(size), where=some)
    return np.asarray(moves)


@np.errstate(all="ignore")
def grows_without_bound(A: Array, b: Array, ridge: Array, weights: Array, *, intercept: bool) -> bool:
    """Return whether weights grow without bound as the ridge term falls; arguments are those of `ridge_movement`."""
    if not ridge.any():
        return False
    typical = float(np.mean(np.abs(A.diagonal()[ridge > 0.0]) / ridge[ridge > 0.0]))
    far = max(_FAR * min(1.0, typical), _LEAST)
    movement = ridge_movement(A, b, ridge, weights, far, intercept=intercept)
    return bool(np.nan_to_num(movement).max() > 2.0**-4 / far)


@np.errstate(all="ignore")
def warn_of_ridge(
    A: Array, b: Array, ridge: Array, weights: Array, gamma: float, *, intercept: bool, chosen: bool
) -> None:
    """Give a RidgeWarning if halving the ridge term moves predictions by more than half of their size.

    The size is about the mean, unless the ridge coefficient was chosen: useless features may then deserve a large one.
    """
    about_mean = intercept and not chosen
    moves = ridge_movement(A, b, ridge, weights, about_mean=about_mean, intercept=intercept)
    if np.nan_to_num(moves).max(initial=0.0) > MOST:
        grows = grows_without_bound(A, b, ridge, weights, intercept=intercept)
        warn_of_movement(moves, ridge, gamma, grows=grows, intercept=intercept, about_mean=about_mean)


def warn_of_movement(
    moves: Array, ridge: Array, gamma: float, *, grows: bool, intercept: bool, about_mean: bool
) -> None:
    """Give a RidgeWarning if predictions move too far; `grows` says that weights grow without bound."""
    movement = float(np.nan_to_num(moves).max(initial=0.0))
    if not movement > MOST:
        return
    if grows and gamma == 1.0:
        why = (
            "they grow without bound as `alpha` falls. At `gamma` 1 that happens in states from which no end is "
            "reached: their values are infinite. Drop these states, or use a `gamma` below 1"
        )
    elif grows:
        why = "they grow without bound as `alpha` falls, so the data do not determine them. Use fewer features"
    else:
        why = "the ridge term decides them, not the data. Use a smaller `alpha`"
        why += "" if intercept else ", or `fit_intercept` if values are far from zero"
        why += "; it may be 0 for some features" if np.sum(ridge > 0.0) > 1 else ""
    size = f"{100.0 * movement:.0f} % of their {'spread' if about_mean else 'size'}"
    give_warning(f"Halving `alpha` moves the predictions by {size}: {why}.", RidgeWarning)


@np.errstate(all="ignore")
def scales_doubt(rows: Rows, ridge: Array, intercept: bool) -> str:
    """Say which ridge coefficients, relative to the squared spreads of features, differ too much; empty if none do.

    `ridge` is (n,), without the column of ones. Spreads are those of some of the rows.
    """
    if not len(rows) or not len(ridge):
        return ""
    X = rows.X[:: max(1, len(rows) // max(_ROWS, _ENTRIES // len(ridge)))]
    if isinstance(X, np.ndarray):
        span = np.ptp(X, axis=0) if intercept else np.abs(X).max(axis=0)
        wide = (span[: len(ridge)] > 0.0) & (ridge > 0.0)
        relative = ridge[wide] / span[: len(ridge)][wide] ** 2
        if not relative.max(initial=0.0) > _ALIKE * relative.min(initial=np.inf):
            return ""
    _, spread, square = column_spread(X, about_zero=not intercept)[:, : len(ridge)]
    relative = np.where((square > 0.0) & (ridge > 0.0), ridge / spread, np.nan)
    if not np.nanmax(relative, initial=0.0) > _UNEQUAL * np.nanmin(relative, initial=np.inf):
        return ""
    names = rows.names or [f"x{j}" for j in range(len(ridge))]
    least, most = int(np.nanargmin(relative)), int(np.nanargmax(relative))
    return (
        f"`alpha` penalises {names[least]} {relative[most] / relative[least]:.1g} times less than {names[most]}: the "
        "squares of their spreads differ so much. Divide the columns by their spreads, or give `alpha` one number per "
        "column; LSTDCV, whose choice does not depend on scales, has them as `ridge_`."
    )
