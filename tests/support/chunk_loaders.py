"""Chunks of a stream for workers to load: a module of its own, for a process that begins need not import the tests."""

import multiprocessing
import os
import signal
import tempfile
import time
from functools import cache
from pathlib import Path

import numpy as np

BEGAN = time.monotonic()
N = 3
EDGES = [0, 30, 30, 31, *range(60, 381, 40), 387]
N_CHUNKS = len(EDGES) - 1
FEATURES = [f"x{j}" for j in range(N)]  # columns of tables
ROLES = {"features": FEATURES, "reward": "r", "episode": "ep", "terminated": "done"}
PROCESSES = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
PRELOADED = (  # all that a worker needs to sum chunks: importing it takes half a second in each
    "distributed.cli.dask_worker", "distributed.cli.dask_scheduler", "dask.__main__", "pandas", "pyarrow.parquet",
    "lstd.distributed.on_dask", "lstd.distributed.sum_arrays", "lstd.tables.sum_tables",
)  # fmt: skip


@cache
def preload_forked_processes():
    """Start the process that others are forked from, with what they would import otherwise."""
    if PROCESSES == "forkserver":
        from multiprocessing import forkserver

        multiprocessing.set_forkserver_preload([*PRELOADED])
        forkserver.ensure_running()


def process_context():
    preload_forked_processes()
    return multiprocessing.get_context(PROCESSES)


def whole():
    """Rows of episodes that are longer and shorter than chunks; the first chunks are small, one is empty."""
    draw = np.random.RandomState(1)
    T = EDGES[-1]
    ids = np.cumsum(draw.uniform(size=T) < 0.02)
    last = np.append(np.diff(ids) > 0, False)
    rows = {"X": draw.normal(size=(T, N)), "y": draw.normal(size=T)}
    terminated = last & (draw.uniform(size=T) < 0.5)
    rows["y"][last & ~terminated] = 0.0  # not used: the successor is unknown
    return rows | {"episode": ids, "terminated": terminated}


def sum_chunks(source, **options):
    """The sums behind a fit, without blocks."""
    from lstd import fit_chunks  # which workers do not need

    return fit_chunks(source, n_blocks=0, **options).statistics_


def chunk(place):
    return {name: values[EDGES[place] : EDGES[place + 1]] for name, values in whole().items()}


def load(folder, place, deadly=None, always=False, seconds=0.0):
    """A chunk; leaves a file for every call, and kills its process at the first call for the deadly place.

    A process that dies within moments of its start may not be replaced: Dask does not know yet that it has started.
    """
    calls = [name for name in os.listdir(folder) if name.startswith(f"{place}-")]
    with open(os.path.join(folder, f"{place}-{len(calls)}-{os.getpid()}-{time.monotonic_ns()}"), "x"):
        pass
    if place == deadly and (always or not calls):
        time.sleep(max(0.0, BEGAN + 1.0 - time.monotonic()))
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(seconds)
    return chunk(place)


def fail():
    raise RuntimeError("no such table")


def elsewhere(rows, here):
    """The rows, where this is another process than the one of that id."""
    assert os.getpid() != here
    return rows


def noted(path, folder):
    """A table, which leaves a file for each time that it is loaded."""
    import pandas as pd

    tempfile.mkstemp(prefix=f"{Path(path).stem}-", dir=folder)
    return pd.read_parquet(path)


def arrays_noted(path, folder):
    """The arrays of a table, which leaves a file too."""
    frame = noted(path, folder)
    roles = {"y": ROLES["reward"], "episode": ROLES["episode"], "terminated": ROLES["terminated"]}
    return {"X": frame[FEATURES].to_numpy()} | {role: frame[name].to_numpy() for role, name in roles.items()}
