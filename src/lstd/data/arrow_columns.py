"""Columns of pandas, Polars and Arrow as Arrow arrays of plain types, and these as arrays of NumPy.

All by the casts of Arrow and NumPy. Python objects that these would change, or have no type for, become text, of which
`lstd.data.parse_columns` reads the same values, or are refused.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import json
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lstd.data.identity import MISSING, Identity, NotAnIdError, identity, is_missing, name_of
from lstd.data.ids import NO_TYPE, Fault
from lstd.errors import InvalidInputError

# ------------------------------------------------------------ frames


def is_frame(value: Any) -> bool:
    """Return whether a value is a data frame."""
    if _is_of("pandas", value):
        return getattr(value, "ndim", None) == 2
    return hasattr(value, "__arrow_c_stream__")


def _is_of(library: str, value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == library


def arrow_table(name: str, frame: Any) -> Any:
    """Return a data frame as an Arrow table; one of pandas as it is. Errors call it `name`."""
    if _is_of("pandas", frame):
        return frame
    try:
        if _is_of("polars", frame):
            return _of_polars(frame)
        return pa.table(frame)
    except InvalidInputError as error:
        raise InvalidInputError(f"{name}: {error}") from error
    except Exception as error:  # the library of the frame may raise anything
        raise InvalidInputError(f"{name} could not be read as a table: {error!r:.300}.") from error


def names_of(frame: Any) -> list[Any]:
    """Return the names of the columns of a result of `arrow_table`."""
    if _is_of("pandas", frame):
        return list(frame.columns)
    return list(frame.column_names)


def arrow_batches(frame: Any, columns: Sequence[str], most_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield batches of columns of a result of `arrow_table`."""
    columns = list(columns)
    if not _is_of("pandas", frame):
        chosen = frame.select(columns)
        for first in range(0, len(frame), most_rows):
            arrays = [_without_views(combined(column)) for column in chosen.slice(first, most_rows).columns]
            yield with_starts_of_periods(pa.RecordBatch.from_arrays(arrays, columns), chosen.schema)
        return
    names = [*map(str, frame.columns)]
    places = [names.index(name) for name in columns]
    for first in range(0, len(frame), most_rows):
        part = frame.iloc[first : first + most_rows]
        arrays = [_of_pandas(part.iloc[:, place], name, first) for place, name in zip(places, columns, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, columns)


# ------------------------------------------------------------ columns of libraries

PERIODS = "pandas.period"  # a type of Arrow that pandas adds
_NO_PERIOD = -(2**63)  # in place of the number of a period that is missing
_DTYPES = {"double": "float64", "float": "float32", "halffloat": "float16"}  # the others have the same names
_NOT_OF_ARROW = ("Object", "Int128", "UInt128")  # types of Polars that Arrow has not, or takes for other bytes


def _of_polars(frame: Any) -> pa.Table:
    """Return a frame of Polars, by way of Python objects where Arrow has no such type."""
    odd = [name for name, kind in frame.schema.items() if str(kind) in _NOT_OF_ARROW]
    if not odd:
        return pa.table(frame)
    plain = pa.table(frame.drop(odd))
    columns = {name: plain.column(name) for name in plain.column_names}
    for name in odd:
        columns[name] = of_objects(frame[name].to_list(), name)
    return pa.Table.from_arrays([columns[name] for name in frame.columns], names=frame.columns)


def column_of(values: Any, name: str) -> pa.Array | None:
    """Return a column of Arrow, Polars, or pandas with a type that NumPy has not; None for other values.

    Raises InvalidInputError when it has values that are neither numbers, text nor times.
    """
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return combined(values)
    if getattr(values, "ndim", 1) != 1 or isinstance(getattr(values, "dtype", None), np.dtype):
        return None
    if _is_of("polars", values) and hasattr(values, "to_frame"):
        return combined(_of_polars(values.alias(name).to_frame()).column(0))
    if _is_of("pandas", values) and hasattr(values, "dtype"):
        return _of_pandas(values, name)
    return None


def _of_pandas(values: Any, name: str, first_row: int = 0) -> pa.Array:
    """Return a series or an index of pandas, or the array that one holds; messages number rows from `first_row`."""
    kind = values.dtype
    if isinstance(kind, np.dtype) and kind.kind in "biuf":
        return from_numpy(np.asarray(values))
    if isinstance(kind, np.dtype) and kind.kind == "O":
        return of_objects(values.tolist(), name, first_row)
    array = getattr(values, "array", values)
    types = {each.__name__ for each in type(kind).__mro__}
    if "SparseDtype" in types:
        return _of_pandas(array.to_dense(), name, first_row)
    if "PeriodDtype" in types:
        return _of_pandas(array.start_time, name, first_row)
    if "CategoricalDtype" in types:
        codes = np.asarray(array.codes, np.int64)
        places = pc.if_else(from_numpy(codes >= 0), from_numpy(codes), pa.nulls(len(codes), pa.int64()))
        return _of_pandas(array.categories, name).take(places)
    try:
        return combined(pa.Array.from_pandas(array))
    except Exception:  # the array of a foreign type is converted by its own code, which may raise anything
        return of_objects([*values], name, first_row)


# Types of Python objects that Arrow keeps as they are. Of others it drops the hours of a datetime after a date, zones
# and nanoseconds of times, and takes True of NumPy for 1.
_KEPT: tuple[set[type], ...] = (
    {str},
    {int},
    {float},
    {int, float},
    {bool},
    {bytes},
    {Decimal},
    {int, Decimal},
    {date},
    {time},
    {timedelta},
    {UUID},
    {list},
    {dict},
    {np.ndarray},
)
_DURATIONS = (timedelta, np.timedelta64)


class Keys(pa.ExtensionType):  # type: ignore[misc]
    """The type of columns of Python objects that Arrow has no type for, such as tuples: the text of their keys as ids.

    `of` is the name of the type of the objects, or "object" for several.
    """

    NAME = "lstd.keys"

    def __init__(self, of: str) -> None:
        self.of = of
        super().__init__(pa.string(), self.NAME)

    def __arrow_ext_serialize__(self) -> bytes:
        return self.of.encode()

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: Any, serialized: bytes) -> Keys:
        return cls(serialized.decode())


def of_objects(values: Sequence[Any], name: str, first_row: int = 0) -> pa.Array:
    """Return the Python objects of a column; raises InvalidInputError for those that :func:`objects_read` refuses."""
    array, fault = objects_read(values, name)
    if fault is not None:
        row = first_row + fault.row
        raise InvalidInputError(f"column {name!r}, row {row} (counting from 0): {fault.text}")
    return array


def objects_read(values: Sequence[Any], name: str) -> tuple[pa.Array, Fault | None]:
    """Return the Python objects of a column as an Arrow array, and the first that is no number, text, time or id.

    They are text where Arrow would change them or has no common type, and `Keys` where there is no text from which the
    same value is read. With a fault, all are null.
    """
    values = _with_none(values)
    kinds = {*map(type, values)} - {type(None)}
    if np.ndarray in kinds and all(value.ndim == 0 for value in values if type(value) is np.ndarray):
        values = _of_single_arrays(values)
        kinds = {*map(type, values)} - {type(None)}
    without_zone = kinds == {datetime} and not any(value and value.tzinfo for value in values)
    if kinds in _KEPT or without_zone:
        with contextlib.suppress(pa.ArrowException, OverflowError, UnicodeError, TypeError):
            return combined(pa.array(values)), None
    if kinds and kinds <= {bool, np.bool_}:
        return _of_flags(values), None
    if len(kinds) == 1 and None not in values and all(issubclass(kind, np.generic) for kind in kinds):
        array = np.array(values)
        if array.dtype.kind in "biuf":
            return from_numpy(array), None
    text_of: Callable[[Any], str | None] = _text
    if any(map(_has_no_text, values)):
        text_of = _key_of
    texts: list[str | None] = [None] * len(values)
    for row, value in enumerate(values):
        if value is None:
            continue
        try:
            texts[row] = text_of(value)
        except (TypeError, ValueError) as error:
            return pa.nulls(len(values), pa.string()), Fault(row, name, str(error))
    array = pa.array(texts, pa.string())
    if text_of is _text:
        return array, None
    if all(issubclass(kind, _DURATIONS) for kind in kinds):
        return _of_durations(texts), None
    of = "object"
    if len(kinds) == 1:
        of = next(iter(kinds)).__name__
    return pa.ExtensionArray.from_storage(Keys(of), array), None


def _with_none(values: Sequence[Any]) -> list[Any]:
    """Return the objects with None in place of each that means a missing value."""
    return [None if _is_missing(value) else value for value in values]


def _of_single_arrays(values: Sequence[Any]) -> list[Any]:
    """Return the objects with the value of each array of NumPy without axes in its place."""
    return [value[()] if type(value) is np.ndarray else value for value in values]


def _of_flags(values: Sequence[Any]) -> pa.Array:
    """Return flags of Python and NumPy, and None."""
    return pa.array([None if value is None else bool(value) for value in values], pa.bool_())


def _of_durations(keys: Sequence[str | None]) -> pa.Array:
    """Return durations in nanoseconds from their keys; as `Keys` where 64 bits do not hold them."""
    numbers: list[int | None] = [None] * len(keys)
    for row, key in enumerate(keys):
        if key is not None:  # the key of a duration is "duration" and its nanoseconds
            _, _, nanoseconds = ast.literal_eval(key).partition(" ")
            numbers[row] = int(nanoseconds)
    try:
        return pa.array(numbers, pa.int64()).cast(pa.duration("ns"))
    except (pa.ArrowInvalid, OverflowError):
        return pa.ExtensionArray.from_storage(Keys("timedelta"), pa.array(keys, pa.string()))


def _is_missing(value: Any) -> bool:
    return value is None or (type(value) not in (str, int) and is_missing(value))


def _has_no_text(value: Any) -> bool:
    """Return whether an object is an id of which no text gives the same."""
    if isinstance(value, str):
        return not _is_utf8(value)
    if isinstance(value, bytes):
        try:
            value.decode()
        except UnicodeDecodeError:
            return True
    return isinstance(value, (tuple, *_DURATIONS))


def _is_utf8(text: str) -> bool:
    """Return whether text can be written to a file: half of a pair of surrogates cannot."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _text(value: Any) -> str:
    """Return the text of an object, of which the same value is read; raises ValueError if it has none."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, (float, np.floating)):
        return repr(float(value))
    if isinstance(value, Decimal) and not value.is_finite():
        raise ValueError("is infinite; correct it.")
    name = name_of(_identity(value))
    if isinstance(name, bool):
        return str(name).lower()
    return str(name)


def _key_of(value: Any) -> str | None:
    """Return the key of an object, as text; None of text that means a missing value.

    Raises ValueError if it has none.
    """
    if isinstance(value, str) and value.strip().lower() in MISSING:
        return None
    return repr(_identity(value))


def _identity(value: Any) -> Identity:
    try:
        return identity(value)
    except NotAnIdError as error:
        if isinstance(value, (np.datetime64, *_DURATIONS)):
            raise
        kind = type(value).__name__
        raise ValueError(f"is of type {kind}, {NO_TYPE}") from error


# ------------------------------------------------------------ plain types, and arrays of NumPy


def combined(array: Any) -> pa.Array:
    """Return one array of the chunks of a column."""
    if not isinstance(array, pa.ChunkedArray):
        return array
    chunks = [chunk for chunk in array.chunks if len(chunk)]  # an empty one may fail to be combined
    if len(chunks) < array.num_chunks:
        array = pa.chunked_array(chunks, array.type)
    return array.combine_chunks()


def plain(array: Any) -> pa.Array:
    """Return one array of plain values, with text and bytes in one type each."""
    array = combined(array)
    kind = array.type
    if pa.types.is_dictionary(kind):
        return plain(_without_views(array).dictionary_decode())
    if isinstance(array, pa.ExtensionArray):
        if kind.extension_name == PERIODS:
            return plain(_of_periods(array.storage, kind.freq))
        if kind.extension_name == "arrow.bool8":
            return plain(array.storage.cast(pa.bool_()))
        return plain(array.storage)
    if pa.types.is_large_string(kind):
        return array.cast(pa.string())
    if pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return array.cast(pa.binary())
    return _without_views(array)


def _of_periods(ordinals: pa.Array, freq: str) -> pa.Array:
    """Return the starts of periods of pandas, which Arrow stores as their numbers since 1970."""
    try:
        pandas = importlib.import_module("pandas")
    except ModuleNotFoundError as error:
        raise InvalidInputError(
            "Columns of periods are read by pandas, which is not installed; install it, or write the dates at which "
            "the periods start."
        ) from error
    numbers = to_numpy(pc.coalesce(ordinals, pa.scalar(_NO_PERIOD, pa.int64())))
    periods = pandas.PeriodIndex.from_ordinals(numbers, freq=freq)
    return _of_pandas(periods.start_time, "")


def with_starts_of_periods(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch of a file with periods as their starts, though pandas has not told Arrow of their type."""
    for place, field in enumerate(batch.schema):
        freq = freq_of(schema.field(field.name))
        if freq is not None and pa.types.is_integer(field.type):
            batch = batch.set_column(place, field.name, _of_periods(batch.column(place), freq))
    return batch


def freq_of(field: pa.Field) -> str | None:
    """Return the frequency of the periods that a field of a file holds, which it says in its metadata; else None."""
    about = field.metadata or {}
    if about.get(b"ARROW:extension:name") != PERIODS.encode():
        return None
    return str(json.loads(about[b"ARROW:extension:metadata"])["freq"])


def _without_views(array: pa.Array) -> pa.Array:
    """Return runs, and text and bytes of Polars, which are views, as Arrow has kernels to take and to trim them."""
    if pa.types.is_run_end_encoded(array.type):
        return _without_views(pc.run_end_decode(array))
    if pa.types.is_dictionary(array.type):
        return pa.DictionaryArray.from_arrays(array.indices, _without_views(array.dictionary))
    type_name = str(array.type)
    if type_name == "string_view":
        return array.cast(pa.string())
    if type_name == "binary_view":
        return array.cast(pa.binary())
    return array


def from_numpy(values: NDArray[Any]) -> pa.Array:
    """Return numbers or booleans as an Arrow array; `pyarrow.array` would import pandas, if it is installed."""
    if values.dtype == np.bool_:
        return from_numpy(values.astype(np.uint8)).cast(pa.bool_())
    if values.dtype.itemsize > 8:  # of longer floats
        values = values.astype(np.float64)
    values = np.ascontiguousarray(values, values.dtype.newbyteorder("="))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])


def to_numpy(array: pa.Array) -> NDArray[Any]:
    """Return numbers or booleans as an array of NumPy; NaN, zero or false where there is none."""
    # `Array.to_numpy` would import pandas, if it is installed.
    if pa.types.is_boolean(array.type):
        return to_numpy(array.cast(pa.uint8())).astype(np.bool_)
    if array.null_count:
        nothing = np.zeros(1, np.dtype(_DTYPES.get(str(array.type), str(array.type))))
        if nothing.dtype.kind == "f":
            nothing[:] = np.nan
        array = pc.coalesce(array, from_numpy(nothing)[0])
    return np.from_dlpack(array)
