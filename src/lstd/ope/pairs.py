"""Pairs of a state and an action: their features φ(s, a), and the expectation φ̄(s) = Σ_a π(a|s) φ(s, a)."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd.data.arguments import check_integer, shown, shown_id
from lstd.data.convert import as_real, labels_of
from lstd.data.feature_arrays import Features, check_features, check_indices, dense
from lstd.data.ids import first_true
from lstd.data.read_only import lock
from lstd.errors import InvalidInputError
from lstd.types import Array, FeaturesLike

Codes = NDArray[np.intp]

_DENSE_WIDTH = 128  # up to which a product of dense rows is faster than one of sparse rows,
_DENSE_SHARE = 0.25  # and share of the blocks that are not zero, from which it is
_SUM = 1e-6  # largest difference of a sum of probabilities from 1: they may come from float32

_BY_RATIO = "Give `importance_ratio`, the ratio of the densities of both policies, to `evaluate_policy` or LSTD."


def one_per_row(actions: Any) -> NDArray[Any]:
    """Return actions or labels as an array; raise InvalidInputError if some are not numbers or text, such as lists."""
    try:
        array = labels_of(actions)
        if array.dtype.kind == "O":
            hash(tuple(array.ravel().tolist()))
    except MemoryError:
        raise
    except Exception as error:  # lists of different lengths, or a type that NumPy has not
        dtype = getattr(actions, "dtype", None)
        of_dtype = "" if dtype is None else f" and dtype {dtype}"
        raise InvalidInputError(
            f"`actions` must have one number or text for each; got {shown(actions)}{of_dtype}. Give each action one "
            "label, an integer of 64 bits or text."
        ) from error
    return array


def as_column(values: Any) -> Any:
    """Return the entries of a column (T, 1), (T,); anything else as it is."""
    try:
        shape = np.shape(values)
    except Exception:  # a type that NumPy has not, which the check of the argument refuses
        return values
    if len(shape) == 2 and shape[1] == 1 and not sparse.issparse(values):
        return np.asarray(values).reshape(-1)
    return values


def is_continuous(actions: NDArray[Any]) -> bool:
    """Say whether actions are numbers of which some are not whole."""
    return bool(actions.dtype.kind == "f" and (actions[np.isfinite(actions)] % 1.0 != 0.0).any())


class StateActionFeatures:
    """Features of pairs of a state and one of several actions.

    By default, each action has a block of columns of its own, which holds the features of the state; the other blocks
    are zero. With many columns, the features are sparse.

    Parameters
    ----------
    actions : int or sequence
        Number of actions, which are then 0, 1, …; or their labels, such as ``["wait", "treat"]``.
    phi : callable, optional
        Function φ(s, a). It is called with features of states (T, n) and the label of an action for each (T,), and
        returns the features of the pairs (T, k), dense or sparse.

    Attributes
    ----------
    labels : ndarray of shape (n_actions,)

    Examples
    --------
    >>> from lstd.ope import StateActionFeatures
    >>> features = StateActionFeatures(["wait", "treat"])
    >>> features.transform([[1.0, 5.0], [1.0, 6.0]], ["treat", "wait"])
    array([[0., 0., 1., 5.],
           [1., 6., 0., 0.]])
    >>> features.expected([[1.0, 5.0]], [[0.2, 0.8]])
    array([[0.2, 1. , 0.8, 4. ]])
    """

    def __init__(
        self, actions: int | Sequence[Any] | NDArray[Any], phi: Callable[[Any, NDArray[Any]], Any] | None = None
    ) -> None:
        if isinstance(actions, (int, np.integer)):
            self.labels: NDArray[Any] = np.arange(check_integer("actions", actions, 1))
        else:
            self.labels = one_per_row(actions).copy()
            if self.labels.ndim != 1 or not len(self.labels) or len({*self.labels.tolist()}) < len(self.labels):
                raise InvalidInputError(
                    f"`actions` must be a number of actions or their labels, all different; got {shown(actions)}."
                )
        if phi is not None and not callable(phi):
            raise InvalidInputError(f"`phi` must be callable with states and actions; got {shown(phi)}.")
        self.phi = phi
        lock([self.labels])

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        lock([self.labels])

    @property
    def n_actions(self) -> int:
        """Number of actions."""
        return len(self.labels)

    def codes(self, actions: Any, rows: NDArray[Any] | None = None) -> Codes:
        """Return the place of each action among the labels; `rows` are their numbers in a message."""
        given = one_per_row(actions)
        if given.ndim != 1:
            remedy = ""
            if is_continuous(given):
                remedy = f" They are continuous. {_BY_RATIO}"
            raise InvalidInputError(
                f"`actions` must hold {self._choices()}, one per row; got {shown(actions)}.{remedy}"
            )
        found: Codes = np.zeros(len(given), np.intp)
        try:
            order = np.argsort(self.labels, kind="stable")
            places = np.minimum(np.searchsorted(self.labels, given, sorter=order), self.n_actions - 1)
            found = order[places]
            unknown = np.asarray(self.labels[found] != given)
        except TypeError:  # text and numbers have no order
            unknown = np.array([action not in self.labels.tolist() for action in given.tolist()])
        if unknown.any() and is_continuous(given) and not is_continuous(self.labels):
            number = given[given % 1.0 != 0.0][0]
            raise InvalidInputError(
                f"`actions` must hold {self._choices()}; they are continuous, such as {number:.4g}. {_BY_RATIO}"
            )
        i = first_true(unknown)
        if i is not None:
            raise InvalidInputError(
                f"`actions` must hold {self._choices()}; row {_number_of(i, rows)} has {shown_id(given[i])}. Correct "
                "it, or give the labels of all actions: `labels`, or `features=StateActionFeatures([…])` of LSTDQ."
            )
        return found

    def codes_of_rows(self, actions: Any, n_rows: int) -> Codes:
        """Return the place of each action among the labels, (T,), of rows of `X`."""
        given = one_per_row(actions)
        if given.shape != (n_rows,):
            raise InvalidInputError(
                f"`actions` must have one action per row of `X`, shape ({n_rows},); got {given.shape}."
            )
        return self.codes(given)

    def _choices(self) -> str:
        if self.labels.dtype.kind in "iu" and np.array_equal(self.labels, np.arange(self.n_actions)):
            return f"integers in [0, {self.n_actions - 1}]"
        return f"one of {self.labels.tolist()!r:.200}"

    def transform(self, X: FeaturesLike, actions: Any) -> Features:
        """Return φ(s, a) of states (T, n) and actions (T,): (T, n_actions · n), or the result of `phi`."""
        states = check_features("X", X)
        return self.of_pairs(states, self.codes_of_rows(actions, states.shape[0]))

    def expected(self, X: FeaturesLike, probabilities: Any) -> Features:
        """Return φ̄(s) = Σ_a π(a|s) φ(s, a) of states (T, n) and probabilities (T, n_actions)."""
        states = check_features("X", X)
        n_rows = states.shape[0]
        P = np.asarray(probabilities, dtype=np.float64)
        if P.shape != (n_rows, self.n_actions):
            raise InvalidInputError(f"`probabilities` must have shape ({n_rows}, {self.n_actions}); got {P.shape}.")
        return self.of_mixtures(states, P)

    def of_pairs(self, X: Features, codes: Codes) -> Features:
        """Return φ(s, a) of checked states and places of actions."""
        if self.phi is not None:
            return self._called(X, codes)
        return self._blocks(X, np.arange(len(codes)), codes, np.ones(len(codes)))

    def of_mixtures(self, X: Features, P: Array) -> Features:
        """Return φ̄(s) of checked states and probabilities; zero where all probabilities are zero."""
        if self.phi is None:
            rows, codes = np.nonzero(P)
            return self._blocks(X, rows, codes, P[rows, codes])
        if not P.any():
            return np.zeros((X.shape[0], self._called(X[:1], np.zeros(1, np.intp)).shape[1]))
        parts: list[Any] = []
        for code in np.flatnonzero(P.any(axis=0)):
            rows = np.flatnonzero(P[:, code])
            shares = sparse.csr_array((P[rows, code], (rows, np.arange(len(rows)))), (X.shape[0], len(rows)))
            phi = self._called(X[rows], np.full(len(rows), code))
            parts.append(shares @ phi)
        return reduce(operator.add, parts)

    def total(self, X: Features, P: Array) -> Array:
        """Return Σ_i Σ_a P_ia φ(s_i, a) of checked states, (k,)."""
        if self.phi is None:
            return dense(X.T @ P).T.reshape(-1)
        return np.asarray(sum(phi.T @ p for phi, p in zip(self._of_each_action(X), P.T, strict=True)))

    def action_values(self, X: Features, weights: Array) -> Array:
        """Return φ(s, a)ᵀw of every action, (T, n_actions)."""
        if self.phi is None:
            return np.asarray(X @ weights.reshape(self.n_actions, -1).T)
        return np.column_stack([phi @ weights for phi in self._of_each_action(X)])

    def touching(self, X: Features, columns: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return the pairs that are not zero in one of these columns, (T, n_actions)."""
        if self.phi is None:
            return self.action_values(abs(X), np.asarray(columns, dtype=np.float64)) > 0.0
        return np.column_stack([abs(phi)[:, columns].sum(axis=1) > 0.0 for phi in self._of_each_action(X)])

    def _of_each_action(self, X: Features) -> Iterator[Features]:
        """Yield φ(s, a) of all states, (T, k), for each action."""
        return (self._called(X, np.full(X.shape[0], code)) for code in range(self.n_actions))

    def _called(self, X: Features, codes: Codes) -> Features:
        assert self.phi is not None
        phi = check_features("phi(X, actions)", self.phi(X, self.labels[codes]))
        if phi.shape[0] != X.shape[0]:
            raise InvalidInputError(f"`phi` must return one row per pair, {X.shape[0]}; got {phi.shape[0]} rows.")
        return phi

    def _blocks(self, X: Features, rows: NDArray[Any], codes: Codes, factors: Array) -> Features:
        """Return Σ of factor · features of the state in the block of the action; `rows` in ascending order."""
        T, n = X.shape
        width = n * self.n_actions
        if not sparse.issparse(X):
            if width <= _DENSE_WIDTH or len(rows) > max(T, _DENSE_SHARE * T * self.n_actions):
                share = np.zeros((T, self.n_actions, 1))
                share[rows, codes, 0] = factors
                return (share * X[:, np.newaxis]).reshape(T, width)
            data = (X[rows] * factors[:, np.newaxis]).reshape(-1)
            indices = (codes[:, np.newaxis] * n + np.arange(n)).reshape(-1)
            lengths = np.full(len(rows), n)
        else:
            part = X[rows]
            lengths = np.diff(part.indptr)
            data = part.data * np.repeat(factors, lengths)
            indices = part.indices + np.repeat(codes * n, lengths)
        ends = np.concatenate([[0], np.cumsum(lengths)])
        indptr = ends[np.searchsorted(rows, np.arange(T + 1))]
        return sparse.csr_array((data, indices, indptr), shape=(T, width))


def values_in(q: Any, X: Features, name: str = "q", n_actions: int | None = None) -> Array:
    """Return the checked values of all actions in states, (T, n_actions), of a model or a function."""
    function = getattr(q, "action_values", q)
    if not hasattr(X, "columns"):
        function = getattr(q, "values_at", function)  # without a look at the names of columns
    if not callable(function):
        raise InvalidInputError(f"`{name}` must be a fitted LSTDQ, or callable; got {shown(q)}.")
    values = as_real(f"{name}(X)", function(X))
    check_table(f"{name}(X)", "value", values, np.shape(X)[0], n_actions)
    bad = ~np.isfinite(values)
    if bad.any():
        row, action = np.argwhere(bad)[0].tolist()
        raise InvalidInputError(
            f"`{name}(X)` must be finite; row {row} has {values[row, action]} for action {action}. Correct the "
            "function, or fit the model to other data."
        )
    return values


def check_table(name: str, what: str, values: Array, n_rows: int, n_actions: int | None) -> None:
    """Refuse numbers that are not one for each row and action, (n_rows, n_actions)."""
    if values.ndim != 2 or len(values) != n_rows or values.shape[1] != (n_actions or max(1, values.shape[1])):
        raise InvalidInputError(
            f"`{name}` must have one {what} for each row and action, shape ({n_rows}, {n_actions or 'n_actions'}); "
            f"got {values.shape}."
        )


def by_action(name: str, values: Any, labels: NDArray[Any] | None) -> Array:
    """Convert probabilities to an array; columns of a data frame that bear the labels of actions go in their order.

    Labels are 0, 1, … unless they are known. A name may be the text of a label. Columns without names of their own, 0,
    1, … in pandas, are in the order of the labels.
    """
    columns = _columns_of(values)
    if sparse.issparse(values):
        check_indices(name, values)
        values = values.toarray()
    array = as_real(name, values)
    unnamed = [*range(len(columns))]
    actions: list[Any] = unnamed
    if labels is not None:
        actions = labels.tolist()
    by_text = {_written(action): i for i, action in enumerate(actions)}
    by_label = {action: i for i, action in enumerate(actions)}
    found = [by_label.get(one, by_text.get(_written(one))) for one in columns]
    known = [place for place in found if place is not None]
    if columns and len(found) == len(actions) and {*known} == {*range(len(actions))}:
        return np.asarray(array[:, np.argsort(known)])
    if columns and (known or columns != unnamed):
        raise InvalidInputError(
            f"`{name}` must have a column for each action, {actions!r:.80}; got {columns!r:.80}. Rename its columns, "
            "give `labels`, or pass an array with columns in this order."
        )
    return array


def _columns_of(values: Any) -> list[Any]:
    """Return the names of the columns of a data frame; none of anything else."""
    if hasattr(values, "column_names"):  # a table of Arrow, whose `columns` are values
        return list(values.column_names)
    return list(getattr(values, "columns", ()))


def _written(label: Any) -> str:
    """Return a label as text, the same for 1, 1.0 and "1"."""
    if isinstance(label, bool):
        return str(label)
    try:
        return f"{float(label):.17g}"
    except (TypeError, ValueError, OverflowError):
        return str(label)


def check_probabilities(name: str, P: Array, rows: NDArray[Any] | None = None) -> None:
    """Refuse numbers outside of [0, 1], and those of all actions, (N, n_actions), that do not sum to 1.

    `rows` are the numbers of the rows in messages.
    """
    bad = ~((P >= 0.0) & (P <= 1.0 + _SUM))
    if bad.any():
        where = tuple(np.argwhere(bad)[0].tolist())
        row = _number_of(where[0], rows)
        of = ""
        if P.ndim == 2:
            of = f" for action {where[1]}"
        remedy = "Correct it."
        if P[where] > 1.0:
            remedy = "Divide percentages by 100, and weights by their sum."
        raise InvalidInputError(f"`{name}` must hold probabilities in [0, 1]; row {row} has {P[where]:g}{of}. {remedy}")
    if P.ndim != 2:
        return
    i = first_true(np.abs(P.sum(axis=1) - 1.0) > _SUM)
    if i is not None:
        raise InvalidInputError(
            f"`{name}` must sum to 1 over the actions; row {_number_of(i, rows)} sums to {P[i].sum():.6g}. Divide "
            "each row by its sum, and check that no action is left out."
        )


def _number_of(i: int, rows: NDArray[Any] | None) -> Any:
    """Return the number of a row in messages."""
    if rows is None:
        return i
    return rows[i]


def logged_probabilities(behavior: Array, P: Array, codes: NDArray[np.intp], rows: NDArray[Any] | None = None) -> Array:
    """Return the probabilities of the logged actions, (N,), of `behavior`: these, or those of all actions.

    `rows` are the numbers of the rows in messages. Raises InvalidInputError if a number is no probability, if that of a
    logged action is zero, or if the target policy takes an action that was never taken.
    """
    check_probabilities("behavior_probability", behavior, rows)
    logged = behavior
    if behavior.ndim > 1:
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
                f"{_number_of(i, rows)} has 0 for action {action}, which the target policy takes with "
                f"probability {P[i, action]:g}. The data say nothing about it: choose a target policy that avoids it."
            )
        logged = behavior[np.arange(len(codes)), codes]
    i = first_true(logged == 0.0)
    if i is not None:
        raise InvalidInputError(
            f"`behavior_probability` must be above 0 for actions that were logged; row {_number_of(i, rows)} has 0. "
            "Correct it, or drop the row's episode."
        )
    return logged
