"""The words used in figures, tables and pages for the names used in the code."""

from __future__ import annotations

from lstd.experiments.protocol import PROBLEMS
from lstd.report.numbers import VARIANT_NAMES

ALGORITHM_NAMES = {
    **VARIANT_NAMES,
    "true_online_td": "true online TD(λ)",
    "td": "TD(λ), accumulating traces",
    "td_replacing": "TD(λ), replacing traces",
    "lstd_one_pass": "three LSTD(λ)s in one pass",
}
SHORT_NAMES = {
    "boyan": "Boyan's",
    "uncorrected": "Uncorrected",
    "mixed": "Mixed",
    "true_online_td": "true online TD(λ)",
    "td": "TD(λ)",
    "td_replacing": "replacing TD(λ)",
    "lstd_one_pass": "three LSTDs in one pass",
}
# The paper writes "non-binary" for what the code of van Seijen et al. calls "normal".
FEATURE_NAMES = {"tabular": "tabular", "binary": "binary", "normal": "non-binary"}
FIGURE_OF = {"small": "figure3", "large": "figure4", "deterministic": "figure5"}
TABLE_OF = {"small": "table1", "large": "table2", "deterministic": "table3"}


def algorithm_name(algorithm: str) -> str:
    """``"boyan"`` -> ``"Boyan's LSTD(λ)"``; an unknown name stays as it is."""
    return ALGORITHM_NAMES.get(algorithm, algorithm)


def short_name(algorithm: str) -> str:
    """``"boyan"`` -> ``"Boyan's"``; an unknown name stays as it is."""
    return SHORT_NAMES.get(algorithm, algorithm)


def feature_name(features: str) -> str:
    """``"normal"`` -> ``"non-binary"``; an unknown name stays as it is."""
    return FEATURE_NAMES.get(features, features)


def problem_name(problem: str) -> str:
    """``"small"`` -> ``"small MRP (10, 3, 0.1)"``; an unknown name stays as it is."""
    found = PROBLEMS.get(problem)
    if found is None:
        return problem
    return f"{problem} MRP ({found.n_states}, {found.branching}, {found.reward_std:g})"


def number_of(name: str) -> str:
    """``"figure2"`` -> ``"Figure 2"``, ``"table1"`` -> ``"Table 1"``."""
    return f"{name[:-1].capitalize()} {name[-1]}"
