"""Tables of a pyarrow dataset: each of its files is one, with the columns and types of the dataset.

Arrow reads little ahead: by default it would hold whole files of Parquet, and decode whole row groups.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pyarrow.fs

from lstd.errors import InvalidInputError
from lstd.files import reason
from lstd.tables.parquet_table import ParquetTable
from lstd.tables.table import FrameTable, Table, shared
from lstd.tables.table_errors import could_not_be_read

_UNREADABLE = (pa.ArrowException, OSError, ValueError, MemoryError)
_READING = {"use_threads": False, "batch_readahead": 0, "fragment_readahead": 1}
_UNFIT = " Give the dataset a schema that fits all values, such as float64 for numbers, or give the paths of its files."


def dataset_tables(dataset: pyarrow.dataset.Dataset) -> list[Table]:
    """Return the tables of a dataset in the order of its fragments: one for each file.

    Raises InvalidInputError for a filtered dataset: Arrow does not say which files the remaining rows come from.
    """
    try:
        if isinstance(dataset, pyarrow.dataset.InMemoryDataset):
            parts = [_of_rows(dataset.to_table())]
        else:
            parts = [_of_file(fragment, dataset.schema) for fragment in dataset.get_fragments()]
    except InvalidInputError:
        raise
    except pa.ArrowException as error:
        raise could_not_be_read("the dataset", error) from error
    except ValueError as error:
        raise InvalidInputError(
            "`source` must be a dataset without a filter; give the rows that are left, `dataset.to_table()`, or write "
            "them to files first."
        ) from error
    tables = [table for table in parts if table is not None]
    if not tables:
        raise InvalidInputError("`source` must hold at least one file; got a dataset without files and rows.")
    return tables


def _of_file(fragment: Any, schema: pa.Schema) -> Table | None:
    """Return the table of a file, or of data in memory; None for data without rows."""
    if not isinstance(fragment, pyarrow.dataset.FileFragment):
        return _of_rows(fragment.to_table(schema=schema))
    try:
        if isinstance(fragment, pyarrow.dataset.ParquetFileFragment):
            return _ParquetFragment(fragment, schema)
        return _Fragment(fragment, schema)
    except InvalidInputError:
        raise
    except _UNREADABLE as error:
        raise could_not_be_read(fragment.path, reason(error) if isinstance(error, OSError) else error) from error


def _of_rows(rows: pa.Table) -> Table | None:
    return FrameTable("the dataset in memory", rows) if len(rows) else None


class _Fragment(Table):
    """A file that Arrow scans, with the columns and types of the dataset."""

    def __init__(self, fragment: Any, schema: pa.Schema) -> None:
        self._fragment, self._schema = fragment, schema
        # A copy, since the dataset would keep what is known of each file that was read.
        self.own = shared(tuple(dict.fromkeys([*copy.copy(fragment).physical_schema.names, *_keys(fragment)])))
        super().__init__(fragment.path, 1, [name for name in schema.names if name in self.own])

    def batches(self, columns: Sequence[str], most_rows: int = 2**15) -> Iterator[pa.RecordBatch]:
        fragment, options = copy.copy(self._fragment), {"schema": self._schema, "batch_size": most_rows, **_READING}
        try:
            yield from fragment.to_batches(columns=list(columns), **options)
        except _UNREADABLE as error:  # which rows came before depends on how far Arrow was ahead
            raise _unreadable(self.file, error, unfit="conversion error" in str(error)) from error


class _ParquetFragment(ParquetTable):
    """A file of Parquet, read page by page, where Arrow's scan would decode a row group at a time."""

    def __init__(self, fragment: Any, schema: pa.Schema) -> None:
        self._fragment, self._schema, self._keys = fragment, schema, _keys(fragment)
        # One request for the bytes of a row group, which are held, in place of many small ones over a network.
        filesystem = fragment.filesystem
        while isinstance(filesystem, pyarrow.fs.SubTreeFileSystem):
            filesystem = filesystem.base_fs
        self._pre_buffer = not isinstance(filesystem, pyarrow.fs.LocalFileSystem)
        twin = copy.copy(fragment)
        if twin.num_row_groups != twin.metadata.num_row_groups:
            self._groups = [group.id for group in twin.row_groups]
        super().__init__(fragment.path, 1)
        self._counted = self.names[:1]
        self.own = shared(tuple(dict.fromkeys([*self.names, *self._keys])))
        self.names = shared(tuple(name for name in schema.names if name in self.own))

    def batches(self, columns: Sequence[str], most_rows: int = 2**15) -> Iterator[pa.RecordBatch]:
        # If all columns are those of the partition, another one gives the number of rows.
        in_file = [name for name in columns if name not in self._keys] or self._counted
        n_rows = 0
        for batch in super().batches(in_file, most_rows):
            try:
                typed = [self._typed(batch, name) for name in columns]
            except _UNREADABLE as error:
                raise _unreadable(f"{self.file}, after row {n_rows},", error, unfit=True) from error
            n_rows += len(batch)
            yield pa.RecordBatch.from_arrays(typed, names=list(columns))

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
    return dict(pyarrow.dataset.get_partition_keys(fragment.partition_expression))


def _type_of_values(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _unreadable(where: str, error: Exception, *, unfit: bool) -> InvalidInputError:
    found = could_not_be_read(where, reason(error) if isinstance(error, OSError) else error)
    return InvalidInputError(f"{found}{_UNFIT}") if unfit else found
