"""What each block of the data contributes to the error of the value of a policy.

With φ̄₀ = Σ_i w_i φ̄(s_i) over initial states, Σ w_i = 1, the value is v = φ̄₀ᵀθ = Σ_i w_i v_i. Both factors vary over
data sets. If state i began an episode of block e, the block contributes

    c_e = φ̄₀ᵀq_e + Σ_{i∈e} w_i (v_i − v) / √(1 − W_e),   W_e = Σ_{i∈e} w_i,   se² = Σ_e c_e²,

with the influence q_e of the block on the weights (:mod:`lstd.statistics.intervals`): the change of v without block e,
to first order. If the initial states are another sample, their variance Σ w_i² (v_i − v)² is added instead. Any mean of
numbers v_i of episodes with the derivative φ̄₀ by θ has such contributions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstd.errors import InvalidInputError
from lstd.estimators.model import Model
from lstd.ope.logged_rows import LoggedRows
from lstd.ope.tied_returns import Bounds, TiedReturns, tied_returns
from lstd.types import Array

SAMPLES = ("auto", "episodes", "independent", "fixed")


@dataclass(frozen=True, eq=False)
class ValueByBlocks:
    """The value of a policy and what each block of the data contributes to its error."""

    value: float
    blocks: Array  # (E,) c_e
    states: Array  # (m,) those of initial states that are another sample; empty otherwise
    shift: float
    sample: str
    phi: Array  # (k,) φ̄₀
    fitted: Model
    log: LoggedRows | None = None  # the transitions, if they are known
    dual: Array | None = None  # (N,) weights g_t of rewards, or of the errors of action values
    unlogged: float | None = None  # share of the policy's actions without data, of an LSTDQ
    tied: TiedReturns | None = None  # if returns of the log are tied
    bounds: Bounds | None = None  # of the return, if they were given
    beside: ValueByBlocks | None = None  # the interval holds that of this one, too

    def with_ties(self, bounds: Bounds | None = None, log: LoggedRows | None = None) -> ValueByBlocks:
        """Return the value with bounds of the return and what tied returns of the log may hide.

        `log` are its transitions, if they are not known here.
        """
        if log is None:
            log = self.log
        if log is None:
            return replace(self, bounds=bounds)
        beside = self.beside
        if beside is not None:
            beside = beside.with_ties(bounds, log)
        tied = tied_returns(log, self.value, self.dual, bounds)
        return replace(self, tied=tied, bounds=bounds, beside=beside)


def combined(
    fitted: Model,
    mean: Array,
    values: Array,
    share: Array,
    sample: str = "episodes",
    *,
    ones: float = 1.0,
    **known: Any,
) -> ValueByBlocks:
    """Return what each block contributes to the error of a weighted mean of values of initial states.

    `mean` (k,) and `ones` are the derivative of the mean by the weights of `fitted`; `known` are further fields.
    """
    value = float(share @ values)
    [(_, u, shift)] = fitted.influence.along(mean[np.newaxis], ones)
    sample, blocks = _blocks_of(fitted, len(values), sample)
    contributed = u[0, :, 0].copy()
    of_states = np.empty(0)
    if blocks is not None:
        within = np.bincount(blocks, share, len(contributed))
        scatter = np.bincount(blocks, share * (values - value), len(contributed))
        contributed += scatter / np.sqrt(np.maximum(1.0 - within, 1e-12))
    elif sample == "independent":
        of_states = share * (values - value) * np.sqrt(len(values) / max(1, len(values) - 1))
    return ValueByBlocks(value, contributed, of_states, float(shift[0, 0]), sample, mean, fitted, **known)


def least_variance_mean(one: ValueByBlocks, two: ValueByBlocks) -> ValueByBlocks:
    """Return the mean of two values, with weights in [0, 1], that has the least variance.

    With contributions c and d of blocks, (1 − a) c + a d is shortest at a = c·(c − d) / |c − d|²: generalised least
    squares, from the covariance of both.
    """
    apart = one.blocks - two.blocks
    square = float(apart @ apart)
    a = 0.0
    if square:
        a = float(np.clip(one.blocks @ apart / square, 0.0, 1.0))
    dual = None
    if one.dual is not None and two.dual is not None:
        dual = (1.0 - a) * one.dual + a * two.dual
    return replace(
        one,
        value=(1.0 - a) * one.value + a * two.value,
        blocks=(1.0 - a) * one.blocks + a * two.blocks,
        shift=(1.0 - a) * one.shift + a * two.shift,
        dual=dual,
    )


def dual_solution(fitted: Model, phi: Array) -> tuple[Array, float]:
    """Solve (A + αI)ᵀ ω = φ̄₀; return ω of the features, (k,), and of the column of ones, 0 without it."""
    if not fitted.settings.fit_intercept:
        omega = fitted.system.solve_transposed(phi[:, np.newaxis]).weights[:, 0]
        return omega, 0.0
    with_ones = np.append(phi, 1.0)
    omega = fitted.system.solve_transposed(with_ones[:, np.newaxis]).weights[:, 0]
    return omega[:-1], float(omega[-1])


def effective_size(weights: Array) -> float:
    """Return (Σ g)² / Σ g² of weights of both signs, at least 1; 0 if all are zero."""
    squares = float(weights @ weights)
    if not squares:
        return 0.0
    return max(1.0, float(weights.sum()) ** 2 / squares)


def _blocks_of(fitted: Model, m: int, sample: str) -> tuple[str, NDArray[np.intp] | None]:
    """Return how initial states count, and the block of each, (m,), if they began the episodes of the data."""
    until = np.cumsum(fitted.influence.marks[:, 2].astype(np.intp))
    if sample == "auto":
        sample = "independent"
        if m == 1:
            sample = "fixed"
        elif m == until[-1]:
            sample = "episodes"
    if sample != "episodes":
        return sample, None
    if m != until[-1]:
        raise InvalidInputError(
            f'With sample="episodes", `initial_states` must have one row for each of the {until[-1]} episodes of the '
            f'fit; got {m}. Use sample="independent", or "fixed".'
        )
    return sample, np.searchsorted(until, np.arange(m), side="right")
