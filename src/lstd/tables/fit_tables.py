"""`lstd.fit_tables`: a model of tables that need not fit in memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

from numpy.typing import ArrayLike

from lstd.data.arguments import check_columns, check_flag, check_integer, says_no_ends
from lstd.data.roles import Roles
from lstd.data.settings import ALPHA, LMBDA, SPREAD, Settings
from lstd.data.takes import Takes
from lstd.data.variants import VARIANT
from lstd.distributed.chunk_sums import LEAST_MEMORY, MEMORY
from lstd.distributed.runner import Runner
from lstd.errors import InvalidInputError, missing_extra
from lstd.statistics.blocks import check_n_blocks

if TYPE_CHECKING:
    from lstd.estimators.horizon_lstd import HorizonLSTD
    from lstd.estimators.lstd import LSTD
    from lstd.estimators.lstd_cv import LSTDCV

_TAKES = Takes(
    "fit_tables",
    (),  # beside the named arguments
    {"X_next": "Columns of successors are `next_features`.", "y": "The column of rewards is `reward`."},
)


def fit_tables(
    source: Any,
    *,
    features: str | Iterable[str] | None,
    reward: str | Iterable[str],
    gamma: float,
    episode: str | None = None,
    terminated: str | Literal[False] | None = None,
    truncated: str | None = None,
    groups: str | None = None,
    discount: str | None = None,
    importance_ratio: str | None = None,
    trace_coefficient: str | None = None,
    weight: str | None = None,
    next_features: str | Iterable[str] = (),
    time: str | None = None,
    sort: bool = False,
    lmbda: float | str = LMBDA,
    alpha: float | str = ALPHA,
    unpenalised: str | Iterable[str] = (),
    variant: str = VARIANT,
    fit_intercept: bool = True,
    n_blocks: int | str = "auto",
    n_jobs: int | None = None,
    client: Any = None,
    memory: int = MEMORY,
    independent: bool = False,
    horizon: int | None = None,
    low: float | None = None,
    high: float | None = None,
    penalty: str | ArrayLike | None = None,
    age: str | None = None,
    check: bool = True,
    **others: Any,
) -> LSTD | LSTDCV | HorizonLSTD:
    """Fit a model to tables that are read in chunks, by threads here or on a Dask cluster.

    Memory does not grow with the data. Each table is summed by itself. The model is the same to the last bit, standard
    errors included, for any number of threads and on any cluster.

    Parameters
    ----------
    source : path-like, pyarrow.dataset.Dataset, data frame, Dask DataFrame, or iterable
        Tables with a row per step, in time order: files that end in .csv, .csv.gz or .parquet; a dataset of files of
        any format, read in the order of its fragments, with the columns of its partitions; a dataset in memory; data
        frames of pandas, Polars or Arrow; a Dask DataFrame, whose partitions are tables; or functions without
        arguments, `dask.delayed` objects and futures that return a data frame. If an episode did not terminate, only
        the features of its last row are used.
    features : str, iterable of str, or None
        Columns of features; None for all columns that have no other role.
    reward : str or iterable of str
        Columns of rewards received on leaving the row; the model predicts each.
    gamma : float in [0, 1]
        Discount per row.
    episode : str, optional
        Column of episode ids. Without it an episode ends at a flagged row. An id that reappears after other episodes is
        refused.
    terminated : str or False, optional
        Column that is 1 where the episode ends for good, at value 0; else 0. False: no end was seen.
    truncated : str, optional
        Column that is 1 where an episode was cut off: on its last row, or the one before; else 0.
    groups : str, optional
        Column of ids of what episodes belong to, such as patients: no block and no fold divides a group. The rows of a
        group follow one another, also from table to table; a group that reappears after others is refused.
    discount, importance_ratio, trace_coefficient, weight : str, optional
        Columns of numbers of the transition that leaves each row, as in :meth:`lstd.LSTD.fit`. Like a reward, they may
        be missing in the last row of an episode that did not terminate.
    next_features : str or iterable of str, optional
        Columns of the features of each row's successor, in the order of `features`, or a pattern such as "next_*" in
        which * stands for the name of each feature. Every row is then a full transition.
    time : str, optional
        Column of numbers or dates that increase within each episode. It may be a feature too.
    sort : bool, default False
        Whether to sort all rows by `groups` and `episode`, in order of first appearance, and by `time`. They may take
        half of `memory`.
    unpenalised : str or iterable of str, optional
        Features without a penalty; `alpha`, given or chosen, is the ridge coefficient of the others.
    lmbda, alpha, variant, fit_intercept, n_blocks, n_jobs, client
        As in :func:`lstd.fit_chunks`, where each table is a chunk. Of files on a cluster, those rows are read in this
        process too.
    memory : int, default 2**29
        Bytes, at least 2²⁴, for the chunks read ahead, their sums, and the blocks that intervals need. Blocks take at
        most half of it for one table, an eighth for several; with too many features for that, there are no intervals.
        One chunk is read however little it is. Python and its packages, a few matrices of n² numbers for n features,
        and the pages that the Parquet reader holds come on top.
    independent : bool, default False
        Whether each table begins a new episode; ids of episodes may then occur again in other tables.
    horizon : int, optional
        Fit the rewards of the next h steps for all h up to this number, as :class:`lstd.HorizonLSTD` does, in one
        thread of this process. Arguments that it does not have must not be given. With `time`, steps must be equal.
    low, high : float, optional
        Bounds of its predictions.
    penalty : {"spread", "raw"} or array-like of shape (n_features,), optional
        Factor of its `alpha` for each feature, as in :class:`lstd.HorizonLSTD`.
    age : str, optional
        Feature of steps since the subject was first seen, as in :class:`lstd.HorizonLSTD`.
    check : bool, default True
        Whether it is checked, on rows from all over the source, the same whatever the chunks.

    Returns
    -------
    LSTD, or LSTDCV if `lmbda` or `alpha` was chosen; HorizonLSTD with `horizon`

    Raises
    ------
    InvalidInputError
        When an argument breaks a rule, a table cannot be read, or a row breaks the data contract: the message names
        the table, the column and the row.
    MissingExtraError
        When pyarrow is not installed.
    LSTDError
        As in :func:`lstd.fit_chunks`.

    Warns
    -----
    MissingTerminationWarning
        When episodes have ids and no column says which terminated.
    TerminationWarning
        When `time` is given, and nearly all subjects of the very latest time are marked as ended.
    IllConditionedWarning, RidgeWarning, EffectiveSampleWarning, UnusedRewardWarning, UnobservedWarning
        As in :meth:`lstd.LSTD.fit`.
    BoundsWarning, SupportWarning, ExtrapolationWarning
        As in :meth:`lstd.LSTD.fit`, but only the first 5000 rows are looked at, fewer of many features, and none that
        only workers of a cluster have. Limits of rewards and features are those of all rows.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import lstd
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     files = [Path(folder, f"part{i}.csv") for i in range(2)]
    ...     for file in files:
    ...         _ = file.write_text("x,r,done\\n1,1,0\\n1,1,0\\n1,1,1\\n")
    ...     model = lstd.fit_tables(files, features="x", reward="r", gamma=0.5, terminated="done", alpha=0.0)
    >>> model.n_transitions_, model.n_episodes_, model.feature_names_in_.tolist()
    (6, 2, ['x'])
    """
    _TAKES.check(others)
    runner = Runner(n_jobs, client)
    without_penalty: tuple[str, ...] = ()
    if unpenalised is not None:
        without_penalty = check_columns("unpenalised", unpenalised, least=0)
    settings = Settings.with_choice(gamma, lmbda, alpha, variant, fit_intercept, without_penalty)
    memory = check_integer("memory", memory, LEAST_MEMORY)
    independent = check_flag("independent", independent)
    n_blocks = check_n_blocks(n_blocks)
    named: dict[str, str | Literal[False] | None] = {
        "episode": episode,
        "terminated": terminated,
        "truncated": truncated,
        "groups": groups,
        "discount": discount,
        "importance_ratio": importance_ratio,
        "trace_coefficient": trace_coefficient,
        "weight": weight,
        "time": time,
    }
    roles = _roles_of(features, reward, named, next_features)
    try:
        from lstd.tables.reader import tables_of
    except ModuleNotFoundError as error:
        raise missing_extra("Reading tables", "pyarrow", "cli") from error
    sort = check_flag("sort", sort)
    if horizon is None:
        _check_without_horizon(low=low, high=high, penalty=penalty, age=age)
    else:
        _check_with_horizon(
            variant=variant != VARIANT,
            unpenalised=bool(without_penalty),
            n_jobs=n_jobs is not None,
            sort=sort,
            client=client is not None,
            independent=independent,
        )
    tables = tables_of(source, roles)
    from lstd.tables.table_fit import TableFit  # scikit-learn takes two seconds to import

    fit = TableFit(roles, settings, runner, n_blocks, memory, independent)
    if horizon is not None:
        if penalty is None:
            penalty = SPREAD
        return fit.horizon_model(tables, horizon, low=low, high=high, penalty=penalty, age=age, check=check)
    from lstd.estimators.lstd_cv import estimator_of

    if sort:
        from lstd.tables.sort_and_impute import sorted_tables

        tables = sorted_tables(tables, roles, memory, independent)
    return estimator_of(fit.model(tables))


def _roles_of(
    features: str | Iterable[str] | None,
    reward: str | Iterable[str],
    named: dict[str, str | Literal[False] | None],
    next_features: str | Iterable[str],
) -> Roles:
    """Return the roles of columns, each checked; `named` are the others, by role."""
    terminated = named["terminated"]
    if terminated is not None and says_no_ends(terminated, "the name of a column"):
        named = named | {"terminated": False}
    for role, column in named.items():
        if column is not None and column is not False:
            check_columns(role, column, several=False)
    names_of_features = None
    if features is not None:
        names_of_features = check_columns("features", features)
    names_of_next: tuple[str, ...] = ()
    none_given = isinstance(next_features, tuple) and not next_features
    if not none_given:
        names_of_next = check_columns("next_features", next_features)
    return Roles.of(names_of_features, check_columns("reward", reward), named, next_features=names_of_next)


def _check_without_horizon(*, low: object, high: object, penalty: object, age: object) -> None:
    """Refuse parameters that only a model of the next steps has."""
    if low is not None or high is not None:
        raise InvalidInputError("`low` and `high` need `horizon`. Leave them out, or use `numpy.clip`.")
    if penalty is not None:
        raise InvalidInputError("`penalty` needs `horizon`. Leave it out, or name features that are `unpenalised`.")
    if age is not None:
        raise InvalidInputError(
            "`age` needs `horizon`. Leave it out, or add columns such as exp(-age) to the features."
        )


def _check_with_horizon(**others: bool) -> None:
    """Refuse arguments that a model of the next steps does not have, if they are given."""
    for name, is_given in others.items():
        if is_given:
            raise InvalidInputError(f"`{name}` must not be given with `horizon`. Leave it out.")
