"""Statistics of chunks on many workers: the same model whatever runs them, and whichever of them die."""

import random
import time
from functools import partial

import numpy as np
import pandas as pd
import pytest

from chunk_loaders import EDGES, N_CHUNKS, N, chunk, fail, load, sum_chunks, whole
from lstd import LSTD, fit_chunks
from lstd.distributed.chunk_sums import merged
from lstd.errors import (
    BrokenEpisodeWarning,
    InvalidInputError,
    LSTDError,
    MissingTerminationWarning,
    UnusedRewardWarning,
)
from tolerances import assert_close

pytestmark = pytest.mark.filterwarnings(  # rewards are drawn at random
    *(f"ignore::lstd.errors.{what}Warning" for what in ("UnusedReward", "Bias", "Misfit"))
)

SETTINGS = {"gamma": 0.9, "lmbda": 0.7}
NAMED = pd.DataFrame(np.random.default_rng(0).normal(size=(40, 2)), columns=["a", "b"])


def loaders(folder, **options):
    folder.mkdir(exist_ok=True)
    return [partial(load, str(folder), place, **options) for place in range(N_CHUNKS)]


def n_calls(folder):
    return len(list(folder.iterdir()))


def assert_same_bits(one, two):
    for name in ("sums", "B", "trace"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name), err_msg=name)
    for name in ("n_rows", "n_transitions", "n_episodes", "first_episode", "last_episode"):
        assert getattr(one, name) == getattr(two, name), name


@pytest.fixture(scope="module")
def reference():
    return sum_chunks([chunk(place) for place in range(N_CHUNKS)], **SETTINGS, n_jobs=1)


# ---------------------------------------------------------------- the tree


def halved(leaves):
    """Divide leaves before the largest power of two below their number, and so on."""
    if len(leaves) == 1:
        return leaves[0]
    middle = 2 ** (len(leaves) - 1).bit_length() // 2
    return f"({halved(leaves[:middle])} {halved(leaves[middle:])})"


def test_the_bracketing_depends_on_the_number_of_parts_only():
    for n in range(1, 40):
        leaves = [str(place) for place in range(n)]
        assert merged(iter(leaves), lambda one, two: f"({one} {two})") == halved(leaves)
    assert merged([], max) is None


def test_independent_chunks_add():
    draw = np.random.RandomState(2)
    chunks = [(draw.normal(size=(T, N)), draw.normal(size=T)) for T in (5, 1, 20, 3, 9)]
    X, y = (np.concatenate(arrays) for arrays in zip(*chunks, strict=True))
    ids = np.repeat(np.arange(5), [len(y) for _, y in chunks])
    expected = LSTD(**SETTINGS).fit(X, y, episode=ids, terminated=np.zeros(len(y), dtype=bool))
    found = fit_chunks(chunks, **SETTINGS, independent=True, n_jobs=4)
    assert_close(found.coef_, expected.coef_, "solve")
    assert (found.n_transitions_, found.n_episodes_) == (33, 5)


# ---------------------------------------------------------------- the same model


def test_chunks_come_in_all_forms_and_one_by_one(reference, tmp_path):
    def forms():
        for place in range(N_CHUNKS):
            arrays = chunk(place)
            if place % 3 == 0:
                np.savez(tmp_path / f"{place}.npz", **arrays)
                yield tmp_path / f"{place}.npz"
            elif place % 3 == 1:
                yield lambda place=place: chunk(place)
            else:
                yield arrays

    assert_same_bits(sum_chunks(forms(), **SETTINGS, n_jobs=4), reference)


def test_a_fitted_model_goes_on_with_the_stream():
    data = whole()
    found = fit_chunks([chunk(place) for place in range(5)], **SETTINGS, n_jobs=4)
    found.partial_fit(**{name: values[EDGES[5] :] for name, values in data.items()})
    assert_close(found.coef_, LSTD(**SETTINGS).fit(**data).coef_, "solve")


def slow(place):
    time.sleep(random.uniform(0.0, 0.01))
    return chunk(place)


def test_chunks_that_are_loaded_in_any_order_give_the_same_bits(reference):
    chunks = [partial(slow, place) for place in range(N_CHUNKS)]
    assert_same_bits(sum_chunks(chunks, **SETTINGS, n_jobs=4), reference)


# ---------------------------------------------------------------- workers that die


def test_a_cluster_worker_that_is_killed_is_replaced(client, reference, tmp_path):
    chunks = loaders(tmp_path / "calls", deadly=6)
    assert_same_bits(sum_chunks(chunks, **SETTINGS, client=client), reference)
    assert len(list((tmp_path / "calls").glob("6-*"))) == 2


def test_a_chunk_that_kills_every_worker_of_a_cluster_is_given_up(client, tmp_path):
    deadly = loaders(tmp_path / "calls", deadly=2, always=True)
    with pytest.raises(LSTDError, match=r"A chunk killed its workers repeatedly.*smaller chunks, or fewer threads"):
        sum_chunks(deadly, **SETTINGS, client=client)


# ---------------------------------------------------------------- bad input


BAD = {
    "nan": ({"X": np.full((2, N), np.nan), "y": np.zeros(2)}, "`source\\[2\\]`: `X` must be finite"),
    "width": ({"X": np.zeros((2, 7)), "y": np.zeros(2)}, r"`source\[\d\]` and `source\[\d\]`: .*same number of feat"),
    "loader": (fail, r"`source\[2\]`: could not be loaded: RuntimeError\('no such table'\)"),
    "missing": ("no/such.npz", r"`source\[2\]`: no/such.npz could not be read"),
    "not_npz": (__file__, r"`source\[2\]`: .*test_distributed.py must be an .npz file of numbers"),
    "number": (3, r"`source\[2\]`: must be a mapping of arrays"),
    "no_y": ({"X": np.zeros((2, N))}, r"`source\[2\]`: must have `X` and `y`"),
    "unknown": (
        {"X": np.zeros((2, N)), "y": np.zeros(2), "z": 1},
        r"`source\[2\]`: `z` must not be given: it is no argument of a chunk",
    ),
}


@pytest.mark.parametrize(("name", "where"), [*((name, "threads") for name in BAD), ("nan", "dask"), ("loader", "dask")])
def test_bad_chunks_are_named(name, where, request):
    bad, message = BAD[name]
    how = {"client": request.getfixturevalue("client")} if where == "dask" else {"n_jobs": 2}
    good = (np.ones((2, N)), np.ones(2))
    with pytest.raises(InvalidInputError, match=message):
        sum_chunks([good, good, bad, good], **SETTINGS, **how)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"source": []}, "`source` must hold at least one chunk"),
        ({"source": b"rows.npz"}, "`source` must be a list"),
        ({"source": 3}, "`source` must be a list"),
        ({"source": [np.ones((30, 2))]}, r"`source\[0\]`: .* got ndarray of shape \(30, 2\)\."),
        ({"client": NAMED}, r"`client` must be .* got DataFrame of shape \(40, 2\)\."),
        ({"client": 3}, "`client` must be a distributed.Client"),
        ({"n_jobs": 0}, r"`n_jobs` must be in \[1, 1024\]; got 0"),
        ({"memory": NAMED}, r"`memory` must be an integer; got DataFrame of shape \(40, 2\)\.$"),
    ],
)
def test_arguments_are_checked(arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        fit_chunks(**{"source": [(np.ones((2, 1)), np.ones(2))], "gamma": 0.9, **arguments})


@pytest.mark.parametrize("where", ["threads", "dask"])
def test_what_was_assumed_is_said_once(where, request):
    how = {"client": request.getfixturevalue("client")} if where == "dask" else {"n_jobs": 2}
    one, two, three = ({"X": np.eye(3), "y": np.ones(3), "episode": [i, i, i + 1]} for i in (1, 3, 5))
    with pytest.warns(MissingTerminationWarning, match=r"`source\[1\]`") as told, pytest.warns(UnusedRewardWarning):
        fit_chunks([one | {"terminated": False}, two, three], **SETTINGS, **how)
    assert [given.category for given in told].count(MissingTerminationWarning) == 1
    assert told[0].filename == __file__
    broken = {"X": np.eye(3), "y": np.ones(3), "X_next": np.ones((3, 3))}
    with pytest.warns(BrokenEpisodeWarning, match=r"`source\[0\]`: row 1 of") as told:
        fit_chunks([broken, broken], **SETTINGS, **how)
    assert len(told) == 1
    ratios = {"importance_ratio": np.full(3, 2.0), "episode": np.zeros(3)}
    with pytest.warns(BrokenEpisodeWarning, match=r"`source\[0\]`: row 1 of .* leave the ratio out"):
        fit_chunks([broken | ratios], **SETTINGS | {"lmbda": 0.0}, **how)


@pytest.mark.parametrize("names", [(1, 2, 3, 9), ("a", "b", "c", "d")])
def test_an_id_that_reappears_in_a_later_chunk_is_refused_unless_chunks_are_independent(names):
    a, b, c, d = names
    rows = {"X": np.eye(4), "y": np.ones(4), "terminated": [False, True, False, True]}
    chunks = [rows | {"episode": ids} for ids in ([a, a, b, b], [c, c, d, d], [5, 5, a, a] if a == 1 else [*"eeaa"])]
    with pytest.raises(InvalidInputError, match=rf"`source\[\d\]`, or a chunk after it: `episode` {a!r} reappears"):
        fit_chunks(chunks, **SETTINGS)
    assert fit_chunks(chunks, **SETTINGS, independent=True).n_episodes_ == 6
    model = fit_chunks(chunks[:2], **SETTINGS)
    with pytest.raises(InvalidInputError, match=rf"at row 2, id '?{a}'? reappears after other episodes"):
        model.partial_fit(**chunks[2])
    assert model.n_episodes_ == 4


@pytest.mark.parametrize("options", [{"n_jobs": 1}, {"lmbda": "auto"}])
def test_names_of_columns_are_kept_and_the_same_in_all_chunks(options):
    y = np.arange(40.0)
    chunks = [(NAMED[:20], y[:20]), (NAMED[20:30], y[20:30]), (NAMED[30:], y[30:])]
    assert fit_chunks(chunks, gamma=0.9, **options).feature_names_in_.tolist() == ["a", "b"]
    for names, where in ((["b", "a"], "0 is 'a' in one and 'b'"), (["a", "c"], "1 is 'b' in one and 'c'")):
        with pytest.raises(InvalidInputError, match=rf"`source\[\d\]` and `source\[2\]`: .*same features .*{where}"):
            fit_chunks([*chunks[:2], (NAMED[30:].set_axis(names, axis=1), y[30:])], gamma=0.9, **options)
