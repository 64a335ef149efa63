"""What the paper states, with the function that tests each statement on results."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from lstd.experiments.report import verdicts
from lstd.experiments.report.results import Results
from lstd.experiments.report.verdicts import Outcome

PAPER = "statement of the paper"
IDENTITY = "identity of the estimators"
EXTENSION = "beyond the supplement"


class Statement(NamedTuple):
    """A sentence, where it is from, and the function that tests it."""

    kind: str
    text: str
    source: str
    test: Callable[[Results], Outcome]


_TIMES = "Details of experiments; Tables 1–3"
_PROPOSITION1 = "Proposition 1 and its proof"
_MATRICES = "A_Mixed = λ A_Uncorrected + (1−λ) A_Boyan"

STATEMENTS = tuple(
    Statement(*entry)
    for entry in (
        (
            PAPER,
            "Each run has 17 × 20 = 340 combinations of α in {2^-8, …, 2^8} and λ in "
            "{0, 0.1, …, 0.9, 0.91, …, 1}; true online TD(λ) has 30 × 20 = 600.",
            "Details of experiments",
            verdicts.grids,
        ),
        (PAPER, "Each point is the mean over 50 runs.", "Captions of Figures 2–5", verdicts.fifty_runs),
        (
            PAPER,
            "Uncorrected LSTD(λ) requires slightly more computational time than Boyan's (compiled, each alone). Here "
            "one recursion with one rank-one update serves all three, so it need not hold.",
            _TIMES,
            verdicts.uncorrected_time,
        ),
        (
            PAPER,
            "Uncorrected LSTD(λ) requires slightly more computational time than Boyan's (the plain NumPy loop).",
            _TIMES,
            verdicts.uncorrected_loop_time,
        ),
        (
            PAPER,
            "Mixed LSTD(λ) requires 20 % to 65 % more computational time than the other two (compiled, each "
            "alone). Here one recursion with one rank-one update serves all three, so it need not hold.",
            _TIMES,
            verdicts.mixed_time,
        ),
        (
            PAPER,
            "Mixed LSTD(λ) requires 20 % to 65 % more computational time than the other two (the plain NumPy "
            "loop, which applies the rank-one update twice, as the paper's does).",
            _TIMES,
            verdicts.mixed_loop_time,
        ),
        (PAPER, "With one state, Boyan's LSTD(λ) is unbiased.", _PROPOSITION1, verdicts.boyan_unbiased),
        (
            PAPER,
            "With one state, the bias of Uncorrected LSTD(λ) is −γμ/((1−γ)²T) + o(1/T).",
            _PROPOSITION1,
            verdicts.uncorrected_bias,
        ),
        (
            PAPER,
            "With one state, the variance of Boyan's LSTD(λ) divided by that of Uncorrected is "
            "1 + 2γ/((1−γ)T) + o(1/T).",
            _PROPOSITION1,
            verdicts.variance_ratio,
        ),
        (
            PAPER,
            "A/T and b/T of Uncorrected LSTD(λ) converge to Φᵀ D (I−γP)(I−λγP)⁻¹ Φ and Φᵀ D (I−λγP)⁻¹ r.",
            "Theorem 2",
            verdicts.uncorrected_limit,
        ),
        (
            PAPER,
            "The recursion of Uncorrected LSTD(λ) gives its definition, A of (7) and b of (8), at every step.",
            "Theorem 1",
            verdicts.theorem1,
        ),
        (
            PAPER,
            "The b* of the hypothetical estimator, which continues each return beyond the data by its expectation, "
            "differs from b by no more than a bound that vanishes against T.",
            "Lemma 1 and its proof",
            verdicts.lemma1,
        ),
        (
            PAPER,
            "The matrix of Boyan's LSTD(λ), the sum of z_t (φ_t − γφ_{t+1})ᵀ, equals the double sum of (17).",
            "Lemma 2",
            verdicts.lemma2,
        ),
        (IDENTITY, "Mixed LSTD(1) equals Uncorrected LSTD(1).", _MATRICES, verdicts.mixed_is_uncorrected),
        (IDENTITY, "Mixed LSTD(0) equals Boyan's LSTD(0).", _MATRICES, verdicts.mixed_is_boyan),
        (
            EXTENSION,
            "A/T and b/T of Mixed and Boyan's LSTD(λ) converge to the limits of Theorem 2 as well.",
            "Theorem 2; the three A differ by one rank-one term",
            verdicts.other_limits,
        ),
    )
)

NOT_CHECKABLE = (
    "Only the supplement was available, not the text of the main paper: statements made only there are not covered.",
    "The numbers behind the paper's Figures 2–5 are not published; only their captions were available. "
    "Whether the curves agree point by point cannot be tested.",
    "The paper's seconds were measured on another computer with other code. Absolute seconds cannot be "
    "compared, only put side by side.",
    "The supplement gives no numerical statement about which estimator has the lowest error: what Figures "
    "2–5 show here is listed as observed, not as agreement.",
    "That the best error “cannot be achieved in practice, because one cannot optimally tune the "
    "hyperparameters” is an argument, not a measurement.",
)


def evaluate(results: Results) -> list[tuple[Statement, Outcome]]:
    """Test every statement, in the order of `STATEMENTS`."""
    return [(statement, statement.test(results)) for statement in STATEMENTS]
