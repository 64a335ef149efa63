"""Tables 1 to 3 of the paper's supplement and the best settings, as CSV, Markdown and LaTeX."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy as np
from tabulate import tabulate

from lstd.experiments.protocol import FEATURES, LSTD_VARIANTS
from lstd.experiments.reproduce.results import Results, Sweep, Timing
from lstd.experiments.reproduce.wording import FEATURE_NAMES, PROBLEM_NAMES, SHORT_NAMES, TABLE_OF
from lstd.report.formatting import seconds

Value = str | float | int | None
TIMED = ("boyan", "uncorrected", "mixed", "true_online_td", "lstd_one_pass")


@dataclass(frozen=True)
class Table:
    """A table for readers (text in `header` and `rows`) and its numbers (`csv_header`, `csv_rows`, not rounded).

    The first `n_labels` columns are words. A rule is drawn above the rows whose indices are in `groups`.
    """

    name: str
    title: str
    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    n_labels: int = 2
    groups: tuple[int, ...] = ()
    csv_header: tuple[str, ...] = ()
    csv_rows: tuple[tuple[Value, ...], ...] = ()

    @property
    def files(self) -> list[str]:
        """Paths in the results folder."""
        suffixes = ("csv", "md") if self.name == "best" else ("csv", "md", "tex")
        return [f"tables/{self.name}.{suffix}" for suffix in suffixes]


def paper_seconds(timing: Timing) -> str:
    """Format the paper's seconds with as many decimals as it printed.

    >>> paper_seconds(Timing(0.1, 0.1, 0.1, "", paper_seconds=1.1, paper_spread=0.01))
    '1.10 ± 0.01'
    """
    decimals = 2 if timing.paper_spread < 0.1 else 1
    return f"{timing.paper_seconds:.{decimals}f} ± {timing.paper_spread:.{decimals}f}"


_LINES: tuple[tuple[str, Callable[[Timing], str]], ...] = (
    ("here, median", lambda t: "as one pass" if t.seconds is None else seconds(t.seconds)),
    ("here, min–max", lambda t: "–" if t.seconds is None else f"{seconds(t.low)}–{seconds(t.high)}"),
    ("NumPy loop", lambda t: seconds(t.loop_seconds)),
    ("loop ÷ here", lambda t: "–" if t.ratio is None else f"{t.ratio:.0f}×"),
    ("the paper", paper_seconds),
)
_NUMBERS = (
    *("seconds", "low", "high", "runs", "loop_seconds", "ratio", "loop_low", "loop_high", "loop_sample"),
    *("paper_seconds", "paper_spread"),
)


def timing_table(results: Results, problem: str) -> Table:
    """Compose Table 1, 2 or 3: seconds per run, here, in a NumPy loop, and in the paper."""
    timings = {(f, a): results.timings[problem, f, a] for f in FEATURES for a in TIMED}
    rows = [
        (FEATURE_NAMES[features] if label == _LINES[0][0] else "", label, *(text(timings[features, a]) for a in TIMED))
        for features in FEATURES
        for label, text in _LINES
    ]
    name = TABLE_OF[problem]
    return Table(
        name=name,
        title=f"Table {name[-1]}. Seconds per run, {PROBLEM_NAMES[problem]}",
        caption=(
            "One run is all 340 pairs (λ, α). The three LSTD(λ)s share one recursion, so each alone costs the same as "
            f"all three in one pass, by construction; that pass is timed once. Here: {results.timing_sample} "
            "The paper: mean ± spread as printed there, on another computer (Intel Core i7-6700K, 4.00 GHz); for the "
            "three LSTDs in one pass, the sum of its three."
        ),
        header=("features", "seconds", *(SHORT_NAMES[algorithm] for algorithm in TIMED)),
        rows=tuple(rows),
        groups=tuple(range(len(_LINES), len(rows), len(_LINES))),
        csv_header=("problem", "features", "algorithm", *(n.replace("ratio", "loop_over_here") for n in _NUMBERS)),
        csv_rows=tuple((problem, *key, *(getattr(t, name) for name in _NUMBERS)) for key, t in timings.items()),
    )


def alpha_text(algorithm: str, alpha: float) -> str:
    """Format α as a power of two for LSTD(λ), as a number where it is a step size."""
    return f"2^{round(np.log2(alpha))}" if algorithm in LSTD_VARIANTS else f"{alpha:.3g}"


def best_table(results: Results) -> Table:
    """Compose the table of the setting (λ, α) with the lowest mean error of each problem, features and algorithm."""
    rows: list[tuple[str, ...]] = []
    records: list[tuple[Value, ...]] = []
    n_algorithms = len(results.algorithms)
    for (problem, features, algorithm), sweep in results.sweeps.items():
        panel = ("", "") if len(rows) % n_algorithms else (problem, FEATURE_NAMES[features])
        texts, numbers = _best(algorithm, sweep)
        rows.append((*panel, SHORT_NAMES[algorithm], *texts, str(sweep.n_runs)))
        counts = sweep.n_runs, sweep.diverged_entries, sweep.diverged_runs
        records.append((problem, features, algorithm, *numbers, *counts))
    return Table(
        name="best",
        title="Best settings",
        caption=(
            "The λ and α (for TD the step size) with the lowest normalised mean squared error, averaged "
            "over the runs; ± is the standard deviation over the runs. Chosen after the fact: nobody can "
            "tune so well in practice."
        ),
        header=("problem", "features", "algorithm", "λ", "α or step size", "error", "runs"),
        rows=tuple(rows),
        groups=tuple(range(n_algorithms, len(rows), n_algorithms)),
        n_labels=3,
        csv_header=(
            *("problem", "features", "algorithm", "lmbda", "alpha", "mean", "std", "runs"),
            *("grid_diverged_entries", "grid_diverged_runs"),
        ),
        csv_rows=tuple(records),
    )


def _best(algorithm: str, sweep: Sweep) -> tuple[tuple[str, ...], tuple[Value, ...]]:
    """Return the best λ and α and their error as text and as numbers."""
    if sweep.best is None:
        return ("–", "–", "∞"), (None, None, float("inf"), None)
    i, j = sweep.best
    lmbda, alpha = float(sweep.lmbdas[i]), float(sweep.alphas[j])
    mean, std = float(sweep.mean[i, j]), float(sweep.std[i, j])
    known = bool(np.isfinite(std))
    error = f"{mean:.4f} ± {std:.3f}" if known else f"{mean:.4f}"
    return (f"{lmbda:g}", alpha_text(algorithm, alpha), error), (lmbda, alpha, mean, std if known else None)


def table_files(table: Table) -> Iterator[tuple[str, bytes]]:
    """Yield path and content of each file of a table."""
    formats = {".csv": to_csv, ".md": to_markdown, ".tex": to_latex}
    for name in table.files:
        yield name, formats[PurePosixPath(name).suffix](table).encode()


def to_csv(table: Table) -> str:
    """Format the numbers of a table, not rounded; what is unknown is empty, infinite is ``inf``."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(table.csv_header)
    writer.writerows(table.csv_rows)
    return buffer.getvalue()


def to_markdown(table: Table) -> str:
    """Format a table with its title above and its caption below."""
    body = tabulate(table.rows, table.header, "pipe", disable_numparse=True, colalign=_alignment(table))
    return f"**{table.title}**\n\n{body}\n\n{table.caption}\n"


def to_latex(table: Table) -> str:
    """Format a ``table`` environment with booktabs rules."""
    rows = [tuple(map(_latex, row)) for row in table.rows]
    lines = tabulate(
        *(rows, tuple(map(_latex, table.header)), "latex_raw"), disable_numparse=True, colalign=_alignment(table)
    ).splitlines()
    top, head, body, end = lines[0], lines[2], lines[4:-2], lines[-1]
    for index in reversed(table.groups):
        body.insert(index, r"\midrule")
    return "\n".join(
        (
            *(r"% Needs \usepackage{booktabs}", r"\begin{table}", r"\centering\small"),
            *(top, r"\toprule", head, r"\midrule", *body, r"\bottomrule", end),
            rf"\caption{{{_latex(table.title.partition('. ')[2])}. {_latex(table.caption)}}}",
            *(rf"\label{{tbl:{table.name}}}", r"\end{table}", ""),
        )
    )


def _alignment(table: Table) -> tuple[str, ...]:
    return ("left",) * table.n_labels + ("right",) * (len(table.header) - table.n_labels)


_LATEX = {
    "&": r"\&", "%": r"\%", "_": r"\_", "^": r"\textasciicircum{}", "λ": r"$\lambda$", "α": r"$\alpha$",
    "±": r"$\pm$", "×": r"$\times$", "÷": r"$/$", "–": "--", "−": "$-$", "∞": r"$\infty$",
}  # fmt: skip


def _latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)
