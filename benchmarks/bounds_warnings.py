"""Count warnings of predictions that rewards do not allow: on simulated logs of the guide, and where they are due.

    python benchmarks/bounds_warnings.py [--docs docs/guide/scores.md]
    python benchmarks/bounds_warnings.py --futures 200

Each simulated log has features that suit it, so no warning is due. A model is fitted to the log, and scored on another
log of the same process; a recursive model predicts each row before it learns it. Due are warnings of a model of
purchases (CDNOW, from the package `lifetimes`) by frequency and tenure, at γ = 0.98, and of Boyan's recursive estimator
on 203 quarters of inflation (from `statsmodels`), at γ = 0.97. With `--futures`, the R² of `LSTDCV` on simulated
customers' purchases of 350 weeks to come is printed, for so many logs of purchases with a warning and without. The
seeds are not those with which thresholds were set.
"""

from __future__ import annotations

import argparse
import datetime
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import backtest
from customer_value import Histories
from data_logs import KINDS, Log, buyer
from lstd import LSTD, LSTDCV, RecursiveLSTD
from lstd.errors import BoundsWarning
from pages import measure_or_write
from provenance import describe_machine, printed_by

WATCHED = (BoundsWarning,)  # classes that are counted
LOGS, FIRST = 84, 20_000  # of each kind, and the first seed
SIZES, SAMPLES = (200, 1000), (10, 11, 12)  # customers, and seeds of samples
BOYAN = "`RecursiveLSTD`, Boyan's"  # leaves the bounds also with the right features, while data are few
NAMES = "frequency, recency, tenure", "frequency, tenure", "shrunken rate, limited recency"


def given(act: Callable[[], Any]) -> list[str]:
    """Return the names of the watched warnings that a call gives."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        act()
    return sorted({one.category.__name__ for one in found if issubclass(one.category, WATCHED)})


def uses(log: Log, other: Log) -> dict[str, Callable[[], Any]]:
    """Return what is done with a log and another one of the same process."""
    model, chosen = LSTD(log.gamma), LSTDCV(log.gamma, [0.0, 0.9], cv=3)

    def follow(variant: str) -> None:
        X = np.column_stack([log.X, np.ones(len(log.X))])
        online = RecursiveLSTD(X.shape[1], log.gamma, variant=variant)
        online.partial_fit(X, np.where(np.isnan(log.y), 0.0, log.y), return_predictions=True, **log.columns)

    return {
        "`LSTD.fit`": lambda: model.fit(log.X, log.y, **log.columns),
        "`score` on another log": lambda: model.score(other.X, other.y, **other.columns),
        "`LSTDCV.fit`": lambda: chosen.fit(log.X, log.y, **log.columns),
        "`RecursiveLSTD`, Uncorrected": partial(follow, "uncorrected"),
        BOYAN: partial(follow, "boyan"),
    }


def of_kind(kind: str) -> dict[str, Counter[str]]:
    """Count the logs of a kind on which each use gives each warning."""
    counts: dict[str, Counter[str]] = {}
    for seed in range(FIRST, FIRST + LOGS):
        random = np.random.default_rng([seed, list(KINDS).index(kind)])
        for use, act in uses(KINDS[kind](random), KINDS[kind](random)).items():
            counts.setdefault(use, Counter()).update(given(act))
    return counts


def customers() -> Iterator[tuple[str, bool]]:
    """Yield, for models of purchases, the features and whether `fit` gives a BoundsWarning."""
    data = Histories()
    for size, sample in product(SIZES, SAMPLES):
        who = np.sort(np.random.default_rng(sample).choice(data.n, size, replace=False))
        sets, reward, columns = backtest.rows(data, who)
        fit = {name: columns[name] for name in ("episode", "terminated")}
        for name, model in product(NAMES, (LSTD(0.98), LSTDCV(0.98, [0.0, 0.5, 0.9, 1.0], cv=5))):
            yield f"CDNOW, {name}", bool(given(partial(model.fit, sets[name], reward, **fit)))


def inflation() -> Iterator[tuple[str, bool]]:
    """Yield, for recursive models of inflation by lags, the variant and whether there is a BoundsWarning."""
    from statsmodels.datasets import macrodata

    y = macrodata.load_pandas().data["infl"].to_numpy()
    for variant, lags, alpha, lmbda in product(("boyan", "uncorrected"), (1, 2, 4), (0.01, 1.0), (0.9, 1.0)):
        X = np.column_stack([y[lags - 1 - k : len(y) - 1 - k] for k in range(lags)] + [np.ones(len(y) - lags)])
        model = RecursiveLSTD(lags + 1, 0.97, lmbda, alpha, variant)
        yield (
            f"inflation online, {variant}",
            bool(given(partial(model.partial_fit, X, y[lags:], return_predictions=True))),
        )


def futures(n_logs: int) -> None:
    """Print how well models of purchases with a warning, and without one, predict what customers buy later."""
    random, kind = np.random.default_rng(1), "purchases"
    lives = [list(buyer(random, 400)) for _ in range(4000)]
    X = np.array([features for life in lives for week, features, _ in life if week == 52])
    G = np.array([sum(0.98 ** (week - 52) * buys for week, _, buys in life if week >= 52) for life in lives])
    found: dict[bool, list[float]] = {True: [], False: []}
    for seed in range(4 * FIRST, 4 * FIRST + n_logs):
        log = KINDS[kind](np.random.default_rng([seed, list(KINDS).index(kind)]))
        model = LSTDCV(log.gamma, [0.0, 0.9], cv=3)
        warned = bool(given(partial(model.fit, log.X, log.y, **log.columns)))
        found[warned].append(1.0 - np.mean((G - model.predict(X)) ** 2) / np.var(G))
    for warned, scores in found.items():
        low, middle, high = np.quantile(scores, (0.0, 0.5, 1.0)) if scores else np.full(3, np.nan)
        print(
            f"{len(scores)} models {'with' if warned else 'without'} warning: R² {middle:.2f} ({low:.2f} to {high:.2f})"
        )


def measured() -> dict[str, Any]:
    """Count warnings."""
    with ProcessPoolExecutor(2) as pool:
        right = dict(zip(KINDS, pool.map(of_kind, KINDS), strict=True))
    due: dict[str, list[int]] = {}
    for name, found in (*customers(), *inflation()):
        count = due.setdefault(name, [0, 0])
        count[0], count[1] = count[0] + found, count[1] + 1
    return {
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(), "machine": describe_machine(),
        "logs": LOGS, "right": right, "due": due,
    }  # fmt: skip


def table(found: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of two tables."""
    kinds, logs = found["right"], found["logs"]
    yield printed_by("python benchmarks/bounds_warnings.py")
    yield ""
    yield f"| {logs * len(kinds)} right logs of {len(kinds)} kinds | warning | given | at most, of {logs} of a kind |"
    yield "|---|---|---|---|"
    for use, watched in product(next(iter(kinds.values())), WATCHED):
        if use == BOYAN:
            continue
        counts = {kind: uses.get(use, {}).get(watched.__name__, 0) for kind, uses in kinds.items()}
        most = max(counts, key=lambda kind: counts[kind])
        worst = f"{counts[most]} ({most})" if counts[most] else "0"
        yield f"| {use} | `{watched.__name__}` | {sum(counts.values())} | {worst} |"
    yield ""
    yield "| models | `BoundsWarning` |"
    yield "|---|---|"
    early = sum(uses[BOYAN].get("BoundsWarning", 0) for uses in kinds.values())
    yield f"| the logs above online, boyan | {early} of {logs * len(kinds)} |"
    for name, (count, number) in found["due"].items():
        yield f"| {name} | {count} of {number} |"


def main() -> None:
    """Measure, store and print; or write the table of stored results into a page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--docs", type=Path, metavar="PAGE", help="write the table of stored results into this page")
    parser.add_argument(
        "--futures", type=int, metavar="LOGS", help="score models with a warning and without on futures"
    )
    arguments = parser.parse_args()
    if arguments.futures:
        futures(arguments.futures)
        return
    page, docs = arguments.docs or Path(), arguments.docs is not None
    measure_or_write("bounds-warnings", "benchmarks/bounds_warnings.py", page, measured, table, docs=docs)


if __name__ == "__main__":
    main()
