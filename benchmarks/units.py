"""Compare what one column of large numbers costs LSTDCV, with its penalties and with equal ones.

    python benchmarks/units.py [--write docs/results/units.md]

Each data set has a column of large numbers: the first year of a government (lifelines), a date of entry that says
nothing, added to the breast cancer study GBSG2, the year of a blood sample (both scikit-survival), and an income that
says nothing, added to the shop of `docs/first-model.md`. The reward is 1 per period survived, a quarter or a year, or
what a customer spends. Subjects whose end was not observed have a horizon row. R² is `best_score_`, that of held-out
subjects, γ = 0.95. Needs lifelines and scikit-survival.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lstd import LSTDCV
from pages import write_between
from provenance import printed_by

GAMMA = 0.95
HEADING = "| data | column | without it | with it | in units 10⁸ times smaller | with equal penalties |"


def main() -> None:
    """Print the table, and write it with --write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--write", type=Path, metavar="PAGE", help="also write the table into this Markdown page")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    lines = [HEADING, "|---|---|---|---|---|---|"]
    for name, column, X, y, columns in data_sets():
        scores = [score(X.drop(columns=column), y, columns), score(X, y, columns)]
        scores.append(score(X.assign(**{column: 1e8 * X[column]}), y, columns))
        scores.append(score(X, y, columns, penalty=np.ones(X.shape[1])))
        lines.append(f"| {name} | {column} | " + " | ".join(f"{value:.3f}" for value in scores) + " |")
        print(lines[-1], flush=True)
    page = "\n".join([printed_by("python benchmarks/units.py"), "", *lines, ""])
    if arguments.write:
        write_between(arguments.write, "benchmarks/units.py", page)


def score(X: pd.DataFrame, y: Any, columns: dict[str, Any], **options: Any) -> float:
    """Fit an LSTDCV, and return its R² on held-out subjects."""
    return float(LSTDCV(GAMMA, n_blocks=0, **options).fit(X, y, **columns).best_score_)


def data_sets() -> Iterator[tuple[str, str, pd.DataFrame, Any, dict[str, Any]]]:
    """Yield the name, the column of large numbers, and the arguments of `fit`."""
    from lifelines.datasets import load_dd
    from sksurv.datasets import load_flchain, load_gbsg2

    dd = load_dd()
    features = encoded(dd[["un_continent_name", "regime", "start_year"]])
    yield "governments", "start_year", *panel(features, dd["duration"], dd["observed"], 1.0)
    X, times = load_gbsg2()
    features = encoded(X).assign(date=725_000 + np.random.default_rng(0).integers(0, 2000, len(X)))
    yield "breast cancer", "date", *panel(features, times["time"], times["cens"], 365.25 / 4)
    X, times = load_flchain()
    X = X.drop(columns="chapter").astype({"sample.yr": float, "flc.grp": float})
    yield "light chains", "sample.yr", *panel(encoded(X), times["futime"], times["death"], 365.25)
    yield "shop", "income", *shop()


def encoded(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with columns of zeros and ones for categories, and means for missing values."""
    columns = pd.get_dummies(table, drop_first=True, dtype=float)
    return columns.fillna(columns.mean())


def panel(X: pd.DataFrame, time: Any, ended: Any, period: float) -> tuple[pd.DataFrame, Any, dict[str, Any]]:
    """Return a row for each period of each subject, with reward 1, and a horizon row if the end was not observed."""
    ended = np.asarray(ended, bool)
    steps = np.maximum(1, np.ceil(np.asarray(time) / period)).astype(int)
    episode = np.repeat(np.arange(len(X)), steps + ~ended)
    last = np.append(episode[1:] != episode[:-1], True)
    columns = {"episode": episode, "terminated": last & ended[episode]}
    return X.iloc[episode].reset_index(drop=True), np.where(last & ~ended[episode], np.nan, 1.0), columns


def shop(n_customers: int = 1000, n_weeks: int = 52) -> tuple[pd.DataFrame, Any, dict[str, Any]]:
    """Draw the shop of the page, with incomes that nothing depends on."""
    random = np.random.default_rng(1)
    rows = []
    income = np.random.default_rng(0).normal(50_000.0, 15_000.0, n_customers)
    for customer in range(n_customers):
        interest = random.gamma(4.0, 2.5)
        recent = 10.0
        start = random.integers(n_weeks)
        for week in range(start, n_weeks):
            spend = random.exponential(2.0 * interest) * (random.random() < 0.5)
            closed = random.random() < (0.12 if recent < 4.0 else 0.02)
            rows.append((customer, recent, week - start, income[customer], spend, closed))
            recent += 0.3 * (spend - recent)
            if closed:
                break
        else:
            rows.append((customer, recent, n_weeks - start, income[customer], np.nan, False))
    table = pd.DataFrame(rows, columns=["customer", "recent", "weeks", "income", "spend", "closed"])
    columns = {"episode": table["customer"].to_numpy(), "terminated": table["closed"].to_numpy(bool)}
    return table[["recent", "weeks", "income"]].astype(float), table["spend"].to_numpy(), columns


if __name__ == "__main__":
    main()
