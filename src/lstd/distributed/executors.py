"""Tasks on an executor: results as they finish, and tasks repeated on a new executor if a worker dies."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import (
    ALL_COMPLETED,
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from typing import Any, Generic, TypeVar

from lstd.data.checks import shown
from lstd.errors import InvalidInputError, LSTDError

R = TypeVar("R")
Task = tuple[Any, ...]  # arguments of the function
Given = Executor | Callable[[], Executor]
Lost = Callable[[str, list[Task]], LSTDError]

AHEAD = 4  # tasks under way per worker
_WORKERS = 64  # assumed of an executor that does not give their number
_BREAKS = 3  # of new executors in a row, with no task finished in between
SECONDS_TO_LOOK = 1.0  # between checks of a pool without results


def _made(make: Callable[[], Executor]) -> Executor:
    executor = make()
    if not isinstance(executor, Executor):
        raise InvalidInputError(
            f"`executor` must be a concurrent.futures.Executor or a function that makes one; it made {shown(executor)}."
        )
    return executor


def on_executor(
    function: Callable[..., R], tasks: Iterable[Task], given: Given, lost: Lost
) -> Generator[tuple[Task, Future[R]]]:
    """Call a function with the arguments of each task on a worker; yield tasks and futures as they finish.

    Tasks are drawn as workers become free. If `given` is a function, the executor that it makes is replaced when it
    breaks, and shut down at the end. Otherwise, after finished tasks have been yielded, `lost` makes the error from the
    reason and the unfinished tasks. Closing the iterator cancels tasks that have not begun.
    """
    run: _Run[R] = _Run(function, tasks, given, lost)
    try:
        yield from run.results()
    finally:
        run.close()


class _Run(Generic[R]):
    """Tasks under way on an executor; each stays among them until its future is yielded, once."""

    def __init__(self, function: Callable[..., R], tasks: Iterable[Task], given: Given, lost: Lost) -> None:
        self._function, self._source, self._lost = function, iter(tasks), lost
        self._make: Callable[[], Executor] | None = None if isinstance(given, Executor) else given
        self._executor: Executor = given if isinstance(given, Executor) else _made(given)
        self._watch = _Watch(self._executor)
        self._again: deque[Task] = deque()
        self._running: dict[Future[R], Task] = {}
        self._breaks = 0

    def results(self) -> Iterator[tuple[Task, Future[R]]]:
        while True:
            broken = self._submit()
            if broken is None:
                if not self._running:
                    return
                for future in self._waited(FIRST_COMPLETED):
                    if isinstance(error := future.exception(), BrokenExecutor):
                        broken = error
                    else:
                        self._breaks = 0
                        yield self._running.pop(future), future
            if broken is not None:
                yield from self._finished_yet()
                self._renew(broken)

    def _submit(self) -> BrokenExecutor | None:
        """Keep workers busy; returns the error of an executor that accepts no more tasks."""
        workers = getattr(self._executor, "_max_workers", None)
        ahead = AHEAD * (workers if isinstance(workers, int) and workers else _WORKERS)
        while len(self._running) < ahead:
            task = self._again.popleft() if self._again else next(self._source, None)
            if task is None:
                return None
            try:
                future = self._executor.submit(self._function, *task)
            except BrokenExecutor as error:
                self._again.appendleft(task)
                return error
            except RuntimeError as error:
                raise InvalidInputError(f"`executor` must take tasks; got {shown(self._executor)}: {error}.") from error
            self._running[future] = task
        return None

    def _finished_yet(self) -> Iterator[tuple[Task, Future[R]]]:
        """Yield the tasks that the broken executor did finish."""
        self._waited(ALL_COMPLETED)
        for future in [one for one in self._running if not isinstance(one.exception(), BrokenExecutor)]:
            self._breaks = 0
            yield self._running.pop(future), future

    def _renew(self, error: BrokenExecutor) -> None:
        """Continue on a new executor with the tasks that the broken one did not finish."""
        self._again.extend(self._running.values())
        self._running.clear()
        self._breaks += 1
        if self._make is None or self._breaks > _BREAKS:
            why = (
                "an executor object is not replaced"
                if self._make is None
                else f"{self._breaks} executors in a row broke"
            )
            raise self._lost(why, list(self._again)) from error
        self._executor.shutdown(wait=False)
        self._executor = _made(self._make)
        self._watch = _Watch(self._executor)

    def _waited(self, return_when: str) -> set[Future[R]]:
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
