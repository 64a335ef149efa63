"""The work of `lstd reproduce` as data: what is computed, for which configuration, and about how long it takes."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any, NamedTuple

from lstd.data.arguments import check_choice, check_integer
from lstd.experiments.protocol import ALPHAS_OF, FEATURES, GAMMA, GROUPS, LMBDAS, MRP_SEED, N_RUNS, PROBLEMS
from lstd.version import __version__

MAX_RUNS = 100_000
# Seconds per run, measured on one core of a current processor; used only to estimate the time left.
RUN_SECONDS = {
    ("lstd", "tabular"): {"small": 0.0011, "large": 0.13, "deterministic": 0.095},
    ("lstd", "binary"): {"small": 0.0007, "large": 0.0067, "deterministic": 0.0062},
    ("lstd", "normal"): {"small": 0.0008, "large": 0.0056, "deterministic": 0.0052},
    ("true_online_td", "tabular"): {"small": 0.0008, "large": 0.018, "deterministic": 0.016},
    ("true_online_td", "binary"): {"small": 0.0007, "large": 0.0093, "deterministic": 0.0088},
    ("true_online_td", "normal"): {"small": 0.0014, "large": 0.0115, "deterministic": 0.0113},
}


class Cell(NamedTuple):
    """The unit of work that is stored: all runs of one problem, its features and a group of algorithms.

    >>> Cell("small", "tabular", "lstd", runs=50).algorithms
    ('boyan', 'uncorrected', 'mixed')
    """

    problem: str
    features: str
    group: str  # "lstd", whose variants share one pass, or "true_online_td"
    runs: int

    @property
    def algorithms(self) -> tuple[str, ...]:
        """Names of the arrays in the cell."""
        return GROUPS[self.group]

    @property
    def filename(self) -> str:
        """Path in the results folder."""
        return f"cells/{self.problem}-{self.features}-{self.group}.npz"

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of each array: runs, λs, αs."""
        return self.runs, len(LMBDAS), len(ALPHAS_OF[self.group])

    def seconds(self, n_jobs: int) -> float:
        """Estimate the duration on `n_jobs` threads."""
        return RUN_SECONDS[self.group, self.features][self.problem] * self.runs / min(n_jobs, self.runs)

    def __str__(self) -> str:
        algorithms = "three LSTD(λ)" if self.group == "lstd" else "true online TD(λ)"
        return f"{self.problem} {self.features}, {algorithms}, runs 1 to {self.runs}"


class Plan(NamedTuple):
    """What is computed. Results of different configurations are never mixed."""

    problems: tuple[str, ...]
    runs: int  # their seeds are 1, 2, …
    cells: tuple[Cell, ...]
    configuration: Mapping[str, Any]  # everything that the results depend on, as JSON values


def make_plan(problem: str = "all", runs: int = N_RUNS) -> Plan:
    """Plan `runs` runs of one problem, or of "all".

    Raises InvalidInputError if the name is unknown, or `runs` is not between 1 and 100000.

    >>> len(make_plan("small").cells)
    6
    """
    check_choice("problem", problem, (*PROBLEMS, "all"))
    runs = check_integer("runs", runs, 1, MAX_RUNS)
    problems = tuple(PROBLEMS) if problem == "all" else (problem,)
    cells = tuple(Cell(*names, runs) for names in product(problems, FEATURES, GROUPS))
    configuration = {
        "lstd": __version__,
        "problems": list(problems),
        "features": list(FEATURES),
        "runs": runs,
        "first_run_seed": 1,
        "mrp_seed": MRP_SEED,
        "gamma": GAMMA,
        "grids": {group: {"lmbdas": LMBDAS.tolist(), "alphas": ALPHAS_OF[group].tolist()} for group in GROUPS},
    }
    return Plan(problems, runs, cells, configuration)
