"""Tables, Dask collections and futures as chunks: the model of the whole, and the same bits wherever it is summed."""

import gzip
import os
from collections import Counter
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_distributed import assert_same_bits

import lstd
from chunk_loaders import EDGES, FEATURES, ROLES, arrays_noted, elsewhere, noted, whole
from lstd import LSTDStatistics, fit_chunks, fit_tables
from lstd.errors import InvalidInputError, LSTDError
from tolerances import assert_close

pytestmark = pytest.mark.filterwarnings("ignore::lstd.errors.UnusedRewardWarning")  # rewards are drawn at random

distributed = pytest.importorskip("distributed")
dd = pytest.importorskip("dask.dataframe")
da = pytest.importorskip("dask.array")
dask = pytest.importorskip("dask")

SETTINGS = {"gamma": 0.9, "lmbda": 0.7}
ENDINGS = (".csv", ".csv.gz", ".parquet")


def sum_tables(source, **options):
    """Statistics of tables; all columns without another role are features, unless they are named."""
    return fit_tables(source, **({"features": None} | options)).statistics_


def sum_arrays(source, **options):
    return fit_chunks(source, **options).statistics_


def sums_of(X, y, **columns):
    """Sums over rows and a column of ones."""
    return LSTDStatistics.from_arrays(np.column_stack([X, np.ones(len(y))]), y, **columns, **SETTINGS)


def frame():
    rows = whole()
    columns = {name: rows["X"][:, j] for j, name in enumerate(FEATURES)}
    return pd.DataFrame(columns | {"r": rows["y"], "ep": rows["episode"], "done": rows["terminated"].astype(int)})


def frames():
    rows = frame()
    return [rows.iloc[first:end] for first, end in pairwise(EDGES)]


def write(rows, path):
    path = str(path)
    if path.endswith(".parquet"):
        rows.to_parquet(path, index=False)
    elif path.endswith(".gz"):
        with gzip.open(path, "wt") as file:
            rows.to_csv(file, index=False)
    else:
        rows.to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    """Files of several kinds; one is empty, one has a single row, and episodes go on from one to the next."""
    folder = tmp_path_factory.mktemp("tables")
    return [write(part, folder / f"{place:02d}{ENDINGS[place % 3]}") for place, part in enumerate(frames())]


@pytest.fixture(scope="module")
def parquet(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parquet")
    return [write(part, folder / f"{place:02d}.parquet") for place, part in enumerate(frames())]


@pytest.fixture(scope="module")
def reference():
    return sum_tables(frames(), **ROLES, **SETTINGS, n_jobs=1)


def assert_agrees(found, expected, *, ordered=True):
    for variant in () if ordered else ("boyan", "uncorrected"):
        assert_close(found.matrix(variant), expected.matrix(variant), "sums", err_msg=variant)
    for name in ("sums", "B", "trace") if ordered else ("b",):
        assert_close(getattr(found, name), getattr(expected, name), "sums", err_msg=name)
    for name in ("n_rows", "n_transitions", "n_episodes", "single"):
        assert getattr(found, name) == getattr(expected, name), name


# ---------------------------------------------------------------- tables in files


def test_columns_may_stand_in_another_order(tmp_path):
    parts = [frame().iloc[:100], frame().iloc[100:, ::-1]]
    files = [write(part, tmp_path / f"{place}.csv") for place, part in enumerate(parts)]
    roles = ROLES | {"features": None}
    for fit_intercept in (False, True):
        options = SETTINGS | {"fit_intercept": fit_intercept}
        found = fit_tables(files, **roles, **options, n_jobs=1)
        assert found.feature_names_in_.tolist() == FEATURES
        expected = lstd.fit_tables(files, **roles | {"features": FEATURES}, **options, n_jobs=1)
        assert_agrees(found.statistics_, expected.statistics_)
    apart = [dask.delayed(str)(file) for file in files]  # a worker that sums one file knows no other
    with pytest.raises(InvalidInputError, match=r"1\.csv: its columns are in another order .*0\.csv; name the f"):
        fit_tables(apart, **roles, **SETTINGS)
    write(parts[1].rename(columns={"x1": "z"}), files[1])
    with pytest.raises(InvalidInputError, match=r"1\.csv: column 'x1' is missing, which .*0\.csv has"):
        fit_tables(apart, **roles, **SETTINGS)


# ---------------------------------------------------------------- where tables meet

ROW = st.tuples(
    st.integers(-2, 3).map(lambda step: max(0, step)),  # episodes begun since the row before
    st.sampled_from([0, 0, 0, 1]),
    st.sampled_from([0, 0, 0, 1]),
    st.sampled_from([1.0, 2.0, 3.0, None]),
)


@pytest.mark.filterwarnings("ignore::lstd.errors.RidgeWarning")  # of a handful of rows
@settings(derandomize=True, deadline=None, max_examples=20)
@given(st.data(), st.booleans(), st.sampled_from(["1", "1.0", "e"]))
def test_rules_hold_across_tables_as_inside_one(tmp_path_factory, data, with_ids, kind):
    rows = data.draw(st.lists(ROW, min_size=1, max_size=7))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=4)))
    number = np.cumsum([step for step, *_ in rows])
    name = {"1": "{}", "1.0": "{}.0", "e": "e{}"}[kind]
    lines = [
        f"{place % 3},{place % 2},{'' if reward is None else reward},{done},{cut},{name.format(number[place])}\n"
        for place, (_, done, cut, reward) in enumerate(rows)
    ]
    folder = tmp_path_factory.getbasetemp() / "meeting"
    folder.mkdir(exist_ok=True)
    files = []
    for place, (first, end) in enumerate(zip([0, *cuts], [*cuts, len(rows)], strict=True)):
        files.append(folder / f"{place}.csv")
        files[-1].write_text("x,z,r,done,cut,ep\n" + "".join(lines[first:end]))
    roles = {"features": ["x", "z"], "reward": "r", "terminated": "done", "truncated": "cut"}
    roles |= {"episode": "ep"} if with_ids else {}
    whole = folder / "whole.csv"
    whole.write_text("x,z,r,done,cut,ep\n" + "".join(lines))
    outcomes = [outcome([whole], **roles), outcome(files, **roles)]
    if None in outcomes:
        assert outcomes == [None, None]
    elif isinstance(outcomes[0], str) or isinstance(outcomes[1], str):
        assert [type(one) for one in outcomes] == [str, str], outcomes
        assert ".csv: column" in outcomes[1]
        assert ", row " in outcomes[1]
    else:
        assert_agrees(outcomes[1], outcomes[0])
        for end in ("first_episode", "last_episode"):
            assert getattr(outcomes[1], end) == getattr(outcomes[0], end)


def outcome(files, **roles):
    """Statistics of files, or the error; None where they hold no transition."""
    try:
        return sum_tables(files, **roles, **SETTINGS, n_jobs=1)
    except InvalidInputError as error:
        return None if "there is nothing to fit" in str(error) else str(error)


# ---------------------------------------------------------------- data frames


@pytest.mark.parametrize(
    ("chunk", "roles", "message"),
    [
        ("rows.npz", ROLES, r"`source\[0\]`: must be the path of a table"),
        ((np.ones((2, 1)), np.ones(2)), ROLES, r"`source\[0\]`: must be the path of a table"),
        (pd.Series([1.0]), ROLES, r"`source\[0\]`: must be the path of a table"),
        (lambda: 1 / 0, ROLES, r"`source\[0\]`: could not be loaded: ZeroDivisionError"),
        ("missing.csv", ROLES, "missing.csv could not be read"),
        (pd.DataFrame({"x": [1.0]}), ROLES, r"`source\[0\]`: column 'x0' is missing; the data frame has 'x'"),
        ("a.csv", ROLES | {"episode": ["ep"]}, "`episode` must be the name of a column"),
    ],
)
def test_bad_tables_and_roles(chunk, roles, message):
    with pytest.raises(InvalidInputError, match=message):
        sum_tables([chunk], **roles, **SETTINGS, n_jobs=1)


def test_what_goes_to_the_other_function():
    for chunk in (frame(), (np.ones((2, 1)), np.ones(2)), np.ones(3)):
        with pytest.raises(InvalidInputError, match="give a list of it"):
            sum_arrays(chunk, **SETTINGS)
    for chunk in ("missing.csv", frame()):
        with pytest.raises(InvalidInputError, match=r"`source\[0\]`: .*fit it with `lstd.fit_tables`"):
            sum_arrays([chunk], **SETTINGS)
    for source in (np.ones(3), 3, b"a.csv"):
        with pytest.raises(InvalidInputError, match=r"`source.*Arrays go to `lstd.fit_chunks`"):
            sum_tables(source, **ROLES, **SETTINGS)


# ---------------------------------------------------------------- Dask data frames


@pytest.mark.parametrize(("ordered", "with_client"), [(True, True), (False, False)])
def test_a_dask_data_frame_gives_the_bits_of_its_partitions(client, parquet, ordered, with_client):
    collection = dd.read_parquet(parquet).map_partitions(elsewhere, os.getpid(), meta=frame().iloc[:0])
    assert collection.npartitions == len(parquet)
    how = {"client": client} if with_client else {}  # which is the default
    found = sum_tables(collection, **ROLES, **SETTINGS, independent=not ordered, **how)
    assert_same_bits(found, sum_tables(parquet, **ROLES, **SETTINGS, independent=not ordered, n_jobs=1))


@pytest.mark.parametrize("kind", ["frame", "arrays", "delayed"])
def test_what_is_persisted_is_computed_where_it_is(client, parquet, kind):
    roles = {} if kind == "arrays" else ROLES
    chunks = {"frame": lambda: dd.read_parquet(parquet), "arrays": lambda: arrays((100, 287))["X"]}
    chunks["delayed"] = lambda: [dask.delayed(pd.read_parquet)(path) for path in parquet]
    persisted = client.persist(chunks[kind]())
    with dask.config.set(scheduler="sync"):  # which is not where it is
        if kind == "arrays":
            found = sum_arrays((persisted, persisted[:, 0]), **SETTINGS)
        else:
            found = sum_tables(persisted, **roles, **SETTINGS)
    assert found.n_rows == EDGES[-1]


@pytest.mark.parametrize(
    ("kind", "with_client"), [("iterator", False), ("futures", True), ("scattered", False), ("one", True)]
)
def test_delayed_objects_and_futures(client, parquet, reference, kind, with_client):
    expected = reference
    if kind == "iterator":
        chunks = iter([dask.delayed(pd.read_parquet)(path) for path in parquet])
    elif kind == "futures":
        chunks = client.map(pd.read_parquet, parquet)
    elif kind == "scattered":
        chunks = client.scatter(frames())
    else:
        chunks = dask.delayed(pd.read_parquet)(parquet[0])
        expected = sum_tables(parquet[:1], **ROLES, **SETTINGS, n_jobs=1)
    how = {"client": client} if with_client else {}
    assert_same_bits(sum_tables(chunks, **ROLES, **SETTINGS, **how), expected)


def test_delayed_arrays_and_paths(client, tmp_path):
    rows = whole()
    np.savez(tmp_path / "first.npz", **{name: values[:100] for name, values in rows.items()})
    chunks = [
        dask.delayed(str)(tmp_path / "first.npz"),
        dask.delayed({name: values[100:200] for name, values in rows.items()}),
        {name: values[200:] for name, values in rows.items()},
    ]
    found = sum_arrays(chunks, **SETTINGS, client=client)
    assert_agrees(found, sums_of(**rows))


@pytest.mark.usefixtures("few_pairs")
@pytest.mark.parametrize("form", ["delayed", "functions", "chunks delayed", "chunks of functions"])
def test_a_cluster_loads_what_settings_are_chosen_from_once(client, parquet, form, tmp_path):
    load = arrays_noted if "chunks" in form else noted
    chunks = [
        dask.delayed(load)(path, tmp_path) if "delayed" in form else partial(load, path, tmp_path) for path in parquet
    ]
    settings = SETTINGS | {"lmbda": "auto"}
    if "chunks" in form:
        found = lstd.fit_chunks(chunks, **settings, client=client)
    else:
        found = lstd.fit_tables(chunks, **ROLES, **settings, client=client)
    assert found.n_transitions_
    loaded = Counter(path.name.split("-")[0] for path in tmp_path.iterdir())
    assert loaded == {Path(path).stem: 1 for path in parquet}


def test_a_partition_that_cannot_be_computed(client):
    bad = dask.delayed(partial(int, "no number"))()
    with pytest.raises(LSTDError, match="could not be computed by Dask: ValueError"):
        sum_arrays([bad], **SETTINGS, client=client)
    with pytest.raises(LSTDError, match="could not be computed by Dask: ValueError"):
        sum_arrays([client.submit(int, "no number")], **SETTINGS, client=client)
    rows = frame().assign(x1=[np.nan, *np.ones(EDGES[-1] - 1)])
    with pytest.raises(InvalidInputError, match=r"`source\[0\]`: column 'x1', row 1"):
        sum_tables(dd.from_pandas(rows, npartitions=3), **ROLES, **SETTINGS, client=client)


# ---------------------------------------------------------------- Dask arrays


def arrays(sizes=(100, 0, 1, 286), n_columns=2):
    rows = whole()
    return {name: da.from_array(values, chunks=(sizes, n_columns)[: values.ndim]) for name, values in rows.items()}


def test_dask_arrays_by_name(client):
    expected = sum_arrays(
        [{name: values[first:end] for name, values in whole().items()} for first, end in pairwise([0, 100, 101, 387])],
        **SETTINGS,
        n_jobs=1,
    )
    found = sum_arrays(arrays((100, 1, 286)), **SETTINGS, client=client)
    assert_same_bits(found, expected)
    assert_agrees(sum_arrays(arrays(), **SETTINGS), sums_of(**whole()))
    found = sum_arrays(arrays(), **SETTINGS, independent=True)
    assert found.n_episodes > expected.n_episodes


def test_a_pair_of_dask_arrays_of_unknown_sizes(client):
    rows = whole()
    given = arrays()
    keep = given["X"][:, 0] > -1.0
    X, y = given["X"][keep], given["y"][keep]
    assert np.isnan(X.chunks[0]).all()
    kept = rows["X"][:, 0] > -1.0
    expected = sums_of(rows["X"][kept], rows["y"][kept])
    assert_agrees(sum_arrays((X, y), **SETTINGS, client=client), expected)
    persisted = client.persist([X, y])
    assert_agrees(sum_arrays(tuple(persisted), **SETTINGS), expected)


X = da.ones((6, 2), chunks=2) if da is not None else None
BAD = {
    "chunks": ((X, da.ones(6, chunks=3)), {}, r"`y` of `source` must have the row chunks of `X`, \(2, 2, 2\); got"),
    "count": ((X, da.ones(6, chunks=6)), {}, "must have the row chunks of `X`"),
    "not_dask": ((X, np.ones(6)), {}, "`y` of `source` must be a Dask array of one or two dimensions, like every"),
    "no_y": ({"X": X}, {}, "`source` must have `X` and `y`, .*'y' is missing"),
    "unknown": ({"X": X, "y": X[:, 0], "z": X}, {}, "`z` must not be given: it is no argument of a chunk"),
    "arrays": ({"X": np.ones((2, 2)), "y": np.ones(2)}, {}, "put their mapping in a list"),
    "roles": (X, ROLES, "`source` must be a Dask DataFrame"),
    "one_array": (X, {}, r"`source` must be Dask arrays as a tuple \(X, y\)"),
    "listed": ([X, X], {}, r"`source\[0\]` is dask.array"),
    "no_roles": (dd.from_pandas(frame(), npartitions=2), {}, "`source` must be Dask arrays"),
    "series": (dd.from_pandas(frame(), npartitions=2)["r"], ROLES, "`source` must be a Dask DataFrame"),
    "column": (dd.from_pandas(frame(), npartitions=2), ROLES | {"reward": "z"}, "must have a column 'z', once; the"),
    "n_jobs": ((X, X[:, 0]), {"n_jobs": 2}, "`n_jobs` must be None for a Dask `source`, which Dask computes; got 2"),
    "horizon": (dd.from_pandas(frame(), npartitions=2), ROLES | {"horizon": 3}, "be a Dask collection with `horizon`"),
    "none": ([], {}, "`source` must hold at least one chunk"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_collections(name):
    chunks, options, message = BAD[name]
    with pytest.raises(InvalidInputError, match=message):
        (sum_tables if "reward" in options else sum_arrays)(chunks, **options, **SETTINGS)
