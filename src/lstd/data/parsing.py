"""One parser of columns: what counts as a number, a missing value, a flag and a time, in files and in data frames.

The rules apply to NumPy arrays and Python values, so that they need no other package; those of ids are in
`lstd.data.ids`. Columns of files and of data frames are converted by `lstd.data.arrow_columns`.
"""

from __future__ import annotations

import math
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lstd.types import Array, Flags

# Text that means a missing value, in lower case and without white space.
MISSING = frozenset(("", "na", "n/a", "#n/a", "nan", "-nan", "null", "none", "<na>"))
NO_VALUE = "has no value (it is empty or NaN)"

_TRUTHS = dict.fromkeys(("1", "1.0", "true", "t", "yes", "y"), True)
_TRUTHS |= dict.fromkeys(("0", "0.0", "false", "f", "no", "n"), False)
_AS_DAYS = "convert it to numbers, such as days since a fixed date."
DROP = "; impute it, with a column of 0 and 1 that says where. Dropping rows inside an episode loses rewards and ends."
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


# ------------------------------------------------------------ numbers


def numbers(values: NDArray[Any], column: str) -> tuple[Array, Fault | None]:
    """Parse numbers, booleans, or Python objects: numbers, text that reads as a number, or None, shape (T,).

    Returns floats, (T,), and the first value that is not a number; they are NaN where there is no value, and from that
    one on.
    """
    if values.dtype.kind in "biuf":
        return values.astype(np.float64, copy=False), None
    parsed = np.full(len(values), np.nan)
    for row, value in enumerate(values.tolist()):
        number = _number(value)
        if number is None:
            return parsed, Fault(row, column, f"{_describe(value)}, which is not a number; {_remedy(value)}")
        parsed[row] = number
    return parsed, None


def _remedy(value: Any) -> str:
    """Say what to do with a value that is not a number."""
    if isinstance(value, date):
        return _AS_DAYS
    if isinstance(value, str) and value.strip().lower() in _TRUTHS:
        return "write 1 for true and 0 for false."
    if isinstance(value, str) and "," in value:
        return "write a point before decimals, and no other separators."
    return "correct it, or encode the column in numbers."


def not_numeric(column: str, kind: Any, *, temporal: bool) -> Fault:
    """Return the fault of a column whose type `kind` holds no numbers."""
    remedy = _AS_DAYS if temporal else "encode it in numbers."
    return Fault(0, column, f"is not numeric; the column is of type {kind}: {remedy}")


def _number(value: Any) -> float | None:
    """Convert a value to float: NaN if it is missing, None if it is not a number."""
    if value is None:
        return math.nan
    if isinstance(value, str):
        value = value.strip()
        if value.lower() in MISSING:
            return math.nan
        if "_" in value or not value.isascii():  # Python reads 1_0 and digits of other scripts
            return None
    elif not isinstance(value, (Real, Decimal, np.bool_)):
        return None
    try:
        return float(value)
    except ValueError:
        return None
    except OverflowError:  # an integer of more than 308 digits
        return math.inf


def no_value(missing: Flags, column: str) -> Fault | None:
    """Return the fault of the first row without a time."""
    return _first(None, first_true(missing), column, NO_TIME)


def check_finite(values: Array, column: str, fault: Fault | None, missing: str = NO_VALUE + DROP) -> Fault | None:
    """Find the first value that is missing, infinite, or not a number according to `fault`."""
    row = first_true(~np.isfinite(values))
    infinite = row is not None and np.isinf(values[row])
    return _first(fault, row, column, "is infinite; correct it." if infinite else missing)


def check_not_infinite(values: Array, column: str, fault: Fault | None) -> Fault | None:
    """Find the first value that is infinite, or not a number according to `fault`; values may be missing."""
    return _first(fault, first_true(np.isinf(values)), column, "is infinite; correct it.")


def check_not_outside(values: Array, column: str, fault: Fault | None, high: float) -> Fault | None:
    """Find the first value below 0, above `high` or infinite, or not a number by `fault`; values may be missing."""
    row = first_true((values < 0.0) | (values > high) | np.isinf(values))
    rule = "finite and at least 0" if high == np.inf else f"in [0, {high:g}]"
    return _first(fault, row, column, "" if row is None else f"has {values[row]:g}; it must be {rule}. Correct it.")


def _first(fault: Fault | None, row: int | None, column: str, text: str) -> Fault | None:
    """Return the earlier one of a fault and a bad row, if there is any."""
    if row is None or (fault is not None and fault.row <= row):
        return fault
    return Fault(row, column, text)


# ------------------------------------------------------------ times


def times(values: NDArray[Any], column: str) -> tuple[NDArray[Any], Fault | None]:
    """Parse times, shape (T,), none of which may be missing.

    They are numbers or times of NumPy; or Python objects, all numbers or all dates, also as text in ISO format. Returns
    integers or floats, (T,), and the first bad value; of dates that are objects or text, the integers are microseconds
    since 1970 in UTC.
    """
    if values.dtype.kind in "mM":
        return values.view(np.int64), no_value(np.isnat(values), column)
    if values.dtype.kind in "biu":
        return values.astype(values.dtype if values.dtype.kind == "u" else np.int64), None
    parsed, fault = numbers(values, column)
    if fault is None or _number(values[0]) is not None:
        return parsed, check_finite(parsed, column, fault, NO_TIME)
    found = [_microseconds(value) for value in values.tolist()]
    for row, moment in enumerate(found):
        if moment is None:
            rule = ", which is neither a number nor a date such as 2024-01-31 12:00; correct it."
            text = _describe(values[row])
            return parsed, Fault(row, column, NO_TIME if text == NO_VALUE else text + rule)
        if found[0] is not None and moment[1] != found[0][1]:
            return parsed, Fault(
                row, column, f"{_describe(values[row])}; give every time a time zone, or none of them."
            )
    return np.array([moment[0] for moment in found if moment is not None], dtype=np.int64), None


def _microseconds(value: Any) -> tuple[int, bool] | None:
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


# ------------------------------------------------------------ flags


def flags(values: NDArray[Any], column: str, codes: NDArray[Any] | None = None) -> tuple[Flags, Fault | None]:
    """Parse zero and one, true and false, yes and no: numbers, booleans, or Python objects, shape (T,).

    With `codes`, (T,), `values` holds distinct values only, and `codes` the place of each row's value. Returns
    booleans, (T,), and the first bad value; they are False from that one on.
    """
    if values.dtype.kind in "biuf":
        parsed, bad = values == 1, (values != 0) & (values != 1)
    else:
        truths = [_truth(value) for value in values.tolist()]
        parsed = np.array([truth is True for truth in truths], dtype=np.bool_)
        bad = np.array([truth is None for truth in truths], dtype=np.bool_)
    if codes is not None:
        parsed, bad = parsed[codes], bad[codes]
    row = first_true(bad)
    if row is None:
        return parsed, None
    parsed[row:] = False
    text = _describe(values[row if codes is None else codes[row]])
    rule = ", which is neither 0 nor 1, true nor false, yes nor no; recode it."
    return parsed, Fault(
        row, column, text + ("; fill in 0 or 1, 0 if the episode still goes on." if text == NO_VALUE else rule)
    )


def _truth(value: Any) -> bool | None:
    if isinstance(value, str):
        return _TRUTHS.get(value.strip().lower())
    number = _number(value)
    return number == 1.0 if number in (0.0, 1.0) else None


def _describe(value: Any) -> str:
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
