"""Columns of every type that NumPy, pandas, Arrow and Polars have, all of the same values.

Each is made when it is asked for: threads of Polars do not survive the fork of the process that collects tests.
"""

import datetime as dt
import decimal
import fractions
import uuid
from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

DAY = dt.date(2024, 1, 1)
NUMBERS = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "g")
NULLABLE = ("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64", "Float32", "Float64")
POLARS = (*NULLABLE, "Int128", "UInt128")
ARROW_NUMBERS = [
    pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.float16(),
    pa.float32(), pa.float64(),
]  # fmt: skip
DECIMALS = [pa.decimal128(20, 2), pa.decimal256(40, 3)]
DECIMALS += [pa.decimal32(5, 1), pa.decimal64(5, 0)] if hasattr(pa, "decimal32") else []
TEXTS = [pa.string(), pa.large_string(), pa.string_view()]
TIMES = [pa.date32(), pa.date64(), *map(pa.timestamp, ("s", "ms", "us", "ns"))]
ZONED = [pa.timestamp("us", "UTC"), pa.timestamp("ns", "Asia/Tokyo")]


def objects(values):
    return pd.Series(np.fromiter(values, dtype=object, count=len(values)))


def arrow(kind, values):
    """An Arrow array of whole numbers as a type: of days after `DAY` if it is one of times."""
    if pa.types.is_timestamp(kind):
        times = pa.array([dt.datetime.combine(DAY, dt.time()) + dt.timedelta(v) for v in values])
        return times.cast(pa.timestamp(kind.unit)).cast(kind)
    if pa.types.is_date(kind):
        return pa.array([DAY + dt.timedelta(v) for v in values], kind)
    if pa.types.is_duration(kind):
        return pa.array([dt.timedelta(v) for v in values], kind)
    if pa.types.is_decimal(kind):
        return pa.array([decimal.Decimal(v) for v in values], kind)
    if pa.types.is_floating(kind):
        return pa.array(np.array(values, kind.to_pandas_dtype()))
    if kind in TEXTS:
        return pa.array([str(v) for v in values], kind)
    return pa.array(values, kind)


def backed(array):
    return pd.Series(pd.arrays.ArrowExtensionArray(pa.chunked_array([array[:2], array[2:]])))


def numbers(values):
    """Makers, by name, of columns that hold whole numbers from 0 to 9."""
    makers = {}
    for order in "<>":
        for kind in NUMBERS:
            dtype = np.dtype(kind).newbyteorder(order)
            makers[f"numpy {order}{kind}"] = partial(np.array, values, dtype)
    for kind in NULLABLE:
        makers[f"pandas {kind}"] = lambda kind=kind: pd.Series(values).astype(kind)
    for name, kind in {"int": int, "float": float}.items():
        makers[f"categories of {name}"] = lambda kind=kind: pd.Series(values).astype(kind).astype("category")
        makers[f"sparse {name}"] = lambda kind=kind: pd.Series(values).astype(f"Sparse[{kind.__name__}]")
        makers[f"pandas Sparse with fill 0 of {name}"] = lambda kind=kind: pd.Series(values).astype(
            pd.SparseDtype(kind, 0)
        )
    for kind in (*ARROW_NUMBERS, *DECIMALS):
        makers[f"arrow {kind}"] = partial(arrow, kind, values)
        makers[f"pandas of arrow {kind}"] = lambda kind=kind: backed(arrow(kind, values))
    makers["arrow chunks"] = lambda: pa.chunked_array([values[:1], values[1:]])
    makers["arrow dictionary"] = lambda: pa.array(values).dictionary_encode()
    makers["arrow runs"] = lambda: pc.run_end_encode(pa.array(values))
    for kind in POLARS:
        makers[f"polars {kind}"] = lambda kind=kind: pl.Series(values, dtype=getattr(pl, kind))
    makers["polars Decimal"] = lambda: pl.Series([decimal.Decimal(v) for v in values])
    makers["polars Object"] = lambda: pl.Series(values, dtype=pl.Object)
    for kind in (int, float, decimal.Decimal, fractions.Fraction, np.int8, np.float32, np.float64, np.longdouble):
        makers[f"objects {kind.__name__}"] = lambda kind=kind: objects([kind(v) for v in values])
    mixed = (int, float, decimal.Decimal, np.int16)
    makers["objects of several types"] = lambda: objects([mixed[i % 4](v) for i, v in enumerate(values)])
    return makers


def text(values):
    """Makers of columns that hold the text of whole numbers."""
    texts = [str(v) for v in values]
    makers = {
        "numpy <U": lambda: np.array(texts, "<U9"),
        "numpy >U": lambda: np.array(texts, ">U9"),
        "pandas string": lambda: pd.Series(texts, dtype="string"),
        "pandas str": lambda: pd.Series(texts, dtype="str"),
        "objects str": lambda: objects(texts),
        "objects int and str": lambda: objects([v if i % 2 else str(v) for i, v in enumerate(values)]),
        "categories of str": lambda: pd.Series(texts).astype("category"),
        "text of floats": lambda: pd.Series([f" {v}.0 " for v in values]),
        "arrow dictionary of str": lambda: pa.array(texts).dictionary_encode(),
        "polars String": lambda: pl.Series(texts),
        "polars Categorical": lambda: pl.Series(texts, dtype=pl.Categorical),
        "polars Enum": lambda: pl.Series(texts, dtype=pl.Enum(sorted({*texts}))),
    }
    if hasattr(np.dtypes, "StringDType"):
        makers["numpy StringDType"] = lambda: np.array(texts, np.dtypes.StringDType())
    for kind in TEXTS:
        makers[f"arrow {kind}"] = partial(arrow, kind, values)
        makers[f"pandas of arrow {kind}"] = lambda kind=kind: backed(arrow(kind, values))
    return makers


def flags(values):
    """Makers of columns that hold booleans."""
    true = [bool(v) for v in values]
    makers = {
        "numpy bool": lambda: np.array(true),
        "pandas boolean": lambda: pd.Series(true, dtype="boolean"),
        "objects bool": lambda: objects(true),
        "objects numpy bool": lambda: objects([np.bool_(v) for v in true]),
        "categories of bool": lambda: pd.Series(true).astype("category"),
        "sparse bool": lambda: pd.Series(true).astype("Sparse[bool]"),
        "arrow bool": lambda: pa.array(true),
        "pandas of arrow bool": lambda: backed(pa.array(true)),
        "polars Boolean": lambda: pl.Series(true),
    }
    if hasattr(pa, "bool8"):
        makers["arrow bool8"] = lambda: pa.ExtensionArray.from_storage(pa.bool8(), pa.array(map(int, true), pa.int8()))
    return makers


def times(values):
    """Makers of columns that hold days, without a time zone."""
    days = [DAY + dt.timedelta(v) for v in values]
    stamps = np.array(days, "M8[D]")
    makers = {
        "objects date": lambda: objects(days),
        "objects datetime": lambda: objects([dt.datetime.combine(day, dt.time()) for day in days]),
        "objects Timestamp": lambda: objects([pd.Timestamp(day) for day in days]),
        "objects Period": lambda: objects([pd.Period(day, "D") for day in days]),
        "objects of several types": lambda: objects(
            [(day, pd.Timestamp(day), np.datetime64(day, "s"))[i % 3] for i, day in enumerate(days)]
        ),
        "text": lambda: pd.Series([day.isoformat() for day in days]),
        "text with hours": lambda: pd.Series([f"{day} 00:00:00" for day in days]),
        "pandas period": lambda: pd.Series(pd.PeriodIndex(days, freq="D")),
        "categories of times": lambda: pd.Series(stamps.astype("M8[s]")).astype("category"),
        "polars Date": lambda: pl.Series(days),
        "polars Datetime": lambda: pl.Series(days).cast(pl.Datetime("ns")),
    }
    for unit in ("s", "ms", "us", "ns"):
        makers[f"numpy M8[{unit}]"] = lambda unit=unit: stamps.astype(f"M8[{unit}]")
        makers[f"numpy >M8[{unit}]"] = lambda unit=unit: stamps.astype(f">M8[{unit}]")
        makers[f"pandas M8[{unit}]"] = lambda unit=unit: pd.Series(stamps.astype(f"M8[{unit}]"))
    for kind in TIMES:
        makers[f"arrow {kind}"] = partial(arrow, kind, values)
        makers[f"pandas of arrow {kind}"] = lambda kind=kind: backed(arrow(kind, values))
    return makers


def zoned(values):
    """Makers of columns that hold the same moments, with a time zone."""
    moments = [dt.datetime(2024, 1, 1, tzinfo=dt.UTC) + dt.timedelta(v) for v in values]
    makers = {
        "objects datetime of a zone": lambda: objects(moments),
        "objects of two zones": lambda: objects(
            [m.astimezone(dt.timezone(dt.timedelta(hours=9 * (i % 2)))) for i, m in enumerate(moments)]
        ),
        "pandas of a zone": lambda: pd.Series(moments).dt.tz_convert("Asia/Tokyo"),
        "text of a zone": lambda: pd.Series([m.isoformat() for m in moments]),
        "polars of a zone": lambda: pl.Series(moments).dt.convert_time_zone("Asia/Tokyo"),
    }
    for kind in ZONED:
        makers[f"arrow {kind}"] = partial(arrow, kind, values)
        makers[f"pandas of arrow {kind}"] = lambda kind=kind: backed(arrow(kind, values))
    return makers


def identifiers(values):
    """Makers of columns that hold UUIDs."""
    ids = [uuid.UUID(int=v) for v in values]
    makers = {
        "objects UUID": lambda: objects(ids),
        "text of UUIDs": lambda: pd.Series([str(one) for one in ids]),
        "upper text of UUIDs": lambda: pl.Series([str(one).upper() for one in ids]),
    }
    if hasattr(pa, "uuid"):
        storage = pa.array([one.bytes for one in ids], pa.binary(16))
        makers["arrow uuid"] = lambda: pa.ExtensionArray.from_storage(pa.uuid(), storage)
    return makers


def durations(values):
    """Makers of columns that hold durations of days."""
    spans = [dt.timedelta(v) for v in values]
    makers = {
        "objects timedelta": lambda: objects(spans),
        "pandas m8": lambda: pd.Series(np.array(values, "m8[D]").astype("m8[s]")),
        "polars Duration": lambda: pl.Series(spans),
    }
    for unit in ("s", "ms", "us", "ns"):
        makers[f"numpy m8[{unit}]"] = lambda unit=unit: np.array(spans, f"m8[{unit}]")
        makers[f"arrow duration {unit}"] = partial(arrow, pa.duration(unit), values)
    return makers


def others(values):
    """Makers of columns that hold neither numbers, flags, text nor times; every role refuses them."""
    return {
        "arrow month_day_nano": lambda: pa.array([(v, 0, 0) for v in values], pa.month_day_nano_interval()),
        "arrow list": lambda: pa.array([[v] for v in values]),
        "arrow fixed_size_list": lambda: pa.array([[v, v] for v in values], pa.list_(pa.int64(), 2)),
        "arrow struct": lambda: pa.array([{"a": v, "b": v} for v in values]),
        "arrow map": lambda: pa.array([[("a", v)] for v in values], pa.map_(pa.string(), pa.int64())),
        "pandas interval": lambda: pd.Series(pd.arrays.IntervalArray([pd.Interval(v, v + 1) for v in values])),
        "polars List": lambda: pl.Series([[v] for v in values]),
        "objects list": lambda: objects([[v] for v in values]),
        "objects dict": lambda: objects([{"a": v} for v in values]),
        "objects complex": lambda: objects([complex(v) for v in values]),
        "objects Interval": lambda: objects([pd.Interval(v, v + 1) for v in values]),
        "objects of a class": lambda: objects([object() for _ in values]),
        "numpy complex": lambda: np.array(values, complex),
    }


def odd(values):
    """Makers of columns of the values 0 to 9 that some routes once read and others refused, or read as others did not.

    Many of them are refused in most roles. Lists stand for themselves; all others are columns of a library.
    """
    texts = [str(v) for v in values]
    in_bytes = [one.encode() for one in texts]
    words = ["yes" if v else "no" for v in values]
    in_english = ["true" if v else "false" for v in values]
    days = [np.timedelta64(v, "D") for v in values]
    holed = [None if v == 1 else v for v in values]
    makers = {
        "numpy S": lambda: np.array(in_bytes),
        "objects bytes": lambda: objects(in_bytes),
        "numpy objects bytes": lambda: np.array(in_bytes, object),
        "numpy void": lambda: np.array(in_bytes, "V1"),
        "polars Binary": lambda: pl.Series(in_bytes),
        "pandas of arrow binary": lambda: backed(pa.array(in_bytes)),
        "bytes that are not text": lambda: np.array([b"\xff" + one for one in in_bytes]),
        "arrow bytes that are not text": lambda: pa.array([b"\xff" + one for one in in_bytes]),
        "numpy words": lambda: np.array(words),
        "objects words": lambda: objects(words),
        "numpy objects words": lambda: np.array(words, object),
        "polars words": lambda: pl.Series(words),
        "arrow words": lambda: pa.array(words),
        "numpy words in bytes": lambda: np.array(words, "S"),
        "categories of words": lambda: pd.Series(in_english).astype("category"),
        "polars Enum of words": lambda: pl.Series(in_english, dtype=pl.Enum(["false", "true"])),
        "a list of words": lambda: words,
        "a list of text": lambda: texts,
        "a list of integers": lambda: list(values),
        "a list of text and integers": lambda: [v if i % 2 else texts[i] for i, v in enumerate(values)],
        "a list of arrays": lambda: [np.array(v) for v in values],
        "objects arrays": lambda: objects([np.array(v) for v in values]),
        "objects Timedelta": lambda: objects([pd.Timedelta(day) for day in days]),
        "objects timedelta64": lambda: objects(days),
        "numpy m8[h]": lambda: np.array(values, "m8[h]"),
        "numpy M8[h]": lambda: np.array(values, "m8[h]") + np.datetime64("2000-01-01T00"),
        "numpy M8[Y]": lambda: np.array(values, "m8[Y]") + np.datetime64("2000", "Y"),
        "numpy M8[M]": lambda: np.array(values, "m8[M]") + np.datetime64("2000-01", "M"),
        "objects tuple": lambda: objects([(v, "a") for v in values]),
        "objects tuple of one": lambda: objects([(v,) for v in values]),
        "objects tuple and text": lambda: objects([(v,) if v < 2 else texts[i] for i, v in enumerate(values)]),
        "a struct": lambda: pa.array([{"a": v} for v in values]),
        "polars Struct": lambda: pl.Series([{"a": v} for v in values]),
        "polars Array": lambda: pl.Series([[v] for v in values], dtype=pl.Array(pl.Int64, 1)),
        "polars Time": lambda: pl.Series([dt.time(v) for v in values]),
        "objects time": lambda: objects([dt.time(v) for v in values]),
        "polars Null": lambda: pl.Series([None] * len(values)),
        "arrow null": lambda: pa.nulls(len(values)),
        "objects None": lambda: objects([None] * len(values)),
        "runs of text": lambda: pc.run_end_encode(pa.array(texts)),
        "runs of words": lambda: pc.run_end_encode(pa.array(words)),
        "runs of floats": lambda: pc.run_end_encode(pa.array([float(v) for v in values])),
        "a dictionary of views": lambda: pa.DictionaryArray.from_arrays(
            pa.array(range(len(values))), pa.array(texts, pa.string_view())
        ),
        "an array of intervals": lambda: pd.arrays.IntervalArray([pd.Interval(v, v + 1) for v in values]),
        "a list of intervals": lambda: [pd.Interval(v, v + 1) for v in values],
        "an index": lambda: pd.Index(values),
        "booleans and integers": lambda: objects([True if v == 1 else v for v in values]),
        "words and integers": lambda: objects([v if i % 2 else words[i] for i, v in enumerate(values)]),
        "integers beyond 64 bits": lambda: objects([v + 2**70 for v in values]),
        "integers beyond floats": lambda: objects([v + 10**400 for v in values]),
        "text beyond floats": lambda: pa.array([f"1e40{v}" for v in values]),
        "eighths of decimals": lambda: objects([decimal.Decimal(v) / 8 for v in values]),
        "long decimals": lambda: objects([decimal.Decimal(f"{v}051293406.236") for v in values]),
        "text with a comma": lambda: objects([f"{v},5" for v in values]),
        "text with an underscore": lambda: objects([f"1_{v}" for v in values]),
        "hexadecimal text": lambda: objects([f"0x{v}" for v in values]),
        "text with white space": lambda: np.array([f" {v}\t" for v in values]),
        "text with a sign": lambda: objects([f"+{v}" for v in values]),
        "text with inf": lambda: objects(["inf" if v == 1 else str(v) for v in values]),
        "text with NA": lambda: objects(["NA" if v == 1 else str(v) for v in values]),
        "Arabic digits": lambda: objects([chr(0x660 + v) for v in values]),
        "integers with NaT": lambda: objects([pd.NaT if v == 1 else v for v in values]),
        "integers with NA": lambda: objects([pd.NA if v == 1 else v for v in values]),
        "pandas Int64 with NA": lambda: pd.Series(holed, dtype="Int64"),
        "polars with null": lambda: pl.Series(holed),
        "arrow with null": lambda: pa.array(holed),
        "arrow dictionary with null": lambda: pa.array(
            [None if v is None else str(v) for v in holed]
        ).dictionary_encode(),
        "numpy NaN": lambda: np.array([np.nan if v == 1 else v for v in values]),
        "integers of 128 bits": lambda: pl.Series([v + 2**70 for v in values], dtype=pl.Int128),
    }
    for kind in (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(1)):
        makers[f"arrow {kind}"] = lambda kind=kind: pa.array(in_bytes, kind)
    return makers
