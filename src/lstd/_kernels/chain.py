"""Walks along a Markov chain, from random numbers drawn beforehand."""

from __future__ import annotations

import numpy as np

from lstd._kernels.compilation import kernel


@kernel
def walk(cumulative, start, first, uniforms, restarts):  # type: ignore[no-untyped-def]
    """Return the states (T + 1,) and terminations (T,) of a walk.

    `cumulative` (k, k + 1) and `start` (k,) are cumulative probabilities; the last column is that of termination. A
    uniform number u selects the first index whose entry exceeds u. `uniforms` (T,) select successors, `first` and
    `restarts` (T,) the states in which the walk and later episodes start.
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
