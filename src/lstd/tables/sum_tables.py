"""Sums of tables, each by itself, and how the sums over neighbouring tables are merged.

Rules of :mod:`lstd.data.follow` concern a row, the one before and the one after. So two rows at either end of the
tables are kept, and checked again by the same rules together with those of the neighbouring tables.

The rows of a table are read, converted and summed in chunks, which threads share. So the same code sums one table on a
worker and all tables here, where the next table is read ahead while the last one is summed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, NamedTuple

from lstd.data.doubts import Break, find_break
from lstd.data.episodes import Episodes, Followed, Row
from lstd.data.follow import begins_of_units, follows
from lstd.data.ids import EPISODE_AGAIN
from lstd.data.roles import Roles
from lstd.data.rows import Rows
from lstd.data.seen_ids import NO_IDS
from lstd.data.table import at_row
from lstd.distributed.chunk_sums import Part, SumChunks, Task, bytes_ahead
from lstd.errors import InvalidInputError
from lstd.estimators.limits import Limits
from lstd.statistics.blocks import Layout
from lstd.statistics.counts import About
from lstd.statistics.merging import LSTDStatistics
from lstd.statistics.threads import Ahead
from lstd.tables.first_rows import FirstRows
from lstd.tables.reader import Chunk, RowReader, chunks_of, opened


@dataclass(frozen=True, eq=False)
class Ends:
    """Both ends of consecutive tables that are summed as one."""

    file: str  # the first table
    roles: Roles  # with all features by name
    rows: Followed  # without the ids of groups, which the blocks have
    limits: Limits | None = None  # of rewards and features

    def then(self, after: Ends, last: Rows | None, *, independent: bool) -> tuple[Ends, bool]:
        """Return both ends of these tables and those after, and whether the latter begin an episode.

        `last` is the last row of these tables, if they have one.
        Raises InvalidInputError when tables continue one another and a row breaks a rule; the message names the row.
        """
        rows = self.rows
        later = after.rows
        begins = True
        seen = rows.seen
        if not independent and rows.tail and later.head:
            _follow(self.roles, (*rows.tail, *later.head))
            begins = not rows.continued_by(later)
        if not independent:
            shared = None  # the id of both tables that may be
            if not begins and self.roles.episode is not None:
                shared = later.head[0].name
            seen, again = seen.then(later.seen, shared)
            if again is not None:
                raise InvalidInputError(
                    f"{after.file}, or a table after it: column {self.roles.episode!r}: {again} {EPISODE_AGAIN}"
                )
        both = rows._replace(
            head=(*rows.head, *later.head)[:2],
            tail=(*rows.tail, *later.tail)[-2:],
            seen=seen,
            times=rows.times.then(later.times),
        )
        limits = self.limits or after.limits
        if self.limits is not None and after.limits is not None:
            limits = self.limits.joined(after.limits, None if begins else last)
        return replace(self, rows=both, limits=limits), begins

    def check(self) -> None:
        """Check both ends, as no tables come before or after; raises InvalidInputError when a row breaks a rule."""
        _follow(self.roles, self.rows.head, is_first=True)
        _follow(self.roles, self.rows.tail, is_first=len(self.rows.tail) == 1, is_last=True)

    def named(self, statistics: LSTDStatistics) -> LSTDStatistics:
        """Return statistics with the ids of the first and last episode, from which `partial_fit` continues."""
        if not self.rows.head:
            return statistics
        return statistics.named(self.rows.head[0].name, self.rows.tail[-1].name)

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


def _follow(roles: Roles, rows: tuple[Row, ...], *, is_first: bool = False, is_last: bool = False) -> None:
    """Check consecutive rows; with `is_first` and `is_last` there are none before and after."""
    episodes = Episodes(roles, at_row, part=not is_first)
    episodes.state = Followed(0, rows, rows)
    episodes.finish(is_over=is_last)


@dataclass(frozen=True)
class SumTables(SumChunks):
    """Sum tables, files or data frames; errors name the file or place, and the row."""

    roles: Roles
    chunk_rows: int | None = None
    first: tuple[FirstRows, ...] = ()  # in this process, to which the first rows are added

    def parts(self, tasks: Iterable[Task], ahead: Ahead) -> Iterator[Part]:
        """Yield the sums of tables in their order. Threads share the chunks; this one reads and merges."""
        chunks = chunks_of(ahead.map(self.reader, tasks), ahead, bytes_ahead(self.memory))
        for work, rows, pieces in ahead.map(_summed, self._works(chunks), attrgetter("share"), 1.0):
            if work.chunk is None:
                yield work.table.finished()
            else:
                work.table.add(work, rows, pieces)
            del work, rows, pieces  # before the next chunk is drawn

    def reader(self, task: Task) -> RowReader:
        """Open a table, unless it is one of which the first rows were read.

        Rules about rows of other tables are left to `merge`.
        """
        place, table = task
        if isinstance(table, RowReader):
            return table
        return RowReader(
            [opened(place, table)],
            self.roles,
            gamma=self.settings.gamma,
            chunk_rows=self.chunk_rows,
            memory=self.memory,
            part=not (self.alone or self.independent),
        )

    def _works(self, chunks: Iterable[tuple[RowReader, Chunk | None]]) -> Iterator[_Work]:
        """Divide chunks at the starts of blocks."""
        place = 0
        table: _TableSums | None = None
        for reader, chunk in chunks:
            if table is None:
                table = _TableSums(self, place, reader)
            if chunk is None:
                yield _Work(table, None)
                table = None
                place += 1
                continue
            for first in self.first:
                first.add(reader, chunk)
            work = table.work(chunk)
            del chunk  # before the next one is drawn, as `work`
            yield work
            del work

    def merge(self, one: Part, two: Part) -> Part:
        """Merge the sums over tables that follow one another."""
        before: Ends = one.ends
        before.check_features(two.ends)
        ends, begins = before.then(two.ends, one.blocks.total.last, independent=self.independent)
        try:
            blocks = one.blocks.then(two.blocks, begins=begins)
        except InvalidInputError as error:
            raise InvalidInputError(f"{two.ends.file}, or a table after it: {error}") from error
        return Part(blocks, one.first, two.last, broken=one.broken or two.broken, ends=ends)


class _Work(NamedTuple):
    """A chunk to sum, divided at the starts of blocks; or the end of its table, without a chunk."""

    table: _TableSums
    chunk: Chunk | None
    layout: Layout | None = None  # of the blocks, this chunk included
    starts: Any = ()
    goes_on: bool = False  # whether its first row continues the episode of the chunk before
    share: float = 0.0  # of the memory for all under way, that the chunk and its sums take


class _TableSums:
    """The sums over the rows of a table so far."""

    def __init__(self, sums: SumTables, place: int, reader: RowReader) -> None:
        settings = sums.settings
        self.sums = sums
        self.n_features = len(reader.features)
        self.width = self.n_features + settings.fit_intercept
        self._place = place
        self._reader = reader
        n_rewards = len(sums.roles.rewards)
        nothing = LSTDStatistics.empty(
            self.width,
            n_rewards,
            gamma=settings.gamma,
            lmbda=settings.lmbda,
            single=n_rewards == 1,
            about=About(tuple(reader.features), settings.fit_intercept),
        )
        self._blocks = sums.no_blocks(nothing)
        self._layout = Layout(self._blocks.limit, by_episode=sums.roles.groups is not None)
        self._last: Rows | None = None  # the last row that was divided into blocks
        self._broken: Break | None = None
        self._limits: Limits | None = None
        self._most_bytes = sums.bytes_under_way(self.width, self._blocks.limit)

    def work(self, chunk: Chunk) -> _Work:
        """Divide the next chunk at the starts of blocks, which are known before the sums are."""
        rows = chunk.rows
        last = self._last
        goes_on = last is not None and follows(last, rows)
        begins = begins_of_units(last, rows, goes_on)
        self._last = rows.last_row
        limit = self.sums.limit_of(self._blocks, self._layout.n_rows + len(rows))
        self._layout, starts = replace(self._layout, limit=limit).extended(begins)
        n_bytes = self._bytes_of_rows(rows) + (1 + len(starts)) * self._bytes_of_sums(rows)
        return _Work(self, chunk, self._layout, starts, goes_on, n_bytes / self._most_bytes)

    def _bytes_of_rows(self, rows: Rows) -> int:
        n_arrays = 1 if rows.X_next is None else 2
        return int(8 * rows.X.size * n_arrays)

    def _bytes_of_sums(self, rows: Rows) -> int:
        has_cuts = bool(rows.cut[:-1].any())
        n_matrices = 2 if has_cuts else 1  # A, and B if an episode was truncated
        return 8 * n_matrices * self.width**2

    def add(self, work: _Work, rows: Rows, pieces: list[LSTDStatistics]) -> None:
        """Add the sums of a chunk, which was divided into pieces."""
        assert work.chunk is not None
        assert work.layout is not None
        if self._broken is None:
            self._broken = self._first_break(work.chunk.file, rows)
        if self._limits is None:
            self._limits = Limits.of_rows(rows)
        else:
            self._limits = self._limits.then(rows, self._blocks.total.last if work.goes_on else None)
        try:
            self._blocks = self._blocks.joined(rows, pieces, work.layout, work.starts)
        except InvalidInputError as error:
            raise work.chunk.error(error) from error

    def _first_break(self, file: str, rows: Rows) -> Break | None:
        """Find the first row of which the next one is not the successor; rows of the file count from 1."""
        found = find_break(rows, self.sums.settings.lmbda, ids=self.sums.roles.episode is not None)
        if found is None:
            return None
        row = None if found.row is None else rows.place + found.row + 1
        return found._replace(row=row, place=file)

    def finished(self) -> Part:
        """Return the sums over the table."""
        reader = self._reader
        rows = reader.episodes.state._replace(groups=NO_IDS)
        ends = Ends(reader.tables[0].file, reader.roles, rows, self._limits)
        return Part(self._blocks, self._place, self._place, broken=self._broken, ends=ends)


def _summed(work: _Work) -> tuple[_Work, Any, list[LSTDStatistics]]:
    """Sum a chunk, in any thread."""
    if work.chunk is None:
        return work, None, []
    settings = work.table.sums.settings
    with memory_suffices(work.table.n_features):
        rows = work.chunk.rows
        if settings.fit_intercept:
            rows = rows.with_intercept(settings.centre)
        nothing = LSTDStatistics.empty_like(rows, settings.lmbda)
        return work, rows, [*nothing.totals(rows, work.starts, threads=1)]


@contextmanager
def memory_suffices(n_features: int) -> Iterator[None]:
    """Name the remedy when memory runs out."""
    try:
        yield
    except MemoryError as error:
        raise InvalidInputError(
            f"Memory ran out ({error}). A fit of {n_features} features needs several matrices of "
            f"{8 * n_features**2 / 2**20:.3g} MB, in addition to `memory`. Name fewer features, lower `memory`, or use "
            "a machine with more."
        ) from error
