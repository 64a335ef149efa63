"""The tables that only the page has: observations on which the paper is silent, and the theory in numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from lstd.experiments.protocol import LSTD_VARIANTS
from lstd.experiments.reproduce.paper_tables import Table, alpha_text
from lstd.experiments.reproduce.results import Results, Row, Sweep, column, levels, select
from lstd.experiments.reproduce.wording import FEATURE_NAMES, SHORT_NAMES
from lstd.report.formatting import compact, grouped


def observed_tables(results: Results) -> list[Table]:
    """Compose the tables of the lowest errors, the dependence on α, and the settings that beat predicting 0."""
    lowest = _panel_table(
        results,
        ("lowest", "error", "λ", "α or step size", "next", "behind by"),
        lambda problem, features: _ranking(results, problem, features),
        title="Lowest error of each problem and features",
        caption="The algorithm with the lowest mean error, at its best λ and α (true online TD(λ): step size), and the "
        "next one. “Behind by” is the mean of their differences, run by run, ± its standard error. The settings were "
        "chosen on the same runs.",
        n_labels=3,
    )
    spread = _sweep_table(
        results,
        LSTD_VARIANTS,
        lambda sweep: compact(_spread_at_one(sweep)),
        title="How much the error at λ = 1 depends on α",
        caption="Largest mean error over the values of α divided by the smallest, at λ = 1.",
    )
    better = _sweep_table(
        results,
        LSTD_VARIANTS,
        lambda sweep: f"{(sweep.mean < 1).sum()} of {sweep.mean.size}",
        title="How many pairs (λ, α) do better than predicting 0",
        caption="Number of pairs whose mean error is below 1, the normalised error of predicting 0 everywhere.",
    )
    return [lowest, spread, better]


def diverged_table(results: Results) -> Table:
    """Compose the table that counts the infinite errors."""

    def text(sweep: Sweep) -> str:
        if not sweep.diverged_entries:
            return "0"
        return f"{grouped(sweep.diverged_entries)} ({sweep.diverged_runs} of {sweep.n_runs} runs)"

    return _sweep_table(results, results.algorithms, text, title="Diverged runs")


def identities_table(results: Results) -> Table:
    """Compose the table of the largest difference of each identity on each problem."""
    rows: Sequence[Row] = results.theory["identities"]
    kinds = list(dict.fromkeys((row["identity"], row["quantity"]) for row in rows))
    values = {
        (row["problem"], row["features"], row["identity"], row["quantity"]): row.get("difference", row.get("ratio"))
        for row in rows
    }
    return _panel_table(
        results,
        [f"{identity.capitalize()}: {quantity}" for identity, quantity in kinds],
        lambda problem, features: (compact(values[problem, features, *kind]) for kind in kinds),
        title="Theorem 1, Lemmas 1 and 2 in numbers",
        caption="Largest relative difference between the two sides of each identity, over several λ and lengths T up "
        "to 30; for the bound of Lemma 1, the largest ratio of |b* − b| to it. The definitions are evaluated as "
        "double sums, term by term, and share no code with the recursion. The errors of the sweep are compared with "
        "solves of the double sums at every step.",
    )


def proposition1_table(results: Results) -> Table:
    """Compose the table of the bias of Uncorrected and of the variance ratio."""
    theory = results.theory["proposition1"]
    pairs = zip(select(theory["rows"], variant="uncorrected"), select(theory["ratio_rows"]), strict=True)
    rows = [
        (f"{bias['lmbda']:g}", grouped(bias["T"]), *_triple(bias, "bias"), *_triple(ratio, "ratio"))
        for bias, ratio in sorted(pairs, key=lambda pair: (pair[0]["lmbda"], pair[0]["T"]))
    ]
    header = ("λ", "T", "bias, exact", "leading term", "simulated")
    return _by_lmbda(
        (*header, "variance ratio, exact", "leading terms", "simulated"),
        rows,
        "Proposition 1 in numbers",
        "Bias of Uncorrected LSTD(λ) and variance ratio Boyan's / Uncorrected; ± is one standard error.",
        n_labels=1,
    )


def theorem2_table(results: Results) -> Table:
    """Compose the table of the distances of the weights to their limit."""
    theory = results.theory["theorem2"]
    lengths = levels(theory["rows"], "T")
    rows = []
    for lmbda in levels(theory["rows"], "lmbda"):
        for variant in ("uncorrected", "mixed", "boyan"):
            errors = column(select(theory["rows"], lmbda=lmbda, variant=variant), "error_theta")
            slope = np.polyfit(np.log(lengths), np.log(errors), 1)[0]
            cells = (*(f"{error:.3g}" for error in errors), f"{slope:.2f}".replace("-", "−"))
            rows.append((f"{lmbda:g}", SHORT_NAMES[variant], *cells))
    return _by_lmbda(
        ("λ", "estimator", *(f"T = {grouped(T)}" for T in lengths), "slope"),
        rows,
        "Theorem 2 in numbers",
        "Median relative distance of the weights θ to their limit; slope of its logarithm against log T.",
    )


def _panel_table(
    results: Results,
    header: Sequence[str],
    cells: Callable[[str, str], Iterable[str]],
    title: str,
    caption: str = "",
    n_labels: int = 2,
) -> Table:
    """Compose a table with a row per problem and features."""
    rows = tuple((problem, FEATURE_NAMES[features], *cells(problem, features)) for problem, features in results.panels)
    return Table("", title, caption, ("problem", "features", *header), rows, n_labels)


def _sweep_table(results: Results, algorithms: Sequence[str], text: Callable[[Sweep], str], **words: Any) -> Table:
    """Compose a table with a row per problem and features and a column per algorithm."""
    return _panel_table(
        results,
        [SHORT_NAMES[algorithm] for algorithm in algorithms],
        lambda problem, features: (text(results.sweeps[problem, features, algorithm]) for algorithm in algorithms),
        **words,
    )


def _by_lmbda(
    header: Sequence[str], rows: Sequence[Sequence[str]], title: str, caption: str, n_labels: int = 2
) -> Table:
    """Compose a table with a rule wherever λ, the first cell, changes."""
    starts = tuple(i for i in range(1, len(rows)) if rows[i][0] != rows[i - 1][0])
    return Table("", title, caption, tuple(header), tuple(map(tuple, rows)), n_labels, groups=starts)


def _ranking(results: Results, problem: str, features: str) -> tuple[str, ...]:
    """Describe the algorithm with the lowest mean error, its settings, and its lead over the next one, run by run."""
    lowest = []
    for algorithm in results.algorithms:
        sweep = results.sweeps[problem, features, algorithm]
        if sweep.best is not None:
            i, j = sweep.best
            lowest.append((float(sweep.mean[i, j]), algorithm, sweep.errors[:, i, j], sweep.lmbdas[i], sweep.alphas[j]))
    lowest.sort(key=lambda entry: entry[0])
    if not lowest:
        return ("every setting diverged", *["–"] * 5)
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


def _triple(row: Row, name: str) -> tuple[str, ...]:
    simulated = f"{row[f'{name}_simulated']:.4g} ± {row[f'{name}_stderr']:.1g}"
    texts = (f"{row[f'{name}_exact']:.4g}", f"{row[f'{name}_asymptotic']:.4g}", simulated)
    return tuple(text.replace("-", "−") for text in texts)
