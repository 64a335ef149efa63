"""Models of files: the same for any number of jobs, memory bounded, files that are independent."""

import dataclasses
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lstd
from lstd.cli.app import run
from lstd.data.roles import Roles
from lstd.data.settings import Settings
from lstd.errors import InvalidInputError
from lstd.estimators.model import read_model, write_model
from lstd.statistics.threads import Ahead
from table_files import ROLES, episodes, fit_files, write
from tolerances import assert_close

pytestmark = pytest.mark.usefixtures("few_pairs")

NAMES = {"features": ["x", "y"], "reward": "r", "episode": "id", "terminated": "done", "gamma": 0.9}


def saved(model, path):
    """Bytes of the file of a model, or of an estimator's, but for the date."""
    model = getattr(model, "model_", model)
    write_model(model.changed(origin=dataclasses.replace(model.origin, date="")), path)
    return Path(path).read_bytes()


# Tasks ahead


@pytest.mark.parametrize("n_jobs", [1, 2, 3])
def test_results_come_in_order_and_before_the_error_that_follows_them(n_jobs):
    def items():
        yield from range(20)
        raise InvalidInputError("the end")

    def late(item):
        time.sleep(0.002 * (item % 3 == 0))
        return item

    with Ahead(n_jobs) as ahead:
        results = ahead.map(late, items(), lambda item: 1, 100)
        assert [next(results) for _ in range(20)] == list(range(20))
        with pytest.raises(InvalidInputError, match="the end"):
            next(results)


def test_errors_of_tasks_are_passed_on_and_the_rest_is_dropped():
    done = []

    def fail(item):
        time.sleep(0.01)
        done.append(item)
        if item == 1:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), Ahead(2) as ahead:
        list(ahead.map(fail, range(1000), lambda item: 1, 100))
    assert len(done) < 10
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("lstd")]


# The same model


@pytest.mark.parametrize(
    ("extension", "settings", "lengths"),
    [
        (".csv", Settings(0.9), [1] * 50 + [200, 3, 347]),
        (".parquet", Settings(0.9, 0.7, 2.0, "mixed", True), [30] * 20),
        (".parquet", Settings(0.9), [600]),
    ],
)
def test_any_number_of_jobs_gives_the_same_bytes(tmp_path, extension, settings, lengths):
    paths = [write(episodes(lengths, seed=1), tmp_path / f"a{extension}")]
    kept = {}
    for n_jobs in (1, 3):
        model = fit_files(paths, ROLES, settings, chunk_rows=37, n_jobs=n_jobs)
        kept[n_jobs] = saved(model, tmp_path / "model")
    assert kept[1] == kept[3]
    whole = fit_files(paths, ROLES, settings, n_jobs=2)
    assert_close(model.coef, whole.coef, "solve")
    assert_close(model.statistics.A, whole.statistics.A, "sums")


def test_little_memory_leaves_no_place_for_intervals(tmp_path):
    rng = np.random.default_rng(0)
    columns = {f"x{j}": rng.normal(size=40) for j in range(300)} | {"r": np.ones(40)}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    paths, roles = [str(tmp_path / "a.parquet")], Roles(None, ("r",))
    found = fit_files(paths, roles, Settings(0.9), memory=2**24)
    assert found.no_intervals == (
        "Intervals of 301 weights need at least 13.8 MB for blocks of the data; "
        '`n_blocks="auto"` may take 8 MB. Give more memory, or fit fewer features.'
    )
    assert fit_files(paths, roles, Settings(0.9)).no_intervals == ""


# Independent files


def test_independent_files_add_up_and_may_use_ids_again(tmp_path):
    paths = [write(episodes([9, 4, 7], seed=i), tmp_path / f"{i}.parquet") for i in range(3)]
    model = lstd.fit_tables(paths, **NAMES, independent=True)
    apart = [lstd.fit_tables(path, **NAMES).statistics_ for path in paths]
    total = apart[0] + apart[1] + apart[2]
    assert_close(model.statistics_.matrix("boyan"), total.matrix("boyan"), "sums")
    assert_close(model.statistics_.b, total.b, "sums")
    assert (model.model_.origin.rows, model.model_.origin.episodes) == (60, 9)
    with pytest.raises(InvalidInputError, match="reappears after other episodes"):
        lstd.fit_tables(paths, **NAMES)


@pytest.mark.filterwarnings("ignore::lstd.errors.UnusedRewardWarning")
def test_an_independent_file_goes_on_with_no_episode(tmp_path, caplog):
    table = episodes([10], seed=1).select(["x", "y", "r", "done"])
    paths = [write(table.slice(0, 6), tmp_path / "a.csv"), write(table.slice(6), tmp_path / "b.csv")]
    names = {**NAMES, "episode": None}
    together, apart = (lstd.fit_tables(paths, **names, independent=independent) for independent in (False, True))
    assert (together.model_.origin.episodes, together.model_.origin.transitions) == (1, 10)
    assert (apart.model_.origin.episodes, apart.model_.origin.transitions) == (2, 9)
    assert [record.message[:35] for record in caplog.records] == ["without a column of episodes, the f"]


# The Python function


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_too_little_memory_is_told(tmp_path, n_jobs, monkeypatch):
    def fails(nothing, rows, starts, *, threads):
        raise MemoryError("no 8 GiB")

    monkeypatch.setattr("lstd.tables.sum_tables.LSTDStatistics.totals", fails)
    path = write(episodes([9], seed=3), tmp_path / "a.parquet")
    with pytest.raises(InvalidInputError, match=r"Memory ran out \(no 8 GiB\)\. A fit of 2 features"):
        lstd.fit_tables(path, **NAMES, n_jobs=n_jobs)


@pytest.mark.parametrize(("column", "value", "n_jobs"), [("x", 1e200, 1), ("y", -1e200, 2), ("r", 1.7e308, 2)])
def test_rows_whose_sums_overflow_are_named(tmp_path, column, value, n_jobs):
    paths = []
    for i in range(3):
        data = episodes([30] * 20, seed=i).drop_columns(["id"])
        changed = data[column].to_numpy().copy()
        if i == 1:
            changed[[333, 334]] = value, value / 10
        data = data.set_column(data.column_names.index(column), column, pa.array(changed))
        paths.append(write(data, tmp_path / f"{i}.parquet"))
    roles, settings = Roles(("x", "y"), ("r",), None, "done", "cut"), Settings(0.99)
    rows = r"rows 301 to 400 \(the first row of data is 1\): The sums .* must be below 1e308"
    with pytest.raises(InvalidInputError, match=rf"1\.parquet: {rows}"):
        fit_files(paths, roles, settings, chunk_rows=100, n_jobs=n_jobs)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"n_jobs": 0}, r"`n_jobs` must be .*; got 0"),
        ({"memory": 1000}, r"`memory` must be .*16777216.*; got 1000"),
        ({"independent": "yes"}, "`independent` must be True or False; got 'yes'"),
        ({"features": []}, "`features` must name at least one column; got none"),
        ({"reward": None}, "`reward` must be the name of a column or several; got None of type NoneType"),
        ({"source": []}, "`source` must hold at least one table; got none"),
        ({"source": [np.ones((30, 2))]}, r"`source\[0\]`: .* got ndarray of shape \(30, 2\)\. Arrays go to"),
        ({"source": 3}, "`source` must be a path, .* got 3 of type int"),
        ({"source": {"a.csv"}}, "`source` must have an order; got a set. Give a list"),
        ({"terminated": None, "truncated": "cut"}, "`truncated` must come with `terminated`"),
        ({"n_blocks": -1}, "^`n_blocks` must be at least 0; got -1"),
        ({"unpenalised": np.array([3.0])}, "`unpenalised` must be the name of a column or several; .* of type float64"),
    ],
)
def test_bad_arguments_are_named(tmp_path, changed, message):
    words = {"source": write(episodes([9, 4], seed=3), tmp_path / "a.parquet"), **NAMES, **changed}
    with pytest.raises(InvalidInputError, match=message):
        lstd.fit_tables(**words)


@pytest.mark.filterwarnings("ignore::lstd.errors.UnusedRewardWarning", "ignore::lstd.errors.UnobservedWarning")
@pytest.mark.parametrize("kind", [int, "a long text before {}".format])
def test_an_id_that_reappears_in_a_later_table_is_refused_whatever_sums(kind):
    def table(*ids):
        n = len(ids)
        return pa.table({"x": np.arange(n) + 1.0, "r": np.ones(n), "id": [kind(one) for one in ids], "end": [0] * n})

    columns = {"features": "x", "reward": "r", "episode": "id", "terminated": "end", "gamma": 0.9}
    apart = [table(1, 1, 2), table(2, 2), table(2, 3, 4, 4), table(5, 6, 6), table(7, 4, 4, 5)]
    message = r"`source\[4\]`, or a table after it: column 'id': .* reappears after other episodes; sort"
    for how in ({"n_jobs": 1}, {"n_jobs": 2}):
        for source in (apart, iter(apart), [partial(apart.__getitem__, place) for place in range(5)]):
            with pytest.raises(InvalidInputError, match=message):
                lstd.fit_tables(source, **columns, **how)
    assert lstd.fit_tables(apart[:4], **columns).n_episodes_ == 6
    assert lstd.fit_tables(apart, **columns, independent=True).n_episodes_ == 11


# The command


FIT = ["fit", "a.csv", "--features", "x,y", "--reward", "r", "--episode", "id", "--terminated", "done"]
FIT += ["--gamma", "0.9", "--quiet"]


def test_jobs_and_memory_of_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write(episodes([30] * 20, seed=1), Path("a.csv"))
    kept = []
    for i, words in enumerate(([], ["--jobs", "1"], ["--jobs", "2", "--memory", "1.5 gb"])):
        assert run([*FIT, *words, "-o", f"model{i}"]) == 0
        kept.append(saved(read_model(f"model{i}"), "same"))
    assert kept[0] == kept[1] == kept[2]
    assert run([*FIT[:2], "a.csv", *FIT[2:], "-o", "twice"]) == 2
    assert "reappears" in capsys.readouterr().err
    assert run([*FIT[:2], "a.csv", *FIT[2:], "-o", "twice", "--independent"]) == 0
    assert read_model("twice").origin.episodes == 40


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--jobs", "0"], "`--jobs` must be "),
        (["--jobs", "2000"], "`--jobs` must be "),
        (["--memory", "512"], "`--memory` must be a number and MB or GB, such as 512MB; got '512'."),
        (["--memory", "15.9MB"], "`--memory` must be at least 16MB; got '15.9MB'."),
    ],
)
def test_bad_words_are_one_line(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    write(episodes([30] * 20, seed=1), Path("a.csv"))
    assert run([*FIT, *words, "-o", "model"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"lstd: {message}")
    assert error.count("\n") == 1
    assert not Path("model").exists()
