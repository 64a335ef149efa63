"""Which warnings from the data alone do right logs give, and which logs with a fault? Simulated logs of many kinds.

    python benchmarks/data_warnings.py [--docs] [--logs 200]

Each log is read by `Trajectories.from_frame`, with its times, and fitted by `LSTD`, λ = 0.8; then rows of another of
its kind are predicted. Of each kind, the table has the share of logs with each warning. A kind that ends in an
exclamation mark has the fault that it names. A kind is a function of a random generator; it returns γ and a table with
the columns `id`, `time`, `y`, `done` and features.
"""

from __future__ import annotations

import argparse
import datetime
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lstd import LSTD, Trajectories
from lstd.errors import BoundsWarning, ExtrapolationWarning, LSTDWarning, TerminationWarning, UnobservedWarning
from pages import measure_or_write
from provenance import describe_machine

Log = tuple[float, pd.DataFrame]
PAGE = Path(__file__).resolve().parents[1] / "docs" / "results" / "data-warnings.md"
SUBJECTS = 200
WEEKS = 52
FIRST_SEED = 30_000  # the seeds below made the rules
FAR = "far from the fit"
WARNINGS: dict[str, type[LSTDWarning]] = {
    "little observed": UnobservedWarning,
    "only grows": ExtrapolationWarning,
    "active but ended": TerminationWarning,
    "out of bounds": BoundsWarning,
    FAR: ExtrapolationWarning,
}


def customers(random: Any, *, joins: int, leave: float, says_so: bool, closes: bool = False) -> pd.DataFrame:
    """Draw customers who buy at a rate of their own until they leave; with `closes`, each last row is an end."""
    shape = (SUBJECTS, WEEKS + 1)
    first = random.integers(joins, size=SUBJECTS)
    life = random.geometric(leave, SUBJECTS)
    rate = random.gamma(0.8, 0.25, (SUBJECTS, 1))
    age: Any = np.arange(WEEKS + 1) - first[:, np.newaxis]
    buys = np.where((age >= 0) & (age < life[:, np.newaxis]), random.poisson(rate, shape), 0)
    total = np.cumsum(buys, axis=1) - buys
    since = np.zeros(shape)
    recent = np.zeros(shape)
    for week in range(1, WEEKS + 1):
        since[:, week] = np.where((buys[:, week - 1] > 0) | (age[:, week] <= 0), 0.0, since[:, week - 1] + 1.0)
        recent[:, week] = 0.8 * recent[:, week - 1] + 0.2 * buys[:, week - 1]
    end = np.minimum(first + life, WEEKS) if says_so else np.full(SUBJECTS, WEEKS)
    ended = (first + life <= WEEKS) & says_so
    done = (np.arange(WEEKS + 1) == end[:, np.newaxis] - 1) & (ended | closes)[:, np.newaxis]
    seen = (age >= 0) & (np.arange(WEEKS + 1) <= np.where(ended | closes, end - 1, end)[:, np.newaxis])
    columns = {
        "total": total,
        "tenure": age,
        "rate": (total + 0.25) / (np.maximum(age, 0) + 4.0),
        "recent": recent,
        "recency": np.minimum(since, 13),
        "y": np.where(np.arange(WEEKS + 1) == WEEKS, np.nan, buys),
        "done": done,
    }
    subject, time = np.nonzero(seen)
    return pd.DataFrame({"id": subject, "time": time} | {name: values[seen] for name, values in columns.items()})


def shop(random: Any, features: str, gamma: float = 0.9, **options: Any) -> Log:
    """Return customers with some of the features."""
    return gamma, customers(random, **options)[["id", "time", "y", "done", *features.split()]]


def mirrored(random: Any) -> Log:
    """Return a cohort with features that only fall, but for refunds."""
    gamma, table = shop(random, "total tenure recency", **COHORT)
    refunded = np.cumsum(0.01 * (random.random(len(table)) < 0.01))  # of all customers so far
    return gamma, table.assign(total=refunded - table["total"], tenure=WEEKS - table["tenure"])


def ages(random: Any) -> Log:
    """Draw people of 40 to 90 who are followed for ten years, or to their death."""
    age = random.uniform(40.0, 90.0, SUBJECTS)[:, np.newaxis] + np.arange(11)
    return 0.7, hazards(random, age, np.minimum(0.01 * np.exp(0.06 * (age - 60.0)), 1.0), {"age": age})


def hazards(random: Any, state: Any, hazard: Any, features: dict[str, Any]) -> pd.DataFrame:
    """Return rows of subjects (N, T + 1) who end with a probability in each row; one reward per row."""
    ends = random.random(state.shape) < hazard
    ends[:, -1] = False
    ended = ends.any(axis=1)
    last = np.where(ended, ends.argmax(axis=1), state.shape[1] - 1)
    seen = np.arange(state.shape[1]) <= last[:, np.newaxis]
    subject, time = np.nonzero(seen)
    y = np.where(np.arange(state.shape[1]) == state.shape[1] - 1, np.nan, 1.0 + 0.0 * state)
    return pd.DataFrame(
        {"id": subject, "time": time, "y": y[seen], "done": ends[seen]} | {n: v[seen] for n, v in features.items()}
    )


def machines(random: Any) -> Log:
    """Draw machines that wear until they are scrapped and replaced."""
    rows: list[tuple[Any, ...]] = []
    number = 0
    for _ in range(50):
        wear = 0.0
        for day in range(60):
            scrapped = random.random() < 0.05 * wear
            rows.append((number, day, np.nan if day == 59 else wear + 10.0 * scrapped, scrapped and day < 59, wear))
            wear += random.exponential(0.1)
            if scrapped and day < 59:
                number = number + 1
                wear = 0.0
        number += 1
    return 0.9, pd.DataFrame(rows, columns=["id", "time", "y", "done", "wear"])


def stream(random: Any) -> Log:
    """Draw one continuing stream."""
    x = np.zeros(400)
    for t in range(1, 400):
        x[t] = 0.9 * x[t - 1] + random.normal()
    y = np.append(x[1:] + random.normal(size=399), np.nan)
    return 0.99, pd.DataFrame({"id": 0, "time": np.arange(400), "y": y, "done": False, "x": x})


def games(random: Any, starts: int = 1) -> Log:
    """Draw episodes of 20 steps on a clock of their own, or episodes of 5 to 40 that start at many times."""
    length = np.full(SUBJECTS, 20) if starts == 1 else random.integers(5, 41, SUBJECTS)
    subject = np.repeat(np.arange(SUBJECTS), length)
    first = random.integers(starts, size=SUBJECTS)
    step = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
    x = random.normal(size=len(step))
    columns = {"id": subject, "time": first[subject] + step, "y": x + random.normal(size=len(x))}
    return 0.95, pd.DataFrame(columns | {"done": step == length[subject] - 1, "x": x, "step": step})


IN_MONTHS = "people of all ages, predicted with their ages in months!"
JOINED = {"joins": WEEKS, "leave": 0.05, "says_so": True}
COHORT = {"joins": 13, "leave": 0.04, "says_so": False}
KINDS: dict[str, Callable[[Any], Log]] = {
    "customers who join at all times and close their accounts": lambda r: shop(r, "recent tenure total", **JOINED),
    "a cohort of customers who leave without a word: rates": lambda r: shop(r, "rate recency recent", **COHORT),
    "people of all ages, followed for ten years": ages,
    "machines that wear, scrapped and replaced": machines,
    "one continuing stream": stream,
    "games of 20 steps": games,
    "tasks of 5 to 40 steps at many times": lambda r: games(r, 300),
    "a cohort: total and tenure!": lambda r: shop(r, "total tenure recency", **COHORT),
    "a cohort: total alone!": lambda r: shop(r, "total recency", **COHORT),
    "a cohort, γ = 0.99!": lambda r: shop(r, "rate recency recent", gamma=0.99, **COHORT),
    IN_MONTHS: ages,
    "a cohort: what is left of a contract and a budget, with refunds!": mirrored,
    "active customers marked as ended!": lambda r: shop(r, "recent", **JOINED | {"closes": True}),
}


def given(log: Log, later: pd.DataFrame) -> set[str]:
    """Return the names of the warnings from the table of a log to the fitted model, and from predictions of others."""
    gamma, table = log
    features = [name for name in table.columns if name not in ("id", "time", "y", "done")]
    with warnings.catch_warnings(record=True) as of_fit:
        warnings.simplefilter("always")
        data = Trajectories.from_frame(
            table, features=features, reward="y", episode="id", terminated="done", time="time"
        )
        model = LSTD(gamma, 0.8).fit(**data.to_arrays(frame="pandas"))
    with warnings.catch_warnings(record=True) as of_predictions:
        warnings.simplefilter("always")
        model.predict(later[features])
    return {
        name
        for name, kind in WARNINGS.items()
        for warning in (of_predictions if name == FAR else of_fit)
        if issubclass(warning.category, kind)
    }


def drawn(kind: str, seed: int, number: int) -> set[str]:
    """Draw a log, and rows of another one to predict; return the names of their warnings."""
    random = np.random.default_rng((FIRST_SEED + seed, number))
    log, (_, later) = KINDS[kind](random), KINDS[kind](random)
    return given(log, later.assign(age=12.0 * later["age"]) if kind == IN_MONTHS else later)


def measured(n_logs: int) -> dict[str, Any]:
    """Return the share of logs with each warning, by kind."""
    shares = {}
    for number, kind in enumerate(KINDS):
        names = [drawn(kind, seed, number) for seed in range(n_logs)]
        shares[kind] = {name: sum(name in one for one in names) / n_logs for name in WARNINGS}
        print(kind, shares[kind], flush=True)
    return {"date": str(datetime.date.today()), "machine": describe_machine(), "logs": n_logs, "shares": shares}


def table(found: dict[str, Any]) -> Iterable[str]:
    """Return the lines of the table."""
    yield f"{found['logs']} logs of each kind, measured by `python benchmarks/data_warnings.py` on {found['date']}."
    yield ""
    yield "| logs | " + " | ".join(WARNINGS) + " |"
    yield "|---|" + "---|" * len(WARNINGS)
    for kind, shares in found["shares"].items():
        cells = " | ".join(f"{100 * shares[name]:.3g} %" for name in WARNINGS)
        yield f"| {'**' + kind[:-1] + '**' if kind.endswith('!') else kind} | {cells} |"


def main() -> None:
    """Measure and print the table, or write the newest one into the page with --docs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--docs", action="store_true", help="write the newest table into the page")
    parser.add_argument("--logs", type=int, default=200, help="number of logs of each kind (default: %(default)s)")
    arguments = parser.parse_args()
    source = "benchmarks/data_warnings.py"
    measure_or_write("data-warnings", source, PAGE, lambda: measured(arguments.logs), table, docs=arguments.docs)


if __name__ == "__main__":
    main()
