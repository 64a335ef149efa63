"""Time LSTD(λ) of a whole batch beside one product of matrices of the same shape, and beside a loop over the rows.

python benchmarks/batch.py [--quick]
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped,unused-ignore]

from lstd import LSTD, LSTDStatistics
from lstd.ope import LSTDQ, policy_value
from ratios import Ratio, in_turn, run_alone, timed

HOW = """\
Independent normal features and rewards, one stream. Sums: `LSTDStatistics.from_arrays` with every check of its input,
beside Zᵀ X for two different matrices of that shape, which A = Σ (z_t − γ z_{t−1}) φ_tᵀ needs at least. Fit: `LSTD.fit`
as it is by default, beside one step of NumPy per row for z, A and b and a solve, which checks nothing; both have the
same weights, on one thread. Logged actions: `LSTDQ.fit` of 10 actions with a block of 50 columns each, in episodes of
100 rows, beside `LSTD.fit` of the 50 dense features; the goal is 3 times the number of actions. `policy_value` is
timed once after each fit: the first call."""
GAMMA = 0.99
LMBDA = 0.9
ALPHA = 1.0
N_FEATURES = 100
GOAL = 0.85


def ratios(quick: bool = False) -> Iterator[Ratio]:
    """Time the sums with one thread of the BLAS and with all, and a fit beside a loop."""
    n_rows, pairs = (20_000, 3) if quick else (1_000_000, 11)
    random = np.random.default_rng(0)
    X, Z = random.standard_normal((2, n_rows, N_FEATURES))
    y = random.standard_normal(n_rows)
    for threads in (1, None):
        with threadpool_limits(limits=threads, user_api="blas"):
            seconds = in_turn(
                lambda: LSTDStatistics.from_arrays(X, y, gamma=GAMMA, lmbda=LMBDA), lambda: Z.T @ X, pairs
            )
        threading = "one BLAS thread" if threads else "all BLAS threads"
        claim = f"sums of {n_rows} rows of {N_FEATURES} features beside one matrix product, {threading}"
        yield Ratio(claim, *seconds, goal=GOAL)
    X = X[:20_000]
    y = y[:20_000]
    with threadpool_limits(limits=1, user_api="blas"):
        model = LSTD(GAMMA, LMBDA, ALPHA, fit_intercept=False)
        weights = model.fit(X, y).coef_
        np.testing.assert_allclose(loop(X, y), weights, rtol=0, atol=1e-9 * np.abs(weights).max())
        seconds = in_turn(lambda: model.fit(X, y), lambda: loop(X, y), 3 if quick else 7)
    yield Ratio(f"`LSTD.fit` of {len(X)} rows of {N_FEATURES} features beside a NumPy loop", *seconds)
    with threadpool_limits(limits=1, user_api="blas"):
        yield from logged_actions(20_000 if quick else 1_000_000)


def logged_actions(n_rows: int, n: int = 50, n_actions: int = 10) -> Iterator[Ratio]:
    """Time the action values of two policies beside a fit to the features of states, and their first values."""
    random = np.random.default_rng(0)
    X = random.standard_normal((n_rows, n))
    y = random.standard_normal(n_rows)
    actions = np.arange(n_rows) % n_actions
    ends = {"episode": np.arange(n_rows) // 100, "terminated": np.arange(n_rows) % 100 == 99}
    policies = {
        "greedy": np.eye(n_actions)[random.integers(n_actions, size=n_rows)],
        "random": random.dirichlet(np.ones(n_actions), size=n_rows),
    }
    behavior = np.full(n_rows, 1.0 / n_actions)
    states = LSTD(GAMMA, LMBDA, ALPHA)
    for name, lmbda in ((name, lmbda) for name in policies for lmbda in (0.0, LMBDA)):
        model = LSTDQ(GAMMA, lmbda)
        data = {"actions": actions, "target_policy": policies[name], "behavior_probability": behavior, **ends}
        tasks = partial(model.fit, X, y, **data), partial(policy_value, model), partial(states.fit, X, y, **ends)
        rounds = [[timed(task) for task in tasks] for _ in range(4)]
        fits, values, beside = ([*column] for column in zip(*rounds, strict=True))
        claim = f"`LSTDQ.fit` of {n_rows} rows, {n_actions} blocks of {n}, a {name} policy, λ = {lmbda:g}"
        claim = f"{claim}, beside `LSTD.fit` of {n} features"
        yield Ratio(claim, fits[1:], beside[1:], cost=True, goal=3.0 * n_actions)  # the first ones read the kernels
        claim = f"First `policy_value` after it, λ = {lmbda:g}, a {name} policy, beside that fit"
        yield Ratio(claim, values, [float(np.median(fits[1:]))] * len(values), cost=True, seconds_goal=0.05)


def loop(X: Any, y: Any) -> Any:
    """Compute the weights of Boyan's estimator with a step per row."""
    n = X.shape[1]
    A = ALPHA * np.eye(n)
    b = np.zeros(n)
    z = np.zeros(n)
    for t in range(len(X) - 1):
        z = LMBDA * GAMMA * z + X[t]
        A += np.outer(z, X[t] - GAMMA * X[t + 1])
        b += z * y[t]
    return np.linalg.solve(A, b)


if __name__ == "__main__":
    run_alone(__doc__, ratios)
