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

from lstd._kernels.traces import observed_weight, sample_sums
from lstd.data.doubts import unused_rows
from lstd.data.feature_arrays import Features
from lstd.data.rows import FACTORS, Record, Rows, uniform
from lstd.errors import InvalidInputError
from lstd.statistics.adding import Pending
from lstd.types import Array

_MODULUS = 2**64
_ALL, _EVERY = 1024, 64
_ODD = 0x9E3779B97F4A7C15  # 2⁶⁴ over the golden ratio: its multiples are far apart
_NONE, _NO_ROWS = np.empty(0), np.empty(0, np.intp)


@dataclass(frozen=True, eq=False)
class Sample(Record):
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
class Counts(Record):
    """Counts of rows and of the full transitions among them, without a pending row unless it is complete."""

    n_rows: int = 0  # the pending row included
    n_transitions: int = 0
    total_weight: float = 0.0  # of full transitions
    unused: int = 0  # rewards of horizon rows, other than 0 and NaN
    mark: int = 0  # of the features of all rows
    reward_mark: int = 0  # of their rewards and weights
    sample: Sample | None = None  # None without ratios, weights and trace coefficients
    # What rows do to (1, v, observed weight); NaN if it is not known, as successors were given.
    observed: Annotated[Array, "3 3 nan"] = field(default_factory=partial(np.eye, 3))

    def with_rows(self, rows: Rows, ends: Sequence[int], lmbda: float) -> list[Counts]:
        """Return the counts with the next rows up to each of `ends`, of which the last row is pending.

        Only the last has their effective sample and observed share.
        """
        place = np.array(ends) - 1
        until = place + (rows.terminated[place] if rows.X_next is None else 1)  # transitions that are in the sums
        n, weight = until - np.searchsorted(np.flatnonzero(~rows.full), until), rows.weight
        totals = float(weight[0]) * n if uniform(weight) else np.append(0.0, np.cumsum(weight * rows.full))[until]
        lost = unused_rows(rows, until[-1]) if rows.X_next is None and rows.last[: until[-1]].any() else _NO_ROWS
        unused, marks, counted = np.searchsorted(lost, until), marks_until(rows, ends), []
        for k, end in enumerate(ends):
            counted.append(self.changed(
                n_rows=self.n_rows + end, n_transitions=self.n_transitions + int(n[k]),
                total_weight=self.total_weight + float(totals[k]), unused=self.unused + int(unused[k]),
                mark=(self.mark + int(marks[k, 0])) % _MODULUS,
                reward_mark=(self.reward_mark + int(marks[k, 1])) % _MODULUS,
            ))  # fmt: skip
        counted[-1] = counted[-1]._with_chains(rows, slice(0, int(until[-1])), lmbda)
        return counted

    def _with_chains(self, rows: Rows, part: slice, lmbda: float) -> Counts:
        """Add the rows of `part`, which are counted and summed, to the effective sample and the observed share."""
        full, coefficient, weight = rows.full[part], rows.trace_coefficient[part], rows.weight[part]
        step, sample, first = np.eye(3), self.sample, self.n_rows <= len(rows)
        if rows.X_next is None:
            kept, counted = _NONE if uniform(coefficient) else coefficient, _NONE if uniform(weight) else weight
            step[1:, :2] = observed_weight(np.ascontiguousarray(rows.discount[part]), full, kept, counted)
        else:
            step[:] = np.nan
        if rows.given & FACTORS:
            ends, ratio = rows.last[part].copy(), rows.importance_ratio[part]
            ends[-1:] &= part.stop < len(rows)  # the episode of the last row may go on
            decay = np.where(ends, 0.0, lmbda * rows.discount[part])
            sums = np.zeros((3, 4)) if first else np.full((3, 4), np.nan) if sample is None else sample.sums.copy()
            sample_sums(full, *map(np.ascontiguousarray, (ratio, weight, coefficient, decay)), sums.reshape(-1))
            before = sample is not None and sample.off_policy
            sample = Sample(sums, before or bool((ratio[full] != 1.0).any()))
        elif sample is not None:
            sample = sample.times(np.nan)
        return self.changed(sample=sample, observed=step @ self.observed)

    def with_transition(self, row: Pending, lmbda: float) -> Counts:
        """Add the transition that leaves a pending row, which is counted as a row."""
        observed, sample, discount = self.observed.copy(), self.sample, row.discount
        passed = np.array([row.weight, min(row.coefficient, 1.0)]) @ observed[:2]  # f, by (1, v, observed weight)
        observed[1], observed[2] = discount * passed, observed[2] + (1.0 - discount) * passed
        if sample is not None:
            sums, columns = sample.sums.copy(), (row.ratio, row.weight, row.coefficient, lmbda * discount)
            sample_sums(np.ones(1, np.bool_), *np.array(columns)[:, np.newaxis], sums.reshape(-1))
            sample = Sample(sums, sample.off_policy or row.ratio != 1.0)
        n, weight = self.n_transitions + 1, self.total_weight + row.weight
        return self.changed(n_transitions=n, total_weight=weight, sample=sample, observed=observed)

    def then(self, later: Counts) -> Counts:
        """Return the counts of these rows and later ones of the stream."""
        if not (self.n_rows and later.n_rows):
            return self if self.n_rows else later
        one, two, sample = self.sample, later.sample, None
        if one and two:
            sums = two.sums.copy()
            sums[:, 2:] += one.sums[:, 2:]
            sample = Sample(sums, one.off_policy or two.off_policy)
        elif one or two:
            sample = (one or two).times(np.nan)  # type: ignore[union-attr]
        return Counts(
            self.n_rows + later.n_rows, self.n_transitions + later.n_transitions,
            self.total_weight + later.total_weight, self.unused + later.unused,
            (self.mark + later.mark) % _MODULUS, (self.reward_mark + later.reward_mark) % _MODULUS,
            sample, later.observed @ self.observed,
        )  # fmt: skip

    def closed(self, unused: int) -> Counts:
        """Return the counts without a next row, with so many unused rewards."""
        return self.changed(
            unused=unused,
            sample=self.sample and self.sample.times(np.array([0.0, 0.0, 1.0, 1.0])),
            observed=self.observed * np.array([[1.0], [0.0], [1.0]]),
        )

    def scaled(self, factor: float) -> Counts:
        """Return the counts of the same rows with their weights times `factor`."""
        observed, factors = self.observed.copy(), np.ones((3, 4))
        observed[1:, 0] *= factor
        factors[1, 1:] = factor, factor, factor**2  # only the second has weights
        sample = self.sample and self.sample.times(factors)
        return self.changed(total_weight=factor * self.total_weight, sample=sample, observed=observed)


def marks_until(rows: Rows, ends: Sequence[int]) -> NDArray[np.uint64]:
    """Return the marks of features, and of rewards and weights, of rows up to each of `ends`, (K, 2)."""
    n, first, last = rows.n_features - rows.intercept, rows.place, ends[-1]  # place in the stream
    head, tail = max(_ALL, first), max(_ALL, first) + -max(_ALL, first) % _EVERY  # first row of every 64th
    places, marks = [np.zeros(1, np.intp)], [np.zeros((1, 2), np.uint64)]
    for part in (slice(0, min(head - first, last), 1), slice(tail - first, last, _EVERY)):
        if part.start < part.stop:
            places.append(np.arange(part.start + 1, part.stop + 1, part.step))
            numbers = np.column_stack([rows.y[part], rows.weight[part]])
            marks.append(np.column_stack([_marks_of(rows.X[part], n), _marks_of(numbers, numbers.shape[1])]))
    if len(places) == 1:
        return np.zeros((len(ends), 2), np.uint64)
    until = np.searchsorted(np.concatenate(places), ends, side="right")
    return np.asarray(np.cumsum(np.concatenate(marks), axis=0)[until - 1])


def _marks_of(X: Features, n: int) -> NDArray[np.uint64]:
    """Return the mark of each row, (T,), of its first n features."""
    if not sparse.issparse(X):
        bits = np.ascontiguousarray(X[:, :n], dtype=np.float64).view(np.uint64)
        return np.asarray(bits @ _factors(n))
    marks, kept = np.zeros(X.shape[0], np.uint64), X.indices < n
    row = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    np.add.at(
        marks, row[kept], X.data[kept].view(np.uint64) * (np.uint64(_ODD) * (2 * X.indices[kept].astype(np.uint64) + 1))
    )
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
    own_discounts: bool = False  # whether some row has another discount than `gamma`

    def merged(self, other: About) -> About:
        """Return the description of both; raises InvalidInputError when they do not fit, or share a label."""
        if self == other and not self.labels:
            return self
        if None not in (self.intercept, other.intercept) and self.intercept != other.intercept:
            raise InvalidInputError(
                "Statistics merge only if all have an intercept or none has; one has a column of ones as its last "
                "feature, the other does not. Sum both with the same `fit_intercept`."
            )
        names, others = self.feature_names, other.feature_names
        if names is not None and others is not None and names != others:
            place = next((i for i, (a, b) in enumerate(zip(names, others, strict=False)) if a != b), 0)
            raise InvalidInputError(
                "Statistics merge only with the same features in the same order; feature "
                f"{place} is {names[place]!r} in one and {others[place]!r} in the other. Select the columns by name."
            )
        if twice := self.labels & other.labels:
            raise InvalidInputError(
                f"Statistics merge only if they share no data; both have the label {min(twice)!r}. Leave out the "
                "second one, or give different data different labels."
            )
        intercept = other.intercept if self.intercept is None else self.intercept
        own_discounts = self.own_discounts or other.own_discounts
        return About(others if names is None else names, intercept, self.labels | other.labels, own_discounts)


UNKNOWN = About()


def check_weighted(total_weight: float, n_transitions: int) -> None:
    """Refuse rows that all have weight zero."""
    if n_transitions and not total_weight > 0.0:
        raise InvalidInputError(
            f"`weight` must be above 0 for some transition; got 0 for all {n_transitions}. Pass weights that are not "
            "all zero, or none for weights of 1."
        )
