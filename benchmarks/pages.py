"""Results in files, and tables in pages of the documentation."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"


def store(name: str, found: dict[str, Any]) -> None:
    """Write results, which have a date, in place of earlier ones of that day."""
    write_whole(RESULTS / f"{name}-{found['date']}.json", json.dumps(found, indent=1) + "\n")


def newest(name: str) -> dict[str, Any]:
    """Read the results of the latest day."""
    paths = sorted(RESULTS.glob(f"{name}-[0-9]*.json"))
    if not paths:
        raise SystemExit(f"{RESULTS} has no {name}-*.json. Run without --docs.")
    found: dict[str, Any] = json.loads(paths[-1].read_text(encoding="utf-8"))
    return found


def show(text: str, source: str, page: Path | None) -> None:
    """Print a text; if there is a page, put it between the markers of `source`."""
    print(text)
    if page is not None:
        write_between(page, source, text)


def measure_or_write(
    name: str,
    source: str,
    page: Path,
    measured: Callable[[], dict[str, Any]],
    table: Callable[[dict[str, Any]], Iterable[str]],
    *,
    docs: bool,
) -> None:
    """Measure, store and print a table; or put the table of the newest results into the page of the documentation."""
    if not docs:
        store(name, measured())
    show("\n".join(table(newest(name))), source, page if docs else None)


def write_between(path: Path, source: str, text: str) -> None:
    """Replace the text between the markers of `source` in a page, whole or not at all."""
    begin = f"<!-- begin: {source} -->"
    end = f"<!-- end: {source} -->"
    page = path.read_text(encoding="utf-8")
    if page.count(begin) != 1 or page.count(end) != 1:
        raise SystemExit(f"{path} must have the lines {begin!r} and {end!r}, once each.")
    head, rest = page.split(begin)
    tail = rest.split(end)[1]
    write_whole(path, f"{head}{begin}\n\n{text}\n\n{end}{tail}")


def write_whole(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
