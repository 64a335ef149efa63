"""Blocks of the data, which intervals need, and settings chosen from the data: the same whatever sums the chunks."""

from functools import partial
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from chunk_loaders import EDGES, FEATURES, N_CHUNKS, ROLES, chunk, whole
from lstd import LSTD, LSTDCV, LSTDStatistics, fit_chunks, fit_tables
from lstd.errors import InvalidInputError
from tolerances import assert_close

pytestmark = pytest.mark.filterwarnings(  # rewards are drawn at random
    *(f"ignore::lstd.errors.{what}Warning" for what in ("UnusedReward", "Bias", "Misfit"))
)

SETTINGS = {"gamma": 0.9, "lmbda": 0.7}
THREADS = {"n_jobs": 3}


def frames():
    rows = whole()
    columns = {name: rows["X"][:, j] for j, name in enumerate(FEATURES)}
    frame = pd.DataFrame(columns | {"r": rows["y"], "ep": rows["episode"], "done": rows["terminated"].astype(int)})
    return [frame.iloc[first:end] for first, end in pairwise(EDGES)]


@pytest.mark.parametrize("kind", ["arrays", "tables"])
def test_intervals_are_those_of_the_whole_data(kind):
    fit, source = {
        "arrays": (fit_chunks, [chunk(place) for place in range(N_CHUNKS)]),
        "tables": (partial(fit_tables, **ROLES), frames()),
    }[kind]
    data = whole()
    X = pd.DataFrame(data["X"][:20], columns=FEATURES) if kind == "tables" else data["X"][:20]
    _, expected = LSTD(**SETTINGS).fit(**data).predict(data["X"][:20], return_std=True)
    models = [fit(source, **SETTINGS, **how) for how in ({"n_jobs": 1}, THREADS, {})]
    models.append(fit(iter(source), **SETTINGS))
    apart = [model.predict(X, return_std=True)[1] for model in models]
    for errors in apart:  # chunks that each hold all their episodes as blocks give the blocks of the whole
        assert_close(errors, expected, "solve")
    for errors in apart[1:]:
        np.testing.assert_array_equal(errors, apart[0])
    assert not fit(source, **SETTINGS, **THREADS, n_blocks=0).model_.blocks.prefixes


@pytest.mark.usefixtures("few_pairs")
@pytest.mark.parametrize(
    ("kind", "choose", "how", "form"),
    [
        ("arrays", ("lmbda", "alpha"), THREADS, list), ("arrays", ("lmbda",), {"n_jobs": 2}, iter),
        ("tables", ("lmbda", "alpha"), {"n_jobs": 2}, iter), ("tables", ("alpha",), THREADS, list),
    ],
)  # fmt: skip
def test_settings_are_chosen_for_any_number_of_threads(kind, choose, how, form):
    fit, source = {
        "arrays": (fit_chunks, [chunk(place) for place in range(N_CHUNKS)]),
        "tables": (partial(fit_tables, **ROLES), frames()),
    }[kind]
    grids = {} if "lmbda" in choose else {"lmbdas": [0.9]}
    X = whole()["X"]
    grids |= {} if "alpha" in choose else {"alphas": [1.0], "penalty": np.ones(X.shape[1])}
    expected = LSTDCV(gamma=0.9, **grids).fit(**whole())
    model = fit(form(source), gamma=0.9, **dict.fromkeys(choose, "auto"), **how)
    assert isinstance(model, LSTDCV)
    assert model.lmbda_ == expected.lmbda_
    assert_close(model.alpha_, expected.alpha_, "sums")
    assert_close(model.coef_, expected.coef_, "solve")


@pytest.mark.parametrize("n_files", [4, 12])
@pytest.mark.parametrize("whole_episodes", [True, False])
def test_sums_that_are_kept_by_file_give_the_weights_of_all_files_and_a_block_each(n_files, whole_episodes, tmp_path):
    rows = pd.concat(frames())
    episode = rows["ep"].to_numpy()
    edges = np.linspace(0, len(rows), n_files + 1).astype(int)
    if whole_episodes:
        number = np.linspace(0, episode[-1] + 1, n_files + 1).astype(int)
        edges = np.searchsorted(episode, number)
    files = [tmp_path / f"{place}.parquet" for place in range(n_files)]
    for file, (first, end) in zip(files, pairwise(edges), strict=True):
        rows.iloc[first:end].to_parquet(file)
        fit_tables(file, **ROLES, **SETTINGS).statistics_.save(file.with_suffix(".lstd"))
    kept = [LSTDStatistics.load(file.with_suffix(".lstd")) for file in files]
    model, expected = LSTD(**SETTINGS).fit_statistics(kept), fit_tables(files, **ROLES, **SETTINGS)
    assert_close(model.coef_, expected.coef_, "solve")
    assert_close(model.intercept_, expected.intercept_, "solve")
    assert model.n_transitions_ == expected.n_transitions_
    X = rows[FEATURES].iloc[:5]
    expected.predict(X, return_std=True)
    if n_files == 4 or not whole_episodes:
        with pytest.raises(InvalidInputError, match="Intervals need at least 5 blocks of the data; got"):
            model.predict(X, return_std=True)
    else:
        model.predict(X, return_std=True)


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


CLIENT = SimpleNamespace(submit=None, nthreads=None)  # what tells a client from other objects


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"lmbda": None}, '`lmbda` must be a number or "auto"; got None'),
        ({"alpha": "best"}, "`alpha` must be a number or \"auto\"; got 'best'"),
        ({"n_jobs": 2, "client": CLIENT}, "`n_jobs` must be None beside `client`, whose cluster has workers .*; got 2"),
    ],
)
def test_what_does_not_go_together_is_refused(words, message):
    with pytest.raises(InvalidInputError, match=message):
        fit_chunks([chunk(0)], **{"gamma": 0.9, **words})
    with pytest.raises(InvalidInputError, match=message):
        fit_tables(frames()[0], **ROLES, **{"gamma": 0.9, **words})
