"""The range of one return: how many single returns lie in 90 % ranges of ReturnSpread, and the errors of its std.

    python benchmarks/return_spread.py [--repeats 25] [--docs docs/results/return-spread.md]

Customers have two hidden numbers that move slowly (AR(1), 0.9 a step) and that features show, as a whole or in part.
The first one decides the mean of the rewards, the second how likely the customer leaves and, in one process, how much
rewards scatter. Logs are complete, or every customer is cut off after 3 to 39 steps. The truth of 400 rows of a fresh
log is the distribution of 400 returns from each.
"""

from __future__ import annotations

import argparse
import warnings
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from lstd import LSTD, HorizonLSTD
from lstd.inference import ReturnSpread
from next_steps import least
from pages import measure_or_write
from provenance import describe_machine, printed_by

GAMMA = 0.95
LEVEL = 0.9
SIZES = (300, 100)
ROWS = 400
RETURNS = 400
FRESH = 3000


def zero_heavy(random: Any, mean: Any, _: Any) -> Any:
    """Nothing in most steps, else an exponential amount."""
    return (random.random(len(mean)) < 0.15 * mean) * random.exponential(5.0, len(mean))


REWARDS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "normal": lambda random, mean, _: mean + random.normal(size=len(mean)),
    "skewed": lambda random, mean, _: mean * random.exponential(size=len(mean)),
    "heteroscedastic": lambda random, mean, z: mean + np.exp(0.8 * z[:, 1]) * random.normal(size=len(mean)),
    "zero-heavy": zero_heavy,
    "long-tailed": lambda random, mean, _: mean * np.exp(1.3 * random.normal(size=len(mean)) - 0.845),
}


@dataclass(frozen=True)
class Process:
    """Customers of one kind of rewards."""

    rewards: str
    cut: bool = True
    ends: float = 0.04  # probability of leaving in a step, for the usual customer; 0: one endless stream
    coarse: bool = False  # features are four classes of the first number
    hidden: float = 0.0  # what a class that no feature shows adds to the mean reward, or takes from it
    constant: bool = False  # customers are alike, and features are one
    horizon: int | None = None

    def step(self, random: Any, z: Any, kind: Any) -> tuple[Any, Any, Any]:
        """Draw rewards, ends, and the next numbers."""
        z = 0.0 * z if self.constant else z
        mean = 1.0 + 0.6 * np.tanh(z[:, 0]) + self.hidden * (kind - 0.5)
        ended = random.random(len(z)) < np.minimum(self.ends * np.exp(0.7 * z[:, 1]), 0.9)
        later = 0.9 * z + np.sqrt(1.0 - 0.81) * random.normal(size=z.shape)
        return REWARDS[self.rewards](random, mean, z), ended, later

    def features(self, z: Any) -> Any:
        """What is known of customers."""
        if self.constant:
            return np.ones((len(z), 1))
        if self.coarse:
            return np.eye(4)[np.clip(np.floor(z[:, 0] + 2.0).astype(int), 0, 3)]
        leaves = np.exp(0.7 * np.minimum(z[:, 1], 3.0))
        return np.column_stack([np.tanh(z[:, 0]), leaves, z[:, 1], z[:, 1] ** 2])

    def log(self, random: Any, n: int) -> tuple[dict[str, Any], Any, Any]:
        """Draw n customers, or 5 n steps of one: arguments of `fit`, and the numbers and the class of each row."""
        n_customers = n if self.ends else 1
        z = random.normal(size=(n_customers, 2))
        kind = random.integers(2, size=n_customers)
        until = random.integers(3, 40, n) if self.cut else np.full(n_customers, 10**6)
        until = until if self.ends else np.array([5 * n])
        who = np.arange(n_customers)
        rows = []
        for step in range(int(until.max()) + 1):
            rewards, ended, later = self.step(random, z[who], kind[who])
            stops = until[who] == step
            rows.append((who, z[who], np.where(stops, np.nan, rewards), ended & ~stops))
            z[who] = later
            who = who[~ended & ~stops]
            if not len(who):
                break
        who, z, y, terminated = (np.concatenate(column) for column in zip(*rows, strict=True))
        order = np.argsort(who, kind="stable")
        who = who[order]
        z = z[order]
        return (
            {"X": self.features(z), "y": y[order], "episode": who, "terminated": terminated[order]},
            z,
            kind[who],
        )

    def returns(self, random: Any, z: Any, kind: Any) -> Any:
        """Draw returns of rows, (T, RETURNS)."""
        z = np.repeat(z, RETURNS, axis=0)
        kind = np.repeat(kind, RETURNS)
        total = np.zeros(len(z))
        factor = 1.0
        who = np.arange(len(z))
        steps = self.horizon or 200
        for _ in range(steps):
            rewards, ended, z = self.step(random, z, kind)
            total[who] += factor * rewards
            z = z[~ended]
            kind = kind[~ended]
            who = who[~ended]
            factor = factor * (1.0 if self.horizon else GAMMA)
        return total.reshape(-1, RETURNS)

    def model(self) -> Any:
        """The model of the process."""
        return HorizonLSTD(self.horizon) if self.horizon else LSTD(GAMMA)


PROCESSES = {
    **{f"{kind}, {'cut' if cut else 'complete'}": Process(kind, cut) for kind in REWARDS for cut in (False, True)},
    "an endless stream, skewed": Process("skewed", cut=False, ends=0.0),
    "coarse features, skewed, cut": Process("skewed", coarse=True),
    "constant features, skewed, complete": Process("skewed", cut=False, constant=True),
    "constant features, skewed, cut": Process("skewed", constant=True),
    "the next 12 steps, skewed, cut": Process("skewed", horizon=12),
    "hidden classes, normal, complete": Process("normal", cut=False, hidden=1.0),
    "hidden classes, normal, cut": Process("normal", hidden=1.0),
}


@dataclass(frozen=True)
class Truth:
    """Rows of a fresh log, and what single returns from them are."""

    X: Any
    kind: Any
    returns: Any
    std: Any

    @classmethod
    def of(cls, process: Process, random: Any) -> Truth:
        """Draw rows and returns; the standard deviation is that of all customers of the same features."""
        data, z, kind = process.log(random, FRESH)
        full = np.flatnonzero(np.isfinite(data["y"]))
        rows = random.choice(full, ROWS, replace=False)
        X = data["X"][rows]
        z = z[rows]
        kind = kind[rows]
        returns = process.returns(random, z, kind)
        std = returns.std(axis=1)
        if process.coarse:
            std = np.array([returns[(x == X).all(axis=1)].std() for x in X])
        elif process.hidden:
            std = np.hstack([returns, process.returns(random, z, 1 - kind)]).std(axis=1)
        return cls(X, kind, returns, std)

    def compared(self, spread: ReturnSpread) -> dict[str, float]:
        """Shares of returns inside and beyond ranges, and the relative error of standard deviations."""
        found = spread.predict_interval(self.X, LEVEL)
        below = (self.returns < found.lower[:, np.newaxis]).mean(axis=1)
        above = (self.returns > found.upper[:, np.newaxis]).mean(axis=1)
        inside = 1.0 - below - above
        high = found.prediction > np.median(found.prediction)
        normal = np.abs(self.returns - found.prediction[:, np.newaxis]) <= 1.645 * found.std[:, np.newaxis]
        error = np.sqrt(np.mean((found.std - self.std) ** 2) / np.mean(self.std**2))
        return {
            "inside": inside.mean(),
            "below": below.mean(),
            "above": above.mean(),
            "lower half": inside[~high].mean(),
            "upper half": (inside[high] if high.any() else inside).mean(),
            "class 0": inside[self.kind == 0].mean(),
            "class 1": inside[self.kind == 1].mean(),
            "normal": normal.mean(),
            "std": error,
        }


def on_process(name: str, size: int, repeats: int) -> dict[str, Any]:
    """Mean over logs of one process."""
    process = PROCESSES[name]
    runs = []
    truth = Truth.of(process, np.random.default_rng(zlib.crc32(name.encode())))
    for repeat in range(repeats):
        random = np.random.default_rng([zlib.crc32(name.encode()), size, repeat])
        data = process.log(random, size)[0]
        runs.append(truth.compared(ReturnSpread(process.model().fit(**data)).fit(**data)))
    means = {key: float(np.mean([run[key] for run in runs])) for key in runs[0]}
    return {"process": name, "size": size, "logs": repeats, **means}


def speeds(n_rows: int = 100_000, n: int = 20, length: int = 25) -> Iterable[dict[str, Any]]:
    """Yield times for random rows in episodes, of which half are cut off: the model's fit, and that of the spread."""
    random = np.random.default_rng(0)
    X = random.normal(size=(n_rows, n))
    y = random.exponential(size=n_rows)
    episode = np.arange(n_rows) // length
    terminated = (np.arange(n_rows) % length == length - 1) & (episode % 2 == 0)
    y[(np.arange(n_rows) % length == length - 1) & ~terminated] = np.nan
    data = {"X": X, "y": y, "episode": episode, "terminated": terminated}
    models: dict[str, Any] = {"LSTD(0.99)": LSTD(0.99)} | {f"HorizonLSTD({h})": HorizonLSTD(h) for h in (12, 52)}
    for name, model in models.items():
        fit = least(lambda: model.fit(**data))  # noqa: B023
        spread = ReturnSpread(model)
        followed = least(lambda: spread.fit(**data))  # noqa: B023
        ranges = least(lambda: spread.predict_interval(X))  # noqa: B023
        yield {"model": name, "rows": n_rows, "features": n, "fit": fit, "spread": followed, "ranges": ranges}


def measured(repeats: int) -> dict[str, Any]:
    """Measure everything."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of returns that are mostly cut off, as is meant here
        times = list(speeds())
        runs = [on_process(name, size, repeats) for size in SIZES for name in PROCESSES]
    printed = printed_by("python benchmarks/return_spread.py")
    date = datetime.now(UTC).date().isoformat()
    return {"date": date, "printed": printed, "machine": describe_machine(), "runs": runs, "speeds": times}


def table(found: dict[str, Any]) -> Iterable[str]:
    """Yield the lines of the page."""
    yield found["printed"]
    columns = ("inside", "below", "above", "lower half", "upper half", "std", "normal")
    for size in SIZES:
        runs = [run for run in found["runs"] if run["size"] == size]
        yield f"\n**{size} customers** ({5 * size} steps of the stream), means of {runs[0]['logs']} logs\n"
        yield (
            "| process | inside | below | above | lower half | upper half | error of the std | ± 1.64 std | by class |"
        )
        yield "|---|---|---|---|---|---|---|---|---|"
        for run in runs:
            classes = f"{run['class 0']:.2f}, {run['class 1']:.2f}" if "hidden" in run["process"] else ""
            yield f"| {run['process']} | {' | '.join(f'{run[name]:.3f}' for name in columns)} | {classes} |"
    yield "\n**Time**\n"
    yield "| model | rows | features | its fit | `ReturnSpread.fit` | ranges of all rows |"
    yield "|---|---|---|---|---|---|"
    for run in found["speeds"]:
        times = " | ".join(f"{run[name]:.2f} s" for name in ("fit", "spread", "ranges"))
        yield f"| {run['model']} | {run['rows']} | {run['features']} | {times} |"


def main() -> None:
    """Measure and print, or write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--repeats", type=int, default=25, metavar="N", help="logs of each process")
    parser.add_argument("--docs", type=Path, metavar="PAGE", help="put the newest results into this page")
    arguments = parser.parse_args()
    with threadpool_limits(1):
        measure_or_write(
            "return_spread",
            "benchmarks/return_spread.py",
            arguments.docs or Path(),
            lambda: measured(arguments.repeats),
            table,
            docs=arguments.docs is not None,
        )


if __name__ == "__main__":
    main()
