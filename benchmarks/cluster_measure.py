"""Measure sums, merges and solves on this machine, and messages between Dask workers."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import pickle
import statistics
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped,unused-ignore]

from lstd import LSTDStatistics

SETTINGS: dict[str, Any] = {"gamma": 0.99, "lmbda": 0.9}
ROWS = {100: 30_000, 1000: 10_000, 10_000: 1257}  # for n = 10000, three times the 419 rows that are summed at a time
_SECONDS = 0.5  # of each measurement, at least
_ONCE_FROM = 5000  # features: measured once
_SENT = (100, 1000)  # features of the statistics that are sent
_TASKS = 500


def everything(features: tuple[int, ...]) -> dict[str, Any]:
    """Measure costs for each number of features, and messages, with the BLAS at one thread."""
    load = os.getloadavg()[0]
    with threadpool_limits(1):
        costs = {str(n): _costs(n) for n in features}
    return {"load": load, "costs": costs, "messages": _messages()}


def _rows(n: int, rows: int) -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    return random.standard_normal((rows, n)), random.standard_normal(rows)


@cache
def _kept(n: int) -> LSTDStatistics:
    """Statistics of n features, the same object each time."""
    return LSTDStatistics.from_arrays(*_rows(n, 2 * n), **SETTINGS)


def _costs(n: int) -> dict[str, float]:
    """Processor seconds of a row, a merge and a solve."""
    rows = ROWS[n]
    once = n >= _ONCE_FROM
    X, y = _rows(n, rows)
    row, sums = _processor(lambda: LSTDStatistics.from_arrays(X, y, **SETTINGS), once)
    received = pickle.loads(pickle.dumps(sums))
    merge, _ = _processor(lambda: received.then(received), once)
    solve, _ = _processor(lambda: sums.solve(1.0), once)
    return {"row": row / rows, "merge": merge, "solve": solve, "rows": rows}


def _messages() -> dict[str, dict[str, float]]:
    """Latency and bandwidth between workers on this machine, and seconds per task."""
    with _cluster() as client:
        client.run(_kept, _SENT[0])
        times = {n: _between_workers(client, n) for n in _SENT}
        submit = partial(client.submit, _nothing, pure=False)
        task = min(_seconds(lambda: client.gather([submit(i) for i in range(_TASKS)])) for _ in range(3)) / _TASKS
    return {"dask": {"task": task, **_line(times)}}


def _processor(task: Callable[[], Any], once: bool) -> tuple[float, Any]:
    """Median processor seconds of a task, and its result; unless `once`, the first time does not count."""
    result = None if once else task()
    times: list[float] = []
    while not times or (not once and (sum(times) < _SECONDS or len(times) < 5)):
        begin = time.process_time()
        result = task()
        times.append(time.process_time() - begin)
    return statistics.median(times), result


def _seconds(task: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    task()
    return time.perf_counter() - begin


def _line(times: dict[int, float]) -> dict[str, float]:
    """Latency and bandwidth from the seconds that statistics of two sizes take."""
    (small, first), (large, second) = ((16.0 * n * n, seconds) for n, seconds in times.items())
    bandwidth = (large - small) / (second - first)
    return {"latency": max(0.0, first - small / bandwidth), "bandwidth": bandwidth}


def _between_workers(client: Any, n: int) -> float:
    """Seconds to send the statistics of n features: a task beside them, and one on the other worker, at the least."""
    workers = list(client.nthreads())
    least = [np.inf, np.inf]
    for _ in range(15):
        sums = client.submit(_kept, n, workers=workers[:1], pure=False)
        sums.result()
        for place, worker in enumerate(workers):
            task = client.submit(_nothing, sums, workers=[worker], pure=False)
            least[place] = min(least[place], _seconds(task.result))
    return float(least[1] - least[0])


def _nothing(_given: Any) -> None:
    return None


@contextlib.contextmanager
def _cluster() -> Iterator[Any]:
    distributed: Any = importlib.import_module("distributed")
    logging.getLogger("distributed").setLevel(logging.ERROR)  # it warns of workers that are slow to end
    options = {"threads_per_worker": 1, "processes": True, "dashboard_address": ":0", "memory_limit": 0}
    with distributed.LocalCluster(n_workers=2, **options) as cluster, distributed.Client(cluster) as client:
        yield client
