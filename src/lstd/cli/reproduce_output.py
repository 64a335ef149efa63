"""What ``lstd reproduce`` writes to stdout: a table for people, or one JSON document."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lstd.experiments.reproduce.run import Outcome

CONTENTS = {
    "report.html": "all figures, tables and findings in one page",
    "figures": "Figures 2-5 and those of the theory, as PDF, PNG and SVG",
    "tables": "Tables 1-3 as CSV, Markdown and LaTeX",
    "results.parquet": "a row per problem, features, algorithm, λ, α and run",
    "timings.json": "seconds per run beside a NumPy loop and the paper",
    "theory.json": "Proposition 1, the theorems and lemmas in numbers",
    "provenance.json": "versions, processor, seeds, times and checksums",
    "cells": "finished parts of the sweep, from which a run resumes",
}


def outcome_text(outcome: Outcome) -> str:
    """Describe what was written, line by line."""
    seconds = f"{sum(outcome.wall_seconds.values()):.1f} s" if outcome.wall_seconds else "nothing left to do"
    paths = [(outcome.folder / name, contents) for name, contents in CONTENTS.items()]
    lines = [
        f"{outcome.folder}: {outcome.computed + outcome.reused} cells done "
        f"({outcome.computed} computed, {outcome.reused} stored before), {seconds}",
        *(f"  {path.name:<16}{_extent(path):>20}  {contents}" for path, contents in paths if path.exists()),
    ]
    return _encodable("\n".join(lines))


def outcome_json(outcome: Outcome) -> str:
    """Describe the same as one JSON document."""
    from lstd.experiments.reproduce.folder import CONFIGURATION, ResultsFolder

    files = [*ResultsFolder(outcome.folder, {}).files(), outcome.folder / CONFIGURATION]
    content = {
        "folder": str(outcome.folder),
        "status": "done",
        "cells": {"computed": outcome.computed, "reused": outcome.reused},
        "wall_seconds": dict(outcome.wall_seconds),
        "files": sorted(file.relative_to(outcome.folder).as_posix() for file in files),
    }
    return _encodable(json.dumps(content, indent=1, ensure_ascii=False))


def _encodable(text: str) -> str:
    """Escape bytes of a file name that are not valid text; the escapes are those of JSON too."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _extent(path: Path) -> str:
    files = [file for file in path.iterdir() if file.is_file()] if path.is_dir() else [path]
    size = sum(file.stat().st_size for file in files)
    amount = f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.0f} kB"
    return f"{len(files)} files, {amount}" if path.is_dir() else amount
