"""Files changed at random: each reading ends in a finite result or in an error of ours that names the file."""

import re
import traceback
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

import lstd
from lstd import LSTDStatistics
from lstd.data.settings import Settings
from lstd.errors import LSTDError, LSTDWarning
from lstd.estimators.model import read_model, write_model
from lstd.experiments.protocol import make_plan
from lstd.experiments.reproduce.folder import CONFIGURATION, PROVENANCE
from lstd.experiments.reproduce.run import reproduce
from lstd.tables.sum_tables import fit_stream
from table_files import ROLES, episodes, write

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
    model = fit_stream([write(episodes([5] * 8, 0), tmp_path / "a.csv")], ROLES, Settings(0.9))[0]
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


@pytest.mark.parametrize("kind", ["arrays", "tables"])
def test_store_of_sums(tmp_path, caplog, kind):
    """What is damaged is named, and summed again."""
    rng = np.random.default_rng(9)
    store = tmp_path / "store"
    chunks, roles = [(rng.normal(size=(5, 2)), rng.normal(size=5)) for _ in range(4)], {}
    if kind == "tables":
        ids = [[4 * i + j for j in range(4)] for i in range(4)]
        tables = [episodes([5] * 4, 0, names=names) for names in ids]
        chunks = [write(table, tmp_path / f"{i}.parquet") for i, table in enumerate(tables)]
        roles = {"features": ["x", "y"], "reward": "r", "episode": "id", "terminated": "done"}
    fit = partial(lstd.fit_tables, **roles) if roles else lstd.fit_chunks
    with ThreadPoolExecutor(2) as pool:

        def run():
            return fit(chunks, gamma=0.9, executor=pool, store=store).statistics_

        run().save(tmp_path / "total")
        total, sound = (tmp_path / "total").read_bytes(), contents(store)
        assert len(sound) == 4
        for case in range(CASES // 4):
            name = str(rng.choice(list(sound)))
            changed, done = damaged(sound[name], rng)
            (store / name).write_bytes(changed)
            caplog.clear()
            run().save(tmp_path / "total")
            assert (tmp_path / "total").read_bytes() == total, (case, done)
            assert contents(store) == sound, (case, done)
            assert len(caplog.messages) == (changed != sound[name]), done
            for message in caplog.messages:
                assert re.fullmatch(
                    rf"lstd: {re.escape(str(store / name))} is damaged\. It is computed again\.", message
                )


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
