"""Episodes of a stream that comes in chunks: where they begin, and the rules that concern more than one row."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lstd.tables.columns import NO_VALUE, Ids
from lstd.tables.faults import Fault, at_row
from lstd.tables.seen import SeenIds, key

Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Marks:
    """What a chunk of T rows says about episodes."""

    ids: Ids | None
    terminated: Flags  # (T,)
    truncated: Flags  # (T,)
    missing: Flags  # (T, m) the reward has no value


class _Last(NamedTuple):
    """The last row so far, of which the next chunk tells whether its episode goes on."""

    file: str
    row: int
    name: Any
    ends_by: str | None  # column that says that it is the last of its episode
    missing: str | None  # first reward that has no value


class Episodes:
    """Follows the episodes from chunk to chunk.

    Parameters
    ----------
    rewards : tuple of str
        Names of the columns of rewards.
    episode, terminated, truncated : str or None
        Names of the columns, for messages.
    """

    def __init__(
        self, rewards: tuple[str, ...], episode: str | None, terminated: str | None, truncated: str | None
    ) -> None:
        self._rewards, self._episode, self._terminated, self._truncated = rewards, episode, terminated, truncated
        self._count = 0
        self._last: _Last | None = None
        self._seen = SeenIds()
        self._first_name: Any = None
        self._types: set[type] = set()

    @property
    def first(self) -> Any:
        """Id of the first episode; texts that are all numbers give a number. None without ids."""
        return self._typed(self._first_name)

    @property
    def last(self) -> Any:
        """Id of the last episode so far."""
        return self._typed(None if self._last is None else self._last.name)

    def follow(self, file: str, first: int, marks: Marks, n_sure: int) -> tuple[NDArray[np.int64], Fault | None]:
        """Numbers of the episodes of the rows, from 0, and the first row that breaks a rule.

        Only the first `n_sure` rows hold good values; `first` is the place of the chunk's first row in the file.

        Raises
        ------
        InvalidInputError
            When the rule is broken by the last row of the chunk before.
        """
        if not n_sure:
            return np.zeros(len(marks.terminated), dtype=np.int64), None
        begins = self._begins(marks, n_sure)
        self._check_last(begins)
        fault = self._first_fault(marks, begins)
        numbers = np.zeros(len(marks.terminated), dtype=np.int64)
        numbers[:n_sure] = self._count - 1 + np.cumsum(begins)
        self._count += int(begins.sum())
        self._last = self._row(file, first, marks, n_sure - 1)
        return numbers, fault

    def _begins(self, marks: Marks, n: int) -> Flags:
        """Rows that are the first of an episode."""
        begins = np.zeros(n, dtype=np.bool_)
        if marks.ids is None:
            begins[1:] = (marks.terminated | marks.truncated)[: n - 1]
            begins[0] = self._last is None or self._last.ends_by is not None
        else:
            begins[marks.ids.changes[marks.ids.changes < n]] = True
            begins[0] = self._last is None or key(self._last.name) != key(marks.ids.names[0])
        return begins

    def _check_last(self, begins: Flags) -> None:
        if self._last is None or begins[0]:
            return
        file, row, _, ends_by, missing = self._last
        if ends_by is not None:
            raise at_row(file, ends_by, row, _EARLY)
        if missing is not None:
            raise at_row(file, missing, row, _LOST)

    def _first_fault(self, marks: Marks, begins: Flags) -> Fault | None:
        n = len(begins)
        goes_on = np.zeros(n, dtype=np.bool_)
        goes_on[:-1] = ~begins[1:]
        faults = [
            self._early(marks.terminated[:n] & goes_on, self._terminated),
            self._early(marks.truncated[:n] & goes_on, self._truncated),
            self._again(marks.ids, begins),
        ]
        lost = marks.missing[:n] & (goes_on | marks.terminated[:n])[:, np.newaxis]
        if lost.any():
            row, column = np.argwhere(lost)[0].tolist()
            faults.append(Fault(row, self._rewards[column], _LOST))
        return min((fault for fault in faults if fault is not None), default=None, key=lambda fault: fault.row)

    @staticmethod
    def _early(early: Flags, column: str | None) -> Fault | None:
        return Fault(int(np.argmax(early)), str(column), _EARLY) if early.any() else None

    def _again(self, ids: Ids | None, begins: Flags) -> Fault | None:
        """The first row whose id was that of an episode that is over."""
        if ids is None:
            return None
        new = [(row, name) for row, name in zip(ids.changes.tolist(), ids.names, strict=True) if row < len(begins)]
        if new and not begins[0]:
            del new[0]
        if self._first_name is None and new:
            self._first_name = new[0][1]
        self._types.update(_type(name) for _, name in new)
        place = self._seen.add([key(name) for _, name in new])
        if place is None:
            return None
        row, name = new[place]
        return Fault(
            row, str(self._episode),
            f"{name!r} comes again after other episodes; sort the rows by episode and time (a stable sort by episode "
            "keeps the order of time).",
        )  # fmt: skip

    def _row(self, file: str, first: int, marks: Marks, row: int) -> _Last:
        ends_by = self._terminated if marks.terminated[row] else self._truncated if marks.truncated[row] else None
        missing = next((name for name, bad in zip(self._rewards, marks.missing[row], strict=True) if bad), None)
        name = None
        if marks.ids is not None:
            name = marks.ids.names[int(np.searchsorted(marks.ids.changes, row, side="right")) - 1]
        return _Last(file, first + row, name, ends_by, missing)

    def _typed(self, name: Any) -> Any:
        if not isinstance(name, str):
            return name
        if self._types == {int}:
            return int(name)
        return float(name) if self._types <= {int, float} else name


_EARLY = "is true, but the next row is of the same episode; give what follows an id of its own."
_LOST = (
    f"{NO_VALUE}; a reward may be missing only in the last row of an episode that did not terminate. Drop or impute "
    "such rows first."
)


def _type(name: Any) -> type:
    """The type of an id, or of the number that its text is."""
    if not isinstance(name, str):
        return type(name)
    if isinstance(key(name), int):
        return int
    try:
        return float if math.isfinite(float(name)) and "_" not in name else str
    except ValueError:
        return str
