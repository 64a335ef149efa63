"""Sums of consecutive chunks: what a worker returns, and how sums of neighbours are merged."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from lstd.data.broken_episodes import Break
from lstd.data.settings import Settings
from lstd.distributed import memory_shares
from lstd.distributed.bounded_threads import Ahead
from lstd.errors import InvalidInputError, LSTDError
from lstd.statistics.blocks import Blocks, empty_blocks
from lstd.statistics.merging import LSTDStatistics
from lstd.statistics.threads import one_blas_thread

AHEAD = 4  # chunks under way per worker
Task = tuple[int, Any, bytes | None]  # place of a chunk, the chunk, and the key of a function in the store


@dataclass(frozen=True)
class Part:
    """Sums over consecutive chunks, and the places of data to warn about."""

    blocks: Blocks
    first: int  # place of the first chunk
    last: int
    assumed: int | None = None  # a chunk with `episode` and without `terminated`
    broken: Break | None = None  # the first one
    ends: Any = None  # for rules that concern two chunks: ids of episodes, and of tables the rows at both ends


@dataclass(frozen=True)
class Leaf:
    """Sum chunks; with a store, read their sums from there or add them."""

    settings: Settings
    n_blocks: Any  # an integer or "auto"
    memory: int  # bytes
    store: str | None  # full name of a folder
    independent: bool  # each chunk begins a new episode
    alone: bool = field(default=False, kw_only=True)  # there is only one chunk
    ends_kind: ClassVar[Any]  # type of `Part.ends`

    def __call__(self, place: int, chunk: Any, key: bytes | None = None) -> Part:
        """Sum a chunk on a worker; `key` identifies a function in the store."""
        with one_blas_thread(), Ahead(1) as ahead:
            [part] = self.parts([(place, chunk, key)], ahead)
        return part

    @abstractmethod
    def parts(self, tasks: Iterable[Task], ahead: Ahead) -> Iterator[Part]:
        """Yield the sums of chunks in their order, with the same bits for any number of threads."""

    @abstractmethod
    def merge(self, one: Part, two: Part) -> Part:
        """Merge the sums over chunks that follow one another."""

    @abstractmethod
    def add_content(self, digest: Any, place: int, chunk: Any) -> None:
        """Add the content of a chunk that is neither a function nor a path to a digest."""

    def no_blocks(self, nothing: LSTDStatistics) -> Blocks:
        """Return empty blocks with the limit for the whole data; `nothing` is the statistics of no data."""
        return empty_blocks(nothing, self.n_blocks, memory_shares.block_bytes(self.memory, alone=self.alone))

    def limit_of(self, blocks: Blocks, n_rows: int) -> int:
        """Return how many blocks to keep for the first `n_rows` rows of a chunk."""
        return memory_shares.most_blocks(blocks.limit, n_rows, blocks.total.n_features, alone=self.alone)


def called(load: Any) -> Any:
    """Call a function without arguments; raises InvalidInputError when it fails."""
    try:
        return load()
    except LSTDError:
        raise
    except Exception as error:
        raise InvalidInputError(f"could not be loaded: {error!r:.500}.") from error
