"""What the figures of a fitted model are drawn from: its predictions, intervals and returns for some rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from lstd.data.returns import TOLERANCE
from lstd.data.rows import Columns
from lstd.data.takes import LSTD_COLUMNS, Takes
from lstd.errors import InvalidInputError
from lstd.estimators.base import Comparison, Predictor, compare
from lstd.estimators.bias_check import checks_for_report
from lstd.estimators.model import Model
from lstd.estimators.model_parts import Checks
from lstd.metrics import Calibration, calibration
from lstd.report.model_kinds import OF_RETURNS, check_kind
from lstd.statistics.intervals import Interval, check_level, half_width
from lstd.types import Array, FeaturesLike

LEVEL = 0.95
MAX_REWARDS = 6  # with a panel each
MIN_GROUPS = 5  # behind an interval of a mean return: Student's quantile for 2 groups is 6 times that for many
_MAX_POINTS = 400  # of a curve
_FIGURES = Takes("this figure", LSTD_COLUMNS)
_MIN_ROWS = 200  # in the window over time
_HORIZONS = 10.0  # length of the window, in multiples of `Evaluation.horizon`
_MIN_EPISODES = 10  # to take episodes as independent; with fewer, blocks of rows
_MAX_BLOCKS = 20


class Options(Columns, total=False):
    """Keyword arguments of :func:`evaluate`, which figures and pages pass on to it."""

    unobserved: str
    tolerance: float
    level: float
    rewards: Sequence[str] | None
    time: ArrayLike | None


@dataclass(frozen=True, eq=False)
class Evaluation(Comparison):
    """A fitted model and T rows that it is compared with; m rewards."""

    model: Predictor
    fitted: Model  # its sums and settings
    rewards: tuple[str, ...]  # names
    level: float
    unobserved: str  # how returns that were cut off are treated
    ends_assumed: bool  # `episode` was given without `terminated`
    checked: Checks | None = None  # results of the checks on these rows, where they are known
    time: NDArray[Any] | None = None  # numbers or dates of the rows
    ids: NDArray[Any] | None = None  # of episodes, for each row, where those of `rows` are numbers in their place

    @property
    def share(self) -> float:
        """Share of the discounted weight of the returns that was observed."""
        return self.observed.share

    @property
    def weight(self) -> Array:
        """Weight of each row, shape (T,); zero if it is not scored."""
        return self.observed.weight

    @cached_property
    def episode(self) -> NDArray[np.intp]:
        """Number of each row's episode."""
        return self.rows.episode_number

    @property
    def n_panels(self) -> int:
        """Number of rewards that are drawn, each in a panel."""
        return min(MAX_REWARDS, len(self.rewards))

    @cached_property
    def checks(self) -> Checks:
        """Checks of the model for bias and misfit, of the first rows."""
        return self.checked or checks_for_report(self.rows, self.fitted)

    def interval(self, rows: NDArray[np.intp]) -> Interval | None:
        """Compute the intervals of some rows, arrays of shape (len(rows), m); None with too little data for them."""
        if self.fitted.no_intervals:
            return None
        interval = self.fitted.interval(self.rows.X[rows], self.level)
        if interval.prediction.ndim == 1:
            return interval.at((slice(None), None))  # a column for the one reward
        return interval

    @property
    def horizon(self) -> float:
        """Rows that a return reaches over: 1/(1 − γ), or the mean length of an episode if that is shorter."""
        length = len(self.rows) / (self.episode[-1] + 1)
        gamma = self.fitted.settings.gamma
        return float(length if gamma == 1.0 else min(length, 1.0 / (1.0 - gamma)))

    @cached_property
    def window(self) -> tuple[int, int]:
        """First and end row of the window that is drawn over time.

        It begins with the first episode that has a scored row. It ends with an episode if that keeps at least
        half of the window.
        """
        first = int(np.searchsorted(self.episode, self.episode[np.argmax(self.weight > 0.0)]))
        end = min(len(self.rows), first + max(_MIN_ROWS, int(np.ceil(_HORIZONS * self.horizon))))
        ends = 1 + np.flatnonzero(self.rows.last[first:end])
        if len(ends) and ends[-1] >= (end - first) / 2:
            end = first + int(ends[-1])
        return first, end

    @property
    def drawn(self) -> NDArray[np.intp]:
        """Rows of the window that are drawn, evenly spaced."""
        first, end = self.window
        return np.arange(first, end, max(1, -(-(end - first) // _MAX_POINTS)))

    def name(self, row: int) -> str:
        """Name a row by the id of its episode and, on another line, by its time; or by its number."""
        names = self.rows.episode if self.ids is None else self.ids
        ids = [] if names is None else [str(names[row])]
        return "\n".join([*ids, *([] if self.time is None else [_moment(self.time[row])])]) or str(row)

    @property
    def step(self) -> int:
        """Distance between drawn rows."""
        return int(self.drawn[1] - self.drawn[0]) if len(self.drawn) > 1 else 1

    @property
    def groups(self) -> str:
        """What intervals of mean returns take as independent: "groups", "episodes", or "blocks" of rows if few."""
        if self.rows.groups is not None:
            return "groups"
        few = len(np.unique(self.episode[self.weight > 0.0])) < _MIN_EPISODES
        return "blocks" if few else "episodes"

    def calibration(self, reward: int, n_bins: int) -> Calibration:
        """Compare the mean prediction and the mean return of one reward, in bins of the prediction."""
        groups = self.episode if self.rows.groups is None else self.rows.groups
        if self.groups == "blocks":
            scored = np.cumsum(self.weight > 0.0)
            # Blocks of less than two horizons depend too much on their neighbours.
            n_blocks = int(np.clip(scored[-1] / (2.0 * self.horizon), 1, _MAX_BLOCKS))
            groups = (scored - 1) * n_blocks // scored[-1]
        return calibration(self.prediction[:, reward], self.observed.of_reward(reward), n_bins, groups=groups)

    @cached_property
    def calibrates(self) -> bool:
        """Whether what was observed determines some mean return."""
        return self.share > 0.0 and bool(np.isfinite(self.calibration(0, 10).observed).any())

    @cached_property
    def scores(self) -> Array:
        """R² of each reward, (m,); NaN with fewer than two scored rows, or if all returns are equal."""
        return self.observed.scores(self.prediction)[0]


def _moment(time: Any) -> str:
    """Write a time: a date without the time of day at midnight, or a number."""
    if isinstance(time, np.datetime64):
        day = time.astype("M8[D]")
        return str(day if day == time else time.astype("M8[m]")).replace("T", " ")
    return f"{time:g}" if isinstance(time, int | float | np.number) else str(time)


def half_widths(table: Calibration, level: float) -> Array:
    """Half the width of the intervals of mean returns, by Student's t; NaN with fewer than `MIN_GROUPS`."""
    freedom = np.where(table.n_groups < MIN_GROUPS, np.nan, table.n_groups - 1.0)
    return np.asarray(half_width(table.standard_error, freedom, level))


def evaluate(
    model: Predictor,
    X: FeaturesLike,
    y: ArrayLike,
    *,
    unobserved: str = "predict",
    tolerance: float = TOLERANCE,
    level: float = LEVEL,
    rewards: Sequence[str] | None = None,
    time: ArrayLike | None = None,
    warn: bool = True,
    ids: NDArray[Any] | None = None,
    checked: Checks | None = None,
    **columns: Unpack[Columns],
) -> Evaluation:
    """Check rows and bring them together with a fitted model. Parameters as in :func:`lstd.report.plot_predictions`.

    Raises
    ------
    InvalidInputError
        If the model is of another kind, or an array breaks the data contract or does not fit the model.
    """
    check_kind("model", model, OF_RETURNS)
    check_is_fitted(model)
    level = check_level(level)
    compared = compare(model, X, y, columns, _FIGURES, unobserved=unobserved, tolerance=tolerance, warn=warn)
    if not len(compared.rows):
        raise InvalidInputError("`X` must have at least one row; got none.")
    names = names_of(y, model.model_.reward_names, rewards)
    order = compared.rows.order
    times = None
    if time is not None:
        times = np.asarray(time)
        if len(times) != len(compared.rows):
            raise InvalidInputError(
                f"`time` must have {len(compared.rows)} entries, one for each row; got {len(times)}."
            )
    if order is not None:
        times = None if times is None else times[order]
        ids = None if ids is None else ids[order]
    return Evaluation(
        **vars(compared),
        model=model,
        fitted=model.model_,
        rewards=names,
        level=level,
        unobserved=unobserved,
        ends_assumed=columns.get("episode") is not None and columns.get("terminated") is None,
        checked=checked,
        time=times,
        ids=ids,
    )


def names_of(y: Any, fitted: tuple[str, ...], given: Sequence[str] | None) -> tuple[str, ...]:
    """Names of the rewards: as given, or those of the columns of `y`, or those of the model."""
    if given is not None:
        if isinstance(given, str) or len(given) != len(fitted):
            raise InvalidInputError(f"`rewards` must have {len(fitted)} names, one for each reward; got {given!r}.")
        return tuple(map(str, given))
    columns = getattr(y, "columns", None)
    if columns is not None and len(columns) == len(fitted):
        return tuple(map(str, columns))
    name = getattr(y, "name", None)
    return (name,) if isinstance(name, str) else fitted
