"""SIGKILL at random moments, then the same command again: the result is that of an undisturbed run, byte for byte.

Commands run in processes forked from one that has imported everything, so that they are killed at their work; and, as
the moments that matter are short, before single steps on files too.
"""

import os
import shutil
import signal
import statistics
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import fake_experiments
from lstd.estimators.model import read_model, write_model
from lstd.experiments.reproduce.folder import PROVENANCE

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that fork")

KILLS = 4  # of each command
COLUMNS = ["--features", "x,y", "--reward", "r", "--episode", "id", "--terminated", "done", "--gamma", "0.9"]
OPTIONS = ["--quiet", "--force", "--out"]
FIT = ["fit", "a.csv", "b.parquet", *COLUMNS, *OPTIONS, "model"]
PREDICT = ["predict", "a-model", "a.csv", "b.parquet", "--id", "id", *OPTIONS]
WATCH = ["test_kill:watch", "a.csv", *COLUMNS, "--no-wait", "--save-every", "0", "--quiet"]
WORK = {"model": FIT, "p.csv": [*PREDICT, "p.csv"]}
REPORT = [*FIT, "--report", "page.html"]
REPRODUCE = ["small", "--runs", "3", "--quiet", "--out"]


def reproduce(seconds, *words):
    """The command with stand-ins for what takes time; a cell takes so many seconds."""
    fake_experiments.install_for_good(float(seconds))
    from lstd.cli import main

    return main(["reproduce", *words])


def watch(*words):
    """The command, which reads some rows at a time."""
    from lstd.cli import main
    from lstd.tables import live_lines

    live_lines.AT_ONCE = 2**12
    return main(["watch", *words])


@pytest.fixture
def folder(tmp_path, monkeypatch, command):
    """Two tables, one stream of episodes, and a model of them."""
    monkeypatch.chdir(tmp_path)
    write_tables(2000)
    assert command(*FIT[:-1], "a-model").code == 0


def write_tables(n_rows):
    rng = np.random.default_rng(0)
    number, done = np.arange(n_rows) // 20, np.arange(n_rows) % 20 == 19
    x, y, reward = rng.normal(size=(3, n_rows))
    table = pa.table({"x": x, "y": y, "r": reward, "id": number, "done": 1 * done})
    pyarrow.csv.write_csv(table[: n_rows // 2], "a.csv")
    pq.write_table(table[n_rows // 2 :], "b.parquet", row_group_size=1000)


def content(name):
    """The bytes of a file; of a model without its date, which is all that may differ."""
    whole = Path(name).read_bytes()
    if name != "model":
        return whole
    model = read_model(name)
    again = Path(".again")
    write_model(model, again)
    assert again.read_bytes() == whole  # reading and writing lose nothing
    write_model(model.changed(origin=replace(model.origin, date="")), again)
    whole = again.read_bytes()
    again.unlink()
    return whole


def visible():
    return {path.name for path in Path().iterdir() if not path.name.startswith(".")}


def hidden():
    return sorted(path.as_posix() for path in Path().rglob(".*"))


def remove_hidden():
    """Remove the temporary file of a process that was killed: under a name of its own."""
    for name in hidden():
        assert name.startswith(".lstd-"), name
        assert name.endswith(".part"), name
        os.unlink(name)


def usual_seconds(command, words):
    """Median duration of the command."""
    times = []
    for _ in range(3):
        began = time.perf_counter()
        assert command(*words).code == 0
        times.append(time.perf_counter() - began)
    return statistics.median(times)


# At random moments


def test_at_random_moments(folder, command):
    """The file under its name is the old one or the new one, whole; the next run ends as if nothing had been."""
    usual = usual_seconds(command, FIT)
    expected, before = content("model"), visible()
    rng, n_killed, n_attempts = np.random.default_rng(1), 0, 0
    while n_killed < KILLS:
        n_attempts += 1
        Path("model").unlink(missing_ok=True)
        if n_attempts % 2:
            Path("model").write_bytes(b"old")
        done = command(*FIT, after=usual * rng.uniform(0.0, 1.0))
        assert done.code in (0, -signal.SIGKILL)
        n_killed += done.code != 0
        usual *= 1.0 if done.code else 0.95  # it was quicker than it had been
        assert visible() == before if n_attempts % 2 else visible() <= before
        if Path("model").exists() and Path("model").read_bytes() != b"old":
            assert content("model") == expected
        remove_hidden()
        assert command(*FIT).code == 0
        assert content("model") == expected
        assert visible() == before
        assert hidden() == []


def test_watch_at_random_moments_and_before_steps(tmp_path, monkeypatch, command):
    """Killed again and again, the same command gets to the end: no row is lost, none is there twice."""
    monkeypatch.chdir(tmp_path)
    write_tables(700)
    words = [*WATCH, "--state", "state", "--out", "w.csv"]
    whole = command(*WATCH, "--out", "whole.csv", "--state", "other")
    usual = usual_seconds(command, [*words, "--force"])
    expected, rng, lengths = content("whole.csv"), np.random.default_rng(2), set()
    troubles = [{"at": at} for at in some_steps(whole.steps, 4)]
    troubles.append({"after": usual * rng.uniform(0.0, 1.0)})
    for begin_anew in (True, False):
        for trouble in troubles if begin_anew else troubles[:4]:
            if begin_anew:
                Path("state").unlink(missing_ok=True)
                Path("w.csv").unlink(missing_ok=True)
            assert command(*words, **trouble).code in (0, -signal.SIGKILL)
            lengths.add(len(content("w.csv")) if Path("w.csv").exists() else 0)
            if begin_anew:
                assert command(*words).code == 0
                assert content("w.csv") == expected
    assert command(*words).code == 0
    assert content("w.csv") == expected
    assert len(lengths) >= 4, lengths


def results(folder):
    """What must not depend on interruptions: all but provenance and what is hidden."""
    files = [path for path in Path(folder).rglob("*") if path.is_file() and not path.name.startswith(".")]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files if path.name != PROVENANCE}


def stamps(folder):
    """When cells were written: those that are found are not computed again."""
    return {path.name: path.stat().st_mtime_ns for path in Path(folder).glob("cells/*.npz")}


@pytest.mark.parametrize(("name", "what"), [("model", "model may have been"), ("p.csv", "no predictions were")])
def test_a_command_that_is_terminated_leaves_nothing_half_written(folder, command, name, what):
    steps, before = command(*WORK[name]).steps, visible()
    Path(name).unlink()
    done = command(*WORK[name], at=steps // 2, number=signal.SIGTERM)
    assert (done.code, done.out, done.err) == (143, "", f"lstd: terminated; {what} written.\n")
    assert visible() == before - {name}
    assert hidden() == []


# Before single steps on files


def some_steps(steps, most=6):
    """The first and the last, and some in between."""
    ends = most // 3
    between = np.linspace(ends, steps + 1 - ends, most - 2 * ends + 2).astype(int).tolist()[1:-1]
    return sorted({*range(1, ends + 1), *between, *range(steps + 1 - ends, steps + 1)} & set(range(1, steps + 1)))


def test_report_before_a_step_on_files(folder, command):
    """The model and the page are each the old one or the new one, whole; and the model is written first."""
    steps = command(*REPORT).steps
    expected, before = {name: content(name) for name in ("model", "page.html")}, visible()
    seen = set()
    for at in some_steps(steps, 4):
        for name in expected:
            Path(name).write_bytes(b"old")
        assert command(*REPORT, at=at).code == -signal.SIGKILL
        assert visible() == before
        new = {name for name in expected if Path(name).read_bytes() != b"old"}
        assert {name: content(name) for name in new} == {name: expected[name] for name in new}
        assert ("page.html" in new) == (at == steps)
        assert "page.html" not in new or "model" in new
        seen.add(len(new))
        remove_hidden()
        assert command(*REPORT).code == 0
        assert {name: content(name) for name in expected} == expected
        assert hidden() == []
    assert seen == {0, 1, 2}


def test_reproduce_before_a_step_on_files(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    words = ["test_kill:reproduce", "0", *REPRODUCE, "out"]
    steps = command(*words).steps
    expected, seen = results("out"), set()
    for at in some_steps(steps, 8):
        shutil.rmtree("out", ignore_errors=True)
        assert command(*words, at=at).code == -signal.SIGKILL
        found = results("out") if Path("out").exists() else {}
        assert found.items() <= expected.items()
        kept = stamps("out")
        seen.add(len(kept))
        assert command(*words).code == 0
        assert results("out") == expected
        assert kept.items() <= stamps("out").items()
    assert len(seen) >= 3, seen
