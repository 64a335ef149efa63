"""Seconds per run on this machine: the compiled sweep and a plain NumPy loop, interleaved in one process.

As in Tables 1-3 of the paper, a run is 340 pairs (λ, α); true online TD(λ) is timed over its 600 pairs and multiplied
by 340/600. Everything runs on one thread. The three LSTD(λ) share one recursion, so the pass that computes all three is
timed once: each variant alone costs the same by construction.

The loop is the paper's experiment, one pair (λ, α) and one step at a time; it checks the sweep, too. Each LSTD(λ) keeps
the inverse of A_t + αI by Sherman-Morrison updates: one per step for Boyan's and Uncorrected, two for Mixed (Osogami
2020, Lemma 2, Theorem 1, and the supplement on computational time). True online TD(λ) is van Seijen et al.'s (2016).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from lstd.experiments import protocol
from lstd.experiments.protocol import FEATURES, GAMMA, LMBDAS, LSTD_VARIANTS, PROBLEMS
from lstd.experiments.sweep import run_sweep
from lstd.mrp import RandomMRP, make_features
from lstd.statistics.threads import one_blas_thread
from lstd.types import Array

# What is timed -> the algorithms that it computes.
TIMED: dict[str, tuple[str, ...]] = {"lstd_one_pass": LSTD_VARIANTS, "true_online_td": ("true_online_td",)}
N_PAIRS = len(LMBDAS) * len(protocol.ALPHAS)
REPEATS = 3
SWEEP_SECONDS = 0.02  # of a timing, far above the resolution of the clock
LOOP_SECONDS = 0.05  # least time for the sample of the loop, per algorithm
MAX_RUNS = 50  # in one timing: the number of runs of the paper's experiments

Progress = Callable[[int, int], None]


def measure(
    problems: Sequence[str] = tuple(PROBLEMS),
    features: Sequence[str] = FEATURES,
    *,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Time the LSTD(λ) pass, true online TD(λ), and the NumPy loop of each algorithm: seconds per run of 340 pairs.

    A row per problem, features and algorithm has those of the loop, extrapolated from "loop_sample", and of the paper;
    the pass of all three LSTD(λ) and true online TD(λ) have the median, lowest and highest seconds of the sweep.
    """
    pairs = list(product(problems, features))
    rows: list[dict[str, Any]] = []
    with one_blas_thread():
        for n_done, (problem, name) in enumerate(pairs, start=1):
            rows += _measure_pair(problem, name)
            if progress is not None:
                progress(n_done, len(pairs))
    n_td = len(_grid("true_online_td"))
    sample = (
        f"Seconds per run of {N_PAIRS} pairs (λ, α), on one thread: median, lowest and highest of "
        f"{REPEATS} timings. Each timing is of a sweep over as many run seeds as take about {SWEEP_SECONDS} s, at most "
        f"{MAX_RUNS}; it includes the set-up of the problem and the simulation, but no compilation. The NumPy loop is "
        f"timed in between, for at least {LOOP_SECONDS} s for each algorithm, on run seed 1 and pairs drawn at random "
        "from the grid, without simulation; its seconds are extrapolated to all pairs. "
        f"True online TD(λ) has {n_td} pairs per run: its seconds are multiplied by {N_PAIRS}/{n_td}."
    )
    return {"threads": 1, "sample": sample, "rows": rows}


def _measure_pair(problem: str, features: str) -> list[dict[str, Any]]:
    """Time all algorithms on one problem and features, in turns, and return a row for each."""
    runs = {timed: _runs_in_a_timing(problem, features, timed) for timed in TIMED}
    for algorithms in TIMED.values():  # load or compile the kernels
        run_sweep(problem, features, list(algorithms), run_seeds=[1], n_steps=1, n_jobs=1)
    sweep: dict[str, list[float]] = {timed: [] for timed in TIMED}  # seconds per run
    loop: dict[str, list[float]] = {name: [] for name in protocol.PAPER_TIMED}  # seconds per pair
    run = simulate_run(problem, features, 1)
    pairs = {name: iter(np.random.RandomState(0).permutation(_grid(name))) for name in loop}  # always the same
    for repeat in range(REPEATS):
        for timed, n in runs.items():
            seeds = range(1 + repeat * n, 1 + (repeat + 1) * n)
            sweep[timed].append(_time_sweep(problem, features, timed, seeds))
        for name, times in loop.items():
            while not times or sum(times) < LOOP_SECONDS * (repeat + 1) / REPEATS:
                lmbda, alpha = next(pairs[name])
                start = time.perf_counter()
                run_loop(name, run, float(lmbda), float(alpha))
                times.append(time.perf_counter() - start)

    rows = []
    computed_by = {
        variant: (variant,) for variant in LSTD_VARIANTS
    } | TIMED  # name -> the algorithms that it stands for
    for name, algorithms in computed_by.items():
        row: dict[str, Any] = {"problem": problem, "features": features, "algorithm": name}
        if name in TIMED:
            row |= _spread(sweep[name])
            row["runs"] = REPEATS * runs[name]
        samples = [f"{algorithm}: {len(loop[algorithm])} of {len(_grid(algorithm))} pairs" for algorithm in algorithms]
        row["loop_seconds"] = N_PAIRS * sum(float(np.mean(loop[algorithm])) for algorithm in algorithms)
        row["loop_sample"] = "; ".join(samples)
        # The paper's seconds are summed over the algorithms; their spreads are taken as independent.
        printed = dict(zip(protocol.PAPER_TIMED, protocol.PAPER_SECONDS[problem, features], strict=True))
        row["paper_seconds"] = sum(printed[algorithm][0] for algorithm in algorithms)
        row["paper_spread"] = float(np.hypot.reduce([printed[algorithm][1] for algorithm in algorithms]))
        rows.append(row)
    return rows


def _spread(seconds: list[float]) -> dict[str, float]:
    """Return the median, the least and the most of several timings."""
    return {"seconds": float(np.median(seconds)), "low": min(seconds), "high": max(seconds)}


def _runs_in_a_timing(problem: str, features: str, timed: str) -> int:
    """Return the number of runs that take about SWEEP_SECONDS; the set-up is a smaller share of several than of one."""
    group = timed
    if timed == "lstd_one_pass":
        group = "lstd"
    run_seconds = protocol.RUN_SECONDS[group, features][problem]
    return min(MAX_RUNS, math.ceil(SWEEP_SECONDS / run_seconds))


def _time_sweep(problem: str, features: str, timed: str, run_seeds: range) -> float:
    """Seconds per run of 340 pairs."""
    names = list(TIMED[timed])
    start = time.perf_counter()
    run_sweep(problem, features, names, run_seeds=run_seeds, n_jobs=1)
    elapsed = time.perf_counter() - start
    n_pairs = len(_grid(names[0]))
    return elapsed / len(run_seeds) * N_PAIRS / n_pairs


def _grid(algorithm: str) -> list[tuple[float, float]]:
    """All pairs (λ, α) of an algorithm."""
    group = algorithm
    if algorithm in LSTD_VARIANTS:
        group = "lstd"
    alphas = protocol.ALPHAS_OF[group]
    return list(product(LMBDAS.tolist(), alphas.tolist()))


@dataclass(frozen=True)
class Run:
    """One simulated run of T steps on k states with n features, and the reference for its error."""

    phi: Array  # (T + 1, n) of the visited states
    rewards: Array  # (T,)
    features: Array  # (k, n) of all states, Φ
    weighting: Array  # (k,) stationary distribution, the diagonal of D
    target: Array  # (n,) weights θ* of the best fit

    @property
    def steps(self) -> Iterator[tuple[Array, Array, float]]:
        """Features, next features and reward of each step."""
        return zip(self.phi[:-1], self.phi[1:], self.rewards, strict=True)

    @property
    def scale(self) -> float:
        """(Φθ*)ᵀ D (Φθ*), by which errors are divided."""
        return float(self.weighting @ (self.features @ self.target) ** 2)

    def error(self, theta: Array) -> float:
        """(Φθ−Φθ*)ᵀ D (Φθ−Φθ*) of weights θ of shape (n,)."""
        deviation = self.features @ (theta - self.target)
        deviation *= deviation
        return float(self.weighting @ deviation)


def simulate_run(problem: str, features: str, run_seed: int) -> Run:
    """Simulate one run of the paper's protocol.

    >>> simulate_run("small", "normal", 1).phi.shape
    (101, 5)
    """
    paper = PROBLEMS[problem]
    model = RandomMRP(paper.n_states, paper.branching, paper.reward_std, seed=protocol.MRP_SEED, gamma=GAMMA)
    Phi = make_features(model, features)
    trajectory = model.simulate(paper.n_steps, run_seed)
    return Run(
        phi=Phi[trajectory.states],
        rewards=trajectory.rewards,
        features=Phi,
        weighting=model.stationary,
        target=model.best_fit(Phi),
    )


Terms = Sequence[tuple[Array, Array]]  # vectors whose outer products a step adds to A

TERMS: dict[str, Callable[[Array, Array, Array, Array, float], Terms]] = {
    "boyan": lambda z, _, phi, phi_next, lmbda: [(z, phi - GAMMA * phi_next)],
    "uncorrected": lambda z, z_last, phi, _, lmbda: [(z - GAMMA * z_last, phi)],
    "mixed": lambda z, _, phi, phi_next, lmbda: [(phi, phi), ((lmbda - 1.0) * GAMMA * z, phi_next)],
}


def lstd(variant: str, run: Run, lmbda: float, alpha: float) -> float:
    """Sum the errors of LSTD(λ) after each step."""
    n = run.phi.shape[1]
    P = np.eye(n) / alpha
    outer = np.empty((n, n))
    b = np.zeros(n)
    z = np.zeros(n)
    theta = np.zeros(n)
    total = 0.0
    terms = TERMS[variant]
    for phi, phi_next, r in run.steps:
        z_last = z
        z = lmbda * GAMMA * z + phi
        for left, right in terms(z, z_last, phi, phi_next, lmbda):
            _rank_one(P, left, right, outer)
        b += r * z
        np.dot(P, b, out=theta)
        total += run.error(theta)
    return total


def true_online_td(run: Run, lmbda: float, step_size: float) -> float:
    """Sum the errors of true online TD(λ) after each step (van Seijen et al. 2016, algorithm 1)."""
    theta = np.zeros(run.phi.shape[1])
    e = np.zeros_like(theta)
    decay = GAMMA * lmbda
    v_old = total = 0.0
    for phi, phi_next, r in run.steps:
        v = float(theta @ phi)
        v_next = float(theta @ phi_next)
        overlap = decay * (e @ phi)
        e *= decay
        e += (step_size * (1.0 - overlap)) * phi
        theta += (r + GAMMA * v_next - v_old) * e
        theta -= (step_size * (v - v_old)) * phi
        v_old = v_next
        total += run.error(theta)
    return total


LOOPS: dict[str, Callable[[Run, float, float], float]] = {
    **{variant: partial(lstd, variant) for variant in LSTD_VARIANTS},
    "true_online_td": true_online_td,
}


def run_loop(algorithm: str, run: Run, lmbda: float, alpha: float) -> float:
    """Compute the normalised mean squared error of one pair (λ, α); infinite if the weights overflow.

    `algorithm` is a key of `LOOPS`; `alpha` is the ridge coefficient, or the step size of true online TD(λ).

    >>> run = simulate_run("deterministic", "normal", 1)
    >>> round(run_loop("true_online_td", run, 0.0, 1e-3), 10)
    1.0023869926
    """
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        mean = LOOPS[algorithm](run, lmbda, alpha) / len(run.rewards) / run.scale
    if not np.isfinite(mean):
        return np.inf
    return mean


def _rank_one(P: Array, u: Array, v: Array, outer: Array) -> None:
    """(A + uvᵀ)⁻¹ = P − Pu vᵀP / (1 + vᵀPu), in place; `outer` is room for an (n, n) product."""
    Pu = P @ u
    vP = v @ P
    Pu /= 1.0 + v @ Pu
    np.multiply(Pu[:, None], vP, out=outer)
    P -= outer
