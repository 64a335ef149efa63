"""Effective sample size of rows with importance ratios: how many runs of rows the products of ratios leave.

The trace of a feature that is always one, e_t = ρ_t (1 + λγ_t e_{t−1}), is the weight of row t in the sums. Rows that
share most of a trace count as one run: a whole episode if λγ = 1, else at most 1/(1 − λγ) consecutive rows of it. With
W_k the sum of e_t over run k, the effective sample size is (Σ W_k)² / Σ W_k² (Kish 1965).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lstd.data.returns import run_backwards
from lstd.data.rows import Rows
from lstd.errors import EffectiveSampleWarning, warn

FEW = 10.0  # runs below which there is a warning


def effective_sample(rows: Rows, lmbda: float) -> float:
    """Compute the effective number of runs of rows; NaN if all weights are zero, or products overflow."""
    first = np.append(True, rows.last[:-1])
    begin = np.maximum.accumulate(np.where(first, np.arange(len(rows)), 0))
    reach = np.append(0.0, (lmbda * rows.ratios * rows.discount)[:-1])
    ones = np.ones((len(rows), 1))
    traces = rows.ratios * run_backwards(ones, reach[::-1], first[::-1])[::-1, 0]
    decay = lmbda * rows.gamma
    length = len(rows) if decay == 1.0 else int(np.ceil(1.0 / (1.0 - decay)))
    number = np.cumsum(first | ((np.arange(len(rows)) - begin) % length == 0)) - 1
    weights = np.bincount(number[rows.full], traces[rows.full], minlength=1)
    return float(weights.sum() ** 2 / (weights**2).sum())


@np.errstate(all="ignore")
def warn_of_ratios(rows: Rows, lmbda: float) -> None:
    """Give an EffectiveSampleWarning if the importance ratios leave few of many runs of rows."""
    if lmbda == 0.0 or (rows.ratios == 1.0).all():
        return
    size, without = (effective_sample(one, lmbda) for one in (rows, replace(rows, ratios=np.ones(len(rows)))))
    if size < FEW <= without:
        warn(
            f"The importance ratios leave an effective sample of {size:.2g} runs of rows, of {without:.0f} without "
            f"them: at `lmbda` {lmbda:g}, a few products of ratios decide the weights. Use a smaller `lmbda`.",
            EffectiveSampleWarning,
        )
