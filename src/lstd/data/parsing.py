"""One parser of columns: what counts as a number, a missing value, a flag and an id, in files and in data frames.

The rules apply to NumPy arrays and Python values, so that they need no other package. Readers convert their columns to
this form: `lstd.tables.arrow_columns` for CSV and Parquet, `lstd.trajectories.frame_columns` for data frames.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lstd.errors import InvalidInputError

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

# Text that means a missing value, in lower case and without white space.
MISSING = frozenset(("", "na", "n/a", "#n/a", "nan", "-nan", "null", "none", "<na>"))
NO_VALUE = "has no value (it is empty or NaN)"
NEEDS_ID = "every row needs an id."
EPISODE_AGAIN = (
    "reappears after other episodes; sort the rows by episode and time (a stable sort by episode keeps the order of "
    "time), or give new episodes new ids."
)
GROUP_AGAIN = "reappears after other groups; sort the rows by group, episode and time."
_TRUTHS = dict.fromkeys(("1", "1.0", "true", "t", "yes", "y"), True)
_TRUTHS |= dict.fromkeys(("0", "0.0", "false", "f", "no", "n"), False)
# Types of ids; subclasses come first: bool before int, datetime before date.
_ID_DTYPES: dict[type, str | None] = {str: "U", bool: "?", int: None, datetime: "M8[us]", date: "M8[D]"}
_AS_DAYS = "convert it to numbers, such as days since a fixed date."
DROP = "; drop or impute such rows first."
_EPOCH = datetime(1970, 1, 1)
_SHOWN = 40  # characters of a bad value in a message
_EXACT = 2**53  # whole floats below are integers exactly


class Fault(NamedTuple):
    """The first bad value of a column."""

    row: int  # counted from 0 in the rows that were parsed
    column: str
    text: str  # rule and remedy, to follow the place in a message


def not_contiguous(
    column: str, shown: str, row: int | None = None, where: str = " in a stream", remedy: str = ""
) -> InvalidInputError:
    """Return the error of an id of `column`, "episode" or "groups", that reappears after others."""
    kind, again = ("id", EPISODE_AGAIN) if column == "episode" else ("group", GROUP_AGAIN)
    place = "" if row is None else f"at row {row}, "
    return InvalidInputError(f"`{column}` must be contiguous{where}; {place}{kind} {shown} {again}{remedy}")


class Ids(NamedTuple):
    """Ids of rows, stored where they change."""

    changes: NDArray[np.intp]  # row 0, and rows whose id differs from the row before
    names: list[Any]  # ids of these rows
    fault: Fault | None


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
    """Return the fault of the first row without a value."""
    return _first(None, first_true(missing), column, NO_VALUE + DROP)


def check_finite(values: Array, column: str, fault: Fault | None) -> Fault | None:
    """Find the first value that is missing, infinite, or not a number according to `fault`."""
    row = first_true(~np.isfinite(values))
    return _first(
        fault, row, column, "is infinite" + DROP if row is not None and np.isinf(values[row]) else NO_VALUE + DROP
    )


def check_not_infinite(values: Array, column: str, fault: Fault | None) -> Fault | None:
    """Find the first value that is infinite, or not a number according to `fault`; values may be missing."""
    return _first(fault, first_true(np.isinf(values)), column, "is infinite" + DROP)


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
        return parsed, check_finite(parsed, column, fault)
    found = [_microseconds(value) for value in values.tolist()]
    for row, moment in enumerate(found):
        if moment is None:
            rule = ", which is neither a number nor a date such as 2024-01-31 12:00; correct it."
            text = _describe(values[row])
            return parsed, Fault(row, column, text + (DROP if text == NO_VALUE else rule))
        if found[0] is not None and moment[1] != found[0][1]:
            return parsed, Fault(row, column, f"{_describe(values[row])}; all times or none must have a time zone.")
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
    return parsed, Fault(row, column, text + ("; fill in 0 or 1." if text == NO_VALUE else rule))


def _truth(value: Any) -> bool | None:
    if isinstance(value, str):
        return _TRUTHS.get(value.strip().lower())
    number = _number(value)
    return number == 1.0 if number in (0.0, 1.0) else None


# ------------------------------------------------------------ ids


def whole_number(text: str) -> int | None:
    """Parse the integer in an id, 7 for "7" and "7.0"; None for other text, such as "07" or "7e3".

    Some libraries write integers as "7.0" if the column has had a missing value.
    """
    whole = text.removesuffix(".0")
    digits = whole.removeprefix("-")
    canonical = digits.isascii() and digits.isdigit() and (digits[0] != "0" or whole == "0") and len(digits) < 19
    return int(whole) if canonical else None


def id_key(name: Any) -> int | bytes:
    """Return the key that identifies an id: an integer for 7, 7.0, "7" and "7.0", otherwise a digest of 16 bytes."""
    if isinstance(name, str):
        number = whole_number(name)
        if number is not None:
            return number
    elif isinstance(name, float):
        if name.is_integer() and abs(name) < _EXACT:
            return int(name)
    elif -(2**63) < name < 2**63:
        return int(name)
    # Sixteen bytes: among 10⁹ ids the chance that any two share a digest is 10⁻²¹.
    return hashlib.blake2b(str(name).encode(), digest_size=16).digest()


def same_id(one: Any, two: Any) -> bool:
    """Return whether two ids are one: as 7, 7.0, "7" and "7.0" are, or a number or a time and its text."""
    if one is None and two is None:
        return True
    if type(one) is type(two) and not isinstance(one, str):
        return bool(np.all(one == two))
    text, other = _python_id(one), _python_id(two)
    if isinstance(other, str):
        text, other = other, text
    if not isinstance(text, str):
        return bool(np.all(text == other))
    if isinstance(other, bool):  # tables read flags as "true" and "false"
        return text.lower() == str(other).lower()
    if isinstance(other, (str, int, float)) and id_key(text) == id_key(other):
        return True
    try:
        if isinstance(other, (int, float)) and whole_number(text) is None:
            return float(text) == other
        return isinstance(other, (date, np.datetime64)) and bool(np.datetime64(text) == np.datetime64(other))
    except ValueError:  # the text is neither a number nor a time
        return False


def _python_id(name: Any) -> Any:
    """Convert an id to a Python object, without white space around text; times of NumPy stay, as they may be of ns."""
    if isinstance(name, np.generic) and not isinstance(name, np.datetime64):
        name = name.item()
    if isinstance(name, (bytes, Decimal)):
        name = _plain_id(name)
    return name.strip() if isinstance(name, str) else name


def last_rows(ids: NDArray[Any]) -> Flags:
    """Flag the last row of each run of equal ids, shape (T,)."""
    last = np.ones(len(ids), dtype=np.bool_)
    last[:-1] = ids[1:] != ids[:-1]
    return last


def first_repeat(ids: NDArray[Any]) -> int | None:
    """Find the first row at which an id begins a second run; None if the rows of each id follow one another."""
    seen: set[Any] = set()
    starts = np.flatnonzero(np.roll(last_rows(ids), 1))
    names = ids[starts]
    if names.dtype.kind in "biuf" and (names[1:] > names[:-1]).all():
        return None
    for row, name in zip(starts.tolist(), names.tolist(), strict=True):
        if name in seen:
            return int(row)
        seen.add(name)
    return None


def ids_of_runs(ids: NDArray[Any]) -> Ids:
    """Return ids, (T,), by their runs; times of NumPy become text."""
    changes = np.flatnonzero(np.roll(last_rows(ids), 1))
    names = ids[changes]
    return Ids(changes, (names.astype(str) if names.dtype.kind in "mM" else names).tolist(), None)


def plain_texts(ids: NDArray[Any]) -> NDArray[Any]:
    """Normalise those of the ids, (T,), that are text, as `ids_of_text` does: strip white space, read "7.0" as "7".

    Beside numbers, the text of an integer is that integer.
    """
    starts = np.flatnonzero(np.roll(last_rows(ids), 1))
    given = ids[starts].tolist()
    beside_numbers = any(isinstance(name, Real) for name in given)
    names = [_plain_text(name, beside_numbers) if isinstance(name, str) else name for name in given]
    if names == given:
        return ids
    held = np.empty(len(names), dtype=object)
    held[:] = names
    return np.repeat(held.astype(ids.dtype), np.diff(starts, append=len(ids)))


def _plain_text(name: str, beside_numbers: bool) -> str | int:
    name = name.strip()
    number = whole_number(name)
    if number is None:
        return name
    return number if beside_numbers else name.removesuffix(".0")


def ids_of_text(changes: NDArray[np.intp], names: Sequence[str], column: str, fault: Fault | None = None) -> Ids:
    """Normalise ids of text up to the first missing id: strip white space, read "7.0" as "7".

    `names` are the texts of the rows `changes`, (k,): row 0, and those that differ from the row before. `fault` is the
    first row without an id, if it comes after these rows.
    """
    rows: list[int] = []
    kept: list[str] = []
    for row, name in zip(changes.tolist(), names, strict=False):
        if not name.isdigit():  # most ids are digits, and need no other check
            name = name.strip()
            if name.lower() in MISSING:
                found = f"has {name!r}, which counts as no value" if name else NO_VALUE
                fault = Fault(row, column, f"{found}; {NEEDS_ID}")
                break
            if name.endswith(".0") and whole_number(name) is not None:
                name = name.removesuffix(".0")
        if not kept or kept[-1] != name:
            rows.append(row)
            kept.append(name)
    return Ids(np.array(rows, dtype=np.intp), kept, fault)


def plain_ids(values: ArrayLike) -> tuple[NDArray[Any], int | None]:
    """Convert ids to an array of one plain type.

    Integers, booleans, finite floats, dates and text are ids. Python objects are ids if all are of one of these types.
    Finite decimal numbers and bytes of UTF-8 become text. Returns the ids, (T,), and the first row without a usable id.
    """
    ids = np.array(values)
    if ids.dtype.kind in "fmM":
        return ids, first_true(~np.isfinite(ids))
    if ids.dtype.kind in "biuUS" or ids.ndim != 1 or not len(ids):
        return ids, None
    if {*map(type, ids.tolist())} == {str}:
        return ids.astype(str), None
    plain = [_plain_id(value) for value in ids.tolist()]
    kinds = [next((kind for kind in _ID_DTYPES if isinstance(value, kind)), None) for value in plain]
    bad = next((row for row, kind in enumerate(kinds) if kind is None or kind is not kinds[0]), None)
    return (np.array(plain, dtype=_ID_DTYPES[kinds[0]]) if bad is None and kinds[0] else ids), bad


def _plain_id(value: Any) -> Any:
    """Convert a Python object to an id; None if it cannot be one, such as a time with a zone."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return None
    if isinstance(value, Decimal):
        return f"{value.normalize():f}" if value.is_finite() else None
    return None if isinstance(value, datetime) and value.tzinfo is not None else value


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
