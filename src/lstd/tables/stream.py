"""Models of tables that are read as one stream: threads of this process sum chunks, which are merged in order."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import lstd
from lstd.data.check_rows import check_rows
from lstd.data.checks import check_integer
from lstd.data.rows import Rows, warn_of_assumed
from lstd.data.settings import Settings
from lstd.distributed.ahead import LEAST_MEMORY, MAX_JOBS, MEMORY, Ahead
from lstd.distributed.choosing import ENTRIES, OnProgress, choose, model_of
from lstd.errors import InvalidInputError
from lstd.estimators.model import Model, Origin, Selection
from lstd.statistics.blocks import Blocks, Layout, empty_blocks
from lstd.statistics.statistics import LSTDStatistics, chunk_statistics
from lstd.statistics.threads import available_cores, one_blas_thread
from lstd.tables.readers import Table
from lstd.tables.row_reader import Chunk, Roles, RowReader
from lstd.tables.sample import Sample

SAMPLE_ENTRIES = 2**20  # features of the rows that are kept for a report, 8 MiB

_LOG = logging.getLogger("lstd")


def fit_stream(
    tables: Sequence[str | Table],
    roles: Roles,
    settings: Settings,
    *,
    n_blocks: int | str = "auto",
    n_jobs: int | None = None,
    memory: int = MEMORY,
    independent: bool = False,
    sample_entries: int = 0,
    chunk_rows: int | None = None,
    on_progress: OnProgress | None = None,
) -> tuple[Model, Sample | None]:
    """Fit a model to tables that are read as one stream, in the order given.

    Arguments are the checked ones of :func:`lstd.fit_tables`. The calling thread reads and merges; `n_jobs` threads,
    including this one, convert and sum chunks. The model is the same to the last bit for any number.

    Parameters
    ----------
    sample_entries : int, default 0
        Number of features of the first rows to keep.
    chunk_rows : int, optional
        Rows read at a time; by default about a million features, fewer with little memory.
    on_progress : callable, optional
        Called with a description, the bytes done and the bytes in all.

    Returns
    -------
    Model
    Sample or None
        The first rows, if `sample_entries` is not 0.
    """
    memory = check_integer("memory", memory, LEAST_MEMORY)
    n_jobs = available_cores() if n_jobs is None else check_integer("n_jobs", n_jobs, 1, MAX_JOBS)
    reader = RowReader(
        tables, roles, chunk_rows=chunk_rows, on_progress=on_progress, independent=independent, memory=memory
    )
    warn_of_assumptions(roles, follow=len(reader.tables) > 1 and not independent)
    with _memory_suffices(len(reader.features)):
        selection = None
        if settings.choose:
            settings, selection = _choose(reader.again(), settings, on_progress)
        sample = Sample(len(reader.features), len(roles.rewards), sample_entries) if sample_entries else None
        blocks = sum_stream(reader, settings, n_blocks, memory // 2, sample=sample, n_jobs=n_jobs)
        with one_blas_thread():
            model = model_of(
                blocks, settings, selection, n_blocks,
                names=reader.features, rewards=roles.rewards, threads=n_jobs,
                origin=origin_of([table.file for table in reader.tables], roles, blocks.total),
            )  # fmt: skip
            _ = model.no_intervals  # so that the influence of blocks is computed here
    return model, sample


@contextmanager
def _memory_suffices(n: int) -> Iterator[None]:
    """Name the remedy when memory runs out."""
    try:
        yield
    except MemoryError as error:
        raise InvalidInputError(
            f"Memory ran out ({error}). A fit of {n} features needs some matrices of {8 * n**2 / 2**20:.3g} MB, beside "
            "what `memory` bounds. Name fewer features, give less `memory`, or use a machine with more."
        ) from error


def _choose(reader: RowReader, settings: Settings, on_progress: OnProgress | None) -> tuple[Settings, Selection]:
    """Choose settings from the first rows; an error of sums that overflow names the largest value."""
    sample = first_rows(reader.chunks(), reader.roles, settings, min(ENTRIES, reader.memory // 32))
    rows = sample.checked(settings.gamma)
    try:
        return choose(rows, settings, on_progress)
    except InvalidInputError as error:
        if _overflows(rows.X) or _overflows(rows.y):
            raise _with_largest(error, reader.again(), len(sample)) from error
        raise


def first_rows(chunks: Iterable[Chunk], roles: Roles, settings: Settings, max_entries: int) -> Sample:
    """Gather the first rows of chunks, up to `max_entries` features in all."""
    sample: Sample | None = None
    for chunk in chunks:
        if sample is None:
            sample = Sample(chunk.X.shape[1], len(roles.rewards), max_entries, ones=settings.fit_intercept)
        sample.add(chunk)
        if sample.is_full:
            break
    return Sample(1, len(roles.rewards), 1) if sample is None else sample


def _overflows(values: NDArray[np.float64]) -> bool:
    """Return whether the squares of values overflow, or their sum."""
    with np.errstate(over="ignore"):
        return not np.isfinite(np.square(np.nanmax(np.abs(values))) * len(values))


def _with_largest(error: InvalidInputError, reader: RowReader, n_rows: int) -> InvalidInputError:
    """Add the largest value among the first rows to an error."""
    largest, worst = -1.0, None
    for chunk in reader.chunks():
        size = max(np.abs(chunk.X).max(), np.nanmax(np.abs(chunk.y), initial=0.0))
        if size > largest:
            largest, worst = size, chunk
        n_rows -= len(chunk)
        if n_rows <= 0:
            break
    return error if worst is None else reader.overflow(worst, error)


class _Work(NamedTuple):
    """A chunk to sum, divided at the starts of blocks."""

    chunk: Chunk
    layout: Layout  # of the blocks, this chunk included
    starts: list[int]
    matrices: int  # of the sums of a block: A, and B if an episode was truncated


def sum_stream(
    reader: RowReader,
    settings: Settings,
    n_blocks: int | str,
    block_bytes: int,
    *,
    sample: Sample | None = None,
    n_jobs: int = 1,
) -> Blocks:
    """Sum all rows in blocks, with a column of ones for an intercept, and add the first rows to `sample`."""
    n, m = len(reader.features) + settings.fit_intercept, len(reader.roles.rewards)
    nothing = LSTDStatistics.empty(n, m, gamma=settings.gamma, lmbda=settings.lmbda, single=m == 1)
    blocks = empty_blocks(nothing, n_blocks, block_bytes)
    limit = blocks.limit

    def n_bytes(work: _Work) -> int:
        copies = 1 + settings.fit_intercept  # of the features
        return 8 * (copies * work.chunk.X.size + work.matrices * n**2 * (1 + len(work.starts)))

    def summed(work: _Work) -> tuple[_Work, Rows, list[LSTDStatistics]]:
        rows = _rows(work.chunk, settings)
        return work, rows, list(chunk_statistics(rows, nothing.lmbda, work.starts, threads=1))

    most_bytes = reader.memory - reader.memory // 4 - 16 * n**2 * limit
    # The BLAS has one thread for any number of jobs: its threads divide sums, which changes the last bits.
    with one_blas_thread(), Ahead(n_jobs) as ahead:
        for work, rows, pieces in ahead.map(summed, _laid_out(reader, limit, sample, ahead), n_bytes, most_bytes):
            try:
                blocks = blocks.joined(rows, pieces, work.layout, work.starts)
            except InvalidInputError as error:
                raise reader.overflow(work.chunk, error) from error
            del work, rows, pieces  # before the next chunk is drawn
    # Episodes were numbered; `partial_fit` continues from their ids.
    first, last = reader.episodes.first, reader.episodes.last
    return replace(blocks, total=replace(blocks.total, first_episode=first, last_episode=last))


def _laid_out(reader: RowReader, limit: int, sample: Sample | None, ahead: Ahead) -> Iterator[_Work]:
    """Yield chunks with the starts of blocks, which are known before the sums are."""
    layout, episode = Layout(limit), -1
    for chunk in reader.chunks(ahead):
        begins = np.diff(chunk.episode, prepend=episode) != 0
        layout, starts = layout.extended(begins)
        episode = int(chunk.episode[-1])
        if sample is not None:
            sample.add(chunk)
        work = _Work(chunk, layout, starts, 1 + bool((begins[1:] & ~chunk.terminated[:-1]).any()))
        del chunk
        yield work
        del work


def _rows(chunk: Chunk, settings: Settings) -> Rows:
    y = chunk.y[:, 0] if chunk.y.shape[1] == 1 else chunk.y
    rows = check_rows(
        chunk.X, y, gamma=settings.gamma, episode=chunk.episode, terminated=chunk.terminated, warn=False, finite=False
    )
    return rows.with_ones() if settings.fit_intercept else rows


def warn_of_assumptions(roles: Roles, *, follow: bool) -> None:
    """Warn of what is assumed of tables; `follow` says whether one continues another."""
    if roles.episode is not None and roles.terminated is None:
        warn_of_assumed("No column says which episodes terminated")
    if roles.episode is None and follow:
        _LOG.warning(
            "without a column of episodes, the first row of each table is taken as the successor of the last row of "
            "the table before, unless that ended its episode"
        )


def origin_of(files: Sequence[str], roles: Roles, total: LSTDStatistics) -> Origin:
    """Return the tables that a model was fitted to."""
    return Origin(
        files=tuple(files),
        rows=total.n_rows,
        transitions=total.n_transitions,
        episodes=total.n_episodes,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        lstd=lstd.__version__,
        episode=roles.episode,
        terminated=roles.terminated,
        truncated=roles.truncated,
    )
