"""Measure how often least-squares policy iteration on stored random data finds a good policy.

    python benchmarks/policy_iteration.py [--seeds 100] [--car] [--write docs/results/policy-intervals.md]

The chain walk of Lagoudakis and Parr (2003): 20 states, actions left and right that fail with probability 0.1, reward 1
in the states at both ends, discount 0.9, 5000 random transitions; features 1, s, …, s⁴ for each action, or ten radial
ones. Success: the best action in every state.

CartPole (Gymnasium's CartPole-v1, but for the reward: -1 where the pole falls, else 0), 1000 episodes of random
actions, discount 0.95. Features for each action: quadratic in position, velocity, angle and angular velocity, or nine
radial ones of the angle and its velocity and a one, as in that paper for a pendulum. Success: 500 steps in each of 5
further episodes.

MountainCar (reward -1 until the car is at the top), 10 000 random transitions, discount 0.99; features for each action:
5 × 5 or 7 × 7 radial ones of place and speed and a one. The transitions are episodes of 200 steps from the bottom, or
episodes of at most 20 steps that begin anywhere. Success: at the top within 200 steps in each of 5 further episodes.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstd.ope import PolicyIteration, StateActionFeatures, lspi
from pages import show
from policy_problems import radial as bumps
from policy_problems import valley
from provenance import printed_by

Array = NDArray[Any]

SEED = 51_000
N_STATES, FAILS, ROWS = 20, 0.1, 5000
EPISODES, STEPS, TESTS = 1000, 500, 5
CAR_ROWS, CAR_STEPS = 10_000, 200


def polynomial(s: Array) -> Array:
    return np.asarray((s[:, np.newaxis] / (N_STATES - 1)) ** np.arange(5))


def radial(s: Array) -> Array:
    centres = np.linspace(0, N_STATES - 1, 9)
    bumps = np.exp(-0.5 * ((s[:, np.newaxis] - centres) / 2.4) ** 2)
    return np.column_stack([np.ones(len(s)), bumps])


def chain_walk(phi: Callable[[Array], Array], seed: int) -> tuple[PolicyIteration, bool]:
    """Return the result on random transitions, and whether its policy is the best one."""
    random = np.random.default_rng([SEED, seed])
    s, actions = random.integers(N_STATES, size=ROWS), random.integers(2, size=ROWS)
    moves = np.where(random.uniform(size=ROWS) < FAILS, 1 - 2 * actions, 2 * actions - 1)
    after = np.clip(s + moves, 0, N_STATES - 1)
    data = {
        "X": phi(s), "y": 1.0 * np.isin(after, [0, N_STATES - 1]), "actions": actions, "X_next": phi(after),
        "episode": np.arange(ROWS),
    }  # fmt: skip
    found = lspi(data, StateActionFeatures(2), gamma=0.9, alpha=1e-6)
    best = found.policy(phi(np.arange(N_STATES))).argmax(axis=1)
    return found, bool((best == (np.arange(N_STATES) >= N_STATES // 2)).all())


def quadratic(x: Array) -> Array:
    """Of states of CartPole, scaled to order 1."""
    u = x / np.array([2.4, 3.0, 0.21, 3.0])
    i, j = np.triu_indices(4)
    return np.column_stack([np.ones(len(u)), u, u[:, i] * u[:, j]])


def of_the_pole(x: Array) -> Array:
    """Radial features of the angle and its velocity."""
    u, grid = x[:, 2:] / np.array([0.12, 1.0]), np.stack(np.meshgrid([-1, 0, 1], [-1, 0, 1]), axis=-1).reshape(-1, 2)
    return np.column_stack([np.ones(len(u)), np.exp(-0.5 * ((u[:, np.newaxis] - grid) ** 2).sum(axis=2))])


def cart_pole(phi: Callable[[Array], Array], seed: int) -> tuple[PolicyIteration, bool]:
    """Return the result on random episodes, and whether its policy keeps the pole up."""
    import gymnasium

    random, columns = np.random.default_rng([SEED, seed]), []
    environment = gymnasium.make("CartPole-v1").unwrapped
    for episode in range(EPISODES):
        state, done = environment.reset(seed=int(random.integers(2**31)))[0], False
        while not done:
            action = int(random.integers(2))
            after, _, done, _, _ = environment.step(action)
            columns.append((episode, state, action, after, done))
            state = after
    episodes, states, actions, following, ended = (np.array(column) for column in zip(*columns, strict=True))
    data = {
        "X": phi(states), "y": -1.0 * ended, "actions": actions, "X_next": phi(following), "episode": episodes,
        "terminated": ended,
    }  # fmt: skip
    found = lspi(data, StateActionFeatures(2), gamma=0.95, alpha=1e-3)
    return found, all(
        stays_up(environment, lambda x: found.policy(phi(x)), int(random.integers(2**31))) for _ in range(TESTS)
    )


def stays_up(environment: Any, policy: Callable[[Array], Array], seed: int) -> bool:
    state = environment.reset(seed=seed)[0]
    for _ in range(STEPS):
        state, _, done, _, _ = environment.step(int(policy(state[np.newaxis]).argmax()))
        if done:
            return False
    return True


def mountain_car(points: int, steps: int, anywhere: bool, seed: int) -> tuple[PolicyIteration, bool]:
    """Return the result on random transitions of the car, and whether its policy drives up from the bottom."""
    random, n = np.random.default_rng([SEED, seed]), CAR_ROWS // steps
    bottom = np.column_stack([random.uniform(-0.6, -0.4, size=max(n, TESTS)), np.zeros(max(n, TESTS))])
    low, high = ([-1.2, -0.07], [0.5, 0.07]) if anywhere else ([-0.6, 0.0], [-0.4, 0.0])
    state, alive, taken = random.uniform(low, high, size=(n, 2)), np.arange(n), []
    for _ in range(steps):
        action = random.integers(3, size=len(state))
        after, reward, done = valley(state, action)
        taken.append((alive, state, action, reward, after, done))
        state, alive = after[~done], alive[~done]
    episode, states, actions, rewards, following, ended = (np.concatenate(one) for one in zip(*taken, strict=True))
    order = np.argsort(episode, kind="stable")
    car = bumps((0.9, 0.07), (-0.3, 0.0), points, [0, 1])

    def phi(x: Array) -> Array:
        return np.column_stack([np.ones(len(x)), car(x)])

    data = {
        "X": phi(states[order]), "y": rewards[order], "actions": actions[order], "X_next": phi(following[order]),
        "episode": episode[order], "terminated": ended[order],
    }  # fmt: skip
    found, x = lspi(data, StateActionFeatures(3), gamma=0.99, alpha=1e-3), bottom[:TESTS]
    for _ in range(CAR_STEPS):
        x, _, done = valley(x, found.policy(phi(x)).argmax(axis=1))
        x = x[~done]
        if not len(x):
            return found, True
    return found, False


PROBLEMS: dict[str, Callable[[int], tuple[PolicyIteration, bool]]] = {
    "chain walk, polynomial": lambda seed: chain_walk(polynomial, seed),
    "chain walk, radial": lambda seed: chain_walk(radial, seed),
    "CartPole, quadratic": lambda seed: cart_pole(quadratic, seed),
    "CartPole, radial": lambda seed: cart_pole(of_the_pole, seed),
}
CAR: dict[str, Callable[[int], tuple[PolicyIteration, bool]]] = {
    f"{points} × {points} radial, {starts}": partial(mountain_car, points, steps, starts == "from anywhere")
    for points in (5, 7) for starts, steps in (("from anywhere", 20), ("from the bottom", 200))
}  # fmt: skip


def report(seeds: int, problems: dict[str, Any], command: str) -> str:
    lines = [
        "| problem | success | stopped: repeated policy | cycle | limit of 20 | policies evaluated |",
        "|" + "---|" * 6,
    ]
    for name in problems:
        with warnings.catch_warnings(action="ignore"):
            results = [problems[name](seed) for seed in range(seeds)]
        stopped, n = Counter(found.stopped for found, _ in results), [len(found.path) for found, _ in results]
        lines.append(
            f"| {name} | {sum(good for _, good in results)} of {seeds} | {stopped['repeated']} | {stopped['cycle']} | "
            f"{stopped['limit']} | median {np.median(n):.0f}, most {max(n)} |"
        )
        print(lines[-1], flush=True)
    return "\n".join([printed_by(f"python {command} --seeds {seeds}"), "", *lines])


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--car", action="store_true", help="MountainCar alone")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="replace the table of this page")
    options = parser.parse_args(words)
    command = "benchmarks/policy_iteration.py" + " --car" * options.car
    show(report(options.seeds, CAR if options.car else PROBLEMS, command), command, options.write)


if __name__ == "__main__":
    main(sys.argv[1:])
