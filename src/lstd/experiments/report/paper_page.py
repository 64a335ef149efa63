"""The page report.html: one file with everything in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lstd.experiments.protocol import FEATURES, PROBLEMS
from lstd.experiments.report import captions
from lstd.experiments.report.names import FEATURE_NAMES, FIGURE_OF, PROBLEM_NAMES, SHORT_NAMES
from lstd.experiments.report.observed import observed_tables
from lstd.experiments.report.paper_tables import Table
from lstd.experiments.report.results import Results, Row, column, levels, select
from lstd.experiments.report.statements import EXTENSION, IDENTITY, NOT_CHECKABLE, PAPER, Statement, evaluate
from lstd.experiments.report.verdicts import AGREES, DISAGREES, NOT_COVERED, UNDECIDED, VERDICTS, Outcome
from lstd.report.numbers import compact, grouped
from lstd.report.rendering import render

TITLE = "Uncorrected, Mixed and Boyan's LSTD(λ): the paper's experiments, run again"
SECTIONS = {
    "run": "What was run",
    "figures": "Figures",
    "tables": "Tables",
    "agreement": "Agreement with the paper",
    "observed": "Observed here",
    "diverged": "Diverged runs",
    "theory": "Theory",
    "reproduce": "Cite and reproduce",
}
BIBTEX = """@inproceedings{osogami2020uncorrected,
  author    = {Takayuki Osogami},
  title     = {Uncorrected least-squares temporal difference with lambda-return},
  booktitle = {Proceedings of the 34th AAAI Conference on Artificial Intelligence (AAAI-20)},
  year      = {2020},
  note      = {arXiv:1911.06057}
}"""
_KINDS = {
    PAPER: (
        "Statements of the paper",
        "From the paper's supplement, tested on these results. Seconds are noisy: a statement agrees if nine in ten "
        "comparisons lie within the limits with all of their spread, from the lowest to the highest timing, and does "
        "not agree if more than one in ten lie outside with all of it.",
    ),
    IDENTITY: ("Identities", "They follow from the definitions of the estimators, and so test the computation."),
    EXTENSION: ("Beyond the supplement", "Not stated there, but tested in the same way."),
}
_CSS = {AGREES: "agrees", DISAGREES: "disagrees", UNDECIDED: "neutral", NOT_COVERED: "neutral"}


def page(results: Results, tables: Sequence[Table], svgs: Mapping[str, bytes]) -> str:
    """Render the page with the tables of files and the figures by name."""
    findings = evaluate(results)
    figures = {name: _figure(results, name, svg) for name, svg in svgs.items()}
    return render(
        "paper.html",
        "lstd.experiments.report",
        title=TITLE,
        sections=SECTIONS,
        summary=_summary(results, findings),
        problems=", ".join(PROBLEM_NAMES[problem].replace(" MRP", "") for problem in results.problems),
        features=", ".join(FEATURE_NAMES[name] for name in FEATURES),
        facts=_facts(results.provenance),
        unit=captions.UNIT,
        figures=[figures["figure2"], *(figures[FIGURE_OF[problem]] for problem in results.problems)],
        absent=[problem for problem in PROBLEMS if problem not in results.problems],
        tables=[(table, _caption(tables, i), _files(table)) for i, table in enumerate(tables)],
        findings=[
            (heading, lead, [(s, o, _CSS[o.verdict]) for s, o in findings if s.kind == kind])
            for kind, (heading, lead) in _KINDS.items()
        ],
        not_checkable=NOT_CHECKABLE,
        observed=observed_tables(results),
        diverged=_diverged(results),
        n_diverged=grouped(sum(sweep.diverged_entries for sweep in results.sweeps.values())),
        largest=compact(max(sweep.largest_finite for sweep in results.sweeps.values())),
        theory=[
            (figures["proposition1"], _proposition1_numbers(results.theory["proposition1"])),
            (figures["theorem2"], _theorem2_numbers(results.theory["theorem2"])),
        ],
        identities=_identities(results.theory["identities"]),
        version=results.provenance["lstd"],
        command=_command(results),
        bibtex=BIBTEX,
    )


def _summary(results: Results, findings: Sequence[tuple[Statement, Outcome]]) -> dict[str, str]:
    counts = {verdict: sum(outcome.verdict == verdict for _, outcome in findings) for verdict in VERDICTS}
    ratios = [timing.ratio for key, timing in results.timings.items() if key[2] == "lstd_one_pass" and timing.ratio]
    return {
        "problems × features": f"{len(results.panels)} of {len(PROBLEMS) * len(FEATURES)}",
        "runs of each": grouped(results.n_runs),
        "errors stored": grouped(sum(sweep.errors.size for sweep in results.sweeps.values())),
        "of them diverged": grouped(sum(sweep.diverged_entries for sweep in results.sweeps.values())),
        "statements that agree": str(counts[AGREES]),
        "that do not agree": str(counts[DISAGREES]),
        "not decided": str(counts[UNDECIDED]),
        "not covered": str(counts[NOT_COVERED]),
        "NumPy loop ÷ one pass": f"{min(ratios):.0f}× to {max(ratios):.0f}×",
    }


def _facts(about: Row) -> dict[str, str]:
    first, last = about["run_seeds"]
    # Without the report's own time, so that the same results give the same page.
    wall = {stage: seconds for stage, seconds in about["wall_seconds"].items() if stage != "report"}
    facts = {
        "lstd": about["lstd"],
        "Python": about["python"],
        "packages": _readable(about["packages"]),
        "processor": about["cpu"],
        "cores; threads used": f"{about['cores']}; {about['threads']}",
        "threading": about["numba_threading"],
        "platform": about["platform"],
        "run seeds": f"{first} to {last}",
        "seed of the MRPs": str(about["mrp_seed"]),
        "arguments": _readable(about["arguments"]),
        "started": about["started"],
        "seconds of sweep and timings": _readable(wall),
    }
    if about["sessions"] > 1:
        facts["sessions"] = f"{about['sessions']}; versions, processor and threads are those of the last"
    return {name: text for name, text in facts.items() if text}


def _readable(entries: Row) -> str:
    return ", ".join(f"{name}: {'–' if value is None else value}" for name, value in entries.items())


def _figure(results: Results, name: str, svg: bytes) -> dict[str, Any]:
    return {
        "name": name,
        "title": captions.title(name),
        "svg": svg,
        "caption": captions.caption(results, name),
        "alternative": captions.alternative_text(results, name),
        "files": [f"figures/{name}.{suffix}" for suffix in ("pdf", "png", "svg")],
    }


def _caption(tables: Sequence[Table], index: int) -> str:
    """The caption of a table, shortened where it is the same as above."""
    above = {table.caption for table in tables[:index]}
    return "As above." if tables[index].caption in above else tables[index].caption


def _files(table: Table) -> list[str]:
    suffixes = ("csv", "md") if table.name == "best" else ("csv", "md", "tex")
    return [f"tables/{table.name}.{suffix}" for suffix in suffixes]


def _diverged(results: Results) -> Table:
    """Count the infinite errors for each problem, features and algorithm."""
    rows = []
    for problem, features in results.panels:
        sweeps = [results.sweeps[problem, features, algorithm] for algorithm in results.algorithms]
        cells = (
            f"{grouped(s.diverged_entries)} ({s.diverged_runs} of {s.n_runs} runs)" if s.diverged_entries else "0"
            for s in sweeps
        )
        rows.append((problem, FEATURE_NAMES[features], *cells))
    header = ("problem", "features", *(SHORT_NAMES[algorithm] for algorithm in results.algorithms))
    return Table("", "Diverged runs", "", header, tuple(rows))


def _proposition1_numbers(theory: Row) -> Table:
    rows = []
    pairs = zip(select(theory["rows"], variant="uncorrected"), select(theory["ratio_rows"]), strict=True)
    for bias, ratio in sorted(pairs, key=lambda pair: (pair[0]["lmbda"], pair[0]["T"])):
        rows.append((f"{bias['lmbda']:g}", grouped(bias["T"]), *_triple(bias, "bias"), *_triple(ratio, "ratio")))
    header = ("λ", "T", "bias, exact", "leading term", "simulated")
    return Table(
        "",
        "Proposition 1 in numbers",
        "Bias of Uncorrected LSTD(λ) and variance ratio Boyan's / Uncorrected; ± is one standard error.",
        (*header, "variance ratio, exact", "leading terms", "simulated"),
        tuple(rows),
        n_labels=1,
        groups=_group_starts(rows),
    )


def _group_starts(rows: Sequence[Sequence[str]]) -> tuple[int, ...]:
    """Indices of the rows whose first cell differs from the one above."""
    return tuple(i for i in range(1, len(rows)) if rows[i][0] != rows[i - 1][0])


def _triple(row: Row, name: str) -> tuple[str, ...]:
    exact, leading, simulated, error = (
        row[f"{name}_{kind}"] for kind in ("exact", "asymptotic", "simulated", "stderr")
    )
    texts = (f"{exact:.4g}", f"{leading:.4g}", f"{simulated:.4g} ± {error:.1g}")
    return tuple(text.replace("-", "−") for text in texts)


def _theorem2_numbers(theory: Row) -> Table:
    lengths = levels(theory["rows"], "T")
    rows = []
    for lmbda in levels(theory["rows"], "lmbda"):
        for variant in ("uncorrected", "mixed", "boyan"):
            errors = column(select(theory["rows"], lmbda=lmbda, variant=variant), "error_theta")
            slope = np.polyfit(np.log(lengths), np.log(errors), 1)[0]
            cells = (*(f"{error:.3g}" for error in errors), f"{slope:.2f}".replace("-", "−"))
            rows.append((f"{lmbda:g}", SHORT_NAMES[variant], *cells))
    return Table(
        "",
        "Theorem 2 in numbers",
        "Median relative distance of the weights θ to their limit; slope of its logarithm against log T.",
        ("λ", "estimator", *(f"T = {grouped(T)}" for T in lengths), "slope"),
        tuple(rows),
        groups=_group_starts(rows),
    )


def _identities(rows: Sequence[Row]) -> Table:
    """Show the largest difference of each identity on each problem."""
    kinds = list(dict.fromkeys((row["identity"], row["quantity"]) for row in rows))
    values = {
        (row["problem"], row["features"], row["identity"], row["quantity"]): row.get("difference", row.get("ratio"))
        for row in rows
    }
    panels = dict.fromkeys((row["problem"], row["features"]) for row in rows)
    return Table(
        "",
        "Theorem 1, Lemmas 1 and 2 in numbers",
        "Largest relative difference between the two sides of each identity, over several λ and lengths T up to 30, "
        "and for the bound of Lemma 1 the largest ratio of |b* − b| to it. The definitions are taken literally, as "
        "double sums, and share no code with the recursion. The errors of the sweep are compared with solves of the "
        "double sums at every step.",
        ("problem", "features", *(f"{identity.capitalize()}: {quantity}" for identity, quantity in kinds)),
        tuple((p, FEATURE_NAMES[f], *(compact(values[p, f, *kind]) for kind in kinds)) for p, f in panels),
    )


def _command(results: Results) -> str:
    chosen = results.problems[0] if len(results.problems) == 1 else "all"
    return f"lstd reproduce {chosen} --runs {results.n_runs} --out DIR"
