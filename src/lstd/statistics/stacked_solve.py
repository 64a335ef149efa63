"""Solve many small systems (A + diag(ridge)) θ = b at once: the folds and ridge coefficients of a choice of settings.

A call of LAPACK for each small system takes longer than its arithmetic. So systems of one size go to LAPACK in one
stack, scaled as in :mod:`lstd.statistics.solve`, with the identity beside the right-hand sides: the inverses give the
condition numbers in the 1-norm. What needs more care is solved one by one: systems with a condition number of 10⁸ or
more, and those that may be singular.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lstd._kernels.scales import balance
from lstd.statistics.system import System
from lstd.types import Array, Flags

LARGEST_CONDITION = 1e8  # below it, weights agree with those of one system at a time to nine digits, mostly to eleven
_LARGEST = 2.0**300  # of an entry while scales are sought, so that no sum overflows


class Solutions(NamedTuple):
    """Solutions of K systems of n weights and m rewards with J ridge terms each."""

    weights: Array  # (K, J, n, m)
    conditions: Array  # (K, J): condition numbers of the scaled systems


def solve_for_ridges(systems: Sequence[System], ridges: Array, *, stacked: bool) -> Solutions:
    """Solve systems of one size, each with ridge terms of its own.

    Parameters
    ----------
    systems : sequence of K System
        `ridges` take the place of their ridge coefficients.
    ridges : ndarray of shape (K, J, n)
    stacked : bool
        Whether to solve well-conditioned systems in one stack. The results differ by rounding.

    Returns
    -------
    Solutions

    Raises
    ------
    InvalidInputError
        When the sums or the weights overflow.
    """
    n_systems, n_ridges, n = ridges.shape
    n_rewards = systems[0].b.shape[1]
    weights = np.empty((n_systems, n_ridges, n, n_rewards))
    conditions = np.full((n_systems, n_ridges), np.inf)
    if stacked:
        usual = _may_be_stacked(systems, ridges)
        if usual.any():
            weights[usual], conditions[usual] = _solve_stack(systems, ridges, usual)
    is_accurate = conditions < LARGEST_CONDITION
    for k, j in np.argwhere(~is_accurate).tolist():
        solution = systems[k].with_ridge(ridges[k, j]).solve()
        weights[k, j] = solution.weights
        conditions[k, j] = solution.condition_number
    return Solutions(weights, conditions)


def _may_be_stacked(systems: Sequence[System], ridges: Array) -> Flags:
    """Return which systems are finite, have a diagonal without zeros, and no column without an end, (K, J)."""
    usual = np.zeros(ridges.shape[:2], np.bool_)
    for k, system in enumerate(systems):
        if not (np.isfinite(system.A).all() and np.isfinite(system.b).all()):
            continue
        diagonal = system.A.diagonal()
        of_ridges = diagonal + ridges[k]
        is_usual = np.isfinite(of_ridges) & (of_ridges != 0.0)
        if system.rounding is not None:
            is_usual &= np.abs(diagonal) + ridges[k] > system.rounding
        usual[k] = is_usual.all(axis=1)
    return usual


def invert_for_ridges(systems: Sequence[System], ridges: Array) -> Solutions:
    """Invert A + diag(ridge) for systems of one size, each with ridge terms of its own, (K, J, n).

    Returns the inverses as weights (K, J, n, n). A condition number of 10⁸ or more, or infinite, means that the inverse
    is not to be used: the system needs the care of :meth:`System.solve`.
    """
    n_systems, n_ridges, n = ridges.shape
    inverses = np.zeros((n_systems, n_ridges, n, n))
    conditions = np.full((n_systems, n_ridges), np.inf)
    usual = _may_be_stacked(systems, ridges)
    if usual.any():
        inverses[usual], conditions[usual] = _invert_stack(systems, ridges, usual)
    return Solutions(inverses, conditions)


class _Scaled(NamedTuple):
    """Systems S = R M C, (s, n, n), with the exponents of R and C, (s, n)."""

    S: Array
    rows: NDArray[np.intp]
    columns: NDArray[np.intp]

    @classmethod
    def of(cls, systems: Sequence[System], ridges: Array, usual: Flags) -> _Scaled:
        """Add the ridge terms to the usual systems, and scale them."""
        of_system, _ = np.nonzero(usual)
        matrices = np.array([system.A for system in systems], order="C")
        M = matrices[of_system]
        diagonal = np.arange(ridges.shape[2])
        M[:, diagonal, diagonal] += ridges[usual]
        rows, columns = _equilibration(M)
        S = np.ldexp(M, rows[:, :, np.newaxis] + columns[:, np.newaxis])
        return cls(S, rows, columns)


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # what is not finite is solved again, and refused
def _solve_stack(systems: Sequence[System], ridges: Array, usual: Flags) -> tuple[Array, Array]:
    """Return the weights (s, n, m) and condition numbers (s,), infinite if they are not finite, of s usual systems."""
    of_system, _ = np.nonzero(usual)
    right_sides = np.stack([system.b for system in systems])
    b = right_sides[of_system]
    _, n, n_rewards = b.shape
    S, rows, columns = _Scaled.of(systems, ridges, usual)

    # one factorisation of each system gives its weights and its inverse
    right = np.ldexp(b, rows[:, :, np.newaxis])
    identity = np.broadcast_to(np.eye(n), S.shape)
    both = np.concatenate([right, identity], axis=2)
    try:
        solved = np.linalg.solve(S, both)
    except np.linalg.LinAlgError:  # some system is singular
        return np.zeros_like(b), np.full(len(b), np.inf)
    of_scaled = solved[:, :, :n_rewards]
    inverse = solved[:, :, n_rewards:]
    weights = np.ldexp(of_scaled, columns[:, :, np.newaxis])
    return weights, _conditions(S, inverse, weights)


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # what is not finite is not used
def _invert_stack(systems: Sequence[System], ridges: Array, usual: Flags) -> tuple[Array, Array]:
    """Return the inverses (s, n, n) and condition numbers (s,), infinite if they are not finite, of s usual systems."""
    S, rows, columns = _Scaled.of(systems, ridges, usual)
    try:
        of_scaled = np.asarray(np.linalg.inv(S), dtype=np.float64)
    except np.linalg.LinAlgError:  # some system is singular
        return np.zeros_like(S), np.full(len(S), np.inf)
    exponents = columns[:, :, np.newaxis] + rows[:, np.newaxis]
    inverses = np.ldexp(of_scaled, exponents)  # M⁻¹ = C S⁻¹ R
    return inverses, _conditions(S, of_scaled, inverses)


def _conditions(S: Array, inverse: Array, solved: Array) -> Array:
    """Return the condition number of each system (s,); infinite where what was solved for is not finite."""
    conditions = _norms(S) * _norms(inverse)
    is_finite = np.isfinite(solved).all(axis=(1, 2))
    is_finite &= np.isfinite(conditions)
    return np.where(is_finite, conditions, np.inf)


def _norms(matrices: Array) -> Array:
    """Return the 1-norm of each matrix of a stack, (s,)."""
    column_sums = np.abs(matrices).sum(axis=1)
    return np.asarray(column_sums.max(axis=1))


def _equilibration(M: Array) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return exponents r and c, (s, n), as :func:`lstd.statistics.solve.equilibration` does for each matrix."""
    diagonal = M.diagonal(axis1=1, axis2=2)
    _, size_of_diagonal = np.frexp(diagonal)
    start = -(size_of_diagonal // 2)
    factors = np.exp2(start)
    scaled = np.abs(M) * factors[:, :, np.newaxis] * factors[:, np.newaxis]
    limited = np.minimum(scaled, _LARGEST)
    scales = np.empty((len(limited), 2, limited.shape[1]))
    sums = np.empty(scales.shape[1:])
    for size, own_scales in zip(limited, scales, strict=True):
        balance(size, own_scales, sums)
    exponents = np.rint(np.log2(scales)).astype(np.intp)
    exponents += start[:, np.newaxis]
    return exponents[:, 0], exponents[:, 1]
