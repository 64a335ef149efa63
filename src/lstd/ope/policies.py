"""Target policies in any form, as probabilities of all actions.

A policy is an array of probabilities, (T, n_actions), or of the action that it takes in each row, (T,) or (T, 1); a
function of states that returns one of these; a fitted LSTDQ, which takes the best action by its values; or an object
whose `predict` returns actions, such as an agent of Stable-Baselines3 or d3rlpy, or a classifier.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd.data.arguments import check_choice, check_real, shown, shown_id
from lstd.data.feature_arrays import check_indices
from lstd.errors import InvalidInputError
from lstd.ope.pairs import by_action, check_probabilities, check_table, is_continuous, one_per_row, values_in
from lstd.types import Array, FeaturesLike, Flags

_SAME = 1e-10  # relative difference of values that are equal but for rounding
_CONTINUOUS = "For continuous actions, give `importance_ratio`, the ratio of the densities of both policies"


class EpsilonGreedy:
    """The policy that takes the action with the largest value, or any action at random with probability ε.

    If the largest values are equal to ten digits, it takes the first of their actions.

    Parameters
    ----------
    values : LSTDQ or callable
        A fitted model, or a function that returns the values of all actions, (T, n_actions), for states (T, n).
    epsilon : float in [0, 1], default 0.0
        Probability of an action drawn uniformly from all.

    Examples
    --------
    >>> from lstd.ope import EpsilonGreedy
    >>> EpsilonGreedy(lambda X: X, epsilon=0.1)([[1.0, 2.0], [5.0, 3.0]])
    array([[0.05, 0.95],
           [0.95, 0.05]])
    """

    def __init__(self, values: Any, epsilon: float = 0.0) -> None:
        self.values = getattr(values, "action_values", values)
        if not callable(self.values):
            raise InvalidInputError(f"`values` must be a fitted LSTDQ or callable; got {shown(values)}.")
        self._given = values
        self.epsilon = check_real("epsilon", epsilon, 0.0, 1.0)

    def __call__(self, X: FeaturesLike) -> Array:
        """Return the probabilities of all actions, (T, n_actions), in states (T, n)."""
        values = values_in(self._given, X, "values")
        least = values.max(axis=1) - _SAME * np.abs(values).max(axis=1)
        first_best = (values >= least[:, np.newaxis]).argmax(axis=1)
        probabilities = np.full(values.shape, self.epsilon / values.shape[1])
        probabilities[np.arange(len(values)), first_best] += 1.0 - self.epsilon
        return probabilities


def is_function(policy: Any) -> bool:
    """Say whether a policy is asked for its actions in states, rather than given in each row."""
    return callable(policy) or (hasattr(policy, "predict") and not hasattr(policy, "__array__"))


def is_made_for_features(policy: Any) -> bool:
    """Say whether a policy of this library takes the features `X`, whatever else is known of a state."""
    return isinstance(policy, EpsilonGreedy) or hasattr(policy, "action_values")


@dataclass(frozen=True)
class PolicyArguments:
    """A target policy as it was given, with what it is asked about."""

    policy: Any
    after: Any = None  # `target_policy_next`
    state: Any = None  # raw columns in the order of the rows as given, and of successors
    state_next: Any = None
    of: str | None = None  # "X" or "state"

    def checked(self) -> PolicyArguments:
        """Refuse a function that may be one of `X` or of `state`."""
        if self.of is not None:
            check_choice("policy_of", self.of, ("X", "state"))
        if not is_function(self.policy):
            if self.of is not None:
                raise InvalidInputError(
                    "`policy_of` must not be given with an array as `target_policy`, which has the probabilities of "
                    "the rows. Leave it out."
                )
            return self
        if is_made_for_features(self.policy):
            if self.of == "state":
                raise InvalidInputError(
                    '`policy_of` must be "X" for a policy of `lstd`, which takes the features that it was fitted to; '
                    "got 'state'. Leave it out, or fit the policy to the features `X`."
                )
            return self
        if self.state is None:
            if self.of == "state":
                raise InvalidInputError("`policy_of` must be \"X\" without `state`; got 'state'. Give `state`.")
            return self
        if self.of is None:
            raise InvalidInputError(
                "`policy_of` must be given with a function as `target_policy` and `state`: what the function takes, "
                '"X" or "state".'
            )
        return self

    @property
    def takes_state(self) -> bool:
        """Whether the policy is called with raw columns."""
        return self.of == "state" and is_function(self.policy)


NO_POLICY = PolicyArguments(None)


def probabilities_of(
    policy: Any,
    X: Any,
    labels: NDArray[Any] | None,
    name: str = "target_policy",
    logged: Any = None,
    states: str = "X",
    unused: Flags | None = None,
) -> Array:
    """Return the checked probabilities (T, n_actions) of a policy in states (T, n).

    Parameters
    ----------
    labels : ndarray of shape (n_actions,), or None
        Labels of the actions, if known.
    logged : array-like, optional
        Logged actions, which say how many there are where the policy is given by the actions that it takes.
    states : str, default "X"
        Name of the states in messages.
    unused : ndarray of shape (T,), optional
        Rows, not all, whose states and probabilities may hold anything: those of another row take their place.
    """
    of = name
    given = policy
    n_rows = int(np.shape(X)[0])
    if is_function(policy):
        of, given = _asked(policy, _replaced(X, unused), name, states)
    if sparse.issparse(given):
        check_indices(of, given)
    if np.shape(given)[:1] == (n_rows,):
        given = _replaced(given, unused)
    if _has_one_per_row(given, labels, logged):
        return _of_actions(of, given, n_rows, labels, logged)
    P = by_action(of, given, labels)
    if hasattr(policy, "predict") and (P.ndim != 2 or not np.allclose(P.sum(axis=1), 1.0)):
        raise InvalidInputError(f"`{of}` must return one action for each row; got {shown(P.shape)}. {_CONTINUOUS}.")
    check_table(of, "probability", P, n_rows, None if labels is None else len(labels))
    check_probabilities(of, P)
    return P


def _replaced(values: Any, unused: Flags | None) -> Any:
    """Return values of rows with those of the first used row in the place of unused ones."""
    if unused is None or not unused.any():
        return values
    first_used = int(np.argmin(unused))
    places = np.where(unused, first_used, np.arange(len(unused)))
    if sparse.issparse(values):
        return values.tocsr()[places]
    if hasattr(values, "iloc"):
        return values.iloc[places]
    if hasattr(values, "column_names"):  # a table of Arrow
        return values.take(places)
    if hasattr(values, "shape"):
        return values[places]
    return np.asarray(values)[places]


def _asked(policy: Any, X: Any, name: str, states: str) -> tuple[str, Any]:
    """Return a name for messages and what a policy says of states."""
    if hasattr(policy, "action_values"):
        return f"{name}({states})", EpsilonGreedy(policy)(X)
    if not hasattr(policy, "predict"):
        return f"{name}({states})", policy(X)
    options = {}
    if "deterministic" in _parameters(policy.predict):
        options["deterministic"] = True  # an agent that draws its actions would say others each time
    taken = policy.predict(X, **options)
    if isinstance(taken, tuple):  # with the state of the agent
        taken = taken[0]
    return f"{name}.predict({states})", taken


def _parameters(function: Any) -> Any:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}


def _has_one_per_row(given: Any, labels: NDArray[Any] | None, logged: Any) -> bool:
    """Say whether a policy is given by actions: one entry per row, where there is more than one action."""
    if sparse.issparse(given):
        return False
    shape = np.shape(given)
    if len(shape) == 1:
        return True
    if len(shape) != 2 or shape[1] != 1:
        return False
    if labels is not None:
        return len(labels) > 1
    return logged is not None and bool(np.any(np.asarray(one_per_row(logged)) != 0))


def _of_actions(of: str, given: Any, n_rows: int, labels: NDArray[Any] | None, logged: Any) -> Array:
    """Return probability 1 for the action that a policy takes in each row."""
    actions = one_per_row(given).reshape(-1)
    if actions.shape != (n_rows,):
        raise InvalidInputError(
            f"`{of}` must have one action per row, shape ({n_rows},), or one probability for each row and action; got "
            f"{np.shape(given)}."
        )
    if is_continuous(actions):
        raise InvalidInputError(
            f"`{of}` must have one probability for each row and action, or one label of an action for each row; its "
            f"numbers are continuous, such as {actions[actions % 1.0 != 0.0][0]:.4g}. {_CONTINUOUS}."
        )
    if labels is None:
        labels = _numbered(of, actions, logged)
    taken = np.array([labels == action for action in actions.tolist()]).reshape(n_rows, len(labels))
    if not taken.any(axis=1).all():
        row = int(np.argmin(taken.any(axis=1)))
        raise InvalidInputError(
            f"`{of}` must hold one of the actions {labels.tolist()!r:.80}; row {row} has {shown_id(actions[row])}. "
            "Give the labels of all actions: `labels`, or `features=StateActionFeatures([…])` of LSTDQ."
        )
    return taken * 1.0


def _numbered(of: str, actions: NDArray[Any], logged: Any) -> NDArray[Any]:
    """Return the labels 0, 1, … up to the largest action that is logged or taken."""
    known = np.array([]) if logged is None else one_per_row(logged).reshape(-1)
    if known.dtype.kind == "f":
        known = known[~np.isnan(known)]
    if actions.dtype.kind not in "biuf" or known.dtype.kind not in "biuf":
        raise InvalidInputError(
            f"`{of}` must have numbers of actions unless their labels are given: `labels`, or "
            f"`features=StateActionFeatures([…])` of LSTDQ; got {shown(actions[0])}."
        )
    largest = max(int(actions.max(initial=0)), int(known.max(initial=0)))
    return np.arange(largest + 1)
