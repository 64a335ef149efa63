"""Simulation of a Markov reward process, bit for bit reproducible from a seed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from lstd.mrp.model import MRP


class Trajectory(NamedTuple):
    """One simulated stream of T transitions; episodes, if any, follow one another.

    ``states[t]`` is left with reward ``rewards[t]`` for ``states[t + 1]``; where ``terminated[t]``, that is the
    first state of a new episode and ``discounts[t + 1]``, the discount on arrival in row t + 1, is zero.
    """

    states: NDArray[np.int64]  # (T + 1,)
    rewards: NDArray[np.float64]  # (T,)
    discounts: NDArray[np.float64]  # (T + 1,)
    terminated: NDArray[np.bool_]  # (T,)


def simulate(model: MRP, n_steps: int, seed: int) -> Trajectory:
    """Simulate `n_steps` transitions; see :meth:`lstd.mrp.MRP.simulate` for the order of the draws."""
    from lstd._kernels.chain import walk

    generator = np.random.RandomState(seed)
    random_start = bool(np.count_nonzero(model.start) > 1)
    first = generator.random_sample() if random_start else 0.0
    uniforms, normals, restarts = _draw(generator, n_steps, model.reward_std > 0, random_start)
    last = model.n_states - 1
    cumulative = np.cumsum(np.column_stack([model.transition, model.termination]), axis=1)
    # Rounding may leave the last cumulative probability below a uniform: the last possible outcome takes the rest,
    # and those behind it, which are impossible, come to no more than it.
    possible = np.column_stack([model.transition, model.termination]) > 0
    final = np.array([np.flatnonzero(row)[-1] for row in possible])
    cumulative[np.arange(last + 2) >= final[:, np.newaxis]] = 1.0
    start = np.cumsum(model.start)
    start[np.flatnonzero(model.start)[-1] :] = 1.0
    states, terminated = walk(cumulative, start, first, uniforms, restarts)
    rewards = _rewards(model, states, terminated)
    if model.reward_std > 0:
        rewards += model.reward_std * normals
    discounts = np.full(n_steps + 1, model.gamma)
    discounts[1:][terminated] = 0.0
    return Trajectory(states, rewards, discounts, terminated)


def _draw(
    generator: np.random.RandomState, n_steps: int, noisy: bool, random_start: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Uniforms, standard normals and restart uniforms in the order step by step in which a run consumes them."""
    uniforms, normals, restarts = np.zeros((3, n_steps))
    if not noisy and not random_start:
        return generator.random_sample(n_steps), normals, restarts
    for t in range(n_steps):
        uniforms[t] = generator.random_sample()
        if noisy:
            normals[t] = generator.standard_normal()
        if random_start:
            restarts[t] = generator.random_sample()
    return uniforms, normals, restarts


def _rewards(model: MRP, states: NDArray[np.int64], terminated: NDArray[np.bool_]) -> NDArray[np.float64]:
    here = states[:-1]
    return np.where(terminated, model.termination_reward[here], model.reward[here, states[1:]])
