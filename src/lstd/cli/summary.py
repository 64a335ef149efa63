"""What the command writes to stdout: a table for people, or one JSON document."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lstd.experiments.plan import Survey
    from lstd.experiments.run import Outcome

CONTENTS = {
    "report.html": "all figures, tables and findings in one page",
    "figures": "Figures 2-5 and those of the theory, as PDF, PNG and SVG",
    "tables": "Tables 1-3 as CSV, Markdown and LaTeX",
    "results.parquet": "a row per problem, features, algorithm, λ, α and run",
    "timings.json": "seconds per run beside a NumPy loop and the paper",
    "theory.json": "Proposition 1 and Theorem 2 in numbers",
    "provenance.json": "versions, processor, seeds, times and checksums",
    "cells": "finished parts of the sweep, from which a run resumes",
}


def outcome_text(outcome: Outcome) -> str:
    """A table of what was written."""
    seconds = sum(outcome.wall_seconds.values())
    lines = [
        f"{outcome.folder}: {outcome.computed + outcome.reused} cells done "
        f"({outcome.computed} computed, {outcome.reused} found), {len(outcome.failures)} failures, "
        + (f"{seconds:.1f} s" if outcome.wall_seconds else "everything was there")
    ]
    for name, contents in CONTENTS.items():
        path = outcome.folder / name
        if path.exists():
            lines.append(f"  {name:<16}{_extent(path):>20}  {contents}")
    if outcome.failures:
        lines += ["failed:", *(f"  {failure}" for failure in outcome.failures)]
        lines.append("The same command tries again what failed.")
    return _encodable("\n".join(lines))


def outcome_json(outcome: Outcome) -> str:
    """The same as one JSON document."""
    from lstd.experiments.folder import CONFIGURATION, our_files

    files = [*our_files(outcome.folder), outcome.folder / CONFIGURATION]
    return _document(
        {
            "folder": str(outcome.folder),
            "status": "failed" if outcome.failures else "done",
            "cells": {"computed": outcome.computed, "reused": outcome.reused},
            "failures": list(outcome.failures),
            "wall_seconds": dict(outcome.wall_seconds),
            "files": sorted(file.relative_to(outcome.folder).as_posix() for file in files),
        }
    )


def survey_text(survey: Survey, out: str) -> str:
    """The plan: each cell and stage with what the folder has of it."""
    states = Counter(state for _, state in survey.cells)
    lines = [
        f"{out}: {len(survey.cells)} cells, {states['stored']} stored, {states['damaged']} damaged, "
        f"{states['missing']} missing; about {survey.seconds:.0f} s to do (kernels compiled); nothing written"
    ]
    lines += (f"  {state:<8} {what}" for state, what in _plan(survey))
    return _encodable("\n".join(lines))


def _plan(survey: Survey) -> Iterator[tuple[str, str]]:
    yield from ((state, str(cell)) for cell, state in survey.cells)
    yield from (("stored" if there else "missing", stage) for stage, there in survey.stages.items())


def survey_json(survey: Survey, out: str) -> str:
    """The same as one JSON document."""
    from dataclasses import asdict

    return _document(
        {
            "folder": out,
            "status": "dry run",
            "cells": [{**asdict(cell), "state": state} for cell, state in survey.cells],
            "stages": dict(survey.stages),
            "estimated_seconds": round(survey.seconds, 1),
        }
    )


def _document(content: dict[str, Any]) -> str:
    return _encodable(json.dumps(content, indent=1, ensure_ascii=False))


def _encodable(text: str) -> str:
    """Bytes of a file name that are no text as escapes, which are those of JSON too."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _extent(path: Path) -> str:
    files = [file for file in path.iterdir() if file.is_file()] if path.is_dir() else [path]
    size = sum(file.stat().st_size for file in files)
    amount = f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.0f} kB"
    return f"{len(files)} files, {amount}" if path.is_dir() else amount
