"""Faults of workers, of clusters and of the memory that data come in: the same bits, or an error that says which."""

import gc
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
from scipy import sparse
from test_distributed import SETTINGS, assert_same_bits, loaders, n_calls, processes

from chunk_loaders import N_CHUNKS, chunk, load, load_and_die_sending, process_context, sum_chunks
from dask_commands import commands
from lstd import LSTDStatistics
from lstd.distributed import runner
from lstd.errors import InvalidInputError, LSTDError

SECONDS = 300.0  # after which something hangs


def within(function, *arguments, **options):
    """What a call gives; a call that hangs is an error."""
    found = Future()

    def call():
        try:
            found.set_result(function(*arguments, **options))
        except BaseException as error:
            found.set_exception(error)

    threading.Thread(target=call, daemon=True).start()
    return found.result(timeout=SECONDS)


@pytest.fixture(scope="module")
def reference():
    with ThreadPoolExecutor(1) as pool:
        return sum_chunks([chunk(place) for place in range(N_CHUNKS)], **SETTINGS, executor=pool)


# ---------------------------------------------------------------- processes that die while they send


def deadly(folder, **options):
    folder.mkdir()
    return [partial(load_and_die_sending, str(folder), place, 6, **options) for place in range(N_CHUNKS)]


def test_a_process_that_dies_while_it_sends_is_replaced(reference, tmp_path):
    found = within(sum_chunks, deadly(tmp_path / "calls"), **SETTINGS, executor=processes)
    assert_same_bits(found, reference)
    assert len(list((tmp_path / "calls").glob("6-*"))) == 2


def test_an_executor_that_was_given_ends_in_an_error_when_a_process_dies_while_it_sends(tmp_path):
    pool = processes()
    with pytest.raises(LSTDError, match=r"an executor object is not replaced. These chunks of `source` were begun.*6"):
        within(sum_chunks, deadly(tmp_path / "calls"), **SETTINGS, executor=pool)
    within(pool.shutdown)


@pytest.mark.parametrize("options", [{}, {"max_tasks_per_child": 1}])
def test_a_pool_that_only_takes_its_time_is_waited_for(options, monkeypatch, reference, tmp_path):
    monkeypatch.setattr(runner, "SECONDS_TO_LOOK", 0.02)
    made = []

    def make():
        made.append(ProcessPoolExecutor(2, mp_context=process_context(), **options))
        return made[-1]

    chunks = [chunk(place) for place in range(N_CHUNKS - 1)]
    chunks.append(partial(load, str(tmp_path), N_CHUNKS - 1, seconds=0.3))
    found = within(sum_chunks, chunks, **SETTINGS, executor=make)
    assert_same_bits(found, reference)
    assert len(made) == 1


# ---------------------------------------------------------------- memory that is not aligned


def unaligned(values):
    """The same values in memory that begins at an odd address, as what has come over a network may."""
    if sparse.issparse(values):
        found = values.copy()
        found.data, found.indices, found.indptr = map(unaligned, (values.data, values.indices, values.indptr))
        return found
    memory = np.empty(values.nbytes + 1, dtype=np.uint8)
    found = memory[1:].view(values.dtype).reshape(values.shape)
    found[...] = values
    assert not found.flags.aligned or values.dtype.itemsize == 1
    return found


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("X_next", [False, True])
def test_memory_that_is_not_aligned_gives_the_same_bits(form, fit_intercept, X_next):
    draw = np.random.RandomState(3)
    n_rows, n = 1500, 120
    phi = draw.normal(size=(n_rows + 1, n)) * (form is np.asarray or draw.uniform(size=(n_rows + 1, n)) < 0.1)
    last = np.arange(n_rows) % (n_rows // 4) == n_rows // 4 - 1
    reward = draw.normal(size=n_rows) * (X_next | ~last)
    arrays = {"X": form(phi[:-1]), "y": reward, "episode": np.repeat(np.arange(4), n_rows // 4)}
    arrays |= {"terminated": np.zeros(n_rows, dtype=bool), "importance_ratio": draw.uniform(0.5, 1.5, size=n_rows)}
    arrays |= {"X_next": form(phi[1:])} if X_next else {}
    shifted = {name: unaligned(values) for name, values in arrays.items()}
    options = SETTINGS | {"fit_intercept": fit_intercept}
    with ThreadPoolExecutor(1) as pool:
        found = sum_chunks([shifted], **options, executor=pool)
        assert_same_bits(found, sum_chunks([arrays], **options, executor=pool))
    assert_same_bits(
        LSTDStatistics.from_arrays(**shifted, **SETTINGS), LSTDStatistics.from_arrays(**arrays, **SETTINGS)
    )


# ---------------------------------------------------------------- functions of a script

SCRIPT = """
import os
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from lstd import fit_chunks

FOLDER = Path(__file__).parent


def load(place):
    (FOLDER / "calls" / f"{place}-{os.urandom(8).hex()}").touch()
    return np.eye(4, 3) + place, np.ones(4)


if __name__ == "__main__":
    (FOLDER / "calls").mkdir()
    for executor in (partial(ProcessPoolExecutor, 1, get_context("spawn")), partial(ThreadPoolExecutor, 1)):
        chunks = [partial(load, place) for place in range(3)]
        fit_chunks(chunks, gamma=0.9, executor=executor, store=FOLDER / "store")
        print(len(list((FOLDER / "calls").iterdir())), len(list((FOLDER / "store").iterdir())))
"""


def test_a_store_knows_functions_of_a_script_whoever_calls_them(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    found = subprocess.run([sys.executable, tmp_path / "script.py"], capture_output=True, text=True, timeout=SECONDS)
    assert found.stdout.splitlines() == ["3 3"] * 2, found.stderr


# ---------------------------------------------------------------- clusters

PRELOAD = ("--preload", "fake_worker")  # which gives lstd another version, or takes it away


@pytest.fixture
def dask_commands(tmp_path):
    """A scheduler without workers, and a client of it."""
    distributed = pytest.importorskip("distributed")
    with commands(tmp_path) as started, distributed.Client(started.address, timeout=120) as client:
        yield started, client
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # of sockets that Dask leaves when tasks are cancelled
        gc.collect()


def data(kind, chunks):
    """Chunks for Dask: functions, or delayed objects of one graph."""
    if kind == "functions":
        return chunks
    dask = pytest.importorskip("dask")
    return [dask.delayed(one)() for one in chunks]


@pytest.mark.parametrize(("version", "named"), [("none", "none"), ("0.0.7", r"lstd 0\.0\.7")])
def test_workers_of_another_version_are_refused(version, named, dask_commands, tmp_path):
    started, client = dask_commands
    started.add_worker(*PRELOAD, FAKE_VERSION=version)
    client.wait_for_workers(1, timeout=120)
    for kind in ("functions", "graph"):
        with pytest.raises(InvalidInputError, match=f"1 of 1 workers has {named}.*Install"):
            within(sum_chunks, data(kind, loaders(tmp_path / "calls")), **SETTINGS, client=client)
    assert n_calls(tmp_path / "calls") == 0


@pytest.mark.parametrize("kind", ["many", "graph"])
def test_a_scheduler_that_is_lost_ends_in_an_error(kind, dask_commands, tmp_path):
    started, client = dask_commands
    started.add_worker()
    chunks = data("graph" if kind == "graph" else "functions", loaders(tmp_path / "calls", seconds=SECONDS))
    chunks = chunks * 3 if kind == "many" else chunks[:3]
    with ThreadPoolExecutor(1) as beside:
        found = beside.submit(sum_chunks, chunks, **SETTINGS, client=client)
        wait_for(lambda: n_calls(tmp_path / "calls"))
        started.scheduler.kill()
        with pytest.raises(LSTDError, match="The connection to the Dask scheduler was lost"):
            found.result(timeout=SECONDS)


def wait_for(condition):
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_cluster_without_workers_is_waited_for(dask_commands, reference, tmp_path):
    started, client = dask_commands
    with ThreadPoolExecutor(1) as beside:
        found = beside.submit(sum_chunks, loaders(tmp_path / "calls"), **SETTINGS, client=client)
        wait_for(lambda: client.futures)
        started.add_worker()
        assert_same_bits(found.result(timeout=SECONDS), reference)


def test_tasks_that_are_cancelled_end_in_an_error(dask_commands, tmp_path):
    distributed = pytest.importorskip("distributed")
    started, client = dask_commands
    started.add_worker()
    with ThreadPoolExecutor(1) as beside:
        chunks = data("graph", loaders(tmp_path / "calls", seconds=SECONDS))
        found = beside.submit(sum_chunks, chunks, **SETTINGS, client=client)
        wait_for(lambda: n_calls(tmp_path / "calls"))
        client.cancel([distributed.Future(key, client) for key in list(client.futures)])
        with pytest.raises(LSTDError, match="or tasks were cancelled there"):
            found.result(timeout=SECONDS)


@pytest.mark.parametrize("store", ["", "\0", 0, b"sums"])
def test_a_store_is_named_by_a_path(store):
    with pytest.raises(InvalidInputError, match=r"`store` must be text or a pathlib\.Path"):
        sum_chunks([(np.ones((3, 1)), np.ones(3))], gamma=0.9, store=store)


def test_what_is_made_is_an_executor():
    with pytest.raises(InvalidInputError, match="a function that makes one; it made 1"):
        sum_chunks([(np.ones((3, 1)), np.ones(3))], gamma=0.9, executor=lambda: 1)
