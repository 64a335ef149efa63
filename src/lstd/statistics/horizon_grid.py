"""The weights of all horizons of many systems: of a grid of trace decays λ and ridge coefficients α, or of many parts.

A choice needs the first, and influences of blocks and held-out folds the second: the data without each of them.

In the recursion of :mod:`lstd.statistics.horizon_sums`,

    θ_h = (C_0 + αI)⁻¹ Σ_{k<h} λᵏ [b_k + ((1−λ) C_{k+1} + H_{k+1}) θ_{h−1−k}],   θ_0 = 0,

the matrix depends on α alone, and the right-hand side is one matrix product for all α. So one inverse for each α serves
all λ and horizons, and each step of the recursion is a product for many pairs. The systems of small parts are solved in
one stack, and their recursions run side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import numpy as np

from lstd.statistics.horizon_sums import HorizonSolution, LagSums, weights_of_recursions
from lstd.statistics.solve import check_range
from lstd.statistics.stacked_solve import LARGEST_CONDITION, invert_for_ridges, solve_for_ridges
from lstd.types import Array

BYTES = 2**25  # of the sums that are weighted by λ at a time
BYTES_OF_PARTS = 2**18  # of the sums of parts that are solved at a time: larger stacks leave the cache
_FEWEST = 4  # parts of a stack; solving fewer is faster one by one


def weights_of_grid(sums: LagSums, lmbdas: Array, ridges: Array, penalty: Array, *, intercept: bool) -> Array:
    """Compute the weights of all horizons for each pair of a trace decay and a ridge term.

    Parameters
    ----------
    sums : LagSums
        Of n features with the column of ones, m rewards and the horizon H.
    lmbdas : ndarray of shape (L,)
    ridges : ndarray of shape (J, n)
        Ridge coefficients of each feature; zero for the column of ones.
    penalty : ndarray of shape (n,)
        Penalty of each weight in a vanishing ridge term.
    intercept : bool
        Whether the last feature is the column of ones.

    Returns
    -------
    ndarray of shape (L, J, H, n, m)

    Raises
    ------
    InvalidInputError
        When weights overflow.
    """
    horizon, n, width = sums.full.shape
    weights = np.empty((len(lmbdas), len(ridges), horizon, n, width - n))
    system = sums.system(0.0, ridges[0], penalty, intercept=intercept)
    inverses, conditions = invert_for_ridges([system], ridges[np.newaxis])
    is_accurate = conditions[0] < LARGEST_CONDITION
    if is_accurate.any():
        step = max(1, BYTES // (8 * horizon * n * width))
        for first in range(0, len(lmbdas), step):
            part = slice(first, first + step)
            weights[part, is_accurate] = _run(sums, lmbdas[part], inverses[0, is_accurate])
    for j in np.flatnonzero(~is_accurate).tolist():
        for i, lmbda in enumerate(lmbdas.tolist()):
            careful = sums.system(lmbda, ridges[j], penalty, intercept=intercept)
            weights[i, j] = HorizonSolution.of_system(careful, horizon).run()
    return weights


@np.errstate(over="ignore", invalid="ignore")  # `check_range` reports overflow
def _run(sums: LagSums, lmbdas: Array, inverses: Array) -> Array:
    """Run the recursion for L trace decays and J inverses (J, n, n); return the weights (L, J, H, n, m)."""
    horizon, n, width = sums.full.shape
    n_rewards = width - n
    n_ridges = len(inverses)
    decayed = np.stack([sums.decayed(lmbda) for lmbda in lmbdas.tolist()])  # (L, H, n, n + m)
    of_rewards = np.cumsum(decayed[..., n:], axis=1)  # (L, H, n, m)
    by_row = decayed[..., :n].transpose(0, 2, 1, 3)  # (L, n, H, n)
    matrices = by_row.reshape(len(lmbdas), n, horizon * n)  # side by side
    # θ of all ridges and rewards side by side, J m columns
    backwards = np.zeros((len(lmbdas), (horizon + 1) * n, n_ridges * n_rewards))  # θ_H, …, θ_1, θ_0
    for h in range(1, horizon + 1):
        place = (horizon - h) * n
        later = backwards[:, place + n : place + n + h * n]  # θ_{h−1}, …, θ_0
        right = (matrices[:, :, : h * n] @ later).reshape(len(lmbdas), n, n_ridges, n_rewards)
        right += of_rewards[:, h - 1, :, np.newaxis]
        by_ridge = right.transpose(2, 1, 0, 3).reshape(n_ridges, n, -1)  # (L, n, J, m) to (J, n, L m)
        theta = (inverses @ by_ridge).reshape(n_ridges, n, len(lmbdas), n_rewards)
        by_lmbda = theta.transpose(2, 1, 0, 3)  # (J, n, L, m) to (L, n, J, m)
        backwards[:, place : place + n] = by_lmbda.reshape(len(lmbdas), n, -1)
    longest_first = backwards[:, : horizon * n].reshape(len(lmbdas), horizon, n, n_ridges, n_rewards)
    weights = longest_first[:, ::-1]
    check_range(weights)
    return weights.transpose(0, 3, 1, 2, 4)  # (L, H, n, J, m) to (L, J, H, n, m)


def weights_of_parts(
    parts: Iterable[LagSums], lmbda: float, ridge_of: Callable[[LagSums], Array], penalty: Array, *, intercept: bool
) -> Array:
    """Compute the weights of all horizons for each of E parts of the data, at least one.

    Parameters
    ----------
    parts : iterable of LagSums
        Of n features with the column of ones, m rewards and the horizon H; drawn as far as memory allows.
    lmbda : float
    ridge_of : callable
        Returns the ridge coefficients of a part, (n,); zero for the column of ones.
    penalty, intercept
        As in :func:`weights_of_grid`.

    Returns
    -------
    ndarray of shape (E, H, n, m)

    Raises
    ------
    InvalidInputError
        When sums or weights overflow.
    """
    weights: list[Array] = []
    for some in _batches(parts):
        horizon, n, width = some[0].full.shape
        ridges = np.array([ridge_of(part) for part in some])
        systems = [
            part.system(lmbda, ridge, penalty, intercept=intercept) for part, ridge in zip(some, ridges, strict=True)
        ]
        if len(some) < _FEWEST:
            weights += [HorizonSolution.of_system(system, horizon).run()[np.newaxis] for system in systems]
            continue
        solutions = solve_for_ridges(systems, ridges[:, np.newaxis], stacked=True)
        solved = solutions.weights.reshape(len(some), n, horizon, width)
        matrices = np.ascontiguousarray(solved[..., :n]).reshape(len(some), n, horizon * n)
        constants = solved[..., n:].swapaxes(1, 2)
        weights.append(weights_of_recursions(np.cumsum(constants, axis=1), matrices))
    return np.concatenate(weights)


def _batches(parts: Iterable[LagSums]) -> Iterator[list[LagSums]]:
    """Yield some parts at a time, whose sums take little memory, or one."""
    drawn = iter(parts)
    for first in drawn:
        most = max(1, BYTES_OF_PARTS // first.full.nbytes)
        yield [first, *islice(drawn, most - 1)]
