"""Predictions for tables, written chunk by chunk to CSV or Parquet."""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
from numpy.typing import NDArray

from lstd.data.arrow_columns import from_numpy
from lstd.data.parse_columns import as_text
from lstd.data.roles import Roles
from lstd.errors import InvalidInputError
from lstd.estimators.contributions import Contributions
from lstd.estimators.linear import Linear
from lstd.statistics.intervals import MEAN
from lstd.tables.reader import Chunk, RowReader, open_tables
from lstd.tables.sort_and_impute import Prepared
from lstd.types import Array

if TYPE_CHECKING:
    from lstd.estimators.pair_search import OnProgress


_OF_INTERVALS = ("lower", "upper", "standard_error", "little_data")
_MOST_KEPT = 2**20  # features, 8 MiB


# ------------------------------------------------------------ where predictions go


def _csv_bytes(rows: Iterable[Iterable[Any]]) -> bytes:
    """Return rows as lines of CSV; numbers in the fewest digits that give the same float64."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode("utf-8", "surrogateescape")


Write = Callable[[dict[str, pa.Array]], object]  # takes columns by name


@contextlib.contextmanager
def csv_sink(file: IO[bytes], names: Sequence[str]) -> Iterator[Write]:
    """Write rows of text; the header comes with the first, or at the end, but not before an error."""
    header = [names]

    def write(columns: dict[str, pa.Array]) -> None:
        rows = zip(*map(_texts, columns, columns.values()), strict=True)
        file.write(_csv_bytes(itertools.chain(header, rows)))
        header.clear()

    yield write
    file.write(_csv_bytes(header))
    file.flush()


@contextlib.contextmanager
def parquet_sink(file: IO[bytes], names: Sequence[str]) -> Iterator[Write]:
    """Write a Parquet file; kept columns have the types of the tables, text if they come from CSV."""
    writer: Any = None

    def write(columns: dict[str, pa.Array]) -> None:
        nonlocal writer
        if writer is None:
            schema = pa.schema([(name, column.type) for name, column in columns.items()])
            writer = pyarrow.parquet.ParquetWriter(file, schema)
        arrays = [_cast(name, columns[name], writer.schema.field(name).type) for name in columns]
        writer.write_table(pa.Table.from_arrays(arrays, schema=writer.schema))

    try:
        yield write
        if writer is None:
            write({name: from_numpy(np.empty(0, bool if name.startswith("little_data") else float)) for name in names})
        writer.close()
    except BaseException:
        # A writer left open would try to write when it is collected, to a file that is closed by then.
        if writer is not None:
            with contextlib.suppress(Exception):
                writer.close()
        raise


def _cast(name: str, column: pa.Array, kind: Any) -> pa.Array:
    """Return a column in the type of the file; raises InvalidInputError when a value has no place in it."""
    if column.type == kind:
        return column
    try:
        return column.cast(kind)
    except pa.ArrowException as error:
        raise InvalidInputError(
            f"column {name!r} is of type {column.type} here and of type {kind} in the files before, and has a value "
            "that cannot be converted; convert the column first, or write to a .csv file."
        ) from error


def _texts(name: str, column: pa.Array) -> list[Any]:
    """Return the cells of a column: numbers as such, others as text; raises InvalidInputError where that is none."""
    try:
        cells = column
        if not pa.types.is_floating(column.type):
            cells = as_text(column)
        return list(cells.to_pylist())
    except pa.ArrowException as error:
        raise InvalidInputError(
            f"column {name!r} of type {column.type} cannot be written as text; write to a .parquet file."
        ) from error


# ------------------------------------------------------------ predictions


class Thinned:
    """Rows from all over a stream: every k-th, where k doubles whenever too many are kept."""

    def __init__(self, most: int = _MOST_KEPT) -> None:
        self._kept: list[Array] = []
        self._most = most
        self._step = 1

    def add(self, rows: Array) -> None:
        """Add the next rows, (T, n)."""
        self._kept.append(rows[:: self._step].copy())  # a view would hold all of them
        while sum(kept.size for kept in self._kept) > self._most:
            self._kept = [self.rows[::2]]
            self._step *= 2

    @property
    def rows(self) -> Array:
        """The rows that are kept."""
        if not self._kept:
            return np.empty((0, 1))
        return np.concatenate(self._kept)


def predict_tables(
    linear: Linear,
    paths: Sequence[str],
    kept: Sequence[str],
    sink: Callable[[IO[bytes], Sequence[str]], contextlib.AbstractContextManager[Write]],
    file: IO[bytes],
    *,
    level: float | None = None,
    of: str = MEAN,
    contributions: bool = False,
    chunk_rows: int | None = None,
    on_progress: OnProgress | None = None,
) -> int:
    """Write predictions for all rows of tables to a file, after the columns `kept`; returns the number of rows.

    Predictions are in column ``prediction``. With `level`, ``lower`` and ``upper`` are the ends of intervals of that
    level; ``standard_error`` follows, and ``little_data``, which is true where a few episodes decide, and where the fit
    had no row with a word of a column of categories. They are `of` the expected returns, "mean", or of those that come,
    "return". With several rewards, the names end in ``_`` and the name of the
    reward. With `contributions`, ``at_means`` and a column ``contribution_`` of each feature follow, with `level` also
    ``contribution_error_``, and for predictions with bounds ``by_bounds``, what these change.

    Raises InvalidInputError when the model has no intervals, at the first bad row, or at the first prediction that
    overflows; rows before it may have been written. Warns if features or predictions are far outside of what the fit
    has seen.
    """
    roles = Roles(features=linear.feature_names, kept=tuple(kept))
    reader = RowReader(open_tables(paths, on_progress), roles, chunk_rows=chunk_rows)
    zero = np.zeros((1, len(linear.feature_names)))  # which raises before anything is written
    names = [*kept, *_columns(linear, zero, linear.predict(zero), level, of, contributions)]
    twice = [name for name in kept if names.count(name) > 1]
    if twice:
        raise InvalidInputError(f"column {twice[0]!r} would appear twice in the output; rename it in the data.")
    written = 0
    seen = Thinned()
    with sink(file, names) as write:
        for chunk in reader.chunks():
            predicted = predictions_of(linear, chunk)
            try:
                columns = _columns(linear, chunk.rows.X, predicted, level, of, contributions)
            except InvalidInputError as error:
                raise chunk.error(error) from error
            table = reader.tables[0]
            if level is not None and isinstance(table, Prepared):
                unseen = table.unseen(chunk.rows.X, linear.feature_names)
                for name in columns:
                    if name.startswith("little_data"):
                        columns[name] = columns[name] | unseen
            try:
                write(_as_given(roles, chunk) | {name: from_numpy(values) for name, values in columns.items()})
            except InvalidInputError as error:
                raise InvalidInputError(f"{chunk.file}: {error}") from error
            seen.add(chunk.rows.X)
            written += len(chunk.rows)
    if written:
        linear.warn_of_unlike(linear, seen.rows, linear.predict(seen.rows))
    return written


def _as_given(roles: Roles, chunk: Chunk) -> dict[str, pa.Array]:
    """Return the columns to copy; where a feature's missing values were filled, they are missing again."""
    features = list(roles.features or ())
    columns = {}
    for name, column in zip(roles.kept, chunk.kept, strict=True):
        columns[name] = column
        says_where = f"{name}="  # the column of 0 and 1 that says where values were filled in
        if says_where in features and pa.types.is_floating(column.type):
            missing = from_numpy(chunk.rows.X[:, features.index(says_where)] == 1.0)
            columns[name] = pc.if_else(missing, pa.nulls(1, column.type)[0], column)
    return columns


def _columns(
    linear: Linear, X: Array, predicted: Array, level: float | None, of: str, contributions: bool
) -> dict[str, NDArray[Any]]:
    """Return the columns for features (T, n), by name: predictions, with a level intervals, and contributions."""
    ends = [""] if len(linear.rewards) == 1 else [f"_{reward}" for reward in linear.rewards]
    values_by_name = {"prediction": predicted}
    if level is not None:
        intervals = linear.interval(X, level, of=of)
        values_by_name = {name: getattr(intervals, name) for name in ("prediction", *_OF_INTERVALS)}
    columns = {}
    for j, end in enumerate(ends):
        for name, values in values_by_name.items():
            columns[f"{name}{end}"] = values.reshape(len(X), -1)[:, j]
    if not contributions:
        return columns
    parts = Contributions.of(linear, X)
    kinds = {"contribution": parts.values}
    if level is not None:
        kinds["contribution_error"] = parts.standard_error
    for j, end in enumerate(ends):
        columns[f"at_means{end}"] = np.full(len(X), np.atleast_1d(parts.base)[j])
        for kind, values in kinds.items():
            of_reward = values.reshape(len(X), len(ends), -1)[:, j]
            for name, part in zip(linear.feature_names, of_reward.T, strict=True):
                columns[f"{kind}_{name}{end}"] = part
        if linear.is_bounded:
            columns[f"by_bounds{end}"] = parts.by_bounds.reshape(len(X), -1)[:, j]
    return columns


def predictions_of(linear: Linear, chunk: Chunk) -> Array:
    """Return predictions for a chunk, (T, m); raises InvalidInputError at the first that overflows."""
    predicted = linear.unchecked(chunk.rows.X).reshape(len(chunk.rows), -1)
    bad = ~np.isfinite(predicted).all(axis=1)
    if bad.any():
        row = chunk.rows.place + int(np.argmax(bad)) + 1
        raise InvalidInputError(
            f"{chunk.file}: row {row} (the first row of data is 1): the "
            "prediction is beyond 1e308; look for huge values of its features."
        )
    return linear.limited(predicted)
