"""The page report.html: one file with everything in it. Its words are in the template ``paper.html``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lstd.experiments.protocol import FEATURES, PROBLEMS
from lstd.experiments.reproduce import page_tables
from lstd.experiments.reproduce.paper_tables import Table
from lstd.experiments.reproduce.results import Results, Row
from lstd.experiments.reproduce.verdicts import evaluate, simulated_text
from lstd.experiments.reproduce.wording import FEATURE_NAMES, FIGURE_OF, PROBLEM_NAMES, TOP, above_text, lowest_text
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


def page(results: Results, tables: Sequence[Table], svgs: Mapping[str, bytes]) -> str:
    """Render the page with the tables of files and the figures by name."""
    return render(
        "paper.html",
        "lstd.experiments.reproduce",
        title=TITLE,
        sections=SECTIONS,
        results=results,
        sweeps=list(results.sweeps.values()),
        ratios=[timing.ratio for key, timing in results.timings.items() if key[2] == "lstd_one_pass" and timing.ratio],
        n_panels=len(PROBLEMS) * len(FEATURES),
        features=[FEATURE_NAMES[name] for name in FEATURES],
        names={problem: PROBLEM_NAMES[problem] for problem in results.problems},
        absent=[problem for problem in PROBLEMS if problem not in results.problems],
        facts=_facts(results.provenance),
        figure_of=FIGURE_OF,
        svgs=svgs,
        lowest=[lowest_text(results, *panel) for panel in results.panels],
        above={problem: above_text(results, problem) for problem in results.problems},
        top=TOP,
        simulated=simulated_text(results.theory["proposition1"]),
        tables=tables,
        outcomes=evaluate(results),
        observed=page_tables.observed_tables(results),
        diverged=page_tables.diverged_table(results),
        proposition1=page_tables.proposition1_table(results),
        theorem2=page_tables.theorem2_table(results),
        identities=page_tables.identities_table(results),
        command=f"lstd reproduce {results.problems[0] if len(results.problems) == 1 else 'all'}",
    )


def _facts(about: Row) -> dict[str, str]:
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
        "run seeds": "{} to {}".format(*about["run_seeds"]),
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
