"""All tables: 1 to 3 of the supplement and the best settings, which are files too, and those of the page only."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import PurePosixPath
from typing import Any

import numpy as np
from tabulate import tabulate

from lstd.experiments import protocol
from lstd.experiments.reproduce.results import Results, Row, Sweep, column, levels, loop_ratio, select
from lstd.report.rendering import compact, grouped, seconds

Value = str | float | int | None
TIMED = ("boyan", "uncorrected", "mixed", "true_online_td", "lstd_one_pass")


@dataclass(frozen=True)
class Table:
    """A table for readers, text in `header` and `rows`, and for files its numbers, `records`, not rounded.

    The first `n_labels` columns are words. A rule is drawn above the rows whose indices are in `groups`.
    """

    name: str
    title: str
    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    n_labels: int = 2
    groups: Sequence[int] = ()
    records: Sequence[Mapping[str, Value]] = ()

    @property
    def files(self) -> list[str]:
        """Paths in the results folder."""
        suffixes = ("csv", "md") if self.name == "best" else ("csv", "md", "tex")
        return [f"tables/{self.name}.{suffix}" for suffix in suffixes]


def paper_seconds(timing: Row) -> str:
    """Format the paper's seconds with as many decimals as it printed.

    >>> paper_seconds({"paper_seconds": 1.1, "paper_spread": 0.01})
    '1.10 ± 0.01'
    """
    decimals = 2 if timing["paper_spread"] < 0.1 else 1
    return f"{timing['paper_seconds']:.{decimals}f} ± {timing['paper_spread']:.{decimals}f}"


_LINES: tuple[tuple[str, Callable[[Row], str]], ...] = (
    ("here, median", lambda t: seconds(t["seconds"]) if "seconds" in t else "as one pass"),
    ("here, min–max", lambda t: f"{seconds(t['low'])}–{seconds(t['high'])}" if "seconds" in t else "–"),
    ("NumPy loop", lambda t: seconds(t["loop_seconds"])),
    ("loop ÷ here", lambda t: "–" if (ratio := loop_ratio(t)) is None else f"{ratio:.0f}×"),
    ("the paper", paper_seconds),
)
_NUMBERS = (
    *("seconds", "low", "high", "runs", "loop_seconds", "loop_over_here", "loop_sample"),
    *("paper_seconds", "paper_spread"),
)


def timing_table(results: Results, problem: str) -> Table:
    """Compose Table 1, 2 or 3: seconds per run, here, in a NumPy loop, and in the paper."""
    timings = {(f, a): results.timings[problem, f, a] for f in protocol.FEATURES for a in TIMED}
    rows = [
        (
            protocol.FEATURE_NAMES[features] if label == _LINES[0][0] else "",
            label,
            *(text(timings[features, a]) for a in TIMED),
        )
        for features in protocol.FEATURES
        for label, text in _LINES
    ]
    name = protocol.TABLE_OF[problem]
    return Table(
        name,
        f"Table {name[-1]}. Seconds per run, {protocol.PROBLEM_NAMES[problem]}",
        "One run is all 340 pairs (λ, α). The three LSTD(λ)s share one recursion, so each alone costs the same as "
        f"all three in one pass, by construction; that pass is timed once. Here: {results.timing_sample} "
        "The paper: mean ± spread as printed there, on another computer (Intel Core i7-6700K, 4.00 GHz); for the "
        "three LSTDs in one pass, the sum of its three.",
        ("features", "seconds", *(protocol.SHORT_NAMES[algorithm] for algorithm in TIMED)),
        rows,
        groups=range(len(_LINES), len(rows), len(_LINES)),
        records=[
            {"problem": problem, "features": features, "algorithm": algorithm}
            | {name: {**timing, "loop_over_here": loop_ratio(timing)}.get(name) for name in _NUMBERS}
            for (features, algorithm), timing in timings.items()
        ],
    )


def alpha_text(algorithm: str, alpha: float) -> str:
    """Format α as a power of two for LSTD(λ), as a number where it is a step size."""
    return f"2^{round(np.log2(alpha))}" if algorithm in protocol.LSTD_VARIANTS else f"{alpha:.3g}"


def best_table(results: Results) -> Table:
    """Compose the table of the setting (λ, α) with the lowest mean error of each problem, features and algorithm."""
    rows, records = [], []
    for (problem, features, algorithm), sweep in results.sweeps.items():
        panel = (problem, protocol.FEATURE_NAMES[features]) if algorithm == results.algorithms[0] else ("", "")
        record: dict[str, Value] = {"problem": problem, "features": features, "algorithm": algorithm}
        record |= {"lmbda": None, "alpha": None, "mean": float("inf"), "std": None}
        texts = ("–", "–", "∞")
        if sweep.best is not None:
            i, j = sweep.best
            lmbda, alpha, mean = float(sweep.lmbdas[i]), float(sweep.alphas[j]), float(sweep.mean[i, j])
            std = float(sweep.std[i, j]) if np.isfinite(sweep.std[i, j]) else None
            record |= {"lmbda": lmbda, "alpha": alpha, "mean": mean, "std": std}
            error = f"{mean:.4f}" if std is None else f"{mean:.4f} ± {std:.3f}"
            texts = (f"{lmbda:g}", alpha_text(algorithm, alpha), error)
        rows.append((*panel, protocol.SHORT_NAMES[algorithm], *texts, str(sweep.n_runs)))
        diverged = {"grid_diverged_entries": sweep.diverged_entries, "grid_diverged_runs": sweep.diverged_runs}
        records.append(record | {"runs": sweep.n_runs} | diverged)
    return Table(
        "best",
        "Best settings",
        "The λ and α (for TD the step size) with the lowest normalised mean squared error, averaged over the runs; ± is"
        " the standard deviation over the runs. Chosen after the fact: nobody can tune so well in practice.",
        ("problem", "features", "algorithm", "λ", "α or step size", "error", "runs"),
        rows,
        n_labels=3,
        groups=range(len(results.algorithms), len(rows), len(results.algorithms)),
        records=records,
    )


def table_files(table: Table) -> Iterator[tuple[str, bytes]]:
    """Yield path and content of each file of a table."""
    formats = {".csv": to_csv, ".md": to_markdown, ".tex": to_latex}
    for name in table.files:
        yield name, formats[PurePosixPath(name).suffix](table).encode()


def to_csv(table: Table) -> str:
    """Format the numbers of a table, not rounded; what is unknown is empty, infinite is ``inf``."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(table.records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(table.records)
    return buffer.getvalue()


def to_markdown(table: Table) -> str:
    """Format a table with its title above and its caption below."""
    body = tabulate(table.rows, table.header, "pipe", disable_numparse=True, colalign=_alignment(table))
    return f"**{table.title}**\n\n{body}\n\n{table.caption}\n"


def to_latex(table: Table) -> str:
    """Format a ``table`` environment with booktabs rules."""
    body = tabulate(table.rows, table.header, "latex_booktabs", disable_numparse=True, colalign=_alignment(table))
    lines = body.splitlines()  # beginning, rule, header and rule; rows; rule and end
    for index in reversed(table.groups):
        lines.insert(4 + index, r"\midrule")
    caption = rf"\caption{{{table.title.partition('. ')[2]}. {table.caption}}}"
    before = (r"% Needs \usepackage{booktabs}", r"\begin{table}", r"\centering\small")
    after = (caption, rf"\label{{tbl:{table.name}}}", r"\end{table}", "")
    return "\n".join([*before, *lines, *after]).translate(_LATEX)


_LATEX = str.maketrans({
    "λ": r"$\lambda$", "α": r"$\alpha$", "±": r"$\pm$", "×": r"$\times$", "÷": "$/$", "–": "--", "−": "$-$",
    "∞": r"$\infty$",
})  # fmt: skip


def _alignment(table: Table) -> tuple[str, ...]:
    return ("left",) * table.n_labels + ("right",) * (len(table.header) - table.n_labels)


def page_tables(results: Results) -> dict[str, Any]:
    """Compose the tables that only the page has: what is observed here, on which the paper is silent, and theory."""
    return {
        "observed": [_lowest_table(results), *_pair_tables(results)],
        "diverged": _sweep_table(results, results.algorithms, _diverged_text, "Diverged runs"),
        "proposition1": _proposition1_table(results.theory["proposition1"]),
        "theorem2": _theorem2_table(results.theory["theorem2"]["rows"]),
    }


def _lowest_table(results: Results) -> Table:
    header = ("problem", "features", "lowest", "error", "λ", "α or step size", "next", "behind by")
    caption = (
        "The algorithm with the lowest mean error, at its best λ and α (true online TD(λ): step size), and the next "
        "one. “Behind by” is the mean of their differences, run by run, ± its standard error. The settings were chosen "
        "on the same runs."
    )
    rows = [(*_panel(panel), *_ranking(results, *panel)) for panel in results.panels]
    return Table("", "Lowest error of each problem and features", caption, header, rows, n_labels=3)


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
    first = (protocol.SHORT_NAMES[algorithm], f"{mean:.4f}", f"{lmbda:g}", alpha_text(algorithm, alpha))
    if len(lowest) == 1:
        return (*first, "–", "–")
    difference, n = lowest[1][2] - errors, len(errors)
    spread = f" ± {compact(difference.std(ddof=1) / np.sqrt(n))}" if n > 1 else ""
    behind = f"{compact(difference.mean())}{spread}" if difference.mean() else "equal"
    return (*first, protocol.SHORT_NAMES[lowest[1][1]], behind)


def _pair_tables(results: Results) -> Iterator[Table]:
    """Compose the tables of the dependence on α, and of the settings that beat predicting 0."""
    yield _sweep_table(
        *(results, protocol.LSTD_VARIANTS, _spread_text),
        "How much the error at λ = 1 depends on α",
        "Largest mean error over the values of α divided by the smallest, at λ = 1.",
    )
    yield _sweep_table(
        *(results, protocol.LSTD_VARIANTS, lambda sweep: f"{(sweep.mean < 1).sum()} of {sweep.mean.size}"),
        "How many pairs (λ, α) do better than predicting 0",
        "Number of pairs whose mean error is below 1, the normalised error of predicting 0 everywhere.",
    )


def _spread_text(sweep: Sweep) -> str:
    mean = sweep.mean[-1]
    return compact(mean.max() / mean.min() if np.isfinite(mean.max()) else np.inf)


def _diverged_text(sweep: Sweep) -> str:
    if not sweep.diverged_entries:
        return "0"
    return f"{grouped(sweep.diverged_entries)} ({sweep.diverged_runs} of {sweep.n_runs} runs)"


def _sweep_table(
    results: Results, algorithms: Sequence[str], text: Callable[[Sweep], str], title: str, caption: str = ""
) -> Table:
    """Compose a table with a row per problem and features and a column per algorithm."""
    rows = [(*_panel(panel), *(text(results.sweeps[*panel, name]) for name in algorithms)) for panel in results.panels]
    return Table(
        "", title, caption, ("problem", "features", *(protocol.SHORT_NAMES[name] for name in algorithms)), rows
    )


def _panel(panel: tuple[str, str]) -> tuple[str, str]:
    return panel[0], protocol.FEATURE_NAMES[panel[1]]


def _proposition1_table(theory: Row) -> Table:
    """Compose the table of the bias of Uncorrected and of the variance ratio."""
    pairs = zip(select(theory["rows"], variant="uncorrected"), select(theory["ratio_rows"]), strict=True)
    rows = [
        (f"{bias['lmbda']:g}", grouped(bias["T"]), *_triple(bias, "bias"), *_triple(ratio, "ratio"))
        for bias, ratio in sorted(pairs, key=lambda pair: (pair[0]["lmbda"], pair[0]["T"]))
    ]
    header = (
        "λ",
        "T",
        "bias, exact",
        "leading term",
        "simulated",
        "variance ratio, exact",
        "leading terms",
        "simulated",
    )
    caption = "Bias of Uncorrected LSTD(λ) and variance ratio Boyan's / Uncorrected; ± is one standard error."
    return Table("", "Proposition 1 in numbers", caption, header, rows, n_labels=1, groups=_changes(rows))


def _theorem2_table(theory: Sequence[Row]) -> Table:
    """Compose the table of the distances of the weights to their limit."""
    lengths, rows = levels(theory, "T"), []
    for lmbda, variant in product(levels(theory, "lmbda"), ("uncorrected", "mixed", "boyan")):
        errors = column(select(theory, lmbda=lmbda, variant=variant), "error_theta")
        slope = f"{np.polyfit(np.log(lengths), np.log(errors), 1)[0]:.2f}".replace("-", "−")
        rows.append((f"{lmbda:g}", protocol.SHORT_NAMES[variant], *(f"{error:.3g}" for error in errors), slope))
    header = ("λ", "estimator", *(f"T = {grouped(T)}" for T in lengths), "slope")
    caption = "Median relative distance of the weights θ to their limit; slope of its logarithm against log T."
    return Table("", "Theorem 2 in numbers", caption, header, rows, groups=_changes(rows))


def _changes(rows: Sequence[Sequence[str]]) -> list[int]:
    """Indices of rows whose first cell differs from that above."""
    return [i for i in range(1, len(rows)) if rows[i][0] != rows[i - 1][0]]


def _triple(row: Row, name: str) -> tuple[str, ...]:
    simulated = f"{row[f'{name}_simulated']:.4g} ± {row[f'{name}_stderr']:.1g}"
    texts = (f"{row[f'{name}_exact']:.4g}", f"{row[f'{name}_asymptotic']:.4g}", simulated)
    return tuple(text.replace("-", "−") for text in texts)
