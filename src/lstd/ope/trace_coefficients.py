"""Trace coefficients of logged transitions: how far the trace goes on after each action.

With π_t = π(a_t|s_t) of the target policy and μ_t = μ(a_t|s_t) of the policy that logged the data,

    Retrace  min(1, π_t/μ_t)       tree backup  π_t       importance sampling  π_t/μ_t       none  0

(Retrace: Munos et al. 2016). The variance of importance sampling has no bound.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lstd.errors import InvalidInputError

Array = NDArray[np.float64]

TRACES = ("retrace", "tree_backup", "importance", "none")


def trace_coefficients(trace: str, lmbda: float, target: Array, logged: Array | None) -> Array:
    """Compute coefficients of transitions, (N,), from the probabilities of their actions, unless `trace` is none."""
    if trace == "tree_backup":
        return target
    if logged is None:
        raise InvalidInputError(
            f"`behavior_probability` must be given for trace={trace!r} with lmbda={lmbda:g}: the probability with "
            'which each action was taken. Without it, use trace="tree_backup" or lmbda=0.'
        )
    ratio = target / logged
    return np.minimum(1.0, ratio) if trace == "retrace" else ratio
