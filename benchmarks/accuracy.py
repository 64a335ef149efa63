"""Measure the digits that LSTD(λ) loses in float64, against sums and solves at 50 digits.

    python benchmarks/accuracy.py [--write docs/results/accuracy.md]

The streams have systems with condition numbers from 1e1 to 1e15, made in two ways: by features that nearly repeat one
another, with a negligible ridge term, and by features that repeat one another exactly, which only the ridge term
distinguishes. The weights and predictions are those of `LSTD.fit`, of statistics merged from chunks, and of
`RecursiveLSTD` after the last transition. `--write` puts the tables into a page of the documentation, between its
markers.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import mpmath  # type: ignore[import-untyped,unused-ignore]
import numpy as np
from numpy.typing import NDArray

from lstd import LSTD, LSTDStatistics, RecursiveLSTD
from lstd.errors import IllConditionedWarning, LSTDWarning
from lstd.statistics.system import System
from pages import show

Array = NDArray[np.float64]
GAMMA = 0.95
LMBDA = 0.8
DIGITS = 50
N_ROWS = 301
N_FEATURES = 3  # half of the features; the others repeat them
SEEDS = (0, 1, 2)
CHUNKS = (1, 2, 5, 50, 100, 101, 102, 250)  # rows that chunks begin with
POWERS = range(1, 16)


class Data(NamedTuple):
    """A stream whose last row is the successor of the one before, and the ridge coefficient."""

    X: Array
    y: Array
    alpha: float


class Outcome(NamedTuple):
    """Relative errors of weights and of predictions, and whether an IllConditionedWarning was given."""

    weights: float
    predictions: float
    warned: bool


# ---------------------------------------------------------------- data


def nearly_repeated(power: int, seed: int) -> Data:
    """Make features and the same again with noise, for a condition number of about 10^power."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(N_ROWS, N_FEATURES))
    noise = 3.0 * 10.0 ** (-power / 2) * random.normal(size=X.shape)
    return Data(np.c_[X, X + noise], random.normal(size=N_ROWS), 1e-16)


def repeated(power: int, seed: int) -> Data:
    """Make features twice over, and a ridge coefficient for a condition number of about 10^power."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(N_ROWS, N_FEATURES))
    return Data(np.c_[X, X], random.normal(size=N_ROWS), 1e3 * 10.0**-power)


def exact(data: Data) -> Array:
    """Compute the weights of Boyan's estimator at 50 digits, and round them."""
    with mpmath.workdps(DIGITS):
        number = np.vectorize(mpmath.mpf, otypes=[object])
        X = number(data.X)
        y = number(data.y)
        n = data.X.shape[1]
        A = number(data.alpha * np.eye(n))
        b = number(np.zeros(n))
        z = number(np.zeros(n))
        gamma = mpmath.mpf(GAMMA)
        lmbda = mpmath.mpf(LMBDA)
        for t in range(len(X) - 1):
            z = lmbda * gamma * z + X[t]
            A = A + np.outer(z, X[t] - gamma * X[t + 1])
            b = b + z * y[t]
        return np.array([float(w) for w in mpmath.lu_solve(mpmath.matrix(A.tolist()), mpmath.matrix(b.tolist()))])


# ---------------------------------------------------------------- the three ways


def by_fit(data: Data) -> Array:
    """Fit all rows at once."""
    return np.asarray(LSTD(GAMMA, LMBDA, data.alpha, fit_intercept=False).fit(data.X, data.y).coef_)


def by_merging(data: Data) -> Array:
    """Merge the statistics of chunks from the last to the first."""
    edges = [0, *CHUNKS, len(data.X)]
    parts = [
        LSTDStatistics.from_arrays(data.X[first:end], data.y[first:end], gamma=GAMMA, lmbda=LMBDA)
        for first, end in pairwise(edges)
    ]
    whole = parts[-1]
    for part in reversed(parts[:-1]):
        whole = part.then(whole)
    return np.asarray(whole.solve(data.alpha).weights)


def by_recursion(data: Data) -> Array:
    """Update by one transition after another; only warnings of the last reading count."""
    model = RecursiveLSTD(data.X.shape[1], GAMMA, LMBDA, data.alpha)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LSTDWarning)
        for t in range(len(data.X) - 1):
            model.update(data.X[t], float(data.y[t]), data.X[t + 1])
    return model.weights


WAYS: dict[str, Callable[[Data], Array]] = {
    "`LSTD.fit`": by_fit,
    "merged": by_merging,
    "`RecursiveLSTD`": by_recursion,
}


def outcome(data: Data, way: Callable[[Data], Array], truth: Array) -> Outcome:
    """Measure the errors of one way, in the Euclidean norm."""
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        weights = way(data)
    error = data.X @ (weights - truth)
    size = data.X @ truth
    return Outcome(
        float(np.linalg.norm(weights - truth) / np.linalg.norm(truth)),
        float(np.linalg.norm(error) / np.linalg.norm(size)),
        any(issubclass(warning.category, IllConditionedWarning) for warning in given),
    )


def condition_number(data: Data) -> float:
    """Compute the condition number of the scaled system, as `condition_number_` of a model."""
    sums = LSTDStatistics.from_arrays(data.X, data.y, gamma=GAMMA, lmbda=LMBDA)
    ridge = np.full(sums.n_features, data.alpha)
    return System.of(sums, "boyan", ridge, intercept=False).solve().condition_number


# ---------------------------------------------------------------- tables


def row(make: Callable[[int, int], Data], power: int) -> str:
    """Make a row of a table: the median condition number and the largest errors of several streams."""
    conditions: list[float] = []
    outcomes: dict[str, list[Outcome]] = {name: [] for name in WAYS}
    for seed in SEEDS:
        data = make(power, seed)
        truth = exact(data)
        conditions.append(condition_number(data))
        for name, way in WAYS.items():
            outcomes[name].append(outcome(data, way, truth))
    cells = [
        f"{max(o.predictions for o in each):.0e} | {max(o.weights for o in each):.0e}" for each in outcomes.values()
    ]
    warned = [o.warned for each in outcomes.values() for o in each]
    warns = "yes" if all(warned) else "some" if any(warned) else "no"
    return f"| {np.median(conditions):.0e} | {' | '.join(cells)} | {warns} |"


def table(make: Callable[[int, int], Data]) -> list[str]:
    """Make a table."""
    head = [f"{name}: {what}" for name in WAYS for what in ("predictions", "weights")]
    return [
        f"| condition number | {' | '.join(head)} | IllConditionedWarning |",
        "|" + "---|" * (len(head) + 2),
        *(row(make, power) for power in POWERS),
    ]


def page() -> list[str]:
    """Make the text between the markers."""
    from lstd.experiments.reproduce.run import describe_machine

    return [
        f"Made by `python benchmarks/accuracy.py --write docs/results/accuracy.md` on {datetime.date.today()}: "
        f"{describe_machine()['cpu']}, {os.cpu_count()} cores, Python {platform.python_version()}, NumPy "
        f"{np.__version__}. Boyan's LSTD({LMBDA}), discount {GAMMA}, {N_ROWS} rows of {2 * N_FEATURES} features. "
        f"Errors are relative, in the Euclidean norm, against {DIGITS} digits; each is the largest of {len(SEEDS)} "
        "streams.",
        "",
        "## Features that nearly repeat one another",
        "",
        *table(nearly_repeated),
        "",
        "## Features that repeat one another exactly, told apart by the ridge term",
        "",
        *table(repeated),
    ]


def main(arguments: Any = None) -> None:
    """Print the tables, and write them with --write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--write", type=Path, metavar="PAGE", help="also put the tables into this Markdown page")
    chosen = parser.parse_args(arguments)
    show("\n".join(page()), "benchmarks/accuracy.py", chosen.write)


if __name__ == "__main__":
    main()
