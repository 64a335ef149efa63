"""Work out from costs per chunk, measured here, how long a fit takes on many machines.

    python benchmarks/cluster.py [--seconds 0.5] [--bandwidth 1.25e9] [--latency 1e-3]

Measures, with the BLAS at one thread, the sums of LSTD(λ) over a chunk, the merge of two statistics, and the solve for
n = 100 and 1000 features; for n = 10000 they are extrapolated from n = 1000 by their order, n², n² and n³. Simulates
the reduction of the chunks' statistics in a tree over workers whose network has the given bandwidth (bytes per second)
and latency (seconds); checks that it takes no longer than its depth allows; prints tables for 1e9 and 1e12 transitions.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped,unused-ignore]

from lstd.statistics import LSTDStatistics

TRANSITIONS = (1e9, 1e12)
WORKERS = (1, 10, 100, 1000, 10000)
MEASURED = (100, 1000)
FEATURES = (100, 1000, 10000)


@dataclass(frozen=True)
class Costs:
    """Seconds on one core for n features."""

    row: float
    merge: float
    solve: float

    def scaled(self, factor: int) -> Costs:
        """For `factor` times as many features."""
        return Costs(self.row * factor**2, self.merge * factor**2, self.solve * factor**3)


@dataclass(frozen=True)
class Network:
    """Of each worker."""

    bandwidth: float
    latency: float

    def seconds(self, n_bytes: float) -> float:
        """Of one message."""
        return self.latency + n_bytes / self.bandwidth


def main() -> None:
    """Measure, simulate and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--seconds", type=float, default=0.5, help="of each measurement, at least")
    parser.add_argument("--bandwidth", type=float, default=1.25e9, help="bytes per second of a worker's network")
    parser.add_argument("--latency", type=float, default=1e-3, help="seconds per message and task")
    arguments = parser.parse_args()
    with threadpool_limits(1):
        costs = {n: measured(n, arguments.seconds) for n in MEASURED}
    costs[10000] = costs[1000].scaled(10)
    network = Network(arguments.bandwidth, arguments.latency)
    print("| n | statistics, bytes | sums, µs per row | merge, s | solve, s | sending statistics, s | |")
    print("|---|---|---|---|---|---|---|")
    for n in FEATURES:
        cost, how = costs[n], "measured" if n in MEASURED else "extrapolated from n = 1000"
        numbers = (f"{1e6 * cost.row:.3g}", f"{cost.merge:.3g}", f"{cost.solve:.3g}")
        print(f"| {n} | {size(n):.2g} | {' | '.join(numbers)} | {network.seconds(size(n)):.3g} | {how} |")
    for transitions in TRANSITIONS:
        print(f"\n{transitions:.0e} transitions, extrapolated:\n")
        print(_table(transitions, costs, network))


def size(n: int) -> float:
    """Bytes of statistics of n features: A and B, and vectors."""
    return 16.0 * n * n + 48.0 * n


def measured(n: int, seconds: float) -> Costs:
    """Costs for n features."""
    random = np.random.default_rng(0)
    rows = 2_000_000 // n
    X, y = random.standard_normal((rows, n)), random.standard_normal(rows)
    X[:, 0] = 1.0

    def summed() -> LSTDStatistics:
        return LSTDStatistics.from_arrays(X, y, gamma=0.99, lmbda=0.9)

    one = summed()
    return Costs(
        row=_timed(summed, seconds) / rows,
        merge=_timed(lambda: one.then(one), seconds),
        solve=_timed(lambda: one.solve(1.0), seconds),
    )


def _timed(task: Callable[[], Any], seconds: float) -> float:
    """Median seconds of a task, run once before."""
    task()
    times: list[float] = []
    while sum(times) < seconds or len(times) < 5:
        begin = time.perf_counter()
        task()
        times.append(time.perf_counter() - begin)
    return float(np.median(times))


def simulated(workers: int, cost: Costs, n: int, network: Network, sums: float) -> tuple[float, float]:
    """Seconds until the last worker has its statistics, and from then until one of them holds those of all.

    A worker takes `sums` seconds for its own, give or take 5 %.

    Neighbours merge as soon as both are done, on the worker of the left one; a worker receives one at a time.
    """
    ready = sums * np.random.default_rng(0).uniform(0.95, 1.05, workers)
    last = float(ready.max())
    step = cost.merge + network.seconds(size(n))
    while len(ready) > 1:
        odd = ready[len(ready) // 2 * 2 :]
        ready = np.concatenate([np.maximum(ready[0:-1:2], ready[1::2]) + step, odd])
    return last, float(ready[0]) - last


def _table(transitions: float, costs: dict[int, Costs], network: Network) -> str:
    lines = ["| n | workers | sums | depth | reduction | solve | in all | of it sums | bytes moved |", "|---" * 9 + "|"]
    for n in FEATURES:
        cost = costs[n]
        for workers in WORKERS:
            sums = transitions / workers * cost.row
            depth = math.ceil(math.log2(workers))
            last, reduction = simulated(workers, cost, n, network, sums)
            if reduction > depth * (cost.merge + network.seconds(size(n))) * (1 + 1e-6) + 1e-9 * last:
                raise AssertionError("the simulated reduction takes longer than its depth allows")
            whole = last + reduction + cost.solve
            parts = (_duration(last), str(depth), _duration(reduction), _duration(cost.solve))
            moved = f"{(workers - 1) * size(n):.2g}"
            lines.append(
                f"| {n} | {workers} | {' | '.join(parts)} | {_duration(whole)} | {last / whole:.0%} | {moved} |"
            )
    return "\n".join(lines)


def _duration(seconds: float) -> str:
    for unit, length in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.2g} s"


if __name__ == "__main__":
    main()
