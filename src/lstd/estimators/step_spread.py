"""The variance of the rewards of the next h steps about their expected sum, from rows that were held out.

Let v_h be predictions of the rows of each fold by weights from the other folds, v_0 = 0, and δ_{t,h} = r_{t+1} +
γ_{t+1} v_{h−1}(x_{t+1}) − v_h(x_t) their TD errors. If the predictions are right, the errors of one path do not go
together, so that

    V_{t,h} = δ²_{t,h} + γ²_{t+1} V_{t+1,h−1},   V_{t,h} = φ_tᵀ u_h in a horizon row,   nothing after a terminal state,

has the variance of the sum as its expected value (direct variance: Sherstan et al. 2018, arXiv 1801.08287). u_h are the
weights of the ridge regression of V_h on the features, with the ridge coefficients of the model. The variance is at
least a twentieth of its mean, where a straight line would go below, and its sum over the rows is that of V.

Where features hide what customers keep, the TD errors of one path go together. Let E and W be the sums of Γ δ and Γ² δ²
over the k steps that were observed, with k effective steps, (ΣΓ)²/ΣΓ². If any two errors of a path have the correlation
ρ, E² has the expected value W (1 + ρ (k − 1)). So

    ρ = Σ (E² − W) / Σ (k − 1) W,   factor = 1 + ρ Σ (K − 1) V / Σ V,

with sums over rows and K the steps that V reaches over, those behind a cut included. The factor is taken as far from 1
as chance does not explain. Below 1, it is Σ E² / Σ W.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lstd.data.feature_arrays import Features, dense
from lstd.data.rows import Rows
from lstd.estimators.folds import are_whole, times_weights
from lstd.statistics.intervals import degrees_of_freedom, power_of_two
from lstd.statistics.solve import check_range
from lstd.statistics.system import System
from lstd.types import Array

FLOOR = 0.05  # of the mean variance, below which no variance is


@dataclass(frozen=True, eq=False)
class StepSpread:
    """The variance of the sum of the rewards of the next h steps, for all h up to H; n features, m rewards.

    Attributes
    ----------
    weights : ndarray of shape (H, n, m)
        Weights u of the variance, of the features with the column of ones, times a factor.
    floor : ndarray of shape (H, m)
        Least variance.
    freedom : ndarray of shape (m,)
        Degrees of freedom of the estimated variances.
    """

    weights: Annotated[Array, "H k m"]
    floor: Annotated[Array, "H m"]
    freedom: Annotated[Array, "m"]

    def check_read(self) -> None:
        """Refuse numbers of a file that are no variances or degrees of freedom."""
        if not ((self.floor >= 0.0).all() and (self.freedom > 0.0).all()):
            raise ValueError(self.floor)

    def variance(self, columns: Features, h: int, *, intercept: bool) -> Array:
        """Return the variances of the sums of h steps, (T, m), of columns without that of ones."""
        weights = self.weights[h - 1]
        n = len(weights) - intercept
        with np.errstate(over="ignore", invalid="ignore"):
            variance = np.asarray(columns @ weights[:n]) + weights[n:].sum(axis=0)
        check_range(variance)
        return np.asarray(np.maximum(variance, self.floor[h - 1]))


class Held(NamedTuple):
    """Rows in folds, and what predictions and regressions on them need; n features with the column of ones."""

    rows: Rows  # with the columns of the predictions
    centred: Features  # (T, n), with the columns of the regression
    places: list[slice]  # of the folds
    theta: list[Array]  # (H, n, m) of the predictions of each fold
    system: System  # of the regression on the rows

    def curve(self) -> Iterator[Array]:
        """Yield the predictions (T, m) for 1, 2, …, H steps."""
        for h in range(len(self.theta[0])):
            values = [self.rows.X[place] @ theta[h] for place, theta in zip(self.places, self.theta, strict=True)]
            yield np.asarray(np.concatenate(values))


class _Paths(NamedTuple):
    """Sums along the path of each row, over steps that were observed and, of V and K, also behind a cut."""

    error: Array  # E, (T, m)
    squares: Array  # W, (T, m)
    variance: Array  # V, (T, m)
    discounts: Array  # ΣΓ and ΣΓ² over steps that were observed, (T, 2)
    reach: Array  # the same with those behind a cut, (T, 2)


def spread_of(held: Held) -> StepSpread:
    """Estimate the variances of the sums of all numbers of steps."""
    rows = held.rows
    weight = rows.weight * rows.full
    horizon = len(held.theta[0])
    group = independent_groups(rows, horizon)
    weighted = times_weights(held.centred, weight)

    weights = []
    floors = []
    T, m = rows.y.shape
    nothing = np.zeros((T, m))
    paths = _Paths(nothing, nothing, nothing, np.zeros((T, 2)), np.zeros((T, 2)))
    before = nothing  # predictions for a step less
    to_go = np.zeros(2)  # ΣΓ and ΣΓ² over the steps
    with np.errstate(over="ignore", invalid="ignore"):
        for values in held.curve():
            to_go = 1.0 + np.array([rows.gamma, rows.gamma**2]) * to_go
            paths = _one_step_more(rows, paths, values, before)
            before = values
            along = dense(weighted.T @ paths.variance)
            check_range(along)
            u = held.system.solve(along).weights
            mean = weight @ paths.variance / weight.sum()
            fitted = np.maximum(np.asarray(held.centred @ u), FLOOR * mean)
            paths = _completed_at_cuts(rows, paths, fitted, to_go)

            level = mean / np.where(mean > 0.0, weight @ fitted / weight.sum(), 1.0)
            factor = level * _factor(paths, weight, group)
            weights.append(factor * u)
            floors.append(FLOOR * factor * mean)
        freedom = _freedom(paths.variance, weight, group)
    return StepSpread(np.array(weights), np.array(floors), freedom)


def _one_step_more(rows: Rows, paths: _Paths, values: Array, before: Array) -> _Paths:
    """Return the sums for one step more, zero in horizon rows, from predictions `before` and after that step."""
    full = rows.full[:, np.newaxis]
    discount = np.where(rows.last, 0.0, rows.discount)[:, np.newaxis]
    squared = discount**2

    def later(sums: Array) -> Array:
        """Return the sums of the next row."""
        return np.vstack([sums[1:], sums[:1]])

    error = rows.y + discount * later(before) - values
    discounts = np.hstack([discount, squared])
    return _Paths(
        error=np.where(full, error + discount * later(paths.error), 0.0),
        squares=np.where(full, error**2 + squared * later(paths.squares), 0.0),
        variance=np.where(full, error**2 + squared * later(paths.variance), 0.0),
        discounts=np.where(full, 1.0 + discounts * later(paths.discounts), 0.0),
        reach=np.where(full, 1.0 + discounts * later(paths.reach), 0.0),
    )


def _completed_at_cuts(rows: Rows, paths: _Paths, fitted: Array, to_go: Array) -> _Paths:
    """Return the sums with the fitted variances (T, m) and all steps that are left, `to_go`, in horizon rows."""
    full = rows.full[:, np.newaxis]
    return paths._replace(
        variance=np.where(full, paths.variance, fitted),
        reach=np.where(full, paths.reach, to_go),
    )


def _factor(paths: _Paths, weight: Array, group: NDArray[np.intp]) -> Array:
    """Return the factor of the variances, (m,), for errors of one path that go together."""
    cross = (_effective(paths.discounts) - 1.0)[:, np.newaxis] * paths.squares  # (k − 1) W: products of errors at ρ = 1
    cross_reached = (_effective(paths.reach) - 1.0)[:, np.newaxis] * paths.variance  # (K − 1) V
    excess = paths.error**2 - paths.squares
    factors = []
    for j in range(excess.shape[1]):
        by_group = np.column_stack([np.bincount(group, weight * sums[:, j]) for sums in (excess, cross)])
        total_excess, total_cross = by_group.sum(axis=0)
        whole = weight @ paths.variance[:, j]
        observed = weight @ paths.squares[:, j]
        if not (total_cross > 0.0 and whole > 0.0 and observed > 0.0):
            factors.append(1.0)
            continue
        correlation = total_excess / total_cross
        per_correlation = weight @ cross_reached[:, j] / whole
        if correlation < 0.0:
            per_correlation = total_cross / observed
        unit = power_of_two(total_cross)  # so that no square is out of range
        left = (by_group[:, 0] - correlation * by_group[:, 1]) / unit
        error = np.sqrt(np.sum(left**2)) / (total_cross / unit)
        factors.append(beyond_chance(1.0 + correlation * per_correlation, (error * per_correlation) ** 2))
    return np.array(factors)


def _effective(discounts: Array) -> Array:
    """Return the effective number of steps, (ΣΓ)²/ΣΓ², from both sums, (T, 2); at least 1."""
    square = np.where(discounts[:, 1] > 0.0, discounts[:, 1], 1.0)
    return np.asarray(np.maximum(discounts[:, 0] ** 2 / square, 1.0))


def _freedom(variance: Array, weight: Array, group: NDArray[np.intp]) -> Array:
    """Return the degrees of freedom, (m,), of variances that are estimated from what groups contribute."""
    of_groups = np.bincount(group, weight).astype(np.float64)
    has_weight = of_groups > 0.0
    shares = of_groups[has_weight] / of_groups.sum()
    contributed = [np.bincount(group, weight * column)[has_weight] for column in variance.T]
    by_group: Array = np.column_stack(contributed).astype(np.float64)
    freedom = degrees_of_freedom(by_group[np.newaxis], shares)
    return np.asarray(freedom[0])


def beyond_chance(factor: float, squared_error: float) -> float:
    """Return a factor as far from 1 as chance does not explain; the error is its standard error."""
    if (factor - 1.0) ** 2 > squared_error:
        return factor - squared_error / (factor - 1.0)
    return 1.0


def independent_groups(rows: Rows, length: int) -> NDArray[np.intp]:
    """Number the groups of rows, (T,), or the episodes without groups; in a stream, blocks of so many rows."""
    if are_whole(rows) or rows.begins.sum() > 1:
        return np.asarray(np.cumsum(rows.begins) - 1)
    return np.arange(len(rows)) // length
