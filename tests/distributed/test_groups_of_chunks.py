"""Groups in chunks and tables: one may continue in the next, none comes again, and no block divides one."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lstd import LSTD, fit_chunks, fit_tables
from lstd.data.identity import identity
from lstd.data.roles import Roles
from lstd.data.seen_ids import SeenIds
from lstd.data.settings import Settings
from lstd.data.table import FrameTable
from lstd.errors import InvalidInputError
from table_files import fit_files
from tolerances import assert_close

pytestmark = pytest.mark.filterwarnings(  # rewards are drawn at random
    *(f"ignore::lstd.errors.{what}Warning" for what in ("UnusedReward", "Bias", "Misfit"))
)

SETTINGS = {"gamma": 0.9, "lmbda": 0.7}
NAMES = ("X", "y", "episode", "terminated", "groups")
THREADS = {"n_jobs": 3}


def data(n_groups=30, text=True):
    """Groups of one to four episodes of one to four rows, as arrays by name."""
    random = np.random.default_rng(n_groups)
    groups = np.repeat(np.arange(n_groups), random.integers(1, 5, n_groups))
    episode = np.repeat(np.arange(len(groups)), random.integers(1, 5, len(groups)))
    T, groups = len(episode), groups[episode]
    last = np.append(np.diff(episode) > 0, True)
    names = np.array([f"patient {i:03}" for i in groups]) if text else groups
    X = random.normal(size=(T, 2))
    y = X.sum(axis=1) + groups % 5 + random.normal(size=T)
    return dict(zip(NAMES, (X, y, episode, last & (episode % 3 > 0), names), strict=True))


def parts(arrays, edges):
    return [{name: values[a:b] for name, values in arrays.items()} for a, b in pairwise(edges)]


@pytest.mark.parametrize("text", [True, False])
def test_a_group_that_comes_again_in_a_later_chunk_is_refused_by_name(text):
    arrays = data(text=text)
    arrays["groups"][-1] = arrays["groups"][0]
    arrays["episode"][-1] = 999
    T = len(arrays["y"])
    name = repr(arrays["groups"][0].item())
    with pytest.raises(InvalidInputError, match=rf"source\[.\]` and `source\[.\].*group {name} reappears after"):
        fit_chunks(parts(arrays, [0, T // 3, T // 2, T]), **SETTINGS)
    with pytest.raises(InvalidInputError, match=rf"`source\[0\]`: .*at row {T - 1}, group {name} reappears after"):
        fit_chunks([arrays], **SETTINGS)


def test_groups_are_given_for_all_chunks_or_for_none():
    arrays = data()
    chunks = parts(arrays, [0, 20, len(arrays["y"])])
    del chunks[1]["groups"]
    with pytest.raises(InvalidInputError, match="`groups` must be given for all chunks of a stream or for none"):
        fit_chunks(chunks, **SETTINGS)
    for choice in ("lmbda", "alpha"):
        with pytest.raises(InvalidInputError, match="`groups` must be given for all chunks of a stream or for none"):
            fit_chunks(chunks, gamma=0.9, **{choice: "auto"})


# ---------------------------------------------------------------- tables

ROLES = {"features": ["x0", "x1"], "reward": "r", "episode": "ep", "terminated": "done", "groups": "who"}


def frame(arrays):
    columns = {"x0": arrays["X"][:, 0], "x1": arrays["X"][:, 1], "r": arrays["y"], "ep": arrays["episode"]}
    return pd.DataFrame(columns | {"done": arrays["terminated"].astype(int), "who": arrays["groups"]})


def cut(table, edges):
    return [table.iloc[a:b] for a, b in pairwise(edges)]


@settings(derandomize=True, deadline=None, max_examples=4)
@given(st.lists(st.integers(0, 150), max_size=8), st.booleans(), st.sampled_from([1, 5, None]))
def test_tables_that_cut_groups_are_those_of_whole_data(cuts, text, chunk_rows):
    arrays = data(text=text)
    T = len(arrays["y"])
    tables = cut(frame(arrays), sorted({0, T, *(min(cut, T) for cut in cuts)}))
    whole = LSTD(**SETTINGS).fit(**arrays)
    leaf_roles = Roles(("x0", "x1"), ("r",), "ep", "done", groups="who")
    opened = [FrameTable(str(i), table) for i, table in enumerate(tables)]
    models = [fit_files(opened, leaf_roles, Settings(**SETTINGS), chunk_rows=chunk_rows, n_jobs=2)]
    models += [fit_tables(tables, **ROLES, **SETTINGS, n_blocks=64, **THREADS).model_] if chunk_rows is None else []
    starts = {0, *(1 + np.flatnonzero(arrays["groups"][1:] != arrays["groups"][:-1])).tolist()}
    for model in models:
        assert model.statistics.n_groups == 30
        assert {prefix.n_rows for prefix in model.blocks.prefixes} <= starts
        assert_close(model.coef, whole.coef_, "solve")
        assert model.origin.columns["groups"] == "who"
        again = model.blocks.seen.copy()
        assert again.add([identity(arrays["groups"][0].item())]) == 0
    if len(models[0].influence.shares) == 30:
        assert_close(models[0].influence.covariance()[0], whole.coef_covariance_, "solve")


def broken(name):
    """A table that breaks a rule, and the message of the whole."""
    table = frame(data())
    T, who = len(table), table.who.to_numpy(object)
    at_end, ids = np.arange(T) == T - 1, np.arange(T)
    if name == "divided":
        return (
            table.assign(who=np.where(ids == 3, who[-1], who)),
            3,
            "has 'patient .*', and the row before it, of the same episode, has 'pat",
        )
    if name == "missing":
        return table.assign(who=np.where(ids == 5, None, who)), 5, "has no value .* every row needs an id"
    again = table.assign(who=np.where(at_end, who[0], who), ep=np.where(at_end, 999, table.ep))
    return again, T - 1, f"'{who[0]}' reappears after other groups; sort the rows by group"


@pytest.mark.parametrize("name", ["divided", "again", "missing"])
def test_broken_groups_of_tables_are_named(name):
    table, row, message = broken(name)
    T = len(table)
    with pytest.raises(InvalidInputError, match=rf"`source`: column 'who', row {row + 1} .*: {message}"):
        fit_tables(table, **ROLES, **SETTINGS)
    for edges in ([0, 3, 30, T], [0, 4, T - 1, T]):
        for options in ({}, THREADS):
            with pytest.raises(InvalidInputError, match=message):
                fit_tables(cut(table, edges), **ROLES, **SETTINGS, **options)


def test_a_table_continues_in_a_stream():
    arrays = data()
    T = len(arrays["y"])
    model = fit_tables(frame(arrays).iloc[: T // 2], **ROLES, **SETTINGS)
    rest = {name: values[T // 2 :] for name, values in arrays.items()}
    rest["X"] = frame(arrays).iloc[T // 2 :][["x0", "x1"]]
    model.partial_fit(**rest)
    whole = LSTD(**SETTINGS).fit(**arrays)
    assert_close(model.coef_covariance_, whole.coef_covariance_, "solve")
    with pytest.raises(InvalidInputError, match="group 'patient 015' reappears after other"):
        model.partial_fit(**rest | {"groups": np.full(len(rest["y"]), "patient 015"), "episode": rest["episode"] + 999})


@settings(derandomize=True, deadline=None, max_examples=40)
@given(
    st.lists(st.lists(st.sampled_from(range(9)), max_size=4, unique=True), max_size=4),
    st.sampled_from([str, int, "a name longer than twenty-four bytes {}".format]),
)
def test_seen_ids_of_two_streams_are_those_of_both(lists, kind):
    names = [[kind(i) for i in one] for one in lists]
    seen, expected = SeenIds(), set()
    for i, one in enumerate(names):
        new = SeenIds()
        assert new.add([identity(name) for name in one]) is None
        new = SeenIds.unpacked(new.packed())
        common = names[i - 1][-1] if i and names[i - 1] and one[:1] == names[i - 1][-1:] else None
        again = expected & {*one} - {common}
        seen, found = seen.then(new, None if common is None else identity(common))
        if again:
            assert any(found.strip("'").startswith(str(name)[:7]) for name in again)
            return
        assert found is None
        expected |= {*one}
        for name in map(kind, range(9)):
            assert (seen.copy().add([identity(name)]) is not None) == (name in expected)
