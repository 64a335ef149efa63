"""The paper's experiments as data: problems, grids, seeds, the paper's own seconds, and the plan of a whole run.

Source: Osogami (2020), supplement, "Details of experiments"; van Seijen et al. (2016) for the step sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lstd.data import settings
from lstd.data.arguments import check_choice, check_integer
from lstd.version import __version__


@dataclass(frozen=True)
class Problem:
    """A random Markov reward process (k, b, σ) of the paper and the length of its runs."""

    n_states: int
    branching: int
    reward_std: float
    n_steps: int


PROBLEMS = {
    "small": Problem(10, 3, 0.1, n_steps=100),
    "large": Problem(100, 10, 0.1, n_steps=1000),
    "deterministic": Problem(100, 3, 0.0, n_steps=1000),
}
FEATURES = ("tabular", "binary", "normal")
LSTD_VARIANTS = ("boyan", "uncorrected", "mixed")  # of the paper, in the order of the rows of the kernels
TD_ALGORITHMS = ("true_online_td", "td", "td_replacing")
ALGORITHMS = LSTD_VARIANTS + TD_ALGORITHMS
# The algorithms of the paper that are computed together: the LSTD(λ) variants share one recursion.
GROUPS = {"lstd": LSTD_VARIANTS, "true_online_td": ("true_online_td",)}

GAMMA = settings.GAMMA
MRP_SEED = 1000
N_RUNS = 50
LMBDAS = settings.LMBDAS
ALPHAS = np.exp2(np.arange(-8, 9), dtype=np.float64)
STEP_SIZES: NDArray[np.float64] = np.r_[10.0 ** np.linspace(-3.0, -1.2, 10), np.arange(1, 21) / 10]
ALPHAS_OF = {"lstd": ALPHAS, "true_online_td": STEP_SIZES}

# Tables 1-3 of the supplement: (mean, spread) of the seconds per run of 340 pairs (λ, α), in the order of
# PAPER_TIMED; those of true online TD(λ) were measured over 600 pairs and multiplied by 340/600.
PAPER_TIMED = ("boyan", "uncorrected", "mixed", "true_online_td")
PAPER_SECONDS = {
    ("small", "tabular"): ((1.10, 0.01), (1.24, 0.01), (1.49, 0.01), (1.21, 0.01)),
    ("small", "binary"): ((1.54, 0.01), (1.72, 0.03), (2.11, 0.03), (1.87, 0.03)),
    ("small", "normal"): ((1.54, 0.03), (1.73, 0.01), (2.13, 0.02), (1.88, 0.01)),
    ("large", "tabular"): ((27.1, 0.6), (29.5, 0.4), (44.7, 1.0), (21.3, 0.2)),
    ("large", "binary"): ((15.8, 0.1), (17.7, 0.1), (22.1, 0.4), (19.8, 0.2)),
    ("large", "normal"): ((15.7, 0.3), (17.3, 0.1), (21.9, 0.3), (19.8, 0.3)),
    ("deterministic", "tabular"): ((26.6, 0.3), (28.6, 0.3), (43.6, 0.6), (19.9, 0.2)),
    ("deterministic", "binary"): ((14.8, 0.2), (16.2, 0.1), (21.4, 0.3), (18.4, 0.4)),
    ("deterministic", "normal"): ((14.5, 0.2), (16.3, 0.1), (21.0, 0.2), (18.7, 0.2)),
}

# What things are called in figures, tables and pages.
SHORT_NAMES = {
    "boyan": "Boyan's",
    "uncorrected": "Uncorrected",
    "mixed": "Mixed",
    "true_online_td": "true online TD(λ)",
    "lstd_one_pass": "three LSTDs in one pass",
}
ALGORITHM_NAMES = {name: f"{SHORT_NAMES[name]} LSTD(λ)" for name in LSTD_VARIANTS} | {
    "true_online_td": "true online TD(λ)"
}
# The paper writes "non-binary" for what the code of van Seijen et al. calls "normal".
FEATURE_NAMES = {"tabular": "tabular", "binary": "binary", "normal": "non-binary"}
FIGURE_OF = {"small": "figure3", "large": "figure4", "deterministic": "figure5"}
TABLE_OF = {"small": "table1", "large": "table2", "deterministic": "table3"}
PROBLEM_NAMES = {
    name: f"{name} MRP ({problem.n_states}, {problem.branching}, {problem.reward_std:g})"
    for name, problem in PROBLEMS.items()
}
FIGURE2_ALGORITHMS = ("uncorrected", "mixed", "boyan", "true_online_td")
SENSITIVITY_ROWS = ("mixed", "uncorrected", "boyan")
# Predicting zero everywhere has a normalised error of exactly 1, so most of what matters lies below;
# an estimator that blows up reaches 1e6 and would flatten everything else.
TOP = 2.5

MAX_RUNS = 100_000
# Seconds per run, measured on one core of a current processor, for the time left and the number of runs to time.
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
    def name(self) -> str:
        """Name in the results folder."""
        return f"{self.problem}-{self.features}-{self.group}"

    def seconds(self, n_jobs: int) -> float:
        """Estimate the duration on `n_jobs` threads."""
        return RUN_SECONDS[self.group, self.features][self.problem] * self.runs / min(n_jobs, self.runs)

    def __str__(self) -> str:
        algorithms = "true online TD(λ)"
        if self.group == "lstd":
            algorithms = "three LSTD(λ)"
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
    problems: tuple[str, ...] = (problem,)
    if problem == "all":
        problems = tuple(PROBLEMS)
    cells = tuple(Cell(*names, runs) for names in product(problems, FEATURES, GROUPS))
    grids = {}
    for group in GROUPS:
        grids[group] = {"lmbdas": LMBDAS.tolist(), "alphas": ALPHAS_OF[group].tolist()}
    configuration = {
        "lstd": __version__,
        "problems": list(problems),
        "features": list(FEATURES),
        "runs": runs,
        "first_run_seed": 1,
        "mrp_seed": MRP_SEED,
        "gamma": GAMMA,
        "grids": grids,
    }
    return Plan(problems, runs, cells, configuration)
