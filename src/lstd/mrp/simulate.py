"""Simulation of a Markov reward process, reproducible to the last bit from a seed.

Normals are computed from uniform numbers without fused products, as NumPy computes them on x86-64: the same everywhere.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lstd.types import Array


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


class Chain(NamedTuple):
    """A process on k states as tables from which transitions are drawn; column k of each stands for termination."""

    outcomes: Array  # (k, k + 1) cumulative probabilities of each state's successors
    rewards: Array  # (k, k + 1) expected
    start: Array  # (k,) cumulative probabilities
    random_start: bool

    @classmethod
    def of(cls, outcomes: Array, rewards: Array, start: Array) -> Chain:
        """Make the tables from the probabilities of `outcomes` and `start`."""
        # Rounding may leave the last sum below 1. The last possible outcome takes the rest; all later ones are
        # impossible.
        final = np.array([np.flatnonzero(row)[-1] for row in outcomes > 0])
        cumulative = np.cumsum(outcomes, axis=1)
        cumulative[np.arange(outcomes.shape[1]) >= final[:, np.newaxis]] = 1.0
        cumulative_start = np.cumsum(start)
        cumulative_start[np.flatnonzero(start)[-1] :] = 1.0
        return cls(cumulative, rewards, cumulative_start, bool(np.count_nonzero(start) > 1))


def simulate(chain: Chain, reward_std: float, gamma: float, n_steps: int, seed: int) -> Trajectory:
    """Draw transitions in the order that :meth:`lstd.mrp.MRP.simulate` states."""
    from lstd._kernels.chain import walk

    noisy = reward_std > 0
    first, uniforms, normals, restarts = _drawn(_generator(seed), n_steps, noisy, chain.random_start)
    states, terminated = walk(chain.outcomes, chain.start, first, uniforms, restarts)
    outcomes = np.where(terminated, len(chain.start), states[1:])
    received = chain.rewards[states[:-1], outcomes]
    if noisy:
        received += reward_std * normals
    discounts = np.full(n_steps + 1, gamma)
    discounts[1:][terminated] = 0.0
    return Trajectory(states, received, discounts, terminated)


def _drawn(
    generator: np.random.RandomState, n_steps: int, noisy: bool, random_start: bool
) -> tuple[float, Array, Array, Array]:
    """Draw a uniform for the first state, and uniforms for successors, normals and uniforms for restarts of each step.

    Arrays that are not needed are zero.
    """
    from lstd._kernels.chain import deal

    uniforms, normals, restarts = np.zeros((3, n_steps))
    n_uniforms_per_step = 1 + random_start
    n_numbers = (n_steps + 1) * n_uniforms_per_step
    if noisy:
        n_numbers += n_steps + n_steps // 2 + 64  # a normal takes 4/π numbers on average, thus a margin
    numbers = generator.random_sample(n_numbers)
    while True:
        signed = 2.0 * numbers - 1.0
        if deal(numbers, signed, signed**2, noisy, random_start, uniforms, normals, restarts):
            break
        # Too few: with more behind them, all are dealt anew, so that the draws are the same however many were drawn.
        numbers = np.concatenate((numbers, generator.random_sample(len(numbers))))
    first = 0.0
    if random_start:
        first = float(numbers[0])
    return first, uniforms, normals, restarts


_memory = threading.local()


def _generator(seed: int) -> np.random.RandomState:
    """Return this thread's generator, with a new seed; making one takes as long as simulating some hundred steps."""
    if not hasattr(_memory, "generator"):
        _memory.generator = np.random.RandomState(0)
    generator: np.random.RandomState = _memory.generator
    generator.seed(seed)
    return generator
