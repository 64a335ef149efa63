"""The BLAS at one thread while threads of the package, each of which calls it, share the cores.

The limit is one of the whole process: all who ask for it at a time share it, and the last of them puts it back.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController

_lock = threading.Lock()
_users = 0
_limit: Any = None
_threads = 1  # of the BLAS before the limit


def available_cores() -> int:
    """Number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def blas_threads() -> int:
    """Number of threads that the BLAS may use outside of `one_blas_thread`."""
    with _lock:
        return _threads if _users else _count()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Keep the BLAS at one thread until the last of all who asked for it, in any thread, is done."""
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


def _release() -> None:
    """Let this thread change the limit: newer threadpoolctl ignores all threads but the first that did so."""
    for library in _controller().lib_controllers:
        if hasattr(library, "clear_controlling_thread"):
            library.clear_controlling_thread(force=True)


@cache
def _controller() -> Any:
    return ThreadpoolController()  # looks through all libraries of the process, which takes milliseconds


def _count() -> int:
    libraries = _controller().info()
    return max((library["num_threads"] for library in libraries if library["user_api"] == "blas"), default=1)
