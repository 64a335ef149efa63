"""Seconds per run on this machine: the compiled sweep beside a plain NumPy loop, interleaved in one process.

As in Tables 1-3 of the paper, a run is 340 pairs (λ, α); true online TD(λ) is timed over its 600 pairs and
multiplied by 340/600. Everything runs on one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from lstd.experiments.loop import Run, run_loop, simulate_run
from lstd.experiments.protocol import (
    ALPHAS,
    FEATURES,
    LMBDAS,
    LSTD_VARIANTS,
    PAPER_SECONDS,
    PAPER_TIMED,
    PROBLEMS,
    STEP_SIZES,
)
from lstd.statistics.threads import one_blas_thread

TIMED: dict[str, list[str]] = {
    "boyan": ["boyan"],
    "uncorrected": ["uncorrected"],
    "mixed": ["mixed"],
    "lstd_one_pass": list(LSTD_VARIANTS),
    "true_online_td": ["true_online_td"],
}
N_PAIRS = len(LMBDAS) * len(ALPHAS)
REPEATS = 5
REPEATS_SLOW = 3  # where one timing of everything takes longer than SLOW_SECONDS
SLOW_SECONDS = 0.4
SWEEP_SECONDS = 0.02  # least time of one timing, far above the resolution of the clock
LOOP_SECONDS = 0.1  # least time of the loop's whole sample, per algorithm
MAX_RUNS = 50  # of one timing: as many as the paper's experiment has

Progress = Callable[[int, int], None]


def measure(
    problems: Sequence[str] = tuple(PROBLEMS),
    features: Sequence[str] = FEATURES,
    *,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Time each algorithm alone, the three LSTD(λ) in one pass, and the NumPy loop.

    Parameters
    ----------
    problems, features : sequence of str
        Names of the protocol.
    progress : callable, optional
        Called with (problem-feature pairs done, in all).

    Returns
    -------
    dict
        "threads", "sample" (what was timed, in words), and "rows": for each problem, features and algorithm
        ("boyan", "uncorrected", "mixed", "lstd_one_pass", "true_online_td") "seconds" (median), "low", "high"
        and "runs" of the sweep; "loop_seconds" per run extrapolated from "loop_sample", with "loop_low" and
        "loop_high"; "paper_seconds" and "paper_spread". Seconds are per run of 340 pairs.

    Examples
    --------
    >>> timings = measure(["small"], ["normal"])                            # doctest: +SKIP
    >>> round(timings["rows"][0]["loop_seconds"] / timings["rows"][0]["seconds"])  # doctest: +SKIP
    1200
    """
    pairs = [(problem, name) for problem in problems for name in features]
    rows: list[dict[str, Any]] = []
    with one_blas_thread():
        for done, (problem, name) in enumerate(pairs):
            if progress is not None:
                progress(done, len(pairs))
            rows += _measure_pair(problem, name)
    if progress is not None:
        progress(len(pairs), len(pairs))
    return {"threads": 1, "sample": _describe(), "rows": rows}


def _describe() -> str:
    n_td = len(LMBDAS) * len(STEP_SIZES)
    return (
        f"Seconds per run of {N_PAIRS} pairs (λ, α), on one thread: median, lowest and highest of "
        f"{REPEATS_SLOW} to {REPEATS} timings of a sweep over consecutive run seeds, with as many runs as take "
        f"at least {SWEEP_SECONDS} s (at most {MAX_RUNS}), compiled beforehand, set-up of the problem and "
        "simulation included. The NumPy loop is timed in between, on pairs drawn at random from the grid, at "
        f"least {LOOP_SECONDS} s for each algorithm, run seed 1, without simulation, and extrapolated to a run. "
        f"True online TD(λ) has {n_td} pairs per run: its seconds are multiplied by {N_PAIRS}/{n_td}."
    )


def _measure_pair(problem: str, features: str) -> list[dict[str, Any]]:
    started = time.perf_counter()
    runs = {timed: _runs_per_timing(problem, features, timed) for timed in TIMED}
    repeats = REPEATS if time.perf_counter() - started < SLOW_SECONDS else REPEATS_SLOW
    seconds: dict[str, list[float]] = {timed: [] for timed in TIMED}
    loop = _LoopSample(simulate_run(problem, features, 1))
    for repeat in range(repeats):
        for timed, n in runs.items():
            first = 1 + repeat * n
            seconds[timed].append(_time_sweep(problem, features, timed, range(first, first + n)))
        loop.extend(LOOP_SECONDS * (repeat + 1) / repeats)
    return [
        {
            "problem": problem,
            "features": features,
            "algorithm": timed,
            "seconds": float(np.median(seconds[timed])),
            "low": min(seconds[timed]),
            "high": max(seconds[timed]),
            "runs": repeats * runs[timed],
            **loop.seconds_per_run(names),
            "loop_sample": "; ".join(loop.describe(name) for name in names),
            **_paper(problem, features, names),
        }
        for timed, names in TIMED.items()
    ]


def _paper(problem: str, features: str, algorithms: Sequence[str]) -> dict[str, float]:
    """The paper's seconds and spread; for several algorithms their sum, the spreads taken as independent."""
    found = [PAPER_SECONDS[problem, features][PAPER_TIMED.index(name)] for name in algorithms]
    return {
        "paper_seconds": sum(mean for mean, _ in found),
        "paper_spread": float(np.hypot.reduce([spread for _, spread in found])),
    }


def _time_sweep(problem: str, features: str, timed: str, run_seeds: range) -> float:
    """Seconds per run of 340 pairs."""
    from lstd.experiments.sweep import run_sweep

    start = time.perf_counter()
    run_sweep(problem, features, TIMED[timed], run_seeds=run_seeds, n_jobs=1)
    elapsed = time.perf_counter() - start
    return elapsed / len(run_seeds) * N_PAIRS / (len(LMBDAS) * len(_grid(timed)))


def _runs_per_timing(problem: str, features: str, timed: str) -> int:
    """Number of runs to time at once; a run of one step before it loads or compiles the kernels."""
    from lstd.experiments.sweep import run_sweep

    run_sweep(problem, features, TIMED[timed], run_seeds=[1], n_steps=1, n_jobs=1)
    n = 1
    while n < MAX_RUNS and n * _time_sweep(problem, features, timed, range(1, n + 1)) < SWEEP_SECONDS:
        n = min(2 * n, MAX_RUNS)
    return n


def _grid(algorithm: str) -> npt.NDArray[np.float64]:
    return np.asarray(STEP_SIZES if algorithm == "true_online_td" else ALPHAS)


class _LoopSample:
    """Timings of the NumPy loop on pairs (λ, α) of one run, in a random order that is always the same."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._pairs: dict[str, Iterator[tuple[float, float]]] = {name: _shuffled(name) for name in PAPER_TIMED}
        self._times: dict[str, list[list[float]]] = {name: [] for name in PAPER_TIMED}

    def extend(self, seconds: float) -> None:
        """Time more pairs until each algorithm has had so many seconds in all, and a pair more at least."""
        for name, times in self._times.items():
            times.append([])
            for pair in self._pairs[name]:
                start = time.perf_counter()
                run_loop(name, self._run, *pair)
                times[-1].append(time.perf_counter() - start)
                if sum(map(sum, times)) >= seconds:
                    break

    def seconds_per_run(self, algorithms: Sequence[str]) -> dict[str, float]:
        """Mean over all pairs, and the lowest and highest mean of those timed together."""
        means = {
            name: [N_PAIRS * float(np.mean(part)) for part in ([*chain(*times)], *times) if part]
            for name, times in self._times.items()
        }
        return {
            "loop_seconds": sum(means[name][0] for name in algorithms),
            "loop_low": sum(min(means[name]) for name in algorithms),
            "loop_high": sum(max(means[name]) for name in algorithms),
        }

    def describe(self, algorithm: str) -> str:
        times, n_grid = [*chain(*self._times[algorithm])], len(LMBDAS) * len(_grid(algorithm))
        return f"{algorithm}: {len(times)} of {n_grid} pairs, {sum(times):.2f} s"


def _shuffled(algorithm: str) -> Iterator[tuple[float, float]]:
    grid = [(float(lmbda), float(alpha)) for lmbda in LMBDAS for alpha in _grid(algorithm)]
    return (grid[i] for i in np.random.RandomState(0).permutation(len(grid)))
