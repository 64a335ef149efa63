"""Results folders as ``lstd reproduce`` leaves them before the report is written, with synthetic numbers."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lstd.experiments.protocol import ALPHAS, FEATURES, GAMMA, LMBDAS, PAPER_SECONDS, PAPER_TIMED, STEP_SIZES

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


def sweep_table(errors, problem, features, algorithm, first=1):
    alphas = STEP_SIZES if algorithm == "true_online_td" else ALPHAS
    run, lmbda, alpha = np.meshgrid(np.arange(first, first + len(errors)), LMBDAS, alphas, indexing="ij")
    names = {"problem": problem, "features": features, "algorithm": algorithm}
    columns = {name: pa.array([value] * errors.size).dictionary_encode() for name, value in names.items()}
    grids = {"lmbda": lmbda, "alpha": alpha, "run": run.astype(np.int32), "error": errors}
    return pa.table(columns | {name: grid.ravel() for name, grid in grids.items()})


def write_sweeps(folder, sweeps):
    """One row group per sweep, each with dictionaries of its own."""
    tables = [sweep_table(errors, *key) for key, errors in sweeps.items()]
    with pq.ParquetWriter(folder / "results.parquet", tables[0].schema) as writer:
        for table in tables:
            writer.write_table(table)


def timing_row(problem, features, algorithm, seconds, paper, spread):
    row = {"problem": problem, "features": features, "algorithm": algorithm, "seconds": seconds}
    row |= {"low": 0.9995 * seconds, "high": 1.0005 * seconds, "runs": 40, "loop_sample": "4 of 340 pairs, 0.10 s"}
    row |= {"loop_low": 399.9 * seconds, "loop_high": 400.1 * seconds}
    return row | {"loop_seconds": 400 * seconds, "paper_seconds": paper, "paper_spread": spread}


def write_timings(folder, problems):
    """The paper's own seconds, made faster by a constant factor."""
    rows = []
    for problem in problems:
        for features in FEATURES:
            paper = dict(zip(PAPER_TIMED, PAPER_SECONDS[problem, features], strict=True))
            for algorithm, (seconds, spread) in paper.items():
                rows.append(timing_row(problem, features, algorithm, seconds / 512, seconds, spread))
            total = sum(paper[name][0] for name in LSTDS)
            rows.append(timing_row(problem, features, "lstd_one_pass", total / 1024, total, None))
    document = {"threads": 1, "sample": "Median of 5 timings on one thread.", "rows": rows}
    (folder / "timings.json").write_text(json.dumps(document))


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


def write_provenance(folder, problems, runs):
    document = {"lstd": "0.1.0", "python": "3.12.1", "packages": {"numpy": "2.0.0"}, "cpu": "a CPU <x86> & more"}
    document |= {"cores": 2, "threads": 2, "numba_threading": "none", "platform": "Linux", "run_seeds": [1, runs]}
    document |= {"mrp_seed": 1000, "arguments": {"runs": runs}, "started": "2025-01-01T00:00:00+00:00"}
    document |= {
        "wall_seconds": {"sweep": 8.0},
        "sessions": [{}, {}],
        "configuration": {"problems": list(problems), "runs": runs},
    }
    (folder / "provenance.json").write_text(json.dumps(document))


def build_folder(folder, problems=PROBLEMS, runs=3, documents=True):
    """A results folder as the command leaves it before the report is written."""
    folder.mkdir(parents=True, exist_ok=True)
    keys = [(p, f, a) for p in problems for f in FEATURES for a in (*LSTDS, "true_online_td")]
    write_sweeps(folder, {key: synthetic_errors(*key, runs) for key in keys})
    if documents:
        write_timings(folder, problems)
        (folder / "theory.json").write_text(json.dumps({"proposition1": proposition1(), "theorem2": theorem2()}))
        write_provenance(folder, problems, runs)
    return folder
