"""`lstd.fit_chunks`: a model of chunks of arrays that need not fit in memory, and the sums of a chunk, on a worker."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from lstd.data.arguments import check_flag, check_integer, shown
from lstd.data.check_rows import check_rows
from lstd.data.doubts import assumed_cut, find_break, warn_of_break
from lstd.data.ids import EPISODE_AGAIN
from lstd.data.rows import Rows
from lstd.data.seen_ids import SeenIds, episodes_seen
from lstd.data.settings import ALPHA, LMBDA, VARIANT, Settings
from lstd.distributed.chunk_sums import (
    LEAST_MEMORY,
    MEMORY,
    Part,
    SumChunks,
    Task,
    called,
    choice_entries,
    status,
)
from lstd.distributed.on_dask import CHUNK, Partitions, array_partitions, is_kind, listed, load
from lstd.distributed.runner import Runner, counted
from lstd.errors import InvalidInputError, MissingTerminationWarning, warn
from lstd.estimators.model import model_of
from lstd.statistics.blocks import check_n_blocks
from lstd.statistics.merging import LSTDStatistics
from lstd.statistics.threads import Ahead

if TYPE_CHECKING:
    from lstd.estimators.lstd import LSTD
    from lstd.estimators.lstd_cv import LSTDCV

_TABLES = (".csv", ".csv.gz", ".parquet")
_EXPECTED = (
    "Dask arrays as a tuple (X, y) or a mapping, or a list of delayed objects or futures, if it is a Dask collection"
)


def fit_chunks(
    source: Any,
    *,
    gamma: float,
    lmbda: float | str = LMBDA,
    alpha: float | str = ALPHA,
    variant: str = VARIANT,
    fit_intercept: bool = True,
    n_blocks: int | str = "auto",
    n_jobs: int | None = None,
    client: Any = None,
    memory: int = MEMORY,
    independent: bool = False,
) -> LSTD | LSTDCV:
    """Fit a model to chunks of arrays that are summed one by one, by threads here or on a Dask cluster.

    The model is the same to the last bit for the same chunks, whatever runs the sums. For other chunks weights agree up
    to rounding, but blocks for intervals are cut chunk by chunk: standard errors may differ by a few per cent, or more
    with few episodes. An episode or a group may continue in the next chunk; an id that reappears after others is
    refused, unless chunks are `independent`.

    Parameters
    ----------
    source : iterable, path-like, or Dask arrays
        Chunks in time order. A chunk is ``(X, y)`` or a mapping of the arrays that :meth:`lstd.LSTD.fit` takes, by
        name; the path of an .npz file of them; a function without arguments that returns one of the first two and is
        called where the chunk is summed; a `dask.delayed` object; or a future of a cluster. Data frames `X` must have
        the same columns in the same order in all chunks; features of arrays count by position. An iterable is asked for
        the next chunk when a thread is free. Dask arrays are given as a tuple ``(X, y)`` or a mapping by name; each of
        their chunks of rows is a chunk.
    gamma, lmbda, alpha, variant, fit_intercept, n_blocks
        As in :class:`lstd.LSTD`. With "auto", `lmbda` or `alpha` is chosen by cross-validation on the first chunks, up
        to a quarter of `memory` and at most 256 MB. These chunks are loaded twice, the first time in this process.
    n_jobs : int, optional
        Threads of this process that sum chunks; by default one per core.
    client : distributed.Client, optional
        Client of a Dask cluster, of processes on this machine or of many machines, whose workers sum chunks and merge
        the sums. All chunks are handed to it at once, so give paths or functions rather than arrays. Without it, Dask
        collections are computed as any collection.
    memory : int, default 2**29
        Bytes, at least 2²⁴. With `n_blocks="auto"`, the blocks of data that intervals need take at most an eighth of
        it, or half if there is only one chunk. If there are too many features for that, the model has no intervals.
    independent : bool, default False
        Whether each chunk begins a new episode.

    Returns
    -------
    LSTD, or LSTDCV if `lmbda` or `alpha` was chosen

    Raises
    ------
    InvalidInputError
        When an argument or a chunk breaks a rule, or a worker of a cluster has another version of lstd.
    LSTDError
        When Dask cannot compute a chunk, a chunk kills its workers again and again, or the scheduler is lost.

    Warns
    -----
    IllConditionedWarning, RidgeWarning, EffectiveSampleWarning, UnusedRewardWarning, MissingTerminationWarning,
    BrokenEpisodeWarning
        As in :meth:`lstd.LSTD.fit`; the last two once.

    Examples
    --------
    >>> import numpy as np
    >>> import lstd
    >>> X, y = np.ones((6, 1)), np.ones(6)
    >>> model = lstd.fit_chunks([(X[:2], y[:2]), (X[2:], y[2:])], gamma=0.5, lmbda=0.0, alpha=0.0)
    >>> model.n_transitions_, model.predict([[1.0]])
    (5, array([2.]))
    """
    from lstd.estimators.choose_settings import choose  # scikit-learn takes two seconds to import
    from lstd.estimators.lstd_cv import estimator_of

    runner = Runner(n_jobs, client)
    settings = Settings.with_choice(gamma, lmbda, alpha, variant, fit_intercept)
    memory = check_integer("memory", memory, LEAST_MEMORY)
    n_blocks = check_n_blocks(n_blocks)
    independent = check_flag("independent", independent)
    chunks, alone = counted(chunks_of(source))
    leaf = SumArrays(settings, n_blocks, memory, independent, alone=alone)
    selection = None
    checks = None
    if settings.choose:
        chunks, first = split(chunks, client)
        settings, selection, checks = choose(first_rows(first, leaf, choice_entries(memory)), settings)
        leaf = replace(leaf, settings=settings)
    part = runner.sum(leaf, chunks)
    if part.assumed is not None:
        warn(assumed_cut(f"`source[{part.assumed}]` has `episode` without `terminated`"), MissingTerminationWarning)
    if part.broken is not None:
        warn_of_break(part.broken, f"`source[{part.broken.place}]`")
    warned = frozenset({"ends"} if part.assumed is not None else ())
    ids = None if leaf.independent else part.ends
    return estimator_of(
        model_of(part.blocks, settings, selection, n_blocks, checks=checks, warned=warned, episodes=ids)
    )


def chunks_of(source: Any) -> Partitions | Iterable[Any]:
    """Return the chunks of a source of arrays; raises InvalidInputError when it is of another kind."""
    if isinstance(source, (str, os.PathLike)):
        return [source]
    pair = isinstance(source, tuple) and len(source) == 2
    if isinstance(source, Mapping) or (pair and any(is_kind(one, "Array") for one in source)):
        return array_partitions(source if isinstance(source, Mapping) else dict(zip("Xy", source, strict=True)))
    one = isinstance(source, (bytes, np.ndarray)) or hasattr(source, "__arrow_c_stream__")
    if one or (pair and all(isinstance(array, np.ndarray) for array in source)):
        raise InvalidInputError(
            f"`source` must be a list or another iterable of chunks; got a {type(source).__name__}, which may be one "
            "chunk: give a list of it. Data with named columns go to `lstd.fit_tables`."
        )
    if not isinstance(source, Iterable) and not hasattr(source, "__dask_graph__") and not hasattr(source, "client"):
        raise InvalidInputError(f"`source` must be a list or another iterable of chunks; got {shown(source)}.")
    return listed(source, _EXPECTED)


def split(chunks: Any, client: Any) -> tuple[Any, Any]:
    """Return chunks, and an iterator that loads them from the first; chunks of an iterator are drawn once."""
    if isinstance(chunks, Partitions):
        return chunks, (load(chunk, client or chunks.client) for chunk in chunks.chunks)
    if isinstance(chunks, (list, tuple)):
        first = iter(chunks)
    else:
        chunks, first = itertools.tee(chunks)
    return chunks, (load(chunk, client) for chunk in first)


@dataclass(frozen=True)
class SumArrays(SumChunks):
    """Sum one chunk of arrays; errors name its place."""

    def parts(self, tasks: Iterable[Task], ahead: Ahead) -> Iterator[Part]:
        """Yield the sums of chunks in their order; each is summed in one thread."""
        return ahead.map(lambda task: self._part(*task), tasks)

    def _part(self, place: int, chunk: Any) -> Part:
        """Load, check and sum a chunk."""
        lmbda = self.settings.lmbda
        with naming(place):
            rows = self.rows(columns_of(chunk), summed=True)
            blocks = self.no_blocks(LSTDStatistics.empty_like(rows, lmbda))
            limit = self.limit_of(blocks, len(rows))
            summed = replace(blocks, limit=limit).extended(rows, threads=1)
        broken = find_break(rows, lmbda)
        if broken is not None:
            broken = broken._replace(place=place)
        return Part(
            replace(summed, limit=blocks.limit),
            place,
            place,
            assumed=place if rows.assumed else None,
            broken=broken,
            ends=episodes_seen(rows, SeenIds()),
        )

    def rows(self, columns: Mapping[str, Any], *, summed: bool = False) -> Rows:
        """Check arrays by name, and add the column of ones; where `summed`, as sums alone need it."""
        rows = check_rows(**columns, gamma=self.settings.gamma, warn=False, finite=False, summed=summed)
        if not self.settings.fit_intercept:
            return rows
        return rows.with_intercept(self.settings.centre) if summed else rows.with_ones()

    def merge(self, one: Part, two: Part) -> Part:
        """Merge the sums over chunks that follow one another."""
        try:
            blocks = one.blocks.then(two.blocks, begins=True if self.independent else None)
        except InvalidInputError as error:
            raise InvalidInputError(f"`source[{one.last}]` and `source[{two.first}]`: {error}") from error
        ids = one.ends
        if not self.independent:
            first = two.blocks.total.first_episode
            goes_on = first is not None and one.blocks.total.last_episode == first
            ids, again = ids.then(two.ends, first if goes_on else None)
            if again is not None:
                raise InvalidInputError(
                    f"`source[{two.first}]`, or a chunk after it: `episode` {again} {EPISODE_AGAIN} With chunks of "
                    "whole episodes, `independent=True` allows it."
                )
        assumed = two.assumed if one.assumed is None else one.assumed
        return Part(blocks, one.first, two.last, assumed, one.broken or two.broken, ids)


@contextmanager
def naming(place: int) -> Iterator[None]:
    """Name a chunk in errors."""
    try:
        yield
    except InvalidInputError as error:
        raise InvalidInputError(f"`source[{place}]`: {error}") from error


def columns_of(chunk: Any) -> dict[str, Any]:
    """Load a chunk as arrays by name, the arguments of `LSTDStatistics.from_arrays`."""
    if callable(chunk):
        chunk = called(chunk)
    elif isinstance(chunk, (str, os.PathLike)):
        chunk = _read(chunk)
    if isinstance(chunk, tuple) and len(chunk) == 2:
        chunk = dict(zip(("X", "y"), chunk, strict=True))
    if not isinstance(chunk, Mapping):
        if hasattr(chunk, "__arrow_c_stream__"):
            raise InvalidInputError(f"a {type(chunk).__name__} has named columns; fit it with `lstd.fit_tables`.")
        raise InvalidInputError(
            "must be a mapping of arrays by name, (X, y), the path of an .npz file, or a function without arguments "
            f"that returns one of the first two; got {shown(chunk)}."
        )
    columns = {str(name): values for name, values in chunk.items()}
    CHUNK.check(columns)
    if not {"X", "y"} <= columns.keys():
        raise InvalidInputError(f"must have `X` and `y`; got {sorted(columns)!r:.200}.")
    return columns


def _read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the arrays of an .npz file."""
    if os.fspath(path).lower().endswith(_TABLES):
        raise InvalidInputError(f"{os.fspath(path)} is a table; fit it with `lstd.fit_tables`.")
    status(path)
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except Exception as error:  # a damaged file raises errors of zipfile, zlib and NumPy
        raise InvalidInputError(f"{os.fspath(path)} must be an .npz file of numbers; {error!r:.200}.") from error


def first_rows(chunks: Iterator[Any], leaf: SumArrays, max_entries: int) -> Rows:
    """Join the first chunks of arrays, up to `max_entries` features in all, for a choice of settings.

    Episodes are numbered; without ids, an episode continues from chunk to chunk unless chunks are independent.
    """
    parts: list[Rows] = []
    entries, number, last = 0, 0, None
    for place, chunk in enumerate(chunks):
        with naming(place):
            rows = leaf.rows(columns_of(chunk))
        if not len(rows):
            continue
        size = min(len(rows), max(64, (max_entries - entries) // rows.n_features))
        begins = np.concatenate([[False], rows.last[:-1]])
        if parts:
            before = parts[-1]
            if (before.X_next is None, before.groups is None) != (rows.X_next is None, rows.groups is None):
                raise InvalidInputError("`X_next` and `groups` must be given for all chunks of a stream or for none.")
            begins[0] = leaf.independent or last != rows.first_episode or before.terminated[-1]
        episode = number + np.cumsum(begins)
        parts.append(rows.changed(episode=episode).taken(slice(size)))
        number, last = int(episode[-1]), rows.last_episode
        entries += size * rows.n_features
        if entries >= max_entries:
            break
    if not parts:
        raise InvalidInputError("`source` must hold at least one row to choose settings from; got none.")
    return Rows.joined(parts, assumed=False)
