"""Seconds per run on this machine: the compiled sweep and a plain NumPy loop, interleaved in one process.

As in Tables 1-3 of the paper, a run is 340 pairs (λ, α); true online TD(λ) is timed over its 600 pairs and multiplied
by 340/600. Everything runs on one thread. The three LSTD(λ) share one recursion, so the pass that computes all three is
timed once: each variant alone costs the same by construction.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np

from lstd.experiments import protocol
from lstd.experiments.numpy_loop import Run, run_loop, simulate_run
from lstd.experiments.protocol import FEATURES, LMBDAS, LSTD_VARIANTS, PROBLEMS
from lstd.experiments.sweep import run_sweep
from lstd.statistics.threads import one_blas_thread

# What is timed -> the algorithms that it computes.
TIMED: dict[str, tuple[str, ...]] = {"lstd_one_pass": LSTD_VARIANTS, "true_online_td": ("true_online_td",)}
N_PAIRS = len(LMBDAS) * len(protocol.ALPHAS)
REPEATS = 5
REPEATS_SLOW = 3  # where one run takes longer than SWEEP_SECONDS
SWEEP_SECONDS = 0.02  # shortest timing, far above the resolution of the clock
LOOP_SECONDS = 0.05  # least time for the sample of the loop, per algorithm
MAX_RUNS = 50  # in one timing: the number of runs of the paper's experiments

Progress = Callable[[int, int], None]


def measure(
    problems: Sequence[str] = tuple(PROBLEMS),
    features: Sequence[str] = FEATURES,
    *,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Time the LSTD(λ) pass, true online TD(λ), and the NumPy loop of each algorithm.

    Returns
    -------
    dict
        "threads", "sample" (what was timed, in words), and "rows": for each problem, features and algorithm
        ("boyan", "uncorrected", "mixed", "lstd_one_pass", "true_online_td") "loop_seconds" per run, extrapolated from
        "loop_sample", with "loop_low" and "loop_high"; "paper_seconds" and "paper_spread"; and for the last two
        algorithms "seconds" (median), "low", "high" and "runs" of the sweep. Seconds are per run of 340 pairs.
    """
    pairs = [(problem, name) for problem in problems for name in features]
    rows: list[dict[str, Any]] = []
    with one_blas_thread():
        for done, (problem, name) in enumerate(pairs, start=1):
            rows += _measure_pair(problem, name)
            if progress is not None:
                progress(done, len(pairs))
    n_td = len(_grid("true_online_td"))
    sample = (
        f"Seconds per run of {N_PAIRS} pairs (λ, α), on one thread: median, lowest and highest of {REPEATS_SLOW} to "
        f"{REPEATS} timings. Each timing is of a sweep over as many run seeds as take about {SWEEP_SECONDS} s, at most "
        f"{MAX_RUNS}; it includes the set-up of the problem and the simulation, but no compilation. The NumPy loop is "
        f"timed in between, for at least {LOOP_SECONDS} s for each algorithm, on run seed 1 and pairs drawn at random "
        "from the grid, without simulation; its seconds are extrapolated to all pairs. "
        f"True online TD(λ) has {n_td} pairs per run: its seconds are multiplied by {N_PAIRS}/{n_td}."
    )
    return {"threads": 1, "sample": sample, "rows": rows}


def _measure_pair(problem: str, features: str) -> list[dict[str, Any]]:
    for algorithms in TIMED.values():  # load or compile the kernels
        run_sweep(problem, features, list(algorithms), run_seeds=[1], n_steps=1, n_jobs=1)
    n_runs = {timed: _runs_in_a_timing(problem, features, timed) for timed in TIMED}
    repeats = REPEATS_SLOW if 1 in n_runs.values() else REPEATS
    seconds: dict[str, list[float]] = {timed: [] for timed in TIMED}
    loop = _LoopSample(simulate_run(problem, features, 1))
    for repeat in range(repeats):
        for timed, n in n_runs.items():
            seeds = range(1 + repeat * n, 1 + (repeat + 1) * n)
            seconds[timed].append(_time_sweep(problem, features, timed, seeds))
        loop.extend(LOOP_SECONDS * (repeat + 1) / repeats)
    here = {
        timed: {"seconds": float(np.median(s)), "low": min(s), "high": max(s), "runs": len(s) * n_runs[timed]}
        for timed, s in seconds.items()
    }
    return [
        {
            "problem": problem,
            "features": features,
            "algorithm": name,
            **here.get(name, {}),
            **loop.summary(algorithms),
            **_paper(problem, features, algorithms),
        }
        for name, algorithms in ({variant: (variant,) for variant in LSTD_VARIANTS} | TIMED).items()
    ]


def _runs_in_a_timing(problem: str, features: str, timed: str) -> int:
    """Number of runs that take SWEEP_SECONDS; the set-up is a smaller share of several runs than of one."""
    n = 1
    for _ in range(2):
        seconds = _time_sweep(problem, features, timed, range(1, 1 + n))
        n = min(MAX_RUNS, math.ceil(SWEEP_SECONDS / seconds))
    return n


def _paper(problem: str, features: str, algorithms: Sequence[str]) -> dict[str, float]:
    """Sum the paper's seconds over the algorithms; their spreads are taken as independent."""
    seconds = [protocol.PAPER_SECONDS[problem, features][protocol.PAPER_TIMED.index(name)] for name in algorithms]
    return {
        "paper_seconds": sum(mean for mean, _ in seconds),
        "paper_spread": float(np.hypot.reduce([spread for _, spread in seconds])),
    }


def _time_sweep(problem: str, features: str, timed: str, run_seeds: range) -> float:
    """Seconds per run of 340 pairs."""
    names = list(TIMED[timed])
    start = time.perf_counter()
    run_sweep(problem, features, names, run_seeds=run_seeds, n_jobs=1)
    elapsed = time.perf_counter() - start
    return elapsed / len(run_seeds) * N_PAIRS / len(_grid(names[0]))


def _grid(algorithm: str) -> list[tuple[float, float]]:
    """All pairs (λ, α) of an algorithm."""
    alphas = protocol.ALPHAS_OF["lstd" if algorithm in LSTD_VARIANTS else algorithm]
    return [(float(lmbda), float(alpha)) for lmbda in LMBDAS for alpha in alphas]


class _LoopSample:
    """Timings of the NumPy loop on pairs (λ, α) of one run, in a random order that is always the same."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._pairs = {name: iter(np.random.RandomState(0).permutation(_grid(name))) for name in protocol.PAPER_TIMED}
        self._times: dict[str, list[list[float]]] = {name: [] for name in protocol.PAPER_TIMED}

    def extend(self, seconds: float) -> None:
        """Time more pairs, at least one, until each algorithm has had `seconds` in total."""
        for name, times in self._times.items():
            times.append([])
            for lmbda, alpha in self._pairs[name]:
                start = time.perf_counter()
                run_loop(name, self._run, float(lmbda), float(alpha))
                times[-1].append(time.perf_counter() - start)
                if sum(map(sum, times)) >= seconds:
                    break

    def summary(self, algorithms: Sequence[str]) -> dict[str, Any]:
        """Sum over the algorithms the mean over all pairs, and the lowest and highest mean of those timed together."""
        times = {name: [*chain(*self._times[name])] for name in algorithms}
        means = {
            name: [N_PAIRS * float(np.mean(part)) for part in (times[name], *self._times[name]) if part]
            for name in algorithms
        }
        samples = [f"{name}: {len(t)} of {len(_grid(name))} pairs, {sum(t):.2f} s" for name, t in times.items()]
        return {
            "loop_seconds": sum(mean for mean, *_ in means.values()),
            "loop_low": sum(map(min, means.values())),
            "loop_high": sum(map(max, means.values())),
            "loop_sample": "; ".join(samples),
        }
