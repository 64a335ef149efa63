"""Rows of a stream that wait to be summed in one chunk, as a chunk of one row takes as long as one of a hundred.

Only rows whose sums cannot fail may wait: dense, of moderate size, and without successors, groups, ratios and weights.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from lstd.data.follow import StreamEnd
from lstd.data.rows import FACTORS, Rows, repeated
from lstd.statistics.merging import LSTDStatistics

_ENTRIES, MOST_CHUNKS = 2**20, 64  # features, 8 MiB, and chunks that may wait
_LARGEST = 1e200  # sum of squares of features and of rewards: products are far from overflow


class Waiting(NamedTuple):
    """Chunks of rows that wait, and whether each continues the episode of the row before it."""

    chunks: tuple[Rows, ...] = ()
    continues: tuple[bool, ...] = ()
    entries: int = 0  # of their features

    def then(self, rows: Rows, continues: bool) -> Waiting:
        """Add a copy of the next rows."""
        X, n = np.empty((len(rows), rows.n_features)), rows.X.shape[1]
        X[:, :n], X[:, n:] = rows.X, 1.0
        # The other columns are not those of the caller.
        episode = None if rows.episode is None else rows.episode.copy()
        rows = rows.changed(X=X, appended=0, y=rows.y.copy(), terminated=rows.terminated.copy(), episode=episode)
        return Waiting((*self.chunks, rows), (*self.continues, continues), self.entries + X.size)

    def end(self, before: LSTDStatistics) -> StreamEnd:
        """Return the end of the stream, of which `before` are the statistics before these rows."""
        return StreamEnd.of(self.chunks[-1]) if self.chunks else before.end

    @property
    def full(self) -> bool:
        """Whether no more rows should wait."""
        return len(self.chunks) >= MOST_CHUNKS or self.entries >= _ENTRIES

    def joined(self) -> Rows:
        """Return all rows as one chunk."""
        first, *others = self.chunks
        if not others:
            return first
        names = ("X", "y", "known", "discount", "terminated", "last")
        columns = {name: np.concatenate([getattr(rows, name) for rows in self.chunks]) for name in names}
        ends = np.cumsum([len(rows) for rows in self.chunks[:-1]])
        columns["last"][ends - 1] = np.logical_not(self.continues[1:])
        columns |= {name: repeated(1.0, len(columns["y"])) for name in FACTORS}
        if first.episode is not None:
            ids: list[Any] = [rows.episode for rows in self.chunks]
            columns["episode"] = np.concatenate(
                ids, dtype=object if len({names.dtype.kind for names in ids}) > 1 else None
            )
        return first.changed(**columns)


NONE_WAIT = Waiting()


def may_wait(rows: Rows, before: LSTDStatistics) -> bool:
    """Return whether rows that follow those of `before` may wait."""
    X, y = rows.X, rows.y
    if not (type(X) is np.ndarray and X.dtype == np.float64 and 0 < X.size < _ENTRIES) or rows.given & FACTORS:
        return False
    if any(given is not None for given in (rows.X_next, rows.names, rows.groups)):
        return False
    if before.successors is not False or before.n_groups is not None:
        return False
    alike = y.shape[1] == before.n_rewards and rows.single == before.single
    return bool(alike and np.vdot(X, X) <= _LARGEST and np.vdot(y, y) <= _LARGEST)
