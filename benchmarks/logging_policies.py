"""Processes in which a policy logs and others are to be evaluated: the hospital of `hospital.py`, and a random one."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hospital import GAMMA, Log, task

Array = NDArray[Any]
WORLD_SEED = 59_999
# of the random process
N_STATES = 20
N_ACTIONS = 4
N_FEATURES = 5
STEPS = 10  # of each episode


class World(NamedTuple):
    """A process, the policy that logs in it, (states, actions), and policies to evaluate."""

    episodes: Callable[[Array, int, int], Log]  # of a policy, a number of episodes and a seed
    features: Array  # (states, features)
    behavior: Array
    targets: dict[str, Array]


@cache
def hospital() -> World:
    """Return doctors who act at random one time in ten; features are 20 groups of patients."""
    one = task()
    q = one.model.optimal_action_values(GAMMA)
    return World(one.model.episodes, one.coarse, one.behavior, targets(one.target, task(far=True).target, q))


@cache
def random_process() -> World:
    """Return random transitions, rewards and features, and behaviour that is partly at random."""
    random = np.random.default_rng(WORLD_SEED)
    P = random.dirichlet(np.full(N_STATES, 0.3), size=(N_STATES, N_ACTIONS))
    reward = random.normal(size=(N_STATES, N_ACTIONS))
    features = random.normal(size=(N_STATES, N_FEATURES))
    behavior = 0.9 * random.dirichlet(np.ones(N_ACTIONS), size=N_STATES) + 0.1 / N_ACTIONS

    def chosen(draw: Any, p: Array) -> Array:
        return np.asarray((np.cumsum(p, axis=1) > draw.random((len(p), 1))).argmax(axis=1))

    def episodes(policy: Array, n: int, seed: int) -> Log:
        draw = np.random.default_rng(seed)
        state = np.zeros(n, dtype=int)
        steps = []
        for _ in range(STEPS):
            action = chosen(draw, policy[state])
            reached = chosen(draw, P[state, action])
            steps.append((state, action, reward[state, action], reached))
            state = reached
        states, actions, rewards, after = (np.stack(column, axis=1).ravel() for column in zip(*steps, strict=True))
        episode = np.repeat(np.arange(n), STEPS)
        last = np.tile(np.arange(STEPS) == STEPS - 1, n)
        return Log(states, actions, rewards, after, episode, last)

    near = behavior * np.exp(reward)
    far = np.exp(3.0 * reward)
    return World(episodes, features, behavior, targets(normal(near), normal(far), reward))


def targets(near: Array, far: Array, q: Array) -> dict[str, Array]:
    """Name policies to evaluate; one of them takes the action with the largest q."""
    best = np.eye(q.shape[1])[q.argmax(1)]
    uniform = np.full(q.shape, 1.0 / q.shape[1])
    return {"near the log": near, "far from it": far, "the best action": best, "at random": uniform}


def normal(policy: Array) -> Array:
    return np.asarray(policy / policy.sum(1, keepdims=True))


def at(policy: Array, log: Log) -> Array:
    """Return the probabilities of logged actions, (T,)."""
    return np.asarray(policy[log.state, log.action])


WORLDS = {"hospital": hospital, "random process": random_process}
