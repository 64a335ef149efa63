"""What results show where the supplement states nothing: tables without a verdict."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lstd.experiments.protocol import LSTD_VARIANTS
from lstd.experiments.report.names import FEATURE_NAMES, SHORT_NAMES
from lstd.experiments.report.paper_tables import Table, alpha_text
from lstd.experiments.report.results import Results, Sweep
from lstd.report.numbers import compact


def observed_tables(results: Results) -> list[Table]:
    """Compose the tables of the lowest errors, of the sensitivity to α, and of the settings better than zero."""
    return [
        _lowest_errors(results),
        _variant_table(
            results,
            "How much the error at λ = 1 depends on α",
            "Largest mean error over the values of α divided by the smallest, at λ = 1.",
            lambda sweep: compact(_spread_at_one(sweep)),
        ),
        _variant_table(
            results,
            "How many pairs (λ, α) do better than predicting 0",
            "Predicting 0 everywhere has a normalised error of 1; counted are the pairs whose mean error is below.",
            lambda sweep: f"{(sweep.mean < 1).sum()} of {sweep.mean.size}",
        ),
    ]


def _lowest_errors(results: Results) -> Table:
    """Compose the table of the algorithm with the lowest mean error of each panel and its lead over the next one.

    The difference is taken run by run, as all algorithms see the same runs; ± is its standard error.
    """
    return Table(
        name="lowest",
        title="Lowest error of each problem and features",
        caption=(
            "Each algorithm at its best λ and α (true online TD(λ): step size). The next one is behind by "
            "the mean difference over the runs, which are the same for all; ± is the standard error of "
            "that mean. The settings were chosen on these same runs."
        ),
        header=("problem", "features", "lowest", "error", "λ", "α or step size", "next", "behind by"),
        rows=tuple((p, FEATURE_NAMES[f], *_ranking(results, p, f)) for p, f in results.panels),
        n_labels=3,
    )


def _ranking(results: Results, problem: str, features: str) -> tuple[str, ...]:
    """Describe the algorithm with the lowest error, its settings, and the next one."""
    lowest = []
    for algorithm in results.algorithms:
        sweep = results.sweeps[problem, features, algorithm]
        if sweep.best is not None:
            i, j = sweep.best
            lowest.append((float(sweep.mean[i, j]), algorithm, sweep.errors[:, i, j], sweep.lmbdas[i], sweep.alphas[j]))
    lowest.sort(key=lambda entry: entry[0])
    if not lowest:
        return ("every setting diverged", "–", "–", "–", "–", "–")
    mean, algorithm, errors, lmbda, alpha = lowest[0]
    first = (SHORT_NAMES[algorithm], f"{mean:.4f}", f"{lmbda:g}", alpha_text(algorithm, alpha))
    if len(lowest) == 1:
        return (*first, "–", "–")
    difference, n = lowest[1][2] - errors, len(errors)
    spread = f" ± {compact(difference.std(ddof=1) / np.sqrt(n))}" if n > 1 else ""
    behind = f"{compact(difference.mean())}{spread}" if difference.mean() else "equal"
    return (*first, SHORT_NAMES[lowest[1][1]], behind)


def _spread_at_one(sweep: Sweep) -> float:
    mean = sweep.mean[-1]
    return float(mean.max() / mean.min()) if np.isfinite(mean.max()) else float("inf")


def _variant_table(results: Results, title: str, caption: str, text: Callable[[Sweep], str]) -> Table:
    rows = [
        (problem, FEATURE_NAMES[features], *(text(results.sweeps[problem, features, v]) for v in LSTD_VARIANTS))
        for problem, features in results.panels
    ]
    header = ("problem", "features", *(SHORT_NAMES[variant] for variant in LSTD_VARIANTS))
    return Table("", title, caption, header, tuple(rows))
