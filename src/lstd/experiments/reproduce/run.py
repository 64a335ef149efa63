"""The paper's experiments from beginning to end; results that are stored and intact are not computed again.

The sweep comes first, cell by cell. Then the algorithms are timed, alone on the machine. Last, the figures are drawn in
other processes while this one computes the theory and writes the tables.
"""

from __future__ import annotations

import contextlib
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from lstd import files
from lstd.data.arguments import check_integer
from lstd.errors import LSTDError
from lstd.experiments.protocol import MRP_SEED, Cell, Plan
from lstd.experiments.reproduce.folder import CONFIGURATION, PROVENANCE, RESULTS, Kept, ResultsFolder
from lstd.experiments.reproduce.results import Results, Row, gather
from lstd.statistics.threads import available_cores
from lstd.version import __version__

Progress = Callable[[str, float, float], None]

# Of a problem, on a current processor; for the time left only.
TIMING_SECONDS = 1.5
REPORT_SECONDS = 2.5


class Outcome(NamedTuple):
    """What :func:`reproduce` did."""

    folder: Path
    computed: int  # cells computed now
    reused: int  # cells read from the folder
    wall_seconds: Mapping[str, float]  # of each stage that was carried out now

    @property
    def document(self) -> dict[str, Any]:
        """What was done and the files that there are, as JSON values."""
        written = [*ResultsFolder(self.folder, {}).files(), self.folder / CONFIGURATION]
        return {
            "folder": str(self.folder),
            "status": "done",
            "cells": {"computed": self.computed, "reused": self.reused},
            "wall_seconds": self.wall_seconds,
            "files": sorted(file.relative_to(self.folder).as_posix() for file in written),
        }

    def __str__(self) -> str:
        seconds = f"{sum(self.wall_seconds.values()):.1f} s" if self.wall_seconds else "nothing left to do"
        lines = [
            f"{self.folder}: {self.computed + self.reused} cells done "
            f"({self.computed} computed, {self.reused} stored before), {seconds}"
        ]
        for name, contents in RESULTS.items():
            if (self.folder / name).exists():
                lines.append(f"  {name:<16}  {contents}")
        return "\n".join(lines)


def reproduce(
    plan: Plan,
    out: str | os.PathLike[str],
    *,
    n_jobs: int | None = None,
    force: bool = False,
    progress: Progress | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> Outcome:
    """Compute a plan and write figures, tables, numbers and the page into a results folder.

    What an earlier run of the same plan has finished there is used; `force` removes it and starts over. `n_jobs`
    threads compute the sweep, and as many processes draw; results do not depend on it. `progress(text, done, total)` is
    called in this thread, with the work in estimated seconds. `arguments` are kept in provenance.json.

    Raises InvalidInputError if `n_jobs` is below 1 or the folder cannot be used, ConfigurationMismatchError if it holds
    results of another configuration, OutputError if a file could not be written, and LSTDError if a step failed. What
    is finished is kept.
    """
    n_jobs = available_cores() if n_jobs is None else check_integer("n_jobs", n_jobs, 1)
    with ResultsFolder(out, plan.configuration).claimed(force=force) as folder:
        session = _Session(plan, folder, n_jobs, progress or _no_progress, arguments or {})
        return session.run()


def _no_progress(text: str, done: float, total: float) -> None:
    """Show nothing."""


class _Session:
    """One process at work on a results folder."""

    def __init__(
        self, plan: Plan, folder: ResultsFolder, n_jobs: int, progress: Progress, arguments: Mapping[str, Any]
    ) -> None:
        self.plan = plan
        self.folder = folder
        self.n_jobs = n_jobs
        self.progress = progress
        earlier = files.read_json(folder.path / PROVENANCE) or {}
        self.wall: dict[str, float] = {}
        self.about: dict[str, Any] = {
            **describe_machine(n_jobs),
            "run_seeds": [1, plan.runs],
            "mrp_seed": MRP_SEED,
            "arguments": dict(arguments),
            "started": earlier.get("started") or datetime.now(UTC).isoformat(timespec="seconds"),
            "sessions": earlier.get("sessions", 0) + 1,
            "configuration": dict(plan.configuration),
            "wall_seconds": earlier.get("wall_seconds", {}),  # of all sessions
            "files": earlier.get("files", {}),  # checksums when the last report was finished
        }
        self.done = 0.0  # of the work, in estimated seconds
        self.total = 0.0

    def run(self) -> Outcome:
        """Carry out what is missing."""
        cells = self.plan.cells
        stored = {cell: self.folder.kept(cell.name) for cell in cells}
        stored_timings = self.folder.kept("timings")
        missing = [cell for cell in cells if stored[cell] is None]
        outcome = Outcome(self.folder.path, len(missing), len(cells) - len(missing), self.wall)
        is_complete = not missing and stored_timings is not None
        if is_complete and self.about["files"] == self.folder.checksums():
            return outcome

        timing_seconds = TIMING_SECONDS * len(self.plan.problems)
        report_seconds = REPORT_SECONDS * len(self.plan.problems)
        self.total = sum(cell.seconds(self.n_jobs) for cell in missing) + report_seconds
        if stored_timings is None:
            self.total += timing_seconds
        self._record()
        errors = {}
        for cell in cells:
            _, errors[cell] = stored[cell] or self._computed(cell)
        timings, _ = stored_timings or self._timed(timing_seconds)
        self._report(gather(errors, timings, self.about), timings, report_seconds)
        return outcome

    def _computed(self, cell: Cell) -> Kept:
        """Compute a cell and keep it."""
        from lstd.experiments.sweep import run_sweep

        with self._step("sweep", str(cell), cell.seconds(self.n_jobs)) as part:
            errors = run_sweep(
                cell.problem,
                cell.features,
                list(cell.algorithms),
                run_seeds=range(1, cell.runs + 1),
                n_jobs=self.n_jobs,
                progress=part,
            )
            return self.folder.keep(cell.name, {}, errors)

    def _timed(self, seconds: float) -> Kept:
        """Time the algorithms and keep the result."""
        from lstd.experiments import timing

        with self._step("timings", "timing each algorithm", seconds) as part:
            return self.folder.keep("timings", timing.measure(self.plan.problems, progress=part))

    def _theory(self) -> Row:
        """Read or compute Proposition 1 and Theorem 2."""
        from lstd.experiments import theory

        document, _ = self.folder.kept("theory") or self.folder.keep("theory", theory.check_theory())
        return document

    def _report(self, results: Results, timings: Row, seconds: float) -> None:
        """Write all files of the report, and remember their checksums."""
        from lstd.experiments.reproduce import report

        with self._step("report", "drawing figures and writing the report", seconds) as part:
            composed = report.compose(results, self._theory, self.n_jobs)
            for n_written, (name, content, n_files) in enumerate(composed, start=1):
                self.folder.write(name, content)
                part(n_written, n_files)
            for name, document in (("timings.json", timings), ("theory.json", self._theory())):
                self.folder.write(name, files.json_bytes(document))
            self.about["files"] = self.folder.checksums()

    def _record(self) -> None:
        """Write provenance.json."""
        self.folder.write(PROVENANCE, files.json_bytes(self.about))

    @contextlib.contextmanager
    def _step(self, stage: str, text: str, seconds: float) -> Iterator[Callable[[int, int], None]]:
        """Show, time and record a step of `seconds` estimated seconds; yields its progress callback (done, total)."""

        def part(done: float, total: float) -> None:
            self.progress(text, self.done + seconds * done / max(total, 1), self.total)

        part(0, 1)
        start = time.perf_counter()
        try:
            yield part
        except (LSTDError, OSError):
            raise
        except Exception as error:
            raise LSTDError(f"{text}: {type(error).__name__}: {str(error).rstrip('.')}.") from error
        self.done += seconds
        elapsed = time.perf_counter() - start
        for wall in (self.wall, self.about["wall_seconds"]):
            wall[stage] = round(wall.get(stage, 0.0) + elapsed, 3)
        self._record()


PACKAGES = ("numpy", "scipy", "numba", "llvmlite", "scikit-learn", "matplotlib", "pyarrow", "typer", "rich")


def describe_machine(n_jobs: int | None = None) -> dict[str, Any]:
    """Describe versions, processor and threads (`n_jobs`; all cores by default) as JSON values.

    >>> sorted(describe_machine(n_jobs=2))
    ['cores', 'cpu', 'lstd', 'numba_threading', 'packages', 'platform', 'python', 'threads']
    """
    versions = {}
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return {
        "lstd": __version__,
        "python": platform.python_version(),
        "packages": versions,
        "cpu": _cpu_model(),
        "cores": available_cores(),
        "threads": n_jobs or available_cores(),
        "numba_threading": "none: runs are divided among Python threads",
        "platform": platform.platform(),
    }


def _cpu_model() -> str:
    """Return the name of the processor."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name" and value.strip():
                return value.strip()
    return platform.processor() or platform.machine()
