"""LSTD(λ) over more data than one machine holds: statistics of chunks on many workers, merged in a tree.

Statistics of chunks merge exactly (:mod:`lstd._merging`), so that the model is that of the whole data beyond rounding;
and they are merged in a bracketing that depends on the number of chunks only, so that it is the same to the last bit
whatever runs them, in whatever order they finish, and whichever workers die.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lstd._validation import check_choice, check_real
from lstd._warning import warn as give_warning
from lstd.distributed.chunks import Part, Summing
from lstd.distributed.running import local_processes, on_cluster, on_executor
from lstd.errors import BrokenEpisodeWarning, InvalidInputError, MissingTerminationWarning
from lstd.statistics import VARIANTS, LSTDStatistics

if TYPE_CHECKING:
    from lstd.estimators import LSTD

__all__ = ["fit", "sum_chunks"]


def sum_chunks(
    chunks: Iterable[Any],
    *,
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
    chunks : iterable
        Of each chunk, the arrays that :meth:`lstd.LSTDStatistics.from_arrays` takes: ``(X, y)`` or a mapping of them
        by name; or what they are loaded from on the worker: the path of an .npz file with those names, or a function
        without arguments that returns a tuple or a mapping. They are asked for as workers become free.
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
        Of a Dask cluster, in place of `executor`: statistics are merged on its workers.
    store : path-like, optional
        Folder, seen by all workers under this name, in which the statistics of each chunk are kept as they are
        finished. They are found again by the chunk's place, the settings, and the content of arrays, the name, size
        and time of change of a file, or the pickle of a function: what a function reads is not looked at.

    Returns
    -------
    LSTDStatistics
        With the same bits for the same chunks, on machines of one kind.

    Raises
    ------
    InvalidInputError
        When an argument breaks a rule; when a chunk does, cannot be loaded, or does not fit the others: the message
        names it.
    OutputError
        When the store could not be written.
    LSTDError
        When workers die again and again, or a worker of an executor that was given.

    Warns
    -----
    MissingTerminationWarning, BrokenEpisodeWarning
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
    gamma, lmbda = check_real("gamma", gamma, 0.0, 1.0), check_real("lmbda", lmbda, 0.0, 1.0)
    for name, value in (("fit_intercept", fit_intercept), ("ordered", ordered)):
        if not isinstance(value, (bool, np.bool_)):
            raise InvalidInputError(f"`{name}` must be True or False; got {value!r}.")
    chunks = _checked_chunks(chunks)
    _check_workers(executor, client)
    leaf = Summing(gamma, lmbda, bool(fit_intercept), None if store is None else _prepared(store))
    if client is not None:
        found = on_cluster(leaf, chunks, bool(ordered), client)
    else:
        found = on_executor(leaf, chunks, bool(ordered), local_processes if executor is None else executor)
    if found is None:
        raise InvalidInputError("`chunks` must hold at least one chunk; got none.")
    _warn(found)
    statistics: LSTDStatistics = found.statistics
    return statistics


def fit(
    chunks: Iterable[Any],
    *,
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
    chunks, ordered, executor, client, store
        As of :func:`sum_chunks`.
    gamma, lmbda, alpha, variant, fit_intercept
        As of :class:`lstd.LSTD`. A `store` serves all values of `alpha` and `variant`.

    Returns
    -------
    LSTD
        Fitted to the merged statistics: it predicts, and goes on with `partial_fit` where chunks are `ordered`; it has
        no stretches for intervals.

    Raises
    ------
    InvalidInputError, OutputError, LSTDError
        As :func:`sum_chunks`; and when no row is a full transition.

    Warns
    -----
    IllConditionedWarning
        When the system is singular or nearly so.
    MissingTerminationWarning, BrokenEpisodeWarning
        As :func:`sum_chunks`.

    Examples
    --------
    >>> import numpy as np
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> from lstd.distributed import fit
    >>> X, y = np.ones((6, 1)), np.ones(6)
    >>> with ThreadPoolExecutor(2) as pool:
    ...     model = fit([(X[:2], y[:2]), (X[2:], y[2:])], gamma=0.5, lmbda=0.0, alpha=0.0, executor=pool)
    >>> model.predict([[1.0]])
    array([2.])
    """
    alpha = check_real("alpha", alpha, 0.0, np.inf)
    variant = check_choice("variant", variant, VARIANTS)
    statistics = sum_chunks(
        chunks, gamma=gamma, lmbda=lmbda, fit_intercept=fit_intercept, ordered=ordered, executor=executor,
        client=client, store=store,
    )  # fmt: skip
    from lstd.estimators import LSTD  # scikit-learn takes its time: workers need not wait for it

    return LSTD(gamma, lmbda, alpha, variant, fit_intercept).fit_statistics(statistics)


def _checked_chunks(chunks: Any) -> Iterable[Any]:
    if isinstance(chunks, (str, bytes, os.PathLike, dict, np.ndarray)) or not isinstance(chunks, Iterable):
        raise InvalidInputError(f"`chunks` must be a list or another iterable of chunks; got {chunks!r:.80}.")
    return chunks


def _check_workers(executor: Any, client: Any) -> None:
    if executor is not None and client is not None:
        raise InvalidInputError("`client` must not be given beside `executor`; got both. Leave one out.")
    if executor is not None and not isinstance(executor, Executor) and not callable(executor):
        raise InvalidInputError(
            f"`executor` must be a concurrent.futures.Executor or a function that makes one; got {executor!r:.80}. "
            "Pass a Dask client as `client`."
        )
    if client is not None and not (hasattr(client, "submit") and hasattr(client, "nthreads")):
        raise InvalidInputError(f"`client` must be a distributed.Client; got {client!r:.80}.")


def _prepared(store: str | os.PathLike[str]) -> str:
    """The full name of the folder, which is made if need be."""
    path = Path(os.path.abspath(store))
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or error
        raise InvalidInputError(
            f"`store` must be a folder that can be written; got {str(store)!r} ({reason})."
        ) from error
    return str(path)


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
