"""Folds of rows for cross-validation: sums without each of them, returns to predict in them, and means over rows."""

from __future__ import annotations

import sys
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd.data.arguments import check_integer
from lstd.data.feature_arrays import Features, dense
from lstd.data.returns import completed_returns
from lstd.data.rows import Rows, uniform
from lstd.data.settings import Settings
from lstd.errors import InvalidInputError
from lstd.statistics.merging import LSTDStatistics
from lstd.statistics.system import System
from lstd.types import Array

_FOLDS = 10
_FEWEST_EPISODES = 5  # of which folds are made; with fewer, folds have rows
_GOLDEN = 0.5 * (np.sqrt(5.0) - 1.0)


def folds_of(rows: Rows, cv: Any = None) -> list[Rows]:
    """Split into folds of consecutive groups or episodes, or of consecutive rows, which may cut an episode."""
    starts = np.flatnonzero(rows.begins)
    wanted = _FOLDS
    if cv is not None:
        wanted = check_integer("cv", cv, 2)
    if rows.groups is not None and len(starts) < 2:
        raise InvalidInputError("`groups` must have at least two groups to hold some out; got one.")
    if are_whole(rows):
        count = min(len(starts), wanted)
        first_groups = -(-np.arange(count) * len(starts) // count)  # rounded up
        edges = starts[first_groups]
    else:
        count = min(int(rows.full.sum()), wanted)
        edges = np.arange(count) * len(rows) // count
    return rows.split(edges.tolist())


def are_whole(rows: Rows) -> bool:
    """Return whether folds have whole groups or episodes."""
    return rows.groups is not None or int(rows.begins.sum()) >= _FEWEST_EPISODES


def rows_from_all_over(rows: Rows, most: int, n_groups: int = 0, limit: int = sys.maxsize) -> Rows:
    """Return whole groups, or episodes without groups, from all over the rows: the same ones each time.

    They have at most so many rows, or, if these are more, are `n_groups`; in any case at most `limit` rows. They are
    the groups whose numbers times the golden ratio have the smallest fractional parts. A first one beyond the limit is
    cut off there.
    """
    if len(rows) <= min(most, limit):
        return rows
    starts = np.flatnonzero(rows.begins)
    lengths = np.diff(np.append(starts, len(rows)))
    order = np.argsort(fractions(np.arange(len(starts))), kind="stable")
    n_kept = groups_kept(np.cumsum(lengths[order]), len(starts), most, n_groups, limit)
    if n_kept == 0:
        most = max(1, min(most, limit))
        first = int(starts[order[0]])
        parts = rows.split([first, first + most])
        if first == 0:
            return parts[0]
        return parts[1]  # after the rows before it
    kept = np.zeros(len(starts), np.bool_)
    kept[order[:n_kept]] = True
    return rows.taken(np.flatnonzero(np.repeat(kept, lengths)))


def fractions(numbers: NDArray[np.intp]) -> Array:
    """Return the fractional parts of numbers of groups times the golden ratio, by which groups are taken."""
    return np.asarray(numbers * _GOLDEN % 1.0)


def groups_kept(n_rows: NDArray[np.intp], count: int, most: int, n_groups: int, limit: int) -> int:
    """Return how many of `count` groups are taken, of which the first have `n_rows` rows in all, in their order."""
    n_kept = max(int(np.count_nonzero(n_rows <= most)), min(n_groups, count - 1))
    return min(n_kept, int(np.count_nonzero(n_rows <= limit)))


def left_out(sums: list[LSTDStatistics]) -> tuple[LSTDStatistics, list[LSTDStatistics]]:
    """Sum all folds, at least two, and the data without each: the rows before it and the rows after it are two streams.

    Solving checks the sums for overflow.
    """
    until = [*accumulate(sums, LSTDStatistics.merged)]  # each fold with those before it
    after = [*accumulate(reversed(sums[1:]), lambda later, fold: fold.merged(later))]
    after.reverse()  # the folds after each but the last
    inner = [before + rest for before, rest in zip(until[:-2], after[1:], strict=True)]
    return until[-1], [after[0], *inner, until[-2]]


def held_out_weights(folds: list[Rows], settings: Settings) -> list[Array]:
    """Return the weights (n, m) of a model without each fold of its rows, with the ridge term in proportion."""
    sums = [LSTDStatistics.from_rows(fold, settings.lmbda) for fold in folds]
    whole = sum(fold.total_weight for fold in sums) or 1.0
    _, rests = left_out(sums)
    ridge = settings.ridge(folds[0].n_features - settings.fit_intercept)
    weights = []
    for rest in rests:
        share = rest.total_weight / whole
        system = System.of(rest, settings.variant, share * ridge, intercept=settings.fit_intercept)
        weights.append(system.solve().weights)
    return weights


def lambda_returns(rows: Rows, lmbda: float, weights: Array) -> Array:
    """Compute λ-returns (T, m), bootstrapped by weights (n, m)."""
    values = np.asarray(rows.X @ weights)
    values_next = None
    if rows.X_next is not None:
        values_next = np.asarray(rows.X_next @ weights)
    return completed_returns(rows, values, values_next, lmbda)


def transition_weights(rows: Rows) -> Array:
    """Return the weight of each full transition, and 0 for horizon rows, (T,)."""
    if rows.full.all():
        return rows.weight
    return np.asarray(rows.full * rows.weight)


def times_weights(columns: Any, weights: Array) -> Any:
    """Multiply rows, dense or sparse, by their weights, (T,)."""
    if uniform(weights):  # they are 1
        return columns
    if sparse.issparse(columns):
        return sparse.diags_array(weights) @ columns
    return weights[:, np.newaxis] * columns


def total_weight(rows: Rows) -> float:
    """Return the sum of the weights of the full transitions; 1 without any."""
    return float(transition_weights(rows).sum()) or 1.0


def mean_product(rows: Rows, one: Features, two: Features) -> Array:
    """Compute the mean over the full transitions of products of two functions of rows, (T, n) and (T, m), by weight."""
    weighted = times_weights(two, transition_weights(rows))
    return dense(one.T @ weighted) / total_weight(rows)


def mean_square(rows: Rows, columns: Array) -> Array:
    """Compute the mean square over the full transitions of functions of rows, (T, k), by weight."""
    return np.asarray(transition_weights(rows) @ columns**2 / total_weight(rows))


def check_enough(what: str, rows: Rows, n_groups: int, n_rows: int) -> None:
    """Refuse fewer than `n_groups` groups or episodes, or than `n_rows` rows of one stream, for `what`."""
    count = 0
    if len(rows):
        count = int(rows.begins.sum())
    has_groups = rows.groups is not None
    is_long_stream = count == 1 and not has_groups and len(rows) >= n_rows
    if count >= n_groups or is_long_stream:
        return
    unit = "episode"
    needed = f"{n_groups} episodes, or {n_rows} rows of one stream"
    if has_groups:
        unit = "group"
        needed = f"{n_groups} groups"
    if count != 1:
        unit += "s"
    raise InvalidInputError(f"{what} needs at least {needed}; got {len(rows)} rows of {count} {unit}. Pass more.")
