"""Tables 1 to 3 of the paper's supplement and the best settings, as CSV, Markdown and LaTeX."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np

from lstd.experiments.protocol import FEATURES, LSTD_VARIANTS
from lstd.experiments.report.names import TABLE_OF, feature_name, number_of, problem_name, short_name
from lstd.experiments.report.results import Results, Sweep, Timing
from lstd.report.numbers import seconds
from lstd.report.output import write_text
from lstd.report.table import Table, Value

TIMED = ("boyan", "uncorrected", "mixed", "true_online_td", "lstd_one_pass")


def paper_seconds(timing: Timing) -> str:
    """The paper's seconds with as many decimals as it printed.

    Examples
    --------
    >>> paper_seconds(Timing(0.1, 0.1, 0.1, 5, paper_seconds=1.1, paper_spread=0.01))
    '1.10 ± 0.01'
    """
    if timing.paper_seconds is None:
        return "–"
    if timing.paper_spread is None:
        return seconds(timing.paper_seconds)
    decimals = 2 if timing.paper_spread < 0.1 else 1
    return f"{timing.paper_seconds:.{decimals}f} ± {timing.paper_spread:.{decimals}f}"


def _ratio(timing: Timing) -> str:
    return "–" if timing.ratio is None else f"{timing.ratio:.0f}×"


_LINES: tuple[tuple[str, Callable[[Timing], str]], ...] = (
    ("here, median", lambda timing: seconds(timing.seconds)),
    ("here, min–max", lambda timing: f"{seconds(timing.low)}–{seconds(timing.high)}"),
    ("NumPy loop", lambda timing: seconds(timing.loop_seconds)),
    ("loop ÷ here", _ratio),
    ("the paper", paper_seconds),
)


def timing_table(results: Results, problem: str) -> Table | None:
    """Table 1, 2 or 3: seconds per run, here, in a NumPy loop, and in the paper.

    Parameters
    ----------
    results : Results
    problem : str
        "small", "large" or "deterministic".

    Returns
    -------
    Table or None
        None when nothing was timed on the problem.
    """
    found = {key[1:]: timing for key, timing in results.timings.items() if key[0] == problem}
    if not found:
        return None
    features = [name for name in FEATURES if any(key[0] == name for key in found)]
    rows = [row for name in features for row in _timing_lines(name, found)]
    name = TABLE_OF[problem]
    return Table(
        name=name,
        title=f"{number_of(name)}. Seconds per run, {problem_name(problem)}",
        caption=_timing_caption(results),
        header=("features", "seconds", *(short_name(algorithm) for algorithm in TIMED)),
        rows=tuple(rows),
        groups=tuple(range(len(_LINES), len(rows), len(_LINES))),
        n_labels=2,
        csv_header=_TIMING_COLUMNS,
        csv_rows=tuple(
            _timing_record(problem, name, algorithm, found[name, algorithm])
            for name in features
            for algorithm in TIMED
            if (name, algorithm) in found
        ),
    )


def _timing_lines(features: str, found: Mapping[tuple[str, str], Timing]) -> list[tuple[str, ...]]:
    """The lines of one kind of features; its name stands in the first only."""
    lines = []
    for position, (label, text) in enumerate(_LINES):
        cells = (found.get((features, algorithm)) for algorithm in TIMED)
        first = feature_name(features) if position == 0 else ""
        lines.append((first, label, *("–" if cell is None else text(cell) for cell in cells)))
    return lines


_TIMING_COLUMNS = (
    "problem", "features", "algorithm", "seconds", "low", "high", "runs", "loop_seconds", "loop_over_here",
    "loop_low", "loop_high", "loop_sample", "paper_seconds", "paper_spread",
)  # fmt: skip


def _timing_record(problem: str, features: str, algorithm: str, timing: Timing) -> tuple[Value, ...]:
    return (
        problem, features, algorithm, timing.seconds, timing.low, timing.high, timing.runs,
        timing.loop_seconds, timing.ratio, timing.loop_low, timing.loop_high, timing.loop_sample,
        timing.paper_seconds, timing.paper_spread,
    )  # fmt: skip


def _timing_caption(results: Results) -> str:
    sample = results.timing_notes.get("sample")
    parts = [
        "One run is all 340 pairs (λ, α); each algorithm alone, and the three LSTD(λ)s in one pass.",
        f"Here: {_sentence(str(sample))}" if sample else "",
        "The paper: mean ± spread as printed there, on another computer (Intel Core i7-6700K, 4.00 GHz); "
        "for the three LSTDs in one pass, the sum of its three.",
    ]
    return " ".join(part for part in parts if part)


def _sentence(text: str) -> str:
    text = text.strip()
    return text if text.endswith(".") else f"{text}."


def best_setting(sweep: Sweep) -> tuple[int, int] | None:
    """Indices of the λ and α with the lowest mean error; None when every one of them diverged."""
    mean = sweep.mean
    if not np.isfinite(mean).any():
        return None
    i, j = np.unravel_index(np.argmin(mean), mean.shape)
    return int(i), int(j)


def alpha_text(algorithm: str, alpha: float) -> str:
    """A power of two as such for an LSTD(λ); a step size as a number."""
    exponent = np.log2(alpha)
    if algorithm in LSTD_VARIANTS and exponent == np.round(exponent):
        return f"2^{int(exponent)}"
    return f"{alpha:.3g}"


def best_table(results: Results) -> Table:
    """The setting (λ, α) with the lowest mean error of each problem, features and algorithm."""
    rows: list[tuple[str, ...]] = []
    records: list[tuple[Value, ...]] = []
    groups: list[int] = []
    previous: tuple[str, str] | None = None
    for (problem, features, algorithm), sweep in results.sweeps.items():
        first = (problem, features) != previous
        if first and previous is not None:
            groups.append(len(rows))
        previous = (problem, features)
        labels = (problem if first else "", feature_name(features) if first else "", short_name(algorithm))
        record = _best_record(sweep)
        records.append((problem, features, algorithm, *record))
        rows.append((*labels, *_best_text(algorithm, record)))
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
        groups=tuple(groups),
        n_labels=3,
        csv_header=(
            "problem", "features", "algorithm", "lmbda", "alpha", "mean", "std", "runs", "grid_diverged_entries",
            "grid_diverged_runs",
        ),
        csv_rows=tuple(records),
    )  # fmt: skip


def _best_record(sweep: Sweep) -> tuple[Value, ...]:
    counts = (len(sweep.runs), sweep.diverged_entries, sweep.diverged_runs)
    best = best_setting(sweep)
    if best is None:
        return (None, None, float("inf"), None, *counts)
    std = float(sweep.std[best])
    spread = std if np.isfinite(std) else None
    return (
        float(sweep.lmbdas[best[0]]),
        float(sweep.alphas[best[1]]),
        float(sweep.mean[best]),
        spread,
        *counts,
    )


def _best_text(algorithm: str, record: tuple[Value, ...]) -> tuple[str, ...]:
    lmbda, alpha, mean, std, runs, *_ = record
    if lmbda is None or alpha is None:
        return ("–", "–", "∞", str(runs))
    spread = "" if std is None else f" ± {std:.3f}"
    return (f"{lmbda:g}", alpha_text(algorithm, float(alpha)), f"{mean:.4f}{spread}", str(runs))


def to_csv(table: Table) -> str:
    """The numbers of a table, not rounded; what is unknown is empty, infinite is ``inf``."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(table.csv_header)
    writer.writerows([["" if value is None else value for value in row] for row in table.csv_rows])
    return buffer.getvalue()


def to_markdown(table: Table) -> str:
    """The table with its title above and its caption below."""
    align = ["---" if i < table.n_labels else "---:" for i in range(len(table.header))]
    lines = [table.header, tuple(align), *table.rows]
    body = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"**{table.title}**\n\n{body}\n\n{table.caption}\n"


def to_latex(table: Table) -> str:
    """A ``table`` environment with booktabs rules."""
    body: list[str] = []
    for index, row in enumerate(table.rows):
        if index in table.groups:
            body.append(r"    \midrule")
        body.append(f"    {_latex_row(row)}")
    columns = "l" * table.n_labels + "r" * (len(table.header) - table.n_labels)
    return "\n".join(
        (
            r"% Needs \usepackage{booktabs}",
            r"\begin{table}",
            r"  \centering\small",
            rf"  \begin{{tabular}}{{@{{}}{columns}@{{}}}}",
            r"    \toprule",
            f"    {_latex_row(table.header)}",
            r"    \midrule",
            *body,
            r"    \bottomrule",
            r"  \end{tabular}",
            rf"  \caption{{{_latex(table.title.partition('. ')[2])}. {_latex(table.caption)}}}",
            rf"  \label{{tbl:{table.name}}}",
            r"\end{table}",
            "",
        )
    )


_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{",
    "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "λ": r"$\lambda$", "α": r"$\alpha$",
    "γ": r"$\gamma$", "θ": r"$\theta$", "±": r"$\pm$", "×": r"$\times$", "÷": r"$/$", "–": "--", "−": "$-$",
    "∞": r"$\infty$", "≥": r"$\ge$", "≤": r"$\le$",
}  # fmt: skip


def _latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)


def _latex_row(cells: Iterable[str]) -> str:
    return " & ".join(_latex(cell) for cell in cells) + r" \\"


def all_tables(results: Results) -> dict[str, Table]:
    """Name -> table: those of Tables 1 to 3 that were timed, and the best settings."""
    timed = (timing_table(results, problem) for problem in TABLE_OF)
    return {table.name: table for table in (*timed, best_table(results)) if table is not None}


def write_table(table: Table, folder: Path) -> list[Path]:
    """Write a table as .csv and .md, and Tables 1 to 3 also as .tex."""
    writers = {".csv": to_csv, ".md": to_markdown}
    if table.name != "best":
        writers[".tex"] = to_latex
    return [write_text(folder / f"{table.name}{suffix}", text(table)) for suffix, text in writers.items()]
