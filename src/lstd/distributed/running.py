"""Chunks on the workers of an executor or of a Dask cluster, and on another worker where one dies."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ProcessPoolExecutor, wait
from functools import partial
from multiprocessing import get_context
from typing import Any

from threadpoolctl import threadpool_limits

from lstd._threads import available_cores
from lstd.distributed.chunks import Part, merge
from lstd.distributed.reduction import Tree
from lstd.errors import LSTDError

Leaf = Callable[[int, Any], Part]

_AHEAD = 4  # chunks under way per worker
_WORKERS = 64  # taken for granted of an executor that does not tell
_BREAKS = 3  # of fresh executors in a row, with no chunk finished in between


def local_processes() -> Executor:
    """As many processes as there are cores, with the BLAS at one thread in each."""
    return ProcessPoolExecutor(available_cores(), mp_context=get_context("spawn"), initializer=_one_thread)


def _one_thread() -> None:
    threadpool_limits(1)


def on_executor(leaf: Leaf, chunks: Iterable[Any], ordered: bool, given: Executor | Callable[[], Executor]) -> Any:
    """Part of all chunks, merged here; None without chunks. An executor that is made here is replaced if it breaks."""
    run = _Run(leaf, chunks, Tree(partial(merge, ordered=ordered)), given)
    try:
        run.finish()
    finally:
        run.close()
    return run.tree.result()


class _Run:
    """Chunks under way on an executor; each stays among them until its statistics are in the tree, once."""

    def __init__(self, leaf: Leaf, chunks: Iterable[Any], tree: Tree[Part], given: Any) -> None:
        self.tree = tree
        self._leaf, self._source = leaf, enumerate(chunks)
        self._make: Callable[[], Executor] | None = None if isinstance(given, Executor) else given
        self._executor: Executor = given if self._make is None else self._make()
        self._again: deque[tuple[int, Any]] = deque()
        self._running: dict[Future[Part], tuple[int, Any]] = {}
        self._breaks = 0

    def finish(self) -> None:
        """Until all chunks are in the tree."""
        while True:
            try:
                self._submit()
                if not self._running:
                    return
                self._collect()
            except BrokenExecutor as error:
                self._renew(error)

    def _submit(self) -> None:
        workers = getattr(self._executor, "_max_workers", None)
        ahead = _AHEAD * (workers if isinstance(workers, int) else _WORKERS)
        while len(self._running) < ahead:
            task = self._again.popleft() if self._again else next(self._source, None)
            if task is None:
                return
            try:
                future = self._executor.submit(self._leaf, *task)
            except BrokenExecutor:
                self._again.appendleft(task)
                raise
            self._running[future] = task

    def _collect(self) -> None:
        done, _ = wait(self._running, return_when=FIRST_COMPLETED)
        for future in done:
            part = future.result()
            place, _chunk = self._running.pop(future)
            self.tree.add(place, part)
            self._breaks = 0

    def _renew(self, error: BrokenExecutor) -> None:
        """Go on with a fresh executor, with the chunks that the broken one did not finish."""
        wait(self._running)
        for future in [future for future in self._running if future.exception() is None]:
            place, _chunk = self._running.pop(future)
            self.tree.add(place, future.result())
            self._breaks = 0
        self._again.extend(self._running.values())
        places = sorted(place for place, _ in self._again)
        self._running.clear()
        self._breaks += 1
        if self._make is None or self._breaks > _BREAKS:
            why = "the executor was given" if self._make is None else f"{self._breaks} executors in a row broke"
            raise LSTDError(
                f"A worker died, and {why}; `chunks` not finished, among others not begun: {places!r:.200}. A worker "
                "often dies of too little memory: use smaller chunks or fewer workers; with a `store`, what is "
                "finished is found again. An executor that a function makes is replaced."
            ) from error
        self._executor.shutdown(wait=False, cancel_futures=True)
        self._executor = self._make()

    def close(self) -> None:
        for future in self._running:
            future.cancel()
        if self._make is not None:
            self._executor.shutdown(wait=True, cancel_futures=True)


def on_cluster(leaf: Leaf, chunks: Iterable[Any], ordered: bool, client: Any) -> Any:
    """Part of all chunks, merged on the workers of a Dask cluster; None without chunks.

    The scheduler does again what a worker that dies had done and nobody else has, in the same bracketing.
    """
    from distributed import KilledWorker

    def together(one: Any, two: Any) -> Any:
        return client.submit(merge, one, two, ordered=ordered, pure=False)

    tree: Tree[Any] = Tree(together)
    running: set[Any] = set()
    try:
        for place, chunk in enumerate(chunks):
            future = client.submit(leaf, place, chunk, pure=False)
            running.add(future)
            tree.add(place, future)
            while len(running) >= _AHEAD * max(1, sum(client.nthreads().values())):
                running = _unfinished(running)
        root = tree.result()
        return None if root is None else root.result()
    except KilledWorker as error:
        raise LSTDError(
            f"Workers died again and again of a chunk: {error}. A worker often dies of too little memory: use smaller "
            "chunks; with a `store`, what is finished is found again."
        ) from error
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
            future.result()
    return set(left)
