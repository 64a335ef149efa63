"""A table: named columns, read as batches of rows."""

from __future__ import annotations

import csv
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from lstd.errors import InvalidInputError
from lstd.tables.table_errors import no_column

T = TypeVar("T")

UNREADABLE = (pa.ArrowException, OSError, EOFError, zlib.error, csv.Error, ValueError, MemoryError)  # errors of files


class Table:
    """A file with named columns, read in batches; `file` is its name as given, `size` its bytes."""

    names: list[str]  # of columns
    own: list[str]  # of columns in the file itself; `names` may be fewer
    text: bool  # whether values are text
    kind = "file"  # in messages
    divisible = True  # whether it is a file or a frame, and not a stream of several

    def __init__(self, file: str, size: int) -> None:
        self.file, self.size = file, size
        self.report: Callable[[float], object] = float  # called with the share of the file that was read

    def require(self, columns: Sequence[str]) -> None:
        """Check that columns are there, each once."""
        counts = Counter(self.names)
        for column in columns:
            found = counts[column]
            if not found:
                raise no_column(self.file, column, self.own, self.kind)
            if found > 1:
                raise InvalidInputError(f"{self.file}: column {column!r} appears {found} times; rename all but one.")

    def batches(self, columns: Sequence[str], most_rows: int = 2**15) -> Iterator[Any]:
        """Yield batches of these columns in the order of rows, up to the first row that cannot be read.

        Batches have at most about `most_rows` rows. Those of CSV are instances of `lstd.tables.csv_table.TextBlock`.
        """
        raise NotImplementedError

    def done(self) -> float:
        """Return the share of the file that has been read."""
        raise NotImplementedError

    def reported(self, batches: Iterator[T]) -> Iterator[T]:
        """Yield batches of this table, and report the share that has been read."""
        self.report(0.0)
        for batch in batches:
            yield batch
            self.report(self.done())
        self.report(1.0)


def equal_parts(n_rows: int, about: int) -> int:
    """Return the size of nearly equal parts of `n_rows` rows: about `about` rows, and at most half as many more."""
    return max(1, -(-n_rows // max(1, round(n_rows / about))))


def with_names_shared(tables: Iterable[Table]) -> list[Table]:
    """Let a table share its list of names with the table before it if they are equal, since there may be many files."""
    found: list[Table] = []
    for table in tables:
        before = found[-1] if found else table
        table.names = before.names if table.names == before.names else table.names
        table.own = next((names for names in (table.names, before.own) if names == table.own), table.own)
        found.append(table)
    return found
