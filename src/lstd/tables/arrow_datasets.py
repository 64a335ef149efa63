"""Tables of a pyarrow dataset: each of its files is one, with the columns and types of the dataset.

Arrow reads little ahead: by default it would hold whole files of Parquet, and decode whole row groups.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pyarrow.fs

from lstd.errors import InvalidInputError
from lstd.files import reason
from lstd.tables.parquet_table import ParquetTable
from lstd.tables.table import Table, with_names_shared
from lstd.tables.table_errors import could_not_be_read

_IN_MEMORY, _FILTERED = "the dataset in memory", "the filtered dataset"
_UNREADABLE = (pa.ArrowException, OSError, ValueError, MemoryError)
_READING = {"use_threads": False, "batch_readahead": 0, "fragment_readahead": 1}
_UNFIT = " Give the dataset a schema that fits all values, such as float64 for numbers, or give the paths of its files."

_Scan = Callable[[list[str], int], Iterator[pa.RecordBatch]]  # of columns, in batches of so many rows at most
_Parts = Callable[[], Iterable[Table]]


def dataset_tables(dataset: pyarrow.dataset.Dataset, *, independent: bool = False) -> list[Table]:
    """Return the tables of a dataset in the order of its fragments: one for each file.

    Data in memory, and a filtered dataset, are one table each: Arrow does not say which files the remaining rows come
    from. So `independent`, for which each file begins an episode, is refused for them.
    """
    try:
        fragments = list(dataset.get_fragments())
    except pa.ArrowException as error:
        raise could_not_be_read("the dataset", error) from error
    except ValueError:  # it is filtered
        scan, parts = partial(_of_filtered, dataset), partial(_files_of, dataset)
        tables: list[Table] = [_ScannedTable(_FILTERED, dataset.schema.names, scan, parts)]
    else:
        tables = with_names_shared(_of_all(fragments, dataset.schema))
    if not tables:
        raise InvalidInputError("`source` must hold at least one file; got a dataset without files and rows.")
    for table in tables:
        if independent and not table.divisible:
            raise InvalidInputError(
                f"`independent` must be False for {table.file}, which does not say where files begin; give a dataset "
                "of files without a filter, or name a column of episode ids that never occur again."
            )
    return tables


def _of_all(fragments: Sequence[Any], schema: pa.Schema) -> Iterator[Table]:
    for is_file, group in groupby(fragments, lambda fragment: isinstance(fragment, pyarrow.dataset.FileFragment)):
        if is_file:
            yield from (_of_file(fragment, schema) for fragment in group)
        else:
            yield _of_memory(list(group), schema)


class _ScannedTable(Table):
    """Rows that Arrow scans, converted to the types of the dataset.

    `parts` returns the tables that the rows come from. If one of them cannot be read, errors name it.
    """

    text = False

    def __init__(self, file: str, names: Sequence[str], scan: _Scan, parts: _Parts = tuple) -> None:
        super().__init__(file, 1)
        self.names = self.own = list(names)
        self._scan, self._parts = scan, parts
        self.divisible = file not in (_IN_MEMORY, _FILTERED)

    def done(self) -> float:
        return 0.0

    def batches(self, columns: Sequence[str], most_rows: int = 2**15) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._scan(list(columns), most_rows)
        except _UNREADABLE as error:
            self._check_parts(columns, most_rows)
            # Which rows came before depends on how far Arrow was ahead.
            raise _unreadable(self.file, error, unfit="conversion error" in str(error)) from error

    def _check_parts(self, columns: Sequence[str], most_rows: int) -> None:
        """Read the parts: first these columns, then the others, which a filter may use."""
        for wanted in (set(columns), set(self.names) - set(columns)):
            for part in self._parts():
                names = [name for name in part.names if name in wanted]
                for _ in part.batches(names, most_rows) if names else ():
                    pass


class _ParquetFragment(ParquetTable):
    """A file of Parquet, read page by page, where Arrow's scan would decode a row group at a time."""

    def __init__(self, fragment: Any, schema: pa.Schema) -> None:
        self._fragment, self._schema = fragment, schema
        self._keys = pyarrow.dataset.get_partition_keys(fragment.partition_expression)
        # One request for the bytes of a row group, which are held, in place of many small ones over a network.
        self._pre_buffer = not isinstance(_base(fragment.filesystem), pyarrow.fs.LocalFileSystem)
        super().__init__(fragment.path, 1)
        self._counted = self.names[:1]
        self.own = list(dict.fromkeys([*self.names, *self._keys]))
        self.names = _present(schema, self.own)

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
        own = list(dict.fromkeys([*twin.physical_schema.names, *keys]))
        parts = partial(_groups_of, fragment, schema) if is_parquet else tuple
    except InvalidInputError:
        raise
    except _UNREADABLE as error:
        raise could_not_be_read(file, reason(error) if isinstance(error, OSError) else error) from error
    table = _ScannedTable(file, _present(schema, own), partial(_of_fragments, [fragment], schema), parts)
    table.own = own
    return table


def _groups_of(fragment: Any, schema: pa.Schema) -> Iterator[Table]:
    """Tables of the row groups of a file of Parquet."""
    for one in _alone(fragment).split_by_row_group():
        file = f"{one.path}: row group {one.row_groups[0].id + 1}"
        yield _ScannedTable(file, _present(schema, one.physical_schema.names), partial(_of_fragments, [one], schema))


def _of_memory(fragments: Sequence[Any], schema: pa.Schema) -> Table:
    named = [set(fragment.physical_schema.names) for fragment in fragments]
    return _ScannedTable(
        _IN_MEMORY, _present(schema, set.intersection(*named)), partial(_of_fragments, fragments, schema)
    )


def _present(schema: pa.Schema, names: Any) -> list[str]:
    """Return the columns of the dataset that a file has; Arrow would fill the others with nulls."""
    return [name for name in schema.names if name in names]


def _alone(fragment: Any) -> Any:
    """Copy the fragment of a file: the dataset would keep the footer of each file that was read."""
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


def _files_of(dataset: Any) -> Iterator[Table]:
    """Yield the tables of the files of a filtered dataset, which does not give its fragments."""
    for child in _children(dataset):
        for file in getattr(child, "files", ()):
            yield _of_file(child.format.make_fragment(file, child.filesystem), dataset.schema)


def _children(dataset: Any) -> Iterator[Any]:
    """Yield the datasets of a union, or the dataset itself."""
    if not isinstance(dataset, pyarrow.dataset.UnionDataset):
        yield dataset
        return
    for child in dataset.children:
        yield from _children(child)


def _options(formats: Sequence[Any]) -> dict[str, Any]:
    """Return options that keep Arrow from holding whole files of Parquet; other formats do not accept them."""
    if not all(isinstance(one, pyarrow.dataset.ParquetFileFormat) for one in formats):
        return {}
    options = pyarrow.dataset.ParquetFragmentScanOptions(
        use_buffered_stream=True, buffer_size=2**16, pre_buffer=False, page_checksum_verification=True
    )
    return {"fragment_scan_options": options}


def _unreadable(where: str, error: Exception, *, unfit: bool) -> InvalidInputError:
    found = could_not_be_read(where, reason(error) if isinstance(error, OSError) else error)
    return InvalidInputError(f"{found}{_UNFIT}") if unfit else found
