"""Cells computed by workers of an executor or of a Dask cluster, in parts; the results come back to whoever asked."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

import lstd
from lstd.distributed.cluster import check_versions, on_cluster, other_version, outcome
from lstd.distributed.tasks import Task, check_workers, on_executor, workers_of
from lstd.errors import LSTDError
from lstd.experiments.plan import cell_seconds
from lstd.experiments.protocol import MRP_SEED
from lstd.experiments.provenance import describe_machine
from lstd.experiments.store import Cell, FloatArray

Arrays = dict[str, FloatArray]
Grids = Mapping[str, Mapping[str, Any]]

PART_SECONDS = 0.5  # of a task: some hundred times what sending it costs, and few enough for workers to end together
_TOKEN = uuid.uuid4().hex


def compute(cell: Cell, grid: Mapping[str, Any], n_jobs: int | None, progress: Callable[[int, int], None]) -> Arrays:
    """Errors of shape (runs, lmbdas, alphas) for each algorithm of a cell, in this process."""
    from lstd.experiments.sweep import run_sweep

    return run_sweep(
        cell.problem,
        cell.features,
        list(cell.algorithms),
        lmbdas=grid["lmbdas"],
        alphas=grid["alphas"],
        run_seeds=cell.run_seeds,
        mrp_seed=MRP_SEED,
        n_jobs=n_jobs,
        progress=progress,
    )


def split(cell: Cell, n_jobs: int = 1) -> list[Cell]:
    """The cell in parts of successive runs that take about half a second each on so many threads."""
    runs = len(cell.run_seeds)
    n_parts = min(runs, int(np.ceil(cell_seconds(cell, 1) / n_jobs / PART_SECONDS)))
    edges = [cell.first + runs * part // n_parts for part in range(n_parts + 1)]
    return [replace(cell, first=first, last=end - 1) for first, end in pairwise(edges)]


class Workers:
    """Where cells are computed; checked before anything else is done.

    Parameters
    ----------
    executor : concurrent.futures.Executor or function that makes one, optional
    client : distributed.Client, optional
        In place of it.
    n_jobs : int, default 1
        Threads of each task: an executor or a Dask worker carries out as many tasks at a time as it was given threads.

    Raises
    ------
    InvalidInputError
        If both or neither are given, or are something else, or a worker has another version of lstd.
    """

    def __init__(self, executor: Executor | Callable[[], Executor] | None, client: Any, n_jobs: int | None) -> None:
        check_workers(executor, client)
        self.n_jobs = n_jobs or 1
        self._executor, self._client = executor, client
        self._machines: dict[str, dict[str, Any]] = {}  # by process
        tasks: int | None = None
        if client is not None:
            check_versions(client)
            tasks = sum(client.nthreads().values())
        elif isinstance(executor, Executor):
            tasks = workers_of(executor)
        self.threads = self.n_jobs * max(1, tasks or 1)  # in all, as far as can be told: for estimates of time

    def describe(self) -> dict[str, Any]:
        """What has computed parts of cells so far, as plain JSON values: kinds of machines, and processes of each."""
        kinds: list[dict[str, Any]] = []
        for machine in self._machines.values():
            if machine not in kinds:
                kinds.append(machine)
        machines = list(self._machines.values())
        return {
            "processes": len(machines),
            "threads_per_task": self.n_jobs,
            "machines": [{"processes": machines.count(kind), **kind} for kind in kinds],
        }

    def cells(
        self,
        cells: Sequence[Cell],
        grids: Grids,
        arrived: Callable[[Cell, float], None],
        tell: Callable[[str], None],
    ) -> Generator[tuple[Cell, Arrays | BaseException]]:
        """Each cell with its arrays, or with the error of one of its parts, in the order in which they are finished.

        Parameters
        ----------
        cells : sequence of Cell
        grids : dict
            Of each group of algorithms its {"lmbdas": [...], "alphas": [...]}.
        arrived : callable
            Called with a cell and the share of it that has just come back, when that does not finish it.
        tell : callable
            Called with what is worth a line, such as a wait for workers.

        Raises
        ------
        InvalidInputError
            If a worker has another version of lstd.
        LSTDError
            If workers die again and again, or a worker of an executor that was given; if the cluster is lost.
        """
        parts = {cell: split(cell, self.n_jobs) for cell in cells}
        whole = {part: cell for cell in cells for part in parts[cell]}
        found: dict[Cell, dict[int, Arrays]] = {cell: {} for cell in cells}  # by first run seed, until finished
        tasks = ((part, grids[part.group], self.n_jobs) for part, cell in whole.items() if cell in found)
        with closing(self._results(tasks, tell)) as results:
            for part, result in results:
                cell = whole[part]
                if cell not in found:  # another part of it failed
                    continue
                if isinstance(result, BaseException):
                    del found[cell]
                    yield cell, result
                    continue
                found[cell][part.first] = result
                if len(found[cell]) < len(parts[cell]):
                    arrived(cell, 1 / len(parts[cell]))
                else:
                    yield cell, _joined(cell, found.pop(cell))

    def _results(
        self, tasks: Iterator[Task], tell: Callable[[str], None]
    ) -> Generator[tuple[Cell, Arrays | BaseException]]:
        """Each part with its result, or the error that it ended in."""
        if self._client is not None:
            with closing(on_cluster(_on_worker, tasks, self._client, tell)) as finished:
                for (part, *_), future in finished:
                    result = outcome(future)
                    if isinstance(result, BaseException):
                        check_versions(self._client)  # of workers that have joined meanwhile
                    yield part, self._noted(result)
        elif self._executor is not None:
            with closing(on_executor(_on_worker, tasks, self._executor, _lost)) as done:
                for (part, *_), future in done:
                    yield part, self._noted(future.exception() or future.result())

    def _noted(self, result: Any) -> Arrays | BaseException:
        if isinstance(result, BaseException):
            return result
        arrays, process, machine = result
        if machine["lstd"] != lstd.__version__:
            raise other_version(f"one of them has lstd {machine['lstd']}")
        self._machines[process] = machine
        found: Arrays = arrays
        return found


def _on_worker(part: Cell, grid: Mapping[str, Any], n_jobs: int) -> tuple[Arrays, str, dict[str, Any]]:
    """Part of a cell, with a name of this process and what it runs on."""
    return compute(part, grid, n_jobs, _untold), f"{_TOKEN} {os.getpid()}", _machine()


def _untold(done: int, total: int) -> None:
    """Progress inside a task is not told."""


@cache
def _machine() -> dict[str, Any]:
    about = describe_machine()
    return {name: about[name] for name in ("lstd", "python", "packages", "cpu", "cores", "platform")}


def _joined(cell: Cell, parts: Mapping[int, Arrays]) -> Arrays:
    in_order = [parts[first] for first in sorted(parts)]
    return {name: np.concatenate([part[name] for part in in_order]) for name in cell.algorithms}


def _lost(why: str, tasks: list[Task]) -> LSTDError:
    parts = ", ".join(str(task[0]) for task in tasks[:3])
    return LSTDError(
        f"A worker died, and {why}; not finished, among others not begun: {parts}{', …' if len(tasks) > 3 else ''}. A "
        "worker often dies of too little memory: use fewer workers. An executor that a function makes is replaced."
    )
