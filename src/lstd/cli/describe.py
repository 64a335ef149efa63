"""What the commands print on stdout: lines for people, or one JSON document, of a score or an experiment."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lstd.files import json_bytes

if TYPE_CHECKING:
    from lstd.experiments.reproduce.run import Outcome
    from lstd.tables.scoring import Score

RESULTS = {
    "report.html": "all figures, tables and findings in one page",
    "figures": "Figures 2-5 and those of the theory, as PDF, PNG and SVG",
    "tables": "Tables 1-3 as CSV, Markdown and LaTeX",
    "results.parquet": "a row per problem, features, algorithm, λ, α and run",
    "timings.json": "seconds per run beside a NumPy loop and the paper",
    "theory.json": "Proposition 1, the theorems and lemmas in numbers",
    "provenance.json": "versions, processor, seeds, times and checksums",
    "cells": "finished parts of the sweep, from which a run resumes",
}


def document(content: dict[str, Any]) -> str:
    """Return a JSON document as it is written to stdout; infinite and undefined numbers are null."""
    return json_bytes(content).decode("utf-8").rstrip("\n")


def encodable(text: str) -> str:
    """Escape bytes of a file name that are not valid text."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


# ------------------------------------------------------------ a score


def score_json(score: Score, rewards: tuple[str, ...], **about: Any) -> str:
    """Describe a score as one JSON document; R² is null where it is not defined."""
    values = zip(rewards, score.r2.tolist(), score.mse.tolist(), strict=True)
    by_reward = {reward: {"r2": r2, "mse": mse} for reward, r2, mse in values}
    counts = {"rows": score.rows, "scored": score.scored, "observed_share": score.observed_share}
    return document(about | counts | {"rewards": by_reward})


def score_text(score: Score, rewards: tuple[str, ...]) -> str:
    """Describe a score: rows scored, and R² and mean squared error by reward."""
    observed = f"observed share of their returns: {100 * score.observed_share:.0f} %"
    lines = [f"{score.scored} of {score.rows} rows scored; {observed}"]
    for reward, r2, mse in zip(rewards, score.r2.tolist(), score.mse.tolist(), strict=True):
        text = "not defined, since all returns are equal" if math.isnan(r2) else f"{r2:.6g}"
        lines.append(f"  {reward}: R² {text}; mean squared error {mse:.6g}")
    return "\n".join(lines)


# ------------------------------------------------------------ the experiments


def outcome_text(outcome: Outcome) -> str:
    """Describe the files that were written, line by line."""
    seconds = f"{sum(outcome.wall_seconds.values()):.1f} s" if outcome.wall_seconds else "nothing left to do"
    paths = [(outcome.folder / name, contents) for name, contents in RESULTS.items()]
    lines = [
        f"{outcome.folder}: {outcome.computed + outcome.reused} cells done "
        f"({outcome.computed} computed, {outcome.reused} stored before), {seconds}",
        *(f"  {path.name:<16}{_extent(path):>20}  {contents}" for path, contents in paths if path.exists()),
    ]
    return encodable("\n".join(lines))


def outcome_json(outcome: Outcome) -> str:
    """Describe the same as one JSON document."""
    from lstd.experiments.reproduce.folder import CONFIGURATION, ResultsFolder

    files = [*ResultsFolder(outcome.folder, {}).files(), outcome.folder / CONFIGURATION]
    return document(
        {
            "folder": str(outcome.folder),
            "status": "done",
            "cells": {"computed": outcome.computed, "reused": outcome.reused},
            "wall_seconds": dict(outcome.wall_seconds),
            "files": sorted(file.relative_to(outcome.folder).as_posix() for file in files),
        }
    )


def _extent(path: Path) -> str:
    files = [file for file in path.iterdir() if file.is_file()] if path.is_dir() else [path]
    size = sum(file.stat().st_size for file in files)
    amount = f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.0f} kB"
    return f"{len(files)} files, {amount}" if path.is_dir() else amount
