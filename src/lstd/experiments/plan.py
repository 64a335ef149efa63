"""What the paper's experiments consist of, what a results folder has of it, and how long the rest takes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lstd.data.checks import check_choice, check_integer
from lstd.experiments.folder import GROUPS, STAGE_FILES, check_folder, check_usable
from lstd.experiments.protocol import (
    ALPHAS,
    FEATURES,
    GAMMA,
    LMBDAS,
    MRP_SEED,
    N_RUNS,
    PROBLEMS,
    STEP_SIZES,
)
from lstd.experiments.store import Cell, CorruptCellError, read_cell, read_document
from lstd.statistics.threads import available_cores

RUNS_PER_CELL = 50
MAX_RUNS = 100_000
# Seconds on one core of a current processor, per run (three LSTD(λ) in one pass, true online TD(λ)) and per
# stage: only estimates of the time left are made from these.
RUN_SECONDS = {
    "tabular": {"small": (0.0011, 0.0008), "large": (0.13, 0.018), "deterministic": (0.095, 0.016)},
    "binary": {"small": (0.0007, 0.0007), "large": (0.0067, 0.0093), "deterministic": (0.0062, 0.0088)},
    "normal": {"small": (0.0008, 0.0014), "large": (0.0056, 0.0115), "deterministic": (0.0052, 0.0113)},
}
STAGE_SECONDS = {"timings": 1.3, "theory": 1.5, "table": 0.01, "report": 5.5}


@dataclass(frozen=True)
class Plan:
    """What is to be computed.

    Attributes
    ----------
    problems : tuple of str
    runs : int
        Number of runs; their seeds are 1, 2, …
    cells : tuple of Cell
        The units of work, in order.
    configuration : dict
        What a results folder belongs to, as plain JSON values.
    """

    problems: tuple[str, ...]
    runs: int
    cells: tuple[Cell, ...]
    configuration: Mapping[str, Any]


@dataclass(frozen=True)
class Survey:
    """What a results folder has of a plan, and an estimate of the rest.

    Attributes
    ----------
    cells : tuple of (Cell, str)
        Each cell with "stored", "damaged" or "missing".
    stages : dict of str -> bool
        Whether the files of the stages after the sweep are there.
    seconds : float
        Estimated time of what is left, kernels compiled.
    """

    cells: tuple[tuple[Cell, str], ...]
    stages: Mapping[str, bool]
    seconds: float


def make_plan(problem: str = "all", runs: int = N_RUNS) -> Plan:
    """Plan the experiments of one problem or of all.

    Parameters
    ----------
    problem : {"small", "large", "deterministic", "all"}
    runs : int
        Number of runs.

    Raises
    ------
    InvalidInputError
        If the name is unknown, or `runs` is not between 1 and 100000.

    Examples
    --------
    >>> len(make_plan("small").cells)
    6
    """
    check_choice("problem", problem, (*PROBLEMS, "all"))
    runs = check_integer("runs", runs, 1, MAX_RUNS)
    problems = tuple(PROBLEMS) if problem == "all" else (problem,)
    cells = tuple(
        Cell(name, features, group, first, min(first + RUNS_PER_CELL - 1, runs))
        for name in problems
        for features in FEATURES
        for group in GROUPS
        for first in range(1, runs + 1, RUNS_PER_CELL)
    )
    return Plan(problems, runs, cells, _configuration(problems, runs))


def _configuration(problems: tuple[str, ...], runs: int) -> dict[str, Any]:
    import lstd

    alphas = {"lstd": ALPHAS, "true_online_td": STEP_SIZES}
    grids = {group: {"lmbdas": LMBDAS.tolist(), "alphas": np.asarray(alphas[group]).tolist()} for group in GROUPS}
    return {
        "lstd": lstd.__version__,
        "problems": list(problems),
        "features": list(FEATURES),
        "runs": runs,
        "first_run_seed": 1,
        "mrp_seed": MRP_SEED,
        "gamma": GAMMA,
        "grids": grids,
    }


def survey(plan: Plan, out: str | os.PathLike[str], *, n_jobs: int | None = None, force: bool = False) -> Survey:
    """Look at what a folder has of a plan; nothing is written.

    Raises
    ------
    InvalidInputError
        If `out` cannot be a folder or written, or has files of other origin.
    ConfigurationMismatchError
        If it holds results of another configuration and `force` is false.
    """
    path = Path(out)
    check_usable(path)
    fresh = not check_folder(path, plan.configuration, force=force) or force
    cells = tuple((cell, "missing" if fresh else _state(path, cell, plan)) for cell in plan.cells)
    missing = [cell for cell, state in cells if state != "stored"]
    stages = {stage: not fresh and _is_there(path, name, plan) for stage, name in STAGE_FILES.items()}
    for stage in ("table", "report"):
        stages[stage] &= not missing
    seconds = sum(cell_seconds(cell, n_jobs) for cell in missing)
    seconds += sum(stage_seconds(stage, plan) for stage, there in stages.items() if not there)
    return Survey(cells, stages, seconds)


def _is_there(path: Path, name: str, plan: Plan) -> bool:
    if name.endswith(".json"):
        return read_document(path, name, plan.configuration) is not None
    return (path / name).exists()


def _state(path: Path, cell: Cell, plan: Plan) -> str:
    try:
        return "missing" if read_cell(path, cell, plan.configuration) is None else "stored"
    except CorruptCellError:
        return "damaged"


def cell_seconds(cell: Cell, n_jobs: int | None) -> float:
    """Estimated duration of a cell on so many threads (None: all cores)."""
    each = RUN_SECONDS[cell.features][cell.problem][list(GROUPS).index(cell.group)]
    runs = len(cell.run_seeds)
    return each * runs / min(n_jobs or available_cores(), runs)


def stage_seconds(stage: str, plan: Plan) -> float:
    """Estimated duration of a stage after the sweep."""
    repeated = {"timings": len(plan.problems) * len(FEATURES), "table": len(plan.cells)}
    return STAGE_SECONDS[stage] * repeated.get(stage, 1)
