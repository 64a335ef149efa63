"""`lstd watch`: predictions as rows come, a state that survives, bad rows."""

import json
import os
import warnings
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lstd import RecursiveLSTD, files
from lstd.cli.app import run
from lstd.data.settings import VARIANTS
from lstd.errors import InvalidInputError
from lstd.files import FolderLock
from lstd.tables.column_roles import Roles
from lstd.tables.live_lines import GrowingFile, StandardInput
from lstd.tables.watching import Watch, WatchSettings, WatchState
from tolerances import assert_close

COLUMNS = ["--features", "u,v", "--reward", "r", "--episode", "id", "--terminated", "done", "--gamma", "0.9"]
N, LENGTH = 200, 20


def written(path, rows):
    Path(path).write_text("".join(f"{row}\n" for row in rows))


@pytest.fixture
def rows(tmp_path, monkeypatch):
    """Lines of CSV, the header first, also in the file a.csv."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    values = rng.normal(size=(N, 3)).round(3).tolist()
    lines = ["id,u,v,r,done"]
    lines += [f"{t // LENGTH},{u},{v},{r + u},{int(t % LENGTH == LENGTH - 1)}" for t, (u, v, r) in enumerate(values)]
    written("a.csv", lines)
    return lines


def watch(*words, data="a.csv"):
    return run(["watch", data, *COLUMNS, "--no-wait", *words])


def predictions(path="p.csv"):
    lines = (line.split(",") for line in Path(path).read_text().split()[1:])
    return {int(row): float(value) for row, value, *_ in lines}


# What is predicted


def test_predictions_are_those_of_the_recursion(rows):
    assert watch("--out", "p.csv", "--no-intercept") == 0
    model, found = RecursiveLSTD(2, gamma=0.9), predictions()
    values = np.array([[float(value) for value in line.split(",")] for line in rows[1:]])
    assert list(found) == list(range(1, N + 1))
    for t, (_, u, v, r, done) in enumerate(values):
        assert_close(found[t + 1], model.predict([u, v]), "recursions")
        following = None if done else values[t + 1, 1:3]
        model.update([u, v], r, following, terminated=bool(done))


def test_csv_json_and_standard_input_give_the_same(rows, monkeypatch, capfd):
    assert watch("--out", "p.csv") == 0
    written("a.jsonl", as_json(rows))
    assert watch("--out", "q.csv", data="a.jsonl") == 0
    assert predictions() == predictions("q.csv")
    capfd.readouterr()
    with open("a.csv", "rb") as file:
        kept = os.dup(0)
        try:
            os.dup2(file.fileno(), 0)
            assert watch("--quiet", data="-") == 0
        finally:
            os.dup2(kept, 0)
            os.close(kept)
    assert capfd.readouterr().out == Path("p.csv").read_text()


@pytest.mark.filterwarnings("default::lstd.errors.ChangeWarning")
def test_a_jump_shows_in_the_columns_in_json_and_in_a_warning_that_names_row_and_time(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    random, n, jump = np.random.default_rng(0), 3000, 2500
    x, noise = random.normal(size=(2, n))
    y = x + 0.3 * noise + 3.0 * (np.arange(n) >= jump)
    written("s.csv", ["second,x,y", *(f"{t},{x[t]:.4f},{y[t]:.4f}" for t in range(n))])
    options = ["watch", "s.csv", "--features", "x", "--reward", "y", "--gamma", "0.5", "--time", "second", "--no-wait"]
    assert run([*options, "--json"]) == 0
    found = capfd.readouterr()
    rows = [json.loads(line) for line in found.out.splitlines()]
    assert [*rows[0]] == ["row", "prediction", "standard_error", "drift", "changed"]
    changed = [row["row"] for row in rows if row["changed"]]
    assert jump < changed[0] < jump + 200
    assert rows[0]["drift"] is rows[changed[0] - 1]["drift"] is None  # the history is short
    assert 0.0 < max(row["drift"] or 0.0 for row in rows) <= 1.0
    assert f"s.csv: row {changed[0]} (second {changed[0] - 1}): After {changed[0] - 1} updates" in found.err
    model, drift = RecursiveLSTD(2, 0.5, 0.9, [1.0, 0.0]), []
    table = pd.read_csv("s.csv").to_numpy()
    with warnings.catch_warnings(action="ignore"):
        for t in range(n - 1):
            drift.append(model.drift_)
            model.update([table[t, 1], 1.0], table[t, 2], [table[t + 1, 1], 1.0])
    assert_close(np.array([row["drift"] for row in rows[:-1]], float), drift, "recursions")


def test_copied_columns_come_first(rows):
    assert watch("--out", "p.csv", "--id", "id,u") == 0
    assert Path("p.csv").read_text().split()[:2] == [
        "row,id,u,prediction,standard_error,drift,changed",
        f"1,0,{rows[1].split(',')[1]},0.0,,,False",
    ]


@pytest.mark.parametrize(("text", "count"), [("", 0), ("id,u,v,r,done\n", 0), ("id,u,v,r,done\n0,1,1,1,0\n", 1)])
def test_empty_input_and_one_row(rows, text, count):
    Path("b.csv").write_text(text)
    assert watch("--out", "p.csv", data="b.csv") == 0
    assert len(predictions()) == count


# The state


@pytest.mark.parametrize("cut", [0, 1, LENGTH + 1, N])
def test_it_goes_on_where_the_state_was_saved(rows, cut):
    """As rows are added, also within a line; and after more was written to the output than the state knows of."""
    assert watch("--out", "whole.csv") == 0
    text = Path("a.csv").read_bytes()
    place = len("\n".join(rows[: cut + 1]).encode()) + (3 if cut < N else 1)
    Path("a.csv").write_bytes(text[:place])
    assert watch("--state", "state", "--out", "p.csv") == 0
    assert len(predictions()) == cut
    Path("a.csv").write_bytes(text)
    with open("p.csv", "ab") as file:
        file.write(b"900,1.0\n90")
    assert watch("--state", "state", "--out", "p.csv") == 0
    assert Path("p.csv").read_text() == Path("whole.csv").read_text()


def as_json(rows):
    names = rows[0].split(",")
    return [json.dumps(dict(zip(names, line.split(","), strict=True))) for line in rows[1:]]


def test_a_state_of_other_options_is_refused(rows, capsys):
    assert watch("--state", "state", "--out", "p.csv") == 0
    before = Path("state").read_bytes()
    assert watch("--state", "state", "--out", "p.csv", "--lmbda", "0.5") == 3
    assert "lmbda 0.9, and now it is 0.5" in capsys.readouterr().err
    assert Path("state").read_bytes() == before
    assert watch("--state", "state", "--out", "p.csv", "--lmbda", "0.5", "--force") == 0


def test_a_file_that_is_not_the_one_before_is_refused(rows, capsys):
    assert watch("--state", "state") == 0
    Path("a.csv").write_text(Path("a.csv").read_text().replace("\n5,", "\n6,"))
    written("a.csv", [rows[0], *reversed(rows[1:])])
    assert watch("--state", "state") == 2
    assert "is not the file that was read before" in capsys.readouterr().err


def test_a_damaged_state_is_refused(rows, capsys):
    assert watch("--state", "state") == 0
    content = bytearray(Path("state").read_bytes())
    content[len(content) // 2] ^= 1
    Path("state").write_bytes(content)
    assert watch("--state", "state") == 2
    assert "checksum does not match" in capsys.readouterr().err


def test_an_output_that_is_not_of_the_state_is_refused(rows, capsys):
    Path("p.csv").write_text("mine\n")
    assert watch("--out", "p.csv") == 2
    assert watch("--state", "state", "--out", "p.csv") == 2
    assert Path("p.csv").read_text() == "mine\n"
    assert watch("--state", "state", "--out", "q.csv") == 0
    Path("q.csv").write_text("row,prediction\n")
    assert watch("--state", "state", "--out", "q.csv") == 2
    assert "q.csv has 15 bytes, and the state records" in capsys.readouterr().err


def log(rng, n_rows):
    """Lines with all columns, some of them bad."""
    lines, episode = ["id,u,v,r,done,cut,g,rho,c,w,t"], 0
    for t in range(n_rows):
        end = rng.choice(["", "done", "cut"], p=[0.85, 0.08, 0.07])
        row = [f"e{episode}", *rng.normal(size=3).round(3), int(end == "done"), int(end == "cut")]
        row += [*rng.random(4).round(2), t]
        row[3] = "" if end == "cut" else row[3]
        place, value = rng.integers(1, 11), rng.choice(["", "x", "1e300", "1"])
        changes = {0: (place, value), 1: (0, f"e{rng.integers(0, episode + 1)}"), 2: (10, t - 5), 3: (3, "1e300")}
        if (kind := int(rng.integers(0, 40))) in changes:
            row[changes[kind][0]] = changes[kind][1]
        lines.append("" if kind == 4 else ",".join(map(str, row)) + ",1" * (kind == 5))
        episode += bool(end)
    return [line.encode() for line in lines]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.filterwarnings("ignore")
def test_predictions_and_bad_lines_do_not_depend_on_how_lines_come(tmp_path, seed):
    """In any pieces, also from one process to the next, to the last bit."""
    rng, place = np.random.default_rng(seed), StandardInput(number=os.open(os.devnull, os.O_RDONLY))
    lines = log(rng, 90)
    roles = Roles(
        ("u", "v"), ("r",), "id", "done", "cut", time="t", kept=("id",),
        transitions={"discount": "g", "importance_ratio": "rho", "trace_coefficient": "c", "weight": "w"},
    )  # fmt: skip
    settings = WatchSettings(0.9, 0.8, 1.0, VARIANTS[seed], True, (), ["auto", 1.0, 0.99][seed])

    def followed(pieces, again):
        watched, rows, bad = Watch("f", roles, settings), [], []
        for piece in pieces:
            for part in watched.take(piece):
                rows += part.rows
                bad += [str(part.bad)] if part.bad else []
            if again:
                watched.save(tmp_path / "state", place, 0)
                watched = Watch("f", roles, settings, files.read_record(tmp_path / "state", WatchState))
        return rows, bad, watched.counts()

    cuts = np.sort(rng.choice(len(lines), 6, replace=False))
    pieces = [lines[a:b] for a, b in zip([0, *cuts], [*cuts, len(lines)], strict=True)]
    whole = followed([lines], False)
    assert whole[1]
    assert followed(pieces, False) == whole
    assert followed(pieces, True) == whole


# Bad rows

BAD = {
    "not a number": ("3,x,1,1,0", "column 'u', row 101 (the first row of data is 1): has 'x'"),
    "NaN": ("3,nan,1,1,0", "column 'u', row 101 (the first row of data is 1): has no value"),
    "too few": ("3,1", "row 101 (the first row of data is 1) has 2 values where the header names 5"),
    "quotes": ('3,"1,1,1,0', "row 101 (the first row of data is 1) is not a row of CSV"),
    "flag": ("5,1,1,1,perhaps", "column 'done', row 101 (the first row of data is 1): has 'perhaps'"),
    "again": ("2,1,1,1,0", "column 'id', row 101 (the first row of data is 1): '2' reappears after other episodes"),
    "too large": ("3,1e300,1,1,0", "column 'u', row 101 (the first row of data is 1): has 1e+300; features must be"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_row_is_left_out_or_ends_it(rows, capsys, kind):
    line, message = BAD[kind]
    written("b.csv", [*rows[:101], line, *rows[101:]])
    assert watch("--out", "p.csv", data="b.csv") == 2
    error = capsys.readouterr().err
    assert message in error
    assert "See line 102." in error
    assert watch("--out", "p.csv", "--force", "--on-error", "skip", data="b.csv") == 0
    error = capsys.readouterr().err
    assert message in error
    assert "Line 102 is left out." in error
    assert "sort" not in error
    assert f"{N} rows, 1 left out" in error
    assert watch("--out", "q.csv") == 0  # the row stood between two episodes, so nothing else changes
    assert list(predictions().values()) == list(predictions("q.csv").values())


@pytest.mark.parametrize("value", ["", "1e300"])
def test_a_reward_that_cannot_be_learned_leaves_a_gap(rows, capsys, value):
    """The row after it is of another episode; the row itself has a prediction."""
    fields = rows[110].split(",")
    fields[3] = value
    written("b.csv", [*rows[:110], ",".join(fields), *rows[111:]])
    assert watch("--out", "p.csv", "--on-error", "skip", data="b.csv") == 0
    error = capsys.readouterr().err
    assert "row 110 (the first row of data is 1)" in error
    assert "Its episode is cut off at line 111." in error
    assert f"{N} rows, 1 episode cut off by bad rows" in error
    assert list(predictions()) == list(range(1, N + 1))
    later = [f"{int(line.split(',')[0]) + (t > 110)},{line.partition(',')[2]}" for t, line in enumerate(rows[1:], 1)]
    written("c.csv", [rows[0], *later])
    assert watch("--out", "q.csv", data="c.csv") == 0
    assert predictions() == predictions("q.csv")


def test_lines_are_counted_with_blank_ones_and_from_state_to_state(rows, capsys):
    written("b.csv", ["", rows[0], *rows[1:10], "", "", *rows[10:12]])
    assert watch("--state", "state", data="b.csv") == 0
    with open("b.csv", "ab") as file:
        file.write(b"\n0,x,1,1,0\n0,\xff,1,1,0\n")
    assert watch("--state", "state", "--on-error", "skip", data="b.csv") == 0
    error = capsys.readouterr().err
    assert "row 12 (the first row of data is 1): has 'x'" in error
    assert "Line 17 is left out." in error
    assert "row 13 (the first row of data is 1) is not text in UTF-8." in error
    assert "codec" not in error


def test_time_that_goes_back_is_told_without_a_remedy_that_watch_has_not(rows, capsys):
    written("b.csv", ["u,r,day", "1,1,2", "1,1,1"])
    assert (
        run(["watch", "b.csv", "--features", "u", "--reward", "r", "--time", "day", "--gamma", "0.9", "--no-wait"]) == 2
    )
    error = capsys.readouterr().err
    assert "column 'day', row 2" in error
    assert "is earlier than the row before it" in error
    assert "sort" not in error


def test_a_state_in_use_is_named(rows, capsys):
    lock = FolderLock(Path(".lstd-state.lock"), "--state")
    try:
        assert watch("--state", "state") == 2
    finally:
        lock.release()
    assert f"process {os.getpid()} is writing to 'state'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--reward", "nothing"], "column 'nothing' is missing"),
        (["--gamma", "2"], "`--gamma` must be in [0, 1]"),
        (["--forgetting", "3"], "`--forgetting` must be in (0, 1]"),
        (["--on-error", "ignore"], "`--on-error` must be stop or skip"),
        (["--out", "p.parquet"], "`--out` must end in .csv"),
        (["--state", "a.csv"], "must not be a file that is read"),
    ],
)
def test_bad_options_are_refused_before_anything_is_written(rows, capsys, words, message):
    assert watch(*words) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert len(captured.err.splitlines()) == 1
    assert {path.name for path in Path().iterdir()} == {"a.csv"}


# Lines as they come


def test_a_line_waits_for_its_end(tmp_path):
    path = tmp_path / "lines"
    path.write_bytes(b"a\nb")
    with closing(GrowingFile(str(path))) as lines:
        come = lines.lines(wait=True)
        assert next(come) == [b"a"]
        assert next(come) == []
        with open(path, "ab") as file:
            file.write(b"c\n\nd\n")
        assert next(come) == [b"bc", b"", b"d"]
        assert not lines.unfinished


@pytest.mark.parametrize("how", ["cut off", "replaced", "removed"])
def test_a_file_that_is_rotated_ends_it(tmp_path, how):
    path = tmp_path / "lines"
    path.write_bytes(b"a\nb\n")
    with closing(GrowingFile(str(path))) as lines:
        come = lines.lines(wait=True)
        assert next(come) == [b"a", b"b"]
        if how == "cut off":
            path.write_bytes(b"")
        else:
            os.rename(path, tmp_path / "old")
        if how == "replaced":
            path.write_bytes(b"c\n")
        with pytest.raises(InvalidInputError, match=r"was (cut off|removed or replaced).*tail -F"):
            next(come)


def test_a_pipe_gives_lines_until_its_end():
    receiver, sender = os.pipe()
    come = StandardInput(number=receiver).lines(wait=False)
    assert next(come) == []
    os.write(sender, b"a\nb")
    assert [line for lines in (next(come), next(come)) for line in lines] == [b"a"]
    os.write(sender, b"\n")
    os.close(sender)
    assert [line for lines in come for line in lines] == [b"b"]


def test_standard_errors_follow_the_model(rows):
    assert watch("--out", "p.csv", "--no-intercept") == 0
    errors = [line.split(",")[2] for line in Path("p.csv").read_text().split()[1:]]
    assert errors[0] == ""
    assert all(float(error) > 0.0 for error in errors[N - 100 :])
