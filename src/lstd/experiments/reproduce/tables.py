"""All tables: 1 to 3 of the supplement and the best settings, which are files too, and those of the page only."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lstd.experiments import protocol
from lstd.experiments.reproduce.results import Results, Row, loop_ratio
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
    def file(self) -> str:
        """Path in the results folder."""
        return f"tables/{self.name}.csv"


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


def to_csv(table: Table) -> str:
    """Format the numbers of a table, not rounded; what is unknown is empty, infinite is ``inf``."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(table.records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(table.records)
    return buffer.getvalue()


def lowest_table(results: Results) -> Table:
    """Compose the table of the algorithm with the lowest mean error of each problem and features, and the next one."""
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


def diverged_table(results: Results) -> Table:
    """Compose the table of infinite errors: a row per problem and features, a column per algorithm."""
    rows = []
    for panel in results.panels:
        sweeps = [results.sweeps[*panel, name] for name in results.algorithms]
        counts = [
            f"{grouped(sweep.diverged_entries)} ({sweep.diverged_runs} of {sweep.n_runs} runs)"
            if sweep.diverged_entries
            else "0"
            for sweep in sweeps
        ]
        rows.append((*_panel(panel), *counts))
    names = (protocol.SHORT_NAMES[name] for name in results.algorithms)
    return Table("", "Diverged runs", "", ("problem", "features", *names), rows)


def _panel(panel: tuple[str, str]) -> tuple[str, str]:
    return panel[0], protocol.FEATURE_NAMES[panel[1]]
