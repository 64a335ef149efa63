"""What the rows of a fit say against its predictions, and rows that are to be predicted beyond them.

Bounds of predictions are those of `lstd.data.reward_bounds`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lstd._kernels.ranges import any_outside
from lstd.data.doubts import (
    COMPLETED,
    FEWEST,
    MOST,
    bounds_of,
    distance,
    growing_doubt,
    little_observed,
    percent,
    sides,
    support_doubt,
)
from lstd.data.feature_arrays import Features
from lstd.data.rows import Rows, spread
from lstd.data.settings import Settings
from lstd.errors import (
    BoundsWarning,
    ExtrapolationWarning,
    InvalidInputError,
    LSTDWarning,
    SupportWarning,
    UnobservedWarning,
    warn,
)
from lstd.estimators.model import Model
from lstd.statistics.merging import LSTDStatistics
from lstd.types import Array

_ENTRIES, _ROWS = 2**18, 5000  # of the rows of a fit that are predicted
_SEVERAL = 10  # episodes that were cut off: a stream that is short says nothing about its end
_COMPARED = 2000  # rows of the fit, and rows to be predicted, whose features are looked at
_FEW = 0.02  # share of rows beyond a range that is too small for a warning


def reward_bounds(rows: Rows, settings: Settings) -> Array:
    """Return the least and the greatest value that the rewards of checked rows allow, (2, m); ±inf without a bound.

    Uncorrected and Mixed estimators take the end of the data as an end.
    """
    used: Any = True if rows.full.all() else rows.full
    least = np.array([column.min(initial=np.inf, where=used) for column in rows.y.T])  # of (T, m), it takes longer
    most = np.array([column.max(initial=-np.inf, where=used) for column in rows.y.T])
    if not rows.full.any():
        return np.stack([most, least])
    gamma = float(rows.discount.max()) if "discount" in rows.given else rows.gamma
    ends = settings.variant != "boyan" or "discount" in rows.given or bool(rows.terminated.any())
    return bounds_of(least, most, gamma, ends=ends, intercept=settings.fit_intercept)


def joint_bounds(model: Model, rows: Rows) -> Array:
    """Return the bounds by rewards of these rows and, where they are known, of the fit, (2, m)."""
    bounds, before = reward_bounds(rows, model.settings), model.bounds
    if before is None:
        return bounds
    return np.stack([np.minimum(bounds[0], before[0]), np.maximum(bounds[1], before[1])])


@np.errstate(all="ignore")  # an overflow shows as NaN, of which nothing is said
def beyond_bounds(model: Model, rows: Rows, bounds: Array) -> str:
    """Say how far predictions for checked rows are outside of bounds (2, m), and what to do; empty if they are not."""
    X = _part(rows.X, _ROWS)
    if X.shape[0] < FEWEST:
        return ""
    prediction = model.predict(X).reshape(X.shape[0], -1)
    excess = distance(prediction, bounds)
    certain = np.mean(excess**2, axis=0) / np.var(prediction, axis=0)
    j = int(np.argmax(np.nan_to_num(certain, posinf=np.inf)))
    return _text(prediction[:, j], bounds[:, j], float(certain[j])) if certain[j] > MOST else ""


def _text(prediction: Array, bounds: Array, certain: float) -> str:
    return (
        f"Predictions are outside of what the rewards allow: {sides(prediction, bounds)}. At least {percent(certain)} "
        "of their variance is error. Features that grow with time, such as totals and the age of an account, cause "
        "this where most returns were cut off; so do weights that the data do not determine, and a missing intercept. "
        'Limit the range of features, use a larger `alpha`, a smaller `gamma` or the `variant` "uncorrected", and '
        "compare models by `lstd.metrics.backtest`."
    )


def clipped(prediction: Array, model: Model) -> Array:
    """Return predictions of shape (T,) or (T, m) within what the rewards of the fit allow."""
    if model.bounds is None:
        raise InvalidInputError(
            "`clip` must be False for a model fitted to tables, chunks, statistics or by `partial_fit`, which does "
            "not know the least and greatest reward; use `numpy.clip`."
        )
    low, high = model.bounds[:, 0] if model.statistics.single else model.bounds
    return np.asarray(np.clip(prediction, low, high))


def doubted(model: Model, rows: Rows) -> Model:
    """Return the fitted model of these rows with what makes its predictions doubtful, and warn of it.

    Bounds are not compared where no weights solve the system: that was said before.
    """
    bounds = reward_bounds(rows, model.settings)
    doubts: dict[type[LSTDWarning], str] = {
        SupportWarning: support_doubt(rows, rows.importance_ratio) if "importance_ratio" in rows.given else "",
        ExtrapolationWarning: growing_doubt(rows),
        BoundsWarning: "" if model.solution.unbounded else beyond_bounds(model, rows, bounds),
        UnobservedWarning: "" if model.selection else _unobserved(rows, model.statistics),
    }
    for category, text in doubts.items():
        warn(text, category)
    said = tuple(text for text in doubts.values() if text)
    return model.with_limits(said, bounds, ranges_of(rows.X))


def _unobserved(rows: Rows, sums: LSTDStatistics) -> str:
    """Say that several episodes were cut off so early that less than half of the returns was observed."""
    cut_off = not rows.assumed and np.count_nonzero(~rows.full) >= _SEVERAL
    return little_observed(sums.observed_share, COMPLETED) if cut_off else ""


def ranges_of(X: Features) -> Array | None:
    """Return the least and the greatest value of each feature, (2, n); None for sparse features and few rows.

    Of many rows, a part is looked at; nothing is known of a feature that is constant in this part alone.
    """
    if not isinstance(X, np.ndarray) or len(X) < FEWEST:
        return None
    columns = np.ascontiguousarray(_part(X, _COMPARED).T)  # by rows, this takes seven times as long
    ranges = np.stack([columns.min(axis=1), columns.max(axis=1)])
    if columns.shape[1] < len(X):
        ranges[:, ranges[0] == ranges[1]] = [[-np.inf], [np.inf]]
    return ranges


def warn_of_ranges(model: Model, X: Features) -> None:
    """Warn if features of rows to be predicted, (T, n), are far outside of their ranges in the fit."""
    if model.ranges is None or not isinstance(X, np.ndarray) or not len(X):
        return
    if len(X) > _COMPARED:
        X = X[:: -(-len(X) // _COMPARED)]
    if not any_outside(np.ascontiguousarray(X, np.float64), model.wide_ranges):
        return
    (low, high), (least, most) = model.ranges, model.wide_ranges
    outside = np.mean((least > X) | (most < X), axis=0)
    if outside.max() <= _FEW:
        return
    worst = np.argsort(-outside, kind="stable")[: min(3, np.count_nonzero(outside > _FEW))]
    found = [
        f"{model.feature_names[j]} of {percent(outside[j])} of the rows, from {X[:, j].min():.4g} to "
        f"{X[:, j].max():.4g} ({low[j]:.4g} to {high[j]:.4g} in the fit)"
        for j in worst.tolist()
    ]
    if more := np.count_nonzero(outside > _FEW) - len(worst):
        found.append(f"and {more} more")
    warn(
        f"Features are far outside of their range in the fit: {'; '.join(found)}. "
        "Predictions continue a straight line there. Check their units, limit features to the range of the fit, or "
        "fit to rows like these.",
        ExtrapolationWarning,
    )


def _part(X: Features, most: int) -> Features:
    """Return all rows, or a part of them from all over the log: at most `most`, fewer where they have many features."""
    most = max(FEWEST, min(most, _ENTRIES // X.shape[1]))
    return X if X.shape[0] <= most else X[spread(X.shape[0], most)]
