"""Where tables meet that were summed apart: which episode goes on, and the rules that concern rows of both.

A rule of :mod:`lstd.tables.episodes` looks at a row, the one before and the one after. So two rows at either end of
consecutive tables are kept, and are followed anew, with those of their neighbours, when these are there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lstd.data.columns import Ids, id_key
from lstd.errors import InvalidInputError
from lstd.statistics.statistics import LSTDStatistics
from lstd.tables.episodes import Episodes, Marks
from lstd.tables.faults import at_row
from lstd.tables.row_reader import Roles

_TYPES = {kind.__name__: kind for kind in (int, float, str)}


class Row(NamedTuple):
    """What a row says about episodes."""

    file: str
    place: int  # in the file, from 0
    name: Any  # id of its episode; None without ids
    terminated: bool
    truncated: bool
    missing: tuple[bool, ...]  # of each reward, whether it has no value


class Following(Episodes):
    """Follows the episodes of one table, and leaves to :class:`Ends` what hangs on the tables before and after."""

    def __init__(self, roles: Roles) -> None:
        super().__init__(roles.rewards, roles.episode, roles.terminated, roles.truncated)
        self._roles = roles
        self._head: tuple[Row, ...] = ()
        self._tail: tuple[Row, ...] = ()

    def follow(self, file: str, first: int, marks: Marks, n_sure: int) -> Any:
        """As of the class above; what is not sure of the first row is not looked at."""
        begins = not self._head
        rows = [_row(file, first, marks, i) for i in sorted({0, 1, n_sure - 2, n_sure - 1}) if 0 <= i < n_sure]
        self._head = (*self._head, *rows)[:2]
        self._tail = (*self._tail, *rows)[-2:]
        return super().follow(file, first, _sure(marks) if begins else marks, n_sure)

    def finish(self) -> None:
        """Nothing: whether the last episode is over is not known here."""

    def ends(self, file: str, features: tuple[str, ...]) -> Ends:
        """Both ends of the table."""
        return Ends(file, replace(self._roles, features=features), self._head, self._tail, frozenset(self._types))

    def named(self, name: Any, types: frozenset[type]) -> Any:
        """An id that was read as text as a number, where all ids are, of tables with ids of these types."""
        self._types = set(types)
        return self._typed(name)


@dataclass(frozen=True)
class Ends:
    """Both ends of consecutive tables.

    Attributes
    ----------
    file : str
        The first table.
    roles : Roles
        With all features by name.
    head, tail : tuple of Row
        The first and the last two rows, or as many as there are.
    types : frozenset of type
        Of the ids.
    """

    file: str
    roles: Roles
    head: tuple[Row, ...]
    tail: tuple[Row, ...]
    types: frozenset[type]

    def merged(
        self, one: LSTDStatistics, two: LSTDStatistics, after: Ends, *, ordered: bool
    ) -> tuple[LSTDStatistics, Ends]:
        """Statistics of these tables and those after, and both ends of all.

        Raises
        ------
        InvalidInputError
            When they have other columns; when `ordered`, and a row breaks a rule: the message names it.
        """
        two = self._in_order(two, after)
        head, tail = (*self.head, *after.head)[:2], (*self.tail, *after.tail)[-2:]
        ends = replace(self, head=head, tail=tail, types=self.types | after.types)
        if not ordered:
            return one + two, ends
        begins = False
        if self.tail and after.head:
            _follow(self.roles, [*self.tail, *after.head])
            begins = self._begins(after.head[0])
        # Ids of the two tables may be of different types, and without ids a flag may have ended the episode.
        return replace(one, last_episode=0).then(replace(two, first_episode=int(begins))), ends

    def check(self) -> None:
        """Check both ends, now that no tables come before or after.

        Raises
        ------
        InvalidInputError
            When a row breaks a rule.
        """
        _follow(self.roles, self.head, is_first=True)
        _follow(self.roles, self.tail, is_last=True)

    def named(self, statistics: LSTDStatistics) -> LSTDStatistics:
        """Statistics with the ids of the first and last episode, as a caller who goes on with them knows them."""
        first, last = (
            Following(self.roles).named(rows[place].name if rows else None, self.types)
            for rows, place in ((self.head, 0), (self.tail, -1))
        )
        return replace(statistics, first_episode=first, last_episode=last)

    def _begins(self, row: Row) -> bool:
        last = self.tail[-1]
        return last.terminated or last.truncated if row.name is None else id_key(last.name) != id_key(row.name)

    def _in_order(self, statistics: LSTDStatistics, after: Ends) -> LSTDStatistics:
        """Statistics of the tables after, with features in the order of those of these tables."""
        names, others = self.roles.features or (), after.roles.features or ()
        if names == others:
            return statistics
        for file, found, needed in ((after.file, others, names), (self.file, names, others)):
            if missing := sorted(set(needed) - set(found)):
                raise InvalidInputError(
                    f"{file}: column {missing[0]!r} is missing, which {self.file if file == after.file else after.file}"
                    " has; give tables with the same columns, or name the features."
                )
        places = {name: place for place, name in enumerate(others)}
        order = [places[name] for name in names]
        return _reordered(statistics, np.array([*order, *range(len(order), statistics.n_features)]))


def pack(ends: Ends) -> dict[str, Any]:
    """A document of ends."""
    rows = {"head": [list(row) for row in ends.head], "tail": [list(row) for row in ends.tail]}
    return rows | {
        "file": ends.file,
        "features": ends.roles.features,
        "types": sorted(kind.__name__ for kind in ends.types),
    }


def unpack(document: Mapping[str, Any], roles: Roles) -> Ends:
    """Ends of a document; any error of a kind that `_container.read` expects where something is amiss."""
    head, tail = (
        tuple(Row(*row[:-1], missing=tuple(row[-1])) for row in document[part])  # type: ignore[misc]
        for part in ("head", "tail")
    )
    types = frozenset(_TYPES[name] for name in document["types"])
    return Ends(document["file"], replace(roles, features=tuple(document["features"])), head, tail, types)


def _row(file: str, first: int, marks: Marks, i: int) -> Row:
    name = None
    if marks.ids is not None:
        name = marks.ids.names[int(np.searchsorted(marks.ids.changes, i, side="right")) - 1]
    missing = tuple(marks.missing[i].tolist())
    return Row(file, first + i, name, bool(marks.terminated[i]), bool(marks.truncated[i]), missing)


def _sure(marks: Marks) -> Marks:
    """Marks of which nothing is said against the first row that the row before it, not known, may put right.

    A row that ends a truncated episode may have a reward where the row before it is flagged too.
    """
    if marks.ids is None or not len(marks.truncated) or 1 not in marks.ids.changes:
        return marks
    truncated = marks.truncated.copy()
    truncated[0] = False
    return replace(marks, truncated=truncated)


def _follow(roles: Roles, rows: Sequence[Row], *, is_first: bool = False, is_last: bool = False) -> None:
    """Follow consecutive rows; `is_first` and `is_last` say that there are none before and after."""
    episodes = Episodes(roles.rewards, roles.episode, roles.terminated, roles.truncated)
    for place, row in enumerate(rows):
        truncated = row.truncated
        if not place and not is_first and len(rows) > 1 and row.name is not None:
            truncated = truncated and id_key(row.name) == id_key(rows[1].name)  # as in `_sure`
        ids = None if row.name is None else Ids(np.zeros(1, dtype=np.intp), [row.name], None)
        marks = Marks(ids, _flags(row.terminated), _flags(truncated), _flags(row.missing).reshape(1, -1))
        _, fault = episodes.follow(row.file, row.place, marks, 1)
        if fault is not None:
            raise at_row(row.file, fault.column, row.place + fault.row, fault.text)
    if is_last:
        episodes.finish()


def _flags(values: Any) -> NDArray[np.bool_]:
    return np.atleast_1d(np.asarray(values, dtype=np.bool_))


def _reordered(s: LSTDStatistics, order: NDArray[np.intp]) -> LSTDStatistics:
    """Statistics with their features in another order."""
    both = np.ix_(order, order)
    pending = None if s.pending is None else replace(s.pending, phi=s.pending.phi[order])
    return replace(
        s, A=s.A[both], B=s.B[both], b=s.b[order], arriving=s.arriving[order], a=s.a[order], h=s.h[order],
        pending=pending,
    )  # fmt: skip
