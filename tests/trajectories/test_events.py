"""`Trajectories.from_events`: equal steps from a log of events, by their definition, from every kind of table."""

import datetime as dt
import functools
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from numpy.testing import assert_allclose

import naive
from lstd import Trajectories
from lstd.errors import InvalidInputError
from tolerances import assert_close

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")

LOG = {
    "id": ["b", "a", "b", "c", "a", "b", "c"],
    "day": ["2024-01-09", "2024-01-03", "2024-01-01", "2024-01-20", "2024-01-17", "2024-01-09", "2024-02-05"],
    "spend": [1.0, 5.0, 2.0, 3.0, 7.0, 4.0, 9.0],
    "closed": [False, False, False, False, True, False, False],
}
NAMES = {"episode": "id", "time": "day", "step": "week", "until": "2024-01-29"}


def read(columns=LOG, make=pd.DataFrame, **arguments):
    return Trajectories.from_events(make(columns), **(NAMES | arguments))


def changed(name, values):
    return LOG | {name: values}


def days(*texts):
    return [f"2024-{text}" for text in texts]


def test_a_small_log_by_hand():
    data = read(amount="spend", terminated="closed")
    assert data.episode.tolist() == [*"bbbb", *"aa", *"cc"]
    edges = days("01-08", "01-15", "01-22", "01-29")
    assert data.time.astype("M8[D]").astype(str).tolist() == [*edges, *edges[:2], *edges[2:]]
    assert data.terminated.tolist() == [False] * 5 + [True] + [False] * 2
    np.testing.assert_array_equal(data.y, [5, 0, 0, np.nan, 0, 7, 0, np.nan])
    assert data.feature_names == ("n_repeat", "repeat_spend", "first_spend", "since_last", "since_first")
    assert_close(data.X[:3], np.array([[0, 0, 2, 1, 1], [2, 5, 2, 6 / 7, 2], [2, 5, 2, 13 / 7, 3]]), "sums")
    counted = read(amount="spend", terminated="closed", first="counted")
    assert counted.feature_names == ("n_events", "total_spend", "since_last", "since_first")
    assert_close(counted.X[:3], np.array([[1, 2, 1, 1], [3, 7, 6 / 7, 2], [3, 7, 13 / 7, 3]]), "sums")
    np.testing.assert_array_equal(counted.y, data.y)


def test_all_events_at_the_earliest_time_are_first():
    log = {"id": ["a", "a", "a", "b", "a"], "day": days("01-01", "01-09", "01-01", "01-09", "01-23")}
    data = read(log | {"spend": [1.0, 2.0, 4.0, 8.0, 16.0]}, amount="spend")
    assert_close(data.X[:4, :3], np.array([[0, 0, 5], [1, 2, 5], [1, 2, 5], [2, 18, 5]]), "sums")
    assert_close(data.X[4:, :3], np.array([[0, 0, 8]] * 3), "sums")
    later = read(log | {"spend": [1.0, 2.0, 4.0, 8.0, 16.0]}, amount="spend", start="2024-01-22")
    assert_close(later.X[:2, :3], np.array([[1, 2, 5], [2, 18, 5]]), "sums")  # first events before `start` stay first
    numbers = {"id": [0, 0, 0], "day": [0.1 + 0.2, 0.3, 2.9]}  # one edge, up to rounding
    assert read(numbers, step=0.1, until=3.0).X[-1, 0] == 1.0


@pytest.mark.parametrize("first", ["apart", "counted"])
@pytest.mark.parametrize("seed", range(20))
def test_rows_are_those_of_the_definition(seed, first):
    random = np.random.default_rng(seed)
    n, step, until = int(random.integers(1, 60)), random.choice([0.5, 1.0, 3.0]), 12.0
    times = random.integers(0, 30, n) / 2.0  # some at edges, some of the same time, some after `until`
    who, amounts = random.integers(0, 8, n), random.integers(-3, 9, (n, 2)).astype(float)
    ended = np.zeros(n, dtype=bool)
    for name in {*who[random.uniform(size=n) < 0.2].tolist()}:
        own = np.flatnonzero(who == name)
        ended[own[np.argmax(times[own])]] = True
    edges = [until - step * k for k in range(int(20 / step), -1, -1)]
    start = random.choice([None, 4.3])
    if not (times < until).any():
        return
    rows = naive.steps_of_events(
        list(zip(who.tolist(), times.tolist(), amounts.tolist(), ended.tolist(), strict=True)), edges,
        -np.inf if start is None else start, first,
    )  # fmt: skip
    table = pd.DataFrame({"who": who, "at": times, "one": amounts[:, 0], "two": amounts[:, 1], "end": ended})
    arguments = {"episode": "who", "time": "at", "amount": ["one", "two"], "terminated": "end", "step": step}
    arguments["first"] = first
    if not rows:
        with pytest.raises(InvalidInputError, match="at least one row"):
            Trajectories.from_events(table, until=until, start=start, **arguments)
        return
    data = Trajectories.from_events(table, until=until, start=start, **arguments)
    assert data.episode.tolist() == [row[0] for row in rows]
    assert_close(data.time, np.array([edges[row[1]] for row in rows]), "sums")
    assert_close(data.X, np.array([row[2] for row in rows]), "sums")
    assert_close(data.y, np.array([[np.nan] * 2 if row[3] is None else row[3][1:] for row in rows]), "sums")
    assert data.terminated.tolist() == [row[4] for row in rows]
    counts = Trajectories.from_events(table, until=until, start=start, **arguments | {"amount": None})
    assert_close(counts.y, np.array([np.nan if row[3] is None else float(row[3][0]) for row in rows]), "sums")
    number = "n_repeat" if first == "apart" else "n_events"
    assert counts.feature_names == (number, "since_last", "since_first")


@pytest.mark.parametrize("first", ["apart", "counted"])
@pytest.mark.parametrize("seed", range(20))
def test_rates_are_those_of_the_definition(seed, first):
    random = np.random.default_rng(seed)
    n = int(random.integers(5, 60))
    step = random.choice([0.5, 1.0, 3.0])
    window = int(random.integers(1, 6))
    times = random.integers(0, 23, n) / 2.0
    who = random.integers(0, 8, n)
    amounts = random.integers(-3, 9, (n, 2)).astype(float)
    edges = [12.0 - step * k for k in range(int(20 / step), -1, -1)]
    window = min(window, sum(edge > times.min() for edge in edges))  # at most the steps of the log
    start = random.choice([None, 4.3])
    earliest = -np.inf
    if start is not None:
        earliest = start
    events = list(zip(who.tolist(), times.tolist(), amounts.tolist(), [False] * n, strict=True))
    places = [row[1] for row in naive.steps_of_events(events, edges, earliest, first)]
    half = len(edges) - 1 - (len(edges) - 1 - min(places)) // 2
    at = max(place for place in places if place <= half)
    table = pd.DataFrame({"who": who, "at": times, "one": amounts[:, 0], "two": amounts[:, 1]})
    names = {"episode": "who", "time": "at", "step": step, "until": 12.0, "start": start, "first": first}
    read_rates = functools.partial(Trajectories.from_events, table, **names, amount=["one", "two"], window=window)

    data = read_rates()
    expected = naive.rates_of_events(events, edges, window, at, earliest, first)
    assert_close(data.X, np.array(expected), "sums")
    later = read_rates(mean_at=edges[max(places)] - 0.25 * step, age="age")
    expected = naive.rates_of_events(events, edges, window, max(places) - 1, earliest, first)
    assert_close(later.X[:, :-1], np.array(expected), "sums")
    totals = Trajectories.from_events(table, **names)
    np.testing.assert_array_equal(later.X[:, -1], totals.X[:, -1])
    np.testing.assert_array_equal(data.episode, totals.episode)

    by_kind = ["rate", "recent", "active"]
    if first == "counted":
        by_kind = ["all_rate", "all_recent", "all_active"]
    sums = [*by_kind, *(f"{kind}_one" for kind in by_kind), *(f"{kind}_two" for kind in by_kind)]
    if first == "apart":
        sums += ["first_one", "first_two"]
    assert data.feature_names == (*sums, "recency")
    assert later.feature_names == (*sums, "recency", "age")
    count = Trajectories.from_events(table, **names, window=window)
    assert count.feature_names == (*by_kind, "recency")
    assert_close(count.X, data.X[:, [0, 1, 2, -1]], "sums")


def test_rates_of_long_logs_are_those_of_the_definition():
    random = np.random.default_rng(0)
    times = random.integers(0, 60, 80) / 2.0
    who = random.integers(0, 8, 80)
    events = [(name, time, [], False) for name, time in zip(who.tolist(), times.tolist(), strict=True)]
    table = pd.DataFrame({"who": who, "at": times})
    data = Trajectories.from_events(table, episode="who", time="at", step=1.0, until=30.0, window=9, mean_at=2.0)
    assert_close(data.X, np.array(naive.rates_of_events(events, [float(k) for k in range(31)], 9, 2)), "sums")


def test_rates_by_hand():
    log = {"id": ["a", "a", "a", "b"], "day": days("01-05", "01-10", "01-24", "01-19")}
    data = read(log, window=2)  # rows on 8, 15, 22 and 29 January; half-way is the 22nd, one event in 17 and 3 days
    mean = 1 / (20 / 7)
    last = data.X[3]
    since_first = 24 / 7
    rate = (2 + 2 * mean) / (since_first + 2)
    assert_close(last, [rate, (1 + mean) / 3, rate * np.exp(-5 / 7), 5 / 7], "sums")
    rate_of_b = 2 * mean / (3 / 7 + 2)
    assert_close(data.X[4], [rate_of_b, mean, rate_of_b * np.exp(-3 / 7), 3 / 7], "sums")


def test_rates_at_one_moment_are_the_same_in_a_later_log():
    early = read(amount="spend", window=2, mean_at="2024-01-22")
    late = read(amount="spend", window=2, mean_at="2024-01-22", until="2024-02-12")
    kept = late.time <= np.datetime64("2024-01-29")
    np.testing.assert_array_equal(late.X[kept], early.X)


@pytest.mark.filterwarnings("ignore::lstd.errors.PanelWarning")
def test_recent_amounts_have_no_rounding_of_other_ids():
    n = 100
    columns = {"id": np.repeat([0, 1], n), "day": np.tile(np.arange(n), 2), "spend": [1e15 / 3] * n + [0.5] * n}
    data = read(columns, amount="spend", step=1, until=n, window=10, mean_at=1)
    assert data.X[0, 4] == 0.0  # the mean: when the first row began, nothing was counted yet
    assert data.X[-1, 4] == 10 * 0.5 / 11


def test_rows_are_the_same_from_every_kind_of_table_and_file(tmp_path):
    frame = pd.DataFrame(LOG)
    frame.to_csv(tmp_path / "log.csv", index=False)
    frame[:3].to_csv(tmp_path / "one.csv.gz", index=False)
    frame[3:].to_csv(tmp_path / "two.csv", index=False)
    frame.to_parquet(tmp_path / "log.parquet")
    typed = frame.assign(day=pd.to_datetime(frame["day"]))
    sources = {
        "polars": pl.DataFrame(LOG), "lazy": pl.LazyFrame(LOG), "pyarrow": pa.table(LOG), "typed": typed,
        "dates": pl.from_pandas(typed).with_columns(pl.col("day").cast(pl.Date)),
        "ns": pa.table(LOG | {"day": pa.array(typed["day"].to_numpy().astype("M8[ns]"))}),
        "csv": tmp_path / "log.csv", "parquet": str(tmp_path / "log.parquet"),
        "two files": [tmp_path / "one.csv.gz", tmp_path / "two.csv"],
    }  # fmt: skip
    expected = read(amount="spend", terminated="closed")
    for name, source in sources.items():
        data = Trajectories.from_events(source, amount="spend", terminated="closed", **NAMES)
        for field in ("X", "y", "episode", "terminated", "time"):
            np.testing.assert_array_equal(getattr(data, field), getattr(expected, field), err_msg=name)


def test_months_keep_the_day_or_take_the_last_one():
    data = read({"id": [1, 1], "day": ["2023-11-15", "2024-02-29"]}, step="month", until="2024-03-31")
    assert data.time.astype("M8[D]").astype(str).tolist() == [
        "2023-11-30",
        "2023-12-31",
        *days("01-31", "02-29", "03-31"),
    ]
    assert_close(data.y, [0.0, 0.0, 0.0, 1.0, np.nan], "sums")
    years = read({"id": [1], "day": ["2020-03-01"]}, step="2 years", until="2024-02-29")
    assert years.time.astype("M8[D]").astype(str).tolist() == ["2022-02-28", "2024-02-29"]


def test_days_follow_the_clock_of_the_time_zone_of_until():
    zone = ZoneInfo("Europe/Berlin")  # the clock is put forward on 31 March 2024
    local = pd.to_datetime(["2024-03-29 12:00", "2024-03-31 23:30"]).tz_localize("Europe/Berlin")
    data = read({"id": [1, 1], "day": local}, step="day", until=dt.datetime(2024, 4, 2, tzinfo=zone))
    assert data.time.astype("M8[m]").astype(str).tolist() == [
        "2024-03-29T23:00", "2024-03-30T23:00", "2024-03-31T22:00", "2024-04-01T22:00",
    ]  # fmt: skip
    assert_close(data.y, [0.0, 1.0, 0.0, np.nan], "sums")
    text = read({"id": [1], "day": ["2024-03-30T12:00+01:00"]}, step="hour", until="2024-03-30T13:00+00:00")
    assert text.time.astype("M8[h]").astype(str).tolist() == ["2024-03-30T12", "2024-03-30T13"]


@pytest.mark.parametrize(
    ("columns", "arguments", "message"),
    [
        (LOG, {"until": "2024-01-29T00:00Z"}, "`until` must have a time zone if, and only if"),
        (changed("day", [f"{day}T00:00Z" for day in LOG["day"]]), {}, "they have a time zone, and it is 2024-01-29"),
        (LOG, {"until": "soon"}, "`until` must be a date"),
        (LOG, {"until": "2024-01-01"}, "`until` must be after the first event"),
        (LOG, {"start": "2024-02-01"}, "`start` must not be after `until`"),
        (LOG, {"step": "fortnight"}, "`step` must be one of hour, day, week, month, year"),
        (changed("day", [*range(7)]), {"until": 8}, "`step` must be a number, .*'day', holds numbers, such as 0; got"),
        (
            changed("day", [20240101 + i for i in range(7)]),
            {"until": "2024-03-01"},
            r"`until` must be a number, since the column of `time`, 'day', holds numbers, such as 20240101; got "
            r'\'2024-03-01\'. .* `pandas.to_datetime\(column.astype\(str\), format="%Y%m%d"\)` does so',
        ),
        (LOG, {"until": 20240301}, "`until` must be a date, .* got 20240301. Write it as '2024-01-31'"),
        (LOG, {"until": np.datetime64("NaT")}, "`until` must be a date, .* got"),
        (changed("day", [*range(7)]), {"step": 0.0, "until": 8}, "`step` must be"),
        (changed("day", [*range(7)]), {"step": 1e-9, "until": 8}, "at most 1048576 steps"),
        (changed("day", [*LOG["day"][:6], None]), {}, r"Column 'day' \(`time`\), row 6.*has no value"),
        (changed("day", [*LOG["day"][:6], "x"]), {}, r"Column 'day' \(`time`\), row 6.*neither a number nor a date"),
        (changed("spend", [*LOG["spend"][:6], np.inf]), {"amount": "spend"}, r"Column 'spend' .*row 6.*infinite"),
        (changed("closed", [True] * 7), {"terminated": "closed"}, "is true, but later events of the same id follow"),
        (LOG, {"amount": "price"}, "Column 'price' .*is not in the frame"),
        (LOG, {"first": "none"}, "`first` must be one of 'apart', 'counted'; got 'none'"),
        (LOG, {"window": 0}, "`window` must be"),
        (LOG, {"window": 2**63}, r"`window` must be in \[1, 1048576\]; got 9223372036854775808"),
        (LOG, {"window": 5}, "`window` must be at most the number of steps of the log, 4; got 5"),
        (LOG, {"window": np.timedelta64(3, "D")}, "`window` must be an integer; got"),
        (LOG, {"window": 2, "age": "recency"}, "`age` must be the name of a new feature; got 'recency', which is one"),
        (changed("spend", [1e308] * 7), {"amount": "spend"}, "Sums of `amount` must be below 1e308"),
        (
            changed("spend", [5e305] * 7),
            {"amount": "spend", "window": 1500, "mean_at": "2024-01-22", "until": "2060-01-05"},
            "Sums of `amount` must be below 1e308",
        ),
        (changed("day", [*range(7)]), {"step": 1e-320, "until": 8}, "at most 1048576 steps"),
        (LOG, {"mean_at": "2024-01-15"}, "`mean_at` must be None without `window`"),
        (LOG, {"age": "age"}, "`age` must be None without `window`, since 'since_first' is a feature already"),
        (LOG, {"window": 2, "age": 3}, "`age` must be the name of a new feature; got 3"),
        (LOG, {"window": 2, "mean_at": "2023-12-01"}, "`mean_at` must be a moment between the first row and `until`"),
        (LOG, {"window": 2, "mean_at": "2030-01-01"}, "`mean_at` must be a moment between the first row and `until`"),
        (LOG, {"window": 2, "mean_at": 3}, "`mean_at` must be a date"),
        (LOG, {"first": True}, "`first` must be one of 'apart', 'counted'; got True"),
        (LOG, {"amount": ["spend", "spend"]}, "`amount` must name each column once"),
        ({"id": [], "day": []}, {}, "`events` must have at least one row"),
    ],
)  # fmt: skip
def test_what_breaks_a_rule_is_refused(columns, arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        read(columns, **arguments)


def test_files_that_cannot_be_read_are_named(tmp_path):
    (tmp_path / "bad.parquet").write_bytes(b"nothing")
    (tmp_path / "bad.csv").write_text("id,day\n1,2024-01-01\n2\n")
    for name in ("bad.parquet", "bad.csv", "missing.csv"):
        message = "row 2 .* has 1 values where the header names 2 columns" if name == "bad.csv" else "could not be read"
        with pytest.raises(InvalidInputError, match=f"{name}:? {message}"):
            Trajectories.from_events(tmp_path / name, **NAMES)
    (tmp_path / "text.csv").write_text("id,day\n1,2024-01-01\n2,soon\n")
    with pytest.raises(
        InvalidInputError,
        match=r"text.csv: column 'day', row 2 \(the first row of data is 1\): has 'soon', which is neither",
    ):
        Trajectories.from_events(tmp_path / "text.csv", **NAMES)


def test_a_total_has_no_rounding_of_other_ids():
    n = 1000
    columns = {"id": np.repeat([0, 1], n), "day": np.tile(np.arange(n), 2), "spend": [1e15 / 3] * n + [0.1] * n}
    data = read(columns, amount="spend", step=1, until=n)
    assert_close(data.X[-1, 1], 0.1 * (n - 1), "sums")
    assert data.X[-1, 2] == 0.1


def test_amounts_before_the_first_row_keep_their_decimals():
    log = pd.DataFrame({"id": ["a", "b"], "t": [0.5, 1.5], "s": [0.99, 19.95]})
    steps = Trajectories.from_events(log, episode="id", time="t", amount="s", step=1.0, start=2.0, until=2.0)
    assert steps.X[:, 2].tolist() == [0.99, 19.95]
    counted = Trajectories.from_events(
        log, episode="id", time="t", amount="s", step=1.0, start=2.0, until=2.0, first="counted"
    )
    assert counted.X[:, 1].tolist() == [0.99, 19.95]


@pytest.mark.parametrize(("step", "until"), [(0.1, 3.0), (0.7, 100.0), (0.01, 5.0)])
def test_decimals_on_the_grid_begin_their_steps(step, until):
    log = pd.DataFrame({"id": 0, "time": [round(until - k * step, 6) for k in range(20, -1, -1)]})
    data = Trajectories.from_events(log, episode="id", time="time", step=step, until=until, start=log["time"][2])
    assert data.y[:-1].tolist() == [1.0] * 18
    assert len(data) == 19
    np.testing.assert_allclose(data.X[:, -2], 1.0, atol=1e-6)


def test_a_log_of_durations_is_that_of_numbers_of_days():
    numbers = pd.DataFrame({"who": [1, 1, 2, 2], "when": [0.25, 3.5, 1.125, 5.0], "spend": [1.0, 2.0, 3.0, 4.0]})
    names = {"episode": "who", "time": "when", "amount": "spend", "terminated": False}
    expected = Trajectories.from_events(numbers, **names, step=1, until=7)
    durations = numbers.assign(when=pd.to_timedelta(numbers["when"], unit="D"))
    found = Trajectories.from_events(durations, **names, step=dt.timedelta(1), until=np.timedelta64(7, "D"))
    assert_allclose(found.X, expected.X, rtol=1e-12)
    assert found.time / np.timedelta64(1, "D") == pytest.approx(expected.time, rel=1e-12)
    with pytest.raises(InvalidInputError, match="`until` must be a duration, since the column of `time`, 'when'"):
        Trajectories.from_events(durations, **names, step="day", until="2024-01-07")
