"""Does the state of a log hide something that lasts, such as a disease that is not recorded?

Given a state in the sense of Markov, what is unusual about a reward says nothing about the next one. Let ε_t be the
reward of a transition less its prediction from the raw columns of the state and the action, by boosted trees fitted to
other groups. For each group or episode e,

    u_e = Σ_t ε_t ε_{t−1} 1[a_t = a_{t−1}],   z = Σ_e u_e / √Σ_e u_e²,

which is nearly normal if nothing is hidden. What is hidden and lasts makes z large: the same action fails again. Only
pairs with the same action count, where effects of what is hidden agree.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special
from sklearn.model_selection import PredefinedSplit, cross_val_predict
from threadpoolctl import threadpool_limits

from lstd.ope.logged_states import LEAF_OF_VALUES, ROUNDING, LoggedStates, boosting
from lstd.types import Array

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


def hidden_state_check(log: LoggedStates) -> HiddenStateCheck:
    """Compare errors of predicted rewards with those of the row before, with the same action."""
    logged = log.logged
    error = logged.rewards - predicted_rewards(log)
    if np.abs(error).max() <= ROUNDING * np.abs(logged.rewards).max():
        error = np.zeros_like(error)
    same = ~logged.begins
    same[1:] &= logged.codes[1:] == logged.codes[:-1]
    products = np.where(same, error * np.roll(error, 1), 0.0)
    by_group = np.bincount(logged.group, products)
    size = float(np.linalg.norm(by_group))
    z = float(by_group.sum()) / size if size else 0.0
    return HiddenStateCheck(z, float(special.ndtr(-z)) if size else 1.0)


def predicted_rewards(log: LoggedStates) -> Array:
    """Predict the reward of each transition from its state and action, out of fold, (N,)."""
    pairs = log.pairs(log.at, log.logged.codes)
    with threadpool_limits(1, "openmp"):  # threads of small fits wait longer than they compute
        trees = boosting(LEAF_OF_VALUES)
        return np.asarray(cross_val_predict(trees, pairs, log.logged.rewards, cv=PredefinedSplit(log.fold)))
