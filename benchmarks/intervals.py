"""Measure how often intervals hold the fixed point of LSTD(λ), and how often they hold the value.

    python benchmarks/intervals.py [--repeats 500] [--only {episodes,groups,arms}] [--write docs/results/intervals.md]

The data are episodes of classic and random processes, one stream of random ones, and windows from every visit of 120
subjects: each visit begins an episode that has all later visits of the subject. The arms of simulated experiments have
differences of two models instead (`arms.py`). The ridge coefficient is 1/64 of
the mean squared length of a row. Each row of the tables covers several processes and kinds of features, with the mean,
the least and the largest coverage. Coverage is the share of data sets whose interval holds the fixed point or the
value. It is averaged over the visited states with their stationary distribution. With 500 data sets, its standard error
is below 0.01 for one case, and far smaller for the mean. States with a standard deviation of the prediction below 1e-3
are left out. `python benchmarks/claims.py --only intervals` measures what intervals cost.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

import arms
from lstd import LSTD
from lstd.experiments.protocol import FEATURES, GAMMA
from lstd.mrp import RandomMRP, make_features
from pages import show
from problems import Case, Data, Windows, episodic_cases
from provenance import printed_by
from ratios import Ratio, timed

Array = NDArray[np.float64]
Draw = Callable[..., Data]  # called with a case and a seed

HOW = """\
`LSTD.fit` on one stream of independent normal features and rewards, on one thread, with what intervals need (by
default) and without (`n_blocks=0`); then the first interval of a row, which computes the covariances."""
N_FEATURES = 100
COST_ROWS = ((10_000, 41), (100_000, 21), (1_000_000, 9))  # rows and pairs

SEED = 31_000
LEVELS = (0.95, 0.9)
LMBDAS = (0.0, 0.9, 1.0)
EPISODES = (10, 30, 100, 300)
LENGTHS = (1000, 10_000, 100_000)
SUBJECTS = 120
OVERLAPPING = (
    "Boyan chain, tabular",
    "Boyan chain, interpolating",
    "30 random states, tabular",
    "30 random states, binary",
    "30 random states, normal",
)
RIDGE = 1 / 64
_VARIES = 1e-3


class Coverage(NamedTuple):
    """Coverage of one case and λ."""

    of_fixed_point: Array  # (levels,)
    of_values: Array  # (levels,)
    worst: float  # of a state, at the first level
    width: float  # mean half width over 1.96 standard deviations of the prediction
    little_data: float


def main() -> None:
    """Print the tables, and write them with --write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--repeats", type=int, default=500, help="data sets per case")
    parser.add_argument("--only", choices=TABLES, help="one of the parts")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="also write the tables into this Markdown page")
    arguments = parser.parse_args()
    for name in [arguments.only] if arguments.only else TABLES:
        about = [] if name == "arms" else [explained(arguments.repeats), ""]
        page = "\n".join([heading(), "", *about, *TABLES[name](arguments.repeats)])
        show(page, f"benchmarks/intervals.py {name}", arguments.write)


def of_groups(repeats: int) -> list[str]:
    """Measure coverage with episodes that overlap, without groups and with them."""
    cases = [Windows.of(case) for case in episodic_cases(SEED) if case.name in OVERLAPPING]
    return [*HEADER, *(line for name in WINDOWS for line in table(name, cases, repeats, "groups" in name))]


def of_episodes(repeats: int) -> list[str]:
    """Measure coverage with independent episodes and with one stream."""
    lines = ["Episodes:", "", *HEADER]
    for n_episodes in EPISODES:
        lines += table(f"{n_episodes} episodes", episodic_cases(SEED), repeats, n_episodes >= 100)
    lines += ["", "One stream, with half as many data sets of 100 000 transitions:", "", *HEADER]
    for length in LENGTHS:
        times = repeats if length < 100_000 else max(20, repeats // 2)
        lines += table(f"{length} transitions", stream_cases(), times, length >= 10_000)
    return lines


def of_arms(repeats: int) -> list[str]:
    """Measure the coverage of the difference of two models, independent and paired."""
    jobs = [(name, lmbda) for name in arms.CASES for lmbda in (LMBDAS if name == arms.ALL_LMBDAS else (0.9,))]
    found = Parallel(n_jobs=-1)(delayed(arms.covered)(*arms.CASES[name], lmbda, repeats) for name, lmbda in jobs)
    lines = ["| data | λ | 95 % intervals | 90 % | width |", "|---|---|---|---|---|"]
    for (name, lmbda), (most, less, width) in zip(jobs, found, strict=True):
        goal = "met" if 0.93 <= most <= 0.97 else "missed"
        lines.append(f"| {name} | {lmbda:g} | {most:.3f} (goal 0.93–0.97: {goal}) | {less:.3f} | {width:.2f} |")
    return lines


def stream_cases() -> list[Case]:
    cases = []
    for k, branching in ((10, 3), (100, 10)):
        model = RandomMRP(k, branching, 0.1, SEED, gamma=GAMMA)
        cases += [Case(f"{k} states, {kind}", model, make_features(model, kind)) for kind in FEATURES]
    return cases


# ---------------------------------------------------------------- measuring

HEADER = [
    "| data | λ | 95 % intervals: fixed point, mean [least, largest] | 90 % | worst state | width "
    "| little data | value |",
    "|---|---|---|---|---|---|---|---|",
]


def table(name: str, cases: Sequence[Case], repeats: int, must: bool) -> Iterator[str]:
    """Yield a row per λ. The goal is 0.93 to 0.97 with `must`; otherwise 0.90 to 0.98 for 30 episodes and λ ≤ 0.9."""
    jobs = [(case, lmbda) for lmbda in LMBDAS for case in cases]
    coverages = Parallel(n_jobs=-1)(delayed(covered)(case, lmbda, KINDS[name], repeats) for case, lmbda in jobs)
    print(f"{name} done", file=sys.stderr, flush=True)
    for i, lmbda in enumerate(LMBDAS):
        some = coverages[i * len(cases) : (i + 1) * len(cases)]
        of_fixed_point = np.array([one.of_fixed_point for one in some])
        low = of_fixed_point[:, 0].min()
        high = of_fixed_point[:, 0].max()
        goal = ""
        if must:
            goal = " (goal 0.93–0.97: met)" if low >= 0.93 and high <= 0.97 else " (goal 0.93–0.97: missed)"
        elif name == "30 episodes" and lmbda <= 0.9:
            goal = " (goal 0.90–0.98: met)" if low >= 0.9 and high <= 0.98 else " (goal 0.90–0.98: missed)"
        values = np.array([one.of_values[0] for one in some])
        yield (
            f"| {name} | {lmbda:g} | {of_fixed_point[:, 0].mean():.3f} [{low:.3f}, {high:.3f}]{goal} "
            f"| {of_fixed_point[:, 1].mean():.3f} | {min(one.worst for one in some):.2f} "
            f"| {np.mean([one.width for one in some]):.2f} | {np.mean([one.little_data for one in some]):.2f} "
            f"| {values.mean():.2f} [{values.min():.2f}, {values.max():.2f}] |"
        )


WINDOWS: dict[str, Draw] = {
    "by visit": partial(Windows.windows, n_subjects=SUBJECTS, groups=False),
    "by visit, with `groups`": partial(Windows.windows, n_subjects=SUBJECTS, groups=True),
    "shuffled, with `groups`": partial(Windows.windows, n_subjects=SUBJECTS, groups=True, shuffled=True),
}
KINDS: dict[str, Draw] = {
    **{f"{n} episodes": partial(Case.episodes, n_episodes=n) for n in EPISODES},
    **{f"{n} transitions": partial(Case.stream, n_steps=n) for n in LENGTHS},
    **WINDOWS,
}
TABLES = {"episodes": of_episodes, "groups": of_groups, "arms": of_arms}


def covered(case: Case, lmbda: float, draw: Draw, repeats: int) -> Coverage:
    """Measure the coverage over data sets of one kind."""
    features = case.features
    D = case.model.stationary
    goal = features @ case.model.fixed_point(features, lmbda)
    values = case.model.values
    scale = float(D @ np.sum(features**2, axis=1))
    hits = np.zeros((2, len(LEVELS), len(D)))
    seen, little, half = np.zeros((3, len(D)))
    predictions = []
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        for repeat in range(repeats):
            X, y, columns, states = draw(case, seed=SEED + repeat)
            model = LSTD(case.model.gamma, lmbda, RIDGE * scale, fit_intercept=False).fit(X, y, **columns)
            visited = np.bincount(states, minlength=len(D)) > 0
            seen += visited
            for i, level in enumerate(LEVELS):
                interval = model.predict_interval(features, level)
                for j, truth in enumerate((goal, values)):
                    hits[j, i] += visited & (interval.lower <= truth) & (truth <= interval.upper)
                if not i:
                    little += visited & interval.little_data
                    half += visited * (interval.upper - interval.lower) / 2
            predictions.append(np.where(visited, interval.prediction, np.nan))
    seen_at_all = np.where(seen > 0, predictions, 0.0)
    spread = np.nanstd(seen_at_all, axis=0)
    counts = (seen > repeats / 4) & (spread > _VARIES) & (D > 0)
    share = (D * counts) / (D * counts).sum()
    rate = hits / np.maximum(seen, 1)
    return Coverage(
        rate[0] @ share,
        rate[1] @ share,
        float(rate[0, 0][counts].min()),
        float(share @ np.where(counts, half / np.maximum(seen, 1) / np.maximum(1.96 * spread, 1e-300), 0.0)),
        float(share @ (little / np.maximum(seen, 1))),
    )


def ratios(quick: bool = False) -> Iterator[Ratio]:
    """Time what keeping blocks adds to a fit, and the first interval after it."""
    random = np.random.default_rng(0)
    for n_rows, pairs in ((2000, 3),) if quick else COST_ROWS:
        X = random.normal(size=(n_rows, N_FEATURES))
        y = random.normal(size=n_rows)
        with threadpool_limits(1):
            fits(X, y, 0)
            plain, kept, interval = zip(*(fits(X, y, pair % 2) for pair in range(pairs)), strict=True)
        data = f"{n_rows} rows of {N_FEATURES} features"
        claim = f"`LSTD.fit` of {data}, blocks kept for intervals, beside none kept"
        yield Ratio(claim, kept, plain, cost=True, goal=1.1)
        yield Ratio(f"first interval after a fit of {data} beside that fit", interval, plain, cost=True)


def fits(X: Array, y: Array, first: int) -> tuple[float, float, float]:
    """Measure the seconds of a fit without blocks, of one with blocks, and of the first interval."""
    seconds = {}
    for blocks in (0, "auto") if first else ("auto", 0):
        model = LSTD(fit_intercept=False, n_blocks=blocks)
        seconds[blocks] = timed(partial(model.fit, X, y))
        if blocks:
            interval = timed(partial(model.predict_interval, X[:1]))
    return seconds[0], seconds["auto"], interval


def heading() -> str:
    return printed_by(" ".join(["python", "benchmarks/intervals.py", *sys.argv[1:]]))


def explained(repeats: int) -> str:
    return (
        f"{repeats} data sets per case; seeds from {SEED}. “Width” is the mean "
        "half width over 1.96 standard deviations of the prediction over data sets; “worst state” and “little data” "
        "are at 95 %; “value” is how often a 95 % interval holds the value itself."
    )


if __name__ == "__main__":
    main()
