"""Blocks of the data, which intervals need, and settings chosen from the data: the same whatever sums the chunks."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chunk_loaders import EDGES, N_CHUNKS, N, chunk, whole
from lstd import LSTD, LSTDCV, LSTDStatistics, fit_chunks, fit_tables
from lstd.data.check_rows import check_rows
from lstd.errors import InvalidInputError
from lstd.statistics.blocks import no_blocks
from tolerances import assert_close

pytestmark = pytest.mark.filterwarnings(  # rewards are drawn at random
    *(f"ignore::lstd.errors.{what}Warning" for what in ("UnusedReward", "Bias", "Misfit"))
)

SETTINGS = {"gamma": 0.9, "lmbda": 0.7}
FEATURES = [f"x{j}" for j in range(N)]
ROLES = {"features": FEATURES, "reward": "r", "episode": "ep", "terminated": "done"}
THREADS = {"executor": partial(ThreadPoolExecutor, 3)}


def frames():
    rows = whole()
    columns = {name: rows["X"][:, j] for j, name in enumerate(FEATURES)}
    frame = pd.DataFrame(columns | {"r": rows["y"], "ep": rows["episode"], "done": rows["terminated"].astype(int)})
    return [frame.iloc[first:end] for first, end in pairwise(EDGES)]


def blocks_of(rows, edges, limit):
    """Blocks of rows whose chunks are summed apart and merged in order."""
    merged = None
    for first, end in pairwise(edges):
        part = check_rows(**{name: values[first:end] for name, values in rows.items()}, gamma=0.9, warn=False)
        blocks = no_blocks(part, 0.7, limit).extended(part)
        merged = blocks if merged is None else merged.then(blocks)
    return merged


def stream(lengths, seed=0):
    draw = np.random.RandomState(seed)
    ids = np.repeat(np.arange(len(lengths)), lengths)
    last = np.append(np.diff(ids) > 0, True)
    rows = {"X": draw.normal(size=(len(ids), 2)), "y": draw.normal(size=len(ids)), "episode": ids}
    return rows | {"terminated": last & (ids % 2 == 0)}


@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=12), st.lists(st.integers(0, 60), max_size=6), st.integers(1, 12)
)
def test_blocks_begin_with_episodes_and_add_up(lengths, cuts, limit):
    rows = stream(lengths)
    T = len(rows["y"])
    edges = [0, *sorted(min(cut, T) for cut in cuts), T]
    blocks = blocks_of(rows, edges, limit)
    begins = {0, *(np.flatnonzero(np.diff(rows["episode"])) + 1).tolist()}
    assert len(blocks.prefixes) < limit
    assert blocks.shares.sum() == pytest.approx(1.0)
    for prefix, end in zip(blocks.prefixes, np.cumsum(blocks.shares), strict=False):
        assert prefix.n_rows in begins or len(lengths) == 1
        before = {name: values[: prefix.n_rows] for name, values in rows.items()}
        expected = LSTDStatistics.from_arrays(**before, **SETTINGS)
        for variant in ("boyan", "uncorrected"):
            assert_close(prefix.matrix(variant), expected.matrix(variant), "sums")
        assert_close(prefix.b, expected.b, "sums")
        count = prefix.n_episodes / len(lengths) if len(lengths) > 1 else prefix.n_rows / T
        assert end == pytest.approx(count)
    assert_close(blocks.total.A, LSTDStatistics.from_arrays(**rows, **SETTINGS).A, "sums")


@pytest.mark.parametrize("kind", ["arrays", "tables"])
def test_intervals_are_those_of_the_whole_data(kind, tmp_path):
    fit, source = {
        "arrays": (fit_chunks, [chunk(place) for place in range(N_CHUNKS)]),
        "tables": (partial(fit_tables, **ROLES), frames()),
    }[kind]
    data = whole()
    X = pd.DataFrame(data["X"][:20], columns=FEATURES) if kind == "tables" else data["X"][:20]
    _, expected = LSTD(**SETTINGS).fit(**data).predict(data["X"][:20], return_std=True)
    models = [fit(source, **SETTINGS, **how) for how in ({"n_jobs": 2}, THREADS, {"store": tmp_path})]
    models += [fit(source, **SETTINGS, **THREADS, store=tmp_path), fit(iter(source), **SETTINGS)]
    apart = [model.predict(X, return_std=True)[1] for model in models]
    for errors in apart:  # chunks that each hold all their episodes as blocks give the blocks of the whole
        assert_close(errors, expected, "solve")
    for errors in apart[2:]:
        np.testing.assert_array_equal(errors, apart[1])
    assert not fit(source, **SETTINGS, **THREADS, n_blocks=0).model_.blocks.prefixes


@pytest.mark.usefixtures("few_pairs")
@pytest.mark.parametrize(
    ("kind", "choose", "how", "form"),
    [
        ("arrays", ("lmbda", "alpha"), THREADS, iter), ("arrays", ("lmbda", "alpha"), "store", list),
        ("arrays", ("lmbda",), {"n_jobs": 2}, list), ("tables", ("lmbda", "alpha"), {"n_jobs": 2}, iter),
        ("tables", ("lmbda", "alpha"), "store", iter), ("tables", ("alpha",), THREADS, list),
    ],
)  # fmt: skip
def test_settings_are_chosen_on_every_runner(kind, choose, how, form, tmp_path):
    fit, source = {
        "arrays": (fit_chunks, [chunk(place) for place in range(N_CHUNKS)]),
        "tables": (partial(fit_tables, **ROLES), frames()),
    }[kind]
    grids = {} if "lmbda" in choose else {"lmbdas": [0.9]}
    X = whole()["X"]
    grids |= {} if "alpha" in choose else {"alphas": [1.0], "penalty": np.ones(X.shape[1])}
    expected = LSTDCV(gamma=0.9, **grids).fit(**whole())
    options = {"store": tmp_path} if how == "store" else how
    model = fit(form(source), gamma=0.9, **dict.fromkeys(choose, "auto"), **options)
    assert isinstance(model, LSTDCV)
    assert model.lmbda_ == expected.lmbda_
    assert_close(model.alpha_, expected.alpha_, "sums")
    assert_close(model.coef_, expected.coef_, "solve")


@pytest.fixture
def local_scheduler():
    """Compute collections in this process, whichever clients other tests have had."""
    with pytest.importorskip("dask").config.set(scheduler="threads"):
        yield


@pytest.mark.usefixtures("local_scheduler", "few_pairs")
def test_settings_of_dask_collections_are_chosen():
    da, dd = pytest.importorskip("dask.array"), pytest.importorskip("dask.dataframe")
    data = whole()
    expected = LSTDCV(gamma=0.9).fit(**data)
    arrays = {name: da.from_array(values, chunks=(100, 2)[: values.ndim]) for name, values in data.items()}
    frame = dd.from_pandas(pd.concat(frames()), npartitions=3)
    for model in (
        fit_chunks(arrays, gamma=0.9, lmbda="auto", alpha="auto"),
        fit_tables(frame, **ROLES, gamma=0.9, lmbda="auto", alpha="auto"),
    ):
        assert model.lmbda_ == expected.lmbda_
        assert_close(model.coef_, expected.coef_, "solve")
        assert len(model.model_.blocks.prefixes) > 5


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"lmbda": None}, '`lmbda` must be a number or "auto"; got None'),
        ({"alpha": "best"}, "`alpha` must be a number or \"auto\"; got 'best'"),
        ({"n_jobs": 2, "executor": ThreadPoolExecutor}, "`n_jobs` must be None beside `executor` or `client`"),
    ],
)
def test_what_does_not_go_together_is_refused(words, message):
    with pytest.raises(InvalidInputError, match=message):
        fit_chunks([chunk(0)], **{"gamma": 0.9, **words})
    with pytest.raises(InvalidInputError, match=message):
        fit_tables(frames()[0], **ROLES, **{"gamma": 0.9, **words})
