"""Does the state of a log hide something that lasts, such as a disease that is not recorded?

Given a state in the sense of Markov, what is unusual about a reward says nothing about the next one. Let ε_t and ε'_t
be the reward of a transition less two predictions from the raw columns of the state and the action: by boosted trees
and by extremely randomised trees, fitted to different thirds of the groups, neither of which holds the transition. Let
h_t = ε_{t−1} if the row before is of the same episode and has the same action, otherwise 0, and ĥ_t what the state and
the action of row t say of it; the same for h'_t. For each of E groups or episodes,

    u_e = Σ_t [ε_t (h'_t − ĥ'_t) + ε'_t (h_t − ĥ_t)],   z = Σ_e u_e / √Σ_e u_e²,

summed over both ways to deal out the thirds. What is hidden and lasts makes z large: the same action fails again. Only
the same action counts, where effects of what is hidden agree. If nothing is hidden, the chance of a larger z is that of
Student's t with n − 1 degrees of freedom, n = (Σ_e u_e²)² / Σ_e u_e⁴: where a few groups decide, in states that are
rare and badly predicted, z is large by chance, and n is small.

With one prediction for both errors, its own error is in both, and z is large where states differ little from row to
row; the errors of two kinds of trees, from different data, hardly agree. Without ĥ, an error of the prediction counts
where the state shows what the reward before was. With it, only the product of both errors does (Shah and Peters 2020).

R. D. Shah and J. Peters, "The hardness of conditional independence testing and the generalised covariance measure",
Annals of Statistics 48, 2020.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import special
from threadpoolctl import threadpool_limits

from lstd.ope.logged_states import N_FOLDS, ROUNDING, LoggedStates, boosting, shrinkage
from lstd.types import Array, Flags

CHANCE = 0.05  # of a warning where nothing is hidden


@dataclass(frozen=True)
class HiddenStateCheck:
    """Whether errors of predicted rewards go on from one row to the next with the same action.

    Attributes
    ----------
    z : float
        Sum of the products of successive errors over groups or episodes, in its standard errors; 0 without pairs.
    p_value : float
        Chance of a larger `z` if the state hides nothing.

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
        """Whether the errors go on more than by chance (5 %)."""
        return self.p_value < CHANCE

    def __str__(self) -> str:
        return f"successive errors of rewards: z = {self.z:.2g} (p = {self.p_value:.2g})"


class RewardErrors(NamedTuple):
    """Errors of predicted rewards, and what the next state says of them."""

    error: Array  # (N,) ε
    foreseen: Array  # (N,) ĥ, of the error of the row before with the same action


def hidden_state_check(log: LoggedStates) -> HiddenStateCheck:
    """Compare errors of predicted rewards with those of the row before, with the same action."""
    logged = log.logged
    same = with_same_action(log)
    products = np.zeros(len(same))
    if same.any() and np.ptp(logged.rewards) > 0.0:
        for one, two in reward_errors(log):
            products += one.error * (_of_row_before(two.error, same) - two.foreseen)
            products += two.error * (_of_row_before(one.error, same) - one.foreseen)
    u = np.bincount(logged.group, products)
    size = float(np.linalg.norm(u))
    if not size:
        return HiddenStateCheck(0.0, 1.0)
    z = float(u.sum()) / size
    n = 1.0 / float(((u / size) ** 4).sum())
    return HiddenStateCheck(z, float(special.stdtr(max(n - 1.0, 1.0), -z)))


def with_same_action(log: LoggedStates) -> Flags:
    """Return whether the row before each transition is of the same episode and has the same action, (N,)."""
    logged = log.logged
    same = ~logged.begins
    same[1:] &= logged.codes[1:] == logged.codes[:-1]
    return np.asarray(same)


def _of_row_before(error: Array, same: Flags) -> Array:
    """Return h, the error of the row before with the same action, 0 without one."""
    return np.where(same, np.roll(error, 1), 0.0)


def reward_errors(log: LoggedStates) -> list[tuple[RewardErrors, RewardErrors]]:
    """Return the errors of boosted and of randomised trees, for both ways to deal out the other folds.

    What rounding may leave of an error is zero.
    """
    pairs = log.pairs(_without_nan(log.at), log.logged.codes)
    found = []
    with threadpool_limits(1, "openmp"):  # threads of small fits wait longer than they compute
        for ahead in (1, 2):
            boosted, randomised = _trees()
            one = _errors_of(log, pairs, boosted, ahead)
            two = _errors_of(log, pairs, randomised, -ahead)
            found.append((one, two))
    return found


def _errors_of(log: LoggedStates, pairs: Array, trees: Any, ahead: int) -> RewardErrors:
    """Return the errors of trees fitted to the fold `ahead` of each; the third fold says what the next state shows."""
    rewards = log.logged.rewards
    rounding = ROUNDING * float(np.abs(rewards).max())
    same = with_same_action(log)
    error = np.empty(len(rewards))
    foreseen = np.empty(len(rewards))
    for k in np.unique(log.fold):
        own = log.fold == k
        taught = log.fold == (k + ahead) % N_FOLDS
        third = log.fold == (k - ahead) % N_FOLDS
        trees.fit(pairs[taught], rewards[taught])
        of_all = rewards - trees.predict(pairs)
        of_all[np.abs(of_all) <= rounding] = 0.0
        error[own] = of_all[own]
        before = _of_row_before(of_all, same)
        foreseen[own] = boosting().fit(pairs[third], before[third]).predict(pairs[own])
    mean, slope = shrinkage(_of_row_before(error, same), foreseen)
    return RewardErrors(error, mean + slope * (foreseen - mean))


def _trees() -> tuple[Any, Any]:
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
