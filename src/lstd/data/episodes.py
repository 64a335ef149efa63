"""Episodes of tables and data frames: their rows are followed by the rules of :mod:`lstd.data.follow`.

In tables a flag may also say that an episode was cut off, and errors name the place of a row. What is known between two
files or processes is the last two rows and the ids so far: of the two rows that end an episode which was cut off, one
is flagged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lstd.data.arguments import shown_id
from lstd.data.doubts import NO_TIMES, TimesOfEnds
from lstd.data.follow import Broken, Pairs, broken_by_missing, broken_pairs, next_begins
from lstd.data.ids import EPISODE_AGAIN, GROUP_AGAIN, NO_IDS_OF_ROWS, Fault, Ids, first_true
from lstd.data.roles import Roles
from lstd.data.seen_ids import NO_IDS, SeenIds
from lstd.data.time_steps import NANOSECONDS
from lstd.types import Flags

RowError = Callable[[str, int, str, str], Exception]
_SORT = " `sort=True` sorts them, if `time` names their column of time."


class Row(NamedTuple):
    """The flags and the keys of the ids of a row."""

    file: str
    place: int  # in the file, from 0
    name: Annotated[Any, "episode"]  # None without ids
    group: Annotated[Any, "groups"]  # None without groups
    terminated: bool
    truncated: bool  # and not terminated
    time: Annotated[Any, "time"]  # a number, of nanoseconds for dates and durations; None without times
    missing: tuple[bool, ...]  # of each reward and number of the transition, whether it has no value


@dataclass(frozen=True, eq=False)
class Marks:
    """The ids and flags of T rows that follow one another."""

    ids: Ids | None
    groups: Ids | None
    terminated: Flags  # (T,)
    truncated: Flags  # (T,) and not terminated
    missing: Flags  # (T, m + k) the reward, or a number of the transition, has no value
    times: NDArray[Any] | None = None  # (T,)
    unit: str = ""  # of times: "us" or "ns", for dates since 1970 in UTC; "" if they are numbers

    @property
    def ticks(self) -> int:
        """Nanoseconds in the unit of times, one where they are numbers."""
        return NANOSECONDS.get(self.unit, 1)

    def after(self, rows: Sequence[Row]) -> Marks:
        """Return the marks of rows and of these, which follow them; without times."""
        if not rows:
            return self
        missing = np.array([row.missing for row in rows], np.bool_)
        return Marks(
            ids=_ids_after([row.name for row in rows], self.ids),
            groups=_ids_after([row.group for row in rows], self.groups),
            terminated=np.append([row.terminated for row in rows], self.terminated).astype(np.bool_),
            truncated=np.append([row.truncated for row in rows], self.truncated).astype(np.bool_),
            missing=np.vstack([missing, self.missing.reshape(len(self.terminated), missing.shape[1])]),
        )

    def row(self, i: int, file: str, place: int) -> Row:
        """Return row `i`, with its place."""
        return Row(
            file=file,
            place=place,
            name=None if self.ids is None else self.ids.key_of_row(i),
            group=None if self.groups is None else self.groups.key_of_row(i),
            terminated=bool(self.terminated[i]),
            truncated=bool(self.truncated[i]),
            time=None if self.times is None else self.times[i].item() * self.ticks,
            missing=tuple(self.missing[i].tolist()),
        )

    @property
    def begins(self) -> Flags:
        """Whether each row begins an episode, (T,), as the first one does."""
        n_rows = len(self.terminated)
        other_id = None
        if self.ids is not None:
            other_id = self.ids.starts(n_rows)[1:]
        ended = self.terminated | self.truncated
        return np.append(True, next_begins(other_id, ended[:-1]))[:n_rows]


def _ids_after(keys: Sequence[Any], ids: Ids | None) -> Ids | None:
    """Return the ids of rows before which there are rows with these keys, all None where there are no ids."""
    if keys[0] is None:
        return None
    return (ids or NO_IDS_OF_ROWS).after(keys)


_NO_FLAGS = np.zeros(0, np.bool_)
NO_MARKS = Marks(None, None, _NO_FLAGS, _NO_FLAGS, _NO_FLAGS.reshape(0, 0))


class Followed(NamedTuple):
    """What is known of the rows of a stream so far."""

    n_episodes: int = 0
    head: tuple[Row, ...] = ()  # the first two rows, or fewer
    tail: tuple[Row, ...] = ()  # the last two rows, or fewer
    seen: SeenIds = NO_IDS  # of episodes
    groups: SeenIds = NO_IDS
    times: TimesOfEnds = NO_TIMES

    def continued_by(self, later: Followed) -> bool:
        """Return whether the first of the rows that follow is of the same episode as the last of these."""
        return not NO_MARKS.after([self.tail[-1], later.head[0]]).begins[1]


class Episodes:
    """Follow the episodes of a stream of rows.

    Of the last row of an episode that was cut off, only the features are used. Either that row is flagged, and then has
    no reward, or the row before it.

    Parameters
    ----------
    roles : Roles
        The columns, for messages.
    error : callable
        Makes the error of a value: from the file, the row in the file, from 0, the column, and the rule and remedy.
    whole : bool, default False
        Whether all rows are followed at once. Groups may then be in any order, and unsorted rows are reported before
        other faults.
    part : bool, default False
        Whether unknown rows come before the first, so that rules that need them are left out.
    """

    def __init__(self, roles: Roles, error: RowError, *, whole: bool = False, part: bool = False) -> None:
        self._roles = roles
        self._error = error
        self._whole = whole
        self._part = part
        self._columns = (*roles.rewards, *roles.transitions.values())  # that may be missing in last rows
        self.state = Followed()

    def follow(self, file: str, first: int, marks: Marks, fault: Fault | None = None) -> NDArray[np.int64]:
        """Return the number of each row's episode, from 0; `first` is the place of the first row in the file.

        Raises the error of the first row that breaks a rule, also one of the chunks before, or of an earlier `fault`.
        """
        n = len(marks.terminated)
        if not n:
            return np.zeros(0, np.int64)
        state = self.state
        old = len(state.tail)
        times = state.times
        if marks.times is not None:
            times = times.then(TimesOfEnds.of(marks.times, marks.terminated).scaled(marks.ticks))
        both = marks.after(state.tail)
        begins = both.begins
        places = sorted({0, 1, n - 2, n - 1})  # the first two rows and the last two, or fewer
        rows = tuple(marks.row(i, file, first + i) for i in places if 0 <= i < n)
        late = self._late((*state.tail, rows[0]), marks.times, begins)
        seen, groups = self._check(both, begins, file, first, late, fault)
        numbers: NDArray[np.int64] = state.n_episodes - 1 + np.cumsum(begins[old:])
        self.state = Followed(
            n_episodes=int(numbers[-1]) + 1,
            head=(*state.head, *rows)[:2],
            tail=(*state.tail, *rows)[-2:],
            seen=seen,
            groups=groups,
            times=times,
        )
        return numbers

    def finish(self, *, is_over: bool = True) -> None:
        """End the stream, if it `is_over`; raises InvalidInputError if one of its last rows breaks a rule."""
        if self.state.tail:
            marks = NO_MARKS.after(self.state.tail)
            late = self._late(self.state.tail, None, marks.begins)
            self._check(marks, marks.begins, "", 0, late, is_over=is_over)

    def _check(
        self,
        marks: Marks,
        begins: Flags,
        file: str,
        first: int,
        late: Sequence[Fault],
        fault: Fault | None = None,
        *,
        is_over: bool = False,
    ) -> tuple[SeenIds, SeenIds]:
        """Apply the rules to the last two rows and those after them, and return the ids of episodes and groups so far.

        `late` are the rows out of the order of time. Raises the error of the first row that breaks a rule.
        """
        state = self.state
        old = len(state.tail)
        groups = state.groups
        again, seen = _again(marks.ids, old, state.seen, self._roles.episode, EPISODE_AGAIN + _SORT)
        found = [*late, again]
        if fault is not None:
            found.insert(0, fault._replace(row=old + fault.row))
        if not (self._whole and any(found)):  # else last rows are out of place too, so what they lack is not at fault
            found += self._wrong_cuts(marks, begins, is_over)
            found += self._wrong_pairs(marks, begins)
            found += self._missing(marks, begins)
        if not self._whole:
            again, groups = _again(marks.groups, old, groups, self._roles.groups, GROUP_AGAIN)
            found.append(again)
        if any(found):
            row, column, text = min(filter(None, found), key=lambda one: one.row)
            if row < old:
                raise self._error(state.tail[row].file, state.tail[row].place, column, text)
            raise self._error(file, first + row - old, column, text)
        return seen, groups

    def _late(self, rows: Sequence[Row], times: NDArray[Any] | None, begins: Flags) -> list[Fault]:
        """Find the first rows whose time is before, and is, that of the row before, of the same episode.

        `rows` are those before a chunk and its first one, `times` (T,) those of the chunk, and `begins` of all rows.
        Times of different chunks may have different units, so those of `rows` are compared as exact numbers.
        """
        if rows[0].time is None:
            return []
        earlier = np.array([later.time < row.time for row, later in pairwise(rows)], np.bool_)
        at_once = np.array([later.time == row.time for row, later in pairwise(rows)], np.bool_)
        if times is not None:
            earlier = np.append(earlier, times[1:] < times[:-1])
            at_once = np.append(at_once, times[1:] == times[:-1])
        pairs = Pairs(~begins[1:], earlier=earlier, at_once=at_once)
        return [broken.fault(self._roles.time, _SORT) for broken in broken_pairs(pairs, _shows_nothing)]

    def _wrong_pairs(self, marks: Marks, begins: Flags) -> list[Fault]:
        """Find the first row that breaks each rule about an end or a group and the next row."""
        roles = self._roles
        torn = None
        if marks.groups is not None:
            torn = marks.groups.starts(len(begins))[1:]

        def shown(argument: str, row: int) -> str:
            ids = marks.ids if argument == "episode" else marks.groups
            if ids is None:
                return ""
            return shown_id(ids.of_row(row))

        pairs = Pairs(~begins[1:], terminated=marks.terminated[:-1], torn=torn)
        return [broken.fault(getattr(roles, broken.argument)) for broken in broken_pairs(pairs, shown)]

    def _wrong_cuts(self, marks: Marks, begins: Flags, is_over: bool) -> list[Fault]:
        """Find the first row that breaks each rule about `truncated`, a column that only tables have."""
        roles = self._roles
        state = self.state
        truncated = marks.truncated
        together = _with_next(begins)
        cut_before = np.append(False, (truncated & together)[:-1])  # the row before, of the same episode, is flagged
        not_cut = np.append((cut_before & (together | marks.terminated))[1:], False)
        has_reward = ~marks.missing[:, : len(roles.rewards)].all(axis=1)
        alone = truncated & ~together & ~cut_before & has_reward  # an end without a row for the state that followed
        if roles.are_transitions:
            alone[:] = False
        if not is_over:
            alone[-1] = False  # the next row may be that row
        if marks.ids is not None and (self._part or state.tail[:1] != state.head[:1]):
            alone[0] = False  # the row before, which is not known here, may be flagged
        faults = []
        row = first_true(not_cut)
        if row is not None:
            broken = Broken(
                row=row,
                argument="truncated",
                must="may be true only on the last two rows of an episode that did not terminate",
                found="is true, but the episode continues",
                remedy="Give the rows after it another id.",
            )
            faults.append(broken.fault(roles.truncated))
        row = first_true(alone)
        if row is not None:
            broken = Broken(
                row=row,
                argument="truncated",
                must="may be true in a last row only if that has no reward",
                found="is true in the last row of its episode, which has a reward but no row for the state that "
                "followed",
                remedy="Append a row with the features of that state and no reward, or clear the reward to leave out "
                "the last step.",
            )
            faults.append(broken.fault(roles.truncated))
        return faults

    def _missing(self, marks: Marks, begins: Flags) -> list[Fault]:
        """Find the first row that misses a value of each column, where no episode was cut off."""
        roles = self._roles
        together = _with_next(begins)
        flag = f"column {roles.terminated!r}"
        faults = []
        for column, missing in zip(self._columns, marks.missing.T, strict=True):
            broken = broken_by_missing(
                column,
                missing,
                together,
                marks.terminated,
                flag=flag,
                successors=roles.are_transitions,
            )
            if broken is not None:
                faults.append(broken.fault(column))
        return faults


def _with_next(begins: Flags) -> Flags:
    """Return whether the next row is of the same episode, (T,), false for the last; `begins` are first rows of one."""
    return np.append(~begins[1:], False)


def _shows_nothing(argument: str, row: int) -> str:
    """Return the id of a row, for messages without ids."""
    return ""


def _again(ids: Ids | None, old: int, seen: SeenIds, column: str | None, text: str) -> tuple[Fault | None, SeenIds]:
    """Find the first id that begins after the `old` rows and was seen, and return the ids with those that begin."""
    if ids is None:
        return None, seen
    first = int(np.searchsorted(ids.changes, old))
    seen = seen.copy()
    place = seen.add(ids.keys[first:])
    if place is None:
        return None, seen
    change = first + place
    fault = Fault(int(ids.changes[change]), str(column), f"{shown_id(ids.names[change])} {text}")
    return fault, seen
