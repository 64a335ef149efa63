"""Compare R² of backtests with R² of what followed: seven sets of features of CDNOW, at three discounts.

    python benchmarks/backtest.py [--write docs/results/backtest.md]

Weeks 1 to 39 are known. A row is a customer's week, and its reward the days of the next week with a repeat purchase.
Nobody says goodbye: no row terminates. The backtest fits to weeks 1 to 26, and compares 13 weeks. What followed is the
discounted sum of weeks 40 to 78, compared with the prediction of it, (1 − γ³⁹) v, by the model of weeks 1 to 39. Each
of eight samples has 1000 of the 2357 customers. Purchases are read from the installed package `lifetimes`.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from customer_value import Histories
from lstd import LSTDCV
from lstd.metrics import backtest
from pages import write_between
from provenance import printed_by

KNOWN = 39  # weeks
CUT = 25  # the last week that is known to the fit of the backtest
STEPS = 13
AHEAD = 39
GAMMAS = (0.9, 0.95, 0.98)
SAMPLES = 8
SIZE = 1000


def features(data: Histories, customer: Any, week: Any) -> dict[str, Any]:
    """Return seven sets of features after a week, each of shape (rows, n)."""
    x, t_x, age = data.summary(customer, week)
    since = age - t_x
    lately = np.exp(-since / 4)
    recently = np.exp(-since / 13)
    rate = (x + 0.25) / (age + 4)
    often = np.log1p(x)
    recent = np.minimum(since, 13)
    products = (rate * lately, rate * recently)
    return {
        "frequency, recency, tenure": np.column_stack([x, t_x, age]),
        "frequency, tenure": np.column_stack([x, age]),
        "frequency": x[:, np.newaxis].astype(float),
        "logarithm of frequency, limited recency": np.column_stack([often, lately, recently]),
        "shrunken rate": rate[:, np.newaxis],
        "shrunken rate, limited recency": np.column_stack([rate, recent]),
        "shrunken rate, limited recency, products": np.column_stack([rate, lately, recently, *products]),
    }


def rows(data: Histories, who: Any) -> tuple[dict[str, Any], Any, dict[str, Any]]:
    """Return sets of features, rewards and columns of the weeks that are known."""
    customer = np.repeat(who, KNOWN - data.start[who])
    week = np.concatenate([np.arange(start, KNOWN) for start in data.start[who]])
    reward = np.where(week == KNOWN - 1, np.nan, data.counts[customer, np.minimum(week + 1, KNOWN - 1)])
    columns = {"episode": customer, "terminated": np.zeros(len(week), dtype=bool)}
    return features(data, customer, week), reward, columns | {"time": week}


def main() -> None:
    """Print the table, and write it with --write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--write", type=Path, metavar="PAGE", help="also write the table into this Markdown page")
    parser.add_argument("--store", type=Path, metavar="JSON", help="also store the results of all samples")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    data = Histories()
    found = []
    for sample in range(SAMPLES):
        who = np.sort(np.random.default_rng(sample).choice(data.n, SIZE, replace=False))
        sets, reward, columns = rows(data, who)
        now = features(data, who, np.full(SIZE, KNOWN - 1))
        for gamma in GAMMAS:
            followed = data.counts[who, KNOWN:] @ gamma ** np.arange(AHEAD)
            for name, X in sets.items():
                model = LSTDCV(gamma, n_blocks=0)
                r2 = backtest(model, X, reward, cut=CUT, steps=STEPS, **columns).r2
                fit = {key: columns[key] for key in ("episode", "terminated")}
                error = followed - (1.0 - gamma**AHEAD) * model.fit(X, reward, **fit).predict(now[name])
                real = 1.0 - float(np.mean(error**2) / np.var(followed))
                found.append(
                    {
                        "sample": sample,
                        "gamma": gamma,
                        "features": name,
                        "backtest": r2,
                        "real": real,
                        "held out": model.best_score_,
                    }
                )
        print(f"sample {sample + 1} of {SAMPLES}", flush=True)
    if arguments.store:
        arguments.store.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    page = "\n".join([printed_by("python benchmarks/backtest.py"), "", *summary(found), "", *by_features(found), ""])
    print(page)
    if arguments.write:
        write_between(arguments.write, "benchmarks/backtest.py", page)


def table_of(found: list[dict[str, Any]], sample: int, gamma: float) -> dict[str, Any]:
    """Return the scores of all feature sets, as arrays, by kind."""
    own = [one for one in found if one["sample"] == sample and one["gamma"] == gamma]
    return {kind: np.array([one[kind] for one in own]) for kind in ("backtest", "real", "held out")}


def summary(found: list[dict[str, Any]]) -> list[str]:
    """Return a table of rank correlations with what followed, and of what choosing the best score loses."""
    lines = ["| γ | score | rank correlation, median and worst sample | loss of R² by choosing, median and worst |"]
    lines.append("|---|---|---|---|")
    for gamma in GAMMAS:
        tables = [table_of(found, sample, gamma) for sample in range(SAMPLES)]
        for kind, name in (("held out", "`best_score_`"), ("backtest", "`backtest`")):
            ranks = [spearmanr(one[kind], one["real"]).statistic for one in tables]
            losses = [one["real"].max() - one["real"][one[kind].argmax()] for one in tables]
            cells = (f"{np.median(values):.2f}, {worst(values):.2f}" for values, worst in ((ranks, min), (losses, max)))
            lines.append(f"| {gamma:g} | {name} | " + " | ".join(cells) + " |")
    return lines


def by_features(found: list[dict[str, Any]]) -> list[str]:
    """Return a table of median scores by features."""
    names = list(dict.fromkeys(one["features"] for one in found))
    lines = ["| features | γ | `best_score_` | `backtest` | what followed |", "|---|---|---|---|---|"]
    for name in names:
        for gamma in GAMMAS:
            own = [one for one in found if one["features"] == name and one["gamma"] == gamma]
            cells = (f"{np.median([one[kind] for one in own]):.2f}" for kind in ("held out", "backtest", "real"))
            lines.append(f"| {name} | {gamma:g} | " + " | ".join(cells) + " |")
    return lines


if __name__ == "__main__":
    main()
