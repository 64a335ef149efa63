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
from lstd.data.broken_episodes import warn_of_assumed, warn_of_break
from lstd.data.check_rows import check_rows
from lstd.data.rows import Rows
from lstd.data.settings import Settings
from lstd.distributed.chunk_sums import LEAST_MEMORY, MEMORY, choice_entries
from lstd.distributed.fit_chunks import split
from lstd.distributed.on_dask import Partitions, is_future
from lstd.distributed.runner import Runner
from lstd.errors import InvalidInputError
from lstd.estimators.choose_settings import Choice, OnProgress, choose
from lstd.estimators.limits import doubted
from lstd.estimators.model import Model, model_of
from lstd.estimators.model_parts import Origin
from lstd.statistics.merging import LSTDStatistics
from lstd.statistics.threads import available_cores, one_blas_thread
from lstd.tables.column_roles import Roles
from lstd.tables.row_reader import Chunk, RowReader
from lstd.tables.sources import watched
from lstd.tables.sum_tables import SumTables, chunks_in_order, memory_suffices
from lstd.tables.table import Table
from lstd.tables.table_errors import overflow_at
from lstd.version import __version__

_DOUBTED_ROWS = 5000  # that predictions are compared with
_FEWEST_ROWS = 64  # of a sample
_LARGE = 1e150  # a value whose square may overflow
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
    return model, first_rows(chunks_in_order(paths, leaf), sample_entries)


def fit_leaf(tables: Any, leaf: SumTables, runner: Runner, on_progress: OnProgress | None = None) -> Model:
    """Fit a model to tables by the sums of each."""
    roles, files, selection, checks = leaf.roles, [], None, None
    if roles.features is not None:
        leaf = replace(leaf, settings=leaf.settings.named(roles.features))
    assumed = roles.episode is not None and roles.terminated is None and not roles.next_features
    if assumed:
        warn_of_assumed("No column says which episodes terminated")
    if _at_hand(tables):
        tables, leaf = _opened(tables, leaf, runner)
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
    part.ends.times.check()
    if part.broken is not None:
        warn_of_break(part.broken, part.broken.place, columns=True)
    blocks = replace(part.blocks, total=part.ends.named(part.blocks.total))
    # The BLAS has one thread for any number of jobs: its threads divide sums, which changes the last bits.
    with one_blas_thread(), memory_suffices(len(part.ends.roles.features)):
        model = model_of(
            blocks, leaf.settings.named(part.ends.roles.features), selection, leaf.n_blocks,
            checks=checks, warned=frozenset({"ends"} if assumed else ()),
            rewards=roles.rewards, threads=runner.n_jobs or available_cores(),
            origin=_origin_of(files, part.ends.roles, blocks.total),
            episodes=None if leaf.independent else part.ends.ids, limits=part.ends.limits,
        )  # fmt: skip
        _ = model.no_intervals  # so that the influence of blocks is computed here
    if not _at_hand(tables) or (isinstance(tables[0], str) and not Path(tables[0]).exists()):  # workers have the files
        return model
    return _doubted(model, tables, replace(leaf, roles=part.ends.roles))


def _doubted(model: Model, tables: list[Any], leaf: SumTables) -> Model:
    """Return the model with what the first rows say against its predictions, and warn of it."""
    chunk = next(chunks_in_order(tables, replace(leaf, chunk_rows=_DOUBTED_ROWS)))
    return doubted(model, chunk.rows(leaf.settings.gamma).changed(names=model.feature_names))


def _at_hand(tables: Any) -> bool:
    """Return whether all tables can be opened in this process."""
    return isinstance(tables, list) and not any(callable(table) or is_future(table) for table in tables)


def _opened(tables: list[Any], leaf: SumTables, runner: Runner) -> tuple[list[Any], SumTables]:
    """Return tables, opened if they are summed here, after a check that all have the columns, which are then named."""
    if not runner.is_here or leaf.store is not None:
        return tables, leaf
    reader = RowReader(tables, leaf.roles)
    return reader.tables, replace(leaf, roles=reader.roles)


def _choose(chunks: Iterable[Chunk], leaf: SumTables, on_progress: OnProgress | None) -> Choice:
    """Choose settings from the first rows; an error of sums that overflow names the largest value."""
    settings = leaf.settings
    sample = first_rows(chunks, choice_entries(leaf.memory), ones=settings.fit_intercept)
    settings = settings.named(sample.features)
    try:
        return choose(sample.checked(settings.gamma), settings, on_progress)
    except InvalidInputError as error:
        raise sample.overflow(error) from error


# ------------------------------------------------------------ the first rows, for what cannot be summed


class Sample:
    """Gather rows up to `max_entries` features in all; whole episodes, if that leaves at least half of the rows.

    With `ones`, a column of ones is the last feature. It is added in place: a copy of all rows would take as much
    memory again.
    """

    def __init__(self, n_features: int, max_entries: int, *, ones: bool = False) -> None:
        self._X = np.empty((max(_FEWEST_ROWS, max_entries // (n_features + ones)), n_features + ones))
        self._n_features, self._n = n_features, 0
        self._columns: dict[str, list[NDArray[Any]]] = {}  # the others, by argument
        self._chunks: list[tuple[int, str, int, tuple[str, ...]]] = []  # row here, and file, row there, columns
        self.is_full = False  # there was no room for a row

    def __len__(self) -> int:
        return self._n

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features; none without rows."""
        return self._chunks[0][3][: self._n_features] if self._chunks else ()

    def add(self, chunk: Chunk) -> None:
        """Add the rows of the next chunk until the sample is full."""
        if self.is_full:
            return
        first, size = self._n, min(len(chunk), len(self._X) - self._n)
        self._chunks.append((first, chunk.file, chunk.first, chunk.names))
        X, X_next, ones = self._X[first : first + size], chunk.X_next, self._X.shape[1] > self._n_features
        X[:, : self._n_features], X[:, self._n_features :] = chunk.X[:size], 1.0
        if X_next is not None and ones:
            X_next = np.column_stack([X_next, np.ones(len(chunk))])
        columns = {"y": chunk.y, "episode": chunk.episode, "terminated": chunk.terminated, "groups": chunk.groups}
        for name, values in (columns | {"X_next": X_next} | chunk.transitions).items():
            if values is not None:
                self._columns.setdefault(name, []).append(values[:size])
        self._n += size
        if size < len(chunk):
            self.is_full = True
            episode = self.columns["episode"]
            if chunk.episode[size] == episode[-1]:  # is divided, and left out unless too little would be left
                begins = int(np.searchsorted(episode, episode[-1]))
                self._n = begins if 2 * begins >= self._n else self._n

    @property
    def columns(self) -> dict[str, NDArray[Any]]:
        """Arrays by their names as arguments of `fit`; X has the column of ones."""
        columns = {name: np.concatenate(values) for name, values in self._columns.items()}
        y = columns.get("y", np.empty((0, 1)))
        columns |= {"X": self._X, "y": y[:, 0] if y.shape[1] == 1 else y}
        return {name: values[: self._n] for name, values in columns.items()}

    def checked(self, gamma: float) -> Rows:
        """Return the rows as the data contract has them."""
        columns: dict[str, Any] = self.columns
        return check_rows(**columns, gamma=gamma, warn=False, finite=False)

    def overflow(self, error: InvalidInputError) -> InvalidInputError:
        """Return the error for sums that overflow, with the chunk of the largest value; `error` if none is large."""
        values = np.column_stack([self._X[: self._n, : self._n_features], self.columns["y"]])
        row = int(np.nanargmax(np.abs(values)) // values.shape[1]) if values.size else 0
        if not values.size or not np.nanmax(np.abs(values[row])) > _LARGE:
            return error
        ends = [first for first, *_ in self._chunks[1:]] + [self._n]
        number = int(np.searchsorted(ends, row, side="right"))
        begins, file, first, names = self._chunks[number]
        return overflow_at(file, first, values[begins : ends[number]], names, error)


def first_rows(chunks: Iterable[Chunk], max_entries: int, *, ones: bool = False) -> Sample:
    """Gather the first rows of chunks, up to `max_entries` features in all; with `ones`, a column of ones."""
    sample: Sample | None = None
    for chunk in chunks:
        sample = Sample(chunk.X.shape[1], max_entries, ones=ones) if sample is None else sample
        sample.add(chunk)
        if sample.is_full:
            break
    return Sample(1, 1) if sample is None else sample


def _origin_of(files: Sequence[str], roles: Roles, total: LSTDStatistics) -> Origin:
    """Return the tables that a model was fitted to."""
    return Origin(
        files=tuple(files),
        rows=total.n_rows,
        transitions=total.n_transitions,
        episodes=total.n_episodes,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        lstd=__version__,
        next_features=roles.next_features,
        columns=roles.columns,
    )
