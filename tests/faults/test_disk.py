"""Files that may not grow as on a disk without room, folders that cannot be written, and others who write there too.

A command that could not write says which file and why, and leaves everything as it was; when there is room again, the
same command gives what it gives without disturbance.
"""

import os
import re
import shutil
import signal
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from test_kill import COLUMNS, content, stamps

from lstd.errors import InvalidInputError, OutputError
from lstd.estimators.model import read_model, write_model
from lstd.experiments.reproduce.folder import PROVENANCE

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that fork")

FIT = ["fit", "a.csv", *COLUMNS, "--quiet", "--force", "--out", "model"]
PREDICT = ["predict", "a-model", "a.csv", "--id", "x,id", "--quiet", "--force", "--out"]
WORK = {  # what is written, and how
    "model": FIT,
    "p.csv": [*PREDICT, "p.csv"],
    "p.parquet": [*PREDICT, "p.parquet"],
    "page.html": ["test_disk:write_page", "page.html"],
    "statistics": ["test_disk:save_statistics", "statistics"],
    "saved": ["test_disk:save_a_model", "saved"],
}


# What commands do that are no words of the command line


def carried_out(function, *arguments):
    """Exit code of a function that writes; its error goes to stderr."""
    try:
        function(*arguments)
    except (OutputError, InvalidInputError) as error:
        print(f"lstd: {error}", file=sys.stderr)
        return 1 if isinstance(error, OutputError) else 2
    return 0


def save_statistics(path):
    return carried_out(read_model("a-model").statistics.save, path)


def save_a_model(path):
    return carried_out(write_model, read_model("a-model"), path)


def write_page(path):
    from lstd import LSTD
    from lstd.report import write_fit_report

    X, y, done = np.tile(np.eye(2), (20, 1)), np.ones(40), np.arange(40) % 2 == 1
    return carried_out(partial(write_fit_report, terminated=done), path, LSTD().fit(X, y, terminated=done), X, y)


# Where it happens


@pytest.fixture(scope="module")
def inputs(command, tmp_path_factory):
    """A table and a model of it, by the names of their files."""
    rng = np.random.default_rng(0)
    x, y, reward = rng.normal(size=(3, 600))
    rows = np.arange(600)
    table = pa.table({"x": x, "y": y, "r": reward, "id": rows // 20, "done": 1 * (rows % 20 == 19)})
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("inputs"))
        pyarrow.csv.write_csv(table, "a.csv")
        assert command.undisturbed(*FIT[:-1], "a-model").code == 0
        return contents()


@pytest.fixture
def folder(tmp_path, monkeypatch, inputs):
    """A working folder with a table and a model of it."""
    return prepared(tmp_path / "work", monkeypatch, inputs)


def prepared(path, monkeypatch, inputs):
    path.mkdir()
    monkeypatch.chdir(path)
    for name, data in inputs.items():
        Path(name).write_bytes(data)
    return path


def contents(folder="."):
    files = sorted(path for path in Path(folder).rglob("*") if path.is_file())
    return {path.as_posix(): path.read_bytes() for path in files}


# A disk without room


@pytest.mark.parametrize("name", WORK)
def test_a_full_disk_leaves_what_was_there(folder, command, name):
    """There is room for nothing, and for nearly all of the file."""
    words = WORK[name]
    assert command.undisturbed(*words).code == 0
    expected, size = content(name), Path(name).stat().st_size
    Path(name).unlink()
    for left in (0, size - 1):
        if left:
            Path(name).write_bytes(b"old")
        before = contents()
        done = command(*words, room=left)
        assert (done.code, done.out) == (1, "")
        assert re.fullmatch(rf"lstd: {name} could not be written: File too large; free some space or .*\.\n", done.err)
        assert contents() == before
    assert command.undisturbed(*words).code == 0
    assert content(name) == expected
    assert set(contents()) == set(before)


def test_the_report_of_a_fit_on_a_full_disk(folder, command):
    """The model is written, as there is room for that."""
    words = [*FIT, "--report", "fit.html"]
    assert command.undisturbed(*words).code == 0
    model, page, size = content("model"), Path("fit.html").read_bytes(), Path("model").stat().st_size
    assert size < len(page)
    rest = set(contents())
    Path("model").unlink()
    Path("fit.html").write_text("old")
    done = command(*words, room=len(page) - 1)
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        "lstd: fit.html could not be written: File too large; free some space or fix the folder. The model was written "
        "to model.\n"
    )
    assert content("model") == model
    assert Path("fit.html").read_text() == "old"
    assert set(contents()) == rest
    assert command.undisturbed(*words).code == 0
    assert content("model") == model
    assert Path("fit.html").read_bytes() == page


def results(folder):
    """What must not depend on disturbances: all but provenance."""
    return {name: content for name, content in contents(folder).items() if not name.endswith(PROVENANCE)}


def test_reproduce_on_a_full_disk(folder, command):
    """It stops at its beginning, in cells, in the table and in the report; each time it goes on where it was."""
    words = ["test_kill:reproduce", "0", "small", "--runs", "3", "--quiet", "--out", "out"]
    assert command.undisturbed(*words).code == 0
    expected = results("out")
    Path("out").rename("undisturbed")
    stopped, kept = [], {}
    message = (
        r"lstd: out(.*) could not be written: File too large; free some space or .*\(without --force\) resumes\.\n"
    )
    for left in (0, *(4096 * np.geomspace(1, 200, 10)).astype(int).tolist()):
        done = command(*words, room=left)
        if done.code == 0:
            break
        assert (done.code, done.out) == (1, "")
        found = re.fullmatch(message, done.err)
        assert found, done.err
        stopped.append(found[1])
        assert {name: stamp for name, stamp in stamps("out").items() if name in kept} == kept
        kept = stamps("out")
        assert results("out").items() <= expected.items()
    assert {"", "/results.parquet", "/report.html"} < set(stopped)
    assert any(name.startswith("/cells/") for name in stopped)
    assert results("out") == expected


# Folders and files without permission


@pytest.fixture
def locked(tmp_path, folder):
    """A folder whose permissions forbid writing, also to root when it gives up the right to pass over them."""
    path = tmp_path / "locked"
    path.mkdir()
    yield path, lambda: path.chmod(0o500), "Permission denied"
    path.chmod(0o700)


def test_a_folder_that_may_not_be_written(locked, command):
    """Half of the files are there already."""
    path, lock, reason = locked
    names = (*WORK, "fit.html")
    for name in names[::2]:
        (path / name).write_text("old")
    lock()
    for name in names:
        check_refusal(command, path, name, reason)


def check_refusal(command, path, name, reason):
    """A file cannot be written in a folder: this is said before anything is done, and nothing changes."""
    before = contents(path)
    words = WORK[name][:-1] if name in WORK else [*FIT, "--report"]
    done = command(*words, path / name, bound=True)
    if ":" in words[0]:
        assert (done.code, done.out) == (1, "")
        assert done.err == f"lstd: {path / name} could not be written: {reason}; free some space or fix the folder.\n"
    else:
        option = "--out" if name in WORK else "--report"
        assert (done.code, done.out) == (2, "")
        assert done.err == (
            f"lstd: `{option}` must name a file in a folder that can be written; got '{path / name}' ({reason}); give "
            "another.\n"
        )
    assert contents(path) == before
    assert not Path("model").exists()


@pytest.mark.parametrize("name", ["a.csv", "a-model"])
def test_inputs_that_may_not_be_read(folder, command, name):
    Path(name).chmod(0)
    for words in (FIT, [*PREDICT, "p.csv"], ["score", "a-model", "a.csv"], ["inspect", "a-model"]):
        if name in words:
            done = command(*words, bound=True)
            assert (done.code, done.out) == (2, "")
            assert done.err == f"lstd: {name} could not be read: Permission denied.\n"
    assert sorted(os.listdir()) == ["a-model", "a.csv"]


# Others who write to the same place


@pytest.mark.parametrize("name", ["model", "p.parquet"])
def test_two_commands_with_one_output_file(folder, command, name):
    """Whichever renames its file last has the name; none is refused, none gets a part of the other's."""
    words, option = WORK[name], ("--alpha" if name == "model" else "--id", "2" if name == "model" else "y")
    others = [*words, *option]
    assert command.undisturbed(*others).code == 0
    theirs = content(name)
    steps = command(*words).steps
    mine = content(name)
    assert mine != theirs
    for at in (steps - 1, steps):
        Path(name).unlink()
        stopped = command(*words, at=at, number=signal.SIGSTOP)
        assert stopped.code is None
        assert command.undisturbed(*others).code == 0
        assert content(name) == theirs
        assert command.resume(stopped).code == 0
        assert content(name) == (mine if at < steps else theirs)
        assert set(contents()) == {"a.csv", "a-model", name}


def test_a_second_reproduce_in_one_folder_is_refused_at_any_moment(folder, command):
    words = ["test_kill:reproduce", "0", "small", "--runs", "1", "--quiet", "--out", "out"]
    steps = command(*words).steps
    expected = results("out")
    for at in (3, steps // 2):
        shutil.rmtree("out")
        stopped = command(*words, at=at, number=signal.SIGSTOP)
        assert stopped.code is None
        second = command(*words)
        assert (second.code, second.out) == (2, "")
        assert f"process {stopped.process} is writing to 'out'" in second.err
        assert command.resume(stopped).code == 0
        assert results("out") == expected
