"""Models of data in files that need not fit in memory: the function for Python programs."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from lstd.errors import InvalidInputError, MissingExtraError

if TYPE_CHECKING:
    import pyarrow.dataset

    from lstd.estimators.lstd import LSTD
    from lstd.estimators.lstd_cv import LSTDCV
    from lstd.tables.readers import Table


def fit_files(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | pyarrow.dataset.Dataset,
    *,
    features: str | Iterable[str] | None,
    reward: str | Iterable[str],
    gamma: float,
    episode: str | None = None,
    terminated: str | None = None,
    truncated: str | None = None,
    lmbda: float | None = 0.9,
    alpha: float | None = 1.0,
    variant: str = "boyan",
    fit_intercept: bool = False,
    n_jobs: int | None = None,
    memory: int = 2**29,
    independent: bool = False,
) -> LSTD | LSTDCV:
    """Fit a model to tables in files, or to a dataset of pyarrow, which are read in chunks.

    Statistics are summed chunk by chunk: memory does not grow with the data, and the model is the same to the last bit
    for any number of jobs.

    Parameters
    ----------
    paths : path-like, iterable of path-like, or pyarrow.dataset.Dataset
        Files that end in .csv, .csv.gz or .parquet, read in this order, or a dataset of files of any format or of data
        in memory, read in the order of its fragments; columns of its partitions are columns too. A row per step, in
        time order; the last row of an episode that did not terminate counts by its features only.
    features : str, iterable of str, or None
        Columns of features; None takes all that have no other role.
    reward : str or iterable of str
        Columns of rewards received on leaving the row; the model predicts each.
    gamma : float in [0, 1]
        Discount per row.
    episode : str, optional
        Column of episode ids. Without it an episode ends at a row that is flagged.
    terminated : str, optional
        Column that is 1 where the episode ends for good, at value 0; else 0.
    truncated : str, optional
        Column that is 1 where an episode was cut off: on its last row, or the one before; else 0.
    lmbda : float in [0, 1], or None, default 0.9
        Trace decay; None has it chosen by cross-validation on the first rows.
    alpha : float, at least 0, or None, default 1.0
        Ridge coefficient; None has it chosen likewise.
    variant : {"boyan", "uncorrected", "mixed"}, default "boyan"
    fit_intercept : bool, default False
    n_jobs : int, optional
        Threads, the calling one among them, which reads while others convert and sum; by default as many as there are
        cores.
    memory : int, default 2**29
        Bytes, at least 2²⁴, that bound the chunks which are read ahead, their sums, and what is kept for intervals
        (half of it at most; a model with many features has none when that is too little). A chunk has a place always.
        On top come a few matrices of n² numbers for n features, what Python and its packages take, what allocators
        keep, and what the reader of Parquet holds, a page of every column: with many columns, files of small row
        groups need less. None of it grows with the number of rows. A dataset that is filtered is read a row group at
        a time, and each file of a dataset takes a few kB.
    independent : bool, default False
        No episode goes on from one file to the next, and ids may come again in other files. Not for a dataset that is
        filtered or in memory.

    Returns
    -------
    LSTD, or LSTDCV where something was chosen

    Raises
    ------
    InvalidInputError
        When an argument breaks a rule, a file cannot be read, or a row breaks the data contract: the message names it.
    MissingExtraError
        When pyarrow is not installed.

    Warns
    -----
    MissingTerminationWarning
        When episodes have ids, and nothing says which terminated.
    IllConditionedWarning
        When the system is singular or nearly so.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import lstd
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     files = [Path(folder, f"part{i}.csv") for i in range(2)]
    ...     for file in files:
    ...         _ = file.write_text("x,r,done\\n1,1,0\\n1,1,0\\n1,1,1\\n")
    ...     model = lstd.fit_files(files, features="x", reward="r", gamma=0.5, terminated="done", alpha=0.0)
    >>> model.n_transitions_, model.n_episodes_
    (6, 2)
    >>> model.coef_.shape
    (1,)
    """
    for name, value in (("fit_intercept", fit_intercept), ("independent", independent)):
        if not isinstance(value, (bool, np.bool_)):
            raise InvalidInputError(f"`{name}` must be True or False; got {value!r}.")
    for name, column in (("episode", episode), ("terminated", terminated), ("truncated", truncated)):
        if column is not None and not isinstance(column, str):
            raise InvalidInputError(f"`{name}` must be the name of a column, or None; got {column!r:.80}.")
    columns = None if features is None else _several("features", features, (str,))
    rewards = _several("reward", reward, (str,))
    if truncated is not None and terminated is None:
        raise InvalidInputError(
            "`truncated` goes with `terminated` only: what is not said to be truncated may have terminated or not."
        )
    files = _files(paths, bool(independent))
    from lstd.data.settings import Settings
    from lstd.estimators.loading import estimator_of
    from lstd.tables.fitting import fit_tables
    from lstd.tables.row_reader import Roles

    roles = Roles(columns, rewards, episode, terminated, truncated)
    settings = Settings.with_choice(gamma, lmbda, alpha, variant, bool(fit_intercept))
    model, _ = fit_tables(files, roles, settings, n_jobs=n_jobs, memory=memory, independent=bool(independent))
    return estimator_of(model)


def _files(paths: Any, independent: bool) -> tuple[str, ...] | list[Table]:
    """Paths as texts, or the tables of a dataset."""
    if hasattr(paths, "__arrow_c_stream__") or hasattr(paths, "__arrow_c_array__"):
        raise InvalidInputError(
            f"`paths` must be paths or a pyarrow.dataset.Dataset; got rows in memory, of type {type(paths).__name__}. "
            "Fit an estimator to `lstd.Trajectories.from_frame` of them."
        )
    try:
        import pyarrow
    except ImportError as error:
        raise MissingExtraError(
            'Reading tables needs the package pyarrow. Install it with: pip install "lstd[cli]"'
        ) from error
    if type(paths).__module__.partition(".")[0] == "pyarrow":  # others need not wait for the import
        import pyarrow.dataset

        if isinstance(paths, pyarrow.dataset.Dataset):
            from lstd.tables.datasets import dataset_tables

            return dataset_tables(paths, independent=independent)
    return _several("paths", paths, (str, os.PathLike))


def _several(name: str, value: Any, kinds: Any) -> tuple[str, ...]:
    """One or several names as a tuple of texts."""
    if isinstance(value, (set, frozenset)):
        raise InvalidInputError(f"`{name}` must have an order; got a {type(value).__name__}. Give a list.")
    one_alone = isinstance(value, (bytes, *kinds)) or not isinstance(value, Iterable)
    values: list[Any] = [value] if one_alone else [*value]
    texts: list[str] = []
    for one in values:
        text: Any = os.fspath(one) if isinstance(one, kinds) else None
        if not isinstance(text, str):
            raise InvalidInputError(
                f"`{name}` must be a name or several; got {one!r:.80} of type {type(one).__name__}."
            )
        texts.append(text)
    if not texts:
        raise InvalidInputError(f"`{name}` must name at least one; got none.")
    return tuple(texts)
