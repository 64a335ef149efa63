"""Sums of chunks by threads of this process, by an executor or by a Dask cluster, merged in one tree.

The tree has a shape that depends on the number of chunks only, and each chunk is summed with the BLAS at one thread. So
all runners give the same bits, whichever workers die.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sized
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import Any

from threadpoolctl import threadpool_limits

from lstd.data.arguments import check_integer, shown
from lstd.distributed.chunk_sums import Leaf, Part, Task, merged
from lstd.distributed.on_dask import Partitions, is_future, on_graph
from lstd.errors import InvalidInputError, LSTDError
from lstd.statistics.threads import MAX_JOBS, Ahead, available_cores, one_blas_thread

AHEAD = 4  # chunks under way per worker
SECONDS_TO_LOOK = 1.0  # between checks of a pool without results
_WORKERS = 64  # assumed of an executor that does not give their number
_BREAKS = 3  # of new executors in a row, without the next result


@dataclass(frozen=True)
class Runner:
    """Workers that sum chunks: `n_jobs` threads of this process (None: one per core), an executor or a Dask client.

    Raises InvalidInputError when an argument breaks its rule or two are given.
    """

    n_jobs: int | None = None
    executor: Any = None
    client: Any = None

    def __post_init__(self) -> None:
        if self.executor is not None and self.client is not None:
            raise InvalidInputError("`client` must not be given beside `executor`; got both. Leave one out.")
        if self.executor is not None and not isinstance(self.executor, Executor) and not callable(self.executor):
            raise InvalidInputError(
                "`executor` must be a concurrent.futures.Executor or a function that makes one; got "
                f"{shown(self.executor)}. Pass a Dask client as `client`."
            )
        if self.client is not None and not (hasattr(self.client, "submit") and hasattr(self.client, "nthreads")):
            raise InvalidInputError(f"`client` must be a distributed.Client; got {shown(self.client)}.")
        if self.n_jobs is not None:
            check_integer("n_jobs", self.n_jobs, 1, MAX_JOBS)
            if not self.is_here:
                raise InvalidInputError(
                    f"`n_jobs` must be None beside `executor` or `client`, which have workers of their own; got "
                    f"{self.n_jobs}. Leave it out."
                )

    @property
    def is_here(self) -> bool:
        """Whether chunks are summed by threads of this process."""
        return self.executor is None and self.client is None

    def sum(self, leaf: Leaf, chunks: Partitions | Iterable[Any]) -> Part:
        """Sum all chunks and merge the sums.

        Raises InvalidInputError when there are no chunks, or Dask holds them and `n_jobs` or `executor` is given.
        """
        client = self.client
        if client is None and isinstance(chunks, (list, tuple)):
            client = next((chunk.client for chunk in chunks if is_future(chunk)), None)
        on_dask = client is not None or isinstance(chunks, Partitions)
        for name, value in (("n_jobs", self.n_jobs), ("executor", self.executor)):
            if on_dask and value is not None:
                raise InvalidInputError(
                    f"`{name}` must be None for a Dask `source`, which Dask computes; got {shown(value)}. Pass the "
                    "cluster's client as `client`, or leave both out for Dask's default scheduler."
                )
        if client is not None and not isinstance(chunks, Partitions):
            chunks = Partitions(list(chunks), client)
        if not isinstance(chunks, (Partitions, Sized)):
            rest = iter(chunks)
            first = list(itertools.islice(rest, 2))
            chunks = itertools.chain(first, rest) if len(first) > 1 else first
        known = chunks.chunks if isinstance(chunks, Partitions) else chunks
        leaf = replace(leaf, alone=isinstance(known, Sized) and len(known) == 1)
        part: Part | None
        if isinstance(chunks, Partitions):
            part = on_graph(leaf, chunks, client)
        elif self.executor is not None:
            # With several threads of the BLAS, a merge takes ten times as long, and the threads keep spinning after it.
            with closing(_Pool(self.executor)) as pool, one_blas_thread():
                part = merged(pool.results(leaf, leaf.tasks(chunks)), leaf.merge)
        else:
            part = on_threads(leaf, chunks, self.n_jobs or available_cores())
        if part is None:
            raise InvalidInputError("`source` must hold at least one chunk; got none.")
        return part


def on_threads(leaf: Leaf, chunks: Iterable[Any], n_jobs: int) -> Part | None:
    """Sum chunks in threads of this process."""
    with one_blas_thread(), Ahead(n_jobs) as ahead:
        return merged(leaf.parts(leaf.tasks(chunks), ahead), leaf.merge)


def local_processes() -> Executor:
    """Make an executor with one process per core of this machine and the BLAS at one thread in each.

    Examples
    --------
    >>> from lstd.distributed import local_processes
    >>> with local_processes() as executor:  # or executor=local_processes in `fit_tables` and `fit_chunks`
    ...     executor.submit(sum, [1, 2]).result()
    3
    """
    return ProcessPoolExecutor(available_cores(), mp_context=get_context("spawn"), initializer=_limit_blas)


def _limit_blas() -> None:
    threadpool_limits(1)


class _Pool:
    """An executor; one that a function made is replaced when it breaks, and shut down at the end."""

    def __init__(self, given: Executor | Callable[[], Executor]) -> None:
        self._make = None if isinstance(given, Executor) else given
        self._executor: Executor = given if isinstance(given, Executor) else self._made()
        self._waiting: deque[tuple[Task, Future[Part] | None]] = deque()  # in order; None before it is submitted
        self._dead: set[int] = set()

    def _made(self) -> Executor:
        assert self._make is not None
        executor = self._make()
        if not isinstance(executor, Executor):
            raise InvalidInputError(
                "`executor` must be a concurrent.futures.Executor or a function that makes one; it made "
                f"{shown(executor)}."
            )
        return executor

    def results(self, leaf: Leaf, tasks: Iterator[Task]) -> Iterator[Part]:
        """Yield results in the order of the tasks, which are drawn as workers become free.

        Raises LSTDError with the unfinished chunks when an executor that cannot be replaced breaks.
        """
        breaks = 0
        while True:
            workers = getattr(self._executor, "_max_workers", None)
            ahead = AHEAD * (workers if isinstance(workers, int) and workers else _WORKERS)
            self._waiting.extend((task, None) for task in itertools.islice(tasks, max(0, ahead - len(self._waiting))))
            if not self._waiting:
                return
            try:
                for place, (task, future) in enumerate(self._waiting):
                    if future is None:
                        self._waiting[place] = task, self._executor.submit(leaf, *task)
                result = self._settled([self._waiting[0][1]])[0].result()
            except BrokenExecutor as error:
                breaks += 1
                self._renew(error, breaks)
                continue
            self._waiting.popleft()
            breaks = 0
            yield result
            del result

    def _renew(self, error: BrokenExecutor, breaks: int) -> None:
        """Continue on a new executor with the tasks that the broken one did not finish."""
        self._settled([future for _, future in self._waiting if future is not None])
        self._waiting = deque((task, future if _is_sound(future) else None) for task, future in self._waiting)
        if self._make is None or breaks > _BREAKS:
            why = "an executor object is not replaced" if self._make is None else f"{breaks} executors in a row broke"
            raise LSTDError(
                f"A worker died, and {why}. These chunks of `source` were begun and not finished: "
                f"{[task[0] for task, future in self._waiting if future is None]!r:.200}. A worker often dies of too "
                "little memory: use smaller chunks or fewer workers. With a `store`, finished sums are kept. To have a "
                "broken executor replaced, pass a function that makes one."
            ) from error
        self._executor.shutdown(wait=False)
        self._executor = self._made()

    def _settled(self, futures: list[Any]) -> list[Any]:
        """Wait for all futures."""
        while wait(futures, timeout=SECONDS_TO_LOOK).not_done:
            self._look()
        return futures

    def _look(self) -> None:
        """Break a process pool that waits for the rest of a dead process's result: it would wait forever.

        A healthy pool would have noticed a process that was dead at the last look too.
        """
        processes = dict(getattr(self._executor, "_processes", None) or {})
        dead = {number for number, process in processes.items() if process.exitcode not in (None, 0)}
        stuck, self._dead = bool(dead & self._dead), dead
        writer = getattr(getattr(self._executor, "_result_queue", None), "_writer", None)
        if stuck and writer is not None:
            for process in processes.values():
                process.kill()
            writer.close()

    def close(self) -> None:
        """Cancel what has not begun, and end an executor that was made here."""
        # Such a pool cancels futures itself: one that is cancelled elsewhere stops it in the middle of breaking.
        cancels = self._make is not None and isinstance(self._executor, ProcessPoolExecutor)
        for future in [] if cancels else [future for _, future in self._waiting if future is not None]:
            future.cancel()
        if self._make is None:
            return
        end = threading.Thread(target=self._executor.shutdown, kwargs={"cancel_futures": True} if cancels else {})
        end.start()
        while end.is_alive():
            end.join(SECONDS_TO_LOOK)
            self._look()


def _is_sound(future: Future[Part] | None) -> bool:
    return future is not None and not isinstance(future.exception(), BrokenExecutor)
