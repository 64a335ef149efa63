"""Reading tables in chunks: the same statistics for any chunk size, format and division among files."""

import csv
import gzip
import io
import pickle
from collections import Counter
from unittest import mock

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.feather
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lstd import LSTD, LSTDStatistics, fit_tables
from lstd.data import csv_table as files
from lstd.data.identity import identity
from lstd.data.open_table import open_table
from lstd.data.roles import Roles
from lstd.data.seen_ids import SeenIds
from lstd.data.table import dataset_tables
from lstd.errors import InvalidInputError
from lstd.tables.reader import RowReader
from table_files import episodes, statistics, write
from tolerances import assert_close


def assert_same(found, expected):
    for name in ("sums", "B", "trace", "total_weight", "observed_share"):
        assert_close(getattr(found, name), getattr(expected, name), "sums", err_msg=name)
    for name in (
        "n_rows",
        "n_transitions",
        "n_episodes",
        "n_unused_rewards",
        "first_episode",
        "last_episode",
        "single",
    ):
        assert getattr(found, name) == getattr(expected, name), name
    assert (found.pending is None) == (expected.pending is None)
    if expected.pending is not None:
        assert_close(found.pending.X, expected.pending.X, "sums")


def whole(table, **options):
    columns = {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}
    return LSTDStatistics.from_arrays(
        np.column_stack([columns["x"], columns["y"]]), columns["r"], gamma=0.9, lmbda=0.7,
        terminated=columns["done"], **({"episode": columns["id"]} | options),
    )  # fmt: skip


# The same for any chunk size, format and division among files


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=8),
    cut=st.integers(0, 20),
    chunk_rows=st.integers(1, 9),
    parquet=st.booleans(),
)
def test_files_are_read_as_one_table(tmp_path, lengths, cut, chunk_rows, parquet):
    table = episodes(lengths, seed=sum(lengths))
    second = ".parquet" if parquet else ".csv"
    paths = [write(table[:cut], tmp_path / "a.csv"), write(table[cut:], tmp_path / f"b{second}")]
    assert_same(statistics(paths, chunk_rows=chunk_rows), whole(table))


def test_values_in_csv_may_be_written_in_many_ways(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(
        b"\xef\xbb\xbfx,id,y,note,r,done\r\n"
        b'1, 5 ,1e0,"a, ""b""\nc",+1,False\r\n\r\n"2",5,.5,,NaN,0.0\r\n 3 ,6,-1.,x,2,TRUE'
    )
    expected = LSTDStatistics.from_arrays(
        [[1, 1], [2, 0.5], [3, -1]], [1, np.nan, 2], gamma=0.9, lmbda=0.7,
        episode=[5, 5, 6], terminated=[0, 0, 1],
    )  # fmt: skip
    assert_same(statistics([str(path)]), expected)


def test_all_other_columns_are_features(tmp_path):
    path = write(episodes([4, 4], seed=5), tmp_path / "a.csv")
    reader = RowReader([path], Roles(None, ("r",), "id", "done", excluded=("cut",)))
    assert reader.features == ("x", "y")
    other = write(episodes([4, 4], seed=5).rename_columns(["x", "id", "z", "r", "done", "cut"]), tmp_path / "b.csv")
    with pytest.raises(InvalidInputError, match=r"b\.csv: column 'y' is missing; the file has 'x', 'id', 'z'"):
        RowReader([path, other], Roles(None, ("r",), "id", "done"))
    other = write(episodes([4, 4], seed=5).append_column("z", pa.array(np.ones(8))), tmp_path / "b.csv")
    with pytest.raises(InvalidInputError, match=r"b\.csv: column 'z' is not in .*a\.csv; give files with the same"):
        RowReader([path, other], Roles(None, ("r",), "id", "done"))


@pytest.mark.parametrize("has_index", [(True, False), (False, True), (True, True)])
def test_the_index_of_a_frame_does_not_count(tmp_path, has_index):
    table = episodes([4, 4], seed=5)
    indexed = table.append_column("__index_level_0__", pa.array(np.arange(8)))
    paths = [write(indexed if has else table, tmp_path / f"{i}.parquet") for i, has in enumerate(has_index)]
    for tables in (paths, dataset_tables(pyarrow.dataset.dataset(paths))):
        assert RowReader(tables, Roles(None, ("r",), "id", "done", excluded=("cut",))).features == ("x", "y")
        roles = Roles(None, ("r",), "__index_level_0__", excluded=("cut", "id", "done"))
        if all(has_index):
            assert RowReader(tables, roles).features == ("x", "y")
            continue
        with pytest.raises(InvalidInputError, match="parquet: column '__index_level_0__' is missing"):
            RowReader(tables, roles)


# Ids that were seen


def test_seen_ids_take_little_memory():
    seen = SeenIds()
    for first in range(0, 100_000, 1000):
        assert seen.add(list(range(first, first + 1000))) is None
    one = SeenIds()
    one.add([0])
    assert len(pickle.dumps(seen)) <= len(pickle.dumps(one)) + 16
    rng = np.random.default_rng(0)
    for part in np.array_split(rng.permutation(20_000) * 3 + 10**6, 50):
        assert seen.add(part.tolist()) is None
    with mock.patch("numpy.searchsorted", wraps=np.searchsorted) as search:
        assert seen.add([5, 99_999]) == 0
    assert 2 <= search.call_count < 20
    assert seen.add([-1, 10**6 + 3]) == 1
    assert seen.add([10**6 + 1]) is None
    assert identity("7") == identity(7) == identity(7.0) == identity("7.0") == 7
    assert (
        len(
            {
                identity("07"),
                identity("7"),
                identity("7.00"),
                identity("a"),
                identity(7.5),
                identity("-0"),
                identity(10**30),
            }
        )
        == 7
    )


VALUES = np.array(
    [b"1", b"22", b" 3 ", b"", b"x y", "é".encode(), b'"a"', b'"a,\n b"', b'"b"" "c', b'5"', b"\xff", b"\xef\xbb\xbf4"],
    object,
)
SHARES = np.array([40, 40, 2, 4, 2, 2, 0.6, 0.4, 0.4, 0.3, 0.3, 4])


def rows_by_python(content, columns):
    """The values of these columns up to the first bad row, and whether that has too few or too many, or is not text."""
    names, *rows = csv.reader(io.StringIO(content.decode("utf-8-sig", "surrogateescape"), newline=""))
    found = []
    for row in rows:
        row = row or [""] * (len(names) == 1)
        if not row:
            continue
        if len(row) != len(names):
            return found, "values where the header names"
        values = {name: value for name, value in zip(names, row, strict=True) if name in columns}
        if any("\udc80" <= sign <= "\udcff" for sign in "".join(values.values())):
            return found, "is not UTF-8 text"
        found.append(values)
    return found, None


def test_blocks_have_the_rows_that_python_reads(tmp_path, monkeypatch):
    rng, kinds = np.random.default_rng(0), Counter()
    for _ in range(300):
        monkeypatch.setattr(files, "READ_BYTES", int(rng.integers(20, 80)))
        n, end = int(rng.integers(1, 4)), [b"\n", b"\r\n", b"\r"][rng.choice(3, p=[0.6, 0.3, 0.1])]
        lines = [b",".join([b"x", b'"y"' if rng.random() < 0.2 else b"y", b"z"][:n])]
        for _ in range(int(rng.integers(0, 20))):
            width = n + int(rng.integers(-1, 2)) * (rng.random() < 0.02)
            lines.append(b",".join(rng.choice(VALUES, width, p=SHARES / SHARES.sum())))
            lines += [b""] * (rng.random() < 0.05)
        content = b"".join([b"\xef\xbb\xbf"] * (rng.random() < 0.1) + [line + end for line in lines])
        content = content if rng.random() < 0.6 else content.removesuffix(end)
        path = tmp_path / ("a.csv.gz" if rng.random() < 0.2 else "a.csv")
        path.write_bytes(gzip.compress(content, 1) if path.suffix == ".gz" else content)
        table = open_table(path)
        columns = table.names[: int(rng.integers(1, len(table.names) + 1))]
        expected, wrong = rows_by_python(content, columns)
        found, failure = [], None
        for block in table.batches(columns):
            for half in (block[: len(block) // 2], block[len(block) // 2 :]) if len(block) > 1 else (block,):
                assert half.first == len(found)
                batch, failure = half.parsed(columns)
                found += [] if batch is None else batch.to_pylist()
                if failure is not None:
                    break
            if failure is not None:
                break
        assert found == expected, content
        assert (wrong or "None") in str(failure), content
        if wrong is not None:
            assert f"row {len(found) + 1} (" in str(failure)
        kinds[wrong] += 1
    assert min(kinds.values()) > 10, kinds


DAYS = np.datetime64("1970-01-01", "ns") + np.repeat(np.arange(4), 10) * np.timedelta64(1, "D")


@pytest.mark.filterwarnings("ignore::lstd.errors.UnusedRewardWarning")
@pytest.mark.parametrize(
    "ids",
    [
        *(np.array([form.format(i) for i in np.arange(40) // 10]) for form in ("{}", "{}.0", "00{}", "p{}")),
        *(np.arange(40) // 10 + shift for shift in (0, 0.0, 0.5)),
        *(DAYS.astype(f"M8[{unit}]") for unit in ("ns", "s", "D")),
    ],
    ids=lambda ids: str(ids[-1]),
)
def test_arrays_continue_the_episode_of_a_table_by_any_form_of_its_id(ids):
    rng = np.random.default_rng(0)
    X, y, terminated = rng.normal(size=(40, 2)), rng.normal(size=40), np.zeros(40, dtype=bool)
    table = pa.table({"a": X[:25, 0], "b": X[:25, 1], "r": y[:25], "id": pa.array(ids[:25]), "end": terminated[:25]})
    columns = {"features": ["a", "b"], "reward": "r", "episode": "id", "terminated": "end"}
    model = fit_tables(table, **columns, gamma=0.9)
    model.partial_fit(pd.DataFrame(X[25:], columns=["a", "b"]), y[25:], episode=ids[25:], terminated=terminated[25:])
    whole = LSTD(gamma=0.9).fit(X, y, episode=ids, terminated=terminated)
    assert model.n_episodes_ == whole.n_episodes_ == 4
    assert_close(model.coef_, whole.coef_, "solve")
