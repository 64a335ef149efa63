"""Reading tables in chunks: the same statistics for any chunk size, and every fault with its file, column and row."""

from __future__ import annotations

import gzip
from dataclasses import fields

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lstd.errors import InvalidInputError, MissingTerminationWarning
from lstd.returns import discounted_returns
from lstd.statistics import LSTDStatistics
from lstd.tables.fitting import Settings, fit_tables, statistics_of
from lstd.tables.rows import Roles, RowReader
from lstd.tables.scoring import score_tables
from lstd.tables.seen import SeenIds, key
from tolerances import assert_close

ROLES = Roles(("x", "y"), ("r",), "id", "done")


def episodes(lengths, seed, *, names=None):
    """A table of episodes, every other one terminated; the rest end in a row without reward."""
    rng = np.random.default_rng(seed)
    n_rows = sum(lengths)
    number = np.repeat(np.arange(len(lengths)), lengths)
    last = np.append(number[1:] != number[:-1], True) if n_rows else np.empty(0, bool)
    done = last & (number % 2 == 0)
    reward = np.where(last & ~done, np.nan, rng.normal(size=n_rows))
    ids = number if names is None else [names[i] for i in number]
    columns = {"x": rng.normal(size=n_rows), "id": ids, "y": rng.normal(size=n_rows), "r": reward, "done": done}
    return pa.table({**columns, "cut": last & ~done})


def write(table, path):
    """Write a table by the extension, missing values as nothing in CSV."""
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=7)
        return str(path)
    text = ",".join(table.column_names) + "\n"
    for row in table.to_pylist():
        text += ",".join("" if value != value else str(value) for value in row.values()) + "\n"
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return str(path)


def statistics(paths, roles=ROLES, chunk_rows=None, parameters=None):
    return statistics_of(RowReader(paths, roles, chunk_rows=chunk_rows), parameters or Settings(0.9, 0.7))


def assert_same(found, expected):
    for field in fields(LSTDStatistics):
        one, two = getattr(found, field.name), getattr(expected, field.name)
        if field.name == "pending":
            assert (one is None) == (two is None)
            if one is not None:
                assert_close(one.phi, two.phi, "sums")
                assert_close(one.reward, two.reward, "sums")
                assert (one.missing, one.leaving) == (two.missing, two.leaving)
        elif isinstance(two, (np.ndarray, float)):
            assert_close(one, two, "sums", err_msg=field.name)
        else:
            assert one == two, field.name


def whole(table, **options):
    columns = {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}
    return LSTDStatistics.from_arrays(
        np.column_stack([columns["x"], columns["y"]]), columns["r"], gamma=0.9, lmbda=0.7,
        terminated=columns["done"], **({"episode": columns["id"]} | options),
    )  # fmt: skip


# The same for any chunk size, format and division among files


@pytest.mark.parametrize("extension", [".csv", ".csv.gz", ".parquet"])
@pytest.mark.parametrize("chunk_rows", [1, 2, 3, 7, 10, 1000])
def test_chunks_give_the_statistics_of_the_whole(tmp_path, extension, chunk_rows):
    table = episodes([3, 1, 5, 2, 4, 1, 9], seed=1)
    path = write(table, tmp_path / f"a{extension}")
    assert_same(statistics([path], chunk_rows=chunk_rows), whole(table))


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


def test_flags_divide_the_rows_without_ids(tmp_path):
    table = episodes([3, 2, 4, 1, 2], seed=2)
    path = write(table, tmp_path / "a.csv")
    roles = Roles(("x", "y"), ("r",), None, "done", "cut")
    expected = whole(table)
    for chunk_rows in (1, 2, 100):
        found = statistics([path], roles, chunk_rows)
        assert (found.first_episode, found.last_episode) == (None, None)
        assert_close(found.A, expected.A, "sums")
        assert_close(found.matrix("boyan"), expected.matrix("boyan"), "sums")
        assert_close(found.b, expected.b, "sums")


def test_one_stream_without_ids_and_flags(tmp_path):
    table = episodes([9], seed=3).set_column(3, "r", pa.array(np.arange(9.0)))
    path = write(table, tmp_path / "a.csv")
    found = statistics([path], Roles(("x", "y"), ("r",)), 4)
    expected = LSTDStatistics.from_arrays(
        np.column_stack([table["x"], table["y"]]), np.arange(9.0), gamma=0.9, lmbda=0.7
    )
    assert_same(found, expected)


@pytest.mark.parametrize(
    ("names", "extension", "first", "last"),
    [
        (["7", "8", "12"], ".csv", 7, 12),
        (["7", "8.5", "12"], ".csv", 7.0, 12.0),
        (["7", "ann", "bob"], ".csv", "7", "bob"),
        (["07", "8", "9"], ".csv", 7.0, 9.0),
        ([7, 8, 12], ".parquet", 7, 12),
        ([7.5, 8.0, 12.0], ".parquet", 7.5, 12.0),
        (["7", "8", "12"], ".parquet", 7, 12),
        (["ann", "bob", "é"], ".parquet", "ann", "é"),
    ],
)
def test_first_and_last_id_keep_their_type(tmp_path, names, extension, first, last):
    found = statistics([write(episodes([2, 2, 2], 1, names=names), tmp_path / f"a{extension}")], chunk_rows=2)
    assert (found.first_episode, found.last_episode) == (first, last)
    assert (type(found.first_episode), type(found.last_episode)) == (type(first), type(last))


def test_several_rewards_and_an_intercept(tmp_path):
    table = episodes([5, 6, 3], seed=4).append_column("s", pa.array(np.arange(14.0)))
    path = write(table, tmp_path / "a.parquet")
    roles = Roles(("x", "y"), ("r", "s"), "id", "done")
    model = fit_tables([path], roles, Settings(0.9, 0.7, 2.0, "mixed", True), chunk_rows=3)
    X = np.column_stack([table["x"], table["y"], np.ones(14)])
    expected = LSTDStatistics.from_arrays(
        X, np.column_stack([table["r"], table["s"]]), gamma=0.9, lmbda=0.7,
        episode=table["id"].to_numpy(), terminated=table["done"].to_numpy(),
    )  # fmt: skip
    weights = np.linalg.solve(expected.matrix("mixed") + np.diag([2.0, 2.0, 0.0]), expected.b)
    assert_close(model.coef, weights[:2].T, "solve")
    assert_close(model.intercept, weights[2], "solve")
    assert_close(model.predict(X[:, :2]), X @ weights, "solve")


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


def test_numeric_types_of_parquet(tmp_path):
    table = pa.table(
        {
            "x": pa.array([1, 2], pa.uint8()),
            "y": pa.array([True, False]),
            "r": pa.array(["1.5", "2.5"]).cast(pa.decimal128(5, 2)),
            "id": pa.array(["a", "a"]).dictionary_encode(),
            "done": pa.array([0.0, 1.0], pa.float32()),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    expected = LSTDStatistics.from_arrays(
        [[1, 1], [2, 0]], [1.5, 2.5], gamma=0.9, lmbda=0.7, episode=["a", "a"], terminated=[0, 1]
    )
    assert_same(statistics([str(tmp_path / "a.parquet")]), expected)


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


# Faults, the same at any chunk size

GOOD = "x,y,r,id,done\n1,1,1,a,0\n2,2,2,a,1\n3,3,3,b,0\n4,4,4,b,0\n5,5,5,c,0\n"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("2,2,2,a", "two,2,2,a", "column 'x', row 2 (the first row of data is 1): has 'two', which is not a number"),
        ("2,2,2,a", ",2,2,a", "column 'x', row 2 (the first row of data is 1): has no value"),
        ("4,4,4,b", "4,nan,4,b", "column 'y', row 4 (the first row of data is 1): has no value"),
        ("4,4,4,b", "4,-inf,4,b", "column 'y', row 4 (the first row of data is 1): is infinite"),
        ("5,5,5,c", "5,1e999,5,c", "column 'y', row 5 (the first row of data is 1): is infinite"),
        ("5,5,5,c", "5,True,5,c", "column 'y', row 5 (the first row of data is 1): has 'True', which is not a number"),
        ("3,3,3,b", "3,3,,b", "column 'r', row 3 (the first row of data is 1): has no value"),
        ("2,2,2,a", "2,2,NaN,a", "column 'r', row 2 (the first row of data is 1): has no value"),
        ("5,5,5,c", "5,5,inf,c", "column 'r', row 5 (the first row of data is 1): is infinite"),
        ("4,4,4,b", "4,4,$4,b", "column 'r', row 4 (the first row of data is 1): has '$4', which is not a number"),
        ("c,0", "c,2", "column 'done', row 5 (the first row of data is 1): has '2', which is neither 0 nor 1"),
        ("c,0", "c,", "column 'done', row 5 (the first row of data is 1): has no value"),
        ("1,a,0", "1,a,1", "column 'done', row 1 (the first row of data is 1): is true, but the next row is of the sa"),
        ("5,c", "5,a", "column 'id', row 5 (the first row of data is 1): 'a' comes again after other episodes; sort"),
        ("4,b", "4,", "column 'id', row 4 (the first row of data is 1): has no value"),
        ("5,5,5,c,0", "5,5,5,c", "row 5 (the first row of data is 1) has 4 values where the header names 5 columns"),
        ("3,3,3,b,0", "3,3,3,b,0,9", "row 3 (the first row of data is 1) has 6 values where the header names 5 colu"),
        ("3,3,3,b,0", '3,3,3,"b,0', "row 3 (the first row of data is 1) has 4 values where the header names 5"),
        ("x,y", "x,z", "column 'y' is missing; the file has 'x', 'z', 'r', 'id', 'done'."),
        ("x,y", "x,x", "column 'x' comes 2 times; rename all but one."),
        (
            GOOD,
            GOOD.replace(",", ";"),
            "column 'x' is missing; the file has 'x;y;r;id;done'. Separate values by commas",
        ),
        (GOOD, "", "is empty; its first line must name the columns."),
        (GOOD, "\n\n", "is empty; its first line must name the columns."),
    ],
)
@pytest.mark.parametrize("chunk_rows", [1, 2, 4, 100])
def test_fault_names_file_column_and_first_row(tmp_path, old, new, message, chunk_rows):
    path = tmp_path / "a.csv"
    path.write_text(GOOD)
    statistics([str(path)], chunk_rows=chunk_rows)
    assert GOOD.count(old) == 1
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(InvalidInputError) as caught:
        statistics([str(path)], chunk_rows=chunk_rows)
    assert str(caught.value).startswith(str(path))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("chunk_rows", [1, 2, 3, 100])
def test_first_of_several_faults_is_named(tmp_path, chunk_rows):
    path = tmp_path / "a.csv"
    faults = ["2,2,2,a", "3,oh,3,b,0", "1,1,1,b,1", "1,1,,b,0", "1,1,1,a,0", "1,1,1,b,no", "1,,1,b,0", "1,1,1,,0"]
    for first in range(len(faults)):
        rows = [row for fault in (*faults[first:], *faults[:first]) for row in (fault, "1,1,1,b,0")]
        path.write_text("x,y,r,id,done\n" + "1,1,1,a,0\n" * 3 + "1,1,1,b,0\n" + "\n".join(rows) + "\n")
        with pytest.raises(InvalidInputError, match=r"row 5 \("):
            statistics([str(path)], chunk_rows=chunk_rows)


def test_quote_that_is_not_closed(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x,y,r,id,done,note\n" + '1,1,1,a,0,5" wide\n' * 4 + '2,2,2,a,0,"\n1,1,1,a,0,\n')
    with pytest.raises(InvalidInputError, match=r"a\.csv: a quote is not closed until the end of the file"):
        statistics([str(path)])
    path.write_text("x,y,r,id,done,note\n" + '1,1,1,a,0,5" wide\n' * 3)
    assert statistics([str(path)]).n_rows == 3
    path.write_text("x,y,r,id,done,note\n" + '1,1,1,a,0,"\n' + 12_000_000 * "x")
    with pytest.raises(InvalidInputError, match=r"a\.csv: after row 0 .* comes one longer than 256 KiB; most likely a"):
        statistics([str(path)])


def test_fault_at_the_border_of_two_files_names_the_first(tmp_path):
    one, two = tmp_path / "a.csv", tmp_path / "b.csv"
    one.write_text("x,y,r,id,done\n1,1,1,a,0\n2,2,,a,0\n")
    two.write_text("x,y,r,id,done\n3,3,3,a,0\n")
    with pytest.raises(InvalidInputError, match=r"a\.csv: column 'r', row 2 \(.*\): has no value"):
        statistics([str(one), str(two)])
    two.write_text("x,y,r,id,done\n3,3,3,b,0\n4,4,4,a,0\n")
    with pytest.raises(InvalidInputError, match=r"b\.csv: column 'id', row 2 \(.*\): 'a' comes again"):
        statistics([str(one), str(two)])


def test_text_that_is_not_utf8(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(GOOD.encode().replace(b"4,b", b"4,\xff"))
    with pytest.raises(
        InvalidInputError, match=r"column 'id', row 4 \(the first row of data is 1\): is not UTF-8 text"
    ):
        statistics([str(path)])


def test_ragged_row_that_is_not_utf8(tmp_path, capfd):
    path = tmp_path / "a.csv"
    for row in (1, 300):
        path.write_bytes(b"x,y,r,id,done\n" + b"1,1,1,a,0\n" * (row - 1) + b"1,1,1,\xff\n" + b"1,1,1,a,0\n" * 5)
        with pytest.raises(InvalidInputError, match=rf"row {row} \(.*\) has 4 values where the header names 5"):
            statistics([str(path)])
    assert capfd.readouterr().err == ""


def test_files_that_cannot_be_read(tmp_path):
    cases = {
        "none.csv": (None, "No such file"),
        "a.txt": (b"x", r"must end in one of \.csv, \.csv\.gz, \.parquet"),
        "b.parquet": (b"", "could not be read"),
        "c.parquet": (b"PAR1 this is not parquet PAR1", "could not be read"),
        "d.csv.gz": (GOOD.encode(), "could not be read: Not a gzipped file"),
        "e.csv.gz": (gzip.compress(GOOD.encode() * 99)[:-20], "could not be read"),
    }
    for name, (content, message) in cases.items():
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(InvalidInputError, match=message) as caught:
            statistics([str(path)])
        assert name in str(caught.value)
        assert "\n" not in str(caught.value)
    (tmp_path / "f.csv").mkdir()
    with pytest.raises(InvalidInputError, match=r"f\.csv must be a regular file"):
        statistics([str(tmp_path / "f.csv")])


def test_damaged_row_group_is_named(tmp_path):
    path = tmp_path / "a.parquet"
    table = episodes([50] * 40, seed=6)
    pq.write_table(table, path, row_group_size=500, write_page_checksum=True, compression="none")
    start = pq.ParquetFile(path).metadata.row_group(2).column(0).data_page_offset
    content = bytearray(path.read_bytes())
    content[start + 200] ^= 1
    path.write_bytes(content)
    with pytest.raises(InvalidInputError, match=r"a\.parquet: row group 3 \(rows 1001 to 1500\) could not be read"):
        statistics([str(path)])


def test_parquet_columns_of_other_types(tmp_path):
    table = episodes([4, 3], seed=7)
    path = tmp_path / "a.parquet"
    cases = (
        ("x", pa.array(list("abcdefg")), r"column 'x', row 1 .*: has 'a', which is not a number"),
        ("x", pa.array([[1.0]] * 7), r"column 'x', row 1 .*: is not numeric; the column is of type list"),
        ("y", pa.array([1.0, None] + [1.0] * 5), r"column 'y', row 2 .*: has no value"),
        ("done", pa.array([0, 0, 3, 0, 0, 0, 0]), r"column 'done', row 3 .*: has 3, which is neither 0 nor 1"),
        ("id", pa.array([1.0, np.nan] + [1.0] * 5), r"column 'id', row 2 .*: has no value"),
    )
    for column, values, message in cases:
        pq.write_table(table.set_column(table.column_names.index(column), column, values), path)
        with pytest.raises(InvalidInputError, match=message):
            statistics([str(path)], chunk_rows=3)


def test_roles_are_one_per_column(tmp_path):
    path = write(episodes([4], seed=8), tmp_path / "a.csv")
    with pytest.raises(InvalidInputError, match="column 'r' is named 2 times"):
        RowReader([path], Roles(("x", "r"), ("r",)))
    with pytest.raises(InvalidInputError, match="no column is left for features"):
        RowReader([path], Roles(None, ("r",), excluded=("x", "y", "id", "done", "cut")))


def test_nothing_to_fit(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x,y,r,id,done\n")
    with pytest.raises(InvalidInputError, match="of 0 rows none is followed"):
        fit_tables([str(path)], ROLES, Settings(0.9))
    path.write_text("x,y,r,id,done\n1,1,1,a,0\n1,1,1,b,0\n")
    with pytest.raises(InvalidInputError, match="of 2 rows none is followed"):
        fit_tables([str(path)], ROLES, Settings(0.9))


def test_missing_terminations_are_said(tmp_path):
    table = episodes([4, 4], seed=9)
    path = write(table, tmp_path / "a.csv")
    with pytest.warns(MissingTerminationWarning, match="Nothing says which episodes terminated"):
        fit_tables([write(table[4:], tmp_path / "b.csv")], Roles(("x",), ("r",), "id"), Settings(0.9))
    with pytest.raises(InvalidInputError, match="`gamma` must be in"):
        fit_tables([path], ROLES, Settings(1.5))


# Ids that were seen


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.one_of(st.integers(-30, 30), st.text("ab", max_size=4)), max_size=8), max_size=12))
def test_seen_ids_are_those_of_a_set(chunks):
    seen, expected = SeenIds(), set()
    for chunk in chunks:
        known = [place for place, name in enumerate(chunk) if name in expected or name in chunk[:place]]
        assert seen.add([key(name) for name in chunk]) == (known[0] if known else None)
        if not known:
            expected.update(chunk)


def test_seen_ids_take_little_memory():
    seen = SeenIds()
    for first in range(0, 100_000, 1000):
        assert seen.add(list(range(first, first + 1000))) is None
    assert sum(len(low) for low, _ in seen._integers._levels) == 1
    rng = np.random.default_rng(0)
    for part in np.array_split(rng.permutation(20_000) * 3 + 10**6, 50):
        assert seen.add(part.tolist()) is None
    assert len(seen._integers._levels) < 20
    assert seen.add([5, 99_999]) == 0
    assert seen.add([-1, 10**6 + 3]) == 1
    assert seen.add([10**6 + 1]) is None
    assert key("7") == key(7) == key(7.0) == 7
    assert len({key("07"), key("7"), key("7.0"), key("a"), key(7.5), key("-0"), key(10**30)}) == 7


# Returns and scores


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1, max_size=6), st.floats(0, 1))
def test_returns_are_those_of_the_definition(drawn, gamma):
    rng = np.random.default_rng(len(drawn))
    last = np.concatenate([np.arange(length) == length - 1 for length, _ in drawn])
    terminated = last & np.repeat([ends for _, ends in drawn], [length for length, _ in drawn])
    y = rng.normal(size=(len(last), 2))
    y[last & ~terminated] = np.nan
    returns, unobserved = discounted_returns(y, gamma, last, terminated)
    single, _ = discounted_returns(y[:, 0], gamma, last, terminated)
    for t in range(len(last)):
        end = t + int(np.argmax(last[t:]))
        rows = np.arange(t, end + 1 if terminated[end] else end)
        assert_close(returns[t], (gamma ** (rows - t)) @ y[rows] if len(rows) else np.zeros(2), "sums")
        assert_close(unobserved[t], 0.0 if terminated[end] else gamma ** (end - t), "sums")
    assert_close(single, returns[:, 0], "sums")


def test_returns_of_no_row_and_of_one():
    for rows in (0, 1):
        returns, unobserved = discounted_returns(np.ones(rows), 0.5, np.ones(rows), np.zeros(rows))
        assert returns.tolist() == [0.0] * rows
        assert unobserved.tolist() == [1.0] * rows


@pytest.mark.parametrize("gamma", [0.0, 0.6, 0.99, 1.0])
@pytest.mark.parametrize("chunk_rows", [1, 13, 100, 10_000])
def test_scores_are_those_of_the_whole(tmp_path, gamma, chunk_rows):
    table = episodes([40, 1, 30, 600, 2, 55], seed=10)
    path = write(table, tmp_path / "a.parquet")
    model = fit_tables([path], ROLES, Settings(gamma, 0.7))
    score = score_tables(model, [path], ROLES, chunk_rows=chunk_rows)
    columns = {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}
    last = np.append(columns["id"][1:] != columns["id"][:-1], True)
    returns, unobserved = discounted_returns(columns["r"], gamma, last, columns["done"])
    counts = unobserved < 0.01
    predicted = model.predict(np.column_stack([columns["x"], columns["y"]]))[:, 0]
    errors, returns = (returns - predicted)[counts], returns[counts]
    assert (score.rows, score.scored) == (728, int(counts.sum()))
    assert_close(score.mse, [np.mean(errors**2)], "sums")
    assert_close(score.r2, [1 - np.sum(errors**2) / np.sum((returns - returns.mean()) ** 2)], "solve")


def test_score_of_a_long_stream_holds_few_rows(tmp_path, monkeypatch):
    from lstd.tables import scoring

    held = []
    known = scoring._Waiting._known

    def watched(self, **options):
        held.append(sum(map(len, self._episodes)))
        return known(self, **options)

    monkeypatch.setattr(scoring._Waiting, "_known", watched)
    table = episodes([20_000], seed=11)
    path = write(table, tmp_path / "a.parquet")
    model = fit_tables([path], ROLES, Settings(0.9))
    assert score_tables(model, [path], ROLES, chunk_rows=100).scored == 20_000
    assert max(held) < 2000  # 0.9^394 is below 1e-18


def test_score_without_whole_returns_says_so(tmp_path):
    table = episodes([2, 30, 2, 40], seed=12)[2:32]
    path = write(table, tmp_path / "a.csv")
    model = fit_tables([path], ROLES, Settings(0.99))
    with pytest.raises(InvalidInputError, match=r"of 30 rows none can be scored.*more than 459 rows"):
        score_tables(model, [path], ROLES)
