"""Sums on a `concurrent.futures` executor; chunks of a worker that died are summed again on a new executor."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import (
    ALL_COMPLETED,
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from contextlib import closing
from typing import Any

from lstd.data.arguments import shown
from lstd.distributed.store import keyed
from lstd.distributed.sums import AHEAD, Leaf, Part, Task
from lstd.distributed.tree import Tree
from lstd.errors import InvalidInputError, LSTDError
from lstd.statistics.threads import one_blas_thread

Given = Executor | Callable[[], Executor]

_WORKERS = 64  # assumed of an executor that does not give their number
_BREAKS = 3  # of new executors in a row, with no task finished in between
SECONDS_TO_LOOK = 1.0  # between checks of a pool without results


def on_executor(leaf: Leaf, chunks: Iterable[Any], given: Given) -> Part | None:
    """Sum chunks on workers, and merge their sums in this process.

    Chunks are drawn as workers become free. If `given` is a function, the executor that it makes is replaced when it
    breaks, and shut down at the end. An error cancels tasks that have not begun.

    Raises LSTDError with the unfinished chunks when an executor that cannot be replaced breaks.
    """
    tree: Tree[Part] = Tree(leaf.merge)
    # With several threads of the BLAS, a merge takes ten times as long, and the threads keep spinning after it.
    with closing(_Run(leaf, keyed(leaf, chunks), given)) as run, one_blas_thread():
        for place, future in run.results():
            tree.add(place, future.result())
        return tree.result()


def _made(make: Callable[[], Executor]) -> Executor:
    executor = make()
    if not isinstance(executor, Executor):
        raise InvalidInputError(
            f"`executor` must be a concurrent.futures.Executor or a function that makes one; it made {shown(executor)}."
        )
    return executor


class _Run:
    """Tasks under way on an executor; each stays among them until its future is yielded, once."""

    def __init__(self, leaf: Leaf, tasks: Iterator[Task], given: Given) -> None:
        self._leaf, self._source = leaf, tasks
        self._make: Callable[[], Executor] | None = None if isinstance(given, Executor) else given
        self._executor: Executor = given if isinstance(given, Executor) else _made(given)
        self._watch = _Watch(self._executor)
        self._again: deque[Task] = deque()
        self._running: dict[Future[Part], Task] = {}
        self._breaks = 0

    def results(self) -> Iterator[tuple[int, Future[Part]]]:
        """Yield places of chunks and their futures as they finish."""
        while True:
            broken = self._submit()
            if broken is None:
                if not self._running:
                    return
                for future in self._waited(FIRST_COMPLETED):
                    if isinstance(error := future.exception(), BrokenExecutor):
                        broken = error
                    else:
                        yield self._finished(future)
            if broken is not None:
                self._waited(ALL_COMPLETED)
                for future in [one for one in self._running if not isinstance(one.exception(), BrokenExecutor)]:
                    yield self._finished(future)
                self._renew(broken)

    def _finished(self, future: Future[Part]) -> tuple[int, Future[Part]]:
        self._breaks = 0
        return self._running.pop(future)[0], future

    def _submit(self) -> BrokenExecutor | None:
        """Keep workers busy; returns the error of an executor that accepts no more tasks."""
        workers = getattr(self._executor, "_max_workers", None)
        ahead = AHEAD * (workers if isinstance(workers, int) and workers else _WORKERS)
        while len(self._running) < ahead:
            task = self._again.popleft() if self._again else next(self._source, None)
            if task is None:
                return None
            try:
                future = self._executor.submit(self._leaf, *task)
            except BrokenExecutor as error:
                self._again.appendleft(task)
                return error
            except RuntimeError as error:
                raise InvalidInputError(f"`executor` must take tasks; got {shown(self._executor)}: {error}.") from error
            self._running[future] = task
        return None

    def _renew(self, error: BrokenExecutor) -> None:
        """Continue on a new executor with the tasks that the broken one did not finish."""
        self._again.extend(self._running.values())
        self._running.clear()
        self._breaks += 1
        if self._make is None or self._breaks > _BREAKS:
            broke = f"{self._breaks} executors in a row broke"
            why = "an executor object is not replaced" if self._make is None else broke
            raise LSTDError(
                f"A worker died, and {why}. These chunks of `source` were begun and not finished: "
                f"{sorted(place for place, *_ in self._again)!r:.200}. A worker often dies of too little memory: use "
                "smaller chunks or fewer workers. With a `store`, finished sums are kept. To have a broken executor "
                "replaced, pass a function that makes one."
            ) from error
        self._executor.shutdown(wait=False)
        self._executor = _made(self._make)
        self._watch = _Watch(self._executor)

    def _waited(self, return_when: str) -> set[Future[Part]]:
        """Wait for futures, all or at least one."""
        while True:
            done, left = wait(self._running, timeout=SECONDS_TO_LOOK, return_when=return_when)
            if not left or (done and return_when == FIRST_COMPLETED):
                return done
            self._watch.look()

    def close(self) -> None:
        if isinstance(self._executor, ProcessPoolExecutor) and self._make is not None:
            # The pool cancels futures itself: one that is cancelled elsewhere stops it in the middle of breaking.
            end = threading.Thread(target=self._executor.shutdown, kwargs={"cancel_futures": True})
            end.start()
            while end.is_alive():
                end.join(SECONDS_TO_LOOK)
                self._watch.look()
            return
        for future in self._running:
            future.cancel()
        if self._make is not None:
            self._executor.shutdown(wait=True)


class _Watch:
    """Break a process pool that waits for the rest of a dead process's result; leave other executors alone.

    The pool would wait forever, as long as the pipe is open for writing in this process or in others.
    """

    def __init__(self, executor: Executor) -> None:
        pool = executor if isinstance(executor, ProcessPoolExecutor) else None
        processes = getattr(pool, "_processes", None)
        self._processes: dict[int, Any] = {} if processes is None else processes  # the pool adds to it as tasks come
        self._writer = getattr(getattr(pool, "_result_queue", None), "_writer", None)
        self._dead: set[int] = set()

    def look(self) -> None:
        """Break the pool if a process was dead at the last check too; a healthy pool would have noticed by now."""
        processes = dict(self._processes)
        dead = {number for number, process in processes.items() if process.exitcode not in (None, 0)}
        stuck, self._dead = bool(dead & self._dead), dead
        if stuck and self._writer is not None:
            for process in processes.values():
                process.kill()
            self._writer.close()
