"""Parquet files as batches of typed columns, row group by row group."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from lstd.errors import InvalidInputError
from lstd.tables.table import UNREADABLE, Table, equal_parts, shared
from lstd.tables.table_errors import could_not_be_read

_BUFFER, _BUFFERS = 2**20, 2**23  # bytes of a column, and of all columns together
_PRE_BUFFERED = 2**25  # bytes of a row group that are worth the time of many small requests
_RUN = 2**22  # bytes of small row groups that are read as one


class ParquetTable(Table):
    _groups: Sequence[int] | None = None  # numbers of the row groups to read; all by default
    _pre_buffer = False  # whether the bytes of a row group are read at once and held

    def __init__(self, file: str, size: int) -> None:
        super().__init__(file, size)
        self._rows_read = self._n_rows = 0
        with self._open() as parquet:
            self.names = shared(tuple(parquet.schema_arrow.names))
            about = parquet.metadata
            self._n_rows = about.num_rows
            sizes = (about.row_group(group).total_byte_size for group in range(about.num_row_groups))
            self._pre_buffer = self._pre_buffer or max(sizes, default=0) <= _PRE_BUFFERED

    def done(self) -> float:
        return self._rows_read / self._n_rows if self._n_rows else 0.0

    def batches(self, columns: Sequence[str], most_rows: int = 2**15) -> Iterator[pa.RecordBatch]:
        self._rows_read = 0
        try:
            with self._open() as parquet:
                groups = range(parquet.num_row_groups) if self._groups is None else self._groups
                try:
                    for run, n_rows in _runs(parquet.metadata, groups):
                        size = equal_parts(n_rows, most_rows)
                        for batch in parquet.iter_batches(size, run, list(columns), use_threads=False):
                            yield batch if batch.schema.names == columns else batch.select(list(columns))
                            self._rows_read += len(batch)
                except UNREADABLE:
                    self._find_bad(parquet, groups, columns)
                    raise
                if self._rows_read != sum(parquet.metadata.row_group(group).num_rows for group in groups):
                    raise could_not_be_read(self.file, "it has fewer rows than its metadata says")
        except InvalidInputError:
            raise
        except UNREADABLE as error:
            raise could_not_be_read(f"{self.file}, after row {self._rows_read},", error) from error

    def _find_bad(self, parquet: Any, groups: Sequence[int], columns: Sequence[str]) -> None:
        """Raise the error for the first row group that cannot be read."""
        first = 0
        for group in groups:
            end = first + parquet.metadata.row_group(group).num_rows
            try:
                for _ in parquet.iter_batches(2**15, [group], list(columns), use_threads=False):
                    pass
            except UNREADABLE as error:
                where = f"row group {group + 1} (rows {first + 1} to {end})"
                raise could_not_be_read(f"{self.file}: {where}", error) from error
            first = end

    def _open(self) -> Any:
        # Arrow allocates a buffer for each column that is read.
        n_bytes = max(2**14, min(_BUFFER, _BUFFERS // max(1, len(self.names))))
        return pyarrow.parquet.ParquetFile(
            self._source(), buffer_size=n_bytes, page_checksum_verification=True, pre_buffer=self._pre_buffer
        )

    def _source(self) -> Any:
        return pa.OSFile(os.fsencode(self.file), "rb")


def _runs(about: Any, groups: Iterable[int]) -> Iterator[tuple[list[int], int]]:
    """Yield consecutive row groups to read as one, and their rows; Arrow would hold the bytes of all until the end."""
    run: list[int] = []
    n_rows = n_bytes = 0
    for group in groups:
        found = about.row_group(group)
        if run and n_bytes + found.total_byte_size > _RUN:
            yield run, n_rows
            run, n_rows, n_bytes = [], 0, 0
        run.append(group)
        n_rows, n_bytes = n_rows + found.num_rows, n_bytes + found.total_byte_size
    if run:
        yield run, n_rows
