"""`TerminationWarning`: subjects who are still active, marked as ended in their last row."""

import warnings

import numpy as np
import pytest

import lstd
from lstd import Trajectories
from lstd.errors import TerminationWarning

pd = pytest.importorskip("pandas")

ROLES = {"features": ["x"], "reward": "y", "episode": "id", "terminated": "done", "time": "week"}


def log(*, active="horizon", n_weeks=30, joins=20, leave=0.02, n=200, seed=1):
    """Draw subjects who join in the first weeks and may leave; those still active get a horizon row, or look closed."""
    random, rows = np.random.default_rng(seed), []
    for subject in range(n):
        first, life = random.integers(joins) if joins else 0, random.geometric(leave)
        end = min(first + life, n_weeks)
        ended = first + life <= n_weeks
        for week in range(first, end):
            done = week == end - 1 and (ended or active == "closed")
            rows.append((subject, week, random.normal(), 1.0, done))
        if not ended and active == "horizon":
            rows.append((subject, end, random.normal(), np.nan, False))
    return pd.DataFrame(rows, columns=["id", "week", "x", "y", "done"])


def halves(table):
    return [table[table["id"] < 100], table[table["id"] >= 100]]


@pytest.mark.parametrize("kind", [float, "M8[s]"])
def test_active_subjects_that_look_closed_are_reported(kind):
    table = log(active="closed")
    table["week"] = table["week"].astype("int64").astype(kind)
    with pytest.warns(TerminationWarning, match=r"^\d+ of 200 ends \(`terminated`\) lie at the latest time") as given:
        Trajectories.from_frame(table, **ROLES)
    assert "Leave `terminated` false for them" in str(given[0].message)
    assert given[0].filename == __file__


def test_times_that_differ_within_a_step_are_one_for_arrays_and_frames():
    random = np.random.default_rng(0)
    for active, reported in (("closed", True), ("horizon", False)):
        table = log(active=active)
        table["week"] = table["week"] + random.uniform(0.0, 0.3, 200)[table["id"]]
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            Trajectories.from_frame(table, **ROLES)
            Trajectories(table[["x"]], table["y"], table["id"], table["done"], time=table["week"])
        assert [w.category for w in given] == [TerminationWarning] * 2 * reported
        assert {w.filename for w in given} <= {__file__}


@pytest.mark.parametrize("ways", [{}, {"n_jobs": 2}])
def test_tables_count_as_one_frame_does(ways):
    table = log(active="closed")
    with pytest.warns(TerminationWarning) as one:
        Trajectories.from_frame(table, **ROLES)
    with pytest.warns(TerminationWarning) as given:
        lstd.fit_tables(halves(table), gamma=0.9, **ROLES, **ways)
    assert [str(w.message) for w in given] == [str(w.message) for w in one]


@pytest.mark.parametrize("ways", [{"leave": 0.02}, {"leave": 0.3}, {"leave": 0.5, "n": 12}])
@pytest.mark.parametrize("seed", range(5))
def test_logs_with_horizon_rows_are_right(seed, ways):
    Trajectories.from_frame(log(seed=seed, **ways), **ROLES)  # warnings are errors


def test_episodes_of_a_fixed_length_on_a_clock_of_their_own_are_right():
    Trajectories.from_frame(log(active="closed", joins=0, leave=1e-9), **ROLES)
