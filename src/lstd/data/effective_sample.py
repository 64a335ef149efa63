"""Effective sample size of rows with importance ratios or weights: how many runs of rows they leave.

Row t counts w_t e_t in the sums, with its weight w_t and the trace e_t = ρ_t (1 + c_t λγ_t e_{t−1}) of a feature that
is always one. Rows that share most of a trace count as one run: a whole episode if λγ = 1, else at most 1/(1 − λγ)
consecutive rows of it. With W_k the sum of w_t e_t over run k, the effective sample size is (Σ W_k)² / Σ W_k² (Kish
1965).
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
    reach *= 1.0 if rows.coefficients is None else rows.coefficients
    ones = np.ones((len(rows), 1))
    traces = rows.ratios * run_backwards(ones, reach[::-1], first[::-1])[::-1, 0]
    traces *= 1.0 if rows.weights is None else rows.weights
    decay = lmbda * rows.gamma
    length = len(rows) if decay == 1.0 else int(np.ceil(1.0 / (1.0 - decay)))
    number = np.cumsum(first | ((np.arange(len(rows)) - begin) % length == 0)) - 1
    weights = np.bincount(number[rows.full], traces[rows.full], minlength=1)
    return float(weights.sum() ** 2 / (weights**2).sum())


@np.errstate(all="ignore")
def warn_of_ratios(rows: Rows, lmbda: float) -> None:
    """Give an EffectiveSampleWarning if the importance ratios or the weights leave few of many runs of rows."""
    plain = replace(rows, ratios=np.ones(len(rows)), weights=None)
    if lmbda > 0.0 and not (rows.ratios == 1.0).all():
        why = f"at `lmbda` {lmbda:g}, a few products of ratios decide the solution. Use a smaller `lmbda`"
        _warn_if_few("importance ratios", replace(rows, weights=None), plain, lmbda, why)
    if rows.weights is not None:
        why = "a few rows decide the solution. Limit `weight` to a few times its mean, or fit more data"
        _warn_if_few("weights", replace(plain, weights=rows.weights), plain, lmbda, why)


def _warn_if_few(what: str, rows: Rows, plain: Rows, lmbda: float, why: str) -> None:
    size, without = effective_sample(rows, lmbda), effective_sample(plain, lmbda)
    if size < FEW <= without:
        warn(
            f"The {what} leave an effective sample of {size:.2g} runs of rows, of {without:.0f} without them: {why}.",
            EffectiveSampleWarning,
        )
