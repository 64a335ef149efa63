"""The page report.html: one file with everything in it, made from stored results only."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from lstd.experiments.protocol import FEATURES, PROBLEMS
from lstd.experiments.report import sections
from lstd.experiments.report.results import Results, load
from lstd.experiments.report.statements import Finding, evaluate
from lstd.experiments.report.verdicts import AGREES, DISAGREES, NOT_COVERED, UNDECIDED, VERDICTS
from lstd.report import markup
from lstd.report.frame import framed
from lstd.report.numbers import grouped
from lstd.report.output import write_text

TITLE = "Uncorrected, Mixed and Boyan's LSTD(λ): the paper's experiments, run again"
PAPER = (
    "Takayuki Osogami, “Uncorrected least-squares temporal difference with lambda-return”, Proceedings of "
    "the 34th AAAI Conference on Artificial Intelligence (AAAI-20), with its supplementary material; "
    "arXiv:1911.06057."
)
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


def write_report(folder: str | os.PathLike[str], results: Results | None = None) -> Path:
    """Write report.html into a results folder whose figures have been drawn.

    Parameters
    ----------
    folder : path
        A results folder, with its figures in ``figures/``.
    results : Results, optional
        The folder's results when they have been loaded already.

    Returns
    -------
    Path
        The page: one file that loads nothing from elsewhere.

    Raises
    ------
    OutputError
        If the results cannot be read or the page cannot be written.

    Examples
    --------
    >>> write_report("lstd-results")  # doctest: +SKIP
    PosixPath('lstd-results/report.html')
    """
    root = Path(folder)
    return write_text(root / "report.html", page(results or load(root)))


def page(results: Results) -> str:
    """The whole page as text."""
    findings = evaluate(results)
    bodies = {
        "run": sections.run_section(results),
        "figures": sections.figures_section(results),
        "tables": sections.tables_section(results),
        "agreement": sections.agreement_section(findings),
        "observed": sections.observed_section(results),
        "diverged": sections.diverged_section(results),
        "theory": sections.theory_section(results),
        "reproduce": sections.reproduce_section(results),
    }
    return framed(
        TITLE,
        (markup.paragraph("Source: " + PAPER, "muted"), markup.definitions(_summary(results, findings))),
        {name: (heading, bodies[name]) for name, heading in SECTIONS.items()},
    )


def _summary(results: Results, findings: Sequence[Finding]) -> dict[str, str]:
    entries = sum(sweep.errors.size for sweep in results.sweeps.values())
    diverged = sum(sweep.diverged_entries for sweep in results.sweeps.values())
    counts = {verdict: sum(f.verdict == verdict for f in findings) for verdict in VERDICTS}
    panels = f"{len(results.panels)} of {len(PROBLEMS) * len(FEATURES)}"
    cards = {
        "problems × features": panels,
        "runs of each": grouped(results.n_runs),
        "errors stored": grouped(entries),
        "of them diverged": grouped(diverged),
        "statements that agree": str(counts[AGREES]),
        "that do not agree": str(counts[DISAGREES]),
        "not decided": str(counts[UNDECIDED]),
        "not covered": str(counts[NOT_COVERED]),
    }
    ratios = [timing.ratio for key, timing in results.timings.items() if key[2] == "lstd_one_pass" and timing.ratio]
    if ratios:
        cards["NumPy loop ÷ one pass"] = f"{min(ratios):.0f}× to {max(ratios):.0f}×"
    return cards
