"""`lstd.fit_chunks`: a model of chunks of arrays that need not fit in memory."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from lstd.data.arguments import check_flag, check_integer, shown
from lstd.data.broken_episodes import warn_of_assumed, warn_of_break
from lstd.data.settings import ALPHA, LMBDA, VARIANT, Settings
from lstd.distributed.dask_collections import Partitions, array_partitions, is_kind, listed, load
from lstd.distributed.memory_shares import LEAST_MEMORY, MEMORY, choice_entries
from lstd.distributed.runner import Runner
from lstd.distributed.store import folder
from lstd.distributed.sum_arrays import SumArrays, first_rows
from lstd.errors import InvalidInputError
from lstd.estimators.model import model_of
from lstd.statistics.blocks import check_n_blocks

if TYPE_CHECKING:
    from lstd.estimators.lstd import LSTD
    from lstd.estimators.lstd_cv import LSTDCV

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
    executor: Executor | Callable[[], Executor] | None = None,
    client: Any = None,
    memory: int = MEMORY,
    store: str | os.PathLike[str] | None = None,
    independent: bool = False,
) -> LSTD | LSTDCV:
    """Fit a model to chunks of arrays that are summed one by one: here, on an executor or on a Dask cluster.

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
        the next chunk when a worker is free. Dask arrays are given as a tuple ``(X, y)`` or a mapping by name; each of
        their chunks of rows is a chunk.
    gamma, lmbda, alpha, variant, fit_intercept, n_blocks
        As in :class:`lstd.LSTD`. With "auto", `lmbda` or `alpha` is chosen by cross-validation on the first chunks, up
        to a quarter of `memory` and at most 256 MB. These chunks are loaded twice, the first time in this process.
    n_jobs : int, optional
        Threads of this process, including the calling one; by default one per core.
    executor : concurrent.futures.Executor or function that makes one, optional
        Sums each chunk on a worker. If a worker dies, an executor that a function made, such as
        :func:`lstd.distributed.local_processes`, is replaced, and its unfinished chunks are summed again.
    client : distributed.Client, optional
        Client of a Dask cluster, whose workers sum chunks and merge the sums. Without it, Dask collections are computed
        as Dask computes any collection.
    memory : int, default 2**29
        Bytes, at least 2²⁴. With `n_blocks="auto"`, the blocks of data that intervals need take at most an eighth of
        it, or half if there is only one chunk. If there are too many features for that, the model has no intervals.
    store : path-like, optional
        Folder that keeps the sums of each chunk; all workers must see it under this name. A later fit finds sums by the
        chunk's place, all settings but `alpha` and `variant`, and the content of arrays, the name, size and
        modification time of a file, or the pickle of a function. What a function reads is not checked.
    independent : bool, default False
        Whether each chunk begins a new episode.

    Returns
    -------
    LSTD, or LSTDCV if `lmbda` or `alpha` was chosen

    Raises
    ------
    InvalidInputError
        When an argument or a chunk breaks a rule, or a worker of a cluster has another version of lstd.
    OutputError
        When the store could not be written.
    LSTDError
        When workers die again and again, or one of an executor that is not made here dies; when Dask cannot compute a
        chunk, or its scheduler is lost.

    Warns
    -----
    IllConditionedWarning, RidgeWarning, EffectiveSampleWarning, UnusedRewardWarning, MissingTerminationWarning,
    BrokenEpisodeWarning
        As in :meth:`lstd.LSTD.fit`; the last two once, and not for sums that the store keeps.

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

    runner = Runner(n_jobs, executor, client)
    settings = Settings.with_choice(gamma, lmbda, alpha, variant, fit_intercept)
    memory = check_integer("memory", memory, LEAST_MEMORY)
    leaf = SumArrays(settings, check_n_blocks(n_blocks), memory, folder(store), check_flag("independent", independent))
    chunks, selection, checks = chunks_of(source), None, None
    if settings.choose:
        chunks, first = split(chunks, client)
        settings, selection, checks = choose(first_rows(first, leaf, choice_entries(memory)), settings)
        leaf = replace(leaf, settings=settings)
    part = runner.sum(leaf, chunks)
    if part.assumed is not None:
        warn_of_assumed(f"`source[{part.assumed}]` has `episode` without `terminated`")
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
    chunks, first = (chunks, iter(chunks)) if isinstance(chunks, (list, tuple)) else itertools.tee(chunks)
    return chunks, (load(chunk, client) for chunk in first)
