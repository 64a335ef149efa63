"""Tables of a pyarrow dataset: each of its files is one, with the columns and types of the dataset.

What Arrow reads ahead is kept small: it would hold whole files of Parquet, and decode whole row groups.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pyarrow.fs

from lstd._files import reason
from lstd.errors import InvalidInputError
from lstd.tables.faults import could_not_be_read
from lstd.tables.files import ParquetTable, Table

_IN_MEMORY, _FILTERED = "the dataset in memory", "the filtered dataset"
_UNREADABLE = (pa.ArrowException, OSError, ValueError, MemoryError)
_READING = {"use_threads": False, "batch_readahead": 0, "fragment_readahead": 1}
_UNFIT = " Give the dataset a schema that fits all values, such as float64 for numbers, or give the paths of its files."

_Scan = Callable[[list[str], int], Iterator[pa.RecordBatch]]  # of columns, in batches of so many rows at most


def dataset_tables(dataset: pyarrow.dataset.Dataset, *, independent: bool = False) -> list[Table]:
    """Tables of a dataset in the order of its fragments: one for each file.

    Data in memory, and a dataset that is filtered, are one table each: batches have nothing to say, and nobody tells
    which files the rows that are left come from.

    Parameters
    ----------
    dataset : pyarrow.dataset.Dataset
    independent : bool, default False
        Whether each file is to begin an episode.

    Raises
    ------
    InvalidInputError
        When there are no files, one cannot be read, or where files begin is asked for and not known.

    Examples
    --------
    >>> import pyarrow as pa, pyarrow.dataset as ds
    >>> [table] = dataset_tables(ds.dataset(pa.table({"x": [1.0, 2.0, 3.0]})))
    >>> table.file, table.names
    ('the dataset in memory', ['x'])
    """
    try:
        fragments = list(dataset.get_fragments())
    except pa.ArrowException as error:
        raise could_not_be_read("the dataset", error) from error
    except ValueError:  # it is filtered
        tables: list[Table] = [_ScannedTable(_FILTERED, dataset.schema.names, partial(_of_filtered, dataset))]
    else:
        tables = []
        for is_file, group in groupby(fragments, lambda fragment: isinstance(fragment, pyarrow.dataset.FileFragment)):
            several = list(group)
            tables += [_of_file(one, dataset.schema) for one in several] if is_file else [_of_memory(several, dataset)]
    if not tables:
        raise InvalidInputError("`paths` must hold at least one file; got a dataset without files and rows.")
    for table in tables:
        if independent and table.file in (_IN_MEMORY, _FILTERED):
            raise InvalidInputError(
                f"`independent` must be False for {table.file}, which does not tell where files begin; give a dataset "
                "of files without a filter, or name a column of episode ids that never come again."
            )
    return tables


class _ScannedTable(Table):
    """Rows that Arrow scans, converted to the types of the dataset."""

    text = False

    def __init__(self, file: str, names: Sequence[str], scan: _Scan) -> None:
        super().__init__(file, 1)
        self.names, self._scan = list(names), scan

    def done(self) -> float:
        return 0.0

    def batches(self, columns: Sequence[str], most_rows: int = 2**15) -> Iterator[pa.RecordBatch]:
        n_rows = 0
        try:
            for batch in self._scan(list(columns), most_rows):
                n_rows += len(batch)
                yield batch
        except _UNREADABLE as error:
            raise _unreadable(self.file, n_rows, error, unfit="conversion error" in str(error)) from error


class _ParquetFragment(ParquetTable):
    """A file of Parquet, read page by page, where Arrow's scan would decode a row group at a time."""

    def __init__(self, fragment: Any, schema: pa.Schema) -> None:
        self._fragment, self._schema = fragment, schema
        self._keys = pyarrow.dataset.get_partition_keys(fragment.partition_expression)
        # One request for the bytes of a row group, which are held, in place of many small ones over a network.
        self._pre_buffer = not isinstance(_base(fragment.filesystem), pyarrow.fs.LocalFileSystem)
        super().__init__(fragment.path, 1)
        self._in_file = self.names
        self.names = _present(schema, [*self._in_file, *self._keys])

    def batches(self, columns: Sequence[str], most_rows: int = 2**15) -> Iterator[pa.RecordBatch]:
        # Where all columns are those of the partition, another tells how many rows there are.
        in_file = [name for name in columns if name not in self._keys] or self._in_file[:1]
        n_rows = 0
        for batch in super().batches(in_file, most_rows):
            try:
                typed = [self._typed(batch, name) for name in columns]
            except _UNREADABLE as error:
                raise _unreadable(self.file, n_rows, error, unfit=True) from error
            n_rows += len(batch)
            yield pa.RecordBatch.from_arrays(typed, names=list(columns))

    def _typed(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        """A column in the type of the dataset, or, where that is a dictionary's, of its values."""
        wanted = _type_of_values(self._schema.field(name).type)
        if name in self._keys:
            return pa.repeat(pa.scalar(self._keys[name], wanted), len(batch))
        array = batch.column(name)
        return array if _type_of_values(array.type) == wanted else array.cast(wanted)

    def _source(self) -> Any:
        return self._fragment.open()


def _base(filesystem: Any) -> Any:
    while isinstance(filesystem, pyarrow.fs.SubTreeFileSystem):
        filesystem = filesystem.base_fs
    return filesystem


def _type_of_values(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _of_file(fragment: Any, schema: pa.Schema) -> Table:
    file, twin = fragment.path, _alone(fragment)
    try:
        is_parquet = isinstance(twin, pyarrow.dataset.ParquetFileFragment)
        if is_parquet and twin.num_row_groups == twin.metadata.num_row_groups:
            return _ParquetFragment(fragment, schema)
        keys = pyarrow.dataset.get_partition_keys(fragment.partition_expression)
        names = _present(schema, [*twin.physical_schema.names, *keys])
    except InvalidInputError:
        raise
    except _UNREADABLE as error:
        raise could_not_be_read(file, reason(error) if isinstance(error, OSError) else error) from error
    return _ScannedTable(file, names, partial(_of_fragments, [fragment], schema))


def _of_memory(fragments: Sequence[Any], dataset: pyarrow.dataset.Dataset) -> Table:
    named = [set(fragment.physical_schema.names) for fragment in fragments]
    names = _present(dataset.schema, set.intersection(*named))
    return _ScannedTable(_IN_MEMORY, names, partial(_of_fragments, fragments, dataset.schema))


def _present(schema: pa.Schema, names: Any) -> list[str]:
    """Columns of the dataset that a file has; Arrow would fill the others with nulls."""
    return [name for name in schema.names if name in names]


def _alone(fragment: Any) -> Any:
    """A copy of a file's fragment: the dataset would keep the footer of each file, once it was read."""
    return copy.copy(fragment) if isinstance(fragment, pyarrow.dataset.FileFragment) else fragment


def _of_fragments(
    fragments: Sequence[Any], schema: pa.Schema, columns: list[str], most_rows: int
) -> Iterator[pa.RecordBatch]:
    for fragment in map(_alone, fragments):
        options = _options([getattr(fragment, "format", None)])
        yield from fragment.to_batches(schema=schema, columns=columns, batch_size=most_rows, **options, **_READING)


def _of_filtered(dataset: Any, columns: list[str], most_rows: int) -> Iterator[pa.RecordBatch]:
    options = _options([getattr(child, "format", None) for child in _children(dataset)])
    yield from dataset.to_batches(columns=columns, batch_size=most_rows, **options, **_READING)


def _children(dataset: Any) -> Iterator[Any]:
    """The datasets that one consists of."""
    if not isinstance(dataset, pyarrow.dataset.UnionDataset):
        yield dataset
        return
    for child in dataset.children:
        yield from _children(child)


def _options(formats: Sequence[Any]) -> dict[str, Any]:
    """What keeps Arrow from holding whole files of Parquet; other formats do not take it."""
    if not all(isinstance(one, pyarrow.dataset.ParquetFileFormat) for one in formats):
        return {}
    options = pyarrow.dataset.ParquetFragmentScanOptions(
        use_buffered_stream=True, buffer_size=2**16, pre_buffer=False, page_checksum_verification=True
    )
    return {"fragment_scan_options": options}


def _unreadable(file: str, n_rows: int, error: Exception, *, unfit: bool) -> InvalidInputError:
    why = reason(error) if isinstance(error, OSError) else error
    found = could_not_be_read(f"{file}, after row {n_rows},", why)
    return InvalidInputError(f"{found}{_UNFIT}") if unfit else found
