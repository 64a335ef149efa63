"""Rows that follow one another: where episodes begin, and every rule about neighbouring rows.

What is known of a stream between two chunks, files or processes is its last two rows and the ids so far. The rules are
the same for data frames, files and lines that arrive one by one; only how an error names a place differs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lstd.data.arguments import shown_id
from lstd.data.doubts import NO_TIMES, TimesOfEnds
from lstd.data.parsing import EPISODE_AGAIN, GROUP_AGAIN, NO_VALUE, Fault, Ids, id_key, id_keys, same_id
from lstd.data.rows import Rows
from lstd.data.seen_ids import NO_IDS, SeenIds
from lstd.errors import InvalidInputError
from lstd.types import Flags

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
EARLIER = "is earlier than the row before it, of the same episode; sort the rows by it, or pass `sort=True`."
_ONE_GROUP = "an episode lies in one group. Give rows of different groups different ids of episodes."
AGAIN_IN_TABLES = f"{EPISODE_AGAIN} `sort=True` sorts them, if `time` names their column of time."


class StreamEnd(NamedTuple):
    """The last row of a stream of arrays."""

    episode: Any  # its id; None without ids
    terminated: bool
    missing: bool  # whether its reward is NaN

    @classmethod
    def of(cls, rows: Rows) -> StreamEnd:
        """Return the end of rows, at least one."""
        return cls(rows.last_episode, bool(rows.terminated[-1]), not rows.known[-1])

    def goes_on_with(self, episode: Any) -> bool:
        """Return whether a next row, of this id, continues the last episode.

        Raises
        ------
        InvalidInputError
            When the id is that of an episode that terminated; when ids were given for only some rows.
        """
        same = same_id(self.episode, episode)
        if self.terminated:
            if same and episode is not None:
                raise InvalidInputError(
                    f"This chunk begins with `episode` {shown_id(episode)}, which terminated on the last row of the "
                    "chunk before. Give the new rows another id."
                )
            return False
        if (self.episode is None) != (episode is None):
            raise InvalidInputError(
                "`episode` must be given for all chunks of a stream or for none, because a chunk may continue the "
                "episode of the previous chunk."
            )
        return same

    def check_continued(self) -> None:
        """Raise InvalidInputError if the episode, which continues, lacks the reward of this row."""
        if self.missing:
            raise InvalidInputError(
                "`y` must be finite on a row whose episode continues in the next chunk; the last row of the chunk "
                "before has NaN. Pass that reward, or give the next chunk another `episode` id if the episode was "
                "truncated."
            )


class Row(NamedTuple):
    """The flags and the ids of a row."""

    file: str
    place: int  # in the file, from 0
    name: Annotated[Any, "episode"]  # id of its episode; None without ids
    group: Annotated[Any, "groups"]  # None without groups
    terminated: bool
    truncated: bool  # and not terminated
    time: Annotated[Any, "time"]  # a number, or None
    missing: tuple[bool, ...]  # of each reward and number of the transition, whether it has no value

    def ends_before(self, name: Any) -> bool:
        """Return whether the episode ends before the next row, of the episode `name`, or None without ids."""
        return self.terminated or self.truncated if name is None else id_key(self.name) != id_key(name)


@dataclass(frozen=True, eq=False)
class Marks:
    """The ids and flags of a chunk of T rows."""

    ids: Ids | None
    groups: Ids | None
    terminated: Flags  # (T,)
    truncated: Flags  # (T,)
    missing: Flags  # (T, m + k) the reward, or a number of the transition, has no value
    times: NDArray[Any] | None = None  # (T,)

    @classmethod
    def of(cls, row: Row) -> Marks:
        """Return the marks of one row."""
        ids, groups = (None if name is None else Ids(np.zeros(1, np.intp), [name], None) for name in row[2:4])
        times = None if row.time is None else np.array([row.time])
        terminated, truncated = np.array([[row.terminated], [row.truncated]])
        return cls(ids, groups, terminated, truncated, np.array([row.missing], np.bool_), times)

    def row(self, i: int, file: str, place: int) -> Row:
        """Return row `i`, with its place."""
        name, group = (
            None if ids is None else ids.names[int(np.searchsorted(ids.changes, i, side="right")) - 1]
            for ids in (self.ids, self.groups)
        )
        terminated = bool(self.terminated[i])
        time = None if self.times is None else self.times[i].item()
        truncated, missing = bool(self.truncated[i]) and not terminated, tuple(self.missing[i].tolist())
        return Row(file, place, name, group, terminated, truncated, time, missing)


class Followed(NamedTuple):
    """What is known of the rows of a stream so far."""

    n_episodes: int = 0
    head: tuple[Row, ...] = ()  # the first two rows, or fewer
    tail: tuple[Row, ...] = ()  # the last two rows, or fewer
    seen: SeenIds = NO_IDS  # of episodes
    groups: SeenIds = NO_IDS
    times: TimesOfEnds = NO_TIMES


class Episodes:
    """Follow the episodes of a stream of rows.

    Of the last row of an episode that was cut off, only the features are used. Either that row is flagged, and then has
    no reward, or the row before it.

    Parameters
    ----------
    roles : lstd.tables.column_roles.Roles
        The columns, for messages; or what has the same attributes.
    error : callable
        Makes the error of a value: from the file, the row in the file, from 0, the column, and the rule and remedy.
    again, earlier : str
        What is wrong with an id that reappears and with a time that goes back, and the remedies.
    whole : bool, default False
        Whether all rows are followed at once. Groups may then be in any order, and unsorted rows are reported before
        other faults.
    part : bool, default False
        Whether unknown rows come before the first, so that rules that need them are left out.
    """

    def __init__(
        self, roles: Any, error: RowError, again: str = AGAIN_IN_TABLES, earlier: str = EARLIER, *,
        whole: bool = False, part: bool = False,
    ) -> None:  # fmt: skip
        self._roles, self._error, self._text_again, self._earlier = roles, error, again, earlier
        self._whole, self._part = whole, part
        self._columns = (*roles.rewards, *roles.transitions.values())  # that may be missing in last rows
        self.state = Followed()

    def forgive(self) -> None:
        """Forget what the last row said about the rows after it, because one of them was left out."""
        sound = tuple(False for _ in self._columns)
        tail = tuple(r._replace(terminated=False, truncated=False, missing=sound) for r in self.state.tail[-1:])
        self.state = self.state._replace(tail=tail)

    def follow(
        self, at: Callable[[int], tuple[str, int]], marks: Marks, fault: Fault | None = None
    ) -> NDArray[np.int64]:  # fmt: skip
        """Return the number of each row's episode, from 0; `at` gives the file of each row, and its place there.

        Raises the error of the first row that breaks a rule, also one of the chunks before, or of an earlier `fault`.
        """
        n, state = len(marks.terminated), self.state
        begins = np.zeros(n, dtype=np.bool_)
        if not n:
            return np.zeros(0, np.int64)
        if marks.ids is None:
            begins[1:] = (marks.terminated | marks.truncated)[:-1]
        else:
            begins[marks.ids.changes] = True
        begins[0] = not state.tail or state.tail[-1].ends_before(None if marks.ids is None else marks.ids.names[0])
        seen, groups = self._check(at, marks, begins, fault)
        rows = [marks.row(i, *at(i)) for i in sorted({0, 1, n - 2, n - 1}) if 0 <= i < n]
        numbers: NDArray[np.int64] = state.n_episodes - 1 + np.cumsum(begins)
        times = state.times.then(TimesOfEnds.of(marks.times, marks.terminated))
        head, tail = (*state.head, *rows)[:2], (*state.tail, *rows)[-2:]
        self.state = Followed(int(numbers[-1]) + 1, head, tail, seen, groups, times)
        return numbers

    def finish(self) -> None:
        """End the stream; raises InvalidInputError if its last row breaks a rule."""
        none = np.zeros(0, np.bool_)
        if self.state.tail:
            marks = Marks(None, None, none, none, np.zeros((0, len(self._columns)), np.bool_))
            self._check(lambda row: ("", row), marks, none, None, is_over=True)

    def _check(
        self,
        at: Callable[[int], tuple[str, int]],
        marks: Marks,
        begins: Flags,
        fault: Fault | None,
        *,
        is_over: bool = False,
    ) -> tuple[SeenIds, SeenIds]:
        """Apply the rules to the last two rows and these, raise for the first row that breaks one, and return the ids.

        These are the ids of episodes and of groups so far.
        """
        tail, old, seen, groups = self.state.tail, len(self.state.tail), self.state.seen, self.state.groups
        starts = np.append([not i or tail[i - 1].ends_before(row.name) for i, row in enumerate(tail)], begins)
        again, seen = self._again(marks.ids, begins, seen, self._roles.episode, self._text_again)
        found = [fault and fault._replace(row=old + fault.row), self._time_fault(marks.times, begins), again]
        if not (self._whole and any(found)):  # else last rows are out of place too, so what they lack is not at fault
            again, groups = self._group_fault(marks.groups, begins)
            found += [*self._faults(marks, starts.astype(np.bool_), is_over), again]
        if any(found):
            row, column, text = min(filter(None, found), key=lambda fault: fault.row)
            raise self._error(*(tail[row][:2] if row < old else at(row - old)), column, text)
        return seen, groups

    def _faults(self, marks: Marks, begins: Flags, is_over: bool) -> list[Fault]:
        """Find the first row, of the last two and these, that breaks each rule about flags and missing values."""
        tail, roles, successors = self.state.tail, self._roles, bool(self._roles.next_features)
        old, before = len(tail), Row(*(zip(*tail, strict=True) if tail else [()] * len(Row._fields)))
        terminated = np.append(before.terminated, marks.terminated).astype(np.bool_)
        truncated = np.append(before.truncated, marks.truncated & ~marks.terminated).astype(np.bool_)
        lost_before = np.array(before.missing, np.bool_).reshape(old, len(self._columns))
        missing, n_rewards = np.concatenate([lost_before, marks.missing]), len(roles.rewards)
        goes_on = np.append(~begins[1:], False)  # the next row is of the same episode
        cut_before = np.append(False, truncated[:-1] & goes_on[:-1])  # the row before, of the same episode, is flagged
        alone = truncated & ~goes_on & ~cut_before & ~missing[:, :n_rewards].all(axis=1) & (not successors)
        alone[-1] &= is_over
        named = marks.ids is not None or (old and tail[0].name is not None)
        if old == 2 or (self._part and len(self.state.head) == old and named):
            alone[0] = False  # was checked before; or the row before, which is not known here, may be flagged
        lost = missing & (goes_on | terminated | successors)[:, np.newaxis]
        at_end, rewards = terminated & ~goes_on & (not successors), zip(missing.T, roles.rewards, strict=False)
        texts = [_LOST_WITH_SUCCESSOR if successors else _LOST_REWARD] * n_rewards
        texts += [_LOST_WITH_SUCCESSOR if successors else _LOST_VALUE] * (len(self._columns) - n_rewards)
        rules = [
            ((cut_before & (goes_on | terminated))[1:], roles.truncated, _NOT_CUT),
            (terminated & goes_on, roles.terminated, _LATE_ROW),
            (alone, roles.truncated, _NO_SUCCESSOR),
            *((bad & at_end, column, _LOST_AT_END.format(roles.terminated)) for bad, column in rewards),
            *zip(lost.T, self._columns, texts, strict=True),
        ]
        return [Fault(int(np.argmax(bad)), str(column), text) for bad, column, text in rules if bad.any()]

    def _time_fault(self, times: NDArray[Any] | None, begins: Flags) -> Fault | None:
        """Find the first row whose time is not later than that of the row before, of the same episode."""
        if times is None:
            return None
        tail = self.state.tail
        before = np.append(tail[-1].time if tail else times[0], times[:-1])
        late = (times <= before) & ~begins  # no differences: those of unsigned integers have no sign
        if not late.any():
            return None
        row = int(np.argmax(late))
        text = self._earlier if times[row] < before[row] else _SAME_TIME
        return Fault(len(tail) + row, str(self._roles.time), text)

    def _group_fault(self, groups: Ids | None, begins: Flags) -> tuple[Fault | None, SeenIds]:
        """Find the first row of another group than the row before, of the same episode, or of a group that is over."""
        tail, seen = self.state.tail, self.state.groups
        if groups is None:
            return None, seen
        same = bool(tail) and id_key(tail[-1].group) == id_key(groups.names[0])
        starts = np.zeros(len(begins), dtype=np.bool_)
        starts[groups.changes] = True
        starts[0] = not same
        within = np.flatnonzero(starts & ~begins)
        if len(within):
            name, row = groups.names[int(np.searchsorted(groups.changes, within[0]))], len(tail) + int(within[0])
            return Fault(row, str(self._roles.groups), f"has {name!r}, but {_ONE_GROUP}"), seen
        return (None, seen) if self._whole else self._again(groups, starts, seen, self._roles.groups, GROUP_AGAIN)

    def _again(
        self, ids: Ids | None, begins: Flags, seen: SeenIds, column: str | None, text: str
    ) -> tuple[Fault | None, SeenIds]:
        """Find the first id that begins and was seen, and return the ids with those that begin."""
        if ids is None or not len(begins):
            return None, seen
        old, seen = int(not begins[0]), seen.copy()  # the first id is that of the last row before
        place = seen.add(id_keys(ids.names[old:]))
        if place is None:
            return None, seen
        row, name = int(ids.changes[old + place]), ids.names[old + place]
        return Fault(len(self.state.tail) + row, str(column), f"{shown_id(name)} {text}"), seen
