"""Measure how often `misfit_check` raises false alarms, how often it finds a misfit, and how well it sizes one.

    python benchmarks/misfit.py [--repeats 500] [--jobs 1]
    python benchmarks/misfit.py --docs

Each data set has groups of rows with errors in common, or is one stream. Expected returns are linear in the features,
or have a systematic part beside that, of root mean square 4 where returns scatter by about 11: a square or a wave of
one feature. The numbers go to results/misfit-DATE.json; with `--docs`, the table in docs/results/intervals.md is made
from the newest of these.
"""

from __future__ import annotations

import argparse
import datetime
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from lstd import LSTD
from pages import measure_or_write
from provenance import describe_machine

Array = NDArray[np.float64]
Data = tuple[Array, Array, dict[str, Any], float]  # features, rewards, other columns, discount

SOURCE = "benchmarks/misfit.py"
HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "results" / "intervals.md"
SEED = 71_000
SIZE = 4.0
PARTS: dict[str, Callable[[Array], Array]] = {
    "none": np.zeros_like,
    "square": lambda x: (x**2 - 1.0) / np.sqrt(2.0),
    "wave": lambda x: np.sqrt(2.0) * np.sin(3.0 * x),
}


def main() -> None:
    """Measure, print and store; or write the documentation's table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--repeats", type=int, default=500, help="data sets without a misfit; a fifth with each")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--docs", action="store_true", help="write the documentation's table; measure nothing")
    arguments = parser.parse_args()
    size = arguments.repeats, arguments.jobs
    measure_or_write("misfit", SOURCE, PAGE, lambda: measured(*size), table, docs=arguments.docs)


# ---------------------------------------------------------------- data


def visits(
    random: np.random.Generator, part: str, *, n_groups: int = 200, n: int = 3, skewed: bool = False, even: bool = False
) -> Data:
    """Rows of groups of 8 rows, or of 1 to 60; features and a skewed error are shared by a group."""
    sizes = np.full(n_groups, 8) if even else np.minimum(60, 1 + (3.0 * random.pareto(1.5, n_groups)).astype(int))
    group = np.repeat(np.arange(n_groups), sizes)
    z = 0.9 * random.normal(size=(n_groups, n))[group] + np.sqrt(0.19) * random.normal(size=(len(group), n))
    error = 8.0 * (random.exponential(size=n_groups) - 1.0)[group] + 7.5 * random.normal(size=len(group))
    X = np.exp(z) if skewed else z
    y = X @ np.full(n, 2.0) + SIZE * PARTS[part](z[:, 0] if not skewed or part == "wave" else standard(X[:, 0])) + error
    return X, y, {"groups": group, "terminated": np.ones(len(group), dtype=bool)}, 0.0


def customers(random: np.random.Generator, part: str) -> Data:
    """Customers who leave at each step with probability 0.1; half are still active after 2 to 13 steps."""
    length = random.geometric(0.1, 300)
    seen = random.integers(2, 14, 300)
    active = length > seen
    rows = np.where(active, seen + 1, length)
    episode = np.repeat(np.arange(300), rows)
    z = random.normal(size=(300, 3))
    y = ((z @ [2.0, 2.0, 2.0] + SIZE * PARTS[part](z[:, 0]))[episode] + random.normal(size=len(episode))) / 10.0
    last = np.append(np.diff(episode) > 0, True)
    return z[episode], y, {"episode": episode, "terminated": last & ~active[episode]}, 1.0


def stream(random: np.random.Generator, part: str) -> Data:
    """One stream of 5000 rows of two autoregressive features, with γ = 0.9."""
    x = np.zeros((5000, 2))
    for t in range(1, len(x)):
        x[t] = 0.8 * x[t - 1] + 0.6 * random.normal(size=2)
    rewards = x.sum(axis=1) + random.normal(size=len(x))
    # The value of E[x'²] − 1 = .64 (x² − 1) is (x² − 1)/(1 − .9 · .64); that of a wave has no simple form.
    return x, rewards + SIZE * (1.0 - 0.576 if part == "square" else 1.0) * PARTS[part](x[:, 0]), {}, 0.9


def standard(x: Array) -> Array:
    return np.asarray((x - x.mean()) / x.std())


CASES: dict[str, Callable[[np.random.Generator, str], Data]] = {
    "200 groups of 1 to 60 rows": visits,
    "50 groups of 1 to 60 rows": lambda random, part: visits(random, part, n_groups=50),
    "200 groups, lognormal features": lambda random, part: visits(random, part, skewed=True),
    "200 groups, 20 features": lambda random, part: visits(random, part, n=20),
    "300 customers, half still active": customers,
    "one stream of 5000 rows": stream,
    "200 groups of 8 rows": lambda random, part: visits(random, part, even=True),
}


# ---------------------------------------------------------------- measuring


def measured(repeats: int, jobs: int) -> dict[str, Any]:
    """Check every data set, and count."""
    cases: dict[str, Any] = {}
    for number, name in enumerate(CASES):
        for part in PARTS:
            seeds = [[SEED, number, repeat] for repeat in range(repeats if part == "none" else repeats // 5)]
            checks = np.array(Parallel(n_jobs=jobs)(delayed(checked)(name, part, seed) for seed in seeds))
            cases.setdefault(name, {})[part] = {
                "data_sets": len(checks),
                "below_0.05": float(np.mean(checks[:, 0] < 0.05)),
                "below_0.01": float(np.mean(checks[:, 0] < 0.01)),
                "systematic": float(np.sqrt(np.mean(checks[:, 1] ** 2))),
                "standard_error": float(np.mean(checks[:, 2])),
            }
            print(f"{name}, {part}: {cases[name][part]}", file=sys.stderr, flush=True)
    date = datetime.date.today().isoformat()
    return {"date": date, "repeats": repeats, "seed": SEED, "machine": describe_machine(), "cases": cases}


def checked(name: str, part: str, seed: list[int]) -> tuple[float, float, float]:
    """Return the p-value, the systematic part and the mean standard error of one data set."""
    X, y, columns, gamma = CASES[name](np.random.default_rng(seed), part)
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        check = LSTD(gamma, 0.9, fit_intercept=True).fit(X, y, **columns).misfit_check(X, y, **columns)
    assert check.standard_error is not None
    return float(check.p_value), float(check.systematic), float(check.standard_error)


def table(found: dict[str, Any]) -> list[str]:
    """Return the table of stored results."""
    machine = found["machine"]
    lines = [
        f"Measured by `python {SOURCE} --repeats {found['repeats']}` on {found['date']}: {machine['cores']} cores, "
        f"Python {machine['python']}; seeds {found['seed']}.",
        "",
        "| data | systematic part | data sets | p < 0.05 | p < 0.01 | systematic part found | mean standard error |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, parts in found["cases"].items():
        for part, one in parts.items():
            goal = ""
            if part == "none":
                goal = f" (goal ≤ 0.06: {'met' if one['below_0.05'] <= 0.06 else 'MISSED'})"
            lines.append(
                f"| {name} | {part} | {one['data_sets']} | {one['below_0.05']:.3f}{goal} | {one['below_0.01']:.3f} "
                f"| {one['systematic']:.2g} | {one['standard_error']:.2g} |"
            )
    return lines


if __name__ == "__main__":
    main()
