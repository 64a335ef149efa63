"""What is counted beside the sums over a stream: rows, their weights, effective samples, fingerprints; and its names.

Effective sample size. Row t counts g_t = w_t e_t in the sums, with its weight w_t and the trace e_t = ρ_t (1 + c_t u_t)
of a feature that is always one. Two rows share as much of the trace as the product κ of cλγ between them. So the
effective sample size (Kish 1965) is

    (Σ_t g_t)² / Σ_t Σ_s κ_ts g_t g_s,   Σ_s κ_ts g_s over s ≤ t is f_t = g_t + c_t v_t,

where u_{t+1} = λγ_t e_t and v_{t+1} = λγ_t f_t enter the next row. At λγ = 1 it is the effective number of episodes;
without ratios and weights, (1 − λγ)/(1 + λγ) times that of rows. Trace coefficients above one are products of ratios
too: what weights alone leave, and the data, has min(1, c_t).

Observed share. With f_t = w_t + min(1, c_t) v_t and v_{t+1} = γ_t f_t, the discounted weight of what was seen of all
returns is Σ_t (1 − γ_t) f_t over full transitions, of Σ_t w_t. The rest lies behind cuts, or is what coefficients below
one take (:func:`lstd.data.returns.unobserved_shares` has the same of each row).

The observed share is exact at any split of the data. The effective sample of rows summed apart leaves out what the
first rows of one part share with the last rows of another.

Fingerprints are called marks: two models whose blocks have equal marks were fitted to the same data. The mark of the
features of rows is Σ_t Σ_j k_j bits(x_tj) modulo 2⁶⁴, with odd numbers k_j and the bits of a feature as an integer. For
speed, the sum takes all of the first 1024 rows of a stream and then every 64th. Different features have different
marks, except by a chance of 2⁻⁶⁴, or where they have few values that occur equally often in every block. The weight and
the rewards of these rows have a mark of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd._kernels.traces import ENTERING, OBSERVED, ONE, carry_observed, sample_sums
from lstd.data.doubts import unused_rows
from lstd.data.feature_arrays import Features
from lstd.data.rows import FACTORS, ReadOnly, Rows, uniform
from lstd.errors import InvalidInputError
from lstd.statistics.adding import TransitionColumns
from lstd.types import Array, Flags

_MODULUS = 2**64
_ALL, _EVERY = 1024, 64
_ODD = 0x9E3779B97F4A7C15  # 2⁶⁴ over the golden ratio: its multiples are far apart


@dataclass(frozen=True, eq=False)
class Sample(ReadOnly):
    """Effective samples: with ratios alone, with weights alone, and without both."""

    sums: Annotated[Array, "3 4 nan"]  # u, v, Σ g and the double sum of each; NaN if not known
    off_policy: bool = False  # whether a ratio is not one

    def times(self, factors: Array | float) -> Sample:
        """Return the samples with their sums times factors, (4,) or (3, 4)."""
        return Sample(self.sums * factors, self.off_policy)

    @property
    @np.errstate(all="ignore")
    def size(self) -> Array:
        """Effective sample sizes, (3,); NaN if not known or beyond floats."""
        return np.asarray(self.sums[:, 2] ** 2 / self.sums[:, 3])


@dataclass(frozen=True, eq=False)
class Counts(ReadOnly):
    """Counts of rows and of the full transitions among them, without a pending row unless it is complete."""

    n_rows: int = 0  # the pending row included
    n_transitions: int = 0
    total_weight: float = 0.0  # of full transitions
    unused: int = 0  # rewards of horizon rows, other than 0 and NaN
    mark: int = 0  # of the features of all rows
    reward_mark: int = 0  # of their rewards and weights
    sample: Sample | None = None  # None without ratios, weights and trace coefficients
    # What rows do to (1, v, observed weight), in rows ONE, ENTERING and OBSERVED; NaN if successors were given.
    observed: Annotated[Array, "3 3 nan"] = field(default_factory=partial(np.eye, 3))

    def with_rows(self, rows: Rows, columns: TransitionColumns, lmbda: float, marks: NDArray[np.uint64]) -> Counts:
        """Return the counts with the next rows, of which the last is pending unless it terminated or is complete.

        `marks` (2,) are those of :func:`marks_until` for all rows.
        """
        n_rows = len(rows)
        until = n_rows  # transitions that are in the sums
        if rows.X_next is None and not rows.terminated[-1]:
            until -= 1
        part = slice(0, until)
        full = rows.full[part]
        n_full = int(np.count_nonzero(full))
        weight = n_full * float(rows.weight[0])
        if not uniform(rows.weight):
            weight = float(rows.weight[part] @ full)
        unused = self.unused
        if rows.X_next is None and rows.last[part].any():
            unused += len(unused_rows(rows, until))
        mark, reward_mark = marks.tolist()
        columns = columns.part(part)
        return Counts.of(
            n_rows=self.n_rows + n_rows,
            n_transitions=self.n_transitions + n_full,
            total_weight=self.total_weight + weight,
            unused=unused,
            mark=(self.mark + mark) % _MODULUS,
            reward_mark=(self.reward_mark + reward_mark) % _MODULUS,
            sample=self._sample_with(rows, columns, full, lmbda),
            observed=self._observed_with(rows, columns, full),
        )

    def with_rows_until(self, rows: Rows, ends: Sequence[int], marks: NDArray[np.uint64]) -> list[Counts]:
        """Return the counts with the next rows up to each of `ends`, but for the effective sample and observed share.

        The last of them is pending, unless it terminated or is complete. `marks` (K, 2) are those of
        :func:`marks_until`.
        """
        place = np.array(ends) - 1
        until = place + 1  # transitions that are in the sums
        lost = np.empty(0, np.intp)
        if rows.X_next is None:
            until = place + rows.terminated[place]
            lost = unused_rows(rows, int(until[-1]))
        n_full = until - np.searchsorted(np.flatnonzero(~rows.full), until)
        if uniform(rows.weight):
            weights = float(rows.weight[0]) * n_full
        else:
            weights = np.append(0.0, np.cumsum(rows.weight * rows.full))[until]
        unused = np.searchsorted(lost, until)
        return [
            self.changed(
                n_rows=self.n_rows + end,
                n_transitions=self.n_transitions + int(n_full[k]),
                total_weight=self.total_weight + float(weights[k]),
                unused=self.unused + int(unused[k]),
                mark=(self.mark + int(marks[k, 0])) % _MODULUS,
                reward_mark=(self.reward_mark + int(marks[k, 1])) % _MODULUS,
            )
            for k, end in enumerate(ends)
        ]

    def _observed_with(self, rows: Rows, columns: TransitionColumns, full: Flags) -> Array:
        """Return the matrix of observed weight with the first rows, of which some are `full`."""
        if rows.X_next is not None:
            return np.full((3, 3), np.nan)
        observed = self.observed.copy()
        carry_observed(columns.discount, full, columns.coefficient, columns.weight, observed)
        return observed

    def _sample_with(self, rows: Rows, columns: TransitionColumns, full: Flags, lmbda: float) -> Sample | None:
        """Return the effective samples with the first rows, of which some are `full`."""
        sample = self.sample
        if rows.given.isdisjoint(FACTORS):
            if sample is None:
                return None
            return sample.times(np.nan)
        n = len(full)
        ends = rows.last[:n].copy()
        ends[-1:] &= n < len(rows)  # the episode of the last row may go on
        discount, ratio, coefficient, weight = (np.broadcast_to(column, n) for column in columns)
        decay = np.where(ends, 0.0, lmbda * discount)
        if not self.n_rows:
            sums = np.zeros((3, 4))
        elif sample is None:
            sums = np.full((3, 4), np.nan)
        else:
            sums = sample.sums.copy()
        sample_sums(full, *map(np.ascontiguousarray, (ratio, weight, coefficient, decay)), sums.reshape(-1))
        before = sample is not None and sample.off_policy
        return Sample(sums, before or bool((ratio[full] != 1.0).any()))

    def with_transition(self, row: Rows, lmbda: float) -> Counts:
        """Add the transition that leaves a pending row, which is counted as a row."""
        discount = float(row.discount[0])
        coefficient = float(row.trace_coefficient[0])
        weight = float(row.weight[0])
        observed = self.observed.copy()
        passed = weight * observed[ONE] + min(coefficient, 1.0) * observed[ENTERING]  # f
        observed[OBSERVED] += (1.0 - discount) * passed
        observed[ENTERING] = discount * passed
        sample = self.sample
        if sample is not None:
            sums = sample.sums.copy()
            columns = TransitionColumns.of(row)
            numbers = (columns.ratio, columns.weight, columns.coefficient, lmbda * columns.discount)
            sample_sums(np.ones(1, np.bool_), *numbers, sums.reshape(-1))
            sample = Sample(sums, sample.off_policy or bool(columns.ratio[0] != 1.0))
        return self.changed(
            n_transitions=self.n_transitions + 1,
            total_weight=self.total_weight + weight,
            sample=sample,
            observed=observed,
        )

    def then(self, later: Counts) -> Counts:
        """Return the counts of these rows and later ones of the stream."""
        if not later.n_rows:
            return self
        if not self.n_rows:
            return later
        return Counts(
            n_rows=self.n_rows + later.n_rows,
            n_transitions=self.n_transitions + later.n_transitions,
            total_weight=self.total_weight + later.total_weight,
            unused=self.unused + later.unused,
            mark=(self.mark + later.mark) % _MODULUS,
            reward_mark=(self.reward_mark + later.reward_mark) % _MODULUS,
            sample=_joined(self.sample, later.sample),
            observed=later.observed @ self.observed,
        )

    def closed(self, unused: int) -> Counts:
        """Return the counts without a next row, with so many unused rewards."""
        return self.changed(
            unused=unused,
            sample=self.sample and self.sample.times(np.array([0.0, 0.0, 1.0, 1.0])),
            observed=self.observed * np.array([[1.0], [0.0], [1.0]]),
        )

    def scaled(self, factor: float) -> Counts:
        """Return the counts of the same rows with their weights times `factor`."""
        observed = self.observed.copy()
        observed[1:, 0] *= factor
        factors = np.ones((3, 4))
        factors[1, 1:3] = factor  # only the second sample has weights
        factors[1, 3] = factor**2
        sample = self.sample and self.sample.times(factors)
        return self.changed(total_weight=factor * self.total_weight, sample=sample, observed=observed)


def _joined(one: Sample | None, two: Sample | None) -> Sample | None:
    """Return the effective samples of rows and of later ones; NaN if one of them is not known."""
    if one is None and two is None:
        return None
    if one is None or two is None:
        known = one or two
        assert known is not None
        return known.times(np.nan)
    sums = two.sums.copy()
    sums[:, 2:] += one.sums[:, 2:]
    return Sample(sums, one.off_policy or two.off_policy)


def marks_until(rows: Rows, ends: Sequence[int]) -> NDArray[np.uint64]:
    """Return the marks of features, and of rewards and weights, of rows up to each of `ends`, (K, 2)."""
    first = rows.place  # in the stream
    last = ends[-1]
    every = max(_ALL, first)  # from here on, a row counts if its place is a multiple of 64
    head = slice(0, min(every - first, last), 1)
    tail = slice(every + -every % _EVERY - first, last, _EVERY)
    if head.stop <= 0 and tail.start >= last:
        return np.zeros((len(ends), 2), np.uint64)
    n = rows.n_features - rows.intercept
    places = []
    marks = [np.zeros((1, 2), np.uint64)]
    for part in (head, tail):
        if part.start < part.stop:
            places.append(np.arange(part.start, part.stop, part.step))
            numbers = np.column_stack([rows.y[part], rows.weight[part]])
            marks.append(np.column_stack([_marks_of(rows.X[part], n), _marks_of(numbers, numbers.shape[1])]))
    until = np.searchsorted(np.concatenate(places), ends)
    return np.asarray(np.cumsum(np.concatenate(marks), axis=0)[until])


def _marks_of(X: Features, n: int) -> NDArray[np.uint64]:
    """Return the mark of each row, (T,), of its first n features."""
    if not sparse.issparse(X):
        bits = np.ascontiguousarray(X[:, :n], dtype=np.float64).view(np.uint64)
        return np.asarray(bits @ _factors(n))
    marks = np.zeros(X.shape[0], np.uint64)
    kept = X.indices < n
    row = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    factors = np.uint64(_ODD) * (2 * X.indices[kept].astype(np.uint64) + 1)  # k_j
    np.add.at(marks, row[kept], X.data[kept].view(np.uint64) * factors)
    return marks


@lru_cache(maxsize=8)
def _factors(n: int) -> NDArray[np.uint64]:
    """Return the odd numbers k_j of n features."""
    return np.uint64(_ODD) * np.arange(1, 2 * n, 2, dtype=np.uint64)


@dataclass(frozen=True)
class About:
    """Description of summed data; None means unknown, and matches anything."""

    feature_names: tuple[str, ...] | None = None  # without the column of ones
    intercept: bool | None = None  # whether the last feature is the column of ones
    labels: frozenset[str] = frozenset()
    unusual: frozenset[str] = frozenset()  # columns of which some row has another value than the usual one

    def merged(self, other: About) -> About:
        """Return the description of both; raises InvalidInputError when they do not fit, or share a label."""
        if self == other and not self.labels:
            return self
        is_known = self.intercept is not None and other.intercept is not None
        if is_known and self.intercept != other.intercept:
            raise InvalidInputError(
                "Statistics merge only if all have an intercept or none has; one has a column of ones as its last "
                "feature, the other does not. Sum both with the same `fit_intercept`."
            )
        names = self.feature_names
        others = other.feature_names
        if names is not None and others is not None and names != others:
            place = next((i for i, (a, b) in enumerate(zip(names, others, strict=False)) if a != b), 0)
            raise InvalidInputError(
                "Statistics merge only with the same features in the same order; feature "
                f"{place} is {names[place]!r} in one and {others[place]!r} in the other. Select the columns by name."
            )
        twice = self.labels & other.labels
        if twice:
            raise InvalidInputError(
                f"Statistics merge only if they share no data; both have the label {min(twice)!r}. Leave out the "
                "second one, or give different data different labels."
            )
        return About(
            feature_names=others if names is None else names,
            intercept=other.intercept if self.intercept is None else self.intercept,
            labels=self.labels | other.labels,
            unusual=self.unusual | other.unusual,
        )


UNKNOWN = About()


def check_weighted(total_weight: float, n_transitions: int) -> None:
    """Refuse rows that all have weight zero."""
    if n_transitions and not total_weight > 0.0:
        raise InvalidInputError(
            f"`weight` must be above 0 for some transition; got 0 for all {n_transitions}. Pass weights that are not "
            "all zero, or none for weights of 1."
        )
