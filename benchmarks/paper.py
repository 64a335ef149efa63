"""Time the paper's experiments against a plain NumPy loop, and the whole paper with a cold and a warm cache.

python benchmarks/paper.py [--quick]

The compiled sweep and the loop of `lstd.experiments.timing` run in turn on one thread. Then fresh processes compute
the whole paper on all cores, first with an empty cache of compiled kernels, then with a filled one; and `lstd
reproduce` writes all of its figures, tables and the report.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from typing import Any

from ratios import Ratio, note, run_alone, timed

HOW = """\
The sweep: seconds per run of 340 pairs (λ, α), on one thread, simulation included, beside a plain NumPy loop that is
timed in between **on a sample of the pairs**, at least 0.1 s for each algorithm, and extrapolated to all of them
(`lstd.experiments.timing`). The whole paper: 9 problems × 50 runs × three LSTD(λ)s over 340 pairs and true online TD(λ)
over 600, on all cores, each time in a fresh process, beside the extrapolated loop on one. `lstd reproduce` is timed
from its start to its end: beside the sweep it simulates the theory, measures its own times, and draws the figures."""

GOALS = {("large", "tabular"): 150, ("deterministic", "tabular"): 200, ("small", "tabular"): 700}
DEFAULT_GOAL = 1000
TD_GOAL = 300
SECONDS_WITH_REPORT = 20.0
WARM_REPEATS = 3
COMMAND = "import sys; from lstd.cli import main; sys.exit(main())"
N_RUNS = 50
TIMED = {"lstd_one_pass": "three LSTD(λ)s in one pass", "true_online_td": "true online TD(λ)"}
TD_PAIRS = 600 / 340  # seconds of true online TD are given for 340 of its 600 pairs
WHOLE_PAPER = """
import time
from lstd.experiments import run_sweep
from lstd.experiments.protocol import FEATURES, LSTD_VARIANTS, PROBLEMS
begin = time.perf_counter()
for problem in PROBLEMS:
    for features in FEATURES:
        run_sweep(problem, features, [*LSTD_VARIANTS, "true_online_td"])
print(time.perf_counter() - begin)
"""


def ratios(quick: bool = False) -> Iterator[Ratio]:
    """Time the sweep beside the loop on each problem, and the whole paper cold and warm, in alternating rounds."""
    from lstd.experiments import timing

    if quick:
        yield from _sweeps([timing.measure(["small"], ["normal"])])
        yield Ratio("the whole paper", skipped="it takes longer than a quick run may")
        return
    rounds = []
    warm = []
    with_report = []
    with tempfile.TemporaryDirectory() as cache:
        cold = whole_paper_process(cache)
        reproduce_process(cache)  # compiles what else it needs
        for i in range(WARM_REPEATS):
            rounds.append(timing.measure(progress=partial(_note, i)))
            warm.append(whole_paper_process(cache))
            with_report.append(reproduce_process(cache))
    yield from _sweeps(rounds)
    loops = [whole_loop(measured) for measured in rounds]
    yield Ratio("the whole paper, kernels compiled, beside the loop", warm, loops)
    claim = "`lstd reproduce`, with all figures and its report, kernels compiled, beside the loop"
    yield Ratio(claim, with_report, loops, seconds_goal=SECONDS_WITH_REPORT)
    yield Ratio("the whole paper, kernels to compile, beside the loop", [cold], [statistics.median(loops)])
    claim = "the whole paper, kernels to compile, beside kernels compiled"
    yield Ratio(claim, [cold], [statistics.median(warm)], cost=True)


def _note(i: int, done: int, total: int) -> None:
    note(f"paper: round {i + 1} of {WARM_REPEATS}, {done} of {total} problems")


def _sweeps(rounds: list[dict[str, Any]]) -> Iterator[Ratio]:
    """Yield a ratio per problem, features and algorithm, paired by rounds."""
    for rows in zip(*(measured["rows"] for measured in rounds), strict=True):
        problem, features, algorithm = (rows[0][name] for name in ("problem", "features", "algorithm"))
        if algorithm in TIMED:
            goal = TD_GOAL if algorithm == "true_online_td" else GOALS.get((problem, features), DEFAULT_GOAL)
            ours, loop = ([row[side] for row in rows] for side in ("seconds", "loop_seconds"))
            claim = f"{TIMED[algorithm]}, {problem}, {features}, beside a NumPy loop"
            yield Ratio(claim, ours, loop, goal=goal)


def whole_loop(measured: dict[str, Any]) -> float:
    """Extrapolate the seconds of the NumPy loop to the whole paper."""
    return sum(
        N_RUNS * float(row["loop_seconds"]) * (TD_PAIRS if row["algorithm"] == "true_online_td" else 1.0)
        for row in measured["rows"]
        if row["algorithm"] in TIMED
    )


def whole_paper_process(cache: str) -> float:
    """Compute the whole paper in a fresh process; returns its seconds without the start."""
    command = [sys.executable, "-c", WHOLE_PAPER]
    environment = {**os.environ, "LSTD_CACHE_DIR": cache}
    return float(subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout)


def reproduce_process(cache: str) -> float:
    """Reproduce the whole paper, with its report, by the command; returns its seconds from start to end."""
    environment = {**os.environ, "LSTD_CACHE_DIR": cache}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", COMMAND, "reproduce", "--out", folder]
        run = partial(subprocess.run, command, env=environment, check=True, stdout=subprocess.DEVNULL)
        return timed(run)


if __name__ == "__main__":
    run_alone(__doc__, ratios)
