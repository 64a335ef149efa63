"""Folds of rows for cross-validation, the sums without each of them, and the returns to predict in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse

from lstd.data.arguments import check_integer
from lstd.data.returns import completed_returns
from lstd.data.rows import Rows, uniform
from lstd.errors import InvalidInputError
from lstd.statistics.merging import LSTDStatistics
from lstd.types import Array

_FOLDS, _FEWEST_EPISODES = 10, 5


def folds_of(rows: Rows, cv: Any = None) -> list[Rows]:
    """Split into folds of consecutive groups or episodes, or of consecutive rows, which may cut an episode."""
    starts = np.flatnonzero(rows.begins)
    wanted = _FOLDS if cv is None else check_integer("cv", cv, 2)
    if rows.groups is not None and len(starts) < 2:
        raise InvalidInputError("`groups` must have at least two groups to hold some out; got one.")
    if are_whole(rows):
        count = min(len(starts), wanted)
        edges = starts[-(-np.arange(count) * len(starts) // count)]
    else:
        count = min(int(rows.full.sum()), wanted)
        edges = np.arange(count) * len(rows) // count
    return rows.split(edges.tolist())


def are_whole(rows: Rows) -> bool:
    """Return whether folds have whole groups or episodes."""
    return rows.groups is not None or int(rows.begins.sum()) >= _FEWEST_EPISODES


def without_each(sums: list[LSTDStatistics]) -> Iterator[LSTDStatistics]:
    """Sum the data without each fold: the rows before it and the rows after it are two streams."""
    after: list[LSTDStatistics | None] = [None]
    for fold in reversed(sums[1:]):
        after.append(fold if after[-1] is None else fold.then(after[-1]))
    before: LSTDStatistics | None = None
    for fold, rest in zip(sums, reversed(after), strict=True):
        if before is None or rest is None:
            yield before if rest is None else rest  # type: ignore[misc]  # there are two folds at least
        else:
            yield before + rest
        before = fold if before is None else before.then(fold)


def lambda_returns(rows: Rows, lmbda: float, weights: Array) -> Array:
    """Compute λ-returns (T, m), bootstrapped by weights (n, m)."""
    ahead = None if rows.X_next is None else np.asarray(rows.X_next @ weights)
    return completed_returns(rows, np.asarray(rows.X @ weights), ahead, lmbda)


def times_weights(columns: Any, weights: Array) -> Any:
    """Multiply rows, dense or sparse, by their weights, (T,)."""
    if uniform(weights):  # they are 1
        return columns
    return sparse.diags_array(weights) @ columns if sparse.issparse(columns) else weights[:, np.newaxis] * columns
