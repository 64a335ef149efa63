"""Calls of a function in several threads: results in order, with a bound on the memory of the calls under way."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self, TypeVar

from lstd.errors import InvalidInputError

T = TypeVar("T")
Result = TypeVar("Result")

MAX_JOBS = 1024


class Ahead:
    """Compute results ahead of their use, in `n_jobs` threads including the calling one.

    `ThreadPoolExecutor.map` submits all items at once. Here the bytes of the items under way are bounded, and the
    calling thread computes an item itself instead of waiting, so one job needs no thread. Leaving the context ends the
    threads and drops the calls that have not begun.
    """

    def __init__(self, n_jobs: int) -> None:
        self._most_tasks = n_jobs + 1  # one waits for the first thread that is free
        self._pool = ThreadPoolExecutor(n_jobs - 1, thread_name_prefix="lstd") if n_jobs > 1 else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def map(
        self,
        function: Callable[[T], Result],
        items: Iterable[T],
        size_of: Callable[[T], float] = lambda _: 0.0,
        most: float = 0.0,
    ) -> Iterator[Result]:
        """Yield results in the order of the items, which the calling thread draws.

        The items under way are at most one more than the threads, and add up to at most `most` by `size_of`, or there
        is only one. If drawing an item fails, the error is raised after the results of the items before it.
        """
        if self._pool is None:
            yield from map(function, items)
            return
        waiting: deque[tuple[_Task, float]] = deque()
        failure: InvalidInputError | None = None
        drawn = iter(items)
        while True:
            try:
                item = next(drawn)
            except StopIteration:
                break
            except InvalidInputError as error:
                failure = error
                break
            size = size_of(item)
            while waiting and (size + sum(held for _, held in waiting) > most or len(waiting) >= self._most_tasks):
                yield _first_result(waiting)
            task = _Task(function, item)
            del item  # only the task refers to it
            self._pool.submit(task.run)
            waiting.append((task, size))
        while waiting:
            yield _first_result(waiting)
        if failure is not None:
            raise failure


class _Task:
    """One call of a function, made by the first thread that asks; it drops its argument afterwards."""

    def __init__(self, function: Callable[[Any], Any], item: Any) -> None:
        self._work = [(function, item)]
        self._free = threading.Lock()
        self.future: Future[Any] = Future()

    def run(self) -> None:
        """Make the call, unless another thread has begun it."""
        if not self._free.acquire(blocking=False):
            return
        function, item = self._work.pop()
        try:
            self.future.set_result(function(item))
        except BaseException as error:
            self.future.set_exception(error)
            if not isinstance(error, Exception):  # an interrupt of the calling thread
                raise


def _first_result(waiting: deque[tuple[_Task, float]]) -> Any:
    """Remove the first task and return its result; until that is ready, run the others here."""
    first = waiting[0][0]
    for task, _ in waiting:
        if first.future.done():
            break
        task.run()
    waiting.popleft()
    return first.future.result()
