"""The weights of all horizons for many parts of the data, such as the data without each block or fold.

A call of LAPACK for each small system takes longer than its arithmetic, and so does a call for each step of its
recursion. So systems are solved in stacks that the cache holds, and their recursions run side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

import numpy as np

from lstd.statistics.horizon_sums import HorizonSolution, LagSums, weights_of_recursions
from lstd.statistics.stacked_solve import solve_for_ridges
from lstd.statistics.system import System
from lstd.types import Array

BYTES = 2**18  # of the sums of parts that are solved at a time: larger stacks leave the cache
_FEWEST = 4  # systems of a stack; solving fewer is faster one by one


def weights_of_parts(
    parts: Iterable[LagSums], lmbda: float, ridge_of: Callable[[LagSums], Array], penalty: Array, *, intercept: bool
) -> Array:
    """Compute the weights of all horizons for each of E parts of the data, at least one.

    Parameters
    ----------
    parts : iterable of LagSums
        Of n features with the column of ones, m rewards and the horizon H; drawn some at a time.
    lmbda : float
    ridge_of : callable
        Returns the ridge coefficients for the sums of a part, (n,); zero for the column of ones.
    penalty, intercept
        As in :func:`lstd.statistics.horizon_grid.weights_of_grid`.

    Returns
    -------
    ndarray of shape (E, H, n, m)

    Raises
    ------
    InvalidInputError
        When sums or weights overflow.
    """
    weights = []
    for some in _batches(parts):
        systems = [part.system(lmbda, ridge_of(part), penalty, intercept=intercept) for part in some]
        horizon = len(some[0].full)
        if len(systems) < _FEWEST:
            weights += [HorizonSolution.of_system(system, horizon).run() for system in systems]
        else:
            weights += [*_of_stack(systems, horizon)]
    return np.array(weights)


def _batches(parts: Iterable[LagSums]) -> Iterator[list[LagSums]]:
    """Yield some parts at a time, which the cache holds, or one."""
    drawn = iter(parts)
    for first in drawn:
        most = max(1, BYTES // first.full.nbytes)
        yield [first, *islice(drawn, most - 1)]


def _of_stack(systems: Sequence[System], horizon: int) -> Array:
    """Return the weights of all horizons for each of E systems, (E, H, n, m)."""
    ridges = np.array([system.ridge for system in systems])
    solutions = solve_for_ridges(systems, ridges[:, np.newaxis], stacked=True)
    n_systems, n = ridges.shape
    solved = solutions.weights.reshape(n_systems, n, horizon, -1)
    matrices = np.ascontiguousarray(solved[..., :n])
    constants = solved[..., n:].swapaxes(1, 2)
    side_by_side = matrices.reshape(n_systems, n, horizon * n)
    return weights_of_recursions(np.cumsum(constants, axis=1), side_by_side)
