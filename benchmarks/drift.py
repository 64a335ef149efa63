"""Measure how often `RecursiveLSTD` warns of a change, on streams that do not change and on streams that do.

    python benchmarks/drift.py [--steady 10] [--changed 40] [--coverage 300] [--docs]

Steady streams have 100 000 steps each; every ChangeWarning in them is false. In changed streams the mean reward jumps
after 20 000 steps by half a standard deviation of the one-step errors r + γv' − v; the sensor of `sensor_stream.py`
wears out after 12 000. The delay is the number of steps to the first warning after the change, which is noticed within
5/(1 − γ) steps or later. Coverage is the share of streams whose 95 % interval, at the end and with forgetting for its
effective sample, holds the fixed point; it is averaged over rows. The constants of the rule were made with other
seeds. Results are stored in benchmarks/results; --docs writes the page from them and measures nothing.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

import sensor_stream
from lstd import RecursiveLSTD
from lstd.errors import ChangeWarning
from lstd.mrp import RandomMRP, make_features
from pages import measure_or_write

Array = NDArray[np.float64]
ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "results" / "drift.md"
SOURCE = "benchmarks/drift.py"

SEED = 20_000
STEPS = 100_000
BEFORE = 20_000
WORN = 12_000
LOOK = 16  # rows learned between two looks after a change
GIVEN_UP = 200.0  # times 1/(1 − γ), steps after a change


class Rows(NamedTuple):
    X: Array
    y: Array
    gamma: float
    ends: dict[str, Any]


def autoregression(random: np.random.Generator, n_rows: int, rho: float) -> Array:
    return np.asarray(lfilter([np.sqrt(1.0 - rho**2)], [1.0, -rho], random.normal(size=n_rows)))


def of_noise(random: np.random.Generator, n_rows: int, gamma: float, noise: Array) -> Rows:
    X = np.column_stack([random.normal(size=(n_rows, 4)), np.ones(n_rows)])
    return Rows(X, 0.5 * X[:, 0] + noise, gamma, {})


def of_process(random: np.random.Generator, n_rows: int, n_states: int, features: str) -> Rows:
    model = RandomMRP(n_states, 3 if n_states == 10 else 10, 0.1, int(random.integers(2**31)))
    path = model.simulate(n_rows, int(random.integers(2**31)))
    return Rows(make_features(model, features)[path.states[:n_rows]], path.rewards[:n_rows], 0.99, {})


def of_episodes(random: np.random.Generator, n_rows: int) -> Rows:
    """Episodes of 20 steps on average; each has its own mean reward, which is a feature."""
    ends = np.cumsum(random.geometric(0.05, n_rows // 5))
    terminated = np.zeros(n_rows, dtype=bool)
    terminated[ends[ends <= n_rows] - 1] = True
    episode = np.cumsum(terminated) - terminated
    own = random.normal(size=n_rows)[episode]
    X = np.column_stack([own, random.normal(size=(n_rows, 2)), np.ones(n_rows)])
    return Rows(X, own + random.normal(size=n_rows), 0.98, {"episode": episode, "terminated": terminated})


def of_sensor(random: np.random.Generator, n_rows: int, wear: float = 2.0) -> Rows:
    temperature, vibration = sensor_stream.simulate(n_rows + 1, int(random.integers(2**31)), wear)
    excess = np.maximum(0.0, temperature - sensor_stream.LIMIT)
    phi = sensor_stream.features_of(temperature, vibration)
    return Rows(phi[:n_rows], excess[1:], sensor_stream.GAMMA, {})


STREAMS: dict[str, Callable[[np.random.Generator, int], Rows]] = {
    "normal rewards, γ = 0.97": lambda r, n: of_noise(r, n, 0.97, r.normal(size=n)),
    "normal rewards, γ = 0.99": lambda r, n: of_noise(r, n, 0.99, r.normal(size=n)),
    "Student's t with 2.5 degrees": lambda r, n: of_noise(r, n, 0.98, r.standard_t(2.5, size=n)),
    "log-normal, σ = 1.5": lambda r, n: of_noise(r, n, 0.98, r.lognormal(0.0, 1.5, size=n)),
    "10 random states, tabular": lambda r, n: of_process(r, n, 10, "tabular"),
    "100 random states, binary": lambda r, n: of_process(r, n, 100, "binary"),
    "episodes": of_episodes,
    "clusters of large errors": lambda r, n: of_noise(
        r, n, 0.98, np.exp(0.7 * autoregression(r, n, 0.99)) * r.normal(size=n)
    ),
    "errors with autocorrelation 0.95": lambda r, n: of_noise(
        r, n, 0.98, autoregression(r, n, 0.95) + 0.5 * r.normal(size=n)
    ),
    "errors with autocorrelation 0.99": lambda r, n: of_noise(
        r, n, 0.99, autoregression(r, n, 0.99) + 0.5 * r.normal(size=n)
    ),
    "the sensor": of_sensor,
}


def part(rows: Rows, first: int, stop: int) -> tuple[Any, ...]:
    chunk = slice(first, stop)
    return rows.X[chunk], rows.y[chunk], {name: values[chunk] for name, values in rows.ends.items()}


def alarms(model: RecursiveLSTD, X: Array, y: Array, ends: dict[str, Any]) -> tuple[int, Array]:
    """Learn rows; return the number of warnings of a change, and the predictions."""
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        predictions = model.partial_fit(X, y, return_predictions=True, **ends)
    return sum(issubclass(one.category, ChangeWarning) for one in given), predictions


def size_of_errors(rows: Rows, predictions: Array) -> float:
    """Standard deviation of one-step errors."""
    following = np.append(predictions[1:], 0.0)
    if rows.ends:
        following[rows.ends["terminated"]] = 0.0
    return float(np.std((rows.y + rows.gamma * following - predictions)[BEFORE // 2 : BEFORE - 1]))


def false_alarms(name: str, n_streams: int) -> int:
    total = 0
    for stream in range(n_streams):
        rows = STREAMS[name](np.random.default_rng([SEED, stream]), STEPS)
        total += alarms(RecursiveLSTD(rows.X.shape[1], rows.gamma), *part(rows, 0, STEPS))[0]
    return total


def delays(name: str, n_streams: int) -> Iterator[float]:
    """Yield the steps from the change to the first warning after it, infinite if there is none."""
    for stream in range(n_streams):
        random = np.random.default_rng([SEED + 1, stream])
        worn = name == "the sensor"
        before = WORN if worn else BEFORE
        if worn:
            rows = of_sensor(random, 20_000, wear=WORN / 20_001)
        else:
            pilot = STREAMS[name](random, before + int(GIVEN_UP / 0.01) + LOOK)
            model = RecursiveLSTD(pilot.X.shape[1], pilot.gamma)
            jump = 0.5 * size_of_errors(pilot, alarms(model, *part(pilot, 0, len(pilot.y)))[1])
            rows = pilot._replace(y=pilot.y + jump * (np.arange(len(pilot.y)) >= before))
        model = RecursiveLSTD(rows.X.shape[1], rows.gamma)
        alarms(model, *part(rows, 0, before))
        last = len(rows.y) - LOOK if worn else before + int(GIVEN_UP / (1.0 - rows.gamma))
        looks = range(before, last, LOOK)
        found = next((at for at in looks if alarms(model, *part(rows, at, at + LOOK))[0]), None)
        yield np.inf if found is None else found + LOOK - before


def overheating(n_streams: int) -> float:
    """Share of worn sensors that overheat at all within 5/(1 − γ) steps of the wear: others show it in no reward."""
    shown = []
    for stream in range(n_streams):
        rows = of_sensor(np.random.default_rng([SEED + 1, stream]), 20_000, wear=WORN / 20_001)
        shown.append(rows.y[WORN : WORN + int(5.0 / (1.0 - rows.gamma))].max() > 0.0)
    return float(np.mean(shown))


def coverage(n_streams: int, forgetting: float) -> float:
    """Share of intervals that hold the fixed point, of normal features with rewards that a hidden state correlates."""
    held = []
    for stream in range(n_streams):
        random = np.random.default_rng([SEED + 2, stream])
        X = np.column_stack([random.normal(size=(6000, 4)), np.ones(6000)])
        y = X[:, 0] + autoregression(random, 6000, 0.8) + random.normal(size=6000)
        model = RecursiveLSTD(5, 0.9, forgetting=forgetting)
        alarms(model, X, y, {})
        shown = random.normal(size=(50, 5))
        shown[:, -1] = 1.0
        interval = model.predict_interval(shown)
        exact = shown[:, 0]  # the features are independent of one another
        held.append(((interval.lower <= exact) & (exact <= interval.upper)).mean())
    return float(np.mean(held))


def measured(n_steady: int, n_changed: int, n_coverage: int) -> dict[str, Any]:
    found: dict[str, Any] = {"date": f"{datetime.date.today()}", "cores": os.cpu_count()}
    found |= {"python": platform.python_version(), "numpy": np.__version__}
    found |= {
        "steady": n_steady,
        "changed": n_changed,
        "repeats": n_coverage,
        "streams": {},
        "coverage": {},
        "overheat": overheating(n_changed),
    }
    for name, draw in STREAMS.items():
        gamma = draw(np.random.default_rng(0), 100).gamma
        waits = list(delays(name, n_changed))
        one = {
            "gamma": gamma,
            "false": false_alarms(name, n_steady),
            "delays": [w if w < np.inf else None for w in waits],
        }
        found["streams"][name] = one
        print(name, one["false"], np.median(waits), flush=True)
    for forgetting in (1.0, 0.999, 0.998):
        found["coverage"][f"{forgetting:g}"] = coverage(n_coverage, forgetting)
    return found


def table(found: dict[str, Any]) -> Iterator[str]:
    total = sum(one["false"] for one in found["streams"].values())
    n_steps = STEPS * found["steady"]
    yield (
        f"Printed by `python {SOURCE} --steady {found['steady']} --changed {found['changed']} --coverage "
        f"{found['repeats']}` on {found['date']}: {found['cores']} cores, Python {found['python']}, NumPy "
        f"{found['numpy']}. In all, {total} false alarms in {n_steps * len(found['streams']) / 1e6:.0f} million steps."
    )
    yield ""
    yield "| stream | false alarms per 100 000 steps | noticed within 5/(1−γ) steps | steps to the warning, median |"
    yield "|---|---|---|---|"
    for name, one in found["streams"].items():
        waits = [np.inf if w is None else w for w in one["delays"]]
        most = 5.0 / (1.0 - one["gamma"])
        middle = np.median(waits)
        shown = f"{middle:.0f}" if middle < np.inf else "not noticed"
        share = np.mean([w <= most + LOOK for w in waits])
        yield f"| {name} | {1e5 * one['false'] / n_steps:.1f} | {100 * share:.0f} % of {most:.0f} | {shown} |"
    yield ""
    yield f"Within these steps of the wear, {100 * found['overheat']:.0f} % of the worn sensors overheat at all."
    yield ""
    yield "| forgetting | coverage of the 95 % interval in a stream |"
    yield "|---|---|"
    for forgetting, share in found["coverage"].items():
        yield f"| {forgetting} | {share:.3f} |"


def main() -> None:
    """Measure, print and store; or write the documentation's page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--steady", type=int, default=10, help="streams of 100 000 steps of each kind")
    parser.add_argument("--changed", type=int, default=40, help="streams of each kind that change")
    parser.add_argument("--coverage", type=int, default=300, help="streams for the coverage of intervals")
    parser.add_argument("--docs", action="store_true", help="write the documentation's page; measure nothing")
    arguments = parser.parse_args()
    size = arguments.steady, arguments.changed, arguments.coverage
    measure_or_write("drift", SOURCE, PAGE, lambda: measured(*size), table, docs=arguments.docs)


if __name__ == "__main__":
    main()
