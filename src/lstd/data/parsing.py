"""What counts as a missing value and as a time, and the first bad value of a column.

Nothing here needs another package. Columns of files and of data frames are converted by `lstd.data.arrow_columns`, ids
by `lstd.data.ids`.
"""

from __future__ import annotations

import math
from datetime import date, datetime, time, timedelta
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lstd.types import Flags

# Text that means a missing value, in lower case and without white space.
MISSING = frozenset(("", "na", "n/a", "#n/a", "nan", "-nan", "null", "none", "<na>"))
NO_VALUE = "has no value (it is empty or NaN)"
AS_DAYS = "convert it to numbers, such as days since a fixed date."
NO_TIME = f"{NO_VALUE}; give every row its time, or leave out its whole episode: single rows hold rewards and ends."
_EPOCH = datetime(1970, 1, 1)
_SHOWN = 40  # characters of a bad value in a message


class Fault(NamedTuple):
    """The first bad value of a column."""

    row: int  # counted from 0 in the rows that were parsed
    column: str
    text: str  # rule and remedy, to follow the place in a message


def first_true(mask: Flags) -> int | None:
    """Return the index of the first True; None if there is none."""
    return int(np.argmax(mask)) if mask.any() else None


def described(value: Any) -> str:
    """Describe a bad value, to follow its place in a message."""
    if isinstance(value, str):
        value = value.strip()
    if value is None or value == "" or (isinstance(value, Real) and math.isnan(value)):
        return NO_VALUE
    if isinstance(value, Real):
        return f"has {float(value):g}"
    text = value if isinstance(value, str) else repr(value)
    text = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
    return f"has {text!r}" if isinstance(value, str) else f"has {text}"


def times(values: NDArray[Any], column: str) -> tuple[NDArray[Any], Fault | None]:
    """Return times, (T,), none of which may be missing, as integers or floats in their order, and the first bad one.

    They are numbers or times of NumPy; or objects and text, all numbers or all dates, which are microseconds since 1970
    in UTC.
    """
    if values.dtype.kind in "mM":
        row = first_true(np.isnat(values))
        return values.view(np.int64), None if row is None else Fault(row, column, NO_TIME)
    if values.dtype.kind in "OSU":
        try:
            values = np.array([math.nan if described(value) == NO_VALUE else float(value) for value in values])
        except (TypeError, ValueError):
            return _of_dates(values.tolist(), column)
    if values.dtype.kind != "f":
        return values.astype(values.dtype if values.dtype.kind == "u" else np.int64), None
    if (row := first_true(~np.isfinite(values))) is None:
        return values, None
    return values, Fault(row, column, "is infinite; correct it." if np.isinf(values[row]) else NO_TIME)


def _of_dates(values: list[Any], column: str) -> tuple[NDArray[Any], Fault | None]:
    zoned, found = None, []
    for row, value in enumerate(values):
        moment, text = microseconds(value), described(value)
        if moment is None:
            rule = ", which is neither a number nor a date such as 2024-01-31 12:00; correct it."
            return np.zeros(len(values)), Fault(row, column, NO_TIME if text == NO_VALUE else text + rule)
        if zoned not in (None, moment[1]):
            text = f"{text}; give every time a time zone, or none of them."
            return np.zeros(len(values)), Fault(row, column, text)
        zoned = moment[1]
        found.append(moment[0])
    return np.array(found, np.int64), None


def microseconds(value: Any) -> tuple[int, bool] | None:
    """Convert a date, or ISO text of one, to microseconds since 1970, and whether it has a time zone; else None.

    Durations and times of day count from zero.
    """
    if isinstance(value, timedelta):
        value = _EPOCH + value
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value.strip())
        except ValueError:
            return None
    if isinstance(value, time):
        value = datetime.combine(_EPOCH, value)
    elif isinstance(value, date) and not isinstance(value, datetime):
        value = datetime.combine(value, time.min)
    if not isinstance(value, datetime) or value != value:  # NaT of pandas is a datetime
        return None
    offset = value.utcoffset()
    since = value.replace(tzinfo=None) - _EPOCH - (offset or timedelta(0))
    return since // timedelta(microseconds=1), offset is not None
