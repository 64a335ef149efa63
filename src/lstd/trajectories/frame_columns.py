"""Columns of a data frame of any library as NumPy arrays, checked one by one."""

from __future__ import annotations

import difflib
import numbers
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstd.errors import InvalidInputError
from lstd.trajectories.extras import import_narwhals
from lstd.trajectories.structure import first_true, plain_ids

Array = NDArray[np.float64]


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
        When `frame` is no table, has no rows, or lacks a column.
    """

    def __init__(self, frame: Any, roles: Sequence[tuple[str, str]], first_row: int = 0) -> None:
        self._nw = import_narwhals()
        self.first_row = first_row
        self._data = self._selected(frame, roles)
        if not len(self._data):
            raise InvalidInputError("`frame` must have at least one row; got none. Check the filter that made it.")

    def __len__(self) -> int:
        return len(self._data)

    def _selected(self, frame: Any, roles: Sequence[tuple[str, str]]) -> Any:
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

    def fail(self, role: str, column: str, rule: str) -> InvalidInputError:
        """An error about a column; the caller raises it."""
        return InvalidInputError(f"Column {column!r} (`{role}`) {rule}")

    def row(self, index: int) -> str:
        """How messages name the row at `index`."""
        return f"row {self.first_row + index} (counting from {self.first_row})"

    def numbers(self, role: str, column: str, *, may_miss: bool = False) -> Array:
        """A numeric column as float64, shape (T,), with NaN where it is missing.

        Raises
        ------
        InvalidInputError
            When a value is no number or is infinite, or missing without `may_miss`.
        """
        series = self._data[column]
        if series.dtype.is_numeric() or series.dtype == self._nw.Boolean:
            values = np.array(series.cast(self._nw.Float64).to_numpy(), dtype=np.float64)
        elif series.is_null().all():
            values = np.full(len(self), np.nan)
        else:
            values = self._parsed(role, column, series)
        row = first_true(np.isinf(values))
        if row is not None:
            raise self.fail(
                role, column, f"must be finite; {self.row(row)} has {values[row]}. Drop or impute it first."
            )
        row = first_true(np.isnan(values))
        if row is not None and not may_miss:
            raise self.fail(
                role, column, f"must not have missing values; {self.row(row)} has none. Drop or impute such rows first."
            )
        return values

    def _parsed(self, role: str, column: str, series: Any) -> Array:
        """Numbers held as Python objects; text is refused, even where it reads as numbers."""
        kind = str(series.dtype)
        if kind in ("String", "Categorical") or kind.startswith("Enum"):
            texts = series.to_list()
            bad = next((row for row, text in enumerate(texts) if not _is_number_text(text)), None)
            if bad is None:
                rule = f"must be numeric; its type is {kind}, although it reads as numbers. Cast it to float first."
            else:
                rule = (
                    f"must be numeric; its type is {kind}, and {self.row(bad)} has {texts[bad]!r}. "
                    "Encode it as numbers first, for example as one column per category."
                )
            raise self.fail(role, column, rule)
        if kind != "Object":
            raise self.fail(role, column, f"must be numeric; its type is {kind}. Turn it into numbers first.")
        missing = series.is_null().to_numpy()
        values = np.full(len(self), np.nan)
        for row, value in enumerate(series.to_list()):
            if missing[row]:
                continue
            if not isinstance(value, (numbers.Real, Decimal, np.bool_)):
                raise self.fail(role, column, f"must be numeric; {self.row(row)} has {value!r}. Turn it into a number.")
            values[row] = float(value)
        return values

    def flags(self, role: str, column: str) -> NDArray[np.bool_]:
        """A column of True and False, or of 1 and 0, shape (T,).

        Raises
        ------
        InvalidInputError
            When a value is missing or is anything else.
        """
        values = self.numbers(role, column, may_miss=True)
        row = first_true((values != 0.0) & (values != 1.0))
        if row is not None:
            found = "none" if np.isnan(values[row]) else f"{values[row]:g}"
            rule = f"must hold True and False, or 1 and 0; {self.row(row)} has {found}. Fill or recode it first."
            raise self.fail(role, column, rule)
        return np.asarray(values == 1.0)

    def ids(self, role: str, column: str) -> NDArray[Any]:
        """A column of integers, text, categories or dates, shape (T,).

        Raises
        ------
        InvalidInputError
            When a value is missing, or is of another kind.
        """
        series = self._data[column]
        row = first_true(np.asarray(series.is_null().to_numpy(), dtype=np.bool_))
        if row is None:
            values = series.cast(self._nw.String).to_numpy() if series.dtype.is_decimal() else series.to_numpy()
            dates = series.dtype == self._nw.Date and values.dtype == object  # as pandas gives Arrow's dates
            values, row = plain_ids(values.astype("M8[D]") if dates else values)
            if row is None:
                return values
            if values.dtype == object:
                rule = f"must hold ids of one kind; {self.row(row)} has {values[row]!r}. Convert all to text first."
                raise self.fail(role, column, rule)
        raise self.fail(
            role, column, f"must have an id in every row; {self.row(row)} has none. Fill or drop such rows first."
        )

    def ranks(self, role: str, column: str) -> NDArray[Any]:
        """Order of a column of numbers or dates as numbers from 0, equal ones for equal values, shape (T,).

        Raises
        ------
        InvalidInputError
            When a value is missing or has no order in time.
        """
        series = self._data[column]
        kind = series.dtype
        if not (kind.is_numeric() or kind.is_temporal()):
            rule = f"must hold numbers or dates; its type is {kind}. Convert it first, for example to a datetime."
            raise self.fail(role, column, rule)
        missing = np.asarray(series.is_null().to_numpy(), dtype=np.bool_)
        if kind.is_float():
            missing = missing | np.isnan(np.asarray(series.to_numpy(), dtype=np.float64))
        row = first_true(missing)
        if row is not None:
            rule = f"must not have missing values; {self.row(row)} has none. Drop or impute such rows first."
            raise self.fail(role, column, rule)
        return np.unique(np.asarray(series.to_numpy()), return_inverse=True)[1].reshape(-1)


def _missing_column(role: str, column: str, present: Sequence[Any]) -> str:
    close = difflib.get_close_matches(column, [name for name in present if isinstance(name, str)], n=1)
    names = ", ".join(repr(name) for name in present[:20]) + (", …" if len(present) > 20 else "")
    hint = f" Did you mean {close[0]!r}?" if close else " Name one of these, or rename a column."
    return f"Column {column!r} (`{role}`) is not in the frame, which has {names or 'no columns'}.{hint}"


def _is_number_text(text: Any) -> bool:
    if text is None:
        return True
    try:
        float(text)
    except (TypeError, ValueError):
        return False
    return True
