"""SIGKILL at random moments, then the same command again: the result is that of an undisturbed run, byte for byte.

Commands run in processes forked from one that has imported everything, so that they are killed at their work; and, as
the moments that matter are short, before single steps on files too.
"""

import os
import re
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
FOLLOW = ["test_kill:follow", "log.csv"]
WORK = {"model": FIT, "p.csv": [*PREDICT, "p.csv"]}
REPORT = [*FIT, "--report", "page.html"]
REPRODUCE = ["small", "--runs", "3", "--quiet", "--out"]


def reproduce(seconds, *words):
    """The command with stand-ins for what takes time; a cell takes so many seconds."""
    fake_experiments.install_for_good(float(seconds))
    from lstd.cli import main

    return main(["reproduce", *words])


def follow(*files):
    """The program for a log that grows, as the guide has it; it writes without a buffer, as commands here do."""
    from lstd import files as own

    page = Path(__file__).parents[2] / "docs" / "guide" / "live-streams.md"
    blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    (code,) = (block for block in blocks if "def follow(" in block)
    names = {"open": own.open}
    exec(compile(code, page.name, "exec"), names)
    names["follow"](*files)
    return 0


@pytest.fixture
def folder(tmp_path, monkeypatch, command):
    """Two tables, one stream of episodes, and a model of them."""
    monkeypatch.chdir(tmp_path)
    write_tables(2000)
    assert command.undisturbed(*FIT[:-1], "a-model").code == 0


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
        assert command.undisturbed(*FIT).code == 0
        assert content("model") == expected
        assert visible() == before
        assert hidden() == []


@pytest.fixture
def log(tmp_path, monkeypatch):
    """The bytes of a log: runs of 50 minutes, of which every third is cut off."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    lines = ["minute,run,heat,cost,done\n"]
    for t, (heat, noise) in enumerate(rng.normal(size=(1500, 2)).round(3).tolist()):
        is_last, is_cut = t % 50 == 49, t // 50 % 3 == 2
        cost = "" if is_last and is_cut else round(heat + noise, 3)
        lines.append(f"{t},{t // 50},{heat},{cost},{int(is_last and not is_cut)}\n")
    return "".join(lines).encode()


@pytest.fixture
def expected(log, command):
    """The output of the recipe that is never killed, of one call."""
    Path("log.csv").write_bytes(log)
    done = command.undisturbed(*FOLLOW, "whole.csv", "other")
    assert done.code == 0, done.err
    predictions = Path("whole.csv").read_bytes()
    assert predictions.count(b"\n") == 1501
    return predictions


def follow_as_it_grows(command, log, ends, troubles):
    """Call the recipe whenever the log has grown to an end, each time with the next trouble; at last with none.

    A call that is killed leaves a part of a line too. Returns the codes and the steps of all calls.
    """
    codes, steps = [], []
    for name in ("out.csv", "state", "state.new"):
        Path(name).unlink(missing_ok=True)
    for end, trouble in zip([*ends, len(log)], [*troubles, {}], strict=True):
        Path("log.csv").write_bytes(log[:end])
        words = (*FOLLOW, "out.csv", "state")
        done = command(*words, **trouble) if trouble else command.undisturbed(*words)
        codes.append(done.code)
        steps.append(done.steps)
        if done.code != 0:
            with open("out.csv", "ab") as out:
                out.write(b"1499,0.")
    return codes, steps


def test_the_recipe_for_a_log_that_grows_before_steps_on_files(log, expected, command):
    """Killed before the same step in two calls of three, as the log grows by parts of lines."""
    ends = np.linspace(0, len(log), 8).astype(int).tolist()[1:-1]
    _, steps = follow_as_it_grows(command, log, ends, [{}] * 6)
    assert Path("out.csv").read_bytes() == expected
    for at in some_steps(steps[1], 6):
        codes, _ = follow_as_it_grows(command, log, ends, [{}, {"at": at}, {"at": at}] * 2)
        assert codes == [0, -signal.SIGKILL, -signal.SIGKILL] * 2 + [0]
        assert Path("out.csv").read_bytes() == expected


def test_the_recipe_for_a_log_that_grows_at_random_moments(log, expected, command):
    began = time.perf_counter()
    assert command(*FOLLOW, "out.csv", "state").code == 0
    usual = time.perf_counter() - began
    rng = np.random.default_rng(1)
    ends = np.sort(rng.integers(0, len(log), 12)).tolist()
    troubles = [{"after": usual * rng.uniform(0.0, 1.0)} for _ in ends]
    codes, _ = follow_as_it_grows(command, log, ends, troubles)
    assert -signal.SIGKILL in codes
    assert set(codes) <= {0, -signal.SIGKILL}
    assert Path("out.csv").read_bytes() == expected


def test_the_recipe_for_a_log_that_grows_refuses_other_files(log, expected, command):
    """A log or an output that is shorter than it was, such as one that was rotated."""
    for name, text in (("log.csv", log[:1000]), ("whole.csv", b"")):
        before = Path(name).read_bytes()
        Path(name).write_bytes(text)
        done = command.undisturbed(*FOLLOW, "whole.csv", "other")
        assert done.code != 0
        assert "is not the file that other belongs to" in done.err
        assert Path(name).read_bytes() == text
        Path(name).write_bytes(before)
    assert command.undisturbed(*FOLLOW, "whole.csv", "other").code == 0
    assert Path("whole.csv").read_bytes() == expected


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
        assert command.undisturbed(*REPORT).code == 0
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
        assert command.undisturbed(*words).code == 0
        assert results("out") == expected
        assert kept.items() <= stamps("out").items()
    assert len(seen) >= 3, seen
