"""The ids of a stream so far, in little memory: intervals of integers, and the keys of other ids in 24 bytes.

A run of consecutive integers takes the memory of one; other ids take 24 bytes, and 60 while their number doubles.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from lstd.data.arguments import shown_id
from lstd.data.identity import Identity, name_of
from lstd.data.ids import identities, not_contiguous
from lstd.data.rows import Rows

_WIDTH = 24  # bytes of a key that is no integer
_DIGEST = 16  # bytes of its end if it is longer: among 10⁹ ids the chance that any two share a digest is 10⁻²¹
_Level = tuple[NDArray[Any], NDArray[Any]]  # first and last keys of intervals
_DTYPES: dict[type, Any] = {int: np.int64, bytes: f"S{_WIDTH}"}


class SeenIds:
    """A set of the keys of ids; all those of a chunk are added at once.

    Integers and texts are in levels of sorted disjoint intervals, of about doubling length so that adding stays cheap.
    """

    def __init__(self) -> None:
        self._levels: dict[type, list[_Level]] = {int: [], bytes: []}

    def copy(self) -> SeenIds:
        """Return a set of the same ids, to which others can be added."""
        other = SeenIds()
        other._levels = {kind: [*levels] for kind, levels in self._levels.items()}  # arrays are never written to
        return other

    def add(self, keys: Sequence[Identity]) -> int | None:
        """Add keys; if one is present or occurs twice, add none and return the place of the first such key."""
        new = _packed(keys)
        known = any(_contains(self._levels[kind], values).any() for kind, values in new.items())
        if known or len({*keys}) < len(keys):
            before: set[Identity] = set()
            for place, key in enumerate(keys):
                ((kind, value),) = _packed([key]).items()
                if key in before or _contains(self._levels[kind], value)[0]:
                    return place
                before.add(key)
        for kind, values in new.items():
            level = _joined((values, values))
            levels = self._levels[kind]
            while levels and len(levels[-1][0]) <= 2 * len(level[0]):
                level = _joined(levels.pop(), level)
            levels.append(level)
        return None

    def packed(self) -> dict[str, Any]:
        """Return the ids as a JSON document."""
        integers = [ends for level in self._levels[int] for ends in np.transpose(level).tolist()]
        texts = [text.hex() for low, _ in self._levels[bytes] for text in low.tolist()]
        return {"integers": integers, "texts": texts}

    @classmethod
    def unpacked(cls, document: Mapping[str, Any]) -> SeenIds:
        """Return the ids of a document; a broken one raises ValueError, TypeError or LookupError."""
        seen = cls()
        if document["texts"]:
            texts = np.array(sorted(map(bytes.fromhex, document["texts"])), _DTYPES[bytes])
            seen._levels[bytes] = [(texts, texts)]
        if document["integers"]:
            low, high = np.array(sorted(document["integers"]), dtype=np.int64).T
            seen._levels[int] = [_merged(low, high)]
        return seen

    def then(self, later: SeenIds, common: Identity | None) -> tuple[SeenIds, str | None]:
        """Return the union of the ids, and an id other than `common` that both streams have, if any."""
        both = SeenIds()
        again = None
        same = None
        if common is not None:
            (values,) = _packed([common]).values()
            same = values[0]
        for kind, levels in self._levels.items():
            every = [*levels, *later._levels[kind]]
            if not every:
                continue
            low, high = (np.concatenate(ends) for ends in zip(*every, strict=True))
            order = np.argsort(low, kind="stable")
            low = low[order]
            high = high[order]
            if kind is int:
                reach = np.maximum.accumulate(high)
                level = _merged(low, reach)
            else:
                reach = high
                texts = np.unique(low)
                level = (texts, texts)
            clash = _clash(low, high, reach, same)
            if clash is not None:
                again = _shown(clash)
            both._levels[kind] = [level]
        return both, again


NO_IDS = SeenIds()  # to be copied

_TEXT = "text "  # the first kind, whose letter is "a"
_KINDS = ("text", "time", "zoned", "duration", "uuid", "number", "integer", "boolean", "bytes", "tuple")


def _packed(keys: Sequence[Identity]) -> dict[type, NDArray[Any]]:
    """Return integers, and of other keys the value and a letter for its kind, in at most 24 bytes."""
    kinds = {*map(type, keys)}
    if kinds == {int}:
        return {int: np.array(keys, np.int64)}
    if kinds == {str}:
        return {bytes: _packed_texts(keys)}
    integers = [key for key in keys if isinstance(key, int)]
    texts = [key for key in keys if isinstance(key, str)]
    found = {int: np.array(integers, np.int64), bytes: _packed_texts(texts)}
    return {kind: values for kind, values in found.items() if len(values)}


def _packed_texts(keys: Sequence[Any]) -> NDArray[Any]:
    short = max(map(len, keys), default=0) < len(_TEXT) + _WIDTH
    if short and {key[: len(_TEXT)] for key in keys} == {_TEXT}:
        with contextlib.suppress(UnicodeEncodeError):  # the same as below, in a third of the time
            return np.array([key[len(_TEXT) :] + "a" for key in keys], _DTYPES[bytes])
    return np.array([*map(_packed_text, keys)], _DTYPES[bytes])


def _packed_text(key: str) -> bytes:
    kind, _, value = key.partition(" ")
    content = value.encode("utf-8", "surrogatepass")
    if kind == "uuid":
        content = UUID(value).bytes
    letter = bytes([97 + _KINDS.index(kind)])
    if len(content) < _WIDTH:
        return content + letter
    digest = hashlib.blake2b(content, digest_size=_DIGEST).digest()
    return content[: _WIDTH - _DIGEST - 1] + digest + letter.upper()


def _shown(packed: int | bytes) -> str:
    """Return an id as a message shows it; of long text its beginning."""
    if isinstance(packed, int):
        return shown_id(packed)
    content = packed[:-1]
    letter = packed[-1:]
    if letter.isupper():
        return f"{content[:-_DIGEST].decode(errors='replace')!r}…"
    kind = _KINDS[letter[0] - 97]
    value = str(UUID(bytes=content)) if kind == "uuid" else content.decode("utf-8", "surrogatepass")
    return shown_id(name_of(f"{kind} {value}"))


def _clash(low: NDArray[Any], high: NDArray[Any], reach: NDArray[Any], common: Any) -> Any:
    """Return a key other than `common` that is in two intervals, which are sorted; None if there is none."""
    for i in np.flatnonzero(low[1:] <= reach[:-1]).tolist():
        first = low[i + 1].item()
        last = min(reach[i].item(), high[i + 1].item())
        if first != common:
            return first
        if last != common:  # the interval of integers holds the next one too
            return first + 1
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
    if rows.episode is None:
        return before
    names = rows.episode[rows.last]
    if before is None:
        return names
    if not isinstance(before, SeenIds):
        before = _extended(SeenIds(), "episode", before, np.arange(len(before)), False)
    starts = np.append(0, np.flatnonzero(rows.last) + 1)
    return _extended(before, "episode", names, starts, continues)


def _extended(
    before: SeenIds, what: str, names: NDArray[Any], starts: NDArray[np.intp], continues: bool, remedy: str = ""
) -> SeenIds:
    """Add `names`, of the rows `starts`, to ids, without the first if it `continues`."""
    new = names[continues:]
    if not len(new):
        return before
    seen = before.copy()
    place = seen.add(identities(new))
    if place is not None:
        place += continues
        raise not_contiguous(what, shown_id(names[place]), int(starts[place]), remedy=remedy)
    return seen
