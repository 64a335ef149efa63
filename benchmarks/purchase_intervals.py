"""Do intervals hold where little data bears on a prediction? CDNOW: models of 200 customers beside the one of all 2357.

    python benchmarks/purchase_intervals.py [--docs]

A model is fitted to the weeks of 200 customers, and predicts for all of them at the end. The fixed point that its
intervals are for is that of the model of all customers, with a vanishing ridge term. The table has how often 95 %
intervals hold it, by `little_data`, over three sets of features and three discounts. Needs lifetimes.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from lstd import LSTD
from pages import measure_or_write
from provenance import describe_machine

PAGE = Path(__file__).resolve().parents[1] / "docs" / "results" / "intervals.md"
SAMPLES = 12
SIZE = 200
FIRST_SEED = 50_000
FEATURES = ("few", "products", "all")
GAMMAS = (0.9, 0.95, 0.98)
LMBDA = 0.8


def purchases() -> Any:
    """Import the module of purchases, which takes a second and needs lifetimes."""
    return importlib.import_module("real_purchases")


def rows(log: Any, who: Any, features: str, measure: str) -> tuple[Any, Any, Any]:
    """Return features, rewards and episodes of the weeks of customers."""
    customer, week = purchases().weeks(log, who, log.known)
    rewards = log.counts if measure == "purchases" else log.spent
    reward = np.where(week == log.known - 1, np.nan, rewards[customer, np.minimum(week + 1, log.known - 1)])
    size = purchases().size_of(log, np.arange(log.n), customer, week, measure)
    return np.column_stack(log.functions(customer, week, size)[features]), reward, customer


def fitted(X: Any, y: Any, episode: Any, gamma: float, alpha: float) -> LSTD:
    """Fit to customers who never say goodbye."""
    return LSTD(gamma, LMBDA, alpha=alpha).fit(X, y, episode=episode, terminated=np.zeros(len(y), bool))


def held(log: Any, features: str, gamma: float, measure: str) -> Iterator[tuple[Any, Any]]:
    """Yield, by sample, whether the intervals of all customers hold the fixed point, and have little data."""
    everybody = np.arange(log.n)
    now = np.full(log.n, log.known - 1)
    X = np.column_stack(
        log.functions(everybody, now, purchases().size_of(log, everybody, everybody, now, measure))[features]
    )
    truth = fitted(*rows(log, everybody, features, measure), gamma, 1e-6).predict(X)
    for sample in range(SAMPLES):
        who = np.random.default_rng(FIRST_SEED + sample).choice(log.n, SIZE, replace=False)
        found = fitted(*rows(log, who, features, measure), gamma, 1.0).predict_interval(X)
        yield (found.lower <= truth) & (truth <= found.upper), found.little_data


def measured() -> dict[str, Any]:
    """Return coverage by measure, features and discount."""
    _, log, measures = next(purchases().logs())
    cases = []
    for measure, features, gamma in product(measures, FEATURES, GAMMAS):
        holds, little = (np.concatenate(parts) for parts in zip(*held(log, features, gamma, measure), strict=True))
        coverage = {"little": float(holds[little].mean()), "others": float(holds[~little].mean())}
        cases.append(
            {"measure": measure, "features": features, "gamma": gamma, "share": float(little.mean())} | coverage
        )
        print(cases[-1], flush=True)
    return {"date": str(datetime.date.today()), "machine": describe_machine(), "cases": cases}


def table(found: dict[str, Any]) -> Iterable[str]:
    """Return the lines of the table."""
    command = "python benchmarks/purchase_intervals.py"
    yield f"{SAMPLES} samples of {SIZE} customers, measured by `{command}` on {found['date']}."
    yield ""
    yield "| predicted | features | γ | rows with little data | hold, little data | hold, others |"
    yield "|---|---|---|---|---|---|"
    for case in found["cases"]:
        share, *coverage = (f"{case[name]:.2f}" for name in ("share", "little", "others"))
        yield f"| {case['measure']} | {case['features']} | {case['gamma']:g} | {share} | {' | '.join(coverage)} |"


def main() -> None:
    """Measure and print the table, or write the newest one into the page with --docs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--docs", action="store_true", help="write the newest table into the page")
    source = "benchmarks/purchase_intervals.py"
    measure_or_write("purchase-intervals", source, PAGE, measured, table, docs=parser.parse_args().docs)


if __name__ == "__main__":
    main()
