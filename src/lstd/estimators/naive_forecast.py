"""Predictions of the next steps beside naive forecasts: that each step brings what steps before brought, on average.

There are two such forecasts of a row, the mean reward of up to k steps before it and that of all steps of its episode
before it, each in all k steps, discounted. Where predictions have the larger error, the features leave out what each
subject has received.

Looking ahead. Where no episode terminated, predictions are by weights that are fitted to what was known at cuts: k,
2 k, … steps before the end of each episode, up to eight of them, or fewer of many rows, with 3 k steps of the longest
episode before each. Of a log shorter than 5 k, they are two, the second one half of k earlier. The rows at the cuts are
compared, by the rewards of the k steps that follow. k is the horizon, or a third of the longest episode if that is
less. In the past, the features may be right on average although the level has changed since.

Looking back. Else rows are compared that have at least half of the horizon before them in their episode, and as much
after them or an end. Of an episode that was cut off, these are rows within the horizon of the cut, as predictions are
for rows that have as much behind them; of a stream, all. What was observed of the horizon counts. Where ends were seen,
some of the rows must see one.

Let d be the squared error of a prediction less that of a forecast, and s half the sum of their sizes. If predictions
are right, the mean of d is at most 0, given the past, so it is for d/(s + s̄/10), in which no few large subjects decide.
The test is Student's of its sums over groups or episodes, or over blocks of a stream; of two forecasts, the p-value
counts twice. It is 1 unless predictions have the larger error over all rows, and at more than half of the cuts; of two
cuts, at both. There is a warning of a ratio of the errors above 1.1 with p below .01, or of 1.2 with p below .05. Of
forecasts that are so much better, the better one counts; of others, the one with the smaller p-value. Errors count
as 1 % of what came at least: those of a constant are only rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from lstd.data.repeated_steps import NaiveForecasts, naive_forecasts
from lstd.data.rows import Rows
from lstd.errors import MisfitWarning, warn
from lstd.estimators.folds import are_whole
from lstd.estimators.model_parts import SIGNIFICANT
from lstd.estimators.step_spread import independent_groups
from lstd.statistics.intervals import power_of_two
from lstd.statistics.solve import check_range
from lstd.types import Array, Flags

WORSE = 1.1  # ratio of the errors above which there is a warning; a fit to fewer rows is a little worse
_MUCH_WORSE = 1.2  # ratio from which less evidence is asked for
_LIKELY = 0.05  # p-value below which there is a warning of such a ratio
FEWEST = 6  # groups that can be compared
_FEWEST_ROWS = 50  # of blocks of a stream
_BLOCK = 2  # length of a block of a stream, in multiples of the horizon
_ROUNDING = 1e-9  # of what came and its forecast
_LEAST_ERROR = 0.01  # in units of what came
_FLOOR = 0.1  # of the mean size, which a size exceeds
_PART = 3  # of the longest episode, at most, is looked at ahead
_MOST_CUTS = 8
_ROWS_OF_CUTS = 2**18  # over all cuts, each of which takes as long as a fit; never fewer than two cuts
_BEFORE = 3  # steps before a cut, in multiples of the steps ahead; a fit to fewer rows tells little of one to all


@dataclass(frozen=True, eq=False)
class NaiveForecast:
    """Predictions of the next steps compared with naive forecasts; arrays of shape (m,), for m rewards.

    Attributes
    ----------
    ratio : ndarray
        Root mean square error of the predictions, divided by that of the better forecast.
    p_value : ndarray
        Probability of errors so much larger by chance; 1 unless they are larger at more than half of the cuts.
    n_rows, steps : int
        Rows that were compared, and steps.
    """

    ratio: Annotated[Array, "m"]
    p_value: Annotated[Array, "m"]
    n_rows: int
    steps: int

    @property
    def is_better(self) -> Flags:
        """Whether the naive forecast is clearly better, for each reward."""
        return _is_better(self.ratio, self.p_value)

    @property
    def text(self) -> str:
        """The errors beside one another."""
        ratios = ", ".join(f"{ratio:.2f}" for ratio in self.ratio)
        p_values = ", ".join(f"{p_value:.2g}" for p_value in self.p_value)
        steps = "step" if self.steps == 1 else f"{self.steps} steps"
        return (
            f"the error of predictions is {ratios} times that of a forecast that repeats the {steps} before, or the "
            f"mean of all before, on {self.n_rows} rows (p = {p_values})"
        )


def _is_better(ratio: Array, p_value: Array) -> Flags:
    """Return whether ratios of errors and their p-values tell of a better forecast."""
    clear = (ratio > WORSE) & (p_value < SIGNIFICANT)
    large = (ratio >= _MUCH_WORSE) & (p_value < _LIKELY)
    return np.asarray(clear | large)


class Cut(NamedTuple):
    """Rows that are compared, N of them, and what followed, for m rewards."""

    place: NDArray[np.intp]  # numbers of the rows
    steps: NDArray[np.intp]  # that are compared
    came: Array  # (N, m)
    predicted: Array  # (N, m)


class Compared(NamedTuple):
    """Predictions compared with the naive forecasts, and which of them is the better one, (m,)."""

    found: NaiveForecast
    repeats_all: Flags  # whether it is the mean of all steps before
    ahead: bool

    def warn(self, note: str) -> None:
        """Warn if a naive forecast is clearly better; the text ends with `note`."""
        found = self.found
        if not found.is_better.any():
            return
        worst = int(np.argmax(np.where(found.is_better, found.ratio, 0.0)))
        steps = f"{found.steps} steps"
        brought = "what as many steps before brought"
        if found.steps == 1:
            steps = "one step"
            brought = "what the step before brought"
        if self.repeats_all[worst]:
            brought = "the mean of all steps before"
        fitted = ""
        if self.ahead:
            fitted = ", fitted to what was known before them,"
        warn(
            f"Predictions of {steps}{fitted} have {found.ratio[worst]:.2f} times the error (root mean "
            f"square) of a forecast that repeats {brought}, on {found.n_rows} rows. So the features leave out much of "
            "what is known of each subject. Add the mean reward of its last steps as a feature, and that of all steps "
            "since it was first seen. Or take the forecast that `lstd.metrics.backtest` names in its last line, if it "
            f"says so.{note}",
            MisfitWarning,
        )


# ------------------------------------------------------------ rows that are compared


def rows_looking_back(rows: Rows, horizon: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the rows, by number, that can be compared with what followed them, and how many steps are."""
    n_after, end = _to_the_end(rows)
    is_ended = rows.terminated[end]
    steps = np.where(is_ended, horizon, np.minimum(n_after, horizon))
    is_enough = (2 * rows.age >= horizon) & (rows.age > 0) & (2 * steps >= horizon)
    is_late = is_ended | (n_after <= horizon) | (not are_whole(rows))
    (place,) = np.nonzero(rows.full & (rows.weight > 0.0) & is_enough & is_late)
    ends_soon = is_ended & (n_after < horizon)
    if rows.terminated.any() and not ends_soon[place].any():  # ends were seen, but not by these rows
        place = place[:0]
    return place, steps[place]


def cuts_looking_ahead(rows: Rows, horizon: int) -> tuple[int, list[int]]:
    """Return the steps to look ahead, and the steps from the cuts to the end of each episode; no cuts if none can be.

    None can be where episodes terminated, since those that did are not known to have been active at a cut, and where
    all rows are one stream.
    """
    longest = int(rows.age.max())
    steps = min(horizon, max(1, longest // _PART))
    if rows.terminated.any() or not are_whole(rows) or longest <= steps:
        return steps, []
    most = min(_MOST_CUTS, max(2, _ROWS_OF_CUTS // len(rows)))
    apart = [n * steps for n in range(1, most + 1) if longest >= (n + _BEFORE) * steps]
    if len(apart) > 1:
        return steps, apart
    cuts = [steps, steps + max(1, steps // 2)]
    return steps, [cut for cut in cuts if cut < longest]


def rows_at(rows: Rows, cut: int) -> NDArray[np.intp]:
    """Return the rows, by number, that are `cut` steps before the end of their episode, and not its first."""
    n_after, _ = _to_the_end(rows)
    (place,) = np.nonzero((n_after == cut) & (rows.age > 0) & (rows.weight > 0.0))
    return place


def known_at(rows: Rows, cut: int) -> Rows:
    """Return what was known `cut` steps before the end of each episode, where rows have no successor yet."""
    n_after, _ = _to_the_end(rows)
    (place,) = np.nonzero(n_after >= cut)
    known = rows.taken(place)
    return known.changed(last=n_after[place] == cut)


def _to_the_end(rows: Rows) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the steps from each row to the last one of its episode, and the number of that one, (T,) each."""
    ends = np.flatnonzero(rows.last)
    number = np.arange(len(rows))
    end = ends[np.searchsorted(ends, number)]
    return end - number, end


# ------------------------------------------------------------ comparison


def compare(rows: Rows, cuts: Sequence[Cut], steps: int, *, ahead: bool = False) -> Compared | None:
    """Compare predictions at some cuts with the naive forecasts; None of too few groups, or rows of a stream."""
    place = np.concatenate([cut.place for cut in cuts])
    of_rows = independent_groups(rows, _BLOCK * steps)
    _, group = np.unique(of_rows[place], return_inverse=True)
    n_groups = len(np.unique(group))
    if n_groups < FEWEST or (len(place) < _FEWEST_ROWS and not are_whole(rows)):
        return None
    weight = rows.weight[place]
    cut_of_row = np.repeat(np.arange(len(cuts)), [len(cut.place) for cut in cuts])
    came = np.concatenate([cut.came for cut in cuts])
    predicted = np.concatenate([cut.predicted for cut in cuts])
    ratios = []
    p_values = []
    for naive in _forecasts(rows, place, np.concatenate([cut.steps for cut in cuts]), steps):
        square = _square_error(came, predicted)
        square_of_naive = _square_error(came, naive)
        sizes = 0.5 * (np.abs(predicted) + np.abs(naive))
        worse = weight[:, np.newaxis] * (square - square_of_naive)
        p_value = _student(group, _in_proportion(worse, sizes))
        excess = np.array([worse[cut_of_row == k].sum(axis=0) for k in range(len(cuts))])
        is_mostly = 2 * np.count_nonzero(excess > 0.0, axis=0) > len(cuts)
        is_worse = is_mostly & (worse.sum(axis=0) > 0.0)
        least = _LEAST_ERROR**2 * (weight @ came**2)
        errors = [np.maximum(weight @ one, least) for one in (square, square_of_naive)]
        ratios.append(_ratio(*errors))
        p_values.append(np.where(is_worse, p_value, 1.0))
    ratio = np.array(ratios)
    p_value = np.minimum(1.0, len(p_values) * np.array(p_values))
    better = _second_counts(ratio, p_value)
    found = NaiveForecast(
        ratio=np.where(better, ratio[1], ratio[0]),
        p_value=np.where(better, p_value[1], p_value[0]),
        n_rows=len(place),
        steps=steps,
    )
    return Compared(found, better, ahead)


def _forecasts(rows: Rows, place: NDArray[np.intp], steps: NDArray[np.intp], longest: int) -> NaiveForecasts:
    """Return what rows expect of some steps by the mean of up to `longest` steps before, and of all before."""
    rewards = np.where(rows.full[:, np.newaxis], rows.y, 0.0)
    discounted = np.cumsum(rows.gamma ** np.arange(longest))  # of 1, 2, … steps
    return naive_forecasts(rewards, place, rows.age[place], longest, discounted[steps - 1])


def _square_error(came: Array, forecast: Array) -> Array:
    """Return squared errors of forecasts (N, m); 0 for rounding, as that of sums over the rows before."""
    error = came - forecast
    is_rounding = np.abs(error) <= _ROUNDING * (np.abs(came) + np.abs(forecast))
    return np.where(is_rounding, 0.0, error**2)


def _second_counts(ratio: Array, p_value: Array) -> Flags:
    """Return whether the second of two forecasts counts, by ratios of errors and p-values (2, m)."""
    first, second = _is_better(ratio, p_value)
    is_clearer = np.where(p_value[1] == p_value[0], ratio[1] > ratio[0], p_value[1] < p_value[0])
    is_better = np.where(first & second, ratio[1] > ratio[0], second)
    return np.asarray(np.where(first | second, is_better, is_clearer))


def _in_proportion(worse: Array, sizes: Array) -> Array:
    """Return differences of squared errors (N, m) in proportion to the sizes, none of which is near zero."""
    least = _FLOOR * sizes.mean(axis=0)
    whole = sizes + np.where(least > 0.0, least, 1.0)
    return np.asarray(worse / whole)


def _student(group: NDArray[np.intp], values: Array) -> Array:
    """Return the probability by chance, (m,), of sums as large as those of values (N, m), by Student's test."""
    by_group = np.array([np.bincount(group, column) for column in values.T])  # (m, groups)
    by_group /= power_of_two(np.abs(by_group).max(axis=1, keepdims=True))  # so that no square is out of range
    error = np.sqrt(np.sum(by_group**2, axis=1))
    t = np.divide(by_group.sum(axis=1), error, out=np.zeros(len(error)), where=error > 0.0)
    return np.asarray(special.stdtr(group.max(), -t))


def _ratio(square: Array, square_of_naive: Array) -> Array:
    """Return ratios of root mean squares; 1 where nothing came, and no forecast makes an error."""
    check_range(square, square_of_naive)
    quotient = np.divide(square, square_of_naive, out=np.ones(len(square)), where=square_of_naive > 0.0)
    return np.asarray(np.sqrt(quotient))
