"""Time the paper's experiments against a plain NumPy loop, and the whole paper with a cold and a warm cache.

    python benchmarks/paper.py [--write docs/results/performance.md]

For each problem and features, prints the seconds per run of 340 pairs (λ, α), their ratio and its goal. The compiled
sweep and the loop of `lstd.experiments.numpy_loop` run in turn on one thread. Then fresh processes compute the whole
paper (9 problems × 50 runs × three LSTD(λ)s over 340 pairs and true online TD(λ) over 600) on all cores, first with an
empty cache of compiled kernels, then with a filled one. With `--write`, the tables become a page of the documentation.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from ratios import Ratio, note

HOW = """\
The sweep: seconds per run of 340 pairs (λ, α), on one thread, simulation included, beside a plain NumPy loop that is
timed in between **on a sample of the pairs**, at least 0.1 s for each algorithm, and extrapolated to all of them
(`lstd.experiments.timing`). The whole paper: 9 problems × 50 runs × three LSTD(λ)s over 340 pairs and true online TD(λ)
over 600, on all cores, each time in a fresh process, beside the extrapolated loop on one."""
PAGE = "performance.md"

GOALS = {("large", "tabular"): 150, ("deterministic", "tabular"): 200, ("small", "tabular"): 700}
DEFAULT_GOAL = 1000
TD_GOAL = 300
WARM_GOAL, COLD_GOAL, MEMORY_GOAL, FIRST_CELL_GOAL = 15.0, 35.0, 1000.0, 1.5
WARM_REPEATS = 3
N_RUNS = 50
TIMED = ("lstd_one_pass", "true_online_td")
TD_PAIRS = 600 / 340  # seconds of true online TD are given for 340 of its 600 pairs


def main() -> None:
    """Print the tables, and write them with --write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--write", type=Path, metavar="PAGE", help="also write the tables to this Markdown page")
    parser.add_argument("--whole", type=float, metavar="STARTED", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.whole is not None:
        whole_paper(arguments.whole)
        return
    from lstd.experiments import timing

    rows = timing.measure(progress=lambda done, total: print(f"timed {done} of {total} problems", file=sys.stderr))
    page = "\n".join([*heading(), "", *sweep_table(rows), "", *whole_paper_table(rows)]) + "\n"
    print(page)
    if arguments.write:
        temporary = arguments.write.with_suffix(".tmp")
        temporary.write_text(page, encoding="utf-8")
        temporary.replace(arguments.write)


def heading() -> list[str]:
    """State the machine, the date and the command."""
    import numba
    import numpy as np

    from lstd.experiments.reproduce.provenance import describe_machine

    return [
        "# Performance of the paper's experiments",
        "",
        f"Made by `python benchmarks/paper.py --write docs/results/performance.md` on {datetime.date.today()}: "
        f"{describe_machine()['cpu']}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"NumPy {np.__version__}, Numba {numba.__version__}. "
        "Machines differ; the ratios travel better than the seconds.",
        "",
        "This page is a run of its own, of that date. [Benchmarks](benchmarks.md) has the same ratios from the run "
        "that measures\nall claims, on its own date and under its own load: where the two differ, they are different "
        "runs.",
    ]


def sweep_table(measured: dict[str, Any]) -> list[str]:
    """Make a table of the seconds per run of the sweep and of the NumPy loop, and their ratio."""
    lines = [
        "## Seconds per run beside a plain NumPy loop",
        "",
        measured["sample"],
        "",
        "| problem | features | algorithm | seconds per run (median, min–max) | NumPy loop | ratio | goal |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [_ratio_row(row) for row in measured["rows"] if row["algorithm"] in TIMED]
    return lines


def _name_and_goal(row: dict[str, Any]) -> tuple[str, float]:
    if row["algorithm"] == "lstd_one_pass":
        return "three LSTD(λ)s in one pass", GOALS.get((row["problem"], row["features"]), DEFAULT_GOAL)
    return "true online TD(λ)", TD_GOAL


def _ratio_row(row: dict[str, Any]) -> str:
    name, goal = _name_and_goal(row)
    ratio = row["loop_seconds"] / row["seconds"]
    return (
        f"| {row['problem']} | {row['features']} | {name} | {row['seconds']:.5f} ({row['low']:.5f}–{row['high']:.5f}) "
        f"| {row['loop_seconds']:.2f} | {ratio:.0f}× | ≥ {goal}× {'met' if ratio >= goal else 'MISSED'} |"
    )


def ratios(quick: bool = False) -> Iterator[Ratio]:
    """Time the sweep beside the loop on each problem, and the whole paper cold and warm, in alternating rounds."""
    from lstd.experiments import timing

    if quick:
        yield from _sweeps([timing.measure(["small"], ["normal"])])
        yield Ratio("the whole paper", page=PAGE, skipped="it takes longer than a quick run may")
        return
    rounds, warm = [], []
    with tempfile.TemporaryDirectory() as cache:
        cold = whole_paper_process(cache)["sweeps"]
        for i in range(WARM_REPEATS):
            rounds.append(timing.measure(progress=partial(_note, i)))
            warm.append(whole_paper_process(cache)["sweeps"])
    yield from _sweeps(rounds)
    loops = [whole_loop(measured) for measured in rounds]
    yield Ratio("the whole paper, kernels compiled, beside the loop", warm, loops, page=PAGE)
    yield Ratio("the whole paper, kernels to compile, beside the loop", [cold], [statistics.median(loops)], page=PAGE)
    claim = "the whole paper, kernels to compile, beside kernels compiled"
    yield Ratio(claim, [cold], [statistics.median(warm)], cost=True, page=PAGE)


def _note(i: int, done: int, total: int) -> None:
    note(f"paper: round {i + 1} of {WARM_REPEATS}, {done} of {total} problems")


def _sweeps(rounds: list[dict[str, Any]]) -> Iterator[Ratio]:
    """Yield a ratio per problem, features and algorithm, paired by rounds."""
    for rows in zip(*(measured["rows"] for measured in rounds), strict=True):
        if rows[0]["algorithm"] not in TIMED:
            continue
        name, goal = _name_and_goal(rows[0])
        ours, loop = ([row[side] for row in rows] for side in ("seconds", "loop_seconds"))
        claim = f"{name}, {rows[0]['problem']}, {rows[0]['features']}, beside a NumPy loop"
        yield Ratio(claim, ours, loop, goal=goal, page=PAGE)


def whole_loop(measured: dict[str, Any]) -> float:
    """Extrapolate the seconds of the NumPy loop to the whole paper."""
    return sum(
        N_RUNS * float(row["loop_seconds"]) * (TD_PAIRS if row["algorithm"] == "true_online_td" else 1.0)
        for row in measured["rows"]
        if row["algorithm"] in TIMED
    )


def whole_paper_table(measured: dict[str, Any]) -> list[str]:
    """Time the whole paper in fresh processes, cold and warm, beside the NumPy loop."""
    loop = whole_loop(measured)
    with tempfile.TemporaryDirectory() as cache:
        cold = whole_paper_process(cache)
        warm = [whole_paper_process(cache) for _ in range(WARM_REPEATS)]
    seconds = sorted(run["sweeps"] for run in warm)
    first = sorted(run["first"] for run in warm)
    middle = WARM_REPEATS // 2
    memory = max(run["memory"] for run in [cold, *warm])
    rows = [
        ("whole paper, cold: kernels compiled", cold["sweeps"], "s", COLD_GOAL),
        (f"whole paper, warm ({seconds[0]:.1f}–{seconds[-1]:.1f})", seconds[middle], "s", WARM_GOAL),
        (f"start to first result, warm ({first[0]:.2f}–{first[-1]:.2f})", first[middle], "s", FIRST_CELL_GOAL),
        ("peak resident memory", memory, "MB", MEMORY_GOAL),
    ]  # fmt: skip
    lines = [
        "## The whole paper",
        "",
        "9 problems × 50 runs × three LSTD(λ)s over 340 pairs and true online TD(λ) over 600, on all cores, figures "
        f"apart, each in a process of its own; medians (and ranges) of {WARM_REPEATS} when warm.",
        "",
        "| what | measured | goal |",
        "|---|---|---|",
    ]
    table = [
        f"| {what} | {value:.2f} {unit} | ≤ {goal:g} {unit} {'met' if value <= goal else 'MISSED'} |"
        for what, value, unit, goal in rows
    ]
    total = f"The NumPy loop would take {loop:.0f} s, {loop / seconds[middle]:.0f} times as long as the warm run."
    return [*lines, *table, "", total]


def whole_paper_process(cache: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--whole", repr(time.time())]
    done = subprocess.run(
        command, env={**os.environ, "LSTD_CACHE_DIR": cache}, check=True, stdout=subprocess.PIPE, text=True
    )
    sweeps, first, memory = map(float, done.stdout.split())
    return {"sweeps": sweeps, "first": first, "memory": memory}


def whole_paper(started: float) -> None:
    """Compute everything; print the seconds of the sweeps, those to the first result, and the peak memory in MB."""
    import resource

    from lstd.experiments import run_sweep
    from lstd.experiments.protocol import FEATURES, LSTD_VARIANTS, PROBLEMS

    first = 0.0
    begin = time.perf_counter()
    for problem in PROBLEMS:
        for features in FEATURES:
            run_sweep(problem, features, [*LSTD_VARIANTS, "true_online_td"])
            first = first or time.time() - started
    sweeps = time.perf_counter() - begin
    print(sweeps, first, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3)


if __name__ == "__main__":
    main()
