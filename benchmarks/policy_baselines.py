"""Estimates of values of policies that `lstd` is compared with, each from its paper's formula.

`wdr` and the like come from `lstd.ope.importance_sampling`; here are MAGIC, fitted Q evaluation and the tabular model.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, sparse

from hospital import Log

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Logged:
    """A log with the probabilities of all actions in each row, of the target policy and of the one that logged."""

    log: Log
    target: Array  # (T, A)
    behavior: Array  # (T, A)
    columns: Array  # (T, k)
    gamma: float

    @cached_property
    def full(self) -> NDArray[np.bool_]:
        """Whether a row is a transition: the last row of an episode that was cut off is not."""
        return np.asarray(self.log.terminated | (np.diff(self.log.episode, append=-1) == 0))

    @cached_property
    def mu(self) -> Array:
        """Probability of each logged action, 1 in horizon rows."""
        return np.where(self.full, self.behavior[np.arange(len(self.full)), self.log.action], 1.0)

    @cached_property
    def ratio(self) -> Array:
        return np.where(self.full, self.target[np.arange(len(self.full)), self.log.action] / self.mu, 1.0)

    @cached_property
    def actions(self) -> Array:
        """Columns of all actions: unit vectors, or the two levels of a dose."""
        n = self.target.shape[1]
        return np.column_stack(np.divmod(np.arange(n), 5)).astype(float) if n == 25 else np.eye(n)

    def targets(self, v: Array) -> Array:
        """Return r + γ v(s') of all rows, (T,)."""
        after = np.append(v[1:], 0.0)
        return np.asarray(self.log.reward + self.gamma * np.where(self.log.terminated, 0.0, after))

    def start(self, v: Array) -> float:
        return float(v[self.log.first].mean())

    @cached_property
    def returns(self) -> Array:
        """Sum of discounted rewards from each row to the end of the log's episode."""
        found = np.zeros(len(self.full))
        rest = 0.0
        last = np.diff(self.log.episode, append=-1) != 0
        for t in range(len(found) - 1, -1, -1):
            rest = self.log.reward[t] + self.gamma * rest * (not last[t])
            found[t] = rest
        return found


def boosted_q(data: Logged, iterations: int = 10) -> Array:
    """Fitted Q evaluation with gradient boosting (Ernst, Geurts and Wehenkel 2005), from a fit to the logged returns.

    Returns the action values of all rows, (T, A).
    """
    from sklearn.ensemble import HistGradientBoostingRegressor

    n = data.target.shape[1]
    full = data.full
    states, where = np.unique(data.columns, axis=0, return_inverse=True)
    pairs = np.hstack([np.repeat(states, n, axis=0), np.tile(data.actions, (len(states), 1))])
    X = pairs[where.ravel() * n + data.log.action][full]
    y = data.returns
    booster = HistGradientBoostingRegressor(
        learning_rate=0.3, max_iter=12, max_leaf_nodes=15, max_bins=32, early_stopping=False, random_state=0
    )
    for _ in range(iterations + 1):
        q = booster.fit(X, y[full]).predict(pairs).reshape(-1, n)[where.ravel()]
        y = data.targets((data.target * q).sum(axis=1))
    return np.asarray(q)


def linear_q(data: Logged, X: Array, alpha: float = 1e-3, iterations: int = 500) -> float:
    """Fitted Q evaluation by ridge regression on a block of features and a one for each action; infinite if diverging.

    Its limit, if there is one, is that of least-squares temporal differences of action values.
    """
    (T, n), X = data.target.shape, np.column_stack([X, np.ones(len(X))])
    k = X.shape[1]
    full = data.full
    blocks = np.zeros((T, n, k))
    blocks[np.arange(T), data.log.action] = X
    phi = blocks.reshape(T, n * k)
    mean = (data.target[:, :, np.newaxis] * X[:, np.newaxis]).reshape(T, n * k)
    after = np.vstack([mean[1:], mean[:1]]) * (data.gamma * ~data.log.terminated)[:, np.newaxis]
    K = phi[full].T @ phi[full] + alpha * np.eye(n * k)
    step = np.linalg.solve(K, phi[full].T @ after[full])
    b = np.linalg.solve(K, phi[full].T @ data.log.reward[full])
    theta = b
    for _ in range(iterations):
        theta = b + step @ theta
        if not np.abs(theta).max() < 1e12:
            return float("inf")
    return data.start(mean @ theta)


def tabular(data: Logged, n_states: int, iterations: int = 500) -> float:
    """Value in the model of observed frequencies: of pairs; for pairs that were not seen, of states; else the mean."""
    full, n, (state, action) = data.full, data.target.shape[1], (data.log.state, data.log.action)
    pair = state * n + action
    by_pair = averages(pair, full, n_states * n)
    by_state = averages(state, full, n_states)
    seen = by_pair.sum(axis=1) > 0.5
    visited = by_state.sum(axis=1) > 0.5
    policy = np.zeros((n_states, n))
    policy[state] = data.target
    mean = data.start(data.returns)
    v = np.full(n_states, mean)
    for _ in range(iterations):
        y = data.targets(v[state])
        of_states = np.where(visited, by_state @ y, mean)
        q = np.where(seen, by_pair @ y, np.repeat(of_states, n)).reshape(n_states, n)
        v = (policy * q).sum(axis=1)
    return data.start(v[state])


def averages(group: Array, full: Array, n: int) -> Any:
    """Return the matrix that averages full rows by group."""
    count = np.maximum(np.bincount(group[full], minlength=n), 1)
    return sparse.csr_array((full / count[group], (group, np.arange(len(group)))), shape=(n, len(group)))


def partial_returns(data: Logged, q: Array, lengths: list[int]) -> Array:
    """Return each episode's share of the weighted doubly robust returns of these lengths, (episodes, lengths).

    A return of length j takes ratios and rewards of the first j steps and v of what follows; the shares of a length add
    up to its estimate. Length 0 is the mean of v, the longest is weighted doubly robust.
    """
    log = data.log
    full = data.full
    age = np.arange(len(log.episode)) - np.flatnonzero(log.first)[log.episode]
    n = int(log.episode[-1]) + 1
    steps = int(age.max()) + 1
    v = (data.target * q).sum(axis=1)
    taken = q[np.arange(len(q)), log.action]
    R, r, at, rest = (np.zeros((n, steps + 1)) for _ in range(4))
    R[:, :steps] = products(data.ratio, log.episode, age, n, steps)
    w = R / R.sum(axis=0).clip(1e-300)
    w_before = np.column_stack([np.full(n, 1.0 / n), R[:, : steps - 1] / R[:, : steps - 1].sum(axis=0).clip(1e-300)])
    r[log.episode, age] = log.reward * full
    at[log.episode, age], rest[log.episode, age] = taken * full, v
    D = data.gamma ** np.arange(steps)
    gained = (w[:, :steps] * (r - at)[:, :steps] + w_before * rest[:, :steps]) * D
    sums = np.column_stack([np.zeros(n), np.cumsum(gained, axis=1)])
    w_before = np.column_stack([w_before, w[:, steps - 1]])
    return np.column_stack([sums[:, j] + w_before[:, j] * data.gamma**j * rest[:, j] for j in lengths])


def products(ratio: Array, episode: Array, age: Array, n: int, steps: int) -> Array:
    """Return the products of the ratios up to each step, (episodes, steps); after the end, the last one."""
    R = np.ones((n, steps))
    R[episode, age] = ratio
    return np.asarray(np.cumprod(R, axis=1))


def magic(data: Logged, q: Array, lengths: int = 8, resamples: int = 200) -> float:
    """MAGIC (Thomas and Brunskill 2016): the mix of partial returns with the least estimated mean squared error.

    The bias of a length is its distance from the middle half of the weighted doubly robust estimates of resampled
    episodes, which the length of a whole episode has not.
    """
    steps = int(np.bincount(data.log.episode).max())
    grid = sorted({0, *np.unique(np.geomspace(1, steps, lengths - 1).astype(int)).tolist(), steps})
    shares = partial_returns(data, q, grid)
    n = len(shares)
    found = shares.sum(axis=0)
    picks = np.random.default_rng(0).integers(n, size=(resamples, n))
    low, high = np.quantile(n * shares[picks, -1].mean(axis=1), [0.25, 0.75])
    bias = np.maximum(found - high, 0.0) - np.maximum(low - found, 0.0)
    return float(found @ mix(n * np.cov(shares, rowvar=False), bias))


def mix(covariance: Array, bias: Array) -> Array:
    """Return the shares, none below 0 and 1 in all, with the least variance + squared bias."""
    M = np.atleast_2d(covariance) + np.outer(bias, bias)
    scale = np.trace(M) or 1.0
    k = len(bias)
    solved = optimize.minimize(
        lambda x: x @ M @ x / scale,
        np.full(k, 1.0 / k),
        jac=lambda x: 2.0 * M @ x / scale,
        bounds=[(0.0, 1.0)] * k,
        constraints={"type": "eq", "fun": lambda x: x.sum() - 1.0, "jac": lambda x: np.ones(k)},
        method="SLSQP",
    )
    return np.asarray(solved.x)
