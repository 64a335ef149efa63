"""Models of tables that follow one another in one stream."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lstd.data.arguments import check_integer
from lstd.data.broken_episodes import warn_of_assumed, warn_of_break
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
from lstd.tables.first_rows import Sample
from lstd.tables.row_reader import Chunk, RowReader
from lstd.tables.sources import watched
from lstd.tables.sum_tables import SumTables, chunks_in_order, memory_suffices
from lstd.tables.table import Table
from lstd.version import __version__

_DOUBTED_ROWS = 5000  # that predictions are compared with
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
    return model, first_rows(chunks_in_order(paths, leaf), roles, sample_entries)


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
    sample = first_rows(chunks, leaf.roles, choice_entries(leaf.memory), ones=settings.fit_intercept)
    settings = settings.named(sample.features)
    try:
        return choose(sample.checked(settings.gamma), settings, on_progress)
    except InvalidInputError as error:
        raise sample.overflow(error) from error


def first_rows(chunks: Iterable[Chunk], roles: Roles, max_entries: int, *, ones: bool = False) -> Sample:
    """Gather the first rows of chunks, up to `max_entries` features in all; with `ones`, a column of ones."""
    sample: Sample | None = None
    for chunk in chunks:
        if sample is None:
            sample = Sample(chunk.X.shape[1], len(roles.rewards), max_entries, ones=ones)
        sample.add(chunk)
        if sample.is_full:
            break
    return Sample(1, len(roles.rewards), 1) if sample is None else sample


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
