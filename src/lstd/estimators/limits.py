"""Limits of a fit: what its rewards allow predictions to be, and the ranges of features that it has seen.

Bounds of predictions are those of `lstd.data.doubts`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from lstd._kernels.scales import widen
from lstd.data.doubts import FEWEST, MOST, MOST_OF_SPREAD, bounds_of, distance, percent, sides
from lstd.data.rows import COMPARED, Record, Rows
from lstd.data.settings import Settings
from lstd.types import Array, Flags

_ALL = np.ones(COMPARED, np.bool_)  # of the rows that are looked at
_NOTHING = np.array([[np.inf], [-np.inf]])  # the range of no values
_UNKNOWN = np.array([[-np.inf], [np.inf]])  # a range that holds all values


@dataclass(frozen=True, eq=False)
class Limits(Record):
    """Ranges of rewards and features in the rows of a fit, of which the limits of predictions follow."""

    rewards: Annotated[Array, "2 m nan"]  # least and greatest reward of full transitions; inf and -inf without any
    ranges: Annotated[Array, "2 features nan"] | None  # the same of features, of part of the rows; None if sparse
    gamma: Annotated[float, (0.0, 1.0)]  # largest discount
    ends: bool  # whether returns may end within the rows
    n_rows: int
    total: Annotated[Array, "features nan"]  # sum of the features over the rows, from a part of them if there are many

    @classmethod
    def of_rows(cls, rows: Rows) -> Limits:
        """Return the limits of the first rows of a stream, which have no column of ones and no centre."""
        n = rows.X.shape[1]
        ranges = None
        if isinstance(rows.X, np.ndarray):
            ranges = np.tile(_NOTHING, n)
        nothing = cls(
            rewards=np.tile(_NOTHING, rows.y.shape[1]),
            ranges=ranges,
            gamma=0.0,
            ends=False,
            n_rows=0,
            total=np.zeros(n),
        )
        return nothing.then(rows)

    def then(self, rows: Rows, last: Rows | None = None) -> Limits:
        """Return the limits with the next rows of the stream, which continue the episode of the `last` row, if given.

        Of many rows, a part is looked at; nothing is known of a feature that is constant in this part alone.
        """
        if not len(rows):
            return self
        rewards = _wider(self.rewards, rows.y, rows.full)
        if last is not None:  # its transition is one only now
            rewards = _wider(rewards, last.y[-1:])

        part = rows.part
        ranges = None
        if self.ranges is not None and isinstance(part, np.ndarray):
            ranges = _wider(self.ranges, part)
            if len(part) < len(rows):
                ranges[:, _constant(part)] = _UNKNOWN
        with np.errstate(over="ignore", invalid="ignore"):  # sums of squares report overflow
            sum_of_part = np.asarray(part.sum(axis=0)).reshape(-1)
            total = self.total + (len(rows) / part.shape[0]) * sum_of_part

        gamma = rows.gamma
        own_discounts = "discount" in rows.given
        if own_discounts:
            gamma = float(rows.discount.max())
        return self.changed(
            rewards=rewards,
            ranges=ranges,
            gamma=max(self.gamma, gamma),
            ends=self.ends or own_discounts or bool(rows.terminated.any()),
            n_rows=self.n_rows + len(rows),
            total=total,
        )

    def joined(self, later: Limits, last: Rows | None) -> Limits:
        """Return the limits of these rows and later ones, which continue the episode of the `last` row, if given."""
        rewards = _wider(self.rewards, later.rewards)
        if last is not None:
            rewards = _wider(rewards, last.y[-1:])
        ranges = None
        if self.ranges is not None and later.ranges is not None:
            ranges = _wider(self.ranges, later.ranges)
        return Limits(
            rewards=rewards,
            ranges=ranges,
            gamma=max(self.gamma, later.gamma),
            ends=self.ends or later.ends,
            n_rows=self.n_rows + later.n_rows,
            total=self.total + later.total,
        )

    def bounds(self, settings: Settings, steps: float = np.inf) -> Array:
        """Return the least and the greatest value that the rewards of `steps` allow, (2, m); ±inf without a bound.

        An estimator that takes cuts as ends takes the end of the data as one.
        """
        low, high = self.rewards
        if (low > high).any():
            return np.stack([high, low])
        ends = self.ends or settings.cuts_are_ends
        return bounds_of(low, high, self.gamma, ends=ends, intercept=settings.fit_intercept, steps=steps)

    @cached_property
    def wide(self) -> Array | None:
        """Ranges of the features, longer by a half at both ends or by what float32 rounds, (2, n); None if unknown."""
        if self.ranges is None or self.n_rows < FEWEST:
            return None
        low, high = self.ranges
        with np.errstate(over="ignore", invalid="ignore"):  # nothing is outside of what overflows
            more = np.maximum(0.5 * (high - low), 1e-6 * np.maximum(np.abs(low), np.abs(high)))
            return np.stack([low - more, high + more])


def _wider(ranges: Array, values: Array, counted: Flags | None = None) -> Array:
    """Return ranges (2, n) that hold counted rows of values (T, n) too; NaN changes nothing."""
    wider = ranges.copy()
    values = np.ascontiguousarray(values, np.float64)
    if counted is None:
        counted = _ALL[: len(values)]
    widen(values, counted, wider)
    return wider


def _constant(part: Array) -> NDArray[np.intp]:
    """Return the features, by number, that are constant in some rows (T, n)."""
    (candidates,) = (part[:9] == part[0]).all(axis=0).nonzero()  # in the first rows, to look at few in all
    is_constant = (part[:, candidates] == part[0, candidates]).all(axis=0)
    return np.asarray(candidates[is_constant])


def negative_values(prediction: Array, least: Array, remedy: str) -> str:
    """Say that some predictions (T, m) are negative where no reward is, and what to do; empty if that is not so.

    `least` (m,) are the least rewards, and infinite where there is none.
    """
    values = prediction.reshape(len(prediction), -1)
    share = np.mean(values < 0.0, axis=0)
    due = (least >= 0.0) & np.isfinite(least) & (share > 0.0)
    if not due.any():
        return ""
    most = float(share[due].max())
    return f"no reward is, and {percent(most)} of predictions for rows of the fit are: {remedy} moves them to 0"


_MOVED = 0.02  # mean square of a change of predictions, in units of a mean square, that is material,
_MOVED_TOTAL = 0.05  # and change of their total


@np.errstate(all="ignore")  # an overflow is material
def is_material(moved: Array, predictions: Array, square: Array) -> bool:
    """Return whether changes of predictions (T, m) matter: beside mean squares (m,), or to a total."""
    is_small = np.mean(moved**2, axis=0) < _MOVED * square
    keeps_total = np.abs(moved.sum(axis=0)) < _MOVED_TOTAL * np.abs(predictions.sum(axis=0))
    return not np.all(is_small & keeps_total)


SMALLER = 'a smaller `gamma` or the `variant` "uncorrected"'


@np.errstate(all="ignore")  # an overflow shows as NaN, of which nothing is said
def beyond_bounds(prediction: Array, bounds: Array | None, remedy: str = SMALLER) -> str:
    """Say how far predictions (T, m) are outside of bounds (2, m), and what to do; empty if they are not."""
    if len(prediction) < FEWEST or bounds is None:
        return ""
    excess = distance(prediction, bounds)
    spread = np.std(prediction, axis=0)
    certain = np.mean(excess**2, axis=0) / spread**2
    due = (certain > MOST) | (np.mean(excess, axis=0) / spread > MOST_OF_SPREAD)
    if not due.any():
        return ""
    j = int(np.argmax(np.where(due, certain, -1.0)))
    return _text_beyond(prediction[:, j], bounds[:, j], float(certain[j]), remedy)


@np.errstate(all="ignore")
def far_beyond_bounds(prediction: Array, bounds: Array | None) -> str:
    """Say that predictions (T, m) are further outside of bounds (2, m) than these are apart; empty if none is.

    This is for a model whose predictions of the rows of the fit are within the bounds.
    """
    if bounds is None:
        return ""
    low, high = bounds
    width = high - low
    far = (prediction.max(axis=0) > high + width) | (prediction.min(axis=0) < low - width)
    if not far.any():
        return ""
    j = int(np.argmax(far))
    certain = np.mean(distance(prediction[:, j], bounds[:, j]) ** 2) / np.var(prediction[:, j])
    return _text_beyond(prediction[:, j], bounds[:, j], float(certain), SMALLER)


def _text_beyond(prediction: Array, bounds: Array, certain: float, remedy: str) -> str:
    """Say how far predictions (T,) are outside of bounds (2,), a share of their variance, and what to do."""
    return (
        f"Predictions are outside of what the rewards allow: {sides(prediction, bounds)}. At least "
        f"{percent(certain)} of their variance is error. Features that grow with time, such as totals and "
        "the age of an account, cause this where most returns were cut off; so do weights that the data do not "
        "determine, and a missing intercept. Limit the range of features, use a larger `alpha`, "
        f"{remedy}, and compare models by `lstd.metrics.backtest`."
    )
