"""Scores of a model on the discounted returns of tables.

Tables are read in chunks. The rewards and the predictions of all rows are held in memory, about 200 bytes a row; their
features only for scores at horizons and for backtests.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from lstd.data.doubts import SELF_SCORED, little_observed
from lstd.data.returns import TOLERANCE, ObservedReturns, check_treatment, observed
from lstd.data.roles import Roles
from lstd.data.rows import Rows
from lstd.data.table import Table
from lstd.errors import BoundsWarning, InvalidInputError, UnobservedWarning, warn
from lstd.estimators.horizon_model import HorizonModel
from lstd.estimators.limits import Limits, beyond_bounds
from lstd.estimators.linear import Linear
from lstd.tables.predicting import predictions_of
from lstd.tables.reader import Chunk, RowReader, open_tables, times_of
from lstd.types import Array

if TYPE_CHECKING:
    from lstd.estimators.pair_search import OnProgress
    from lstd.metrics import Backtest


_MOST_COMPARED = 2**17  # rows, whose predictions are compared with bounds


@dataclass(frozen=True, eq=False)
class Score:
    """The score of a model on tables; m rewards.

    Attributes
    ----------
    r2 : ndarray of shape (m,)
        Share of the variance of the returns that is predicted; NaN when all returns are equal.
    mse : ndarray of shape (m,)
        Mean squared error.
    rows : int
        Rows read.
    scored : int
        Rows with a weight above zero.
    observed_share : float
        Share of the discounted weight of their returns that was observed.
    """

    r2: Array
    mse: Array
    rows: int
    scored: int
    observed_share: float


def score_tables(
    linear: Linear,
    paths: Sequence[str | Table],
    roles: Roles,
    *,
    unobserved: str = "predict",
    tolerance: float = TOLERANCE,
    chunk_rows: int | None = None,
    on_progress: OnProgress | None = None,
) -> Score:
    """Compare predictions with discounted returns, as :meth:`lstd.LSTD.score` does.

    `linear` is that of a :class:`Model`, with its settings, whose columns of ratios and discounts `roles` have.

    Raises InvalidInputError at the first bad row, when fewer than two rows are scored, or when `unobserved` has no
    answer. Warns if little was observed, and if predictions are outside of what the rewards allow.
    """
    settings = linear.settings
    assert settings is not None
    tolerance = check_treatment(unobserved, tolerance)
    if unobserved == "ipcw" and roles.next_features:
        raise InvalidInputError('`unobserved` must not be "ipcw" with features of successors; use "predict".')
    reader = RowReader(open_tables(paths, on_progress), roles, gamma=settings.gamma, chunk_rows=chunk_rows)
    files = ", ".join(table.file for table in reader.tables)
    parts = [_with_values(linear, chunk) for chunk in reader.chunks()]
    if not parts:
        raise InvalidInputError(f"{files}: there are no rows to score.")
    rows = _joined(parts)
    with np.errstate(over="ignore", invalid="ignore"):  # the scores are checked
        observed_returns = observed(rows, rows.X, rows.X_next, unobserved=unobserved, tolerance=tolerance)
    try:
        score = _score(observed_returns, rows.X)
    except InvalidInputError as error:
        raise InvalidInputError(f"{files}: {error}") from error
    if score is None:
        other = ""
        if unobserved != "predict":
            other = ', or use `unobserved="predict"`'
        n_scored = np.count_nonzero(observed_returns.weight)
        raise InvalidInputError(
            f"{files}: of {len(rows)} rows {n_scored or 'none'} can be scored, and at least 2 are needed. Give longer "
            f"episodes{other}."
        )
    warn(little_observed(observed_returns.share, SELF_SCORED), UnobservedWarning)
    limits = Limits.of_rows(rows)
    if linear.limits is not None:
        limits = replace(linear.limits, ranges=None).then(rows)
    some = rows.X[:: 1 + len(rows) // _MOST_COMPARED]
    warn(beyond_bounds(some, limits.bounds(settings)), BoundsWarning)
    return score


def _with_values(linear: Linear, chunk: Chunk) -> Rows:
    """Return rows with their predictions in place of features, which would take more memory."""
    rows = chunk.rows
    values = predictions_of(linear, chunk)
    successors = None
    if rows.X_next is not None:  # that of a terminal state may have no features
        after = predictions_of(linear, chunk._replace(rows=rows.changed(X=rows.X_next)))
        successors = np.where(rows.terminated[:, np.newaxis], 0.0, after)
    return rows.changed(X=values, X_next=successors, names=None, single=False)


def _joined(parts: Sequence[Rows]) -> Rows:
    """Return the rows of consecutive chunks, whose episodes are numbered, as one."""
    return Rows.joined(parts, episode=np.concatenate([np.asarray(rows.episode) for rows in parts]))


def _score(observed_returns: ObservedReturns, values: Array) -> Score | None:
    """Return the score of predictions (T, m); None if fewer than two rows have a weight."""
    n_scored = int(np.count_nonzero(observed_returns.weight))
    if n_scored < 2:
        return None
    r2, mse = observed_returns.scores(values)
    return Score(r2, mse, len(values), n_scored, observed_returns.share)


# ------------------------------------------------------------ scores of a number of steps


def score_horizons(
    model: HorizonModel, rows: Rows, horizons: Sequence[int], unobserved: str = "predict"
) -> Iterator[Score]:
    """Yield the score for each number of steps, as :meth:`lstd.HorizonLSTD.score`; raises as `score_tables` does."""
    check_treatment(unobserved, TOLERANCE)
    for h in horizons:
        observed_returns = model.returns(rows.changed(single=False), h, unobserved)
        score = _score(observed_returns, model.at([h]).predict(rows.X))
        if score is None:
            raise InvalidInputError(
                f"Two rows must have {h} steps to score. Give longer episodes, or a smaller number."
            )
        warn(little_observed(observed_returns.share, SELF_SCORED), UnobservedWarning)
        yield score


def backtest_tables(
    estimator: Any, rows: Rows, time: Any, names: Sequence[str], cut: Any, horizons: Sequence[int]
) -> Iterator[tuple[str, Backtest]]:
    """Yield :func:`lstd.metrics.backtest` for each reward, with its name, and number of steps."""
    from lstd.metrics import backtest  # imports scikit-learn

    columns = {**rows.arguments, "y": None, "time": time}
    for j, name in enumerate(names):
        y = np.where(rows.known, rows.y[:, j], np.nan)
        columns["y"] = y
        for h in horizons:
            yield name, backtest(estimator, **columns, cut=cut, steps=h)


def all_rows(
    tables: Sequence[str | Table], roles: Roles, gamma: float, on_progress: OnProgress | None = None
) -> tuple[Rows, Any]:
    """Return the rows of tables, with times if a column is named; raises InvalidInputError at the first bad row."""
    reader = RowReader(open_tables(tables, on_progress), roles, gamma=gamma)
    chunks = [chunk for chunk in reader.chunks() if len(chunk.rows)]
    if not chunks:
        raise InvalidInputError(f"{', '.join(table.file for table in reader.tables)}: there are no rows to score.")
    return _joined([chunk.rows for chunk in chunks]), times_of(chunks)
