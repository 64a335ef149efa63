"""Measure every speed that the documentation claims, as ratios of times taken in turn in one run.

    python benchmarks/claims.py [--only NAME] [--quick] [--results FOLDER]
    python benchmarks/claims.py --docs
    python benchmarks/claims.py --list

Prints a table per script of this folder, and writes all of it to results/DATE.json, whole or not at all. Take the
machine for nothing else meanwhile. A part (`--only`, again for more) or a quick run is written only to the folder of
`--results`. With `--docs`, nothing is measured: tables in the documentation are made from the newest whole results.
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
    "online": "One transition at a time",
    "selection": "Settings from the data",
    "intervals": "Intervals",
    "scaling": "Files, chunks and workers",
    "startup": "Start",
    "neighbours": "Published neighbours",
}
NAMES = tuple(TITLES)
HERE = Path(__file__).resolve().parent
RESULTS, DOCS = HERE / "results", HERE.parent / "docs"
WHOLE = "benchmarks.md"  # the page with every part
PAGES = {
    WHOLE: NAMES,
    "performance-estimators.md": ("batch", "online"),
    "selection.md": ("selection",),
    "intervals.md": ("intervals",),
}
SOURCE = "benchmarks/claims.py"
SHOWN = ("numpy", "scipy", "numba", "scikit-learn", "pyarrow", "distributed", "swifttd", "mushroom-rl")
OTHERS = (
    "threadpoolctl",
    "joblib",
    "distributed",
    "swifttd",
    "mushroom-rl",
    "torch",
)  # versions beside those of `lstd`


def main(words: Sequence[str] | None = None) -> None:
    """Measure, print and write; or list; or write the documentation's tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--only", action="append", choices=NAMES, metavar="NAME", help="this part, one of --list")
    parser.add_argument("--quick", action="store_true", help="little data, few repeats: to see that it runs")
    parser.add_argument("--results", type=Path, metavar="FOLDER", help="write results here, also of a part")
    parser.add_argument("--docs", action="store_true", help="write the documentation's tables; measure nothing")
    parser.add_argument("--list", action="store_true", help="name the parts; measure nothing")
    arguments = parser.parse_args(words)
    if arguments.list:
        for name in NAMES:
            print(f"{name:11} {TITLES[name]}")
    elif arguments.docs:
        write_docs(newest(arguments.results or RESULTS), DOCS)
    else:
        run(arguments.only, arguments.quick, arguments.results)


def run(only: Sequence[str] | None, quick: bool, folder: Path | None) -> None:
    """Measure, print, and write when everything is done."""
    from provenance import describe_machine, source_digest

    names = [name for name in NAMES if not only or name in only]
    begun, source = time.perf_counter(), source_digest()
    found: dict[str, Any] = {
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "arguments": {"quick": quick, "only": None if len(names) == len(NAMES) else names},
        "load_before": round(os.getloadavg()[0], 2),
        "machine": describe_machine(),
        "packages": {name: version for name in OTHERS if (version := _version(name))},
        "parts": {name: measured(name, quick) for name in names},
    }
    found["seconds"] = round(time.perf_counter() - begun)
    # Two when the source was changed meanwhile: then it is not known which of them was measured.
    found["source"] = list(dict.fromkeys([source, source_digest()]))
    note(f"all in {found['seconds']} s, source {' to '.join(found['source'])}")
    if not folder and (quick or found["arguments"]["only"]):
        note("not written: a quick run or a part needs --results FOLDER")
        return
    note(f"written to {write(found, folder or RESULTS)}")


def measured(name: str, quick: bool) -> dict[str, Any]:
    """All ratios of one script, printed as a table when they are there."""
    note(f"{name} …")
    begun = time.perf_counter()
    module = import_module(name)
    rows = []
    for ratio in module.ratios(quick):
        rows.append(ratio.row())
        note(f"{name}: {ratio.claim}: {'skipped' if ratio.skipped else 'measured'}")
    print(f"## {name}\n\n{module.HOW}\n\n" + "\n".join(table(rows)) + "\n", flush=True)
    return {"how": module.HOW, "seconds": round(time.perf_counter() - begun), "ratios": rows}


def write(found: dict[str, Any], folder: Path) -> Path:
    """Whole or not at all, in place of an earlier run of that day."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{found['date']}.json"
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    temporary.replace(path)
    return path


def newest(folder: Path) -> dict[str, Any]:
    """The latest results that are neither quick nor a part."""
    for path in sorted(folder.glob("[0-9]*.json"), reverse=True):
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if not found["arguments"]["quick"] and found["arguments"]["only"] is None:
            return found
    sys.exit(f"No results of a whole run in {folder}. Run {SOURCE} without --only and --quick.")


def write_docs(found: dict[str, Any], docs: Path) -> None:
    """The tables of all pages."""
    for page in PAGES:
        write_between(docs / page, SOURCE, page_text(found, page))


def page_text(found: dict[str, Any], page: str) -> str:
    """What stands between the markers of a page."""
    names, machine = PAGES[page], found["machine"]
    packages = machine["packages"] | found["packages"]
    versions = ", ".join(f"{name} {packages[name]}" for name in SHOWN if name in packages)
    source = f"`lstd` {machine['lstd']}, source {' to '.join(found['source'])}; " if "source" in found else ""
    lines = [
        f"Measured by `python {SOURCE}` on {found['date']}, all in one run of {found['seconds'] / 60:.0f} minutes: "
        f"{source}{machine['cpu']}, {machine['cores']} cores, load {found['load_before']} before it; Python "
        f"{machine['python']}, {versions}."
    ]
    for name in names:
        part = found["parts"][name]
        lines += ["", *[f"## {TITLES[name]}", ""] * (len(names) > 1)]
        lines += [part["how"], "", *table(part["ratios"], pages=page == WHOLE)]
    return "\n".join(lines)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    main()
