"""The ends of tables that are summed apart: which episodes continue, and the rules that concern rows of two tables.

A rule of :mod:`lstd.data.follow` concerns a row, the one before and the one after. So two rows at either end of
consecutive tables are kept, and checked again by the same rules together with those of the neighbouring tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from lstd.data.closed_subjects import NO_TIMES, TimesOfEnds
from lstd.data.follow import Episodes, Marks, Row
from lstd.data.ids import EPISODE_AGAIN, whole_number
from lstd.data.seen_ids import SeenIds, group_key
from lstd.errors import InvalidInputError
from lstd.statistics.merging import LSTDStatistics
from lstd.tables.column_roles import Roles
from lstd.tables.table_errors import at_row


@dataclass(frozen=True, eq=False)
class Ends:
    """Both ends of consecutive tables that are summed as one."""

    file: str  # the first table
    roles: Roles  # with all features by name
    head: tuple[Row, ...]  # the first two rows, or fewer
    tail: tuple[Row, ...]  # the last two rows, or fewer
    ids: SeenIds
    times: TimesOfEnds = NO_TIMES

    @classmethod
    def of(cls, file: str, roles: Roles, episodes: Episodes) -> Ends:
        """Return both ends of a table that was followed as part of a stream."""
        return cls(file, roles, episodes.head, episodes.tail, episodes.seen, episodes.times)

    def then(self, after: Ends, *, independent: bool) -> tuple[Ends, bool]:
        """Return both ends of these tables and those after, and whether the latter begin an episode.

        Raises InvalidInputError when tables continue one another and a row breaks a rule; the message names the row.
        """
        begins, ids = True, self.ids
        if not independent and self.tail and after.head:
            _follow(self.roles, [*self.tail, *after.head])
            begins = self.tail[-1].ends_before(after.head[0].name)
        if not independent:
            goes_on = not begins and self.roles.episode is not None
            ids, again = ids.then(after.ids, group_key(after.head[0].name) if goes_on else None)
            if again is not None:
                raise InvalidInputError(
                    f"{after.file}, or a table after it: column {self.roles.episode!r}: {again} {EPISODE_AGAIN}"
                )
        head, tail = (*self.head, *after.head)[:2], (*self.tail, *after.tail)[-2:]
        return replace(self, head=head, tail=tail, ids=ids, times=self.times.then(after.times)), begins

    def check(self) -> None:
        """Check both ends, as no tables come before or after; raises InvalidInputError when a row breaks a rule."""
        _follow(self.roles, self.head, is_first=True)
        _follow(self.roles, self.tail, is_first=len(self.tail) == 1, is_last=True)

    def named(self, statistics: LSTDStatistics) -> LSTDStatistics:
        """Return statistics with the ids of the first and last episode, from which `partial_fit` continues."""
        names = (rows[place].name if rows else None for rows, place in ((self.head, 0), (self.tail, -1)))
        first, last = (_typed(name) for name in names)
        return replace(statistics, first_episode=first, last_episode=last)

    def check_features(self, after: Ends) -> None:
        """Raise InvalidInputError unless the tables after have the same features in the same order."""
        names, others = self.roles.features or (), after.roles.features or ()
        one, two = self.file, after.file
        for file, other, missing in ((two, one, {*names} - {*others}), (one, two, {*others} - {*names})):
            if missing:
                raise InvalidInputError(
                    f"{file}: column {min(missing)!r} is missing, which {other} has; give tables with the same "
                    "columns, or name the features."
                )
        if names != others:
            raise InvalidInputError(f"{two}: its columns are in another order than those of {one}; name the features.")


def _follow(roles: Roles, rows: Sequence[Row], *, is_first: bool = False, is_last: bool = False) -> None:
    """Check consecutive rows; with `is_first` and `is_last` there are none before and after."""
    episodes = Episodes(roles, at_row, part=not is_first)
    for row in rows:
        episodes.follow(row.file, row.place, Marks.of(row))
    if is_last:
        episodes.finish()


def _typed(name: Any) -> Any:
    """Return an id, as an integer if it is the text of one, so that `partial_fit` continues it by either."""
    number = whole_number(name) if isinstance(name, str) else None
    return name if number is None else number
