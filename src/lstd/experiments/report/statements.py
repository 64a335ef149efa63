"""What the paper's supplement states, tested on stored results; and what else they let a reader see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lstd.experiments.report import verdicts as checks
from lstd.experiments.report.results import Results
from lstd.experiments.report.verdicts import Outcome

PAPER = "statement of the paper"
IDENTITY = "identity of the estimators"
EXTENSION = "beyond the supplement"


@dataclass(frozen=True)
class Statement:
    """A sentence, where it is from, and the function that tests it.

    Attributes
    ----------
    kind : str
        `PAPER`: the supplement states it. `IDENTITY`: it follows from the definitions, whatever the data.
        `EXTENSION`: not stated there, but tested in the same way.
    text : str
    source : str
        Where in the supplement, or which definitions.
    test : callable
        Results -> Outcome.
    """

    kind: str
    text: str
    source: str
    test: Callable[[Results], Outcome]


@dataclass(frozen=True)
class Finding:
    """A statement with what came of it: `verdict` is one of `checks.VERDICTS`, `numbers` says why."""

    statement: Statement
    verdict: str
    numbers: str


_TIMES = "Details of experiments; Tables 1–3"
_PROPOSITION1 = "Proposition 1 and its proof"

STATEMENTS: tuple[Statement, ...] = (
    Statement(
        PAPER,
        "Each run has 17 × 20 = 340 combinations of α in {2^-8, …, 2^8} and λ in "
        "{0, 0.1, …, 0.9, 0.91, …, 1}; true online TD(λ) has 30 × 20 = 600.",
        "Details of experiments",
        checks.grids,
    ),
    Statement(PAPER, "Each point is the mean over 50 runs.", "Captions of Figures 2–5", checks.fifty_runs),
    Statement(
        PAPER,
        "Uncorrected LSTD(λ) requires slightly more computational time than Boyan's (compiled, each alone).",
        _TIMES,
        checks.uncorrected_time,
    ),
    Statement(
        PAPER,
        "Uncorrected LSTD(λ) requires slightly more computational time than Boyan's (the plain NumPy loop).",
        _TIMES,
        checks.uncorrected_loop_time,
    ),
    Statement(
        PAPER,
        "Mixed LSTD(λ) requires 20 % to 65 % more computational time than the other two (compiled, each "
        "alone). Here one recursion with one rank-one update serves all three, so it need not hold.",
        _TIMES,
        checks.mixed_time,
    ),
    Statement(
        PAPER,
        "Mixed LSTD(λ) requires 20 % to 65 % more computational time than the other two (the plain NumPy "
        "loop, which applies the rank-one update twice, as the paper's).",
        _TIMES,
        checks.mixed_loop_time,
    ),
    Statement(PAPER, "With one state, Boyan's LSTD(λ) is unbiased.", _PROPOSITION1, checks.boyan_unbiased),
    Statement(
        PAPER,
        "With one state, the bias of Uncorrected LSTD(λ) is −γμ/((1−γ)²T) + o(1/T).",
        _PROPOSITION1,
        checks.uncorrected_bias,
    ),
    Statement(
        PAPER,
        "With one state, the variance of Boyan's LSTD(λ) divided by that of Uncorrected is 1 + 2γ/((1−γ)T) + o(1/T).",
        _PROPOSITION1,
        checks.variance_ratio,
    ),
    Statement(
        PAPER,
        "A/T and b/T of Uncorrected LSTD(λ) converge to Φᵀ D (I−γP)(I−λγP)⁻¹ Φ and Φᵀ D (I−λγP)⁻¹ r.",
        "Theorem 2",
        checks.uncorrected_limit,
    ),
    Statement(
        PAPER,
        "The recursion of Theorem 1, the hypothetical estimator of Lemma 1 and the form of Boyan's "
        "estimator in Lemma 2.",
        "Theorem 1, Lemmas 1 and 2",
        checks.algebra,
    ),
    Statement(
        IDENTITY,
        "Mixed LSTD(1) equals Uncorrected LSTD(1).",
        "A_Mixed = λ A_Uncorrected + (1−λ) A_Boyan",
        checks.mixed_is_uncorrected,
    ),
    Statement(
        IDENTITY,
        "Mixed LSTD(0) equals Boyan's LSTD(0).",
        "A_Mixed = λ A_Uncorrected + (1−λ) A_Boyan",
        checks.mixed_is_boyan,
    ),
    Statement(
        EXTENSION,
        "A/T and b/T of Mixed and Boyan's LSTD(λ) converge to the limits of Theorem 2 as well.",
        "Theorem 2; the three A differ by one rank-one term",
        checks.other_limits,
    ),
)

NOT_CHECKABLE: tuple[str, ...] = (
    "The text of the main paper was not at hand, only its supplement: statements made only there are not covered.",
    "The numbers behind the paper's Figures 2–5 are not published; only their captions were at hand. "
    "Whether the curves agree point by point cannot be tested.",
    "The paper's seconds were measured on another computer with other code; absolute seconds cannot be "
    "compared, only put side by side.",
    "The supplement gives no numerical statement about which estimator has the lowest error: what Figures "
    "2–5 show here is listed as observed, not as agreement.",
    "That the best error “cannot be achieved in practice, because one cannot optimally tune the "
    "hyperparameters” is an argument, not a measurement.",
)


def evaluate(results: Results) -> list[Finding]:
    """Test every statement on `results`.

    Parameters
    ----------
    results : Results

    Returns
    -------
    list of Finding
        In the order of `STATEMENTS`. What the results do not hold is reported as not covered.

    Examples
    --------
    >>> [finding.verdict for finding in evaluate(load("lstd-results"))]  # doctest: +SKIP
    """
    findings = []
    for statement in STATEMENTS:
        outcome = statement.test(results)
        findings.append(Finding(statement, outcome.verdict, outcome.numbers))
    return findings
