"""The results folder: whole files or none, one configuration, one writer."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lstd.errors import InvalidInputError, OutputError
from lstd.experiments.protocol import Cell
from lstd.experiments.reproduce.folder import CONFIGURATION, LOCK, ResultsFolder
from lstd.files import FolderLock, read_json, remove_unfinished, replacing

CONFIG = {
    "runs": 2,
    "grids": {
        "lstd": {"lmbdas": [0.0, 0.5, 1.0], "alphas": [0.5, 1.0]},
        "true_online_td": {"lmbdas": [0.0, 0.5, 1.0], "alphas": [0.1, 0.2, 0.3, 0.4]},
    },
}
CELL = Cell("large", "normal", "lstd", 2)
TD_CELL = Cell("small", "tabular", "true_online_td", 2)


def arrays_of(cell):
    values = {name: np.random.RandomState(i).rand(*cell.shape) for i, name in enumerate(cell.algorithms)}
    values[cell.algorithms[0]][1, 2, 1] = np.inf
    return values


def claim(path, configuration=CONFIG, **options):
    with ResultsFolder(path, configuration).claimed(**options):
        pass


@pytest.fixture
def folder(tmp_path):
    with ResultsFolder(tmp_path / "out", CONFIG).claimed() as folder:
        yield folder


@pytest.fixture
def full_disk():
    """Runs a function of this module in a process of its own, in which no file may grow beyond a size."""
    pytest.importorskip("resource")

    def run(name, path, size):
        # In a process of its own, as the limit would stop the report of this one too.
        program = (
            "import resource, sys; from pathlib import Path; import test_store\n"
            "def limit():\n"
            "    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), resource.RLIM_INFINITY))\n"
            "getattr(test_store, sys.argv[1])(Path(sys.argv[2]), limit)"
        )
        words = [sys.executable, "-c", program, name, path, str(size)]
        subprocess.run(words, check=True, cwd=Path(__file__).parent, timeout=300)

    return run


def names(path):
    return sorted(file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file())


# Cells


@pytest.mark.parametrize("cell", [CELL, TD_CELL])
def test_cell_comes_back_as_it_was(folder, cell):
    assert folder.read_cell(cell) is None
    folder.write_cell(cell, arrays_of(cell))
    found = folder.read_cell(cell)
    assert list(found) == list(cell.algorithms)
    for name, expected in arrays_of(cell).items():
        np.testing.assert_array_equal(found[name], expected)


def test_same_results_give_the_same_bytes(tmp_path):
    contents = []
    for name in ("a", "b"):
        with ResultsFolder(tmp_path / name, CONFIG).claimed() as folder:
            folder.write_cell(CELL, arrays_of(CELL))
            contents.append((folder.path / CELL.filename).read_bytes())
    assert contents[0] == contents[1]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], database=None)
@given(where=st.floats(0, 1, exclude_max=True), change=st.integers(1, 255), cut=st.booleans())
def test_damaged_cell_is_never_taken_for_sound(folder, where, change, cut):
    """A changed byte is either found out or, in a field that does not matter, changes no number."""
    folder.write_cell(CELL, arrays_of(CELL))
    path = folder.path / CELL.filename
    content = bytearray(path.read_bytes())
    position = int(where * len(content))
    if cut:
        content = content[:position]
    else:
        content[position] ^= change
    path.write_bytes(content)
    found = folder.read_cell(CELL)
    if found is not None:
        assert not cut
        for name, expected in arrays_of(CELL).items():
            np.testing.assert_array_equal(found[name], expected)


def test_cell_of_another_experiment_is_refused(folder, caplog):
    other = Cell("large", "binary", "lstd", 2)
    folder.write_cell(CELL, arrays_of(CELL))
    os.replace(folder.path / CELL.filename, folder.path / other.filename)
    assert folder.read_cell(other) is None
    assert caplog.messages == [f"lstd: {folder.path / other.filename} is damaged. It is computed again."]


def test_cell_of_another_configuration_is_refused(folder):
    folder.write_cell(CELL, arrays_of(CELL))
    assert ResultsFolder(folder.path, {**CONFIG, "runs": 3}).read_cell(CELL) is None


def test_cell_with_pickled_objects_is_refused(folder):
    folder.write_cell(CELL, arrays_of(CELL))
    np.savez(folder.path / CELL.filename, header=np.array([{}], dtype=object), **arrays_of(CELL))
    assert folder.read_cell(CELL) is None


@pytest.mark.parametrize("bad", [np.nan, -1.0])
def test_numbers_that_are_no_errors_are_not_stored(folder, bad):
    arrays = arrays_of(CELL)
    arrays["mixed"][0, 0, 0] = bad
    with pytest.raises(ValueError, match="mixed must hold errors >= 0"):
        folder.write_cell(CELL, arrays)
    with pytest.raises(ValueError, match="must be float64 of shape"):
        folder.write_cell(CELL, {name: a[:1] for name, a in arrays_of(CELL).items()})
    assert names(folder.path) == [LOCK, CONFIGURATION]


# Whole files or none


def test_failed_write_keeps_the_file_that_was_there(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), replacing(path) as file:
        file.write(b"new" * (1 // 0))
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["a"]


def write_cell_on_a_full_disk(path, limit):
    with ResultsFolder(path, CONFIG).claimed() as folder:
        limit()
        with pytest.raises(OutputError, match=r"normal-lstd\.npz could not be written: File too large") as caught:
            folder.write_cell(CELL, arrays_of(CELL))
        assert caught.value.errno == errno.EFBIG
        assert names(path) == [LOCK, CONFIGURATION]


def start_on_a_full_disk(path, limit):
    limit()
    with pytest.raises(OutputError, match="could not be written: File too large; free some space"):
        claim(path)
    assert not path.exists()


@pytest.mark.parametrize(
    ("function", "size"),
    [(write_cell_on_a_full_disk, 1000), (start_on_a_full_disk, 9)],
)
def test_full_disk_leaves_no_part_of_a_file(tmp_path, full_disk, function, size):
    full_disk(function.__name__, tmp_path / "out", size)


def test_unfinished_files_and_the_lock_can_be_removed_at_once(tmp_path):
    lock = FolderLock(tmp_path / LOCK)
    writing = replacing(tmp_path / "a")
    writing.__enter__().write(b"half")
    assert len(names(tmp_path)) == 2
    remove_unfinished()
    assert names(tmp_path) == []
    with pytest.raises(OutputError):
        writing.__exit__(None, None, None)
    lock.release()


# One writer


def test_second_writer_is_refused(folder):
    with pytest.raises(InvalidInputError, match=rf"process {os.getpid()} is writing to"):
        claim(folder.path)
    assert (folder.path / LOCK).exists()


def test_lock_ends_with_the_process(tmp_path):
    program = (
        "import os, sys; from pathlib import Path; from lstd.files import FolderLock; "
        "lock = FolderLock(Path(sys.argv[1])); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", program, tmp_path / LOCK], check=True)
    assert (tmp_path / LOCK).exists()
    FolderLock(tmp_path / LOCK).release()
    assert not (tmp_path / LOCK).exists()


# Documents


def test_documents_are_plain_json(folder):
    document = {"a": np.float64(0.1), "b": [np.inf, np.nan], "c": np.arange(2), "d": {"e": np.bool_(True)}}
    folder.write_json("theory.json", document)
    assert folder.read_json("theory.json") == {"a": 0.1, "b": [None, None], "c": [0, 1], "d": {"e": True}}


@pytest.mark.parametrize("change", ["number", "checksum", "other configuration", "cut", "by hand"])
def test_changed_document_is_not_believed(folder, tmp_path, change):
    folder.write_json("theory.json", {"mu": 1.0, "odd": "name\udcff"})
    path = folder.path / "theory.json"
    assert folder.read_json("theory.json") == {"mu": 1.0, "odd": "name\udcff"}
    text = path.read_text()
    changes = {"number": text.replace("1.0", "1.5"), "checksum": text.replace('"sha256": "', '"sha256": "0')}
    changes |= {"cut": text[:-9], "by hand": '{"mu": 1.0}'}
    if change in changes:
        assert changes[change] != text
        path.write_text(changes[change])
        assert folder.read_json("theory.json") is None
    else:
        with ResultsFolder(tmp_path / "other", {**CONFIG, "runs": 3}).claimed() as other:
            os.replace(path, other.path / "theory.json")
            assert other.read_json("theory.json") is None


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff"])
def test_damaged_document_counts_as_missing(tmp_path, content):
    (tmp_path / "a.json").write_bytes(content)
    assert read_json(tmp_path / "a.json") is None
    assert read_json(tmp_path / "b.json") is None
