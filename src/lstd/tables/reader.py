"""Rows of the data contract from any source, chunk by chunk, with every rule checked across chunks and files."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lstd.data.arguments import shown
from lstd.data.arrow_columns import is_frame
from lstd.data.batch_rows import Converted
from lstd.data.convert import check_values_known
from lstd.data.episodes import Episodes
from lstd.data.ids import Ids, last_rows
from lstd.data.open_table import EXTENSIONS, open_table
from lstd.data.roles import Roles
from lstd.data.rows import Rows
from lstd.data.table import FROM_ONE, FrameTable, Table, at_row, dataset_tables
from lstd.distributed import chunk_sums
from lstd.distributed.chunk_sums import called
from lstd.distributed.on_dask import Partitions, frame_partitions, is_dask, is_future, is_kind, listed
from lstd.errors import InvalidInputError, LSTDError
from lstd.statistics.threads import Ahead
from lstd.tables.resolve_roles import resolved


class Chunk(NamedTuple):
    """Checked rows of a table, whose `place` is that in the file, with numbers of episodes in place of ids."""

    file: str
    rows: Rows
    kept: list[pa.Array]
    columns: tuple[str, ...]  # of the features and the rewards
    ids: Ids | None = None  # of episodes
    times: NDArray[Any] | None = None  # (T,) of NumPy if they are dates, else numbers

    def error(self, error: InvalidInputError) -> InvalidInputError:
        """Return an error of all of these rows, with their place."""
        first = self.rows.place + 1
        return InvalidInputError(f"{self.file}: rows {first} to {first + len(self.rows) - 1} {FROM_ONE}: {error}")


class Raw(NamedTuple):
    """Rows as they were read, or a chunk of which they became one before; the end of a reader has neither."""

    reader: RowReader
    table: Table | None = None
    first: int = 0  # place of its first row in the table
    batch: Any = None  # RecordBatch or TextBlock
    chunk: Chunk | None = None

    def size(self) -> int:
        """Return the bytes of the rows, as read and converted."""
        if self.table is None:
            return 0
        width = 8 * len(self.reader.columns)
        if not self.table.text:  # adding up the bytes of many columns is slow in Arrow
            return len(self.batch) * width * 3 // 2  # most rows wait as read or as converted, few are both
        return len(self.batch) * width + int(self.batch.nbytes)


class RowReader:
    """Read tables as one stream of rows, in the order given; an episode may continue in the next file.

    Memory holds the chunks read ahead and the ids so far.

    Chunks have `chunk_rows` rows, give or take half; by default about a million features, fewer with little memory.
    `gamma` is the discount of rows without one. If the tables are `part` of a stream, the rules that concern rows
    before and after are left to the caller.

    Raises InvalidInputError when a file cannot be read or lacks a column.
    """

    def __init__(
        self,
        paths: Iterable[str | Table],
        roles: Roles,
        *,
        gamma: float = 1.0,
        chunk_rows: int | None = None,
        memory: int = chunk_sums.MEMORY,
        part: bool = False,
    ) -> None:
        self.tables = [*map(open_table, paths)]
        self.roles = resolved(roles, self.tables)
        self.features = self.roles.features or ()
        self.columns = list(dict.fromkeys((*self.features, *self.roles.others, *self.roles.kept)))  # to read
        self.episodes = Episodes(roles, partial(_error, self.tables), part=part)
        self.gamma = gamma
        self.is_part = part
        self.chunk_rows = chunk_rows or chunk_sums.chunk_rows(memory, len(self.features))
        self.held: list[Chunk] = []  # chunks that were read, and are to be given once more
        self.failure: InvalidInputError | None = None  # of the row after those that were read
        self._rest = self._read()

    def raws(self) -> Iterator[Raw]:
        """Yield the chunks that are held, then the rest of the rows as they are read, and the end.

        Rows that nobody draws stay for the next caller.
        """
        while self.held:
            yield Raw(self, chunk=self.held.pop(0))
        if self.failure is not None:
            raise self.failure
        while (raw := next(self._rest, None)) is not None:  # `yield from` would close the rest with this generator
            yield raw
        yield Raw(self)

    def _read(self) -> Iterator[Raw]:
        for table in self.tables:
            for batch in table.batches(self.columns, self.chunk_rows):
                yield Raw(self, table, table.rows_read - len(batch), batch)

    def chunks(self) -> Iterator[Chunk]:
        """Yield checked chunks; raises InvalidInputError at the first bad row, after the chunks before it."""
        with Ahead(1) as ahead:
            for _, chunk in chunks_of([self], ahead):
                if chunk is not None:
                    yield chunk
                del chunk

    def checked(self, table: Table, first: int, found: Converted) -> Chunk:
        """Check the next rows."""
        numbers = self.episodes.follow(table.file, first, found.marks, found.fault)
        rows = found.rows.changed(episode=numbers, last=last_rows(numbers), place=first)
        columns = (*self.features, *self.roles.rewards)
        return Chunk(table.file, rows, found.kept, columns, found.marks.ids, found.times)


def _error(tables: Sequence[Table], file: str, row: int, column: str, text: str) -> InvalidInputError:
    """Return the error for a value in one of some tables; its row in the file is counted from 0."""
    for table in tables:
        if table.file == file:
            return table.error(row, column, text)
    return at_row(file, row, column, text)


def times_of(chunks: Sequence[Chunk]) -> NDArray[Any] | None:
    """Return the times of the rows of chunks; None without times, and where only some are dates."""
    times = [chunk.times for chunk in chunks if chunk.times is not None]
    are_dates = {part.dtype.kind in "mM" for part in times}
    if len(are_dates) != 1:
        return None
    return np.concatenate(times)


def chunks_of(
    readers: Iterable[RowReader], ahead: Ahead, most_bytes: int = 0
) -> Iterator[tuple[RowReader, Chunk | None]]:
    """Yield the checked chunks of readers one after another, each with its reader, and None at the end of each.

    Up to `most_bytes` are read ahead, also of the next readers, and converted in the threads of `ahead`.
    """
    raws = itertools.chain.from_iterable(reader.raws() for reader in readers)
    for raw, found, failure in ahead.map(_converted, raws, Raw.size, most_bytes):
        reader = raw.reader
        if failure is not None:
            reader.failure = failure
        if raw.chunk is not None:
            yield reader, raw.chunk
        elif raw.table is None:
            if not reader.is_part:
                reader.episodes.finish()
            yield reader, None
        elif found is not None:
            chunk = reader.checked(raw.table, raw.first, found)
            del found
            yield reader, chunk
            del chunk
        del raw
        if failure is not None:
            raise failure


def _converted(raw: Raw) -> tuple[Raw, Converted | None, InvalidInputError | None]:
    """Convert rows up to the first one that cannot be read, and return the error for that; what was read is let go."""
    if raw.table is None:
        return raw, None, None
    reader = raw.reader
    batch = raw.batch
    failure = None
    if raw.table.text:
        batch, failure = batch.parsed(reader.columns, reader.roles.numbers)
    found = None
    if batch is not None:
        found = Converted(batch, reader.roles, reader.gamma)
    return raw._replace(batch=None), found, failure


# ------------------------------------------------------------ sources


_EXPECTED = "a Dask DataFrame, or a list of delayed objects or futures of data frames, if it is a Dask collection"


Tables: TypeAlias = Partitions | Iterable[Any]  # paths, open tables, data frames, and functions that return one


def tables_of(source: Any, roles: Roles) -> Tables:
    """Return the tables of a source: a list of paths and open tables, partitions of Dask, or another iterable."""
    check_values_known("source", source)
    if isinstance(source, (str, os.PathLike)):
        return [os.fspath(source)]
    if is_kind(source, "DataFrame"):
        columns = list(dict.fromkeys((*(roles.features or ()), *roles.others)))
        return frame_partitions(source, columns, others=roles.features is None)
    if type(source).__module__ == "pyarrow._dataset":
        return dataset_tables(source)
    if is_frame(source):
        return [FrameTable("`source`", source)]
    if isinstance(source, (set, frozenset)):
        raise InvalidInputError(f"`source` must have an order; got a {type(source).__name__}. Give a list.")
    if isinstance(source, bytes) or not (isinstance(source, Iterable) or is_dask(source) or is_future(source)):
        raise InvalidInputError(
            f"`source` must be a path, a dataset, a data frame or several of them; got {shown(source)} of type "
            f"{type(source).__name__}. Arrays go to `lstd.fit_chunks`."
        )
    tables = listed(source, _EXPECTED)
    if isinstance(tables, Partitions):
        return tables
    if not isinstance(tables, (list, tuple)):  # an iterator: one of paths is as good as a list
        rest = iter(tables)
        first = list(itertools.islice(rest, 1))
        if first and not isinstance(first[0], (str, os.PathLike)):
            return itertools.chain(first, rest)
        tables = [*first, *rest]
    if not tables:
        raise InvalidInputError("`source` must hold at least one table; got none.")
    if any(map(callable, tables)):  # each is called where it is read
        return tables
    return [opened(place, table) for place, table in enumerate(tables)]


def opened(place: int, chunk: Any) -> str | Table:
    """Return a table: an open one, a path, a data frame, or what a function without arguments returns."""
    name = f"`source[{place}]`"
    if callable(chunk):
        try:
            chunk = called(chunk)
        except LSTDError as error:
            raise InvalidInputError(f"{name}: {error}") from error
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


def open_tables(paths: Iterable[str | Table], on_progress: Callable[[str, float, float], None] | None) -> list[Table]:
    """Open tables; while they are read, call `on_progress` with what is read, the bytes so far and all bytes."""
    tables = [*map(open_table, paths)]
    if on_progress is not None:
        ends = [*itertools.accumulate((float(table.size) for table in tables), initial=0.0)]
        for table, before in zip(tables, ends, strict=False):
            table.report = lambda share, table=table, before=before: on_progress(  # type: ignore[misc]
                f"reading {table.file}", before + table.size * share, ends[-1]
            )
    return tables
