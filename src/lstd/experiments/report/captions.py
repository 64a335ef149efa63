"""Titles, captions and alternative texts of the figures."""

from __future__ import annotations

import numpy as np

from lstd.experiments.protocol import FEATURES
from lstd.experiments.report.names import (
    ALGORITHM_NAMES,
    FEATURE_NAMES,
    FIGURE_OF,
    PROBLEM_NAMES,
    SHORT_NAMES,
    number_of,
)
from lstd.experiments.report.panels import FIGURE2_ALGORITHMS, SENSITIVITY_ROWS, TOP, points_above, sensitivity_limits
from lstd.experiments.report.results import Results, Row, column, select
from lstd.experiments.report.verdicts import distances, score_text
from lstd.report.numbers import compact

_PROBLEM_OF = {figure: problem for problem, figure in FIGURE_OF.items()}
UNIT = (
    "The normalised MSE is the mean squared error against the best linear fit of the true values, "
    "weighted by the stationary distribution, averaged over the steps of a run and divided by the "
    "weighted square of that fit; predicting 0 everywhere scores 1 (thin grey line)."
)


def title(name: str) -> str:
    """Heading of a figure: its number in the paper, or what it is about.

    Examples
    --------
    >>> title("figure3")
    'Figure 3. Sensitivity to α, small MRP (10, 3, 0.1)'
    """
    if name == "figure2":
        return "Figure 2. Best error for each λ"
    if name in _PROBLEM_OF:
        return f"{number_of(name)}. Sensitivity to α, {PROBLEM_NAMES[_PROBLEM_OF[name]]}"
    return {"proposition1": "Proposition 1. Bias and variance", "theorem2": "Theorem 2. The common limit"}[name]


def caption(results: Results, name: str) -> str:
    """Describe what the figure shows."""
    if name == "figure2":
        return _figure2(results)
    if name in _PROBLEM_OF:
        return _sensitivity(results, _PROBLEM_OF[name])
    return _proposition1(results) if name == "proposition1" else _theorem2(results)


def alternative_text(results: Results, name: str) -> str:
    """Describe the figure for readers who cannot see it: its kind and its main numbers."""
    if name == "figure2":
        panels = "; ".join(_best_of_panel(results, *panel) for panel in results.panels)
        return f"Line charts of the best normalised MSE against λ, a panel per problem and features. {panels}."
    if name in _PROBLEM_OF:
        return (
            "Line charts of the normalised MSE against α from 2^-8 to 2^8 on the "
            f"{PROBLEM_NAMES[_PROBLEM_OF[name]]}, a rainbow-coloured curve for each λ; rows Mixed, "
            "Uncorrected and Boyan's LSTD(λ), columns tabular, binary and non-binary features. "
            f"{_above_text(results, _PROBLEM_OF[name])}"
        )
    if name == "proposition1":
        return (
            "Four charts against the number of steps T: the bias of Uncorrected falls like 1/T and that "
            "of Boyan's is zero; both variances fall; their ratio tends to 1. "
            f"{_simulated(results.theory['proposition1'])}"
        )
    return (
        "Charts on log-log axes of the distance to the limit against the number of steps T, for each λ: "
        "the curves of Uncorrected, Mixed and Boyan's LSTD(λ) against a line of slope minus one half."
    )


def _figure2(results: Results) -> str:
    return (
        "Mean squared error of Uncorrected, Mixed and Boyan's LSTD(λ) and of true online TD(λ) on random "
        "Markov reward processes (MRPs), each with three representations of its states. For each λ the "
        "best error is shown: with the regularisation coefficient α among 2^-8, …, 2^8, for true online "
        f"TD(λ) with the best of 30 step sizes. Mean over {_runs(results)}; error bars show one standard "
        "deviation over the runs (divisor: runs − 1), only at λ = i/10, shifted sideways by up to 0.01 so "
        "that they do not cover each other, and cut at 0."
    )


def _sensitivity(results: Results, problem: str) -> str:
    return (
        f"Mean squared error of Mixed, Uncorrected and Boyan's LSTD(λ) on the {PROBLEM_NAMES[problem]} as a "
        f"function of the regularisation coefficient α; each curve shows the mean over {_runs(results)} "
        "for one λ, with the colours of the rainbow from λ = 0 to λ = 1. The panels of a column share "
        f"their logarithmic vertical axis, which ends at {TOP:g} at the latest. "
        f"{_above_text(results, problem)}"
    )


def _above_text(results: Results, problem: str) -> str:
    parts = []
    for features in FEATURES:
        _, top = sensitivity_limits(results, problem, features)
        for algorithm in SENSITIVITY_ROWS:
            sweep = results.sweeps[problem, features, algorithm]
            if above := points_above(sweep, top):
                largest = sweep.mean.max()
                size = f"up to {compact(largest)}" if np.isfinite(largest) else "some infinite"
                parts.append(
                    f"{SHORT_NAMES[algorithm]}, {FEATURE_NAMES[features]}: {above} of {sweep.mean.size} ({size})"
                )
    if not parts:
        return "No point lies above the axes."
    return f"Points (λ, α) above the axis, not shown: {'; '.join(parts)}."


def _best_of_panel(results: Results, problem: str, features: str) -> str:
    parts = []
    for algorithm in FIGURE2_ALGORITHMS:
        sweep = results.sweeps[problem, features, algorithm]
        if sweep.best is not None:
            i, j = sweep.best
            parts.append(f"{SHORT_NAMES[algorithm]} {sweep.mean[i, j]:.3f} at λ = {sweep.lmbdas[i]:g}")
    return f"{problem}, {FEATURE_NAMES[features]}: lowest {', '.join(parts)}"


def _runs(results: Results) -> str:
    return f"{results.n_runs} run{'s' if results.n_runs != 1 else ''}"


def _proposition1(results: Results) -> str:
    theory = results.theory["proposition1"]
    return (
        "One state and independent rewards with mean μ = {mu:g} and standard deviation σ = {sigma:g}; "
        "discount γ = {gamma:g}; {n_samples} simulated sequences. Coloured lines: exact expressions; "
        "dashed: leading terms −γμ/((1−γ)²T) of the bias and 2γ/((1−γ)T) of the variance ratio minus 1; "
        "points: simulated, with error bars of two standard errors, shifted sideways so that they do not "
        "cover each other."
    ).format(**theory) + f" {_simulated(theory)}"


def _simulated(theory: Row) -> str:
    """Say how far the simulated values lie from the exact ones, and how many of them are not drawn."""
    rows, ratios = theory["rows"], theory["ratio_rows"]
    scores = np.concatenate([distances(rows, "bias"), distances(rows, "variance"), distances(ratios, "ratio")])
    sign = -1.0 if float(theory["mu"]) >= 0 else 1.0
    drawn = sign * column(select(rows, variant="uncorrected"), "bias_simulated"), column(ratios, "ratio_simulated") - 1
    hidden = sum(int((values <= 0).sum()) for values in drawn)
    return f"{score_text(scores)} Simulated values below zero, which logarithmic axes cannot show: {hidden}."


def _theorem2(results: Results) -> str:
    theory = results.theory["theorem2"]
    names = ", ".join(ALGORITHM_NAMES[name] for name in ("uncorrected", "mixed", "boyan"))
    return (
        f"{names}: relative distance of A/T (Frobenius norm), b/T and the weights θ (Euclidean norm) to "
        "the limits Φᵀ D (I−γP)(I−λγP)⁻¹ Φ, Φᵀ D (I−λγP)⁻¹ r and to the solution of that system, after T "
        f"steps; median of {theory['n_seeds']} seeds, for θ also the quartiles (bars). Problem: "
        f"{theory['problem']}. All three have the same b. The grey line falls as T to the power −1/2."
    )
