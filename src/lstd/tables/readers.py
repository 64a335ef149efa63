"""Tables in files as batches of rows: columns of text from CSV, typed columns from Parquet.

Only the current batch is in memory. Values of CSV stay text here: a bad value is reported with its row, and types do
not depend on the first rows.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import os
import re
import stat
import sys
import threading
import time
import traceback
import weakref
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from lstd.errors import InvalidInputError
from lstd.io.files import reason
from lstd.tables.table_errors import at_row, could_not_be_read, no_column

EXTENSIONS = (".csv", ".csv.gz", ".parquet")
BLOCK_BYTES = 2**18  # of a CSV file read at once, of which Arrow reads 32 ahead; no row may be longer than a block
_BYTES_PER_COLUMN = 512  # a block holds a row of so many bytes per column at least
_COUNTED_BYTES = 2**20
_PARQUET_BUFFER, _PARQUET_BUFFERS = 2**20, 2**23  # of a column, and of all columns together
_PRE_BUFFERED = 2**25  # bytes of a row group that are worth the time of many small requests
_UNREADABLE = (pa.ArrowException, OSError, EOFError, zlib.error, csv.Error, ValueError, MemoryError)
_OTHER_FORMATS = {
    b"\x1f\x8b": "is compressed by gzip; rename it to end in .csv.gz.",
    b"\xff\xfe": "is UTF-16 text; save the file as UTF-8.",
    b"\xfe\xff": "is UTF-16 text; save the file as UTF-8.",
    b"PAR1": "is a Parquet file; rename it to end in .parquet.",
    b"PK\x03\x04": "is a workbook or a zip archive; save the table as CSV.",
}
_MAGIC_BYTES = 4
_SECONDS_TO_RELEASE = 1.0  # at most
_CONVERSION = re.compile(r"CSV column #(\d+): Row #(\d+):")
_RAGGED = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+)")

_lock = threading.Lock()
_silent = 0
_hook: Any = None  # sys.unraisablehook while it is replaced


class Table:
    """A file with named columns, read in batches; `file` is its name as given, `size` its bytes."""

    names: list[str]  # of columns
    own: list[str]  # of columns in the file itself; `names` may be fewer
    text: bool  # whether values are text
    divisible = True  # whether it is a file or a frame, and not a stream of several

    def __init__(self, file: str, size: int) -> None:
        self.file, self.size = file, size

    def require(self, columns: Sequence[str]) -> None:
        """Check that columns are there, each once."""
        for column in columns:
            found = self.names.count(column)
            if not found:
                raise no_column(self.file, column, self.own)
            if found > 1:
                raise InvalidInputError(f"{self.file}: column {column!r} appears {found} times; rename all but one.")

    def batches(self, columns: Sequence[str], most_rows: int = 2**15) -> Iterator[pa.RecordBatch]:
        """Yield batches of these columns in the order of rows, up to the first row that cannot be read.

        Batches of typed columns have at most about `most_rows` rows; those of text have the bytes of a block.
        """
        raise NotImplementedError

    def done(self) -> float:
        """Return the share of the file that has been read."""
        raise NotImplementedError


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
        return _CsvTable(file, status.st_size, lower.endswith(".gz"))
    except InvalidInputError:
        raise
    except _UNREADABLE as error:
        raise could_not_be_read(file, reason(error) if isinstance(error, OSError) else error) from error


class WatchedTable(Table):
    """A table whose reading is reported: `tell` is called with the share that was read."""

    def __init__(self, table: Table, tell: Callable[[float], None]) -> None:
        super().__init__(table.file, table.size)
        self.names, self.own, self.text, self.divisible = table.names, table.own, table.text, table.divisible
        self.require, self.done = table.require, table.done  # type: ignore[method-assign]
        self._table, self._tell = table, tell

    def batches(self, columns: Sequence[str], most_rows: int = 2**15) -> Iterator[pa.RecordBatch]:
        self._tell(0.0)
        for batch in self._table.batches(columns, most_rows):
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


def equal_parts(n_rows: int, about: int) -> int:
    """Return the size of nearly equal parts of `n_rows` rows: about `about` rows, and at most half as many more."""
    return max(1, -(-n_rows // max(1, round(n_rows / about))))


class _CsvTable(Table):
    text = True

    def __init__(self, file: str, size: int, compressed: bool) -> None:
        super().__init__(file, size)
        self._compressed = compressed
        self._native: Any = None
        self.names = self.own = self._header()
        self._block = max(BLOCK_BYTES, _BYTES_PER_COLUMN * len(self.names))

    def _header(self) -> list[str]:
        with self._open() as stream:
            start = stream.read(_MAGIC_BYTES)
        for magic, said in _OTHER_FORMATS.items():
            if start.startswith(magic):
                raise InvalidInputError(f"{self.file} {said}")
        try:
            with self._open() as stream, io.TextIOWrapper(stream, "utf-8-sig", "surrogateescape", newline="") as text:
                header = next((row for row in csv.reader(text) if row), None)
            "".join(header or ()).encode()  # refuses what was not UTF-8
        except UnicodeError as error:
            raise InvalidInputError(
                f"{self.file}: its first line is not UTF-8 text; save the file as UTF-8."
            ) from error
        if header is None:
            raise InvalidInputError(f"{self.file} is empty; its first line must name the columns.")
        return header

    def done(self) -> float:
        if self._native is None or not self.size:
            return 0.0
        return min(1.0, float(self._native.tell()) / self.size)

    def batches(self, columns: Sequence[str], most_rows: int = 2**15) -> Iterator[pa.RecordBatch]:
        ragged: list[Any] = []
        n_rows = 0
        failure: InvalidInputError | None = None
        skip = RaggedRows(ragged)
        held = weakref.ref(skip)
        batches = without_noise(partial(self._reader, self._stream(), columns, skip))
        del skip
        try:
            for batch in batches:
                whole = batch[: ragged[0].number - 2 - n_rows] if ragged else batch
                n_rows += len(whole)
                yield whole
                if ragged and ragged[0].number - 2 <= n_rows:
                    break
        except _UNREADABLE as error:
            failure = self._unreadable(error, n_rows)
        except BaseException as error:  # an interrupt, whose traceback would hold what is waited for
            traceback.clear_frames(error.__traceback__)
            raise
        finally:
            batches.close()
            self._native = None
            _wait_for_release(held)
        if ragged:
            failure = self._ragged(ragged[0].number, ragged[0].expected_columns, ragged[0].actual_columns)
        if failure is not None:
            raise failure
        if self._may_end_in_quotes() and self._ends_in_quotes():
            raise InvalidInputError(
                f"{self.file}: a quote is not closed by the end of the file, so the rows after it are read as text; "
                "close or remove it."
            )

    @contextlib.contextmanager
    def _open(self) -> Iterator[IO[bytes]]:
        with open(self.file, "rb") as raw:
            if self._compressed:
                with gzip.open(raw) as stream:
                    yield stream  # type: ignore[misc]
            else:
                yield raw

    def _stream(self) -> Any:
        """Open the file for Arrow, whose threads must never need Python: one that does at exit aborts the process.

        It is closed with its last reference, as a thread may be reading ahead.
        """
        self._native = pa.OSFile(os.fsencode(self.file), "rb")  # a name need not be UTF-8
        return pa.CompressedInputStream(self._native, "gzip") if self._compressed else self._native

    def _reader(self, stream: Any, columns: Sequence[str], skip: RaggedRows) -> Any:
        try:
            return pyarrow.csv.open_csv(
                stream,
                # Rows have numbers in what Arrow reports only when it reads in one thread.
                pyarrow.csv.ReadOptions(use_threads=False, block_size=self._block),
                pyarrow.csv.ParseOptions(
                    newlines_in_values=True,
                    # In a file of one column an empty line is a missing value.
                    ignore_empty_lines=len(self.names) > 1,
                    invalid_row_handler=skip,
                ),
                pyarrow.csv.ConvertOptions(
                    include_columns=list(columns),
                    column_types=dict.fromkeys(columns, pa.string()),
                    null_values=[],
                    strings_can_be_null=False,
                ),
            )
        except pa.ArrowInvalid as error:
            if "cannot infer number of columns" not in str(error):
                raise
            return ()  # a header without an end of line, and nothing else

    def _ragged(self, number: int, expected: int, found: int) -> InvalidInputError:
        return InvalidInputError(
            f"{self.file}: row {number - 1} (the first row of data is 1) has {found} values where the header names "
            f"{expected} columns."
        )

    def _unreadable(self, error: Exception, n_rows: int) -> InvalidInputError:
        if match := _CONVERSION.search(str(error)):
            row = int(match[2]) - 2
            return at_row(self.file, self.names[int(match[1])], row, "is not UTF-8 text; save the file as UTF-8.")
        if match := _RAGGED.search(str(error)):
            return self._ragged(*map(int, match.groups()))
        if "straddling" in str(error):
            return InvalidInputError(
                f"{self.file}: a row after row {n_rows} (the first row of data is 1) is longer than "
                f"{self._block // 1024} KiB. Most likely a quote is not closed; if a text is really that long, convert "
                "the file to Parquet."
            )
        why = reason(error) if isinstance(error, OSError) else error
        return could_not_be_read(f"{self.file}, after row {n_rows},", why)

    def _may_end_in_quotes(self) -> bool:
        """Return whether the number of quotes is odd. The last value begins in the last two blocks, or is too long."""
        with self._open() as stream:
            if not self._compressed:
                stream.seek(max(0, self.size - 2 * self._block))
                if b'"' not in stream.read():
                    return False
                stream.seek(0)
            return sum(data.count(b'"') for data in iter(lambda: stream.read(_COUNTED_BYTES), b"")) % 2 == 1

    def _ends_in_quotes(self) -> bool:
        """Return whether the file ends within a quoted value, which Arrow takes as closed."""
        with self._open() as stream, io.TextIOWrapper(stream, "utf-8", "replace", newline="") as text:
            try:
                for _ in csv.reader(text, strict=True):
                    pass
            except csv.Error as error:
                return "end of data" in str(error) or "field limit" in str(error)
        return False


class RaggedRows:
    """Leave out rows with too few or too many values, and collect them in a list."""

    def __init__(self, ragged: list[Any]) -> None:
        self._ragged = ragged

    def __call__(self, row: Any) -> str:
        self._ragged.append(row)
        return "skip"


def _wait_for_release(held: weakref.ref[RaggedRows]) -> None:
    """Wait until Arrow's threads have released their Python objects: a release at exit aborts the process.

    A thread keeps Python's lock while it releases an object, so it has finished when the release is seen.
    """
    end = time.monotonic() + _SECONDS_TO_RELEASE
    while held() is not None and time.monotonic() < end:
        time.sleep(_SECONDS_TO_RELEASE / 1e4)


def without_noise(reader: Callable[[], Iterable[Any]]) -> Generator[Any, None, None]:
    """Yield batches without the traceback that Arrow prints when it cannot decode a ragged row, an error by itself."""
    batches: Iterator[Any] | None = None
    while True:
        with silent_on_undecodable_rows():
            batches = iter(reader()) if batches is None else batches
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


@contextlib.contextmanager
def silent_on_undecodable_rows() -> Iterator[None]:
    """Suppress messages on decoding errors until no thread is in this context."""
    global _silent, _hook
    with _lock:
        if not _silent:
            _hook, sys.unraisablehook = sys.unraisablehook, partial(_show_others, sys.unraisablehook)
        _silent += 1
    try:
        yield
    finally:
        with _lock:
            _silent -= 1
            if not _silent:
                sys.unraisablehook = _hook


def _show_others(hook: Any, error: Any) -> None:
    if not isinstance(error.exc_value, UnicodeDecodeError):
        hook(error)


class ParquetTable(Table):
    text = False
    _pre_buffer = False  # whether the bytes of a row group are read at once and held

    def __init__(self, file: str, size: int) -> None:
        super().__init__(file, size)
        self._rows_read = self._n_rows = 0
        self.names = []
        with self._open() as parquet:
            self.names = self.own = list(parquet.schema_arrow.names)
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
                for group in range(parquet.num_row_groups):
                    yield from self._group(parquet, group, columns, most_rows)
        except InvalidInputError:
            raise
        except _UNREADABLE as error:
            raise could_not_be_read(f"{self.file}, after row {self._rows_read},", error) from error

    def _group(self, parquet: Any, group: int, columns: Sequence[str], most_rows: int) -> Iterator[pa.RecordBatch]:
        first, n_rows = self._rows_read, parquet.metadata.row_group(group).num_rows
        try:
            size = equal_parts(n_rows, most_rows)
            for batch in parquet.iter_batches(size, [group], list(columns), use_threads=False):
                self._rows_read += len(batch)
                yield batch.select(list(columns))
        except _UNREADABLE as error:
            where = f"row group {group + 1} (rows {first + 1} to {first + n_rows})"
            raise could_not_be_read(f"{self.file}: {where}", error) from error
        if self._rows_read - first != n_rows:
            raise could_not_be_read(self.file, f"row group {group + 1} has fewer rows than its metadata says")

    def _open(self) -> Any:
        # Arrow allocates a buffer for each column that is read.
        n_bytes = max(2**14, min(_PARQUET_BUFFER, _PARQUET_BUFFERS // max(1, len(self.names))))
        return pyarrow.parquet.ParquetFile(
            self._source(), buffer_size=n_bytes, page_checksum_verification=True, pre_buffer=self._pre_buffer
        )

    def _source(self) -> Any:
        return pa.OSFile(os.fsencode(self.file), "rb")
