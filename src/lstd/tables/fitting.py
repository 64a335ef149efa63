"""A model from tables: statistics summed chunk by chunk, then solved."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import lstd
from lstd.data.checks import check_integer
from lstd.data.rows import Rows, check_rows
from lstd.data.settings import Settings
from lstd.errors import InvalidInputError, MissingTerminationWarning
from lstd.errors import warn as give_warning
from lstd.estimators.model import Model, Origin
from lstd.statistics.blocks import Blocks, Layout, default_limit
from lstd.statistics.statistics import LSTDStatistics, pieces_of
from lstd.statistics.threads import available_cores, one_blas_thread
from lstd.tables.ahead import LEAST_MEMORY, MAX_JOBS, MEMORY, Ahead
from lstd.tables.choosing import ENTRIES, choose
from lstd.tables.readers import Table
from lstd.tables.row_reader import Chunk, OnProgress, Roles, RowReader
from lstd.tables.sample import Sample

Array = NDArray[np.float64]

SAMPLE_ENTRIES = 2**20  # features of the rows that are kept for a report, 8 MiB

_LOG = logging.getLogger("lstd")


def fit_tables(
    paths: Sequence[str | Table],
    roles: Roles,
    settings: Settings,
    *,
    sample_entries: int = 0,
    chunk_rows: int | None = None,
    n_jobs: int | None = None,
    memory: int = MEMORY,
    independent: bool = False,
    on_progress: OnProgress | None = None,
) -> tuple[Model, Sample | None]:
    """Fit a model to tables, which are read as one, in the order given.

    Without a column of episodes, an episode ends where a row is flagged as terminated or truncated, and goes on
    otherwise, from file to file too. What `settings` leaves open is chosen from the first rows before.

    The calling thread reads and merges the sums in order; chunks are converted and summed by others, and by itself
    when it would have to wait. The model is the same to the last bit for any number of jobs.

    Parameters
    ----------
    paths : sequence of str, or of tables that are open
    roles : Roles
    settings : Settings
    sample_entries : int, default 0
        How many features of the first rows to keep.
    chunk_rows : int, optional
        Rows that are read at a time; by default as many as hold about a million features, fewer with little memory.
    n_jobs : int, optional
        Threads, the calling one among them; by default as many as there are cores.
    memory : int, default 2**29
        Bytes, at least 2²⁴, that bound the chunks which are read ahead, their sums, and what is kept for intervals,
        up to half of it. One chunk has a place always; the sums over all rows, and what Python and the readers of
        files take, come on top.
    independent : bool, default False
        Whether each file begins an episode; ids may come again in other files.
    on_progress : callable, optional
        Called with what is being done, and bytes done and in all.

    Returns
    -------
    Model
    Sample or None
        The first rows, where `sample_entries` asks for them.

    Raises
    ------
    InvalidInputError
        At the first bad row, when there are no transitions, or too few to choose from; when `n_jobs` or `memory`
        breaks its rule.

    Warns
    -----
    IllConditionedWarning
        When the system is singular or nearly so.
    MissingTerminationWarning
        When nothing says which episodes terminated: they are taken as truncated.
    """
    memory = check_integer("memory", memory, LEAST_MEMORY)
    n_jobs = available_cores() if n_jobs is None else check_integer("n_jobs", n_jobs, 1, MAX_JOBS)
    reader = RowReader(
        paths, roles, chunk_rows=chunk_rows, on_progress=on_progress, independent=independent, memory=memory
    )
    _tell_what_is_assumed(reader)
    with _memory_suffices(len(reader.features)):
        return _fitted(reader, settings, sample_entries, n_jobs, on_progress)


def _fitted(
    reader: RowReader, settings: Settings, sample_entries: int, n_jobs: int, on_progress: OnProgress | None
) -> tuple[Model, Sample | None]:
    files, roles, memory = [table.file for table in reader.tables], reader.roles, reader.memory
    selection = None
    if settings.choose:
        selection = choose(reader.again(), settings, max_entries=min(ENTRIES, memory // 32), on_progress=on_progress)
        settings = replace(settings, lmbda=selection.lmbda, alpha=selection.alpha, choose=())
    sample = Sample(len(reader.features), len(roles.rewards), sample_entries) if sample_entries else None
    blocks = blocks_of(reader, settings, sample, n_jobs=n_jobs)
    if not blocks.total.n_transitions:
        raise InvalidInputError(
            f"{', '.join(files)}: of {blocks.total.n_rows} rows none is followed by a row of its episode or "
            "terminates; there is nothing to fit."
        )
    model = Model(
        blocks, settings, reader.features, roles.rewards, _origin(files, roles, blocks.total), selection,
        threads=n_jobs,
    )  # fmt: skip
    with one_blas_thread():
        _ = model.solution, model.no_intervals
    return model, sample


@contextmanager
def _memory_suffices(n: int) -> Iterator[None]:
    """An error of ours where it does not."""
    try:
        yield
    except MemoryError as error:
        raise InvalidInputError(
            f"Memory ran out ({error}). A fit of {n} features needs some matrices of {8 * n**2 / 2**20:.3g} MB, beside "
            "what `memory` bounds. Name fewer features, give less `memory`, or use a machine with more."
        ) from error


class _Work(NamedTuple):
    """A chunk to be summed, in pieces that begin at some rows."""

    chunk: Chunk
    layout: Layout  # with the chunk
    starts: list[int]
    matrices: int  # of a piece's sums: A, and B where an episode was truncated


def blocks_of(reader: RowReader, settings: Settings, sample: Sample | None = None, *, n_jobs: int = 1) -> Blocks:
    """Statistics of all rows, with marks; with an intercept the last feature is a column of ones.

    The first rows are added to a sample.
    """
    n, m = len(reader.features) + settings.fit_intercept, len(reader.roles.rewards)
    nothing = LSTDStatistics.empty(n, m, gamma=settings.gamma, lmbda=settings.lmbda, single=m == 1)
    limit = default_limit(n, reader.memory // 2)
    blocks = Blocks(nothing, limit, reason="" if limit else _too_many(n, reader.memory))

    def n_bytes(work: _Work) -> int:
        copies = 1 + settings.fit_intercept  # of the features
        return 8 * (copies * work.chunk.X.size + work.matrices * n**2 * (1 + len(work.starts)))

    def summed(work: _Work) -> tuple[_Work, Rows, list[LSTDStatistics]]:
        rows = _rows(work.chunk, settings)
        return work, rows, list(pieces_of(rows, nothing.lmbda, work.starts, threads=1))

    most_bytes = reader.memory - reader.memory // 4 - 16 * n**2 * limit
    # With one thread of the BLAS whatever the number of jobs: its threads divide sums, which changes the last bits.
    with one_blas_thread(), Ahead(n_jobs) as ahead:
        for work, rows, pieces in ahead.map(summed, _laid_out(reader, limit, sample, ahead), n_bytes, most_bytes):
            try:
                blocks = blocks.joined(rows, pieces, work.layout, work.starts)
            except InvalidInputError as error:
                raise reader.overflow(work.chunk, error) from error
            del work, rows, pieces  # before the next chunk is drawn
    # Within, episodes are numbered; who goes on with the stream knows them by their ids.
    first, last = reader.episodes.first, reader.episodes.last
    return replace(blocks, total=replace(blocks.total, first_episode=first, last_episode=last))


def _laid_out(reader: RowReader, limit: int, sample: Sample | None, ahead: Ahead) -> Iterator[_Work]:
    """Chunks, with the places of marks, which are known before the sums are."""
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
    X = np.column_stack([chunk.X, np.ones(len(chunk))]) if settings.fit_intercept else chunk.X
    y = chunk.y[:, 0] if chunk.y.shape[1] == 1 else chunk.y
    return check_rows(
        X, y, gamma=settings.gamma, episode=chunk.episode, terminated=chunk.terminated, warn=False, finite=False
    )


def _too_many(n: int, memory: int) -> str:
    return (
        f"{n} features are too many; what each stretch of the data adds would take more than {memory // 2**21} MB, "
        "half of the memory. Give more of it, or fewer features."
    )


def _tell_what_is_assumed(reader: RowReader) -> None:
    roles, files = reader.roles, [table.file for table in reader.tables]
    if roles.episode is not None and roles.terminated is None:
        give_warning(
            "Nothing says which episodes terminated: every episode is taken as truncated, its last row as features "
            "only. Name a column that is 1 on the last row of episodes that ended for good, 0 elsewhere.",
            MissingTerminationWarning,
        )
    if roles.episode is None and len(files) > 1 and not reader.independent:
        _LOG.warning(
            "without a column of episodes, the first row of each file is taken as the successor of the last row of the "
            "file before, unless that ended its episode"
        )


def _origin(files: Sequence[str], roles: Roles, statistics: LSTDStatistics) -> Origin:
    return Origin(
        files=tuple(files),
        rows=statistics.n_rows,
        transitions=statistics.n_transitions,
        episodes=statistics.n_episodes,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        lstd=lstd.__version__,
        episode=roles.episode,
        terminated=roles.terminated,
        truncated=roles.truncated,
    )
