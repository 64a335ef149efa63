"""Least and greatest value that rewards allow.

A discounted sum of rewards between a and b, which ends at some time, is at least a if a ≥ 0, else a/(1 − γ), and at
most b if b ≤ 0, else b/(1 − γ). One that never ends lies between a/(1 − γ) and b/(1 − γ). At γ = 1 only the finite side
is a bound. The true values are inside, so that the mean squared error of predictions is at least the mean of e², with e
the distance to the bounds. Predictions are doubtful if that is more than `MOST` of their variance. Models of the right
features stay below also where they are not exact, such as weighted sums for values near zero.
"""

from __future__ import annotations

import numpy as np

from lstd.types import Array

MOST, FEWEST = 0.15, 30  # share of the variance that may be certain error, and rows below which nothing is said
_ROUNDING = 1e-9  # relative to the bounds and the predictions


def bounds_of(least: Array, most: Array, gamma: float, *, ends: bool, intercept: bool) -> Array:
    """Return the least and the greatest value that rewards from `least` to `most` allow, (2, m); ±inf without a bound.

    Without an intercept, the ridge term shrinks predictions to zero, which is then within the bounds.

    Examples
    --------
    >>> import numpy as np
    >>> from lstd.data.reward_bounds import bounds_of
    >>> bounds_of(np.array([1.0]), np.array([3.0]), 0.5, ends=True, intercept=True).tolist()
    [[1.0], [6.0]]
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        far = np.divide(1.0, 1.0 - gamma)
        near = 1.0 if ends or gamma == 1.0 else far
        low, high = np.where(least < 0.0, far, near) * least, np.where(most > 0.0, far, near) * most
    return np.stack([low, high] if intercept else [np.minimum(low, 0.0), np.maximum(high, 0.0)])


@np.errstate(all="ignore")  # an overflow shows as inf or NaN
def distance(prediction: Array, bounds: Array) -> Array:
    """Return how far predictions (T, m) are outside of bounds (2, m) or (2, T, m); 0 inside and for rounding."""
    low, high = bounds
    outside = np.maximum(low - prediction, prediction - high)
    size = np.abs(prediction) + np.where(prediction < low, np.abs(low), np.where(prediction > high, np.abs(high), 0.0))
    return np.where(outside > _ROUNDING * size, outside, 0.0)


def sides(prediction: Array, bounds: Array) -> str:
    """Say of predictions (T,) which share is below and above bounds (2,) or (2, T), of which the last are shown."""
    low, high = bounds
    return " and ".join(
        f"{percent(outside.mean())} are {side} {np.ravel(bound)[-1]:.4g}, {far} {extreme:.4g}"
        for outside, side, bound, far, extreme in (
            (prediction < low, "below", low, "down to", prediction.min()),
            (prediction > high, "above", high, "up to", prediction.max()),
        )
        if outside.any()
    )


def percent(share: float) -> str:
    """Return a share of at most one with two digits.

    Examples
    --------
    >>> from lstd.data.reward_bounds import percent
    >>> percent(1.0), percent(0.0123)
    ('100 %', '1.2 %')
    """
    return f"{float(f'{100.0 * min(share, 1.0):.2g}'):g} %"
