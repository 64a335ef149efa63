"""What a `source` may be, as tables: paths, datasets, data frames, functions that return them, Dask collections."""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from lstd.data.arguments import check_values_known, shown
from lstd.data.arrow_columns import is_frame
from lstd.distributed.chunk_sums import called
from lstd.distributed.on_dask import Partitions, frame_partitions, is_dask, is_future, is_kind, listed
from lstd.errors import InvalidInputError, LSTDError
from lstd.tables.arrow_tables import ParquetTable, dataset_tables
from lstd.tables.column_roles import Roles
from lstd.tables.csv_table import CsvTable
from lstd.tables.table import UNREADABLE, FrameTable, Table, could_not_be_read

EXTENSIONS = (".csv", ".csv.gz", ".parquet")
_EXPECTED = "a Dask DataFrame, or a list of delayed objects or futures of data frames, if it is a Dask collection"


def tables_of(source: Any, roles: Roles) -> Any:
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
    lazy = any(callable(table) or is_future(table) for table in tables)
    return tables if lazy else [opened(place, table) for place, table in enumerate(tables)]


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


def watched(paths: Iterable[str | Table], on_progress: Callable[[str, float, float], None] | None) -> list[Table]:
    """Open tables; while they are read, call `on_progress` with what is read, the bytes so far and all bytes."""
    tables = [*map(open_table, paths)]
    if on_progress is not None:
        ends = [*itertools.accumulate((float(table.size) for table in tables), initial=0.0)]
        for table, before in zip(tables, ends, strict=False):
            table.report = lambda share, table=table, before=before: on_progress(  # type: ignore[misc]
                f"reading {table.file}", before + table.size * share, ends[-1]
            )
    return tables
