"""Can a model beat the true values in a backtest? Six processes whose values are known, and 17 models of each.

    python benchmarks/backtest_truth.py [--write docs/results/backtest.md]

A log has 400 subjects, who join at times 0 to 19, and 60 rows of each, or fewer if it ends. The cut is at time 45, and
14 steps are compared, at γ = 0.95. The truth has the true weights. The other models are fitted to the same features, to
more or to fewer, or are the truth times 0.5 and 1.5.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from lstd import LSTD
from lstd.metrics import backtest
from pages import write_between
from provenance import printed_by

GAMMA, SUBJECTS, LENGTH, CUT, STEPS = 0.95, 400, 60, 45, 14
LOGS = 40  # of each process


class Known(BaseEstimator):  # type: ignore[misc]
    """A model with weights that are given."""

    def __init__(self, weights: Any = None, gamma: float = GAMMA) -> None:
        self.weights, self.gamma = weights, gamma

    def fit(self, X: Any, *_: Any, **__: Any) -> Known:
        """Fit nothing."""
        return self

    def predict(self, X: Any) -> Any:
        """Predict with the weights."""
        return np.asarray(X)[:, : len(self.weights)] @ self.weights


def autoregressions(*rates: float) -> Any:
    """Return a simulator of sums of AR(1) processes, each of which is a feature, and the true weights."""
    rho = np.array(rates)

    def simulate(random: Any) -> tuple[Any, Any, Any]:
        x = random.normal(size=(SUBJECTS, len(rho))) / np.sqrt(1 - rho**2)
        X, y = [], []
        for _ in range(LENGTH):
            X.append(x)
            x = rho * x + random.normal(size=x.shape)
            y.append(x.sum(axis=1))
        return np.stack(X, 1), np.stack(y, 1), np.zeros((SUBJECTS, LENGTH), bool)

    return simulate, rho / (1 - GAMMA * rho)


def chain(P: Any, reward: Any, noise: float = 0.0) -> Any:
    """Return a simulator of a Markov chain with a reward for each state entered."""
    P, reward = np.asarray(P, float), np.asarray(reward, float)

    def simulate(random: Any) -> tuple[Any, Any, Any]:
        state, X, y, ends = random.integers(len(P), size=SUBJECTS), [], [], []
        for _ in range(LENGTH):
            X.append(np.eye(len(P))[state])
            state = (random.random((SUBJECTS, 1)) > P[state].cumsum(axis=1)).sum(axis=1)
            ends.append(state == len(P))
            state = np.minimum(state, len(P) - 1)
            rate = np.where(ends[-1], 0.0, reward[state])
            y.append(random.random(SUBJECTS) < rate if noise == 0.0 else rate + noise * random.normal(size=SUBJECTS))
        return np.stack(X, 1), np.stack(y, 1).astype(float), np.stack(ends, 1)

    return simulate, np.linalg.solve(np.eye(len(P)) - GAMMA * P, P @ reward)


def random_chain(seed: int, n: int, ends: float) -> Any:
    """Return a random chain with normal rewards that ends with some probability."""
    random = np.random.default_rng(seed)
    P = 0.8 * np.eye(n) + 0.2 * random.dirichlet(np.full(n, 0.3), n)
    return chain(P * (1.0 - ends * random.random((n, 1))), random.normal(size=n), noise=0.5)


PROCESSES = {
    "AR(1), 0.9": autoregressions(0.9),
    "AR(1), 0.9 and 0.5": autoregressions(0.9, 0.5),
    "AR(1), 0.98, 0.7 and 0.2": autoregressions(0.98, 0.7, 0.2),
    "customers who may leave": chain([[0.95, 0.04, 0.01], [0.05, 0.9, 0.05], [0.0, 0.0, 1.0]], [0.5, 0.1, 0.0]),
    "random chain of 8 states": random_chain(1, 8, 0.0),
    "random chain of 8 states, with ends": random_chain(2, 8, 0.05),
}


def log(simulate: Any, seed: int) -> tuple[Any, Any, dict[str, Any]]:
    """Return the rows of a log: subjects join in the first 20 steps and leave at their end."""
    random = np.random.default_rng(seed)
    X, y, ends = simulate(random)
    joined = random.integers(20, size=SUBJECTS)
    who, step = np.nonzero(np.cumsum(ends, axis=1) - ends == 0)
    return X[who, step], y[who, step], {"episode": who, "terminated": ends[who, step], "time": joined[who] + step}


def others(X: Any, weights: Any, columns: dict[str, Any], seed: int) -> list[tuple[Any, Any]]:
    """Return 17 models, and the features that each takes."""
    first = np.unique(columns["episode"], return_index=True, return_inverse=True)[1:]
    tenure = columns["time"] - columns["time"][first[0]][first[1]]
    noise = np.random.default_rng(seed).normal(size=(len(X), 10))
    sets = [X, np.column_stack([X, tenure]), np.column_stack([X, noise]), X[:, :1]]
    sets.append(np.column_stack([X, X**2, X[:, :1] * tenure[:, np.newaxis]]))
    models = [(LSTD(GAMMA, lmbda, alpha=0.01), features) for features in sets for lmbda in (0.0, 0.9, 1.0)]
    return models + [(Known(scale * weights), X) for scale in (0.5, 1.5)]


def main() -> None:
    """Print the table, and write it with --write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--write", type=Path, metavar="PAGE", help="also write the table into this Markdown page")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    lines = [
        "| process | R² of the truth | best model, more | said to be better | deciles off |",
        "|---|---|---|---|---|",
    ]
    for number, (name, (simulate, weights)) in enumerate(PROCESSES.items()):
        results = [compare(simulate, weights, 10_000 + 1000 * number + k) for k in range(LOGS)]
        truth, ahead, better, deciles = (np.array(column) for column in zip(*results, strict=True))
        lines.append(
            f"| {name} | {np.median(truth):.2f} | {np.median(ahead, axis=0).max():+.3f} | "
            f"{better.mean():.1%} | {deciles.mean():.1%} |"
        )
        print(lines[-1], flush=True)
    if arguments.write:
        page = "\n".join([printed_by("python benchmarks/backtest_truth.py"), "", *lines, ""])
        write_between(arguments.write, "benchmarks/backtest_truth.py", page)


def compare(simulate: Any, weights: Any, seed: int) -> tuple[float, list[float], list[bool], float]:
    """Return of one log: R² of the truth, what each model has more, whether its interval says so, and deciles."""
    X, y, columns = log(simulate, seed)
    test = {"cut": CUT, "steps": STEPS, **columns}
    truth = backtest(Known(weights), X, y, **test)
    bins = truth.calibration()
    off = np.abs(bins.predicted - bins.observed) > 2.0 * bins.standard_error
    tests = [backtest(model, features, y, **test) for model, features in others(X, weights, columns, seed)]
    return (
        truth.r2,
        [one.r2 - truth.r2 for one in tests],
        [bool(one.difference(truth).upper < 0.0) for one in tests],
        float(off.mean()),
    )


if __name__ == "__main__":
    main()
