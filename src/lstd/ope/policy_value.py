"""The value of a policy over initial states, with its interval and what the data say about it.

Contributions of blocks to its error are in :mod:`lstd.ope.value_by_blocks`. With dual weights ω = (A + αI)⁻ᵀ φ̄₀, the
value is Σ_t g_t r_{t+1}, g_t = w_t ωᵀz_t. The effective sample size is that of Kish (1965), (Σ g_t)² / Σ g_t²: how many
transitions of equal weight leave the same variance. It says nothing about bias.

With features that cannot represent the values, the fixed point is that of the log's states. Two corrections need raw
columns of the states (:mod:`lstd.ope.logged_states`). Rows weighted by the ratio û of discounted visits, and action
values by πû/μ, have the fixed point of the target policy's states. Action values q of any kind, fitted out of fold,
have the errors δ_t = r_{t+1} + γ v_q(s_{t+1}) − q(s_t, a_t); v_q(s_0) plus the weighted values of δ is doubly robust.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from lstd.data.arguments import check_choice, check_per_row, shown
from lstd.data.doubts import percent
from lstd.data.feature_arrays import Features, dense
from lstd.errors import EffectiveSampleWarning, InvalidInputError, MisfitWarning, SupportWarning, warn
from lstd.estimators.base import Predictor
from lstd.estimators.model import Model
from lstd.estimators.validate_data import checked_features
from lstd.ope.hidden_state import HiddenStateCheck
from lstd.ope.logged_rows import logged_data
from lstd.ope.logged_states import FeatureCheck, LoggedStates, feature_check
from lstd.ope.lstdq import LSTDQ, row_factor
from lstd.ope.policies import PolicyArguments
from lstd.ope.tied_returns import checked_bounds, cut_interval
from lstd.ope.value_by_blocks import SAMPLES, ValueByBlocks, combined, effective_size
from lstd.statistics.intervals import FEW, check_level, degrees_of_freedom, half_width
from lstd.statistics.solve import check_range
from lstd.types import Array

FEW_OF_ROWS = 0.05  # effective sample in transitions, and share of actions without a like, that give a warning
BY_RATIOS = 0.5  # of the effective sample without ratios; a larger one is small because traces are long


@dataclass(frozen=True)
class PolicyValue:
    """The value of a policy, its interval, and how much data it rests on.

    Attributes
    ----------
    value, lower, upper, standard_error, degrees_of_freedom : float
    shift : float
        Bias by the ridge term, to first order, which widens the interval.
    little_data : bool
        Whether the interval has fewer than 5 degrees of freedom, the data say nothing about an action that the policy
        takes in an initial state, or tied returns may hide more than the standard error shows.
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
        at α = 0; of a doubly robust value, the weight of the errors of `q`. None for an LSTD without `data` or a model
        from a file.
    method : str
        "state values", "action values", either of them "weighted", "doubly robust", "table of pairs" or a mean of these
        by :func:`evaluate_policy`, or the name of an estimator of :func:`importance_sampling`.
    candidates : dict of PolicyValue
        What :func:`evaluate_policy` chose from, by method.
    features : FeatureCheck or None
        What was compared to notice features that are too coarse.
    hidden : HiddenStateCheck or None
        What :func:`evaluate_policy` compared to notice a state that hides something.
    importance_ratio : ndarray of shape (n_transitions,), or None
        Ratio π/μ of the logged action of each transition, in the order of `dual_weights`, where it is known: for an
        LSTD, with `data`. The printed value has its mean, which should be 1, its largest entry and the share of zeros.
    said : tuple of str
        Texts of the warnings about the value and about the fit.
    by_blocks : object
        What each block of the data contributes to the error, for :func:`compare_policies`.
    step_values : ndarray of shape (n_steps,), or None
        What each time step adds to the value, of :func:`importance_sampling`.
    bounds : tuple of two floats, or None
        Bounds of the return, if they were given: the value and its interval are within. Where returns are tied, the
        interval allows for others within the bounds, see Notes of :func:`evaluate_policy`.

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
    method: str = ""
    candidates: Mapping[str, PolicyValue] = field(default_factory=dict, repr=False, compare=False)
    features: FeatureCheck | None = field(default=None, repr=False, compare=False)
    hidden: HiddenStateCheck | None = field(default=None, repr=False, compare=False)
    importance_ratio: Array | None = field(default=None, repr=False, compare=False)
    said: tuple[str, ...] = field(default=(), repr=False, compare=False)
    by_blocks: ValueByBlocks | None = field(default=None, repr=False, compare=False)
    step_values: Array | None = field(default=None, repr=False, compare=False)
    bounds: tuple[float, float] | None = None

    def __str__(self) -> str:
        text = f"{self.method or 'value'}: {self.value:.4g}{self._unshrunk()}, "
        text += f"interval [{self.lower:.4g}, {self.upper:.4g}] at level {self.level:g}"
        if self.effective_sample_size is not None:
            text += f", effective sample {self.effective_sample_size:.0f}"
        text += self._ratios()
        if self.little_data:
            text += ", little data"
        return text

    def _unshrunk(self) -> str:
        """Return what is printed of the estimate that the value shrinks, where it is another."""
        estimate = self.candidates.get(self.method)
        if estimate is None or f"{estimate.value:.4g}" == f"{self.value:.4g}":
            return ""
        return f" (unshrunk {estimate.value:.4g})"

    def _ratios(self) -> str:
        """Return what is printed of the importance ratios."""
        ratio = self.importance_ratio
        if ratio is None:
            return ""
        zero = percent(float(np.mean(ratio == 0.0)))
        return f", ratios of mean {ratio.mean():.3g}, largest {ratio.max():.3g}, {zero} zero"


def policy_value(
    model: LSTDQ | Predictor,
    initial_states: Any = None,
    level: float = 0.95,
    *,
    target_policy: Any = None,
    weights: ArrayLike | None = None,
    sample: str = "auto",
    data: Any = None,
    state: Any = None,
    q: Any = None,
    bounds: tuple[float, float] | None = None,
    state_next: Any = None,
    policy_of: str | None = None,
) -> PolicyValue:
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
    data : mapping, optional
        For an LSTD with ratios: the log that it was fitted to, as arguments of :meth:`LSTDQ.fit` by name, with actions
        and both policies, or with `importance_ratio`. With `initial_states`, only for what ratios and returns say;
        otherwise as with `state`, of which the features take the place.
    state : array-like of shape (T, p), optional
        Raw columns of the state of each row of the log, such as measurements; finer than the features. Rows then count
        by the ratio of discounted visits of the target policy, estimated from these columns out of fold, so that
        features that are too coarse matter less. For an LSTDQ, actions count by their ratios too.
    q : regressor of scikit-learn, fitted LSTDQ or callable, optional
        Doubly robust: action values, plus what LSTD with ratios and visits makes of their errors. A regressor is fitted
        out of fold to `state`, one column per action and its number; an LSTDQ of the same rows is fitted again, out
        of fold. A function returns the values of all actions, (T, n_actions), for features of states.
    bounds : tuple of two floats, optional
        Least and largest return that an episode can have, as in :func:`evaluate_policy`; not without the log.
    state_next : array-like of shape (T, p), optional
        Raw columns of the states of `X_next`, with `state`, if the log has `X_next`.
    policy_of : {"X", "state"}, optional
        With `data` and `state`, what a `target_policy` in `data` that is a function takes.

    Returns
    -------
    PolicyValue

    Raises
    ------
    InvalidInputError
        When an argument breaks a rule, or the model has no intervals.

    Warns
    -----
    EffectiveSampleWarning
        When the effective sample is below 0.05 of the transitions, or, without `bounds`, when most returns agree and
        data are few, or all agree.
    SupportWarning
        When more than 0.05 of the actions of the target policy are without a like in the log.
    MisfitWarning
        With `state` or `q`, when the features are too coarse for the target policy, see :class:`FeatureCheck`.

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
    of_states = state is None and q is None and (data is None or initial_states is not None)
    log = None
    if data is not None or not of_states:
        log = _log_of(model, data, PolicyArguments(None, None, state, state_next, policy_of))
        _check_pairs(log, q)
    else:
        _check_without_log(state_next=state_next, policy_of=policy_of)
    transitions = getattr(model, "logged_", None)
    if log is not None:
        transitions = log.logged
    bounds = checked_bounds(bounds, transitions)
    if bounds is not None and transitions is None:
        raise InvalidInputError("`bounds` must not be given without the log, whose returns it bounds. Give `data`.")
    if of_states or log is None:
        of_model = value_by_blocks(model, initial_states, target_policy, weights, sample)
        return doubted(evaluated(of_model.with_ties(bounds, transitions), level), log)
    _check_first_states(initial_states=initial_states, weights=weights)

    robust = None
    if q is not None:
        robust = log.robust(q)[1]
        found = robust
        method = "doubly robust"
    elif isinstance(model, LSTDQ):
        factor = log.ratio * log.u
        if model.is_weighted_:  # rows count by their ratios already
            factor = factor / row_factor(log.logged)
        found = value_by_blocks(model.reweighted(factor), None, target_policy)
        method = "weighted action values"
    else:
        found = log.weighted
        method = "weighted state values"
    return doubted(evaluated(found.with_ties(bounds), level, method), log, feature_check(log, robust))


def _check_without_log(**given: Any) -> None:
    """Refuse what says how to read a log where there is none."""
    for name, value in given.items():
        if value is not None:
            raise InvalidInputError(f"`{name}` must not be given without `state`. Leave it out.")


def _check_first_states(**given: Any) -> None:
    """Refuse other initial states than those of the log."""
    for name, value in given.items():
        if value is not None:
            raise InvalidInputError(
                f"`{name}` must not be given with `data`, `state` or `q`, where the value is that of the first "
                "states of the log. Leave it out."
            )


def _check_pairs(log: LoggedStates, q: Any) -> None:
    """Refuse action values where the log has ratios in place of actions."""
    if q is not None and "importance_ratio" in log.logged.rows.given:
        raise InvalidInputError(
            "`q` must not be given with `importance_ratio` in `data`, which has no pairs of a state and an action. "
            "Leave it out, or give actions and both policies."
        )


def _log_of(model: LSTDQ | Predictor, data: Any, target: PolicyArguments) -> LoggedStates:
    """Return the log of a model: of an LSTDQ its own, of an LSTD that of `data`."""
    _check_fitted(model)
    state = target.state
    state_next = target.state_next
    if isinstance(model, LSTDQ):
        if target.of is not None:
            raise InvalidInputError(
                "`policy_of` must not be given for an LSTDQ, whose target policy took `X` in `fit`. Leave it out."
            )
        if data is not None:
            raise InvalidInputError("`data` must not be given for an LSTDQ, which keeps its rows. Leave it out.")
        if model.logged_ is None:
            raise InvalidInputError("`model` must be fitted in this session: a file of an LSTDQ keeps no rows.")
        return LoggedStates.of(model.logged_, model.gamma, state, state_next=state_next)
    if data is None:
        raise InvalidInputError(
            "`data` must be given with `state` or `q` for an LSTD: arguments of `LSTDQ.fit` by name."
        )
    settings = model.model_.settings
    logged = logged_data(data, settings.gamma, target)
    log = LoggedStates.of(logged, settings.gamma, state, given=model.model_, state_next=state_next)
    if not np.allclose(log.plain.fitted.coef, model.model_.coef, rtol=1e-6, atol=1e-9):
        raise InvalidInputError(
            "`data` must be the rows that `model` was fitted to, with `importance_ratio` from these policies; the fit "
            "to them has other weights."
        )
    return log


def evaluated(found: ValueByBlocks, level: float, method: str = "") -> PolicyValue:
    """Return the value of a policy and its interval."""
    fitted = found.fitted
    squares = (found.blocks**2)[np.newaxis, :, np.newaxis]
    error, freedom = _combined(found, float(degrees_of_freedom(squares, fitted.influence.shares)[0, 0]))
    half = float(half_width(error, freedom, level, found.shift))
    check_range(np.array([found.value, half]))
    little = freedom < FEW or bool((found.phi != 0.0)[fitted.unseen].any())
    value = found.value
    lower = value - half
    upper = value + half
    if found.tied is not None:
        value, lower, upper = found.tied.interval(found.value, half, level)
        little = little or found.tied.decides(found.value, half, level)
    elif found.bounds is not None:
        value, lower, upper = cut_interval(value, half, half, found.bounds)
    if found.beside is not None:
        beside = evaluated(found.beside, level)
        lower = min(lower, beside.lower)
        upper = max(upper, beside.upper)
    if not method:
        method = "state values" if found.unlogged is None else "action values"
    return PolicyValue(
        value=value,
        lower=lower,
        upper=upper,
        standard_error=error,
        degrees_of_freedom=freedom,
        shift=-found.shift,
        little_data=little,
        level=level,
        sample=found.sample,
        effective_sample_size=_effective_size(found),
        unlogged_share=found.unlogged,
        dual_weights=found.dual,
        method=method,
        said=fitted.said,
        importance_ratio=None if found.log is None else found.log.ratio,
        by_blocks=found,
        bounds=found.bounds,
    )


def _effective_size(found: ValueByBlocks) -> float | None:
    """Return the effective number of transitions, by dual weights or by importance ratios, where these are known."""
    if found.dual is not None:
        return effective_size(found.dual)
    sample = found.fitted.statistics.counts.sample
    if found.unlogged is None and sample is not None and sample.off_policy:
        return float(sample.size[0])
    return None


def _combined(found: ValueByBlocks, freedom: float) -> tuple[float, float]:
    """Return the standard error, and the degrees of freedom of Welch and Satterthwaite if two samples add up."""
    of_blocks = float(found.blocks @ found.blocks)
    of_states = float(found.states @ found.states)
    error = float(np.sqrt(of_blocks + of_states))
    if not of_states:
        return error, freedom
    share = of_blocks / error**2
    inverse = share**2 / freedom + (of_states / error**2) ** 2 / (len(found.states) - 1)
    return error, 1.0 / inverse


def doubted(found: PolicyValue, log: LoggedStates | None = None, check: FeatureCheck | None = None) -> PolicyValue:
    """Warn of what the log says against a value, and return the value with it and with the ratios."""
    if log is not None:
        found = replace(found, features=check, importance_ratio=log.ratio, said=(*found.said, *log.support_said()))
    texts: list[tuple[str, type[Warning]]] = []
    n = blocks_of(found).fitted.statistics.n_transitions
    if _rests_on_few(found, n):
        few = (
            f"The value rests on an effective sample of {found.effective_sample_size:.2g} of {n} transitions: a few "
            "decide it, and the interval may be too short. Choose a target policy closer to that of the log."
        )
        texts.append((few, EffectiveSampleWarning))
    if found.unlogged_share is not None and found.unlogged_share > FEW_OF_ROWS:
        unlogged = (
            f"Of the actions that the target policy takes, {percent(found.unlogged_share)} are without a like in the "
            "log, and the features alone decide their values. Choose a target policy whose actions the log takes."
        )
        texts.append((unlogged, SupportWarning))
    if found.features is not None and found.features.coarse:
        texts.append((found.features.text, MisfitWarning))
    tied = blocks_of(found).tied
    of_ties = "" if tied is None else tied.doubt(found.little_data)
    if of_ties:
        texts.append((of_ties, EffectiveSampleWarning))
    for text, category in texts:
        warn(text, category)
    return replace(found, said=(*found.said, *(text for text, _ in texts)))


def blocks_of(found: PolicyValue) -> ValueByBlocks:
    """Return the contributions of blocks to the value of a fitted model."""
    assert found.by_blocks is not None
    return found.by_blocks


def _rests_on_few(found: PolicyValue, n_transitions: int) -> bool:
    """Say whether few of the transitions decide a value: by ratios, and not by the length of traces alone."""
    size = found.effective_sample_size
    if size is None or size >= FEW_OF_ROWS * n_transitions:
        return False
    sample = blocks_of(found).fitted.statistics.counts.sample
    if found.dual_weights is not None or sample is None:
        return True
    return bool(size < BY_RATIOS * sample.size[2])


def value_by_blocks(
    model: LSTDQ | Predictor,
    initial_states: Any,
    target_policy: Any,
    weights: ArrayLike | None = None,
    sample: str = "episodes",
) -> ValueByBlocks:
    """Return the value of a policy with the contributions of blocks; the arguments are those of `policy_value`."""
    check_choice("sample", sample, SAMPLES)
    _check_fitted(model)
    P: Any = None
    if isinstance(model, LSTDQ):
        X, P = model.initial(initial_states, target_policy)
        fitted: Model = model.lstd_.model_
        values = model.expected_values(X, P)
    else:
        X = _states(model, initial_states, target_policy)
        fitted = model._model
        values = fitted.linear.predict(X)
    if weights is None:
        weights = 1.0
    share = check_per_row("weights", weights, len(values), what="weight", of="initial_states")
    if not share.sum() > 0.0:
        raise InvalidInputError("`initial_states` must have at least one row, and `weights` one above 0.")
    share = share / share.sum()
    if P is None:
        return combined(fitted, dense(X.T @ share), values, share, sample)
    found = combined(fitted, model.features_.total(X, P * share[:, np.newaxis]), values, share, sample)
    return replace(found, **model.coverage(X, P, found.phi))


def _check_fitted(model: LSTDQ | Predictor) -> None:
    """Refuse anything but a fitted model."""
    if not isinstance(model, (LSTDQ, Predictor)):
        raise InvalidInputError(f"`model` must be a fitted LSTDQ, LSTD or LSTDCV; got {shown(model)}.")
    check_is_fitted(model, "lstd_" if isinstance(model, LSTDQ) else None)


def _states(model: Predictor, states: Any, target_policy: Any) -> Features:
    """Return the checked features of initial states of an LSTD."""
    if states is None:
        raise InvalidInputError("`initial_states` must be given for an LSTD, such as the first row of each episode.")
    if target_policy is not None:
        raise InvalidInputError("`target_policy` must not be given for an LSTD, whose values are those of states.")
    X = checked_features(model, states)
    if not model.model_.statistics.single:
        raise InvalidInputError("`model` must be fitted to one reward per row, given as a vector.")
    return X
