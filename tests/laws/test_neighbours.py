"""Rules about the last row of a chunk and the first row of the next one: the same on every route, with one message."""

from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from lstd import LSTD, TD, HorizonLSTD, LSTDStatistics, RecursiveLSTD, TrueOnlineTD, fit_chunks, fit_tables
from lstd.data.check_rows import check_rows
from lstd.data.rows import COLUMNS, Rows
from lstd.errors import InvalidInputError
from lstd.files import pack, unpack

pytestmark = pytest.mark.filterwarnings("ignore::lstd.errors.LSTDWarning")  # four rows are few


class Route(NamedTuple):
    """A way to give two chunks of a stream."""

    first: object  # from the columns of a chunk to a state
    then: object  # from a state and the columns of the next chunk to the number of episodes
    takes: tuple = ("X_next", "groups")


def fitted(estimator, takes=("X_next", "groups")):
    def first(chunk):
        return estimator().partial_fit(**chunk)

    def then(model, chunk):
        return model.partial_fit(**chunk).n_episodes_

    return Route(first, then, takes)


def table_first(takes=("X_next", "groups"), **options):
    """`fit_tables` for the first chunk, and `partial_fit` of the model for the next one."""

    def first(chunk):
        frame = pd.DataFrame(chunk | {name: chunk[name][:, 0] for name in ("X", "X_next") if name in chunk})
        names = {"features": ["X"], "reward": "y", "next_features": ["X_next"]}
        names |= {name: name for name in ("episode", "terminated", "groups")}
        given = {name: one for name, one in names.items() if {*np.atleast_1d(one)} <= {*frame.columns}}
        return fit_tables([frame], gamma=0.5, **given, **options)

    def then(model, chunk):
        features = {name: pd.DataFrame({"X": chunk[name][:, 0]}) for name in ("X", "X_next") if name in chunk}
        return model.partial_fit(**chunk | features).n_episodes_

    return Route(first, then, takes)


def online(estimator):
    """`partial_fit` of an online estimator, which does not count episodes."""

    def first(chunk):
        return estimator().partial_fit(**chunk)

    def then(model, chunk):
        model.partial_fit(**chunk)
        return

    return Route(first, then, ("X_next",))


def restored(chunk):
    return RecursiveLSTD.restore(RecursiveLSTD(1, 0.5).partial_fit(**chunk).snapshot())


def summed(chunk):
    return LSTDStatistics.from_arrays(gamma=0.5, lmbda=0.5, **chunk)


def saved(chunk):
    """Statistics that come from a file."""
    return unpack(LSTDStatistics, *pack(summed(chunk)))


def both_chunks(first, then):
    return fit_chunks([first, then], gamma=0.5).n_episodes_


ROUTES = {
    "LSTDStatistics.then": Route(summed, lambda one, two: one.then(summed(two)).n_episodes),
    "LSTDStatistics.then, saved": Route(saved, lambda one, two: one.then(saved(two)).n_episodes),
    "fit_chunks": Route(lambda chunk: chunk, both_chunks),
    "LSTD": fitted(lambda: LSTD(0.5)),
    "HorizonLSTD": fitted(lambda: HorizonLSTD(2, 0.5, check=False), ("groups",)),
    "fit_tables": table_first(),
    "RecursiveLSTD": online(lambda: RecursiveLSTD(1, 0.5)),
    "RecursiveLSTD, restored": online(None)._replace(first=restored),
    "TD": online(lambda: TD(1, 0.5)),
    "TrueOnlineTD": online(lambda: TrueOnlineTD(1, 0.5)),
    "fit_tables of horizons": table_first(("groups",), horizon=2),
}


def chunk(**columns):
    """Two rows of one episode that goes on."""
    rows = {"X": np.array([[1.0], [2.0]]), "y": np.ones(2), "episode": [7, 7], "terminated": [False, False]}
    rows |= columns
    return {name: values for name, values in rows.items() if values is not None}


BROKEN = {
    "the id of an episode that terminated": (
        {"terminated": [False, True]}, {},
        "This chunk begins with `episode` 7, which terminated on the last row of the chunk before",
    ),
    "the same id as text": (
        {"terminated": [False, True]}, {"episode": ["7", "7"]},
        "This chunk begins with `episode` 7, which terminated on the last row of the chunk before",
    ),
    "ids for the first chunk only": ({}, {"episode": None}, "`episode` must be given for all chunks of a stream or"),
    "ids for the second chunk only": ({"episode": None}, {}, "`episode` must be given for all chunks of a stream or"),
    "no reward on a row that goes on": ({"y": [1.0, np.nan]}, {}, "`y` must be finite on a row whose episode"),
    "groups for the first chunk only": ({"groups": [1, 1]}, {}, "`groups` must be given for all chunks of a stream or"),
    "groups for the second chunk only": ({}, {"groups": [1, 1]}, "`groups` must be given for all chunks of a stream"),
    "an episode in two groups": (
        {"groups": [1, 1]}, {"groups": [2, 2]},
        "`groups` must be the same on all rows of an episode; one chunk ends with 1, and the next one, which continues "
        "its episode, begins with 2",
    ),
    "successors for the first chunk only": (
        {"X_next": np.ones((2, 1))}, {}, "`X_next` must be given for all chunks of a stream or for none",
    ),
    "successors for the second chunk only": (
        {}, {"X_next": np.ones((2, 1))}, "`X_next` must be given for all chunks of a stream or for none",
    ),
}  # fmt: skip
FITTING = {
    "the same episode": ({}, {}, 1),
    "the same id of another type": ({"episode": ["7", "7"]}, {}, 1),
    "another episode": ({}, {"episode": [8, 8]}, 2),
    "without ids": ({"episode": None}, {"episode": None}, 1),
    "without ids, after an end": ({"episode": None, "terminated": [False, True]}, {"episode": None}, 2),
    "no reward on a row that does not go on": ({"y": [1.0, np.nan]}, {"episode": [8, 8]}, 2),
    "another group and episode": ({"groups": [1, 1]}, {"groups": [2, 2], "episode": [8, 8]}, 2),
    "another episode of the group": ({"groups": [1, 1]}, {"groups": ["1", "1"], "episode": [8, 8]}, 2),
}


def takes(route, *chunks):
    return all(name in ROUTES[route].takes or name not in ("X_next", "groups") for chunk in chunks for name in chunk)


@pytest.mark.parametrize("case", BROKEN)
@pytest.mark.parametrize("route", ROUTES)
def test_rows_that_may_not_follow_are_refused_in_the_same_words(route, case):
    one, two, message = BROKEN[case]
    if not takes(route, one, two):
        return
    state = ROUTES[route].first(chunk(**one))
    with pytest.raises(InvalidInputError) as error:
        ROUTES[route].then(state, chunk(**two))
    assert message in str(error.value)


@pytest.mark.parametrize("case", FITTING)
@pytest.mark.parametrize("route", ROUTES)
def test_rows_that_may_follow_are_taken(route, case):
    one, two, n_episodes = FITTING[case]
    if takes(route, one, two):
        assert ROUTES[route].then(ROUTES[route].first(chunk(**one)), chunk(**two)) in (n_episodes, None)


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
