"""Tests of the statements in the template ``paper.html`` on results: one function each, Results -> Outcome."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from lstd.experiments import protocol
from lstd.experiments.reproduce.results import Results, Row, column, levels, select
from lstd.report.rendering import compact, grouped, percent
from lstd.types import Array

AGREES = "agrees"
DISAGREES = "does not agree"
UNDECIDED = "not decided by these timings"
NOT_COVERED = "not covered"

# Dozens of simulated values are compared at once; a true one lies beyond four standard errors once in 16 000.
STANDARD_ERRORS = 4.0
MIXED_EXTRA = (0.20, 0.65)
# Seconds are noisy: nine in ten comparisons must lie within the limits.
MOST = 0.9
# "Slightly": up to a quarter; in the paper's tables it is 8 % to 13 %.
SLIGHTLY = (0.01, 0.25)
# Boyan's and Mixed are read out of the Uncorrected recursion and agree with direct solves to 1e-8.
IDENTITY_RTOL = 1e-8
# Fields of a timing, from the lowest seconds to the highest.
LOOP, PAPER = ("loop_low", "loop_seconds", "loop_high"), ("paper_seconds",)


class Outcome(NamedTuple):
    """A verdict and the numbers behind it."""

    verdict: str
    numbers: str


def evaluate(results: Results) -> dict[str, Outcome]:
    """Test every statement; the keys are those of `TESTS`."""
    return {name: test(results) for name, test in TESTS.items()}


def verdict_text(outcomes: Mapping[str, Outcome]) -> str:
    """Say in two sentences how many statements agree: those about estimators, then those about seconds."""
    found = {
        timed: [one.verdict for name, one in outcomes.items() if name.endswith("_time") == timed] for timed in (0, 1)
    }
    tested, seconds = ([one for one in verdicts if one != NOT_COVERED] for verdicts in found.values())
    missed = tested.count(DISAGREES)
    about = f"{len(tested)} statements about estimators that can be tested here"
    first = f"All {about} agree with these results."
    if missed:
        first = f"Of the {about}, {missed} do not agree with these results."
    return (
        f"{first} Of the {len(seconds)} about computing time, {seconds.count(AGREES)} agree, "
        f"{seconds.count(DISAGREES)} do not, and {seconds.count(UNDECIDED)} are not decided: "
        "seconds depend on computer and code."
    )


def _verdict(agrees: bool) -> str:
    return AGREES if agrees else DISAGREES


def _grids(results: Results) -> Outcome:
    alphas = {name: protocol.ALPHAS_OF[group] for group, names in protocol.GROUPS.items() for name in names}
    agrees = all(
        np.array_equal(sweep.lmbdas, protocol.LMBDAS) and np.array_equal(sweep.alphas, alphas[algorithm])
        for (_, _, algorithm), sweep in results.sweeps.items()
    )
    return Outcome(_verdict(agrees), f"All {len(results.sweeps)} stored sweeps have these values.")


def _fifty_runs(results: Results) -> Outcome:
    """Compare the number of runs with the paper's 50; another number does not test the statement."""
    return Outcome(AGREES if results.n_runs == protocol.N_RUNS else NOT_COVERED, f"{results.n_runs} runs.")


def _extra(results: Results, slow: str, fast: Sequence[str], seconds: Sequence[str]) -> Array:
    """Fractions by which the time of `slow` exceeds each of `fast`: least to most in rows, comparisons in columns."""
    pairs = [
        (results.timings[*panel, slow], results.timings[*panel, name]) for panel in results.panels for name in fast
    ]
    ends = list(zip(seconds, reversed(seconds), strict=True))  # the lowest of one against the highest of the other
    return np.array([[above[i] / below[j] - 1 for above, below in pairs] for i, j in ends])


def _range_of(fractions: Array) -> str:
    return f"{percent(fractions.min())} to {percent(fractions.max())}"


def _same_pass(results: Results, slow: str, fast: Sequence[str]) -> Outcome:
    return Outcome(
        DISAGREES,
        "One pass computes all three LSTD(λ)s here, so each costs the same: ±0 % by construction. The paper's own "
        f"tables on these problems: {_range_of(_extra(results, slow, fast, PAPER))}.",
    )


def _extra_time(results: Results, slow: str, fast: Sequence[str], limits: tuple[float, float]) -> Outcome:
    extras, (low, high) = _extra(results, slow, fast, LOOP), limits
    # In whole per cent, as the paper gives them.
    least, middle, most = np.round(extras, 2)
    inside, outside = (least >= low) & (most <= high), (most < low) | (least > high)
    others = " and ".join(protocol.SHORT_NAMES[name] for name in fast)
    text = (
        f"Extra time of {protocol.SHORT_NAMES[slow]} over {others}: {_range_of(middle)}, median "
        f"{percent(float(np.median(middle)))}; from the lowest to the highest timings, {_range_of(extras)}. "
        f"Of {len(least)} comparisons: {inside.sum()} wholly within {percent(low)} to {percent(high)}, {outside.sum()} "
        "wholly outside. "
        f"The paper's own tables on these problems: {_range_of(_extra(results, slow, fast, PAPER))}."
    )
    if inside.mean() >= MOST:
        return Outcome(AGREES, text)
    return Outcome(DISAGREES if outside.mean() > 1 - MOST else UNDECIDED, text)


def _boyan_unbiased(results: Results) -> Outcome:
    theory = results.theory["proposition1"]
    rows = select(theory["rows"], variant="boyan")
    scores = _distances(rows, "bias")
    exact = np.abs(column(rows, "bias_exact")).max()
    scale = abs(float(theory["mu"]) / (1 - float(theory["gamma"])))
    agrees = bool(exact <= 1e-9 * max(scale, 1.0) and (scores <= STANDARD_ERRORS).all())
    return Outcome(_verdict(agrees), f"Exact bias 0. {_score_text(scores)}")


def _distances(rows: Sequence[Row], name: str) -> Array:
    """Distances of simulated from exact values, in standard errors."""
    distance = np.abs(column(rows, f"{name}_simulated") - column(rows, f"{name}_exact"))
    return np.asarray(distance / column(rows, f"{name}_stderr"))


def _score_text(scores: Array) -> str:
    return (
        f"Simulated and exact differ by at most {scores.max():.1f} standard errors; "
        f"{int((scores <= 2).sum())} of {len(scores)} values by at most two."
    )


def simulated_text(theory: Row) -> str:
    """Say how far the simulated values of Proposition 1 lie from the exact ones, and how many of them are not drawn."""
    rows, ratios = theory["rows"], theory["ratio_rows"]
    scores = np.concatenate([_distances(rows, "bias"), _distances(rows, "variance"), _distances(ratios, "ratio")])
    sign = -1.0 if float(theory["mu"]) >= 0 else 1.0
    drawn = sign * column(select(rows, variant="uncorrected"), "bias_simulated"), column(ratios, "ratio_simulated") - 1
    hidden = sum(int((values <= 0).sum()) for values in drawn)
    return f"{_score_text(scores)} Simulated values below zero, which logarithmic axes cannot show: {hidden}."


def _leading_term(results: Results, table: str, name: str, offset: float, **where: str) -> Outcome:
    """Compare exact values with simulated ones and with the leading term.

    They must approach the leading term: o(1/T) is a fraction of it that vanishes as T grows.
    """
    rows = select(results.theory["proposition1"][table], **where)
    scores = _distances(rows, name)
    agrees = bool((scores <= STANDARD_ERRORS).all())
    fractions = []
    for lmbda in levels(rows, "lmbda"):
        path = select(rows, lmbda=lmbda)
        exact, leading = column(path, f"{name}_exact") - offset, column(path, f"{name}_asymptotic") - offset
        fractions.append(np.abs(exact / leading - 1)[[0, -1]])
    first, last = np.transpose(fractions)
    T = column(rows, "T")
    text = (
        f"Exact and leading term differ by up to {100 * first.max():.3g} % at T = {grouped(T.min())} and up "
        f"to {100 * last.max():.2g} % at T = {grouped(T.max())}. {_score_text(scores)}"
    )
    return Outcome(_verdict(agrees and bool((last < first).all())), text)


def _other_limits(results: Results) -> Outcome:
    outcomes = {variant: _limit_of(results, variant) for variant in ("mixed", "boyan")}
    numbers = " ".join(f"{protocol.SHORT_NAMES[variant]}: {outcome.numbers}" for variant, outcome in outcomes.items())
    return Outcome(_verdict(all(outcome.verdict == AGREES for outcome in outcomes.values())), numbers)


def _limit_of(results: Results, variant: str) -> Outcome:
    """Distances of A/T, b/T and θ of one variant: shorter at the longest T than at the shortest."""
    rows = select(results.theory["theorem2"]["rows"], variant=variant)
    agrees, parts = True, []
    for quantity, label in (("error_A", "A/T"), ("error_b", "b/T"), ("error_theta", "θ")):
        paths = [select(rows, lmbda=lmbda) for lmbda in levels(rows, "lmbda")]
        ends = np.array([column(path, quantity)[[0, -1]] for path in paths])
        agrees &= bool((ends[:, 1] < ends[:, 0]).all())
        parts.append(f"{label} from {_range(ends[:, 0])} to {_range(ends[:, 1])}")
    T = column(rows, "T")
    text = f"Relative distance at T = {grouped(T.min())} and at T = {grouped(T.max())}, over λ: {'; '.join(parts)}."
    return Outcome(_verdict(agrees), text)


def _range(values: Array) -> str:
    low, high = compact(values.min()), compact(values.max())
    return low if low == high else f"{low}–{high}"


def _lemma1(results: Results) -> Outcome:
    """Compare the hypothetical estimator's b* with its closed form and its bound."""
    ratio = max(row["ratio"] for row in results.theory["identities"] if "ratio" in row)
    verdict, numbers = _identity(results, "lemma 1")
    text = f"{numbers} |b* − b| reaches at most {ratio:.2f} of its bound."
    return Outcome(verdict if ratio <= 1 else DISAGREES, text)


def _identity(results: Results, name: str) -> Outcome:
    """Compare the two sides of an identity; its rows in theory.json with a ratio are for a bound."""
    largest: dict[str, float] = {}
    for row in results.theory["identities"]:
        if row["identity"] == name and "difference" in row:
            largest[row["quantity"]] = max(row["difference"], largest.get(row["quantity"], 0.0))
    text = "; ".join(f"{quantity}: {compact(value)}" for quantity, value in largest.items())
    agrees = max(largest.values()) <= IDENTITY_RTOL
    return Outcome(_verdict(agrees), f"Largest relative difference on {len(results.panels)} problems: {text}.")


def _equal_at(results: Results, other: str, index: int) -> Outcome:
    pairs = [
        (results.sweeps[*panel, "mixed"].errors[:, index], results.sweeps[*panel, other].errors[:, index])
        for panel in results.panels
    ]
    largest = max(_largest_difference(mixed, errors) for mixed, errors in pairs)
    many = f"{grouped(sum(mixed.size for mixed, _ in pairs))} stored errors (α, run)"
    text = f"Equal to the last digit in all {many}."
    if largest > 0:
        text = f"Largest relative difference {compact(largest)} over {many}."
    return Outcome(_verdict(largest <= IDENTITY_RTOL), text)


def _largest_difference(a: Array, b: Array) -> float:
    """Largest relative difference; two infinite entries are equal, and infinitely far from a finite one."""
    with np.errstate(invalid="ignore"):
        relative = np.nan_to_num(np.abs(a - b) / np.maximum(a, b), nan=np.inf)
    return float(np.where(a == b, 0.0, relative).max())


TESTS: dict[str, Callable[[Results], Outcome]] = {
    "grids": _grids,
    "fifty_runs": _fifty_runs,
    "uncorrected_time": lambda results: _same_pass(results, "uncorrected", ("boyan",)),
    "uncorrected_loop_time": lambda results: _extra_time(results, "uncorrected", ("boyan",), SLIGHTLY),
    "mixed_time": lambda results: _same_pass(results, "mixed", ("boyan", "uncorrected")),
    "mixed_loop_time": lambda results: _extra_time(results, "mixed", ("boyan", "uncorrected"), MIXED_EXTRA),
    "boyan_unbiased": _boyan_unbiased,
    "uncorrected_bias": lambda results: _leading_term(results, "rows", "bias", 0.0, variant="uncorrected"),
    "variance_ratio": lambda results: _leading_term(results, "ratio_rows", "ratio", 1.0),
    "uncorrected_limit": lambda results: _limit_of(results, "uncorrected"),
    "theorem1": lambda results: _identity(results, "theorem 1"),
    "lemma1": _lemma1,
    "lemma2": lambda results: _identity(results, "lemma 2"),
    "mixed_is_uncorrected": lambda results: _equal_at(results, "uncorrected", -1),
    "mixed_is_boyan": lambda results: _equal_at(results, "boyan", 0),
    "other_limits": _other_limits,
}
