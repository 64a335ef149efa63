"""When two ids are one: the table of docs/guide/episodes.md, an equivalence, and the same by every way to a key."""

import datetime as dt
import itertools
import pickle
from decimal import Decimal
from fractions import Fraction
from uuid import UUID

import numpy as np
import pytest

from lstd.data.identity import NotAnIdError, identity, name_of, order_of, plain_keys
from lstd.data.ids import identities, in_one_form, joined_ids, numbered
from lstd.data.seen_ids import SeenIds

WHO = UUID("12345678-9abc-def0-1234-56789abcdef0")
TOKYO = dt.timezone(dt.timedelta(hours=9))
LONG = "9" * 5000

# Each row holds ids that are one; ids of different rows are two.
ONE = [
    [7, "7", "7.0", " 7 ", 7.0, np.int8(7), np.uint64(7), np.float32(7), np.longdouble(7), Decimal("7.00"),
     Fraction(7), b"7"],
    [0, "0", "0.0", -0.0, np.float16(0)],
    [-7, "-7", "-7.0", Decimal(-7)],
    [2**53, str(2**53), f"{2**53}.0", np.uint64(2**53)],
    [2**53 + 1, str(2**53 + 1)],
    [2**63, str(2**63), np.uint64(2**63), Decimal(2**63)],
    [LONG, f"{LONG}.0", Decimal(LONG)],
    ["07", " 07"], ["7.00"], ["7e0"], ["+7"], ["-0"], ["-0.0"], ["٧"], ["0.5"], ["1_000"], ["0x7"],
    [True, "true", "TRUE", np.True_, b"True"],
    [False, "false", "False"],
    [0.5, np.float16(0.5), Decimal("0.5"), Fraction(1, 2)],
    [0.1, Decimal("0.1")],
    [np.float32(0.1), float(np.float32(0.1))],
    ["a", " a\n", b"a", np.str_("a")], ["A"], ["a b"], ["a\0"], ["\ud800"], ["t"], ["yes"], ["naïve"],
    [WHO, str(WHO), str(WHO).upper(), f" {WHO} "], [WHO.hex],
    [b"\xff", np.bytes_(b"\xff")], ["\xff"],
    [dt.date(2024, 1, 31), dt.datetime(2024, 1, 31), "2024-01-31", "2024-01-31T00:00", "2024-01-31 00:00:00.000"]
    + [np.datetime64("2024-01-31", unit) for unit in ("D", "h", "m", "s", "ms", "us", "ns")]
    + [np.datetime64("2024-01-31T00", "h")],
    [np.datetime64(5000, "ps"), np.datetime64(5, "ns")],
    [np.datetime64("2024-01", "M"), dt.date(2024, 1, 1), np.datetime64("2024", "Y")],
    [dt.datetime(2024, 1, 31, 5, 0, 0, 250), "2024-01-31T05:00:00.00025", np.datetime64("2024-01-31T05:00:00.000250")],
    ["2024-01-31T05:00:00.000000001", np.datetime64("2024-01-31T05:00:00.000000001")],
    ["2024-01-31T00:00Z", "2024-01-31 09:00:00+09:00", "2024-01-31 09:00+0900", "2024-01-31T09:00:00.0 +09",
     dt.datetime(2024, 1, 31, tzinfo=dt.UTC), dt.datetime(2024, 1, 31, 9, tzinfo=TOKYO)],
    ["2024-01-31T00:00-00:30", dt.datetime(2024, 1, 31, 0, 30, tzinfo=dt.UTC)],
    ["2024", 2024], ["2024-01"], ["20240131"], ["2024-02-30"], ["2024-01-31T24:00"], ["2024-1-31"], ["12345-01-01"],
    [np.datetime64(10**9, "Y")], [dt.datetime(9999, 12, 31)], [dt.date(1, 1, 1), "0001-01-01"],
    [dt.timedelta(days=1), np.timedelta64(24, "h"), np.timedelta64(86400 * 10**9, "ns")], ["1 day"],
    [dt.time(10, 30), "10:30:00"],
    [(1, "a"), (1.0, " a"), ("1", b"a")], [(True, "a")], [(1, ("a",))], ["(1, 'a')"], [()],
]  # fmt: skip
NONE = [
    None, float("nan"), np.float32("nan"), Decimal("nan"), Decimal("sNaN"), np.datetime64("NaT"), np.timedelta64("NaT"),
    "", " ",
    "nan", "NaN", "NA", "n/a", "None", "null", "<NA>", "NaT", b"", float("inf"), -np.inf, Decimal("-Infinity"),
    2.0**53, -(2.0**53), np.float32(2**24), np.float16(2**11), 1e300, np.datetime64(1, "ps"), np.timedelta64(1, "M"),
    np.timedelta64(5), 1j, [1], {1}, {}, frozenset({1}), object(), (1, None),
]  # fmt: skip


@pytest.mark.parametrize("forms", ONE, ids=lambda forms: repr(forms[0])[:30])
def test_forms_of_one_id(forms):
    assert len({identity(form) for form in forms}) == 1


def test_ids_of_different_rows_are_two():
    keys = [identity(forms[0]) for forms in ONE]
    assert len({*keys}) == len(keys)
    assert {*map(type, keys)} == {int, str}
    assert len({*map(order_of, keys)}) == len(keys)


@pytest.mark.parametrize("name", NONE, ids=lambda name: repr(name)[:30])
def test_what_is_no_id(name):
    with pytest.raises(NotAnIdError):
        identity(name)


def test_ids_of_pandas():
    pd = pytest.importorskip("pandas")
    day = identity("2024-01-31")
    for form in (pd.Timestamp("2024-01-31"), pd.Period("2024-01-31", "D"), pd.Timestamp("2024-01-31").as_unit("s")):
        assert identity(form) == day
    assert identity(pd.Period("2024-01", "M")) == identity("2024-01-01")
    assert identity(pd.Timestamp("2024-01-31 09:00", tz="Asia/Tokyo")) == identity("2024-01-31T00:00Z")
    assert identity(pd.Timestamp("2024-01-31T05:00:00.000000001")) == identity("2024-01-31T05:00:00.000000001")
    assert identity(pd.Timedelta(days=-1, nanoseconds=1)) == identity(np.timedelta64(1 - 86400 * 10**9, "ns"))
    for missing in (pd.NA, pd.NaT):
        with pytest.raises(NotAnIdError):
            identity(missing)
    with pytest.raises(NotAnIdError, match="is of type Interval, which cannot be an id; convert"):
        identity(pd.Interval(0, 1))


def test_a_name_of_a_key_has_that_key():
    for forms in ONE:
        key = identity(forms[0])
        assert identity(name_of(key)) == key


def test_keys_of_many_are_those_of_each():
    texts = [form for forms in ONE for form in forms if isinstance(form, str)]
    plain = ["customer one", "Kunde Ä 2", "true story", "a" * 40]
    assert plain_keys(plain) == [*map(identity, plain)]
    for text in texts:
        found = plain_keys([*plain, text])
        assert found is None or found == [*map(identity, [*plain, text])]
    assert plain_keys([3, -(2**63)]) == [3, -(2**63)]
    assert plain_keys([3, 2**63]) is None


EVERY = [form for forms in ONE for form in forms]


def test_seen_ids_know_every_form_before_and_after_a_file():
    seen = SeenIds()
    assert seen.add([identity(forms[0]) for forms in ONE]) is None
    for known in (
        seen,
        SeenIds.unpacked(seen.packed()),
        pickle.loads(pickle.dumps(seen)),
        SeenIds().then(seen, None)[0],
    ):
        for form in EVERY:
            assert known.copy().add([identity("new"), identity(form)]) == 1
    for forms in ONE:
        one = SeenIds()
        one.add([identity(forms[-1])])
        assert seen.then(one, None)[1] is not None
        assert seen.then(one, identity(forms[0]))[1] is None


# ------------------------------------------------------------ arrays


def objects(names):
    return np.fromiter(names, dtype=object, count=len(names))


@pytest.mark.parametrize("seed", range(5))
def test_elements_are_equal_where_ids_are_one(seed):
    """Left out are (True, "a"), which is equal to (1, "a"), and times of NumPy that Python does not have."""
    rng = np.random.default_rng(seed)
    out = ["(True, 'a')", *map(repr, (np.datetime64(10**9, "Y"), np.datetime64(5, "ns"), np.datetime64(5000, "ps")))]
    names = [form for form in EVERY if repr(form) not in out and not repr(form).endswith("01')")]
    names = [names[i] for i in rng.integers(len(names), size=300)]
    ids, fault = in_one_form(objects(names), "episode")
    assert fault is None
    keys = [*map(identity, names)]
    equal = np.array([key == other for key, other in itertools.pairwise(keys)])
    np.testing.assert_array_equal(np.asarray(ids[1:] == ids[:-1], np.bool_), equal)
    assert [*identities(ids)] == keys
    codes = numbered(ids)[1]
    assert len({*codes.tolist()}) == len({*zip(codes.tolist(), keys, strict=True)}) == len({*keys})
    halves = [in_one_form(objects(part), "")[0] for part in (names[:150], names[150:])]
    assert [*identities(joined_ids(halves))] == keys


def test_arrays_keep_their_type_where_it_tells_ids_apart():
    for values in (["b", "a"], [2, 1], [2.5, 1.0], [True, False]):
        array = np.array(values)
        assert in_one_form(array, "")[0] is array
    for unit in ("Y", "D", "ns"):
        array = np.array(["2024", "2025"], f"M8[{unit}]")
        assert in_one_form(array, "")[0] is array
    assert in_one_form(objects(["b", "a"]), "")[0].dtype.kind == "U"
    assert in_one_form(objects([2, 1]), "")[0].dtype.kind == "i"
    assert in_one_form(objects([7, "7", 7.0, True]), "")[0].tolist() == [7, 7, 7, True]
    assert in_one_form(objects([1, True]), "")[0].tolist() == [1, "True"]
    assert in_one_form(objects([(1,), (True,)]), "")[1].text.startswith(
        "is one of ids that differ, but that Python takes as equal"
    )
    assert in_one_form(np.array([b"a", b"a", b"\xff"]), "")[0].tolist() == [b"a", b"a", b"\xff"]


@pytest.mark.parametrize(
    ("values", "row"),
    [
        (np.array([1.0, np.nan]), 1), (np.array([1.0, 2.0**53]), 1), (np.array([1, 2**24], np.float32), 1),
        (np.array([-np.inf, 1.0]), 0), (np.array(["2024", "NaT"], "M8[ns]"), 1), (np.array([1000, 1], "M8[ps]"), 1),
        (np.array([1, 2], "m8[Y]"), 0), (np.array([1, 2], "m8"), 0), (np.array(["a", " "]), 1), (np.array([1j]), 0),
        (objects(["a", None]), 1), (objects([1, [2]]), 1), (np.array(["a", "NaT"]), 1),
    ],
)  # fmt: skip
def test_the_first_that_is_no_id(values, row):
    assert in_one_form(values, "episode")[1].row == row
