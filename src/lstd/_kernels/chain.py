"""A walk along a Markov chain from numbers drawn beforehand."""

from __future__ import annotations

import numpy as np

from lstd._kernels.compilation import kernel


@kernel
def walk(cumulative, start, first, uniforms, restarts):  # type: ignore[no-untyped-def]
    """States (T + 1,) and terminations (T,) of a walk.

    `cumulative` (k, k + 1) and `start` (k,) are cumulative probabilities, the last column that of terminating:
    the outcome of a uniform u is the first index with u below its entry. `first` and `restarts` (T,) are
    the uniforms of the start states, `uniforms` (T,) those of the steps.
    """
    n_steps = len(uniforms)
    n_states = len(start)
    states = np.empty(n_steps + 1, np.int64)
    terminated = np.zeros(n_steps, np.bool_)
    states[0] = np.searchsorted(start, first, side="right")
    for t in range(n_steps):
        successor = np.searchsorted(cumulative[states[t]], uniforms[t], side="right")
        if successor == n_states:
            terminated[t] = True
            successor = np.searchsorted(start, restarts[t], side="right")
        states[t + 1] = successor
    return states, terminated
