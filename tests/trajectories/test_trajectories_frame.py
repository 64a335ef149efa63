"""`Trajectories.from_frame`: the same rows from every kind of table, and refusals that name column and row."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import naive
from lstd import LSTD, Trajectories, fit_tables
from lstd.errors import InvalidInputError

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")

KINDS = {
    "pandas": pd.DataFrame,
    "pandas-nullable": lambda columns: pd.DataFrame(columns).convert_dtypes(),
    "pandas-arrow": lambda columns: pa.table(columns).to_pandas(types_mapper=pd.ArrowDtype),
    "polars": pl.DataFrame,
    "polars-lazy": pl.LazyFrame,
    "pyarrow": pa.table,
}
NAMES = {"features": ["x", "on"], "reward": "r", "episode": "id", "terminated": "end"}

# Three episodes: one that terminates, one of nothing but its horizon row, one that is cut off.
COLUMNS = {
    "id": ["a", "a", "b", "c", "c", "c"],
    "t": [0, 1, 0, 5, 6, 9],
    "x": [0.5, 1.5, 2.5, 3.5, 4.5, 5.5],
    "on": [True, False, True, True, False, False],
    "r": [1.0, 2.0, None, 4.0, 5.0, None],
    "end": [False, True, False, False, False, False],
    "cut": [False, False, True, False, True, False],
    "gamma": [0.9, 0.8, None, 0.7, 0.6, None],
    "rho": [1.0, 2.0, None, 0.0, 0.5, None],
    "note": ["n/a", "-", "2", "3", "4", "5"],
}


def read(columns=COLUMNS, kind="pandas", **arguments):
    return Trajectories.from_frame(KINDS[kind](columns), **(NAMES | arguments))


def changed(name, values):
    return COLUMNS | {name: values}


def test_rows_are_the_same_from_every_kind_of_table():
    for kind in KINDS:
        data = read(kind=kind, time="t", truncated="cut", discount="gamma", importance_ratio="rho")
        assert data.X.flags.c_contiguous, kind
        assert_array_equal(data.X, [[0.5, 1], [1.5, 0], [2.5, 1], [3.5, 1], [4.5, 0], [5.5, 0]], err_msg=kind)
        assert_array_equal(data.y, [1, 2, np.nan, 4, 5, np.nan], err_msg=kind)
        assert data.episode.tolist() == list("aabccc")
        assert_array_equal(data.terminated, [False, True, False, False, False, False], err_msg=kind)
        assert_array_equal(data.horizon, [False, False, True, False, False, True], err_msg=kind)
        assert_array_equal(data.discount, [0.9, 0.0, 1.0, 0.7, 0.6, 1.0], err_msg=kind)
        assert_array_equal(data.importance_ratio, [1, 2, 1, 0, 0.5, 1], err_msg=kind)
        assert data.feature_names == ("x", "on")
        assert (data.n_episodes, data.n_transitions) == (3, 4)


@pytest.mark.parametrize("kind", KINDS)
def test_text_means_what_it_means_in_a_file(kind):
    """The columns as a CSV file has them: numbers, flags and ids as text, with white space and words for no value."""
    texts = COLUMNS | {
        "id": ["1", "1.0", "02", " x", "x ", "x"],
        "x": ["0.5", " 1.5", "2.5e0", "+3.5", "4.5", "5.5"],
        "on": ["1", "0", "1.0", "1", "0", "0"],
        "r": ["1", "2", "NA", "4", "5", ""],
        "end": ["no", "Yes", "FALSE", "f", "0", " n"],
    }
    data, numbers = read(texts, kind), read(kind=kind)
    for name in ("X", "y", "terminated"):
        assert_array_equal(getattr(data, name), getattr(numbers, name))
    assert data.episode.tolist() == ["1", "1", "02", "x", "x", "x"]


@pytest.mark.parametrize("ids", [[[1]], [[1], [2]]])
def test_a_column_of_arrays_holds_no_ids(ids):
    """NumPy reads it as a matrix."""
    column = pl.Series(ids, dtype=pl.Array(pl.Int64, 1))
    frame = pl.DataFrame({"x": [1.0] * len(ids), "r": [1.0] * len(ids), "id": column})
    with pytest.raises(
        InvalidInputError, match=r"Column 'id' \(`episode`\), row 0 .*is of type .*list.*, which cannot be an id"
    ):
        Trajectories.from_frame(frame, features=["x"], reward="r", episode="id")


@pytest.mark.parametrize("frame", ["pandas", "polars"])
def test_a_frame_of_features_keeps_their_names(frame):
    arrays = read().to_arrays(frame=frame)
    model = LSTD().fit(**arrays)
    assert model.feature_names_in_.tolist() == ["x", "on"]
    assert_array_equal(model.coef_, LSTD().fit(**read().to_arrays()).coef_)
    nameless = Trajectories(X=[[1.0]], y=[0.5], terminated=[True])
    with pytest.raises(InvalidInputError, match="these Trajectories have no `feature_names`"):
        nameless.to_arrays(frame=frame)
    with pytest.raises(InvalidInputError, match="`frame` must be one of 'pandas', 'polars'; got 'xarray'"):
        read().to_arrays(frame="xarray")


@pytest.mark.parametrize("dtype", [np.uint8, np.uint64])
def test_unsigned_times_are_ordered_as_others_are(dtype):
    times = np.array([0, 1, 2, 3, 4, np.iinfo(dtype).max], dtype)
    frame = pd.DataFrame(changed("t", times))
    assert Trajectories.from_frame(frame, **NAMES, time="t").n_episodes == 3
    with pytest.raises(InvalidInputError, match="is earlier than the row before"):
        Trajectories.from_frame(frame.assign(t=times[::-1]), **NAMES, time="t")


def test_rows_out_of_order_are_named_before_their_ends():
    """A flag may be in mid-episode only because rows are not sorted: to give the rows after it an id would be wrong."""
    with pytest.raises(InvalidInputError, match=r"'t' \(`time`\), row 1 .* is earlier than the row before it"):
        read(COLUMNS | {"end": [1, 0, 0, 0, 0, 0], "t": [1, 0, 0, 5, 6, 9]}, time="t")


REFUSED = {
    "missing column": ({}, {"features": ["x", "onn"]}, r"'onn' \(`features`\) is not in the frame.*mean 'on'\?"),
    "missing reward column": ({}, {"reward": "zzz"}, r"'zzz' \(`reward`\) is not in the frame"),
    "text": ({}, {"features": ["note"]}, r"'note' \(`features`\), row 0 .* has 'n/a', which counts as no value; "),
    "reward at an end": ({"r": [1.0, None, None, 1.0, 5.0, 6.0]}, {}, r"'r' \(`reward`\), row 1 .* 'end' is true"),
    "word as flag": ({"end": ["no", "dead", *["no"] * 4]}, {}, r"'end' \(`terminated`\), row 1 .* has 'dead', which"),
    "time falls": ({"t": [0, 1, 0, 6, 5, 9]}, {"time": "t"}, r"'t' \(`time`\), row 4 .* is earlier .*sort=True"),
    "time stands": ({"t": [0, 1, 0, 5, 5, 9]}, {"time": "t"}, r"'t' \(`time`\), row 4 .* has the time of"),
    "cut without successor": (
        {"r": [1.0, 2.0, None, 4.0, 5.0, 6.0], "cut": [False, False, True, False, False, True]},
        {"truncated": "cut"},
        r"'cut' \(`truncated`\), row 5 .* is true in the last row .*Append a row",
    ),
    "neither flag": ({"cut": [0, 0, 1, 0, 0, 0]}, {"truncated": "cut", "terminated": None}, r"'cut' .* row 1 .*false"),
    "leak": ({}, {"features": ["x", "r"]}, r"`features` must not contain the `reward` column 'r'"),
    "twice": ({}, {"features": ["x", "x"]}, r"`features` .* 'x' is in it twice"),
    "no features": ({}, {"features": []}, r"`features` must name at least one"),
    "no name": ({}, {"features": [0]}, r"`features` must be the name of a column or several; got 0"),
    "not names": ({}, {"features": 0}, r"`features` must be the name of a column or several; got 0"),
    "sort by nothing": ({}, {"sort": True}, r"`sort` needs `time`"),
    "first row": ({}, {"first_row": -1}, r"`first_row` must be at least 0"),
}  # fmt: skip


@pytest.mark.parametrize("kind", ["polars", "pyarrow", "pandas-nullable"])
@pytest.mark.parametrize("case", REFUSED)
def test_refusals_name_the_column_and_the_first_bad_row(case, kind):
    changes, arguments, message = REFUSED[case]
    columns = COLUMNS | {"r": [1.0, 2.0, None, 4.0, 5.0, None]} | changes
    if case == "neither flag":
        columns["r"] = [1.0, None, None, 4.0, 5.0, None]
    with pytest.raises(InvalidInputError, match=message):
        read(columns, kind, **arguments)


def test_rows_are_named_as_they_were_before_sorting():
    columns = {name: values[::-1] for name, values in COLUMNS.items()} | {"r": [None, 5.0, 4.0, None, 2.0, None]}
    with pytest.raises(InvalidInputError, match=r"'r' \(`reward`\), row 5 "):
        read(columns, time="t", sort=True)


def test_other_refusals():
    with pytest.raises(InvalidInputError, match="`frame` must be a pandas, Polars or PyArrow table; got dict"):
        Trajectories.from_frame(COLUMNS, **NAMES)
    with pytest.raises(InvalidInputError, match="`frame` must have at least one row"):
        Trajectories.from_frame(pd.DataFrame(COLUMNS).iloc[:0], **NAMES)
    with pytest.raises(InvalidInputError, match=r"one column per name.*'x'"):
        Trajectories.from_frame(pd.concat([pd.DataFrame(COLUMNS), pd.DataFrame(COLUMNS)[["x"]]], axis=1), **NAMES)
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], names=["x", "x", "r"])
    with pytest.raises(InvalidInputError, match="one column per name"):
        Trajectories.from_frame(twice, features="x", reward="r")
    with pytest.raises(
        InvalidInputError, match=r"'x' \(`features`\), row 0 .* is of type large_list.*, which is not numeric"
    ):
        read(changed("x", [[1], [2], [3], [4], [5], [6]]), "polars")


def of_other_types(kind):
    """The same rows; made in the test, since threads of Polars do not survive the fork of the process that collects."""
    match kind:
        case "mixed objects":
            return pd.DataFrame(COLUMNS | {"id": pd.Series([0, 0, 1, "c", "c", "c"], dtype=object)})
        case "sparse columns":
            return pd.DataFrame(COLUMNS).astype({"x": "Sparse[float]"})
        case "categories":
            frame = pl.DataFrame(COLUMNS).with_columns(pl.col("end").replace_strict({True: "yes", False: "no"}))
            return frame.with_columns(pl.col("end").cast(pl.Categorical), pl.col("id").cast(pl.Enum(["a", "b", "c"])))
        case "bytes":
            return pl.DataFrame(COLUMNS | {"id": [name.encode() for name in COLUMNS["id"]]})


@pytest.mark.parametrize("kind", ["mixed objects", "sparse columns", "categories", "bytes"])
def test_columns_of_other_types_are_those_of_arrays(kind):
    frame = of_other_types(kind)
    data = Trajectories.from_frame(frame, **NAMES)
    for name in ("X", "y", "terminated", "horizon"):
        assert_array_equal(getattr(data, name), getattr(read(), name))
    model = fit_tables(frame, **NAMES, gamma=0.9)
    np.testing.assert_allclose(model.coef_, LSTD(0.9).fit(**data.to_arrays()).coef_, rtol=1e-12)


@pytest.mark.parametrize(
    "times",
    [
        np.array(["0001-01-01", "2024-01-01", "9999-12-31"], "M8[us]"),  # in nanoseconds, they would overflow
        np.datetime64("2024-01-01", "ns") + np.arange(3),  # in microseconds, they would be one
    ],
)
def test_dates_keep_their_unit(times):
    columns = {"x": [1.0, 2.0, 3.0], "r": [1.0, 2.0, 3.0], "end": [False, False, True], "t": times}
    data = Trajectories.from_frame(pa.table(columns), features="x", reward="r", terminated="end", time="t")
    assert_array_equal(data.time, times)


# ---------------------------------------------------------------- intervals of time

SPANS = {
    "who": ["a", "a", "a", "b", "c", "c"],
    "from": [0.0, 1.5, 2.0, 3.0, 0.0, 0.5],
    "to": [1.5, 2.0, 4.5, 4.0, 0.5, 3.0],
    "died": [0, 0, 1, 0, 0, 0],
    "x": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
}
LONG = {"features": ["x", "from"], "episode": "who", "start": "from", "stop": "to", "event": "died"}


def spans(columns=SPANS, kind="pandas", **arguments):
    return Trajectories.from_frame(KINDS[kind](columns), **(LONG | arguments))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gamma", [None, 1.0, 0.9, 0.2])
def test_intervals_are_what_the_definition_says(kind, gamma):
    data = spans(kind=kind, gamma=gamma)
    table = list(zip(*(SPANS[name] for name in ("who", "from", "to", "died", "x")), strict=True))
    rows = naive.interval_rows(table, 1.0 if gamma is None else gamma)
    assert data.episode.tolist() == [row[0] for row in rows]
    assert data.X[:, 0].tolist() == [row[1] for row in rows]
    np.testing.assert_allclose(data.y, [row[2] for row in rows], rtol=1e-12)
    np.testing.assert_allclose(data.discount[~data.horizon], [row[3] for row in rows if row[3] is not None], rtol=1e-13)
    assert data.terminated.tolist() == [row[4] for row in rows]
    assert data.X[data.horizon, 1].tolist() == [4.0, 3.0]  # the time itself is known where observation stopped


def test_returns_do_not_depend_on_where_time_is_divided():
    whole = {"who": [1, 2], "from": [0.0, 0.0], "to": [4.5, 3.0], "died": [1, 0], "x": [1.0, 1.0]}
    parts = {
        "who": [1, 1, 1, 2, 2], "from": [0.0, 0.3, 2.0, 0.0, 2.5], "to": [0.3, 2.0, 4.5, 2.5, 3.0],
        "died": [0, 0, 1, 0, 0], "x": np.ones(5),
    }  # fmt: skip
    for gamma in (1.0, 0.7):
        returns = []
        for columns in (whole, parts):
            data = spans(columns, features="x", gamma=gamma)
            discounts = np.append(1.0, data.discount)[:-1]
            returns.append(
                [
                    naive.discounted_returns(np.nan_to_num(data.y[of]), np.append(1.0, data.discount[of]))[0]
                    for of in (data.episode == 1, data.episode == 2)
                ]
            )
            assert len(discounts) == len(data)
        np.testing.assert_allclose(returns[0], returns[1], rtol=1e-12)
        np.testing.assert_allclose(returns[0][0], naive.discounted_time(0.0, 4.5, gamma), rtol=1e-10)


def test_sorted_intervals_rewards_groups_and_actions():
    shuffled = {name: [values[i] for i in (2, 0, 1, 3, 5, 4)] for name, values in SPANS.items()}
    more = {
        "cost": [3.0, 1.0, 2.0, 4.0, 6.0, 5.0],
        "clinic": list("ppprqq"),
        "dose": list("zxyxzz"),
        "chance": [0.5] * 6,
    }
    data = spans(
        shuffled | more, sort=True, reward="cost", groups="clinic", action="dose", behavior_probability="chance"
    )
    assert_array_equal(data.y, [1, 2, 3, 4, np.nan, 5, 6, np.nan])
    assert "".join(data.groups) == "ppprrqqq"
    assert "".join(data.actions) == "xyzxxzzz"
    assert_array_equal(data.behavior_probability, np.where(data.horizon, np.nan, 0.5))
    assert_array_equal(data.discount, [1, 1, 0, 1, 1, 1, 1, 1])


@pytest.mark.parametrize(
    ("change", "arguments", "message"),
    [
        ({"to": [1.5, 1.0, 4.5, 4.0, 0.5, 3.0]}, {}, r"'to' \(`stop`\), row 1 .* has 1, which is before the start, 1"),
        ({"to": [1.5, 2.0, 4.5, 3.0, 0.5, 3.0]}, {}, r"row 3 .* has 3, which equals the start; correct"),
        ({"from": [0.0, 1.0, 2.0, 3.0, 0.0, 0.5]}, {}, r"'from' \(`start`\), row 1 .* ends at 1.5; they overlap: cut"),
        ({"from": [0.0, 1.5, 2.5, 3.0, 0.0, 0.5]}, {}, r"row 2 .* 2.5, but the interval before it ends at 2; add"),
        ({"from": [1.5, 0.0, 2.0, 3.0, 0.0, 0.5]}, {}, r"\(`start`\), row 1 .* is earlier than .*sort=True"),
        ({"from": [0.0, 2.0, 1.5, 3.0, 0.0, 0.5], "died": [0, 1, 0, 0, 0, 0]}, {}, r"\(`start`\), row 2 .* is earlier"),
        ({"from": [np.datetime64("2024-01-01")] * 6}, {}, r"\(`start`\), row 0 .* is of type .*; convert it"),
        ({"from": ["0", "x", "2", "3", "0", "1"]}, {}, r"\(`start`\), row 1 .* has 'x', which is not a number"),
        ({"died": [0, 1, 1, 0, 0, 0]}, {}, r"'died' \(`event`\), row 1 .* is followed by a row of the same"),
        ({"died": [0, 0, 2, 0, 0, 0]}, {}, r"Column 'died' \(`event`\), row 2 .* has 2, which is neither 0 nor 1"),
        ({"to": [1.5, 2.0, None, 4.0, 0.5, 3.0]}, {}, r"Column 'to' \(`stop`\), row 2 .* has no value"),
        ({"from": [0.0, 1.5, 2.0, np.nan, 0.0, 0.5]}, {}, r"\(`start`\), row 3 .* has no value"),
        ({}, {"features": ["x", "to"]}, "`features` must not contain the `stop` column 'to', which is not known"),
        ({}, {"stop": None}, "`stop` must be given with `start`"),
        ({}, {"episode": None}, "`episode` must be given with `start`"),
        ({}, {"time": "from"}, "`time` must be None with `start`, `stop` and `event`"),
        ({}, {"discount": "x"}, "`discount` must be None with"),
        ({}, {"gamma": 1.5}, r"`gamma` must be in \[0, 1\]; got 1.5"),
        ({}, {"start": None, "stop": None, "event": None, "gamma": 0.5, "reward": "to"}, "`gamma` must be None"),
        ({}, {"start": None, "stop": None, "event": None}, "`reward` must name a column, unless"),
    ],
)  # fmt: skip
def test_intervals_that_break_a_rule(change, arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        spans(SPANS | change, **arguments)


# ---------------------------------------------------------------- actions


@pytest.mark.parametrize("kind", KINDS)
def test_actions_and_their_probabilities(kind):
    columns = COLUMNS | {"a": [2, 0, None, 1, 1, None], "why": [*"xyzxy", None], "mu": [0.5, 0.1, None, 1.0, 0.3, None]}
    data = read(columns, kind, action="a", behavior_probability="mu", groups="id")
    assert_array_equal(data.actions[~data.horizon], [2, 0, 1, 1])
    assert_array_equal(data.behavior_probability[~data.horizon], [0.5, 0.1, 1.0, 0.3])
    assert read(columns, kind, action="why").actions.tolist() == [*"xyzxy", ""]
    assert sorted(data.to_arrays()) == ["X", "episode", "groups", "terminated", "y"]
    whole = read(COLUMNS | {"a": [2, 0, 1, 1, 1, 0]}, kind, action="a")
    assert (whole.actions.dtype.kind, data.behavior_probability[2]) == ("i", pytest.approx(np.nan, nan_ok=True))
    flags = read(columns | {"a": [True, False, True, True, False, True]}, kind, action="a")
    assert flags.actions.tolist() == [1, 0, 1, 1, 0, 1]


@pytest.mark.filterwarnings("ignore::lstd.errors.UnusedRewardWarning")
@pytest.mark.parametrize("role", ["discount", "importance_ratio"])
def test_discounts_and_ratios_may_be_missing_wherever_rewards_may(role):
    columns = COLUMNS | {"r": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "v": [0.5, 0.4, None, 0.7, 0.6, None]}
    data = read(columns, **{role: "v"})
    arrays = data.to_arrays() | {role: [0.5, 0.4, np.nan, 0.7, 0.6, np.nan]}
    assert_array_equal(LSTD(n_blocks=0).fit(**data.to_arrays()).coef_, LSTD(n_blocks=0).fit(**arrays).coef_)
    for bad in (1, 3):
        values = [0.5, 0.4, 0.3, 0.7, 0.6, 0.5]
        values[bad] = np.nan
        with pytest.raises(
            InvalidInputError, match=f"`{role}` must be finite on every row but the last .* row {bad} has"
        ):
            LSTD().fit(**(arrays | {role: values}))
        with pytest.raises(
            InvalidInputError, match=rf"`{role}`\), row {bad} .* must be finite on every row but the last"
        ):
            read(columns | {"v": values}, **{role: "v"})
    model = LSTD(n_blocks=0).partial_fit([[1.0], [2.0]], [1.0, 2.0], **{role: [0.5, np.nan]})
    with pytest.raises(InvalidInputError, match=f"`y` and `{role}` must be finite on every row but"):
        model.partial_fit([[1.0]], [1.0])
