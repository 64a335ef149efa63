"""What sums chunks: threads of this process, or Dask. Sums are merged in one tree.

The tree has a shape that depends on the number of chunks only, and each chunk is summed with the BLAS at one thread. So
every runner gives the same bits, whichever workers die.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sized
from dataclasses import dataclass
from typing import Any

from lstd.data.arguments import check_integer, shown
from lstd.distributed.chunk_sums import Part, SumChunks, merged
from lstd.distributed.on_dask import Partitions, on_graph
from lstd.errors import InvalidInputError
from lstd.statistics.threads import MAX_JOBS, Ahead, available_cores, one_blas_thread


@dataclass(frozen=True)
class Runner:
    """Sum chunks by `n_jobs` threads of this process, by default one per core, or on the Dask cluster of `client`.

    Raises InvalidInputError when an argument breaks its rule or both are given.
    """

    n_jobs: int | None = None
    client: Any = None

    def __post_init__(self) -> None:
        if self.client is not None and not (hasattr(self.client, "submit") and hasattr(self.client, "nthreads")):
            raise InvalidInputError(f"`client` must be a distributed.Client; got {shown(self.client)}.")
        if self.n_jobs is None:
            return
        check_integer("n_jobs", self.n_jobs, 1, MAX_JOBS)
        if self.client is not None:
            raise InvalidInputError(
                f"`n_jobs` must be None beside `client`, whose cluster has workers of its own; got {self.n_jobs}. "
                "Leave it out."
            )

    @property
    def is_here(self) -> bool:
        """Whether threads of this process sum chunks, unless they are Dask's."""
        return self.client is None

    def sum(self, sums: SumChunks, chunks: Partitions | Iterable[Any]) -> Part:
        """Sum all chunks and merge the sums.

        Raises InvalidInputError when there are no chunks, or Dask holds them and `n_jobs` is given.
        """
        if self.client is not None and not isinstance(chunks, Partitions):
            chunks = Partitions(list(chunks))
        part = self._on_dask(sums, chunks) if isinstance(chunks, Partitions) else self._on_threads(sums, chunks)
        if part is None:
            raise InvalidInputError("`source` must hold at least one chunk; got none.")
        return part

    def _on_dask(self, sums: SumChunks, partitions: Partitions) -> Part | None:
        """Sum chunks on the cluster of `client`, or else where Dask computes them."""
        if self.n_jobs is not None:
            raise InvalidInputError(
                f"`n_jobs` must be None for a Dask `source`, which Dask computes; got {self.n_jobs}. Leave it out, and "
                "pass the client of a cluster as `client`, if there is one."
            )
        return on_graph(sums, partitions, self.client)

    def _on_threads(self, sums: SumChunks, chunks: Iterable[Any]) -> Part | None:
        """Sum chunks in threads of this process; an iterable is asked for the next chunk when a thread is free."""
        with one_blas_thread(), Ahead(self.n_jobs or available_cores()) as ahead:
            return merged(sums.parts(enumerate(chunks), ahead), sums.merge)


def counted(chunks: Partitions | Iterable[Any]) -> tuple[Partitions | Iterable[Any], bool]:
    """Return chunks, and whether there is only one; an iterator is asked for the first two."""
    known = chunks.chunks if isinstance(chunks, Partitions) else chunks
    if isinstance(known, Sized):
        return chunks, len(known) == 1
    rest = iter(known)
    first = list(itertools.islice(rest, 2))
    if len(first) < 2:
        return first, len(first) == 1
    return drained(first, rest), False


def drained(first: list[Any], rest: Iterator[Any]) -> Iterator[Any]:
    """Yield the first chunks, of which none is held here once it is drawn, and the rest."""
    while first:
        yield first.pop(0)
    yield from rest
