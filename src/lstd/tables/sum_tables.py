"""Sums of tables, each by itself, and how the sums over neighbouring tables are merged.

Rules of :mod:`lstd.data.follow` concern a row, the one before and the one after. So two rows at either end of the
tables are kept, and checked again by the same rules together with those of the neighbouring tables.

The rows of a table are read, converted and summed in chunks, which threads share. So the same code sums one table on a
worker and all tables here, where the next table is read ahead while the last one is summed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from lstd.data.episode_warnings import Break, find_break
from lstd.data.follow import Episodes, Followed, Marks, Row
from lstd.data.ids import EPISODE_AGAIN, id_key, same_id, whole_number
from lstd.data.rows import Rows
from lstd.data.seen_ids import NO_IDS
from lstd.distributed.chunk_sums import Leaf, Part, Task, bytes_ahead
from lstd.errors import InvalidInputError
from lstd.estimators.model_parts import Limits
from lstd.statistics.adding import chunk_statistics
from lstd.statistics.blocks import Layout
from lstd.statistics.counts import About
from lstd.statistics.merging import LSTDStatistics
from lstd.statistics.threads import Ahead
from lstd.tables.column_roles import Roles
from lstd.tables.reader import Chunk, RowReader, chunks_of
from lstd.tables.sources import opened
from lstd.tables.table import Table, at_row

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Ends:
    """Both ends of consecutive tables that are summed as one."""

    file: str  # the first table
    roles: Roles  # with all features by name
    rows: Followed  # without the ids of groups, which the blocks have
    limits: Limits | None = None  # of rewards and features

    def then(self, after: Ends, *, independent: bool) -> tuple[Ends, bool]:
        """Return both ends of these tables and those after, and whether the latter begin an episode.

        Raises InvalidInputError when tables continue one another and a row breaks a rule; the message names the row.
        """
        begins, rows, later = True, self.rows, after.rows
        seen = rows.seen
        if not independent and rows.tail and later.head:
            _follow(self.roles, [*rows.tail, *later.head])
            begins = rows.tail[-1].ends_before(later.head[0].name)
        if not independent:
            goes_on = not begins and self.roles.episode is not None
            seen, again = seen.then(later.seen, id_key(later.head[0].name) if goes_on else None)
            if again is not None:
                raise InvalidInputError(
                    f"{after.file}, or a table after it: column {self.roles.episode!r}: {again} {EPISODE_AGAIN}"
                )
        head, tail = (*rows.head, *later.head)[:2], (*rows.tail, *later.tail)[-2:]
        rows = rows._replace(head=head, tail=tail, seen=seen, times=rows.times.then(later.times))
        one, two = self.limits, after.limits
        limits = one.joined(two, not begins) if one is not None and two is not None else one or two
        return replace(self, rows=rows, limits=limits), begins

    def check(self) -> None:
        """Check both ends, as no tables come before or after; raises InvalidInputError when a row breaks a rule."""
        _follow(self.roles, self.rows.head, is_first=True)
        _follow(self.roles, self.rows.tail, is_first=len(self.rows.tail) == 1, is_last=True)

    def named(self, statistics: LSTDStatistics) -> LSTDStatistics:
        """Return statistics with the ids of the first and last episode, from which `partial_fit` continues."""
        if not self.rows.head:
            return statistics
        first, last = _typed(self.rows.head[0].name), _typed(self.rows.tail[-1].name)
        return replace(statistics, first_episode=first, last_episode=last)

    def check_features(self, after: Ends) -> None:
        """Raise InvalidInputError unless the tables after have the same features in the same order."""
        names, others = self.roles.features or (), after.roles.features or ()
        one, two = self.file, after.file
        for file, other, missing in ((two, one, {*names} - {*others}), (one, two, {*others} - {*names})):
            if missing:
                raise InvalidInputError(
                    f"{file}: column {min(missing)!r} is missing, which {other} has; give tables with the same "
                    "columns, or name the features."
                )
        if names != others:
            raise InvalidInputError(f"{two}: its columns are in another order than those of {one}; name the features.")


def _follow(roles: Roles, rows: Sequence[Row], *, is_first: bool = False, is_last: bool = False) -> None:
    """Check consecutive rows; with `is_first` and `is_last` there are none before and after."""
    episodes = Episodes(roles, at_row, part=not is_first)
    for row in rows:
        episodes.follow(row.file, row.place, Marks.of(row))
    if is_last:
        episodes.finish()


def _typed(name: Any) -> Any:
    """Return an id, as an integer if it is the text of one, so that `partial_fit` continues it by either."""
    number = whole_number(name) if isinstance(name, str) else None
    return name if number is None else number


@dataclass(frozen=True)
class SumTables(Leaf):
    """Sum tables, files or data frames; errors name the file or place, and the row."""

    roles: Roles
    chunk_rows: int | None = None
    ends_kind = Ends

    def parts(self, tasks: Iterable[Task], ahead: Ahead) -> Iterator[Part]:
        """Yield the sums of tables in their order. Threads share the chunks; this one reads and merges."""
        tables = ahead.map(partial(_Summed, self), tasks)
        for work, rows, pieces in ahead.map(_summed, _works(tables, ahead, self.memory), attrgetter("share"), 1.0):
            if work.chunk is None:
                yield work.table.finished()
            else:
                work.table.add(work, rows, pieces)
            del work, rows, pieces  # before the next chunk is drawn

    def reader(self, place: int, chunk: Any) -> RowReader:
        """Open a table, without the rules that concern rows of the tables before and after."""
        return RowReader(
            [opened(place, chunk)], self.roles, gamma=self.settings.gamma, chunk_rows=self.chunk_rows,
            memory=self.memory, part=True,
        )  # fmt: skip

    def merge(self, one: Part, two: Part) -> Part:
        """Merge the sums over tables that follow one another."""
        before: Ends = one.ends
        before.check_features(two.ends)
        ends, begins = before.then(two.ends, independent=self.independent)
        try:
            blocks = one.blocks.then(two.blocks, begins=begins)
            return Part(blocks, one.first, two.last, broken=one.broken or two.broken, ends=ends)
        except InvalidInputError as error:
            raise InvalidInputError(f"{two.ends.file}, or a table after it: {error}") from error

    def add_content(self, digest: Any, place: int, chunk: Any) -> None:
        """Add the columns of a data frame to a digest."""
        table = opened(place, chunk)
        assert isinstance(table, Table)
        columns = [*(self.roles.features or table.names), *self.roles.others]
        table.require(columns)
        for batch in table.batches(list(dict.fromkeys(columns))):
            digest.update(f"{batch.schema.names} {batch.schema.types}".encode())
            digest.update(batch.serialize())


class _Work(NamedTuple):
    """A chunk to sum, divided at the starts of blocks; or the end of its table, without a chunk."""

    table: _Summed
    chunk: Chunk | None
    layout: Any = None  # of the blocks, this chunk included
    starts: Any = ()
    goes_on: bool = False  # whether its first row continues the episode of the chunk before
    share: float = 0.0  # of the memory for all under way, that the chunk and its sums take


class _Summed:
    """The sums over the rows of a table so far, unless the store has those of the whole."""

    def __init__(self, leaf: SumTables, task: Task) -> None:
        place, chunk, key = task
        self.leaf, self.place, self.reader = leaf, place, None
        self.path, self.part = leaf.look_up(place, chunk, key)
        if self.part is not None:
            return
        self.reader = leaf.reader(place, chunk)
        s, m = leaf.settings, len(leaf.roles.rewards)
        self.n = n = len(self.reader.features) + s.fit_intercept
        about = About(tuple(self.reader.features), s.fit_intercept)
        nothing = LSTDStatistics.empty(n, m, gamma=s.gamma, lmbda=s.lmbda, single=m == 1, about=about)
        self.blocks = leaf.no_blocks(nothing)
        self._layout, self._episode = Layout(self.blocks.limit, by_episode=leaf.roles.groups is not None), -1
        self._group: Any = None
        self.broken: Break | None = None
        self.limits: Limits | None = None
        self._most_bytes = leaf.bytes_under_way(n, self.blocks.limit)

    def work(self, chunk: Chunk | None) -> _Work:
        """Divide the next chunk at the starts of blocks, which are known before the sums are."""
        if chunk is None:
            return _Work(self, None)
        rows, begins = chunk.rows, chunk.rows.begins
        limit = self.leaf.limit_of(self.blocks, self._layout.n_rows + len(rows))
        goes_on = bool(self._episode == rows.first_episode)
        begins[0] = not (goes_on if rows.groups is None else same_id(self._group, rows.groups[0]))
        self._layout, starts = replace(self._layout, limit=limit).extended(begins)
        self._episode, self._group = rows.last_episode, None if rows.groups is None else rows.groups[-1]
        matrices = 1 + bool((rows.last & ~rows.terminated)[:-1].any())  # A, and B if an episode was truncated
        n_bytes = 8 * (rows.X.size * (1 + (rows.X_next is not None)) + matrices * self.n**2 * (1 + len(starts)))
        return _Work(self, chunk, self._layout, starts, goes_on, n_bytes / self._most_bytes)

    def add(self, work: _Work, rows: Rows, pieces: list[LSTDStatistics]) -> None:
        """Add the sums of a chunk, which was divided into pieces."""
        assert work.chunk is not None
        if self.broken is None:
            found = find_break(rows, self.leaf.settings.lmbda, ids=self.leaf.roles.episode is not None)
            place = None if found is None or found.row is None else rows.place + found.row + 1
            self.broken = found and found._replace(row=place, place=work.chunk.file)
        self.limits = Limits.of(rows) if self.limits is None else self.limits.then(rows, work.goes_on)
        try:
            self.blocks = self.blocks.joined(rows, pieces, work.layout, work.starts)
        except InvalidInputError as error:
            raise work.chunk.error(error) from error

    def finished(self) -> Part:
        """Return the sums over the table, and add them to the store; check both ends if tables are independent."""
        if self.part is None:
            assert self.reader is not None
            rows = self.reader.episodes.state._replace(groups=NO_IDS)
            ends = Ends(self.reader.tables[0].file, self.reader.roles, rows, self.limits)
            self.part = Part(self.blocks, self.place, self.place, broken=self.broken, ends=ends)
            self.leaf.keep(self.path, self.part)
        if self.leaf.independent:
            self.part.ends.check()
        return self.part


def _works(tables: Iterable[_Summed], ahead: Ahead, memory: int) -> Iterator[_Work]:
    for table, chunk in chunks_of(((table, table.reader) for table in tables), ahead, bytes_ahead(memory)):
        work = table.work(chunk)
        del chunk
        yield work
        del work


def _summed(work: _Work) -> tuple[_Work, Any, list[LSTDStatistics]]:
    if work.chunk is None:
        return work, None, []
    settings = work.table.leaf.settings
    with memory_suffices(work.table.n - settings.fit_intercept):
        rows = work.chunk.rows
        rows = rows.with_intercept(settings.centre) if settings.fit_intercept else rows
        nothing = LSTDStatistics.empty_like(rows, settings.lmbda)
        return work, rows, list(chunk_statistics(rows, nothing, work.starts, threads=1))


@contextmanager
def memory_suffices(n: int) -> Iterator[None]:
    """Name the remedy when memory runs out for n features."""
    try:
        yield
    except MemoryError as error:
        raise InvalidInputError(
            f"Memory ran out ({error}). A fit of {n} features needs several matrices of {8 * n**2 / 2**20:.3g} MB, in "
            "addition to `memory`. Name fewer features, lower `memory`, or use a machine with more."
        ) from error


def chunks_in_order(tables: Iterable[Any], leaf: SumTables) -> Iterator[Chunk]:
    """Yield the chunks of tables one after another, with episodes numbered through."""
    before = Followed()
    for place, table in enumerate(tables):
        reader = leaf.reader(place, table)
        reader.episodes.state = Followed(before.n_episodes) if leaf.independent else before
        yield from reader.chunks()
        leaf, before = replace(leaf, roles=replace(leaf.roles, features=reader.features)), reader.episodes.state
