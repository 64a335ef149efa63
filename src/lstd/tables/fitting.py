"""A model from tables: statistics summed chunk by chunk, then solved."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import lstd
from lstd._rows import Rows, check_rows
from lstd.blocks import Blocks, default_limit
from lstd.errors import InvalidInputError, MissingTerminationWarning
from lstd.fitted import Fitted
from lstd.persistence import FittedModel, Origin
from lstd.statistics import LSTDStatistics
from lstd.tables.choosing import Choice, choose
from lstd.tables.rows import Chunk, OnProgress, Roles, RowReader
from lstd.tables.sample import Sample
from lstd.tables.settings import Settings

if TYPE_CHECKING:
    from lstd.prediction import Predictor

Array = NDArray[np.float64]

SAMPLE_ENTRIES = 2**20  # features of the rows that are kept for a report, 8 MiB

_LOG = logging.getLogger("lstd")


@dataclass(frozen=True, eq=False)
class TableFit:
    """A model that was fitted to tables, and what is said of it besides.

    Attributes
    ----------
    model : FittedModel
    fitted : Fitted
        Its sums and settings.
    choice : Choice or None
        How λ and α were chosen, if they were.
    no_intervals : str
        Why the model has no intervals; empty when it has.
    sample : Sample or None
        The first rows, if they were asked for.
    """

    model: FittedModel
    fitted: Fitted
    choice: Choice | None
    no_intervals: str
    sample: Sample | None

    def estimator(self) -> Predictor:
        """The same as an estimator: an LSTD, or an LSTDCV where something was chosen."""
        from lstd.estimators import LSTD
        from lstd.model_selection import LSTDCV

        gamma, variant, intercept = self.fitted.gamma, self.fitted.variant, self.fitted.fit_intercept
        found: Predictor
        if self.choice is None:
            found = LSTD(gamma, self.model.lmbda, self.model.alpha, variant, intercept)
        else:
            found = LSTDCV(gamma, variant=variant, fit_intercept=intercept)
            selection = self.choice.selection
            found.lmbda_, found.alpha_, found.best_score_ = selection.lmbda, selection.alpha, selection.score
            found.n_folds_, found.cv_results_ = selection.n_folds, selection.results
        found.n_features_in_ = len(self.model.feature_names)
        found.feature_names_in_ = np.array(self.model.feature_names, dtype=object)
        found._fitted = self.fitted
        return found


def fit_tables(
    paths: Sequence[str],
    roles: Roles,
    settings: Settings,
    *,
    sample_entries: int = 0,
    chunk_rows: int | None = None,
    on_progress: OnProgress | None = None,
) -> TableFit:
    """Fit a model to tables, which are read as one, in the order given.

    Without a column of episodes, an episode ends where a row is flagged as terminated or truncated, and goes on
    otherwise, from file to file too. What `settings` leaves open is chosen from the first rows before.

    Parameters
    ----------
    paths : sequence of str
    roles : Roles
    settings : Settings
    sample_entries : int, default 0
        How many features of the first rows to keep.
    chunk_rows : int, optional
        Rows that are read at a time; by default as many as hold about a million features.
    on_progress : callable, optional
        Called with what is being done, and bytes done and in all.

    Raises
    ------
    InvalidInputError
        At the first bad row, when there are no transitions, or too few to choose from.

    Warns
    -----
    IllConditionedWarning
        When the system is singular or nearly so.
    MissingTerminationWarning
        When nothing says which episodes terminated: they are taken as truncated.
    """
    reader = RowReader(paths, roles, chunk_rows=chunk_rows, on_progress=on_progress)
    _tell_what_is_assumed(reader)
    choice = None
    if settings.lmbda is None or settings.alpha is None:
        choice = choose(paths, roles, settings, chunk_rows=chunk_rows, on_progress=on_progress)
        settings = replace(settings, lmbda=choice.selection.lmbda, alpha=choice.selection.alpha)
    sample = Sample(len(reader.features), len(roles.rewards), sample_entries) if sample_entries else None
    blocks = blocks_of(reader, settings, sample)
    if not blocks.total.n_transitions:
        raise InvalidInputError(
            f"{', '.join(paths)}: of {blocks.total.n_rows} rows none is followed by a row of its episode or "
            "terminates; there is nothing to fit."
        )
    assert settings.alpha is not None
    fitted = Fitted(blocks, settings.gamma, settings.alpha, settings.variant, settings.fit_intercept)
    no_intervals = _why_no_intervals(fitted)
    model = _model(fitted, reader, _origin(paths, roles, blocks.total), intervals=not no_intervals)
    return TableFit(model, fitted, choice, no_intervals, sample)


def blocks_of(reader: RowReader, settings: Settings, sample: Sample | None = None) -> Blocks:
    """Statistics of all rows, with marks; with an intercept the last feature is a column of ones.

    The first rows are added to a sample.
    """
    n, m = len(reader.features) + settings.fit_intercept, len(reader.roles.rewards)
    assert settings.lmbda is not None
    nothing = LSTDStatistics.empty(n, m, gamma=settings.gamma, lmbda=settings.lmbda, single=m == 1)
    blocks = Blocks(nothing, default_limit(n))
    for chunk in reader.chunks():
        blocks = blocks.extended(_rows(chunk, settings))
        if sample is not None:
            sample.add(chunk)
    # Within, episodes are numbered; who goes on with the stream knows them by their ids.
    first, last = reader.episodes.first, reader.episodes.last
    return replace(blocks, total=replace(blocks.total, first_episode=first, last_episode=last))


def _rows(chunk: Chunk, settings: Settings) -> Rows:
    X = np.column_stack([chunk.X, np.ones(len(chunk))]) if settings.fit_intercept else chunk.X
    y = chunk.y[:, 0] if chunk.y.shape[1] == 1 else chunk.y
    return check_rows(
        X, y, gamma=settings.gamma, episode=chunk.episode, terminated=chunk.terminated, warn=False, finite=False
    )


def _model(fitted: Fitted, reader: RowReader, origin: Origin, *, intervals: bool) -> FittedModel:
    solution, statistics = fitted.solution, fitted.statistics
    n, m = len(reader.features), len(reader.roles.rewards)
    return FittedModel(
        statistics=statistics,
        gamma=fitted.gamma, lmbda=statistics.lmbda, alpha=fitted.alpha, variant=fitted.variant,
        fit_intercept=fitted.fit_intercept,
        coef=np.ascontiguousarray(solution.weights[:n].T),
        intercept=solution.weights[n].copy() if fitted.fit_intercept else np.zeros(m),
        feature_names=reader.features, reward_names=reader.roles.rewards,
        condition_number=solution.condition_number,
        origin=origin,
        influence=fitted.influence if intervals else None,
    )  # fmt: skip


def _why_no_intervals(fitted: Fitted) -> str:
    if not fitted.blocks.limit:
        n = fitted.statistics.n_features
        return f"{n} features are too many; what each stretch of the data adds would take more than 256 MB."
    try:
        _ = fitted.influence
    except InvalidInputError as error:
        return str(error)
    return ""


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
