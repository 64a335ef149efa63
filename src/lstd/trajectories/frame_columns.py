"""Columns of a data frame of any library as NumPy arrays, by the rules of `lstd.data.columns`."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstd.data import columns as rules
from lstd.data.columns import Array, Fault, Flags, first_true
from lstd.errors import InvalidInputError
from lstd.trajectories.extras import import_narwhals


class Table:
    """Named columns of a frame.

    Parameters
    ----------
    frame : pandas, Polars or PyArrow table, or a lazy frame that narwhals knows
    roles : sequence of (argument, column) pairs
        What the columns are for; messages name both.
    first_row : int
        Number of the first row in messages.

    Raises
    ------
    InvalidInputError
        When `frame` is not a table, has no rows, or lacks a column; from the methods, at the first bad value.
    """

    def __init__(self, frame: Any, roles: Sequence[tuple[str, str]], first_row: int = 0) -> None:
        self._nw = import_narwhals()
        self._first_row = first_row
        self._order: NDArray[np.intp] | None = None
        self._data = self._select(frame, roles)
        if not len(self._data):
            raise InvalidInputError("`frame` must have at least one row; got none. Check the filter that made it.")

    def __len__(self) -> int:
        return len(self._data)

    def _select(self, frame: Any, roles: Sequence[tuple[str, str]]) -> Any:
        try:
            data = self._nw.from_native(frame)
            lazy = isinstance(data, self._nw.LazyFrame)
            present = list(data.collect_schema().names()) if lazy else list(data.columns)
        except TypeError as error:
            raise InvalidInputError(
                f"`frame` must be a pandas, Polars or PyArrow table; got {type(frame).__name__}. "
                "Build one, for example with pandas.DataFrame."
            ) from error
        except self._nw.exceptions.DuplicateError as error:
            raise InvalidInputError(
                f"`frame` must have one column per name: {' '.join(str(error).split())}. Rename or drop columns."
            ) from error
        for role, column in roles:
            if column not in present:
                raise InvalidInputError(_missing_column(role, column, present))
        data = data.select(list(dict.fromkeys(column for _, column in roles)))
        return data.collect() if lazy else data

    def sort(self, order: NDArray[np.intp]) -> None:
        """Let columns that are parsed from now on have their rows in this order, shape (T,)."""
        self._order = order

    def _sorted(self, values: Any) -> Any:
        return values if self._order is None else values[self._order]

    def error(self, role: str, column: str, row: int, text: str) -> InvalidInputError:
        """The error for the value in a row of sorted columns; the caller raises it."""
        return self._error(role, column, row if self._order is None else int(self._order[row]), text)

    def _error(self, role: str, column: str, row: int, text: str) -> InvalidInputError:
        where = f"row {self._first_row + row} (counting from {self._first_row})"
        return InvalidInputError(f"Column {column!r} (`{role}`), {where}: {text}")

    def _check(self, role: str, fault: Fault | None) -> None:
        if fault is not None:
            raise self._error(role, fault.column, fault.row, fault.text)

    def numbers(self, role: str, column: str, *, may_miss: bool = False) -> Array:
        """Parse a column of finite numbers, shape (T,), with NaN where it is missing, if `may_miss`."""
        check = rules.check_not_infinite if may_miss else rules.check_finite
        values, fault = rules.numbers(self._values(role, column), column)
        self._check(role, check(values, column, fault))
        return np.asarray(self._sorted(values))

    def flags(self, role: str, column: str) -> Flags:
        """Parse a column of flags, shape (T,)."""
        values, fault = rules.flags(self._values(role, column), column)
        self._check(role, fault)
        return np.asarray(self._sorted(values))

    def _values(self, role: str, column: str) -> NDArray[Any]:
        """Float64, or Python objects with None where they are missing."""
        series = self._data[column]
        kind = series.dtype
        if kind.is_numeric() or kind == self._nw.Boolean:
            return np.array(series.cast(self._nw.Float64).to_numpy(), dtype=np.float64)
        missing = _is_null(series)
        if missing.all():
            return np.full(len(self), np.nan)
        if kind not in (self._nw.Object, self._nw.String, self._nw.Categorical, self._nw.Enum):
            raise self._error(role, column, 0, f"is not numeric; the column is of type {kind}.")
        values = np.empty(len(self), dtype=object)
        values[:] = series.to_list()
        values[missing] = None
        return values

    def ids(self, role: str, column: str) -> NDArray[Any]:
        """Parse a column of integers, text, categories or dates, shape (T,)."""
        series, fault = self._data[column], None
        missing = first_true(_is_null(series))
        known = series if missing is None else series[:missing]
        values = known.cast(self._nw.String).to_numpy() if series.dtype.is_decimal() else known.to_numpy()
        if series.dtype == self._nw.Date and values.dtype == object:  # as pandas gives Arrow's dates
            values = values.astype("M8[D]")
        ids, bad = rules.plain_ids(values)
        if bad is not None and ids.dtype == object:
            text = f"has {ids[bad]!r}, which is no id or not of one type with the others; convert all to text first."
            raise self._error(role, column, bad, text)
        row = missing if bad is None else bad
        if row is not None:
            text = "is infinite" if bad is not None and np.isinf(ids[bad]) else rules.NO_VALUE
            fault = Fault(row, column, f"{text}; {rules.NEEDS_ID}")
        if ids.dtype.kind == "U":
            changes = np.flatnonzero(np.r_[True, ids[1:] != ids[:-1]][: len(ids)])
            runs = rules.ids_of_text(changes, ids[changes].tolist(), column, fault)
            ids, fault = np.repeat(runs.names, np.diff(runs.changes, append=len(ids))), runs.fault
        self._check(role, fault)
        return ids

    def ranks(self, role: str, column: str) -> NDArray[Any]:
        """Order of a column of numbers or dates as numbers from 0, equal ones for equal values, shape (T,)."""
        series = self._data[column]
        kind = series.dtype
        if not (kind.is_numeric() or kind.is_temporal()):
            rule = f"must hold numbers or dates; the column is of type {kind}. Convert it, for example to a datetime."
            raise self._error(role, column, 0, rule)
        missing = _is_null(series)
        if kind.is_float():
            missing |= np.isnan(np.asarray(series.to_numpy(), dtype=np.float64))
        row = first_true(missing)
        if row is not None:
            raise self._error(role, column, row, f"{rules.NO_VALUE}; drop or impute such rows first.")
        return np.unique(np.asarray(series.to_numpy()), return_inverse=True)[1].reshape(-1)


def _is_null(series: Any) -> Flags:
    return np.array(series.is_null().to_numpy(), dtype=np.bool_)


def _missing_column(role: str, column: str, present: Sequence[Any]) -> str:
    close = difflib.get_close_matches(column, [name for name in present if isinstance(name, str)], n=1)
    names = ", ".join(repr(name) for name in present[:20]) + (", …" if len(present) > 20 else "")
    hint = f" Did you mean {close[0]!r}?" if close else " Name one of these, or rename a column."
    return f"Column {column!r} (`{role}`) is not in the frame, which has {names or 'no columns'}.{hint}"
