"""Sums over logged transitions from which a model in a file has the effective sample size of a policy's value.

With the dual weights g_t = w_t ωᵀz_t of :mod:`lstd.ope.policy_value`, Σ g_t = ωᵀ Σ w_t z_t and Σ g_t² = ωᵀ G ω with
G = Σ w_t² z_t z_tᵀ. Let z_t = d_t z_{t−1} + φ_t, with d_t = c_t λγ_t. Then

    z_t z_tᵀ = z_t φ_tᵀ + φ_t z_tᵀ − φ_t φ_tᵀ + d_t² z_{t−1} z_{t−1}ᵀ,
    G = S + Sᵀ − Σ e_t φ_t φ_tᵀ,   S = Σ e_t z_t φ_tᵀ,   e_t = w_t² + d_{t+1}² e_{t+1},
    Σ w_t z_t = Σ h_t φ_t,   h_t = w_t + d_{t+1} h_{t+1}.

So both are sums like those of a fit, with weights e_t and without successors.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, NamedTuple

import numpy as np

from lstd._kernels.traces import dense_traces
from lstd.errors import InvalidInputError
from lstd.ope.logged_rows import LoggedRows
from lstd.ope.pair_rows import pair_rows, summed_pairs
from lstd.types import Array


class DualSums(NamedTuple):
    """Sums over transitions; k features of pairs, the column of ones included."""

    first: Annotated[Array, "k"]  # Σ w_t z_t
    second: Annotated[Array, "k k"]  # Σ w_t² z_t z_tᵀ


def effective_size(total: float, squares: float) -> float:
    """Return the effective sample size of Kish (1965) from Σ g_t and Σ g_t²; weights of both signs count as one row."""
    return max(1.0, total**2 / squares) if squares else 0.0


@np.errstate(over="ignore", invalid="ignore")
def dual_sums(logged: LoggedRows, lmbda: float, intercept: bool) -> DualSums | None:
    """Sum logged transitions for dual weights; None if squares of traces overflow."""
    try:
        found = _summed(logged, lmbda, intercept)
    except InvalidInputError:  # of sums beyond 1e308
        return None
    return found if all(np.isfinite(sums).all() for sums in found) else None


def _summed(logged: LoggedRows, lmbda: float, intercept: bool) -> DualSums:
    nothing_after = replace(logged, successors=np.zeros_like(logged.successors))
    rows = pair_rows(nothing_after)
    w, d = rows.weight, lmbda * rows.trace_coefficient
    d[1:] *= np.where(rows.last[:-1], 0.0, rows.discount[:-1])
    d[0] = 0.0
    e, h = _backward(w**2, d**2), _backward(w, d)
    traced = summed_pairs(nothing_after, rows.changed(weight=e, y=np.ones((len(rows), 1))), lmbda, intercept, 0).total
    y = np.divide(h, e, out=np.zeros_like(h), where=e > 0.0)[:, np.newaxis]
    plain = summed_pairs(nothing_after, rows.changed(weight=e, y=y), 0.0, intercept, 0).total
    S, squares = traced.A.copy(), plain.A.copy()
    if intercept:  # whose column of successors is not zero
        S[:, -1], squares[:, -1], squares[-1, -1] = traced.b[:, 0], squares[-1], e.sum()
    return DualSums(plain.b[:, 0].copy(), S + S.T - squares)


def _backward(own: Array, decay: Array) -> Array:
    """Return f_t = own_t + decay_{t+1} f_{t+1}, (N,)."""
    T, ones = len(own), np.ones(len(own))
    f, u, z = np.empty((T, 1)), np.zeros(1), np.zeros(1)
    dense_traces(
        own[::-1, np.newaxis].copy(), np.zeros((T, 1)), decay[::-1].copy(), ones, ones, ones, np.zeros(T, np.bool_),
        0.0, 1.0, u, z, f, np.zeros((1, 1)),
    )  # fmt: skip
    return f[::-1, 0].copy()
