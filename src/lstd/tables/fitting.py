"""A model from tables: statistics summed chunk by chunk, then solved."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

import lstd
from lstd._rows import check_rows
from lstd._validation import check_choice, check_real
from lstd.errors import InvalidInputError, MissingTerminationWarning
from lstd.persistence import FittedModel, Origin
from lstd.solve import Solution, solve
from lstd.statistics import VARIANTS, LSTDStatistics
from lstd.tables.rows import Chunk, OnProgress, Roles, RowReader

Array = NDArray[np.float64]

_LOG = logging.getLogger("lstd")


@dataclass(frozen=True)
class Settings:
    """Parameters of a model, as of :class:`lstd.LSTD`; raises InvalidInputError when one breaks its rule."""

    gamma: float
    lmbda: float = 0.9
    alpha: float = 1.0
    variant: str = "boyan"
    fit_intercept: bool = False

    def __post_init__(self) -> None:
        check_real("gamma", self.gamma, 0.0, 1.0)
        check_real("lmbda", self.lmbda, 0.0, 1.0)
        check_real("alpha", self.alpha, 0.0, np.inf)
        check_choice("variant", self.variant, VARIANTS)


def fit_tables(
    paths: Sequence[str],
    roles: Roles,
    settings: Settings,
    *,
    chunk_rows: int | None = None,
    on_progress: OnProgress | None = None,
) -> FittedModel:
    """Fit a model to tables, which are read as one, in the order given.

    Without a column of episodes, an episode ends where a row is flagged as terminated or truncated, and goes on
    otherwise, from file to file too.

    Parameters
    ----------
    paths : sequence of str
    roles : Roles
    settings : Settings
    chunk_rows : int, optional
        Rows that are read at a time; by default as many as hold about a million features.
    on_progress : callable, optional
        Called with what is being done, and bytes done and in all.

    Raises
    ------
    InvalidInputError
        At the first bad row, or when there are no transitions.

    Warns
    -----
    IllConditionedWarning
        When the system is singular or nearly so.
    MissingTerminationWarning
        When nothing says which episodes terminated: they are taken as truncated.
    """
    reader = RowReader(paths, roles, chunk_rows=chunk_rows, on_progress=on_progress)
    _tell_what_is_assumed(reader)
    statistics = statistics_of(reader, settings)
    if not statistics.n_transitions:
        raise InvalidInputError(
            f"{', '.join(paths)}: of {statistics.n_rows} rows none is followed by a row of its episode or terminates; "
            "there is nothing to fit."
        )
    found = _solved(statistics, settings)
    weights = found.weights[:-1] if settings.fit_intercept else found.weights
    return FittedModel(
        statistics=statistics,
        gamma=settings.gamma, lmbda=settings.lmbda, alpha=settings.alpha, variant=settings.variant,
        fit_intercept=settings.fit_intercept,
        coef=np.ascontiguousarray(weights.T),
        intercept=found.weights[-1].copy() if settings.fit_intercept else np.zeros(weights.shape[1]),
        feature_names=reader.features, reward_names=roles.rewards,
        condition_number=found.condition_number,
        origin=_origin(paths, roles, statistics),
    )  # fmt: skip


def statistics_of(reader: RowReader, settings: Settings) -> LSTDStatistics:
    """Statistics of all rows; with an intercept the last feature is a column of ones."""
    n_rewards = len(reader.roles.rewards)
    total = LSTDStatistics.empty(
        len(reader.features) + settings.fit_intercept, n_rewards, lmbda=settings.lmbda, single=n_rewards == 1
    )
    for chunk in reader.chunks():
        total = total.then(_statistics(chunk, settings))
    # Within, episodes are numbered; who goes on with the stream knows them by their ids.
    first, last = reader.episodes.first, reader.episodes.last
    return replace(total, first_episode=first, last_episode=last)


def _statistics(chunk: Chunk, settings: Settings) -> LSTDStatistics:
    X = np.column_stack([chunk.X, np.ones(len(chunk))]) if settings.fit_intercept else chunk.X
    y = chunk.y[:, 0] if chunk.y.shape[1] == 1 else chunk.y
    rows = check_rows(X, y, gamma=settings.gamma, episode=chunk.episode, terminated=chunk.terminated, warn=False)
    return LSTDStatistics.from_rows(rows, settings.lmbda)


def _solved(statistics: LSTDStatistics, settings: Settings) -> Solution:
    alpha = np.full(statistics.n_features, float(settings.alpha))
    if settings.fit_intercept:
        alpha[-1] = 0.0
    found = solve(statistics.matrix(settings.variant), statistics.b, alpha)
    if not np.isfinite(found.weights).all():
        raise InvalidInputError("the sums over the features are too large for float64; scale the features down.")
    return found


def _tell_what_is_assumed(reader: RowReader) -> None:
    roles, files = reader.roles, [table.file for table in reader.tables]
    if roles.episode is not None and roles.terminated is None:
        warnings.warn(
            "Nothing says which episodes terminated: every episode is taken as truncated, its last row as features "
            "only. Name a column that is 1 on the last row of episodes that ended for good, 0 elsewhere.",
            MissingTerminationWarning,
            stacklevel=3,
        )
    if roles.episode is None and len(files) > 1:
        _LOG.warning(
            "without a column of episodes, the first row of each file is taken as the successor of the last row of the "
            "file before, unless that ended its episode"
        )


def _origin(paths: Sequence[str], roles: Roles, statistics: LSTDStatistics) -> Origin:
    return Origin(
        files=tuple(paths),
        rows=statistics.n_rows,
        transitions=statistics.n_transitions,
        episodes=statistics.n_episodes,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        lstd=lstd.__version__,
        episode=roles.episode,
        terminated=roles.terminated,
        truncated=roles.truncated,
    )
