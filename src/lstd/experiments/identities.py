"""Theorem 1 and Lemmas 1 and 2 of Osogami (2020), checked against their definitions.

The definitions are the double sums of the paper, written out as matrices of coefficients and multiplied by NumPy; the
other side of each identity is computed by other means, among them the compiled sweep itself:

    (7)   A_T = Σ_t φ_t (φ_t − (1−λ)γ Σ_{m=1}^{T−t−1} (λγ)^{m−1} φ_{t+m})ᵀ                            Uncorrected
    (17)  A_T = Σ_t φ_t (φ_t − (1−λ)γ Σ_{m=1}^{T−t−1} (λγ)^{m−1} φ_{t+m} − γ(λγ)^{T−t−1} φ_T)ᵀ        Boyan
    (8)   b_T = Σ_t φ_t Σ_{m=0}^{T−t−1} (λγ)^m r_{t+1+m}
    b*_T  = b_T + Σ_t φ_t λ^{T−t−1} Σ_{m≥T−t} γ^m (Pᵐr)(s_t)                        hypothetical estimator, Lemma 1
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product
from typing import Any

import numpy as np

from lstd.experiments.protocol import FEATURES, GAMMA, LSTD_VARIANTS, MRP_SEED, PROBLEMS
from lstd.experiments.sweep import run_sweep
from lstd.mrp import MRP, RandomMRP, Trajectory, make_features
from lstd.types import Array

LENGTHS = (1, 2, 5, 12, 30)
CHECKED_LMBDAS = (0.0, 0.5, 0.9, 1.0)
CHECKED_ALPHAS = (2.0**-4, 2.0**4)
RUN_SEED = 1


def check_identities(problems: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Compute both sides of each identity on short runs of the paper's problems.

    Parameters
    ----------
    problems : sequence of str
        Names of the protocol; each is checked with all its features.

    Yields
    ------
    dict
        "identity" ("theorem 1", "lemma 1", "lemma 2"), "problem", "features", "quantity" (what is compared, in words),
        and "difference": the largest absolute difference over all T and λ, divided by the largest absolute value.
        The bound of Lemma 1 has "ratio" instead: the largest ratio of |b* − b| to its bound, at most 1.

    Examples
    --------
    >>> max(row.get("difference", 0.0) for row in check_identities(["small"])) < 1e-9
    True
    """
    for problem, features in product(problems, FEATURES):
        paper = PROBLEMS[problem]
        model = RandomMRP(paper.n_states, paper.branching, paper.reward_std, MRP_SEED, gamma=GAMMA)
        phi_of = make_features(model, features)
        run = model.simulate(max(LENGTHS), RUN_SEED)
        phi = phi_of[run.states]
        head = {"problem": problem, "features": features}
        theorem1 = [_theorem1(phi, run.rewards, lmbda, T) for T, lmbda in product(LENGTHS, CHECKED_LMBDAS)]
        lemma2 = [_lemma2(phi, lmbda, T) for T, lmbda in product(LENGTHS, CHECKED_LMBDAS)]
        errors = _errors_of_solves(model, phi_of, run)
        sweep = run_sweep(
            *(problem, features, list(LSTD_VARIANTS)),
            lmbdas=CHECKED_LMBDAS, alphas=CHECKED_ALPHAS, run_seeds=[RUN_SEED], n_steps=max(LENGTHS), n_jobs=1,
        )  # fmt: skip
        solved = [_relative(sweep[variant][0], errors[variant]) for variant in LSTD_VARIANTS]
        difference, ratio = _lemma1(model, phi_of, run)
        yield {"identity": "theorem 1", **head, "quantity": "A and b of the recursion", "difference": max(theorem1)}
        yield {"identity": "theorem 1", **head, "quantity": "errors of the sweep", "difference": max(solved)}
        yield {"identity": "lemma 1", **head, "quantity": "b* − b as a series and exactly", "difference": difference}
        yield {"identity": "lemma 1", **head, "quantity": "|b* − b| and its bound", "ratio": ratio}
        yield {"identity": "lemma 2", **head, "quantity": "A of the traces", "difference": max(lemma2)}


@cache
def matrix_coefficients(T: int, lmbda: float, *, boyan: bool) -> Array:
    """Coefficient of φ_t φ_kᵀ in (7), or in (17) if `boyan`; shape (T, T + 1)."""
    t, k = np.arange(T)[:, np.newaxis], np.arange(T + 1)
    powers = (lmbda * GAMMA) ** np.maximum(k - t - 1, 0.0)
    inner = np.where(k == t, 1.0, np.where(k > t, -(1 - lmbda) * GAMMA * powers, 0.0))
    inner[:, T] = -GAMMA * powers[:, T] if boyan else 0.0
    return inner


@cache
def reward_coefficients(T: int, lmbda: float) -> Array:
    """Coefficient of φ_t r_{k+1} in (8); shape (T, T)."""
    t, k = np.arange(T)[:, np.newaxis], np.arange(T)
    return np.where(k >= t, (lmbda * GAMMA) ** np.maximum(k - t, 0.0), 0.0)


def double_sums(phi: Array, rewards: Array, lmbda: float, T: int, *, boyan: bool = False) -> tuple[Array, Array]:
    """A_T by (7) or (17), and b_T by (8)."""
    A = phi[:T].T @ matrix_coefficients(T, lmbda, boyan=boyan) @ phi[: T + 1]
    b = phi[:T].T @ reward_coefficients(T, lmbda) @ rewards[:T]
    return A, b


def _traces(phi: Array, lmbda: float, T: int) -> Array:
    """z_t = λγ z_{t−1} + φ_t for t < T; shape (T, n)."""
    z = np.zeros((T, phi.shape[1]))
    for t in range(T):
        z[t] = lmbda * GAMMA * z[t - 1] + phi[t] if t else phi[t]
    return z


def _theorem1(phi: Array, rewards: Array, lmbda: float, T: int) -> float:
    """A += (z_t − γ z_{t−1}) φ_tᵀ and b += z_t r_{t+1} against (7) and (8)."""
    z = _traces(phi, lmbda, T)
    A, b = np.zeros((phi.shape[1],) * 2), np.zeros(phi.shape[1])
    for t in range(T):
        A += np.outer(z[t] - (GAMMA * z[t - 1] if t else 0.0), phi[t])
        b += z[t] * rewards[t]
    exact_A, exact_b = double_sums(phi, rewards, lmbda, T)
    return max(_relative(A, exact_A), _relative(b, exact_b))


def _lemma2(phi: Array, lmbda: float, T: int) -> float:
    """Σ_t z_t (φ_t − γ φ_{t+1})ᵀ against (17)."""
    exact = phi[:T].T @ matrix_coefficients(T, lmbda, boyan=True) @ phi[: T + 1]
    return _relative(_traces(phi, lmbda, T).T @ (phi[:T] - GAMMA * phi[1 : T + 1]), exact)


def _lemma1(model: MRP, phi_of: Array, run: Trajectory) -> tuple[float, float]:
    """The largest difference of b* − b as its series and in closed form, and the largest ratio to its bound.

    The closed form is Σ_t φ_t λ^{T−t−1} γ^{T−t} (P^{T−t} v)(s_t) with the exact values v = (I − γP)⁻¹ r; the bound is
    max|φ| max|r| γ/(1−γ) (1 − (λγ)^T)/(1 − λγ) for each element.
    """
    terms = [model.expected_reward]  # γ^m Pᵐ r
    while np.abs(terms[-1]).max() > 1e-18 * np.abs(terms[0]).max():
        terms.append(GAMMA * model.transition @ terms[-1])
    tails = np.cumsum(terms[::-1], axis=0)[::-1]  # Σ_{m≥j} γ^m Pᵐ r
    ahead = [model.values]  # γ^j P^j v
    for _ in range(max(LENGTHS)):
        ahead.append(GAMMA * model.transition @ ahead[-1])
    difference = ratio = 0.0
    for T, lmbda in product(LENGTHS, CHECKED_LMBDAS):
        t = np.arange(T)
        states, decay = run.states[:T], lmbda ** (T - t - 1.0)
        series = phi_of[states].T @ (decay * tails[T - t, states])
        exact = phi_of[states].T @ (decay * np.array(ahead)[T - t, states])
        bound = np.abs(phi_of).max() * np.abs(terms[0]).max() * GAMMA / (1 - GAMMA)
        bound *= (1 - (lmbda * GAMMA) ** T) / (1 - lmbda * GAMMA)
        difference = max(difference, _relative(series, exact))
        ratio = max(ratio, float(np.abs(series).max() / bound))
    return difference, ratio


def _errors_of_solves(model: MRP, phi_of: Array, run: Trajectory) -> dict[str, Array]:
    """Normalised errors of each variant from solves of the double sums at every step; shape (λs, αs)."""
    phi, target = phi_of[run.states], model.best_fit(phi_of)
    metric = phi_of.T @ (model.stationary[:, np.newaxis] * phi_of)
    errors = {variant: np.zeros((len(CHECKED_LMBDAS), len(CHECKED_ALPHAS))) for variant in LSTD_VARIANTS}
    for (i, lmbda), T in product(enumerate(CHECKED_LMBDAS), range(1, len(phi))):
        uncorrected, b = double_sums(phi, run.rewards, lmbda, T)
        boyan, _ = double_sums(phi, run.rewards, lmbda, T, boyan=True)
        matrices = {"uncorrected": uncorrected, "boyan": boyan, "mixed": lmbda * uncorrected + (1 - lmbda) * boyan}
        for variant, (j, alpha) in product(LSTD_VARIANTS, enumerate(CHECKED_ALPHAS)):
            deviation = np.linalg.solve(matrices[variant] + alpha * np.eye(len(b)), b) - target
            errors[variant][i, j] += deviation @ metric @ deviation
    return {variant: total / (len(phi) - 1) / (target @ metric @ target) for variant, total in errors.items()}


def _relative(left: Array, right: Array) -> float:
    return float(np.abs(left - right).max() / np.abs(right).max())
