"""What the figures of a fit are drawn from: predictions, intervals and observed returns of the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted

from lstd.data.checks import check_real
from lstd.data.returns import TOLERANCE
from lstd.data.rows import Features, Rows, check_rows
from lstd.errors import InvalidInputError
from lstd.estimators.base import Predictor
from lstd.estimators.inputs import checked_features, present
from lstd.estimators.intervals import Influence, Interval
from lstd.estimators.metrics import Calibration, ObservedReturns, calibration, returns_of_rows
from lstd.estimators.model import Fitted

Array = NDArray[np.float64]

LEVEL = 0.95
MOST_REWARDS = 6  # that are drawn
_MOST_POINTS = 400  # of a curve
_FEWEST_ROWS = 200  # in a stretch, where there are as many
_HORIZONS = 10.0  # 1/(1 − γ) each, in a stretch
_LOOKED_AT = 20_000  # rows that are looked at for flags
_EPISODES = 10  # from which on episodes, rather than stretches of the stream, are groups of returns
_STRETCHES = 20
FEWEST_GROUPS = 5  # that bear on a mean return before it has an interval: the quantile for 2 is 6 times that for many


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A fitted model on rows; T rows, m rewards."""

    model: Predictor
    phi: Features  # (T, n)
    rows: Rows
    observed: ObservedReturns
    rewards: tuple[str, ...]  # names
    level: float
    tolerance: float
    untold: bool  # nothing said which of the given episodes terminated

    @property
    def fitted(self) -> Fitted:
        """The model's sums and settings."""
        return self.model._fitted

    @cached_property
    def prediction(self) -> Array:
        """Of every row, shape (T, m)."""
        found = np.asarray(self.phi @ self.fitted.coef.T + self.fitted.intercept)
        return found.reshape(-1, len(self.rewards))

    @property
    def returns(self) -> Array:
        """Observed as far as they were, shape (T, m)."""
        return self.observed.returns.reshape(-1, len(self.rewards))

    @cached_property
    def episode(self) -> NDArray[np.intp]:
        """Number of each row's episode."""
        return np.concatenate([[0], np.cumsum(self.rows.last[:-1])]).astype(np.intp)

    @cached_property
    def influence(self) -> Influence | None:
        """What intervals follow from; None where there is too little data for them."""
        return None if self.no_intervals else self.fitted.influence

    @cached_property
    def no_intervals(self) -> str:
        """Why there are no intervals; empty when there are."""
        try:
            _ = self.fitted.influence
        except InvalidInputError as error:
            return str(error)
        return ""

    def interval(self, rows: NDArray[np.intp]) -> Interval | None:
        """Of some rows, arrays of shape (len(rows), m)."""
        if self.influence is None:
            return None
        return self.influence.interval(self.phi[rows], self.prediction[rows], self.level)

    @cached_property
    def _looked_at(self) -> Interval | None:
        """Of all rows, or evenly spaced ones where there are many."""
        return self.interval(_spaced(0, len(self.rows), _LOOKED_AT))

    @property
    def flagged_share(self) -> float | None:
        """Share of rows whose interval is flagged for some reward; None without intervals."""
        found = self._looked_at
        return None if found is None else float(found.flagged.any(axis=1).mean())

    @property
    def scale(self) -> float:
        """Rows over which a return reaches: 1/(1 − γ), or the mean length of an episode if that is shorter."""
        length = len(self.rows) / (self.episode[-1] + 1)
        gamma = self.fitted.gamma
        return float(length if gamma == 1.0 else min(length, 1.0 / (1.0 - gamma)))

    @cached_property
    def stretch(self) -> tuple[int, int]:
        """First row and end of the stretch that shows predictions over time.

        It begins with the first episode that has an observed return, and is cut at an episode's end where that leaves
        at least half of it.
        """
        counting = np.flatnonzero(self.observed.counts)
        first = int(np.searchsorted(self.episode, self.episode[counting[0]])) if len(counting) else 0
        end = min(len(self.rows), first + max(_FEWEST_ROWS, int(np.ceil(_HORIZONS * self.scale))))
        ends = 1 + np.flatnonzero(self.rows.last[first:end])
        if len(ends) and ends[-1] >= (end - first) / 2:
            end = first + int(ends[-1])
        return first, end

    @property
    def drawn(self) -> NDArray[np.intp]:
        """Rows of the stretch that are drawn: all, or every second one, or every third …"""
        return _spaced(*self.stretch, _MOST_POINTS)

    @property
    def by_episode(self) -> bool:
        """Whether the standard errors of mean returns take episodes as independent, or else stretches of the stream."""
        return len(np.unique(self.episode[self.observed.counts])) >= _EPISODES

    @property
    def group_name(self) -> str:
        """What the standard errors of mean returns take as independent."""
        return "episodes" if self.by_episode else "stretches"

    def calibration(self, reward: int, n_bins: int) -> Calibration:
        """Of one reward, over the rows whose return was observed."""
        counts = self.observed.counts
        groups = self.episode[counts]
        if not self.by_episode:
            n_rows = int(counts.sum())
            # A stretch of less than two horizons depends too much on its neighbours.
            n_groups = int(np.clip(n_rows / (2.0 * self.scale), 1, _STRETCHES))
            groups = np.arange(n_rows) * n_groups // n_rows
        return calibration(self.prediction[counts, reward], self.returns[counts, reward], n_bins, groups=groups)

    def r2(self) -> list[float | None]:
        """Of each reward; None where fewer than two returns were observed, or all are equal."""
        counts = self.observed.counts
        returns = self.returns[counts]
        if len(returns) < 2:
            return [None] * len(self.rewards)
        found = r2_score(returns, self.prediction[counts], multioutput="raw_values")
        return [
            float(r2) if varies else None
            for r2, varies in zip(np.atleast_1d(found), np.ptp(returns, axis=0) > 0.0, strict=True)
        ]


def _spaced(first: int, end: int, most: int) -> NDArray[np.intp]:
    step = max(1, -(-(end - first) // most))
    return np.arange(first, end, step)


def half_widths(found: Calibration, level: float) -> Array:
    """Half the width of intervals of the mean observed return, by Student's t over groups; NaN with too few groups."""
    freedom = np.where(found.n_groups < FEWEST_GROUPS, np.nan, found.n_groups - 1.0)
    return np.asarray(found.standard_error * stats.t.ppf(0.5 + 0.5 * level, freedom))


def evaluate(
    model: Predictor,
    X: Any,
    y: ArrayLike,
    *,
    episode: ArrayLike | None = None,
    terminated: ArrayLike | None = None,
    discount: ArrayLike | None = None,
    tolerance: float = TOLERANCE,
    level: float = LEVEL,
    rewards: Sequence[str] | None = None,
    warn: bool = True,
) -> Evaluation:
    """Check rows and bring them together with a fitted model.

    Raises
    ------
    InvalidInputError
        When an array breaks the data contract or does not fit the model.
    """
    check_is_fitted(model)
    tolerance = check_real("tolerance", tolerance, 0.0, 1.0, open_low=True)
    level = check_real("level", level, 0.0, 1.0, open_low=True)
    if level == 1.0:
        raise InvalidInputError("`level` must be below 1; got 1. No interval is sure.")
    if episode is None and terminated is None and model.n_episodes_ > 1:
        raise InvalidInputError(
            f"`episode` or `terminated` must be given for a model that was fitted to {model.n_episodes_} episodes: "
            "else the rows are taken as one."
        )
    phi = checked_features(model, X, reset=False)
    rows = check_rows(
        phi, present(y), gamma=model._fitted.gamma, episode=episode, terminated=terminated, discount=discount, warn=warn
    )
    if not len(rows):
        raise InvalidInputError("`X` must have at least one row; got none.")
    wanted = model.statistics_.b.shape[1]
    if rows.y.shape[1] != wanted:
        raise InvalidInputError(f"`y` must have the {wanted} rewards of the model; got {rows.y.shape[1]}.")
    names = _names(y, wanted, rewards)
    untold = episode is not None and terminated is None
    return Evaluation(model, phi, rows, returns_of_rows(rows, tolerance), names, level, tolerance, untold)


def _names(y: Any, n_rewards: int, given: Sequence[str] | None) -> tuple[str, ...]:
    """Names of the rewards: those given, those of a table's columns, or numbers."""
    if given is not None:
        if isinstance(given, str) or len(given) != n_rewards:
            raise InvalidInputError(f"`rewards` must hold {n_rewards} names, one for each reward; got {given!r}.")
        return tuple(map(str, given))
    columns = getattr(y, "columns", None)
    if columns is not None and len(columns) == n_rewards:
        return tuple(map(str, columns))
    if n_rewards > 1:
        return tuple(f"reward {i}" for i in range(1, n_rewards + 1))
    name = getattr(y, "name", None)
    return (name if isinstance(name, str) else "reward",)
