"""Faults of workers, of clusters and of the memory that data come in: the same bits, or an error that says which."""

import gc
import threading
import time
import warnings
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pytest
from scipy import sparse
from test_distributed import SETTINGS, assert_same_bits, loaders, n_calls

from chunk_loaders import N_CHUNKS, chunk, sum_chunks
from dask_commands import commands
from lstd import LSTDStatistics
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
    return sum_chunks([chunk(place) for place in range(N_CHUNKS)], **SETTINGS, n_jobs=1)


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
    found = sum_chunks([shifted], **options, n_jobs=1)
    assert_same_bits(found, sum_chunks([arrays], **options, n_jobs=1))
    assert_same_bits(
        LSTDStatistics.from_arrays(**shifted, **SETTINGS), LSTDStatistics.from_arrays(**arrays, **SETTINGS)
    )


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
