"""When two ids are one: the key of an id, by which chunks, files, merged sums and saved models compare ids.

Keys are in files: a change of what a key is needs new versions of files and of snapshots.
"""

from __future__ import annotations

import ast
import contextlib
import math
import re
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

import numpy as np

# Text that means a missing value, in lower case and without white space.
MISSING = frozenset(("", "na", "n/a", "#n/a", "nan", "-nan", "null", "none", "<na>", "nat"))
NO_VALUE = "has no value (it is empty, NaN, n/a or the like)"
NEEDS_ID = "every row needs an id."
NOT_UTF8 = "which is not text in UTF-8; correct it."

Identity = int | str  # an integer of 64 bits for itself; else a kind, a space and a value
_NO_ID = f"{NO_VALUE}; {NEEDS_ID}"
_INFINITE = f"is infinite; {NEEDS_ID}"
_INEXACT = "has {!r}, where floats no longer tell integers apart; give ids as integers or as text."
_TOO_FINE = "is a time finer than nanoseconds; round it, or convert it to text."
NO_LENGTH = "is a duration of no fixed length; convert it to a number of days, or to text."
NO_ID_TYPE = "is of type {}, which cannot be an id; convert it to text or an integer."

_BOOLEANS = ("true", "false")
_LONGEST_WORD = max(map(len, (*MISSING, *_BOOLEANS)))
_UUID_LENGTH = 36
_OF_NUMBERS = "-0123456789"  # the first letters of integers and times
_INTEGER = re.compile(r"(0|-?[1-9][0-9]*)(?:\.0)?")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?) ?(?:(Z)|([+-])(\d\d):?(\d\d)?)?)?", re.ASCII
)
NANOSECONDS = {  # of the units of NumPy
    "W": 604_800 * 10**9,
    "D": 86_400 * 10**9,
    "h": 3_600 * 10**9,
    "m": 60 * 10**9,
    "s": 10**9,
    "ms": 10**6,
    "us": 10**3,
    "ns": 1,
}
_FINER = {"ps": 10**3, "fs": 10**6, "as": 10**9}  # in a nanosecond
_MINUTE = NANOSECONDS["m"]


class NotAnIdError(ValueError):
    """What is wrong with an id: rule and remedy, to follow its place in a message."""


def identity(name: object) -> Identity:
    """Return the key of an id: two ids are one where their keys are equal, whatever their types.

    ================================================  ==========================================================
    id                                                key
    ================================================  ==========================================================
    integers; whole floats; text "7", "7.0"           the integer; "07", "7.00", "7e0", "+7" and "-0" are text
    booleans; text "true", "false" in any case        the boolean, never 1
    other floats                                      the number, as a float64; text "0.5" is text
    text                                              without white space around it
    UUID, also its hyphenated text in any case        the UUID
    bytes                                             their text if they are UTF-8
    dates and times, also their full ISO text         nanoseconds since 1970; a date is its midnight
    times with a time zone                            nanoseconds since 1970 in UTC, another kind
    periods                                           the time of their start
    durations                                         nanoseconds
    tuples                                            those of their entries
    ================================================  ==========================================================

    Raises NotAnIdError for a missing or infinite value, a float that may stand for several integers, and other types.
    """
    if type(name) is int:
        return _of_integer(name)
    if isinstance(name, str):
        return _of_text(name)
    if isinstance(name, (bool, np.bool_)):
        return f"boolean {bool(name)}".lower()
    if isinstance(name, int) or (isinstance(name, np.generic) and name.dtype.kind in "iu"):
        return _of_integer(int(name))
    if is_missing(name):
        raise NotAnIdError(_NO_ID)
    if isinstance(name, (float, np.floating)):
        return _of_float(float(name), exact_below(np.dtype(type(name))))
    if isinstance(name, (Decimal, Fraction)):
        return _of_exact(name)
    if isinstance(name, bytes):
        return _of_bytes(name)
    if isinstance(name, UUID):
        return f"uuid {name}"
    if isinstance(name, tuple):
        return f"tuple {tuple(map(identity, name))!r}"
    return _of_moment(name)


def plain_keys(names: list[Any]) -> list[Identity] | None:
    """Return the keys of ids that are all integers, or all text that is nothing else; None if some are not.

    They are those of :func:`identity`, in a fraction of the time.
    """
    kinds = {*map(type, names)}
    if kinds == {int} and min(names) >= -(2**63) and max(names) < 2**63:
        return names
    if kinds != {str}:
        return None
    lengths = {*map(len, names)}
    if min(lengths) <= _LONGEST_WORD or _UUID_LENGTH in lengths:
        return None
    if any(letter in _OF_NUMBERS or letter.isspace() for letter in {name[0] for name in names}):
        return None
    if any(letter.isspace() for letter in {name[-1] for name in names}):
        return None
    return ["text " + name for name in names]


def is_missing(name: object) -> bool:
    """Return whether an object stands for no value: None, NaN, NaT and the like."""
    if name is None or type(name).__name__ == "NAType":
        return True
    if isinstance(name, Decimal):
        return name.is_nan()  # of which one kind cannot be compared
    with contextlib.suppress(Exception):  # of any type
        if getattr(name, "shape", ()):  # an array is no value; a malformed sparse one cannot be compared
            return False
        return bool(name != name)
    return False


def _of_integer(value: int) -> Identity:
    if -(2**63) <= value < 2**63:
        return value
    return f"integer {Decimal(value):f}"  # `str` refuses to write very long ones


def _of_text(text: str) -> Identity:
    text = text.strip()
    lower = text.lower()
    if lower in MISSING:
        raise NotAnIdError(_NO_ID)
    if lower in _BOOLEANS:
        return f"boolean {lower}"
    if text[0] in _OF_NUMBERS:
        whole = _INTEGER.fullmatch(text)
        if whole is not None:
            digits = whole[1]
            if len(digits) >= 30:  # Python refuses to read very long ones
                return f"integer {digits}"
            return _of_integer(int(digits))
        moment = _TIME.fullmatch(text)
        if moment is not None:
            with contextlib.suppress(ValueError):  # there is no such time
                return _of_iso(moment)
    if len(text) == _UUID_LENGTH and _UUID.fullmatch(lower):
        return f"uuid {lower}"
    return f"text {text}"


def _of_iso(moment: re.Match[str]) -> Identity:
    """Return the key of a date or time in ISO format; raises ValueError if there is none of this text."""
    day, clock, utc, sign, hours, minutes = moment.groups()
    if clock is None:
        return f"time {_nanoseconds(np.datetime64(day))}"
    since = _nanoseconds(np.datetime64(f"{day}T{clock.replace(',', '.')}"))
    if utc is None and sign is None:
        return f"time {since}"
    if sign is None:  # in UTC
        return f"zoned {since}"
    offset = 60 * int(hours) + int(minutes or 0)
    if sign == "-":
        offset = -offset
    return f"zoned {since - offset * _MINUTE}"


def _of_float(value: float, exact: int) -> Identity:
    """Return the key of a float of a type whose whole numbers below `exact` are integers exactly."""
    if math.isinf(value):
        raise NotAnIdError(_INFINITE)
    if not value.is_integer():
        return f"number {value!r}"
    if abs(value) >= exact:
        raise NotAnIdError(_INEXACT.format(value))
    return int(value)


def exact_below(dtype: np.dtype[Any]) -> int:
    """Return below what size whole floats of a type stand for one integer each."""
    return {2: 2**11, 4: 2**24}.get(dtype.itemsize, 2**53)


def _of_exact(value: Decimal | Fraction) -> Identity:
    if isinstance(value, Decimal) and not value.is_finite():
        raise NotAnIdError(_NO_ID if value.is_nan() else _INFINITE)
    if value == int(value):
        return _of_integer(int(value))
    return f"number {float(value)!r}"


def _of_bytes(value: bytes) -> Identity:
    try:
        return _of_text(value.decode())
    except UnicodeDecodeError:
        return f"bytes {value.hex()}"


def _of_moment(name: Any) -> Identity:
    """Return the key of a date, a time, a duration or a period."""
    if isinstance(name, np.timedelta64):
        return f"duration {_nanoseconds(name)}"
    if isinstance(name, timedelta):
        finer = getattr(name, "nanoseconds", 0)  # of pandas
        return f"duration {name // timedelta(microseconds=1) * 1000 + finer}"
    if hasattr(name, "to_datetime64"):  # a Timestamp of pandas: in UTC if it has a zone
        zoned = name.tzinfo is not None
        name = name.to_datetime64()
        kind = "zoned" if zoned else "time"
        return f"{kind} {_nanoseconds(name)}"
    if isinstance(name, datetime):
        offset = name.utcoffset()
        if offset is None:
            return f"time {_nanoseconds(np.datetime64(name, 'us'))}"
        since = np.datetime64(name.replace(tzinfo=None) - offset, "us")
        return f"zoned {_nanoseconds(since)}"
    if isinstance(name, (date, np.datetime64)):
        return f"time {_nanoseconds(np.datetime64(name))}"
    if isinstance(name, time):
        return f"text {name.isoformat()}"
    if hasattr(name, "start_time"):  # a Period of pandas
        return f"time {_nanoseconds(name.start_time.to_datetime64())}"
    raise NotAnIdError(NO_ID_TYPE.format(type(name).__name__))


def _nanoseconds(moment: np.datetime64 | np.timedelta64) -> int:
    """Return a time or a duration of any unit in nanoseconds, exactly."""
    unit, count = np.datetime_data(moment.dtype)
    if unit in ("Y", "M") and isinstance(moment, np.datetime64):
        moment = moment.astype("M8[D]")
        unit = "D"
        count = 1
    number = int(moment.astype(np.int64)) * count
    if unit in NANOSECONDS:
        return number * NANOSECONDS[unit]
    if unit not in _FINER:
        raise NotAnIdError(NO_LENGTH)
    if number % _FINER[unit]:
        raise NotAnIdError(_TOO_FINE)
    return number // _FINER[unit]


def order_of(key: Identity) -> tuple[str, float, str]:
    """Return what ids are sorted by: integers and numbers by size, times by time, text by its letters."""
    if isinstance(key, int):
        return "", key, ""
    kind, _, value = key.partition(" ")
    if kind in ("time", "zoned", "duration", "integer", "number"):
        if kind in ("integer", "number"):
            kind = ""
        return kind, float(value), value
    return kind, 0.0, value


def name_of(key: Identity) -> Any:
    """Return an id of this key, for messages."""
    if isinstance(key, int):
        return key
    kind, _, value = key.partition(" ")
    if kind in ("time", "zoned", "duration"):
        return _moment_of(kind, int(value))
    if kind == "boolean":
        return value == "true"
    if kind == "number":
        return float(value)
    if kind == "bytes":
        return bytes.fromhex(value)
    if kind == "tuple":
        return tuple(map(name_of, ast.literal_eval(value)))
    return value


def _moment_of(kind: str, since: int) -> Any:
    """Return a time or a duration in its coarsest unit; one with a time zone as text."""
    units = ("s", "ms", "us", "ns") if kind == "zoned" else ("D", "h", "m", "s", "ms", "us", "ns")
    unit = next(unit for unit in units if since % NANOSECONDS[unit] == 0)
    number = np.array(since // NANOSECONDS[unit])
    if kind == "duration":
        return number.astype(f"m8[{unit}]")[()]
    moment = number.astype(f"M8[{unit}]")[()]
    return f"{moment}Z" if kind == "zoned" else moment
