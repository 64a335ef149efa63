"""The ids of a stream so far, in little memory: intervals of integers, and keys of other ids.

A run of consecutive integers takes the memory of one; other ids take 24 bytes, and 60 while their number doubles.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstd.data.arguments import shown_id
from lstd.data.ids import KEY_WIDTH, id_keys, not_contiguous
from lstd.data.rows import Rows

_Level = tuple[NDArray[Any], NDArray[Any]]  # first and last keys of intervals
_DTYPES: dict[type, Any] = {int: np.int64, bytes: f"S{KEY_WIDTH}"}


class SeenIds:
    """A set of the keys of ids, as :func:`lstd.data.ids.id_key` makes them; all those of a chunk are added at once.

    Integers and texts are in levels of sorted disjoint intervals, of about doubling length so that adding stays cheap.
    """

    def __init__(self) -> None:
        self._levels: dict[type, list[_Level]] = {int: [], bytes: []}

    def copy(self) -> SeenIds:
        """Return a set of the same ids, to which others can be added."""
        other = SeenIds()
        other._levels = {kind: [*levels] for kind, levels in self._levels.items()}  # arrays are never written to
        return other

    def add(self, keys: list[int | bytes]) -> int | None:
        """Add keys; if one is present or occurs twice, add none and return the place of the first such key."""
        kinds = {*map(type, keys)}
        new: dict[type, NDArray[Any]] = {
            kind: np.array(keys if len(kinds) == 1 else [key for key in keys if type(key) is kind], _DTYPES[kind])
            for kind in kinds
        }
        known = any(_contains(self._levels[kind], values).any() for kind, values in new.items())
        if known or len({*keys}) < len(keys):
            before: set[int | bytes] = set()
            for place, key in enumerate(keys):
                if key in before or _contains(self._levels[type(key)], np.array([key], _DTYPES[type(key)]))[0]:
                    return place
                before.add(key)
        for kind, values in new.items():
            level, levels = _joined((values, values)), self._levels[kind]
            while levels and len(levels[-1][0]) <= 2 * len(level[0]):
                level = _joined(levels.pop(), level)
            levels.append(level)
        return None

    def packed(self) -> dict[str, Any]:
        """Return the ids as a JSON document."""
        integers = [ends for level in self._levels[int] for ends in np.transpose(level).tolist()]
        return {"integers": integers, "texts": [text.hex() for low, _ in self._levels[bytes] for text in low.tolist()]}

    @classmethod
    def unpacked(cls, document: Mapping[str, Any]) -> SeenIds:
        """Return the ids of a document; a broken one raises ValueError, TypeError or LookupError."""
        seen = cls()
        seen.add([bytes.fromhex(text) for text in document["texts"]])
        if document["integers"]:
            low, high = np.array(sorted(document["integers"]), dtype=np.int64).T
            seen._levels[int] = [_merged(low, high)]
        return seen

    def then(self, later: SeenIds, common: int | bytes | None) -> tuple[SeenIds, str | None]:
        """Return the union of the ids, and an id other than `common` that both streams have, if any."""
        both, again = SeenIds(), None
        for kind, levels in self._levels.items():
            every = [*levels, *later._levels[kind]]
            if not every:
                continue
            low, high = (np.concatenate(ends) for ends in zip(*every, strict=True))
            order = np.argsort(low, kind="stable")
            low, high = low[order], high[order]
            reach = np.maximum.accumulate(high) if kind is int else high
            clash = _clash(low, high, reach, common)
            if clash is not None:
                again = repr(clash.decode(errors="replace") if isinstance(clash, bytes) else clash)
            both._levels[kind] = [_merged(low, reach) if kind is int else (np.unique(low),) * 2]
        return both, again


NO_IDS = SeenIds()  # to be copied


def _clash(low: NDArray[Any], high: NDArray[Any], reach: NDArray[Any], common: Any) -> Any:
    """Return a key other than `common` that is in two intervals, which are sorted; None if there is none."""
    for i in np.flatnonzero(low[1:] <= reach[:-1]).tolist():
        first, last = low[i + 1].item(), min(reach[i].item(), high[i + 1].item())
        if (first, last) != (common, common):
            return first if first != common else first + 1
    return None


def _contains(levels: list[_Level], keys: NDArray[Any]) -> NDArray[np.bool_]:
    """Return whether each key is in an interval."""
    found = np.zeros(len(keys), dtype=np.bool_)
    for low, high in levels:
        place = np.searchsorted(low, keys, side="right") - 1
        found |= (place >= 0) & (keys <= high[place])
    return found


def _joined(*levels: _Level) -> _Level:
    low, high = (np.concatenate(ends) for ends in zip(*levels, strict=True))
    if low.dtype.kind != "i":
        low.sort(kind="stable")  # merges two sorted runs in linear time
        return low, low
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
    place = seen.add(id_keys(new))
    if place is not None:
        place += continues
        raise not_contiguous(what, shown_id(names[place]), int(starts[place]), remedy=remedy)
    return seen
