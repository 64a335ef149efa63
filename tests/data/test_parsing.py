"""The parser of columns: values, flags, ids, times, and the first fault of each."""

import datetime as dt
import math
import re
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from lstd.data.ids import Fault, in_one_form
from lstd.errors import InvalidInputError
from lstd.trajectories.joining import parse_times

pa = pytest.importorskip("pyarrow")
arrow = pytest.importorskip("lstd.data.parse_columns")

NUMBERS = ["1", "1.0", " 1 ", "+1", "-.5", "5.", "1e3", "inf", "-Infinity", "1e999", "", "NA", " n/a", "nan", "<NA>"]
NO_NUMBERS = ["one", "1,5", "0x10", "1_0", "١", "1 2", "$4", "True", "--1"]
FLAGS = ["1", "0", "1.0", " TRUE", "f", "Yes", "n", "no "]
NO_FLAGS = ["2", "", "NA", "on", "1.00"]
IDS = ["1", "1.0", " 1", "07", "7", "-0", "a", "a ", "10000000000000000000.0", "1e3"]
NO_IDS = ["", " ", "NaN", "null"]


def texts(*words):
    return st.lists(st.sampled_from([word for some in words for word in some]), max_size=6)


def objects(values):
    return np.array([*values, None], dtype=object)[:-1]


NONE = ["", "NA", " n/a", "nan", "<NA>"]  # of NUMBERS


@pytest.mark.parametrize(
    ("name", "good", "bad", "value"),
    [
        ("numbers", NUMBERS, NO_NUMBERS, lambda word: math.nan if word in NONE else float(word)),
        ("flags", FLAGS, NO_FLAGS, lambda word: word.strip().lower() in ("1", "1.0", "true", "yes")),
    ],
)
@settings(deadline=None)
@given(data=st.data())
def test_numbers_and_flags_of_text(name, good, bad, value, data):
    words = data.draw(texts(good, bad) | texts(good))
    parsed, fault = getattr(arrow, name)(pa.array(words, pa.string()), "x")
    first_bad = next((row for row, word in enumerate(words) if word in bad), len(words))
    assert (fault is None) if first_bad == len(words) else (fault.row == first_bad)
    assert_array_equal(parsed[:first_bad], [value(word) for word in words[:first_bad]])
    assert not np.nan_to_num(parsed[first_bad:]).any()  # NaN, or False


@settings(deadline=None)
@given(texts(IDS, NO_IDS) | texts(IDS))
def test_ids_of_text(words):
    every_row, fault = in_one_form(np.array(words, object), "x")
    from_arrow, same_fault = arrow.ids(pa.array(words, pa.string()), "x")
    bad = next((row for row, word in enumerate(words) if word in NO_IDS), None)
    assert fault == same_fault
    assert bad == (None if fault is None else fault.row)
    assert [*from_arrow.per_row(len(words))[:bad]] == [*every_row[:bad]]


@pytest.mark.parametrize(
    "values", [[1, 0, 1], [1.0, 0.0], [True, False], [Decimal(1), Decimal("0.0")], [1.0, None, 2.0]]
)
def test_numbers_and_flags_of_other_types(values):
    expected = [math.nan if value is None else float(value) for value in values]
    assert_array_equal(arrow.numbers(pa.array(values), "x")[0], expected)
    flags, fault = arrow.flags(pa.array(values), "x")
    assert flags.tolist() == [value == 1.0 and row < 2 for row, value in enumerate(expected)] or None not in values
    assert (fault is None) == (None not in values)


@pytest.mark.parametrize(
    ("value", "remedy"),
    [
        ("True", "write 1 for true and 0 for false"), ("1,5", "write a point before decimals"),
        ("South, East 2", "encode the column in numbers"),
        (dt.date(2024, 1, 31), "convert it to numbers, such as days"), ("red", "encode the column in numbers"),
    ],
)  # fmt: skip
def test_the_remedy_fits_the_value(value, remedy):
    assert remedy in arrow.numbers(pa.array([value]), "x")[1].text


ZONE = dt.timezone(dt.timedelta(hours=2))
TIMES = {  # three increasing times: as objects of Python, and in microseconds since 1970 where they are dates
    "integers": ([2**60, 2**60 + 1, 2**60 + 2], None),
    "unsigned integers": ([*np.arange(2**60, 2**60 + 3, dtype=np.uint64)], None),
    "floats": ([0.5, 1.0, 2.5], None),
    "text of numbers": (["9", " 10", "11.5"], None),
    "dates": ([dt.date(1970, 1, day) for day in (1, 2, 4)], 86400 * 10**6 * np.array([0, 1, 3])),
    "text of dates": (["1970-01-01", "1970-01-01 00:00:01", "1970-01-02T00:00:00"], 10**6 * np.array([0, 1, 86400])),
    "times": ([dt.datetime(1970, 1, 1, 0, 0, 0, i) for i in range(3)], np.arange(3)),
    "times of a zone": ([dt.datetime(1970, 1, 1, 2, 0, i, tzinfo=ZONE) for i in range(3)], 10**6 * np.arange(3)),
    "text with zones": (
        ["1970-01-01T00:00Z", "1970-01-01T02:30+02:00", "1970-01-01T01:00Z"],
        18 * 10**8 * np.arange(3),
    ),
    "times of day": ([dt.time(hour) for hour in (1, 2, 4)], 3600 * 10**6 * np.array([1, 2, 4])),
    "durations": ([dt.timedelta(microseconds=i) for i in range(3)], np.arange(3)),
}


@pytest.mark.parametrize("kind", TIMES)
def test_times(kind):
    values, expected = TIMES[kind]
    of_column, fault = arrow.times(pa.array(values), "t")
    assert fault is None
    for parsed in (of_column, parse_times("t", np.array(values) if kind.endswith("integers") else objects(values))):
        assert (np.diff(parsed) > 0).all()
        if expected is not None:
            assert_array_equal(parsed, expected)


@pytest.mark.parametrize(
    ("values", "row", "text"),
    [
        (["10:00", "11:00"], 0, "'10:00', which is neither a number nor a date such as 2024-01-31"),
        (["2024-01-01", "01/02/2024"], 1, "'01/02/2024', which is neither"),
        (["2024-01-01", None], 1, "has no value .*; give every row its time"),
        ([dt.datetime(2024, 1, 1), None], 1, "has no value .*; give every row its time"),
        (["2024-01-01 05:00", "2024-01-01T05:00Z"], 1, "give every time a time zone, or none of them"),
        ([1.0, math.inf], 1, "is infinite; correct"), ([1, None], 1, "has no value .*; give"),
        (["1", ""], 1, "has no value"),
    ],
)  # fmt: skip
def test_times_that_cannot_be_ordered(values, row, text):
    fault = arrow.times(pa.array(values), "t")[1]
    assert fault.row == row
    assert re.search(text, fault.text)
    with pytest.raises(InvalidInputError, match=f"`t` must hold numbers or dates; row {row} .*{text}"):
        parse_times("t", objects(values))


def test_the_first_bad_value_of_several_rules():
    values, fault = arrow.numbers(pa.array(["1", "", "two", "inf"]), "x")
    assert arrow.first_outside(values, "x", fault, missing="is missing") == Fault(1, "x", "is missing")
    text = "has 'two', which is not a number; correct it, or encode the column in numbers."
    assert arrow.first_outside(values, "x", fault) == Fault(2, "x", text)
    assert (
        arrow.first_outside(np.array([0.5, 1.5]), "x", None, 0.0, 1.0).text
        == "has 1.5; it must be in [0, 1]. Correct it."
    )


def test_long_values_are_cut_in_messages():
    assert arrow.numbers(pa.array(["9" * 50 + "x"]), "x")[1].text.startswith(f"has '{'9' * 40}…', which is not")
