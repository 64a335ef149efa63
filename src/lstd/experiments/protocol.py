"""The paper's experiments as data: problems, grids, seeds, and the paper's own seconds.

Source: Osogami (2020), supplement, "Details of experiments"; van Seijen et al. (2016) for the step sizes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lstd.data import settings


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
LSTD_VARIANTS = settings.VARIANTS
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
