"""The sections of report.html, each a list of HTML parts made from stored results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from lstd.experiments.protocol import FEATURES, PROBLEMS
from lstd.experiments.report import captions
from lstd.experiments.report.names import FIGURE_OF, TABLE_OF, feature_name, problem_name, short_name
from lstd.experiments.report.observed import observed_tables
from lstd.experiments.report.results import Results, Row
from lstd.experiments.report.selecting import column, levels, select
from lstd.experiments.report.statements import EXTENSION, IDENTITY, NOT_CHECKABLE, PAPER, Finding
from lstd.experiments.report.tables import all_tables
from lstd.experiments.report.verdicts import AGREES, DISAGREES, NOT_COVERED, UNDECIDED
from lstd.report import markup
from lstd.report.numbers import compact, grouped

BIBTEX = """@inproceedings{osogami2020uncorrected,
  author    = {Takayuki Osogami},
  title     = {Uncorrected least-squares temporal difference with lambda-return},
  booktitle = {Proceedings of the 34th AAAI Conference on Artificial Intelligence (AAAI-20)},
  year      = {2020},
  note      = {arXiv:1911.06057}
}"""


def run_section(results: Results) -> list[str]:
    """What was run, on what, and what is missing."""
    about = results.provenance
    words = ", ".join(problem_name(problem).replace(" MRP", "") for problem in results.problems)
    parts = [
        markup.paragraph(
            "Random Markov reward processes (number of states, successors of each state, standard "
            f"deviation of the reward noise): {words}; each with {', '.join(map(feature_name, FEATURES))} "
            "features. Discount 0.99. The error of a run is the normalised mean squared error after every "
            "step, averaged over its steps. Every figure, table and number on this page is made from the "
            "files in this folder; results.parquet has one row for each problem, features, algorithm, λ, "
            "α and run."
        )
    ]
    if results.missing:
        parts.append(
            markup.paragraph(
                f"Missing in this folder: {', '.join(results.missing)}. What depends on them is left out "
                "below; `lstd reproduce` writes them.",
                "missing",
            )
        )
    if about.get("failures"):
        parts.append(markup.paragraph(f"Parts that failed: {markup.readable(about['failures'])}", "missing"))
    rows = [(label, text) for label, text in _provenance(about) if text != "–"]
    if rows:
        parts.append(markup.table(("entry", "value"), rows, n_labels=2, css="data facts"))
    return parts


def _provenance(about: Row) -> list[tuple[str, str]]:
    first_last = about.get("run_seeds")
    # Without the report's own time, so that the same results give the same page.
    wall = {stage: s for stage, s in (about.get("wall_seconds") or {}).items() if stage != "report"}
    return [
        ("lstd", markup.readable(about.get("lstd"))),
        ("Python", markup.readable(about.get("python"))),
        ("packages", markup.readable(about.get("packages"))),
        ("processor", markup.readable(about.get("cpu"))),
        (
            "cores; threads used",
            f"{markup.readable(about.get('cores'))}; {markup.readable(about.get('threads'))}",
        )
        if "cores" in about
        else ("cores", "–"),
        ("threading", markup.readable(about.get("numba_threading"))),
        ("platform", markup.readable(about.get("platform"))),
        ("run seeds", f"{first_last[0]} to {first_last[1]}" if first_last else "–"),
        ("seed of the MRPs", markup.readable(about.get("mrp_seed"))),
        ("arguments", markup.readable(about.get("arguments") or None)),
        ("started", markup.readable(about.get("started"))),
        ("sessions", _sessions(about)),
        ("seconds of finished work, all sessions together, without this report", markup.readable(wall or None)),
    ]


def _sessions(about: Row) -> str:
    n = len(about.get("sessions") or ())
    return f"{n}; versions, processor and threads are those of the last" if n > 1 else "–"


def figures_section(results: Results) -> list[str]:
    """Figures 2 to 5, as far as the results cover them."""
    names = ["figure2", *(FIGURE_OF[problem] for problem in results.problems if problem in FIGURE_OF)]
    parts = [markup.paragraph(captions.UNIT), *(part for name in names for part in _figure(results, name))]
    absent = [problem for problem in PROBLEMS if problem not in results.problems]
    if absent:
        parts.append(markup.paragraph(f"Not in these results: {', '.join(absent)}.", "note"))
    return parts


def _figure(results: Results, name: str) -> list[str]:
    svg = results.folder / "figures" / f"{name}.svg"
    heading = markup.subheading(captions.title(name))
    if not svg.is_file():
        return [heading, markup.paragraph(f"figures/{svg.name} has not been drawn.", "missing")]
    text, alternative = captions.caption(results, name), captions.alternative_text(results, name)
    return [heading, markup.figure(svg, name, text, alternative)]


def tables_section(results: Results) -> list[str]:
    """Tables 1 to 3, where timings are stored, and the best settings."""
    tables = all_tables(results)
    parts = []
    if not any(name in tables for name in TABLE_OF.values()):
        parts.append(
            markup.paragraph(
                "timings.json is missing or empty: Tables 1–3 are left out; `lstd reproduce` measures them.",
                "missing",
            )
        )
    suffixes = {"best": ("csv", "md")}
    told: set[str] = set()
    for name, table in tables.items():
        caption = "As above." if table.caption in told else table.caption
        told.add(table.caption)
        parts.append(markup.data_table(table, suffixes.get(name, ("csv", "md", "tex")), caption))
    return parts


_CSS = {AGREES: "agrees", DISAGREES: "disagrees", UNDECIDED: "neutral", NOT_COVERED: "neutral"}

_KINDS = {
    PAPER: (
        "Statements of the paper",
        "From the paper's supplement, tested on the numbers in this folder. Seconds are noisy: a statement "
        "agrees if nine in ten comparisons lie within the limits with all of their spread, from the lowest to the "
        "highest timing, and does not agree if more than one in ten lie outside with all of it.",
    ),
    IDENTITY: ("Identities", "They follow from the definitions of the estimators, and so test the computation."),
    EXTENSION: ("Beyond the supplement", "Not stated there, but tested in the same way."),
}


def agreement_section(findings: Sequence[Finding]) -> list[str]:
    """Statements with their verdicts and numbers, and what cannot be checked."""
    parts = []
    for kind, (heading, lead) in _KINDS.items():
        found = [finding for finding in findings if finding.statement.kind == kind]
        parts += [markup.subheading(heading), markup.paragraph(lead), _finding_table(found)]
    return [*parts, markup.subheading("What cannot be checked"), markup.items(NOT_CHECKABLE)]


def observed_section(results: Results) -> list[str]:
    """What the results let a reader see, without a statement that it could agree with."""
    lead = "What these results let a reader see. The supplement states nothing in words that it could agree with."
    return [markup.paragraph(lead), *(markup.data_table(table) for table in observed_tables(results))]


def _finding_table(findings: Sequence[Finding]) -> str:
    rows = []
    for finding in findings:
        statement, source = markup.text(finding.statement.text), markup.text(finding.statement.source)
        verdict = f'<span class="verdict {_CSS[finding.verdict]}">{escape(finding.verdict)}</span>'
        rows.append(
            f'<tr><td>{statement}<br><span class="muted">{source}</span></td>'
            f"<td>{verdict}</td><td>{markup.text(finding.numbers)}</td></tr>"
        )
    head = "".join(f'<th scope="col">{text}</th>' for text in ("statement", "verdict", "numbers"))
    body = "\n".join(rows)
    return f'<table class="words">\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>'


def diverged_section(results: Results) -> list[str]:
    """Infinite errors, counted for each problem, features and algorithm."""
    rows = []
    for problem, features in results.panels:
        cells = [_diverged_cell(results, problem, features, algorithm) for algorithm in results.algorithms]
        rows.append((problem, feature_name(features), *cells))
    header = ("problem", "features", *(short_name(algorithm) for algorithm in results.algorithms))
    entries = sum(sweep.diverged_entries for sweep in results.sweeps.values())
    largest = max(sweep.largest_finite for sweep in results.sweeps.values())
    return [
        markup.paragraph(
            f"{grouped(entries)} of the stored errors are infinite. Such a run is never dropped: a "
            "mean over runs with one of them is infinite, so that its (λ, α) can never be the best. Each "
            "cell counts the infinite errors (λ, α, run) and, in brackets, the runs with at least one of "
            f"them. The largest error that is not infinite, and so not counted, is {compact(largest)}."
        ),
        markup.scroll(markup.table(header, rows, n_labels=2), "Diverged runs"),
    ]


def _diverged_cell(results: Results, problem: str, features: str, algorithm: str) -> str:
    sweep = results.sweeps.get((problem, features, algorithm))
    if sweep is None:
        return "–"
    if not sweep.diverged_entries:
        return "0"
    return f"{grouped(sweep.diverged_entries)} ({sweep.diverged_runs} of {len(sweep.runs)} runs)"


def theory_section(results: Results) -> list[str]:
    """Proposition 1 and Theorem 2: figures and numbers, where theory.json is stored."""
    parts = []
    proposition1, theorem2 = results.theory.get("proposition1"), results.theory.get("theorem2")
    if proposition1:
        parts += [*_figure(results, "proposition1"), *_proposition1_numbers(proposition1)]
    if theorem2:
        parts += [*_figure(results, "theorem2"), *_theorem2_numbers(theorem2)]
    if not (proposition1 and theorem2):
        parts.append(
            markup.paragraph(
                "theory.json is missing or incomplete: what it holds of Proposition 1 and Theorem 2 is "
                "shown, the rest is left out; `lstd reproduce` computes it.",
                "missing",
            )
        )
    return parts


def _proposition1_numbers(theory: Mapping[str, Any]) -> list[str]:
    bias = select(theory["rows"], variant="uncorrected")
    rows: list[tuple[str, ...]] = []
    groups: list[int] = []
    for lmbda in levels(bias, "lmbda"):
        groups.append(len(rows))
        ratios = {row["T"]: row for row in select(theory["ratio_rows"], lmbda=lmbda)}
        for row in select(bias, lmbda=lmbda):
            ratio = ratios.get(row["T"], {})
            rows.append((f"{lmbda:g}", grouped(row["T"]), *_triple(row, "bias"), *_triple(ratio, "ratio")))
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
    table = markup.table(header, rows, n_labels=1, groups=groups[1:])
    note = "Bias of Uncorrected LSTD(λ) and variance ratio Boyan's / Uncorrected; ± is one standard error."
    return [markup.scroll(table, "Proposition 1 in numbers"), markup.paragraph(note, "note")]


def _triple(row: Row, name: str) -> tuple[str, str, str]:
    exact, asymptotic, simulated, stderr = (
        column([row], f"{name}_{kind}")[0] for kind in ("exact", "asymptotic", "simulated", "stderr")
    )
    texts = (f"{exact:.4g}", f"{asymptotic:.4g}", f"{simulated:.4g} ± {stderr:.1g}")
    return texts[0].replace("-", "−"), texts[1].replace("-", "−"), texts[2].replace("-", "−")


def _theorem2_numbers(theory: Mapping[str, Any]) -> list[str]:
    rows: list[tuple[str, ...]] = []
    groups: list[int] = []
    lengths = levels(theory["rows"], "T")
    for lmbda in levels(theory["rows"], "lmbda"):
        groups.append(len(rows))
        for variant in ("uncorrected", "mixed", "boyan"):
            found = select(theory["rows"], lmbda=lmbda, variant=variant)
            if found:
                error = dict(zip(column(found, "T"), column(found, "error_theta"), strict=True))
                cells = (f"{error[T]:.3g}" if T in error else "–" for T in lengths)
                rows.append((f"{lmbda:g}", short_name(variant), *cells, _slope(error)))
    header = ("λ", "estimator", *(f"T = {grouped(T)}" for T in lengths), "slope")
    table = markup.table(header, rows, n_labels=2, groups=groups[1:])
    note = "Median relative distance of the weights θ to their limit; slope of its logarithm against log T."
    return [markup.scroll(table, "Theorem 2 in numbers"), markup.paragraph(note, "note")]


def _slope(error: Mapping[float, float]) -> str:
    """Slope of the least-squares line of log error against log T."""
    usable = [(np.log(T), np.log(value)) for T, value in error.items() if 0 < value < np.inf]
    if len(usable) < 2:
        return "–"
    x, y = np.array(usable).T
    return f"{np.polyfit(x, y, 1)[0]:.2f}".replace("-", "−")


def command(results: Results) -> str:
    """The command that makes these results again.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> command(SimpleNamespace(problems=("small",), n_runs=50, provenance={}))
    'lstd reproduce small --runs 50 --out DIR'
    """
    configuration = results.provenance.get("configuration") or {}
    problems = tuple(configuration.get("problems") or results.problems)
    chosen = problems[0] if len(problems) == 1 else "all"
    runs = configuration.get("runs") or results.n_runs
    return f"lstd reproduce {chosen} --runs {runs} --out DIR"


def reproduce_section(results: Results) -> list[str]:
    """The command that makes these results again, and what to cite."""
    version = results.provenance.get("lstd")
    tool = f"lstd {version}" if version else "lstd"
    return [
        markup.paragraph(
            f"These results were made with {tool}. This computes the same problems and runs again, from the same "
            "seeds; seconds are measured anew:"
        ),
        markup.code(command(results)),
        markup.paragraph("DIR is a folder; where a run was interrupted, it goes on. Please cite the paper:"),
        markup.code(BIBTEX),
        '<p class="prose"><a href="https://arxiv.org/abs/1911.06057">arXiv:1911.06057</a></p>',
    ]
