"""Sums of consecutive chunks: what a worker returns, how they are merged, and what memory they take.

Of the bound on memory, a quarter is for rows that are read ahead, half for blocks, the rest for sums. A chunk is always
read and summed, however little memory there is.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, TypeVar

from lstd.data.doubts import Break
from lstd.data.settings import Settings
from lstd.errors import InvalidInputError, LSTDError
from lstd.statistics.blocks import Blocks, empty_blocks
from lstd.statistics.merging import LSTDStatistics
from lstd.statistics.threads import Ahead, one_blas_thread

T = TypeVar("T")

MEMORY = 2**29  # bytes, the default bound
LEAST_MEMORY = 2**24
Task = tuple[int, Any]  # the place of a chunk, and the chunk

_CHUNK_ENTRIES = 2**20  # of a chunk's features, 8 MiB
_ENTRY_BYTES = 128  # of memory that a chunk's feature needs, so that several chunks have a place
_FEWEST_CHUNK_ROWS = 64
_MOST_CHUNK_ROWS = 2**15
_CHOICE_ENTRIES = 2**25  # features of the rows that settings are chosen from, 256 MiB
_SUMS_HELD = 4  # of several chunks in a tree, each with its blocks
_FEW_BLOCKS = 16  # of each of several chunks; more only of _BLOCK_ROWS rows and 16 rows per feature each,
_BLOCK_ROWS = 2**12  # so that they take at most an eighth of the memory of the rows, and little of their time


def chunk_rows(memory: int, n_features: int) -> int:
    """Return the rows of a table that are read at a time."""
    n_entries = min(_CHUNK_ENTRIES, memory // _ENTRY_BYTES)
    n_rows = min(_MOST_CHUNK_ROWS, n_entries // n_features)
    return max(_FEWEST_CHUNK_ROWS, n_rows)


def bytes_ahead(memory: int) -> int:
    """Return the bytes of rows that are read and converted ahead of their sums."""
    return memory // 4


def choice_entries(memory: int) -> int:
    """Return how many features the first rows may have from which settings are chosen."""
    return min(_CHOICE_ENTRIES, bytes_ahead(memory) // 8)


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
class SumChunks:
    """Sum chunks, each on a worker, or all in threads that share them."""

    settings: Settings
    n_blocks: int | str  # an integer or "auto"
    memory: int  # bytes
    independent: bool  # each chunk begins a new episode
    alone: bool = field(default=False, kw_only=True)  # there is only one chunk

    def __call__(self, place: int, chunk: Any) -> Part:
        """Sum a chunk on a worker."""
        with one_blas_thread(), Ahead(1) as ahead:
            [part] = self.parts([(place, chunk)], ahead)
        return replace(part, first=place, last=place)

    @abstractmethod
    def parts(self, tasks: Iterable[Task], ahead: Ahead) -> Iterator[Part]:
        """Yield the sums of chunks in their order, with the same bits for any number of threads."""

    @abstractmethod
    def merge(self, one: Part, two: Part) -> Part:
        """Merge the sums over chunks that follow one another."""

    @property
    def sums_held(self) -> int:
        """Number of sums, each with its blocks, that have a place in memory at a time."""
        if self.alone:
            return 1
        return _SUMS_HELD

    def no_blocks(self, nothing: LSTDStatistics) -> Blocks:
        """Return empty blocks with the limit for the whole data; `nothing` is the statistics of no data."""
        bytes_of_blocks = self.memory // 2
        return empty_blocks(nothing, self.n_blocks, bytes_of_blocks // self.sums_held)

    def limit_of(self, blocks: Blocks, n_rows: int) -> int:
        """Return how many blocks to keep for the first `n_rows` rows of a chunk."""
        if self.alone:
            return blocks.limit
        rows_per_block = max(_BLOCK_ROWS, 16 * blocks.total.n_features)
        return min(blocks.limit, max(_FEW_BLOCKS, n_rows // rows_per_block))

    def bytes_under_way(self, n_features: int, limit: int) -> int:
        """Return the bytes left for chunks and sums in progress, if each sum keeps `limit` blocks."""
        bytes_of_blocks = min(self.memory // 2, 16 * n_features**2 * limit * self.sums_held)
        return self.memory - bytes_ahead(self.memory) - bytes_of_blocks


def merged(parts: Iterable[T], merge: Callable[[T, T], T]) -> T | None:
    """Merge neighbours as they come: 0 and 1, 2 and 3, …; then the pairs (0, 1) and (2, 3), …; None without parts.

    The shape of this tree depends on the number of parts only, and about log2 of their number are held at a time.

    Examples
    --------
    >>> merged("01234", lambda one, two: f"({one}{two})")
    '(((01)(23))4)'
    """
    stack: list[tuple[int, T]] = []  # levels and nodes
    try:
        for part in parts:
            level = 0
            node = part
            while stack and stack[-1][0] == level:
                _, before = stack.pop()
                node = merge(before, node)
                level += 1
                del before
            stack.append((level, node))
            del part, node
        if not stack:
            return None
        return reduce(lambda later, one: (0, merge(one[1], later[1])), reversed(stack))[1]
    finally:
        stack.clear()  # an error refers to this frame


@contextmanager
def naming(place: int) -> Iterator[None]:
    """Name a chunk in errors."""
    try:
        yield
    except InvalidInputError as error:
        raise InvalidInputError(f"`source[{place}]`: {error}") from error


def status(path: str | os.PathLike[str]) -> os.stat_result:
    """Return size and modification time of a file; raises InvalidInputError when there is none."""
    try:
        return os.stat(path)
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"{os.fspath(path)} could not be read: {error}.") from error


def called(load: Any) -> Any:
    """Call a function without arguments; raises InvalidInputError when it fails."""
    try:
        return load()
    except LSTDError:
        raise
    except Exception as error:
        raise InvalidInputError(f"could not be loaded: {error!r:.500}.") from error
