"""What the panels of Figures 2 to 5 show, for the figures and their captions."""

from __future__ import annotations

import numpy as np

from lstd.experiments.report.results import Results, Sweep

FIGURE2_ALGORITHMS = ("uncorrected", "mixed", "boyan", "true_online_td")
SENSITIVITY_ROWS = ("mixed", "uncorrected", "boyan")
# Predicting zero everywhere has a normalised error of exactly 1, so most of what matters lies below;
# an estimator that blows up reaches 1e6 and would flatten everything else.
TOP = 2.5


def sensitivity_limits(results: Results, problem: str, features: str) -> tuple[float, float]:
    """Vertical limits shared by the three variants: from their lowest mean error up to at most `TOP`."""
    means = [results.sweeps[problem, features, algorithm].mean.ravel() for algorithm in SENSITIVITY_ROWS]
    values = np.concatenate(means)
    values = values[np.isfinite(values) & (values > 0)]
    if not len(values):
        return 0.5, TOP
    top = min(TOP, 1.04 * values.max())
    return min(values.min() * 0.94, 0.5 * top), max(top, 1.06)


def points_above(sweep: Sweep, top: float) -> int:
    """Count the (λ, α) whose mean error is above `top` or infinite."""
    return int((sweep.mean > top).sum())
