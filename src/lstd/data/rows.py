"""Rows of the data contract in one form, and the column of ones that an intercept adds to them.

A row holds the features of a state and the reward received on leaving it. It is a full transition if a row of the same
episode follows it, if it terminates, or if the features of its successor are given. Otherwise it is a horizon row: only
its features are used. The last row of a stream is a horizon row until the stream continues.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd.data.check_features import Features
from lstd.data.feature_products import rows_of
from lstd.data.ids import last_rows
from lstd.data.records import Record

Array = NDArray[np.float64]

ENTRIES_COMPARED = 2**17  # features compared at a time, about one MiB
_SAME = 1e-9  # relative difference between equal features that were computed in another order of summation


@dataclass(frozen=True)
class Rows(Record):
    """Checked rows of one chunk of a stream; T rows, n features, m rewards."""

    X: Features  # (T, n)
    y: Array  # (T, m), zero where the reward of a horizon row is missing
    y_missing: NDArray[np.bool_]  # (T,) whether the reward, or another number of the transition, is NaN
    discount: Array  # (T,) of the transition that leaves the row; zero where it terminates
    ratios: Array  # (T,) importance ratio of that transition
    last: NDArray[np.bool_]  # (T,) whether the row is the last one of its episode in this chunk
    terminated: NDArray[np.bool_]  # (T,)
    X_next: Features | None  # (T, n)
    first_episode: Any  # id of the first row's episode; None without ids
    last_episode: Any
    single: bool  # whether rewards were given as a vector
    gamma: float  # discount of rows without one of their own
    assumed: bool  # whether all episodes are assumed to be truncated
    names: tuple[str, ...] | None = None  # of the features, if `X` is a data frame
    intercept: bool = False  # whether the last feature is the column of ones
    groups: NDArray[Any] | None = None  # (T,) id of each row's group
    episodes: NDArray[Any] | None = None  # id of each episode; None without ids, and in parts of a chunk
    ratios_given: bool = False
    order: NDArray[np.intp] | None = None  # (T,) places of the rows in the arguments, if in another order
    coefficients: Array | None = None  # (T,) factors of the trace decay; None if all are 1
    weights: Array | None = None  # (T,) weights of the rows; None if all are 1
    place: int = 0  # number of rows of the stream before these
    appended: int = 0  # columns of ones, 0 or 1, that `X` and `X_next` do not have; sums append them in batches

    def __len__(self) -> int:
        return len(self.discount)

    @property
    def n_features(self) -> int:
        return int(self.X.shape[1]) + self.appended

    @property
    def begins(self) -> NDArray[np.bool_]:
        """Whether each row is the first of its group or, without groups, of its episode, (T,)."""
        if self.groups is not None:
            return np.roll(last_rows(self.groups), 1)
        return np.concatenate([[True], self.last[:-1]])

    @property
    def full(self) -> NDArray[np.bool_]:
        """Whether each row is a full transition, (T,)."""
        return self.full_among(slice(len(self)))

    def full_among(self, part: slice) -> NDArray[np.bool_]:
        """Return whether each of some rows is a full transition."""
        last, given = self.last[part], self.X_next is not None
        return np.ones(len(last), np.bool_) if given else self.terminated[part] | ~last

    @cached_property
    def own_discounts(self) -> bool:
        """Whether some row that does not terminate, and misses nothing, has another discount than `gamma`."""
        usual = self.discount == self.gamma
        return not (usual.all() or (usual | self.terminated | self.y_missing).all())

    @cached_property
    def ends(self) -> NDArray[np.bool_]:
        """Whether rewards after each row are not those of its future, (T,): at ends of episodes and at breaks."""
        return self.last if self.X_next is None else self.last | breaks(self)

    def with_ones(self) -> Rows:
        """Add a column of ones as the last feature."""
        X_next = None if self.X_next is None else _with_ones(self.X_next)
        return self.changed(X=_with_ones(self.X), X_next=X_next, intercept=True)

    def with_intercept(self) -> Rows:
        """Add a column of ones for sums, which takes no memory where features are dense."""
        return self.with_ones() if sparse.issparse(self.X) else self.changed(intercept=True, appended=1)

    def row(self, features: Features, t: int) -> Array:
        """Return a copy of row t of `X` or `X_next` as float64, with the column of ones, (n,)."""
        row = np.ones(self.n_features)
        row[: features.shape[1]] = (
            features[t] if isinstance(features, np.ndarray) else rows_of(features, slice(t, t + 1)).toarray()[0]
        )
        return row

    def split(self, at: Iterable[int]) -> list[Rows]:
        """Split into consecutive chunks, of which one begins with each of the rows `at`.

        Episode ids between the first and the last one are replaced by numbers.
        """
        edges = sorted({0, *at, len(self)})
        if len(edges) <= 2:
            return [self]
        chunks, number = [], 0
        for first, end in pairwise(edges):
            chunks.append(self._chunk(first, end, number))
            number += int(np.count_nonzero(self.last[first:end]))
        return chunks

    def _chunk(self, first: int, end: int, number: int) -> Rows:
        """Return some rows, where `number` episodes have ended before."""
        part = slice(first, end)
        last = self.last[part].copy()
        last[-1] = True
        return self.changed(
            X=rows_of(self.X, part), y=self.y[part], y_missing=self.y_missing[part], discount=self.discount[part],
            ratios=self.ratios[part], last=last, terminated=self.terminated[part],
            X_next=None if self.X_next is None else rows_of(self.X_next, part),
            first_episode=number if first else self.first_episode,
            last_episode=number + int(np.count_nonzero(last[:-1])) if end < len(self) else self.last_episode,
            groups=None if self.groups is None else self.groups[part], episodes=None, order=None,
            place=self.place + first,
            coefficients=None if self.coefficients is None else self.coefficients[part],
            weights=None if self.weights is None else self.weights[part],
        )  # fmt: skip


def _with_ones(phi: Features) -> Features:
    T, n = phi.shape
    if not sparse.issparse(phi):
        return np.hstack([phi, np.ones((T, 1))])
    ends = phi.indptr[1:]
    kind = np.int32 if max(phi.nnz + T, n + 1) < 2**31 else np.int64
    indices, indptr = np.insert(phi.indices, ends, n).astype(kind), (phi.indptr + np.arange(T + 1)).astype(kind)
    return sparse.csr_array((np.insert(phi.data, ends, 1.0), indices, indptr), shape=(T, n + 1))


def breaks(rows: Rows) -> NDArray[np.bool_]:
    """Whether the next row of the same episode is not the successor of each row by `X_next`, (T,)."""
    X_next: Features = rows.X_next
    found = np.zeros(len(rows), dtype=np.bool_)
    size = max(1, ENTRIES_COMPARED // rows.n_features)
    for first in range(0, len(rows) - 1, size):
        end = min(first + size, len(rows) - 1)
        found[first:end] = differ(X_next[first:end], rows.X[first + 1 : end + 1]) & ~rows.last[first:end]
    return found


def differ(one: Features, two: Features) -> NDArray[np.bool_]:
    """Rows that differ by more than rounding, (T,)."""
    if sparse.issparse(one):
        two = sparse.csr_array(two)
        return np.asarray(_largest(one - two) > _SAME * _largest(one))
    if np.array_equal(one, two):
        return np.zeros(len(one), dtype=np.bool_)
    with np.errstate(over="ignore"):
        return np.asarray(np.abs(one - two).max(axis=1) > _SAME * np.abs(one).max(axis=1))


def _largest(rows: Features) -> Array:
    """Largest absolute value in each sparse row, (T,)."""
    return np.asarray(np.abs(rows).max(axis=1).todense()).reshape(-1)
