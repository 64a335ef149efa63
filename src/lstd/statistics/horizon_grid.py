"""The weights of all horizons for a grid of trace decays λ and ridge coefficients α, as a choice needs them.

In the recursion of :mod:`lstd.statistics.horizon_sums`,

    θ_h = (C_0 + αI)⁻¹ Σ_{k<h} λᵏ [b_k + ((1−λ) C_{k+1} + H_{k+1}) θ_{h−1−k}],   θ_0 = 0,

the matrix depends on α alone, and the right-hand side is one matrix product for all α. So one inverse for each α serves
all λ and horizons, and each step of the recursion is a product for many pairs.
"""

from __future__ import annotations

import numpy as np

from lstd.statistics.horizon_sums import HorizonSolution, LagSums
from lstd.statistics.solve import check_range
from lstd.statistics.stacked_solve import LARGEST_CONDITION, invert_for_ridges
from lstd.types import Array

BYTES = 2**25  # of the sums that are weighted by λ at a time


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
