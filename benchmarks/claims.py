"""Measure every speed that the documentation claims, as ratios of times taken in turn in one run.

    python benchmarks/claims.py [--only NAME] [--quick] [--results FOLDER]
    python benchmarks/claims.py --docs
    python benchmarks/claims.py --list

Prints a table per script of this folder, and writes all results to results/DATE.json, whole or not at all. Leave the
machine idle meanwhile. A part (`--only`, which may be repeated) or a quick run is written only with `--results`, a part
to DATE-NAME.json. With `--docs`, nothing is measured: the tables of the documentation are made from the newest whole
results, and parts that were measured by themselves later.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
import time
from collections.abc import Sequence
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from pages import write_between
from ratios import note, table

TITLES = {
    "paper": "The paper's experiments",
    "batch": "Whole data at once",
    "in_memory": "Data in memory",
    "online": "One transition at a time",
    "selection": "Settings from the data",
    "choice": "Choices and first use",
    "intervals": "Intervals",
    "scaling": "Files, chunks and workers",
    "startup": "Start",
    "neighbours": "Published neighbours",
}
NAMES = tuple(TITLES)
HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
PAGE = HERE.parent / "docs" / "results" / "benchmarks.md"
SOURCE = "benchmarks/claims.py"
SHOWN = ("numpy", "scipy", "numba", "scikit-learn", "pyarrow", "distributed", "swifttd", "mushroom-rl")
# Versions beside those that `describe_machine` gives.
OTHERS = ("threadpoolctl", "joblib", "distributed", "swifttd", "mushroom-rl", "torch")


def main(words: Sequence[str] | None = None) -> None:
    """Measure, print and write; or list; or write the documentation's tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument(
        "--only", action="append", choices=NAMES, metavar="NAME", help="measure this part, one of --list"
    )
    parser.add_argument("--quick", action="store_true", help="little data and few repeats, to see that it runs")
    parser.add_argument("--results", type=Path, metavar="FOLDER", help="write results here, also of a part")
    parser.add_argument("--docs", action="store_true", help="write the documentation's tables; measure nothing")
    parser.add_argument("--list", action="store_true", help="name the parts; measure nothing")
    arguments = parser.parse_args(words)
    if arguments.list:
        for name in NAMES:
            print(f"{name:11} {TITLES[name]}")
    elif arguments.docs:
        write_between(PAGE, SOURCE, page_text(complete(arguments.results or RESULTS)))
    else:
        run(arguments.only, arguments.quick, arguments.results)


def run(only: Sequence[str] | None, quick: bool, folder: Path | None) -> None:
    """Measure and print; write when everything is done."""
    from provenance import describe_machine, source_digest

    names = [name for name in NAMES if not only or name in only]
    begun = time.perf_counter()
    source = source_digest()
    results: dict[str, Any] = {
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "arguments": {"quick": quick, "only": None if len(names) == len(NAMES) else names},
        "load_before": round(os.getloadavg()[0], 2),
        "machine": describe_machine(),
        "packages": {name: version for name in OTHERS if (version := _version(name))},
        "parts": {name: measured(name, quick) for name in names},
    }
    results["seconds"] = round(time.perf_counter() - begun)
    # Two digests if the source changed meanwhile: which of them was measured is not known.
    results["source"] = list(dict.fromkeys([source, source_digest()]))
    note(f"all in {results['seconds']} s, source {' to '.join(results['source'])}")
    if not folder and (quick or results["arguments"]["only"]):
        note("not written: a quick run or a part needs --results FOLDER")
        return
    note(f"written to {write(results, folder or RESULTS)}")


def measured(name: str, quick: bool) -> dict[str, Any]:
    """Measure all ratios of one script and print them as a table."""
    note(f"{name} …")
    begun = time.perf_counter()
    module = import_module(name)
    rows = []
    for ratio in module.ratios(quick):
        rows.append(ratio.row())
        note(f"{name}: {ratio.claim}: {'skipped' if ratio.skipped else 'measured'}")
    print(f"## {name}\n\n{module.HOW}\n\n" + "\n".join(table(rows)) + "\n", flush=True)
    return {"how": module.HOW, "seconds": round(time.perf_counter() - begun), "ratios": rows}


def write(results: dict[str, Any], folder: Path) -> Path:
    """Write the results, whole or not at all, in place of an earlier run of that day."""
    folder.mkdir(parents=True, exist_ok=True)
    only = results["arguments"]["only"] or []
    path = folder / f"{'-'.join([results['date'], *only])}.json"
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    temporary.replace(path)
    return path


def newest(folder: Path) -> dict[str, Any]:
    """Read the latest results that are neither quick nor a part."""
    for path in sorted(folder.glob("[0-9]*.json"), reverse=True):
        results: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if not results["arguments"]["quick"] and results["arguments"]["only"] is None:
            return results
    sys.exit(f"No results of a whole run in {folder}. Run {SOURCE} without --only and --quick.")


def complete(folder: Path) -> dict[str, Any]:
    """Read the latest whole results, with later ones of parts in their place."""
    results = newest(folder)
    later: dict[str, Any] = {}
    for path in sorted(folder.glob("[0-9]*-*-*-*.json")):
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["date"] < results["date"] or found["arguments"]["quick"]:
            continue
        source = " to ".join(found["source"])
        cpu = found["machine"]["cpu"]
        ran_on = (
            f"Measured by itself on {found['date']}, {cpu}, source {source}, load {found['load_before']} before it."
        )
        for name in found["arguments"]["only"] or []:
            later[name] = found["parts"][name] | {"ran_on": ran_on}
    parts = results["parts"] | later
    return results | {"parts": {name: parts[name] for name in NAMES if name in parts}}


def page_text(results: dict[str, Any]) -> str:
    """Text between the markers of the page."""
    machine = results["machine"]
    packages = machine["packages"] | results["packages"]
    versions = ", ".join(f"{name} {packages[name]}" for name in SHOWN if name in packages)
    source = f"`lstd` {machine['lstd']}, source {' to '.join(results['source'])}; " if "source" in results else ""
    lines = [
        f"Measured by `python {SOURCE}` on {results['date']}, all in one run of {results['seconds'] / 60:.0f} minutes: "
        f"{source}{machine['cpu']}, {machine['cores']} cores, load {results['load_before']} before it; Python "
        f"{machine['python']}, {versions}."
    ]
    for name in (name for name in NAMES if name in results["parts"]):
        part = results["parts"][name]
        how = " ".join([part["how"], part["ran_on"]]) if "ran_on" in part else part["how"]
        lines += ["", f"## {TITLES[name]}", "", how, "", *table(part["ratios"])]
    return "\n".join(lines)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    main()
