"""The value of a policy over initial states, with its interval and what the data say about it.

With φ̄₀ = Σ_i w_i φ̄(s_i) over initial states, Σ w_i = 1, the value is v = φ̄₀ᵀθ = Σ_i w_i v_i. Both factors vary over
data sets. If state i began an episode of block e, the block contributes

    c_e = φ̄₀ᵀq_e + Σ_{i∈e} w_i (v_i − v) / √(1 − W_e),   W_e = Σ_{i∈e} w_i,   se² = Σ_e c_e²,

with the influence q_e of the block on the weights (:mod:`lstd.statistics.intervals`): the change of v without block e,
to first order. If the initial states are another sample, their variance Σ w_i² (v_i − v)² is added instead.

With the dual weights ω = (A + αI)⁻ᵀ φ̄₀, the value is Σ_t g_t r_{t+1}, g_t = w_t ωᵀz_t. The effective sample size is
that of Kish (1965), (Σ g_t)² / Σ g_t²: how many transitions of equal weight leave the same variance. It says nothing
about bias.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from lstd.data.arguments import check_choice, check_per_row
from lstd.data.feature_arrays import Features, dense
from lstd.errors import InvalidInputError
from lstd.estimators.base import Predictor
from lstd.estimators.model import Model
from lstd.estimators.validate_data import checked_features
from lstd.ope.lstdq import LSTDQ
from lstd.statistics.intervals import FEW, check_level, degrees_of_freedom, half_width
from lstd.statistics.solve import check_range, solve, without_rounding
from lstd.types import Array

SAMPLES = ("auto", "episodes", "independent", "fixed")


@dataclass(frozen=True)
class PolicyValue:
    """The value of a policy, its interval, and how much data it rests on.

    Attributes
    ----------
    value, lower, upper, standard_error, degrees_of_freedom : float
    shift : float
        Bias by the ridge term, to first order, which widens the interval.
    little_data : bool
        Whether the interval has fewer than 5 degrees of freedom, or the data say nothing about an action that the
        policy takes in an initial state.
    level : float
    sample : str
        How the initial states count: "episodes", "independent" or "fixed".
    effective_sample_size : float or None
        Number of transitions of equal weight that would have the same variance; 1 if weights of opposite signs would
        make it smaller. For an LSTD, that of its importance ratios, or None without ratios; None for a loaded LSTDQ.
    unlogged_share : float or None
        Share of the policy's actions, over logged successors and initial states, about which the data say nothing: a
        feature of the pair is zero in all logged pairs. None for an LSTD.
    dual_weights : ndarray of shape (n_transitions,), or None
        Weight g_t of each transition, in the order of the fit, with `groups` sorted by them: the value is Σ g_t r_{t+1}
        at α = 0. None for an LSTD or a model from a file.

    Examples
    --------
    Without a target policy, the value is the mean return of the policy that logged the data:

    >>> import numpy as np
    >>> from lstd.ope import importance_sampling
    >>> found = importance_sampling(np.ones((100, 1)), np.arange(100) % 2, gamma=1.0, terminated=np.ones(100, bool))
    >>> round(found.value, 3), round(found.lower, 2), round(found.upper, 2), found.sample
    (0.5, 0.4, 0.6, 'independent')
    """

    value: float
    lower: float
    upper: float
    standard_error: float
    degrees_of_freedom: float
    shift: float
    little_data: bool
    level: float
    sample: str
    effective_sample_size: float | None = None
    unlogged_share: float | None = None
    dual_weights: Array | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, eq=False)
class Contributions:
    """The value of a policy and what each block of the data contributes to its error."""

    value: float
    blocks: Array  # (E,) c_e
    states: Array  # (m,) those of initial states that are another sample; empty otherwise
    shift: float
    sample: str
    phi: Array  # (k,) φ̄₀
    fitted: Model
    initial: tuple[Features, Array] | None  # initial states and probabilities of actions there; None for an LSTD


def policy_value(
    model: LSTDQ | Predictor, initial_states: Any = None, level: float = 0.95, *, target_policy: Any = None,
    weights: ArrayLike | None = None, sample: str = "auto",
) -> PolicyValue:  # fmt: skip
    """Estimate the value of the target policy: its mean return from initial states, with an interval.

    Parameters
    ----------
    model : fitted LSTDQ, or fitted LSTD or LSTDCV
        An LSTD predicts values of states. Fit it with ``importance_ratio`` unless the target policy logged the data.
    initial_states : array-like, DataFrame or sparse of shape (m, n), optional
        Features of states. By default for LSTDQ, the first state of each logged episode.
    level : float in (0, 1), default 0.95
        Probability that the interval contains the value of the fixed point: what the model would say with unlimited
        data.
    target_policy : array-like of shape (m, n_actions) or callable, optional
        The target policy in `initial_states`, needed if an LSTDQ was fitted with an array of probabilities.
    weights : array-like of shape (m,), optional
        Weight of each initial state; by default, all count alike.
    sample : {"auto", "episodes", "independent", "fixed"}, default "auto"
        "episodes": state i began episode i of the data, in the order of the fit (with `groups`, sorted by them), so
        its scatter counts together with the influence of the episode on the weights. "independent": another sample of
        independent states. "fixed": exactly these states. "auto" is "episodes" if there is one state per episode,
        "fixed" for one state, and otherwise "independent".

    Returns
    -------
    PolicyValue

    Raises
    ------
    InvalidInputError
        When an argument breaks a rule, or the model has no intervals.

    Examples
    --------
    >>> import numpy as np
    >>> from lstd.ope import LSTDQ, policy_value
    >>> X, actions, policy = np.ones((400, 1)), np.arange(400) % 2, np.full((400, 2), [0.25, 0.75])
    >>> rewards = 1.0 + 2.0 * actions + np.random.default_rng(0).normal(size=400)
    >>> model = LSTDQ(gamma=0.5, alpha=0.0, fit_intercept=False)
    >>> model = model.fit(X, rewards, actions=actions, terminated=np.ones(400, dtype=bool), target_policy=policy)
    >>> found = policy_value(model)
    >>> found.lower < 2.5 < found.upper, round(found.effective_sample_size), found.unlogged_share
    (True, 320, 0.0)
    """
    level = check_level(level)
    return evaluated(model, contributions(model, initial_states, target_policy, weights, sample), level)


def evaluated(model: LSTDQ | Predictor, found: Contributions, level: float) -> PolicyValue:
    """Return the value of a policy and its interval from what `contributions` returned."""
    fitted, squares = found.fitted, (found.blocks**2)[np.newaxis, :, np.newaxis]
    error, freedom = _combined(found, float(degrees_of_freedom(squares, fitted.influence.shares)[0, 0]))
    half = float(half_width(error, freedom, level, found.shift))
    check_range(np.array([found.value, half]))
    little = freedom < FEW or bool((found.phi != 0.0)[fitted.unseen].any())
    size, unlogged, dual = _coverage(model, found)
    return PolicyValue(
        found.value, found.value - half, found.value + half, error, freedom, -found.shift, little, level, found.sample,
        size, unlogged, dual,
    )  # fmt: skip


def _combined(found: Contributions, freedom: float) -> tuple[float, float]:
    """Return the standard error, and the degrees of freedom of Welch and Satterthwaite if two samples add up."""
    squares, variance = float(found.blocks @ found.blocks), float(found.states @ found.states)
    error = float(np.sqrt(squares + variance))
    if not variance:
        return error, freedom
    known = (squares / error**2) ** 2 / freedom + (variance / error**2) ** 2 / (len(found.states) - 1)
    return error, 1.0 / known


def contributions(model: Any, initial_states: Any, target_policy: Any, weights: Any, sample: str) -> Contributions:
    """Return the value of a policy with the contributions of blocks; the arguments are those of `policy_value`."""
    check_choice("sample", sample, SAMPLES)
    if isinstance(model, LSTDQ):
        if initial_states is None:
            X, P = model.first_states(target_policy)
        else:
            X = checked_features(model, initial_states)
            P = model.policy_at(X, target_policy)
        fitted: Model = model.lstd_.model_
        values = (model.features_.action_values(X, model.coef_) * P).sum(axis=1) + model.intercept_
    elif isinstance(model, Predictor):
        check_is_fitted(model)
        X, P = _states(model, initial_states, target_policy), None
        fitted = model.model_
        values = fitted.predict(X)
    else:
        raise InvalidInputError(f"`model` must be a fitted LSTDQ, LSTD or LSTDCV; got {type(model).__name__}.")
    given = 1.0 if weights is None else weights
    share = check_per_row("weights", given, len(values), what="weight", of="initial_states")
    if not share.sum() > 0.0:
        raise InvalidInputError("`initial_states` must have at least one row, and `weights` one above 0.")
    share = share / share.sum()
    mean = dense(X.T @ share) if P is None else model.features_.total(X, P * share[:, np.newaxis])
    value = float(share @ values)
    [(_, u, shift)] = fitted.influence.along(mean[np.newaxis], 1.0)
    sample, blocks = _blocks_of(fitted, len(values), sample)
    contributed, of_states = u[0, :, 0].copy(), np.empty(0)
    if blocks is not None:
        within = np.bincount(blocks, share, len(contributed))
        scatter = np.bincount(blocks, share * (values - value), len(contributed))
        contributed += scatter / np.sqrt(np.maximum(1.0 - within, 1e-12))
    elif sample == "independent":
        of_states = share * (values - value) * np.sqrt(len(values) / max(1, len(values) - 1))
    initial = None if P is None else (X, P)
    return Contributions(value, contributed, of_states, float(shift[0, 0]), sample, mean, fitted, initial)


def _states(model: Predictor, states: Any, target_policy: Any) -> Features:
    if states is None:
        raise InvalidInputError("`initial_states` must be given for an LSTD, such as the first row of each episode.")
    if target_policy is not None:
        raise InvalidInputError("`target_policy` must not be given for an LSTD, whose values are those of states.")
    X = checked_features(model, states)
    if not model.model_.statistics.single:
        raise InvalidInputError("`model` must be fitted to one reward per row, given as a vector.")
    return X


def _blocks_of(fitted: Model, m: int, sample: str) -> tuple[str, NDArray[np.intp] | None]:
    """Return how initial states count, and the block of each, (m,), if they began the episodes of the data."""
    until = np.cumsum(fitted.influence.marks[:, 2].astype(np.intp))
    if sample == "auto":
        sample = "fixed" if m == 1 else "episodes" if m == until[-1] else "independent"
    if sample != "episodes":
        return sample, None
    if m != until[-1]:
        raise InvalidInputError(
            f'With sample="episodes", `initial_states` must have one row for each of the {until[-1]} episodes of the '
            f'fit; got {m}. Use sample="independent", or "fixed".'
        )
    return sample, np.searchsorted(until, np.arange(m), side="right")


def _coverage(model: Any, found: Contributions) -> tuple[float | None, float | None, Array | None]:
    """Return the effective sample size, the share of pairs about which the data say nothing, and the dual weights."""
    fitted, s = found.fitted, found.fitted.statistics
    if found.initial is None:
        sample = s.counts.sample
        return float(sample.size[0]) if sample is not None and sample.off_policy else None, None, None
    (unlogged, pairs), (X, P) = model.unlogged_, found.initial
    if fitted.unseen.any():
        unlogged += float((P * model.features_.touching(X, fitted.unseen)).sum())
    share = unlogged / (pairs + float(P.sum()))
    if model.logged_ is None or fitted.free is not None:  # the dual weights need the matrix
        return None, share, None
    A = s.matrix(fitted.settings.variant)
    has_ones = fitted.settings.fit_intercept
    A = without_rounding(A, s.total_weight) if has_ones else A
    right = np.append(found.phi, [1.0] * has_ones)[:, np.newaxis]
    omega = solve(A.T, right, fitted.ridge, penalty=fitted.penalty, warn=False).weights[:, 0]
    ones = float(omega[-1]) if has_ones else 0.0
    g = model.logged_.dual_weights(omega[: len(found.phi)], ones, s.lmbda)
    squares = float(g @ g)
    size = max(1.0, float(g.sum()) ** 2 / squares) if squares else 0.0  # weights of both signs count as one row
    return size, share, g
