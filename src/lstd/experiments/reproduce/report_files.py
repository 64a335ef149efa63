"""All files of a report. Figures are drawn in other processes, as Matplotlib uses one core only."""

from __future__ import annotations

import io
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import connection, resource_tracker

from lstd.experiments.reproduce.paper_page import page
from lstd.experiments.reproduce.paper_tables import best_table, table_files, timing_table
from lstd.experiments.reproduce.results import Results, Row, write_table
from lstd.experiments.reproduce.wording import FIGURE_OF

THEORY_FIGURES = ("proposition1", "theorem2")
Drawn = dict[str, bytes]  # suffix -> content


def compose(results: Results, theory: Callable[[], Row], n_jobs: int = 1) -> Iterator[tuple[str, bytes, int]]:
    """Compose every file of a report.

    Parameters
    ----------
    results : Results
        Without `theory`.
    theory : callable
        Returns the contents of theory.json; called while the first figures are drawn.
    n_jobs : int
        Processes that draw.

    Yields
    ------
    (str, bytes, int)
        Path in the results folder, content, and the number of files in all; the page comes last.
    """
    names = ["figure2", *(FIGURE_OF[problem] for problem in results.problems)]
    tables = [*(timing_table(results, problem) for problem in results.problems), best_table(results)]
    files = [file for table in tables for file in table_files(table)]
    n_files = len(files) + 3 * len([*names, *THEORY_FIGURES]) + 2
    with _drawing(min(n_jobs, len(names))) as pool:
        futures = {name: _submit(pool, name, results) for name in names}
        results = replace(results, theory=theory())
        futures |= {name: _submit(pool, name, replace(results, sweeps={})) for name in THEORY_FIGURES}
        buffer = io.BytesIO()
        write_table(buffer, results.sweeps)
        for name, content in [("results.parquet", buffer.getvalue()), *files]:
            yield name, content, n_files
        svgs = {}
        for name, future in futures.items():
            drawn = future.result()
            svgs[name] = drawn[".svg"]
            for suffix, content in drawn.items():
                yield f"figures/{name}{suffix}", content, n_files
    yield "report.html", page(results, tables, svgs).encode("utf-8", "backslashreplace"), n_files


def draw(name: str, results: Results) -> Drawn:
    """Draw one figure as .svg, .pdf and .png."""
    from lstd.experiments.reproduce.figures import figure2, proposition1, sensitivity, theorem2
    from lstd.report.style import figure_style, rendered

    with figure_style():
        if name == "figure2":
            return rendered(figure2(results))
        if name in THEORY_FIGURES:
            return rendered({"proposition1": proposition1, "theorem2": theorem2}[name](results.theory[name]))
        problem = next(problem for problem, figure in FIGURE_OF.items() if figure == name)
        return rendered(sensitivity(results, problem))


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

    def watch() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
