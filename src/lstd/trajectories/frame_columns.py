"""Columns of a data frame as NumPy arrays, by the argument that names them; errors name both."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lstd.data.ids import Ids
from lstd.data.parsing import NO_VALUE, Fault, check_finite, check_not_infinite, first_true
from lstd.errors import InvalidInputError, missing_extra
from lstd.types import Array, Flags

if TYPE_CHECKING:
    import pyarrow as pa

Check = Callable[[Array, str, Fault | None], Fault | None]  # values, name and first fault of a column -> first bad one


class FrameColumns:
    """Columns of a frame, by the argument that names them; a bad frame or value raises InvalidInputError.

    `roles` holds the names of columns for each argument of the caller. Messages name both, and number rows from
    `first_row`.
    """

    def __init__(self, frame: Any, roles: Mapping[str, list[str]], first_row: int = 0) -> None:
        try:
            from lstd.data import arrow_columns
        except ModuleNotFoundError as error:
            raise missing_extra("Reading a data frame", "pyarrow", "data") from error
        self._read, self.roles, self._first_row = arrow_columns, roles, first_row
        self._order: NDArray[np.intp] | None = None
        needed = [(role, column) for role, names in roles.items() for column in names]
        data = self._selected(frame, needed)
        names = list(dict.fromkeys(name for _, name in needed))
        batch = next(arrow_columns.arrow_batches(data, names, 2**31), None)
        if batch is None:
            raise InvalidInputError("`frame` must have at least one row; got none. Check the filter that made it.")
        self._columns: dict[str, pa.Array] = dict(zip(names, batch.columns, strict=True))
        self._size = len(batch)

    def __len__(self) -> int:
        return self._size

    def _selected(self, frame: Any, needed: Sequence[tuple[str, str]]) -> Any:
        """Return a frame as Arrow or pandas has it, after a check that it has the columns."""
        lazy = hasattr(frame, "collect") and hasattr(frame, "select")
        if not lazy and not self._read.is_frame(frame):
            raise InvalidInputError(
                f"`frame` must be a pandas, Polars or PyArrow table; got {type(frame).__name__}. "
                "Build one, for example with pandas.DataFrame."
            )
        data = frame if lazy else self._read.arrow_table("`frame`", frame)
        present = [*frame.collect_schema().names()] if lazy else self._read.names_of(data)
        for role, column in needed:
            if column not in present:
                raise InvalidInputError(_missing_column(role, column, present))
            if present.count(column) > 1:
                raise InvalidInputError(
                    f"`frame` must have one column per name; {column!r} is there {present.count(column)} times. "
                    "Rename or drop columns."
                )
        names = list(dict.fromkeys(column for _, column in needed))
        return self._read.arrow_table("`frame`", frame.select(names).collect()) if lazy else data

    def sort(self) -> None:
        """Sort the rows by episode, in order of first appearance, and by time; errors name their places before."""
        keys = [self.times()]
        if "episode" in self.roles:
            ids = self.ids("episode").per_row(len(self))
            _, first, number = np.unique(ids, return_index=True, return_inverse=True)
            keys.append(first[number.reshape(-1)])
        self._order = np.lexsort(keys)
        places = self._read.from_numpy(self._order)
        self._columns = {name: array.take(places) for name, array in self._columns.items()}

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

    def _named(self, role: str) -> tuple[pa.Array, str]:
        column = self.roles[role][0]
        return self._columns[column], column

    def numbers(self, role: str, column: str | None = None, check: Check = check_finite) -> Array:
        """Parse a column of numbers, shape (T,); `check` finds the first bad one."""
        column = column or self.roles[role][0]
        values, fault = self._read.numbers(self._columns[column], column)
        return self._known(role, (np.array(values), check(values, column, fault)))

    def matrix(self, role: str, check: Check = check_finite) -> Array:
        """Parse the columns of a role, shape (T, n)."""
        values = np.empty((len(self), len(self.roles[role])))
        for place, name in enumerate(self.roles[role]):
            values[:, place] = self.numbers(role, name, check)
        return values

    def flags(self, role: str) -> Flags:
        """Parse a column of flags, shape (T,)."""
        return self._known(role, self._read.flags(*self._named(role)))

    def times(self) -> NDArray[Any]:
        """Parse the column of times as numbers in their order, shape (T,)."""
        if "start" in self.roles:  # lengths of intervals need numbers
            return self.numbers("time")
        return self._known("time", self._read.times(*self._named("time"), unit="ns"))

    def clock(self) -> tuple[NDArray[Any], bool, bool]:
        """Parse the column of times; returns them, (T,), whether they are dates, and whether those have a time zone.

        Dates are microseconds since 1970 in UTC, other times floats.
        """
        array, column = self._named("time")
        dates, zoned = self._read.clock_of(array)
        times = self._known("time", self._read.times(array, column, unit="us"))
        return (times if dates else times.astype(np.float64)), dates, zoned

    def dates(self) -> NDArray[Any]:
        """Return the column of times, shape (T,), as times of NumPy if the column holds times."""
        values, kind = np.array(self.times()), self._read.numpy_unit(self._named("time")[0])
        return values.view(f"{kind[0]}8[ns]").astype(kind) if kind else values

    def id_values(self, role: str, ids: Ids) -> NDArray[Any]:
        """Return the id of each row, (T,), as times of NumPy if the column holds times."""
        kind = self._read.numpy_unit(self._named(role)[0])
        return ids.per_row(len(self)).astype(kind) if kind.startswith("M") else ids.per_row(len(self))

    def ids(self, role: str) -> Ids:
        """Parse a column of ids, integers, text, categories or dates."""
        ids = self._read.ids(*self._named(role))
        if ids.fault is not None:
            raise self.error(ids.fault.column, ids.fault.row, ids.fault.text, role)
        return ids

    def labels(self, role: str, horizon: Flags) -> NDArray[Any]:
        """Parse a column of numbers, flags as 0 and 1, or text, (T,); missing on a horizon row is 0, NaN or ""."""
        array, column = self._named(role)
        kind = self._read.kind_of(array)
        if kind == "text":
            texts = self._read.as_text(array).to_pylist()
            missing = np.array([text is None for text in texts], np.bool_)
            values: NDArray[Any] = np.array([text or "" for text in texts])
        else:
            values = self.numbers(role, check=check_not_infinite)
            missing = np.isnan(values)
            if kind == "whole":
                values = np.where(missing, 0.0, values).astype(np.int64)
        if (row := first_true(missing & ~horizon)) is not None:
            text = f"{NO_VALUE}; it may be missing only on a horizon row. Fill it in."
            raise self.error(column, row, text, role)
        return values


def _missing_column(role: str, column: str, present: Sequence[Any]) -> str:
    close = difflib.get_close_matches(column, [name for name in present if isinstance(name, str)], n=1)
    names = ", ".join(repr(name) for name in present[:20]) + (", …" if len(present) > 20 else "")
    hint = f" Did you mean {close[0]!r}?" if close else " Name one of these, or rename a column."
    return f"Column {column!r} (`{role}`) is not in the frame, which has {names or 'no columns'}.{hint}"
