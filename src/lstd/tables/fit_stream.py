"""Models of tables that follow one another in one stream."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstd.data.arguments import check_integer
from lstd.data.episode_warnings import warn_of_assumed, warn_of_break
from lstd.data.rows import Rows
from lstd.data.settings import Settings
from lstd.distributed.chunk_sums import LEAST_MEMORY, MEMORY, Part, choice_entries
from lstd.distributed.fit_chunks import split
from lstd.distributed.on_dask import Partitions, is_future
from lstd.distributed.runner import Runner
from lstd.errors import InvalidInputError, TerminationWarning, warn
from lstd.estimators.choose_settings import Choice, OnProgress, choose
from lstd.estimators.limits import doubted
from lstd.estimators.model import Model, model_of
from lstd.estimators.model_parts import Origin
from lstd.statistics.threads import available_cores, one_blas_thread
from lstd.tables.column_roles import Roles
from lstd.tables.reader import Chunk, RowReader, times_of
from lstd.tables.sources import watched
from lstd.tables.sum_tables import Ends, SumTables, chunks_in_order, memory_suffices
from lstd.tables.table import Table

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
    leaf = SumTables(settings, "auto", memory, None, independent, roles, chunk_rows)
    model = fit_leaf(watched(paths, on_progress), leaf, Runner(n_jobs), on_progress)
    if not sample_entries:
        return model, None
    return model, Sample(chunks_in_order(paths, replace(leaf, roles=naming(roles))), sample_entries)


def fit_leaf(tables: Any, leaf: SumTables, runner: Runner, on_progress: OnProgress | None = None) -> Model:
    """Fit a model to tables by the sums of each."""
    roles, files, selection, checks = leaf.roles, [], None, None
    if roles.features is not None:
        leaf = replace(leaf, settings=leaf.settings.named(roles.features))
    assumed = roles.episode is not None and roles.terminated is None and not roles.next_features
    if assumed:
        warn_of_assumed("No column says which episodes terminated")
    at_hand = isinstance(tables, list) and not any(callable(table) or is_future(table) for table in tables)
    if at_hand:
        if runner.is_here and leaf.store is None:  # all tables must have the columns, which are then named
            reader = RowReader(tables, roles)
            tables, leaf = reader.tables, replace(leaf, roles=reader.roles)
        files = [getattr(table, "file", table) for table in tables]
    if leaf.settings.choose:
        tables, first = split(tables, runner.client)
        settings, selection, checks = _choose(chunks_in_order(first, leaf), leaf, on_progress)
        leaf = replace(leaf, settings=settings)
    part = runner.sum(leaf, tables)
    if not leaf.independent:
        part.ends.check()
        if roles.episode is None and part.last > part.first and not isinstance(tables, Partitions):
            _LOG.warning(
                "without a column of episodes, the first row of each table is taken as the successor of the last row "
                "of the table before, unless that ended its episode"
            )
    closed = part.ends.rows.times.doubt()
    warn(closed, TerminationWarning)
    if part.broken is not None:
        warn_of_break(part.broken, part.broken.place, columns=True)
    model = _solved(part, leaf, runner, files, selection, checks, assumed)
    model = model.changed(said=(closed,)) if closed else model
    if not at_hand or (isinstance(tables[0], str) and not Path(tables[0]).exists()):  # workers have the files
        return model
    leaf = replace(leaf, roles=part.ends.roles, chunk_rows=_DOUBTED_ROWS)
    chunks = chunks_in_order(tables, leaf)
    rows = next(chunks).rows if len(tables) == 1 else Sample(chunks, _DOUBTED_ROWS * model.n_features).rows
    return model if rows is None else doubted(model, rows)


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


def naming(roles: Roles) -> Roles:
    """Return roles that keep the columns of ids and times, by which a report names rows."""
    return replace(roles, kept=tuple(name for name in (roles.episode, roles.time) if name))


class Sample:
    """The first rows of chunks, up to `max_entries` features in all; whole episodes, if that leaves at least half.

    With `ones`, a column of ones is the last feature. It is added in place: a copy of all rows would take as much
    memory again.
    """

    def __init__(self, chunks: Iterable[Chunk], max_entries: int, *, ones: bool = False) -> None:
        self.is_full = False  # there was no room for a row
        self._kept: list[list[Any]] = []  # columns of each chunk
        X, n = np.empty((0, 0)), 0
        parts: list[Rows] = []
        for chunk in chunks:
            rows, k = chunk.rows, chunk.rows.X.shape[1]
            if not parts:
                X = np.empty((max(_FEWEST_ROWS, max_entries // (k + ones)), k + ones))
            size = min(len(rows), len(X) - n)
            X[n : n + size, :k], X[n : n + size, k:] = rows.X[:size], 1.0
            self._kept.append([column[:size] for column in chunk.kept])
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

    def named(self, roles: Roles) -> dict[str, NDArray[Any] | None]:
        """Return ids of episodes as text and times of the rows, of chunks read with the roles of :func:`naming`."""
        columns = [*zip(*self._kept, strict=True)]
        ids = times = None
        if self.rows is not None and not roles.episode:
            ids = np.array([f"no. {number + 1}" for number in np.asarray(self.rows.episode)])
        elif self.rows is not None:
            texts = [np.array([*map(str, column.to_pylist())]) for column in columns[0]]
            ids = np.char.strip(np.concatenate(texts)[: len(self)])
        if columns and roles.time:
            parts = [times_of(column, roles.time) for column in columns[-1]]
            same = len({part.dtype.kind in "mM" for part in parts}) == 1
            times = np.concatenate(parts)[: len(self)] if same else None
        return {"ids": ids, "time": times}
