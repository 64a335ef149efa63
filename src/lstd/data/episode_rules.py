"""Episodes of a stream in chunks: where they begin, and the rules that concern more than one row.

The same rules hold for data frames, files and lines that arrive one by one; only how an error names a place differs.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lstd.data.closed_subjects import NO_TIMES, TimesOfEnds
from lstd.data.ids import EPISODE_AGAIN, GROUP_AGAIN, Ids, id_key
from lstd.data.parsing import NO_VALUE, Fault
from lstd.data.seen_ids import SeenIds, group_keys
from lstd.types import Flags

RowError = Callable[[str, str, int, str], Exception]

_LATE_ROW = "is true, but the next row is of the same episode; give the rows after it another id."
_NOT_CUT = (
    "is true, but the episode continues: only the last two rows of an episode that did not terminate may be true. "
    "Give the rows after it another id."
)
_NO_SUCCESSOR = (
    "is true in the last row of its episode, which has a reward but no row for the state that followed. Append a row "
    "with the features of that state and no reward, or clear the reward to leave out the last step."
)
_LOST_REWARD = (
    f"{NO_VALUE}; a reward may be missing only in the last row of an episode that did not terminate. Drop or impute "
    "such rows first."
)
_LOST_VALUE = f"{NO_VALUE}; it may be missing only in the last row of an episode that did not terminate. Fill it in."
_LOST_WITH_SUCCESSOR = (
    f"{NO_VALUE}; every row is a transition, since successors are given or rows are intervals. Drop or impute such "
    "rows first."
)
_SAME_TIME = "has the time of the row before it, of the same episode; drop or merge such rows."
EARLIER = "is earlier than the row before it, of the same episode; sort the rows by it, or pass `sort=True`."
_ONE_GROUP = "an episode lies in one group. Give rows of different groups different ids of episodes."
AGAIN_IN_TABLES = f"{EPISODE_AGAIN} Sort here by naming the column of time with `sort=True`."


@dataclass(frozen=True, eq=False)
class Marks:
    """The ids and flags of a chunk of T rows."""

    ids: Ids | None
    groups: Ids | None
    terminated: Flags  # (T,)
    truncated: Flags  # (T,)
    missing: Flags  # (T, m + k) the reward, or a number of the transition, has no value
    times: NDArray[Any] | None = None  # (T,)

    def until(self, n: int) -> Marks:
        """Return the first n rows."""
        ids, groups = (
            None if ids is None else Ids(ids.changes[ids.changes < n], ids.names[: int((ids.changes < n).sum())], None)
            for ids in (self.ids, self.groups)
        )
        times = None if self.times is None else self.times[:n]
        return Marks(ids, groups, self.terminated[:n], self.truncated[:n], self.missing[:n], times)


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

    @classmethod
    def of(cls, file: str, first: int, marks: Marks, i: int) -> Row:
        """Return row `i` of a chunk whose first row is at place `first` in the file."""
        name, group = _name_of(marks.ids, i), _name_of(marks.groups, i)
        terminated = bool(marks.terminated[i])
        truncated = bool(marks.truncated[i]) and not terminated
        time = None if marks.times is None else marks.times[i].item()
        return cls(file, first + i, name, group, terminated, truncated, time, tuple(marks.missing[i].tolist()))

    def ends_before(self, name: Any) -> bool:
        """Return whether the episode ends before the next row, of the episode `name`, or None without ids."""
        return self.terminated or self.truncated if name is None else id_key(self.name) != id_key(name)


class Episodes:
    """Follow the episodes of a stream of rows. The state between chunks is the last two rows, and the ids so far.

    Of the last row of an episode that was cut off, only the features are used. Either that row is flagged, and then has
    no reward, or the row before it.

    Parameters
    ----------
    roles : lstd.tables.column_roles.Roles
        The columns, for messages; or what has the same attributes.
    error : callable
        Makes the error of a value: from the file, the column, the row in the file, from 0, and the rule and remedy.
    again, earlier : str
        What is wrong with an id that reappears and with a time that goes back, and the remedies.
    whole : bool, default False
        Whether all rows are followed at once. The caller has then checked that no id of an episode reappears. Groups
        may be in any order, and unsorted rows are reported before other faults.
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
        self._n_rewards, self._successors = len(roles.rewards), bool(roles.next_features)
        self._n = self._count = 0  # rows and episodes
        self.head: tuple[Row, ...] = ()  # the first two rows, or fewer
        self.tail: tuple[Row, ...] = ()  # the last two rows, or fewer
        self.seen, self._groups = SeenIds(), SeenIds()
        self.types: set[type] = set()  # of ids
        self.times = NO_TIMES

    def copy(self) -> Episodes:
        """Return a copy that can follow other rows."""
        other = copy.copy(self)
        other.seen, other._groups, other.types = self.seen.copy(), self._groups.copy(), {*self.types}
        return other

    def forgive(self) -> None:
        """Forget what the last row said about the rows after it, because one of them was left out."""
        sound = tuple(False for _ in self._columns)
        self.tail = tuple(row._replace(terminated=False, truncated=False, missing=sound) for row in self.tail[-1:])

    def packed(self) -> dict[str, Any]:
        """Return the state as a JSON document; types of ids and the first rows are left out."""
        seen = {"seen": self.seen.packed(), "groups": self._groups.packed()}
        return {"count": self._count, "tail": [list(row) for row in self.tail], **seen}

    def unpack(self, document: Mapping[str, Any]) -> None:
        """Go on from a state; a broken document raises ValueError, TypeError or LookupError."""
        self._count = int(document["count"])
        self.tail = tuple(Row._make((*row[:-1], tuple(row[-1]))) for row in document["tail"])
        self.seen, self._groups = SeenIds.unpacked(document["seen"]), SeenIds.unpacked(document["groups"])

    def follow(self, file: str, first: int, marks: Marks) -> NDArray[np.int64]:
        """Return the number of each row's episode, from 0; `first` is the place of the first row in the file.

        Raises InvalidInputError when a row breaks a rule, also one of the chunks before.
        """
        n = len(marks.terminated)
        begins = np.zeros(n, dtype=np.bool_)
        if not n:
            return np.zeros(0, np.int64)
        if marks.ids is None:
            begins[1:] = (marks.terminated | marks.truncated)[:-1]
        else:
            begins[marks.ids.changes] = True
        begins[0] = not self.tail or self.tail[-1].ends_before(None if marks.ids is None else marks.ids.names[0])
        self._check(file, first, marks, begins)
        numbers: NDArray[np.int64] = self._count - 1 + np.cumsum(begins)
        self._count += int(begins.sum())
        rows = [Row.of(file, first, marks, i) for i in sorted({0, 1, n - 2, n - 1}) if 0 <= i < n]
        self.head, self.tail, self._n = (*self.head, *rows)[:2], (*self.tail, *rows)[-2:], self._n + n
        self.times = self.times.then(TimesOfEnds.of(marks.times, marks.terminated))
        return numbers

    def finish(self, *, is_over: bool = True) -> None:
        """End the stream, or let a row follow of the same episode; raises InvalidInputError if the last row may not."""
        none = np.zeros(0, np.bool_)
        if self.tail:
            marks = Marks(None, None, none, none, np.zeros((0, len(self._columns)), np.bool_))
            self._check("", 0, marks, none, is_over=is_over)

    def finish_before(self, marks: Marks, row: int) -> None:
        """Check the last row before a bad one, number `row` of these, if the episode of that is known."""
        if self.tail and (marks.ids is None or marks.ids.fault is None or row < marks.ids.fault.row):
            self.finish(is_over=self.tail[-1].ends_before(_name_of(marks.ids, row)))

    def _check(self, file: str, first: int, marks: Marks, begins: Flags, *, is_over: bool | None = None) -> None:
        """Apply the rules to the last two rows and these; raise for the first row that breaks one."""
        tail, successors, old = self.tail, self._successors, len(self.tail)
        terminated = np.append([row.terminated for row in tail], marks.terminated).astype(np.bool_)
        truncated = np.append([row.truncated for row in tail], marks.truncated & ~marks.terminated).astype(np.bool_)
        missing = np.concatenate(
            [np.array([row.missing for row in tail], np.bool_).reshape(old, len(self._columns)), marks.missing]
        )
        begins = np.append([not i or tail[i - 1].ends_before(row.name) for i, row in enumerate(tail)], begins)
        begins = begins.astype(np.bool_)
        goes_on = np.append(~begins[1:], is_over is False)  # the next row is of the same episode
        cut_before = np.append(False, truncated[:-1] & goes_on[:-1])  # the row before, of the same episode, is flagged
        alone = truncated & ~goes_on & ~cut_before & ~missing[:, : self._n_rewards].all(axis=1)
        alone &= not successors
        alone[-1] &= is_over is True
        if old == 2 or (self._part and self._n == old and (tail[0].name if tail else marks.ids) is not None):
            alone[0] = False  # was checked before; or the row before, which is not known here, may be flagged
        lost = missing & (goes_on | terminated | successors)[:, np.newaxis]
        unsorted = self._time_fault(marks.times, begins[old:])
        faults = [
            unsorted,
            self._episode_again(marks.ids, begins[old:]),
            _first((cut_before & (goes_on | terminated))[1:], self._roles.truncated, _NOT_CUT),
            _first(terminated & goes_on, self._roles.terminated, _LATE_ROW),
            _first(alone, self._roles.truncated, _NO_SUCCESSOR),
            self._group_fault(marks.groups, begins[old:]),
            *(self._lost(column, lost[:, column]) for column in range(lost.shape[1])),
        ]
        found = [fault for fault in faults if fault is not None]
        if self._whole and unsorted is not None:
            found = [unsorted]  # last rows are out of place too, so what they lack is not at fault
        if found:
            row, column, text = min(found, key=lambda fault: fault.row)
            at = (tail[row].file, tail[row].place) if row < old else (file, first + row - old)
            raise self._error(at[0], column, at[1], text)

    def _lost(self, column: int, lost: Flags) -> Fault | None:
        """Find the first row in which a column has no value."""
        text = _LOST_REWARD if column < self._n_rewards else _LOST_VALUE
        return _first(lost, self._columns[column], _LOST_WITH_SUCCESSOR if self._successors else text)

    def _time_fault(self, times: NDArray[Any] | None, begins: Flags) -> Fault | None:
        """Find the first row whose time is not later than that of the row before, of the same episode."""
        if times is None:
            return None
        before = np.append(self.tail[-1].time if self.tail else times[0], times[:-1])
        late = (times <= before) & ~begins  # no differences: those of unsigned integers have no sign
        if not late.any():
            return None
        row = int(np.argmax(late))
        text = self._earlier if times[row] < before[row] else _SAME_TIME
        return Fault(len(self.tail) + row, str(self._roles.time), text)

    def _episode_again(self, ids: Ids | None, begins: Flags) -> Fault | None:
        """Find the first row whose id is that of an episode that is over."""
        if ids is None or self._whole:
            return None
        new = _begun(ids, bool(begins[0]))
        kinds = {type(name) for _, name in new}
        self.types.update(kinds if kinds == {int} else (_type(name) for _, name in new))
        return self._again(new, self.seen, self._roles.episode, self._text_again)

    def _group_fault(self, groups: Ids | None, begins: Flags) -> Fault | None:
        """Find the first row of another group than the row before, of the same episode, or of a group that is over."""
        if groups is None:
            return None
        new = _begun(groups, not self.tail or id_key(self.tail[-1].group) != id_key(groups.names[0]))
        within = next(((row, name) for row, name in new if not begins[row]), None)
        if within is not None:
            text = f"has {within[1]!r}, but {_ONE_GROUP}"
            return Fault(len(self.tail) + within[0], str(self._roles.groups), text)
        return None if self._whole else self._again(new, self._groups, self._roles.groups, GROUP_AGAIN)

    def _again(self, new: list[tuple[int, Any]], seen: SeenIds, column: str | None, text: str) -> Fault | None:
        place = seen.add(group_keys([name for _, name in new]))
        return (
            None if place is None else Fault(len(self.tail) + new[place][0], str(column), f"{new[place][1]!r} {text}")
        )


def _name_of(ids: Ids | None, row: int) -> Any:
    return None if ids is None else ids.names[int(np.searchsorted(ids.changes, row, side="right")) - 1]


def _begun(ids: Ids, first: bool) -> list[tuple[int, Any]]:
    """Return where ids begin, and their names; `first` says whether the first row begins one."""
    new = list(zip(ids.changes.tolist(), ids.names, strict=True))
    return new if first else new[1:]


def _first(bad: Flags, column: str | None, text: str) -> Fault | None:
    return Fault(int(np.argmax(bad)), str(column), text) if bad.any() else None


def typed_id(name: Any, types: Set[str]) -> Any:
    """Return an id; as a number if it is text and all ids of the stream, of types of these names, are numbers."""
    if not isinstance(name, str):
        return name
    if types == {"int"}:
        return id_key(name)
    return float(name) if types <= {"int", "float"} else name


def _type(name: Any) -> type:
    """Return the type of an id, or of the number in its text."""
    if not isinstance(name, str):
        return type(name)
    if isinstance(id_key(name), int):
        return int
    try:
        return float if math.isfinite(float(name)) and "_" not in name else str
    except ValueError:
        return str
