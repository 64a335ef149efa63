"""The words of figures, tables and pages: display names, and what the panels of Figures 2 to 5 show."""

from __future__ import annotations

import numpy as np

from lstd.experiments.protocol import FEATURES, PROBLEMS
from lstd.experiments.reproduce.results import Results, Sweep
from lstd.report.formatting import VARIANT_NAMES, compact

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
FIGURE2_ALGORITHMS = ("uncorrected", "mixed", "boyan", "true_online_td")
SENSITIVITY_ROWS = ("mixed", "uncorrected", "boyan")
# Predicting zero everywhere has a normalised error of exactly 1, so most of what matters lies below;
# an estimator that blows up reaches 1e6 and would flatten everything else.
TOP = 2.5


def sensitivity_limits(results: Results, problem: str, features: str) -> tuple[float, float]:
    """Vertical limits shared by the three variants: from their lowest mean error up to at most `TOP`."""
    values = np.array([results.sweeps[problem, features, algorithm].mean for algorithm in SENSITIVITY_ROWS])
    values = values[np.isfinite(values) & (values > 0)]
    if not len(values):
        return 0.5, TOP
    top = min(TOP, 1.04 * values.max())
    return min(values.min() * 0.94, 0.5 * top), max(top, 1.06)


def points_above(sweep: Sweep, top: float) -> int:
    """Count the (λ, α) whose mean error is above `top` or infinite."""
    return int((sweep.mean > top).sum())


def above_text(results: Results, problem: str) -> str:
    """Say how many points of Figure 3, 4 or 5 lie above the axes."""
    parts = []
    for features in FEATURES:
        _, top = sensitivity_limits(results, problem, features)
        for algorithm in SENSITIVITY_ROWS:
            sweep = results.sweeps[problem, features, algorithm]
            if above := points_above(sweep, top):
                largest = sweep.mean.max()
                size = f"up to {compact(largest)}" if np.isfinite(largest) else "some infinite"
                names = f"{SHORT_NAMES[algorithm]}, {FEATURE_NAMES[features]}"
                parts.append(f"{names}: {above} of {sweep.mean.size} ({size})")
    return f"Points (λ, α) above the axis, not shown: {'; '.join(parts)}." if parts else "No point lies above the axes."


def lowest_text(results: Results, problem: str, features: str) -> str:
    """State the lowest error of each algorithm in a panel of Figure 2."""
    parts = []
    for algorithm in FIGURE2_ALGORITHMS:
        sweep = results.sweeps[problem, features, algorithm]
        if sweep.best is not None:
            i, j = sweep.best
            parts.append(f"{SHORT_NAMES[algorithm]} {sweep.mean[i, j]:.3f} at λ = {sweep.lmbdas[i]:g}")
    return f"{problem}, {FEATURE_NAMES[features]}: lowest {', '.join(parts)}"
