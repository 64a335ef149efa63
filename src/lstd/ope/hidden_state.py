"""Does the state of a log hide something that lasts, such as a disease that is not recorded?

Given a state in the sense of Markov, what is unusual about a reward says nothing about the next one. Let ε_t and ε'_t
be the reward of a transition less two predictions from the raw columns of the state and the action: by boosted trees
and by extremely randomised trees, fitted to different thirds of the groups, neither of which holds the transition, and
shrunk towards their mean as far as they do not predict. For each of E groups or episodes,

    u_e = Σ_t (ε_t ε'_{t−1} + ε'_t ε_{t−1}) 1[a_t = a_{t−1}],   z = Σ_e u_e / √Σ_e u_e²,

summed over both ways to deal out the thirds. What is hidden and lasts makes z large: the same action fails again. Only
pairs with the same action count, where effects of what is hidden agree. If nothing is hidden, the chance of a larger z
is about that of Student's t with n − 1 degrees of freedom, n = (Σ_e u_e²)² / Σ_e u_e⁴: where a few groups decide, in
states that are rare and badly predicted, z is large by chance, and n is small.

Errors that alternate cannot come from a state that says all, either: where three doses in a row are needed, a dose that
succeeds follows two that did not. But trees that miss part of what a state shows leave such errors as well, in most
logs of Blackjack. So a z below zero counts only if rewards of the same state and action also depend on whether the row
before has that action, h_t = 1, which no prediction can bring about:

    u'_e = Σ_t (h_t − h̄)(r_t − r̄),   z' = Σ_e u'_e / √Σ_e u'_e²,

with means over the rows of the same state and action. Where no pair recurs, z' is zero. The p-value is the lesser of
the chance of a larger z, and 50 times the larger of the chances of a smaller z and of a larger |z'|: at 5 %, it rejects
by chance as often as the first alone, and in another 0.1 % at most.

With one prediction for both errors, its own error is in both, and z is large where states differ little from row to
row; the errors of two kinds of trees, from different data, hardly agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from lstd.ope.logged_rows import Places
from lstd.ope.logged_states import N_FOLDS, ROUNDING, LoggedStates, shrinkage
from lstd.statistics.threads import one_openmp_thread
from lstd.types import Array, Flags

CHANCE = 0.05  # of a warning where nothing is hidden
_LESS_OFTEN = 50.0  # than above zero does z reject below it by chance


@dataclass(frozen=True)
class HiddenStateCheck:
    """Whether errors of predicted rewards go on from one row to the next with the same action.

    Attributes
    ----------
    z : float
        Sum of the products of successive errors over groups or episodes, in its standard errors; 0 without pairs.
    p_value : float
        Chance of a larger `z` if the state hides nothing; if `z` is negative, 50 times that of a smaller one if this is
        less, and rewards of equal pairs of a state and an action depend on the action before as clearly.

    Examples
    --------
    >>> import numpy as np
    >>> from lstd.ope import evaluate_policy
    >>> random = np.random.default_rng(0)
    >>> X, actions, rewards = np.ones((400, 1)), random.integers(2, size=400), random.normal(size=400)
    >>> rows = {"episode": np.arange(400) // 4, "terminated": np.arange(400) % 4 == 3}
    >>> policies = {"target_policy": np.full((400, 2), [0.2, 0.8]), "behavior_probability": np.full(400, 0.5)}
    >>> found = evaluate_policy(X, rewards, gamma=0.9, actions=actions, **policies, **rows)
    >>> found.hidden.hides, bool(abs(found.hidden.z) < 2.0)
    (False, True)
    """

    z: float
    p_value: float

    @property
    def hides(self) -> bool:
        """Whether the errors go on more than by chance (5 %), or alternate (0.1 %)."""
        return self.p_value < CHANCE

    def __str__(self) -> str:
        return f"successive errors of rewards: z = {self.z:.2g} (p = {self.p_value:.2g})"


def hidden_state_check(log: LoggedStates) -> HiddenStateCheck:
    """Compare errors of predicted rewards with those of the row before, with the same action."""
    logged = log.logged
    same = ~logged.begins  # whether the row before is of the same episode and has the same action
    same[1:] &= logged.codes[1:] == logged.codes[:-1]
    products = np.zeros(len(same))
    if same.any() and np.ptp(logged.rewards) > 0.0:
        for one, two in reward_errors(log):
            products += one * np.roll(two, 1) + two * np.roll(one, 1)
    found = _standardised(logged.group, np.where(same, products, 0.0))
    if found.z >= 0.0:
        return HiddenStateCheck(found.z, found.larger)
    alternates = max(found.smaller, _chance_within_pairs(log, same))
    return HiddenStateCheck(found.z, min(found.larger, _LESS_OFTEN * alternates))


class _Sum(NamedTuple):
    """A sum over groups in its standard errors, and the chances of a larger and of a smaller one."""

    z: float
    larger: float
    smaller: float


def _standardised(group: Places, terms: Array) -> _Sum:
    """Return the sum of terms of rows, whose mean is zero if nothing is hidden, in its standard errors."""
    u = np.bincount(group, terms)
    size = float(np.linalg.norm(u))
    if not size:
        return _Sum(0.0, 1.0, 1.0)
    z = float(u.sum()) / size
    n = 1.0 / float(((u / size) ** 4).sum())
    freedom = max(n - 1.0, 1.0)
    return _Sum(z, float(special.stdtr(freedom, -z)), float(special.stdtr(freedom, z)))


def _chance_within_pairs(log: LoggedStates, same: Flags) -> float:
    """Return the chance that rewards of equal pairs depend as much on whether the action is a repeated one."""
    rewards = log.logged.rewards
    pairs = log.pairs(_without_nan(log.at), log.logged.codes)
    pair = np.unique(pairs, axis=0, return_inverse=True)[1].ravel()
    unusual = _apart_from_means(rewards, pair)
    rounding = ROUNDING * float(np.abs(rewards).max())
    unusual[np.abs(unusual) <= rounding] = 0.0
    found = _standardised(log.logged.group, _apart_from_means(same.astype(float), pair) * unusual)
    return min(1.0, 2.0 * min(found.larger, found.smaller))


def _apart_from_means(values: Array, place: Places) -> Array:
    """Return values less the means of those of the same place."""
    means = np.bincount(place, values) / np.bincount(place)
    return values - means[place]


def reward_errors(log: LoggedStates) -> list[tuple[Array, Array]]:
    """Return the errors of boosted and of randomised trees, (N,) each, for both ways to deal out the other folds."""
    rewards = log.logged.rewards
    return [(_errors(rewards, one), _errors(rewards, two)) for one, two in predicted_rewards(log)]


def predicted_rewards(log: LoggedStates) -> list[tuple[Array, Array]]:
    """Return predictions by boosted and by randomised trees, (N,) each, for both ways to deal out the other folds."""
    pairs = log.pairs(_without_nan(log.at), log.logged.codes)
    found = []
    with one_openmp_thread():
        for ahead in (1, 2):
            boosted, randomised = reward_trees()
            one = _predicted(log, pairs, boosted, ahead)
            two = _predicted(log, pairs, randomised, -ahead)
            found.append((one, two))
    return found


def _predicted(log: LoggedStates, pairs: Array, trees: Any, ahead: int) -> Array:
    """Return predictions for each fold by trees that are fitted to the fold `ahead` of it."""
    rewards = log.logged.rewards
    predicted = np.empty(len(rewards))
    for k in np.unique(log.fold):
        own = log.fold == k
        taught = log.fold == (k + ahead) % N_FOLDS
        trees.fit(pairs[taught], rewards[taught])
        predicted[own] = trees.predict(pairs[own])
    return predicted


def _errors(rewards: Array, predicted: Array) -> Array:
    """Return rewards less predictions, shrunk as far as they do not predict; what rounding may leave is zero."""
    mean, slope = shrinkage(rewards, predicted)
    error = rewards - (mean + slope * (predicted - mean))
    rounding = ROUNDING * float(np.abs(rewards).max())
    return np.where(np.abs(error) <= rounding, 0.0, error)


def reward_trees() -> tuple[Any, Any]:
    """Return two kinds of trees whose errors hardly agree."""
    from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor

    boosted = HistGradientBoostingRegressor(
        learning_rate=0.35, max_iter=40, min_samples_leaf=2, early_stopping=False, random_state=0
    )
    return boosted, ExtraTreesRegressor(30, min_samples_leaf=3, random_state=0)


def _without_nan(columns: Array) -> Array:
    """Return columns with what is not known below all that is."""
    if not np.isnan(columns).any():
        return columns
    return np.where(np.isnan(columns), np.nanmin(columns, axis=0) - 1.0, columns)
