"""Calls in several threads, and the BLAS, which is kept at one thread while they share the cores.

The limit holds for the whole process. Simultaneous callers share it; the last one to finish restores the old limit.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any, Self, TypeVar

from threadpoolctl import ThreadpoolController

from lstd.errors import InvalidInputError

T = TypeVar("T")
R = TypeVar("R")

MAX_JOBS = 1024

_lock = threading.Lock()
_users = 0
_limit: Any = None
_threads = 1  # of the BLAS before the limit


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def blas_threads() -> int:
    """Return the number of threads that the BLAS may use outside of `one_blas_thread`."""
    with _lock:
        return _threads if _users else _count()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Keep the BLAS at one thread until the last simultaneous caller, in any thread, is done."""
    global _users, _limit, _threads
    with _lock:
        if not _users:
            _threads = _count()
            _release()
            _limit = _controller().limit(limits=1, user_api="blas")
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if not _users:
                _release()
                _limit.restore_original_limits()
                _release()


def one_openmp_thread() -> Any:
    """Return a context in which OpenMP has one thread: those of small fits of trees wait longer than they compute.

    It must be entered after the import of what uses OpenMP, such as scikit-learn.
    """
    return _openmp_controller().limit(limits=1, user_api="openmp")


class Ahead:
    """Results of a function in the order of its arguments, computed ahead of their use in `n_jobs` threads.

    `ThreadPoolExecutor.map` submits all items at once; here the items under way are bounded. One job needs no thread.
    Leaving the context ends the threads and drops the calls that have not begun.
    """

    def __init__(self, n_jobs: int) -> None:
        self._most_tasks = n_jobs + 1  # one waits for the first thread that is free
        self._pool = ThreadPoolExecutor(n_jobs, thread_name_prefix="lstd") if n_jobs > 1 else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def map(
        self,
        function: Callable[[T], R],
        items: Iterable[T],
        size_of: Callable[[T], float] = lambda _: 0.0,
        most: float = 0.0,
    ) -> Iterator[R]:
        """Yield results in the order of the items, which the calling thread draws.

        The items under way are at most one more than the threads, and add up to at most `most` by `size_of`, or there
        is only one. If drawing an item fails, the error is raised after the results of the items before it.
        """
        if self._pool is None:
            yield from map(function, items)
            return
        waiting: deque[tuple[Future[R], float]] = deque()
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
                yield waiting.popleft()[0].result()
            waiting.append((self._pool.submit(function, item), size))
            del item  # only the task refers to it
        while waiting:
            yield waiting.popleft()[0].result()
        if failure is not None:
            raise failure


def in_threads(function: Callable[[T], R], items: Iterable[T], threads: int) -> Iterator[R]:
    """Yield `function` of each item in order, computed by threads that each have a single-threaded BLAS.

    One thread computes in the caller, with the BLAS as it is.
    """

    def alone(item: T) -> R:
        with one_blas_thread():
            return function(item)

    with Ahead(threads) as ahead:
        yield from ahead.map(function if threads == 1 else alone, items)


def _release() -> None:
    """Let this thread change the limit; newer versions of threadpoolctl ignore all threads but the first to do so."""
    for library in _controller().lib_controllers:
        if hasattr(library, "clear_controlling_thread"):
            library.clear_controlling_thread(force=True)


@cache
def _controller() -> Any:
    return ThreadpoolController()  # inspects all libraries of the process, which takes milliseconds


@cache
def _openmp_controller() -> Any:
    return ThreadpoolController()  # a later one than that of the BLAS, which does not know libraries loaded since


def _count() -> int:
    libraries = _controller().info()
    return max((library["num_threads"] for library in libraries if library["user_api"] == "blas"), default=1)
