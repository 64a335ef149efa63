"""What the rows of a fit say against its predictions, and rows to be predicted beyond what the fit has seen.

Every warning that needs rows is given here; those that the sums decide are given by :class:`Model`. Bounds of
predictions are those of `lstd.data.doubts`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lstd._kernels.scales import any_outside
from lstd.data.doubts import FEWEST, MOST, MOST_OF_SPREAD, distance, growing_doubt, percent, sides, support_doubt
from lstd.data.feature_arrays import Features
from lstd.data.rows import COMPARED, Rows
from lstd.errors import BoundsWarning, ExtrapolationWarning, InvalidInputError, RidgeWarning, SupportWarning, warn
from lstd.estimators.model import Model
from lstd.statistics.ridge_warning import scales_doubt
from lstd.types import Array

_FEW = 0.02  # share of rows beyond a range that is too small for a warning


@np.errstate(all="ignore")  # an overflow shows as NaN, of which nothing is said
def beyond_bounds(
    prediction: Array, bounds: Array | None, remedy: str = 'a smaller `gamma` or the `variant` "uncorrected"'
) -> str:  # fmt: skip
    """Say how far predictions (T, m) are outside of bounds (2, m), and what to do; empty if they are not."""
    if len(prediction) < FEWEST or bounds is None:
        return ""
    excess, spread = distance(prediction, bounds), np.std(prediction, axis=0)
    certain = np.mean(excess**2, axis=0) / spread**2
    due = (certain > MOST) | (np.mean(excess, axis=0) / spread > MOST_OF_SPREAD)
    if not due.any():
        return ""
    j = int(np.argmax(np.where(due, certain, -1.0)))
    return (
        f"Predictions are outside of what the rewards allow: {sides(prediction[:, j], bounds[:, j])}. At least "
        f"{percent(float(certain[j]))} of their variance is error. Features that grow with time, such as totals and "
        "the age of an account, cause this where most returns were cut off; so do weights that the data do not "
        "determine, and a missing intercept. Limit the range of features, use a larger `alpha`, "
        f"{remedy}, and compare models by `lstd.metrics.backtest`."
    )


def clipped(prediction: Array, model: Model) -> Array:
    """Return predictions of shape (T,) or (T, m) within what the rewards of the fit allow."""
    if model.bounds is None:
        raise InvalidInputError(
            "`clip` must be False for a model fitted to chunks or statistics, which does not know the least "
            "and greatest reward; use `numpy.clip`."
        )
    low, high = model.bounds[:, 0] if model.statistics.single else model.bounds
    return np.asarray(np.clip(prediction, low, high))


def doubted(model: Model, rows: Rows) -> Model:
    """Return the fitted model of these rows with what makes its predictions doubtful, and warn of it.

    Bounds are not compared where no weights solve the system: that was said before.
    """
    part = rows.part[:0] if model.solution.unbounded else rows.part
    predictions = model.predict(part).reshape(part.shape[0], model.statistics.n_rewards)
    found = {
        SupportWarning: _support(model, rows) if "importance_ratio" in rows.given else "",
        ExtrapolationWarning: growing_doubt(rows),
        BoundsWarning: beyond_bounds(predictions, model.bounds),
        RidgeWarning: scales_doubt(rows, model.ridge[: model.n_features], model.settings.fit_intercept),
    }
    for category, text in found.items():
        warn(text, category)
    return model.changed(said=(*model.said, *filter(None, found.values())), compared=True)


def _support(model: Model, rows: Rows) -> str:
    """Say where the mean importance ratio is not one, also by predicted value; empty if it is."""
    known = rows.single and not model.solution.unbounded
    return support_doubt(rows, rows.importance_ratio, model.predict(rows.X) if known else None)


def growing(model: Model, rows: Rows) -> Model:
    """Return the model of a stream with what its next rows say of features, once each, and warn of it.

    Scales are those of the first rows.
    """
    if len(rows) < FEWEST:
        return model
    ridge = model.ridge[: model.n_features if model.statistics.n_rows <= len(rows) else 0]
    found = {
        ExtrapolationWarning: growing_doubt(rows),
        RidgeWarning: scales_doubt(rows, ridge, model.settings.fit_intercept),
    }
    new = {category: text for category, text in found.items() if text and text not in model.said}
    for category, text in new.items():
        warn(text, category)
    return model.changed(said=(*model.said, *new.values())) if new else model


def warn_beyond(model: Any, X: Features, prediction: Array | None = None) -> None:
    """Warn if features to be predicted, (T, n), are far outside of their ranges in the fit, or predictions of bounds.

    Predictions are compared if those of the rows of the fit were not.
    """
    limits = model.limits
    if limits is None or not X.shape[0]:
        return
    if not model.compared and prediction is not None and len(prediction) >= FEWEST:
        warn(beyond_bounds(prediction.reshape(len(prediction), -1), model.bounds), BoundsWarning)
    wide = limits.wide
    if wide is None or not isinstance(X, np.ndarray):
        return
    if len(X) > COMPARED:
        X = X[:: -(-len(X) // COMPARED)]
    if any_outside(np.ascontiguousarray(X, np.float64), wide):
        warn(_outside(model, X, limits.ranges, wide), ExtrapolationWarning)


def _outside(model: Model, X: Array, ranges: Array | None, wide: Array) -> str:
    """Say which features are outside of wide ranges in more than a few rows; empty if none are."""
    assert ranges is not None
    outside = np.mean((wide[0] > X) | (wide[1] < X), axis=0)
    far = np.count_nonzero(outside > _FEW)
    if not far:
        return ""
    found = [
        f"{model.feature_names[j]} of {percent(outside[j])} of the rows, from {X[:, j].min():.4g} to "
        f"{X[:, j].max():.4g} ({ranges[0, j]:.4g} to {ranges[1, j]:.4g} in the fit)"
        for j in np.argsort(-outside, kind="stable")[: min(3, far)].tolist()
    ]
    more = f"; and {far - 3} more" if far > 3 else ""
    return (
        f"Features are far outside of their range in the fit: {'; '.join(found)}{more}. "
        "Predictions continue a straight line there. Check their units, limit features to the range of the fit, or "
        "fit to rows like these."
    )
