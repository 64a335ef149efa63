"""Target policies: checked probabilities of actions, and the greedy rule."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd.data.arguments import as_real, check_real, shown
from lstd.data.feature_arrays import Features
from lstd.data.parsing import first_true
from lstd.errors import InvalidInputError
from lstd.types import Array

_SAME = 1e-10  # relative difference of values that are equal but for rounding
_SUM = 1e-6  # largest difference of a sum of probabilities from 1: they may come from float32


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
        self._of_arrays = getattr(values, "values_at", self.values)  # without a look at the names of columns
        if not callable(self.values):
            raise InvalidInputError(f"`values` must be a fitted LSTDQ or callable; got {shown(values)}.")
        self.epsilon = check_real("epsilon", epsilon, 0.0, 1.0)

    def __call__(self, X: Any) -> Array:
        """Return the probabilities of all actions, (T, n_actions), in states (T, n)."""
        values = as_real("values(X)", (self.values if hasattr(X, "columns") else self._of_arrays)(X))
        if values.ndim != 2 or not values.shape[1]:
            raise InvalidInputError(f"`values(X)` must have one value for each row and action; got {values.shape}.")
        bad = ~np.isfinite(values)
        if bad.any():
            row, action = np.argwhere(bad)[0].tolist()
            raise InvalidInputError(
                f"`values(X)` must be finite; row {row} has {values[row, action]} for action {action}. Correct the "
                "function, or fit the model to other data."
            )
        least = values.max(axis=1) - _SAME * np.abs(values).max(axis=1)
        probabilities = np.full(values.shape, self.epsilon / values.shape[1])
        probabilities[np.arange(len(values)), (values >= least[:, np.newaxis]).argmax(axis=1)] += 1.0 - self.epsilon
        return probabilities


def probabilities_of(policy: Any, X: Features, labels: NDArray[Any] | None, name: str = "target_policy") -> Array:
    """Return the checked probabilities (T, n_actions) of a policy, an array or a callable, in states (T, n).

    `labels` are those of the actions, if known.
    """
    of, n_actions = f"{name}(X)" if callable(policy) else name, None if labels is None else len(labels)
    P = by_action(of, policy(X) if callable(policy) else policy, labels)
    if P.ndim != 2 or len(P) != X.shape[0] or P.shape[1] != (n_actions or max(1, P.shape[1])):
        raise InvalidInputError(
            f"`{of}` must have one probability for each row and action, shape ({X.shape[0]}, "
            f"{n_actions or 'n_actions'}); got {P.shape}."
        )
    check_probabilities(of, P)
    return P


def by_action(name: str, values: Any, labels: NDArray[Any] | None) -> Array:
    """Convert probabilities to an array; columns of a data frame that bear the labels of actions go in their order.

    Labels are 0, 1, … unless they are known. A name may be the text of a label. Columns of which none
    has such a name are in the order of the labels, unless both are text.
    """
    columns = getattr(values, "column_names", None)  # of a table of Arrow, whose `columns` are values
    columns = list(getattr(values, "columns", ()) if columns is None else columns)
    array = as_real(name, values.toarray() if sparse.issparse(values) else values)
    actions: list[Any] = [*range(len(columns))] if labels is None else labels.tolist()
    places = {_written(action): i for i, action in enumerate(actions)} | {action: i for i, action in enumerate(actions)}
    found = [places.get(one, places.get(_written(one))) for one in columns]
    known = [place for place in found if place is not None]
    if columns and len(found) == len(actions) and {*known} == {*range(len(actions))}:
        return np.asarray(array[:, np.argsort(known)])
    if known or (columns and all(isinstance(one, str) for one in (*columns, *actions))):
        raise InvalidInputError(
            f"`{name}` must have a column for each action, {actions!r:.80}; got {columns!r:.80}. Rename its columns, "
            "or pass an array with columns in this order."
        )
    return array


def _written(label: Any) -> str:
    """Return a label as text, the same for 1, 1.0 and "1"."""
    try:
        return str(label) if isinstance(label, bool) else f"{float(label):.17g}"
    except (TypeError, ValueError, OverflowError):
        return str(label)


def check_probabilities(name: str, P: Array, rows: NDArray[Any] | None = None) -> None:
    """Refuse numbers outside of [0, 1], and those of all actions, (N, n_actions), that do not sum to 1.

    `rows` are the numbers of the rows in messages.
    """
    bad = ~((P >= 0.0) & (P <= 1.0 + _SUM))
    if bad.any():
        where = tuple(np.argwhere(bad)[0].tolist())
        row, of = where[0] if rows is None else rows[where[0]], f" for action {where[1]}" if P.ndim == 2 else ""
        remedy = "Divide percentages by 100, and weights by their sum." if P[where] > 1.0 else "Correct it."
        raise InvalidInputError(f"`{name}` must hold probabilities in [0, 1]; row {row} has {P[where]:g}{of}. {remedy}")
    if P.ndim == 2 and (i := first_true(np.abs(P.sum(axis=1) - 1.0) > _SUM)) is not None:
        raise InvalidInputError(
            f"`{name}` must sum to 1 over the actions; row {i if rows is None else rows[i]} sums to "
            f"{P[i].sum():.6g}. Divide each row by its sum, and check that no action is left out."
        )


def logged_probabilities(behavior: Array, P: Array, codes: NDArray[np.intp], rows: NDArray[Any] | None = None) -> Array:
    """Return the probabilities of the logged actions, (N,), of `behavior`: these, or those of all actions.

    `rows` are the numbers of the rows in messages. Raises InvalidInputError if a number is no probability, if that of a
    logged action is zero, or if the target policy takes an action that was never taken.
    """
    check_probabilities("behavior_probability", behavior, rows)
    if behavior.ndim == 1:
        logged = behavior
    else:
        if behavior.shape != P.shape:
            raise InvalidInputError(
                f"`behavior_probability` must have one entry per row, or one per row and action, {P.shape[1]} in each; "
                f"got {behavior.shape[1:]} in each."
            )
        never = (behavior == 0.0) & (P > 0.0)
        if never.any():
            i, action = np.argwhere(never)[0].tolist()
            raise InvalidInputError(
                f"`behavior_probability` must be above 0 for actions that the target policy takes; row "
                f"{i if rows is None else rows[i]} has 0 for action {action}, which the target policy takes with "
                f"probability {P[i, action]:g}. The data say nothing about it: choose a target policy that avoids it."
            )
        logged = behavior[np.arange(len(codes)), codes]
    if (i := first_true(logged == 0.0)) is not None:
        raise InvalidInputError(
            f"`behavior_probability` must be above 0 for actions that were logged; row "
            f"{i if rows is None else rows[i]} has 0. Correct it, or drop the row's episode."
        )
    return logged
