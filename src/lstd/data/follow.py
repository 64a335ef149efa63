"""Rows that follow one another: where episodes begin, and every rule about neighbouring rows.

**Arrays.** The state of a stream between two chunks is its last row: :class:`lstd.data.rows.Rows` of length one, which
:meth:`lstd.data.rows.Rows.kept` copies. For fixed horizons it is the last rows of the last episode, up to the horizon.
Sums, estimators, snapshots and files hold such rows and no other form of them. :func:`follows` says whether the next
rows continue the episode, and it alone refuses those that may not follow:

- `X_next` and `groups` are given for all chunks or none; so is `episode`, where an episode may go on,
- an episode that terminated does not go on under its id,
- an episode lies in one group,
- the reward of a row whose episode goes on is not missing, unless its successor was given with it.

**Tables.** :class:`Episodes` follows the rows of tables and data frames, whose flags may also say that an episode was
cut off, and whose errors name the place of a row. What is known between two files or processes is the last two rows
and the ids so far.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lstd.data.arguments import shown_id, shown_key
from lstd.data.doubts import NO_TIMES, TimesOfEnds
from lstd.data.identity import NO_VALUE
from lstd.data.ids import EPISODE_AGAIN, GROUP_AGAIN, NO_IDS_OF_ROWS, Fault, Ids
from lstd.data.roles import Roles
from lstd.data.rows import Rows
from lstd.data.seen_ids import NO_IDS, SeenIds
from lstd.errors import InvalidInputError
from lstd.types import Flags

_NANOSECONDS = {"us": 1000, "ns": 1}
RowError = Callable[[str, int, str, str], Exception]

_LATE_ROW = (
    "is true, but the next row is of the same episode. Rows that are not sorted by time are the likely cause: sort "
    "them, or give the rows after it another id."
)
_NOT_CUT = (
    "is true, but the episode continues: only the last two rows of an episode that did not terminate may be true. "
    "Give the rows after it another id."
)
_NO_SUCCESSOR = (
    "is true in the last row of its episode, which has a reward but no row for the state that followed. Append a row "
    "with the features of that state and no reward, or clear the reward to leave out the last step."
)
_LOST_REWARD = (
    f"{NO_VALUE}; a reward may be missing only in the last row of an episode that did not terminate. Correct "
    "or impute it: dropping rows inside an episode loses rewards and ends."
)
_LOST_AT_END = (
    f"{NO_VALUE}, and column {{!r}} is true in this row, which says that it is the last step. Fill in its reward, or "
    "set the flag to 0 if the episode still goes on."
)
_LOST_VALUE = f"{NO_VALUE}; it may be missing only in the last row of an episode that did not terminate. Fill it in."
_LOST_WITH_SUCCESSOR = (
    f"{NO_VALUE}; every row is a transition, since successors are given or rows are intervals. Correct or impute it."
)
_SAME_TIME = "has the time of the row before it, of the same episode; drop or merge such rows."
_EARLIER = "is earlier than the row before it, of the same episode; sort the rows by it, or pass `sort=True`."
_ONE_GROUP = "an episode lies in one group. Give rows of different groups different ids of episodes."
AGAIN_IN_TABLES = f"{EPISODE_AGAIN} `sort=True` sorts them, if `time` names their column of time."


def follows(last: Rows, first: Rows, *, begins: bool | None = None) -> bool:
    """Return whether the first of the rows `first` continues the episode of the last of the rows `last`.

    Both have at least one row. `begins` says whether the next rows begin an episode; by default the ids do.

    Raises
    ------
    InvalidInputError
        When the rows may not follow one another in a stream.
    """
    check_given_throughout("X_next", last.X_next is not None, first.X_next is not None)
    check_given_throughout("groups", last.groups is not None, first.groups is not None)
    if begins is None:
        goes_on = _is_same_episode(last, first)
    else:
        goes_on = not begins
        if goes_on and last.terminated[-1]:
            raise InvalidInputError("`begins` must be True after a row that terminated; got False.")
    if not goes_on:
        return False
    if not in_group(last, first):
        raise InvalidInputError(
            f"`groups` must be the same on all rows of an episode; one chunk ends with {shown_key(last.last_group)}, "
            f"and the next one, which continues its episode, begins with {shown_key(first.first_group)}. Give rows of "
            "different groups different ids in `episode`."
        )
    if not last.known[-1] and last.X_next is None:
        raise InvalidInputError(
            "`y` must be finite on a row whose episode continues in the next chunk; the last row of the chunk "
            "before has NaN. Pass that reward, or give the next chunk another `episode` id if the episode was "
            "truncated."
        )
    return True


def check_given_throughout(name: str, before: bool, now: bool) -> None:
    """Refuse a column that was given `before` and is not `now`, or the reverse."""
    if before != now:
        raise InvalidInputError(f"`{name}` must be given for all chunks of a stream or for none.")


def in_group(last: Rows, first: Rows) -> bool:
    """Return whether the first of the rows `first` is of the group of the last of `last`; also without groups."""
    return last.last_group == first.first_group


def _is_same_episode(last: Rows, first: Rows) -> bool:
    """Return whether the ids, or their absence, say that the last episode goes on; raises InvalidInputError."""
    one = last.last_episode
    two = first.first_episode
    if last.terminated[-1]:
        if one == two and two is not None:
            raise InvalidInputError(
                f"This chunk begins with `episode` {shown_key(two)}, which terminated on the last row of the chunk "
                "before. Give the new rows another id."
            )
        return False
    if (one is None) != (two is None):
        raise InvalidInputError(
            "`episode` must be given for all chunks of a stream or for none, because a chunk may continue the "
            "episode of the previous chunk."
        )
    return one == two


def exact_numbers(times: NDArray[Any]) -> tuple[NDArray[Any], int]:
    """Return times (T,) as numbers, and how many nanoseconds one is, so that products compare exactly.

    It is 1 for times that are numbers.
    """
    kind = times.dtype.kind
    if kind == "u":
        return times.astype(np.float64), 1
    if kind not in "mM":
        return times, 1
    unit, _ = np.datetime_data(times.dtype)
    if unit != "ns":
        unit = "us"
    return times.astype(f"{kind}8[{unit}]").astype(np.int64), _NANOSECONDS[unit]


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
        return _NANOSECONDS.get(self.unit, 1)

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
        if self.ids is not None:
            return self.ids.starts(len(self.terminated))
        ends = self.terminated | self.truncated
        return np.append(True, ends[:-1])[: len(ends)]


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
    again : str
        What is wrong with an id that reappears, and the remedy.
    whole : bool, default False
        Whether all rows are followed at once. Groups may then be in any order, and unsorted rows are reported before
        other faults.
    part : bool, default False
        Whether unknown rows come before the first, so that rules that need them are left out.
    """

    def __init__(
        self,
        roles: Roles,
        error: RowError,
        again: str = AGAIN_IN_TABLES,
        *,
        whole: bool = False,
        part: bool = False,
    ) -> None:
        self._roles = roles
        self._error = error
        self._text_again = again
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
        late: Sequence[Fault | None],
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
        again, seen = _again(marks.ids, old, state.seen, self._roles.episode, self._text_again)
        found = [*late, again]
        if fault is not None:
            found.insert(0, fault._replace(row=old + fault.row))
        if not (self._whole and any(found)):  # else last rows are out of place too, so what they lack is not at fault
            found += self._wrong_ends(marks, begins, is_over)
            found += self._missing(marks, begins)
            found.append(_torn(marks.groups, begins, self._roles.groups))
        if not self._whole:
            again, groups = _again(marks.groups, old, groups, self._roles.groups, GROUP_AGAIN)
            found.append(again)
        if any(found):
            row, column, text = min(filter(None, found), key=lambda one: one.row)
            if row < old:
                raise self._error(state.tail[row].file, state.tail[row].place, column, text)
            raise self._error(file, first + row - old, column, text)
        return seen, groups

    def _late(self, rows: Sequence[Row], times: NDArray[Any] | None, begins: Flags) -> list[Fault | None]:
        """Find the first rows whose time is before, and is, that of the row before, of the same episode.

        `rows` are those before a chunk and its first one, `times` (T,) those of the chunk, and `begins` of all rows.
        Times of different chunks may have different units, so those of `rows` are compared as exact numbers.
        """
        if rows[0].time is None:
            return []
        earlier = np.array([False, *(later.time < row.time for row, later in pairwise(rows))])
        same = np.array([False, *(later.time == row.time for row, later in pairwise(rows))])
        if times is not None:
            earlier = np.append(earlier, times[1:] < times[:-1])
            same = np.append(same, times[1:] == times[:-1])
        inside = ~begins
        return [
            Fault.first(np.asarray(earlier & inside), self._roles.time, _EARLIER),
            Fault.first(np.asarray(same & inside), self._roles.time, _SAME_TIME),
        ]

    def _wrong_ends(self, marks: Marks, begins: Flags, is_over: bool) -> list[Fault | None]:
        """Find the first row that breaks each rule about flags of ends."""
        roles = self._roles
        state = self.state
        terminated = marks.terminated
        truncated = marks.truncated
        goes_on = _goes_on(begins)
        cut_before = np.append(False, (truncated & goes_on)[:-1])  # the row before, of the same episode, is flagged
        not_cut = np.append((cut_before & (goes_on | terminated))[1:], False)
        has_reward = ~marks.missing[:, : len(roles.rewards)].all(axis=1)
        alone = truncated & ~goes_on & ~cut_before & has_reward  # an end without a row for the state that followed
        if roles.are_transitions:
            alone[:] = False
        if not is_over:
            alone[-1] = False  # the next row may be that row
        if marks.ids is not None and (self._part or state.tail[:1] != state.head[:1]):
            alone[0] = False  # the row before, which is not known here, may be flagged
        return [
            Fault.first(not_cut, roles.truncated, _NOT_CUT),
            Fault.first(terminated & goes_on, roles.terminated, _LATE_ROW),
            Fault.first(alone, roles.truncated, _NO_SUCCESSOR),
        ]

    def _missing(self, marks: Marks, begins: Flags) -> list[Fault | None]:
        """Find the first row that misses a value of each column, where no episode was cut off."""
        roles = self._roles
        successors = roles.are_transitions
        goes_on = _goes_on(begins)
        at_end = marks.terminated & ~goes_on
        lost = marks.missing & (goes_on | marks.terminated | successors)[:, np.newaxis]
        faults = []
        for j, column in enumerate(self._columns):
            is_reward = j < len(roles.rewards)
            if is_reward and not successors:
                faults.append(Fault.first(marks.missing[:, j] & at_end, column, _LOST_AT_END.format(roles.terminated)))
            if successors:
                text = _LOST_WITH_SUCCESSOR
            elif is_reward:
                text = _LOST_REWARD
            else:
                text = _LOST_VALUE
            faults.append(Fault.first(lost[:, j], column, text))
        return faults


def _goes_on(begins: Flags) -> Flags:
    """Return whether the next row is of the same episode, (T,), false for the last; `begins` are first rows of one."""
    return np.append(~begins[1:], False)


def _torn(groups: Ids | None, begins: Flags, column: str | None) -> Fault | None:
    """Find the first row of another group than the row before, of the same episode."""
    if groups is None:
        return None
    fault = Fault.first(groups.starts(len(begins)) & ~begins, column, "")
    if fault is None:
        return None
    return fault._replace(text=f"has {shown_id(groups.of_row(fault.row))}, but {_ONE_GROUP}")


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
