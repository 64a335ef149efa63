"""How often do intervals hold the truth in the setting of Shi, Zhang, Lu and Song (2022, arXiv 2001.04515)?

    python benchmarks/sieve_intervals.py [--repeats 400]
    python benchmarks/sieve_intervals.py --docs

Two numbers describe a state, two actions push it; the target policy takes the second action where both numbers are
positive, γ = 0.5, and the initial states are standard normal. n episodes of T steps are cut off. The actions are drawn
at random, or more often the second one in states of large numbers. The features are the paper's: products of cubic
B-splines of the states' normal distribution function, with knots at the quantiles of the log, for each action.
"Sieve" is the paper's interval; its variance is that of independent TD errors of transitions. `LSTDQ` has the same
estimate, and the variance of a jackknife over episodes.
"""

from __future__ import annotations

import argparse
import datetime
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import BSpline
from scipy.special import expit
from scipy.stats import norm
from threadpoolctl import threadpool_limits

from lstd.ope import LSTDQ, policy_value
from pages import measure_or_write
from provenance import describe_machine

Array = NDArray[Any]
PAGE = Path(__file__).resolve().parents[1] / "docs" / "results" / "policy-intervals.md"
GAMMA = 0.5
RIDGE = 1e-9
SEED = 58_000
QUANTILES = norm.ppf((np.arange(50) + 0.5) / 50.0)
INITIAL = np.stack(np.meshgrid(QUANTILES, QUANTILES), axis=-1).reshape(-1, 2)  # stands for the normal distribution
SIZES = tuple((n, steps) for n in (25, 50) for steps in (30, 50, 70))
BEHAVIORS = {"at random": lambda s: np.full(len(s), 0.5), "by the state": lambda s: expit(s).mean(axis=1)}


class Episodes(NamedTuple):
    """States (n, T + 1, 2), actions and rewards (n, T)."""

    states: Array
    actions: Array
    rewards: Array


def target(states: Array) -> Array:
    """Return the action of the target policy."""
    return np.asarray((states > 0.0).all(axis=-1)).astype(int)


def drawn(act: Any, n: int, steps: int, random: np.random.Generator) -> Episodes:
    """Draw episodes of a function of states and random numbers that returns actions."""
    s = random.normal(size=(n, 2))
    states = [s]
    actions = []
    rewards = []
    for _ in range(steps):
        a = act(s, random)
        sign = 2 * a - 1
        s = 0.75 * np.column_stack([sign * s[:, 0], -sign * s[:, 1]]) + 0.5 * random.normal(size=(n, 2))
        states.append(s)
        actions.append(a)
        rewards.append(2.0 * s[:, 0] + s[:, 1] - 0.25 * sign)
    return Episodes(np.stack(states, 1), np.stack(actions, 1), np.stack(rewards, 1))


def truth(n: int = 1_000_000) -> tuple[float, float]:
    """Return the value of the target policy, by simulation of 30 steps, and its standard error."""
    found = drawn(lambda s, random: target(s), n, 30, np.random.default_rng(SEED)).rewards @ GAMMA ** np.arange(30)
    return float(found.mean()), float(found.std() / np.sqrt(n))


def spline_features(states: Array, n_rows: int) -> Any:
    """Return a function of states: products of B-splines, with as many knots as the paper has for so many rows."""
    n_knots = max(7, int(np.sqrt(n_rows ** (3.0 / 7.0))) + 3) + 1
    knots = np.quantile(norm.cdf(states), np.linspace(0.0, 1.0, n_knots), axis=0)
    splines = [BSpline(knots[:, i], np.eye(n_knots - 4), 3) for i in range(2)]

    def phi(s: Array) -> Array:
        one, two = (spline(norm.cdf(s[:, i])) for i, spline in enumerate(splines))
        return np.asarray((one[:, :, np.newaxis] * two[:, np.newaxis]).reshape(len(s), -1))

    return phi


def by_action(phi: Array, actions: Array) -> Array:
    """Return features of pairs: a block of columns for each action."""
    return np.hstack([phi * (actions == a)[:, np.newaxis] for a in (0, 1)])


def sieve_interval(data: Episodes, phi: Any) -> tuple[float, float]:
    """Return the paper's interval of the value from normal initial states."""
    s = data.states[:, :-1].reshape(-1, 2)
    after = data.states[:, 1:].reshape(-1, 2)
    x = by_action(phi(s), data.actions.ravel())
    following = by_action(phi(after), target(after))
    mean = by_action(phi(INITIAL), target(INITIAL)).mean(axis=0)
    N = len(s)
    A = x.T @ (x - GAMMA * following) / N + RIDGE * np.eye(x.shape[1])
    theta = np.linalg.solve(A, x.T @ data.rewards.ravel() / N)
    error = data.rewards.ravel() + GAMMA * following @ theta - x @ theta
    influence = x @ np.linalg.solve(A.T, mean) * error
    half = norm.ppf(0.975) * float(np.sqrt(influence @ influence)) / N
    value = float(mean @ theta)
    return value - half, value + half


def fitted_interval(data: Episodes, phi: Any) -> tuple[float, float]:
    """Return the interval of `LSTDQ` with the same features and ridge."""
    n, steps = data.actions.shape
    padded = {"actions": np.pad(data.actions, ((0, 0), (0, 1))).ravel(), "terminated": np.zeros(n * (steps + 1), bool)}
    rewards = np.pad(data.rewards, ((0, 0), (0, 1)), constant_values=np.nan).ravel()
    states = data.states.reshape(-1, 2)
    episode = np.repeat(np.arange(n), steps + 1)
    model = LSTDQ(GAMMA, alpha=RIDGE * n * steps, fit_intercept=False, weighting="none")
    model.fit(phi(states), rewards, episode=episode, target_policy=np.eye(2)[target(states)], **padded)
    found = policy_value(model, phi(INITIAL), target_policy=np.eye(2)[target(INITIAL)], sample="fixed")
    return found.lower, found.upper


METHODS = {"sieve": sieve_interval, "LSTDQ": fitted_interval}


def measured(repeats: int) -> dict[str, Any]:
    """Count the intervals that hold the truth, for each behaviour and size."""
    value, error = truth()
    rows = []
    for number, (name, behavior) in enumerate(BEHAVIORS.items()):
        for n, steps in SIZES:
            found: dict[str, list[tuple[float, float]]] = {method: [] for method in METHODS}
            for repeat in range(repeats):
                random = np.random.default_rng([SEED, number, n, steps, repeat])
                data = drawn(lambda s, r, p=behavior: (r.uniform(size=len(s)) < p(s)) * 1, n, steps, random)
                phi = spline_features(data.states.reshape(-1, 2), n * steps)
                with warnings.catch_warnings(action="ignore"), threadpool_limits(1):
                    for method, interval in METHODS.items():
                        found[method].append(interval(data, phi))
            row: dict[str, Any] = {"behavior": name, "n": n, "steps": steps}
            for method, intervals in found.items():
                low, high = np.array(intervals).T
                row[method] = [float(np.mean((low <= value) & (value <= high))), float(np.mean(high - low))]
            rows.append(row)
            print(row, flush=True)
    return {
        "date": str(datetime.date.today()),
        "machine": describe_machine(),
        "repeats": repeats,
        "truth": value,
        "error": error,
        "rows": rows,
    }


def table(found: dict[str, Any]) -> list[str]:
    """Return the lines of the table."""
    repeats = found["repeats"]
    lines = [
        f"Measured by `python benchmarks/sieve_intervals.py --repeats {repeats}` on {found['date']}: "
        f"{found['machine']['cores']} cores, Python {found['machine']['python']}. {repeats} logs of each row; the "
        f"standard error of a coverage of 0.95 is {np.sqrt(0.0475 / repeats):.3f}. The value is {found['truth']:.3f}, "
        f"with a standard error of {found['error']:.3f}.",
        "",
        "| actions of the log | episodes | steps | sieve: truth held | length | `LSTDQ`: truth held | length |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in found["rows"]:
        cells = [f"{row[method][0]:.3f} | {row[method][1]:.3f}" for method in METHODS]
        lines.append(f"| {row['behavior']} | {row['n']} | {row['steps']} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--repeats", type=int, default=400)
    parser.add_argument("--docs", action="store_true", help="write the newest table into the page")
    options = parser.parse_args()
    measure_or_write(
        "sieve-intervals",
        "benchmarks/sieve_intervals.py",
        PAGE,
        lambda: measured(options.repeats),
        table,
        docs=options.docs,
    )


if __name__ == "__main__":
    main()
