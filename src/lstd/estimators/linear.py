"""A fitted linear function of the features, and how sure it is.

Predictions, intervals, contributions and the warnings about rows that are unlike those of the fit need no more of a
model than this. :class:`lstd.estimators.model.Model` and :class:`lstd.estimators.horizon_model.HorizonModel` give it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from lstd._kernels.scales import any_outside
from lstd.data.age_columns import AgeColumns
from lstd.data.doubts import FEWEST, percent
from lstd.data.feature_arrays import Features, product
from lstd.data.rows import COMPARED
from lstd.data.settings import Settings
from lstd.errors import BoundsWarning, ExtrapolationWarning, InvalidInputError, unsaid, warn_once
from lstd.estimators.limits import Limits, beyond_bounds, far_beyond_bounds, is_material
from lstd.statistics.intervals import MEAN, RETURN, Influence, Interval, Noise, summed
from lstd.types import Array, Flags

_FEW = 0.02  # share of rows beyond a range that is too small for a warning
_MOST_NAMED = 3  # features that a warning names


class Points(NamedTuple):
    """Rows, or a weighted sum of them, to predict for."""

    columns: Features  # (T, n)
    values: Array  # (T, k), the predictions
    ones: float  # entry of the column of ones


@dataclass(frozen=True, eq=False)
class Linear:
    """A fitted linear function, φᵀ coef + intercept; n features, k values a row (of rewards, or of horizons).

    Rows have their features as they are given. With an age, the columns that replace it are made of them, and n is the
    number of these.

    Attributes
    ----------
    coef : ndarray of shape (n,) or (k, n)
        One-dimensional if values have shape (T,).
    intercept : float or ndarray of shape (k,)
    names : tuple of str, or None
        Names of the features as they are given, if they have any.
    rewards : tuple of str
        Names of the k values.
    find_influence : callable
        Returns the influence of blocks on these weights, which takes long to compute; raises InvalidInputError if there
        is none.
    unseen : ndarray of bool of shape (n,), optional
        Features on whose weights no data bears.
    limits : Limits, optional
        Ranges of the rewards and features of the fit, if known.
    settings : Settings, optional
        Settings of the fit, with which rewards bound values.
    compared : bool
        Whether the fit compared predictions for its own rows with `bounds`.
    has_ones : bool
        Whether the fit has a column of ones, whose weight is the intercept.
    low, high : float or ndarray of shape (k,), optional
        Ends of the range to which predictions are limited.
    age : AgeColumns, optional
        The columns that replace the age.
    steps : tuple of int
        Number of steps that each window of values sums over; empty for all that is still to come.
    find_noise : callable, optional
        Returns how returns scatter about predictions, from columns (T, n) and predictions (T, k) that no range limits;
        raises InvalidInputError if it is not known.
    """

    coef: Array
    intercept: float | Array
    names: tuple[str, ...] | None
    rewards: tuple[str, ...]
    find_influence: Callable[[], Influence]
    unseen: Flags | None = None
    limits: Limits | None = None
    settings: Settings | None = None
    compared: bool = True
    has_ones: bool = False
    low: float | Array | None = None
    high: float | Array | None = None
    age: AgeColumns | None = None
    steps: tuple[int, ...] = ()
    find_noise: Callable[[Features, Array], Noise] | None = None

    @property
    def n_features(self) -> int:
        """Number of features, n."""
        return int(self.coef.shape[-1])

    @property
    def single(self) -> bool:
        """Whether values have shape (T,)."""
        return self.coef.ndim == 1

    @property
    def weights(self) -> Array:
        """Weights of the columns, (n, k), or (n + 1, k) with those of the column of ones in the last row."""
        of_columns = self.coef.reshape(-1, self.n_features).T
        if not self.has_ones:
            return of_columns
        return np.vstack([of_columns, np.atleast_1d(self.intercept)])

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features as they are given; x0, x1, … if they have none."""
        if self.names is not None:
            return self.names
        n = self.n_features
        if self.age is not None:
            n = self.age.n_given
        return tuple(f"x{i}" for i in range(n))

    @property
    def bounds(self) -> Array | None:
        """Least and greatest value that the rewards of the fit allow, (2, k); None if they are not known."""
        if self.limits is None or self.settings is None:
            return None
        if self.steps:
            return np.hstack([self.limits.bounds(self.settings, n) for n in self.steps])
        return self.limits.bounds(self.settings)

    @property
    def influence(self) -> Influence:
        """Influence of each block of the data on the weights; raises InvalidInputError if there is none."""
        return self.find_influence()

    @property
    def no_intervals(self) -> str:
        """Why there are no intervals; empty if there are."""
        try:
            self.find_influence()
        except InvalidInputError as error:
            return str(error)
        return ""

    # ------------------------------------------------------------ values

    def predict(self, phi: Features) -> Array:
        """Predict values, (T,) or (T, k), from features; refuse those that are not finite."""
        return self.limited(self._values(self.columns(phi)))

    def columns(self, phi: Features) -> Features:
        """Return the columns (T, n) that have weights, from features as they are given."""
        if self.age is None:
            return phi
        return self.age.columns(phi, self.names)

    def unchecked(self, phi: Features) -> Array:
        """Return values, (T,) or (T, k), infinite or NaN where they overflow; the range does not limit them yet."""
        with np.errstate(over="ignore", invalid="ignore"):
            values: Array = self.columns(phi) @ self.coef.T + self.intercept
        return values

    def _values(self, columns: Features) -> Array:
        """Return values, (T,) or (T, k), from columns (T, n)."""
        return product("X", columns, self.coef.T, self.intercept, self.names)

    def _values_2d(self, columns: Features) -> Array:
        """Return values, (T, k), from columns (T, n)."""
        return self._values(columns).reshape(columns.shape[0], len(self.rewards))

    @property
    def is_bounded(self) -> bool:
        """Whether predictions are limited to a range."""
        return self.low is not None or self.high is not None

    def limited(self, values: Array) -> Array:
        """Return predictions, or ends of intervals, within the range from `low` to `high`."""
        if not self.is_bounded:
            return values
        return np.clip(values, self.low, self.high)

    def clipped(self, values: Array) -> Array:
        """Return predictions, (T,) or (T, k), within what the rewards of the fit allow."""
        bounds = self.bounds
        if bounds is None:
            raise InvalidInputError(
                "`clip` must be False for a model fitted to chunks or statistics, which does not know the least "
                "and greatest reward; use `numpy.clip`."
            )
        low, high = bounds
        if self.single:
            return np.clip(values, low[0], high[0])
        return np.clip(values, low, high)

    # ------------------------------------------------------------ intervals

    def along(self, phi: Features, weights: ArrayLike | None) -> Points:
        """Return what influences are multiplied by, of rows or of their weighted sum."""
        columns = self.columns(phi)
        return Points(*summed(columns, self._values_2d(columns), weights))

    def standard_error(self, phi: Features) -> Array:
        """Compute the standard errors of values, (T, k), from features."""
        return self.influence.standard_error(self.columns(phi))

    def interval(
        self,
        phi: Features,
        level: float,
        weights: ArrayLike | None = None,
        scale: str = "identity",
        of: str = MEAN,
    ) -> Interval:
        """Compute intervals for values, arrays of shape (T,) or (T, k), from finite features.

        With `weights` (T,), compute one interval for the weighted sum of the values: numbers, or arrays of shape (k,).
        The range from `low` to `high` does not limit the prediction of a sum. They are `of` the expected returns,
        "mean", or of the returns that come, "return"; the ends of the latter stay within the sums of the range of rows.
        """
        influence = self.influence
        noise = None
        if of == RETURN:
            noise = self.noise(phi).summed(weights)
        phi, values, ones = self.along(phi, weights)
        if weights is None:
            values = self.limited(values)
        interval = influence.interval(phi, values, level, ones=ones, scale=scale, noise=noise)
        if weights is None:
            lower = self.limited(interval.lower)
            upper = self.limited(interval.upper)
            interval = replace(interval, lower=lower, upper=upper)
        elif of == RETURN and self.is_bounded:
            interval = self._within_sums(interval, np.asarray(weights, dtype=np.float64))
        if self.unseen is not None and self.unseen.any():
            is_unseen = phi[:, self.unseen] != 0.0
            n_unseen = np.asarray(is_unseen.sum(axis=1))
            without_data = n_unseen.reshape(-1, 1) > 0
            interval = replace(interval, little_data=interval.little_data | without_data)
        return interval.at(self.place(weights))

    def _within_sums(self, interval: Interval, weights: Array) -> Interval:
        """Return the interval of a weighted sum with ends within the sums of `low` and `high`, but for its prediction.

        A row with a negative weight has its least share where its return is greatest.
        """
        gains = weights[weights > 0.0].sum()
        losses = weights[weights < 0.0].sum()
        low = -np.inf if self.low is None else self.low
        high = np.inf if self.high is None else self.high
        lowest = _share(gains, low) + _share(losses, high)
        highest = _share(gains, high) + _share(losses, low)
        return replace(
            interval,
            lower=np.maximum(interval.lower, np.minimum(lowest, interval.prediction)),
            upper=np.minimum(interval.upper, np.maximum(highest, interval.prediction)),
        )

    def interval_of_weights(self, level: float) -> Interval:
        """Compute intervals around :attr:`weights`, arrays of the same shape."""
        interval = self.influence.of_weights(self.weights, level)
        if self.unseen is not None:
            interval.little_data[: self.n_features] |= self.unseen[:, np.newaxis]
        return interval

    def noise(self, phi: Features) -> Noise:
        """Return how the returns of rows scatter about predictions, from features; refuse if it is not known."""
        if self.find_noise is None:
            raise InvalidInputError(
                f'`of` must be "mean" for a model of all that is still to come; got "{RETURN}". Use '
                "lstd.inference.ReturnSpread for the range of one return, or HorizonLSTD for a number of steps."
            )
        columns = self.columns(phi)
        return self.find_noise(columns, self._values_2d(columns))

    def place(self, weights: ArrayLike | None) -> tuple[int | slice, int | slice]:
        """Return where arrays (T, k) have the values of rows, or of their weighted sum."""
        row: int | slice = slice(None)
        if weights is not None:
            row = 0
        value: int | slice = slice(None)
        if self.single:
            value = 0
        return row, value

    # ------------------------------------------------------------ rows unlike those of the fit

    def warn_of_unlike(self, state: object, X: Features, prediction: Array | None = None) -> None:
        """Warn if features are far outside of their ranges in the fit, or predictions outside of bounds.

        Predictions are computed here unless they are given. If those of the rows of the fit were compared with the
        bounds, these must be far outside, while features are not. The fitted `state` has each warning once, and another
        one for other features.
        """
        n_rows = X.shape[0]
        if self.limits is None or not n_rows:
            return
        if n_rows >= FEWEST and not self.compared:
            if prediction is None:
                prediction = self.predict(X)
            warn_once(state, beyond_bounds(prediction.reshape(n_rows, -1), self.bounds), BoundsWarning)
        if self.age is not None:
            self._warn_of_ages(state, X)
        if self._warn_of_ranges(state, X):
            return
        if n_rows >= FEWEST and self.compared:
            if prediction is None:
                prediction = self.predict(X)
            warn_once(state, far_beyond_bounds(prediction.reshape(n_rows, -1), self.bounds), BoundsWarning)

    def _warn_of_ranges(self, state: object, X: Features) -> bool:
        """Warn if features are far outside of their ranges in the fit, and return whether some are."""
        assert self.limits is not None
        ranges = self.limits.ranges
        if ranges is None or not isinstance(X, np.ndarray):
            return False
        n_rows = X.shape[0]
        if n_rows > COMPARED:  # some of the rows tell as much
            step = -(-n_rows // COMPARED)
            X = X[::step]
        X = np.ascontiguousarray(self.columns(X), np.float64)
        if not any_outside(X, ranges):
            return False
        wide = self.limits.wide
        if wide is None or not any_outside(X, wide):
            return False
        is_far = (wide[0] > X) | (wide[1] < X)
        share = is_far.mean(axis=0)  # of the rows, for each column
        far = {self._column_names[j]: j for j in np.flatnonzero(share > _FEW).tolist()}
        if far and not self._depends_on_ends(X, ranges):
            return False
        names = unsaid(state, ExtrapolationWarning, far)
        if names:
            text = self._outside([far[name] for name in names], share, X, ranges)
            warn_once(state, text, ExtrapolationWarning, names)
        return bool(far)

    def _depends_on_ends(self, X: Array, ranges: Array) -> bool:
        """Whether values would move, were columns (T, n) limited to their ranges (2, n); beside their spread then."""
        low, high = ranges
        with np.errstate(over="ignore", invalid="ignore"):
            weights = self.coef.reshape(-1, self.n_features).T
            inside = np.clip(X, low, high) @ weights + self.intercept
            moved = X @ weights + self.intercept - inside
            spread = np.var(inside, axis=0)
        return is_material(moved, inside, spread)

    def _warn_of_ages(self, state: object, X: Features) -> None:
        """Warn if most rows are as old as the oldest of the fit."""
        assert self.age is not None
        name = self.feature_names[self.age.place]
        warn_once(state, self.age.doubt(X, name), ExtrapolationWarning, [f"age: {name}"])

    @property
    def _column_names(self) -> tuple[str, ...]:
        """Names of the columns that have weights."""
        if self.age is None:
            return self.feature_names
        return self.age.names(self.feature_names)

    def _outside(self, far: list[int], share: Array, X: Array, ranges: Array) -> str:
        """Say that `far` features are outside of their ranges in a `share` (n,) of the rows."""
        farthest = sorted(far, key=lambda j: -share[j])[:_MOST_NAMED]
        texts = []
        for j in farthest:
            column = X[:, j]
            low, high = ranges[:, j]
            texts.append(
                f"{self._column_names[j]} of {percent(share[j])} of the rows, from {column.min():.4g} to "
                f"{column.max():.4g} ({low:.4g} to {high:.4g} in the fit)"
            )
        others = ""
        if len(far) > _MOST_NAMED:
            others = f"; and {len(far) - _MOST_NAMED} more"
        return (
            f"Features are far outside of their range in the fit: {'; '.join(texts)}{others}. "
            "Predictions continue a straight line there. Check their units, limit features to the range of the fit, or "
            "fit to rows like these."
        )


def _share(weight: float, bound: float | Array) -> Array:
    """Return the share of rows of some weight in a sum, at a bound that may be infinite; nothing without weight."""
    if weight == 0.0:
        return np.zeros_like(bound)
    return np.asarray(weight * bound)
