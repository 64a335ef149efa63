"""Predictions beside the returns of rows: what `score` and the report have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from lstd.data.returns import ObservedReturns, check_treatment, observed
from lstd.data.rows import Columns, Rows
from lstd.errors import InvalidInputError
from lstd.estimators.model import Model
from lstd.estimators.validate_data import checked_rows
from lstd.statistics.merging import LSTDStatistics
from lstd.types import Array


@dataclass(frozen=True, eq=False)
class Comparison:
    """Checked rows with their predictions, of shape (T, m), and returns."""

    rows: Rows
    prediction: Array
    observed: ObservedReturns

    @property
    def returns(self) -> Array:
        """Returns of shape (T, m)."""
        return self.observed.returns.reshape(self.prediction.shape)

    def r2(self, weight: Array) -> Array:
        """Compute R² of each reward over the scored rows, with these weights; raises InvalidInputError on overflow."""
        from sklearn.metrics import r2_score  # takes 0.1 s to import

        scored = self.observed.weight > 0.0
        arrays, score = (self.returns[scored], self.prediction[scored]), np.array([np.nan])
        if np.isfinite(arrays[0]).all():
            with np.errstate(over="ignore", invalid="ignore"):
                score = np.asarray(r2_score(*arrays, sample_weight=weight[scored], multioutput="raw_values"))
        if not np.isfinite(score).all():
            raise InvalidInputError(
                "`X`, `y` and `sample_weight` must not be so large that the sum of squares overflows."
            )
        return score


def compare(
    estimator: BaseEstimator,
    model: Model,
    X: Any,
    y: Any,
    columns: Columns,
    *,
    unobserved: str,
    tolerance: float,
    warn: bool,
) -> Comparison:
    """Check rows, as :func:`lstd.data.check_rows.check_rows` does, and bring them together with predictions.

    Raises InvalidInputError when an argument breaks a rule.
    """
    tolerance = check_treatment(unobserved, tolerance)
    if all(columns.get(name) is None for name in ("episode", "terminated", "X_next")):
        _check_one_stream(model.statistics)
    rows = comparable_rows(estimator, model, X, y, columns, warn=warn, finite=True)
    shape = rows.y.shape
    prediction = model.predict(rows.X).reshape(shape)
    ahead = None if rows.X_next is None else model.predict(rows.X_next).reshape(shape)
    with np.errstate(over="ignore", invalid="ignore"):  # `r2` checks the result
        returns = observed(rows, prediction, ahead, unobserved=unobserved, tolerance=tolerance)
    return Comparison(rows, prediction, returns)


def comparable_rows(
    estimator: BaseEstimator, model: Model, X: Any, y: Any, columns: Columns, **options: bool
) -> Rows:  # fmt: skip
    """Check rows as :func:`checked_rows` does, and that their returns are of the kind that the model predicts."""
    rows = checked_rows(estimator, X, y, columns, gamma=model.settings.gamma, **options)
    model.check_given(rows.given)
    m = model.statistics.n_rewards
    if rows.y.shape[1] != m:
        raise InvalidInputError(f"`y` must have the rewards that the model predicts, {m}; got {rows.y.shape[1]}.")
    return rows


def _check_one_stream(statistics: LSTDStatistics) -> None:
    """Refuse to take rows as one continuing stream if the model was fitted to anything else."""
    if statistics.n_episodes > 1:
        was = f"to {statistics.n_episodes} episodes: without them, the rows would be taken as one stream"
    elif statistics.successors:
        was = "with `X_next`: pass `X_next`, or `terminated` with all False if the rows are one continuing stream"
    else:
        return
    raise InvalidInputError(
        f"`episode` or `terminated` must be given for a model that was fitted {was}. In a Pipeline or search, "
        "route them with set_score_request."
    )
