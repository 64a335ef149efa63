"""Tasks done ahead by several threads, with bounds on what is held, and their results in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self, TypeVar

from lstd.errors import InvalidInputError

T = TypeVar("T")
Result = TypeVar("Result")

MEMORY = 2**29  # bytes, by default
LEAST_MEMORY = 2**24
MAX_JOBS = 1024


class Ahead:
    """Threads that work ahead of whoever takes the results; with one job everything is done in the calling thread.

    Leaving it ends them, and drops what they have not begun.

    Parameters
    ----------
    n_jobs : int, at least 1
        Threads of each `map`.
    """

    def __init__(self, n_jobs: int) -> None:
        self._most_tasks = n_jobs + 1  # so that one waits for the first thread that is free
        self._n_jobs = n_jobs
        self._pools: list[ThreadPoolExecutor] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for pool in self._pools:
            pool.shutdown(cancel_futures=True)

    def map(
        self, function: Callable[[T], Result], items: Iterable[T], n_bytes: Callable[[T], int], most_bytes: int
    ) -> Iterator[Result]:
        """Results in the order of the items, which the calling thread draws while others work on those before.

        Items whose `n_bytes` add up to `most_bytes` are at work or waiting to be taken, or one that is larger. When
        drawing an item fails, the error comes after the results of those before it.
        """
        if self._n_jobs == 1:
            yield from map(function, items)
            return
        # Threads of its own: tasks of one kind that wait for those of another would leave threads idle.
        pool = ThreadPoolExecutor(self._n_jobs, thread_name_prefix="lstd")
        self._pools.append(pool)
        waiting: deque[tuple[Future[Result], int]] = deque()
        held = 0
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
            size = n_bytes(item)
            while waiting and (held + size > most_bytes or len(waiting) >= self._most_tasks):
                future, freed = waiting.popleft()
                yield future.result()
                held -= freed
            waiting.append((pool.submit(function, item), size))
            held += size
            del item  # held by its task alone
        while waiting:
            yield waiting.popleft()[0].result()
        if failure is not None:
            raise failure
