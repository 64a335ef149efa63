"""A table: named columns, read as batches of rows; and a data frame in memory as one."""

from __future__ import annotations

import csv
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from lstd.data.arrow_columns import arrow_batches, arrow_table, names_of
from lstd.errors import InvalidInputError
from lstd.tables.table_errors import no_column

UNREADABLE = (pa.ArrowException, OSError, EOFError, zlib.error, csv.Error, ValueError, MemoryError)  # errors of files


class Table:
    """A file with named columns, read in batches; `file` is its name as given, `size` its bytes."""

    names: Sequence[str]  # of columns
    own: Sequence[str] = ()  # of columns of the file itself, if a dataset has only some of them
    text = False  # whether values are text
    kind = "file"  # in messages

    def __init__(self, file: str, size: int, names: Sequence[str] = ()) -> None:
        self.file, self.size, self.names = file, size, shared(tuple(names))
        self.report: Callable[[float], object] = float  # called with the share of the file that was read

    def require(self, columns: Sequence[str]) -> None:
        """Check that columns are there, each once."""
        counts = Counter(self.names)
        for column in columns:
            found = counts[column]
            if not found:
                raise no_column(self.file, column, self.own or self.names, self.kind)
            if found > 1:
                raise InvalidInputError(f"{self.file}: column {column!r} appears {found} times; rename all but one.")

    def batches(self, columns: Sequence[str], most_rows: int = 2**15) -> Iterator[Any]:
        """Yield batches of these columns in the order of rows, up to the first row that cannot be read.

        Batches have at most about `most_rows` rows. Those of CSV are instances of `lstd.tables.csv_table.TextBlock`.
        """
        raise NotImplementedError

    def done(self) -> float:
        """Return the share of the table that has been read."""
        return 0.0


class FrameTable(Table):
    """A data frame as a table; `file` names it in errors."""

    kind = "data frame"

    def __init__(self, file: str, frame: Any) -> None:
        self._frame = arrow_table(file, frame)
        super().__init__(file, 1, [*map(str, names_of(self._frame))])

    def batches(self, columns: Sequence[str], most_rows: int = 2**15) -> Iterator[pa.RecordBatch]:
        """Yield batches of these columns, converted one by one."""
        yield from arrow_batches(self._frame, columns, most_rows)


@lru_cache(maxsize=64)
def shared(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the same object for equal names of columns, since there may be many files."""
    return names


def equal_parts(n_rows: int, about: int) -> int:
    """Return the size of nearly equal parts of `n_rows` rows: about `about` rows, and at most half as many more."""
    return max(1, -(-n_rows // max(1, round(n_rows / about))))
