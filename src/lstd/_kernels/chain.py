"""Walks along a Markov chain, from random numbers drawn beforehand."""

from __future__ import annotations

import math

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


@kernel
def deal(numbers, signed, squares, noisy, random_start, uniforms, normals, restarts):  # type: ignore[no-untyped-def]
    """Deal out the uniform `numbers` as `RandomState` does; return whether there were enough.

    Each step takes a uniform, then a normal if `noisy`, then a uniform if `random_start`, which also takes one before
    the first step. A pair of numbers u, v makes two normals (Marsaglia's polar method): with x = 2u − 1 and y = 2v − 1,
    `signed` and `squares` if squared, it is dropped unless 0 < x² + y² = r < 1, and f y and then f x are normal,
    f = √(−2 log(r) / r).
    """
    i = 1 if random_start else 0
    spare = 0.0
    has_spare = False
    for t in range(len(uniforms)):
        if i >= len(numbers):
            return False
        uniforms[t] = numbers[i]
        i += 1
        if noisy and has_spare:
            normals[t] = spare
            has_spare = False
        elif noisy:
            r = 0.0
            while not 0.0 < r < 1.0:
                if i + 2 > len(numbers):
                    return False
                r = squares[i] + squares[i + 1]
                i += 2
            factor = math.sqrt(-2.0 * math.log(r) / r)
            normals[t] = factor * signed[i - 1]
            spare = factor * signed[i - 2]
            has_spare = True
        if random_start:
            if i >= len(numbers):
                return False
            restarts[t] = numbers[i]
            i += 1
    return True
