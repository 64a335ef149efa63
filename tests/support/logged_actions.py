"""Small decision processes with exact values, and data that a policy logged in them."""

import functools
import itertools

import numpy as np

import naive


class DecisionProcess:
    """Random transitions P (S, A, S), rewards r (S, A), policies pi and mu (S, A), and the values of pi."""

    def __init__(self, n_states=4, n_actions=3, gamma=0.9, seed=0):
        random = np.random.default_rng(seed)
        self.S, self.A, self.gamma = n_states, n_actions, gamma
        self.P = random.dirichlet(np.ones(n_states), size=(n_states, n_actions))
        self.r = random.normal(size=(n_states, n_actions))
        self.pi, self.mu = (random.dirichlet(np.full(n_actions, k), size=n_states) for k in (1.0, 3.0))
        across = np.einsum("ijk,kl->ijkl", self.P, self.pi).reshape(n_states * n_actions, -1)
        self.q = np.linalg.solve(np.eye(len(across)) - gamma * across, self.r.reshape(-1)).reshape(self.r.shape)
        self.v = (self.q * self.pi).sum(axis=1)

    def simulate(self, n_episodes, length, seed, noise=0.1, p_end=0.0):
        """Arguments of ``LSTDQ.fit``, with a horizon row where an episode is cut off; states as unit vectors."""
        columns = self._simulated(n_episodes, length, seed, noise, p_end)
        return {name: column.copy() for name, column in columns.items()}

    @functools.cache  # noqa: B019
    def _simulated(self, n_episodes, length, seed, noise, p_end):
        random, columns = np.random.default_rng(seed), []
        for episode in range(n_episodes):
            s = random.integers(self.S)
            for t in range(length + 1):
                a = random.choice(self.A, p=self.mu[s])
                ends = random.random() < p_end
                if t == length:
                    columns.append((episode, s, 0, np.nan, False, np.nan))
                    break
                columns.append((episode, s, a, self.r[s, a] + noise * random.normal(), ends, self.mu[s, a]))
                s = random.choice(self.S, p=self.P[s, a])
                if ends:
                    break
        episode, states, actions, y, terminated, mu = (np.array(column) for column in zip(*columns, strict=True))
        return {
            "X": np.eye(self.S)[states], "y": y, "actions": actions, "target_policy": self.pi[states],
            "behavior_probability": mu, "episode": episode, "terminated": terminated,
        }  # fmt: skip

    def every_path(self, length):
        """Every path of so many steps, weighted by its probability: data with exact frequencies."""
        rows = {name: [] for name in ("X", "y", "actions", "X_next", "weight", "episode", "states", "next_states")}
        steps = itertools.product(range(self.S), range(self.A))
        for number, path in enumerate(itertools.product(steps, repeat=length + 1)):
            probability = np.prod([self.P[s, a, after] for (s, a), (after, _) in itertools.pairwise(path)])
            probability *= np.prod([self.mu[s, a] for s, a in path[:-1]]) / (self.A * self.S)
            for (s, a), (after, _) in itertools.pairwise(path):
                values = (np.eye(self.S)[s], self.r[s, a], a, np.eye(self.S)[after], probability, number, s, after)
                for column, value in zip(rows.values(), values, strict=True):
                    column.append(value)
        return {name: np.array(column) for name, column in rows.items()}


PROCESS = DecisionProcess()  # of which the tests have data
TRACES = ("retrace", "none")


def logged(n_episodes=6, length=4, p_end=0.2, seed=1, n=3):
    """A little data, with features of order 1 for each state."""
    data = PROCESS.simulate(n_episodes, length, seed, p_end=p_end)
    return data | {"X": data["X"] @ np.random.default_rng(5).normal(size=(PROCESS.S, n))}


def systems(data, lmbda, trace, variant, gamma, weight=None, discount=None):
    """A and b by the definition, of all episodes."""
    A = b = 0.0
    T = len(data["y"])
    weight = np.ones(T) if weight is None else weight
    discount = np.where(data["terminated"], 0.0, gamma if discount is None else discount)
    n_actions = data["target_policy"].shape[1]
    for name in np.unique(data["episode"]):
        rows = np.flatnonzero(data["episode"] == name)
        pi, terminal = data["target_policy"], data["terminated"][rows[-1]]
        full = rows if terminal else rows[:-1]
        if not len(full):
            continue
        phi = np.array([naive.pair_features(data["X"][t], data["actions"][t], n_actions) for t in full])
        after = [naive.expected_pair(data["X"][min(t + 1, T - 1)], pi[min(t + 1, T - 1)]) for t in full]
        c = [naive.trace_coefficient(trace, pi[t, data["actions"][t]], data["behavior_probability"][t]) for t in full]
        one = naive.action_value_system(
            phi, np.array(after), data["y"][full], lmbda, discount[full], c, weight[full], variant
        )
        A, b = A + one[0], b + one[1]
    return A, b
