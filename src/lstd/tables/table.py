"""A table: named columns, read as batches of rows."""

from __future__ import annotations

import csv
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lstd.errors import InvalidInputError
from lstd.tables.table_errors import no_column

UNREADABLE = (pa.ArrowException, OSError, EOFError, zlib.error, csv.Error, ValueError, MemoryError)  # errors of files


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
        counts = Counter(self.names)
        for column in columns:
            found = counts[column]
            if not found:
                raise no_column(self.file, column, self.own)
            if found > 1:
                raise InvalidInputError(f"{self.file}: column {column!r} appears {found} times; rename all but one.")

    def batches(self, columns: Sequence[str], most_rows: int = 2**15) -> Iterator[pa.RecordBatch]:
        """Yield batches of these columns in the order of rows, up to the first row that cannot be read.

        Batches of typed columns have at most about `most_rows` rows; those of text have the bytes of a block.
        """
        raise NotImplementedError

    def blocks(self, columns: Sequence[str], most_rows: int = 2**15) -> Iterator[pa.RecordBatch | TextBlock]:
        """Yield what `batches` does, or blocks that `parsed` makes batches of."""
        return self.batches(columns, most_rows)

    def parsed(self, block: TextBlock, columns: Sequence[str]) -> pa.RecordBatch | None:
        """Parse a block in any thread; None if `rest` has to read the table from there on."""
        raise NotImplementedError

    def rest(self, block: TextBlock, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the batches from the beginning of a block on."""
        raise NotImplementedError

    def done(self) -> float:
        """Return the share of the file that has been read."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class TextBlock:
    """Lines of a CSV file that are one row each."""

    text: pa.Buffer  # of Arrow, as its threads must not hold Python objects
    offset: int  # of its first byte in the text of the file
    first: int  # place of its first row in the file
    ends: NDArray[np.intp]  # (rows,) of the lines, within the text

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, rows: slice) -> TextBlock:
        begin, end, _ = rows.indices(len(self))
        low = int(self.ends[begin - 1]) if begin else 0
        text = self.text.slice(low, int(self.ends[end - 1]) - low)
        return TextBlock(text, self.offset + low, self.first + begin, self.ends[begin:end] - low)

    @property
    def nbytes(self) -> int:
        """Bytes of the text and of its values."""
        return 2 * int(self.text.size)


def equal_parts(n_rows: int, about: int) -> int:
    """Return the size of nearly equal parts of `n_rows` rows: about `about` rows, and at most half as many more."""
    return max(1, -(-n_rows // max(1, round(n_rows / about))))
