"""A table: named columns, read as batches of rows; a data frame in memory as one; and errors that name a place."""

from __future__ import annotations

import csv
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from lstd.data.arguments import listed
from lstd.data.arrow_columns import arrow_batches, arrow_table, names_of
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
        self.file, self.size, self.names = file, size, shared(tuple(names))
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
        names, hint = self.own or self.names, ""
        if len(names) == 1 and {";", "\t", "|"} & set(names[0]):
            hint = " Separate values by commas."
        elif close := next((name for name in names if name.strip() == column.strip()), None):
            hint = f" Spaces count: write '\"{close}\"' for {close!r}."
        return InvalidInputError(
            f"{self.file}: column {column!r} is missing; the {self.kind} has {listed([*map(repr, names)])}.{hint}"
        )

    def batches(self, columns: Sequence[str], most_rows: int = 2**15) -> Iterator[Any]:
        """Yield batches of these columns in the order of rows, up to the first row that cannot be read.

        Batches have at most about `most_rows` rows. Those of CSV are instances of `lstd.tables.csv_table.TextBlock`.
        """
        self.rows_read = 0
        try:
            for batch in self._read([*columns], most_rows):
                size = equal_parts(len(batch), most_rows)
                for first in range(0, len(batch), size):
                    part = batch[first : first + size]
                    self.rows_read += len(part)
                    yield part
        except InvalidInputError:
            raise
        except UNREADABLE as error:
            raise self._unreadable(error) from error

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


class SortedFile(str):
    """The name of files whose rows were sorted, with their columns of ids and times, by which rows are named."""

    columns: Sequence[tuple[str, Any]] = ()

    def place(self, row: int) -> str:
        """Name a row."""
        return f"the row of {', '.join(f'{name} {values[row]}' for name, values in self.columns)}"


@lru_cache(maxsize=64)
def shared(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the same object for equal names of columns, since there may be many files."""
    return names


def equal_parts(n_rows: int, about: int) -> int:
    """Return the size of nearly equal parts of `n_rows` rows: about `about` rows, and at most half as many more."""
    return max(1, -(-n_rows // max(1, round(n_rows / about))))


def at_row(file: str, column: str, row: int, text: str) -> InvalidInputError:
    """Return the error for a value; its row is counted from 0. Files of sorted rows name it by id and time."""
    where = file.place(row) if isinstance(file, SortedFile) else f"row {row + 1} {FROM_ONE}"
    return InvalidInputError(f"{file}: column {column!r}, {where}: {text}")


def could_not_be_read(file: str, why: object) -> InvalidInputError:
    """Return the error for a file that is missing or damaged."""
    text = reason(why) if isinstance(why, OSError) else str(why)
    return InvalidInputError(f"{file} could not be read: {' '.join(text.split()).rstrip('.')}.")
