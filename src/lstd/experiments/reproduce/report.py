"""All files of a report: figures, drawn in other processes as Matplotlib uses one core only, tables and the page."""

from __future__ import annotations

import io
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import connection, resource_tracker
from typing import Any

from lstd.experiments import protocol
from lstd.experiments.reproduce.results import Results, Row, loop_ratio, write_table
from lstd.experiments.reproduce.tables import Table, best_table, diverged_table, lowest_table, timing_table, to_csv
from lstd.experiments.reproduce.verdicts import evaluate, verdict_text
from lstd.report.rendering import render

THEORY_FIGURES = ("proposition1", "theorem2")
Drawn = dict[str, bytes]  # kind -> content


def compose(results: Results, theory: Callable[[], Row], n_jobs: int = 1) -> Iterator[tuple[str, bytes, int]]:
    """Yield path, content and the number of files in all for every file of a report; the page comes last.

    `theory` returns the contents of theory.json; it is called while `n_jobs` processes draw the first figures.
    """
    names = ["figure2", "differences", *(protocol.FIGURE_OF[problem] for problem in results.problems)]
    tables = [*(timing_table(results, problem) for problem in results.problems), best_table(results)]
    files = [(table.file, to_csv(table).encode()) for table in tables]
    n_files = len(files) + 2 * len([*names, *THEORY_FIGURES]) + 2
    with _drawing(min(n_jobs, len(names))) as pool:
        futures = {name: _submit(pool, name, results) for name in names}
        results = replace(results, theory=theory())
        futures |= {name: _submit(pool, name, replace(results, sweeps={})) for name in THEORY_FIGURES}
        buffer = io.BytesIO()
        write_table(buffer, results.sweeps)
        for name, content in [("results.parquet", buffer.getvalue()), *files]:
            yield name, content, n_files
        images = {}
        for name, future in futures.items():
            for kind, content in future.result().items():
                yield f"figures/{name}.{kind}", content, n_files
            images[name] = content
    yield "report.html", page(results, tables, images).encode("utf-8", "backslashreplace"), n_files


def draw(name: str, results: Results) -> Drawn:
    """Draw one figure as pdf, and as png for the page."""
    from lstd.experiments.reproduce.figures import drawn
    from lstd.report.style import figure_style, rendered

    with figure_style():
        figure = drawn(name, results)
    return {kind: rendered(figure, kind) for kind in ("pdf", "png")}


@contextmanager
def _drawing(n_jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Start processes that draw; they end with this one, however it ends."""
    if os.name == "posix":
        # The resource tracker, which frees this process's semaphores, must not warn after an interruption. Starting
        # it unblocks signals, so it starts before they are blocked for the workers.
        before = os.environ.get("PYTHONWARNINGS", "")
        os.environ["PYTHONWARNINGS"] = "ignore:resource_tracker"
        try:
            resource_tracker.ensure_running()
        finally:
            os.environ["PYTHONWARNINGS"] = before
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(n_jobs, mp_context=context, initializer=_end_with_the_parent)
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _submit(pool: ProcessPoolExecutor, name: str, results: Results) -> Future[Drawn]:
    """Submit a figure. A process that this starts never sees SIGINT: Ctrl-C is for the parent to handle."""
    if not hasattr(signal, "pthread_sigmask"):
        return pool.submit(draw, name, results)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return pool.submit(draw, name, results)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with_the_parent() -> None:
    """Exit when the parent has gone: a worker whose parent was killed would wait for work forever."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


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


def page(results: Results, tables: Sequence[Table], images: Mapping[str, bytes]) -> str:
    """Render the page with the tables of files and the images by name."""
    outcomes = evaluate(results)
    return render(
        "paper.html",
        "lstd.experiments.reproduce",
        title=TITLE,
        sections=SECTIONS,
        results=results,
        sweeps=list(results.sweeps.values()),
        ratios=[loop_ratio(timing) for key, timing in results.timings.items() if key[2] == "lstd_one_pass"],
        n_panels=len(protocol.PROBLEMS) * len(protocol.FEATURES),
        features=[protocol.FEATURE_NAMES[name] for name in protocol.FEATURES],
        names={problem: protocol.PROBLEM_NAMES[problem] for problem in results.problems},
        absent=[problem for problem in protocol.PROBLEMS if problem not in results.problems],
        facts=_facts(results.provenance),
        figure_of=protocol.FIGURE_OF,
        images=images,
        top=protocol.TOP,
        tables=tables,
        outcomes=outcomes,
        verdict=verdict_text(outcomes),
        observed=lowest_table(results),
        diverged=diverged_table(results),
        command=f"lstd reproduce {_problem_argument(results)}",
    )


def _problem_argument(results: Results) -> str:
    """Return the argument of `lstd reproduce` that gives these problems."""
    if len(results.problems) == 1:
        return results.problems[0]
    return "all"


def _facts(about: Row) -> dict[str, str]:
    """Return the entries of provenance.json that the page shows, as text."""
    # Without the report's own time, so that the same results give the same page.
    wall = {stage: seconds for stage, seconds in about["wall_seconds"].items() if stage != "report"}
    shown = {name: value for name, value in about.items() if name not in ("configuration", "files", "sessions")}
    shown["wall_seconds"] = wall
    facts = {name.replace("_", " "): _readable(value) for name, value in shown.items()}
    if about["sessions"] > 1:
        facts["sessions"] = f"{about['sessions']}; versions, processor and threads are those of the last"
    return {name: text for name, text in facts.items() if text}


def _readable(value: Any) -> str:
    """Return a value of provenance.json as text: entries by name, a list as its range, an unknown entry as a dash."""
    if isinstance(value, Mapping):
        entries = []
        for name, entry in value.items():
            text = str(entry)
            if entry is None:
                text = "–"
            entries.append(f"{name}: {text}")
        return ", ".join(entries)
    if isinstance(value, list):
        return " to ".join(map(str, value))
    return str(value)
