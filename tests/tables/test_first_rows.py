"""The first rows of tables are kept while they are read: for a choice of settings, for doubts, for a report."""

import warnings
from functools import partial
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from dask import delayed

import lstd
from lstd.data.table import Table
from lstd.errors import ExtrapolationWarning, InvalidInputError
from lstd.tables.first_rows import FirstRows
from lstd.tables.reader import RowReader
from table_files import ROLES, episodes, write

pytestmark = [
    pytest.mark.filterwarnings(*(f"ignore::lstd.errors.{what}Warning" for what in ("Bias", "Misfit", "UnusedReward"))),
    pytest.mark.usefixtures("few_pairs"),
]

NAMES = {"features": ["x", "y"], "reward": "r", "episode": "id", "terminated": "done", "gamma": 0.9}
LENGTHS = [30, 7, 25, 1, 60, 12, 40, 25]
EDGES = [0, 20, 20, 55, 120, 200]  # episodes continue across four of them


def frames():
    table = episodes(LENGTHS, seed=3).to_pandas()
    return [table.iloc[first:end] for first, end in pairwise(EDGES)]


@pytest.fixture
def batches(monkeypatch):
    """Names of tables, and numbers of rows of each batch that was read."""
    read = []
    whole = Table.batches

    def counted(self, columns, most_rows=2**15):
        for batch in whole(self, columns, most_rows):
            read.append((self.file, len(batch)))
            yield batch

    monkeypatch.setattr(Table, "batches", counted)
    return read


@pytest.fixture
def little_choice(monkeypatch):
    """Settings are chosen from 90 rows, that end within a table."""
    monkeypatch.setattr("lstd.tables.table_fit.choice_entries", lambda memory: 3 * 90)


def bits(model):
    return [values.tobytes() for values in (model.coef_, model.coef_covariance_, model.statistics_.sums)]


@pytest.mark.usefixtures("little_choice")
@pytest.mark.parametrize("extension", [".parquet", ".csv"])
def test_a_choice_reads_each_row_once_and_gives_the_same_bits_for_any_number_of_jobs(tmp_path, batches, extension):
    files = []
    for place, part in enumerate(frames()):
        file = tmp_path / f"{place}{extension}"
        part.to_csv(file, index=False) if extension == ".csv" else part.to_parquet(file, index=False)
        files.append(file)
    found = []
    for n_jobs in (1, 3):
        batches.clear()
        found.append(lstd.fit_tables(files, **NAMES, lmbda="auto", alpha="auto", n_jobs=n_jobs))
        assert sum(n_rows for _, n_rows in batches) == sum(LENGTHS)
    assert bits(found[0]) == bits(found[1])
    assert found[0].cv_results_["rank_test_score"].size
    assert found[0].model_.selection.n_rows <= 90
    given = lstd.fit_tables(files, **NAMES, lmbda=found[0].lmbda_, alpha=1.0)
    assert found[0].n_transitions_ == given.n_transitions_
    assert found[0].n_episodes_ == given.n_episodes_


@pytest.mark.usefixtures("little_choice")
@pytest.mark.parametrize("form", ["list", "iterator", "functions", "delayed", "delayed functions"])
def test_a_choice_loads_each_table_once(form):
    expected = lstd.fit_tables(frames(), **NAMES, lmbda="auto", n_jobs=1)
    calls = []

    def load(place):
        calls.append(place)
        return frames()[place]

    sources = {
        "list": lambda: frames(),
        "iterator": lambda: iter(frames()),
        "functions": lambda: [partial(load, place) for place in range(5)],
        "delayed": lambda: [delayed(load)(place) for place in range(5)],
        "delayed functions": lambda: [delayed(frames)()[0], *(partial(load, place) for place in range(1, 5))],
    }
    jobs = {} if "delayed" in form else {"n_jobs": 2}
    model = lstd.fit_tables(sources[form](), **NAMES, lmbda="auto", **jobs)
    assert bits(model) == bits(expected)
    loaded = {"functions": [0, 1, 2, 3, 4], "delayed": [0, 1, 2, 3, 4], "delayed functions": [1, 2, 3, 4]}
    assert sorted(calls) == loaded.get(form, [])


@pytest.mark.usefixtures("little_choice")
@pytest.mark.parametrize("form", ["list", "iterator", "functions", "delayed", "files"])
def test_a_choice_loads_each_chunk_of_arrays_once(form, tmp_path, monkeypatch):
    monkeypatch.setattr("lstd.distributed.fit_chunks.choice_entries", lambda memory: 3 * 90)
    chunks = []
    for frame in frames():
        arrays = {"X": frame[["x", "y"]].to_numpy(), "y": frame["r"].to_numpy()}
        chunks.append(arrays | {"episode": frame["id"].to_numpy(), "terminated": frame["done"].to_numpy()})
    calls = []

    def load(place):
        calls.append(place)
        return chunks[place]

    for place, arrays in enumerate(chunks):
        np.savez(tmp_path / f"{place}.npz", **arrays)
    monkeypatch.setattr("lstd.distributed.sum_arrays.status", lambda path: calls.append(int(path.stem)))
    sources = {
        "list": lambda: chunks,
        "iterator": lambda: iter(chunks),
        "functions": lambda: [partial(load, place) for place in range(5)],
        "delayed": lambda: [delayed(load)(place) for place in range(5)],
        "files": lambda: [tmp_path / f"{place}.npz" for place in range(5)],
    }
    jobs = {} if form == "delayed" else {"n_jobs": 2}
    expected = lstd.fit_chunks(chunks, gamma=0.9, lmbda="auto", n_jobs=1)
    model = lstd.fit_chunks(sources[form](), gamma=0.9, lmbda="auto", **jobs)
    assert bits(model) == bits(expected)
    assert model.lmbda_ == expected.lmbda_
    assert sorted(calls) == ([0, 1, 2, 3, 4] if form in ("functions", "delayed", "files") else [])


@pytest.mark.usefixtures("little_choice")
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_row_that_cannot_be_read_after_those_of_a_choice_is_named(tmp_path, n_jobs):
    path = write(episodes(LENGTHS, seed=3), tmp_path / "a.csv")
    text = (tmp_path / "a.csv").read_text().splitlines()
    text[150] += ",1,2"  # in the same block of text as the first rows
    (tmp_path / "a.csv").write_text("\n".join(text) + "\n")
    for options in ({}, {"lmbda": "auto"}):
        with pytest.raises(InvalidInputError, match=r"a\.csv.* row 150"):
            lstd.fit_tables(path, **NAMES, **options, n_jobs=n_jobs)


def test_rows_that_nobody_drew_stay_for_the_next_caller(tmp_path):
    path = write(episodes(LENGTHS, seed=3), tmp_path / "a.parquet")
    whole = [chunk.rows.X for chunk in RowReader([path], ROLES, chunk_rows=10).chunks()]
    reader = RowReader([path], ROLES, chunk_rows=10)
    chunks = reader.chunks()
    first = [next(chunks), next(chunks)]
    del chunks
    reader.held = first
    again = [chunk.rows.X for chunk in reader.chunks()]
    np.testing.assert_array_equal(np.concatenate(again), np.concatenate(whole))
    assert len(again) == len(whole)


@pytest.mark.parametrize("independent", [False, True])
def test_episodes_of_the_first_rows_are_numbered_across_tables(tmp_path, independent):
    files = [tmp_path / f"{place}.parquet" for place in range(5)]
    for file, part in zip(files, frames(), strict=True):
        part.to_parquet(file, index=False)
    first = FirstRows(10**6, independent=independent)
    for file in files:
        reader = RowReader([str(file)], ROLES, part=not independent)
        for chunk in reader.chunks():
            first.add(reader, chunk)
    number = np.repeat(np.arange(len(LENGTHS)), LENGTHS)
    if independent:
        cuts = [edge for edge in EDGES[2:-1] if number[edge] == number[edge - 1]]
        number = number + np.searchsorted(cuts, np.arange(200), side="right")
    np.testing.assert_array_equal(first.rows.episode, number)
    assert len(first) == 200
    assert not first.is_full


@pytest.mark.parametrize("form", ["list", "iterator", "functions", "whole"])
def test_doubts_come_whatever_the_form_of_the_tables(form):
    n_rows = 400
    grows = pd.DataFrame({"x": np.arange(n_rows), "y": np.random.default_rng(0).normal(size=n_rows)})
    grows = grows.assign(r=1.0, id=np.arange(n_rows) // 200, done=np.arange(n_rows) % 200 == 199)
    parts = [grows.iloc[:150], grows.iloc[150:]]
    sources = {"list": parts, "iterator": iter(parts), "functions": [partial(parts.__getitem__, i) for i in range(2)]}
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        lstd.fit_tables(sources.get(form, grows), **NAMES, alpha=1e-3)
    with warnings.catch_warnings(record=True) as expected:
        warnings.simplefilter("always")
        lstd.LSTD(gamma=0.9, alpha=1e-3).fit(
            grows[["x", "y"]], grows["r"], episode=grows["id"], terminated=grows["done"]
        )
    texts = [str(warning.message) for warning in expected if warning.category is ExtrapolationWarning]
    assert [str(warning.message) for warning in given if warning.category is ExtrapolationWarning] == texts
