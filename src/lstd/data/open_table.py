"""Tables opened by the names of their files."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from lstd.data.csv_table import CsvTable
from lstd.data.table import UNREADABLE, ParquetTable, Table, could_not_be_read
from lstd.errors import InvalidInputError

EXTENSIONS = (".csv", ".csv.gz", ".parquet")


def open_table(path: str | os.PathLike[str] | Table) -> Table:
    """Open a table by the extension of its name; return one that is open as it is.

    Raises InvalidInputError when it is missing, empty, damaged, or of an unknown extension.
    """
    if isinstance(path, Table):
        return path
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
    except UNREADABLE as error:
        if isinstance(error, InvalidInputError):
            raise
        raise could_not_be_read(file, error) from error
