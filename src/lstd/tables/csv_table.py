"""CSV files as blocks of whole rows, which any thread can parse into columns of text.

Values stay text here: a bad value is reported with its row, and types do not depend on the first rows. A row ends at a
line end outside quotes. Empty lines are not rows, except in a file of one column, where they are missing values.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from lstd.errors import InvalidInputError
from lstd.files import reason
from lstd.tables.table import UNREADABLE, Table
from lstd.tables.table_errors import FROM_ONE, at_row, could_not_be_read

READ_BYTES = 2**20  # of a file at once
_LONGEST, _LONGEST_PER_COLUMN = 2**20, 512  # bytes that a row may always have
_QUOTE, _CR, _LF, _COMMA = b'"\r\n,'
BOM = b"\xef\xbb\xbf"
_OTHER_FORMATS = {
    b"\x1f\x8b": "is compressed by gzip; rename it to end in .csv.gz.",
    b"\xff\xfe": "is UTF-16 text; save the file as UTF-8.",
    b"\xfe\xff": "is UTF-16 text; save the file as UTF-8.",
    b"PAR1": "is a Parquet file; rename it to end in .parquet.",
    b"PK\x03\x04": "is a workbook or a zip archive; save the table as CSV.",
}
_MAGIC_BYTES = 4
# A value is quoted only if it begins with a quote; what follows the closing quote belongs to it.
_VALUE = rb'(?:"(?>[^"]*(?:""[^"]*)*)"[^,\r\n]*|(?!")[^,\r\n]*)'
_ROW = re.compile(rb"(?>%b(?:,%b)*)(?:\r?\n|\r(?!\Z))" % (_VALUE, _VALUE))
_VALUES = re.compile(rb"(?:\A|,)(%b)" % _VALUE)


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
        except csv.Error as error:
            raise InvalidInputError(
                f"{self.file}: its first line has a name longer than {csv.field_size_limit() >> 10} KiB. Most likely a "
                "quote is not closed; close or remove it."
            ) from error
        if header is None:
            raise InvalidInputError(f"{self.file} is empty; its first line must name the columns.")
        return header

    @contextlib.contextmanager
    def _open(self) -> Iterator[IO[bytes]]:
        with open(self.file, "rb") as raw:
            if self._compressed:
                with gzip.open(raw) as stream:
                    yield stream  # type: ignore[misc]
            else:
                yield raw

    def done(self) -> float:
        if self._native is None or not self.size:
            return 0.0
        return min(1.0, float(self._native.tell()) / self.size)

    def batches(self, columns: Sequence[str], most_rows: int = 2**15) -> Iterator[TextBlock]:
        n_rows = 0
        try:
            for block in self._blocks():
                n_rows += len(block)
                yield block
        except InvalidInputError:
            raise
        except UNREADABLE as error:
            why = reason(error) if isinstance(error, OSError) else error
            raise could_not_be_read(f"{self.file}, after row {n_rows},", why) from error
        finally:
            self._native = None

    def _blocks(self) -> Iterator[TextBlock]:
        self._native = pa.OSFile(os.fsencode(self.file), "rb")  # a name need not be UTF-8
        stream = pa.CompressedInputStream(self._native, "gzip") if self._compressed else self._native
        start = stream.read_buffer(len(BOM))
        text = _joined(b"" if start.to_pybytes() == BOM else start, stream.read_buffer(READ_BYTES))
        first, over = -1, False  # the first row is the header
        while text.size:
            rest, ends = self._row_ends(text, first)
            low = 0
            if first < 0 and len(ends):
                first, low, ends = 0, int(ends[0]), ends[1:]
            if len(ends):
                yield TextBlock(self, text.slice(low, int(ends[-1]) - low), first, ends - low)
                first += len(ends)
            text = text.slice(rest)
            self._check_unfinished(text.size, first, over)
            more = stream.read_buffer(READ_BYTES)
            over = not more.size
            text = _joined(text, b"\n" if over and text.size else more)  # the last row need not have a line end

    def _check_unfinished(self, size: int, place: int, over: bool) -> None:
        """Raise if a row of which `size` bytes were read has no end."""
        limit = max(_LONGEST, _LONGEST_PER_COLUMN * len(self.names))
        if size > limit:
            raise InvalidInputError(
                f"{self.file}: row {place + 1} {FROM_ONE} is longer than {limit >> 10} KiB. Most likely a quote is not "
                "closed; if a text is really that long, convert the file to Parquet."
            )
        if over and size:
            raise InvalidInputError(
                f"{self.file}: row {place + 1} {FROM_ONE}: a quote is not closed by the end of the file, so the rows "
                "after it are read as text; close or remove it."
            )

    def _row_ends(self, text: pa.Buffer, first: int) -> tuple[int, NDArray[np.intp]]:
        """Return where the unfinished row begins, and the ends of the rows before; the first of all is the header."""
        values = np.frombuffer(text, np.uint8) if text.size else np.empty(0, np.uint8)
        ends = _ends(values)
        if not len(ends):
            return 0, ends
        filled = ~np.isin(values[np.append(0, ends[:-1])], (_CR, _LF))
        if len(self.names) == 1:
            filled = np.logical_or.accumulate(filled) if first < 0 else np.ones_like(filled)
        return int(ends[-1]), ends[filled]


def _joined(*parts: Any) -> pa.Buffer:
    stream = pa.BufferOutputStream()
    for part in parts:
        stream.write(part)
    return stream.getvalue()


def _ends(text: NDArray[np.uint8]) -> NDArray[np.intp]:
    """Return the ends of lines that are ends of rows; a line ends in CR, LF or both."""
    ends = np.flatnonzero(text == _LF) + 1
    returns = np.flatnonzero(text[:-1] == _CR) + 1  # after the last one, LF may follow
    if len(returns):
        ends = np.union1d(ends, returns[text[returns] != _LF])
    quotes = np.flatnonzero(text == _QUOTE)
    if len(quotes):
        before = text[quotes[::2] - 1][int(quotes[0] == 0) :]  # the opening ones
        if not np.isin(before, (_COMMA, _CR, _LF, _QUOTE)).all():
            return _ends_one_by_one(text.tobytes())
        ends = ends[np.searchsorted(quotes, ends) % 2 == 0]
    return ends


def _ends_one_by_one(text: bytes) -> NDArray[np.intp]:
    ends = [0]
    while row := _ROW.match(text, ends[-1]):
        ends.append(row.end())
    return np.array(ends[1:], np.intp)


@dataclass(frozen=True, eq=False)
class TextBlock:
    """Text of consecutive rows of a CSV file."""

    table: CsvTable
    text: pa.Buffer  # of Arrow, as its threads must not hold Python objects
    first: int  # place of its first row in the file
    ends: NDArray[np.intp]  # (rows,) of the rows, within the text

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, rows: slice) -> TextBlock:
        begin, end, _ = rows.indices(len(self))
        low = int(self.ends[begin - 1]) if begin else 0
        text = self.text.slice(low, int(self.ends[end - 1]) - low)
        return TextBlock(self.table, text, self.first + begin, self.ends[begin:end] - low)

    @property
    def nbytes(self) -> int:
        """Bytes of the text and of its values."""
        return 2 * int(self.text.size)

    def parsed(self, columns: Sequence[str]) -> tuple[list[pa.RecordBatch], InvalidInputError | None]:
        """Return a batch of the rows before the first one that cannot be read, and the error for that one, if any."""
        try:
            return [self._parsed(columns)], None
        except pa.ArrowInvalid as error:
            n_sound, failure = self._first_bad(columns, error)
            return [self[:n_sound]._parsed(columns)] if n_sound else [], failure

    def _parsed(self, columns: Sequence[str]) -> pa.RecordBatch:
        names, text = self.table.names, self.text
        if text[: len(BOM)].to_pybytes() == BOM:  # part of a value here, where Arrow drops one
            text = _joined(BOM, text)
        table = pyarrow.csv.read_csv(
            pa.BufferReader(text),
            pyarrow.csv.ReadOptions(use_threads=False, block_size=text.size, column_names=names),
            # Values may hold line ends all the same: this block ends where a row does, and is not divided further.
            pyarrow.csv.ParseOptions(ignore_empty_lines=len(names) > 1),
            pyarrow.csv.ConvertOptions(
                include_columns=list(columns),
                column_types=dict.fromkeys(columns, pa.string()),
                null_values=[],
                strings_can_be_null=False,
            ),
        )
        if len(table) != len(self):
            raise pa.ArrowInvalid(f"{len(table)} rows were found where {len(self)} end")
        return table.combine_chunks().to_batches()[0]

    def _first_bad(self, columns: Sequence[str], error: Exception) -> tuple[int, InvalidInputError]:
        """Return the first row that has too few or too many values or is not UTF-8, and the error for it."""
        file, names, text = self.table.file, self.table.names, self.text.to_pybytes()
        for row, (begin, end) in enumerate(pairwise((0, *self.ends.tolist()))):
            values = _VALUES.findall(text[begin:end].strip(b"\r\n"))
            if len(values) != len(names):
                return row, InvalidInputError(
                    f"{file}: row {self.first + row + 1} {FROM_ONE} has {len(values)} values where the header names "
                    f"{len(names)} columns."
                )
            for name in columns:
                try:
                    values[names.index(name)].decode()
                except UnicodeDecodeError as wrong:
                    said = f"is not UTF-8 text (byte 0x{wrong.object[wrong.start]:02x}); save the file as UTF-8."
                    return row, at_row(file, name, self.first + row, said)
        return 0, could_not_be_read(f"{file}, after row {self.first},", error)
