"""Groups in chunks and tables: one may continue in the next, none comes again, and no block divides one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lstd import LSTD, fit_chunks
from lstd.data.seen import SeenIds, group_key
from lstd.errors import InvalidInputError
from tolerances import assert_close

SETTINGS = {"gamma": 0.9, "lmbda": 0.7}
NAMES = ("X", "y", "episode", "terminated", "groups")
THREADS = {"executor": partial(ThreadPoolExecutor, 3)}


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


@pytest.mark.parametrize("how", [{}, THREADS], ids=["here", "executor"])
@pytest.mark.parametrize("text", [True, False])
def test_chunks_that_cut_groups_are_those_of_whole_data(how, text, tmp_path):
    arrays = data(text=text)
    T = len(arrays["y"])
    edges = [0, 1, 7, 8, T // 3, T // 2, T // 2, T - 1, T]
    whole = LSTD(**SETTINGS).fit(**arrays)
    model = fit_chunks(parts(arrays, edges), **SETTINGS, n_blocks=64, memory=2**30, **how)
    assert model.statistics_.n_groups == whole.statistics_.n_groups == 30
    assert_close(model.coef_, whole.coef_, "solve")
    starts = {0, *(1 + np.flatnonzero(arrays["groups"][1:] != arrays["groups"][:-1])).tolist()}
    assert {prefix.n_rows for prefix in model.model_.blocks.prefixes} <= starts
    for _ in range(2):  # written to the store, and read from it
        kept = fit_chunks(parts(arrays, edges), **SETTINGS, n_blocks=64, memory=2**30, store=tmp_path, **how)
        assert np.array_equal(kept.coef_covariance_, model.coef_covariance_)
    assert [*tmp_path.iterdir()]


@pytest.mark.parametrize("text", [True, False])
@pytest.mark.parametrize("store", [False, True])
def test_a_group_that_comes_again_in_a_later_chunk_is_refused_by_name(text, store, tmp_path):
    arrays = data(text=text)
    arrays["groups"][-1] = arrays["groups"][0]
    arrays["episode"][-1] = 999
    T = len(arrays["y"])
    name = repr(arrays["groups"][0].item())
    options = {"store": tmp_path} if store else {}
    for _ in range(2):
        with pytest.raises(InvalidInputError, match=rf"source\[.\]` and `source\[.\].*group {name} comes again after"):
            fit_chunks(parts(arrays, [0, T // 3, T // 2, T]), **SETTINGS, **options)
    with pytest.raises(InvalidInputError, match=rf"`source\[0\]`: .*group {name} comes again at row {T - 1}, after"):
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


def test_settings_are_chosen_by_group():
    arrays = data()
    T = len(arrays["y"])
    one = fit_chunks(parts(arrays, [0, 9, T]), gamma=0.9, lmbda="auto", alpha=1.0)
    two = fit_chunks([arrays], gamma=0.9, lmbda="auto", alpha=1.0)
    assert one.n_folds_ == 10
    assert_close(one.cv_results_["mean_test_score"], two.cv_results_["mean_test_score"], "solve")


@settings(derandomize=True, deadline=None, max_examples=200)
@given(
    st.lists(st.lists(st.sampled_from(range(9)), max_size=4, unique=True), max_size=4),
    st.sampled_from([str, int, "a name longer than twenty-four bytes {}".format]),
)
def test_seen_ids_of_two_streams_are_those_of_both(lists, kind):
    names = [[kind(i) for i in one] for one in lists]
    seen, expected = SeenIds(), set()
    for i, one in enumerate(names):
        new = SeenIds()
        assert new.add([group_key(name) for name in one]) is None
        new = SeenIds.unpacked(new.packed())
        common = names[i - 1][-1] if i and names[i - 1] and one[:1] == names[i - 1][-1:] else None
        again = expected & {*one} - {common}
        seen, found = seen.then(new, None if common is None else group_key(common))
        if again:
            assert any(found.strip("'").startswith(str(name)[:8]) for name in again)
            return
        assert found is None
        expected |= {*one}
        for name in map(kind, range(9)):
            assert (seen.copy().add([group_key(name)]) is not None) == (name in expected)
