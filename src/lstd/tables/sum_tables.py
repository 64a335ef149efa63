"""Sums of tables, each by itself, how the sums over neighbouring tables are merged, and the model of all of them.

Rules of :mod:`lstd.data.follow` concern a row, the one before and the one after. So two rows at either end of the
tables are kept, and checked again by the same rules together with those of the neighbouring tables.

The rows of a table are read, converted and summed in chunks, which threads share. So the same code sums one table on a
worker and all tables here, where the next table is read ahead while the last one is summed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from lstd.data.arguments import check_integer
from lstd.data.doubts import Break, find_break, warn_of_break
from lstd.data.follow import NO_MARKS, Episodes, Followed, Row
from lstd.data.ids import EPISODE_AGAIN
from lstd.data.roles import Roles
from lstd.data.rows import Rows
from lstd.data.seen_ids import NO_IDS
from lstd.data.settings import Settings
from lstd.distributed.chunk_sums import LEAST_MEMORY, MEMORY, Leaf, Part, Task, bytes_ahead, choice_entries
from lstd.distributed.fit_chunks import split
from lstd.distributed.on_dask import Partitions
from lstd.distributed.runner import Runner
from lstd.errors import InvalidInputError, MissingTerminationWarning, TerminationWarning, warn
from lstd.estimators.choose_settings import Choice, OnProgress, choose
from lstd.estimators.limits import Limits
from lstd.estimators.model import Model, model_of
from lstd.estimators.model_parts import Origin
from lstd.statistics.blocks import Layout
from lstd.statistics.counts import About
from lstd.statistics.merging import LSTDStatistics
from lstd.statistics.threads import Ahead, available_cores, one_blas_thread
from lstd.tables.reader import Chunk, RowReader, chunks_of, open_tables, opened, times_of
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
            _follow(self.roles, (*rows.tail, *later.head))
            begins = bool(NO_MARKS.after([rows.tail[-1], later.head[0]]).begins[1])
        if not independent:
            goes_on = not begins and self.roles.episode is not None
            seen, again = seen.then(later.seen, later.head[0].name if goes_on else None)
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
        return replace(statistics, first_episode=self.rows.head[0].name, last_episode=self.rows.tail[-1].name)

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
class SumTables(Leaf):
    """Sum tables, files or data frames; errors name the file or place, and the row."""

    roles: Roles
    chunk_rows: int | None = None

    def parts(self, tasks: Iterable[Task], ahead: Ahead) -> Iterator[Part]:
        """Yield the sums of tables in their order. Threads share the chunks; this one reads and merges."""
        chunks = chunks_of(ahead.map(partial(_Summed, self), tasks), ahead, bytes_ahead(self.memory))
        works = map(_work, chunks)  # which holds no chunk
        for work, rows, pieces in ahead.map(_summed, works, attrgetter("share"), 1.0):
            if work.chunk is None:
                yield work.table.finished()
            else:
                work.table.add(work, rows, pieces)
            del work, rows, pieces  # before the next chunk is drawn

    def of_reader(self) -> dict[str, Any]:
        """Return arguments of :class:`RowReader`, which leaves rules about rows of other tables to `merge`."""
        s, part = self.settings, not (self.alone or self.independent)
        return {"gamma": s.gamma, "chunk_rows": self.chunk_rows, "memory": self.memory, "part": part}

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


class _Work(NamedTuple):
    """A chunk to sum, divided at the starts of blocks; or the end of its table, without a chunk."""

    table: _Summed
    chunk: Chunk | None
    layout: Any = None  # of the blocks, this chunk included
    starts: Any = ()
    goes_on: bool = False  # whether its first row continues the episode of the chunk before
    share: float = 0.0  # of the memory for all under way, that the chunk and its sums take


class _Summed(RowReader):
    """The sums over the rows of a table so far."""

    def __init__(self, leaf: SumTables, task: Task) -> None:
        place, chunk = task
        self.leaf = leaf
        self.place = place
        super().__init__([opened(place, chunk)], leaf.roles, **leaf.of_reader())
        s, m = leaf.settings, len(leaf.roles.rewards)
        self.n = n = len(self.features) + s.fit_intercept
        about = About(tuple(self.features), s.fit_intercept)
        nothing = LSTDStatistics.empty(n, m, gamma=s.gamma, lmbda=s.lmbda, single=m == 1, about=about)
        self.blocks = leaf.no_blocks(nothing)
        self._layout = Layout(self.blocks.limit, by_episode=leaf.roles.groups is not None)
        self._episode: Any = -1
        self._group: Any = None
        self.broken: Break | None = None
        self.limits: Limits | None = None
        self._most_bytes = leaf.bytes_under_way(n, self.blocks.limit)

    def work(self, chunk: Chunk) -> _Work:
        """Divide the next chunk at the starts of blocks, which are known before the sums are."""
        rows, begins = chunk.rows, chunk.rows.begins
        limit = self.leaf.limit_of(self.blocks, self._layout.n_rows + len(rows))
        goes_on = bool(self._episode == rows.first_episode)
        begins[0] = not (goes_on if rows.groups is None else self._group == rows.first_group)
        self._layout, starts = replace(self._layout, limit=limit).extended(begins)
        self._episode, self._group = rows.last_episode, rows.last_group
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
        self.limits = Limits.of_rows(rows) if self.limits is None else self.limits.then(rows, work.goes_on)
        try:
            self.blocks = self.blocks.joined(rows, pieces, work.layout, work.starts)
        except InvalidInputError as error:
            raise work.chunk.error(error) from error

    def finished(self) -> Part:
        """Return the sums over the table."""
        rows = self.episodes.state._replace(groups=NO_IDS)
        ends = Ends(self.tables[0].file, self.roles, rows, self.limits)
        return Part(self.blocks, self.place, self.place, broken=self.broken, ends=ends)


def _work(pair: tuple[_Summed, Chunk | None]) -> _Work:
    table, chunk = pair
    return _Work(table, None) if chunk is None else table.work(chunk)


def _summed(work: _Work) -> tuple[_Work, Any, list[LSTDStatistics]]:
    if work.chunk is None:
        return work, None, []
    settings = work.table.leaf.settings
    with memory_suffices(work.table.n - settings.fit_intercept):
        rows = work.chunk.rows
        rows = rows.with_intercept(settings.centre) if settings.fit_intercept else rows
        nothing = LSTDStatistics.empty_like(rows, settings.lmbda)
        return work, rows, [*nothing.totals(rows, work.starts, threads=1)]


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
        reader = RowReader([opened(place, table)], leaf.roles, **leaf.of_reader())
        reader.episodes.state = Followed(before.n_episodes) if leaf.independent else before
        yield from reader.chunks()
        leaf, before = replace(leaf, roles=replace(leaf.roles, features=reader.features)), reader.episodes.state


# ------------------------------------------------------------ the fit


_DOUBTED_ROWS = 5000  # the first, which are looked at for doubts that sums do not show
_FEWEST_ROWS = 64  # of a sample
SAMPLE_ENTRIES = 2**20  # features of the rows that are kept for a report, 8 MiB

_LOG = logging.getLogger("lstd")


def fit_stream(
    paths: Sequence[str | Table],
    roles: Roles,
    settings: Settings,
    *,
    n_jobs: int | None = None,
    memory: int = MEMORY,
    independent: bool = False,
    sample_entries: int = 0,
    chunk_rows: int | None = None,
    on_progress: OnProgress | None = None,
) -> tuple[Model, Sample | None]:
    """Fit a model to tables in threads of this process; arguments are the checked ones of :func:`lstd.fit_tables`.

    With `sample_entries`, the first rows with so many features in all are returned beside the model. `on_progress` is
    called with a description, the bytes done and the bytes in all.
    """
    memory = check_integer("memory", memory, LEAST_MEMORY)
    leaf = SumTables(settings, "auto", memory, independent, roles, chunk_rows)
    model = fit_leaf(open_tables(paths, on_progress), leaf, Runner(n_jobs), on_progress)
    if not sample_entries:
        return model, None
    return model, Sample(chunks_in_order(paths, leaf), sample_entries)


def fit_leaf(tables: Any, leaf: SumTables, runner: Runner, on_progress: OnProgress | None = None) -> Model:
    """Fit a model to tables by the sums of each."""
    roles, files, selection, checks = leaf.roles, [], None, None
    if roles.features is not None:
        leaf = replace(leaf, settings=leaf.settings.named(roles.features))
    assumed = roles.doubt_of_ends
    warn(assumed, MissingTerminationWarning)
    at_hand = isinstance(tables, list) and not any(map(callable, tables))
    if at_hand:
        if runner.is_here:  # all tables must have the columns, which are then named
            reader = RowReader(tables, roles)
            tables, leaf = reader.tables, replace(leaf, roles=reader.roles)
        files = [getattr(table, "file", table) for table in tables]
    if leaf.settings.choose:
        tables, first = split(tables, runner.client)
        settings, selection, checks = _choose(chunks_in_order(first, leaf), leaf, on_progress)
        leaf = replace(leaf, settings=settings)
    part = runner.sum(leaf, tables)
    if not leaf.independent and part.last > part.first:
        part.ends.check()
        if roles.episode is None and not isinstance(tables, Partitions):
            _LOG.warning(
                "without a column of episodes, the first row of each table is taken as the successor of the last row "
                "of the table before, unless that ended its episode"
            )
    closed = part.ends.rows.times.doubt()
    warn(closed, TerminationWarning)
    if part.broken is not None:
        warn_of_break(part.broken, part.broken.place, columns=True)
    model = _solved(part, leaf, runner, files, selection, checks, assumed=bool(assumed))
    model = model.described(said=(closed,)) if closed else model
    if not at_hand or (isinstance(tables[0], str) and not Path(tables[0]).exists()):  # workers have the files
        return model
    leaf = replace(leaf, roles=part.ends.roles, chunk_rows=_DOUBTED_ROWS)
    chunks = chunks_in_order(tables, leaf)
    rows = next(chunks).rows if len(tables) == 1 else Sample(chunks, _DOUBTED_ROWS * model.n_features).rows
    return model if rows is None else model.with_doubts(rows)


def _solved(
    part: Part, leaf: SumTables, runner: Runner, files: Sequence[str], selection: Any, checks: Any, assumed: bool
) -> Model:
    """Return the model of sums over all tables, which are named by `files`."""
    ends: Ends = part.ends
    blocks, roles = replace(part.blocks, total=ends.named(part.blocks.total)), ends.roles
    total = blocks.total
    origin = Origin(
        files=tuple(files), rows=total.n_rows, transitions=total.n_transitions, episodes=total.n_episodes,
        date=datetime.now(UTC).isoformat(timespec="seconds"), next_features=roles.next_features, columns=roles.columns,
    )  # fmt: skip
    # The BLAS has one thread for any number of jobs: its threads divide sums, which changes the last bits.
    with one_blas_thread(), memory_suffices(len(roles.features or ())):
        model = model_of(
            blocks, leaf.settings.named(roles.features or ()), selection, leaf.n_blocks, checks=checks,
            warned=frozenset({"ends"} if assumed else ()), rewards=roles.rewards,
            threads=runner.n_jobs or available_cores(), origin=origin,
            episodes=None if leaf.independent else ends.rows.seen, limits=ends.limits,
        )  # fmt: skip
        _ = model.no_intervals  # so that the influence of blocks is computed here
    return model


def _choose(chunks: Iterable[Chunk], leaf: SumTables, on_progress: OnProgress | None) -> Choice:
    """Choose settings from the first rows."""
    sample = Sample(chunks, choice_entries(leaf.memory), ones=leaf.settings.fit_intercept)
    if sample.rows is None:
        raise InvalidInputError("`source` must hold at least one row to choose settings from; got none.")
    return choose(sample.rows, leaf.settings.named(sample.rows.names or ()), on_progress)


# ------------------------------------------------------------ the first rows, for what cannot be summed


class Sample:
    """The first rows of chunks, up to `max_entries` features in all; whole episodes, if that leaves at least half.

    With `ones`, a column of ones is the last feature. It is added in place: a copy of all rows would take as much
    memory again.
    """

    def __init__(self, chunks: Iterable[Chunk], max_entries: int, *, ones: bool = False) -> None:
        self.is_full = False  # there was no room for a row
        self._chunks: list[Chunk] = []  # without rows, of these numbers of them
        self._sizes: list[int] = []
        X, n = np.empty((0, 0)), 0
        parts: list[Rows] = []
        for chunk in chunks:
            rows, k = chunk.rows, chunk.rows.X.shape[1]
            if not parts:
                X = np.empty((max(_FEWEST_ROWS, max_entries // (k + ones)), k + ones))
            size = min(len(rows), len(X) - n)
            self._sizes.append(len(rows))
            X[n : n + size, :k], X[n : n + size, k:] = rows.X[:size], 1.0
            self._chunks.append(chunk._replace(rows=rows.taken(slice(0))))
            rows = rows.with_ones() if ones and rows.X_next is not None else rows
            parts.append(rows.taken(slice(size)).changed(X=X[:0]))
            n += size
            if size < len(rows):
                self.is_full = True
                episode = np.concatenate([part.episode for part in parts if part.episode is not None])
                if rows.episode is not None and rows.episode[size] == episode[-1]:  # divided, and left out unless
                    begins = int(np.searchsorted(episode, episode[-1]))  # too little would be left
                    n = begins if 2 * begins >= n else n
                break
        self.rows = Rows.joined(parts, X=X, intercept=ones).taken(slice(n)) if parts else None

    def __len__(self) -> int:
        return 0 if self.rows is None else len(self.rows)

    def named(self) -> dict[str, NDArray[Any] | None]:
        """Return ids of episodes as text and times of the rows, if there are any."""
        ids, times, n = None, times_of(self._chunks), len(self)
        if self.rows is not None:
            ids = np.array([f"no. {number + 1}" for number in np.asarray(self.rows.episode)])
        if self._chunks and self._chunks[0].ids is not None:
            parts = [chunk.ids.per_row(m) for chunk, m in zip(self._chunks, self._sizes, strict=True) if chunk.ids]
            ids = np.concatenate([part.astype(str) for part in parts])[:n]
        return {"ids": ids, "time": None if times is None else times[:n]}
