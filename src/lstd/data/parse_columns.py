"""Columns of tables and data frames as NumPy arrays: the one parser of numbers, flags, times and ids, which is Arrow.

Text may have white space around it, and stands for no value if it is one of `MISSING`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, datetime
from functools import partial
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lstd.data.follow import Marks
from lstd.data.identity import MISSING, NO_VALUE, Identity
from lstd.data.ids import AS_DAYS, NO_IDS_OF_ROWS, NO_TIME, Fault, Ids, described, first_true, ids_of, scalars, up_to
from lstd.data.roles import Roles
from lstd.data.rows import COLUMNS, Rows, repeated
from lstd.errors import InvalidInputError
from lstd.types import Array, Flags

_HAS_TENSORS = int(pa.__version__.partition(".")[0]) >= 17  # in the order of rows
_DTYPES = {"double": "float64", "float": "float32", "halffloat": "float16"}  # the others have the same names
_TRUE, _FALSE = ("1", "1.0", "true", "t", "yes", "y"), ("0", "0.0", "false", "f", "no", "n")
_DATES = [pa.timestamp(unit, zone) for unit in ("us", "ns") for zone in (None, "UTC")]  # text may be read as
_DROP = (
    f"{NO_VALUE}; impute it, with a column of 0 and 1 that says where. Dropping rows inside an episode loses rewards "
    "and ends."
)
_IMPUTE = f"{NO_VALUE}; `--impute` fills in the mean, with a column of 0 and 1 that says where."


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
    """Parse numbers, NaN where there is no value; returns floats, (T,), and the first value that is not a number.

    They are NaN from that one on.
    """
    array = _plain(array)
    kind, values = array.type, np.full(len(array), np.nan)
    if not (pa.types.is_string(kind) or _is_numeric(kind)):
        remedy = AS_DAYS if pa.types.is_temporal(kind) else "encode it in numbers."
        text = f"is not numeric; the column is of type {kind}: {remedy}"
        return values, Fault(0, column, text) if len(array) else None
    with contextlib.suppress(pa.ArrowInvalid):
        return _as_floats(array), None
    array = pc.replace_substring_regex(trimmed(array), r"^\+([0-9.])", r"\1")  # for older Arrow
    row = _refused(array, pa.float64())
    values[:row] = _as_floats(array[:row])
    if row == len(array):
        return values, None
    value = array[row].as_py()
    return values, Fault(row, column, f"{described(value)}, which is not a number; {_remedy(value)}")


def _remedy(text: str) -> str:
    """Say what to do with a text that is not a number."""
    if text.lower() in (*_TRUE, *_FALSE):
        return "write 1 for true and 0 for false."
    if "," in text and re.fullmatch(r"[-+\d\s.,']+", text):
        return "write a point before decimals, and no other separators."
    return "correct it, or encode the column in numbers."


def trimmed(array: pa.Array) -> pa.Array:
    """Text without white space around it, and null where it means a missing value."""
    text = pc.utf8_trim_whitespace(as_text(array))
    return pc.if_else(_among(text, MISSING), pa.nulls(1, pa.string())[0], text)  # `pa.scalar` imports pandas


def _among(text: pa.Array, words: Iterable[str]) -> pa.Array:
    return pc.is_in(pc.utf8_lower(text), value_set=from_texts([*words]))


def _refused(array: pa.Array, kind: Any) -> int:
    """Return the first row that Arrow cannot convert; the number of rows if it can convert all."""
    row, step = 0, len(array)
    while step and row < len(array):
        try:
            array[row : row + step].cast(kind)
            row += step
        except pa.ArrowInvalid:
            step //= 2
    return min(row, len(array))


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
    """Parse zero and one, true and false, yes and no; returns the first bad value, from which on they are False."""
    array = _plain(array)
    if pa.types.is_string(array.type):
        encoded = array.dictionary_encode(null_encoding="encode")
        distinct, codes = trimmed(encoded.dictionary), to_numpy(encoded.indices)
        values, false = (to_numpy(_among(distinct, words))[codes] for words in (_TRUE, _FALSE))
    else:
        found, fault = numbers(array, column)
        values, false = found == 1.0, found == 0.0
        if fault is not None:
            return values, fault
    row = first_true(~(values | false))
    if row is None:
        return values, None
    text = described(array[row].as_py())
    remedy = "; fill in 0 or 1, 0 if the episode still goes on."
    if text != NO_VALUE:
        remedy = ", which is neither 0 nor 1, true nor false, yes nor no; recode it."
    return values & (np.arange(len(values)) < row), Fault(row, column, text + remedy)


def times(array: pa.Array, column: str, unit: str = "us") -> tuple[NDArray[Any], Fault | None]:
    """Parse times, none of which may be missing: integers or floats, (T,), in their order, and the first bad one.

    They are numbers; or dates, also as text in ISO format, which are numbers of this unit since 1970 in UTC.
    """
    array, types = _typed_times(_plain(array)), pa.types
    if types.is_time(array.type):
        array = array.cast(pa.time64("us"), safe=False).cast(pa.int64())
    elif types.is_temporal(array.type):
        kind = pa.duration(unit) if types.is_duration(array.type) else pa.timestamp(unit)
        array = array.cast(kind, safe=False).cast(pa.int64())
    missing = Fault(first_true(to_numpy(pc.is_null(array))) or 0, column, NO_TIME) if array.null_count else None
    if types.is_signed_integer(array.type):
        return to_numpy(array.cast(pa.int64())), missing
    values, fault = numbers(array, column)
    if fault is None or not types.is_string(array.type):
        return values, first_outside(values, column, fault, missing=NO_TIME)
    row, kind = max(((_refused(array, one), one) for one in (pa.float64(), *_DATES)), key=lambda pair: pair[0])
    if kind != pa.float64() or not row:  # dates
        other = any(_refused(array[row : row + 1], one) for one in _DATES)
        rule = ", which is neither a number nor a date such as 2024-01-31 12:00; correct it."
        rule = "; give every time a time zone, or none of them." if other else rule
        fault = Fault(row, column, described(array[row].as_py()) + rule)
    return np.full(len(values), np.nan), missing if missing is not None and missing.row < row else fault


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
    plain = _plain(array)
    if pa.types.is_floating(plain.type):
        values = to_numpy(plain)
        changes = _changes(values[1:] != values[:-1], len(values))
        return ids_of(changes, scalars(values[changes]), column)
    if pa.types.is_null(plain.type):
        return ids_of(np.arange(len(plain)), [None] * len(plain), column)
    if pa.types.is_nested(plain.type) or pa.types.is_interval(plain.type):
        text = f"is of type {array.type}, which cannot be ids; convert it to text or integers first."
        return up_to(NO_IDS_OF_ROWS, Fault(0, column, text) if len(plain) else None)
    differ = pc.not_equal(plain[1:], plain[:-1])
    changes = _changes(to_numpy(differ) | to_numpy(pc.is_null(differ)), len(plain))
    return _named(plain.take(from_numpy(changes)), changes, column, is_uuid=_is_uuid(array.type))


def _changes(differ: Flags, n_rows: int) -> NDArray[np.intp]:
    """Return row 0, and the rows that differ from the row before, by the flags of all but the first, (T − 1,)."""
    return np.append([0] * (n_rows > 0), np.flatnonzero(differ) + 1).astype(np.intp)


def _is_uuid(kind: Any) -> bool:
    return str(kind) == "extension<arrow.uuid>"


def _named(
    array: pa.Array, changes: NDArray[np.intp], column: str, *, is_uuid: bool
) -> tuple[Ids, Fault | None]:  # fmt: skip
    """Return the ids of the rows `changes`, whose values are given."""
    kind = array.type
    if is_uuid:
        return ids_of(changes, [value and UUID(bytes=value) for value in array.to_pylist()], column)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_duration(kind):
        moments = moments_of(array)
        if pa.types.is_timestamp(kind) and kind.tz is not None:
            texts = np.datetime_as_string(moments).tolist()
            return ids_of(changes, [f"{text}Z" for text in texts], column)
        return ids_of(changes, list(moments), column)
    if pa.types.is_string(kind) and not array.null_count:
        keys = _integers_of(array)
        if keys is not None:
            return Ids(changes, array.to_pylist(), keys), None
    return ids_of(changes, array.to_pylist(), column)


def _integers_of(texts: pa.Array) -> list[int] | None:
    """Return the integers that all texts are, as they are written; None if one is other text."""
    try:
        whole = texts.cast(pa.int64())
    except pa.ArrowInvalid:
        return None
    return whole.to_pylist() if whole.cast(pa.string()).equals(texts) else None


def moments_of(array: pa.Array) -> NDArray[Any]:
    """Return dates, timestamps or durations as NumPy has them, (T,); those with a time zone are in UTC."""
    kind = array.type
    if pa.types.is_date32(kind):
        return to_numpy(array.cast(pa.int32()).cast(pa.int64())).view("M8[D]")
    unit = "ms" if pa.types.is_date64(kind) else kind.unit
    return to_numpy(array.cast(pa.int64())).view(f"{'m' if pa.types.is_duration(kind) else 'M'}8[{unit}]")


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
    if pa.types.is_duration(kind) or pa.types.is_timestamp(kind):
        return f"{'m' if pa.types.is_duration(kind) else 'M'}8[{'ns' if kind.unit == 'ns' else 'us'}]"
    return "M8[D]" if pa.types.is_date(kind) else ""


def clock_of(array: pa.Array) -> tuple[bool, bool]:
    """Return whether a column of times holds dates, and whether these have a time zone; its first value decides."""
    kind = _typed_times(_plain(array)[:1]).type
    is_timestamp = pa.types.is_timestamp(kind)
    return is_timestamp or pa.types.is_date(kind), is_timestamp and kind.tz is not None


def from_numpy(values: NDArray[Any]) -> pa.Array:
    """Numbers or booleans as an Arrow array; `pyarrow.array` would import pandas, if installed, to look at them."""
    values = np.ascontiguousarray(values, values.dtype.newbyteorder("="))
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
    t: Any = pa.types
    return bool(
        t.is_integer(kind) or t.is_floating(kind) or t.is_decimal(kind) or t.is_boolean(kind) or t.is_null(kind)
    )


def _as_floats(array: pa.Array) -> Array:
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.uint8())
    # Integers beyond 2^53 are rounded, as any number that is read into a float64.
    return to_numpy(array.cast(pa.float64(), safe=False))


# ------------------------------------------------------------ rows


class Converted:
    """The rows of a batch, their ids and flags, and the first bad value of each column.

    Dates are numbers of this `unit` since 1970.
    """

    def __init__(self, batch: pa.RecordBatch, roles: Roles, gamma: float = 1.0, unit: str = "us") -> None:
        self._faults: list[Fault | None] = []
        self._batch, T = batch, len(batch)
        X = self._numbers(roles.features or (), _IMPUTE if roles.prepared and not roles.next_features else _DROP)
        self.y = self._numbers(roles.rewards)  # NaN where it is missing, as `numbers` are
        self.numbers: dict[str, Array] = {}
        for role, name in roles.transitions.items():
            high = COLUMNS[role].high if role in COLUMNS else np.inf
            self.numbers[role] = self._numbers([name], low=0.0, high=high)[:, 0]
        none = np.zeros(T, np.bool_)
        terminated = self._parsed(flags, roles.terminated, none)
        truncated = self._parsed(flags, roles.truncated, none) & ~terminated
        names, groups = self._parsed(ids, roles.episode), self._parsed(ids, roles.groups)
        missing = np.isnan(np.column_stack([self.y, *self.numbers.values()]))
        times_of_rows = self._parsed(partial(times, unit=unit), roles.time)
        self.marks = Marks(names, groups, terminated, truncated, missing, times_of_rows)
        self.times = times_of_rows  # as times of NumPy where they are dates
        if times_of_rows is not None and clock_of(batch.column(roles.time))[0]:
            self.times = times_of_rows.view(f"M8[{unit}]")
        known = ~missing.any(axis=1)
        self.kept = [batch.column(name) for name in roles.kept]
        self.rows = Rows.of(
            X=X, y=self.y if known.all() else np.nan_to_num(self.y), known=known, last=terminated,
            terminated=terminated, **_columns(self.numbers, gamma, terminated), episode=None,
            single=self.y.shape[1] == 1, gamma=gamma, assumed=False,
            X_next=self._numbers(roles.next_features, _DROP, unused=terminated) if roles.next_features else None,
            names=roles.features, groups=None if groups is None else groups.per_row(T), given=frozenset(self.numbers),
        )  # fmt: skip
        self.fault = min(filter(None, self._faults), default=None, key=lambda fault: fault.row)
        del self._batch  # the columns of features are not kept

    def _numbers(
        self, names: Sequence[str], missing: str = "", low: float = -np.inf, high: float = np.inf,
        unused: Flags | None = None,
    ) -> Array:  # fmt: skip
        """Convert columns, all at once unless a value is bad; those of `unused` rows may be, and become zero."""
        X = matrix(self._batch, names) if low == -np.inf else None
        if X is not None:
            return X
        X = np.empty((len(self._batch), len(names)))
        for j, name in enumerate(names):
            values, fault = numbers(self._batch.column(name), name)
            X[:, j] = values if unused is None else np.where(unused & ~np.isfinite(values), 0.0, values)
            if fault is not None and missing == _IMPUTE:
                fault = fault._replace(text=f"{fault.text} A column of words: `--categories {name}`.")
            self._faults.append(first_outside(X[:, j], name, fault, low, high, missing))
        return X

    def _parsed(
        self, parse: Callable[[pa.Array, str], tuple[Any, Fault | None]], name: str | None, none: Any = None
    ) -> Any:
        """Parse a column, and note its first bad value; return `none` without one."""
        if name is None:
            return none
        values, fault = parse(self._batch.column(name), name)
        self._faults.append(fault)
        return values


def sorted_order(
    rows: Any, roles: Roles, known: Callable[[Any, Fault | None], Any], unit: str = "us"
) -> NDArray[np.intp]:
    """Return the order of rows by group and episode, in order of first appearance, and by time.

    `known` is given values and the first bad one, and raises the error of that.
    """

    def numbered(column: str) -> NDArray[np.intp]:
        found, fault = ids(rows.column(column), column)
        places: dict[Identity, int] = {}
        codes = [places.setdefault(key, len(places)) for key in known(found, fault).keys]
        return np.repeat(np.array(codes, np.intp), np.diff(found.changes, append=len(rows)))

    assert roles.time is not None
    keys = [known(*times(rows.column(roles.time), roles.time, unit))]
    if roles.episode is not None:
        keys.append(episode := numbered(roles.episode))
        if roles.groups is not None:  # an episode is placed by its first row, in whatever group
            first = np.unique(episode, return_index=True)[1]
            keys.append(numbered(roles.groups)[first][episode])
    return np.lexsort(keys)


def _columns(given: dict[str, Array], gamma: float, terminated: Flags) -> dict[str, Array]:
    """Return all columns of numbers, with their usual values where they are missing or not given."""
    columns = {}
    for name, (_, usual) in COLUMNS.items():
        values = given.get(name)
        default = repeated(gamma if usual is None else usual, len(terminated))
        columns[name] = default if values is None else np.where(np.isnan(values), 1.0, values)
    if terminated.any():
        columns["discount"] = np.where(terminated, 0.0, columns["discount"])
    return columns


def first_outside(
    values: Array, column: str, fault: Fault | None, low: float = -np.inf, high: float = np.inf, missing: str = ""
) -> Fault | None:
    """Find the first value outside [low, high], infinite, or not a number by `fault`.

    A value may be missing, unless `missing` says what is wrong then.
    """
    bad = np.isinf(values) | (values < low) | (values > high)
    outside = Fault.first(bad | np.isnan(values) if missing else bad, column, missing)
    if outside is None or (fault is not None and fault.row <= outside.row):
        return fault
    if np.isnan(value := values[outside.row]):
        return outside
    rule = "finite and at least 0" if high == np.inf else f"in [{low:g}, {high:g}]"
    text = "is infinite; correct it." if low == -np.inf else f"has {value:g}; it must be {rule}. Correct it."
    return outside._replace(text=text)
