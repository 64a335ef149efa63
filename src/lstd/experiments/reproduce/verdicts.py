"""Tests of the statements in the template ``paper.html`` on results: one function each, Results -> Outcome."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from lstd.experiments.reproduce.results import Results, Row, column, levels, select
from lstd.report.rendering import compact, grouped
from lstd.types import Array

# Dozens of simulated values are compared at once; a true one lies beyond four standard errors once in 16 000.
STANDARD_ERRORS = 4.0


class Outcome(NamedTuple):
    """Whether a statement agrees with results, and the numbers behind that."""

    agrees: bool
    numbers: str


def evaluate(results: Results) -> dict[str, Outcome]:
    """Test every statement; the keys are those of `TESTS`."""
    return {name: test(results) for name, test in TESTS.items()}


def verdict_text(outcomes: Mapping[str, Outcome]) -> str:
    """Say how many statements agree."""
    statements = f"{len(outcomes)} statements about estimators that can be tested here"
    n_missed = sum(not outcome.agrees for outcome in outcomes.values())
    if n_missed:
        return f"Of the {statements}, {n_missed} do not agree with these results."
    return f"All {statements} agree with these results."


def _boyan_unbiased(results: Results) -> Outcome:
    """Test that the exact bias of Boyan's is zero but for rounding, and that simulated ones agree with it."""
    theory = results.theory["proposition1"]
    rows = select(theory["rows"], variant="boyan")
    scores = _distances(rows, "bias")
    largest_bias = np.abs(column(rows, "bias_exact")).max()
    value = abs(float(theory["mu"]) / (1 - float(theory["gamma"])))
    is_zero = largest_bias <= 1e-9 * max(value, 1.0)
    agrees = bool(is_zero and (scores <= STANDARD_ERRORS).all())
    return Outcome(agrees, f"Exact bias 0. {_score_text(scores)}")


def _distances(rows: Sequence[Row], name: str) -> Array:
    """Return distances of simulated from exact values, in standard errors, (rows,)."""
    distance = np.abs(column(rows, f"{name}_simulated") - column(rows, f"{name}_exact"))
    return np.asarray(distance / column(rows, f"{name}_stderr"))


def _score_text(scores: Array) -> str:
    """Say how far simulated values are from exact ones."""
    return (
        f"Simulated and exact differ by at most {scores.max():.1f} standard errors; "
        f"{int((scores <= 2).sum())} of {len(scores)} values by at most two."
    )


def _leading_term(results: Results, table: str, name: str, offset: float, **where: str) -> Outcome:
    """Compare exact values with simulated ones and with the leading term.

    They must approach the leading term: o(1/T) is a fraction of it that vanishes as T grows.
    """
    rows = select(results.theory["proposition1"][table], **where)
    scores = _distances(rows, name)
    fractions = []  # by which exact values differ from the leading term, at the shortest and the longest T of each λ
    for lmbda in levels(rows, "lmbda"):
        path = select(rows, lmbda=lmbda)
        exact = column(path, f"{name}_exact") - offset
        leading = column(path, f"{name}_asymptotic") - offset
        fractions.append(np.abs(exact / leading - 1)[[0, -1]])
    first, last = np.transpose(fractions)
    agrees = bool((scores <= STANDARD_ERRORS).all() and (last < first).all())
    T = column(rows, "T")
    text = (
        f"Exact and leading term differ by up to {100 * first.max():.3g} % at T = {grouped(T.min())} and up "
        f"to {100 * last.max():.2g} % at T = {grouped(T.max())}. {_score_text(scores)}"
    )
    return Outcome(agrees, text)


def _limit_of(results: Results, variant: str) -> Outcome:
    """Distances of A/T, b/T and θ of one variant: shorter at the longest T than at the shortest."""
    rows = select(results.theory["theorem2"]["rows"], variant=variant)
    agrees = True
    parts = []
    for quantity, label in (("error_A", "A/T"), ("error_b", "b/T"), ("error_theta", "θ")):
        paths = [select(rows, lmbda=lmbda) for lmbda in levels(rows, "lmbda")]
        at_first = np.array([column(path, quantity)[0] for path in paths])
        at_last = np.array([column(path, quantity)[-1] for path in paths])
        agrees &= bool((at_last < at_first).all())
        parts.append(f"{label} from {_range(at_first)} to {_range(at_last)}")
    T = column(rows, "T")
    text = f"Relative distance at T = {grouped(T.min())} and at T = {grouped(T.max())}, over λ: {'; '.join(parts)}."
    return Outcome(agrees, text)


def _range(values: Array) -> str:
    """Format the least and the greatest value."""
    low = compact(values.min())
    high = compact(values.max())
    return low if low == high else f"{low}–{high}"


TESTS: dict[str, Callable[[Results], Outcome]] = {
    "boyan_unbiased": _boyan_unbiased,
    "uncorrected_bias": lambda results: _leading_term(results, "rows", "bias", 0.0, variant="uncorrected"),
    "variance_ratio": lambda results: _leading_term(results, "ratio_rows", "ratio", 1.0),
    "uncorrected_limit": lambda results: _limit_of(results, "uncorrected"),
}
