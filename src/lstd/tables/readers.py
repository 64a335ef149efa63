"""Open tables by their names, and report how much of them has been read. Only the current batch is in memory."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from lstd.errors import InvalidInputError
from lstd.io.files import reason
from lstd.tables.csv_table import CsvTable
from lstd.tables.parquet_table import ParquetTable
from lstd.tables.table import UNREADABLE, Table
from lstd.tables.table_errors import could_not_be_read

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


def watched(paths: Iterable[str | Table], on_progress: Callable[[str, float, float], None] | None) -> list[Table]:
    """Open tables; while they are read, call `on_progress` with what is read, the bytes so far and all bytes."""
    tables = [path if isinstance(path, Table) else open_table(path) for path in paths]
    if on_progress is not None:
        total, before = float(sum(table.size for table in tables)), 0
        for table in tables:
            table.report = partial(_report, on_progress, table, before, total)
            before += table.size
    return tables


def _report(
    on_progress: Callable[[str, float, float], None], table: Table, before: int, total: float, share: float
) -> None:
    on_progress(f"reading {table.file}", before + table.size * share, total)
