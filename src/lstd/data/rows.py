"""Rows of the data contract in one form, and warnings about rows that do not follow one another.

A row holds the features of a state and the reward received on leaving it. It is a full transition if a row of the same
episode follows it, if it terminates, or if the features of its successor are given. Otherwise it is a horizon row: only
its features are used. The last row of a stream is a horizon row until the stream continues.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd.data import parsing
from lstd.data.feature_matrix import Features, rows_of
from lstd.data.ids import last_rows
from lstd.data.records import Record
from lstd.errors import BrokenEpisodeWarning, MissingTerminationWarning
from lstd.errors import warn as give_warning

Array = NDArray[np.float64]

_COUNTED_TWICE = (
    ", and rows have an `importance_ratio`. If `{X_next}` holds expected successors under the target policy, leave the "
    "ratio out: it would count that policy twice. Use it only in `trace_coefficient`, as lstd.ope.LSTDQ does."
)
_TRACED = (
    ". The trace continues, because rows are taken in time order. If `{X_next}` holds expected successors, as for "
    "action values, pass `trace_coefficient`, such as min(1, ratio), in place of any `importance_ratio`, or use "
    "lstd.ope.LSTDQ. Give transitions that do not follow one another different ids in `episode`, or use lmbda=0."
)
_APART = " Give transitions that do not follow one another different ids in `episode`."
_ROWS_COUNTED, _FEWEST_COUNTED = 2**12, 20  # rows of which entries are counted: the first ones, and the fewest
ENTRIES_COMPARED = 2**17  # features compared at a time, about one MiB
_SAME = 1e-9  # relative difference between equal features that were computed in another order of summation


@dataclass(frozen=True)
class Rows(Record):
    """Checked rows of one chunk of a stream; T rows, n features, m rewards."""

    X: Features  # (T, n)
    y: Array  # (T, m), zero where the reward of a horizon row is missing
    y_missing: NDArray[np.bool_]  # (T,) whether the reward is NaN
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

    @property
    def own_discounts(self) -> bool:
        """Whether some row that does not terminate has another discount than `gamma`."""
        return bool(np.any((self.discount != self.gamma) & ~self.terminated))

    @cached_property
    def ends(self) -> NDArray[np.bool_]:
        """Whether rewards after each row are not those of its future, (T,): at ends of episodes and at breaks."""
        return self.last if self.X_next is None else self.last | _breaks(self)

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


class Break(NamedTuple):
    """Successors that disagree with the rows after them, in what they are used for."""

    row: int | None  # that is not the successor given for the row before; None if most successors mix features
    traced: bool  # whether a trace connects the rows; if not, ratios count for the successors
    place: Any = None  # chunk or file


def find_break(rows: Rows, lmbda: float, before: Array | None = None, *, ids: bool | None = None) -> Break | None:
    """Return the first row that is not the successor of the row before it, if that makes the sums wrong.

    It does if a trace connects the two rows. At `lmbda` 0 there are no traces, and trace coefficients say where they
    end. In both cases it does if there are ratios, and `ids` of episodes (by default: those of `rows`) that connect the
    rows. Without ids, successors that mix features as no row does show that they are expected ones.

    `before` is the successor, by `X_next`, of the row before these, if its episode continues.
    """
    if rows.X_next is None or not len(rows):
        return None
    traced = lmbda > 0.0 and rows.coefficients is None
    if not traced and rows.ratios_given and _are_mixed(rows):
        return Break(None, traced)
    if not traced and not (rows.ratios_given and (rows.first_episode is not None if ids is None else ids)):
        return None
    if before is not None and _differ(rows.X[:1], before[np.newaxis, : rows.X.shape[1]])[0]:
        row: int | None = 0
    elif (after := parsing.first_true(_breaks(rows))) is not None:
        row = after + 1
    else:
        return None
    return Break(row if rows.order is None else int(rows.order[row]), traced)


def warn_of_breaks(rows: Rows, lmbda: float, before: Array | None = None) -> bool:
    """Warn of what :func:`find_break` returns; return whether there is one."""
    found = find_break(rows, lmbda, before)
    if found is not None:
        warn_of_break(found)
    return found is not None


def warn_of_assumed(what: str) -> None:
    """Warn that episodes are taken as truncated; `what` says which argument is missing."""
    give_warning(
        f"{what}: every episode is taken as truncated, and only the features of its last row are used. Give "
        "`terminated`: true on the last row of episodes that ended for good, false elsewhere.",
        MissingTerminationWarning,
    )


def warn_of_break(found: Break, where: str = "", *, columns: bool = False) -> None:
    """Warn of a break in the arrays X and X_next, or in named `columns`, of the data named by `where`."""
    X, X_next, of = ("X", "X_next", " of `X`")
    if columns:
        X, X_next, of = ("features", "next_features", " (the first row of data is 1)")
    if found.row is None:
        text = "most rows of `{X_next}` have more entries other than zero than any row of `{X}`" + _COUNTED_TWICE
    else:
        text = "row {row}{of} is not the successor that `{X_next}` gives for the row before it, in the same episode"
        text += _TRACED if found.traced else _COUNTED_TWICE + _APART
    text = text.format(X=X, X_next=X_next, of=of, row=found.row)
    give_warning(f"{where}: {text}" if where else text[0].upper() + text[1:], BrokenEpisodeWarning)


def _are_mixed(rows: Rows) -> bool:
    """Whether most successors have more entries other than zero than any row, as expected ones of one-hot actions do.

    Observed successors are rows like others. With dense features, or a policy that takes one action, it does not show.
    """
    first = slice(0, _ROWS_COUNTED)
    both: tuple[Features, Features] = (rows.X, rows.X_next)
    X, X_next = ((phi[first] != 0.0).sum(axis=1) for phi in both)
    of_inner = X_next[~rows.terminated[first]]
    return len(of_inner) >= _FEWEST_COUNTED and bool(np.mean(of_inner > X.max()) > 0.5)


def _breaks(rows: Rows) -> NDArray[np.bool_]:
    """Whether the next row of the same episode is not the successor of each row by `X_next`, (T,)."""
    X_next: Features = rows.X_next
    breaks = np.zeros(len(rows), dtype=np.bool_)
    size = max(1, ENTRIES_COMPARED // rows.n_features)
    for first in range(0, len(rows) - 1, size):
        end = min(first + size, len(rows) - 1)
        breaks[first:end] = _differ(X_next[first:end], rows.X[first + 1 : end + 1]) & ~rows.last[first:end]
    return breaks


def _differ(one: Features, two: Features) -> NDArray[np.bool_]:
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
