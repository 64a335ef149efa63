"""Open tables by their names, and report how much of them has been read. Only the current batch is in memory."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from lstd.errors import InvalidInputError
from lstd.io.files import reason
from lstd.tables.csv_table import CsvTable
from lstd.tables.parquet_table import ParquetTable
from lstd.tables.table import UNREADABLE, Table, TextBlock
from lstd.tables.table_errors import could_not_be_read

T = TypeVar("T")

EXTENSIONS = (".csv", ".csv.gz", ".parquet")


def open_table(path: str | os.PathLike[str]) -> Table:
    """Open a table by the extension of its name.

    Raises InvalidInputError when it is missing, empty, damaged, or of an unknown extension.
    """
    file = os.fspath(path)
    lower = file.lower()
    if not file:
        raise InvalidInputError("A path is empty, ''; name a file.")
    if Path(file).is_dir():
        raise InvalidInputError(
            f"{file} is a folder; name the files in it. In Python, `lstd.fit_tables` takes "
            f"pyarrow.dataset.dataset({file!r}) too."
        )
    if not lower.endswith(EXTENSIONS):
        raise InvalidInputError(f"{file!r} must end in one of {', '.join(EXTENSIONS)}; convert or rename it.")
    try:
        status = Path(file).stat()
        if not stat.S_ISREG(status.st_mode):
            raise InvalidInputError(f"{file} must be a regular file.")
        if lower.endswith(".parquet"):
            return ParquetTable(file, status.st_size)
        return CsvTable(file, status.st_size, lower.endswith(".gz"))
    except InvalidInputError:
        raise
    except UNREADABLE as error:
        raise could_not_be_read(file, reason(error) if isinstance(error, OSError) else error) from error


class WatchedTable(Table):
    """A table whose reading is reported: `tell` is called with the share that was read."""

    def __init__(self, table: Table, tell: Callable[[float], None]) -> None:
        super().__init__(table.file, table.size)
        self.names, self.own, self.text, self.divisible = table.names, table.own, table.text, table.divisible
        self.require, self.done, self.parsed = table.require, table.done, table.parsed  # type: ignore[method-assign]
        self.rest = table.rest  # type: ignore[method-assign]
        self._table, self._tell = table, tell

    def batches(self, columns: Sequence[str], most_rows: int = 2**15) -> Iterator[pa.RecordBatch]:
        return self._told(self._table.batches(columns, most_rows))

    def blocks(self, columns: Sequence[str], most_rows: int = 2**15) -> Iterator[pa.RecordBatch | TextBlock]:
        return self._told(self._table.blocks(columns, most_rows))

    def _told(self, batches: Iterator[T]) -> Iterator[T]:
        self._tell(0.0)
        for batch in batches:
            yield batch
            self._tell(self.done())
        self._tell(1.0)


def watched(paths: Iterable[str | Table], on_progress: Callable[[str, float, float], None] | None) -> list[Table]:
    """Open tables, and report their bytes as they are read."""
    tables = [path if isinstance(path, Table) else open_table(path) for path in paths]
    if on_progress is None:
        return tables
    report, total = on_progress, float(sum(table.size for table in tables))

    def tell(table: Table, before: int, share: float) -> None:
        report(f"reading {table.file}", before + table.size * share, total)

    ends = accumulate(table.size for table in tables)
    return [WatchedTable(one, partial(tell, one, end - one.size)) for one, end in zip(tables, ends, strict=True)]
