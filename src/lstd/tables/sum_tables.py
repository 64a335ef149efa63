"""Sums of one table on a worker, and how the sums over neighbouring tables are merged."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from lstd.data.checks import check_values_known, shown
from lstd.distributed.sums import Leaf, Part, called
from lstd.errors import InvalidInputError, LSTDError
from lstd.tables import table_ends
from lstd.tables.frames import FrameTable, is_frame
from lstd.tables.readers import EXTENSIONS, Table
from lstd.tables.row_reader import Chunk, Roles, RowReader
from lstd.tables.stream import sum_stream
from lstd.tables.table_ends import Ends, Following

T = TypeVar("T")


@dataclass(frozen=True)
class SumTables(Leaf):
    """Sum one table, a file or a data frame; errors name its file or place, and the row."""

    roles: Roles

    def __call__(self, place: int, chunk: Any, key: bytes | None = None) -> Part:
        """Sum a table, or read its sums from the store, and check its ends if tables are independent."""
        part = super().__call__(place, chunk, key)
        if self.independent:
            part.ends.check()
        return part

    def summed(self, place: int, chunk: Any) -> Part:
        """Read, check and sum a table in chunks that fit in memory."""
        reader, episodes = self.reader(place, chunk)
        blocks = sum_stream(reader, self.settings, self.n_blocks, self.block_bytes)
        return Part(self.few_blocks(blocks), place, place, ends=episodes.ends(reader.tables[0].file, reader.features))

    def reader(self, place: int, chunk: Any) -> tuple[RowReader, Following]:
        """Open a table, without the rules that concern rows of the tables before and after."""
        reader = RowReader([opened(place, chunk)], self.roles, memory=self.memory)
        reader.episodes = episodes = Following(self.roles)
        return reader, episodes

    def merge(self, one: Part, two: Part) -> Part:
        """Merge the sums over tables that follow one another."""
        before: Ends = one.ends
        later = before.in_order(two.ends, two.blocks)
        ends, begins = before.then(two.ends, independent=self.independent)
        return Part(one.blocks.then(later, begins=begins), one.first, two.last, ends=ends)

    def add_content(self, digest: Any, place: int, chunk: Any) -> None:
        """Add the columns of a data frame to a digest."""
        table = opened(place, chunk)
        assert isinstance(table, Table)
        columns = [*(self.roles.features or table.names), *self.roles.others]
        table.require(columns)
        for batch in table.batches(list(dict.fromkeys(columns))):
            digest.update(f"{batch.schema.names} {batch.schema.types}".encode())
            digest.update(batch.serialize())

    def pack_ends(self, ends: Any) -> Any:
        """Return a document of the ends of tables."""
        return table_ends.pack(ends)

    def unpack_ends(self, document: Any) -> Any:
        """Return the ends of a document."""
        return table_ends.unpack(document, self.roles)


def opened(place: int, chunk: Any) -> str | Table:
    """Return a table: an open one, a path, a data frame, or what a function without arguments returns."""
    name = f"`source[{place}]`"
    if callable(chunk):
        chunk = _naming(name, lambda: called(chunk))
    if isinstance(chunk, Table):
        return chunk
    check_values_known(f"source[{place}]", chunk)
    if isinstance(chunk, (str, os.PathLike)):
        file = os.fspath(chunk)
        if isinstance(file, str) and file.lower().endswith(EXTENSIONS):
            return file
    elif is_frame(chunk):
        return FrameTable(name, chunk)
    raise InvalidInputError(
        f"{name}: must be the path of a table, which ends in {', '.join(EXTENSIONS)}, a data frame, or a function "
        f"without arguments that returns one of these; got {shown(chunk)}. Arrays go to `lstd.fit_chunks`."
    )


def _naming(name: str, function: Callable[[], T]) -> T:
    try:
        return function()
    except LSTDError as error:
        raise InvalidInputError(f"{name}: {error}") from error


def chunks_in_order(tables: Iterable[Any], leaf: SumTables) -> Iterator[Chunk]:
    """Yield the chunks of tables one after another, with episodes numbered through."""
    number, before = -1, None
    for place, table in enumerate(tables):
        reader, episodes = leaf.reader(place, table)
        offset = None
        for chunk in reader.chunks():
            ends = episodes.ends(chunk.file, reader.features)
            if offset is None:
                begins = before is None or leaf.independent or before.ends_before(ends.head[0])
                offset = number + begins - int(chunk.episode[0])
            yield replace(chunk, episode=chunk.episode + offset)
            number, before = int(chunk.episode[-1]) + offset, ends
        leaf = replace(leaf, roles=replace(leaf.roles, features=reader.features))
