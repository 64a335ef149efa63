"""The paper's experiments from beginning to end: sweep, timings, theory, table and report, resumable.

The work is a list of cells. Each finished cell is stored at once, and what is stored and sound is not
computed again. Nothing is printed here: whoever calls :func:`reproduce` is told of progress by events.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal

from lstd.data.checks import check_integer
from lstd.errors import OutputError
from lstd.experiments.folder import PROVENANCE, STAGE_FILES, TABLE
from lstd.experiments.plan import Plan, cell_seconds, stage_seconds
from lstd.experiments.protocol import MRP_SEED
from lstd.experiments.provenance import describe_machine
from lstd.experiments.store import Cell, CorruptCellError, ResultsFolder
from lstd.experiments.workers import Workers, compute

EventKind = Literal["progress", "notice", "failure"]
REPORT_FILES = ("figures/", "tables/", "report.html")


@dataclass(frozen=True)
class Event:
    """What a caller is told: a step of progress, a notice, or a failure that does not stop the rest.

    Attributes
    ----------
    kind : {"progress", "notice", "failure"}
    text : str
        What is being done, or what happened, in one line.
    done, total : float
        Work done and work in all, in estimated seconds.
    """

    kind: EventKind
    text: str
    done: float
    total: float


Listener = Callable[[Event], None]


@dataclass(frozen=True)
class Outcome:
    """What :func:`reproduce` did.

    Attributes
    ----------
    folder : Path
    computed, reused : int
        Number of cells computed now, and found sound in the folder.
    failures : tuple of str
        One line for each cell or stage that failed.
    wall_seconds : dict of str -> float
        Duration of what was carried out now, by stage.
    """

    folder: Path
    computed: int
    reused: int
    failures: tuple[str, ...]
    wall_seconds: Mapping[str, float]


def reproduce(
    plan: Plan,
    out: str | os.PathLike[str],
    *,
    n_jobs: int | None = None,
    executor: Executor | Callable[[], Executor] | None = None,
    client: Any = None,
    force: bool = False,
    on_event: Listener | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> Outcome:
    """Compute a plan and write everything into a results folder; what is there already is used.

    Parameters
    ----------
    plan : Plan
        See :func:`lstd.experiments.plan.make_plan`.
    out : path
        The results folder.
    n_jobs : int, optional
        Threads; all cores by default. With `executor` or `client`, threads of each task on a worker; one by default.
    executor : concurrent.futures.Executor or function that makes one, optional
        Workers that compute the cells, in parts of about half a second. When one dies, an executor that was made here
        is replaced, and what it had not finished is done again.
    client : distributed.Client, optional
        Of a Dask cluster, in place of `executor`. Results come back here, and everything else is done here.
    force : bool
        Remove the results in the folder and start over.
    on_event : callable, optional
        Called in this thread with each :class:`Event`.
    arguments : dict, optional
        Kept in provenance.json.

    Returns
    -------
    Outcome
        With the cells and stages that failed; the others are written all the same.

    Raises
    ------
    InvalidInputError
        If `n_jobs` is below 1, `executor` and `client` are both given or are something else, a worker has another
        version of lstd, or the folder cannot be used.
    ConfigurationMismatchError
        If the folder holds results of another configuration and `force` is false.
    OutputError
        If a file could not be written.
    LSTDError
        If workers die again and again, or one of an executor that was given, or the cluster is lost. What is finished
        is kept.

    Notes
    -----
    Cells do not depend on where and by how many threads they are computed, on machines of one kind: another processor
    may differ in the last bits.

    Examples
    --------
    >>> from lstd.experiments.plan import make_plan
    >>> reproduce(make_plan("small"), "lstd-results").failures  # doctest: +SKIP
    ()
    """
    if n_jobs is not None:
        check_integer("n_jobs", n_jobs, 1)
    workers = None if executor is None and client is None else Workers(executor, client, n_jobs)
    with ResultsFolder(out, plan.configuration, force=force) as folder:
        listener = on_event or (lambda event: None)
        return _Session(plan, folder, n_jobs, workers, listener, dict(arguments or {})).run()


@dataclass
class _Session:
    """One process at work on a results folder."""

    plan: Plan
    folder: ResultsFolder
    n_jobs: int | None
    workers: Workers | None
    listener: Listener
    arguments: dict[str, Any]
    done: float = 0.0
    total: float = 0.0
    stored: list[Cell] = field(default_factory=list)
    reused: int = 0
    failures: list[str] = field(default_factory=list)
    wall: dict[str, float] = field(default_factory=dict)
    machine: dict[str, Any] = field(init=False)
    earlier: list[dict[str, Any]] = field(init=False)  # sessions
    files: dict[str, str] = field(init=False)  # checksums of what the last report was made of, and of itself
    started: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    def __post_init__(self) -> None:
        self.machine = describe_machine(self.n_jobs if self.workers is None else None)
        recorded = self.folder.read_json(PROVENANCE) or {}
        self.earlier, self.files = recorded.get("sessions", []), recorded.get("files", {})

    def run(self) -> Outcome:
        stages = {
            "timings": self._timings,
            "theory": self._theory,
            "table": self._table,
            "report": self._report,
        }
        self._sweep(sum(stage_seconds(stage, self.plan) for stage in stages))
        for stage, carry_out in stages.items():
            with self._guarded(STAGE_FILES[stage], stage_seconds(stage, self.plan)):
                carry_out(stage)
        computed = len(self.stored) - self.reused
        return Outcome(self.folder.path, computed, self.reused, tuple(self.failures), self.wall)

    def _sweep(self, seconds_after: float) -> None:
        found = {cell for cell in self.plan.cells if self._is_stored(cell)}
        missing = [cell for cell in self.plan.cells if cell not in found]
        self.reused = len(found)
        self.total = sum(map(self._seconds, missing)) + seconds_after
        if missing:
            self._write_provenance()
        found.update(
            self._sweep_here(missing) if self.workers is None else self._sweep_elsewhere(missing, self.workers)
        )
        self.stored = [cell for cell in self.plan.cells if cell in found]

    def _sweep_here(self, missing: list[Cell]) -> Iterator[Cell]:
        """The cells that were stored, computed one after the other."""
        grids = self.plan.configuration["grids"]
        for cell in missing:
            with self._guarded(str(cell), self._seconds(cell)), self._timed("sweep"):
                part = self._part(str(cell), self._seconds(cell))
                self.folder.write_cell(cell, compute(cell, grids[cell.group], self.n_jobs, part))
                yield cell

    def _sweep_elsewhere(self, missing: list[Cell], workers: Workers) -> Iterator[Cell]:
        """The cells that were stored, as they come from the workers."""
        ahead = dict.fromkeys(missing, 1.0)  # share of a cell that has not come yet

        def came(cell: Cell, share: float) -> None:
            ahead[cell] -= share
            self.done += self._seconds(cell) * share
            self._tell("progress", f"{len(missing) - len(ahead)} of {len(missing)} cells done by workers")

        grids, since = self.plan.configuration["grids"], time.perf_counter()
        self._tell("progress", f"{len(missing)} cells to be done by workers")
        with closing(workers.cells(missing, grids, came, partial(self._tell, "notice"))) as results:
            for cell, result in results:
                with self._guarded(str(cell), self._seconds(cell) * ahead.pop(cell)), self._timed("sweep", since):
                    if isinstance(result, BaseException):
                        raise result
                    self.folder.write_cell(cell, result)
                    yield cell
                self._tell("progress", f"{len(missing) - len(ahead)} of {len(missing)} cells done by workers")
                since = time.perf_counter()

    def _seconds(self, cell: Cell) -> float:
        """Estimated duration of a cell; its part in that of all where several are computed at a time."""
        if self.workers is None:
            return cell_seconds(cell, self.n_jobs)
        return cell_seconds(cell, 1) / self.workers.threads

    def _is_stored(self, cell: Cell) -> bool:
        try:
            return self.folder.read_cell(cell) is not None
        except CorruptCellError as error:
            self._tell("notice", f"{error} It is computed again.")
            return False

    def _timings(self, stage: str) -> None:
        from lstd.experiments import timing

        if self.folder.read_json(STAGE_FILES[stage]) is not None:
            return
        with self._timed(stage):
            part = self._part("timing each algorithm", stage_seconds(stage, self.plan))
            self.folder.write_json(STAGE_FILES[stage], timing.measure(self.plan.problems, progress=part))

    def _theory(self, stage: str) -> None:
        from lstd.experiments import theory

        if self.folder.read_json(STAGE_FILES[stage]) is not None:
            return
        with self._timed(stage):
            self._tell("progress", "simulating Proposition 1 and Theorem 2")
            parts = {"proposition1": theory.proposition1(), "theorem2": theory.theorem2()}
            self.folder.write_json(STAGE_FILES[stage], parts)

    def _table(self, stage: str) -> None:
        """Write the table, unless it was made of the very cells that are there."""
        if not self.stored:
            raise ValueError("no cell was finished, so that there is nothing to write.")
        if self._is_current(stage, ("cells/", TABLE)):
            return
        with self._timed(stage):
            self._tell("progress", f"writing {TABLE}")
            self.folder.write_table(self.stored)

    def _report(self, stage: str) -> None:
        """Write the report, unless it was made of the very files that are there."""
        if not self.stored or (not self.failures and self._is_current(stage, ("",))):
            return
        from lstd.experiments import report

        self.files = {name: sha for name, sha in self.folder.checksums().items() if not name.startswith(REPORT_FILES)}
        self._write_provenance()
        with self._timed(stage):
            part = self._part("drawing figures and writing the report", stage_seconds(stage, self.plan))
            report.write_all(self.folder.path, progress=lambda done, total, name: part(done, total))
            self.files = self.folder.checksums()

    def _is_current(self, stage: str, prefixes: tuple[str, ...]) -> bool:
        """Whether a stage's file is there, and all files with these prefixes are those of the last time."""
        if STAGE_FILES[stage] not in self.files:
            return False
        found = self.folder.checksums()
        names = {name for name in (*found, *self.files) if name.startswith(prefixes)}
        return all(found.get(name) == self.files.get(name) for name in names)

    def _write_provenance(self) -> None:
        """Record how the results came about, in this session and those before."""
        now = {"started": self.started, "threads": self.machine["threads"], "wall_seconds": self.wall}
        if self.workers is not None:
            now["workers"] = self.workers.describe()
        sessions = [*self.earlier, now]
        spent = [(stage, seconds) for session in sessions for stage, seconds in session["wall_seconds"].items()]
        document = {
            **self.machine,
            "run_seeds": [1, self.plan.runs],
            "mrp_seed": MRP_SEED,
            "arguments": self.arguments,
            "started": sessions[0]["started"],
            "wall_seconds": {
                stage: round(sum(s for other, s in spent if other == stage), 3) for stage in dict.fromkeys(dict(spent))
            },
            "sessions": sessions,
            "failures": self.failures,
            "configuration": self.plan.configuration,
            "files": self.files,
        }
        self.folder.write_json(PROVENANCE, document)

    def _part(self, text: str, weight: float) -> Callable[[int, int], None]:
        """A progress callback (done, total) for a part of the work that takes `weight` seconds."""

        def progress(done: int, total: int) -> None:
            now = self.done + weight * done / max(total, 1)
            self.listener(Event("progress", text, now, self.total))

        progress(0, 1)
        return progress

    def _tell(self, kind: EventKind, text: str) -> None:
        self.listener(Event(kind, " ".join(text.split()), self.done, self.total))

    @contextmanager
    def _timed(self, stage: str, since: float | None = None) -> Iterator[None]:
        """Add up the seconds of a stage and keep them at once: the process may be killed before the next one ends."""
        start = time.perf_counter() if since is None else since
        try:
            yield
        finally:
            self.wall[stage] = round(self.wall.get(stage, 0.0) + time.perf_counter() - start, 3)
        self._write_provenance()

    @contextmanager
    def _guarded(self, name: str, weight: float) -> Iterator[None]:
        """Let the rest go on when a part fails, unless nothing can be written any more."""
        try:
            yield
        except OutputError:
            raise
        except Exception as error:
            failure = " ".join(f"{name}: {type(error).__name__}: {error}".split())
            self.failures.append(failure)
            self._tell("failure", failure)
        self.done += weight
