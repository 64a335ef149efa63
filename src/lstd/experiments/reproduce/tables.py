"""All tables: 1 to 3 of the supplement and the best settings, which are files too, and those of the page only."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lstd.experiments import protocol
from lstd.experiments.reproduce.results import Results, Row, Sweep, loop_ratio
from lstd.report.rendering import compact, grouped, seconds
from lstd.types import Array

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


def _median(timing: Row) -> str:
    """Format the seconds of the sweep here; those of one LSTD(λ) are not measured."""
    return seconds(timing["seconds"]) if "seconds" in timing else "as one pass"


def _range(timing: Row) -> str:
    """Format the least and the most seconds of the sweep here."""
    return f"{seconds(timing['low'])}–{seconds(timing['high'])}" if "seconds" in timing else "–"


def _times_faster(timing: Row) -> str:
    """Format how many times as long as the sweep the NumPy loop takes."""
    ratio = loop_ratio(timing)
    return "–" if ratio is None else f"{ratio:.0f}×"


_LINES: Mapping[str, Callable[[Row], str]] = {  # of a row of features in a table of seconds: label -> text
    "here, median": _median,
    "here, min–max": _range,
    "NumPy loop": lambda timing: seconds(timing["loop_seconds"]),
    "loop ÷ here": _times_faster,
    "the paper": paper_seconds,
}
_NUMBERS = (
    "seconds",
    "low",
    "high",
    "runs",
    "loop_seconds",
    "loop_over_here",
    "loop_sample",
    "paper_seconds",
    "paper_spread",
)


def timing_table(results: Results, problem: str) -> Table:
    """Compose Table 1, 2 or 3: seconds per run, here, in a NumPy loop, and in the paper."""
    rows = []
    records = []
    for features in protocol.FEATURES:
        timings = {algorithm: results.timings[problem, features, algorithm] for algorithm in TIMED}
        name_of_features = protocol.FEATURE_NAMES[features]  # in the first of its lines only
        for label, text in _LINES.items():
            rows.append((name_of_features, label, *(text(timing) for timing in timings.values())))
            name_of_features = ""
        for algorithm, timing in timings.items():
            numbers = {**timing, "loop_over_here": loop_ratio(timing)}
            record = {"problem": problem, "features": features, "algorithm": algorithm}
            records.append(record | {name: numbers.get(name) for name in _NUMBERS})
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
        records=records,
    )


def alpha_text(algorithm: str, alpha: float) -> str:
    """Format α as a power of two for LSTD(λ), as a number where it is a step size."""
    return f"2^{round(np.log2(alpha))}" if algorithm in protocol.LSTD_VARIANTS else f"{alpha:.3g}"


def best_table(results: Results) -> Table:
    """Compose the table of the setting (λ, α) with the lowest mean error of each problem, features and algorithm."""
    rows = []
    records = []
    for (problem, features, algorithm), sweep in results.sweeps.items():
        panel = ("", "")  # named in the first of its rows only
        if algorithm == results.algorithms[0]:
            panel = _panel((problem, features))
        texts, setting = _best_setting(algorithm, sweep)
        rows.append((*panel, protocol.SHORT_NAMES[algorithm], *texts, str(sweep.n_runs)))
        records.append(
            {
                "problem": problem,
                "features": features,
                "algorithm": algorithm,
                **setting,
                "runs": sweep.n_runs,
                "grid_diverged_entries": sweep.diverged_entries,
                "grid_diverged_runs": sweep.diverged_runs,
            }
        )
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


def _best_setting(algorithm: str, sweep: Sweep) -> tuple[tuple[str, str, str], dict[str, float | None]]:
    """Return λ, α and error of the best setting, as texts and as numbers."""
    if sweep.best is None:
        return ("–", "–", "∞"), {"lmbda": None, "alpha": None, "mean": float("inf"), "std": None}
    lmbda = float(sweep.lmbdas[sweep.best[0]])
    alpha = float(sweep.alphas[sweep.best[1]])
    mean = float(sweep.mean[sweep.best])
    std: float | None = float(sweep.std[sweep.best])
    error = f"{mean:.4f} ± {std:.3f}"
    if not np.isfinite(sweep.std[sweep.best]):
        std = None
        error = f"{mean:.4f}"
    texts = (f"{lmbda:g}", alpha_text(algorithm, alpha), error)
    return texts, {"lmbda": lmbda, "alpha": alpha, "mean": mean, "std": std}


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
    sweeps = {name: results.sweeps[problem, features, name] for name in results.algorithms}
    lowest_mean = {name: float(sweep.mean[sweep.best]) for name, sweep in sweeps.items() if sweep.best is not None}
    ranked = sorted(lowest_mean, key=lambda name: lowest_mean[name])
    if not ranked:
        return ("every setting diverged", *["–"] * 5)
    first = ranked[0]
    lmbda, alpha, _ = _best_setting(first, sweeps[first])[0]
    texts = (protocol.SHORT_NAMES[first], f"{lowest_mean[first]:.4f}", lmbda, alpha)
    if len(ranked) == 1:
        return (*texts, "–", "–")
    second = ranked[1]
    difference = _errors_of_best(sweeps[second]) - _errors_of_best(sweeps[first])
    return (*texts, protocol.SHORT_NAMES[second], _mean_text(difference))


def _errors_of_best(sweep: Sweep) -> Array:
    """Return the error of each run at the setting with the lowest mean error, (runs,)."""
    assert sweep.best is not None
    i, j = sweep.best
    return sweep.errors[:, i, j]


def _mean_text(difference: Array) -> str:
    """Format the mean of differences of runs, and its standard error if there are several runs."""
    mean = difference.mean()
    if not mean:
        return "equal"
    n = len(difference)
    if n == 1:
        return compact(mean)
    return f"{compact(mean)} ± {compact(difference.std(ddof=1) / np.sqrt(n))}"


def diverged_table(results: Results) -> Table:
    """Compose the table of infinite errors: a row per problem and features, a column per algorithm."""
    rows = []
    for panel in results.panels:
        counts = [_diverged_text(results.sweeps[*panel, name]) for name in results.algorithms]
        rows.append((*_panel(panel), *counts))
    names = (protocol.SHORT_NAMES[name] for name in results.algorithms)
    return Table("", "Diverged runs", "", ("problem", "features", *names), rows)


def _diverged_text(sweep: Sweep) -> str:
    """Format the number of infinite errors, and of the runs that have one."""
    if not sweep.diverged_entries:
        return "0"
    return f"{grouped(sweep.diverged_entries)} ({sweep.diverged_runs} of {sweep.n_runs} runs)"


def _panel(panel: tuple[str, str]) -> tuple[str, str]:
    """Return the names of a problem and features for readers."""
    problem, features = panel
    return problem, protocol.FEATURE_NAMES[features]
