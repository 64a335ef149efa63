"""What is counted of the rows of a stream beside the sums that a solution needs; tallies merge as the sums do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lstd.data.effective_sample_size import SampleSums, merged
from lstd.data.horizon_rows import count_unused
from lstd.data.observed_share import NOTHING_BEHIND, BehindCuts
from lstd.data.rows import Record, Rows
from lstd.statistics.carry import Pending
from lstd.statistics.fingerprints import MODULUS, joined, marks_of, reward_mark_of, reward_marks_of


@dataclass(frozen=True, eq=False)
class Tally(Record):
    """Counts of rows and of the full transitions among them, without a pending row unless it is complete."""

    n_rows: int = 0  # the pending row included
    n_transitions: int = 0
    total_weight: float = 0.0  # of full transitions
    unused: int = 0  # rewards of horizon rows, other than 0 and NaN
    mark: int = 0  # of all rows: see `lstd.statistics.fingerprints`
    reward_mark: int = 0  # of rewards and weights
    sample: SampleSums | None = None  # None without ratios, weights and trace coefficients
    behind_cuts: BehindCuts | None = NOTHING_BEHIND  # None if successors were given

    def then(self, later: Tally) -> Tally:
        """Return the tally of these rows and later ones of the stream."""
        if not self.n_rows:
            return later
        return Tally.of(
            n_rows=self.n_rows + later.n_rows,
            n_transitions=self.n_transitions + later.n_transitions,
            total_weight=self.total_weight + later.total_weight,
            unused=self.unused + later.unused,
            mark=(self.mark + later.mark) % MODULUS,
            reward_mark=joined(self.reward_mark, later.reward_mark, self.n_transitions),
            sample=merged(self.sample, later.sample) if later.n_rows else self.sample,
            behind_cuts=self.behind_cuts and later.behind_cuts and self.behind_cuts.then(later.behind_cuts),
        )

    def __add__(self, other: Tally) -> Tally:
        """Return the tally of independent data."""
        return self.then(other).changed(reward_mark=(self.reward_mark + other.reward_mark) % MODULUS)

    def with_transition(self, row: Pending, lmbda: float) -> Tally:
        """Return the tally with the pending row as a full transition."""
        behind = self.behind_cuts
        return self.changed(
            n_transitions=self.n_transitions + 1,
            total_weight=self.total_weight + row.weight,
            reward_mark=joined(self.reward_mark, reward_mark_of(row.reward, row.weight), self.n_transitions),
            sample=self.sample
            and self.sample.with_transition(row.ratio, row.coefficient, row.weight, lmbda * row.discount),
            behind_cuts=behind and behind.with_transition(row.discount, row.coefficient, row.weight),
        )

    def closed(self, row: Pending | None) -> Tally:
        """Return the tally with a cut at the end, where `row` is pending."""
        return self.changed(
            unused=self.unused + is_unused(row),
            sample=self.sample and self.sample.closed(),
            behind_cuts=self.behind_cuts and self.behind_cuts.closed(),
        )

    def scaled(self, factor: float) -> Tally:
        """Return the tally of the same rows with their weights times `factor`."""
        return self.changed(
            total_weight=factor * self.total_weight,
            sample=self.sample and self.sample.scaled(factor),
            behind_cuts=self.behind_cuts and self.behind_cuts.scaled(factor),
        )


def is_unused(row: Pending | None) -> bool:
    """Return whether a row has rewards other than 0 and NaN that are not in the sums."""
    return row is not None and not (row.complete or row.missing) and bool(row.reward.any())


def tallies(before: Tally, rows: Rows, lmbda: float) -> Callable[[slice, int], Tally]:
    """Return a function that adds the next rows of the stream: up to a row, and the full transitions of a slice.

    It is called with consecutive slices.
    """
    tally, mark = before, marks_of(rows)
    reward_mark = reward_marks_of(rows, before.reward_mark, before.n_transitions)
    if rows.X_next is not None:
        tally = tally.changed(behind_cuts=None)

    def add(part: slice, end: int) -> Tally:
        nonlocal tally
        full, later = rows.full_among(part), SampleSums.of(rows, lmbda, part)
        more, behind = int(np.count_nonzero(full)), tally.behind_cuts
        tally = Tally.of(
            n_rows=before.n_rows + end,
            n_transitions=tally.n_transitions + more,
            total_weight=tally.total_weight + float(rows.weight[part] @ full),
            unused=tally.unused + count_unused(rows, part),
            mark=(tally.mark + mark(tally.n_rows - before.n_rows, end)) % MODULUS,
            reward_mark=reward_mark(part, full),
            sample=merged(tally.sample, later) if tally.n_rows else later,
            behind_cuts=behind and behind.then(BehindCuts.of(rows, part)),
        )
        return tally

    return add
