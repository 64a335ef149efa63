"""How well a model predicts the discounted returns that tables hold, worked out chunk by chunk.

Rows wait until their returns are known: to the end of their episode, or until what follows weighs less than rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lstd.errors import InvalidInputError
from lstd.persistence import FittedModel
from lstd.returns import TOLERANCE, discounted_returns
from lstd.tables.rows import Chunk, OnProgress, Roles, RowReader

Array = NDArray[np.float64]

_NOTHING = 1e-18  # a share of the values to come that is far below rounding


@dataclass(frozen=True, eq=False)
class Score:
    """What the returns of tables say about a model; m rewards.

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
    model: FittedModel,
    paths: Sequence[str],
    roles: Roles,
    *,
    chunk_rows: int | None = None,
    on_progress: OnProgress | None = None,
) -> Score:
    """Compare predictions with observed discounted returns.

    In an episode that did not terminate, a row counts when γ^h < 0.01, with h transitions to its end.

    Raises
    ------
    InvalidInputError
        At the first bad row, or when fewer than two rows count.
    """
    reader = RowReader(paths, roles, chunk_rows=chunk_rows, on_progress=on_progress)
    waiting = _Waiting(model.gamma, len(roles.rewards))
    moments = _Moments(len(roles.rewards))
    rows = 0
    for chunk in reader.chunks():
        rows += len(chunk)
        moments.add(*waiting.add(chunk, model.predict(chunk.X)))
    moments.add(*waiting.rest())
    if moments.count < 2:
        raise InvalidInputError(_too_few(paths, rows, moments.count, model.gamma))
    return Score(moments.r2(), moments.squares / moments.count, rows, moments.count, TOLERANCE)


def _too_few(paths: Sequence[str], rows: int, count: int, gamma: float) -> str:
    needed = f"{int(np.ceil(np.log(TOLERANCE) / np.log(gamma))):d}" if 0.0 < gamma < 1.0 else "1" if not gamma else "∞"
    return (
        f"{', '.join(paths)}: of {rows} rows {count or 'none'} can be scored, and at least 2 are needed: a row counts "
        f"when its episode terminates or goes on for more than {needed} rows (γ^h < {TOLERANCE:g}). Name the column "
        "of terminated episodes, or give longer ones."
    )


class _Waiting:
    """Rows whose returns are not known yet; each has rewards and predictions."""

    def __init__(self, gamma: float, n_rewards: int) -> None:
        self._gamma = gamma
        self._rewards: list[Array] = [np.empty((0, n_rewards))]
        self._predicted: list[Array] = [np.empty((0, n_rewards))]
        self._episodes: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
        self._terminated: list[NDArray[np.bool_]] = [np.empty(0, np.bool_)]
        self._due = 0

    def add(self, chunk: Chunk, predicted: Array) -> tuple[Array, Array]:
        """Add rows; returns and predictions of those that are known now and count."""
        self._rewards.append(chunk.y)
        self._predicted.append(predicted)
        self._episodes.append(chunk.episode)
        self._terminated.append(chunk.terminated)
        n_rows = sum(map(len, self._episodes))
        # Going through the rows that wait only when they have doubled takes time in proportion to the rows in all.
        if n_rows < self._due:
            return self._rewards[0][:0], self._predicted[0][:0]
        found = self._known(at_end=False)
        self._due = 2 * len(self._episodes[0])
        return found

    def rest(self) -> tuple[Array, Array]:
        """Returns and predictions of all that is left and counts."""
        return self._known(at_end=True)

    def _known(self, *, at_end: bool) -> tuple[Array, Array]:
        rewards, predicted = np.concatenate(self._rewards), np.concatenate(self._predicted)
        episodes, terminated = np.concatenate(self._episodes), np.concatenate(self._terminated)
        last = np.ones(len(episodes), dtype=np.bool_)
        last[:-1] = episodes[1:] != episodes[:-1]
        returns, unobserved = discounted_returns(rewards, self._gamma, last, terminated)
        waits = np.zeros(len(episodes), dtype=np.bool_)
        if not at_end and len(episodes):
            waits = (episodes == episodes[-1]) & (unobserved > _NOTHING)
        self._rewards, self._predicted = [rewards[waits]], [predicted[waits]]
        self._episodes, self._terminated = [episodes[waits]], [terminated[waits]]
        counts = ~waits & (unobserved < TOLERANCE)
        return returns[counts], predicted[counts]


class _Moments:
    """Count, mean and squared deviations of returns, and squared errors, summed block by block (Chan et al. 1979)."""

    def __init__(self, n_rewards: int) -> None:
        self.count = 0
        self.squares, self._mean, self._spread = np.zeros((3, n_rewards))

    def add(self, returns: Array, predicted: Array) -> None:
        n = len(returns)
        if not n:
            return
        mean = returns.mean(axis=0)
        step = mean - self._mean
        both = self.count + n
        self._spread = self._spread + ((returns - mean) ** 2).sum(axis=0) + step**2 * (self.count * n / both)
        self._mean = self._mean + step * (n / both)
        self.squares = self.squares + ((returns - predicted) ** 2).sum(axis=0)
        self.count = both

    def r2(self) -> Array:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self._spread > 0.0, 1.0 - self.squares / self._spread, np.nan)
