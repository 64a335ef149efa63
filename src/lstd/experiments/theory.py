"""Proposition 1 and Theorem 2 of Osogami (2020) in numbers: both sides of each, by different means.

Proposition 1. One state, i.i.d. rewards R_1, R_2, … of mean μ and standard deviation σ. With
w_n = Σ_{k<n} (λγ)^k = (1 − (λγ)ⁿ)/(1 − λγ),

    b_T = Σ_{n≤T} w_n R_n,   A_T^Boy = (1−γ) Σ_{n≤T} w_n,   A_T^Unc = A_T^Boy + Δ_T,   Δ_T = γ w_T,

so θ = b_T/A_T has the bias E[b_T]/A_T − μ/(1−γ) and the variance σ² Σ w_n² / A_T². To leading order in 1/T
the bias of Uncorrected is −γμ/((1−γ)²T), that of Boyan's is zero, and the ratio of the variances, Boyan's
over Uncorrected, is 1 + 2γ/((1−γ)T).

Theorem 2. On one stream of an ergodic process, A_T/T, b_T/T and the weights of all three estimators tend to
the same limits (:meth:`lstd.mrp.MRP.lstd_limit`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from lstd.experiments.protocol import GAMMA, LSTD_VARIANTS, MRP_SEED, PROBLEMS
from lstd.mrp import RandomMRP, make_features
from lstd.statistics.merging import LSTDStatistics
from lstd.statistics.system import System
from lstd.statistics.threads import one_blas_thread
from lstd.types import Array

THEORY_LMBDAS = (0.0, 0.5, 0.9, 1.0)
PROPOSITION1_VARIANTS = ("boyan", "uncorrected")
_BLOCK = 1000  # sample paths drawn at a time: 24 MB of rewards for paths of 3000 steps


def check_theory() -> dict[str, Any]:
    """Compute everything in theory.json: :func:`proposition1` and :func:`theorem2`."""
    with one_blas_thread():
        return {"proposition1": proposition1(), "theorem2": theorem2()}


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
    """Compute bias and variance of Boyan's and Uncorrected LSTD(λ) with one state and i.i.d. rewards, as JSON values.

    "rows" have, per λ, T and variant, bias and variance exactly, to leading order and simulated with standard errors;
    "ratio_rows" the ratio of variances, Boyan's over Uncorrected. Given λ, γ and T, both estimators divide the same b_T
    by a constant, so each has its own `n_samples` paths: with common rewards, the ratio of the sample variances would
    always be exact. The simulated rewards are uniform on μ ± √3 σ: the proposition asks for no particular distribution.

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
        exact = proposition1_exact(T, lmbda, gamma, mu, sigma)
        leading_bias = {"boyan": 0.0, "uncorrected": -gamma * mu / ((1 - gamma) ** 2 * T)}  # (18)
        simulated = {}
        for variant in PROPOSITION1_VARIANTS:
            theta = b[variant][:, i] / exact[variant]["A"]
            simulated[variant] = _moments(theta, mu / (1 - gamma))
            rows.append(
                {
                    "lmbda": lmbda,
                    "T": T,
                    "variant": variant,
                    "bias_exact": exact[variant]["bias"],
                    "bias_asymptotic": leading_bias[variant],
                    "variance_exact": exact[variant]["variance"],
                    **simulated[variant],
                }
            )
        ratio_rows.append(
            {
                "lmbda": lmbda,
                "T": T,
                "ratio_exact": exact["ratio"],
                "ratio_asymptotic": 1 + 2 * gamma / ((1 - gamma) * T),
                **_simulated_ratio(simulated["boyan"], simulated["uncorrected"]),
            }
        )
    return {
        "mu": mu,
        "sigma": sigma,
        "gamma": gamma,
        "n_samples": n_samples,
        "rows": rows,
        "ratio_rows": ratio_rows,
    }


def proposition1_exact(T: int, lmbda: float, gamma: float, mu: float, sigma: float) -> dict[str, Any]:
    """Compute A_T, bias and variance of both estimators, and the variance ratio, before any o(·).

    The sums of w_n and w_n² are taken term by term: their closed forms lose digits as λγ tends to 1.

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

    "rows" have, per variant, λ and T, medians over the seeds of the relative Frobenius (A) or Euclidean (b, θ)
    distances, and the quartiles of the last. The weights solve A_T θ = b_T without a ridge term, as in the theorem.

    >>> rows = theorem2(lmbdas=[0.5], n_steps=[100, 10_000], seeds=[1])["rows"]
    >>> rows[0]["error_theta"] > rows[1]["error_theta"]
    True
    """
    lengths = sorted(n_steps)
    small = PROBLEMS["small"]
    model = RandomMRP(small.n_states, small.branching, small.reward_std, MRP_SEED, gamma=GAMMA)
    features = make_features(model, "normal")
    no_ridge = np.zeros(features.shape[1])
    streams = [model.simulate(max(lengths), seed) for seed in seeds]
    distances: dict[tuple[str, float, int], list[list[float]]] = {  # (variant, λ, T) -> (seeds, 3)
        case: [] for case in product(LSTD_VARIANTS, lmbdas, lengths)
    }
    for lmbda in lmbdas:
        A_limit, b_limit = model.lstd_limit(features, lmbda)
        theta_limit = model.fixed_point(features, lmbda)
        for stream, T in product(streams, lengths):
            phi = features[stream.states[: T + 1]]
            rewards = np.append(stream.rewards[:T], np.nan)  # none is received in the last row
            sums = LSTDStatistics.from_arrays(phi, rewards, gamma=GAMMA, lmbda=lmbda)
            for variant in LSTD_VARIANTS:
                system = System.of(sums, variant, no_ridge, intercept=False)
                theta = system.solve().weights[:, 0]
                distances[variant, lmbda, T].append(
                    [
                        _relative_distance(system.A / T, A_limit),
                        _relative_distance(system.b[:, 0] / T, b_limit),
                        _relative_distance(theta, theta_limit),
                    ]
                )
    rows = []
    for (variant, lmbda, T), of_seeds in distances.items():
        low, median, high = np.quantile(of_seeds, [0.25, 0.5, 0.75], axis=0)
        rows.append(
            {
                "variant": variant,
                "lmbda": lmbda,
                "T": T,
                "error_A": float(median[0]),
                "error_b": float(median[1]),
                "error_theta": float(median[2]),
                "low_theta": float(low[2]),
                "high_theta": float(high[2]),
            }
        )
    words = (
        f"small random process ({small.n_states} states, {small.branching} successors each, reward noise "
        f"{small.reward_std:g}), five normal features, discount {GAMMA:g}, no ridge term"
    )
    return {"problem": words, "n_seeds": len(seeds), "rows": rows}


def _relative_distance(value: Array, limit: Array) -> float:
    """Return the Frobenius or Euclidean distance to a limit, divided by the norm of the limit."""
    return float(np.linalg.norm(value - limit) / np.linalg.norm(limit))


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
    N = len(theta)
    mean = float(theta.mean())
    variance = float(theta.var(ddof=1))
    fourth_moment = float(np.mean((theta - mean) ** 4))
    # Var[s²] = (μ₄ − σ⁴ (N−3)/(N−1)) / N for independent samples.
    variance_of_variance = (fourth_moment - variance**2 * (N - 3) / (N - 1)) / N
    return {
        "bias_simulated": mean - value,
        "bias_stderr": float(np.sqrt(variance / N)),
        "variance_simulated": variance,
        "variance_stderr": float(np.sqrt(variance_of_variance)),
    }


def _simulated_ratio(boyan: dict[str, float], uncorrected: dict[str, float]) -> dict[str, float]:
    """Boyan's variance over Uncorrected's; the samples are independent, so squared relative errors add."""
    ratio = boyan["variance_simulated"] / uncorrected["variance_simulated"]
    error_boyan = boyan["variance_stderr"] / boyan["variance_simulated"]
    error_uncorrected = uncorrected["variance_stderr"] / uncorrected["variance_simulated"]
    return {"ratio_simulated": ratio, "ratio_stderr": ratio * float(np.hypot(error_boyan, error_uncorrected))}
