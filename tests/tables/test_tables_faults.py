"""Every fault in a table is one line with its file, column and first bad row, at any chunk size."""

import gzip

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from lstd import Trajectories
from lstd.data.roles import Roles
from lstd.data.settings import Settings
from lstd.errors import InvalidInputError
from table_files import ROLES, episodes, fit_files, statistics, write

GOOD = "x,y,r,id,done\n1,1,1,a,0\n2,2,2,a,1\n3,3,3,b,0\n4,4,4,b,0\n5,5,5,c,0\n"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("2,2,2,a", "two,2,2,a", "column 'x', row 2 (the first row of data is 1): has 'two', which is not a number"),
        ("2,2,2,a", ",2,2,a", "column 'x', row 2 (the first row of data is 1): has no value"),
        ("4,4,4,b", "4,-inf,4,b", "column 'y', row 4 (the first row of data is 1): is infinite"),
        ("5,5,5,c", "5,1e999,5,c", "column 'y', row 5 (the first row of data is 1): is infinite"),
        ("3,3,3,b", "3,3,,b", "column 'r', row 3 (the first row of data is 1): has no value"),
        (
            "2,2,2,a",
            "2,2,n/a,a",
            "has 'n/a', which counts as no value, and column 'done' is true in this row, which says that",
        ),
        ("4,4,4,b", "4,4,$4,b", "column 'r', row 4 (the first row of data is 1): has '$4', which is not a number"),
        ("c,0", "c,2", "column 'done', row 5 (the first row of data is 1): has '2', which is neither 0 nor 1"),
        ("1,a,0", "1,a,1", "column 'done', row 1 (the first row of data is 1): is followed by a row of the same episo"),
        ("5,c", "5,a", "column 'id', row 5 (the first row of data is 1): 'a' reappears after other episodes; sort"),
        ("4,b", "4,", "column 'id', row 4 (the first row of data is 1): has no value"),
        ("4,b", "4,NaN", "column 'id', row 4 (the first row of data is 1): has 'NaN', which counts as no value"),
        ("5,5,5,c,0", "5,5,5,c", "row 5 (the first row of data is 1) has 4 values where the header names 5 columns"),
        ("3,3,3,b,0", "3,3,3,b,0,9", "row 3 (the first row of data is 1) has 6 values where the header names 5 colu"),
        ("3,3,3,b,0", '3,3,3,"b,0', "row 3 (the first row of data is 1): a quote is not closed by the end of the file"),
        (
            "3,3,3,b,0",
            '\n"3",3,3,"b","0"\n\n\n3,3,3',
            "row 4 (the first row of data is 1) has 3 values where the heade",
        ),
        ("3,3,3,b,0", '3,3,3,"b\nb\n",0\r\n\r\n3,3,oh,c,0', "column 'r', row 4 (the first row of data is 1): has 'oh'"),
        ("x,y", "x,z", "column 'y' is missing; the file has 'x', 'z', 'r', 'id', 'done'."),
        ("x,y", "x,x", "column 'x' appears 2 times; rename all but one."),
        (
            GOOD,
            GOOD.replace(",", ";"),
            "column 'x' is missing; the file has 'x;y;r;id;done'. Separate values by commas",
        ),
        (GOOD, "", "is empty; its first line must name the columns."),
    ],
)
@pytest.mark.parametrize("chunk_rows", [2, 100])
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
    faults = ["2,2,2,a", "3,oh,3,b,0", "1,1,1,b,1", "1,1,,b,0", "1,1,1,a,0", "1,1,1,b,nope", "1,,1,b,0", "1,1,1,,0"]
    for first in range(len(faults)):
        rows = [row for fault in (*faults[first:], *faults[:first]) for row in (fault, "1,1,1,b,0")]
        path.write_text("x,y,r,id,done\n" + "1,1,1,a,0\n" * 3 + "1,1,1,b,0\n" + "\n".join(rows) + "\n")
        with pytest.raises(InvalidInputError, match=r"row 5 \("):
            statistics([str(path)], chunk_rows=chunk_rows)


@pytest.mark.parametrize("extension", ["csv", "csv.gz", "parquet"])
def test_a_byte_order_mark_within_a_file_belongs_to_its_value(tmp_path, extension):
    """Only at the beginning of a file it is dropped; see data frames too."""
    columns = {name: ["1", "2"] for name in ("x", "y", "r", "done")} | {"done": ["0", "0"], "id": ["a", "a"]}
    for changed, value, message in (("x", "\ufeff1", r"'x', row 1 .* has '\\ufeff1', which is not a number"),
                                    ("id", "\ufeffa", "")):  # fmt: skip
        table = pa.table({changed: [value, columns[changed][1]], **{k: v for k, v in columns.items() if k != changed}})
        path = write(table, tmp_path / f"{changed}.{extension}")
        if message:
            with pytest.raises(InvalidInputError, match=message):
                statistics([path])
            with pytest.raises(InvalidInputError, match=r"'x' \(`features`\), row 0 .* has '\\ufeff1', which is not"):
                Trajectories.from_frame(table, features=["x", "y"], reward="r", episode="id", terminated="done")
        else:
            assert statistics([path], roles=ROLES).n_episodes == 2  # two ids


def test_quote_that_is_not_closed(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x,y,r,id,done,note\n" + '1,1,1,a,0,5" wide\n' * 4 + '2,2,2,a,0,"\n1,1,1,a,0,\n')
    with pytest.raises(InvalidInputError, match=r"a\.csv: row 5 \(.*\): a quote is not closed by the end of the file"):
        statistics([str(path)])
    path.write_text("x,y,r,id,done,note\n" + '1,1,1,a,0,5" wide\n' * 3)
    assert statistics([str(path)]).n_rows == 3
    path.write_text("x,y,r,id,done,note\n" + '1,1,1,a,0,"\n' + 12_000_000 * "x")
    with pytest.raises(
        InvalidInputError, match=r"a\.csv: row 1 .* is longer than 1024 KiB. Most likely a .*if a text is "
    ):
        statistics([str(path)])


def test_text_that_is_not_utf8(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(GOOD.encode().replace(b"4,b", b"4,\xff"))
    with pytest.raises(
        InvalidInputError, match=r"column 'id', row 4 \(the first row of data is 1\): is not UTF-8 text; save"
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
    with pytest.raises(InvalidInputError, match=r"path is empty, ''; name a file"):
        statistics([""])
    (tmp_path / "f.csv").mkdir()
    with pytest.raises(InvalidInputError, match=r"f\.csv is a folder; name the files in it"):
        statistics([str(tmp_path / "f.csv")])


def test_parquet_columns_of_other_types(tmp_path):
    table = episodes([4, 3], seed=7)
    path = tmp_path / "a.parquet"
    cases = (
        ("x", pa.array(list("abcdefg")), r"column 'x', row 1 .*: has 'a', which is not a number"),
        ("x", pa.array([[1.0]] * 7), r"column 'x', row 1 .*: is of type list.*, which is not numeric"),
        ("y", pa.array([1.0, None] + [1.0] * 5), r"column 'y', row 2 .*: has no value"),
        ("done", pa.array([0, 0, 3, 0, 0, 0, 0]), r"column 'done', row 3 .*: has 3, which is neither 0 nor 1"),
        ("id", pa.array([1.0, np.nan] + [1.0] * 5), r"column 'id', row 2 .*: has no value"),
        ("id", pa.array([1.0, 1.0, -np.inf] + [1.0] * 4), r"column 'id', row 3 .*: is infinite; every row needs"),
    )
    for column, values, message in cases:
        pq.write_table(table.set_column(table.column_names.index(column), column, values), path)
        with pytest.raises(InvalidInputError, match=message):
            statistics([str(path)], chunk_rows=3)


@pytest.mark.filterwarnings("ignore::lstd.errors.UnusedRewardWarning")
def test_nothing_to_fit(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x,y,r,id,done\n")
    with pytest.raises(InvalidInputError, match=r"no row is followed .* number of rows is 0"):
        fit_files([str(path)], ROLES, Settings(0.9))
    path.write_text("x,y,r,id,done\n1,1,1,a,0\n1,1,1,b,0\n")
    with pytest.raises(InvalidInputError, match=r"no row is followed .* number of rows is 2"):
        fit_files([str(path)], ROLES, Settings(0.9))


CUT = Roles(("x",), ("r",), "id", "done", "cut")
CUTS = {
    "in the row without reward": ("a,1,0,0|a,2,0,0|a,,0,1|b,1,1,0", 0, ""),
    "in the row before it": ("a,1,0,0|a,2,0,1|a,,0,0|b,1,1,0", 0, ""),
    "in the row before it, and that one has a reward": ("a,1,0,0|a,2,0,1|a,5,0,0|b,1,1,0", 0, ""),
    "in both": ("a,1,0,0|a,2,0,1|a,5,0,1|b,1,1,0", 0, ""),
    "where it terminated too": ("a,1,0,0|a,2,1,1|b,1,1,1", 0, ""),
    "in the last row, which has a reward": ("a,1,0,0|a,2,0,0|a,5,0,1|b,1,1,0", 3, "has a reward but no row for"),
    "in the last row of all, which has a reward": ("b,1,1,0|a,2,0,0|a,5,0,1", 3, "has a reward but no row for"),
    "too early": ("a,1,0,1|a,2,0,0|a,,0,0|b,1,1,0", 1, "the last two rows of an episode"),
    "before a row that terminated": ("b,1,1,0|a,1,0,0|a,2,0,1|a,1,1,0", 3, "the last two rows of an episode"),
}


@pytest.mark.parametrize("case", CUTS)
@pytest.mark.parametrize("chunk_rows", [1, 2, 3, 100])
def test_truncation_is_flagged_as_in_frames(tmp_path, case, chunk_rows):
    rows, bad, message = CUTS[case]
    (tmp_path / "a.csv").write_text("id,r,done,cut,x\n" + "".join(f"{row},1\n" for row in rows.split("|")))
    frame = pyarrow.csv.read_csv(tmp_path / "a.csv")
    arguments = {"features": "x", "reward": "r", "episode": "id", "terminated": "done", "truncated": "cut"}
    if not bad:
        found = statistics([str(tmp_path / "a.csv")], CUT, chunk_rows)
        data = Trajectories.from_frame(frame, **arguments)
        assert (found.n_transitions, found.n_episodes) == (data.n_transitions, data.n_episodes)
        return
    with pytest.raises(InvalidInputError, match=rf"column 'cut', row {bad} \(.*{message}"):
        statistics([str(tmp_path / "a.csv")], CUT, chunk_rows)
    with pytest.raises(InvalidInputError, match=message) as caught:
        Trajectories.from_frame(frame, first_row=1, **arguments)
    assert f"row {bad} (counting from 1)" in str(caught.value)


def test_files_that_are_no_csv_say_what_they_are(tmp_path):
    path = tmp_path / "a.csv"
    for content, message in (
        (GOOD.encode("utf-16"), "is UTF-16 text; save the file as UTF-8"),
        (GOOD.encode("utf-16-be"), "column 'x' is missing"),
        (GOOD.replace("x", "größe").encode("latin-1"), "its first line is not UTF-8 text; save the file as UTF-8"),
        (b'"' + 50_000 * GOOD.encode(), r"its first line has a name longer than 128 KiB\. Most likely a quote is not"),
        (gzip.compress(GOOD.encode()), r"is compressed by gzip; rename it to end in \.csv\.gz"),
        (b"PAR1....PAR1", r"is a Parquet file; rename it to end in \.parquet"),
        (b"PK\x03\x04....", "is a workbook or a zip archive; save the table as CSV"),
    ):
        path.write_bytes(content)
        with pytest.raises(InvalidInputError, match=message) as caught:
            statistics([str(path)])
        assert str(caught.value).startswith(str(path))


def test_spaces_around_names_are_pointed_out(tmp_path):
    (tmp_path / "a.csv").write_text("x, y,r,id,done\n1,1,1,a,0\n")
    with pytest.raises(
        InvalidInputError, match=r"column 'y' is missing; .*\. Spaces count: write '\" y\"' for ' y'\.$"
    ):
        statistics([str(tmp_path / "a.csv")])
