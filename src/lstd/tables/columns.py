"""Columns of a chunk as arrays, with the first bad value of each."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lstd.tables.faults import Fault

Array = NDArray[np.float64]

_MISSING = ("", "na", "n/a", "#n/a", "nan", "-nan", "null", "none", "<na>")
_TRUTHS = dict.fromkeys(("1", "1.0", "true", "t", "yes", "y"), True)
_TRUTHS |= dict.fromkeys(("0", "0.0", "false", "f", "no", "n"), False)
_HAS_TENSORS = int(pa.__version__.partition(".")[0]) >= 17  # in the order of rows
_DTYPES = {"double": "float64", "float": "float32", "halffloat": "float16"}  # the others have the same names
_SHOWN = 40  # characters of a bad value in a message
NO_VALUE = "has no value (it is empty or NaN)"
_NEEDED = "every row needs the id of its episode."
_CONVERT = "convert it to text or integers first."
_NO_IDS = f"which cannot be ids; {_CONVERT}"


class Ids(NamedTuple):
    """Ids of a chunk's rows: where they change, and those that follow a change."""

    changes: NDArray[np.intp]  # rows whose id is not that of the row before; row 0 among them
    names: list[Any]  # ids of those rows
    fault: Fault | None


def numbers(array: pa.Array, column: str) -> tuple[Array, Fault | None]:
    """Float64 values, NaN where there is none, and the first that is not a number; those after it are NaN."""
    array = _plain(array)
    kind = array.type
    if pa.types.is_string(kind):
        return _parsed(array, column)
    if not _is_numeric(kind):
        values = np.full(len(array), np.nan)
        return values, Fault(0, column, f"is not numeric; the column is of type {kind}.") if len(array) else None
    return _as_numpy(array), None


def matrix(batch: pa.RecordBatch, names: Sequence[str]) -> Array | None:
    """Columns side by side, shape (T, n), in one step; None unless all are float64, finite, and without gaps."""
    if not _HAS_TENSORS or not len(batch) or any(batch.schema.field(name).type != pa.float64() for name in names):
        return None
    try:
        found: Array = batch.select(list(names)).to_tensor(row_major=True).to_numpy()
    except pa.ArrowException:  # a value is missing
        return None
    return found if np.isfinite(found).all() else None


def finite(values: Array, column: str, fault: Fault | None) -> Fault | None:
    """The first value that is missing, infinite, or no number as `fault` says."""
    row = int(np.argmin(np.isfinite(values))) if len(values) else 0
    if not len(values) or np.isfinite(values[row]):
        return None
    if fault is not None and fault.row <= row:
        return fault
    text = NO_VALUE if np.isnan(values[row]) else "is infinite"
    return Fault(row, column, f"{text}; drop or impute such rows first.")


def not_infinite(values: Array, column: str, fault: Fault | None) -> Fault | None:
    """The first value that is infinite, or no number as `fault` says; values may be missing."""
    bad = np.isinf(values)
    row = int(np.argmax(bad)) if bad.any() else len(values)
    if fault is not None and fault.row <= row:
        return fault
    return Fault(row, column, "is infinite; drop or impute such rows first.") if row < len(values) else None


def flags(array: pa.Array, column: str) -> tuple[NDArray[np.bool_], Fault | None]:
    """Values of zero and one, or true and false, as booleans; all are false from the first bad one on."""
    array = _plain(array)
    if pa.types.is_string(array.type):
        return _parsed_flags(array, column)
    values, fault = numbers(array, column)
    bad = (values != 0.0) & (values != 1.0)
    if fault is None and bad.any():
        row = int(np.argmax(bad))
        said = NO_VALUE if np.isnan(values[row]) else f"has {values[row]:g}"
        fault = Fault(row, column, f"{said}, which is neither 0 nor 1; recode it.")
    truths = values == 1.0
    if fault is not None:
        truths[fault.row :] = False
    return truths, fault


def ids(array: pa.Array, column: str) -> Ids:
    """Where ids change, up to the first row that has none."""
    array = _plain(array)
    if pa.types.is_floating(array.type):
        array = array.cast(pa.float64())
        missing = ~np.isfinite(_to_numpy(array))
    else:
        missing = _to_numpy(pc.is_null(array))
    first = int(np.argmax(missing)) if missing.any() else len(array)
    fault = None
    if first < len(array):
        infinite = array[first].as_py() in (np.inf, -np.inf)
        fault = Fault(first, column, f"{'is infinite' if infinite else NO_VALUE}; {_NEEDED}")
    known = array[:first]
    if not len(known):
        return Ids(np.empty(0, np.intp), [], fault)
    try:
        changed = _to_numpy(pc.not_equal(known[1:], known[:-1]))
    except pa.ArrowException:
        return Ids(np.empty(0, np.intp), [], Fault(0, column, f"is of type {array.type}, {_NO_IDS}"))
    changes = np.concatenate(([0], np.flatnonzero(changed) + 1))
    names, said = _names(known.take(from_numpy(changes)))
    if said is not None:
        fault = Fault(int(changes[len(names)]), column, said)
    return Ids(changes[: len(names)], names, fault)


def _names(array: pa.Array) -> tuple[list[Any], str | None]:
    """Ids as numbers or text, those before the first that is none, and what is wrong with that one."""
    kind = array.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return array.to_pylist(), None
    if pa.types.is_fixed_size_binary(kind):
        return [value.hex() for value in array.to_pylist()], None
    try:
        names = as_text(array).to_pylist()
    except pa.ArrowNotImplementedError:
        return [], f"is of type {kind}, {_NO_IDS}"
    except pa.ArrowInvalid:
        return _decoded(array.to_pylist(), kind)
    for place, name in enumerate(names):
        if name.strip().lower() in _MISSING:
            said = f"has {name!r}, which counts as no value" if name.strip() else NO_VALUE
            return names[:place], f"{said}; {_NEEDED}"
    return names, None


def _decoded(values: list[Any], kind: Any) -> tuple[list[Any], str | None]:
    """Texts of bytes, those before the first that is none."""
    names = []
    for value in values:
        try:
            names.append(value.decode())
        except (UnicodeDecodeError, AttributeError):
            return names, f"is of type {kind}, and is not UTF-8 text; {_CONVERT}"
    return names, None


def as_text(array: pa.Array) -> pa.Array:
    """Values as text; raises ArrowNotImplementedError for nested ones."""
    array = _plain(array)
    return array if pa.types.is_string(array.type) else array.cast(pa.string())


def trimmed(array: pa.Array) -> pa.Array:
    """Texts without white space around them."""
    return pc.utf8_trim_whitespace(array)


def _plain(array: pa.Array) -> pa.Array:
    """One array of values themselves, texts in one type."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    kind = array.type
    if pa.types.is_large_string(kind) or str(kind) == "string_view":
        array = array.cast(pa.string())
    return array


def from_numpy(values: NDArray[Any]) -> pa.Array:
    """Numbers or booleans as an Arrow array; `pyarrow.array` would import pandas, where installed, to look at them."""
    values = np.ascontiguousarray(values)
    if values.dtype == np.bool_:
        return from_numpy(values.view(np.uint8)).cast(pa.bool_())
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])


@cache
def _missing() -> pa.Array:
    offsets = np.cumsum([0, *map(len, _MISSING)], dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer("".join(_MISSING).encode())]
    return pa.Array.from_buffers(pa.string(), len(_MISSING), buffers)


def _is_numeric(kind: Any) -> bool:
    types = pa.types
    tests = (types.is_integer, types.is_floating, types.is_decimal, types.is_boolean, types.is_null)
    return any(test(kind) for test in tests)


def _as_numpy(array: pa.Array) -> Array:
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.uint8())
    # Integers beyond 2^53 are rounded, as any number that is read into a float64.
    return _to_numpy(array.cast(pa.float64(), safe=False))


def _to_numpy(array: pa.Array) -> NDArray[Any]:
    """Numbers or booleans; NaN, zero or false where there is none."""
    # `Array.to_numpy` would import pandas where it is installed, and `to_pandas_dtype` of older versions needs it.
    if pa.types.is_boolean(array.type):
        return _to_numpy(array.cast(pa.uint8())).view(np.bool_)
    validity, data = array.buffers()
    end = array.offset + len(array)
    dtype = np.dtype(_DTYPES.get(str(array.type), str(array.type)))
    values = np.frombuffer(data, dtype, count=end)[array.offset :] if len(array) else np.empty(0, dtype)
    if not array.null_count:
        return values
    bits = np.unpackbits(np.frombuffer(validity, np.uint8), count=end, bitorder="little")[array.offset :]
    return np.where(bits.view(np.bool_), values, np.nan if values.dtype.kind == "f" else 0).astype(values.dtype)


def _parsed(array: pa.Array, column: str) -> tuple[Array, Fault | None]:
    try:
        return _as_numpy(array), None
    except pa.ArrowInvalid:
        pass
    array = trimmed(array)
    missing = pc.is_in(pc.utf8_lower(array), value_set=_missing())
    array = pc.if_else(missing, pa.nulls(len(array), pa.string()), array)
    try:
        return _as_numpy(array), None
    except pa.ArrowInvalid:
        row = _first_unparsable(array)
    values = np.full(len(array), np.nan)
    values[:row] = _as_numpy(array[:row])
    return values, Fault(row, column, f"has {_shown(array[row].as_py())}, which is not a number.")


def _first_unparsable(array: pa.Array) -> int:
    """The first row that is not a number, by bisection: rows before `low` are numbers, one before `high` is not."""
    low, high = 0, len(array)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            array[low:middle].cast(pa.float64())
            low = middle
        except pa.ArrowInvalid:
            high = middle
    return low


def _parsed_flags(array: pa.Array, column: str) -> tuple[NDArray[np.bool_], Fault | None]:
    encoded = array.dictionary_encode(null_encoding="encode")
    words = [word or "" for word in encoded.dictionary.to_pylist()]
    truths = [_TRUTHS.get(word.strip().lower()) for word in words]
    codes = _to_numpy(encoded.indices)
    values = np.array([bool(truth) for truth in truths], dtype=np.bool_)[codes]
    bad = np.array([truth is None for truth in truths], dtype=np.bool_)[codes]
    if not bad.any():
        return values, None
    row = int(np.argmax(bad))
    values[row:] = False
    word = words[codes[row]].strip()
    said = f"has {_shown(word)}" if word else NO_VALUE
    return values, Fault(row, column, f"{said}, which is neither 0 nor 1, true nor false, yes nor no; recode it.")


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")
