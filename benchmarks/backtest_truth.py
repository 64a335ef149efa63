"""Can a model beat the true values in a backtest? Six processes whose values are known, and 17 models of each.

    python benchmarks/backtest_truth.py [--docs]

A log has 400 subjects, who join at times 0 to 19, and 60 rows of each, or fewer if it ends. The cut is at time 45, and
14 steps are compared, at γ = 0.95. The truth has the true weights. The other models are fitted to the same features, to
more or to fewer, or are the truth times 0.5 and 1.5. Deciles of the truth are also looked at in single streams of an
AR(1) process, cut after a tenth, over 10 steps. The seeds are not those with which the rules were made.
"""

from __future__ import annotations

import argparse
import datetime
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from lstd import LSTD
from lstd.metrics import backtest
from pages import measure_or_write
from provenance import describe_machine

GAMMA = 0.95
SUBJECTS = 400
LENGTH = 60
CUT = 45
STEPS = 14
# of each process
LOGS = 10
FIRST_SEED = 40_000
# streams of each length
STREAMS = 60
ROWS = (1000, 2000, 4000)
PAGE = Path(__file__).resolve().parents[1] / "docs" / "results" / "backtest.md"


class Known(BaseEstimator):  # type: ignore[misc]
    """A model with weights that are given."""

    def __init__(self, weights: Any = None, gamma: float = GAMMA) -> None:
        self.weights = weights
        self.gamma = gamma

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
        X = []
        y = []
        for _ in range(LENGTH):
            X.append(x)
            x = rho * x + random.normal(size=x.shape)
            y.append(x.sum(axis=1))
        return np.stack(X, 1), np.stack(y, 1), np.zeros((SUBJECTS, LENGTH), bool)

    return simulate, rho / (1 - GAMMA * rho)


def chain(P: Any, reward: Any, noise: float = 0.0) -> Any:
    """Return a simulator of a Markov chain with a reward for each state entered."""
    P = np.asarray(P, float)
    reward = np.asarray(reward, float)

    def simulate(random: Any) -> tuple[Any, Any, Any]:
        state = random.integers(len(P), size=SUBJECTS)
        X = []
        y = []
        ends = []
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


def measured() -> dict[str, Any]:
    """Compare models with the truth on all processes, and count deciles of the truth that are off, in streams too."""
    warnings.simplefilter("ignore")
    rows = []
    for number, (name, (simulate, weights)) in enumerate(PROCESSES.items()):
        results = [compare(simulate, weights, FIRST_SEED + 1000 * number + k) for k in range(LOGS)]
        truth, ahead, better, deciles = (np.array(column) for column in zip(*results, strict=True))
        rows.append(
            {
                "process": name,
                "r2": float(np.median(truth)),
                "ahead": float(np.median(ahead, axis=0).max()),
                "better": float(better.mean()),
                "deciles": float(deciles.mean()),
            }
        )
        print(rows[-1], flush=True)
    streams = {str(n): float(np.mean([stream_deciles(n, FIRST_SEED + k) for k in range(STREAMS)])) for n in ROWS}
    date = str(datetime.date.today())
    return {"date": date, "machine": describe_machine(), "logs": LOGS, "rows": rows, "streams": streams}


def stream_deciles(n: int, seed: int) -> float:
    """Return the share of deciles of the truth that are off in a stream of n rows of AR(1), 0.9."""
    random = np.random.default_rng(seed)
    x = np.zeros(n)
    rho = 0.9
    for t in range(1, n):
        x[t] = rho * x[t - 1] + random.normal()
    truth = Known(np.array([rho / (1 - GAMMA * rho)]))
    return off(backtest(truth, x[:, np.newaxis], np.append(x[1:], np.nan), cut=n // 10, steps=10))


def off(truth: Any) -> float:
    """Return the share of deciles that are more than two standard errors off."""
    bins = truth.calibration()
    return float(np.mean(np.abs(bins.predicted - bins.observed) > 2.0 * bins.standard_error))


def table(found: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield f"Measured by `python benchmarks/backtest_truth.py` on {found['date']}, {found['logs']} logs of each process."
    yield ""
    yield "| process | R² of the truth | best model, more | said to be better | deciles off |"
    yield "|---|---|---|---|---|"
    for row in found["rows"]:
        numbers = f"{row['r2']:.2f} | {row['ahead']:+.3f} | {row['better']:.1%} | {row['deciles']:.1%}"
        yield f"| {row['process']} | {numbers} |"
    for n, share in found["streams"].items():
        yield f"| one stream of {n} rows, AR(1), 0.9 | – | – | – | {share:.1%} |"


def main() -> None:
    """Measure and print the table, or write the newest one into the page with --docs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--docs", action="store_true", help="write the newest table into the page")
    docs = parser.parse_args().docs
    measure_or_write("backtest-truth", "benchmarks/backtest_truth.py", PAGE, measured, table, docs=docs)


def compare(simulate: Any, weights: Any, seed: int) -> tuple[float, list[float], list[bool], float]:
    """Return of one log: R² of the truth, what each model has more, whether its interval says so, and deciles."""
    X, y, columns = log(simulate, seed)
    test = {"cut": CUT, "steps": STEPS, **columns}
    truth = backtest(Known(weights), X, y, **test)
    tests = [backtest(model, features, y, **test) for model, features in others(X, weights, columns, seed)]
    return (
        truth.r2,
        [one.r2 - truth.r2 for one in tests],
        [bool(one.difference(truth).upper < 0.0) for one in tests],
        off(truth),
    )


if __name__ == "__main__":
    main()
