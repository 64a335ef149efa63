"""SIGKILL at random moments, then the same command again: the result is that of an undisturbed run, byte for byte."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from lstd.cli.app import run
from lstd.experiments._folder import PROVENANCE
from lstd.persistence import load_model, save_model

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")

KILLS = 20  # of each command
COMMAND = [sys.executable, "-c", "import sys; from lstd.cli import main; sys.exit(main())"]
DRIVER = [sys.executable, str(Path(__file__).with_name("fake_experiments.py"))]
ROWS = 40_000
FIT = ["fit", "a.csv", "b.parquet", "--features", "x,y", "--reward", "r", "--episode", "id", "--terminated", "done"]
FIT += ["--gamma", "0.9", "--quiet", "--out"]
PREDICT = ["predict", "model", "a.csv", "b.parquet", "--quiet", "--out"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Two tables, one stream of episodes."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    number = np.arange(ROWS) // 20
    x, y, reward = rng.normal(size=(3, ROWS))
    done = np.arange(ROWS) % 20 == 19
    table = pa.table({"x": x, "y": y, "r": reward, "id": number, "done": 1 * done})
    pyarrow.csv.write_csv(table[: ROWS // 2], "a.csv")
    pq.write_table(table[ROWS // 2 :], "b.parquet", row_group_size=1000)
    return tmp_path


def seconds(words):
    began = time.perf_counter()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def killed(words, after):
    """Whether the command was killed `after` so many seconds; else it was done by then."""
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    try:
        process.wait(timeout=after)
    except subprocess.TimeoutExpired:
        process.kill()
    assert process.wait(timeout=60) in (0, -signal.SIGKILL)
    return process.returncode != 0


def kills(words, seed, count, usual):
    """Kill a command so often, at any time or towards its end, where files are written; after each, what has come."""
    rng, n_killed = np.random.default_rng(seed), 0
    while n_killed < count:
        if killed(words, usual * rng.uniform(0.0 if n_killed % 2 else 0.75, 1.0)):
            n_killed += 1
            yield n_killed
        else:  # it was quicker than it had been
            usual *= 0.95


def visible():
    return {path.name for path in Path().iterdir() if not path.name.startswith(".")}


def undated(path):
    """The bytes of a model, but for the date."""
    model = load_model(path)
    save_model(replace(model, origin=replace(model.origin, date="")), "undated")
    content = Path("undated").read_bytes()
    Path("undated").unlink()
    return content


def test_fit(folder):
    words = [*COMMAND, *FIT, "model", "--force"]
    usual = min(seconds(words), seconds(words))
    expected, before = undated("model"), visible()
    for n_killed in kills(words, 1, KILLS, usual):
        assert visible() <= before
        assert not Path("model").exists() or undated("model") == expected
        assert run([*FIT, "model", "--force"]) == 0
        assert undated("model") == expected
        if n_killed % 3 == 0:
            Path("model").unlink()


@pytest.mark.parametrize("extension", [".csv", ".parquet"])
def test_predict(folder, extension):
    """Half of the kills for each kind of file."""
    assert run([*FIT, "model"]) == 0
    out = Path(f"out{extension}")
    words = [*COMMAND, *PREDICT, str(out), "--force"]
    usual = min(seconds(words), seconds(words))
    expected, before = out.read_bytes(), visible()
    for n_killed in kills(words, 2, KILLS // 2, usual):
        assert visible() <= before
        assert not out.exists() or out.read_bytes() == expected
        assert run([*PREDICT, str(out), "--force"]) == 0
        assert out.read_bytes() == expected
        if n_killed % 3 == 0:
            out.unlink()


def results(folder):
    """What must not depend on interruptions: all but timings and provenance."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")]
    varying = ("timings.json", PROVENANCE)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files if path.name not in varying}


def test_reproduce(tmp_path):
    """Stand-ins take the place of the sweep; the same command, killed again and again, gets to the end."""
    rng = np.random.default_rng(3)
    words = [*DRIVER, "0.05", "reproduce", "small", "--runs", "3", "--quiet", "--out"]
    usual = seconds([*words, tmp_path / "undisturbed"])
    expected = results(tmp_path / "undisturbed")
    n_killed, rounds = 0, 0
    while n_killed < KILLS:
        rounds += 1
        out = tmp_path / f"out{rounds}"
        while n_killed < KILLS and killed([*words, out], usual * rng.uniform(0.2, 0.95)):
            n_killed += 1
            found = results(out) if out.exists() else {}
            assert {name: expected.get(name) for name in found} == found
        usual *= 0.95  # the last one was quicker than it had been
        subprocess.run([*words, out], check=True, stdout=subprocess.DEVNULL)
        assert results(out) == expected
        assert not [path for path in out.rglob(".*") if path.is_file()]
