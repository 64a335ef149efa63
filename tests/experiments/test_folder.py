"""The results folder: whole files or none, one configuration, one writer, and no other file is touched."""

import numpy as np
import pytest

from lstd.errors import ConfigurationMismatchError, InvalidInputError
from lstd.experiments.protocol import Cell
from lstd.experiments.reproduce.folder import CONFIGURATION, ResultsFolder

CONFIG = {
    "runs": 2,
    "grids": {
        "lstd": {"lmbdas": [0.0, 0.5, 1.0], "alphas": [0.5, 1.0]},
        "true_online_td": {"lmbdas": [0.0, 0.5, 1.0], "alphas": [0.1, 0.2, 0.3, 0.4]},
    },
}
CELL = Cell("large", "normal", "lstd", 2)
FILE = f"cells/{CELL.name}.npz"


def arrays_of(cell=CELL):
    values = {name: np.random.RandomState(i).rand(2, 20, 17) for i, name in enumerate(cell.algorithms)}
    values[cell.algorithms[0]][1, 2, 1] = np.inf
    return values


def claim(path, configuration=CONFIG, **options):
    with ResultsFolder(path, configuration).claimed(**options):
        pass


def names(path):
    return sorted(file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file())


@pytest.fixture
def folder(tmp_path):
    with ResultsFolder(tmp_path / "out", CONFIG).claimed() as folder:
        yield folder


# What is kept


def test_what_is_kept_comes_back_as_it_was(tmp_path, folder):
    assert folder.kept(CELL.name) is None
    document = {"a": np.float64(0.1), "b": [np.inf, np.nan], "c": np.arange(2), "d": {"e": np.bool_(True)}}
    folder.keep(CELL.name, document, arrays_of())
    found, arrays = folder.kept(CELL.name)
    assert found == {"a": 0.1, "b": [None, None], "c": [0, 1], "d": {"e": True}}
    assert list(arrays) == list(CELL.algorithms)
    for name, expected in arrays_of().items():
        np.testing.assert_array_equal(arrays[name], expected)
    with ResultsFolder(tmp_path / "other", CONFIG).claimed() as other:
        other.keep(CELL.name, document, arrays_of())
    assert (other.path / FILE).read_bytes() == (folder.path / FILE).read_bytes()


# One configuration, and other people's files


def test_changed_configuration_is_refused_with_what_differs(tmp_path):
    claim(tmp_path)
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
    long = {"grids": list(np.arange(20) / 20), "a": "word " * 50, "b": 1, "c": 2}
    with pytest.raises(ConfigurationMismatchError, match="and 2 more; give another folder") as caught:
        claim(tmp_path, long)
    assert len(str(caught.value)) - len(str(tmp_path)) < 350


@pytest.mark.parametrize("content", ["{", '{"db": "x"}', '{"runs": 2}'])
@pytest.mark.parametrize("force", [False, True])
def test_configuration_of_other_origin_is_never_touched(tmp_path, content, force):
    others = ("report.html", "cells/mydata.npz", "figures/figure2.png")
    mine = {CONFIGURATION: content} | dict.fromkeys(others, "mine")
    for name, text in mine.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    message = r"has a configuration\.json that this command did not write; give another folder"
    with pytest.raises(InvalidInputError, match=message):
        claim(tmp_path, force=force)
    (tmp_path / CONFIGURATION).unlink()
    with pytest.raises(InvalidInputError, match=r"has a report\.html that this command did not write"):
        claim(tmp_path, force=force)
    assert {name: (tmp_path / name).read_text() for name in names(tmp_path)} == dict.fromkeys(others, "mine")


@pytest.mark.parametrize("name", ["cells", "figures", "tables", "report.html"])
def test_something_else_under_one_of_our_names_is_refused(tmp_path, name):
    if "." in name:
        (tmp_path / name).mkdir()
    else:
        (tmp_path / name).write_text("mine")
    with pytest.raises(InvalidInputError, match=r"Not a directory|has a report\.html that this command did not write"):
        claim(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_force_removes_our_files_only(tmp_path):
    kept = ["notes.txt", "cells/mine.csv", "cells/small-mine-lstd.npz", "figures/mine.pdf", "tables/table4.csv"]
    with ResultsFolder(tmp_path, CONFIG).claimed() as folder:
        folder.keep(CELL.name, {}, arrays_of())
        for name in (*kept, "figures/figure2.pdf", "tables/table1.csv", "report.html", "results.parquet"):
            folder.write(name, b"x")
    with ResultsFolder(tmp_path, {**CONFIG, "runs": 3}).claimed(force=True) as folder:
        assert folder.kept(CELL.name) is None
    assert names(tmp_path) == sorted([*kept, CONFIGURATION])
    assert (tmp_path / "tables").exists()
    (tmp_path / "tables/table4.csv").unlink()
    with ResultsFolder(tmp_path, CONFIG).claimed(force=True):
        assert not (tmp_path / "tables").exists()
