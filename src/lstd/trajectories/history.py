"""Earlier rows of the same episode as features: states, actions and rewards."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd.data.arguments import check_integer
from lstd.data.feature_arrays import Features
from lstd.data.ids import last_rows
from lstd.types import Array


def with_earlier_rows(
    X: Features,
    y: Array,
    episode: NDArray[Any],
    actions: NDArray[Any] | None,
    names: tuple[str, ...] | None,
    k: int,
) -> tuple[Features, tuple[str, ...]]:
    """Return the features with those of k rows before, their actions and rewards, and the names of all columns.

    What lies before the first row of an episode is zero, and a column for each number of rows says whether it is known.
    """
    k = check_integer("k", k, 1)
    step = _step(episode)
    columns = [X]
    own_names = list(names or (f"x{j}" for j in range(X.shape[1])))
    rows_of, of_one_row = _recorded(X, y, actions, own_names)
    found = list(own_names)
    for back in range(1, k + 1):
        known = step >= back
        shifted = _shifted(rows_of, back, known)
        columns += [shifted, known[:, np.newaxis] * 1.0]
        found += [f"{name}_{back}_back" for name in (*of_one_row, "known")]
    if sparse.issparse(X):
        return sparse.hstack([sparse.csr_array(part) for part in columns], format="csr"), tuple(found)
    return np.hstack(columns), tuple(found)


def _step(episode: NDArray[Any]) -> NDArray[np.intp]:
    """Return the number of each row in its episode, (T,)."""
    rows = np.arange(len(episode))
    begins = np.append(True, last_rows(episode)[:-1])
    return np.asarray(rows - np.maximum.accumulate(np.where(begins, rows, 0)))


def _recorded(X: Features, y: Array, actions: NDArray[Any] | None, names: list[str]) -> tuple[Features, list[str]]:
    """Return what is recorded in each row, (T, c), and its names; unknown rewards and actions as zero."""
    rewards = np.nan_to_num(y.reshape(len(y), -1))
    of_rewards = ["reward"] if y.ndim == 1 else [f"reward_{j}" for j in range(rewards.shape[1])]
    taken, of_actions = _action_columns(actions, len(y))
    all_names = [*names, *of_actions, *of_rewards]
    if sparse.issparse(X):
        return sparse.hstack([X, sparse.csr_array(taken), sparse.csr_array(rewards)], format="csr"), all_names
    return np.hstack([X, taken, rewards]), all_names


def _action_columns(actions: NDArray[Any] | None, n_rows: int) -> tuple[Array, list[str]]:
    """Return a column for each label, or the numbers of continuous actions."""
    if actions is None:
        return np.empty((n_rows, 0)), []
    if actions.ndim > 1 or actions.dtype.kind == "f":
        numbers = np.nan_to_num(np.asarray(actions, np.float64).reshape(n_rows, -1))
        if numbers.shape[1] == 1:
            return numbers, ["action"]
        return numbers, [f"action_{j}" for j in range(numbers.shape[1])]
    labels = sorted({*actions.tolist()} - {None}, key=str)
    one_hot = np.array([[action == label for label in labels] for action in actions.tolist()], np.float64)
    return one_hot.reshape(n_rows, len(labels)), [f"action_{label}" for label in labels]


def _shifted(rows_of: Features, back: int, known: NDArray[np.bool_]) -> Features:
    """Return the rows that lie so many rows before, zero where these are not known."""
    before = np.maximum(np.arange(len(known)) - back, 0)
    if sparse.issparse(rows_of):
        return sparse.diags_array(known * 1.0) @ rows_of[before]
    return np.where(known[:, np.newaxis], rows_of[before], 0.0)
