"""Predictions of the next steps beside a naive forecast: that they bring what as many steps before them brought.

Of each row that has at least half of the horizon before it in its episode, and as much after it or an end, the rewards
of the next k steps are compared, those that were observed of the horizon. Of an episode that was cut off, these are
rows within the horizon of the cut, as predictions are for rows that have as much behind them; of a stream, all. The
naive forecast is the mean reward of up to H steps before, those of the horizon, in each of the k steps,
discounted. Where predictions have the larger error, the features leave out what each subject has received.

The test is whether the sum of the differences of squared errors is above 0, with groups or episodes as independent, or
blocks of a stream.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from lstd.data.rows import Rows
from lstd.errors import MisfitWarning, warn
from lstd.estimators.folds import are_whole
from lstd.estimators.model_parts import SIGNIFICANT
from lstd.estimators.step_spread import independent_groups
from lstd.statistics.intervals import power_of_two
from lstd.statistics.solve import check_range
from lstd.types import Array, Flags

WORSE = 1.05  # ratio of the errors above which there is a warning
_FEWEST = (20, 50)  # groups and rows that can be compared
_BLOCK = 2  # length of a block of a stream, in multiples of the horizon


@dataclass(frozen=True, eq=False)
class NaiveForecast:
    """Predictions of H steps compared with a naive forecast; arrays of shape (m,), for m rewards.

    Attributes
    ----------
    ratio : ndarray
        Root mean square error of the predictions, divided by that of the naive forecast.
    p_value : ndarray
        Probability of errors so much larger by chance.
    n_rows, steps : int
        Rows that were compared, and the horizon.
    """

    ratio: Annotated[Array, "m"]
    p_value: Annotated[Array, "m"]
    n_rows: int
    steps: int

    @property
    def is_better(self) -> Flags:
        """Whether the naive forecast is clearly better, for each reward."""
        return np.asarray((self.ratio > WORSE) & (self.p_value < SIGNIFICANT))

    @property
    def text(self) -> str:
        """The errors beside one another."""
        ratios = ", ".join(f"{ratio:.2f}" for ratio in self.ratio)
        return (
            f"the error of predictions is {ratios} times that of a forecast that repeats the {self.steps} steps "
            f"before, on {self.n_rows} rows"
        )

    def warn(self, note: str) -> None:
        """Warn if the naive forecast is clearly better; the text ends with `note`."""
        if not self.is_better.any():
            return
        ratio = self.ratio[self.is_better].max()
        warn(
            f"Predictions of {self.steps} steps have {ratio:.2f} times the error (root mean square) of a forecast that "
            f"repeats what as many steps before brought, on {self.n_rows} rows. So the features leave out much "
            "of what is known of each subject. Add the mean reward of its last steps as a feature, and that of all "
            f"steps since it was first seen.{note}",
            MisfitWarning,
        )


class Compared(NamedTuple):
    """Rows that can be compared, and what is known of them."""

    place: NDArray[np.intp]  # numbers of the rows
    n_before: NDArray[np.intp]  # rows before, at most the horizon
    steps: NDArray[np.intp]  # that are compared


def comparable(rows: Rows, horizon: int) -> Compared:
    """Return the rows that have enough before and after them, and are near a cut, or of an episode that ended."""
    ends = np.flatnonzero(rows.last)
    end = ends[np.searchsorted(ends, np.arange(len(rows)))]
    n_after = end - np.arange(len(rows))  # steps to the horizon row
    is_ended = rows.terminated[end]
    steps = np.where(is_ended, horizon, np.minimum(n_after, horizon))
    n_before = rows.age
    is_enough = (2 * n_before >= horizon) & (n_before > 0) & (2 * steps >= horizon)
    is_late = is_ended | (n_after <= horizon) | (not are_whole(rows))
    (place,) = np.nonzero(rows.full & (rows.weight > 0.0) & is_enough & is_late)
    return Compared(place, np.minimum(n_before[place], horizon), steps[place])


def compare(rows: Rows, curve: Iterable[Array], rewards_of_steps: Array, horizon: int) -> NaiveForecast | None:
    """Compare predictions with a naive forecast; None of too few rows or groups.

    `curve` has the predictions (T, m) for 1, 2, … steps, and `rewards_of_steps` (T, m) what was observed of the
    horizon.
    """
    compared = comparable(rows, horizon)
    place = compared.place
    came = rewards_of_steps[place]
    _, group = np.unique(independent_groups(rows, _BLOCK * horizon)[place], return_inverse=True)
    if len(place) < _FEWEST[1] or group.max() + 1 < _FEWEST[0]:
        return None
    rewards = np.where(rows.full[:, np.newaxis], rows.y, 0.0)
    total = np.vstack([np.zeros((1, rewards.shape[1])), np.cumsum(rewards, axis=0)])
    before = total[place] - total[place - compared.n_before]
    discounted = np.cumsum(rows.gamma ** np.arange(horizon))  # of 1, 2, … steps
    n_discounted = discounted[compared.steps - 1]
    naive = before * (n_discounted / compared.n_before)[:, np.newaxis]

    predicted = np.empty_like(came)
    for k, values in enumerate(curve, 1):
        is_then = compared.steps == k
        predicted[is_then] = values[place[is_then]]

    weight = rows.weight[place]
    square = (came - predicted) ** 2
    square_of_naive = (came - naive) ** 2
    worse = weight[:, np.newaxis] * (square - square_of_naive)
    by_group = np.array([np.bincount(group, column) for column in worse.T])  # (m, groups)
    by_group /= power_of_two(np.abs(by_group).max(axis=1, keepdims=True))  # so that no square is out of range
    error = np.sqrt(np.sum(by_group**2, axis=1))
    t = np.divide(by_group.sum(axis=1), error, out=np.zeros(len(error)), where=error > 0.0)
    p_value = special.stdtr(group.max(), -t)
    mean_square = weight @ square
    of_naive = weight @ square_of_naive
    check_range(mean_square, of_naive)
    ratio = np.sqrt(np.divide(mean_square, of_naive, out=np.ones(len(of_naive)), where=of_naive > 0.0))
    return NaiveForecast(ratio, np.asarray(p_value), len(place), horizon)
