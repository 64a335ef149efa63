"""Rows of the data contract from tables, chunk by chunk, with every rule checked across chunks and files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lstd.data import arrow_columns as convert
from lstd.data.follow import Episodes, Marks
from lstd.data.ids import Ids
from lstd.data.parsing import Fault, check_finite, check_not_infinite, check_not_outside
from lstd.distributed import memory_shares
from lstd.distributed.bounded_threads import Ahead
from lstd.errors import InvalidInputError
from lstd.tables.column_roles import Roles
from lstd.tables.sources import open_table
from lstd.tables.table import Table, equal_parts
from lstd.tables.table_errors import at_row, overflow_at
from lstd.types import Array

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Chunk:
    """Checked rows in time order; T rows, n features, m rewards."""

    file: str
    first: int  # place of its first row in the file
    X: Array  # (T, n)
    y: Array  # (T, m)
    episode: NDArray[np.int64]  # (T,) number of the episode, from 0
    terminated: NDArray[np.bool_]  # (T,)
    groups: NDArray[Any] | None  # (T,) names
    kept: list[pa.Array]
    transitions: dict[str, Array]  # (T,) by argument: discount, importance_ratio, …; NaN where missing
    X_next: Array | None  # (T, n)
    names: tuple[str, ...]  # of the features and the rewards

    def __len__(self) -> int:
        return len(self.X)

    def overflow(self, error: InvalidInputError) -> InvalidInputError:
        """Return the error for sums that overflow with these rows."""
        return overflow_at(self.file, self.first, np.column_stack([self.X, self.y]), self.names, error)


class Raw(NamedTuple):
    """Rows as they were read."""

    table: Table
    first: int  # place of its first row in the file
    batches: list[Any]  # RecordBatch or TextBlock
    columns: list[str]
    numbers: frozenset[str]  # columns of numbers, which Arrow may read as such from text

    def parsed(self) -> tuple[list[pa.RecordBatch], InvalidInputError | None]:
        """Return batches of the rows before the first one that cannot be read, and the error for that one, if any."""
        batches: list[pa.RecordBatch] = []
        failure = None
        for batch in self.batches:
            if failure is None:
                found, failure = batch.parsed(self.columns, self.numbers) if self.table.text else ([batch], None)
                batches += found
        if self.numbers and any(batch.schema != batches[0].schema for batch in batches):
            return self._replace(numbers=frozenset()).parsed()
        return batches, failure


class RowReader:
    """Read tables as one stream of rows, in the order given; an episode may continue in the next file.

    Memory holds the chunks read ahead and the ids so far.

    Chunks have `chunk_rows` rows, give or take half; by default about a million features, fewer with little memory.
    If the tables are `part` of a stream, the rules that concern rows before and after are left to the caller.

    Raises InvalidInputError when a file cannot be read or lacks a column.
    """

    def __init__(
        self,
        paths: Sequence[str | Table],
        roles: Roles,
        *,
        chunk_rows: int | None = None,
        memory: int = memory_shares.MEMORY,
        part: bool = False,
    ) -> None:
        self.tables = [*map(open_table, paths)]
        self.roles = roles.resolved(self.tables)
        self.features = self.roles.features or ()
        self.episodes, self._part = Episodes(roles, at_row, part=part), part
        self._chunk_rows = chunk_rows or memory_shares.chunk_rows(memory, len(self.features))

    def chunks(self) -> Iterator[Chunk]:
        """Yield checked chunks; raises InvalidInputError at the first bad row, after the chunks before it."""
        with Ahead(1) as ahead:
            for _, chunk in chunks_of([(None, self)], ahead):
                if chunk is not None:
                    yield chunk
                del chunk

    def finish(self) -> None:
        """Check the last row, unless others may follow."""
        if not self._part:
            self.episodes.finish()

    def raw(self, *, as_text: bool = False) -> Iterator[Raw]:
        """Yield rows as they are read; values of CSV are text if `as_text`."""
        most, numbers = max(64, min(2**15, self._chunk_rows)), frozenset(() if as_text else self.roles.numbers)
        for table in self.tables:
            first = 0
            table.report(0.0)
            for group in _grouped(table.batches(self._columns, most), self._chunk_rows):
                table.report(table.done())
                yield Raw(table, first, group, self._columns, numbers)
                first += sum(map(len, group))
                del group
            table.report(1.0)

    @cached_property
    def _columns(self) -> list[str]:
        return list(dict.fromkeys((*self.features, *self.roles.others, *self.roles.kept)))

    def n_bytes(self, raw: Raw) -> int:
        """Return the bytes of rows, as read and converted."""
        width = 8 * (len(self.features) + len(self.roles.others))
        n_rows = sum(map(len, raw.batches))
        if not raw.table.text:  # adding up the bytes of many columns is slow in Arrow
            return n_rows * width * 3 // 2  # most rows wait as read or as converted, few are both
        return n_rows * width + sum(int(batch.nbytes) for batch in raw.batches)

    def checked(self, table: Table, first: int, values: Values) -> Chunk:
        """Check the next rows."""
        fault = values.first_fault()
        missing = np.isnan(np.column_stack([values.y, *values.transitions.values()]))
        marks = Marks(values.ids, values.groups, values.terminated, values.truncated, missing, values.times)
        numbers = self.episodes.follow(table.file, first, marks, fault)
        names = (*self.features, *self.roles.rewards)
        groups = None if values.groups is None else values.groups.per_row(len(values.y))
        return Chunk(
            table.file, first, values.X, values.y, numbers, values.terminated, groups, values.kept, values.transitions,
            values.X_next, names,
        )  # fmt: skip


def chunks_of(
    readers: Iterable[tuple[T, RowReader | None]], ahead: Ahead, most_bytes: int = 0
) -> Iterator[tuple[T, Chunk | None]]:
    """Yield the checked chunks of readers one after another, each with what came with its reader, and None at its end.

    Up to `most_bytes` are read ahead, also of the next readers, and converted in the threads of `ahead`.
    """

    def read() -> Iterator[tuple[T, RowReader | None, Raw | None]]:
        for owner, reader in readers:
            for raw in () if reader is None else reader.raw():
                yield owner, reader, raw
                del raw
            yield owner, reader, None

    for owner, reader, values, failure in ahead.map(_converted, read(), _n_bytes, most_bytes):
        chunk = None
        if values is not None:
            chunk = reader.checked(*values)
        elif reader is not None and failure is None:
            reader.finish()
        del values
        if chunk is not None or failure is None:
            yield owner, chunk
        if failure is not None:
            raise failure


def _n_bytes(item: tuple[T, Any, Raw | None]) -> int:
    return 0 if item[2] is None else item[1].n_bytes(item[2])


def _converted(item: tuple[T, Any, Raw | None]) -> tuple[T, Any, Any, InvalidInputError | None]:
    """Return the values of rows with their place, up to the first row that cannot be read, and the error for that."""
    owner, reader, raw = item
    if raw is None:
        return owner, reader, None, None
    batches, failure = raw.parsed()
    values = (raw.table, raw.first, Values(_together(batches), reader.roles)) if batches else None
    return owner, reader, values, failure


class Values:
    """Values of a batch and the first bad one of each column; the columns of features are not kept."""

    def __init__(self, batch: pa.RecordBatch, roles: Roles) -> None:
        self._faults: list[Fault] = []
        self.X = self._features(batch, roles.features or ())
        self.kept = [batch.column(name) for name in roles.kept]
        self.y = np.empty((len(batch), len(roles.rewards)))
        for j, name in enumerate(roles.rewards):
            self.y[:, j], fault = convert.numbers(batch.column(name), name)
            self._note(check_not_infinite(self.y[:, j], name, fault))
        self.terminated, self.truncated = (self._flags(batch, name) for name in (roles.terminated, roles.truncated))
        self.ids, self.groups = (self._ids(batch, name) for name in (roles.episode, roles.groups))
        self.transitions = {role: self._numbers(batch, role, name) for role, name in roles.transitions.items()}
        successors = roles.next_features  # those of rows that terminated are not used
        self.X_next = self._features(batch, successors, self.terminated) if successors else None
        self.times = None
        if roles.time is not None:
            self.times, fault = convert.times(batch.column(roles.time), roles.time)
            self._note(fault)

    def first_fault(self) -> Fault | None:
        return min(self._faults, default=None, key=lambda fault: fault.row)

    def _features(self, batch: pa.RecordBatch, names: Sequence[str], unused: NDArray[np.bool_] | None = None) -> Array:
        """Convert columns, all at once unless a value is bad; those of `unused` rows may be."""
        X = convert.matrix(batch, names)
        if X is not None:
            return X
        X = np.empty((len(batch), len(names)))
        for j, name in enumerate(names):
            X[:, j], fault = convert.numbers(batch.column(name), name)
            used = X[:, j] if unused is None else np.where(unused, 0.0, X[:, j])
            self._note(check_finite(used, name, fault) or fault)
        return X

    def _numbers(self, batch: pa.RecordBatch, role: str, name: str) -> Array:
        values, fault = convert.numbers(batch.column(name), name)
        self._note(check_not_outside(values, name, fault, 1.0 if role == "discount" else np.inf))
        return values

    def _note(self, fault: Fault | None) -> None:
        if fault is not None:
            self._faults.append(fault)

    def _ids(self, batch: pa.RecordBatch, name: str | None) -> Ids | None:
        if name is None:
            return None
        ids = convert.ids(batch.column(name), name)
        self._note(ids.fault)
        return ids

    def _flags(self, batch: pa.RecordBatch, name: str | None) -> NDArray[np.bool_]:
        if name is None:
            return np.zeros(len(batch), dtype=np.bool_)
        truths, fault = convert.flags(batch.column(name), name)
        self._note(fault)
        return truths


def _grouped(batches: Iterator[pa.RecordBatch], n_rows: int) -> Iterator[list[pa.RecordBatch]]:
    """Group batches of about `n_rows` rows together, give or take half, but for the last.

    A batch of that length stays whole: cutting and joining many columns costs more than converting them. Rows before
    an error are yielded before it is raised.
    """
    held: list[Any] = []
    length = 0
    try:
        for batch in batches:
            for part in _parts(batch, n_rows):
                if held and 2 * (length + len(part)) > 3 * n_rows:
                    group, held, length = held, [], 0
                    yield group
                held.append(part)
                length += len(part)
                if 2 * length >= n_rows:
                    group, held, length = held, [], 0
                    yield group
    except InvalidInputError:
        if held:
            yield held
        raise
    if held:
        yield held


def _parts(batch: pa.RecordBatch, n_rows: int) -> list[pa.RecordBatch]:
    size = equal_parts(len(batch), n_rows)
    return [batch] if size == len(batch) else [batch[first : first + size] for first in range(0, len(batch), size)]


def _together(batches: list[Any]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
