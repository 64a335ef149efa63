"""Columns of a data frame of any library as NumPy arrays, by the rules of `lstd.data.parsing`."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstd.data import parsing as rules
from lstd.data.ids import NEEDS_ID, ids_of_runs, ids_of_text, plain_ids
from lstd.data.parsing import Fault, first_true
from lstd.errors import InvalidInputError, missing_extra
from lstd.types import Array, Flags

Check = Callable[[Array, str, Fault | None], Fault | None]  # values, name and first fault of a column -> first bad one


def import_narwhals() -> Any:
    """Import narwhals; raises MissingExtraError."""
    try:
        import narwhals
    except ImportError as error:
        raise missing_extra("Reading a data frame", "narwhals", "data") from error
    return narwhals


class FrameColumns:
    """Columns of a frame, by the argument that names them; a bad frame or value raises InvalidInputError.

    `roles` holds the names of columns for each argument of the caller. Messages name both, and number rows from
    `first_row`.
    """

    def __init__(self, frame: Any, roles: Mapping[str, list[str]], first_row: int = 0) -> None:
        self._nw = import_narwhals()
        self.roles, self._first_row = roles, first_row
        self._order: NDArray[np.intp] | None = None
        self._data = self._select(frame)
        if not len(self._data):
            raise InvalidInputError("`frame` must have at least one row; got none. Check the filter that made it.")

    def __len__(self) -> int:
        return len(self._data)

    def _select(self, frame: Any) -> Any:
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
        needed = [(role, column) for role, names in self.roles.items() for column in names]
        for role, column in needed:
            if column not in present:
                raise InvalidInputError(_missing_column(role, column, present))
        data = data.select(list(dict.fromkeys(column for _, column in needed)))
        return data.collect() if lazy else data

    def sort(self, order: NDArray[np.intp]) -> None:
        """Put the rows in this order, shape (T,); errors name their places before."""
        self._data, self._order = self._data[order], order

    def error(self, column: str, row: int, text: str, role: str = "") -> InvalidInputError:
        """Make the error for a row; without `role`, it is that of the column other than a feature."""
        role = role or next(role for role, names in self.roles.items() if column in names and role != "features")
        if "start" in self.roles:  # a table of intervals
            role = {"time": "start", "terminated": "event"}.get(role, role)
        place = self._first_row + (row if self._order is None else int(self._order[row]))
        return InvalidInputError(f"Column {column!r} (`{role}`), row {place} (counting from {self._first_row}): {text}")

    def _known(self, role: str, parsed: tuple[NDArray[Any], Fault | None]) -> NDArray[Any]:
        values, fault = parsed
        if fault is not None:
            raise self.error(fault.column, fault.row, fault.text, role)
        return values

    def numbers(self, role: str, column: str | None = None, check: Check = rules.check_finite) -> Array:
        """Parse a column of numbers, shape (T,); `check` finds the first bad one."""
        column = column or self.roles[role][0]
        values, fault = rules.numbers(self._values(role, column), column)
        return self._known(role, (values, check(values, column, fault)))

    def matrix(self, role: str, check: Check = rules.check_finite) -> Array:
        """Parse the columns of a role, shape (T, n)."""
        values = np.empty((len(self), len(self.roles[role])))
        for place, name in enumerate(self.roles[role]):
            values[:, place] = self.numbers(role, name, check)
        return values

    def flags(self, role: str) -> Flags:
        """Parse a column of flags, shape (T,)."""
        column = self.roles[role][0]
        return self._known(role, rules.flags(self._values(role, column), column))

    def times(self, *, kept: bool = False) -> NDArray[Any]:
        """Parse the column of times as numbers in their order, shape (T,); times of NumPy stay so if `kept`."""
        if "start" in self.roles:  # lengths of intervals need numbers
            return self.numbers("time")
        column = self.roles["time"][0]
        values, missing = np.array(self._data[column].to_numpy()), _is_null(self._data[column])
        if values.dtype == object:
            values[missing] = None  # pandas has several
        found = self._known("time", rules.times(values, column))
        return found.view(values.dtype) if kept and values.dtype.kind in "mM" else found

    def _values(self, role: str, column: str) -> NDArray[Any]:
        """Return a column as float64, or as Python objects with None for missing ones."""
        series = self._data[column]
        kind = series.dtype
        if kind.is_float() or kind == self._nw.Boolean:
            return np.array(series.cast(self._nw.Float64).to_numpy(), dtype=np.float64)
        missing = _is_null(series)
        if missing.all():
            return np.full(len(self), np.nan)
        if kind == self._nw.Unknown and (values := np.asarray(series.to_numpy())).dtype.kind in "biuf":
            return values.astype(np.float64)  # sparse columns of pandas
        if not (kind.is_numeric() or kind in (self._nw.Object, self._nw.String, self._nw.Categorical, self._nw.Enum)):
            raise self.error(column, 0, rules.not_numeric(column, kind, temporal=kind.is_temporal()).text, role)
        if kind.is_numeric() and not missing.any():
            return np.array(series.to_numpy(), dtype=np.float64)
        values = np.empty(len(self), dtype=object)
        values[:] = series.to_list()
        values[missing] = None
        return values

    def ids(self, role: str) -> NDArray[Any]:
        """Parse a column of ids, integers, text, categories or dates, shape (T,)."""
        column, fault = self.roles[role][0], None
        series = self._data[column]
        missing = first_true(_is_null(series))
        known = series if missing is None else series[:missing]
        values = known.cast(self._nw.String).to_numpy() if series.dtype.is_decimal() else known.to_numpy()
        if series.dtype == self._nw.Date and values.dtype == object:  # as pandas gives Arrow's dates
            values = values.astype("M8[D]")
        if values.ndim != 1:  # as NumPy reads a column of arrays
            raise self.error(column, 0, f"must hold one id; the column is of type {series.dtype}.", role)
        ids, bad = plain_ids(values)
        if bad is not None and ids.dtype == object:
            text = f"has {ids[bad]!r}, which is not an id, or not of the same type as the others; convert all to text."
            raise self.error(column, bad, text, role)
        row = missing if bad is None else bad
        if row is not None:
            text = "is infinite" if bad is not None and np.isinf(ids[bad]) else rules.NO_VALUE
            fault = Fault(row, column, f"{text}; {NEEDS_ID}")
        if ids.dtype.kind == "U":
            runs = ids_of_text(*ids_of_runs(ids)[:2], column, fault)
            ids, fault = np.repeat(runs.names, np.diff(runs.changes, append=len(ids))), runs.fault
        return self._known(role, (ids, fault))

    def labels(self, role: str, horizon: Flags) -> NDArray[Any]:
        """Parse a column of numbers, flags as 0 and 1, or text, (T,); missing on a horizon row is 0, NaN or ""."""
        column = self.roles[role][0]
        series = self._data[column]
        missing = _is_null(series)
        is_whole = series.dtype.is_integer() or series.dtype == self._nw.Boolean
        if series.dtype.is_integer() and not missing.any():
            return np.asarray(series.to_numpy())
        if series.dtype.is_numeric() or is_whole:
            values = self.numbers(role, check=rules.check_not_infinite)
            missing = np.isnan(values)
        else:
            texts = zip(series.cast(self._nw.String).to_list(), missing.tolist(), strict=True)
            values = np.array(["" if none else str(one) for one, none in texts])
        if (row := first_true(missing & ~horizon)) is not None:
            text = f"{rules.NO_VALUE}; it may be missing only on a horizon row. Fill it in."
            raise self.error(column, row, text, role)
        return np.where(missing, 0.0, values).astype(np.int64) if is_whole else values


def _is_null(series: Any) -> Flags:
    return np.array(series.is_null().to_numpy(), dtype=np.bool_)


def _missing_column(role: str, column: str, present: Sequence[Any]) -> str:
    close = difflib.get_close_matches(column, [name for name in present if isinstance(name, str)], n=1)
    names = ", ".join(repr(name) for name in present[:20]) + (", …" if len(present) > 20 else "")
    hint = f" Did you mean {close[0]!r}?" if close else " Name one of these, or rename a column."
    return f"Column {column!r} (`{role}`) is not in the frame, which has {names or 'no columns'}.{hint}"
