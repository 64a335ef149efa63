"""Chunks on the workers of an executor or of a Dask cluster, and on another worker where one dies."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import closing
from functools import partial
from multiprocessing import get_context
from typing import Any

from threadpoolctl import threadpool_limits

from lstd.distributed import tasks
from lstd.distributed.chunks import Leaf, keyed, merge
from lstd.distributed.cluster import Watch, submit
from lstd.distributed.collections import computed
from lstd.distributed.reduction import Tree
from lstd.distributed.tasks import AHEAD, Task
from lstd.errors import LSTDError
from lstd.statistics.threads import available_cores, one_blas_thread

_LOG = logging.getLogger("lstd")


def local_processes() -> Executor:
    """As many processes as there are cores, with the BLAS at one thread in each."""
    return ProcessPoolExecutor(available_cores(), mp_context=get_context("spawn"), initializer=_one_thread)


def _one_thread() -> None:
    threadpool_limits(1)


def on_executor(leaf: Leaf, chunks: Iterable[Any], ordered: bool, given: Executor | Callable[[], Executor]) -> Any:
    """Part of all chunks, merged here; None without chunks. An executor that is made here is replaced if it breaks."""
    tree = Tree(partial(merge, ordered=ordered))
    # The BLAS takes ten times as long for a merge by several threads, which go on spinning after it.
    with closing(tasks.on_executor(leaf, keyed(leaf, chunks), given, _lost)) as finished, one_blas_thread():
        for (place, *_), future in finished:
            tree.add(place, future.result())
        return tree.result()


def _lost(why: str, left: list[Task]) -> LSTDError:
    places = sorted(task[0] for task in left)
    return LSTDError(
        f"A worker died, and {why}; `chunks` not finished, among others not begun: {places!r:.200}. A worker "
        "often dies of too little memory: use smaller chunks or fewer workers; with a `store`, what is "
        "finished is found again. An executor that a function makes is replaced."
    )


def on_cluster(leaf: Leaf, chunks: Iterable[Any], ordered: bool, client: Any) -> Any:
    """Part of all chunks, merged on the workers of a Dask cluster; None without chunks.

    The scheduler does again what a worker that dies had done and nobody else has, in the same bracketing.
    """
    ordered_merge = partial(merge, ordered=ordered)

    def together(one: Any, two: Any) -> Any:
        return submit(client, "merge", ordered_merge, (), one, two)

    tree: Tree[Any] = Tree(together)
    running: set[Any] = set()
    watch = Watch(client, _LOG.warning)
    try:
        threads = watch.threads()
        for place, chunk, key in keyed(leaf, chunks):
            future = submit(client, "sum", leaf, (place,), chunk, key)
            running.add(future)
            tree.add(place, future)
            while len(running) >= AHEAD * max(1, threads):
                done = watch.finished(running)
                threads = watch.threads()
                for future in filter(_failed, done):
                    computed(partial(watch.result, future))
                running -= done
        root = tree.result()
        return None if root is None else computed(partial(watch.result, root))
    finally:
        running.clear()  # the scheduler drops what nobody holds, after an error too
        tree.clear()


def _failed(future: Any) -> bool:
    """Whether a future failed, or was cancelled as the scheduler was lost."""
    return future.status in ("error", "cancelled")
