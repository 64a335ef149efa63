"""CSV files as blocks of whole rows, which any thread can parse into columns.

A row ends at a line end outside quotes. Empty lines are not rows, except in a file of one column, where they are
missing values. Arrow reads numbers at once. A block with a value that it refuses is read again as text, so that the
parser of `lstd.data.parse_columns` decides, and the bad value is reported with its row.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import os
import re
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from lstd.data.table import FROM_ONE, Table, at_row, could_not_be_read
from lstd.errors import InvalidInputError

READ_BYTES = 2**22  # of a file at once
_LONGEST = 2**20  # bytes that a row may always have
_LONGEST_PER_COLUMN = 512  # the same for each column, where there are many
_QUOTE, _CR, _LF, _COMMA = b'"\r\n,'
BOM = b"\xef\xbb\xbf"
_OTHER_FORMATS = {
    b"\x1f\x8b": "is compressed by gzip; rename it to end in .csv.gz.",
    b"\xff\xfe": "is UTF-16 text; save the file as UTF-8.",
    b"\xfe\xff": "is UTF-16 text; save the file as UTF-8.",
    b"PAR1": "is a Parquet file; rename it to end in .parquet.",
    b"PK\x03\x04": "is a workbook or a zip archive; save the table as CSV.",
}
_MISSING = ["", "NA", "nan", "NaN", "null", "NULL", "None"]  # other spellings are read as text first
# A value is quoted only if it begins with a quote; what follows the closing quote belongs to it.
_VALUE = rb'(?:"(?>[^"]*(?:""[^"]*)*)"[^,\r\n]*|(?!")[^,\r\n]*)'
_WRONG_LENGTH = re.compile(r"Row #(\d+): Expected \d+ columns, got (\d+)")  # what Arrow says
_NOT_UTF8 = re.compile(r"In CSV column #(\d+): Row #(\d+): .*invalid UTF8")
_ROW = re.compile(rb"(?>%b(?:,%b)*)(?:\r?\n|\r(?!\Z))" % (_VALUE, _VALUE))


def keep_signal_handlers() -> None:
    """Keep the signal handlers of the process while pyarrow reads CSV; its own would raise ArrowCancelled."""
    pa.enable_signal_handlers(False)


class CsvTable(Table):
    text = True

    def __init__(self, file: str, size: int, compressed: bool) -> None:
        self._compressed = compressed
        self._place: Callable[[], int] = int  # in the file
        super().__init__(file, size, self._header(file))

    def _header(self, file: str) -> list[str]:
        with gzip.open(file) if self._compressed else open(file, "rb") as stream:
            start = stream.read(max(map(len, _OTHER_FORMATS)))
            for magic, said in _OTHER_FORMATS.items():
                if start.startswith(magic):
                    raise InvalidInputError(f"{file} {said}")
            stream.seek(0)
            text = io.TextIOWrapper(stream, "utf-8-sig", "surrogateescape", newline="")
            try:
                header = next((row for row in csv.reader(text) if row), None)
                "".join(header or ()).encode()  # refuses what was not UTF-8
            except UnicodeError as error:
                raise InvalidInputError(f"{file}: its first line is not UTF-8 text; save the file as UTF-8.") from error
            except csv.Error as error:
                raise InvalidInputError(
                    f"{file}: its first line has a name longer than {csv.field_size_limit() >> 10} KiB. Most likely a "
                    "quote is not closed; close or remove it."
                ) from error
        if header is None:
            raise InvalidInputError(f"{file} is empty; its first line must name the columns.")
        return header

    @property
    def done(self) -> float:
        if not self.size:
            return 0.0
        return min(1.0, self._place() / self.size)

    def _read(self, columns: list[str], most_rows: int) -> Iterator[TextBlock]:
        with pa.OSFile(os.fsencode(self.file), "rb") as native:  # a name need not be UTF-8
            self._place = native.tell
            stream = pa.CompressedInputStream(native, "gzip") if self._compressed else native
            start = stream.read_buffer(len(BOM))
            if start.to_pybytes() == BOM:
                start = b""
            text = _joined(start, stream.read_buffer(READ_BYTES))
            first = -1  # place of the next row; the first one is the header
            over = False
            while text.size:
                rest, ends = self._row_ends(text, first)
                low = 0
                if first < 0 and len(ends):
                    first = 0
                    low = int(ends[0])
                    ends = ends[1:]
                if len(ends):
                    yield TextBlock(self, text.slice(low, int(ends[-1]) - low), first, ends - low)
                    first += len(ends)
                text = text.slice(rest)
                self._check_unfinished(text.size, first, over)
                more = stream.read_buffer(READ_BYTES)
                over = not more.size
                if over and text.size:
                    more = b"\n"  # the last row need not have a line end
                text = _joined(text, more)

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
        values = np.empty(0, np.uint8)
        if text.size:
            values = np.frombuffer(text, np.uint8)
        ends = _ends(values)
        if not len(ends):
            return 0, ends
        filled = ~np.isin(values[np.append(0, ends[:-1])], (_CR, _LF))
        if len(self.names) == 1:
            # Empty lines are missing values, but for those before the header.
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
            one_by_one = [0]
            data = text.tobytes()
            while row := _ROW.match(data, one_by_one[-1]):
                one_by_one.append(row.end())
            return np.array(one_by_one[1:], np.intp)
        ends = ends[np.searchsorted(quotes, ends) % 2 == 0]
    return ends


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

    def parsed(
        self, columns: Sequence[str], numbers: Set[str] = frozenset()
    ) -> tuple[pa.RecordBatch | None, InvalidInputError | None]:
        """Return a batch of the rows before the first one that cannot be read, and the error for that one, if any.

        Columns of `numbers` are float64 if Arrow can read all of them in these rows; all others are text.
        """
        types = {name: pa.float64() if name in numbers else pa.string() for name in columns}
        with contextlib.suppress(pa.ArrowInvalid):
            if numbers:
                return self._parsed(types), None
        try:
            return self._parsed(dict.fromkeys(columns, pa.string())), None
        except pa.ArrowInvalid as error:
            n_sound, failure = self._first_bad(columns, error)
            if not n_sound:
                return None, failure
            before, earlier = self[:n_sound].parsed(columns)
            return before, earlier or failure

    def _parsed(self, types: dict[str, Any]) -> pa.RecordBatch:
        names = self.table.names
        text = self.text
        if text[: len(BOM)].to_pybytes() == BOM:  # part of a value here, where Arrow drops one
            text = _joined(BOM, text)
        typed = pa.float64() in types.values()
        table = pyarrow.csv.read_csv(
            pa.BufferReader(text),
            pyarrow.csv.ReadOptions(use_threads=False, block_size=text.size, column_names=list(names)),
            # Values may hold line ends all the same: this block ends where a row does, and is not divided further.
            pyarrow.csv.ParseOptions(ignore_empty_lines=len(names) > 1),
            pyarrow.csv.ConvertOptions(
                include_columns=list(types),
                column_types=types,
                null_values=_MISSING if typed else [],
                strings_can_be_null=False,
            ),
        )
        if len(table) != len(self):
            raise pa.ArrowInvalid(f"{len(table)} rows were found where {len(self)} end")
        return table.combine_chunks().to_batches()[0]

    def _first_bad(self, columns: Sequence[str], error: Exception) -> tuple[int, InvalidInputError]:
        """Return the row that has too few or too many values or is not UTF-8, and the error for it."""
        file, place = self.table.file, self.first
        wrong = _WRONG_LENGTH.search(str(error))
        if wrong:
            row = int(wrong[1]) - 1
            return row, InvalidInputError(
                f"{file}: row {place + row + 1} {FROM_ONE} has {wrong[2]} values where the header names "
                f"{len(self.table.names)} columns."
            )
        wrong = _NOT_UTF8.search(str(error))
        if wrong:
            row = int(wrong[2]) - 1
            name = self.table.names[int(wrong[1])]
            return row, at_row(file, place + row, name, "is not UTF-8 text; save the file as UTF-8.")
        return 0, could_not_be_read(f"{file}, after row {place},", error)
