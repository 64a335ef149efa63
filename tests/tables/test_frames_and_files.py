"""Logs as people have them: a plain loop, `Trajectories.from_frame` and `lstd.fit_tables` see the same rows."""

from __future__ import annotations

import datetime as dt
import math
import uuid

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import lstd
from lstd import LSTD, Trajectories
from lstd.errors import InvalidInputError

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")


def nullable(frame):
    """Columns of nullable types; pandas 2 casts infinite numbers to integers to see whether they are some."""
    with np.errstate(invalid="ignore"):
        return frame.convert_dtypes()


FRAMES = {
    "pandas": pd.DataFrame,
    "nullable": lambda columns: nullable(pd.DataFrame(columns)),
    "category": lambda columns: pd.DataFrame(columns).astype({"id": "category"}),
    "polars": pl.DataFrame,
    "arrow": pa.table,
}
SETTINGS = {"gamma": 0.9, "lmbda": 0.5}
ROLES = {"features": ["x"], "reward": "r", "episode": "id", "terminated": "end"}
ORDER = [3, 0, 6, 4, 2, 7, 1, 5]  # an unsorted log, in which ids appear as 1, 0, 2

# A log of three episodes: one that ends for good, one of its last row alone, one that is still going on.
LOG = {
    "id": [0, 0, 0, 1, 1, 1, 1, 2],
    "x": [0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5],
    "r": [0.0, 0.0, 7.0, 1.0, 2.0, 3.0, None, None],
    "end": [0, 0, 1, 0, 0, 0, 0, 0],
}
START = dt.datetime(2024, 3, 30, 23)
DAYS = [0, 1, 4, 0, 2, 3, 9, 0]
IDS = {
    "integers": [0, 1, 2],
    "text": ["c-01", "C-01", "c-1"],
    "text of numbers": ["7", "07", "-7"],
    "floats": [1.5, 2.5, 3.5],
    "dates": [START.date() + dt.timedelta(i) for i in range(3)],
    "uuids": [uuid.UUID(int=7 + i) for i in range(3)],
}
TIMES = {
    "integers": lambda day: 2**60 + day,  # nanoseconds since 1970, which float64 rounds
    "text of numbers": lambda day: str(day + 7),  # "10" comes after "7"
    "dates": lambda day: START.date() + dt.timedelta(day),
    "times": lambda day: START + dt.timedelta(microseconds=day),
    "times of a zone": lambda day: (START + dt.timedelta(day)).replace(tzinfo=dt.UTC),
    "text of dates": lambda day: str(START.date() + dt.timedelta(day)),
    "text with zones": lambda day: f"2024-03-30T{10 + day + 2 * (day % 2)}:30:00{'+02:00' if day % 2 else 'Z'}",
    "durations": dt.timedelta,
}
FLAGS = {
    "booleans": [False, True],
    "text": ["False", "True"],
    "words": ["no", " YES "],
    "floats": [0.0, 1.0],
    "digits": ["0", "1"],
}


def plain_loop(log, times=None):
    """Rows by a plain loop over a log of Python values: sort, then cut episodes where the id changes."""
    appearance = list(dict.fromkeys(log["id"]))
    rows = list(range(len(log["id"])))
    if times is not None:
        rows.sort(key=lambda i: (appearance.index(log["id"][i]), times[i]))
    ends = [log["end"][i] for i in rows]
    ids = [log["id"][i] for i in rows]
    X = [[log["x"][i]] for i in rows]
    y = [math.nan if log["r"][i] is None else log["r"][i] for i in rows]
    return X, y, ids, ends


def check(log, roles, expected, tmp_path, kinds=tuple(FRAMES)):
    """Compare the rows of `log` in each kind of frame, and the model of a frame and of a file, with the plain loop."""
    X, y, ids, ends = expected
    judge = LSTD(**SETTINGS).fit(X, y, episode=ids, terminated=np.array(ends, dtype=bool))
    for kind in kinds:
        frame = FRAMES[kind](log)
        data = Trajectories.from_frame(frame, **roles)
        assert_array_equal(data.X, X, err_msg=kind)
        assert_array_equal(data.y, y, err_msg=kind)
        assert_array_equal(data.terminated, np.array(ends, dtype=bool), err_msg=kind)
        assert_array_equal(data.episode[1:] != data.episode[:-1], np.array(ids[1:]) != np.array(ids[:-1]), err_msg=kind)
        assert_allclose(lstd.fit_tables(frame, **roles, **SETTINGS).coef_, judge.coef_, rtol=1e-12, err_msg=kind)
    if tmp_path is not None:
        file = tmp_path / "log.csv"
        pd.DataFrame(log).to_csv(file, index=False)
        assert_allclose(lstd.fit_tables(file, **roles, **SETTINGS).coef_, judge.coef_, rtol=1e-12)


def shuffled(log):
    return {name: [values[i] for i in ORDER] for name, values in log.items()}


@pytest.mark.parametrize("kind", IDS)
def test_forms_of_ids(kind, tmp_path):
    kinds = ("pandas", "nullable") if kind == "uuids" else tuple(FRAMES)
    check(LOG | {"id": [IDS[kind][i] for i in LOG["id"]]}, ROLES, plain_loop(LOG), tmp_path, kinds)


@pytest.mark.parametrize("kind", FLAGS)
def test_forms_of_flags(kind, tmp_path):
    check(LOG | {"end": [FLAGS[kind][i] for i in LOG["end"]]}, ROLES, plain_loop(LOG), tmp_path)


@pytest.mark.parametrize("kind", TIMES)
def test_forms_of_times_in_an_unsorted_log(kind, tmp_path):
    log = shuffled(LOG | {"time": [TIMES[kind](day) for day in DAYS]})
    log["id"] = [f"customer {i}" for i in log["id"]]
    days = [DAYS[i] for i in ORDER]
    roles = ROLES | {"time": "time", "sort": True}
    check(log, roles, plain_loop(log, days), None if kind == "durations" else tmp_path)  # pandas writes "10 days"


def test_mixed_objects_of_pandas_are_read_as_text():
    log = LOG | {"id": pd.Series([0, 0, 0, "b", "b", "b", "b", "c"], dtype=object)}
    texts = LOG | {"id": [str(name) for name in log["id"]]}
    frames = pd.DataFrame(log), pd.DataFrame(texts)
    assert len({lstd.fit_tables(frame, **ROLES, **SETTINGS).coef_.tobytes() for frame in frames}) == 1
    assert Trajectories.from_frame(frames[0], **ROLES).episode.tolist() == texts["id"]


def test_integers_beyond_float64_are_rounded_alike():
    log = LOG | {"x": [2**53 + 1, *range(7)]}
    check(log, ROLES, plain_loop(log), None)


@pytest.mark.parametrize("kind", [pl.Categorical, pl.Enum(["no", "yes"])])
def test_categories_of_polars(kind):
    frame = pl.DataFrame(LOG | {"end": [("no", "yes")[i] for i in LOG["end"]]}).with_columns(pl.col("end").cast(kind))
    for sort in ({}, {"time": "x", "sort": True}):
        data = Trajectories.from_frame(frame, **ROLES, **sort)
        assert data.terminated.tolist() == [bool(i) for i in LOG["end"]]
        model = lstd.fit_tables(frame, **ROLES, **SETTINGS, **sort)
        assert_allclose(model.coef_, LSTD(**SETTINGS).fit(**data.to_arrays()).coef_, rtol=1e-12)


def test_sparse_columns_of_pandas():
    frame = pd.DataFrame(LOG).astype({"x": "Sparse[float]", "end": pd.SparseDtype(int, 0)})
    data = Trajectories.from_frame(frame, **ROLES)
    assert (data.X[:, 0].tolist(), int(data.terminated.sum())) == (LOG["x"], 1)
    model = lstd.fit_tables(frame, **ROLES, **SETTINGS)
    assert_allclose(model.coef_, LSTD(**SETTINGS).fit(**data.to_arrays()).coef_, rtol=1e-12)


def test_bytes_of_polars_are_ids():
    log = LOG | {"id": [b"abc"[i : i + 1] for i in LOG["id"]]}
    check(log, ROLES, plain_loop(LOG), None, kinds=["polars", "arrow"])


TIMES_OF_DAYS = [START + dt.timedelta(i) for i in range(8)]
BAD = {
    "a reward is missing": ({"r": [0.0, None, 7.0, 1.0, 2.0, 3.0, None, None]}, {}, "'r'.* row {1}.*no value"),
    "an event after the end": ({"end": [0, 1, 0, 0, 0, 0, 0, 0]}, {}, "'end'.* row {1}.*next row is of the same"),
    "an id reappears": ({"id": [0, 0, 0, 1, 1, 0, 2, 3]}, {}, "'id'.* row {5}.*0'? reappears.*sort"),
    "a feature is NaN": ({"x": [0.5, math.nan, *range(6)]}, {}, "'x'.* row {1}.*no value.*impute"),
    "a flag is empty": ({"end": ["0", "0", "1", "0", "", "0", "0", "0"]}, {}, "'end'.* row {4}.*0 if the ep"),
    "a feature is true": ({"x": ["0.5", "True", *"234567"]}, {}, "'x'.* row {1}.*write 1 for true"),
    "decimal commas": ({"x": ["0.5", "1,5", *"234567"]}, {}, "'x'.* row {1}.*write a point before decimals"),
    "two rows of one time": ({"t": [0, 1, 1, 3, 4, 5, 6, 7]}, {"time": "t"}, "'t'.* row {2}.*has the time of"),
    "an infinite time": ({"t": [0.0, 1.0, math.inf, 3, 4, 5, 6, 7]}, {"time": "t"}, "'t'.* row {2}.*is infinite"),
    "a missing time": ({"t": [*TIMES_OF_DAYS[:3], None, *TIMES_OF_DAYS[4:]]}, {"time": "t"}, "'t'.* row {3}.*no value"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("kind", FRAMES)
def test_bad_logs_are_refused_at_the_same_row(case, kind):
    changes, roles, message = BAD[case]
    frame = FRAMES[kind](LOG | changes)
    for read, first in (
        (Trajectories.from_frame, 0),
        (lambda *of, **roles: lstd.fit_tables(*of, **roles, gamma=0.9), 1),
    ):
        places = [first + i for i in range(8)]
        with pytest.raises(InvalidInputError, match=message.format(*places)):
            read(frame, **(ROLES | roles))
