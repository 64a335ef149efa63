"""Limits of a fit: what its rewards allow predictions to be, and the ranges of features that it has seen.

Bounds of predictions are those of `lstd.data.doubts`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import numpy as np

from lstd._kernels.scales import widen
from lstd.data.doubts import FEWEST, MOST, MOST_OF_SPREAD, bounds_of, distance, percent, sides
from lstd.data.rows import COMPARED, Record, Rows
from lstd.data.settings import Settings
from lstd.types import Array, Flags

_ALL = np.ones(COMPARED, np.bool_)  # of the rows that are looked at


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
        nothing, n, m = np.array([[np.inf], [-np.inf]]), rows.X.shape[1], rows.y.shape[1]
        ranges = np.tile(nothing, n) if isinstance(rows.X, np.ndarray) else None
        return cls(np.tile(nothing, m), ranges, 0.0, False, 0, np.zeros(n)).then(rows)

    def then(self, rows: Rows, last: Rows | None = None) -> Limits:
        """Return the limits with the next rows of the stream, which continue the episode of the `last` row, if given.

        Of many rows, a part is looked at; nothing is known of a feature that is constant in this part alone.
        """
        if not len(rows):
            return self
        part, rewards, ranges = rows.part, _wider(self.rewards, rows.y, rows.full), None
        if last is not None:  # its transition is one only now
            rewards = _wider(rewards, last.y[-1:])
        if self.ranges is not None and isinstance(part, np.ndarray):
            ranges = _wider(self.ranges, part)
            if len(part) < len(rows):
                (same,) = (part[:9] == part[0]).all(axis=0).nonzero()  # in the first rows, and then in all
                ranges[:, same[(part[:, same] == part[0, same]).all(axis=0)]] = [[-np.inf], [np.inf]]
        given = "discount" in rows.given
        return self.changed(
            rewards=rewards, ranges=ranges,
            gamma=max(self.gamma, float(rows.discount.max()) if given else rows.gamma),
            ends=self.ends or given or bool(rows.terminated.any()), n_rows=self.n_rows + len(rows),
            total=self.total + (len(rows) / part.shape[0]) * np.asarray(part.sum(axis=0)).reshape(-1),
        )  # fmt: skip

    def joined(self, later: Limits, last: Rows | None) -> Limits:
        """Return the limits of these rows and later ones, which continue the episode of the `last` row, if given."""
        rewards, ranges = _wider(self.rewards, later.rewards), None
        if last is not None:
            rewards = _wider(rewards, last.y[-1:])
        if self.ranges is not None and later.ranges is not None:
            ranges = _wider(self.ranges, later.ranges)
        return Limits(
            rewards, ranges,
            max(self.gamma, later.gamma), self.ends or later.ends, self.n_rows + later.n_rows, self.total + later.total,
        )  # fmt: skip

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
        more = np.maximum(0.5 * (high - low), 1e-6 * np.maximum(np.abs(low), np.abs(high)))
        return np.stack([low - more, high + more])


def _wider(ranges: Array, values: Array, counted: Flags | None = None) -> Array:
    """Return ranges (2, n) that hold counted rows of values (T, n) too; NaN changes nothing."""
    found, values = ranges.copy(), np.ascontiguousarray(values, np.float64)
    widen(values, _ALL[: len(values)] if counted is None else counted, found)
    return found


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
