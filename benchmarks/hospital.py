"""The hospital model of `icu-sepsis`, with exact values: policies, features of states, and logged episodes.

The model is read at run time from the installed package (MIT licence). It has 713 states of patients, 25 doses as
actions, and two ends: a patient who survives has the reward 1, one who dies 0.
"""

from __future__ import annotations

from functools import cache, cached_property
from importlib import metadata
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

N_STATES = 713
N_ACTIONS = 25
SURVIVED = 714
GAMMA = 0.99
RANDOM = 0.1
TEMPERATURE = 0.01


class Log(NamedTuple):
    """Transitions of episodes, in time order."""

    state: Ints  # (T,)
    action: Ints  # (T,)
    reward: Array  # (T,)
    next_state: Ints  # (T,) at least N_STATES where the transition terminates
    episode: Ints  # (T,)
    terminated: NDArray[np.bool_]  # (T,)

    @property
    def first(self) -> NDArray[np.bool_]:
        """Whether each row begins an episode, (T,)."""
        return np.asarray(np.diff(self.episode, prepend=-1) != 0)


class Hospital:
    """Transitions, rewards and first states of the model, with what follows from them."""

    def __init__(self) -> None:
        path = metadata.distribution("icu-sepsis").locate_file("icu_sepsis/envs/assets/dynamics.npz")
        with np.load(str(path)) as data:
            self.P = np.ascontiguousarray(data["tx_mat"][:N_STATES])  # (states, actions, states and ends)
            self.start = data["d_0"][:N_STATES] / data["d_0"][:N_STATES].sum()
            self.expert = data["expert_policy"][:N_STATES]
            self.measurements = data["state_cluster_centers"][:N_STATES]  # (states, 47), standardised
            self.sofa = data["sofa_scores"][:N_STATES]
        self.reward = self.P[:, :, SURVIVED]  # the expected reward of a state and an action

    def action_values(self, policy: Array, gamma: float) -> Array:
        """Solve for the action values of a policy, (states, actions)."""
        moves = (policy[:, np.newaxis] @ self.P[:, :, :N_STATES])[:, 0]
        v = np.linalg.solve(np.eye(N_STATES) - gamma * moves, (policy * self.reward).sum(1))
        return self.reward + gamma * self.P[:, :, :N_STATES] @ v

    def value(self, policy: Array, gamma: float) -> float:
        """Compute the exact value of a policy at admission."""
        return float(self.start @ (policy * self.action_values(policy, gamma)).sum(1))

    def deviation(self, policy: Array, gamma: float) -> float:
        """Compute the standard deviation of the return of an episode: it is γ^steps or 0."""
        return float(np.sqrt(self.value(policy, gamma**2) - self.value(policy, gamma) ** 2))

    def optimal_action_values(self, gamma: float) -> Array:
        """Improve the policy of the experts until its value rises no more."""
        q = self.action_values(self.expert, gamma)
        best = -1.0
        while q.max(1).sum() > best + 1e-9:
            best = q.max(1).sum()
            q = self.action_values(np.eye(N_ACTIONS)[q.argmax(1)], gamma)
        return q

    @cached_property
    def _successors(self) -> tuple[Array, Ints]:
        """Return row number + cumulative probability of every possible transition, and where it leads."""
        rows = self.P.reshape(-1, self.P.shape[2])
        row, successor = np.nonzero(rows)
        return cumulative_keys(rows, row, successor), successor

    def episodes(self, policy: Array, n_episodes: int, seed: int, max_steps: int = 10_000) -> Log:
        """Draw episodes of a policy, all of them a step at a time."""
        random = np.random.default_rng(seed)
        keys, successors = self._successors
        row, column = np.nonzero(policy)
        of_actions = cumulative_keys(policy, row, column)
        alive = np.arange(n_episodes)
        state = np.searchsorted(np.cumsum(self.start) / self.start.sum(), random.uniform(size=n_episodes), "right")
        steps = []
        for _ in range(max_steps):
            action = column[np.searchsorted(of_actions, state + random.uniform(size=len(state)), "right")]
            pair = state * N_ACTIONS + action
            reached = successors[np.searchsorted(keys, pair + random.uniform(size=len(state)), "right")]
            steps.append((alive, state, action, reached))
            alive = alive[reached < N_STATES]
            state = reached[reached < N_STATES]
            if not len(alive):
                break
        episode, state, action, reached = (np.concatenate(column) for column in zip(*steps, strict=True))
        order = np.argsort(episode, kind="stable")
        episode = episode[order]
        state = state[order]
        action = action[order]
        reached = reached[order]
        return Log(state, action, (reached == SURVIVED) * 1.0, reached, episode, reached >= N_STATES)


def cumulative_keys(rows: Array, row: Ints, column: Ints) -> Array:
    """Return the row number + cumulative probability of each entry: one search then serves all rows."""
    values = np.cumsum(rows, axis=1)[row, column]
    last = np.append(row[1:] != row[:-1], True)
    values = np.minimum(values, np.nextafter(1.0, 0.0))
    values[last] = 1.0
    return np.asarray(row + values)


class Task(NamedTuple):
    """A policy to evaluate, the one that logs the data, and features of states."""

    model: Hospital
    target: Array  # (states, actions)
    behavior: Array
    fine: Array  # (states, 169) groups of states
    coarse: Array  # (states, 20)

    @property
    def truth(self) -> float:
        return self.model.value(self.target, GAMMA)

    @property
    def bound(self) -> float:
        """Standard deviation of the return under the target policy: on-policy Monte Carlo has it / √episodes."""
        return self.model.deviation(self.target, GAMMA)


@cache
def task(far: bool = False) -> Task:
    """Return the task: doctors who act at random one time in ten log, and the target leans to what is best.

    The behaviour is μ = 0.9 · expert + 0.1 / 25, the target π ∝ μ exp(Q*/0.01), with the optimal action values Q*: a
    dose that saves one patient in a hundred more than another is 2.7 times as frequent as before, beside it. The target
    `far` from the doctors has π ∝ exp(Q*/0.005), whatever they do.
    """
    model = Hospital()
    behavior = (1.0 - RANDOM) * model.expert + RANDOM / N_ACTIONS
    q = model.optimal_action_values(GAMMA)
    better = (q - q.max(1, keepdims=True)) / TEMPERATURE
    target = np.exp(2.0 * better) if far else behavior * np.exp(better)
    target /= target.sum(1, keepdims=True)
    return Task(model, target, behavior, groups(model, 169), groups(model, 20))


def groups(model: Hospital, k: int) -> Array:
    """Return one-hot features of k groups of states: k-means of the 47 measurements and the SOFA score."""
    from sklearn.cluster import KMeans

    measured = np.column_stack([model.measurements, model.sofa / model.sofa.std()])
    return np.asarray(np.eye(k)[KMeans(k, n_init=3, random_state=0).fit_predict(measured)])
