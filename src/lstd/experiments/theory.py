"""Propositions, theorems and lemmas of Osogami (2020) in numbers: both sides of each, by different means.

Proposition 1. One state, i.i.d. rewards R_1, R_2, … of mean μ and standard deviation σ. With
w_n = Σ_{k<n} (λγ)^k = (1 − (λγ)ⁿ)/(1 − λγ),

    b_T = Σ_{n≤T} w_n R_n,   A_T^Boy = (1−γ) Σ_{n≤T} w_n,   A_T^Unc = A_T^Boy + Δ_T,   Δ_T = γ w_T,

so θ = b_T/A_T has the bias E[b_T]/A_T − μ/(1−γ) and the variance σ² Σ w_n² / A_T². To leading order in 1/T
the bias of Uncorrected is −γμ/((1−γ)²T), that of Boyan's is zero, and the ratio of the variances, Boyan's
over Uncorrected, is 1 + 2γ/((1−γ)T).

Theorem 2. On one stream of an ergodic process, A_T/T, b_T/T and the weights of all three estimators tend to
the same limits (:meth:`lstd.mrp.MRP.lstd_limit`).

Theorem 1, Lemmas 1 and 2. The definitions are the double sums of the paper, written out as matrices of coefficients and
multiplied by NumPy; the other side of each identity is computed by other means, among them the compiled sweep itself:

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
from lstd.statistics.merging import LSTDStatistics
from lstd.statistics.threads import one_blas_thread
from lstd.types import Array

THEORY_LMBDAS = (0.0, 0.5, 0.9, 1.0)
PROPOSITION1_VARIANTS = ("boyan", "uncorrected")
IDENTITY_LENGTHS = (1, 2, 5, 12, 30)
IDENTITY_LMBDAS = (0.0, 0.5, 0.9, 1.0)
IDENTITY_ALPHAS = (2.0**-4, 2.0**4)
IDENTITY_SEED = 1  # of the run
_BLOCK = 1000  # sample paths drawn at a time: 24 MB of rewards for paths of 3000 steps


def check_theory(problems: Sequence[str]) -> dict[str, Any]:
    """Compute everything in theory.json: :func:`proposition1`, :func:`theorem2` and the identities on `problems`."""
    with one_blas_thread():
        return {
            "proposition1": proposition1(),
            "theorem2": theorem2(),
            "identities": list(check_identities(problems)),
        }


def proposition1(
    *,
    mu: float = 1.0,
    sigma: float = 1.0,
    gamma: float = 0.9,
    lmbdas: Sequence[float] = THEORY_LMBDAS,
    n_steps: Sequence[int] = (10, 30, 100, 300, 1000, 3000),
    n_samples: int = 20_000,
    seed: int = 2020,
) -> dict[str, Any]:
    """Compute bias and variance of Boyan's and Uncorrected LSTD(λ) with one state and i.i.d. rewards.

    Given λ, γ and T, both estimators divide the same b_T by a constant, so with common rewards the ratio of their
    sample variances would always equal the exact ratio. Each estimator therefore has its own sample paths, shared by
    all λ and T. The simulated rewards are uniform on μ ± √3 σ: the proposition asks for no particular distribution.

    Parameters
    ----------
    mu, sigma : float
        Mean and standard deviation (> 0) of the rewards.
    gamma : float in [0, 1)
        Discount. Leading order in 1/T means T well above 1/(1−γ).
    lmbdas, n_steps : sequence
        Trace decays λ and lengths T of the data.
    n_samples, seed : int
        Sample paths per estimator, at least 4, and the seed of their generator.

    Returns
    -------
    dict
        "mu", "sigma", "gamma", "n_samples"; "rows", per λ, T and variant: the bias exactly, to leading order
        and simulated with its standard error, and the variance exactly and simulated with its standard error
        (from the fourth moment); "ratio_rows", per λ and T: the ratio of variances, Boyan's over Uncorrected,
        with a standard error by the delta method. The values are ready for JSON.

    Examples
    --------
    >>> result = proposition1(lmbdas=[0.5], n_steps=[100], n_samples=100)
    >>> round(result["rows"][1]["bias_exact"], 4), round(result["rows"][1]["bias_asymptotic"], 4)
    (-0.8319, -0.9)
    """
    cases = [(lmbda, T) for lmbda in lmbdas for T in sorted(n_steps)]
    shares = np.zeros((max(n_steps), len(cases)))  # of each reward in b_T, none after T
    for i, (lmbda, T) in enumerate(cases):
        shares[:T, i] = _reward_weights(T, lmbda * gamma)
    generator = np.random.default_rng(seed)
    b = {variant: _simulate_b(generator, shares, mu, sigma, n_samples) for variant in PROPOSITION1_VARIANTS}
    rows: list[dict[str, Any]] = []
    ratio_rows: list[dict[str, Any]] = []
    for i, (lmbda, T) in enumerate(cases):
        exact, head = proposition1_exact(T, lmbda, gamma, mu, sigma), {"lmbda": lmbda, "T": T}
        leading = {"boyan": 0.0, "uncorrected": -gamma * mu / ((1 - gamma) ** 2 * T)}  # (18)
        for variant in PROPOSITION1_VARIANTS:
            A, bias, variance = exact[variant].values()
            row = {"variant": variant, "bias_exact": bias, "bias_asymptotic": leading[variant]}
            simulated = _moments(b[variant][:, i] / A, mu / (1 - gamma))
            rows.append({**head, **row, "variance_exact": variance, **simulated})
        ratio = {"ratio_exact": exact["ratio"], "ratio_asymptotic": 1 + 2 * gamma / ((1 - gamma) * T)}
        ratio_rows.append({**head, **ratio, **_simulated_ratio(*rows[-2:])})
    head = {"mu": mu, "sigma": sigma, "gamma": gamma, "n_samples": n_samples}
    return head | {"rows": rows, "ratio_rows": ratio_rows}


def proposition1_exact(T: int, lmbda: float, gamma: float, mu: float, sigma: float) -> dict[str, Any]:
    """Compute A_T, bias and variance of both estimators, and the variance ratio, before any o(·).

    The sums of w_n and w_n² are taken term by term: their closed forms lose digits as λγ tends to 1.

    Examples
    --------
    >>> proposition1_exact(1, 1.0, 0.5, mu=1.0, sigma=1.0)["uncorrected"]
    {'A': 1.0, 'bias': -1.0, 'variance': 1.0}
    """
    w = _reward_weights(T, lmbda * gamma)
    boyan = (1 - gamma) * float(w.sum())
    delta = gamma * float(w[-1])
    uncorrected = boyan + delta
    variance_b = sigma**2 * float(w @ w)
    bias = -delta / uncorrected * mu / (1 - gamma)  # E[θ_Unc] − E[θ_Boy], as E[θ_Boy] = μ/(1−γ)
    return {
        "boyan": {"A": boyan, "bias": 0.0, "variance": variance_b / boyan**2},
        "uncorrected": {"A": uncorrected, "bias": bias, "variance": variance_b / uncorrected**2},
        "ratio": (uncorrected / boyan) ** 2,
    }


def theorem2(
    *,
    lmbdas: Sequence[float] = THEORY_LMBDAS,
    n_steps: Sequence[int] = (100, 1000, 10_000, 100_000),
    seeds: Sequence[int] = tuple(range(1, 11)),
) -> dict[str, Any]:
    """Compute distances of A_T/T, b_T/T and the weights to their limits, small problem with normal features.

    One pass over a stream serves every T and all three variants, which differ by one rank-one term at the end
    of the data. The weights solve A_T θ = b_T without a ridge term, as in the theorem.

    Parameters
    ----------
    lmbdas, n_steps, seeds : sequence
        Trace decays λ, lengths T of the data, long enough to visit as many states as there are features, and the seeds
        of the runs.

    Returns
    -------
    dict
        "problem", in words; "n_seeds"; "rows", per variant, λ and T: medians over the runs of the relative
        Frobenius (A) or Euclidean (b, θ) distances "error_A", "error_b", "error_theta", and the quartiles of
        the last, "low_theta" and "high_theta". The values are ready for JSON.

    Examples
    --------
    >>> rows = theorem2(lmbdas=[0.5], n_steps=[100, 10_000], seeds=[1])["rows"]
    >>> rows[0]["error_theta"] > rows[1]["error_theta"]
    True
    """
    lengths, norm = sorted(n_steps), np.linalg.norm
    small = PROBLEMS["small"]
    model = RandomMRP(small.n_states, small.branching, small.reward_std, MRP_SEED, gamma=GAMMA)
    features = make_features(model, "normal")
    limits = [(*model.lstd_limit(features, lmbda), model.fixed_point(features, lmbda)) for lmbda in lmbdas]
    errors = np.empty((len(seeds), len(lmbdas), len(lengths), len(LSTD_VARIANTS), 3))
    for s, seed in enumerate(seeds):
        stream = model.simulate(max(lengths), seed)
        for (j, lmbda), (i, T) in product(enumerate(lmbdas), enumerate(lengths)):
            rewards = np.append(stream.rewards[:T], np.nan)  # none is received in the last row
            sums = LSTDStatistics.from_arrays(features[stream.states[: T + 1]], rewards, gamma=GAMMA, lmbda=lmbda)
            for v, variant in enumerate(LSTD_VARIANTS):
                A, b = sums.matrix(variant), sums.b[:, 0]
                estimates = A / T, b / T, np.linalg.solve(A, b)
                pairs = zip(estimates, limits[j], strict=True)
                errors[s, j, i, v] = [norm(value - limit) / norm(limit) for value, limit in pairs]
    low, median, high = np.quantile(errors, [0.25, 0.5, 0.75], axis=0)
    rows = []
    for (v, variant), (j, lmbda), (i, T) in product(enumerate(LSTD_VARIANTS), enumerate(lmbdas), enumerate(lengths)):
        numbers = (*median[j, i, v], low[j, i, v, 2], high[j, i, v, 2])
        names = ("error_A", "error_b", "error_theta", "low_theta", "high_theta")
        rows.append({"variant": variant, "lmbda": lmbda, "T": T} | dict(zip(names, map(float, numbers), strict=True)))
    words = (
        f"small random process ({small.n_states} states, {small.branching} successors each, reward noise "
        f"{small.reward_std:g}), five normal features, discount {GAMMA:g}, no ridge term"
    )
    return {"problem": words, "n_seeds": len(seeds), "rows": rows}


def _reward_weights(T: int, decay: float) -> Array:
    """w_n = Σ_{k<n} (λγ)^k for n = 1 … T: the share of R_n in b_T; shape (T,)."""
    return np.cumsum(np.power(decay, np.arange(T)))


def _simulate_b(generator: np.random.Generator, shares: Array, mu: float, sigma: float, n_samples: int) -> Array:
    """b_T of independent paths of uniform rewards; shape (n_samples, number of (λ, T))."""
    sizes = [min(_BLOCK, n_samples - begin) for begin in range(0, n_samples, _BLOCK)]
    sums = np.concatenate([generator.random((size, len(shares))) @ shares for size in sizes])
    half_width = np.sqrt(3.0) * sigma
    return np.asarray((mu - half_width) * shares.sum(axis=0) + 2 * half_width * sums)


def _moments(theta: Array, value: float) -> dict[str, float]:
    """Bias and variance of simulated weights, with their standard errors."""
    N, mean, variance = len(theta), float(theta.mean()), float(theta.var(ddof=1))
    # Var[s²] = (μ₄ − σ⁴ (N−3)/(N−1)) / N for independent samples.
    of_variance = float(np.mean((theta - mean) ** 4)) - variance**2 * (N - 3) / (N - 1)
    bias = {"bias_simulated": mean - value, "bias_stderr": float(np.sqrt(variance / N))}
    return bias | {"variance_simulated": variance, "variance_stderr": float(np.sqrt(of_variance / N))}


def _simulated_ratio(boyan: dict[str, Any], uncorrected: dict[str, Any]) -> dict[str, float]:
    """Boyan's variance over Uncorrected's; the samples are independent, so squared relative errors add."""
    ratio = boyan["variance_simulated"] / uncorrected["variance_simulated"]
    relative = [row["variance_stderr"] / row["variance_simulated"] for row in (boyan, uncorrected)]
    return {"ratio_simulated": ratio, "ratio_stderr": ratio * float(np.hypot(*relative))}


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
        run = model.simulate(max(IDENTITY_LENGTHS), IDENTITY_SEED)
        head = {"problem": problem, "features": features}
        cases = product(IDENTITY_LENGTHS, IDENTITY_LMBDAS)
        theorem1, lemma2 = zip(*(_recursions(phi_of[run.states], run.rewards, *case) for case in cases), strict=True)
        errors = _errors_of_solves(model, phi_of, run)
        sweep = run_sweep(
            *(problem, features, list(LSTD_VARIANTS)), lmbdas=IDENTITY_LMBDAS, alphas=IDENTITY_ALPHAS,
            run_seeds=[IDENTITY_SEED], n_steps=max(IDENTITY_LENGTHS), n_jobs=1,
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


def _recursions(phi: Array, rewards: Array, T: int, lmbda: float) -> tuple[float, float]:
    """Compare sums over traces with double sums.

    Theorem 1: A = Σ (z_t − γ z_{t−1}) φ_tᵀ with (7), b = Σ z_t r_{t+1} with (8). Lemma 2: Σ z_t (φ_t − γ φ_{t+1})ᵀ
    with (17).
    """
    now, after = phi[:T], phi[1 : T + 1]
    z = now.copy()
    for t in range(1, T):
        z[t] += lmbda * GAMMA * z[t - 1]
    before = np.vstack([np.zeros_like(z[:1]), z[:-1]])
    A, b = double_sums(phi, rewards, lmbda, T)
    boyan, _ = double_sums(phi, rewards, lmbda, T, boyan=True)
    theorem1 = max(_relative((z - GAMMA * before).T @ now, A), _relative(z.T @ rewards[:T], b))
    return theorem1, _relative(z.T @ (now - GAMMA * after), boyan)


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
    for _ in range(max(IDENTITY_LENGTHS)):
        ahead.append(GAMMA * model.transition @ ahead[-1])
    difference = ratio = 0.0
    for T, lmbda in product(IDENTITY_LENGTHS, IDENTITY_LMBDAS):
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
    errors = {variant: np.zeros((len(IDENTITY_LMBDAS), len(IDENTITY_ALPHAS))) for variant in LSTD_VARIANTS}
    for (i, lmbda), T in product(enumerate(IDENTITY_LMBDAS), range(1, len(phi))):
        uncorrected, b = double_sums(phi, run.rewards, lmbda, T)
        boyan, _ = double_sums(phi, run.rewards, lmbda, T, boyan=True)
        matrices = {"uncorrected": uncorrected, "boyan": boyan, "mixed": lmbda * uncorrected + (1 - lmbda) * boyan}
        for variant, (j, alpha) in product(LSTD_VARIANTS, enumerate(IDENTITY_ALPHAS)):
            deviation = np.linalg.solve(matrices[variant] + alpha * np.eye(len(b)), b) - target
            errors[variant][i, j] += deviation @ metric @ deviation
    return {variant: total / (len(phi) - 1) / (target @ metric @ target) for variant, total in errors.items()}


def _relative(left: Array, right: Array) -> float:
    return float(np.abs(left - right).max() / np.abs(right).max())
