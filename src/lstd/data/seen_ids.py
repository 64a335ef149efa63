"""The ids of a stream so far, in little memory: intervals of integers, and keys of other ids.

A run of consecutive integers takes the memory of one; other ids take 24 bytes, and 60 while their number doubles.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstd.data.arguments import shown_id
from lstd.data.ids import id_key, not_contiguous
from lstd.data.rows import Rows

_WIDTH = 24  # most bytes of the key of a text
_Level = tuple[NDArray[Any], NDArray[Any]]  # first and last keys of intervals


class SeenIds:
    """A set of the keys of ids, as :func:`group_key` makes them; all those of a chunk are added at once."""

    def __init__(self) -> None:
        self._integers = _Intervals()
        self._texts = _Intervals()

    def copy(self) -> SeenIds:
        """Return a set of the same ids, to which others can be added."""
        other = SeenIds()
        other._integers, other._texts = self._integers.copy(), self._texts.copy()
        return other

    def add(self, keys: list[int | bytes]) -> int | None:
        """Add keys; if one is present or occurs twice, add none and return the place of the first such key."""
        if {*map(type, keys)} == {int} and len({*keys}) == len(keys):
            integers = np.array(keys, dtype=np.int64)
            if not self._integers.contains(integers).any():
                self._integers.add(integers)
                return None
        places: dict[int | bytes, int] = {}  # of keys before the first that occurs twice
        twice = next((place for place, key in enumerate(keys) if places.setdefault(key, place) != place), None)
        integers = np.array([key for key in places if isinstance(key, int)], dtype=np.int64)
        texts = np.array([key for key in places if isinstance(key, bytes)], dtype=f"S{_WIDTH}")
        known = [key for new, seen in ((integers, self._integers), (texts, self._texts)) for key in seen.common(new)]
        if known:
            return min(places[key] for key in known)
        if twice is not None:
            return twice
        self._integers.add(integers)
        self._texts.add(texts)
        return None

    def packed(self) -> dict[str, Any]:
        """Return the ids as a JSON document."""
        integers = [ends for level in self._integers.levels for ends in np.transpose(level).tolist()]
        texts = [text.hex() for low, _ in self._texts.levels for text in low.tolist()]
        return {"integers": integers, "texts": texts}

    @classmethod
    def unpacked(cls, document: Mapping[str, Any]) -> SeenIds:
        """Return the ids of a document; a broken one raises ValueError, TypeError or LookupError."""
        seen = cls()
        if document["integers"]:
            low, high = np.array(sorted(document["integers"]), dtype=np.int64).T
            seen._integers.levels = [_merged(low, high)]
        seen._texts.add(np.array([bytes.fromhex(text) for text in document["texts"]], dtype=f"S{_WIDTH}"))
        return seen

    def then(self, later: SeenIds, common: int | bytes | None) -> tuple[SeenIds, str | None]:
        """Return the ids of a stream and of the one that follows it, and one other than `common` that is in both."""
        both, again = SeenIds(), None
        for name in ("_integers", "_texts"):
            joined, clash = getattr(self, name).then(getattr(later, name), common)
            if clash is not None:
                again = repr(clash.decode(errors="replace") if isinstance(clash, bytes) else clash)
            setattr(both, name, joined)
        return both, again


class _Intervals:
    """Sorted disjoint intervals, in levels of about doubling length so that adding stays cheap."""

    def __init__(self) -> None:
        self.levels: list[_Level] = []

    def copy(self) -> _Intervals:
        other = _Intervals()
        other.levels = [*self.levels]  # the arrays are never written to
        return other

    def contains(self, keys: NDArray[Any]) -> NDArray[np.bool_]:
        found = np.zeros(len(keys), dtype=np.bool_)
        for low, high in self.levels:
            place = np.searchsorted(low, keys, side="right") - 1
            found |= (place >= 0) & (keys <= high[place])
        return found

    def common(self, keys: NDArray[Any]) -> list[Any]:
        """Return those of the keys that are present."""
        found: list[Any] = keys[self.contains(keys)].tolist()
        return found

    def add(self, keys: NDArray[Any]) -> None:
        if not len(keys):
            return
        level = _of_sorted(np.sort(keys))
        while self.levels and len(self.levels[-1][0]) <= 2 * len(level[0]):
            level = _joined(self.levels.pop(), level)
        self.levels.append(level)

    def then(self, later: _Intervals, common: Any) -> tuple[_Intervals, Any]:
        """Return the keys of both, and a key other than `common` that is in both; None if there is none."""
        both, levels = _Intervals(), [*self.levels, *later.levels]
        if not levels:
            return both, None
        low, high = (np.concatenate(ends) for ends in zip(*levels, strict=True))
        order = np.argsort(low, kind="stable")
        low, high = low[order], high[order]
        reach = np.maximum.accumulate(high) if high.dtype.kind == "i" else high
        for i in np.flatnonzero(low[1:] <= reach[:-1]).tolist():
            first, last = low[i + 1].item(), min(reach[i].item(), high[i + 1].item())
            if (first, last) != (common, common):
                return both, first if first != common else first + 1
        both.levels = [_merged(low, reach) if high.dtype.kind == "i" else (np.unique(low),) * 2]
        return both, None


def _of_sorted(keys: NDArray[Any]) -> _Level:
    return _merged(keys, keys) if keys.dtype.kind == "i" else (keys, keys)


def _joined(one: _Level, two: _Level) -> _Level:
    if one[0].dtype.kind != "i":
        keys = np.concatenate([one[0], two[0]])
        keys.sort(kind="stable")  # merges two sorted runs in linear time
        return keys, keys
    low, high = np.concatenate([one[0], two[0]]), np.concatenate([one[1], two[1]])
    order = np.argsort(low, kind="stable")
    return _merged(low[order], high[order])


def _merged(low: NDArray[Any], high: NDArray[Any]) -> _Level:
    """Join sorted intervals that touch or overlap; no end is below that of an interval before."""
    begins = np.concatenate(([True], low[1:] > high[:-1] + 1))
    ends = np.concatenate((begins[1:], [True]))
    return low[begins], high[ends]


def groups_seen(rows: Rows, before: SeenIds | None = None, *, continues: bool = False) -> SeenIds | None:
    """Return the groups of a stream with those of the next rows; None without groups.

    `before` are the groups so far, and `continues` says whether the first row is of the last one. Raises
    InvalidInputError when a group comes again after others.
    """
    if rows.groups is None:
        return None
    starts = np.flatnonzero(rows.begins)
    remedy = " `fit` takes groups in any order."
    return _extended(before or SeenIds(), "groups", rows.groups[starts], starts, continues, remedy)


def episodes_seen(
    rows: Rows, before: SeenIds | NDArray[Any] | None = None, *, continues: bool = False
) -> SeenIds | NDArray[Any] | None:
    """Return the ids of the episodes of a stream with those of the next rows; None without ids.

    As :func:`groups_seen`, but the ids of the first rows stay an array until others follow.
    """
    names = None if rows.episode is None else rows.episode[rows.last]
    if names is None or before is None:
        return names if before is None else before
    if not isinstance(before, SeenIds):
        before = _extended(SeenIds(), "episode", before, np.arange(len(before)), False)
    return _extended(before, "episode", names, np.append(0, np.flatnonzero(rows.last) + 1), continues)


def _extended(
    before: SeenIds, what: str, names: NDArray[Any], starts: NDArray[np.intp], continues: bool, remedy: str = ""
) -> SeenIds:
    """Add `names`, of the rows `starts`, to ids, without the first if it `continues`."""
    new = names[continues:].tolist()
    if not new:
        return before
    seen = before.copy()
    place = seen.add(group_keys(new))
    if place is not None:
        place += continues
        raise not_contiguous(what, shown_id(names[place]), int(starts[place]), remedy=remedy)
    return seen


def group_keys(names: list[Any]) -> list[int | bytes]:
    """Return the key of each id."""
    if {*map(type, names)} == {int} and min(names) >= -(2**63) and max(names) < 2**63:
        return names
    return [group_key(name) for name in names]


def group_key(name: Any) -> int | bytes:
    """Return the key of an id: the integer of :func:`lstd.data.ids.id_key`, or text, with a digest if long."""
    if not isinstance(name, (str, int, float)):
        name = str(name)
    key = id_key(name)
    if isinstance(key, int):
        return key
    text = str(name).encode()
    if len(text) > _WIDTH:
        text = text[: _WIDTH - len(key)] + key
    return text.rstrip(b"\0")  # as NumPy does
