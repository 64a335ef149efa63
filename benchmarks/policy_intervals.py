"""Measure how often intervals for values of policies hold the fixed point, and how often they hold the truth.

    python benchmarks/policy_intervals.py [--repeats 500] [--episodes 30 100] [--write docs/results/policy-intervals.md]

A process of 6 states and 3 actions with known transitions, discount 0.9, logged by a random policy in episodes of 20
steps that are cut off. The features of states are unit vectors, or two coarse ones: the index of the state, from 0 to
1, and a one. The fixed point is the solution with exact expectations over states, actions and traces; the ridge
coefficient is 1e-3. Initial states are those of the episodes. "differences" are three policies whose three intervals
must all hold.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lstd import LSTD
from lstd.ope import LSTDQ, compare_policies, policy_value
from pages import show
from provenance import printed_by

Array = NDArray[np.float64]

S = 6
A = 3
GAMMA = 0.9
LENGTH = 20
SEED = 41_000
EPISODES = (30, 100)
ESTIMATORS = (("none", 0.0), ("retrace", 0.9), ("ratios", 0.0))
TITLES = {"none": "`LSTDQ(0)`", "retrace": "Retrace(0.9)", "ratios": "`LSTD(0)`, ratios"}


class Process(NamedTuple):
    """Transitions (S, A, S), mean rewards (S, A), and the policies that log and that are evaluated."""

    P: Array
    r: Array
    mu: Array
    pi: Array

    @classmethod
    def random(cls) -> Process:
        random = np.random.default_rng(SEED)
        P = random.dirichlet(np.full(S, 0.5), size=(S, A))
        r = random.normal(size=(S, A)) + np.arange(S)[:, np.newaxis]
        mu, pi = (random.dirichlet(np.full(A, k), size=S) for k in (3.0, 1.0))
        return cls(P, r, mu, pi)

    def value(self, pi: Array) -> float:
        """Value of a policy from uniform initial states."""
        P = np.einsum("sa,sat->st", pi, self.P)
        r = (pi * self.r).sum(axis=1)
        return float(np.linalg.solve(np.eye(S) - GAMMA * P, r).mean())

    def simulate(self, n: int, random: np.random.Generator) -> dict[str, Array]:
        """States (n, LENGTH + 1), actions and rewards of n episodes."""
        s = random.integers(S, size=n)
        states = np.empty((n, LENGTH + 1), int)
        actions = np.zeros((n, LENGTH + 1), int)
        rewards = np.zeros((n, LENGTH + 1))
        for t in range(LENGTH):
            a = draw(self.mu[s], random)
            states[:, t], actions[:, t], rewards[:, t] = s, a, self.r[s, a] + random.normal(size=n)
            s = draw(self.P[s, a], random)
        states[:, LENGTH], rewards[:, LENGTH] = s, np.nan
        return {"states": states.ravel(), "actions": actions.ravel(), "y": rewards.ravel()}


def draw(p: Array, random: np.random.Generator) -> NDArray[np.intp]:
    passed = (random.uniform(size=(len(p), 1)) > p.cumsum(axis=1)).sum(axis=1)
    return np.asarray(np.minimum(passed, p.shape[1] - 1))


def fixed_point(process: Process, phi: Array, pi: Array, trace: str, lmbda: float) -> float:
    """Value of the exact solution: expectations of z_t δ_t over episodes, state by state and action by action."""
    n = phi.shape[1]
    if trace == "ratios":  # state values, without traces
        pairs = phi
        after = np.einsum("sa,sat,tn->sn", pi, process.P, phi)
        reward = (pi * process.r).sum(axis=1)
        c = np.zeros(S)
        step = np.einsum("sa,sat->st", process.mu, process.P)
        d = np.full(S, 1 / S)
    else:
        pairs = np.einsum("sn,ab->sabn", phi, np.eye(A)).reshape(S * A, A * n)
        bar = np.einsum("sn,sa->san", phi, pi).reshape(S, A * n)
        after = process.P.reshape(S * A, S) @ bar
        reward = process.r.ravel()
        ratio = (pi / process.mu).ravel()
        c = np.minimum(1.0, ratio) if trace == "retrace" else np.zeros(S * A)
        step = np.einsum("kt,tb->ktb", process.P.reshape(S * A, S), process.mu).reshape(S * A, S * A)
        d = (process.mu / S).ravel()
    z = np.zeros((len(pairs), pairs.shape[1]))
    M = 0.0
    b = 0.0
    for _ in range(LENGTH):
        z = lmbda * GAMMA * c[:, np.newaxis] * z + d[:, np.newaxis] * pairs
        M = M + z.T @ (pairs - GAMMA * after)
        b = b + z.T @ reward
        z = step.T @ z
        d = step.T @ d
    theta = np.linalg.lstsq(np.asarray(M), np.asarray(b), rcond=1e-10)[0]
    start = phi if trace == "ratios" else np.einsum("sn,sa->san", phi, pi).reshape(S, A * n)
    return float((start @ theta).mean())


def fitted(data: dict[str, Array], phi: Array, process: Process, pi: Array, trace: str, lmbda: float) -> Any:
    """Fit a model of the value of pi."""
    s = data["states"]
    n = len(data["states"]) // (LENGTH + 1)
    ends = {"episode": np.repeat(np.arange(n), LENGTH + 1), "terminated": np.zeros(len(s), bool)}
    if trace == "ratios":
        ratio = (pi / process.mu)[s, data["actions"]]
        return LSTD(GAMMA, 0.0, 1e-3, fit_intercept=False).fit(phi[s], data["y"], importance_ratio=ratio, **ends)
    model = LSTDQ(GAMMA, lmbda, trace, 1e-3, fit_intercept=False, weighting="none")
    mu = process.mu[s, data["actions"]]
    return model.fit(phi[s], data["y"], actions=data["actions"], target_policy=pi[s], behavior_probability=mu, **ends)


def coverage(process: Process, phi: Array, n: int, estimator: tuple[str, float], repeats: int) -> tuple[float, ...]:
    """Share of the intervals that hold the fixed point, and the truth; half width, bias of the fixed point."""
    exact = fixed_point(process, phi, process.pi, *estimator)
    truth = process.value(process.pi)
    hits = np.zeros(2)
    half = 0.0
    for seed in range(repeats):
        data = process.simulate(n, np.random.default_rng([SEED, n, seed]))
        model = fitted(data, phi, process, process.pi, *estimator)
        starts = phi[data["states"][:: LENGTH + 1]] if estimator[0] == "ratios" else None
        found = policy_value(model, starts)
        hits += [found.lower <= one <= found.upper for one in (exact, truth)]
        half += (found.upper - found.lower) / 2
    return (*(hits / repeats), half / repeats, exact - truth)


def together(process: Process, phi: Array, n: int, repeats: int) -> float:
    """Share of the comparisons of three policies whose intervals all hold the differences of the fixed points."""
    policies = [(1 - share) * process.mu + share * process.pi for share in (0.0, 0.5, 1.0)]
    exact = np.array([fixed_point(process, phi, pi, "retrace", 0.9) for pi in policies])
    hits = 0
    for seed in range(repeats):
        data = process.simulate(n, np.random.default_rng([SEED, n, seed]))
        found = compare_policies([fitted(data, phi, process, pi, "retrace", 0.9) for pi in policies])
        difference = exact[:, np.newaxis] - exact
        hits += bool(((found.lower <= difference + 1e-9) & (difference - 1e-9 <= found.upper)).all())
    return hits / repeats


def report(repeats: int, episodes: Sequence[int] = EPISODES) -> str:
    process = Process.random()
    features = {"unit vectors": np.eye(S), "coarse": np.column_stack([np.arange(S) / (S - 1), np.ones(S)])}
    lines = [
        "| features | episodes | estimator | fixed point | truth | half width | bias of the fixed point |",
        "|---|---|---|---|---|---|---|",
    ]
    for (name, phi), n in ((item, n) for item in features.items() for n in episodes):
        for trace, lmbda in ESTIMATORS:
            exact, truth, half, bias = coverage(process, phi, n, (trace, lmbda), repeats)
            goal = " (goal 0.93–0.97: %s)" % ("met" if 0.93 <= exact <= 0.97 else "missed") if n >= 100 else ""
            lines.append(
                f"| {name} | {n} | {TITLES[trace]} | {exact:.3f}{goal} | {truth:.3f} | {half:.3f} | {bias:+.3f} |"
            )
            print(lines[-1], flush=True)
    shares = [f"{together(process, features['unit vectors'], n, repeats):.3f} ({n} episodes)" for n in episodes]
    lines += ["", f"All three differences of three policies at once, Retrace(0.9), unit vectors: {', '.join(shares)}."]
    command = f"python benchmarks/policy_intervals.py --repeats {repeats} --episodes {' '.join(map(str, episodes))}"
    heading = (
        f"{printed_by(command)} {repeats} data sets per row; the standard error of a coverage of 0.95 is "
        f"{np.sqrt(0.95 * 0.05 / repeats):.3f}. The value is {process.value(process.pi):.2f}."
    )
    return "\n".join([heading, "", *lines])


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=500)
    parser.add_argument("--episodes", type=int, nargs="+", default=EPISODES)
    parser.add_argument("--write", type=Path, metavar="PAGE", help="replace the table of this page")
    options = parser.parse_args(words)
    show(report(options.repeats, options.episodes), "benchmarks/policy_intervals.py", options.write)


if __name__ == "__main__":
    main(sys.argv[1:])
