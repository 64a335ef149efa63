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

from lstd.data.ids import EPISODE_AGAIN, GROUP_AGAIN, Ids, id_key
from lstd.data.parsing import NO_VALUE, Fault, first_true
from lstd.data.seen_ids import SeenIds, group_keys

Flags = NDArray[np.bool_]
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


class Row(NamedTuple):
    """The flags and the id of a row whose successor is not known yet."""

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
        name, group = (
            None if ids is None else ids.names[int(np.searchsorted(ids.changes, i, side="right")) - 1]
            for ids in (marks.ids, marks.groups)
        )
        terminated = bool(marks.terminated[i])
        truncated = bool(marks.truncated[i]) and not terminated
        time = None if marks.times is None else marks.times[i].item()
        return cls(file, first + i, name, group, terminated, truncated, time, tuple(marks.missing[i].tolist()))


class Episodes:
    """Follow the episodes from chunk to chunk.

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
    """

    def __init__(
        self, roles: Any, error: RowError, again: str = AGAIN_IN_TABLES, earlier: str = EARLIER, *, whole: bool = False
    ) -> None:
        self._roles, self._error, self._again, self._earlier, self._whole = roles, error, again, earlier, whole
        self._columns = (*roles.rewards, *roles.transitions.values())  # that may be missing in last rows
        self._n_rewards, self._successors = len(roles.rewards), bool(roles.next_features)
        self._count = 0
        self._last: Row | None = None  # the next chunk decides whether its episode continues
        self._cut: tuple[str, int] | None = None  # the row before it, if of the same episode and truncated
        self._seen, self._groups = SeenIds(), SeenIds()
        self._types: set[type] = set()

    def copy(self) -> Episodes:
        """Return a copy that can follow other rows."""
        other = copy.copy(self)
        other._seen, other._groups, other._types = self._seen.copy(), self._groups.copy(), {*self._types}
        return other

    def forgive(self) -> None:
        """Forget what the last row said about the rows after it, because one of them was left out."""
        self._cut = None
        if self._last is not None:
            sound = tuple(False for _ in self._last.missing)
            self._last = self._last._replace(terminated=False, truncated=False, missing=sound)

    def packed(self) -> dict[str, Any]:
        """Return the state as a JSON document; types of ids are left out."""
        seen = {"seen": self._seen.packed(), "groups": self._groups.packed()}
        return {"count": self._count, "last": self._last and list(self._last), "cut": self._cut, **seen}

    def unpack(self, document: Mapping[str, Any]) -> None:
        """Go on from a state; a broken document raises ValueError, TypeError or LookupError."""
        last, cut = document["last"], document["cut"]
        self._count = int(document["count"])
        self._last = None if last is None else Row._make((*last[:-1], tuple(last[-1])))
        self._cut = None if cut is None else (str(cut[0]), int(cut[1]))
        self._seen, self._groups = SeenIds.unpacked(document["seen"]), SeenIds.unpacked(document["groups"])

    def follow(self, file: str, first: int, marks: Marks, n_sure: int) -> tuple[NDArray[np.int64], Fault | None]:
        """Return the number of each row's episode, from 0, and the first row that breaks a rule.

        Only the first `n_sure` rows hold good values; `first` is the place of the chunk's first row in the file.

        Raises InvalidInputError when the rule is broken by a row of the chunks before.
        """
        numbers = np.zeros(len(marks.terminated), dtype=np.int64)
        begins = self._begins(marks, _n_known(marks, n_sure))
        if len(begins):
            self._check_last(bool(begins[0]))
        if not n_sure:
            return numbers, None
        rows = _Followed(marks, begins, n_sure, self._last)
        fault = self._first_fault(rows, marks)
        numbers[:n_sure] = self._count - 1 + np.cumsum(begins[:n_sure])
        self._count += int(begins[:n_sure].sum())
        if not rows.cut_before[-1]:
            self._cut = None
        elif n_sure > 1 or self._last is None:
            self._cut = (file, first + n_sure - 2)
        else:
            self._cut = (self._last.file, self._last.place)
        self._last = Row.of(file, first, marks, n_sure - 1)
        return numbers, fault

    def finish(self) -> None:
        """End the stream; raises InvalidInputError when the last row breaks a rule."""
        self._check_last(True)

    def _begins(self, marks: Marks, n: int) -> Flags:
        """Return which of the first n rows begin an episode."""
        begins = np.zeros(n, dtype=np.bool_)
        if not n:
            return begins
        if marks.ids is None:
            begins[1:] = (marks.terminated | marks.truncated)[: n - 1]
            begins[0] = self._last is None or self._last.terminated or self._last.truncated
        else:
            begins[marks.ids.changes[marks.ids.changes < n]] = True
            begins[0] = self._last is None or id_key(self._last.name) != id_key(marks.ids.names[0])
        return begins

    def _check_last(self, is_over: bool) -> None:
        """Check the last row so far, once it is known whether its episode is over."""
        last = self._last
        if last is None:
            return
        if is_over:
            rewarded = not all(last.missing[: self._n_rewards]) and not self._successors
            if last.truncated and self._cut is None and rewarded:
                raise self._error(last.file, str(self._roles.truncated), last.place, _NO_SUCCESSOR)
            return
        if self._cut is not None:
            raise self._error(self._cut[0], str(self._roles.truncated), self._cut[1], _NOT_CUT)
        if last.terminated:
            raise self._error(last.file, str(self._roles.terminated), last.place, _LATE_ROW)
        if any(last.missing):
            raise self._error(last.file, *self._lost(last.missing.index(True), last.place))

    def _first_fault(self, rows: _Followed, marks: Marks) -> Fault | None:
        unsorted = self._time_fault(marks.times, rows.begins)
        if self._whole and unsorted is not None:
            return unsorted  # last rows are out of place too, so what they lack is not at fault
        not_cut = rows.cut_before & (rows.goes_on | rows.terminated)
        if not_cut[0] and self._last is not None:
            raise self._error(self._last.file, str(self._roles.truncated), self._last.place, _NOT_CUT)
        no_reward = rows.missing[:, : self._n_rewards].all(axis=1)
        unrewarded = rows.truncated & rows.is_over & ~rows.cut_before & ~no_reward & (not self._successors)
        faults = [
            unsorted,
            self._episode_again(marks.ids, rows.begins),
            _first(rows.terminated & rows.goes_on, self._roles.terminated, _LATE_ROW),
            _first(not_cut[1:], self._roles.truncated, _NOT_CUT),
            _first(unrewarded, self._roles.truncated, _NO_SUCCESSOR),
            self._group_fault(marks.groups, rows.begins),
        ]
        lost = rows.missing & (rows.goes_on | rows.terminated | self._successors)[:, np.newaxis]
        if lost.any():
            row, column = np.argwhere(lost)[0].tolist()
            name, _, text = self._lost(column, row)
            faults.append(Fault(row, name, text))
        return min((fault for fault in faults if fault is not None), default=None, key=lambda fault: fault.row)

    def _lost(self, column: int, row: int) -> tuple[str, int, str]:
        """Return the column that has no value, the row and what is wrong."""
        text = _LOST_REWARD if column < self._n_rewards else _LOST_VALUE
        return self._columns[column], row, _LOST_WITH_SUCCESSOR if self._successors else text

    def _time_fault(self, times: NDArray[Any] | None, begins: Flags) -> Fault | None:
        """Find the first row whose time is not later than that of the row before, of the same episode."""
        if times is None:
            return None
        first = None if self._last is None else self._last.time
        times = times[: len(begins)]
        before = np.append(times[0] if first is None else first, times[:-1])
        row = first_true((times <= before) & ~begins)  # no differences: those of unsigned integers have no sign
        if row is None:
            return None
        return Fault(row, str(self._roles.time), self._earlier if times[row] < before[row] else _SAME_TIME)

    def _episode_again(self, ids: Ids | None, begins: Flags) -> Fault | None:
        """Find the first row whose id is that of an episode that is over."""
        if ids is None or self._whole:
            return None
        new = _begun(ids, len(begins), bool(begins[0]))
        kinds = {type(name) for _, name in new}
        self._types.update(kinds if kinds == {int} else (_type(name) for _, name in new))
        return _again(new, self._seen, self._roles.episode, self._again)

    def _group_fault(self, groups: Ids | None, begins: Flags) -> Fault | None:
        """Find the first row of another group than the row before, of the same episode, or of a group that is over."""
        if groups is None:
            return None
        last = None if self._last is None else self._last.group
        first = last is None or id_key(last) != id_key(groups.names[0])
        new = _begun(groups, len(begins), first)
        within = next(((row, name) for row, name in new if not begins[row]), None)
        if within is not None:
            return Fault(within[0], str(self._roles.groups), f"has {within[1]!r}, but {_ONE_GROUP}")
        return None if self._whole else _again(new, self._groups, self._roles.groups, GROUP_AGAIN)


def _begun(ids: Ids, n: int, first: bool) -> list[tuple[int, Any]]:
    """Return where ids begin among the first n rows, and their names; `first` says whether the first row begins one."""
    new = [(row, name) for row, name in zip(ids.changes.tolist(), ids.names, strict=True) if row < n]
    return new if first else new[1:]


def _again(new: list[tuple[int, Any]], seen: SeenIds, column: str | None, text: str) -> Fault | None:
    place = seen.add(group_keys([name for _, name in new]))
    return None if place is None else Fault(new[place][0], str(column), f"{new[place][1]!r} {text}")


class _Followed:
    """The first n rows of a chunk, which hold good values, and what is known about their neighbours."""

    def __init__(self, marks: Marks, begins: Flags, n: int, last: Row | None) -> None:
        self.begins = begins[:n]  # first of an episode
        self.terminated = marks.terminated[:n]
        self.truncated = marks.truncated[:n] & ~self.terminated
        self.missing = marks.missing[:n]
        self.goes_on = np.zeros(n, dtype=np.bool_)  # the next row is of the same episode
        self.goes_on[: len(begins) - 1] = ~begins[1:]
        self.is_over = np.zeros(n, dtype=np.bool_)  # the next row is of another episode
        self.is_over[: len(begins) - 1] = begins[1:]
        self.cut_before = np.zeros(n, dtype=np.bool_)  # the row before, of the same episode, is truncated
        self.cut_before[1:] = self.truncated[:-1] & ~self.begins[1:]
        self.cut_before[0] = last is not None and last.truncated and not self.begins[0]


def _first(bad: Flags, column: str | None, text: str) -> Fault | None:
    return Fault(int(np.argmax(bad)), str(column), text) if bad.any() else None


def _n_known(marks: Marks, n_sure: int) -> int:
    """Count the rows whose episode is known: the good ones, and the bad one after them unless its id is missing."""
    has_more = n_sure < len(marks.terminated)
    if has_more and marks.ids is not None and marks.ids.fault is not None:
        has_more = n_sure < marks.ids.fault.row
    return n_sure + has_more


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
