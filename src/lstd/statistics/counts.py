"""What statistics hold beside the sums that a solution needs: counts, fingerprints of the rows, names and labels.

Fingerprints are called marks: two models whose blocks have equal marks were fitted to the same data. The mark of the
features of rows is Σ_t Σ_j k_j bits(x_tj) modulo 2⁶⁴, with odd numbers k_j and the bits of a feature as an integer. For
speed, the sum takes all of the first 1024 rows of a stream and then every 64th. Different features have different
marks, except by a chance of 2⁻⁶⁴, or where they have few values that occur equally often in every block.

The mark of rewards and weights takes all full transitions, t = 0, 1, …, in their order: Σ_t gᵗ h_t modulo 2⁶⁴. As
above, h_t sums over the weight and the rewards of a row, but their bits are rotated by 12. The marks M and N of
consecutive data, n transitions and later ones, join to M + gⁿ N. Those of independent data add up.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd._kernels.reward_marks import add_reward_marks
from lstd.data.effective_sample_size import SampleSums, merged
from lstd.data.horizon_rows import count_unused
from lstd.data.observed_share import NOTHING_BEHIND, BehindCuts
from lstd.data.rows import Record, Rows, uniform
from lstd.errors import InvalidInputError
from lstd.types import Array

_MODULUS = 2**64
_ALL, _EVERY = 1024, 64
_ODD = 0x9E3779B97F4A7C15  # 2⁶⁴ over the golden ratio: its multiples are far apart


@dataclass(frozen=True, eq=False)
class Counts(Record):
    """Counts of rows and of the full transitions among them, without a pending row unless it is complete."""

    n_rows: int = 0  # the pending row included
    n_transitions: int = 0
    total_weight: float = 0.0  # of full transitions
    unused: int = 0  # rewards of horizon rows, other than 0 and NaN
    mark: int = 0  # of the features of all rows
    reward_mark: int = 0
    sample: SampleSums | None = None  # None without ratios, weights and trace coefficients
    behind_cuts: BehindCuts | None = NOTHING_BEHIND  # None if successors were given

    @classmethod
    def of_rows(cls, rows: Rows, seen: slice, part: slice, lmbda: float) -> Counts:
        """Count the rows of `seen`, and as transitions those of `part`, which are summed."""
        full, given, n_rows = rows.full_among(part), rows.X_next is not None, seen.stop - seen.start
        return cls(
            n_rows, int(np.count_nonzero(full)), float(rows.weight[part] @ full), count_unused(rows, part),
            mark_of(rows, seen), reward_mark_of(rows.y[part], rows.weight[part], full),
            SampleSums.of(rows, lmbda, part), None if given else BehindCuts.of(rows, part),
        )  # fmt: skip

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
            (self.reward_mark + pow(_ODD, self.n_transitions, _MODULUS) * later.reward_mark) % _MODULUS,
            merged(self.sample, later.sample) if later.n_rows else self.sample,
            self.behind_cuts and later.behind_cuts and self.behind_cuts.then(later.behind_cuts),
        )

    def __add__(self, other: Counts) -> Counts:
        """Return the counts of independent data."""
        return self.then(other).changed(reward_mark=(self.reward_mark + other.reward_mark) % _MODULUS)

    def with_transition(self, row: Any, lmbda: float) -> Counts:
        """Return the counts with the pending row as a full transition."""
        behind, numbers = self.behind_cuts, (row.coefficient, row.weight)
        mark = reward_mark_of(row.reward[np.newaxis], np.array([row.weight]), np.ones(1, np.bool_))
        return self.changed(
            n_transitions=self.n_transitions + 1,
            total_weight=self.total_weight + row.weight,
            reward_mark=(self.reward_mark + pow(_ODD, self.n_transitions, _MODULUS) * mark) % _MODULUS,
            sample=self.sample and self.sample.with_transition(row.ratio, *numbers, lmbda * row.discount),
            behind_cuts=behind and behind.with_transition(row.discount, *numbers),
        )

    def closed(self, *, unused: bool) -> Counts:
        """Return the counts with a cut at the end, whose pending row has a reward that is not used."""
        return self.changed(
            unused=self.unused + unused,
            sample=self.sample and self.sample.closed(),
            behind_cuts=self.behind_cuts and self.behind_cuts.closed(),
        )

    def scaled(self, factor: float) -> Counts:
        """Return the counts of the same rows with their weights times `factor`."""
        return self.changed(
            total_weight=factor * self.total_weight,
            sample=self.sample and self.sample.scaled(factor),
            behind_cuts=self.behind_cuts and self.behind_cuts.scaled(factor),
        )


def mark_of(rows: Rows, part: slice) -> int:
    """Return the mark of the features of some rows."""
    n, first = rows.n_features - rows.intercept, rows.place + part.start  # in the stream
    head, tail = max(_ALL, first), max(_ALL, first) + -max(_ALL, first) % _EVERY  # first row of every 64th
    edges = slice(part.start, min(head - rows.place, part.stop)), slice(tail - rows.place, part.stop, _EVERY)
    odd, mark = _factors(n), 0
    for some in (rows.X[edge] for edge in edges if edge.start < edge.stop):
        if sparse.issparse(some):
            kept = some.indices < n
            mark += int(some.data[kept].view(np.uint64) @ odd[some.indices[kept]])
        else:
            bits = np.ascontiguousarray(some[:, :n], dtype=np.float64).view(np.uint64)
            mark += int((bits @ odd).sum())
    return mark % _MODULUS


def reward_mark_of(rewards: Array, weight: Array, full: NDArray[np.bool_]) -> int:
    """Return the mark of the rewards (T, m) and weights (T,) of rows, of which some are `full` transitions."""
    weights = weight[:1] if uniform(weight) else weight
    state, bits = np.array([0, 1], np.uint64), (np.ascontiguousarray(v).view(np.uint64) for v in (rewards, weights))
    add_reward_marks(*bits, full, _factors(rewards.shape[1] + 1), np.uint64(_ODD), state)
    return int(state[0])


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
