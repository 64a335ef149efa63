"""Marks of rewards and weights: Σ_t gᵗ Σ_j k_j bits(r_tj) modulo 2⁶⁴; see `lstd.statistics.fingerprints`."""

from __future__ import annotations

import numpy as np

from lstd._kernels.compilation import kernel


@kernel
def add_reward_marks(rewards, weights, full, factors, g, state):  # type: ignore[no-untyped-def]
    """Add full transitions to the mark and multiply the power gᵗ, the entries of `state` (2,).

    Parameters: the bits of floats as integers, `rewards` (T, m) and `weights` (T,) or (1,) for all rows; `full` (T,);
    `factors` (1 + m,), k_j of the weight and of the rewards. All but `full` have dtype uint64.
    """
    mark, power, same = state[0], state[1], len(weights) == 1
    high, low = np.uint64(52), np.uint64(12)  # the lowest bits then differ between small integers and halves
    for t in range(len(full)):
        if full[t]:
            bits = weights[0 if same else t]
            term = factors[0] * (bits >> high | bits << low)
            for j in range(rewards.shape[1]):
                bits = rewards[t, j]
                term += factors[j + 1] * (bits >> high | bits << low)
            mark += power * term
            power *= g
    state[0], state[1] = mark, power
