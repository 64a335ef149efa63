"""Time the sums of LSTD(λ) over a batch beside one product of matrices of the same shape.

    python benchmarks/batch.py [--rows 1000000] [--features 100] [--repeats 15]

Prints, for one thread of the BLAS and for all of them, the seconds of `LSTDStatistics.from_arrays` with every check of
its input, those of Zᵀ X for two different matrices of that shape (which A = Σ (z_t − γ z_{t−1}) φ_tᵀ needs at least),
and the share of the product's speed that is reached. Both are timed in turn; the share is the median over the pairs,
with its quartiles, and the share of the fastest times, which other work on the machine disturbs least.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped,unused-ignore]

from lstd.statistics import LSTDStatistics

GOAL = 0.85


def main() -> None:
    """Print one table row per number of threads."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args()
    random = np.random.default_rng(0)
    X, Z = random.standard_normal((2, arguments.rows, arguments.features))
    y = random.standard_normal(arguments.rows)
    tasks: tuple[Callable[[], Any], ...] = (
        lambda: Z.T @ X,
        lambda: LSTDStatistics.from_arrays(X, y, gamma=0.99, lmbda=0.9),
    )
    print(f"{arguments.rows} rows of {arguments.features} features, {arguments.repeats} pairs\n")
    print("| BLAS threads | product, s | sums, s | share of the product's speed | of the fastest | goal |")
    print("|---|---|---|---|---|---|")
    for threads in (1, None):
        with threadpool_limits(limits=threads, user_api="blas"):
            print(_row("all" if threads is None else str(threads), *_timed(tasks, arguments.repeats)))


def _timed(tasks: tuple[Callable[[], Any], ...], repeats: int) -> list[list[float]]:
    """Seconds of each task, run in turn after one run that is not counted."""
    seconds: list[list[float]] = [[] for _ in tasks]
    for repeat in range(repeats + 1):
        for task, times in zip(tasks, seconds, strict=True):
            begin = time.perf_counter()
            task()
            if repeat:
                times.append(time.perf_counter() - begin)
    return seconds


def _row(threads: str, product: list[float], sums: list[float]) -> str:
    shares = [one / two for one, two in zip(product, sums, strict=True)]
    low, middle, high = statistics.quantiles(shares, n=4)
    return (
        f"| {threads} | {_spread(product)} | {_spread(sums)} | {middle:.0%} ({low:.0%}–{high:.0%}) "
        f"| {min(product) / min(sums):.0%} | ≥ {GOAL:.0%} {'met' if middle >= GOAL else 'MISSED'} |"
    )


def _spread(times: list[float]) -> str:
    return f"{statistics.median(times):.3f} ({min(times):.3f}–{max(times):.3f})"


if __name__ == "__main__":
    main()
