"""Files changed at random: each reading ends in a finite result or in an error of ours that names the file."""

import traceback
import warnings

import numpy as np
import pytest

from lstd import LSTDStatistics
from lstd.data.settings import Settings
from lstd.errors import LSTDError, LSTDWarning
from lstd.estimators.model import read_model, write_model
from lstd.experiments.protocol import make_plan
from lstd.experiments.reproduce.folder import CONFIGURATION, PROVENANCE
from lstd.experiments.reproduce.run import reproduce
from table_files import ROLES, episodes, fit_files, write

CASES = 24


def attempt(call, path, done):
    """The result of a call, or None when it ends in one line of ours that names the file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LSTDWarning)
            return call()
    except LSTDError as error:
        message = str(error)
    except Exception as error:
        pytest.fail(f"{done}: {''.join(traceback.format_exception(error))}")
    named = str(path) in message or message.startswith("The sums over the data")
    assert named, (done, message)
    assert "\n" not in message, (done, message)
    return None


def damaged(content, rng):
    """Bytes with some flipped, cut out, put in twice or put in anew; and what was done."""
    kind = ["flip", "several flips", "cut", "hole", "twice", "noise", "zeros"][int(rng.integers(7))]
    place, length = int(rng.integers(len(content))), int(rng.integers(1, 40))
    changed = bytearray(content)
    if kind in ("flip", "several flips"):
        for _ in range(1 if kind == "flip" else 10):
            changed[int(rng.integers(len(changed)))] ^= 1 << int(rng.integers(8))
    elif kind == "cut":
        del changed[place:]
    elif kind == "hole":
        del changed[place : place + length]
    elif kind == "twice":
        changed[place:place] = changed[place : place + length]
    else:
        changed[place : place + length] = bytes(length) if kind == "zeros" else rng.bytes(length)
    return bytes(changed), f"{kind} at {place} of {len(content)}"


# Statistics and models


@pytest.mark.parametrize("kind", ["statistics", "model"])
def test_saved_sums(tmp_path, kind):
    rng = np.random.default_rng(7)
    path = tmp_path / "saved"
    model = fit_files([write(episodes([5] * 8, 0), tmp_path / "a.csv")], ROLES, Settings(0.9))
    if kind == "model":
        write_model(model, path)
    else:
        model.statistics.save(path)
    content = path.read_bytes()
    for case in range(4 * CASES):
        changed, done = damaged(content, rng)
        path.write_bytes(changed)
        found = attempt(
            lambda: (read_model if kind == "model" else LSTDStatistics.load)(path), path, f"case {case}: {done}"
        )
        assert found is None or changed == content, done


# A results folder


def contents(folder):
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in files}


@pytest.mark.usefixtures("fakes")
def test_results_folder(tmp_path, caplog):
    """Whatever is damaged is made again, and named where it is a cell; a configuration that is no one's is refused."""
    rng = np.random.default_rng(8)
    plan = make_plan("small", 2)
    reproduce(plan, tmp_path)
    sound = contents(tmp_path)
    for case in range(CASES):
        name = str(rng.choice(list(sound)))
        changed, done = damaged(sound[name], rng)
        done = f"case {case}, {name}: {done}"
        (tmp_path / name).write_bytes(changed)
        caplog.clear()
        outcome = attempt(lambda: reproduce(plan, tmp_path), tmp_path, done)
        if outcome is None:
            assert name == CONFIGURATION, done
        elif name.startswith("cells/") and outcome.computed:
            assert caplog.messages == [f"lstd: {tmp_path / name} is damaged. It is computed again."], done
        found = contents(tmp_path)
        alike = set(sound) - {name, PROVENANCE}
        assert {other: found[other] for other in alike} == {other: sound[other] for other in alike}, done
        if outcome is not None and name.startswith("cells/") and outcome.computed:
            assert found[name] == sound[name], done
        (tmp_path / name).write_bytes(sound[name])
