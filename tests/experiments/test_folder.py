"""The results folder and its user: one configuration, and no other file is touched."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import numpy as np
import pytest
from test_store import CELL, CONFIG, arrays_of, claim, names

from lstd.errors import ConfigurationMismatchError, InvalidInputError
from lstd.experiments.reproduce.folder import CONFIGURATION, LOCK, ResultsFolder
from lstd.files import remove_unfinished, replacing


def test_changed_configuration_is_refused_with_what_differs(tmp_path):
    with ResultsFolder(tmp_path, CONFIG).claimed():
        pass
    grid = {**CONFIG["grids"]["lstd"], "alphas": [2.0]}
    changed = {"runs": 3, "new": "x", "grids": {**CONFIG["grids"], "lstd": grid}}
    with pytest.raises(ConfigurationMismatchError) as caught:
        claim(tmp_path, changed)
    message = str(caught.value)
    assert "runs was 2, now 3; new was absent, now" in message
    assert 'grids was {"lstd": {"lmbdas": [0 …, now {"lstd": {"lmbdas": [0 …' in message
    assert "more" not in message
    assert "--force" in message
    assert names(tmp_path) == [CONFIGURATION]


def test_message_of_another_configuration_is_short(tmp_path):
    grids = {"lstd": {"lmbdas": list(np.arange(20) / 20), "alphas": list(2.0 ** np.arange(17))}}
    with ResultsFolder(tmp_path, {"grids": grids, "a": "word " * 50, "b": 1, "c": 2}).claimed():
        pass
    with pytest.raises(ConfigurationMismatchError, match="and 2 more; give another folder") as caught:
        claim(tmp_path)
    assert len(str(caught.value)) - len(str(tmp_path)) < 350


@pytest.mark.parametrize("content", ["{", '{"db": "x"}', '{"runs": 2}'])
@pytest.mark.parametrize("force", [False, True])
def test_configuration_of_other_origin_is_never_touched(tmp_path, content, force):
    mine = {
        CONFIGURATION: content,
        "report.html": "mine",
        "cells/mydata.npz": "mine",
        "figures/figure2.png": "mine",
    }
    for name, text in mine.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    with pytest.raises(
        InvalidInputError, match=r"has a configuration\.json that this command did not write; give another folder"
    ):
        claim(tmp_path, force=force)
    assert {name: (tmp_path / name).read_text() for name in names(tmp_path)} == mine


@pytest.mark.parametrize("name", ["cells", "figures", "tables", "report.html"])
def test_something_else_under_one_of_our_names_is_refused(tmp_path, name):
    if "." in name:
        (tmp_path / name).mkdir()
    else:
        (tmp_path / name).write_text("mine")
    with pytest.raises(InvalidInputError, match=r"Not a directory|has a report\.html that this command did not write"):
        claim(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_temporary_files_and_locks_of_others_are_not_touched(tmp_path):
    mine = [".lock", ".movie.mp4.part", "sub/.download.part", "cells/.lstd-my.npz.part", ".lstd-model.lstd.7-x.part"]
    for name in mine:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("mine")
    with ResultsFolder(tmp_path, CONFIG).claimed():
        remove_unfinished()
    assert names(tmp_path) == sorted([*mine, CONFIGURATION])


def test_a_link_in_place_of_the_lock_is_refused(tmp_path):
    (tmp_path / "victim").write_text("secret")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / LOCK).symlink_to(tmp_path / "victim")
    with pytest.raises(InvalidInputError, match="must be a folder that can be written"):
        claim(tmp_path / "out")
    assert (tmp_path / "victim").read_text() == "secret"


def test_force_removes_our_files_only(tmp_path):
    with ResultsFolder(tmp_path, CONFIG).claimed() as folder:
        folder.write_cell(CELL, arrays_of(CELL))
    kept = [
        "notes.txt",
        "cells/mine.csv",
        "cells/my.npz",
        "cells/small-mine-lstd.npz",
        "figures/mine.pdf",
        "tables/table4.csv",
    ]
    for name in (*kept, "figures/figure2.pdf", "tables/table1.tex", "report.html", "results.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    with ResultsFolder(tmp_path, {**CONFIG, "runs": 3}).claimed(force=True) as folder:
        assert folder.read_cell(CELL) is None
    assert names(tmp_path) == sorted([*kept, CONFIGURATION])
    assert (tmp_path / "tables").exists()
    (tmp_path / "tables/table4.csv").unlink()
    with ResultsFolder(tmp_path, CONFIG).claimed(force=True):
        assert not (tmp_path / "tables").exists()


def test_folder_with_other_files_is_used_unless_they_have_our_names(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with ResultsFolder(tmp_path, CONFIG).claimed():
        pass
    (tmp_path / CONFIGURATION).unlink()
    (tmp_path / "report.html").write_text("mine")
    for force in (False, True):
        with pytest.raises(InvalidInputError, match=r"has a report\.html that this command did not write"):
            claim(tmp_path, force=force)
    assert (tmp_path / "report.html").read_text() == "mine"


@pytest.mark.parametrize("path", ["file", "file/below", "/proc/lstd-results"])
def test_folder_that_cannot_be_made_is_refused(tmp_path, path):
    if path.startswith("/proc") and not Path("/proc/self").exists():
        pytest.skip("no /proc here")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InvalidInputError, match="`out` must be a folder that can be written; got"):
        claim(tmp_path / path)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX permissions")
def test_replaced_file_keeps_its_permissions(tmp_path):
    path = tmp_path / "a"
    for mode in (0o640, 0o600, 0o664):
        path.write_text("before")
        path.chmod(mode)
        with replacing(path) as file:
            file.write(b"after")
        assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("after", mode)
