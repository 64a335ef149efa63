"""Predictions for tables, written chunk by chunk."""

from __future__ import annotations

import contextlib
import csv
import io
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray

from lstd.data.arrow_columns import as_text, from_numpy
from lstd.errors import InvalidInputError
from lstd.estimators.model import Model
from lstd.tables.column_roles import Roles
from lstd.tables.row_reader import Chunk, RowReader
from lstd.tables.sources import watched
from lstd.types import Array

if TYPE_CHECKING:
    from lstd.estimators.choose_settings import OnProgress


_OF_INTERVALS = ("lower", "upper", "standard_error", "little_data")


class CsvSink:
    """Rows of text with a header; numbers in the fewest digits that give the same float64."""

    def __init__(self, file: IO[bytes], names: Sequence[str]) -> None:
        self._file = file
        self._write([names])

    def write(self, columns: dict[str, pa.Array]) -> None:
        self._write(zip(*(_texts(name, column) for name, column in columns.items()), strict=True))

    def close(self) -> None:
        self._file.flush()

    def abandon(self) -> None:
        """Do nothing."""

    def _write(self, rows: Any) -> None:
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerows(rows)
        self._file.write(text.getvalue().encode("utf-8"))


class ParquetSink:
    """A Parquet file; kept columns have the types of the tables, text if they come from CSV."""

    def __init__(self, file: IO[bytes], names: Sequence[str]) -> None:
        self._file, self._names = file, names
        self._writer: Any = None

    def write(self, columns: dict[str, pa.Array]) -> None:
        if self._writer is None:
            schema = pa.schema([(name, column.type) for name, column in columns.items()])
            self._writer = pyarrow.parquet.ParquetWriter(self._file, schema)
        arrays = [_cast(name, columns[name], self._writer.schema.field(name).type) for name in columns]
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._writer.schema))

    def close(self) -> None:
        if self._writer is None:
            flags = {name for name in self._names if name.startswith("little_data")}
            self.write({name: from_numpy(np.empty(0, bool if name in flags else float)) for name in self._names})
        self._writer.close()

    def abandon(self) -> None:
        # A writer left open would try to write when it is collected, to a file that is closed by then.
        if self._writer is not None:
            with contextlib.suppress(Exception):
                self._writer.close()


Sink = CsvSink | ParquetSink


def predict_tables(
    model: Model,
    paths: Sequence[str],
    kept: Sequence[str],
    sink: type[Sink],
    file: IO[bytes],
    *,
    level: float | None = None,
    chunk_rows: int | None = None,
    on_progress: OnProgress | None = None,
) -> int:
    """Write predictions for all rows of tables to a file, after the columns `kept`; returns the number of rows.

    Predictions are in column ``prediction``. With `level`, ``lower`` and ``upper`` are the ends of intervals of that
    level; ``standard_error`` follows, and ``little_data``, which is true where a few episodes decide. With several
    rewards, the names end in ``_`` and the name of the reward.

    Raises InvalidInputError when the model has no intervals, at the first bad row, or at the first prediction that
    overflows; rows before it may have been written.
    """
    roles = Roles(features=model.feature_names, kept=tuple(kept))
    reader = RowReader(watched(paths, on_progress), roles, chunk_rows=chunk_rows)
    names = prediction_names(model, kept, intervals=level is not None)
    if level is not None:
        intervals_of(model, np.zeros((1, len(model.feature_names))), level)  # raises before anything is written
    written = 0
    out: Sink = sink(file, [*kept, *names])
    try:
        for chunk in reader.chunks():
            _write(out, chunk, [*kept, *names], _predicted(model, chunk, level))
            written += len(chunk)
        out.close()
    except BaseException:
        out.abandon()
        raise
    return written


def _predicted(model: Model, chunk: Chunk, level: float | None) -> list[pa.Array]:
    """Return the columns of predictions for a chunk, with intervals if `level` is given."""
    columns = {"prediction": predictions_of(model, chunk)}
    if level is not None:
        try:
            columns = intervals_of(model, chunk.X, level)
        except InvalidInputError as error:
            row = chunk.first + _first_overflow(model, chunk.X, level) + 1
            raise _beyond(chunk.file, row, "its interval") from error
    return [from_numpy(values[:, j]) for j in range(len(model.reward_names)) for values in columns.values()]


def _first_overflow(model: Model, X: Array, level: float) -> int:
    """Find the first row whose interval overflows: those before `low` have one, one before `high` has none."""
    low, high = 0, len(X)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            intervals_of(model, X[low:middle], level)
            low = middle
        except InvalidInputError:
            high = middle
    return low


def _beyond(file: str, row: int, what: str) -> InvalidInputError:
    return InvalidInputError(
        f"{file}: row {row} (the first row of data is 1): {what} is beyond 1e308; look for huge values of its features."
    )


def _write(out: Sink, chunk: Chunk, names: Sequence[str], arrays: list[pa.Array]) -> None:
    """Write the kept columns of a chunk and its predictions."""
    try:
        out.write(dict(zip(names, [*chunk.kept, *arrays], strict=True)))
    except InvalidInputError as error:
        raise InvalidInputError(f"{chunk.file}: {error}") from error


def intervals_of(model: Model, X: Array, level: float) -> dict[str, NDArray[Any]]:
    """Return predictions with intervals for features (T, n): by column name, arrays of shape (T, m)."""
    intervals = model.interval(X, level)
    return {name: np.atleast_2d(getattr(intervals, name).T).T for name in ("prediction", *_OF_INTERVALS)}


def predictions_of(model: Model, chunk: Chunk) -> Array:
    """Return predictions for a chunk, (T, m); raises InvalidInputError at the first that overflows."""
    with np.errstate(over="ignore", invalid="ignore"):
        predicted = np.atleast_2d((chunk.X @ model.coef.T + model.intercept).T).T
    bad = ~np.isfinite(predicted).all(axis=1)
    if bad.any():
        raise _beyond(chunk.file, chunk.first + int(np.argmax(bad)) + 1, "the prediction")
    return predicted


def prediction_names(model: Model, kept: Sequence[str], *, intervals: bool = False) -> list[str]:
    """Return the names of the columns of predictions; raises InvalidInputError if `kept` has one of them."""
    kinds = ("prediction", *(_OF_INTERVALS if intervals else ()))
    rewards = model.reward_names
    names = [kind if len(rewards) == 1 else f"{kind}_{reward}" for reward in rewards for kind in kinds]
    for name in kept:
        if name in names or list(kept).count(name) > 1:
            raise InvalidInputError(f"column {name!r} would appear twice in the output; rename it in the data.")
    return names


def _cast(name: str, column: pa.Array, kind: Any) -> pa.Array:
    try:
        return column if column.type == kind else column.cast(kind)
    except pa.ArrowException as error:
        raise InvalidInputError(
            f"column {name!r} is of type {column.type} here and of type {kind} in the files before, and has a value "
            "that cannot be converted; convert the column first, or write to a .csv file."
        ) from error


def _texts(name: str, column: pa.Array) -> list[Any]:
    if pa.types.is_floating(column.type):
        return list(column.to_pylist())
    try:
        return list(as_text(column).to_pylist())
    except pa.ArrowException as error:
        raise InvalidInputError(
            f"column {name!r} of type {column.type} cannot be written as text; write to a .parquet file."
        ) from error
