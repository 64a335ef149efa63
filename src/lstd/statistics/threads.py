"""Threads that call the BLAS, which is kept at one thread while they share the cores.

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
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

T = TypeVar("T")
R = TypeVar("R")

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


def in_threads(function: Callable[[T], R], items: Iterable[T], threads: int) -> Iterator[R]:
    """Yield `function` of each item in order, computed by threads that each have a single-threaded BLAS.

    One thread computes in the caller, with the BLAS as it is. At most two results per thread wait to be taken.
    """
    if threads == 1:
        yield from map(function, items)
        return

    def alone(item: T) -> R:
        with one_blas_thread():
            return function(item)

    waiting: deque[Future[R]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="lstd") as pool:
        for item in items:
            waiting.append(pool.submit(alone, item))
            if len(waiting) > 2 * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _release() -> None:
    """Let this thread change the limit; newer versions of threadpoolctl ignore all threads but the first to do so."""
    for library in _controller().lib_controllers:
        if hasattr(library, "clear_controlling_thread"):
            library.clear_controlling_thread(force=True)


@cache
def _controller() -> Any:
    return ThreadpoolController()  # inspects all libraries of the process, which takes milliseconds


def _count() -> int:
    libraries = _controller().info()
    return max((library["num_threads"] for library in libraries if library["user_api"] == "blas"), default=1)
