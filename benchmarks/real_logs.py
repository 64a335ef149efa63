"""Compare LSTD with what practitioners use, on logs that nobody prepared.

    python benchmarks/real_logs.py [purchases] [survival] [streams]
    python benchmarks/real_logs.py --docs

`real_purchases.py`, `real_survival.py` and `real_streams.py` describe the logs, the methods and the errors. A ratio is
the error of LSTD divided by that of the other method, for the same customers, split or series. Every kind is measured
in a process of its own and stored in results/real-KIND-DATE.json; `--docs` writes the tables of
docs/results/real-logs.md from the newest. Needs lifetimes, lifelines, scikit-survival, statsmodels and pmdarima.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
from collections.abc import Iterator
from multiprocessing import Pool
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from pages import newest, show, store
from provenance import describe_machine

PAGE = Path(__file__).resolve().parents[1] / "docs" / "results" / "real-logs.md"
SOURCE = "benchmarks/real_logs.py"
KINDS = ("purchases", "survival", "streams")
OTHERS = ("ridge", "true online TD", "smoothing")
MEAN = "mean so far"


def main() -> None:
    """Measure and store; or write the documentation's tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("kinds", nargs="*", choices=[*KINDS, []], help="kinds of logs to measure, by default all")
    parser.add_argument("--docs", action="store_true", help="write the documentation's tables; measure nothing")
    arguments = parser.parse_args()
    if not arguments.docs:
        with Pool(2, maxtasksperchild=1) as pool:
            for found in pool.imap(measured, arguments.kinds or KINDS):
                store(f"real-{found['kind']}", found)
    for kind in KINDS:
        show("\n".join(table(newest(f"real-{kind}"))), f"{SOURCE}: {kind}", PAGE if arguments.docs else None)


def measured(kind: str) -> dict[str, Any]:
    """Measure a kind of logs."""
    with threadpool_limits(1):
        rows = importlib.import_module(f"real_{kind}").measured()
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    return {"date": date, "kind": kind, "machine": describe_machine(), "rows": rows}


def table(found: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a table, the largest ratio first."""
    command = f"python {SOURCE} {found['kind']}"
    machine = found["machine"]
    yield f"Measured by `{command}` on {found['date']}: {machine['cores']} cores, {machine['cpu']}."
    yield ""
    yield from by_series(found["rows"]) if found["kind"] == "streams" else by_log(found["rows"])


def by_log(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of a table of purchases or survival times."""
    more = {key: title for key, title in {"curve": "Kaplan–Meier", "score": "R² before"}.items() if key in rows[0]}
    titles = ["log", "predicted", "LSTD by", "fitted to", "LSTD", "other", *more.values(), "ratio, and its range"]
    yield f"| {' | '.join(titles)} |"
    yield "|---" * len(titles) + "|"
    for row in sorted(rows, key=lambda row: -float(np.median(ratios(row)))):
        medians = (float(np.median(row[side])) for side in ("lstd", "theirs", *more))
        errors = " | ".join(f"{value:.3g}" if value < 1000 else f"{value:.0f}" for value in medians)
        low, middle, high = np.quantile(ratios(row), (0.0, 0.5, 1.0))
        spread = f" ({low:.2f} to {high:.2f})" if len(row["lstd"]) > 1 else ""
        yield f"| {row['log']} | {row['measure']} | {row['way']} | {row['size']} | {errors} | {middle:.2f}{spread} |"


def by_series(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of a table of series, and one of the ratios over all of them."""
    yield '| "auto" beside | ratio, median and range | less error in |'
    yield "|---|---|---|"
    for name in ("default", "uncorrected", *OTHERS, MEAN):
        ratio = np.array([row["errors"]["auto"] / row["errors"][name] for row in rows])
        low, middle, high = np.quantile(ratio, (0.0, 0.5, 1.0))
        better = f"{(ratio < 1.0 - 1e-6).sum()} of {len(rows)}"
        yield f"| {name} | {middle:.2f} ({low:.2f} to {high:.2f}) | {better} |"
    yield ""
    titles = ["series", "rows", "γ", "default", '"auto"', "Uncorrected", *OTHERS, MEAN]
    titles += ['"auto" ÷ best other', "chosen ÷ best pair"]
    yield f"| {' | '.join(titles)} |"
    yield "|---" * len(titles) + "|"
    for row in sorted(rows, key=lambda row: -beside_best(row["errors"])):
        e = row["errors"]
        cells = " | ".join(f"{e[name]:.2f}" for name in ("default", "auto", "uncorrected", *OTHERS, MEAN))
        chosen = f"{beside_best(e):.2f} | {e['chosen'] / e['best pair']:.2f}"
        yield f"| {row['log']} | {row['size']} | {row['gamma']:g} | {cells} | {chosen} |"


def beside_best(errors: dict[str, float]) -> float:
    """Return the ratio to the best of the other methods in hindsight."""
    return errors["auto"] / min(errors[name] for name in OTHERS)


def ratios(row: dict[str, Any]) -> Any:
    """Return the ratios of both errors, by sample or split."""
    return np.divide(row["lstd"], row["theirs"])


if __name__ == "__main__":
    main()
