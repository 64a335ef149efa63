"""LSTD(λ) over more data than one machine holds: statistics of chunks on many workers, merged in a tree.

Statistics of chunks merge exactly (:mod:`lstd.statistics.merging`), so that the model is that of the whole data beyond
rounding; and they are merged in a bracketing that depends on the number of chunks only, so that it is the same to the
last bit whatever runs them, in whatever order they finish, and whichever workers die.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any

import numpy as np

from lstd.data.checks import check_choice, check_real
from lstd.data.settings import VARIANTS
from lstd.distributed.arguments import chunks_of, folder, roles_of
from lstd.distributed.chunks import Leaf, Part, Summing
from lstd.distributed.collections import Partitions, is_future, on_graph, partitions_of
from lstd.distributed.running import local_processes, on_cluster, on_executor
from lstd.distributed.tasks import check_workers
from lstd.errors import BrokenEpisodeWarning, InvalidInputError, MissingTerminationWarning
from lstd.errors import warn as give_warning
from lstd.statistics.statistics import LSTDStatistics

if TYPE_CHECKING:
    from lstd.estimators.lstd import LSTD
    from lstd.tables.row_reader import Roles

__all__ = ["fit", "sum_chunks"]

_LOG = logging.getLogger("lstd")


def sum_chunks(
    chunks: Any,
    *,
    features: str | Iterable[str] | None = None,
    reward: str | Iterable[str] | None = None,
    episode: str | None = None,
    terminated: str | None = None,
    truncated: str | None = None,
    gamma: float = 0.99,
    lmbda: float = 0.9,
    fit_intercept: bool = False,
    ordered: bool = True,
    executor: Executor | Callable[[], Executor] | None = None,
    client: Any = None,
    store: str | os.PathLike[str] | None = None,
) -> LSTDStatistics:
    """Statistics of chunks of data, each summed on a worker.

    Parameters
    ----------
    chunks : iterable, path-like, or Dask collection
        With `reward`, tables: paths that end in .csv, .csv.gz or .parquet, one or several, which workers read in
        pieces that fit in memory; data frames of pandas, Polars or Arrow; or a Dask DataFrame, whose partitions are the
        chunks.

        Without, of each chunk the arrays that :meth:`lstd.LSTDStatistics.from_arrays` takes: ``(X, y)`` or a mapping
        of them by name, or the path of an .npz file with those names; or Dask arrays, a tuple ``(X, y)`` or a mapping
        of them by name, whose chunks of rows are the chunks.

        A chunk may also be a function without arguments that returns one and is called on the worker, a
        `dask.delayed` object, or a future of the cluster. Iterables are asked for chunks as workers become free.
    features : str or iterable of str, optional
        Columns of features; by default all that have no other role. All tables must have them; their order may differ.
    reward : str or iterable of str, optional
        Columns of rewards received on leaving the row. It says that chunks are tables.
    episode, terminated, truncated : str, optional
        Columns of episode ids; of flags that are 1 where the episode ends for good; and where it was cut off: as of
        :func:`lstd.fit_files`.
    gamma, lmbda : float in [0, 1]
        Discount, where a chunk does not give one per row, and trace decay.
    fit_intercept : bool, default False
        Add a column of ones as the last feature.
    ordered : bool, default True
        The chunks follow one another in one stream, as those of :meth:`lstd.LSTD.partial_fit`. Otherwise they are
        independent: no episode goes on from one to another.
    executor : concurrent.futures.Executor or function that makes one, optional
        By default a process per core of this machine. When a worker dies, an executor that was made here is replaced,
        and the chunks that it had not finished are done again.
    client : distributed.Client, optional
        Of a Dask cluster, in place of `executor`: statistics are merged on its workers. Without it, collections and
        delayed objects are computed as Dask computes any: by the default client, or on the local scheduler.
    store : path-like, optional
        Folder, seen by all workers under this name, in which the statistics of each chunk are kept as they are
        finished. They are found again by the chunk's place, the settings, and the content of arrays and data frames,
        the name, size and time of change of a file, or the pickle of a function: what a function reads is not looked
        at.

    Returns
    -------
    LSTDStatistics
        With the same bits for the same chunks, on machines of one kind.

    Raises
    ------
    InvalidInputError
        When an argument breaks a rule; when a chunk does, cannot be loaded, or does not fit the others: the message
        names it, or its file and row; when a worker of a cluster, or its scheduler, has another version of lstd.
    OutputError
        When the store could not be written.
    MissingExtraError
        When tables are given, and pyarrow is not installed.
    LSTDError
        When workers die again and again, or a worker of an executor that was given; when Dask cannot compute a chunk,
        or its scheduler is lost.

    Warns
    -----
    MissingTerminationWarning
        When there are ids of episodes, and nothing says which terminated: of arrays, where they were not found in the
        store.
    BrokenEpisodeWarning
        As :meth:`lstd.LSTDStatistics.from_arrays`, once, of chunks that were not found in the store.

    Examples
    --------
    >>> import numpy as np
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> from lstd.distributed import sum_chunks
    >>> X, y = np.ones((6, 1)), np.ones(6)
    >>> with ThreadPoolExecutor(2) as pool:
    ...     found = sum_chunks([(X[:2], y[:2]), (X[2:], y[2:])], gamma=0.5, lmbda=0.0, executor=pool)
    >>> found.n_transitions, found.solve(alpha=0.0).weights
    (5, array([2.]))
    """
    names = (features, reward, episode, terminated, truncated)
    return _summed(chunks, names, gamma, lmbda, fit_intercept, ordered, executor, client, store)[0]


def fit(
    chunks: Any,
    *,
    features: str | Iterable[str] | None = None,
    reward: str | Iterable[str] | None = None,
    episode: str | None = None,
    terminated: str | None = None,
    truncated: str | None = None,
    gamma: float = 0.99,
    lmbda: float = 0.9,
    alpha: float = 1.0,
    variant: str = "boyan",
    fit_intercept: bool = False,
    ordered: bool = True,
    executor: Executor | Callable[[], Executor] | None = None,
    client: Any = None,
    store: str | os.PathLike[str] | None = None,
) -> LSTD:
    """Fit an LSTD to chunks of data, each summed on a worker.

    Parameters
    ----------
    chunks, features, reward, episode, terminated, truncated, ordered, executor, client, store
        As of :func:`sum_chunks`.
    gamma, lmbda, alpha, variant, fit_intercept
        As of :class:`lstd.LSTD`. A `store` serves all values of `alpha` and `variant`.

    Returns
    -------
    LSTD
        Fitted to the merged statistics: it predicts, and goes on with `partial_fit` where chunks are `ordered`; it has
        no stretches for intervals. Of tables, it knows the names of the features.

    Raises
    ------
    InvalidInputError, OutputError, MissingExtraError, LSTDError
        As :func:`sum_chunks`; and when no row is a full transition.

    Warns
    -----
    IllConditionedWarning
        When the system is singular or nearly so.
    MissingTerminationWarning, BrokenEpisodeWarning
        As :func:`sum_chunks`.

    Examples
    --------
    >>> import tempfile
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> from pathlib import Path
    >>> from lstd.distributed import fit
    >>> with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
    ...     files = [Path(folder, f"part{i}.csv") for i in range(2)]
    ...     for file in files:
    ...         _ = file.write_text("x,r,done\\n1,1,0\\n1,1,0\\n1,1,1\\n")
    ...     model = fit(files, features="x", reward="r", terminated="done", gamma=0.5, alpha=0.0, executor=pool)
    >>> model.n_transitions_, model.n_episodes_, model.feature_names_in_.tolist()
    (6, 2, ['x'])

    A Dask DataFrame goes in place of the files, on the cluster of a client or, as here, on the local scheduler:

    >>> import dask.dataframe as dd, pandas as pd
    >>> frame = dd.from_pandas(pd.DataFrame({"x": 1.0, "r": 1.0, "done": [0, 0, 1] * 2}), npartitions=2)
    >>> fit(frame, features="x", reward="r", terminated="done", gamma=0.5, alpha=0.0).n_transitions_
    6

    And arrays, of which each chunk is one of rows:

    >>> import dask.array as da
    >>> X, y = da.ones((6, 1), chunks=(2, 1)), da.ones(6, chunks=2)
    >>> fit((X, y), gamma=0.5, lmbda=0.0, alpha=0.0).predict([[1.0]])
    array([2.])
    """
    alpha = check_real("alpha", alpha, 0.0, np.inf)
    variant = check_choice("variant", variant, VARIANTS)
    names = (features, reward, episode, terminated, truncated)
    statistics, columns = _summed(chunks, names, gamma, lmbda, fit_intercept, ordered, executor, client, store)
    from lstd.estimators.lstd import LSTD  # scikit-learn takes its time: workers need not wait for it

    return LSTD(gamma, lmbda, alpha, variant, fit_intercept).fit_statistics(statistics, columns)


def _summed(
    chunks: Any,
    names: tuple[Any, ...],
    gamma: float,
    lmbda: float,
    fit_intercept: bool,
    ordered: bool,
    executor: Any,
    client: Any,
    store: str | os.PathLike[str] | None,
) -> tuple[LSTDStatistics, tuple[str, ...] | None]:
    """Statistics of all chunks, and names of the features of tables."""
    check_workers(executor, client)
    if getattr(client, "asynchronous", False):
        raise InvalidInputError("`client` must be a distributed.Client with asynchronous=False.")
    roles = roles_of(*names)
    parts = partitions_of(chunks_of(chunks), roles)
    leaf = _leaf(roles, gamma, lmbda, fit_intercept, ordered, store)
    found = _reduced(leaf, parts, ordered, executor, client)
    if found is None:
        raise InvalidInputError("`chunks` must hold at least one chunk; got none.")
    if roles is None or found.ends is None:
        _warn(found)
        return found.statistics, None
    if ordered:
        found.ends.check()
    _tell_what_is_assumed(roles, ordered and found.last > found.first and not isinstance(parts, Partitions))
    statistics = found.ends.named(found.statistics) if ordered or found.first == found.last else found.statistics
    return statistics, found.ends.roles.features


def _leaf(
    roles: Roles | None,
    gamma: float,
    lmbda: float,
    fit_intercept: bool,
    ordered: bool,
    store: str | os.PathLike[str] | None,
) -> Leaf:
    """What chunks are summed with, of checked settings."""
    gamma, lmbda = check_real("gamma", gamma, 0.0, 1.0), check_real("lmbda", lmbda, 0.0, 1.0)
    for name, value in (("fit_intercept", fit_intercept), ("ordered", ordered)):
        if not isinstance(value, (bool, np.bool_)):
            raise InvalidInputError(f"`{name}` must be True or False; got {value!r}.")
    settings = (gamma, lmbda, bool(fit_intercept), None if store is None else folder(store))
    if roles is None:
        return Summing(*settings)
    from lstd.distributed.tables import SummingTables

    return SummingTables(*settings, roles, bool(ordered))


def _reduced(leaf: Leaf, parts: Partitions | Iterable[Any], ordered: bool, executor: Any, client: Any) -> Part | None:
    """Part of all chunks; None without any."""
    found: Part | None
    if client is None and isinstance(parts, (list, tuple)):
        client = next((chunk.client for chunk in parts if is_future(chunk)), None)
    if executor is not None and (client is not None or isinstance(parts, Partitions)):
        raise InvalidInputError(
            "`executor` must be None where `chunks` are of Dask, which computes them; pass its client as `client`, or "
            "neither, to compute them as any collection."
        )
    if isinstance(parts, Partitions):
        found = on_graph(leaf, parts, ordered, client)
    elif client is not None:
        found = on_cluster(leaf, parts, ordered, client)
    else:
        found = on_executor(leaf, parts, ordered, local_processes if executor is None else executor)
    return found


def _tell_what_is_assumed(roles: Roles, follow: bool) -> None:
    if roles.episode is not None and roles.terminated is None:
        give_warning(
            "Nothing says which episodes terminated: every episode is taken as truncated, its last row as features "
            "only. Name a column that is 1 on the last row of episodes that ended for good, 0 elsewhere.",
            MissingTerminationWarning,
        )
    if roles.episode is None and follow:
        _LOG.warning(
            "without a column of episodes, the first row of each table is taken as the successor of the last row of "
            "the table before, unless that ended its episode"
        )


def _warn(found: Part) -> None:
    if found.assumed is not None:
        give_warning(
            f"`chunks[{found.assumed}]` has `episode` without `terminated`: every episode is taken as truncated, its "
            "last row as features only. Give `terminated`: True on the last row of episodes that ended for good, all "
            "False if none did.",
            MissingTerminationWarning,
        )
    if found.broken is not None:
        place, row = found.broken
        give_warning(
            f"`chunks[{place}]`: row {row} of `X` is not the successor that `X_next` gives the row before it, of the "
            "same episode: the trace goes on all the same, since rows are taken in time order. Give transitions that "
            "do not follow one another different ids in `episode`, or use lmbda=0.",
            BrokenEpisodeWarning,
        )
