"""Arguments of any library as arrays of numbers and flags, by the one parser of columns that tables have.

NumPy's own numbers and booleans stay as they are. Columns of pandas, Polars and Arrow, text and Python objects go
through `lstd.data.parse_columns`, so that a value means on every route what it means in a table.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lstd.data.ids import NO_TYPE, Fault, not_numeric
from lstd.errors import InvalidInputError, InvalidTypeError, missing_extra
from lstd.types import Array

_COMPLEX = " Complex data not supported: pass real and imaginary parts as columns of their own."
TOO_LARGE = "`{name}` must be finite in float64, below 1e308 in absolute value; {found}."  # of messages
_PLAIN = {int, float, type(None), Decimal, Fraction}  # types of objects that NumPy converts to the nearest floats
_BOOLEANS = {bool, np.bool_}
_OF_OBJECTS = "OSUTV"  # kinds of NumPy's types whose values are read as Python objects
_PLAIN_TYPES = frozenset(f"{kind}{bits}" for kind in ("int", "uint", "float") for bits in (8, 16, 32, 64)) | {
    "double",
    "float",
    "halffloat",
}  # of Polars and Arrow, in lower case
_OF_NUMPY = (np.integer, np.floating)
_SINGLE = "single"  # in place of the label of a column: the value stands alone


# ------------------------------------------------------------ what values are


def library_of(value: object) -> str:
    """Return the name of the package of a value's type."""
    return type(value).__module__.partition(".")[0]


def is_lazy(value: object) -> bool:
    """Return whether a value is a lazy frame, as those of Polars and narwhals are."""
    return type(value).__name__ == "LazyFrame"


def check_values_known(name: str, value: object) -> None:
    """Refuse lazy frames, which hold no values yet, and masked entries, whose hidden values would be used."""
    if is_lazy(value):
        raise InvalidInputError(f"`{name}` must hold values; got a {type(value).__name__}. Call its `collect()` first.")
    structured = getattr(getattr(value, "dtype", None), "names", None) is not None  # refused by its dtype
    if not structured and isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise InvalidInputError(f"`{name}` must not have masked entries. Fill them, or drop their rows, first.")


def check_real_dtype(name: str, dtype: np.dtype[Any]) -> None:
    """Refuse dtypes other than booleans, integers and floats."""
    if dtype.kind not in "biuf":
        parts = _COMPLEX if dtype.kind == "c" else ""
        raise InvalidInputError(f"`{name}` must be an array of real numbers; got dtype {dtype}.{parts}")


def column_of_library(name: str, values: object) -> Any:
    """Return a column of Arrow, Polars or pandas as `lstd.data.parse_columns` takes it; None for others.

    Without pyarrow, None is returned for all, and NumPy converts them.
    """
    if library_of(values) not in ("pandas", "polars", "pyarrow"):
        return None
    try:
        from lstd.data.arrow_columns import column_of
    except ModuleNotFoundError:
        return None
    try:
        return column_of(values, name)
    except InvalidInputError as error:
        raise InvalidInputError(f"`{name}` must hold values of one type: {error}") from error


def columns_of_frame(frame: Any) -> list[tuple[Any, Any]] | None:
    """Return the names and the columns of a data frame of pandas, Polars or Arrow; None for other values."""
    library = library_of(frame)
    if library == "pandas" and getattr(frame, "ndim", None) == 2:
        return [(name, frame.iloc[:, j]) for j, name in enumerate(frame.columns)]
    if library == "polars" and hasattr(frame, "to_series"):
        return [(name, frame.to_series(j)) for j, name in enumerate(frame.columns)] if hasattr(frame, "width") else None
    if library == "pyarrow" and hasattr(frame, "column_names"):
        return [*zip(frame.column_names, frame.columns, strict=True)]
    if library == "pyarrow" and hasattr(frame, "schema"):
        return [*zip(frame.schema.names, frame.columns, strict=True)]
    return None


def _has_plain_columns(frame: Any) -> bool:
    """Return whether NumPy converts all columns of a data frame to the same numbers."""
    types = getattr(frame, "dtypes", getattr(getattr(frame, "schema", None), "types", ()))
    if library_of(frame) == "pandas":
        return all(isinstance(kind, np.dtype) and kind.kind in "biuf" for kind in types)
    return all(str(kind).lower() in _PLAIN_TYPES for kind in types)


def labels_of(values: ArrayLike) -> NDArray[Any]:
    """Return labels as an array: columns of libraries as integers, floats or text, and others as NumPy has them.

    Raises TypeError when a column holds values of another type.
    """
    column = column_of_library("labels", values)
    if column is None:
        return np.asarray(values)
    from lstd.data import arrow_columns, parse_columns

    plain = arrow_columns.plain(column)
    kind = parse_columns.kind_of(plain)
    if kind == "text":
        if not parse_columns.is_text(plain):
            raise TypeError(parse_columns.name_of_type(column.type))
        texts = plain.to_pylist()
        return np.array(texts, object if None in texts else None)
    if kind == "whole" and not plain.null_count:
        return arrow_columns.to_numpy(plain)
    return parse_columns.numbers(plain, "labels")[0]


# ------------------------------------------------------------ numbers and flags


class Purpose(NamedTuple):
    """What values are read as."""

    parse: str  # the function of `lstd.data.parse_columns`
    rule: str  # of messages
    remedy: str  # what entries of foreign types should be


_NUMBERS = Purpose(
    "numbers",
    "must be an array of real numbers",
    "Every entry of the argument must be a number, or a string that is a number.",
)
_FLAGS = Purpose("flags", "must hold True and False", "Write True or 1 where it holds, and False or 0 elsewhere.")


def as_real(name: str, values: object, dtype: Any = np.float64) -> NDArray[Any]:
    """Convert to floats in C order and aligned memory; copy only where needed."""
    array = np.asarray(to_real_array(name, values), dtype=dtype, order="C")
    return array if array.flags.aligned else array.copy()  # NumPy sums unaligned memory in another order


def to_real_array(name: str, value: object) -> NDArray[Any]:
    """Return `value` as an array of booleans, integers or floats; raises InvalidInputError where one is no number.

    Text is read as numbers, as in tables; missing values of other libraries and of Python are NaN.
    """
    if type(value) is np.ndarray and value.dtype.kind in "biuf":
        return value
    return _read(name, value, _NUMBERS)


def to_flags(name: str, value: object) -> NDArray[Any]:
    """Return flags as booleans, words of text too; numbers stay as they are, for the caller to check.

    Raises InvalidInputError where one is neither.
    """
    if type(value) is np.ndarray and value.dtype.kind in "biuf":
        return value
    return _read(name, value, _FLAGS)


def _read(name: str, value: object, purpose: Purpose) -> NDArray[Any]:
    check_values_known(name, value)
    column = column_of_library(name, value)
    if column is not None:
        return _parsed(name, column, purpose)
    columns = columns_of_frame(value)
    if columns and not _has_plain_columns(value):
        return np.column_stack([_of_column(name, each, repr(label), purpose) for label, each in columns])
    return _of_array(name, array_of(name, value, purpose.rule), purpose)


def array_of(name: str, value: object, rule: str) -> NDArray[Any]:
    """Return what NumPy makes of a value, where lists of several types keep their objects.

    Raises InvalidInputError, by the rule, where NumPy makes none.
    """
    is_list = isinstance(value, (list, tuple))
    try:
        array = np.asarray(value)
        if is_list and array.dtype.kind in "SU":
            array = np.array(value, dtype=object)
    except MemoryError:
        raise
    except Exception as error:  # ragged lists; `__array__` may raise anything
        if isinstance(value, (list, tuple)) and any(isinstance(entry, (list, tuple, np.ndarray)) for entry in value):
            found = "its entries are lists of different lengths. Give all the same length."
        else:
            found = f"NumPy makes no array of this {type(value).__name__}: {str(error).rstrip('.')}."
        raise InvalidInputError(f"`{name}` {rule}; {found}") from error
    return array


def _of_column(name: str, values: Any, label: str, purpose: Purpose) -> NDArray[Any]:
    """Return a column of a data frame, which has a label."""
    column = column_of_library(name, values)
    if column is not None:
        return _parsed(name, column, purpose, label)
    return _of_array(name, np.asarray(values), purpose, label)


def _of_array(name: str, array: NDArray[Any], purpose: Purpose, label: str = "") -> NDArray[Any]:
    """Return an array of any type as one of numbers or flags, of the same shape."""
    kind = array.dtype.kind
    if kind in "biuf":
        return array
    if kind not in _OF_OBJECTS:
        fault = Fault(0, name, not_numeric(str(array.dtype), is_time=kind in "mM"))
        if kind == "c":
            fault = fault._replace(text=fault.text + _COMPLEX)
        raise _refusal(name, fault, purpose, label)
    if not array.size:
        return np.zeros(array.shape)
    floats = _plain_floats(name, array, purpose)
    if floats is not None:
        return floats
    rows = array.reshape(len(array), -1) if array.ndim else array.reshape(1, 1)
    columns = []
    for j in range(rows.shape[1]):
        place = label
        if array.ndim > 1:
            place = str(j)
        elif not array.ndim:
            place = _SINGLE
        columns.append(_of_objects(name, rows[:, j], purpose, place))
    return np.column_stack(columns).reshape(array.shape)


def _plain_floats(name: str, array: NDArray[Any], purpose: Purpose) -> Array | None:
    """Return objects that are all numbers of Python, or all booleans, as NumPy converts them exactly; else None.

    Raises InvalidInputError for an integer that no float can hold.
    """
    if array.dtype.kind != "O":
        return None
    kinds = {*map(type, array.ravel().tolist())}
    if not (kinds <= _BOOLEANS or kinds <= _PLAIN or all(issubclass(kind, _OF_NUMPY) for kind in kinds)):
        return None
    try:
        return array.astype(np.float64)
    except ValueError:  # a signalling NaN
        return None
    except OverflowError as error:
        if purpose is _FLAGS:  # the parser refuses it as any other that is no flag
            return None
        raise InvalidInputError(TOO_LARGE.format(name=name, found="got a larger one")) from error


def _of_objects(name: str, values: NDArray[Any], purpose: Purpose, label: str) -> NDArray[Any]:
    """Return a column of Python objects, (T,)."""
    floats = _plain_floats(name, values, purpose)
    if floats is not None:
        return floats
    try:
        from lstd.data.arrow_columns import objects_read
    except ModuleNotFoundError as error:
        raise _needs_pyarrow(name, values, purpose) from error
    column, fault = objects_read(values.tolist(), name)
    if fault is not None:
        raise _refusal(name, fault, purpose, label)
    return _parsed(name, column, purpose, label)


def _needs_pyarrow(name: str, values: NDArray[Any], purpose: Purpose) -> Exception:
    """Return the error of objects that are not numbers, where pyarrow is not installed."""
    kinds = {*map(type, values.tolist())}
    others = sorted(kind.__name__ for kind in kinds if not issubclass(kind, (str, bytes, *_PLAIN, *_BOOLEANS)))
    if others and kinds.isdisjoint({str, bytes}):
        return InvalidTypeError(f"`{name}` {purpose.rule}; it has an entry of type {others[0]}. {purpose.remedy}")
    return missing_extra(f"Reading text and objects as {purpose.parse}, in `{name}`,", "pyarrow", "data")


def _parsed(name: str, column: Any, purpose: Purpose, label: str = "") -> NDArray[Any]:
    """Return a column of Arrow as numbers or flags, (T,)."""
    from lstd.data import parse_columns

    found, fault = getattr(parse_columns, purpose.parse)(column, name)
    if fault is not None:
        raise _refusal(name, fault, purpose, label)
    return np.asarray(found)


def _refusal(name: str, fault: Fault, purpose: Purpose, label: str) -> InvalidInputError:
    """Return the error of a bad value in a column, which has a label if there are several."""
    place = "it" if label == _SINGLE else f"row {fault.row}"
    if label and label != _SINGLE:
        place += f" of column {label}"
    text = f"`{name}` {purpose.rule}; {place} {fault.text}"
    if NO_TYPE in fault.text:
        return InvalidTypeError(f"{text} {purpose.remedy}")
    return InvalidInputError(text)
