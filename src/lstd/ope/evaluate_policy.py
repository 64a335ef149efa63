"""One call for the value of a policy: which estimate to take, and what the log says against it.

Three estimates, from the least to the most corrected: LSTD(0) with ratios; the same with rows weighted by visits; and
doubly robust, with action values fitted out of fold. The last is right if the action values are, or the ratios of
visits, or if the features represent what the action values lack. So it is taken, unless it is much less certain than
the second. Where nothing speaks against the features, by the first two comparisons of :class:`FeatureCheck` at 5 %, the
second is right too, and their mean of least variance is taken. What the estimate adds to the action values alone is
shrunk as far as it is noise (James and Stein 1961).

Where pairs of a state and an action recur, at least five times on average, and the state seems to hide nothing, the
frequencies of the log predict better than trees: the value by the table of pairs (:mod:`lstd.ope.pair_table`) takes the
place of the action values and of the doubly robust value, since it is both. Its standard error is that of the
frequencies, zero where moves are certain, so the interval is the hull of that of the choice and that of the state
values with visits or, if something speaks against the features, that of the doubly robust value.

All of these assume that the recorded state says all about what follows. Where :mod:`lstd.ope.hidden_state` rejects that
at 5 %, the interval is the hull of that of the choice and that of the per-decision doubly robust value, which does not
assume it. Where it is rejected at 1 %, with c the difference of both estimates and s its standard error, the value is

    v = (1 − w) v_choice + w v_per-decision,   w = max(1/2, 1 − 2 s²/c²),

unless the standard error of the second is more than ten times that of the first. The first has the bias of the hidden
state, the second has the noise of products of ratios. Where c is less than 2 s, nobody knows which is larger, and both
count alike. With more data s vanishes and c does not, and the second counts alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from numpy.typing import ArrayLike

from lstd.data.arguments import check_real
from lstd.data.rows import Columns, PerRow
from lstd.data.takes import Takes
from lstd.errors import InvalidInputError, MisfitWarning, warn
from lstd.ope.hidden_state import hidden_state_check
from lstd.ope.logged_rows import UNWEIGHTED, check_ratio_alone, logged_rows, ratio_rows, states_of
from lstd.ope.logged_states import FeatureCheck, LoggedStates, feature_check
from lstd.ope.pair_table import value_by_table
from lstd.ope.pairs import StateActionFeatures
from lstd.ope.policies import PolicyArguments
from lstd.ope.policy_value import PolicyValue, doubted, evaluated
from lstd.ope.tied_returns import Bounds, checked_bounds
from lstd.ope.value_by_blocks import ValueByBlocks, least_variance_mean
from lstd.statistics.intervals import check_level
from lstd.types import FeaturesLike

WEIGHTED = "weighted state values"
ROBUST = "doubly robust"
TABLE = "table of pairs"
MEAN = "least-variance mean"
PER_DECISION = "per-decision doubly robust"
_WIDER = 1.5  # largest standard error of the doubly robust value, in those of the weighted state values
_SURE = 0.01  # chance of the check for a hidden state below which the value changes, not the interval alone
_MUCH_WIDER = 10.0  # largest standard error of the per-decision value, in those of the choice without it

_TAKES = Takes("evaluate_policy", (), UNWEIGHTED)  # beside the named arguments


def evaluate_policy(
    X: FeaturesLike,
    y: ArrayLike,
    *,
    gamma: float,
    actions: Any = None,
    target_policy: Any = None,
    behavior_probability: PerRow = None,
    state: Any = None,
    q: Any = None,
    episode: PerRow = None,
    terminated: PerRow = None,
    discount: PerRow = None,
    groups: PerRow = None,
    level: float = 0.95,
    labels: Any = None,
    random_state: int = 0,
    bounds: tuple[float, float] | None = None,
    policy_of: str | None = None,
    X_next: FeaturesLike | None = None,
    target_policy_next: Any = None,
    state_next: Any = None,
    importance_ratio: PerRow = None,
    **others: Any,
) -> PolicyValue:
    """Estimate the value of a policy from a log, by a fixed rule, and warn of what the log says against it.

    The value is doubly robust: boosted trees of the raw columns `state` predict action values, and LSTD(0) of `X`, with
    importance ratios and with rows weighted by visits of the target policy, adds what their errors come to. If its
    standard error is more than 1.5 times that of the LSTD value with visits, it is that LSTD value; otherwise, if
    nothing speaks against the features, it is the mean of both that has the least variance. With d the value by
    the action values alone, c what the estimate adds to it, and s the standard error of c, `value` is
    d + max(0, 1 − s²/c²) c, or the nearer end of the interval, which is that of the estimate. The ridge coefficient is
    1e-5 of the mean square of a feature, summed over rows: it does not decide. Folds are random; `random_state` repeats
    them.

    Where pairs of a state and an action recur, five times on average, the value by their frequencies takes the place of
    both action values and the doubly robust value. The interval then also holds that of the LSTD value with visits or,
    if something speaks against the features, that of the doubly robust value.

    Parameters
    ----------
    X : array-like, DataFrame or sparse of shape (T, n)
        Features of the state of each row, such as one-hot groups. Constant values and their sums should be near the
        truth; raw measurements mostly are no good features.
    y, actions, target_policy, behavior_probability, episode, terminated, discount, groups, X_next, target_policy_next
        As in :meth:`LSTDQ.fit`. `behavior_probability` is needed. If it was not logged, estimate it, such as by a
        classifier of actions.
    gamma : float in [0, 1]
    state : array-like of shape (T, p), optional
        Raw columns of the state of each row, such as measurements, with the time left if episodes end at a fixed time.
        By default `X`.
    q : regressor of scikit-learn, fitted LSTDQ or callable, optional
        Action values, as in :func:`policy_value`; by default gradient boosting.
    level : float in (0, 1), default 0.95
        Probability that the interval contains the value, if `behavior_probability` is right.
    labels : sequence, optional
        Labels of the actions, in the order of the columns; by default 0, 1, ….
    random_state : int, default 0
    policy_of : {"X", "state"}, optional
        What a `target_policy` that is a function, or has `predict`, takes; needed with `state`. Policies of this
        package, :class:`EpsilonGreedy` and :class:`LSTDQ`, take `X`. It gets all rows in the order given, and with
        `X_next` all successors, of which those after an end are copies of another.
    state_next : array-like of shape (T, p), optional
        Raw columns of the states of `X_next`, needed with both `state` and `X_next`; after an end, anything, and
        otherwise NaN only in columns of `state` that have it.
    importance_ratio : array-like of shape (T,), optional
        Ratio π/μ of the logged action, in place of `actions` and both policies: for continuous actions, the ratio of
        their densities. `X_next` then needs no `target_policy_next`. What needs pairs of a state and an action is left
        out: action values, doubly robust values, and the check for a hidden state.
    bounds : tuple of two floats, optional
        Least and largest return, discounted, that an episode can have, such as (0, 1) where the reward is 1 for a
        patient who goes home. The value and the interval are within; where returns are tied, see Notes.
    **others
        Any other argument is refused: rows count by ratios and visits, and have no weights of their own.

    Returns
    -------
    PolicyValue
        `method` is the estimate that `value` shrinks, "doubly robust", "table of pairs", "weighted state values" or
        "least-variance mean", or "mean of doubly robust and per-decision" and the like; `candidates` has these, the
        table only where it is taken, and "state values", "action values" and "per-decision doubly robust".

    Raises
    ------
    InvalidInputError
        When an argument breaks a rule, or there are fewer than five episodes or groups.

    Warns
    -----
    SupportWarning
        When the mean importance ratio is not one, over all rows, by feature, by predicted value or by time.
    MisfitWarning
        When the features are too coarse for the target policy, see :class:`FeatureCheck`, or the state seems to hide
        something that lasts, see :class:`HiddenStateCheck`.
    EffectiveSampleWarning
        When the effective sample is below 0.05 of the transitions, or, without `bounds`, when most returns agree and
        data are few, or all agree.

    Notes
    -----
    Returns are tied if more than half of the episodes have the same sum of rewards or, with `bounds`, a return within
    1 % of b − a of the median. A standard error then leaves out returns that a small log does not show: where all of 10
    patients went home, the standard error is zero. The interval allows for them, as that of Clopper and Pearson (1934)
    does, and stays within the bounds; by default these are the least and the largest return of the log, and 0.

    All estimates but one assume that the raw columns and the action say all about what follows that the log says. The
    per-decision doubly robust value, with products of ratios and action values of the log's own policy, needs only that
    `behavior_probability` depends on what is recorded up to the row. Where :class:`HiddenStateCheck` says that the
    state hides something, the interval holds those of both. Where it is sure, at 1 %, the value is a mean of both in
    which the per-decision value has at least half of the weight, and nearly all if both are clearly apart; unless its
    standard error is more than ten times the other.

    References
    ----------
    L. van der Laan and N. Kallus, arXiv 2512.23805.
    J. Jiang and L. Li, "Doubly robust off-policy value evaluation for reinforcement learning", ICML 2016.

    Examples
    --------
    >>> import numpy as np
    >>> from lstd.ope import evaluate_policy
    >>> random = np.random.default_rng(0)
    >>> X, actions = np.eye(4)[np.arange(400) % 4], random.integers(2, size=400)
    >>> found = evaluate_policy(
    ...     X, 1.0 + 2.0 * actions + random.normal(size=400), gamma=0.5, actions=actions,
    ...     target_policy=np.full((400, 2), [0.25, 0.75]), behavior_probability=np.full(400, 0.5),
    ...     episode=np.arange(400) // 4, terminated=np.arange(400) % 4 == 3,
    ... )
    >>> found.method, bool(found.lower < 2.5 * (1 + 0.5 + 0.25 + 0.125) < found.upper)
    ('least-variance mean', True)
    """
    _TAKES.check(others)
    gamma = check_real("gamma", gamma, 0.0, 1.0)
    level = check_level(level)
    columns: Columns = {
        "episode": episode,
        "terminated": terminated,
        "discount": discount,
        "groups": groups,
        "X_next": X_next,
    }
    if importance_ratio is not None:
        check_ratio_alone(
            actions=actions,
            target_policy=target_policy,
            behavior_probability=behavior_probability,
            target_policy_next=target_policy_next,
            policy_of=policy_of,
            labels=labels,
            q=q,
        )
        logged = ratio_rows(states_of(X, y, columns | {"importance_ratio": importance_ratio}, gamma))
    else:
        _check_known(actions=actions, target_policy=target_policy)
        features = None
        if labels is not None:
            features = StateActionFeatures(labels)
        target = PolicyArguments(target_policy, target_policy_next, state, state_next, policy_of).checked()
        logged = logged_rows(states_of(X, y, columns, gamma), actions, target, behavior_probability, features)
    bounds = checked_bounds(bounds, logged)
    log = LoggedStates.of(logged, gamma, state, random_state, state_next=state_next)
    if importance_ratio is not None:
        return _of_ratios(log, level, bounds)
    return _of_pairs(log, q, level, bounds)


def _check_known(**given: Any) -> None:
    """Refuse a log without actions or a target policy."""
    for name, value in given.items():
        if value is None:
            raise InvalidInputError(f"`{name}` must be given, unless `importance_ratio` is.")


def _of_ratios(log: LoggedStates, level: float, bounds: Bounds | None) -> PolicyValue:
    """Return the weighted state values, of a log without pairs of a state and an action."""
    parts = {"state values": log.plain, WEIGHTED: log.weighted}
    found = {name: evaluated(one.with_ties(bounds), level, name) for name, one in parts.items()}
    text = (
        "Action values, doubly robust values and the check for a hidden state are left out: `importance_ratio` has no "
        "pairs of a state and an action."
    )
    one = replace(found[WEIGHTED], candidates=found, said=(text,))
    return doubted(one, log, feature_check(log))


def _of_pairs(log: LoggedStates, q: Any, level: float, bounds: Bounds | None) -> PolicyValue:
    """Return the first choice among all candidates."""
    log.check_rewards()
    hidden = hidden_state_check(log)
    direct, robust = log.robust(q)
    parts = {
        "state values": log.plain,
        WEIGHTED: log.weighted,
        "action values": direct,
        ROBUST: robust,
    }
    best = ROBUST  # of what rests on action values
    table = None
    if q is None and not hidden.hides:
        table = value_by_table(log)
    if table is not None:
        best = TABLE
        parts[TABLE] = table
        direct = table
    parts[MEAN] = least_variance_mean(parts[best], log.weighted)
    parts[PER_DECISION] = log.per_decision
    found = {name: evaluated(one.with_ties(bounds), level, name) for name, one in parts.items()}
    features = feature_check(log, parts[best])
    method = _chosen(found, best, features)
    estimate = found[method]
    beside = None  # the interval holds that of this one, too
    if hidden.hides:
        beside = log.per_decision
    elif table is not None and features.agrees:
        beside = log.weighted
    elif table is not None:
        beside = robust
    if beside is not None:
        both = replace(parts[method], beside=beside).with_ties(bounds)
        estimate = evaluated(both, level, method)
    value = _shrunk(parts[method], direct)
    value = min(max(value, estimate.lower), estimate.upper)
    if hidden.p_value < _SURE and _is_usable(found[PER_DECISION], estimate):
        w = _weight_of(log.per_decision, parts[method])
        value = (1.0 - w) * value + w * found[PER_DECISION].value
        method = f"mean of {method} and per-decision"
    chosen = replace(estimate, value=value, method=method, candidates=found, said=(), hidden=hidden)
    return _hidden_said(doubted(chosen, log, features))


def _chosen(found: dict[str, PolicyValue], best: str, features: FeatureCheck) -> str:
    """Return the name of the estimate to take if the state hides nothing; `best` is that by action values."""
    if found[best].standard_error > _WIDER * found[WEIGHTED].standard_error:
        return WEIGHTED
    if features.agrees:
        return MEAN
    return best


def _is_usable(per_decision: PolicyValue, other: PolicyValue) -> bool:
    """Say whether products of ratios leave something, beside an estimate without them."""
    return per_decision.standard_error <= _MUCH_WIDER * other.standard_error


def _weight_of(per_decision: ValueByBlocks, other: ValueByBlocks) -> float:
    """Return the weight of the per-decision value beside one that a hidden state biases, max(1/2, 1 − 2 s²/c²)."""
    c = per_decision.value - other.value
    if not (c**2):
        return 0.5
    error = per_decision.blocks - other.blocks
    return max(0.5, 1.0 - 2.0 * float(error @ error) / c**2)


def _hidden_said(found: PolicyValue) -> PolicyValue:
    """Warn of a state that hides something, and return the value with the text."""
    assert found.hidden is not None
    if not found.hidden.hides:
        return found
    other = found.candidates[PER_DECISION]
    mean = ""
    if found.method not in found.candidates:
        mean = "The value is a mean of the first choice and of that one. "
    text = (
        f"The state seems to hide something that lasts; compared were {found.hidden}. The interval also holds that of "
        f"the per-decision doubly robust value, {other.value:.4g} in [{other.lower:.4g}, {other.upper:.4g}], which "
        f"needs no state in the sense of Markov, but a `behavior_probability` given what is recorded. {mean}Record "
        "more, or add earlier rows to `X` and `state`, such as by `Trajectories.with_history`."
    )
    warn(text, MisfitWarning)
    return replace(found, said=(*found.said, text))


def _shrunk(found: ValueByBlocks, direct: ValueByBlocks) -> float:
    """Return d + max(0, 1 − s²/c²) c with d the value by action values, and the correction c of standard error s."""
    c = found.value - direct.value
    if not (c**2):
        return direct.value
    error = found.blocks - direct.blocks
    signal = max(0.0, 1.0 - float(error @ error) / c**2)
    return direct.value + signal * c
