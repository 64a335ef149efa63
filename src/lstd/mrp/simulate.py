"""Simulation of a Markov reward process, reproducible to the last bit from a seed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Trajectory(NamedTuple):
    """A simulated stream of T transitions; episodes, if any, follow one another.

    Transition t leads from ``states[t]`` to ``states[t + 1]`` with reward ``rewards[t]`` and discount
    ``discounts[t + 1]``. If ``terminated[t]``, the discount is zero and ``states[t + 1]`` starts a new episode.

    Examples
    --------
    >>> from lstd.mrp import BoyanChain
    >>> stream = BoyanChain().simulate(n_steps=10, seed=1)
    >>> stream.states.shape, stream.rewards.shape, int(stream.states[0])
    ((11,), (10,), 0)
    """

    states: NDArray[np.int64]  # (T + 1,)
    rewards: Array  # (T,)
    discounts: Array  # (T + 1,)
    terminated: NDArray[np.bool_]  # (T,)


def simulate(
    outcomes: Array, rewards: Array, start: Array, reward_std: float, gamma: float, n_steps: int, seed: int
) -> Trajectory:
    """Draw transitions in the order that :meth:`lstd.mrp.MRP.simulate` states.

    `outcomes` and `rewards`, (k, k + 1), hold the probabilities and expected rewards of each state's successors and, in
    the last column, of termination. `start`, (k,), holds the probabilities of the start states.
    """
    from lstd._kernels.chain import walk

    generator = np.random.RandomState(seed)
    random_start = bool(np.count_nonzero(start) > 1)
    first = generator.random_sample() if random_start else 0.0
    uniforms, normals, restarts = _draw(generator, n_steps, reward_std > 0, random_start)
    cumulative = np.cumsum(outcomes, axis=1)
    # Rounding may leave the last sum below 1. The last possible outcome takes the rest; all later ones are impossible.
    final = np.array([np.flatnonzero(row)[-1] for row in outcomes > 0])
    terminating = len(start)
    cumulative[np.arange(terminating + 1) >= final[:, np.newaxis]] = 1.0
    cumulative_start = np.cumsum(start)
    cumulative_start[np.flatnonzero(start)[-1] :] = 1.0
    states, terminated = walk(cumulative, cumulative_start, first, uniforms, restarts)
    received = rewards[states[:-1], np.where(terminated, terminating, states[1:])]
    if reward_std > 0:
        received += reward_std * normals
    discounts = np.full(n_steps + 1, gamma)
    discounts[1:][terminated] = 0.0
    return Trajectory(states, received, discounts, terminated)


def _draw(generator: np.random.RandomState, n_steps: int, noisy: bool, random_start: bool) -> Array:
    """Draw uniforms for successors, standard normals and uniforms for restarts, (3, n_steps), step by step."""
    drawn = uniforms, normals, restarts = np.zeros((3, n_steps))
    if not noisy and not random_start:
        uniforms[:] = generator.random_sample(n_steps)
        return drawn
    for t in range(n_steps):
        uniforms[t] = generator.random_sample()
        if noisy:
            normals[t] = generator.standard_normal()
        if random_start:
            restarts[t] = generator.random_sample()
    return drawn
