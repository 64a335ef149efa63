"""The rows of a stream that are checked after its fit: whole groups or episodes from all over it, as of rows in memory.

They are those of :func:`lstd.estimators.folds.rows_from_all_over`, whatever the chunks. The fractions by which groups
are taken are known when a group begins. A group that is too late in their order for the rows so far stays too late, so
that no more rows are held than are checked, and those of the last group.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lstd.data.rows import Rows
from lstd.data.time_steps import steps_since_earliest
from lstd.estimators.folds import fractions, groups_kept


class _Part(NamedTuple):
    """Rows of a group in one chunk."""

    rows: Rows
    times: NDArray[Any] | None


class RowsOfStream:
    """Rows that are kept while chunks of a stream are read, of numbered episodes.

    Parameters
    ----------
    most, n_groups, limit : int
        As of :func:`lstd.estimators.folds.rows_from_all_over`.
    """

    def __init__(self, most: int, n_groups: int, limit: int) -> None:
        self._most = most
        self._n_groups = n_groups
        self._limit = limit
        self._parts: dict[int, list[_Part]] = {}  # of groups by number
        self._sizes: dict[int, int] = {}
        self._n_rows = 0
        self._n_begun = 0  # groups
        self._last: Rows | None = None  # row
        self._earliest: Any = None

    def add(self, rows: Rows, times: NDArray[Any] | None) -> None:
        """Add the next rows, at least one, and their times."""
        starts = np.flatnonzero(rows.begins).tolist()
        first = self._n_begun
        if self._last is not None and _group_of(self._last, -1) == _group_of(rows, 0):
            first -= 1  # the last group goes on
        for k, (start, end) in enumerate(pairwise([*starts, len(rows)]), first):
            size_before = self._sizes.get(k, 0)
            is_new = k >= self._n_begun
            if is_new or k in self._sizes:
                self._sizes[k] = size_before + end - start
        self._n_begun = first + len(starts)
        self._n_rows += len(rows)
        self._last = rows.last_row
        if times is not None:
            earliest = times.min()
            if self._earliest is None or earliest.dtype.kind != self._earliest.dtype.kind or earliest < self._earliest:
                self._earliest = earliest
        self._drop_late()
        for k, (start, end) in enumerate(pairwise([*starts, len(rows)]), first):
            if k in self._sizes:
                self._keep(k, rows, times, start, end)

    def _drop_late(self) -> None:
        """Forget groups that are too late in the order to be taken."""
        numbers = self._in_order()
        n_rows = np.cumsum([self._sizes[k] for k in numbers])
        n_kept = max(1, groups_kept(n_rows, len(numbers) + 1, self._most, self._n_groups, self._limit))
        for k in numbers[n_kept:]:
            del self._sizes[k]
            self._parts.pop(k, None)

    def _keep(self, k: int, rows: Rows, times: NDArray[Any] | None, start: int, end: int) -> None:
        """Keep rows of a group, as far as there is room."""
        parts = self._parts.setdefault(k, [])
        room = self._limit - sum(len(part.rows) for part in parts)
        place = np.arange(start, min(end, start + max(0, room)))  # copies, or the whole chunk would stay in memory
        if not len(place):
            return
        if times is not None:
            times = times[place]
        parts.append(_Part(rows.taken(place), times))

    def _in_order(self) -> list[int]:
        """Return the numbers of the groups, the first to be taken first."""
        numbers = np.array(sorted(self._sizes))
        order = np.argsort(fractions(numbers), kind="stable")
        return [int(k) for k in numbers[order]]

    @property
    def n_held(self) -> int:
        """Number of rows that are held."""
        return sum(len(part.rows) for parts in self._parts.values() for part in parts)

    @property
    def rows(self) -> Rows:
        """The rows, with steps since the earliest time of the stream if times are known."""
        numbers = self._in_order()
        n_rows = np.cumsum([self._sizes[k] for k in numbers])
        n_kept = groups_kept(n_rows, self._n_begun, self._most, self._n_groups, self._limit)
        if self._n_rows <= min(self._most, self._limit):
            n_kept = len(numbers)
        parts = [part for k in sorted(numbers[: max(1, n_kept)]) for part in self._parts[k]]
        ids = np.concatenate([np.asarray(part.rows.episode) for part in parts])
        rows = Rows.joined([part.rows for part in parts], episode=ids)
        times = self._times(parts)
        if times is not None:
            rows = rows.changed(time=steps_since_earliest(times, rows.last, self._earliest))
        if n_kept == 0:
            most = max(1, min(self._most, self._limit))
            (rows, *_) = rows.split([0, most])
        return rows

    @staticmethod
    def _times(parts: list[_Part]) -> NDArray[Any] | None:
        """Return the times of rows; None without times, and where only some are dates."""
        times = [part.times for part in parts if part.times is not None]
        kinds = {part.dtype.kind in "mM" for part in times}
        if len(times) < len(parts) or len(kinds) != 1:
            return None
        return np.concatenate(times)


def _group_of(rows: Rows, at: int) -> Any:
    """Return the key of the group of the first or the last row, or of its episode without groups."""
    if at == 0:
        return rows.first_episode if rows.groups is None else rows.first_group
    return rows.last_episode if rows.groups is None else rows.last_group
