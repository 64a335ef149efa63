"""Count warnings of predictions that rewards do not allow: on simulated logs of the guide, and where they are due.

    python benchmarks/bounds_warnings.py [--docs docs/guide/scores.md]

Each simulated log has features that suit it, so no warning is due. A model is fitted to the log, and scored on another
log of the same process; a recursive model predicts each row before it learns it. Due are warnings of a model of
purchases (CDNOW, from the package `lifetimes`) by frequency and tenure, at γ = 0.98, and of Boyan's recursive estimator
on 203 quarters of inflation (from `statsmodels`), at γ = 0.97. On other logs of purchases, R² on what simulated
customers buy in 350 weeks to come: of `LSTDCV` with and without a warning, of the largest α whose held-out score is
within a standard error of the best, of `LSTD`, and of the best pair of the grid. The seeds are not those with which
thresholds were set.
"""

from __future__ import annotations

import argparse
import datetime
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
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
from provenance import describe_machine

COUNTED = (BoundsWarning,)  # classes that are counted
LOGS = 84  # of each kind
FIRST = 110_000  # seed; thresholds were set with others
FUTURES = 40  # logs of purchases
SIZES = (200, 1000)  # customers
SAMPLES = (10, 11, 12)  # and seeds of samples
BOYAN = "`RecursiveLSTD`, Boyan's"  # leaves the bounds also with the right features, while data are few
NAMES = "frequency, recency, tenure", "frequency, tenure", "shrunken rate, limited recency"


def given(act: Callable[[], Any]) -> list[str]:
    """Return the names of the counted warnings that a call gives."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        act()
    return sorted({one.category.__name__ for one in found if issubclass(one.category, COUNTED)})


def uses(log: Log, other: Log) -> dict[str, Callable[[], Any]]:
    """Return what is done with a log and another one of the same process."""
    model = LSTD(log.gamma)
    chosen = LSTDCV(log.gamma, [0.0, 0.9], cv=3)

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


def futures() -> dict[str, list[float]]:
    """Return R² on futures of ways to choose settings, by name, for logs of purchases of which a third is observed."""
    warnings.simplefilter("ignore")
    random = np.random.default_rng(1)
    kind = "purchases"
    lives = [list(buyer(random, 400)) for _ in range(4000)]
    X = np.array([features for life in lives for week, features, _ in life if week == 52])
    G = np.array([sum(0.98 ** (week - 52) * buys for week, _, buys in life if week >= 52) for life in lives])
    found: dict[str, list[float]] = {}

    def add(name: str, model: Any) -> None:
        found.setdefault(name, []).append(1.0 - float(np.mean((G - model.predict(X)) ** 2) / np.var(G)))

    for seed in range(2 * FIRST, 2 * FIRST + FUTURES):
        log = KINDS[kind](np.random.default_rng([seed, list(KINDS).index(kind)]))
        model = LSTDCV(log.gamma)
        warned = bool(given(partial(model.fit, log.X, log.y, **log.columns)))
        add("`LSTDCV`", model)
        add(f"of these, {'with' if warned else 'without'} a warning", model)
        add("`LSTD` with its defaults", LSTD(log.gamma).fit(log.X, log.y, **log.columns))
        results = model.cv_results_
        penalty = model.ridge_ / model.alpha_
        pairs = [
            LSTD(log.gamma, lmbda, alpha * penalty, n_blocks=0).fit(log.X, log.y, **log.columns)
            for lmbda, alpha in zip(results["lmbda"], results["alpha"], strict=True)
        ]
        folds = np.array([results[name] for name in results if name.startswith("split")])
        score = np.nan_to_num(results["mean_test_score"], nan=-np.inf)
        least = score.max() - folds[:, score.argmax()].std(ddof=1) / np.sqrt(len(folds))
        largest = max(range(len(pairs)), key=lambda i: (score[i] >= least, results["alpha"][i], score[i]))
        add("largest α within a standard error of the best", pairs[largest])
        add("best pair of the grid", max(pairs, key=lambda pair: -np.mean((G - pair.predict(X)) ** 2)))
        print(seed, flush=True)
    return found


def measured() -> dict[str, Any]:
    """Count warnings."""
    right = {kind: of_kind(kind) for kind in KINDS}
    due: dict[str, list[int]] = {}
    for name, found in (*customers(), *inflation()):
        count = due.setdefault(name, [0, 0])
        count[0], count[1] = count[0] + found, count[1] + 1
    return {
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "machine": describe_machine(),
        "logs": LOGS,
        "right": right,
        "due": due,
        "futures": futures(),
    }


def table(found: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of two tables."""
    kinds = found["right"]
    logs = found["logs"]
    yield f"Measured by `python benchmarks/bounds_warnings.py` on {found['date']}."
    yield ""
    yield f"| {logs * len(kinds)} right logs of {len(kinds)} kinds | warning | given | at most, of {logs} of a kind |"
    yield "|---|---|---|---|"
    for use, counted in product(next(iter(kinds.values())), COUNTED):
        if use == BOYAN:
            continue
        counts = {kind: uses.get(use, {}).get(counted.__name__, 0) for kind, uses in kinds.items()}
        most = max(counts, key=lambda kind: counts[kind])
        worst = f"{counts[most]} ({most})" if counts[most] else "0"
        yield f"| {use} | `{counted.__name__}` | {sum(counts.values())} | {worst} |"
    yield ""
    yield "| models | `BoundsWarning` |"
    yield "|---|---|"
    early = sum(uses[BOYAN].get("BoundsWarning", 0) for uses in kinds.values())
    yield f"| the logs above online, boyan | {early} of {logs * len(kinds)} |"
    for name, (count, number) in found["due"].items():
        yield f"| {name} | {count} of {number} |"
    yield ""
    yield f"| models of {FUTURES} other logs of purchases | logs | R² on futures: mean | median | worst |"
    yield "|---|---|---|---|---|"
    for name, scores in found["futures"].items():
        cells = (f"{value:.2f}" for value in (np.mean(scores), np.median(scores), min(scores)))
        yield f"| {name} | {len(scores)} | {' | '.join(cells)} |"


def main() -> None:
    """Measure, store and print; or write the table of stored results into a page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--docs", type=Path, metavar="PAGE", help="write the table of stored results into this page")
    arguments = parser.parse_args()
    page = arguments.docs or Path()
    docs = arguments.docs is not None
    measure_or_write("bounds-warnings", "benchmarks/bounds_warnings.py", page, measured, table, docs=docs)


if __name__ == "__main__":
    main()
