"""Rows of the data contract from tables, chunk by chunk, with every rule checked across chunks and files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lstd.data import arrow_columns as convert
from lstd.data.follow import Episodes, Marks
from lstd.data.ids import last_rows
from lstd.data.parsing import Fault, check_finite, check_not_infinite, check_not_outside
from lstd.data.rows import COLUMNS, Rows, repeated
from lstd.distributed import chunk_sums
from lstd.distributed.ahead import Ahead
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

    def rows(self, gamma: float) -> Rows:
        """Return the rows as the data contract has them; all were checked."""
        y, T = self.y, len(self)
        known = ~np.isnan(np.column_stack([y, *self.transitions.values()])).any(axis=1)
        columns = {
            name: np.where(np.isnan(self.transitions[name]), 1.0, self.transitions[name])
            if name in self.transitions else repeated(gamma if usual is None else usual, T)
            for name, (_, usual) in COLUMNS.items()
        }  # fmt: skip
        if self.terminated.any():
            columns["discount"] = np.where(self.terminated, 0.0, columns["discount"])
        X_next = self.X_next
        if X_next is not None and not np.isfinite(X_next[self.terminated]).all():  # which are not used
            X_next = np.where(self.terminated[:, np.newaxis], 0.0, X_next)
        return Rows.of(
            X=self.X, y=y if known.all() else np.nan_to_num(y), known=known, last=last_rows(self.episode),
            terminated=self.terminated, **columns, X_next=X_next, episode=self.episode, single=y.shape[1] == 1,
            gamma=gamma, assumed=False, groups=self.groups, given=frozenset(self.transitions), place=self.first,
        )  # fmt: skip

    def overflow(self, error: InvalidInputError) -> InvalidInputError:
        """Return the error for sums that overflow with these rows."""
        return overflow_at(self.file, self.first, np.column_stack([self.X, self.y]), self.names, error)


class Raw(NamedTuple):
    """Rows as they were read, or the end of the tables of a reader, without rows."""

    owner: Any
    reader: Any  # RowReader, or None
    table: Any = None
    first: int = 0  # place of its first row in the table
    batch: Any = None  # RecordBatch or TextBlock

    def parsed(self, *, as_text: bool = False) -> tuple[pa.RecordBatch | None, InvalidInputError | None]:
        """Return the rows before the first one that cannot be read, and the error for that one, if any."""
        if not self.table.text:
            return self.batch, None
        found: tuple[pa.RecordBatch | None, InvalidInputError | None] = self.batch.parsed(
            self.reader.columns, frozenset() if as_text else self.reader.roles.numbers
        )
        return found

    @property
    def n_bytes(self) -> int:
        """Bytes of the rows, as read and converted."""
        if self.batch is None or self.reader is None:
            return 0
        width = 8 * len(self.reader.columns)
        if not self.table.text:  # adding up the bytes of many columns is slow in Arrow
            return len(self.batch) * width * 3 // 2  # most rows wait as read or as converted, few are both
        return len(self.batch) * width + int(self.batch.nbytes)


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
        memory: int = chunk_sums.MEMORY,
        part: bool = False,
    ) -> None:
        self.tables = [*map(open_table, paths)]
        self.roles = roles.resolved(self.tables)
        self.features = self.roles.features or ()
        self.episodes, self._part = Episodes(roles, at_row, part=part), part
        self._chunk_rows = chunk_rows or chunk_sums.chunk_rows(memory, len(self.features))

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

    def raw(self, owner: Any = None) -> Iterator[Raw]:
        """Yield rows as they are read."""
        for table in self.tables:
            first = 0
            table.report(0.0)
            for batch in table.batches(self.columns, self._chunk_rows):
                size = equal_parts(len(batch), self._chunk_rows)
                for start in range(0, len(batch), size):
                    yield Raw(owner, self, table, first + start, batch[start : start + size])
                first += len(batch)
                table.report(table.done())
            table.report(1.0)

    @cached_property
    def columns(self) -> list[str]:
        """The columns to read."""
        return list(dict.fromkeys((*self.features, *self.roles.others, *self.roles.kept)))

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

    def read() -> Iterator[Raw]:
        for owner, reader in readers:
            yield from () if reader is None else reader.raw(owner)
            yield Raw(owner, reader)

    for raw, values, failure in ahead.map(_converted, read(), _n_bytes, most_bytes):
        chunk = None
        if values is not None:
            chunk = raw.reader.checked(raw.table, raw.first, values)
        elif raw.reader is not None and failure is None:
            raw.reader.finish()
        del values
        if chunk is not None or failure is None:
            yield raw.owner, chunk
        if failure is not None:
            raise failure
        del raw, chunk


_n_bytes = attrgetter("n_bytes")


def _converted(raw: Raw) -> tuple[Raw, Values | None, InvalidInputError | None]:
    """Return the values of rows, up to the first row that cannot be read, and the error for that; they are let go."""
    if raw.batch is None or raw.reader is None:
        return raw, None, None
    batch, failure = raw.parsed()
    return raw._replace(batch=None), None if batch is None else Values(batch, raw.reader.roles), failure


class Values:
    """Values of a batch and the first bad one of each column; the columns of features are not kept."""

    def __init__(self, batch: pa.RecordBatch, roles: Roles) -> None:
        self._faults: list[Fault | None] = []
        self.X = self._features(batch, roles.features or ())
        self.kept = [batch.column(name) for name in roles.kept]
        self.y = np.empty((len(batch), len(roles.rewards)))
        for j, name in enumerate(roles.rewards):
            self.y[:, j] = self._numbers(batch, name, check_not_infinite)
        self.terminated, self.truncated = (
            np.zeros(len(batch), np.bool_) if name is None else self._noted(*convert.flags(batch.column(name), name))
            for name in (roles.terminated, roles.truncated)
        )
        self.ids, self.groups = (
            None if name is None else convert.ids(batch.column(name), name) for name in (roles.episode, roles.groups)
        )
        self._faults += [ids.fault for ids in (self.ids, self.groups) if ids is not None]
        self.transitions = {
            role: self._numbers(batch, name, partial(check_not_outside, high=COLUMNS[role].high))
            for role, name in roles.transitions.items()
        }
        successors = roles.next_features  # those of rows that terminated are not used
        self.X_next = self._features(batch, successors, self.terminated) if successors else None
        self.times = None
        if roles.time is not None:
            self.times = self._noted(*convert.times(batch.column(roles.time), roles.time))

    def first_fault(self) -> Fault | None:
        return min(filter(None, self._faults), default=None, key=lambda fault: fault.row)

    def _features(self, batch: pa.RecordBatch, names: Sequence[str], unused: NDArray[np.bool_] | None = None) -> Array:
        """Convert columns, all at once unless a value is bad; those of `unused` rows may be."""
        X = convert.matrix(batch, names)
        if X is not None:
            return X
        X = np.empty((len(batch), len(names)))
        for j, name in enumerate(names):
            X[:, j], fault = convert.numbers(batch.column(name), name)
            used = X[:, j] if unused is None else np.where(unused, 0.0, X[:, j])
            self._faults.append(check_finite(used, name, fault) or fault)
        return X

    def _numbers(self, batch: pa.RecordBatch, name: str, check: Callable[..., Fault | None]) -> Array:
        values, fault = convert.numbers(batch.column(name), name)
        return self._noted(values, check(values, name, fault))

    def _noted(self, values: NDArray[Any], fault: Fault | None) -> NDArray[Any]:
        self._faults.append(fault)
        return values
