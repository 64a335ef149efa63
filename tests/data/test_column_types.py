"""Columns of every type, by every route: the same numbers, flags, ids and times, or a refusal by name."""

import re
from decimal import Decimal

import numpy as np
import pytest

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")
pl = pytest.importorskip("polars")

from numpy.testing import assert_array_equal  # noqa: E402

from columns_of_types import durations, flags, identifiers, numbers, others, text, times, zoned  # noqa: E402
from lstd import LSTD, HorizonLSTD, LSTDStatistics, RecursiveLSTD, Trajectories, fit_chunks, fit_tables, load  # noqa: E402
from lstd.cli import main  # noqa: E402
from lstd.data import parse_columns  # noqa: E402
from lstd.data.arrow_columns import arrow_batches, arrow_table  # noqa: E402
from lstd.data.identity import identity  # noqa: E402
from lstd.errors import InvalidInputError  # noqa: E402
from lstd.metrics import backtest  # noqa: E402
from lstd.ope import LSTDQ  # noqa: E402

VALUES = {
    "x": [1, 2, 3, 1, 2, 4], "y": [1, 2, 3, 1, 2, 3], "e": [1, 1, 1, 2, 2, 2], "end": [0, 0, 1, 0, 0, 1],
    "t": [0, 1, 2, 0, 1, 2], "w": [1, 1, 1, 1, 1, 1],
}  # fmt: skip
COEFFICIENT = -0.7383092
NAMES = {"features": ["x"], "reward": "y", "episode": "e", "terminated": "end", "weight": "w"}


def frame_of(column, values):
    """A data frame of the library of a column, which is the one of this name."""
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return pa.table({**{name: pa.array(each) for name, each in VALUES.items()}, column: values})
    if isinstance(values, pl.Series):
        return pl.DataFrame(VALUES).with_columns(values.alias(column))
    return pd.DataFrame(VALUES).assign(**{column: values})


def column(values):
    """A column as Arrow has it, by way of its library."""
    return next(arrow_batches(arrow_table("`frame`", frame_of("x", values)), ["x"], 100)).column(0)


# ------------------------------------------------------------ the one conversion

SOME = [3, 0, 1, 1, 2, 9]
DIGITS = [0, 1, 1, 0, 1, 0]


@pytest.mark.parametrize("name", [*numbers(SOME), *text(SOME)])
def test_numbers(name):
    makers = numbers(SOME) | text(SOME)
    found, fault = parse_columns.numbers(column(makers[name]()), "x")
    assert fault is None
    assert_array_equal(found, SOME)


@pytest.mark.parametrize("name", [*numbers(DIGITS), *text(DIGITS), *flags(DIGITS)])
def test_flags(name):
    makers = numbers(DIGITS) | text(DIGITS) | flags(DIGITS)
    found, fault = parse_columns.flags(column(makers[name]()), "x")
    assert fault is None
    assert_array_equal(found, np.array(DIGITS, np.bool_))


@pytest.mark.parametrize("words", [["0.000e+00", "1.000e+00"], ["0.", "1."], ["no", "Yes"], [" F ", "t"], ["-0", "+1"]])
def test_flags_of_text(words):
    assert parse_columns.flags(pa.array(words), "x")[0].tolist() == [False, True]


KINDS_OF_IDS = {
    "numbers": (numbers, 3), "text": (text, "3"), "flags": (flags, True), "times": (times, "2024-01-04"),
    "zoned": (zoned, "2024-01-04T00:00Z"), "identifiers": (identifiers, f"{'0' * 8}-0000-0000-0000-{'0' * 11}3"),
    "durations": (durations, np.timedelta64(3, "D")),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS_OF_IDS)
def test_ids(kind):
    make, first = KINDS_OF_IDS[kind]
    for name, maker in make(SOME).items():
        found, fault = parse_columns.ids(column(maker()), "x")
        assert fault is None, name
        assert found.keys[0] == identity(first), name
        if kind != "flags":
            assert found.changes.tolist() == [0, 1, 2, 4, 5], name
            assert len({*found.keys}) == 5, name


@pytest.mark.parametrize("name", [*times(SOME), *zoned(SOME)])
def test_times(name):
    makers = times(SOME) | zoned(SOME)
    found, fault = parse_columns.times(column(makers[name]()), "x", "us")
    assert fault is None
    assert_array_equal(found - found[1], np.array(SOME) * 86_400_000_000)
    assert found[1] == 1_704_067_200_000_000


@pytest.mark.parametrize("parse", [parse_columns.numbers, parse_columns.flags, parse_columns.ids, parse_columns.times])
@pytest.mark.parametrize("name", others(SOME))
def test_other_types_are_refused(name, parse):
    if name == "numpy complex" and parse is parse_columns.ids:
        return  # of text such as "(1+0j)"
    try:
        _, fault = parse(column(others(SOME)[name]()), "x")
    except InvalidInputError as error:  # Python objects without a text
        assert "column 'x', row 0" in str(error)  # noqa: PT017
        return
    assert fault.row == 0
    assert "type" in fault.text


def test_objects_keep_what_arrow_would_drop():
    stamp = pd.Timestamp("2024-01-01T05:00:00.000000001")
    for values in (
        [stamp.date(), stamp],
        [np.True_, 1],
        [stamp, stamp.tz_localize("UTC")],
        [2**60 + 1, 0.5],
        [2**70, 1],
    ):
        keys = parse_columns.ids(column(pd.Series([*values, *[values[1]] * 4], dtype=object)), "x")[0].keys
        assert keys[0] == identity(values[0])
        assert len(keys) == 2


def test_missing_values_of_every_type():
    for make in (numbers, text, flags, times, zoned, durations):
        for name, maker in make(DIGITS).items():
            values = maker()
            if not isinstance(values, pl.Series) or values.dtype == pl.Object:
                continue
            holed = pl.concat([values[:2], pl.Series([None], dtype=values.dtype), values[2:5]])
            given = column(holed)
            if make in (numbers, text):
                assert np.isnan(parse_columns.numbers(given, "x")[0]).tolist() == [False, False, True, *[False] * 3], (
                    name
                )
            for parse in (parse_columns.ids, parse_columns.times):
                if make is not flags and not (make is text and parse is parse_columns.ids):
                    assert parse(given, "x")[1].row == 2, name


# ------------------------------------------------------------ types, roles and routes


def by_arrays(name, values):
    """Arrays, where those of one role are of another type."""
    arrays = {role: np.array(each, np.float64) for role, each in VALUES.items()} | {name: values}
    X = arrays["x"]
    if name == "x":
        X = frame_of("x", values)[["x"]] if not isinstance(values, (pa.Array, pa.ChunkedArray)) else pa.table({"x": X})
    else:
        X = X[:, np.newaxis]
    return X, arrays["y"], {"episode": arrays["e"], "terminated": arrays["end"], "weight": arrays["w"]}


def of_fit(name, values):
    X, y, columns = by_arrays(name, values)
    return LSTD(0.9).fit(X, y, **columns).coef_


def of_trajectories(name, values):
    data = Trajectories.from_frame(frame_of(name, values), **NAMES, time="t")
    return LSTD(0.9).fit(**data.to_arrays()).coef_


def of_tables(name, values):
    return fit_tables(frame_of(name, values), **NAMES, time="t", gamma=0.9).coef_


def of_statistics(name, values):
    X, y, columns = by_arrays(name, values)
    sums = LSTDStatistics.from_arrays(X, y, gamma=0.9, lmbda=0.9, **columns)
    return LSTD(0.9, fit_intercept=False).fit_statistics(sums).coef_


def of_chunks(name, values):
    X, y, columns = by_arrays(name, values)
    return fit_chunks([{"X": X, "y": y, **columns}], gamma=0.9).coef_


ROUTES = [of_fit, of_trajectories, of_tables, of_statistics, of_chunks]
MAKERS = {
    "x": numbers,
    "y": numbers,
    "w": numbers,
    "end": lambda v: numbers(v) | flags(v),
    "e": lambda v: numbers(v) | text(v),
}
CASES = [
    (role, name, ROUTES[(place + shift) % len(ROUTES)])
    for shift, (role, make) in enumerate(MAKERS.items())
    for place, name in enumerate(make(VALUES[role]))
]


@pytest.mark.parametrize("role", MAKERS)
@pytest.mark.parametrize("route", ROUTES)
def test_the_same_model_by_every_route(role, route):
    expected = 1.4141430 if route is of_statistics else COEFFICIENT  # without an intercept, and with one
    differ = {}
    for name in [name for of_role, name, by in CASES if (of_role, by) == (role, route)]:
        found = np.ravel(route(role, MAKERS[role](VALUES[role])[name]()))
        if found != pytest.approx([expected], rel=1e-6):
            differ[name] = found
    assert not differ


KINDS = [numbers, text, times, zoned, identifiers, durations]


@pytest.mark.parametrize("shift", range(6))
def test_ids_continue_from_chunk_to_chunk_whatever_their_types(tmp_path, shift):
    """Each chunk has the ids in another type, and a file lies between two chunks."""
    X, y = np.array(VALUES["x"], np.float64)[:, np.newaxis], np.array(VALUES["y"], np.float64)
    ended = np.array([False] * 5 + [True])
    for make in KINDS:
        makers = [*make([1, 1, 1, 1, 2, 2]).values()]
        one, two = makers[shift % len(makers)](), makers[(5 * shift + 1) % len(makers)]()
        for model in (LSTD(0.9), HorizonLSTD(2, 0.9), RecursiveLSTD(1, 0.9)):
            model.partial_fit(X[:2], y[:2], episode=one[:2], terminated=ended[:2])
            if not isinstance(model, RecursiveLSTD):
                model.save(tmp_path / "model")
                model = load(tmp_path / "model")
            model.partial_fit(X[2:], y[2:], episode=two[2:], terminated=ended[2:])
            if isinstance(model, RecursiveLSTD):
                assert model.n_updates == 5
            else:
                assert (model.n_episodes_, model.n_transitions_) == (2, 5)


@pytest.mark.parametrize("make", [numbers, text, times, zoned, durations])
def test_tables_of_different_types_are_one_stream(make):
    whole = of_tables("e", np.array(VALUES["e"]))
    makers = [*make(VALUES["e"]).values()]
    for i in range(0, len(makers), 3):
        tables = [frame_of("e", makers[j % len(makers)]()) for j in (i, i + 1)]
        parts = [table[:2] if not isinstance(table, pa.Table) else table.slice(0, 2) for table in tables[:1]]
        parts += [table[2:] if not isinstance(table, pa.Table) else table.slice(2) for table in tables[1:]]
        assert fit_tables(parts, **NAMES, gamma=0.9).coef_ == pytest.approx(whole, rel=1e-12)


@pytest.mark.parametrize("fit", [of_tables, of_trajectories])
@pytest.mark.parametrize("kind", [">f8", ">f4", ">i8", ">u2"])
def test_sorted_bytes_in_either_order(kind, fit):
    names = {"sort": True, "time": "t"}
    frame = pd.DataFrame(VALUES).astype({"t": kind, "x": kind}).iloc[::-1]
    data = Trajectories.from_frame(frame, **NAMES, **names)
    assert LSTD(0.9).fit(**data.to_arrays()).coef_ == pytest.approx([COEFFICIENT], rel=1e-7)
    assert fit_tables(frame, **NAMES, **names, gamma=0.9).coef_ == pytest.approx([COEFFICIENT], rel=1e-7)


def test_the_shell_reads_what_savetxt_writes(tmp_path, monkeypatch):
    """Numbers, flags and ids as NumPy writes them, 1.000e+00."""
    monkeypatch.chdir(tmp_path)
    np.savetxt(
        "a.csv", np.column_stack([VALUES[n] for n in ("x", "y", "end")]), "%.3e", ",", header="x,y,end", comments=""
    )
    names = [
        "--features",
        "x",
        "--reward",
        "y",
        "--terminated",
        "end",
        "--gamma",
        "0.9",
        "--lmbda",
        "0.9",
        "--alpha",
        "1",
    ]
    assert main(["fit", "a.csv", *names, "--out", "model"]) == 0
    assert load(tmp_path / "model").coef_ == pytest.approx([COEFFICIENT], rel=1e-6)


def test_a_missing_value_among_integer_categories_is_no_id():
    """pandas fails to look for times among them."""
    X, y = np.array(VALUES["x"], np.float64)[:, np.newaxis], np.array(VALUES["y"], np.float64)
    ids = pd.Series(pd.Categorical([*VALUES["e"][:-1], None]))
    with pytest.raises(InvalidInputError, match="`episode` must have an id on every row; row 5 has no value"):
        LSTD(0.9).fit(X, y, episode=ids, terminated=VALUES["end"])
    for other in (ids.array, pd.CategoricalIndex(ids)):
        with pytest.raises(InvalidInputError, match="`episode` must have an id on every row; row 5 has no value"):
            LSTD(0.9).fit(X, y, episode=other, terminated=VALUES["end"])
    flags_given = pd.Series(pd.Categorical([*VALUES["end"][:-1], None]))
    with pytest.raises(InvalidInputError, match="`terminated` must hold True and False; row 5 has no value"):
        LSTD(0.9).fit(X, y, episode=VALUES["e"], terminated=flags_given)


@pytest.mark.parametrize("route", ROUTES)
def test_times_of_day_in_nanoseconds_are_ids_exactly(route):
    first, second = 1500, 1900  # of the same microsecond
    ids = pa.array([first if e == VALUES["e"][0] else second for e in VALUES["e"]], pa.time64("ns"))
    assert np.ravel(route("e", ids)) == pytest.approx(np.ravel(route("e", np.array(VALUES["e"]))), rel=1e-12)


def test_a_time_of_day_is_one_id_in_every_unit():
    units = [
        pa.array([3 * 10**9], pa.time64("ns")),
        pa.array([3 * 10**6], pa.time64("us")),
        pa.array([3], pa.time32("s")),
    ]
    keys = {parse_columns.ids(array, "e")[0].keys[0] for array in units}
    assert keys == {"text 00:00:03"}


def bool8(values):
    """Booleans in bytes, of which any but zero is true."""
    return pa.ExtensionArray.from_storage(pa.bool8(), pa.array(values, pa.int8()))


@pytest.mark.skipif(not hasattr(pa, "bool8"), reason="an older pyarrow")
@pytest.mark.parametrize("role", ["x", "y", "w", "end", "e"])
@pytest.mark.parametrize("route", ROUTES)
def test_booleans_in_bytes_are_true_where_they_are_not_zero(role, route):
    stored = {"x": [1, 0, 3, 0, 2, 0], "y": [1, 0, 3, 0, 2, 4], "w": [1, 2, 3, 4, 5, 6], "end": [0, 0, 5, 0, 0, 7]}
    stored["e"] = [2, 3, 4, 0, 0, 0]
    given = stored[role]
    expected = route(role, np.array(given, np.bool_).astype(np.float64))
    assert np.ravel(route(role, bool8(given))) == pytest.approx(np.ravel(expected), rel=1e-12)


UNION = pa.UnionArray.from_dense(
    pa.array([0] * 6, pa.int8()), pa.array(range(6), pa.int32()), [pa.array([0, 1, 0, 1, 0, 1])]
)
ODD = {
    "a union": UNION,
    "times of day": pa.array([1500] * 3 + [1900] * 3, pa.time64("ns")),
}


@pytest.mark.parametrize("name", ODD)
def test_actions_and_rewards_of_other_types_are_refused_by_name(name):
    X, y = np.array(VALUES["x"], np.float64)[:, np.newaxis], np.array(VALUES["y"], np.float64)
    rows = {"target_policy": np.full((6, 2), 0.5), "episode": VALUES["e"], "terminated": VALUES["end"]}
    with pytest.raises(InvalidInputError, match="`actions` must have one number or text for each; got"):
        LSTDQ(0.9).fit(X, y, actions=ODD[name], **rows)
    with pytest.raises(InvalidInputError, match="`y` must be an array of real numbers"):
        LSTDQ(0.9).fit(X, ODD[name], actions=[0, 1] * 3, **rows)
    with pytest.raises(InvalidInputError, match="`y` must be an array of real numbers"):
        backtest(LSTD(0.9), X, ODD[name], cut=3, steps=1, time=np.arange(6))


@pytest.mark.parametrize(
    ("false", "true"), [("false", "true"), ("False", "True"), ("no", "yes"), ("N", "Y"), (b"f", b"t"), ("0", "1")]
)
@pytest.mark.parametrize("dtype", [None, object])
def test_flags_in_words_are_read_as_in_tables(false, true, dtype):
    """NumPy converts every word to True."""
    X, y = np.array(VALUES["x"], np.float64)[:, np.newaxis], np.array(VALUES["y"], np.float64)
    values = np.array([true if end else false for end in VALUES["end"]], dtype)
    fitted = LSTD(0.9).fit(X, y, episode=VALUES["e"], terminated=values)
    assert fitted.coef_ == pytest.approx([COEFFICIENT], rel=1e-6)


@pytest.mark.parametrize("role", ["x", "y", "w", "end", "t"])
@pytest.mark.parametrize("value", [object(), pd.Interval(0, 1), Decimal("Infinity"), (1, None), np.timedelta64(1, "M")])
def test_messages_call_ids_only_what_is_an_id(role, value):
    objects = pd.Series([value, *VALUES[role][1:]], dtype=object)
    with pytest.raises(InvalidInputError) as caught:
        of_trajectories(role, objects)
    assert not re.search(r"\bids?\b", str(caught.value))


def sooner(unit):
    """Times of rows of two episodes that grow by a nanosecond."""
    return pa.array([1001, 1002, 1003, 1001, 1002, 1003], unit)


CLOSE = {
    "timestamps": sooner(pa.timestamp("ns")),
    "with a zone": sooner(pa.timestamp("ns", "Europe/Paris")),
    "durations": sooner(pa.duration("ns")),
    "times of day": sooner(pa.time64("ns")),
    "text": pa.array([f"2024-01-31T12:00:00.00000000{i}" for i in (1, 2, 3)] * 2),
    "integers of 64 bits": pa.array([2**64 - 4, 2**64 - 3, 2**64 - 2] * 2, pa.uint64()),
    "integers of 64 bits in text": pa.array([str(2**64 - 4 + i) for i in range(3)] * 2),
    "decimals": pa.array([Decimal(10**20 + i) for i in (1, 2, 3)] * 2),
    "fractions of decimals": pa.array([Decimal(f"1000000000000000000.00{i}") for i in (1, 2, 3)] * 2),
}
EXACT = ("timestamps", "with a zone", "durations", "times of day", "text")
TELLS = "less than a microsecond from another time of its episode|which float64 does not tell from another time"
TABLE = {name: given for name, given in NAMES.items() if name != "weight"} | {"time": "t", "gamma": 0.9}


@pytest.mark.parametrize("sort", [False, True])
@pytest.mark.parametrize("name", CLOSE)
def test_times_that_would_become_one_are_refused_by_name(name, sort):
    if name in EXACT:  # a table is read in the unit of its type
        found = fit_tables(frame_of("t", CLOSE[name]), **TABLE, sort=sort).coef_
        assert found == pytest.approx([COEFFICIENT], rel=1e-6)
    else:
        with pytest.raises(InvalidInputError, match=TELLS) as caught:
            fit_tables(frame_of("t", CLOSE[name]), **TABLE, sort=sort)
        assert "column 't', row 2" in str(caught.value)
    events = pa.table({"id": [1, 1, 2, 2, 3, 3], "t": CLOSE[name]})
    dates = name in ("timestamps", "with a zone", "text")
    until = "2024-02-10" if dates else 1e30
    until = f"{until}Z" if name == "with a zone" else until
    with pytest.raises(InvalidInputError, match=TELLS):
        Trajectories.from_events(events, episode="id", time="t", step="1D" if dates else 1.0, until=until)


@pytest.mark.parametrize("horizon", [None, 1])
@pytest.mark.parametrize("name", EXACT)
def test_times_of_neighbouring_tables_compare_exactly(name, horizon):
    """Also where they have another unit in each table."""
    options = TABLE | {"horizon": horizon, "check": False} if horizon else TABLE
    times_given = CLOSE[name]
    frame = frame_of("t", times_given)
    whole = fit_tables(frame, **options).coef_
    assert fit_tables([frame[:2], frame[2:]], **options).coef_ == pytest.approx(whole, rel=1e-9)
    order = [*range(6)]
    order[1], order[2] = 2, 1
    late = frame.set_column(frame.column_names.index("t"), "t", times_given.take(pa.array(order)))
    with pytest.raises(InvalidInputError, match="is earlier than the row before it"):
        fit_tables([late[:2], late[2:]], **TABLE)
    twice = frame.set_column(frame.column_names.index("t"), "t", times_given.take(pa.array([0, 1, 1, 3, 4, 5])))
    with pytest.raises(InvalidInputError, match="has the time of the row before it"):
        fit_tables([twice[:2], twice[2:]], **TABLE)


def test_times_of_two_units_compare_exactly():
    days = pa.array([1, 2], pa.date32())
    rest = pa.array([2 * 86400 * 10**9 + 86400 * 10**6 * i for i in (0, 1, 2, 3)], pa.timestamp("ns"))
    frame = frame_of("t", rest.take(pa.array([0, 0, 0, 1, 2, 3])))
    place = frame.column_names.index("t")
    first = frame[:2].set_column(place, "t", days)
    with pytest.raises(InvalidInputError, match="has the time of the row before it"):
        fit_tables([first, frame[2:]], **TABLE)


@pytest.mark.parametrize("name", CLOSE)
def test_such_times_are_read_where_they_are_of_different_episodes(name):
    one = CLOSE[name].take(pa.array([0, 1, 2, 0, 1, 2]))
    frame = frame_of("t", one).set_column(2, "e", pa.array([1, 2, 3, 4, 5, 6])).drop_columns(["end"])
    frame = frame.append_column("end", pa.array([True] * 6))
    assert fit_tables(frame, **TABLE).n_episodes_ == 6


@pytest.mark.parametrize("kind", ["timestamp", "duration"])
def test_nanoseconds_that_tell_no_times_apart_are_read(kind):
    unit = getattr(pa, kind)("ns")
    times_given = pa.array([1, 1001, 2999, 1, 1001, 2999], unit)
    found = fit_tables(frame_of("t", times_given), **TABLE).coef_
    assert found == pytest.approx([COEFFICIENT], rel=1e-6)


@pytest.mark.parametrize("name", CLOSE)
def test_such_times_of_arrays_are_exact_or_refused_by_name(name):
    arrays = {"y": VALUES["y"], "episode": VALUES["e"], "terminated": VALUES["end"]}
    X = np.array(VALUES["x"], np.float64)[:, np.newaxis]
    if name in ("timestamps", "with a zone", "durations"):
        assert (np.diff(Trajectories(X, **arrays, time=CLOSE[name]).time)[:2].astype(np.int64) == 1).all()
        return
    with pytest.raises(InvalidInputError, match=TELLS):
        Trajectories(X, **arrays, time=CLOSE[name])


@pytest.mark.parametrize(
    "kind", ["category", "Sparse[int64]", "Int64", "int64[pyarrow]", "string", "period[D]", "Int8"]
)
def test_arrays_of_pandas_are_as_their_series(kind):
    """They have none of the ways of a series to reach codes, starts and dense values."""
    ids = pd.Series(VALUES["e"]) if kind != "period[D]" else pd.Series(pd.to_datetime(VALUES["e"], unit="D"))
    ids = ids.dt.to_period("D") if kind == "period[D]" else ids.astype(kind)
    assert np.ravel(of_fit("e", ids.array)) == pytest.approx([COEFFICIENT], rel=1e-6)
    if kind not in ("period[D]", "string"):
        found = of_fit("end", pd.Series(VALUES["end"]).astype(kind).array)
        assert np.ravel(found) == pytest.approx([COEFFICIENT], rel=1e-6)


@pytest.mark.skipif(not hasattr(pa, "bool8"), reason="an older pyarrow")
def test_booleans_in_bytes_of_pandas():
    stored = pd.Series(pd.arrays.ArrowExtensionArray(bool8([1, 0, 3, 0, 2, 4])))
    assert of_fit("y", stored) == pytest.approx(of_fit("y", np.array([1.0, 0.0, 1.0, 0.0, 1.0, 1.0])), rel=1e-12)
    frame = pd.DataFrame({"x": stored, "z": VALUES["x"]})
    found = LSTD(0.9).fit(frame, VALUES["y"], episode=VALUES["e"], terminated=VALUES["end"])
    plain_frame = frame.assign(x=[1.0, 0.0, 1.0, 0.0, 1.0, 1.0])
    expected = LSTD(0.9).fit(plain_frame, VALUES["y"], episode=VALUES["e"], terminated=VALUES["end"])
    assert found.coef_ == pytest.approx(expected.coef_, rel=1e-12)
