"""Results of all experiments with synthetic numbers."""

from itertools import product

import numpy as np

from lstd.experiments.protocol import ALPHAS, FEATURES, GAMMA, LMBDAS, PAPER_SECONDS, PAPER_TIMED, STEP_SIZES
from lstd.experiments.reproduce.results import Results, Sweep

LSTDS = ("boyan", "uncorrected", "mixed")
PROBLEMS = ("small", "large", "deterministic")
DIVERGED = 7  # entries of small/normal/true_online_td that are infinite, all in the first run


def synthetic_errors(problem, features, algorithm, runs):
    """Smooth errors with the identities of λ = 0 and λ = 1; those of Boyan's and Mixed blow up for small α."""
    rng = np.random.RandomState(sum(map(ord, problem + features)))
    noise = 0.05 * rng.rand(runs, 1, 1)
    lmbda = LMBDAS[None, :, None]
    if algorithm == "true_online_td":
        errors = 0.5 + (np.log10(STEP_SIZES)[None, None] + 1.5 - 0.5 * lmbda) ** 2 + noise
        if (problem, features) == ("small", "normal"):
            errors[0, -1, -DIVERGED:] = np.inf
        return errors
    exponent = np.log2(ALPHAS)[None, None]
    plain = 1 - 0.6 / (1 + 2.0 ** (exponent - 4 * lmbda)) + noise
    blown = plain * (1 + 30 * 2.0 ** (-exponent - 6) * (1 + lmbda))
    weight = {"boyan": 0.0, "mixed": lmbda, "uncorrected": 1.0}[algorithm]
    return weight * plain + (1 - weight) * blown


def timing(seconds, paper, spread, timed):
    """Seconds of the NumPy loop 400 times those here."""
    loop = {"loop_seconds": 400 * seconds}
    here = {"seconds": seconds, "low": 0.9995 * seconds, "high": 1.0005 * seconds, "runs": 40} if timed else {}
    return loop | here | {"loop_sample": "4 of 340 pairs, 0.10 s", "paper_seconds": paper, "paper_spread": spread}


def synthetic_timings(problems):
    """The paper's own seconds, made faster by a constant factor."""
    timings = {}
    for problem, features in product(problems, FEATURES):
        paper = dict(zip(PAPER_TIMED, PAPER_SECONDS[problem, features], strict=True))
        for algorithm, (seconds, spread) in paper.items():
            timings[problem, features, algorithm] = timing(seconds / 512, seconds, spread, algorithm not in LSTDS)
        total = sum(paper[name][0] for name in LSTDS)
        timings[problem, features, "lstd_one_pass"] = timing(total / 1024, total, 0.5, True)
    return timings


def proposition1(mu=1.0, sigma=0.5, n_samples=4000):
    """The exact expressions of the supplement, with seeded noise for the simulated ones."""
    rng, rows, ratios = np.random.RandomState(0), [], []
    for lmbda in (0.0, 0.9, 1.0):
        for T in (10, 100, 1000, 10_000):
            kappa = lmbda * GAMMA
            weights = (1 - kappa ** np.arange(1, T + 1)) / (1 - kappa)
            boyan = (1 - GAMMA) * weights.sum()
            matrices = {"boyan": boyan, "uncorrected": boyan + GAMMA * weights[-1]}
            for variant, A in matrices.items():
                biased = variant == "uncorrected"
                bias = mu * weights.sum() / A - mu / (1 - GAMMA) if biased else 0.0
                variance = sigma**2 * (weights**2).sum() / A**2
                row = {"lmbda": lmbda, "T": T, "variant": variant, "bias_exact": bias}
                row["bias_asymptotic"] = -GAMMA * mu / ((1 - GAMMA) ** 2 * T) if biased else 0.0
                row |= noisy("bias", bias, np.sqrt(variance / n_samples), rng)
                row |= {"variance_exact": variance}
                rows.append(row | noisy("variance", variance, variance * np.sqrt(2 / n_samples), rng))
            ratio = (matrices["uncorrected"] / boyan) ** 2
            row = {"lmbda": lmbda, "T": T, "ratio_exact": ratio}
            row["ratio_asymptotic"] = 1 + 2 * GAMMA / ((1 - GAMMA) * T)
            ratios.append(row | noisy("ratio", ratio, ratio * np.sqrt(4 / n_samples), rng))
    head = {"mu": mu, "sigma": sigma, "gamma": GAMMA, "n_samples": n_samples}
    return head | {"rows": rows, "ratio_rows": ratios}


def noisy(name, exact, stderr, rng):
    return {f"{name}_simulated": exact + stderr * rng.uniform(-2, 2), f"{name}_stderr": stderr}


def theorem2():
    rows = []
    for lmbda in (0.0, 0.9, 1.0):
        for i, variant in enumerate(LSTDS):
            for T in (100, 1000, 10_000):
                error = (1 + lmbda) / np.sqrt(T) * (1 + 10 * i / T)
                row = {"variant": variant, "lmbda": lmbda, "T": T, "error_A": error, "error_b": error / 2}
                rows.append(row | {"error_theta": 3 * error, "low_theta": 2 * error, "high_theta": 4 * error})
    return {"problem": "small problem with normal features", "n_seeds": 9, "rows": rows}


def provenance(problems, runs):
    document = {"lstd": "0.1.0", "python": "3.12.1", "packages": {"numpy": "2.0.0"}, "cpu": "a CPU <x86> & more"}
    document |= {"cores": 2, "threads": 2, "numba_threading": "none", "platform": "Linux", "run_seeds": [1, runs]}
    document |= {"mrp_seed": 1000, "arguments": {"runs": runs}, "started": "2025-01-01T00:00:00+00:00"}
    return document | {"wall_seconds": {"sweep": 8.0, "report": 1.0}, "sessions": 2}


def synthetic_results(problems=PROBLEMS, runs=3):
    """Results that agree with all statements, but for the number of runs."""
    sweeps = {}
    for problem, features, algorithm in product(problems, FEATURES, (*LSTDS, "true_online_td")):
        alphas = STEP_SIZES if algorithm == "true_online_td" else ALPHAS
        key = (problem, features, algorithm)
        sweeps[key] = Sweep(synthetic_errors(*key, runs), LMBDAS, alphas)
    theory = {"proposition1": proposition1(), "theorem2": theorem2()}
    sample = "Median of 5 timings on one thread."
    return Results(sweeps, synthetic_timings(problems), sample, provenance(problems, runs), theory)
