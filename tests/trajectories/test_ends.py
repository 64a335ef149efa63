"""Ends of observation of each id in `Trajectories.from_events`: by their definition, of every kind, and errors."""

import datetime as dt
import math

import numpy as np
import pytest

import naive
from lstd import HorizonLSTD, Trajectories
from lstd.errors import InvalidInputError
from tolerances import assert_close

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")

LOG = {
    "id": ["a", "b", "a", "c", "b", "d"],
    "day": ["2024-01-03", "2024-01-02", "2024-01-10", "2024-01-05", "2024-01-12", "2024-01-23"],
    "left": ["2024-01-17", None, "2024-01-17", "2024-01-16", None, "2024-01-25"],
    "died": [False, False, False, True, False, False],
}
NAMES = {"episode": "id", "time": "day", "step": "week", "until": "2024-01-29"}


def read(columns=LOG, make=pd.DataFrame, **arguments):
    return Trajectories.from_events(make(columns), **(NAMES | {"observed_until": "left"} | arguments))


def changed(name, values):
    return LOG | {name: values}


def test_ends_by_hand():
    data = read(ended="died")
    assert data.episode.tolist() == ["a", "a", "b", "b", "b", "b", "c", "c"]  # d left before its first row
    days = ["2024-01-08", "2024-01-15", "2024-01-08", "2024-01-15", "2024-01-22", "2024-01-29"]
    assert data.time.astype("M8[D]").astype(str).tolist() == [*days, *days[:2]]
    np.testing.assert_array_equal(data.y, [1, np.nan, 1, 0, 0, np.nan, 0, 0])
    assert data.horizon.tolist() == [False, True, False, False, False, True, False, False]
    assert data.terminated.tolist() == [False] * 7 + [True]
    cut = read()
    assert not cut.terminated.any()
    np.testing.assert_array_equal(cut.y[-2:], [0, np.nan])
    whole = Trajectories.from_events(pd.DataFrame(LOG), **NAMES)
    assert whole.n_transitions == 9  # rows of zeros of a, c and d


@pytest.mark.parametrize("first", ["apart", "counted"])
@pytest.mark.parametrize("seed", range(30))
def test_rows_are_those_of_the_definition(seed, first):
    random = np.random.default_rng(seed)
    n = int(random.integers(5, 60))
    who = random.integers(0, 8, n)
    times = random.integers(0, 23, n) / 2.0
    amounts = random.integers(-3, 9, n).astype(float)
    ends = {}
    for name in np.unique(who).tolist():
        latest = times[who == name].max()
        if random.random() < 0.7:
            ends[name] = (latest + float(random.choice([0.0, 0.5, 1.0, 2.25])), bool(random.random() < 0.5))
    closed = np.zeros(n, np.bool_)
    for name in range(8):  # some ids close with their last event
        own = np.flatnonzero((who == name) & (times == times[who == name].max(initial=-1.0)))
        if len(own) and random.random() < 0.3:
            closed[own[-1]] = True
    columns = {
        "who": who,
        "at": times,
        "one": amounts,
        "closed": closed,
        "left": [ends.get(name, (math.nan, False))[0] for name in who.tolist()],
        "dead": [ends.get(name, (math.nan, False))[1] for name in who.tolist()],
    }
    edges = [float(k) for k in range(13)]
    events = list(zip(who.tolist(), times.tolist(), [[x] for x in amounts.tolist()], closed.tolist(), strict=True))
    rows = naive.steps_of_events(events, edges, first=first, ends=ends)
    arguments = {"episode": "who", "time": "at", "amount": ["one"], "step": 1.0, "until": 12.0, "first": first}
    arguments |= {"observed_until": "left", "ended": "dead", "terminated": "closed"}
    if not rows:
        with pytest.raises(InvalidInputError, match="at least one row"):
            Trajectories.from_events(pd.DataFrame(columns), **arguments)
        return
    data = Trajectories.from_events(pd.DataFrame(columns), **arguments)
    assert data.episode.tolist() == [row[0] for row in rows]
    np.testing.assert_array_equal(data.time, [float(row[1]) for row in rows])
    assert_close(data.X, np.array([row[2] for row in rows]), "sums")
    assert_close(data.y[:, 0], np.array([np.nan if row[3] is None else row[3][1] for row in rows]), "sums")
    assert data.terminated.tolist() == [row[4] for row in rows]


def test_ends_are_the_same_in_every_kind_of_table(tmp_path):
    frame = pd.DataFrame(LOG)
    frame.to_csv(tmp_path / "log.csv", index=False)
    typed = frame.assign(day=pd.to_datetime(frame["day"]), left=pd.to_datetime(frame["left"]))
    days = typed.assign(
        day=(typed["day"] - typed["day"].min()).dt.days, left=(typed["left"] - typed["day"].min()).dt.days
    )
    lasted = typed.assign(day=typed["day"] - typed["day"].min(), left=typed["left"] - typed["day"].min())
    expected = read(ended="died")
    for source in (typed, pl.DataFrame(LOG), pl.from_pandas(days), pa.table(LOG), tmp_path / "log.csv", days, lasted):
        arguments = NAMES | {"observed_until": "left", "ended": "died"}
        if source is days or (isinstance(source, pl.DataFrame) and source["day"].dtype.is_numeric()):
            arguments |= {"step": 7, "until": 27}
        if source is lasted:
            arguments |= {"step": dt.timedelta(days=7), "until": dt.timedelta(days=27)}
        data = Trajectories.from_events(source, **arguments)
        np.testing.assert_array_equal(data.y, expected.y)
        assert_close(data.X, expected.X, "sums")
        assert data.terminated.tolist() == expected.terminated.tolist()


def test_an_end_within_rounding_of_an_edge_is_on_it():
    log = {"id": [1, 1], "day": [0.05, 0.15], "left": [0.1 + 0.2] * 2}  # a bit more than 0.3
    data = read(log, step=0.1, until=0.7)
    assert len(data) == 3
    early = read(log | {"left": [0.3 - 1e-16] * 2}, step=0.1, until=0.7)
    np.testing.assert_array_equal(early.X, data.X)


def test_ends_after_the_log_change_nothing():
    whole = Trajectories.from_events(pd.DataFrame(LOG), **NAMES)
    later = read(changed("left", ["2024-03-01"] * 6) | {"died": [True] * 6}, ended="died")
    nobody = read(changed("left", [None] * 6))
    at_until = read(changed("left", ["2024-01-29"] * 6), ended="died")
    for data in (later, nobody, at_until):
        np.testing.assert_array_equal(data.X, whole.X)
        np.testing.assert_array_equal(data.y, whole.y)
        assert not data.terminated.any()


def test_rates_and_models_go_with_ends():
    random = np.random.default_rng(0)
    who = np.repeat(np.arange(80), 20)
    log = pd.DataFrame({"id": who, "day": random.random(1600) * 30.0})
    end = random.uniform(5.0, 40.0, 80)[who]
    log = log.assign(left=end)[log["day"] <= end]
    arguments = {"step": 1.0, "until": 30.0, "window": 4}
    data = read(log, **arguments)
    model = HorizonLSTD(3, low=0.0).fit(**data.to_arrays(frame="pandas"))
    rate = float(np.mean(model.predict(data.to_arrays(frame="pandas")["X"])) / 3)
    assert abs(rate - 20 / 30) < 0.05
    silent = Trajectories.from_events(log, episode="id", time="day", **arguments)
    assert silent.y[~silent.horizon].mean() < 0.8 * data.y[~data.horizon].mean()


@pytest.mark.parametrize(
    ("columns", "arguments", "message"),
    [
        (
            LOG,
            {"observed_until": None, "ended": "died"},
            "`ended` must be None without `observed_until`, .* got 'died'",
        ),
        (LOG, {"observed_until": "gone"}, "Column 'gone' .`observed_until`. is not in the frame"),
        (LOG, {"observed_until": "died"}, "Column 'died' .*must hold what column 'day' .`time`. holds"),
        (changed("left", [*range(6)]), {}, "Column 'left' .`observed_until`., row 0 .*: must hold what column 'day'"),
        (changed("left", ["2024-02-01Z"] * 6), {}, "Column 'left'"),
        (changed("left", ["2024-02-01T00:00Z"] * 6), {}, "row 0 .* with a time zone or without one"),
        (
            changed("left", ["2024-01-17", None, "2024-01-18", None, None, None]),
            {},
            r"Column 'left' \(`observed_until`\), row 2 \(counting from 0\): differs from another row of the same id",
        ),
        (changed("left", ["2024-01-17", None, None, None, None, None]), {}, "row 2 .*differs from another row"),
        (
            changed("left", ["2024-01-09", None, "2024-01-09", None, None, None]),
            {},
            r"Column 'day' \(`time`\), row 2 .*: is after the end of observation of its id, `observed_until`",
        ),
        (
            changed("died", [True, False, False, True, False, False]),
            {"ended": "died"},
            "Column 'died' .*row 2 .*differs",
        ),
        (changed("died", [False, True] + [False] * 4), {"ended": "died"}, "Column 'died' .*row 4 .*differs"),
        (
            changed("died", [False, True, False, False, True, False]),
            {"ended": "died"},
            "Column 'died' .*row 1 .*: is true, but when the id ended is missing in `observed_until`",
        ),
        (changed("died", [2] * 6), {"ended": "died"}, "Column 'died' .`ended`., row 0"),
        (changed("died", [None] * 6), {"ended": "died"}, "Column 'died' .`ended`., row 0"),
        (
            changed("left", LOG["day"]) | {"id": [*"abcdef"]},
            {},
            "`until` and `observed_until` must leave at least one row",
        ),
        (LOG, {"observed_until": ["left", "day"]}, "`observed_until` must be"),
        (LOG, {"observed_until": False}, "`observed_until` must be"),
        (changed("left", ["2024-01-04"] * 6), {"until": "2024-01-04"}, "is after the end"),
    ],
)
def test_bad_ends_say_what_to_do(columns, arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        read(columns, **arguments)
