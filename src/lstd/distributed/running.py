"""Chunks on the workers of an executor or of a Dask cluster, and on another worker where one dies."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import closing
from functools import partial
from multiprocessing import get_context
from typing import Any

from threadpoolctl import threadpool_limits

from lstd._threads import available_cores, one_blas_thread
from lstd.distributed import tasks
from lstd.distributed.chunks import Part, merge
from lstd.distributed.collections import computed
from lstd.distributed.reduction import Tree
from lstd.distributed.tasks import AHEAD, Task
from lstd.errors import LSTDError

Leaf = Callable[[int, Any], Part]


def local_processes() -> Executor:
    """As many processes as there are cores, with the BLAS at one thread in each."""
    return ProcessPoolExecutor(available_cores(), mp_context=get_context("spawn"), initializer=_one_thread)


def _one_thread() -> None:
    threadpool_limits(1)


def on_executor(leaf: Leaf, chunks: Iterable[Any], ordered: bool, given: Executor | Callable[[], Executor]) -> Any:
    """Part of all chunks, merged here; None without chunks. An executor that is made here is replaced if it breaks."""
    tree = Tree(partial(merge, ordered=ordered))
    # The BLAS takes ten times as long for a merge by several threads, which go on spinning after it.
    with closing(tasks.on_executor(leaf, enumerate(chunks), given, _lost)) as finished, one_blas_thread():
        for (place, _chunk), future in finished:
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

    def together(one: Any, two: Any) -> Any:
        return client.submit(merge, one, two, ordered=ordered, pure=False)

    tree: Tree[Any] = Tree(together)
    running: set[Any] = set()
    try:
        for place, chunk in enumerate(chunks):
            future = client.submit(leaf, place, chunk, pure=False)
            running.add(future)
            tree.add(place, future)
            while len(running) >= AHEAD * max(1, sum(client.nthreads().values())):
                with client.as_current():
                    running = _unfinished(running)
        root = tree.result()
        return None if root is None else computed(root.result)
    finally:
        running.clear()  # the scheduler drops what nobody holds, after an error too
        tree.clear()


def _unfinished(running: set[Any]) -> set[Any]:
    """Wait for one of them; raises the error of one that failed."""
    import distributed

    waiting: Any = distributed.wait
    done, left = waiting(list(running), return_when="FIRST_COMPLETED")
    for future in done:
        if future.status == "error":
            computed(future.result)
    return set(left)
