"""What statistics hold beside the sums that a solution needs: counts, sample sizes, fingerprints, names and labels.

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

All of it is linear in s = (1, u, v, total), and the sum of g f is quadratic. So a chunk is s' = M s and sᵀKs, and
consecutive chunks join exactly at any split of the data.

Cuts. Sums over one part of the data cut each episode that goes on in another part. That says nothing about what was
observed, if the sums of both are merged. The id comes again then, or no rows have ids. With 256 random signs for each
id, let f_j be the sum of the j-th signs over n cuts. The mean of f_j² is about Σ_i c_i², with c_i the cuts of id i; if
all have as many, n² / mean f_j² is the number of ids (Alon, Matias and Szegedy 1999). Only sums by
:meth:`LSTDStatistics.from_arrays` know the ids of their cuts; other cuts count as real.

Fingerprints are called marks: two models whose blocks have equal marks were fitted to the same data. The mark of the
features of rows is Σ_t Σ_j k_j bits(x_tj) modulo 2⁶⁴, with odd numbers k_j and the bits of a feature as an integer. For
speed, the sum takes all of the first 1024 rows of a stream and then every 64th. Different features have different
marks, except by a chance of 2⁻⁶⁴, or where they have few values that occur equally often in every block.

The mark of rewards and weights takes all full transitions, t = 0, 1, …, in their order: Σ_t gᵗ h_t modulo 2⁶⁴. As
above, h_t sums over the weight and the rewards of a row, but their bits are rotated by 12. The marks M and N of
consecutive data, n transitions and later ones, join to M + gⁿ N. Those of independent data add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd._kernels.traces import count_transitions, observed_weight, sample_sums
from lstd.data.episode_warnings import unused_rows
from lstd.data.feature_arrays import Features
from lstd.data.ids import id_keys
from lstd.data.rows import FACTORS, Record, Rows, uniform
from lstd.errors import InvalidInputError
from lstd.types import Array

_MODULUS = 2**64
_ALL, _EVERY = 1024, 64
_ODD = 0x9E3779B97F4A7C15  # 2⁶⁴ over the golden ratio: its multiples are far apart


_NONE = np.empty(0)
_CUT = np.array([[1.0], [0.0], [0.0], [1.0]])  # what is left of s at the end of an episode
# By chain, by how many factors w its u, v and total grow; first the observed share, then three sizes.
_POWERS = {1: np.array([[0, 0, 1, 1]]), 3: np.array([[0, 0, 0, 0], [0, 0, 1, 1], [0, 0, 0, 0]])}


@dataclass(frozen=True, eq=False)
class Chains(Record):
    """What full transitions of a chunk do to s = (1, u, v, total), for the observed share or for three sample sizes."""

    step: Annotated[Array, "1 4 4 nan"] | Annotated[Array, "3 4 4 nan"]  # M; NaN if it is not known
    square: Annotated[Array, "3 3 3 nan"] | None = None  # K, of sample sizes
    off_policy: bool = False  # whether a ratio is not one

    @classmethod
    def sampled(cls, ratio: Array, coefficient: Array, weight: Array, decay: Array, ones: Array) -> Chains:
        """Return the chains of sample sizes: with ratios alone, with weights alone, and without both.

        Rows have decays λγ on leaving; horizon rows have zero as ratio and in `ones`.
        """
        step, square, most_one = np.stack([np.eye(4)] * 3), np.zeros((3, 3, 3)), np.minimum(coefficient, 1.0)
        three = (ratio, ones, coefficient), (ones, weight, most_one), (ones, ones, most_one)
        for columns, M, K in zip(three, step, square, strict=True):
            sample_sums(*(np.ascontiguousarray(column, np.float64) for column in (*columns, decay)), M, K)
        return cls(step, square, bool((ratio != ones).any()))

    @np.errstate(all="ignore")
    def then(self, later: Chains) -> Chains:
        """Return the chains of this chunk and the next one."""
        M = self.step
        if self.square is None or later.square is None:
            return self.changed(step=later.step @ M)
        M3 = M[:, :3, :3]
        square = self.square + M3.transpose(0, 2, 1) @ later.square @ M3
        return Chains(later.step @ M, square, self.off_policy or later.off_policy)

    def closed(self) -> Chains:
        """Return the chains with the end of the chunk as the end of an episode."""
        return self.changed(step=self.step * _CUT)

    @np.errstate(all="ignore")
    def scaled(self, factor: float) -> Chains:
        """Return the chains with all weights times `factor`."""
        powers = _POWERS[len(self.step)]
        of_rows, of_columns = powers[:, :, np.newaxis], powers[:, np.newaxis, :]
        step = self.step * np.float64(factor) ** np.maximum(of_rows - of_columns, 0)
        if self.square is None:
            return self.changed(step=step)
        left = 2 * powers[:, 3, np.newaxis, np.newaxis] - of_rows[:, :3] - of_columns[:, :, :3]
        return self.changed(step=step, square=self.square * np.float64(factor) ** left)

    def unknown(self) -> Chains:
        """Return chains of which nothing is known."""
        return self.changed(step=np.nan * self.step, square=None if self.square is None else np.nan * self.square)

    @property
    @np.errstate(all="ignore")
    def size(self) -> Array:
        """Effective sample sizes, (3,), in the order of :meth:`sampled`; NaN if not known or beyond floats."""
        assert self.square is not None
        return np.asarray(self.step[:, 3, 0] ** 2 / self.square[:, 0, 0])


NOTHING_OBSERVED = Chains(np.diag([1.0, 0.0, 1.0, 1.0])[np.newaxis])  # there is no u
_NOT_OBSERVED = NOTHING_OBSERVED.unknown()


@dataclass(frozen=True, eq=False)
class Counts(Record):
    """Counts of rows and of the full transitions among them, without a pending row unless it is complete."""

    n_rows: int = 0  # the pending row included
    n_transitions: int = 0
    total_weight: float = 0.0  # of full transitions
    unused: int = 0  # rewards of horizon rows, other than 0 and NaN
    mark: int = 0  # of the features of all rows
    reward_mark: int = 0
    sample: Chains | None = None  # None without ratios, weights and trace coefficients
    observed: Chains = NOTHING_OBSERVED  # not known if successors were given
    cut_ids: Annotated[NDArray[np.int64], "257"] | None = None  # cuts with known ids, and sums of 256 signs of the ids

    def with_rows(self, rows: Rows, ends: Sequence[int], summed: Sequence[int]) -> list[Counts]:
        """Return the counts with the next rows up to each of `ends`; transitions are those up to `summed`.

        The chains stay.
        """
        full, weight, y = rows.full, rows.weight, np.ascontiguousarray(rows.y)
        found = np.empty((len(ends), 2), np.uint64)
        weights, until = np.ascontiguousarray(weight[:1] if uniform(weight) else weight), np.array(summed)
        count_transitions(
            y.view(np.uint64), weights.view(np.uint64), full, _factors(y.shape[1] + 1), np.uint64(_ODD), until, found
        )
        totals = found[:, 1] if uniform(weight) else np.append(0.0, np.cumsum(weight * full))[until]
        unused = np.searchsorted(unused_rows(rows, summed[-1]), until)
        numbers = zip(ends, found.tolist(), totals.tolist(), unused.tolist(), marks_until(rows, ends), strict=True)
        counts = []
        for end, (reward_mark, n), total, lost, mark in numbers:
            counts.append(self.changed(
                n_rows=self.n_rows + end, n_transitions=self.n_transitions + n, unused=self.unused + lost,
                total_weight=self.total_weight + total, mark=(self.mark + mark) % _MODULUS,
                reward_mark=self._reward_mark_with(reward_mark),
            ))  # fmt: skip
        return counts

    def with_chains(self, rows: Rows, part: slice, lmbda: float) -> Counts:
        """Add the rows of `part`, which are counted and summed, to the chains."""
        full, coefficient, weight = rows.full_among(part), rows.trace_coefficient[part], rows.weight[part]
        sample, observed = None, _NOT_OBSERVED
        if rows.X_next is None:
            step = NOTHING_OBSERVED.step.copy()
            kept, counted = _NONE if uniform(coefficient) else coefficient, _NONE if uniform(weight) else weight
            step[0, 2:, ::2] = observed_weight(np.ascontiguousarray(rows.discount[part]), full, kept, counted)
            observed = Chains(step)
        if rows.given & FACTORS:
            ones, ends = full.astype(np.float64), rows.last[part].copy()
            ends[-1:] &= part.stop < len(rows)  # the episode of the last row may go on
            decay = np.where(ends, 0.0, lmbda * rows.discount[part])
            sample = Chains.sampled(rows.importance_ratio[part] * ones, coefficient, weight, decay, ones)
        if self.n_rows > len(rows):
            sample, observed = _joined_samples(self.sample, sample), self.observed.then(observed)
        return self.changed(sample=sample, observed=observed)

    def then(self, later: Counts) -> Counts:
        """Return the counts of these rows and later ones of the stream."""
        if not self.n_rows:
            return later
        return Counts(
            self.n_rows + later.n_rows,
            self.n_transitions + later.n_transitions,
            self.total_weight + later.total_weight,
            self.unused + later.unused,
            (self.mark + later.mark) % _MODULUS,
            self._reward_mark_with(later.reward_mark),
            _joined_samples(self.sample, later.sample) if later.n_rows else self.sample,
            self.observed.then(later.observed),
            later.cut_ids if self.cut_ids is None else self.cut_ids + (0 if later.cut_ids is None else later.cut_ids),
        )

    def _reward_mark_with(self, later: int) -> int:
        return (self.reward_mark + pow(_ODD, self.n_transitions, _MODULUS) * later) % _MODULUS

    def __add__(self, other: Counts) -> Counts:
        """Return the counts of independent data."""
        return self.then(other).changed(reward_mark=(self.reward_mark + other.reward_mark) % _MODULUS)

    def closed(self, *, unused: bool, cut: tuple[Any, ...]) -> Counts:
        """Return the counts without a next row; `unused`: the last one has an unused reward; `cut`: ids cut there."""
        return self.changed(
            cut_ids=self.cut_ids if self.cut_ids is None or not cut else self.cut_ids + signs_of(cut),
            unused=self.unused + unused,
            sample=self.sample and self.sample.closed(),
            observed=self.observed.closed(),
        )

    @property
    def real_cuts(self) -> float:
        """Number of cuts of episodes, of which those that go on in other sums count once."""
        cuts = float(self.n_rows - self.n_transitions)
        if self.cut_ids is None or not self.cut_ids[0]:
            return cuts
        n, signs = self.cut_ids[0], self.cut_ids[1:].astype(np.float64)
        return float(cuts - n + min(n, n**2 / np.mean(signs**2)))

    def scaled(self, factor: float) -> Counts:
        """Return the counts of the same rows with their weights times `factor`."""
        return self.changed(
            total_weight=factor * self.total_weight,
            sample=self.sample and self.sample.scaled(factor),
            observed=self.observed.scaled(factor),
        )


def signs_of(ids: Sequence[Any]) -> NDArray[np.int64]:
    """Return the number of ids, None for rows without, and the sums of 256 random signs of each, (257,)."""
    texts = (blake2b(key, digest_size=8).digest() if isinstance(key, bytes) else key for key in id_keys([*ids]))
    keys = [int.from_bytes(text, "little", signed=True) if isinstance(text, bytes) else text for text in texts]
    bits = np.array(keys, np.int64).view(np.uint64)[:, np.newaxis] + _factors(4)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # SplitMix64 (Steele et al. 2014)
        bits = (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)
    bits ^= bits >> np.uint64(31)
    ones = np.unpackbits(bits.view(np.uint8)).reshape(-1, 256).sum(axis=0, dtype=np.int64)
    return np.append(len(ids), 2 * ones - len(ids))


def _joined_samples(one: Chains | None, two: Chains | None) -> Chains | None:
    """Return the chains of sizes, which are not known if only one of the two has ratios or weights."""
    if one is not None and two is not None:
        return one.then(two)
    known = one or two
    return known and known.unknown()


def marks_until(rows: Rows, ends: Sequence[int]) -> list[int]:
    """Return the marks of the features of rows up to each of `ends`."""
    n, first, last = rows.n_features - rows.intercept, rows.place, ends[-1]  # place in the stream
    head, tail = max(_ALL, first), max(_ALL, first) + -max(_ALL, first) % _EVERY  # first row of every 64th
    places, marks = [np.zeros(1, np.intp)], [np.zeros(1, np.uint64)]
    for part in (slice(0, min(head - first, last), 1), slice(tail - first, last, _EVERY)):
        if part.start < part.stop:
            places.append(np.arange(part.start + 1, part.stop + 1, part.step))
            marks.append(_marks_of(rows.X[part], n))
    until = np.searchsorted(np.concatenate(places), ends, side="right")
    found: list[int] = np.cumsum(np.concatenate(marks))[until - 1].tolist()
    return found


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

    def check_intercept(self, other: About) -> None:
        """Raise InvalidInputError if one has an intercept and the other has none."""
        if None not in (self.intercept, other.intercept) and self.intercept != other.intercept:
            raise InvalidInputError(
                "Statistics merge only if all have an intercept or none has; one has a column of ones as its last "
                "feature, the other does not. Sum both with the same `fit_intercept`."
            )

    def merged(self, other: About) -> About:
        """Return the description of both; raises InvalidInputError when they do not fit, or share a label."""
        if self == other and not self.labels:
            return self
        self.check_intercept(other)
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
