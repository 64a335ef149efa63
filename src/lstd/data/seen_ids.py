"""The ids of a stream so far, in little memory: intervals of integers, and the keys of other ids in 24 bytes.

A run of consecutive integers takes the memory of one; other ids take 24 bytes, and 60 while their number doubles.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from lstd.data.arguments import shown_id
from lstd.data.identity import Identity, name_of
from lstd.data.ids import identities, not_contiguous
from lstd.data.rows import Rows
from lstd.types import Flags

_WIDTH = 24  # bytes of a key that is no integer
_DIGEST = 16  # bytes of its end if it is longer: among 10⁹ ids the chance that any two share a digest is 10⁻²¹
_TEXTS = np.dtype(f"S{_WIDTH}")


class Intervals(NamedTuple):
    """Disjoint intervals of keys, sorted; of texts, each holds one."""

    low: NDArray[Any]
    high: NDArray[Any]

    @property
    def n(self) -> int:
        """Number of intervals."""
        return len(self.low)

    @classmethod
    def merged(cls, low: NDArray[Any], high: NDArray[Any]) -> Intervals:
        """Join intervals of integers that touch or overlap; they are sorted, and no end is below that of one before."""
        is_apart = low[1:] > high[:-1] + 1
        begins = np.append(True, is_apart)
        ends = np.append(is_apart, True)
        return cls(low[begins], high[ends])

    @classmethod
    def joined(cls, levels: Sequence[Intervals]) -> Intervals:
        """Join the intervals of several levels, which share no key."""
        low = np.concatenate([level.low for level in levels])
        if low.dtype.kind != "i":
            low.sort(kind="stable")  # merges two sorted runs in linear time
            return cls(low, low)
        high = np.concatenate([level.high for level in levels])
        order = np.argsort(low, kind="stable")
        return cls.merged(low[order], high[order])

    def contain(self, keys: NDArray[Any]) -> Flags:
        """Return whether each key is in an interval."""
        place = np.searchsorted(self.low, keys, side="right") - 1  # of the last interval that begins at or before it
        is_contained: Flags = (place >= 0) & (keys <= self.high[place])
        return is_contained


class SeenIds:
    """A set of the keys of ids; all those of a chunk are added at once.

    Integers and texts are in levels of sorted disjoint intervals, of about doubling length so that adding stays cheap.
    """

    def __init__(self) -> None:
        self._levels: dict[type, list[Intervals]] = {int: [], bytes: []}

    def copy(self) -> SeenIds:
        """Return a set of the same ids, to which others can be added."""
        other = SeenIds()
        for kind, levels in self._levels.items():
            other._levels[kind] = [*levels]  # arrays are never written to
        return other

    def add(self, keys: Sequence[Identity]) -> int | None:
        """Add keys; if one is present or occurs twice, add none and return the place of the first such key."""
        new = _packed(keys)
        if len({*keys}) < len(keys) or self._contains_any(new):
            return self._first_seen(keys)
        for kind, values in new.items():
            level = Intervals.joined([Intervals(values, values)])
            levels = self._levels[kind]
            while levels and levels[-1].n <= 2 * level.n:
                level = Intervals.joined([levels.pop(), level])
            levels.append(level)
        return None

    def _contains_any(self, packed: Mapping[type, NDArray[Any]]) -> bool:
        """Return whether some of the packed keys are present."""
        for kind, values in packed.items():
            for level in self._levels[kind]:
                if level.contain(values).any():
                    return True
        return False

    def _first_seen(self, keys: Sequence[Identity]) -> int | None:
        """Return the place of the first key that is present, or occurs before."""
        before: set[Identity] = set()
        for place, key in enumerate(keys):
            if key in before or self._contains_any(_packed([key])):
                return place
            before.add(key)
        return None

    def packed(self) -> dict[str, Any]:
        """Return the ids as a JSON document."""
        integers: list[list[int]] = []
        for level in self._levels[int]:
            integers += np.transpose(level).tolist()
        texts: list[str] = []
        for level in self._levels[bytes]:
            texts += [text.hex() for text in level.low.tolist()]
        return {"integers": integers, "texts": texts}

    @classmethod
    def unpacked(cls, document: Mapping[str, Any]) -> SeenIds:
        """Return the ids of a document; a broken one raises ValueError, TypeError or LookupError."""
        seen = cls()
        if document["texts"]:
            sorted_texts = sorted(map(bytes.fromhex, document["texts"]))
            texts = np.array(sorted_texts, _TEXTS)
            seen._levels[bytes] = [Intervals(texts, texts)]
        if document["integers"]:
            ends = np.array(sorted(document["integers"]), np.int64)
            low, high = ends.T
            seen._levels[int] = [Intervals.merged(low, high)]
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
            low = np.concatenate([level.low for level in every])
            high = np.concatenate([level.high for level in every])
            order = np.argsort(low, kind="stable")
            low = low[order]
            high = high[order]
            if kind is int:
                reach = np.maximum.accumulate(high)
                level = Intervals.merged(low, reach)
            else:
                reach = high
                texts = np.unique(low)
                level = Intervals(texts, texts)
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
    packed: dict[type, NDArray[Any]] = {}
    if integers:
        packed[int] = np.array(integers, np.int64)
    if texts:
        packed[bytes] = _packed_texts(texts)
    return packed


def _packed_texts(keys: Sequence[Any]) -> NDArray[Any]:
    longest = max(map(len, keys), default=0)
    n = len(_TEXT)
    if longest < n + _WIDTH and {key[:n] for key in keys} == {_TEXT}:
        with contextlib.suppress(UnicodeEncodeError):  # the same as below, in a third of the time
            return np.array([key[n:] + "a" for key in keys], _TEXTS)
    packed = [_packed_text(key) for key in keys]
    return np.array(packed, _TEXTS)


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
    if kind == "uuid":
        return shown_id(name_of(f"uuid {UUID(bytes=content)}"))
    value = content.decode("utf-8", "surrogatepass")
    return shown_id(name_of(f"{kind} {value}"))


def _clash(low: NDArray[Any], high: NDArray[Any], reach: NDArray[Any], common: Any) -> Any:
    """Return a key other than `common` that is in two intervals, which are sorted; None if there is none.

    `reach` is the largest end so far.
    """
    (begin_within,) = np.nonzero(low[1:] <= reach[:-1])
    for i in begin_within.tolist():
        first = low[i + 1].item()
        own_end = high[i + 1].item()
        last = min(reach[i].item(), own_end)
        if first != common:
            return first
        if last != common:  # the interval of integers holds the next one too
            return first + 1
    return None


def groups_seen(rows: Rows, before: SeenIds | None = None, *, continues: bool = False) -> SeenIds | None:
    """Return the groups of a stream with those of the next rows; None without groups.

    `before` are the groups so far, and `continues` says whether the first row is of the last one. Raises
    InvalidInputError when a group comes again after others.
    """
    if rows.groups is None:
        return None
    if before is None:
        before = SeenIds()
    starts = np.flatnonzero(rows.begins)
    return _extended(
        before,
        "groups",
        rows.groups[starts],
        starts,
        continues,
        remedy=" `fit` takes groups in any order.",
    )


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
        places = np.arange(len(before))
        before = _extended(SeenIds(), "episode", before, places, False)
    ends = np.flatnonzero(rows.last)
    starts = np.append(0, ends + 1)
    return _extended(before, "episode", names, starts, continues)


def _extended(
    before: SeenIds,
    what: str,
    names: NDArray[Any],
    starts: NDArray[np.intp],
    continues: bool,
    remedy: str = "",
) -> SeenIds:
    """Add `names`, of the rows `starts`, to ids, without the first if it `continues`."""
    new = names[continues:]
    if not len(new):
        return before
    seen = before.copy()
    place = seen.add(identities(new))
    if place is not None:
        place += continues
        name = shown_id(names[place])
        row = int(starts[place])
        raise not_contiguous(what, name, row, remedy=remedy)
    return seen
