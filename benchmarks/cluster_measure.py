"""What one chunk, one merge, one solve and one message take on this machine, and whole fits by its processes."""

from __future__ import annotations

import contextlib
import importlib
import logging
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache, partial
from multiprocessing import get_context
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped,unused-ignore]

from lstd import LSTDStatistics
from lstd.distributed import sum_chunks

SETTINGS: dict[str, Any] = {"gamma": 0.99, "lmbda": 0.9}
ROWS = {100: 30_000, 1000: 10_000, 10_000: 1257}  # of n = 10000, three pieces of the 419 that are summed at a time
RUNS = ((100, 240), (1000, 10))  # n and number of chunks
WORKERS = (1, 2)
_SECONDS = 0.5  # of each measurement, at least
_ONCE_FROM = 5000  # features: these are measured once
_SENT = (100, 1000)  # features of the statistics that are sent
_TASKS = 500


def costs(n: int) -> dict[str, float]:
    """Processor seconds of one core for n features, bytes of statistics, and peak memory; in a process of its own."""
    with _pool(1) as pool:
        return pool.submit(_costs, n).result()


def messages() -> dict[str, dict[str, float]]:
    """Latency and bandwidth between processes of this machine, and seconds per task, by what runs them."""
    with _pool(1) as pool:
        pool.submit(_kept, 100).result()
        pool.submit(_kept, 1000).result()
        times = {n: _least(lambda n=n: pool.submit(_kept, n).result(), 20) for n in _SENT}  # type: ignore[misc]
    found = {"processes": {"task": 0.0, **_line(times)}}
    with _cluster(2) as client:
        client.run(_kept, 100)
        times = {n: _between_workers(client, n) for n in _SENT}
        task = (
            _least(lambda: client.gather([client.submit(_nothing, i, pure=False) for i in range(_TASKS)]), 3) / _TASKS
        )
    return found | {"dask": {"task": task, **_line(times)}}


def runs(repeats: int) -> list[dict[str, Any]]:
    """Seconds of `sum_chunks` by processes and workers of this machine that are warm and have the data."""
    found = []
    for kind, made in (("processes", _pool), ("dask", _cluster)):
        for workers in WORKERS:
            with made(workers) as place:
                given: dict[str, Any] = {"executor" if kind == "processes" else "client": place}
                for n, chunks in RUNS:
                    _warm(place, workers, n)
                    load = partial(rows_of, n, ROWS[n])
                    row = {"on": kind, "workers": workers, "n": n, "chunks": chunks, "rows": ROWS[n]}
                    fit = partial(sum_chunks, [load] * chunks, **SETTINGS, **given)
                    seconds, processor = zip(*(_busy(fit) for _ in range(repeats)), strict=True)
                    found.append(row | {"seconds": seconds, "processor": processor})
    return found


@cache
def rows_of(n: int, rows: int) -> tuple[Any, Any]:
    """Independent normal features and rewards, made once in each process."""
    random = np.random.default_rng(0)
    return random.standard_normal((rows, n)), random.standard_normal(rows)


def _summed(n: int, rows: int) -> LSTDStatistics:
    return LSTDStatistics.from_arrays(*rows_of(n, rows), **SETTINGS)


@cache
def _kept(n: int) -> LSTDStatistics:
    return _summed(n, 2 * n)


def _costs(n: int) -> dict[str, float]:
    rows, once = ROWS[n], n >= _ONCE_FROM
    rows_of(n, rows)
    row, found = _processor(lambda: _summed(n, rows), once)
    sums = (found.A, found.B, found.b, found.arriving, found.a, found.h, found.c, found.pending.phi)
    part = replace(found, B=np.array(found.B))  # as it arrives: zeros are sent too
    seconds, _ = _processor(lambda: part.then(part), once)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    solve, _ = _processor(lambda: found.solve(1.0), once)
    return {
        "row": row / rows, "merge": seconds, "solve": solve, "size": sum(array.nbytes for array in sums),
        "rows": rows, "peak": peak,
    }  # fmt: skip


def _processor(task: Callable[[], Any], once: bool) -> tuple[float, Any]:
    """Median processor seconds of a task, and what it gives; run once before, where it is not run once only."""
    result = None if once else task()
    times: list[float] = []
    while not times or (not once and (sum(times) < _SECONDS or len(times) < 5)):
        begin = time.process_time()
        result = task()
        times.append(time.process_time() - begin)
    return statistics.median(times), result


def _timed(task: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    task()
    return time.perf_counter() - begin


def _busy(task: Callable[[], Any]) -> tuple[float, float]:
    """Seconds of a task, and processor seconds of this process and all that it started."""
    psutil: Any = importlib.import_module("psutil")

    def used() -> float:
        processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
        return float(sum(sum(process.cpu_times()[:2]) for process in processes))

    before = used()
    seconds = _timed(task)
    return seconds, used() - before


def _least(task: Callable[[], Any], times: int) -> float:
    """Least seconds of a task: other programs only add to them."""
    return min(_timed(task) for _ in range(times))


def _line(times: dict[int, float]) -> dict[str, float]:
    """Latency and bandwidth from the seconds that statistics of two sizes take."""
    (small, first), (large, second) = ((16.0 * n * n, seconds) for n, seconds in times.items())
    bandwidth = (large - small) / (second - first)
    return {"latency": max(0.0, first - small / bandwidth), "bandwidth": bandwidth}


def _between_workers(client: Any, n: int) -> float:
    """Seconds by which a task takes longer, at the least, when statistics of n features are on another worker."""
    here, there = list(client.nthreads())
    here_too, there_only = [], []
    for _ in range(15):
        part = client.submit(_kept, n, workers=[here], pure=False)
        part.result()
        each = [_timed(client.submit(_nothing, part, workers=[worker], pure=False).result) for worker in (here, there)]
        here_too.append(each[0])
        there_only.append(each[1])
    return min(there_only) - min(here_too)


def _nothing(_given: Any) -> None:
    return None


def _warm(place: Any, workers: int, n: int) -> None:
    """Have every worker load the code and make its data."""
    if isinstance(place, ProcessPoolExecutor):
        list(place.map(_once_each, [n] * workers))
    else:
        place.run(_once_each, n)


def _once_each(n: int) -> None:
    _summed(n, ROWS[n])
    time.sleep(1.0)  # so that the other workers get one too


@contextlib.contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(workers, get_context("spawn"), threadpool_limits, (1,)) as pool:
        yield pool


@contextlib.contextmanager
def _cluster(workers: int) -> Iterator[Any]:
    made: Any = importlib.import_module("distributed")
    logging.getLogger("distributed").setLevel(logging.ERROR)  # it warns of workers that are slow to end
    options = {"threads_per_worker": 1, "processes": True, "dashboard_address": ":0", "memory_limit": 0}
    with made.LocalCluster(n_workers=workers, **options) as cluster, made.Client(cluster) as client:
        yield client
