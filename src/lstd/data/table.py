"""A table: named columns, read as batches of rows: a data frame, a file of Parquet, the files of a dataset; and errors.

Parquet is read page by page, where Arrow's scan would decode whole row groups. Arrow reads little ahead: by default it
would hold whole files. The files of a dataset have its columns and types.
"""

from __future__ import annotations

import copy
import csv
import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from lstd.data.arguments import listed
from lstd.data.arrow_columns import arrow_batches, arrow_table, freq_of, names_of, with_starts_of_periods
from lstd.data.identity import NO_VALUE
from lstd.data.ids import quoting
from lstd.errors import InvalidInputError
from lstd.files import reason

UNREADABLE = (pa.ArrowException, OSError, EOFError, zlib.error, csv.Error, ValueError, MemoryError)  # errors of files
FROM_ONE = "(the first row of data is 1)"


class Table:
    """A file with named columns, read in batches; `file` is its name as given, `size` its bytes."""

    names: Sequence[str]  # of columns
    own: Sequence[str] = ()  # of columns of the file itself, if a dataset has only some of them
    text = False  # whether values are text
    kind = "file"  # in messages

    def __init__(self, file: str, size: int, names: Sequence[str] = ()) -> None:
        self.file = file
        self.size = size
        self.names = shared(tuple(names))
        self.report: Callable[[float], object] = float  # called with the share of the file that was read
        self.rows_read = 0

    def require(self, columns: Sequence[str]) -> None:
        """Check that columns are there, each once."""
        counts = Counter(self.names)
        for column in columns:
            found = counts[column]
            if not found:
                raise self._no_column(column)
            if found > 1:
                raise InvalidInputError(f"{self.file}: column {column!r} appears {found} times; rename all but one.")

    def _no_column(self, column: str) -> InvalidInputError:
        """Return the error for a column that is missing, with a hint if the cause can be seen in the names."""
        names = self.own or self.names
        but_for_spaces = [name for name in names if name.strip() == column.strip()]
        hint = ""
        if len(names) == 1 and {";", "\t", "|"} & set(names[0]):
            hint = " Separate values by commas."
        elif but_for_spaces:
            hint = f" Spaces count: write '\"{but_for_spaces[0]}\"' for {but_for_spaces[0]!r}."
        return InvalidInputError(
            f"{self.file}: column {column!r} is missing; the {self.kind} has {listed([*map(repr, names)])}.{hint}"
        )

    def error(self, row: int, column: str, text: str) -> InvalidInputError:
        """Return the error for a value of a row, counted from 0, which is read again if it counts as no value."""
        value = None
        if NO_VALUE in text:
            value = self.cell(row, column)
        return at_row(self.file, row, column, quoting(text, value))

    def cell(self, row: int, column: str) -> Any:
        """Return a value, as text if the table has text."""
        for batch in self.records([column]):
            if row < len(batch):
                return batch.column(0)[row].as_py()
            row -= len(batch)
        return None

    def records(self, columns: Sequence[str], most_rows: int = 2**15) -> Iterator[pa.RecordBatch]:
        """Yield batches as `batches` does, of text parsed; raises InvalidInputError at a row that cannot be read."""
        for batch in self.batches(columns, most_rows):
            found = batch
            failure = None
            if self.text:
                found, failure = batch.parsed(columns)
            if found is not None:
                yield found
            if failure is not None:
                raise failure

    def batches(self, columns: Sequence[str], most_rows: int = 2**15) -> Iterator[Any]:
        """Yield batches of these columns in the order of rows, up to the first row that cannot be read.

        Batches have at most about `most_rows` rows. Those of CSV are instances of `lstd.data.csv_table.TextBlock`.
        """
        self.rows_read = 0
        self.report(0.0)
        try:
            for batch in self._read([*columns], most_rows):
                size = equal_parts(len(batch), most_rows)
                for first in range(0, len(batch), size):
                    part = batch[first : first + size]
                    self.rows_read += len(part)
                    yield part
                    self.report(self.done)
        except InvalidInputError:
            raise
        except UNREADABLE as error:
            raise self._unreadable(error) from error
        self.report(1.0)

    def _read(self, columns: list[str], most_rows: int) -> Iterator[Any]:
        """Yield batches, which may be larger; may raise any of `UNREADABLE`."""
        raise NotImplementedError

    def _unreadable(self, error: Exception) -> InvalidInputError:
        """Return the error for the rows after those that were read."""
        return could_not_be_read(f"{self.file}, after row {self.rows_read},", error)

    @property
    def done(self) -> float:
        """Share of the table that has been read."""
        return 0.0


class FrameTable(Table):
    """A data frame as a table; `file` names it in errors."""

    kind = "data frame"

    def __init__(self, file: str, frame: Any) -> None:
        self._frame = arrow_table(file, frame)
        super().__init__(file, 1, [*map(str, names_of(self._frame))])

    def _read(self, columns: list[str], most_rows: int) -> Iterator[pa.RecordBatch]:
        return arrow_batches(self._frame, columns, most_rows)


@lru_cache(maxsize=64)
def shared(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the same object for equal names of columns, since there may be many files."""
    return names


def equal_parts(n_rows: int, about: int) -> int:
    """Return the size of nearly equal parts of `n_rows` rows: about `about` rows, and at most half as many more."""
    return max(1, -(-n_rows // max(1, round(n_rows / about))))


def at_row(file: str, row: int, column: str, text: str, name: str = "") -> InvalidInputError:
    """Return the error for a value; its row is counted from 0, and may have a name too."""
    return InvalidInputError(f"{file}: column {column!r}, row {row + 1} {FROM_ONE}{name}: {text}")


def could_not_be_read(file: str, why: object) -> InvalidInputError:
    """Return the error for a file that is missing or damaged."""
    text = reason(why) if isinstance(why, OSError) else str(why)
    return InvalidInputError(f"{file} could not be read: {' '.join(text.split()).rstrip('.')}.")


# ------------------------------------------------------------ files of Parquet and datasets


_BUFFER = 2**20  # bytes of a column
_BUFFERS = 2**23  # bytes of all columns together
_PRE_BUFFERED = 2**25  # bytes of a row group whose many columns are read at once
_MANY = 128  # columns that are worth the time of small requests
_RUN = 2**22  # bytes of small row groups that are read as one
_READING = {"use_threads": False, "batch_readahead": 0, "fragment_readahead": 1}
_UNFIT = " Give the dataset a schema that fits all values, such as float64 for numbers, or give the paths of its files."


class ParquetTable(Table):
    """A file of Parquet."""

    def __init__(self, file: str, size: int, groups: Sequence[int] | None = None, pre_buffer: bool = False) -> None:
        super().__init__(file, size)
        self._groups = groups
        self._pre_buffer = pre_buffer  # whether the bytes of a group may be read at once and held
        with self._open() as parquet:
            self.names = shared(tuple(parquet.schema_arrow.names))
            about = parquet.metadata
            sizes = (about.row_group(group).total_byte_size for group in range(about.num_row_groups))
            self._n_rows = about.num_rows
            if len(self.names) > _MANY and max(sizes, default=0) <= _PRE_BUFFERED:
                self._pre_buffer = True

    @property
    def done(self) -> float:
        if not self._n_rows:
            return 0.0
        return float(self.rows_read / self._n_rows)

    def _read(self, columns: list[str], most_rows: int) -> Iterator[pa.RecordBatch]:
        with self._open() as parquet:
            groups = self._groups
            if groups is None:
                groups = range(parquet.num_row_groups)
            for run, n_rows in _runs(parquet.metadata, groups):
                size = equal_parts(n_rows, most_rows)
                for batch in parquet.iter_batches(size, run, columns, use_threads=False):
                    chosen = batch if batch.schema.names == columns else batch.select(columns)
                    yield with_starts_of_periods(chosen, chosen.schema)
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
    n_rows = 0
    n_bytes = 0
    for group in groups:
        found = about.row_group(group)
        if run and n_bytes + found.total_byte_size > _RUN:
            yield run, n_rows
            run = []
            n_rows = 0
            n_bytes = 0
        run.append(group)
        n_rows += found.num_rows
        n_bytes += found.total_byte_size
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
            tables: list[Table] = []
            if len(rows):
                tables.append(FrameTable("the dataset in memory", rows))
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
    try:
        if isinstance(fragment, pa.dataset.ParquetFileFragment):
            return _ParquetFragment(fragment, schema)
        return _Fragment(fragment, schema)
    except UNREADABLE as error:
        raise could_not_be_read(fragment.path, error) from error


class _Fragment(Table):
    """A file that Arrow scans, with the columns and types of the dataset."""

    def __init__(self, fragment: Any, schema: pa.Schema) -> None:
        self._fragment = fragment
        self._schema = schema
        # A copy, since the dataset would keep what is known of each file that was read.
        self.own = shared(tuple(dict.fromkeys([*copy.copy(fragment).physical_schema.names, *_keys(fragment)])))
        super().__init__(fragment.path, 1, [name for name in schema.names if name in self.own])

    def _read(self, columns: list[str], most_rows: int) -> Iterator[pa.RecordBatch]:
        options = {"schema": self._schema, "batch_size": most_rows, **_READING}
        for batch in copy.copy(self._fragment).to_batches(columns=columns, **options):
            yield with_starts_of_periods(batch, self._schema)

    def _unreadable(self, error: Exception) -> InvalidInputError:
        found = could_not_be_read(self.file, error)  # which rows came before depends on how far Arrow was ahead
        if "conversion error" not in str(error):
            return found
        return InvalidInputError(f"{found}{_UNFIT}")


class _ParquetFragment(ParquetTable):
    """A file of Parquet in a dataset."""

    def __init__(self, fragment: Any, schema: pa.Schema) -> None:
        self._fragment = fragment
        self._schema = schema
        self._keys = _keys(fragment)
        # One request for the bytes of a row group, which are held, in place of many small ones over a network.
        filesystem = fragment.filesystem
        while isinstance(filesystem, pa.fs.SubTreeFileSystem):
            filesystem = filesystem.base_fs
        twin = copy.copy(fragment)
        groups = None
        if twin.num_row_groups != twin.metadata.num_row_groups:
            groups = [group.id for group in twin.row_groups]
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
        if freq_of(self._schema.field(name)) is not None:
            return array
        found = _type_of_values(array.type)
        # Other types of floats are not rounded to that of the first file.
        both_floating = pa.types.is_floating(found) and pa.types.is_floating(wanted)
        if found == wanted or both_floating:
            return array
        return array.cast(wanted)

    def _source(self) -> Any:
        return self._fragment.open()


def _keys(fragment: Any) -> dict[str, Any]:
    """Return the values of the columns that are those of the partition."""
    return dict(pa.dataset.get_partition_keys(fragment.partition_expression))


def _type_of_values(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind
