"""What stored results let a reader see where the supplement states nothing: tables without a verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from lstd.experiments.report.names import feature_name, short_name
from lstd.experiments.report.results import Results, Sweep
from lstd.experiments.report.tables import Table, Value, alpha_text, best_setting
from lstd.report.numbers import compact

_VARIANTS = ("boyan", "uncorrected", "mixed")


def observed_tables(results: Results) -> list[Table]:
    """Tables of the lowest errors, of the sensitivity to α, and of the settings better than predicting zero."""
    return [lowest_errors(results), alpha_sensitivity(results), better_than_zero(results)]


def lowest_errors(results: Results) -> Table:
    """The algorithm with the lowest mean error of each panel, and how far behind the next one is.

    The difference is taken run by run, as all algorithms see the same runs; ± is its standard error.
    """
    rows, records = [], []
    for problem, features in results.panels:
        record = _ranking(results, problem, features)
        records.append((problem, features, *record))
        rows.append((problem, feature_name(features), *_ranking_text(record)))
    return Table(
        name="lowest",
        title="Lowest error of each problem and features",
        caption=(
            "Each algorithm at its best λ and α (true online TD(λ): step size). The next one is behind by "
            "the mean difference over the runs, which are the same for all; ± is the standard error of "
            "that mean. The settings were chosen on these same runs."
        ),
        header=("problem", "features", "lowest", "error", "λ", "α or step size", "next", "behind by"),
        rows=tuple(rows),
        groups=(),
        n_labels=3,
        csv_header=(
            "problem", "features", "lowest", "mean", "lmbda", "alpha", "next", "difference", "standard_error",
        ),
        csv_rows=tuple(records),
    )  # fmt: skip


def _ranking(results: Results, problem: str, features: str) -> tuple[Value, ...]:
    ranked = []
    for (p, f, algorithm), sweep in results.sweeps.items():
        best = best_setting(sweep)
        if (p, f) == (problem, features) and best is not None:
            ranked.append((float(sweep.mean[best]), algorithm, sweep, best))
    ranked.sort(key=lambda entry: entry[0])
    if not ranked:
        return (None,) * 7
    mean, algorithm, sweep, (i, j) = ranked[0]
    first: tuple[Value, ...] = (algorithm, mean, float(sweep.lmbdas[i]), float(sweep.alphas[j]))
    if len(ranked) == 1:
        return (*first, None, None, None)
    return (*first, ranked[1][1], *_behind(ranked[0][2:], ranked[1][2:]))


def _behind(
    first: tuple[Sweep, tuple[int, int]], second: tuple[Sweep, tuple[int, int]]
) -> tuple[float | None, float | None]:
    """Mean difference over the runs both have, and the standard error of that mean."""
    (a, i), (b, j) = first, second
    runs, in_a, in_b = np.intersect1d(a.runs, b.runs, return_indices=True)
    if not len(runs):
        return None, None
    difference = b.errors[in_b, j[0], j[1]] - a.errors[in_a, i[0], i[1]]
    spread = float(difference.std(ddof=1) / np.sqrt(len(runs))) if len(runs) > 1 else None
    return float(difference.mean()), spread


def _ranking_text(record: tuple[Value, ...]) -> tuple[str, ...]:
    algorithm, mean, lmbda, alpha, following, difference, spread = record
    if algorithm is None or mean is None or lmbda is None or alpha is None:
        return ("every setting diverged", "–", "–", "–", "–", "–")
    name = str(algorithm)
    first = (short_name(name), f"{mean:.4f}", f"{lmbda:g}", alpha_text(name, float(alpha)))
    if following is None or difference is None:
        return (*first, "–", "–")
    if difference == 0:
        return (*first, short_name(str(following)), "equal")
    error = "" if spread is None else f" ± {compact(float(spread))}"
    return (*first, short_name(str(following)), f"{compact(float(difference))}{error}")


def alpha_sensitivity(results: Results) -> Table:
    """Largest over smallest mean error over α at λ = 1, for each variant."""
    return _variant_table(
        results,
        name="sensitivity",
        title="How much the error at λ = 1 depends on α",
        caption="Largest mean error over the values of α divided by the smallest, at λ = 1.",
        measure=_spread_at_one,
        text=lambda value, sweep: compact(value),
    )


def _spread_at_one(sweep: Sweep) -> float | None:
    (index,) = np.nonzero(sweep.lmbdas == 1.0)
    if not len(index):
        return None
    mean = sweep.mean[index[0]]
    return float(mean.max() / mean.min()) if np.isfinite(mean.max()) else float("inf")


def better_than_zero(results: Results) -> Table:
    """Number of (λ, α) with a mean error below that of predicting zero, for each variant."""
    return _variant_table(
        results,
        name="better",
        title="How many pairs (λ, α) do better than predicting 0",
        caption="Predicting 0 everywhere has a normalised error of 1; counted are the pairs whose mean error is below.",
        measure=lambda sweep: float((sweep.mean < 1).sum()),
        text=lambda value, sweep: f"{value:.0f} of {sweep.mean.size}",
    )


def _variant_table(
    results: Results,
    *,
    name: str,
    title: str,
    caption: str,
    measure: Callable[[Sweep], float | None],
    text: Callable[[float, Sweep], str],
) -> Table:
    rows, records = [], []
    for problem, features in results.panels:
        sweeps: Mapping[str, Sweep | None] = {v: results.sweeps.get((problem, features, v)) for v in _VARIANTS}
        values = {v: None if sweep is None else measure(sweep) for v, sweep in sweeps.items()}
        cells = []
        for variant, sweep in sweeps.items():
            value = values[variant]
            cells.append("–" if value is None or sweep is None else text(value, sweep))
        rows.append((problem, feature_name(features), *cells))
        records.append((problem, features, *values.values()))
    return Table(
        name=name,
        title=title,
        caption=caption,
        header=("problem", "features", *(short_name(variant) for variant in _VARIANTS)),
        rows=tuple(rows),
        groups=(),
        n_labels=2,
        csv_header=("problem", "features", *_VARIANTS),
        csv_rows=tuple(records),
    )
