"""Sums of chunks by threads of this process, by an executor or by a Dask cluster, merged in one tree.

The tree has a shape that depends on the number of chunks only, and each chunk is summed with the BLAS at one thread. So
all runners give the same bits, in whatever order chunks finish and whichever workers die.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sized
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import Any

from threadpoolctl import threadpool_limits

from lstd.data.arguments import check_integer, shown
from lstd.distributed.bounded_threads import MAX_JOBS, Ahead
from lstd.distributed.dask_collections import Partitions, is_future, on_graph
from lstd.distributed.run_on_dask import on_cluster
from lstd.distributed.run_on_executor import on_executor
from lstd.distributed.store import keyed
from lstd.distributed.sums import Leaf, Part
from lstd.distributed.tree import Tree
from lstd.errors import InvalidInputError
from lstd.statistics.threads import available_cores, one_blas_thread


@dataclass(frozen=True)
class Runner:
    """Workers that sum chunks: `n_jobs` threads of this process (None: one per core), an executor or a Dask client.

    Raises InvalidInputError when an argument breaks its rule or two are given.
    """

    n_jobs: int | None = None
    executor: Any = None
    client: Any = None

    def __post_init__(self) -> None:
        if self.executor is not None and self.client is not None:
            raise InvalidInputError("`client` must not be given beside `executor`; got both. Leave one out.")
        if self.executor is not None and not isinstance(self.executor, Executor) and not callable(self.executor):
            raise InvalidInputError(
                "`executor` must be a concurrent.futures.Executor or a function that makes one; got "
                f"{shown(self.executor)}. Pass a Dask client as `client`."
            )
        if self.client is not None and not (hasattr(self.client, "submit") and hasattr(self.client, "nthreads")):
            raise InvalidInputError(f"`client` must be a distributed.Client; got {shown(self.client)}.")
        if getattr(self.client, "asynchronous", False):
            raise InvalidInputError("`client` must be a distributed.Client with asynchronous=False.")
        if self.n_jobs is not None:
            check_integer("n_jobs", self.n_jobs, 1, MAX_JOBS)
            if not self.is_here:
                raise InvalidInputError(
                    f"`n_jobs` must be None beside `executor` or `client`, which have workers of their own; got "
                    f"{self.n_jobs}. Leave it out."
                )

    @property
    def is_here(self) -> bool:
        """Whether chunks are summed by threads of this process."""
        return self.executor is None and self.client is None

    def sum(self, leaf: Leaf, chunks: Partitions | Iterable[Any]) -> Part:
        """Sum all chunks and merge the sums.

        Raises InvalidInputError when there are no chunks, or Dask holds them and `n_jobs` or `executor` is given.
        """
        client = self.client
        if client is None and isinstance(chunks, (list, tuple)):
            client = next((chunk.client for chunk in chunks if is_future(chunk)), None)
        on_dask = client is not None or isinstance(chunks, Partitions)
        for name, value in (("n_jobs", self.n_jobs), ("executor", self.executor)):
            if on_dask and value is not None:
                raise InvalidInputError(
                    f"`{name}` must be None for a Dask `source`, which Dask computes; got {shown(value)}. Pass the "
                    "cluster's client as `client`, or leave both out for Dask's default scheduler."
                )
        if not isinstance(chunks, (Partitions, Sized)):
            rest = iter(chunks)
            first = list(itertools.islice(rest, 2))
            chunks = itertools.chain(first, rest) if len(first) > 1 else first
        known = chunks.chunks if isinstance(chunks, Partitions) else chunks
        leaf = replace(leaf, alone=isinstance(known, Sized) and len(known) == 1)
        part: Part | None
        if isinstance(chunks, Partitions):
            part = on_graph(leaf, chunks, client)
        elif client is not None:
            part = on_cluster(leaf, chunks, client)
        elif self.executor is not None:
            part = on_executor(leaf, chunks, self.executor)
        else:
            part = on_threads(leaf, chunks, self.n_jobs or available_cores())
        if part is None:
            raise InvalidInputError("`source` must hold at least one chunk; got none.")
        return part


def local_processes() -> Executor:
    """Make an executor with one process per core of this machine and the BLAS at one thread in each.

    Examples
    --------
    >>> from lstd.distributed import local_processes
    >>> with local_processes() as executor:  # or executor=local_processes in `fit_tables` and `fit_chunks`
    ...     executor.submit(sum, [1, 2]).result()
    3
    """
    return ProcessPoolExecutor(available_cores(), mp_context=get_context("spawn"), initializer=_limit_blas)


def _limit_blas() -> None:
    threadpool_limits(1)


def on_threads(leaf: Leaf, chunks: Iterable[Any], n_jobs: int) -> Part | None:
    """Sum chunks in threads of this process."""
    tree: Tree[Part] = Tree(leaf.merge)
    with one_blas_thread(), Ahead(n_jobs) as ahead:
        for part in leaf.parts(keyed(leaf, chunks), ahead):
            tree.add(part.first, part)
        return tree.result()
