"""Every figure, every table and the page of a results folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from lstd.experiments.report.figures import figure2, sensitivity
from lstd.experiments.report.names import FIGURE_OF
from lstd.experiments.report.page import write_report
from lstd.experiments.report.results import Results, load
from lstd.experiments.report.tables import all_tables, write_table
from lstd.experiments.report.theory_figures import THEORY_FIGURES
from lstd.report.style import figure_style, save

Progress = Callable[[int, int, str], None]


def write_all(folder: str | os.PathLike[str], progress: Progress | None = None) -> list[Path]:
    """Draw every figure, write every table and the page of a results folder.

    Parameters
    ----------
    folder : path
        A folder with results.parquet and, where they were made, timings.json, theory.json and
        provenance.json.
    progress : callable, optional
        Called as ``progress(done, total, label)`` after each figure, each table and the page; `label` is its
        name.

    Returns
    -------
    list of Path
        The files written: ``figures/*.{svg,pdf,png}``, ``tables/*.{csv,md,tex}`` and ``report.html``. What
        the results do not cover is left out, and the page says so.

    Raises
    ------
    OutputError
        If the results cannot be read or a file cannot be written.

    Examples
    --------
    >>> paths = write_all("lstd-results")  # doctest: +SKIP
    """
    root = Path(folder)
    results = load(root)
    steps: list[tuple[str, Callable[[], list[Path]]]] = []
    for name, draw in _figures(results).items():
        steps.append((name, partial(_write_figure, draw, root / "figures", name)))
    for name, table in all_tables(results).items():
        steps.append((name, partial(write_table, table, root / "tables")))
    steps.append(("report.html", lambda: [write_report(root, results)]))
    paths: list[Path] = []
    for done, (name, step) in enumerate(steps, start=1):
        paths += step()
        if progress is not None:
            progress(done, len(steps), name)
    return paths


def _figures(results: Results) -> dict[str, Callable[[], Figure]]:
    """Name -> function that draws it, for every figure that the results cover."""
    figures: dict[str, Callable[[], Figure]] = {"figure2": partial(figure2, results)}
    for problem, name in FIGURE_OF.items():
        if problem in results.problems:
            figures[name] = partial(sensitivity, results, problem)
    for name, draw in THEORY_FIGURES.items():
        if results.theory.get(name):
            figures[name] = partial(draw, results.theory[name])
    return figures


def _write_figure(draw: Callable[[], Figure], folder: Path, name: str) -> list[Path]:
    with figure_style():
        return save(draw(), folder, name)
