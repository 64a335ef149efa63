"""Predictions for tables, written chunk by chunk."""

from __future__ import annotations

import contextlib
import csv
import io
from collections.abc import Sequence
from typing import IO, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from lstd.errors import InvalidInputError
from lstd.persistence import FittedModel
from lstd.tables.columns import as_text, from_numpy
from lstd.tables.rows import OnProgress, Roles, RowReader


class Sink(Protocol):
    """Where predictions go."""

    def write(self, columns: dict[str, pa.Array]) -> None:
        """Write the next rows; all calls have the same columns."""

    def close(self) -> None:
        """Write what is left."""

    def abandon(self) -> None:
        """Let go of a file that will not be kept."""


class CsvSink:
    """Rows of text with a header; numbers in as few digits as give the same float64."""

    def __init__(self, file: IO[bytes], names: Sequence[str]) -> None:
        self._file = file
        self._write([names])

    def write(self, columns: dict[str, pa.Array]) -> None:
        self._write(zip(*(_texts(name, column) for name, column in columns.items()), strict=True))

    def close(self) -> None:
        self._file.flush()

    def abandon(self) -> None:
        """Nothing is held."""

    def _write(self, rows: Any) -> None:
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerows(rows)
        self._file.write(text.getvalue().encode("utf-8"))


class ParquetSink:
    """A Parquet file; columns that are passed on keep their types, which are texts when they come from CSV."""

    def __init__(self, file: IO[bytes], names: Sequence[str]) -> None:
        self._file, self._names = file, names
        self._writer: Any = None

    def write(self, columns: dict[str, pa.Array]) -> None:
        table = pa.Table.from_arrays(list(columns.values()), names=list(columns))
        if self._writer is None:
            self._writer = pyarrow.parquet.ParquetWriter(self._file, table.schema)
        self._writer.write_table(table.cast(self._writer.schema))

    def close(self) -> None:
        if self._writer is None:
            self.write({name: from_numpy(np.empty(0)) for name in self._names})
        self._writer.close()

    def abandon(self) -> None:
        # A writer left open would try to write when it is collected, to a file that is closed by then.
        if self._writer is not None:
            with contextlib.suppress(Exception):
                self._writer.close()


def predict_tables(
    model: FittedModel,
    paths: Sequence[str],
    kept: Sequence[str],
    sink: type[CsvSink] | type[ParquetSink],
    file: IO[bytes],
    *,
    chunk_rows: int | None = None,
    on_progress: OnProgress | None = None,
) -> int:
    """Write the predictions for all rows of tables to a file, after the columns to be passed on.

    The column of predictions is named ``prediction``, or ``prediction_`` and the reward's name when there are several.

    Returns
    -------
    int
        Rows written.

    Raises
    ------
    InvalidInputError
        At the first bad row; rows before it may have been written.
    """
    roles = Roles(features=model.feature_names, kept=tuple(kept))
    reader = RowReader(paths, roles, chunk_rows=chunk_rows, on_progress=on_progress)
    names = prediction_names(model, kept)
    written = 0
    out: Sink = sink(file, [*kept, *names])
    try:
        for chunk in reader.chunks():
            predicted = model.predict(chunk.X)
            columns = [*chunk.kept, *(from_numpy(predicted[:, j]) for j in range(len(names)))]
            out.write(dict(zip([*kept, *names], columns, strict=True)))
            written += len(chunk)
        out.close()
    except BaseException:
        out.abandon()
        raise
    return written


def prediction_names(model: FittedModel, kept: Sequence[str]) -> list[str]:
    """Names of the columns of predictions; raises InvalidInputError when a column to be passed on has one of them."""
    rewards = model.reward_names
    names = ["prediction"] if len(rewards) == 1 else [f"prediction_{reward}" for reward in rewards]
    for name in kept:
        if name in names or list(kept).count(name) > 1:
            raise InvalidInputError(f"column {name!r} would come twice in the output; rename it in the data.")
    return names


def _texts(name: str, column: pa.Array) -> list[Any]:
    if pa.types.is_floating(column.type):
        return list(column.to_pylist())
    try:
        return list(as_text(column).to_pylist())
    except pa.ArrowException as error:
        raise InvalidInputError(
            f"column {name!r} of type {column.type} cannot be written as text; write to a .parquet file."
        ) from error
