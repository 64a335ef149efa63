"""Time fits by two jobs beside one, and chunks sent to workers beside the same sums in a loop.

python benchmarks/scaling.py [--quick]
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial, reduce
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped,unused-ignore]

import out_of_core
from lstd import LSTDStatistics, fit_chunks, fit_tables
from problems import normal_rows
from ratios import Ratio, in_turn, note, run_alone

HOW = """\
Files: `lstd.fit_tables` on eight Parquet files of 400 MB in all within 64 MB, in fresh processes, after a fit to a
small file; all models have the same bits. Two processes: two such fits by one job each at the same time, which share
nothing but the machine, so two jobs cannot gain more; the seconds are per fit. One file of 20 features:
`lstd.fit_tables` beside pyarrow, which reads its batches in one thread (Parquet); by two jobs beside one (CSV). Chunks:
`lstd.fit_chunks` on one warm worker of each, which has the data in its memory, beside `from_arrays` and `then` in a
loop, BLAS at one thread. Merges: `then` of two statistics, beside `from_arrays` of 100 rows, a share of the time of
many."""
SETTINGS: dict[str, Any] = {"gamma": 0.99, "lmbda": 0.9}
FIT: dict[str, Any] = SETTINGS | {"fit_intercept": False, "n_blocks": 0}
MEGABYTES = 400
MEMORY = 64 * 2**20
GOAL = 1.8
CHUNKS = ((100, 30_000, 16), (1000, 10_000, 3))  # features, rows of a chunk, chunks
MERGED_ROWS = 100


def ratios(quick: bool = False) -> Iterator[Ratio]:
    """Files by two jobs, chunks by workers, and merges."""
    for n in out_of_core.FEATURES[:1] if quick else out_of_core.FEATURES:
        yield from _files(n, 1 if quick else MEGABYTES, 1 if quick else 5)
    yield from _one_file(1000 if quick else 1_000_000, 1 if quick else 7)
    for n, n_rows, n_chunks in ((10, 1000, 3),) if quick else CHUNKS:
        yield from _chunks(n, n_rows, n_chunks, 2 if quick else 5)
        yield _merges(n, 2 if quick else 15)


def _files(n: int, megabytes: int, pairs: int) -> Iterator[Ratio]:
    """Two jobs beside one, and two processes."""
    note(f"scaling: files of {n} features")
    with tempfile.TemporaryDirectory() as folder:
        out_of_core.make_files(Path(folder), n, megabytes * 2**20)
        fit = partial(out_of_core.measure, folder, memory=MEMORY)
        found = []
        at_once = []
        for _ in range(pairs):
            found.append([fit(n_jobs=1), fit(n_jobs=2)])
            with ThreadPoolExecutor(2) as pool:  # one thread waits for each process
                at_once.append([*pool.map(lambda _: fit(n_jobs=1), range(2))])
    if len({each["digest"] for fits in (*found, *at_once) for each in fits}) > 1:
        raise RuntimeError(f"fit_tables gave models of different bits for n = {n}")
    one, two = ([pair[i]["seconds"] for pair in found] for i in (0, 1))
    yield Ratio(f"`fit_tables`, n = {n}, two jobs beside one", two, one, goal=GOAL)
    per_fit = [sum(each["seconds"] for each in fits) / 4 for fits in at_once]
    yield Ratio(f"`fit_tables`, n = {n}, two processes at the same time beside one", per_fit, one)


def _one_file(n_rows: int, pairs: int) -> Iterator[Ratio]:
    """A fit to Parquet beside reading it, and to CSV by two jobs beside one."""
    row = np.arange(n_rows)
    random = np.random.default_rng(0)
    columns = {f"x{i}": random.normal(size=n_rows) for i in range(20)} | {"reward": random.normal(size=n_rows)}
    table = pa.table(columns | {"episode": row // 50, "terminated": row % 50 == 49})
    with tempfile.TemporaryDirectory() as folder, threadpool_limits(1):
        parquet = f"{folder}/table.parquet"
        text = f"{folder}/table.csv"
        pyarrow.parquet.write_table(table, parquet)
        pyarrow.csv.write_csv(table, text)

        def fit(path: str, n_jobs: int) -> None:
            fit_tables(path, **out_of_core.ROLES, **SETTINGS, n_jobs=n_jobs)

        def read() -> None:
            for _ in pyarrow.parquet.ParquetFile(parquet).iter_batches(use_threads=False):
                pass

        claim = f"`fit_tables`, a Parquet file of {n_rows} × 20, beside reading it with pyarrow, one thread each"
        yield Ratio(claim, *in_turn(partial(fit, parquet, 1), read, pairs), cost=True, goal=2.0)
        seconds = in_turn(partial(fit, text, 2), partial(fit, text, 1), pairs)
        yield Ratio(f"`fit_tables`, a CSV file of {n_rows} × 20, two jobs beside one", *seconds)


def _chunks(n: int, n_rows: int, n_chunks: int, pairs: int) -> Iterator[Ratio]:
    """One worker of each kind beside a loop."""
    load = partial(normal_rows, n, n_rows)
    loop = partial(_loop, load, n_chunks)
    for kind, place in WORKERS.items():
        claim = f"`fit_chunks`, {n_chunks} chunks of {n_rows} rows, n = {n}, one {kind}, beside a loop"
        if kind == "Dask worker" and find_spec("distributed") is None:
            yield Ratio(claim, skipped="distributed is not installed (the extra `dask`)")
            continue
        with threadpool_limits(1), place() as given:
            seconds = in_turn(lambda: fit_chunks([load] * n_chunks, **FIT, **given), loop, pairs)
        yield Ratio(claim, *seconds, cost=True)


def _merges(n: int, pairs: int) -> Ratio:
    """A merge beside the sums of some rows."""
    X, y = normal_rows(n, MERGED_ROWS * (2_000_000 // n // MERGED_ROWS))
    with threadpool_limits(1):
        one = LSTDStatistics.from_arrays(X, y, **SETTINGS)
        merges, sums = in_turn(partial(one.then, one), partial(LSTDStatistics.from_arrays, X, y, **SETTINGS), pairs)
    claim = f"merge of two statistics, n = {n}, beside the sums of {MERGED_ROWS} rows"
    return Ratio(claim, merges, [each * MERGED_ROWS / len(X) for each in sums], cost=True)


def _loop(load: Callable[[], Any], n_chunks: int) -> LSTDStatistics:
    return reduce(LSTDStatistics.then, (LSTDStatistics.from_arrays(*load(), **SETTINGS) for _ in range(n_chunks)))


@contextlib.contextmanager
def _thread() -> Iterator[dict[str, Any]]:
    yield {"n_jobs": 1}


@contextlib.contextmanager
def _dask_worker() -> Iterator[dict[str, Any]]:
    distributed: Any = import_module("distributed")
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as client,
    ):
        yield {"client": client}


WORKERS = {"thread": _thread, "Dask worker": _dask_worker}


if __name__ == "__main__":
    run_alone(__doc__, ratios)
