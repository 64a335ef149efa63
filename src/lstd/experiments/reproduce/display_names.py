"""The words used in figures, tables and pages for the names used in the code."""

from __future__ import annotations

from lstd.experiments.protocol import PROBLEMS
from lstd.report.formatting import VARIANT_NAMES

ALGORITHM_NAMES = {**VARIANT_NAMES, "true_online_td": "true online TD(λ)"}
SHORT_NAMES = {
    "boyan": "Boyan's",
    "uncorrected": "Uncorrected",
    "mixed": "Mixed",
    "true_online_td": "true online TD(λ)",
    "lstd_one_pass": "three LSTDs in one pass",
}
# The paper writes "non-binary" for what the code of van Seijen et al. calls "normal".
FEATURE_NAMES = {"tabular": "tabular", "binary": "binary", "normal": "non-binary"}
FIGURE_OF = {"small": "figure3", "large": "figure4", "deterministic": "figure5"}
TABLE_OF = {"small": "table1", "large": "table2", "deterministic": "table3"}
PROBLEM_NAMES = {
    name: f"{name} MRP ({problem.n_states}, {problem.branching}, {problem.reward_std:g})"
    for name, problem in PROBLEMS.items()
}
