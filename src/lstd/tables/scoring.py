"""Scores of a model on the discounted returns of tables, computed chunk by chunk.

The reward and the prediction of a row wait until its return is known: to the end of its episode, or for 41/(1−γ) rows,
after which the rest is below rounding.

Inverse probability weights need the length of every episode first, so with them the tables are read twice.

With columns of transitions, such as discounts, or features of successors, whole episodes wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lstd.data.check_rows import check_rows
from lstd.data.doubts import SELF_SCORED, little_observed
from lstd.data.returns import (
    TOLERANCE,
    Cuts,
    check_treatment,
    check_unbiased,
    completed_returns,
    discounted_returns,
    ipcw_weights,
    steps_to_complete,
    unobserved_shares,
)
from lstd.errors import InvalidInputError, UnobservedWarning, warn
from lstd.estimators.model import Model
from lstd.tables.column_roles import Roles
from lstd.tables.predicting import predictions_of
from lstd.tables.row_reader import Chunk, RowReader
from lstd.tables.sources import watched
from lstd.tables.table import Table
from lstd.types import Array

if TYPE_CHECKING:
    from lstd.estimators.choose_settings import OnProgress


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
        Rows with a weight above zero.
    observed_share : float
        Share of the discounted weight of their returns that was observed.
    """

    r2: Array
    mse: Array
    rows: int
    scored: int
    observed_share: float


@dataclass(frozen=True)
class _Treatment:
    """How returns that were cut off are treated, as by :mod:`lstd.data.returns`."""

    unobserved: str
    tolerance: float
    gamma: float  # the largest discount
    cuts: Cuts | None  # for "ipcw"

    @classmethod
    def of(cls, reader: RowReader, unobserved: str, tolerance: float, gamma: float) -> _Treatment:
        cuts = None
        if unobserved == "ipcw":
            if reader.roles.next_features:
                raise InvalidInputError('`unobserved` must not be "ipcw" with features of successors; use "predict".')
            cuts, gamma = _cuts(reader, gamma)
            cuts.check_reach(steps_to_complete(gamma, tolerance))
        return cls(unobserved, tolerance, gamma, cuts)

    def weights(self, age: NDArray[np.int64], length: NDArray[np.int64], ended: NDArray[np.bool_]) -> Array:
        """Weight of rows by their age, the transitions of their episode so far, and whether it terminated."""
        needed = steps_to_complete(self.gamma, self.tolerance)
        if self.cuts is not None:
            return ipcw_weights(self.cuts, age, length, ended, needed)
        return np.asarray((self.unobserved == "predict") | ended | (age + needed <= length), dtype=np.float64)


def score_tables(
    model: Model,
    paths: Sequence[str | Table],
    roles: Roles,
    *,
    unobserved: str = "predict",
    tolerance: float = TOLERANCE,
    chunk_rows: int | None = None,
    on_progress: OnProgress | None = None,
) -> Score:
    """Compare predictions with discounted returns, as :meth:`lstd.LSTD.score` does.

    Raises InvalidInputError at the first bad row, when fewer than two rows are scored, or when `unobserved` has no
    answer. Warns if little was observed.
    """
    model.check_given(roles.transitions, remedy="Name its column.")
    tolerance = check_treatment(unobserved, tolerance)
    reader = RowReader(watched(paths, on_progress), roles, chunk_rows=chunk_rows)
    files = [table.file for table in reader.tables]
    treatment = _Treatment.of(reader, unobserved, tolerance, model.settings.gamma)
    moments = _Moments(len(roles.rewards))
    whole = bool(roles.transitions or roles.next_features)
    waiting: Any = _WholeEpisodes(moments, treatment, model) if whole else _Waiting(moments, treatment)
    rows = 0
    with np.errstate(over="ignore", invalid="ignore"):  # the results are checked
        if treatment.cuts is not None:  # for which all rows were read
            reader = RowReader(reader.tables, roles, chunk_rows=chunk_rows)
        for chunk in reader.chunks():
            rows += len(chunk)
            waiting.add(chunk, predictions_of(model, chunk))
        waiting.finish()
        squares = moments.squares
    if unobserved == "drop":
        check_unbiased(moments.count, moments.left_out, moments.terminated)
    if moments.count < 2:
        raise InvalidInputError(_too_few(files, rows, moments.count, treatment))
    if not (np.isfinite(squares) & np.isfinite(moments.spread)).all():
        raise InvalidInputError(
            f"{', '.join(files)}: the squares of returns or of errors are beyond 1e308; scale the rewards down, or "
            "look for huge values."
        )
    share = moments.observed / moments.weight
    warn(little_observed(share, SELF_SCORED), UnobservedWarning)
    return Score(moments.r2(), squares / moments.weight, rows, moments.count, share)


def _cuts(reader: RowReader, gamma: float) -> tuple[Cuts, float]:
    """Read the lengths of all episodes, and the largest discount of a transition."""
    lengths: list[int] = []
    ended: list[bool] = []
    largest, before = 0.0 if "discount" in reader.roles.transitions else gamma, 0.0
    for chunk in reader.chunks():
        if "discount" in chunk.transitions:
            given = np.append(before, chunk.transitions["discount"])
            goes_on = np.diff(chunk.episode, prepend=len(lengths) - 1) == 0
            largest, before = float(np.max(given[:-1][goes_on], initial=largest)), float(given[-1])
        last = np.flatnonzero(np.diff(chunk.episode, append=-1))
        columns = chunk.episode[last], np.diff(last, prepend=-1), chunk.terminated[last]
        for number, n_rows, end in zip(*(column.tolist() for column in columns), strict=True):
            if number == len(lengths):
                lengths.append(0)
                ended.append(False)
            lengths[number] += n_rows
            ended[number] = end
    terminated = np.array(ended, dtype=np.bool_)
    return Cuts(np.array(lengths, dtype=np.int64) - ~terminated, terminated), largest


def _too_few(paths: Sequence[str], rows: int, count: int, treatment: _Treatment) -> str:
    gamma, tolerance = treatment.gamma, treatment.tolerance
    counts, remedy = "another row of its episode follows or it terminates", "Give longer episodes"
    if treatment.unobserved != "predict":
        counts, remedy = "its episode terminates", 'Use `unobserved="predict"`, name the column of terminated episodes'
        if gamma < 1.0:
            counts += f" or goes on for {steps_to_complete(gamma, tolerance):g} steps (γ^h < {tolerance:g})"
            remedy += ", or give longer ones"
    return (
        f"{', '.join(paths)}: of {rows} rows {count or 'none'} can be scored, and at least 2 are needed: a row is "
        f"scored if {counts}. {remedy}."
    )


class _Waiting:
    """Rows with their rewards and predictions, until their returns are known."""

    def __init__(self, moments: _Moments, treatment: _Treatment) -> None:
        n_rewards = len(moments.mean)
        self._moments, self._treatment = moments, treatment
        self._rewards: list[Array] = [np.empty((0, n_rewards))]
        self._predicted: list[Array] = [np.empty((0, n_rewards))]
        self._episodes: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
        self._terminated: list[NDArray[np.bool_]] = [np.empty(0, np.bool_)]
        self._first_age = 0  # of the first row that waits
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
        if not len(episodes):
            return
        last = np.append(episodes[1:] != episodes[:-1], True)
        returns, unobserved = discounted_returns(rewards, self._treatment.gamma, last, terminated, predicted)
        waits = np.zeros(len(episodes), dtype=np.bool_)
        if not at_end:
            waits = (episodes == episodes[-1]) & (unobserved > _NEGLIGIBLE)
        ends, number, full = np.flatnonzero(last), np.cumsum(last) - last, terminated | ~last
        age = np.arange(len(last)) - np.append(-self._first_age, ends[:-1] + 1)[number]
        weight = self._treatment.weights(age, (age + full)[ends][number], terminated[ends][number])
        known = full & ~waits
        self._moments.terminated += int(terminated[~waits].sum())
        self._moments.add(*(a[known] for a in (returns, returns - predicted, weight, 1.0 - unobserved)))
        self._rewards, self._predicted = [rewards[waits]], [predicted[waits]]
        self._episodes, self._terminated = [episodes[waits]], [terminated[waits]]
        self._first_age = int(age[waits][0]) if waits.any() else 0


class _WholeEpisodes:
    """Rows of episodes that are not known to be over, and then the returns of :mod:`lstd.data.returns`."""

    def __init__(self, moments: _Moments, treatment: _Treatment, model: Model) -> None:
        self._moments, self._treatment, self._model = moments, treatment, model
        self._rows: dict[str, list[Any]] = {}

    def add(self, chunk: Chunk, predicted: Array) -> None:
        columns = {
            "X": chunk.X, "y": chunk.y, "episode": chunk.episode, "terminated": chunk.terminated,
            "X_next": chunk.X_next, **chunk.transitions,
        }  # fmt: skip
        begins = int(np.searchsorted(chunk.episode, chunk.episode[-1]))
        if begins:
            self._keep({name: values[:begins] for name, values in columns.items() if values is not None})
            self.finish()
        self._keep({name: values[begins:] for name, values in columns.items() if values is not None})

    def _keep(self, columns: dict[str, Any]) -> None:
        for name, values in columns.items():
            self._rows.setdefault(name, []).append(values)

    def finish(self) -> None:
        """Move the rows so far, all of whole episodes, to the moments."""
        if not self._rows:
            return
        columns: dict[str, Any] = {name: np.concatenate(values) for name, values in self._rows.items()}
        self._rows = {}
        model, treatment = self._model, self._treatment
        rows = check_rows(**columns, gamma=model.settings.gamma, warn=False)
        values = model.predict(rows.X).reshape(rows.y.shape)
        ahead = None if rows.X_next is None else model.predict(rows.X_next).reshape(rows.y.shape)
        returns, shares = completed_returns(rows, values, ahead), unobserved_shares(rows)
        weight = rows.full.astype(np.float64)
        if treatment.unobserved == "drop":
            weight *= shares < treatment.tolerance
        elif treatment.unobserved == "ipcw":
            ends = np.flatnonzero(rows.ends)
            episode: NDArray[np.int64] = np.cumsum(rows.ends) - rows.ends
            age = np.arange(len(rows)) - np.append(0, ends[:-1] + 1)[episode]
            weight *= treatment.weights(age, (age + rows.full)[ends][episode], rows.terminated[ends][episode])
        given = weight * rows.weight
        counted = rows.full & ((given > 0.0) | (weight == 0.0))
        self._moments.terminated += int(rows.terminated.sum())
        self._moments.add(*(a[counted] for a in (returns, returns - values, given, 1.0 - shares)))


class _Moments:
    """Weight, mean and spread (sum of squared deviations) of returns and of errors, merged as by Chan et al. (1979)."""

    def __init__(self, n_rewards: int) -> None:
        self.count = self.left_out = self.terminated = 0  # rows with a weight and without; rows that terminated
        self.weight = self.observed = 0.0  # of these rows, and of what was observed
        self.mean, self.spread, self._mean_error, self._spread_error = np.zeros((4, n_rewards))

    @property
    def squares(self) -> Array:
        """Sum of squared errors."""
        return np.asarray(self._spread_error + self.weight * self._mean_error**2)

    def add(self, returns: Array, errors: Array, weight: Array, seen: Array) -> None:
        """Add rows: arrays of shape (T, m), weights and observed shares of shape (T,)."""
        block, kept = _Moments(returns.shape[1]), weight > 0.0
        returns, errors, weight, seen = returns[kept], errors[kept], weight[kept], seen[kept]
        self.left_out += len(kept) - len(weight)
        if len(weight):
            block.count, block.weight, block.observed = len(weight), float(weight.sum()), float(weight @ seen)
            block.mean, block._mean_error = weight @ returns / block.weight, weight @ errors / block.weight
            block.spread = weight @ (returns - block.mean) ** 2
            block._spread_error = weight @ (errors - block._mean_error) ** 2
        self.merge(block)

    def merge(self, other: _Moments) -> None:
        """Add other moments."""
        if not other.count:
            return
        both = self.weight + other.weight
        share, weight = other.weight / both, self.weight * other.weight / both
        step, step_error = other.mean - self.mean, other._mean_error - self._mean_error
        self.spread = self.spread + other.spread + step**2 * weight
        self._spread_error = self._spread_error + other._spread_error + step_error**2 * weight
        self.mean, self._mean_error = self.mean + step * share, self._mean_error + step_error * share
        self.weight, self.count, self.observed = both, self.count + other.count, self.observed + other.observed

    def r2(self) -> Array:
        """Return R² for each reward; NaN where all returns are equal."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.spread > 0.0, 1.0 - self.squares / self.spread, np.nan)
