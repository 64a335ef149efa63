"""Rules about a row and the next one, of a chunk, a table or two of them: the same on every route, in one wording."""

import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from dask import delayed
from scipy import sparse

import lstd
from lstd import (
    LSTD,
    TD,
    HorizonLSTD,
    LSTDStatistics,
    RecursiveLSTD,
    Trajectories,
    TrueOnlineTD,
    fit_chunks,
    fit_tables,
)
from lstd.data.check_rows import check_rows
from lstd.data.roles import Roles
from lstd.data.rows import COLUMNS, Rows
from lstd.data.settings import Settings
from lstd.data.table import FrameTable
from lstd.errors import InvalidInputError
from lstd.files import pack, unpack
from table_files import fit_files, write

pytestmark = pytest.mark.filterwarnings("ignore::lstd.errors.LSTDWarning")  # four rows are few


class Route(NamedTuple):
    """A way to give two chunks of a stream, or their rows at once."""

    run: object  # from the columns of both chunks to the number of episodes, or None where it is not counted
    takes: tuple = ("X_next", "groups")  # of columns that not all routes take
    joins: bool = False  # whether the rows of both chunks are given at once, or as tables


def frame_of(chunk):
    columns = {name: list(values) for name, values in chunk.items()}
    return pd.DataFrame(columns | {name: chunk[name][:, 0] for name in ("X", "X_next") if name in chunk})


def roles_of(frame):
    roles = {"features": ["X"], "reward": "y", "next_features": ["X_next"]}
    roles |= {name: name for name in ("episode", "terminated", "groups", "time", *COLUMNS)}
    return {name: columns for name, columns in roles.items() if {*np.atleast_1d(columns)} <= {*frame.columns}}


def joined(one, two):
    """The rows of both chunks."""
    return {name: np.concatenate([one[name], two[name]]) if name == "X" else [*one[name], *two[name]] for name in one}


def fitted(estimator, takes=("X_next", "groups")):
    return Route(lambda one, two: estimator().partial_fit(**one).partial_fit(**two).n_episodes_, takes)


def online(make):
    """`partial_fit` of an online estimator, which does not count episodes."""

    def run(one, two):
        make(one).partial_fit(**two)

    return Route(run, ("X_next",))


def begun_by_a_table(takes=("X_next", "groups"), **options):
    """`fit_tables` for the first chunk, and `partial_fit` of the model for the next one."""

    def run(one, two):
        frame = frame_of(one)
        model = fit_tables([frame], gamma=0.5, **roles_of(frame), **options)
        features = {name: pd.DataFrame({"X": two[name][:, 0]}) for name in ("X", "X_next") if name in two}
        return model.partial_fit(**two | features).n_episodes_

    return Route(run, takes)


def in_tables(source, takes=("X_next", "groups", "time"), **options):
    """`fit_tables` of what `source` makes of the frames of both chunks."""

    def run(one, two):
        frames = [frame_of(one), frame_of(two)]
        return fit_tables(source(frames), gamma=0.5, **roles_of(frames[0]), **options).n_episodes_

    return Route(run, takes, joins=True)


def files(ending):
    def source(frames):
        folder = Path(tempfile.mkdtemp())
        return [write(pa.Table.from_pandas(frame), folder / f"{i}{ending}") for i, frame in enumerate(frames)]

    return source


def at_once(fit, takes=("X_next", "groups")):
    """The rows of both chunks as one."""
    return Route(lambda one, two: fit(joined(one, two)), takes, joins=True)


def in_chunks_of_one_row(one, two):
    frame = pd.concat([frame_of(one), frame_of(two)], ignore_index=True)
    roles = roles_of(frame_of(one))
    names = tuple(roles.pop("features")), (roles.pop("reward"),)
    leaf = Roles.of(*names, roles, next_features=tuple(roles.pop("next_features", ())))
    return fit_files([FrameTable("`source`", frame)], leaf, Settings(0.5, 0.5), chunk_rows=1).statistics.n_episodes


def from_frame(columns):
    frame = frame_of(columns)
    return Trajectories.from_frame(frame, **roles_of(frame)).n_episodes


def restored(chunk):
    return RecursiveLSTD.restore(RecursiveLSTD(1, 0.5).partial_fit(**chunk).snapshot())


def loaded(estimator):
    """A model that comes from a file."""

    def run(one, two):
        path = Path(tempfile.mkdtemp()) / "model"
        estimator().partial_fit(**one).save(path)
        return lstd.load(path).partial_fit(**two).n_episodes_

    return Route(run, ("X_next", "groups") if estimator is of_rewards else ("groups",))


def of_rewards():
    return LSTD(0.5)


def of_horizons():
    return HorizonLSTD(2, 0.5, check=False)


def summed(chunk):
    return LSTDStatistics.from_arrays(gamma=0.5, lmbda=0.5, **chunk)


def saved(chunk):
    """Statistics that come from a file."""
    return unpack(LSTDStatistics, *pack(summed(chunk)))


ROUTES = {
    "LSTDStatistics.then": Route(lambda one, two: summed(one).then(summed(two)).n_episodes),
    "LSTDStatistics.then, saved": Route(lambda one, two: saved(one).then(saved(two)).n_episodes),
    "fit_chunks": Route(lambda one, two: fit_chunks([one, two], gamma=0.5).n_episodes_),
    "fit_chunks, chosen": Route(lambda one, two: fit_chunks([one, two], gamma=0.5, alpha="auto").n_episodes_),
    "fit_chunks on Dask": Route(lambda one, two: fit_chunks([delayed(one), delayed(two)], gamma=0.5).n_episodes_),
    "LSTD": fitted(of_rewards),
    "LSTD, loaded": loaded(of_rewards),
    "HorizonLSTD": fitted(of_horizons, ("groups", "time")),
    "HorizonLSTD, loaded": loaded(of_horizons),
    "fit_tables, then LSTD": begun_by_a_table(),
    "fit_tables, then HorizonLSTD": begun_by_a_table(("groups",), horizon=2, check=False),
    "RecursiveLSTD": online(lambda one: RecursiveLSTD(1, 0.5).partial_fit(**one)),
    "RecursiveLSTD, restored": online(restored),
    "TD": online(lambda one: TD(1, 0.5).partial_fit(**one)),
    "TrueOnlineTD": online(lambda one: TrueOnlineTD(1, 0.5).partial_fit(**one)),
    "LSTD.fit": at_once(lambda rows: of_rewards().fit(**rows).n_episodes_),
    "HorizonLSTD.fit": at_once(lambda rows: of_horizons().fit(**rows).n_episodes_, ("groups", "time")),
    "RecursiveLSTD, at once": at_once(lambda rows: RecursiveLSTD(1, 0.5).partial_fit(**rows) and None, ("X_next",)),
    "Trajectories": at_once(lambda rows: Trajectories(**rows).n_episodes, ("groups", "time")),
    "Trajectories.from_frame": at_once(from_frame, ("groups", "time")),
    "fit_tables of one frame": in_tables(lambda frames: pd.concat(frames, ignore_index=True)),
    "fit_tables of frames": in_tables(list),
    "fit_tables of CSV": in_tables(files(".csv")),
    "fit_tables of Parquet": in_tables(files(".parquet")),
    "fit_tables on Dask": in_tables(lambda frames: [delayed(frame) for frame in frames]),
    "fit_tables of horizons": in_tables(list, ("groups", "time"), horizon=2, check=False),
    "tables in chunks of one row": Route(in_chunks_of_one_row, ("X_next", "groups", "time"), joins=True),
}


def chunk(**columns):
    """Two rows of one episode that goes on."""
    rows = {"X": np.array([[1.0], [2.0]]), "y": np.ones(2), "episode": [7, 7], "terminated": [False, False]}
    rows |= columns
    return {name: values for name, values in rows.items() if values is not None}


ENDED = (
    "may be true only on the last row of an episode",
    "is followed by a row of the same episode, ",
    "Rows that are not sorted by time are the likely cause: sort them, or give the rows after it another id.",
)
MISSING = (
    "must be finite on every row but the last one of an episode that did not terminate",
    "has no value",
    "If its episode was cut off there, give the rows after it another id, and sort the rows by time. Else correct or "
    "impute it: dropping rows inside an episode loses rewards and ends.",
)
TORN = (
    "must be the same on all rows of an episode",
    "has 2, and the row before it, of the same episode, has 1",
    "Give rows of different groups different ids of episodes.",
)
IN_ORDER = "must increase within each episode"
EARLIER = (IN_ORDER, "is earlier than the row before it, of the same episode", "Sort the rows of each episode by time.")
AT_ONCE = (IN_ORDER, "has the time of the row before it, of the same episode", "Drop or merge such rows.")
REAPPEARS = (
    "reappears after other episodes; sort the rows by episode and time (a stable sort by episode keeps the order of "
    "time), or give new episodes new ids.",
)
GROUP_REAPPEARS = ("reappears after other groups; sort the rows by group, episode and time.",)
BROKEN = {
    "the id of an episode that terminated": ({"terminated": [False, True]}, {}, ENDED),
    "the same id as text": ({"terminated": [False, True]}, {"episode": ["7", "7"]}, ENDED),
    "no reward on a row that goes on": ({"y": [1.0, np.nan]}, {}, MISSING),
    "no discount on a row that goes on": ({"discount": [0.5, np.nan]}, {"discount": [0.5, 0.5]}, MISSING),
    "an episode in two groups": ({"groups": [1, 1]}, {"groups": [2, 2]}, TORN),
    "time that goes back": ({"time": [1, 2]}, {"time": [1, 2]}, EARLIER),
    "time that stands still": ({"time": [1, 2]}, {"time": [2, 3]}, AT_ONCE),
    "an id that reappears": ({"episode": [6, 7], "terminated": [True, True]}, {"episode": [8, 6]}, REAPPEARS),
    "a group that reappears": (
        {"episode": [6, 7], "groups": [1, 2], "terminated": [True, True]}, {"episode": [8, 9], "groups": [3, 1]},
        GROUP_REAPPEARS,
    ),
}  # fmt: skip
GIVEN_FOR_SOME = {
    "ids for the first chunk only": ({}, {"episode": None}, "episode"),
    "ids for the second chunk only": ({"episode": None}, {}, "episode"),
    "groups for the first chunk only": ({"groups": [1, 1]}, {}, "groups"),
    "groups for the second chunk only": ({}, {"groups": [1, 1]}, "groups"),
    "successors for the first chunk only": ({"X_next": np.ones((2, 1))}, {}, "X_next"),
    "successors for the second chunk only": ({}, {"X_next": np.ones((2, 1))}, "X_next"),
}
FITTING = {
    "the same episode": ({}, {}, 1),
    "the same id of another type": ({"episode": ["7", "7"]}, {}, 1),
    "another episode": ({}, {"episode": [8, 8]}, 2),
    "without ids": ({"episode": None}, {"episode": None}, 1),
    "without ids, after an end": ({"episode": None, "terminated": [False, True]}, {"episode": None}, 2),
    "no reward on a row that does not go on": ({"y": [1.0, np.nan]}, {"episode": [8, 8]}, 2),
    "another group and episode": ({"groups": [1, 1]}, {"groups": [2, 2], "episode": [8, 8]}, 2),
    "another episode of the group": ({"groups": [1, 1]}, {"groups": ["1", "1"], "episode": [8, 8]}, 2),
    "another episode at an earlier time": ({"time": [1, 2]}, {"time": [1, 2], "episode": [8, 8]}, 2),
}


def takes(route, *chunks):
    asked = {name for chunk in chunks for name in chunk} & {"X_next", "groups", "time"}
    return asked <= {*ROUTES[route].takes}


@pytest.mark.parametrize("case", BROKEN)
@pytest.mark.parametrize("route", ROUTES)
def test_rows_that_may_not_follow_are_refused_in_the_same_words(route, case):
    one, two, words = BROKEN[case]
    if not takes(route, one, two) or not remembers(route, case):
        return
    with pytest.raises(InvalidInputError) as error:
        ROUTES[route].run(chunk(**one), chunk(**two))
    missing = [text for text in words if text not in str(error.value)]
    assert not missing, str(error.value)


KNOW_THE_LAST_ID = (  # of the ids before
    "LSTDStatistics.then", "LSTDStatistics.then, saved", "LSTD, loaded", "HorizonLSTD, loaded",
    "RecursiveLSTD, restored", "TD", "TrueOnlineTD", "fit_tables, then HorizonLSTD",
)  # fmt: skip


def remembers(route, case):
    """Whether a route knows all ids so far where those matter."""
    if case == "a group that reappears" and ROUTES[route].joins and "tables" not in route:
        return False  # fits of arrays take groups in any order
    return "reappears" not in case or route not in KNOW_THE_LAST_ID


@pytest.mark.parametrize("case", GIVEN_FOR_SOME)
@pytest.mark.parametrize("route", [name for name, route in ROUTES.items() if not route.joins])
def test_columns_are_given_for_all_chunks_or_none(route, case):
    one, two, name = GIVEN_FOR_SOME[case]
    if not takes(route, one, two):
        return
    with pytest.raises(InvalidInputError) as error:
        ROUTES[route].run(chunk(**one), chunk(**two))
    assert f"`{name}` must be given for all chunks of a stream or for none." in str(error.value)


@pytest.mark.parametrize("case", FITTING)
@pytest.mark.parametrize("route", ROUTES)
def test_rows_that_may_follow_are_taken(route, case):
    one, two, n_episodes = FITTING[case]
    if case == "another episode of the group" and route == "fit_chunks, chosen":
        return  # which needs two groups
    if takes(route, one, two):
        assert ROUTES[route].run(chunk(**one), chunk(**two)) in (n_episodes, None)


@pytest.mark.parametrize("form", ["dense", "float32", "sparse", "successors"])
@pytest.mark.parametrize("ids", [None, [7, 7], ["a", "a"], np.array(["2024-01-31", "2024-01-31"], "M8[D]")])
def test_rows_that_a_stream_keeps_come_back_from_a_file(form, ids):
    X = np.array([[1.0, 0.0], [2.0, 3.0]])
    given = {name: [0.25, 0.5] for name in COLUMNS} | {"episode": ids, "groups": ids, "y": [[1.0, 2.0], [3.0, np.nan]]}
    if form == "successors":
        given |= {"X_next": X + 1.0, "y": np.ones((2, 2))}
    features = {"sparse": sparse.csr_array(X), "float32": X.astype(np.float32)}.get(form, X)
    rows = check_rows(features, given.pop("y"), gamma=0.5, **given, summed=True, warn=False)
    for kept in (rows.last_row, rows.with_intercept().last_row, rows.with_intercept(np.ones(2)).kept(slice(0, 2))):
        again = unpack(Rows, *pack(kept))
        assert {*vars(again)} >= {*vars(kept)}
        for name, values in vars(kept).items():
            other = getattr(again, name)
            if name in ("episode", "groups") and values is not None:
                assert list(map(str, other)) == list(map(str, values))
            else:
                np.testing.assert_array_equal(other, values)
        for t in range(len(kept)):
            np.testing.assert_array_equal(again.row(again.X, t), kept.row(kept.X, t))
        assert not kept.X.flags.writeable
