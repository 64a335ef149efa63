"""Columns of tables and data frames as NumPy arrays: the one parser of numbers, flags, times and ids, which is Arrow.

Text may have white space around it, and stands for no value if it is one of `MISSING`.
"""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lstd.data.arrow_columns import PERIODS, Keys, from_numpy, plain, to_numpy
from lstd.data.identity import MISSING, NO_ID_TYPE, NOT_UTF8, name_of
from lstd.data.ids import (
    AS_DAYS,
    NO_IDS_OF_ROWS,
    NO_TIME,
    Fault,
    Ids,
    described,
    first_true,
    ids_of,
    no_flag,
    not_numeric,
    scalars,
    up_to,
)
from lstd.types import Array, Flags

_HAS_TENSORS = int(pa.__version__.partition(".")[0]) >= 17  # in the order of rows
_WORDS = {"true": True, "t": True, "yes": True, "y": True, "false": False, "f": False, "no": False, "n": False}
_MISSING_TEXT = f"^({'|'.join(map(re.escape, sorted(MISSING)))})$"
_DATES = (  # types that text may be read as
    pa.timestamp("us"),
    pa.timestamp("us", "UTC"),
    pa.timestamp("ns"),
    pa.timestamp("ns", "UTC"),
)
_OF_NANOSECONDS = ("timestamp[ns", "duration[ns", "time64[ns")  # names of types
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_OF_NUMBERS: tuple[Callable[[Any], bool], ...] = (
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_boolean,
    pa.types.is_null,
)
_LONGEST_OF_FLOATS = 16  # digits, of which floats tell all integers apart
_MERGED = {
    True: (
        "less than a microsecond from another time of its episode; times are read in microseconds. Round them to "
        "microseconds, and merge the rows of one time."
    ),
    False: (
        "which float64 does not tell from another time of its episode; subtract the first time from all, and convert "
        "them to int64 or float64."
    ),
}
_TOO_FAR = f"is too far from 1970 for a time; {AS_DAYS}"


# ------------------------------------------------------------ values


def numbers(array: pa.Array, column: str) -> tuple[Array, Fault | None]:
    """Parse numbers, NaN where there is no value; returns floats, (T,), and the first value that is not a number.

    They are NaN from that one on.
    """
    given = array.type
    array, fault = _readable(array, column)
    kind = array.type
    values = np.full(len(array), np.nan)
    if fault is not None or not len(array):
        return values, fault
    if not (pa.types.is_string(kind) or _is_numeric(kind)):
        text = not_numeric(name_of_type(given), is_time=pa.types.is_temporal(kind))
        return values, Fault(0, column, text)
    with contextlib.suppress(pa.ArrowInvalid):
        return _as_floats(array), None
    array = pc.replace_substring_regex(trimmed(array), r"^\+([0-9.])", r"\1")  # for older Arrow
    row = _refused(array, pa.float64())
    values[:row] = _as_floats(array[:row])
    if row == len(array):
        return values, None
    value = array[row].as_py()
    return values, Fault(row, column, f"{described(value)}, which is not a number; {_remedy(value)}")


def _readable(array: pa.Array, column: str) -> tuple[pa.Array, Fault | None]:
    """Return plain values with bytes as the text that they are, and the first that is none or of a foreign type."""
    given = array.type
    array = plain(array)
    if not len(array):
        return array, None
    name = getattr(given, "extension_name", "arrow.bool8")
    if name not in ("arrow.bool8", PERIODS):
        return array, Fault(0, column, not_numeric(name_of_type(given), is_time=False))
    if not pa.types.is_binary(array.type):
        return array, None
    try:
        return array.cast(pa.string()), None
    except pa.ArrowInvalid:
        row = _refused(array, pa.string())
        return array, Fault(row, column, f"{described(array[row].as_py())}, {NOT_UTF8}")


def _remedy(text: str) -> str:
    """Say what to do with a text that is not a number."""
    if text.lower() in _WORDS:
        return "write 1 for true and 0 for false."
    if _DATE.match(text):
        return AS_DAYS
    if "," in text and re.fullmatch(r"[-+\d\s.,']+", text):
        return "write a point before decimals, and no other separators."
    return "correct it, or encode the column in numbers."


def trimmed(array: pa.Array) -> pa.Array:
    """Text without white space around it, and null where it means a missing value."""
    text = pc.utf8_trim_whitespace(as_text(array))
    missing = pc.match_substring_regex(text, _MISSING_TEXT, ignore_case=True)
    return pc.if_else(missing, pa.nulls(1, pa.string())[0], text)


def _cast(array: pa.Array, kind: Any) -> pa.Array:
    """Convert an array, where times may lose what is finer than the unit, but not wrap around."""
    return array.cast(options=pc.CastOptions(target_type=kind, allow_time_truncate=True))


def _refused(array: pa.Array, kind: Any) -> int:
    """Return the first row that Arrow cannot convert; the number of rows if it can convert all."""
    row = 0
    step = len(array)
    while step and row < len(array):
        try:
            _cast(array[row : row + step], kind)
            row += step
        except pa.ArrowInvalid:
            step //= 2
    return min(row, len(array))


def matrix(batch: pa.RecordBatch, names: Sequence[str]) -> Array | None:
    """Columns side by side, shape (T, n), in one step; None unless a float type holds them, finite and without gaps."""
    if not _HAS_TENSORS or not len(batch):
        return None
    chosen: Sequence[int | str] = list(names)
    if batch.schema.names[: len(names)] == chosen:
        chosen = range(len(names))  # which are found in less time than names
    try:
        tensor = batch.select(chosen).to_tensor(row_major=True)
    except pa.ArrowException:  # a value is missing, or is no number
        return None
    values = tensor.to_numpy()
    if values.dtype.kind != "f" or not np.isfinite(values).all():  # unsigned among signed integers may have overflowed
        return None
    return np.asarray(values, np.float64)


def flags(array: pa.Array, column: str) -> tuple[Flags, Fault | None]:
    """Parse zero and one, true and false, yes and no; returns the first bad value, from which on they are False."""
    values, fault = _readable(array, column)
    if fault is None and pa.types.is_string(values.type):
        encoded = values.dictionary_encode(null_encoding="encode")
        distinct = np.array([_flag(text) for text in encoded.dictionary.to_pylist()], np.float64)
        found = distinct[to_numpy(encoded.indices)]
    else:
        found, fault = numbers(array, column)
        if fault is not None:
            return found == 1.0, fault
    true = found == 1.0
    false = found == 0.0
    row = first_true(~(true | false))
    if row is None:
        return true, None
    is_before = np.arange(len(true)) < row
    return true & is_before, Fault(row, column, no_flag(values[row].as_py()))


def _flag(text: str | None) -> float:
    """Return the number or the flag that a text is; NaN if it is neither."""
    word = (text or "").strip().lower()
    if word in _WORDS:
        return float(_WORDS[word])
    if not word.isascii() or "_" in word:  # of which Python makes numbers, and Arrow does not
        return np.nan
    try:
        return float(word)
    except ValueError:
        return np.nan


def times(array: pa.Array, column: str, unit: str = "us") -> tuple[NDArray[Any], Fault | None]:
    """Parse times, none of which may be missing: integers or floats, (T,), in their order, and the first bad one.

    They are numbers; or dates, also as text in ISO format, which are numbers of this unit since 1970 in UTC.
    """
    array, fault = _readable(array, column)
    if fault is not None:
        return np.full(len(array), np.nan), fault
    array = _typed_times(array)
    kind = _numbered_as(array.type, unit)
    if kind is not None:
        row = _refused(array, kind)
        if row < len(array):
            return np.zeros(len(array), np.int64), Fault(row, column, _TOO_FAR)
        array = _cast(array, kind).cast(pa.int64())
    missing = Fault.first(to_numpy(pc.is_null(array)), column, NO_TIME)
    if pa.types.is_signed_integer(array.type):
        return to_numpy(array.cast(pa.int64())), missing
    values, fault = numbers(array, column)
    if fault is None or not pa.types.is_string(array.type):
        return values, first_outside(values, column, fault, missing=NO_TIME)
    fault = _first_no_time(array, fault)
    if missing is not None and missing.row < fault.row:
        fault = missing
    return np.full(len(values), np.nan), fault


def known_times(array: pa.Array) -> tuple[NDArray[np.intp], pa.Array]:
    """Return the rows of a column of times that are not missing, (R,), and their values."""
    readable, fault = _readable(array, "")
    if fault is not None:  # which `times` reports
        return np.arange(len(array)), array
    if pa.types.is_string(readable.type):
        readable = trimmed(readable)
    missing = to_numpy(pc.is_null(readable, nan_is_null=True))
    rows = np.flatnonzero(~missing)
    return rows, readable.take(from_numpy(rows))


def _first_no_time(texts: pa.Array, no_number: Fault) -> Fault:
    """Return the first text that is no time: of numbers, or of dates, by which of them more rows can be read as."""
    rows = {kind: _refused(texts, kind) for kind in (pa.float64(), *_DATES)}
    kind = max(rows, key=lambda each: rows[each])
    row = rows[kind]
    if kind == pa.float64() and row:
        return no_number
    rule = ", which is neither a number nor a date such as 2024-01-31 12:00; correct it."
    if any(_refused(texts[row : row + 1], each) for each in _DATES):  # a date, with a zone where others have none
        rule = "; give every time a time zone, or none of them."
    return Fault(row, no_number.column, described(texts[row].as_py()) + rule)


def typed_times(array: pa.Array) -> pa.Array:
    """Return a column of times in one type: text as whole numbers or dates, if all of it is; else as it is."""
    readable, fault = _readable(array, "")
    if fault is not None:
        return array
    return _typed_times(readable)


def exact_unit(typed: pa.Array) -> str:
    """Return the unit in which times of one type are exact, unless they are numbers: "ns" or "us"."""
    if str(typed.type).startswith(_OF_NANOSECONDS):
        return "ns"
    return "us"


def kind_of_times(typed: pa.Array) -> str:
    """Return NumPy's kind of times of one type: "M" for dates, "m" for durations and times of day, "" for numbers."""
    if pa.types.is_timestamp(typed.type) or pa.types.is_date(typed.type):
        return "M"
    if pa.types.is_duration(typed.type) or pa.types.is_time(typed.type):
        return "m"
    return ""


def merged_times(
    array: pa.Array, values: NDArray[Any], episode: NDArray[np.intp], column: str, unit: str = "us"
) -> Fault | None:
    """Find the first row whose time differs from another one of its episode, but is the same number in `values`.

    `values` (T,) are what :func:`times` returns, and `episode` (T,) numbers of the episodes.
    """
    readable, _ = _readable(array, column)
    exact = _finer_than_numbers(readable, unit)
    if exact is None or len(values) != len(exact):
        return None
    is_later = (values[1:] > values[:-1]) & (episode[1:] == episode[:-1])
    is_sorted = is_later | (episode[1:] > episode[:-1])
    if is_sorted.all():
        return None
    order = np.lexsort([values, episode])
    before = order[:-1]
    after = order[1:]
    same = (values[before] == values[after]) & (episode[before] == episode[after])
    before = before[same]
    after = after[same]
    exact_before = exact.take(from_numpy(before))
    exact_after = exact.take(from_numpy(after))
    differ = to_numpy(pc.not_equal(exact_before, exact_after))
    rows = np.maximum(before, after)[differ]
    if not len(rows):
        return None
    row = int(rows.min())
    remedy = _MERGED[pa.types.is_temporal(exact.type)]
    return Fault(row, column, f"has {_shown_time(exact[row : row + 1])}, {remedy}")


def _shown_time(array: pa.Array) -> str:
    """Return the one time of an array as a message shows it."""
    if numpy_unit(array):
        return str(moments_of(array)[0])
    return str(_names(array, is_uuid=False)[0])


def _finer_than_numbers(array: pa.Array, unit: str) -> pa.Array | None:
    """Return times that their numbers may not tell apart, as they are; None if the numbers are exact."""
    types = pa.types
    if types.is_string(array.type):
        longest = pc.max(pc.utf8_length(array)).as_py()
        if longest is None or longest < _LONGEST_OF_FLOATS:
            return None
        array = _typed_times(array)
        if types.is_string(array.type):
            with contextlib.suppress(pa.ArrowInvalid):  # other text than integers
                return array.cast(pa.decimal128(38, 0))
    kind = array.type
    if unit != "ns" and str(kind).startswith(_OF_NANOSECONDS):
        numbers_of_ns = array.cast(pa.int64())
        whole = _cast(array, _numbered_as(kind, unit)).cast(pa.int64())
        is_exact = pc.multiply(whole, pa.scalar(1000, pa.int64())).equals(numbers_of_ns)
    elif types.is_uint64(kind):
        is_exact = types.is_int64(_typed_times(array).type)
    else:
        is_exact = not types.is_decimal(kind)
    if is_exact:
        return None
    return array


def _numbered_as(kind: Any, unit: str) -> Any:
    """Return the type in which times of a type are numbers of this unit; None for other types."""
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return pa.timestamp(unit)
    if pa.types.is_duration(kind):
        return pa.duration(unit)
    if pa.types.is_time(kind):
        return pa.time64(unit)
    return None


def _typed_times(array: pa.Array) -> pa.Array:
    """Return whole numbers as such, and text as whole numbers or as dates if all of it is; else without white space."""
    if pa.types.is_unsigned_integer(array.type):
        with contextlib.suppress(pa.ArrowInvalid):  # from 2⁶³ on they are read as floats
            return array.cast(pa.int64())
    if pa.types.is_string(array.type):
        array = trimmed(array)
        for kind in (pa.int64(), *_DATES):
            with contextlib.suppress(pa.ArrowInvalid):
                return array.cast(kind)
    return array


def ids(array: pa.Array, column: str) -> tuple[Ids, Fault | None]:
    """Parse ids, up to the first row that has none."""
    given = array.type
    array = plain(array)
    if pa.types.is_null(array.type):
        return ids_of(np.arange(len(array)), [None] * len(array), column)
    if pa.types.is_floating(array.type):
        values = to_numpy(array)
        changes = _changes(values[1:] != values[:-1], len(values))
        return ids_of(changes, scalars(values[changes]), column)
    name = getattr(given, "extension_name", "")
    is_foreign = name not in ("", "arrow.bool8", "arrow.uuid", Keys.NAME, PERIODS)
    if is_foreign or pa.types.is_nested(array.type) or pa.types.is_interval(array.type):
        fault = None
        if len(array):
            fault = Fault(0, column, NO_ID_TYPE.format(name_of_type(given)))
        return up_to(NO_IDS_OF_ROWS, fault)
    differ = pc.not_equal(array[1:], array[:-1])  # null where a value is missing
    changes = _changes(to_numpy(differ) | to_numpy(pc.is_null(differ)), len(array))
    values = array.take(from_numpy(changes))
    if name == Keys.NAME:
        return ids_of(changes, _names_of_keys(values), column)
    if pa.types.is_string(array.type) and not values.null_count:
        keys = _integers_of(values)
        if keys is not None:
            return Ids(changes, values.to_pylist(), keys), None
    return ids_of(changes, _names(values, is_uuid=name == "arrow.uuid"), column)


def _names_of_keys(keys: pa.Array) -> list[Any]:
    """Return the ids of which the text of their keys is given; None where it is missing."""
    names: list[Any] = []
    for key in keys.to_pylist():
        name = None
        if key is not None:
            name = name_of(ast.literal_eval(key))
        names.append(name)
    return names


def _changes(differ: Flags, n_rows: int) -> NDArray[np.intp]:
    """Return row 0, and the rows that differ from the row before, by the flags of all but the first, (T − 1,)."""
    return np.append([0] * (n_rows > 0), np.flatnonzero(differ) + 1).astype(np.intp)


def _names(array: pa.Array, *, is_uuid: bool) -> list[Any]:
    """Return ids as Python or NumPy has them; times with a time zone as text."""
    kind = array.type
    if is_uuid:
        return [value and UUID(bytes=value) for value in array.to_pylist()]
    if pa.types.is_time64(kind) and kind.unit == "ns":
        return _times_of_day(array)
    if not (pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_duration(kind)):
        return array.to_pylist()  # type: ignore[no-any-return]
    moments = moments_of(array)
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return list(map(_with_zone, np.datetime_as_string(moments).tolist()))
    return list(moments)


def _with_zone(text: str) -> str | None:
    """Return the text of a moment in UTC with its zone; None of a missing one."""
    if text == "NaT":
        return None
    return f"{text}Z"


def _times_of_day(array: pa.Array) -> list[Any]:
    """Return times of day in nanoseconds as Python has them; those that are finer than its microseconds as text."""
    whole = _cast(array, pa.time64("us"))
    names = whole.to_pylist()
    is_finer = pc.not_equal(whole.cast(pa.time64("ns")), array)
    texts = array.cast(pa.string()).to_pylist()
    for row in np.flatnonzero(to_numpy(is_finer)).tolist():
        names[row] = texts[row]
    return names  # type: ignore[no-any-return]


def _integers_of(texts: pa.Array) -> list[int] | None:
    """Return the integers that all texts are, as they are written; None if one is other text."""
    try:
        whole = texts.cast(pa.int64())
    except pa.ArrowInvalid:
        return None
    if not whole.cast(pa.string()).equals(texts):
        return None
    return whole.to_pylist()  # type: ignore[no-any-return]


def moments_of(array: pa.Array) -> NDArray[Any]:
    """Return dates, timestamps or durations as NumPy has them, (T,); those with a time zone are in UTC."""
    unit = numpy_unit(array)
    if pa.types.is_date32(array.type):
        array = array.cast(pa.int32())
    moments = to_numpy(array.cast(pa.int64())).astype(unit)
    moments[to_numpy(pc.is_null(array))] = np.array("NaT", unit)
    return moments


def as_text(array: pa.Array) -> pa.Array:
    """Values as text; raises ArrowNotImplementedError for nested ones."""
    array = plain(array)
    if pa.types.is_string(array.type):
        return array
    return array.cast(pa.string())


def kind_of(array: pa.Array) -> str:
    """Return what a column holds: "whole" numbers or flags, "numbers" or "text"."""
    kind = plain(array).type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return "whole"
    if _is_numeric(kind):
        return "numbers"
    return "text"


def is_text(array: pa.Array) -> bool:
    """Return whether a column of plain values holds text."""
    return bool(pa.types.is_string(array.type))


def numpy_unit(array: pa.Array) -> str:
    """Return the NumPy type of a column of dates, timestamps or durations; "" if the column holds no such times."""
    kind = plain(array).type
    if pa.types.is_date32(kind):
        return "M8[D]"
    if pa.types.is_date64(kind):
        return "M8[ms]"
    if pa.types.is_timestamp(kind):
        return f"M8[{kind.unit}]"
    if pa.types.is_duration(kind):
        return f"m8[{kind.unit}]"
    return ""


def clock_of(array: pa.Array) -> tuple[bool, bool]:
    """Return whether a column of times holds dates, and whether these have a time zone; its first value decides."""
    kind = typed_times(array[:1]).type
    if pa.types.is_timestamp(kind):
        return True, kind.tz is not None
    return pa.types.is_date(kind), False


def name_of_type(kind: Any) -> str:
    """Return the name of a type of Arrow, as messages have it."""
    if isinstance(kind, Keys):
        return kind.of
    return str(getattr(kind, "extension_name", kind))


def _is_numeric(kind: Any) -> bool:
    return any(is_of(kind) for is_of in _OF_NUMBERS)


def _as_floats(array: pa.Array) -> Array:
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.uint8())
    if pa.types.is_decimal(array.type):  # of which Arrow's own cast does not round to the nearest float
        array = array.cast(pa.string())
    # Integers beyond 2^53 are rounded, as any number that is read into a float64.
    return to_numpy(array.cast(pa.float64(), safe=False))


def first_outside(
    values: Array, column: str, fault: Fault | None, low: float = -np.inf, high: float = np.inf, missing: str = ""
) -> Fault | None:
    """Find the first value outside [low, high], infinite, or not a number by `fault`.

    A value may be missing, unless `missing` says what is wrong then.
    """
    bad = np.isinf(values) | (values < low) | (values > high)
    if missing:
        bad |= np.isnan(values)
    outside = Fault.first(bad, column, missing)
    if outside is None or (fault is not None and fault.row <= outside.row):
        return fault
    value = values[outside.row]
    if np.isnan(value):
        return outside
    if low == -np.inf:
        return outside._replace(text="is infinite; correct it.")
    rule = f"in [{low:g}, {high:g}]"
    if high == np.inf:
        rule = "finite and at least 0"
    return outside._replace(text=f"has {value:g}; it must be {rule}. Correct it.")
