"""Parquet files, and the files of a pyarrow dataset, as tables, which have the columns and types of the dataset.

Parquet is read page by page, where Arrow's scan would decode whole row groups. Arrow reads little ahead: by default it
would hold whole files.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from lstd.errors import InvalidInputError
from lstd.tables.table import UNREADABLE, FrameTable, Table, could_not_be_read, equal_parts, shared

_BUFFER, _BUFFERS = 2**20, 2**23  # bytes of a column, and of all columns together
_PRE_BUFFERED, _MANY = 2**25, 128  # bytes of a row group, and columns, that are worth the time of small requests
_RUN = 2**22  # bytes of small row groups that are read as one
_READING = {"use_threads": False, "batch_readahead": 0, "fragment_readahead": 1}
_UNFIT = " Give the dataset a schema that fits all values, such as float64 for numbers, or give the paths of its files."


class ParquetTable(Table):
    """A file of Parquet."""

    def __init__(self, file: str, size: int, groups: Sequence[int] | None = None, pre_buffer: bool = False) -> None:
        super().__init__(file, size)
        self._groups, self._pre_buffer = groups, pre_buffer  # of which the bytes may be read at once and held
        with self._open() as parquet:
            self.names = shared(tuple(parquet.schema_arrow.names))
            about = parquet.metadata
            sizes = (about.row_group(group).total_byte_size for group in range(about.num_row_groups))
            self._n_rows, many = about.num_rows, len(self.names) > _MANY
            self._pre_buffer = pre_buffer or (many and max(sizes, default=0) <= _PRE_BUFFERED)

    @property
    def done(self) -> float:
        return self.rows_read / self._n_rows if self._n_rows else 0.0

    def _read(self, columns: list[str], most_rows: int) -> Iterator[pa.RecordBatch]:
        with self._open() as parquet:
            groups = range(parquet.num_row_groups) if self._groups is None else self._groups
            for run, n_rows in _runs(parquet.metadata, groups):
                size = equal_parts(n_rows, most_rows)
                for batch in parquet.iter_batches(size, run, columns, use_threads=False):
                    yield batch if batch.schema.names == columns else batch.select(columns)
            if self.rows_read != sum(parquet.metadata.row_group(group).num_rows for group in groups):
                raise could_not_be_read(self.file, "it has fewer rows than its metadata says")

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


# ------------------------------------------------------------ datasets; `pa.dataset` is imported, as one is given


def dataset_tables(dataset: Any) -> list[Table]:
    """Return the tables of a dataset in the order of its fragments: one for each file.

    Raises InvalidInputError for a filtered dataset: Arrow does not say which files the remaining rows come from.
    """
    try:
        if isinstance(dataset, pa.dataset.InMemoryDataset):
            rows = dataset.to_table()
            tables: list[Table] = [FrameTable("the dataset in memory", rows)] if len(rows) else []
        else:
            tables = [_fragment_table(fragment, dataset.schema) for fragment in dataset.get_fragments()]
    except InvalidInputError:
        raise
    except pa.ArrowException as error:
        raise could_not_be_read("the dataset", error) from error
    except ValueError as error:
        raise InvalidInputError(
            "`source` must be a dataset without a filter; give the rows that are left, `dataset.to_table()`, or write "
            "them to files first."
        ) from error
    if not tables:
        raise InvalidInputError("`source` must hold at least one file; got a dataset without files and rows.")
    return tables


def _fragment_table(fragment: Any, schema: pa.Schema) -> Table:
    if not isinstance(fragment, pa.dataset.FileFragment):
        return FrameTable("the dataset in memory", fragment.to_table(schema=schema))
    kind = _ParquetFragment if isinstance(fragment, pa.dataset.ParquetFileFragment) else _Fragment
    try:
        return kind(fragment, schema)
    except UNREADABLE as error:
        raise could_not_be_read(fragment.path, error) from error


class _Fragment(Table):
    """A file that Arrow scans, with the columns and types of the dataset."""

    def __init__(self, fragment: Any, schema: pa.Schema) -> None:
        self._fragment, self._schema = fragment, schema
        # A copy, since the dataset would keep what is known of each file that was read.
        self.own = shared(tuple(dict.fromkeys([*copy.copy(fragment).physical_schema.names, *_keys(fragment)])))
        super().__init__(fragment.path, 1, [name for name in schema.names if name in self.own])

    def _read(self, columns: list[str], most_rows: int) -> Iterator[pa.RecordBatch]:
        options = {"schema": self._schema, "batch_size": most_rows, **_READING}
        yield from copy.copy(self._fragment).to_batches(columns=columns, **options)

    def _unreadable(self, error: Exception) -> InvalidInputError:
        found = could_not_be_read(self.file, error)  # which rows came before depends on how far Arrow was ahead
        return InvalidInputError(f"{found}{_UNFIT}") if "conversion error" in str(error) else found


class _ParquetFragment(ParquetTable):
    """A file of Parquet in a dataset."""

    def __init__(self, fragment: Any, schema: pa.Schema) -> None:
        self._fragment, self._schema, self._keys = fragment, schema, _keys(fragment)
        # One request for the bytes of a row group, which are held, in place of many small ones over a network.
        filesystem = fragment.filesystem
        while isinstance(filesystem, pa.fs.SubTreeFileSystem):
            filesystem = filesystem.base_fs
        twin = copy.copy(fragment)
        some = twin.num_row_groups != twin.metadata.num_row_groups
        groups = [group.id for group in twin.row_groups] if some else None
        super().__init__(fragment.path, 1, groups, not isinstance(filesystem, pa.fs.LocalFileSystem))
        self._counted = [*self.names[:1]]
        self.own = shared(tuple(dict.fromkeys([*self.names, *self._keys])))
        self.names = shared(tuple(name for name in schema.names if name in self.own))

    def _read(self, columns: list[str], most_rows: int) -> Iterator[pa.RecordBatch]:
        # If all columns are those of the partition, another one gives the number of rows.
        in_file = [name for name in columns if name not in self._keys] or self._counted
        for batch in super()._read(in_file, most_rows):
            try:
                typed = [self._typed(batch, name) for name in columns]
            except UNREADABLE as error:
                raise InvalidInputError(f"{self._unreadable(error)}{_UNFIT}") from error
            yield pa.RecordBatch.from_arrays(typed, names=columns)

    def _typed(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        """Return a column in the type of the dataset, or of the values if that is a dictionary."""
        wanted = _type_of_values(self._schema.field(name).type)
        if name in self._keys:
            return pa.repeat(pa.scalar(self._keys[name], wanted), len(batch))
        array = batch.column(name)
        found = _type_of_values(array.type)
        # Other types of floats are not rounded to that of the first file.
        both_floating = pa.types.is_floating(found) and pa.types.is_floating(wanted)
        return array if found == wanted or both_floating else array.cast(wanted)

    def _source(self) -> Any:
        return self._fragment.open()


def _keys(fragment: Any) -> dict[str, Any]:
    """Return the values of the columns that are those of the partition."""
    return dict(pa.dataset.get_partition_keys(fragment.partition_expression))


def _type_of_values(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind
