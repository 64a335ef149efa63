"""`lstd.fit_chunks`: a model of chunks of arrays that need not fit in memory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from lstd.data.arguments import check_flag, check_integer, shown
from lstd.data.doubts import assumed_cut, warn_of_break
from lstd.data.follow import follows
from lstd.data.rows import Rows
from lstd.data.settings import ALPHA, LMBDA, Settings
from lstd.data.variants import VARIANT
from lstd.distributed.chunk_sums import LEAST_MEMORY, MEMORY, choice_entries, naming
from lstd.distributed.on_dask import Partitions, array_partitions, is_kind, listed, loaded_once
from lstd.distributed.runner import Runner, counted, drained
from lstd.distributed.sum_arrays import SumArrays, columns_of, naming_both
from lstd.errors import InvalidInputError, MissingTerminationWarning, warn
from lstd.estimators.model import model_of
from lstd.statistics.blocks import check_n_blocks

if TYPE_CHECKING:
    from lstd.estimators.lstd import LSTD
    from lstd.estimators.lstd_cv import LSTDCV

_LEAST_ROWS = 64  # of a chunk that settings are chosen from, however many features they have
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
        to a quarter of `memory` and at most 256 MB. They are brought to this process, and each chunk is loaded once.
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
    chunks, alone = counted(chunks_of(source))  # alone: whether there is one chunk only
    sums = SumArrays(settings, n_blocks, memory, independent, alone=alone)
    selection = None
    checks = None
    if settings.choose:
        rows, chunks = _first_rows(chunks, client, sums, choice_entries(memory))
        settings, selection, checks = choose(rows, settings)
        sums = replace(sums, settings=settings)
    part = runner.sum(sums, chunks)
    warned: frozenset[str] = frozenset()
    is_assumed = part.assumed is not None  # that the episodes of some chunk were cut off
    if is_assumed:
        warned = frozenset({"ends"})
        warn(assumed_cut(f"`source[{part.assumed}]` has `episode` without `terminated`"), MissingTerminationWarning)
    if part.broken is not None:
        warn_of_break(part.broken, f"`source[{part.broken.place}]`")
    episodes = None  # ids that further data must not repeat
    if not independent:
        episodes = part.ends
    model = model_of(
        part.blocks,
        settings,
        selection,
        n_blocks,
        checks=checks,
        warned=warned,
        episodes=episodes,
    )
    return estimator_of(model)


def chunks_of(source: Any) -> Partitions | Iterable[Any]:
    """Return the chunks of a source of arrays; raises InvalidInputError when it is of another kind."""
    if isinstance(source, (str, os.PathLike)):
        return [source]
    if isinstance(source, Mapping):
        return array_partitions(source)
    is_pair = isinstance(source, tuple) and len(source) == 2
    if is_pair and any(is_kind(array, "Array") for array in source):
        return array_partitions(dict(zip("Xy", source, strict=True)))
    is_one = isinstance(source, (bytes, np.ndarray)) or hasattr(source, "__arrow_c_stream__")
    if is_one or (is_pair and all(isinstance(array, np.ndarray) for array in source)):
        raise InvalidInputError(
            f"`source` must be a list or another iterable of chunks; got a {type(source).__name__}, which may be one "
            "chunk: give a list of it. Data with named columns go to `lstd.fit_tables`."
        )
    if not isinstance(source, Iterable) and not hasattr(source, "__dask_graph__") and not hasattr(source, "client"):
        raise InvalidInputError(f"`source` must be a list or another iterable of chunks; got {shown(source)}.")
    return listed(source, _EXPECTED)


def _first_rows(chunks: Any, client: Any, sums: SumArrays, max_entries: int) -> tuple[Rows, Any]:
    """Return the rows that settings are chosen from, and the chunks, of which none is loaded again for its sums.

    Chunks that were loaded here stay in memory until they are summed; those of Dask stay with Dask.
    """
    if client is not None and not isinstance(chunks, Partitions):
        chunks = Partitions(list(chunks))
    if isinstance(chunks, Partitions):
        chunks, first = loaded_once(chunks, client, columns_of)
        return first_rows(_loading(first, []), sums, max_entries), chunks
    rest = iter(chunks)
    loaded: list[Any] = []
    rows = first_rows(_loading(rest, loaded), sums, max_entries)
    return rows, drained(loaded, rest)


def _loading(chunks: Iterator[Any], loaded: list[Any]) -> Iterator[dict[str, Any]]:
    """Load chunks as they are drawn, and add them to those that are `loaded`."""
    for place, chunk in enumerate(chunks):
        with naming(place):
            columns = columns_of(chunk)
        loaded.append(columns)
        yield columns


def first_rows(chunks: Iterable[Mapping[str, Any]], sums: SumArrays, max_entries: int) -> Rows:
    """Join the first chunks, as arrays by name, up to `max_entries` features in all, for a choice of settings.

    Episodes are numbered; without ids, an episode continues from chunk to chunk unless chunks are independent.
    """
    parts: list[Rows] = []
    last_row: Rows | None = None  # of the chunk before that has rows
    last_place = 0  # of that chunk
    last_number = 0  # of its last episode
    n_entries = 0
    for place, columns in enumerate(chunks):
        with naming(place):
            rows = sums.rows(columns)
        if not len(rows):
            continue
        begins = rows.begins_episode
        begins[0] = False  # so that the first number is 0
        if last_row is not None:
            with naming_both(last_place, place):
                begins[0] = not follows(last_row, rows, begins=sums.begins)
        episode = last_number + np.cumsum(begins)

        room = max(_LEAST_ROWS, (max_entries - n_entries) // rows.n_features)
        size = min(len(rows), room)
        parts.append(rows.changed(episode=episode).taken(slice(size)))
        n_entries += size * rows.n_features
        if n_entries >= max_entries:
            break
        last_row = rows.last_row
        last_place = place
        last_number = int(episode[-1])
    if not parts:
        raise InvalidInputError("`source` must hold at least one row to choose settings from; got none.")
    return Rows.joined(parts, assumed=False)
