"""How often does the interval of a total with `of="return"` hold the total that comes?

    python benchmarks/totals_that_come.py [--docs]

Customers spend lognormal amounts: their numbers of purchases are Poisson, with a rate that differs between customers,
and that a feature shows, but for a factor that stays hidden where the row says so. Where the row says so, a lognormal
factor of mean one moves what all spend in a step, or in a period of eight. A HorizonLSTD is fitted to all but the last
steps of customers, who are still there then. It predicts the total of these customers, or of as many new ones.
"""

from __future__ import annotations

import argparse
import datetime
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lstd import HorizonLSTD
from pages import measure_or_write
from provenance import describe_machine

Array = NDArray[np.float64]
PAGE = Path(__file__).resolve().parents[1] / "docs" / "results" / "intervals.md"
LOGS = 150
FIRST_SEED = 70_000


class Shop(NamedTuple):
    """A simulated shop."""

    name: str
    rate: float  # mean purchases a step
    tail: float  # standard deviation of the logarithm of an amount
    hidden: bool  # whether half of the logarithm of the rate is hidden
    n: int
    steps: int
    horizon: int
    shock: float = 0.0  # standard deviation of the logarithm of what moves all
    period: int = 8  # steps that it lasts


SHOPS = (
    Shop("200 customers", 0.2, 1.0, False, 200, 20, 8),
    Shop("1000 customers", 0.2, 1.0, False, 1000, 20, 8),
    Shop("200, heavier tails", 0.2, 1.5, False, 200, 20, 8),
    Shop("1000, heavier tails", 0.2, 1.5, False, 1000, 20, 8),
    Shop("400, as many steps ahead as in the log", 0.1, 1.0, False, 400, 26, 26),
    Shop("400, a hidden part of the rate", 0.2, 1.0, True, 400, 20, 8),
    Shop("400, hidden, as many steps ahead", 0.1, 1.0, True, 400, 26, 26),
    Shop("1000, periods that differ by 10 %", 0.2, 1.0, False, 1000, 20, 8, 0.1),
    Shop("1000, periods that differ by 20 %", 0.2, 1.0, False, 1000, 20, 8, 0.2),
    Shop("1000, steps that differ by 20 %", 0.2, 1.0, False, 1000, 20, 8, 0.2, 1),
    Shop("1000, periods by 20 %, a log of 68 steps", 0.2, 1.0, False, 1000, 68, 8, 0.2),
)


def simulated(shop: Shop, random: np.random.Generator, steps: int) -> tuple[Array, Array]:
    """Return the feature that shows the rate, (n,), and what is spent, (n, steps)."""
    shown = random.gamma(1.0, 1.0, shop.n)
    own = random.gamma(2.0, 0.5, shop.n) if shop.hidden else np.ones(shop.n)
    n_purchases = random.poisson(np.repeat((shop.rate * shown * own)[:, np.newaxis], steps, axis=1))
    amounts = random.lognormal(-0.5 * shop.tail**2, shop.tail, (shop.n, steps))
    return shown, n_purchases * amounts


def levels(shop: Shop, random: np.random.Generator, steps: int) -> Array:
    """Return the factor of what all spend in each step, (steps,)."""
    if not shop.shock:
        return np.ones(steps)
    of_periods = random.lognormal(-0.5 * shop.shock**2, shop.shock, -(-steps // shop.period))
    return np.repeat(of_periods, shop.period)[:steps]


def trial(shop: Shop, seed: int) -> list[float]:
    """Return what held: the total of these customers in both intervals, and of others; and the widths."""
    random = np.random.default_rng(seed)
    shown, spent = simulated(shop, random, shop.steps + shop.horizon)
    others, spent_by_others = simulated(shop, random, shop.horizon)
    level = levels(shop, random, shop.steps + shop.horizon)
    to_come = slice(shop.steps - 1, shop.steps - 1 + shop.horizon)
    spent *= level
    spent_by_others *= level[to_come]
    X = np.repeat(shown, shop.steps)[:, np.newaxis]
    y = spent[:, : shop.steps].copy()
    y[:, -1] = np.nan  # not yet known in the last row
    episode = np.repeat(np.arange(shop.n), shop.steps)
    model = HorizonLSTD(shop.horizon).fit(X, y.ravel(), episode=episode, terminated=False)
    weights = np.ones(shop.n)
    came = spent[:, to_come].sum()
    came_of_others = spent_by_others.sum()
    mean = model.predict_interval(shown[:, np.newaxis], weights=weights)
    total = model.predict_interval(shown[:, np.newaxis], weights=weights, of="return")
    new = model.predict_interval(others[:, np.newaxis], weights=weights, of="return")
    return [
        float(mean.lower <= came <= mean.upper),
        float(total.lower <= came <= total.upper),
        float(came > total.upper),
        float(new.lower <= came_of_others <= new.upper),
        float(came_of_others > new.upper),
        float((total.upper - total.lower) / (2.0 * total.prediction)),
    ]


def measured() -> dict[str, Any]:
    """Measure all shops."""
    warnings.simplefilter("ignore")
    rows = []
    for shop in SHOPS:
        found = np.mean([trial(shop, FIRST_SEED + j) for j in range(LOGS)], axis=0)
        rows.append({"shop": shop.name, "found": [round(float(value), 4) for value in found]})
        print(rows[-1], flush=True)
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    return {"date": date, "machine": describe_machine(), "logs": LOGS, "rows": rows}


def table(found: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of the table."""
    machine = f"{found['machine']['cores']} cores, {found['machine']['cpu']}"
    source = "python benchmarks/totals_that_come.py"
    yield f"Measured by `{source}` on {found['date']}: {machine}, {found['logs']} logs each."
    yield ""
    yield '| customers | "mean" holds the total | "return" | above it | of new customers | above it | half width |'
    yield "|---|---|---|---|---|---|---|"
    for row in found["rows"]:
        *shares, width = row["found"]
        cells = [f"{share:.3f}" for share in shares]
        yield f"| {row['shop']} | {' | '.join(cells)} | {100.0 * width:.0f} % |"


def main() -> None:
    """Measure, store and print; or write the table of the documentation."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--docs", action="store_true", help="write the table of the documentation; measure nothing")
    docs = parser.parse_args().docs
    measure_or_write("totals-that-come", "benchmarks/totals_that_come.py", PAGE, measured, table, docs=docs)


if __name__ == "__main__":
    main()
