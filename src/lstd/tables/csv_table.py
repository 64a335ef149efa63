"""CSV files as batches of columns of text.

Values stay text here: a bad value is reported with its row, and types do not depend on the first rows. A file without
quotes is cut at ends of lines, in blocks that any thread can parse. From the first quote or fault on, one thread reads
the rest in order, which also knows the numbers of rows for messages.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import os
import re
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from lstd.errors import InvalidInputError
from lstd.io.files import reason
from lstd.tables.table import UNREADABLE, Table, TextBlock
from lstd.tables.table_errors import at_row, could_not_be_read

BLOCK_BYTES = 2**18  # of a file read at once, of which Arrow reads 32 ahead; no row may be longer than a block
_BYTES_PER_COLUMN = 512  # a block holds a row of so many bytes per column at least
_COUNTED_BYTES = 2**20
READ_BYTES = 2**20  # of a file that is divided into blocks for threads
_QUOTE, _CR, _LF = b'"\r\n'
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


def keep_signal_handlers() -> None:
    """Keep the signal handlers of the process while pyarrow reads CSV; its own would raise ArrowCancelled."""
    pa.enable_signal_handlers(False)


class CsvTable(Table):
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

    def blocks(self, columns: Sequence[str], most_rows: int = 2**15) -> Iterator[pa.RecordBatch | TextBlock]:
        n_rows = 0
        try:
            for block in self._blocks():
                n_rows += len(block)
                if len(block):
                    yield block
                else:
                    yield from self.rest(block, columns) if block.offset else self.batches(columns)
        except InvalidInputError:
            raise
        except UNREADABLE as error:
            raise self._unreadable(error, n_rows) from error
        finally:
            self._native = None

    def _blocks(self) -> Iterator[TextBlock]:
        """Yield blocks of lines that are rows; if there are others, the last block is empty and begins before them."""
        stream = self._stream()
        text = stream.read_buffer(READ_BYTES)
        offset, first = self._header_bytes(text), 0
        text = text.slice(offset)
        while True:
            more = stream.read_buffer(READ_BYTES)
            values = np.frombuffer(text, np.uint8) if text.size else np.empty(0, np.uint8)
            ends = self._ends(values, not more.size) if offset else None
            if ends is None:
                yield TextBlock(text.slice(0, 0), offset, first, np.empty(0, np.intp))
                return
            if len(ends):
                yield TextBlock(text.slice(0, int(ends[-1])), offset, first, ends)
                offset, first, text = offset + int(ends[-1]), first + len(ends), text.slice(int(ends[-1]))
            if not more.size:
                return
            joined = pa.BufferOutputStream()
            joined.write(text)
            joined.write(more)
            text = joined.getvalue()

    def _header_bytes(self, text: pa.Buffer) -> int:
        """Return the number of bytes of the first line; 0 unless it is sure to have the names and nothing else."""
        start = text.slice(0, min(text.size, self._block)).to_pybytes()
        end = start.find(b"\n") + 1
        try:
            names = next(csv.reader([start[:end].decode("utf-8-sig")], strict=True), None)
        except (UnicodeError, csv.Error):
            return 0
        return end if names == self.names else 0

    def _ends(self, text: NDArray[np.uint8], over: bool) -> NDArray[np.intp] | None:
        """Return the ends of lines; None if a line may not be a row. With `over`, the last one needs no end of line."""
        if (text == _QUOTE).any():
            return None
        ends = np.flatnonzero(text == _LF) + 1
        if over and len(text) and text[-1] != _LF:
            ends = np.append(ends, len(text))
        lengths = np.diff(ends, prepend=0)
        if len(text) and text[-1] != _LF and over:
            lengths[-1] += 1
        feeds = np.flatnonzero(text == _CR) + 1  # after each carriage return
        if len(feeds):
            if over and feeds[-1] == len(text):
                return None
            feeds = feeds[feeds < len(text)]
            if (text[feeds] != _LF).any():
                return None
            lengths -= np.isin(ends - 1, feeds)
        least = 2 if len(self.names) > 1 else 1  # Arrow leaves out empty lines
        longest = max(len(text) - int(ends[-1]), int(lengths.max())) if len(ends) else len(text)
        return None if longest > self._block or (lengths < least).any() else ends

    def parsed(self, block: TextBlock, columns: Sequence[str]) -> pa.RecordBatch | None:
        parse, convert = self._options(columns)
        read = pyarrow.csv.ReadOptions(use_threads=False, block_size=block.text.size, column_names=self.names)
        try:
            table = pyarrow.csv.read_csv(pa.BufferReader(block.text), read, parse, convert)
        except pa.ArrowInvalid:
            return None
        batches = table.combine_chunks().to_batches()
        return batches[0] if len(batches) == 1 and len(batches[0]) == len(block) else None

    def batches(self, columns: Sequence[str], most_rows: int = 2**15) -> Iterator[pa.RecordBatch]:
        return self._batches(columns, None)

    def rest(self, block: TextBlock, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return self._batches(columns, block)

    def _batches(self, columns: Sequence[str], start: TextBlock | None) -> Iterator[pa.RecordBatch]:
        ragged: list[Any] = []
        n_rows, head = (0, 1) if start is None else (start.first, -start.first)
        failure: InvalidInputError | None = None
        skip = RaggedRows(ragged)
        held = weakref.ref(skip)
        batches = without_noise(partial(self._reader, start, columns, skip))
        del skip
        try:
            for batch in batches:
                whole = batch[: ragged[0].number - 1 - head - n_rows] if ragged else batch
                n_rows += len(whole)
                yield whole
                if ragged and ragged[0].number - 1 - head <= n_rows:
                    break
        except UNREADABLE as error:
            failure = self._unreadable(error, n_rows, head)
        except BaseException as error:  # an interrupt, whose traceback would hold what is waited for
            traceback.clear_frames(error.__traceback__)
            raise
        finally:
            batches.close()
            self._native = None
            _wait_for_release(held)
        if ragged:
            failure = self._ragged(ragged[0].number - head, ragged[0].expected_columns, ragged[0].actual_columns)
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

    def _reader(self, start: TextBlock | None, columns: Sequence[str], skip: RaggedRows) -> Any:
        stream = self._stream()
        # Rows have numbers in what Arrow reports only when it reads in one thread.
        read = pyarrow.csv.ReadOptions(use_threads=False, block_size=self._block)
        if start is not None:
            read.column_names = self.names
            self._skip(stream, start.offset)
        try:
            return pyarrow.csv.open_csv(stream, read, *self._options(columns, skip))
        except pa.ArrowInvalid as error:
            if "cannot infer number of columns" not in str(error) and "Empty CSV file" not in str(error):
                raise
            return ()  # a header without an end of line, and nothing else

    def _options(self, columns: Sequence[str], skip: RaggedRows | None = None) -> tuple[Any, Any]:
        return pyarrow.csv.ParseOptions(
            newlines_in_values=skip is not None,
            # In a file of one column an empty line is a missing value.
            ignore_empty_lines=len(self.names) > 1,
            invalid_row_handler=skip,
        ), pyarrow.csv.ConvertOptions(
            include_columns=list(columns),
            column_types=dict.fromkeys(columns, pa.string()),
            null_values=[],
            strings_can_be_null=False,
        )

    def _skip(self, stream: Any, n_bytes: int) -> None:
        if not self._compressed:
            stream.seek(n_bytes)
            return
        while n_bytes:
            n_bytes -= stream.read_buffer(min(n_bytes, READ_BYTES)).size

    def _ragged(self, row: int, expected: int, found: int) -> InvalidInputError:
        return InvalidInputError(
            f"{self.file}: row {row} (the first row of data is 1) has {found} values where the header names "
            f"{expected} columns."
        )

    def _unreadable(self, error: Exception, n_rows: int, head: int = 1) -> InvalidInputError:
        if match := _CONVERSION.search(str(error)):
            row = int(match[2]) - 1 - head
            return at_row(self.file, self.names[int(match[1])], row, "is not UTF-8 text; save the file as UTF-8.")
        if match := _RAGGED.search(str(error)):
            number, expected, found = map(int, match.groups())
            return self._ragged(number - head, expected, found)
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
