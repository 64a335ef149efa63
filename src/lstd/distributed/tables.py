"""From a table, a file or a data frame, to its statistics, on a worker: read in bounded chunks, check, sum, keep."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

import lstd
from lstd.data.rows import check_rows
from lstd.distributed import ends as both_ends
from lstd.distributed.chunks import Part, called, found_in_store, key_of, status, with_ones
from lstd.distributed.ends import Ends, Following
from lstd.errors import InvalidInputError, LSTDError
from lstd.io.archive import read, write
from lstd.statistics.packing import pack, unpack
from lstd.statistics.statistics import LSTDStatistics
from lstd.statistics.threads import one_blas_thread
from lstd.tables.readers import EXTENSIONS, Table
from lstd.tables.row_reader import Roles, RowReader

T = TypeVar("T")

_BATCH_ROWS = 2**15


@dataclass(frozen=True)
class SummingTables:
    """What tables are summed with; called with a table and its place it gives the table's statistics.

    With a store, statistics that are in it are read, and others are added to it.
    """

    gamma: float
    lmbda: float
    fit_intercept: bool
    store: str | None
    roles: Roles
    ordered: bool

    def __call__(self, place: int, chunk: Any, key: bytes | None = None) -> Part:
        """Statistics of a table, by whose `key` the store knows a function.

        Errors name its file, or its place among data frames, and the row.
        """
        name = f"`chunks[{place}]`"
        table = None if callable(chunk) else _table(name, chunk)
        kept = None
        if self.store is not None:
            kept = Path(self.store) / f"{place:08d}-{self._digest(name, table, chunk, key)}.statistics"
        found = None if kept is None else found_in_store(kept, self._load)
        statistics, ends = found or self._summed(
            _table(name, _named(name, lambda: called(chunk))) if table is None else table
        )
        if kept is not None and found is None:
            document, arrays = pack(statistics)
            write(kept, "statistics", {"statistics": document, "ends": both_ends.pack(ends)}, arrays)
        if not self.ordered:
            ends.check()
        return Part(statistics, place, place, ends=ends)

    def _summed(self, table: str | Table) -> tuple[LSTDStatistics, Ends]:
        reader = RowReader([table], self.roles)
        file = reader.tables[0].file
        reader.episodes = episodes = Following(self.roles)
        n, m = len(reader.features) + self.fit_intercept, len(self.roles.rewards)
        total = LSTDStatistics.empty(n, m, gamma=self.gamma, lmbda=self.lmbda, single=m == 1)
        with one_blas_thread():  # sums of other numbers of threads may differ in the last bit
            for chunk in reader.chunks():
                rows = check_rows(
                    chunk.X, chunk.y[:, 0] if m == 1 else chunk.y, gamma=self.gamma, episode=chunk.episode,
                    terminated=chunk.terminated, warn=False, finite=False,
                )  # fmt: skip
                rows = with_ones(rows) if self.fit_intercept else rows
                try:
                    total = total.then(LSTDStatistics.from_rows(rows, self.lmbda))
                except InvalidInputError as error:
                    raise reader.overflow(chunk, error) from error
        return total, episodes.ends(file, tuple(reader.features))

    def _load(self, path: Path) -> tuple[LSTDStatistics, Ends]:
        return read(
            path,
            {
                "statistics": lambda document, arrays: (
                    LSTDStatistics(**unpack(document["statistics"], arrays)),
                    both_ends.unpack(document["ends"], self.roles),
                )
            },
        )

    def _digest(self, name: str, table: str | Table | None, chunk: Any, key: bytes | None) -> str:
        settings = (lstd.__version__, self.gamma, self.lmbda, self.fit_intercept, self.roles)
        digest = hashlib.sha256(repr(settings).encode())
        if table is None:
            digest.update(key or _named(name, lambda: key_of(chunk)))
        elif isinstance(table, str):
            found = status(table)
            digest.update(repr((table, found.st_size, found.st_mtime_ns)).encode())
        else:
            columns = [*(self.roles.features or table.names), *self.roles.others]
            table.require(columns)
            for batch in table.batches(list(dict.fromkeys(columns))):
                digest.update(f"{batch.schema.names} {batch.schema.types}".encode())
                digest.update(batch.serialize())
        return digest.hexdigest()[:32]


class FrameTable(Table):
    """A data frame that is in memory, of pandas, Polars or Arrow."""

    text = False

    def __init__(self, file: str, frame: Any) -> None:
        super().__init__(file, 0)
        self._frame = frame if _is_pandas(frame) else self._arrow(lambda: pa.table(frame))
        names = [str(name) for name in (frame.columns if _is_pandas(frame) else self._frame.column_names)]
        self.names = self.own = names

    def require(self, columns: Sequence[str]) -> None:
        """Check that columns are there, each once."""
        if missing := [column for column in columns if column not in self.names]:
            raise InvalidInputError(
                f"{self.file}: column {missing[0]!r} is missing; the data frame has {self.names!r:.200}."
            )
        super().require(columns)

    def done(self) -> float:
        """All of it, for it is in memory."""
        return 1.0

    def batches(self, columns: Sequence[str], most_rows: int = _BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Batches of these columns, converted one by one."""
        if not _is_pandas(self._frame):
            yield from self._frame.select(list(columns)).to_batches(max_chunksize=most_rows)
            return
        places = [self.names.index(name) for name in columns]
        for first in range(0, len(self._frame), most_rows):
            part = self._frame.iloc[first : first + most_rows, places].set_axis(list(columns), axis=1)
            found = self._arrow(lambda part=part: pa.Table.from_pandas(part, preserve_index=False, nthreads=1))
            yield from found.combine_chunks().to_batches()

    def _arrow(self, make: Any) -> Any:
        try:
            return make()
        except Exception as error:  # of columns of objects, pandas and Arrow raise what they like
            raise InvalidInputError(f"{self.file} could not be taken as a table: {error!r:.300}.") from error


def _is_pandas(frame: Any) -> bool:
    return type(frame).__module__.partition(".")[0] == "pandas"


def _table(name: str, chunk: Any) -> str | Table:
    """The path of a table, or a data frame as a table of that name."""
    if isinstance(chunk, (str, os.PathLike)):
        file = os.fspath(chunk)
        if isinstance(file, str) and file.lower().endswith(EXTENSIONS):
            return file
    elif getattr(chunk, "ndim", None) == 2 if _is_pandas(chunk) else hasattr(chunk, "__arrow_c_stream__"):
        return FrameTable(name, chunk)
    raise InvalidInputError(
        f"{name}: must be the path of a table, which ends in {', '.join(EXTENSIONS)}, a data frame, or a function "
        f"without arguments that returns one of these, since `reward` names columns; got {chunk!r:.80}."
    )


def _named(name: str, function: Callable[[], T]) -> T:
    """What a function gives; its errors name the chunk."""
    try:
        return function()
    except LSTDError as error:
        raise InvalidInputError(f"{name}: {error}") from error
