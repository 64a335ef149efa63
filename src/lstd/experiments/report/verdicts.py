"""Tests of the paper's statements on stored results: one function each, Results -> Outcome."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from lstd.experiments.protocol import ALPHAS, LMBDAS, LSTD_VARIANTS, N_RUNS, STEP_SIZES
from lstd.experiments.report.names import short_name
from lstd.experiments.report.results import FloatArray, Results, Row, Sweep, Timing
from lstd.experiments.report.selecting import column, levels, select
from lstd.report.numbers import compact, grouped, percent

AGREES = "agrees"
DISAGREES = "does not agree"
UNDECIDED = "not decided by these timings"
NOT_COVERED = "not covered"
VERDICTS = (AGREES, DISAGREES, UNDECIDED, NOT_COVERED)

# Dozens of simulated values are compared at once; a true one lies beyond four standard errors once in 16 000.
STANDARD_ERRORS = 4.0
MIXED_EXTRA = (0.20, 0.65)
# Seconds are noisy: nine in ten comparisons must lie within the limits.
MOST = 0.9
# "Slightly": up to a quarter; in the paper's tables it is 8 % to 13 %.
SLIGHTLY = (0.01, 0.25)
# Boyan's and Mixed are read out of the Uncorrected recursion and agree with direct solves to 1e-8.
IDENTITY_RTOL = 1e-8


class Outcome(NamedTuple):
    """A verdict and the numbers behind it."""

    verdict: str
    numbers: str


def _not_covered(name: str) -> Outcome:
    return Outcome(NOT_COVERED, f"The results folder has no {name}.")


def _verdict(agrees: bool) -> str:
    return AGREES if agrees else DISAGREES


def grids(results: Results) -> Outcome:
    """The hyperparameters of every stored sweep are those of the paper."""
    known = dict.fromkeys(LSTD_VARIANTS, ALPHAS) | {"true_online_td": STEP_SIZES}
    others = []
    for key, sweep in results.sweeps.items():
        alphas = known.get(key[2])
        if alphas is not None and not (_same(sweep.lmbdas, LMBDAS) and _same(sweep.alphas, np.sort(alphas))):
            others.append(f"{'/'.join(key)} has {len(sweep.lmbdas)} × {len(sweep.alphas)}")
    if others:
        return Outcome(DISAGREES, "; ".join(others) + ".")
    return Outcome(AGREES, f"So in all {sum(key[2] in known for key in results.sweeps)} stored sweeps.")


def _same(found: FloatArray, expected: FloatArray) -> bool:
    return found.shape == expected.shape and bool(np.allclose(found, expected, rtol=1e-12, atol=0))


def fifty_runs(results: Results) -> Outcome:
    """Every sweep has the paper's 50 runs; with another number the statement is not covered."""
    counts = sorted({len(sweep.runs) for sweep in results.sweeps.values()})
    text = f"{'–'.join(map(str, counts))} runs."
    return Outcome(AGREES if counts == [N_RUNS] else NOT_COVERED, text)


def uncorrected_time(results: Results) -> Outcome:
    """Seconds of Uncorrected over Boyan's, compiled."""
    return _extra_time(results, "uncorrected", ("boyan",), _here, SLIGHTLY)


def uncorrected_loop_time(results: Results) -> Outcome:
    """Seconds of Uncorrected over Boyan's in the NumPy loop."""
    return _extra_time(results, "uncorrected", ("boyan",), _loop, SLIGHTLY)


def mixed_time(results: Results) -> Outcome:
    """Seconds of Mixed over the other two, compiled."""
    return _extra_time(results, "mixed", ("boyan", "uncorrected"), _here, MIXED_EXTRA)


def mixed_loop_time(results: Results) -> Outcome:
    """Seconds of Mixed over the other two in the NumPy loop."""
    return _extra_time(results, "mixed", ("boyan", "uncorrected"), _loop, MIXED_EXTRA)


# The lowest, the middle and the highest seconds of a timing.
Seconds = Callable[[Timing], tuple[float | None, float | None, float | None]]


def _here(timing: Timing) -> tuple[float | None, float | None, float | None]:
    return timing.low, timing.seconds, timing.high


def _loop(timing: Timing) -> tuple[float | None, float | None, float | None]:
    return timing.loop_low, timing.loop_seconds, timing.loop_high


def _paper(timing: Timing) -> tuple[float | None, float | None, float | None]:
    return timing.paper_seconds, timing.paper_seconds, timing.paper_seconds


def _extra(results: Results, slow: str, fast: Sequence[str], seconds: Seconds) -> FloatArray:
    """By how much of its time `slow` exceeds each of `fast`: least, middle and most, shape (3, comparisons)."""
    extras = []
    for (problem, features, algorithm), timing in results.timings.items():
        for name in fast if algorithm == slow else ():
            other = results.timings.get((problem, features, name))
            pairs = () if other is None else zip(seconds(timing), reversed(seconds(other)), strict=True)
            extra = [above / below - 1 for above, below in pairs if above and below]
            if len(extra) == 3:
                extras.append(extra)
    return np.array(extras).reshape(-1, 3).T


def _percent(extras: FloatArray) -> str:
    return f"{percent(extras.min())} to {percent(extras.max())}"


def _extra_time(
    results: Results, slow: str, fast: Sequence[str], seconds: Seconds, limits: tuple[float, float]
) -> Outcome:
    extras, (low, high) = _extra(results, slow, fast, seconds), limits
    if not extras.size:
        return _not_covered("such seconds")
    # In whole per cent, as the paper gives them.
    least, middle, most = np.round(extras, 2)
    inside, outside = (least >= low) & (most <= high), (most < low) | (least > high)
    others = " and ".join(short_name(name) for name in fast)
    text = (
        f"{short_name(slow)} against {others}: {_percent(middle)} time, median {percent(float(np.median(middle)))}, "
        f"with the spread of the timings {_percent(extras)}; of {len(least)} comparisons {inside.sum()} lie within "
        f"{percent(low)} to {percent(high)} with all of their spread, {outside.sum()} outside."
    )
    paper = _extra(results, slow, fast, _paper)
    if paper.size:
        text += f" The paper's own tables on these problems: {_percent(paper)}."
    if inside.mean() >= MOST:
        return Outcome(AGREES, text)
    return Outcome(DISAGREES if outside.mean() > 1 - MOST else UNDECIDED, text)


def boyan_unbiased(results: Results) -> Outcome:
    """Simulated bias of Boyan's against zero."""
    theory = results.theory.get("proposition1")
    if not theory:
        return _not_covered("theory.json with Proposition 1")
    rows = select(theory["rows"], variant="boyan")
    scores = distances(rows, "bias")
    exact = np.abs(column(rows, "bias_exact")).max()
    scale = abs(float(theory["mu"]) / (1 - float(theory["gamma"])))
    agrees = bool(exact <= 1e-9 * max(scale, 1.0) and (scores <= STANDARD_ERRORS).all())
    return Outcome(_verdict(agrees), f"Exact bias 0. {score_text(scores)}")


def uncorrected_bias(results: Results) -> Outcome:
    """Bias of Uncorrected: exact against simulated, and exact against the leading term."""
    theory = results.theory.get("proposition1")
    if not theory:
        return _not_covered("theory.json with Proposition 1")
    rows = select(theory["rows"], variant="uncorrected")
    scores = distances(rows, "bias")
    return _leading_term(rows, "bias_exact", "bias_asymptotic", 0.0, scores)


def variance_ratio(results: Results) -> Outcome:
    """Ratio of the variances: exact against simulated, and exact against the leading term."""
    theory = results.theory.get("proposition1")
    if not theory:
        return _not_covered("theory.json with Proposition 1")
    rows = select(theory["ratio_rows"])
    scores = distances(rows, "ratio")
    return _leading_term(rows, "ratio_exact", "ratio_asymptotic", 1.0, scores)


def distances(rows: Sequence[Row], name: str) -> FloatArray:
    """Distances of simulated from exact values in standard errors; without an error, zero or infinite."""
    exact, error = column(rows, f"{name}_exact"), column(rows, f"{name}_stderr")
    distance = np.abs(column(rows, f"{name}_simulated") - exact)
    rounding = 1e-9 * np.maximum(np.abs(exact), 1.0)
    known = error > 0
    found: FloatArray = np.where(
        known, distance / np.where(known, error, 1.0), np.where(distance <= rounding, 0.0, np.inf)
    )
    return found


def score_text(scores: FloatArray) -> str:
    return (
        f"Simulated and exact differ by at most {scores.max():.1f} standard errors; "
        f"{int((scores <= 2).sum())} of {len(scores)} values by at most two."
    )


def _leading_term(rows: Sequence[Row], exact: str, asymptotic: str, offset: float, scores: FloatArray) -> Outcome:
    """o(1/T) means that exact and leading term differ by a fraction that vanishes as T grows."""
    agrees = bool((scores <= STANDARD_ERRORS).all())
    first, last = [], []
    for lmbda in levels(rows, "lmbda"):
        found = select(rows, lmbda=lmbda)
        fraction = np.abs((column(found, exact) - offset) / (column(found, asymptotic) - offset) - 1)
        agrees &= len(fraction) > 1 and bool(fraction[-1] < fraction[0])
        first.append(fraction[0])
        last.append(fraction[-1])
    T = column(rows, "T")
    text = (
        f"Exact and leading term differ by up to {100 * max(first):.3g} % at T = {grouped(T.min())} and up "
        f"to {100 * max(last):.2g} % at T = {grouped(T.max())}. {score_text(scores)}"
    )
    return Outcome(_verdict(agrees), text)


def uncorrected_limit(results: Results) -> Outcome:
    """Distance of Uncorrected to the limit of Theorem 2."""
    return limit_of(results, "uncorrected")


def limit_of(results: Results, variant: str) -> Outcome:
    """Distances of A/T, b/T and θ of one variant: shorter at the longest T than at the shortest."""
    theory = results.theory.get("theorem2")
    rows = select(theory["rows"], variant=variant) if theory else []
    if not rows:
        return _not_covered("theory.json with Theorem 2")
    agrees, parts = True, []
    for quantity, label in (("error_A", "A/T"), ("error_b", "b/T"), ("error_theta", "θ")):
        paths = [select(rows, lmbda=lmbda) for lmbda in levels(rows, "lmbda")]
        ends = np.array([column(path, quantity)[[0, -1]] for path in paths])
        agrees &= bool((ends[:, 1] < ends[:, 0]).all())
        parts.append(f"{label} from {_range(ends[:, 0])} to {_range(ends[:, 1])}")
    T = column(rows, "T")
    text = f"Relative distance at T = {grouped(T.min())} and at T = {grouped(T.max())}, over λ: {'; '.join(parts)}."
    return Outcome(_verdict(agrees), text)


def other_limits(results: Results) -> Outcome:
    """Distances of Mixed and Boyan's to the limit of Theorem 2."""
    outcomes = {variant: limit_of(results, variant) for variant in ("mixed", "boyan")}
    verdicts = {outcome.verdict for outcome in outcomes.values()}
    if NOT_COVERED in verdicts:
        return _not_covered("theory.json with Theorem 2 for both")
    numbers = " ".join(f"{short_name(variant)}: {outcome.numbers}" for variant, outcome in outcomes.items())
    return Outcome(_verdict(verdicts == {AGREES}), numbers)


def _range(values: FloatArray) -> str:
    low, high = compact(values.min()), compact(values.max())
    return low if low == high else f"{low}–{high}"


def algebra(results: Results) -> Outcome:
    """Exact identities of which a results folder holds nothing."""
    return Outcome(NOT_COVERED, "Identities proved in the supplement; nothing in a results folder tests them.")


def mixed_is_uncorrected(results: Results) -> Outcome:
    """Stored errors of Mixed and Uncorrected at λ = 1."""
    return _equal_at(results, "uncorrected", 1.0)


def mixed_is_boyan(results: Results) -> Outcome:
    """Stored errors of Mixed and Boyan's at λ = 0."""
    return _equal_at(results, "boyan", 0.0)


def _equal_at(results: Results, other: str, lmbda: float) -> Outcome:
    largest, entries = 0.0, 0
    for (problem, features, algorithm), sweep in results.sweeps.items():
        partner = results.sweeps.get((problem, features, other))
        if algorithm != "mixed" or partner is None:
            continue
        mine, theirs = _at(sweep, partner, lmbda), _at(partner, sweep, lmbda)
        entries += mine.size
        largest = max(largest, _largest_difference(mine, theirs))
    if not entries:
        return _not_covered(f"pair of these two at λ = {lmbda:g}")
    many = f"{grouped(entries)} stored errors (α, run)"
    text = f"Equal to the last digit in all {many}."
    if largest > 0:
        text = f"Largest relative difference {compact(largest)} over {many}."
    return Outcome(_verdict(largest <= IDENTITY_RTOL), text)


def _at(sweep: Sweep, other: Sweep, lmbda: float) -> FloatArray:
    """Errors at one λ for the runs and α that another sweep has too, shape (runs, alphas)."""
    (index,) = np.nonzero(sweep.lmbdas == lmbda)
    if lmbda not in other.lmbdas or not len(index):
        return np.empty((0, 0))
    runs, alphas = np.isin(sweep.runs, other.runs), np.isin(sweep.alphas, other.alphas)
    return sweep.errors[:, index[0]][np.ix_(runs, alphas)]


def _largest_difference(a: FloatArray, b: FloatArray) -> float:
    """Largest relative difference; two infinite entries are equal."""
    if (np.isinf(a) != np.isinf(b)).any():
        return float("inf")
    finite = np.isfinite(a)
    scale = np.maximum(np.maximum(np.abs(a[finite]), np.abs(b[finite])), 1e-300)
    return float((np.abs(a[finite] - b[finite]) / scale).max(initial=0.0))
