"""A data frame in memory, of pandas, Polars or Arrow, as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from lstd.errors import InvalidInputError
from lstd.tables import parsing_arrow as convert
from lstd.tables.table import Table


def is_frame(value: Any) -> bool:
    """Return whether a value is a data frame."""
    if _is_pandas(value):
        return getattr(value, "ndim", None) == 2
    return hasattr(value, "__arrow_c_stream__")


class FrameTable(Table):
    """A data frame as a table; `file` names it in errors."""

    text, kind = False, "data frame"

    def __init__(self, file: str, frame: Any) -> None:
        super().__init__(file, 1)
        self._frame = frame if _is_pandas(frame) else self._arrow(lambda: pa.table(frame))
        names = [str(name) for name in (frame.columns if _is_pandas(frame) else self._frame.column_names)]
        self.names = self.own = names

    def done(self) -> float:
        """Return 1.0: a frame is in memory."""
        return 1.0

    def batches(self, columns: Sequence[str], most_rows: int = 2**15) -> Iterator[pa.RecordBatch]:
        """Yield batches of these columns, converted one by one."""
        if not _is_pandas(self._frame):
            for batch in self._frame.select(list(columns)).to_batches(max_chunksize=most_rows):
                arrays = [convert.without_views(array) for array in batch.columns]
                yield pa.RecordBatch.from_arrays(arrays, list(columns))
            return
        places = [self.names.index(name) for name in columns]
        for first in range(0, len(self._frame), most_rows):
            part = self._frame.iloc[first : first + most_rows, places].set_axis(list(columns), axis=1)
            sparse = [name for name in columns if type(part[name].dtype).__name__ == "SparseDtype"]
            part = part.astype({name: part[name].dtype.subtype for name in sparse})
            table = self._arrow(partial(pa.Table.from_pandas, part, preserve_index=False, nthreads=1))
            yield from table.combine_chunks().to_batches()

    def _arrow(self, make: Callable[[], Any]) -> Any:
        try:
            return make()
        except Exception as error:  # pandas and Arrow raise errors of many types for columns of objects
            raise InvalidInputError(
                f"{self.file} could not be read as a table: {error!r:.300}. Give all values of a column one type, such "
                "as text."
            ) from error


def _is_pandas(frame: Any) -> bool:
    return type(frame).__module__.partition(".")[0] == "pandas"
