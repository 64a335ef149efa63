"""Least-squares policy iteration on stored data.

M. G. Lagoudakis and R. Parr, "Least-squares policy iteration", JMLR 4, 2003.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lstd.data.arguments import check_integer, shown
from lstd.errors import InvalidInputError
from lstd.ope.logged_rows import PER_ROW, log_columns
from lstd.ope.lstdq import LSTDQ
from lstd.ope.pairs import EpsilonGreedy, StateActionFeatures
from lstd.ope.policy_value import PolicyValue, policy_value
from lstd.statistics.intervals import check_level


@dataclass(frozen=True, eq=False)
class PolicyIteration:
    """Where policy iteration stopped, and the values on the way; ``print`` says it in words.

    Attributes
    ----------
    stopped : {"repeated", "cycle", "limit"}
        "repeated" if the last two policies take the same actions in all logged states, those of `X_next`
        included; "cycle" if an earlier policy came back, "limit" if neither happened within the number of iterations.
    cycle : int
        Number of policies in the cycle; 1 for "repeated", 0 for "limit".
    path : tuple of PolicyValue
        Value of each policy, in order of evaluation. Where a model has no interval, such as one of more features than
        memory allows, the interval is infinite, with `little_data`.
    model : LSTDQ
        Action values of the last policy.
    policy : EpsilonGreedy
        The greedy policy of `model`: the result.

    Examples
    --------
    One state, and two actions, of which the second pays:

    >>> import numpy as np
    >>> from lstd.ope import StateActionFeatures, lspi
    >>> data = {"X": np.ones((40, 1)), "y": np.tile([0.0, 1.0], 20), "actions": np.tile([0, 1], 20)}
    >>> found = lspi(data | {"terminated": np.ones(40, dtype=bool)}, StateActionFeatures(2), gamma=0.9)
    >>> found.stopped, [round(one.value, 2) for one in found.path], found.policy(np.ones((1, 1))).tolist()
    ('repeated', [0.5, 1.0], [[0.0, 1.0]])
    """

    stopped: str
    cycle: int
    path: tuple[PolicyValue, ...]
    model: LSTDQ
    policy: EpsilonGreedy = field(repr=False)

    def __str__(self) -> str:
        n, last = len(self.path), [one.value for one in self.path[-max(1, self.cycle) :]]
        missing = self.model.lstd_.model_.no_intervals
        note = f" Values have no intervals. {missing}" if missing else ""
        if self.stopped == "cycle":
            return (
                f"Policies come back in a cycle of {self.cycle} after {n} evaluations, with values from "
                f"{min(last):.4g} to {max(last):.4g}; `policy` is the last one, no better than the others.{note}"
            )
        why = "the policy repeats itself" if self.stopped == "repeated" else "policies still change at `max_iterations`"
        return f"Stopped after {n} evaluations, as {why}; the last value is {last[-1]:.4g}.{note}"


def lspi(
    data: Any, features: Any = None, *, gamma: float, alpha: Any = 1e-3, lmbda: float = 0.0, trace: str = "retrace",
    fit_intercept: bool = False, initial_policy: Any = None, initial_states: Any = None, epsilon: float = 0.0,
    level: float = 0.95, max_iterations: int = 20,
) -> PolicyIteration:  # fmt: skip
    """Improve a policy on stored data: evaluate it by :class:`LSTDQ`, take its greedy policy, and so on.

    There is no guarantee of improvement: with features that cannot represent the values, policies may get worse or
    cycle. On the data that chose a greedy policy, its estimated value is too high.

    Parameters
    ----------
    data : Trajectories or mapping
        Arguments of :meth:`LSTDQ.fit`: X, y, actions, and episode, terminated, X_next, … where known.
    features : StateActionFeatures or callable
        Features of pairs, with the labels of the actions.
    gamma, alpha, lmbda, trace, fit_intercept, epsilon
        Settings of :class:`LSTDQ` and :class:`EpsilonGreedy`.
    initial_policy : callable, optional
        Function of states that returns probabilities; by default, uniform.
    initial_states : array-like of shape (m, n), optional
        As in :func:`policy_value`.
    level : float, default 0.95
        Level of the intervals of the values.
    max_iterations : int, default 20
        Largest number of policies to evaluate.

    Returns
    -------
    PolicyIteration

    Examples
    --------
    Two states and two actions, of which the second moves to the other state; state 1 pays:

    >>> import numpy as np
    >>> from lstd.ope import StateActionFeatures, lspi
    >>> random = np.random.default_rng(0)
    >>> states, actions = random.integers(2, size=(2, 400))
    >>> after = np.where(actions == 1, 1 - states, states)
    >>> data = {"X": np.eye(2)[states], "y": 1.0 * after, "actions": actions, "X_next": np.eye(2)[after]}
    >>> found = lspi(data | {"episode": np.arange(400)}, StateActionFeatures(2), gamma=0.9)
    >>> found.stopped, len(found.path), found.policy(np.eye(2)).argmax(axis=1)
    ('repeated', 2, array([1, 0]))
    """
    arrays = log_columns(data, ("X", "y", "actions"), (*PER_ROW, "behavior_probability"))
    level, most = check_level(level), check_integer("max_iterations", max_iterations, 1)
    policy: Any = _uniform(features) if initial_policy is None else initial_policy
    states = [arrays[name] for name in ("X", "X_next") if arrays.get(name) is not None]
    seen: dict[bytes, int] = {}
    path: list[PolicyValue] = []
    while True:
        model = LSTDQ(gamma, lmbda, trace, alpha, fit_intercept, features=features, weighting="none")
        model.fit(**arrays, target_policy=policy)
        path.append(_value(model, initial_states, level))
        policy = EpsilonGreedy(model, epsilon)
        key = b"".join(policy(X).argmax(axis=1).tobytes() for X in states)
        if key in seen:
            cycle = len(path) - seen[key]
            return PolicyIteration("repeated" if cycle == 1 else "cycle", cycle, tuple(path), model, policy)
        if len(path) == most:
            return PolicyIteration("limit", 0, tuple(path), model, policy)
        seen[key] = len(path)


def _value(model: LSTDQ, initial_states: Any, level: float) -> PolicyValue:
    """Return the value of the policy of a model, with an infinite interval if the model has none."""
    if not model.lstd_.model_.no_intervals:
        return policy_value(model, initial_states, level)
    X, P = model.initial(initial_states)
    value = float((model.values_at(X) * P).sum(axis=1).mean())
    return PolicyValue(value, -np.inf, np.inf, np.inf, 0.0, 0.0, True, check_level(level), "fixed")


def _uniform(features: Any) -> EpsilonGreedy:
    """Return the policy that takes all actions with the same probability."""
    if not isinstance(features, StateActionFeatures):
        raise InvalidInputError(
            f"`features` must be StateActionFeatures unless `initial_policy` is given; got {shown(features)}."
        )
    return EpsilonGreedy(lambda X: np.zeros((X.shape[0], features.n_actions)), epsilon=1.0)
