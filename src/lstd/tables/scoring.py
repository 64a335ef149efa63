"""Scores of a model on the discounted returns of tables, computed chunk by chunk.

Rows wait until their returns are known: to the end of their episode, or for 41/(1−γ) rows, after which the rest is
below rounding. With γ = 1 they need not wait. Let R_t be the sum of the rewards of the episode before row t, and R the
sum of all. The return of the row is R − R_t, and the error of its prediction p_t is R − (R_t + p_t): so the means and
spreads of R_t and of R_t + p_t are enough when the episode ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from lstd.data.returns import TOLERANCE, discounted_returns
from lstd.distributed.choosing import OnProgress
from lstd.errors import InvalidInputError
from lstd.estimators.model import Model
from lstd.tables.predicting import predictions_of
from lstd.tables.row_reader import Chunk, Roles, RowReader

Array = NDArray[np.float64]

_NEGLIGIBLE = 1e-18  # share of a return that is far below rounding


@dataclass(frozen=True, eq=False)
class Score:
    """The score of a model on tables; m rewards.

    Attributes
    ----------
    r2 : ndarray of shape (m,)
        Share of the variance of the returns that is predicted; NaN when all returns are equal.
    mse : ndarray of shape (m,)
        Mean squared error.
    rows : int
        Rows read.
    scored : int
        Rows whose returns were observed, up to `tolerance`.
    tolerance : float
        Largest share of a return that may be unobserved.
    """

    r2: Array
    mse: Array
    rows: int
    scored: int
    tolerance: float


def score_tables(
    model: Model,
    paths: Sequence[str],
    roles: Roles,
    *,
    chunk_rows: int | None = None,
    on_progress: OnProgress | None = None,
) -> Score:
    """Compare predictions with observed discounted returns.

    In an episode that did not terminate, a row counts when γ^h < 0.01, with h transitions to its end.

    Raises InvalidInputError at the first bad row, or when fewer than two rows count.
    """
    reader = RowReader(paths, roles, chunk_rows=chunk_rows, on_progress=on_progress)
    if model.settings.gamma == 1.0 and roles.terminated is None:
        raise InvalidInputError(
            f"{', '.join(paths)}: no row can be scored: with gamma 1 only rows of episodes that terminated count. "
            "Name the column that says which did with `--terminated`."
        )
    moments = _Moments(len(roles.rewards))
    gamma = model.settings.gamma
    waiting = _Undiscounted(moments) if gamma == 1.0 else _Waiting(moments, gamma)
    rows = 0
    with np.errstate(over="ignore", invalid="ignore"):  # the results are checked
        for chunk in reader.chunks():
            rows += len(chunk)
            waiting.add(chunk, predictions_of(model, chunk))
        waiting.finish()
        squares = moments.squares
    if moments.count < 2:
        raise InvalidInputError(_too_few(paths, rows, moments.count, model.settings.gamma))
    if not (np.isfinite(squares) & np.isfinite(moments.spread)).all():
        raise InvalidInputError(
            f"{', '.join(paths)}: the squares of returns or of errors are beyond 1e308; scale the rewards down, or "
            "look for huge values."
        )
    return Score(moments.r2(), squares / moments.count, rows, moments.count, TOLERANCE)


def _too_few(paths: Sequence[str], rows: int, count: int, gamma: float) -> str:
    counts, remedy = "when its episode terminates", "Name the column of terminated episodes"
    if gamma < 1.0:
        needed = int(np.ceil(np.log(TOLERANCE) / np.log(gamma))) if gamma else 1
        counts += f" or goes on for more than {needed} rows (γ^h < {TOLERANCE:g})"
        remedy += ", or give longer ones"
    return (
        f"{', '.join(paths)}: of {rows} rows {count or 'none'} can be scored, and at least 2 are needed: a row counts "
        f"{counts}. {remedy}."
    )


class _Waiting:
    """Rows with their rewards and predictions, until their returns are known."""

    def __init__(self, moments: _Moments, gamma: float) -> None:
        n_rewards = len(moments.mean)
        self._moments, self._gamma = moments, gamma
        self._rewards: list[Array] = [np.empty((0, n_rewards))]
        self._predicted: list[Array] = [np.empty((0, n_rewards))]
        self._episodes: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
        self._terminated: list[NDArray[np.bool_]] = [np.empty(0, np.bool_)]
        self._due = 0

    def add(self, chunk: Chunk, predicted: Array) -> None:
        self._rewards.append(chunk.y)
        self._predicted.append(predicted)
        self._episodes.append(chunk.episode)
        self._terminated.append(chunk.terminated)
        # Settling only when the waiting rows have doubled takes time linear in the number of all rows.
        if sum(map(len, self._episodes)) >= self._due:
            self._settle(at_end=False)
            self._due = 2 * len(self._episodes[0])

    def finish(self) -> None:
        self._settle(at_end=True)

    def _settle(self, *, at_end: bool) -> None:
        """Move the rows whose returns are known to the moments."""
        rewards, predicted = np.concatenate(self._rewards), np.concatenate(self._predicted)
        episodes, terminated = np.concatenate(self._episodes), np.concatenate(self._terminated)
        last = np.ones(len(episodes), dtype=np.bool_)
        last[:-1] = episodes[1:] != episodes[:-1]
        returns, unobserved = discounted_returns(rewards, self._gamma, last, terminated)
        waits = np.zeros(len(episodes), dtype=np.bool_)
        if not at_end and len(episodes):
            waits = (episodes == episodes[-1]) & (unobserved > _NEGLIGIBLE)
        self._rewards, self._predicted = [rewards[waits]], [predicted[waits]]
        self._episodes, self._terminated = [episodes[waits]], [terminated[waits]]
        counts = ~waits & (unobserved < TOLERANCE)
        self._moments.add(returns[counts], returns[counts] - predicted[counts])


class _Undiscounted:
    """The current episode with γ = 1: its rewards so far, and moments of R_t and of R_t + p_t."""

    def __init__(self, moments: _Moments) -> None:
        self._whole = moments
        self._episode = -1
        self._rewards = np.zeros_like(moments.mean)
        self._before = _Moments(len(moments.mean))

    def add(self, chunk: Chunk, predicted: Array) -> None:
        starts = np.flatnonzero(np.diff(chunk.episode, prepend=-1)) if len(chunk) else np.empty(0, np.intp)
        for first, end in pairwise([*starts.tolist(), len(chunk)]):
            if chunk.episode[first] != self._episode:
                self._episode = int(chunk.episode[first])
                self._rewards, self._before = np.zeros_like(self._rewards), _Moments(len(self._rewards))
            rewards = self._rewards + np.cumsum(chunk.y[first:end], axis=0)
            before = np.concatenate([self._rewards[np.newaxis], rewards[:-1]])
            self._before.add(before, before + predicted[first:end])
            self._rewards = rewards[-1]
            if chunk.terminated[end - 1]:
                self._whole.merge(self._before.mirrored(self._rewards))

    def finish(self) -> None:
        """Do nothing: an episode that is not over does not count."""


class _Moments:
    """Count, mean and spread (sum of squared deviations) of returns and of errors, merged as by Chan et al. (1979)."""

    def __init__(self, n_rewards: int) -> None:
        self.count = 0
        self.mean, self.spread, self._mean_error, self._spread_error = np.zeros((4, n_rewards))

    @property
    def squares(self) -> Array:
        """Sum of squared errors."""
        return np.asarray(self._spread_error + self.count * self._mean_error**2)

    def add(self, returns: Array, errors: Array) -> None:
        """Add rows, arrays of shape (T, m)."""
        block = _Moments(returns.shape[1])
        if len(returns):
            block.count = len(returns)
            block.mean, block._mean_error = returns.mean(axis=0), errors.mean(axis=0)
            block.spread = ((returns - block.mean) ** 2).sum(axis=0)
            block._spread_error = ((errors - block._mean_error) ** 2).sum(axis=0)
        self.merge(block)

    def merge(self, other: _Moments) -> None:
        """Add other moments."""
        both = self.count + other.count
        if not other.count:
            return
        share, weight = other.count / both, self.count * other.count / both
        step, step_error = other.mean - self.mean, other._mean_error - self._mean_error
        self.spread = self.spread + other.spread + step**2 * weight
        self._spread_error = self._spread_error + other._spread_error + step_error**2 * weight
        self.mean, self._mean_error = self.mean + step * share, self._mean_error + step_error * share
        self.count = both

    def mirrored(self, total: Array) -> _Moments:
        """Return the moments of `total` less each value."""
        mirror = _Moments(len(total))
        mirror.count, mirror.spread, mirror._spread_error = self.count, self.spread, self._spread_error
        mirror.mean, mirror._mean_error = total - self.mean, total - self._mean_error
        return mirror

    def r2(self) -> Array:
        """Return R² for each reward; NaN where all returns are equal."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.spread > 0.0, 1.0 - self.squares / self.spread, np.nan)
