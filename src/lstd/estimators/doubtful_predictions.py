"""Predictions of a fitted model outside of what the rewards allow; see `lstd.data.reward_bounds`."""

from __future__ import annotations

import numpy as np

from lstd.data.check_features import Features
from lstd.data.reward_bounds import FEWEST, MOST, bounds_of, distance, percent, sides
from lstd.data.rows import Rows
from lstd.data.settings import Settings
from lstd.errors import BoundsWarning, warn
from lstd.estimators.model import Model
from lstd.types import Array

_ENTRIES, _ROWS = 2**20, 20_000  # features and rows, evenly spaced, of which predictions are compared


def reward_bounds(rows: Rows, settings: Settings) -> Array:
    """Return the least and the greatest value that the rewards of checked rows allow, (2, m); ±inf without a bound.

    Uncorrected and Mixed estimators take the end of the data as an end.
    """
    full = rows.full
    if not full.any():
        return np.array([[-np.inf], [np.inf]]) * np.ones(rows.y.shape[1])
    rewards = rows.y if full.all() else rows.y[full]
    gamma = float(rows.discount.max()) if "discount" in rows.given else rows.gamma
    ends = settings.variant != "boyan" or "discount" in rows.given or bool(rows.terminated.any())
    least, most = rewards.min(axis=0), rewards.max(axis=0)
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
    n = model.n_features
    X: Features = rows.X[:: max(1, -(-len(rows) // max(FEWEST, min(_ROWS, _ENTRIES // n))))]
    if X.shape[0] < FEWEST:
        return ""
    prediction = model.predict(X if X.shape[1] == n else X[:, :n]).reshape(X.shape[0], -1)
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


def doubted(model: Model, rows: Rows) -> Model:
    """Return the fitted model of these rows with what makes its predictions doubtful, and warn of it."""
    bounds = reward_bounds(rows, model.settings)
    text = beyond_bounds(model, rows, bounds)
    if text:
        warn(text, BoundsWarning)
    return model.with_doubts((text,) * bool(text), bounds)
