"""CSV files as tables: Arrow reads them in blocks, numbers at once.

If it refuses a number, the rest of the file is read as text, so that the rules of `lstd.data.parsing` decide, and name
the value. Empty lines are not rows, except in a file of one column, where they are missing values.
"""

from __future__ import annotations

import csv
import gzip
import io
import os
import re
from collections.abc import Callable, Collection, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from lstd.errors import InvalidInputError
from lstd.tables.table import FROM_ONE, Table, at_row, could_not_be_read

READ_BYTES = 2**22  # of a file at once, which is the most that a row may have
_PER_COLUMN = 512  # or so many for each column, if that is more
_QUOTE = b'"'
BOM = b"\xef\xbb\xbf"
_OTHER_FORMATS = {
    b"\x1f\x8b": "is compressed by gzip; rename it to end in .csv.gz.",
    b"\xff\xfe": "is UTF-16 text; save the file as UTF-8.",
    b"\xfe\xff": "is UTF-16 text; save the file as UTF-8.",
    b"PAR1": "is a Parquet file; rename it to end in .parquet.",
    b"PK\x03\x04": "is a workbook or a zip archive; save the table as CSV.",
}
_MISSING = ["", "NA", "nan", "NaN", "null", "NULL", "None"]  # other spellings are read as text: many slow Arrow down
# What Arrow says; its rows count from 1, and the first is the header.
_WRONG_LENGTH = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+)")
_NOT_UTF8 = re.compile(r"In CSV column #(\d+): Row #(\d+): .*invalid UTF8")


def keep_signal_handlers() -> None:
    """Keep the signal handlers of the process while pyarrow reads CSV; its own would raise ArrowCancelled."""
    pa.enable_signal_handlers(False)


class CsvTable(Table):
    """A file of CSV, compressed or not."""

    def __init__(self, file: str, size: int, compressed: bool) -> None:
        self._compressed = compressed
        self._place: Callable[[], int] = int  # in the file
        self.file = file
        with self._text() as text:
            start = text.buffer.peek(4)
            if said := next((said for magic, said in _OTHER_FORMATS.items() if start.startswith(magic)), None):
                raise InvalidInputError(f"{file} {said}")
            try:
                header = next(filter(None, csv.reader(text)), None)
                "".join(header or ()).encode()  # refuses what is not UTF-8
            except UnicodeError as error:
                raise InvalidInputError(f"{file}: its first line is not UTF-8 text; save the file as UTF-8.") from error
        if header is None:
            raise InvalidInputError(f"{file} is empty; its first line must name the columns.")
        super().__init__(file, size, header)

    @property
    def done(self) -> float:
        return min(1.0, self._place() / self.size) if self.size else 0.0

    def _read(self, columns: list[str], most_rows: int, numbers: Collection[str]) -> Iterator[pa.RecordBatch]:
        try:
            try:
                yield from self._blocks(columns, numbers)
            except pa.ArrowInvalid:  # not what the consumer raises, which does not come here
                yield from self._blocks(columns, ())
        except pa.ArrowInvalid as error:
            self._check_quotes()  # which may be why
            if "Empty CSV" not in str(error):  # of a header without a line end
                raise self._bad_row(str(error)) from error
        else:
            self._check_quotes()

    def _blocks(self, columns: list[str], numbers: Collection[str]) -> Iterator[pa.RecordBatch]:
        """Yield the blocks after the rows that were read; columns of `numbers` as floats, all others as text."""
        with self._opened() as stream:
            yield from pyarrow.csv.open_csv(
                stream,
                pyarrow.csv.ReadOptions(
                    use_threads=False,
                    block_size=max(READ_BYTES, _PER_COLUMN * len(self.names)),
                    skip_rows_after_names=self.rows_read,
                ),
                pyarrow.csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=len(self.names) > 1),
                pyarrow.csv.ConvertOptions(
                    include_columns=columns,
                    column_types={name: pa.float64() if name in numbers else pa.string() for name in columns},
                    null_values=_MISSING if numbers else [],
                    strings_can_be_null=False,
                ),
            )

    def _opened(self) -> Any:
        native = pa.OSFile(os.fsencode(self.file), "rb")  # a name need not be UTF-8
        self._place = native.tell
        return pa.CompressedInputStream(native, "gzip") if self._compressed else native

    def _text(self) -> Any:
        stream = gzip.open(self.file) if self._compressed else open(self.file, "rb")  # noqa: SIM115
        return io.TextIOWrapper(stream, "utf-8-sig", "surrogateescape", newline="")

    def _bad_row(self, said: str) -> InvalidInputError:
        """Return the error for a row that has too few or too many values, is not UTF-8, or has no end."""
        if wrong := _WRONG_LENGTH.search(said):
            return InvalidInputError(
                f"{self.file}: row {int(wrong[1]) - 1} {FROM_ONE} has {wrong[3]} values where the header names "
                f"{wrong[2]} columns."
            )
        if wrong := _NOT_UTF8.search(said):
            name, row = self.names[int(wrong[1])], int(wrong[2]) - 2
            return at_row(self.file, name, row, "is not UTF-8 text; save the file as UTF-8.")
        if "straddl" in said:
            return InvalidInputError(
                f"{self.file}: a row after row {self.rows_read} {FROM_ONE} is longer than {READ_BYTES >> 10} KiB. Most "
                "likely a quote is not closed; if a text is really that long, convert the file to Parquet."
            )
        return could_not_be_read(f"{self.file}, after row {self.rows_read},", said)

    def _check_quotes(self) -> None:
        """Raise InvalidInputError if a quote is not closed by the end of the file."""
        with self._opened() as stream:
            n_quotes = 0
            while (text := stream.read_buffer(READ_BYTES)).size:
                n_quotes += int(np.count_nonzero(np.frombuffer(text, np.uint8) == ord(_QUOTE)))
        if not n_quotes % 2:  # else one may stand within a value, where it has no meaning
            return
        n_rows = 0
        with self._text() as text:
            try:
                for _ in csv.reader(text, strict=True):
                    n_rows += 1
            except csv.Error as error:
                if "end of data" in str(error):
                    raise InvalidInputError(
                        f"{self.file}: row {n_rows} {FROM_ONE}: a quote is not closed by the end of the file, so the "
                        "rows after it are read as text; close or remove it."
                    ) from error
