"""Columns of tables and data frames as NumPy arrays, by the rules of `lstd.data.parsing`: Arrow reads all of them.

Arrow converts whole columns much faster than Python. Where it refuses one, the rules are applied value by value.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from datetime import date, datetime
from functools import cache
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lstd.data import parsing as rules
from lstd.data.ids import NEEDS_ID, Ids, ids_of_text, up_to
from lstd.data.parsing import Fault
from lstd.errors import InvalidInputError
from lstd.types import Array, Flags

_HAS_TENSORS = int(pa.__version__.partition(".")[0]) >= 17  # in the order of rows
_DTYPES = {"double": "float64", "float": "float32", "halffloat": "float16"}  # the others have the same names
_NO_IDS = "which cannot be ids; convert it to text or integers first."


# ------------------------------------------------------------ frames


def is_frame(value: Any) -> bool:
    """Return whether a value is a data frame."""
    if _is_pandas(value):
        return getattr(value, "ndim", None) == 2
    return hasattr(value, "__arrow_c_stream__")


def _is_pandas(frame: Any) -> bool:
    return type(frame).__module__.partition(".")[0] == "pandas"


def arrow_table(name: str, frame: Any) -> Any:
    """Return a data frame as an Arrow table; one of pandas as it is. Errors call it `name`."""
    if _is_pandas(frame):
        return frame
    try:
        return pa.table(frame)
    except Exception as error:  # of many types
        raise InvalidInputError(f"{name} could not be read as a table: {error!r:.300}.") from error


def names_of(frame: Any) -> list[Any]:
    """Return the names of the columns of a result of `arrow_table`."""
    return list(frame.columns if _is_pandas(frame) else frame.column_names)


def arrow_batches(frame: Any, columns: Sequence[str], most_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield batches of columns of a result of `arrow_table`."""
    columns = list(columns)
    if not _is_pandas(frame):
        chosen = frame.select(columns)
        for first in range(0, len(frame), most_rows):
            arrays = [without_views(_combined(column)) for column in chosen.slice(first, most_rows).columns]
            yield pa.RecordBatch.from_arrays(arrays, columns)
        return
    places = [list(map(str, frame.columns)).index(name) for name in columns]
    for first in range(0, len(frame), most_rows):
        part = frame.iloc[first : first + most_rows]
        yield pa.RecordBatch.from_arrays([_of_pandas(part.iloc[:, place]) for place in places], columns)


def _of_pandas(series: Any) -> pa.Array:
    """Return a column of pandas; objects that Arrow gives no common type are read as text."""
    if type(series.dtype).__name__ == "SparseDtype":
        series = series.astype(series.dtype.subtype)
    if isinstance(series.dtype, np.dtype) and series.dtype.kind in "biuf" and series.dtype != np.float16:
        return from_numpy(series.to_numpy())
    try:
        array = pa.Array.from_pandas(series)
    except Exception:  # of many types
        missing = series.isna().tolist()
        return pa.array([None if none else _text(one) for one, none in zip(series.tolist(), missing, strict=True)])
    return _combined(array)


def _combined(array: Any) -> pa.Array:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _text(value: Any) -> str:
    """Return an object as text."""
    if isinstance(value, (date, datetime)):
        return value.isoformat()
    return value.hex if isinstance(value, UUID) else str(value)


# ------------------------------------------------------------ values


def numbers(array: pa.Array, column: str) -> tuple[Array, Fault | None]:
    """Parse numbers, NaN where there is no value; see `lstd.data.parsing.numbers`."""
    array = _plain(array)
    kind = array.type
    if pa.types.is_string(kind):
        try:
            return _as_floats(array), None
        except pa.ArrowInvalid:
            return _parsed(array, column)
    if not _is_numeric(kind):
        values = np.full(len(array), np.nan)
        fault = rules.not_numeric(column, kind, temporal=pa.types.is_temporal(kind))
        return values, fault if len(array) else None
    return _as_floats(array), None


def matrix(batch: pa.RecordBatch, names: Sequence[str]) -> Array | None:
    """Columns side by side, shape (T, n), in one step; None unless a float type holds them, finite and without gaps."""
    if not _HAS_TENSORS or not len(batch):
        return None
    first = tuple(batch.schema.names[: len(names)]) == tuple(names)
    try:
        tensor = batch.select(range(len(names)) if first else list(names)).to_tensor(row_major=True)
    except pa.ArrowException:  # a value is missing, or is no number
        return None
    values = tensor.to_numpy()
    if values.dtype.kind != "f" or not np.isfinite(values).all():  # unsigned among signed integers may have overflowed
        return None
    return np.asarray(values, np.float64)


def flags(array: pa.Array, column: str) -> tuple[Flags, Fault | None]:
    """Parse flags; see `lstd.data.parsing.flags`."""
    array = _plain(array)
    if pa.types.is_string(array.type):
        encoded = array.dictionary_encode(null_encoding="encode")
        return rules.flags(_objects(encoded.dictionary), column, to_numpy(encoded.indices))
    values, fault = numbers(array, column)
    return (values == 1.0, fault) if fault is not None else rules.flags(values, column)


def times(array: pa.Array, column: str, unit: str = "us") -> tuple[NDArray[Any], Fault | None]:
    """Parse times; dates are numbers of this unit since 1970. See `lstd.data.parsing.times`."""
    array, types = _plain(array), pa.types
    if types.is_unsigned_integer(array.type):
        with contextlib.suppress(pa.ArrowInvalid):  # from 2⁶³ on they are read as floats
            array = array.cast(pa.int64())
    if types.is_string(array.type):
        for kind in (pa.int64(), pa.timestamp("us"), pa.timestamp("us", "UTC")):
            with contextlib.suppress(pa.ArrowInvalid):
                array = array.cast(kind)
                break
    if types.is_time(array.type):
        array = array.cast(pa.time64("us"), safe=False).cast(pa.int64())
    elif types.is_temporal(array.type):
        kind = pa.duration(unit) if types.is_duration(array.type) else pa.timestamp(unit)
        array = array.cast(kind, safe=False).cast(pa.int64())
    if types.is_signed_integer(array.type):
        return to_numpy(array.cast(pa.int64())), rules.no_value(to_numpy(pc.is_null(array)), column)
    values, fault = numbers(array, column)
    if fault is not None and types.is_string(array.type):
        return rules.times(_objects(array), column)
    return values, rules.check_finite(values, column, fault, rules.NO_TIME)


def ids(array: pa.Array, column: str) -> Ids:
    """Parse ids, up to the first row that has none; they are numbers or text."""
    array = _plain(array)
    if pa.types.is_floating(array.type):
        array = array.cast(pa.float64())
        missing = ~np.isfinite(to_numpy(array))
    else:
        missing = to_numpy(pc.is_null(array))
    first, fault = len(array), None
    if missing.any():
        first = int(np.argmax(missing))
        text = "is infinite" if array[first].as_py() in (np.inf, -np.inf) else rules.NO_VALUE
        fault = Fault(first, column, f"{text}; {NEEDS_ID}")
    known = array[:first]
    if not len(known):
        return up_to(Ids(np.empty(0, np.intp), [], fault))
    try:
        changed = to_numpy(pc.not_equal(known[1:], known[:-1]))
    except pa.ArrowException:
        fault = Fault(0, column, f"is of type {array.type}, {_NO_IDS}")
        return up_to(Ids(np.empty(0, np.intp), [], fault))
    changes = np.concatenate(([0], np.flatnonzero(changed) + 1))
    return _named(known.take(from_numpy(changes)), changes, column, fault)


def _named(array: pa.Array, changes: NDArray[np.intp], column: str, fault: Fault | None) -> Ids:
    """Ids of the rows `changes`, whose values are given."""
    kind = array.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return up_to(Ids(changes, array.to_pylist(), fault))
    if pa.types.is_fixed_size_binary(kind):  # UUIDs
        return up_to(Ids(changes, [value.hex() for value in array.to_pylist()], fault))
    try:
        return ids_of_text(changes, as_text(array).to_pylist(), column, fault)
    except pa.ArrowException:
        return ids_of_text(changes[:0], [], column, Fault(0, column, f"is of type {kind}, {_NO_IDS}"))


def as_text(array: pa.Array) -> pa.Array:
    """Values as text; raises ArrowNotImplementedError for nested ones."""
    array = _plain(array)
    return array if pa.types.is_string(array.type) else array.cast(pa.string())


def kind_of(array: pa.Array) -> str:
    """Return what a column holds: "whole" numbers or flags, "numbers" or "text"."""
    kind = _plain(array).type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return "whole"
    return "numbers" if _is_numeric(kind) else "text"


def numpy_unit(array: pa.Array) -> str:
    """Return the NumPy type of a column of times; "" if the column holds no such times."""
    kind = _plain(array).type
    if pa.types.is_duration(kind):
        return "m8[ns]"
    return "M8[ns]" if pa.types.is_timestamp(kind) else "M8[D]" if pa.types.is_date(kind) else ""


def clock_of(array: pa.Array) -> tuple[bool, bool]:
    """Return whether a column of times holds dates, and whether these have a time zone; its first value decides."""
    array = _plain(array)
    kind = array.type
    if pa.types.is_timestamp(kind):
        return True, kind.tz is not None
    if pa.types.is_string(kind) and len(array) and rules.numbers(_objects(array[:1]), "")[1] is not None:
        with contextlib.suppress(ValueError):  # neither a number nor a date
            return True, datetime.fromisoformat(_objects(array[:1])[0].strip()).utcoffset() is not None
    return pa.types.is_date(kind), False


def from_numpy(values: NDArray[Any]) -> pa.Array:
    """Numbers or booleans as an Arrow array; `pyarrow.array` would import pandas, if installed, to look at them."""
    values = np.ascontiguousarray(values)
    if values.dtype == np.bool_:
        return from_numpy(values.view(np.uint8)).cast(pa.bool_())
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])


def from_texts(texts: Sequence[str]) -> pa.Array:
    """Texts as an Arrow array, for the same reason."""
    encoded = [text.encode("utf-8", "replace") for text in texts]
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return pa.Array.from_buffers(
        pa.string(), len(texts), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]
    )


def to_numpy(array: pa.Array) -> NDArray[Any]:
    """Numbers or booleans as a NumPy array; NaN, zero or false where there is none."""
    # `Array.to_numpy` would import pandas, if installed, and `to_pandas_dtype` of older versions needs it.
    if pa.types.is_boolean(array.type):
        return to_numpy(array.cast(pa.uint8())).view(np.bool_)
    validity, data = array.buffers()
    end = array.offset + len(array)
    dtype = np.dtype(_DTYPES.get(str(array.type), str(array.type)))
    values = np.frombuffer(data, dtype, count=end)[array.offset :] if len(array) else np.empty(0, dtype)
    if not array.null_count:
        return values
    bits = np.unpackbits(np.frombuffer(validity, np.uint8), count=end, bitorder="little")[array.offset :]
    return np.where(bits.view(np.bool_), values, np.nan if values.dtype.kind == "f" else 0).astype(values.dtype)


def _plain(array: pa.Array) -> pa.Array:
    """One array of plain values, text in one type."""
    array = _combined(array)
    if pa.types.is_dictionary(array.type):
        array = without_views(array).dictionary_decode()
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    return array.cast(pa.string()) if pa.types.is_large_string(array.type) else without_views(array)


def without_views(array: pa.Array) -> pa.Array:
    """Text and bytes as Arrow has kernels for them: those of Polars are views, which it can neither take nor trim."""
    if pa.types.is_dictionary(array.type):
        return pa.DictionaryArray.from_arrays(array.indices, without_views(array.dictionary))
    plain = {"string_view": pa.string(), "binary_view": pa.binary()}.get(str(array.type))
    return array if plain is None else array.cast(plain)


def _is_numeric(kind: Any) -> bool:
    types = pa.types
    tests = (types.is_integer, types.is_floating, types.is_decimal, types.is_boolean, types.is_null)
    return any(test(kind) for test in tests)


def _as_floats(array: pa.Array) -> Array:
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.uint8())
    # Integers beyond 2^53 are rounded, as any number that is read into a float64.
    return to_numpy(array.cast(pa.float64(), safe=False))


def _parsed(array: pa.Array, column: str) -> tuple[Array, Fault | None]:
    """Numbers among text with white space or missing values, or with what is not a number."""
    trimmed = pc.utf8_trim_whitespace(array)
    missing = pc.is_in(pc.utf8_lower(trimmed), value_set=_missing())
    try:
        return _as_floats(pc.if_else(missing, pa.nulls(len(array), pa.string()), trimmed)), None
    except pa.ArrowInvalid:
        return rules.numbers(_objects(array), column)


def _objects(array: pa.Array) -> NDArray[Any]:
    return np.array([*array.to_pylist(), None], dtype=object)[:-1]


@cache
def _missing() -> pa.Array:
    return from_texts(sorted(rules.MISSING))
