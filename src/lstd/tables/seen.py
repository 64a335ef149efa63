"""The ids of a stream so far, in little memory: intervals of integers, and digests of other ids.

A run of consecutive integers takes the memory of one; other ids take 16 bytes each, and 40 while their number doubles.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_Level = tuple[NDArray[Any], NDArray[Any]]  # first and last keys of intervals


class SeenIds:
    """A set of ids, to which all ids of a chunk are added at once."""

    def __init__(self) -> None:
        self._integers = _Intervals()
        self._digests = _Intervals()

    def add(self, keys: list[int | bytes]) -> int | None:
        """Add keys; if one is present or occurs twice, add none and return the place of the first such key."""
        places: dict[int | bytes, int] = {}
        first = len(keys)
        for place, one in enumerate(keys):
            if places.setdefault(one, place) != place:
                first = place
                break
        integers = np.array([one for one in places if isinstance(one, int)], dtype=np.int64)
        digests = np.array([one for one in places if isinstance(one, bytes)], dtype="S16")
        for new, seen in ((integers, self._integers), (digests, self._digests)):
            known = new[seen.contains(new)]
            for one in known.tolist():
                first = min(first, places[one if isinstance(one, int) else one.ljust(16, b"\0")])
        if first < len(keys):
            return first
        self._integers.add(integers)
        self._digests.add(digests)
        return None


class _Intervals:
    """Sorted disjoint intervals, in levels of about doubling length so that adding stays cheap."""

    def __init__(self) -> None:
        self._levels: list[_Level] = []

    def contains(self, keys: NDArray[Any]) -> NDArray[np.bool_]:
        found = np.zeros(len(keys), dtype=np.bool_)
        for low, high in self._levels:
            place = np.searchsorted(low, keys, side="right") - 1
            found |= (place >= 0) & (keys <= high[place])
        return found

    def add(self, keys: NDArray[Any]) -> None:
        if not len(keys):
            return
        level = _of_sorted(np.sort(keys))
        while self._levels and len(self._levels[-1][0]) <= 2 * len(level[0]):
            level = _joined(self._levels.pop(), level)
        self._levels.append(level)


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
    """Join sorted intervals that touch."""
    begins = np.concatenate(([True], low[1:] != high[:-1] + 1))
    ends = np.concatenate((begins[1:], [True]))
    return low[begins], high[ends]
