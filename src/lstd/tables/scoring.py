"""Scores of a model on the discounted returns of tables, computed chunk by chunk.

The reward and the prediction of a row wait until its return is known: to the end of its episode, or until what is left
of the return is below rounding. With importance ratios or trace coefficients, whole episodes wait.

Inverse probability weights need the length of every episode first, so with them the tables are read twice. For scores
at horizons, and for backtests, all rows are held in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lstd.data.doubts import SELF_SCORED, little_observed
from lstd.data.returns import (
    TOLERANCE,
    Treatment,
    check_treatment,
    check_unbiased,
    completed_returns,
    unobserved_shares,
)
from lstd.data.rows import Rows
from lstd.errors import BoundsWarning, InvalidInputError, UnobservedWarning, warn
from lstd.estimators.horizon_model import AtHorizons, SavedHorizons
from lstd.estimators.limits import beyond_bounds
from lstd.estimators.model import Model
from lstd.estimators.model_parts import Limits
from lstd.tables.column_roles import Roles
from lstd.tables.predicting import Thinned, predictions_of
from lstd.tables.reader import Chunk, RowReader, times_of
from lstd.tables.sources import watched
from lstd.tables.table import Table
from lstd.types import Array

if TYPE_CHECKING:
    from lstd.estimators.choose_settings import OnProgress
    from lstd.metrics import Backtest


_MOST_COMPARED = 2**17  # predictions, 1 MiB
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
    answer. Warns if little was observed, and if predictions are outside of what the rewards allow.
    """
    model.check_given(roles.transitions, remedy="Name its column.")
    tolerance = check_treatment(unobserved, tolerance)
    tables = watched(paths, on_progress)
    open_reader = partial(RowReader, tables, roles, gamma=model.settings.gamma, chunk_rows=chunk_rows)
    files = ", ".join(table.file for table in tables)
    treatment = Treatment(unobserved, tolerance, model.settings.gamma)
    if unobserved == "ipcw":
        if roles.next_features:
            raise InvalidInputError('`unobserved` must not be "ipcw" with features of successors; use "predict".')
        treatment = _with_cuts(open_reader(), treatment)
    sums = _Sums(model, treatment, roles)
    with np.errstate(over="ignore", invalid="ignore"):  # the results are checked
        for chunk in open_reader().chunks():
            sums.add(chunk)
        sums.settle(at_end=True)
    if unobserved == "drop":
        check_unbiased(sums.count, sums.left_out, sums.terminated)
    if sums.count < 2:
        raise InvalidInputError(f"{files}: of {sums.rows} rows {_too_few(sums.count, treatment)}")
    if not (np.isfinite(sums.squares) & np.isfinite(sums.spread)).all():
        raise InvalidInputError(
            f"{files}: the squares of returns or of errors are beyond 1e308; scale the rewards down, or look for huge "
            "values."
        )
    share = sums.observed / sums.weight
    warn(little_observed(share, SELF_SCORED), UnobservedWarning)
    warn(beyond_bounds(sums.predicted.rows, sums.bounds), BoundsWarning)
    return Score(_r2(sums.squares, sums.spread), sums.squares / sums.weight, sums.rows, sums.count, share)


def _r2(squares: Array, spread: Array) -> Array:
    """Return R² of each reward, NaN where all returns are equal."""
    return 1.0 - np.divide(squares, spread, out=np.full_like(squares, np.nan), where=spread > 0.0)


def _with_cuts(reader: RowReader, treatment: Treatment) -> Treatment:
    """Read the lengths of all episodes, and the largest discount of a transition."""
    parts = [np.zeros((3, 0), np.int64)]  # number of an episode, its rows in a chunk, and whether it terminates there
    largest, before = 0.0 if "discount" in reader.roles.transitions else treatment.gamma, (-1, 0.0)
    for rows in (chunk.rows for chunk in reader.chunks()):
        last, number = np.flatnonzero(rows.last), np.asarray(rows.episode)
        parts.append(np.array([number[last], np.diff(last, prepend=-1), rows.terminated[last]]))
        inner = rows.discount[:-1][~rows.last[:-1]]
        inner = np.append(inner, before[1]) if number[0] == before[0] else inner
        largest, before = float(np.max(inner, initial=largest)), (int(number[-1]), float(rows.discount[-1]))
    numbers, lengths, ended = np.concatenate(parts, axis=1)
    terminated = np.bincount(numbers, ended) > 0.0
    lengths = np.bincount(numbers, lengths).astype(np.int64) - ~terminated
    return Treatment.ipcw(lengths, terminated, treatment.tolerance, largest)


def _too_few(count: int, treatment: Treatment) -> str:
    counts, remedy = "another row of its episode follows or it terminates", "Give longer episodes"
    if treatment.unobserved != "predict":
        counts, remedy = "its episode terminates", 'Use `unobserved="predict"`, name the column of terminated episodes'
        if treatment.gamma < 1.0:
            counts += f" or goes on for {treatment.steps:g} steps (γ^h < {treatment.tolerance:g})"
            remedy += ", or give longer ones"
    return f"{count or 'none'} can be scored, and at least 2 are needed: a row is scored if {counts}. {remedy}."


class _Sums:
    """Weight, mean and spread (sum of squared deviations) of returns, merged as by Chan et al. (1979), and of errors.

    Rows whose returns are not known yet wait, with predictions in place of their features.
    """

    def __init__(self, model: Model, treatment: Treatment, roles: Roles) -> None:
        self._model, self._treatment, m = model, treatment, len(roles.rewards)
        self._whole = not {"importance_ratio", "trace_coefficient"}.isdisjoint(roles.transitions)
        self.rows = self.count = self.left_out = self.terminated = 0  # scored: with a weight and without
        self.weight = self.observed = 0.0  # of scored rows, and of what was observed
        self.mean, self.spread, self.squares = np.zeros((3, m))  # of returns; sum of squared errors
        self.predicted, self._limits = Thinned(_MOST_COMPARED), model.limits and replace(model.limits, ranges=None)
        self._waiting: list[Rows] = []
        self._n_waiting = self._due = self._first_age = 0  # the latter of the first row that waits

    @property
    def bounds(self) -> Array | None:
        """The least and the greatest value that the rewards of the fit and of these rows allow, (2, m)."""
        return None if self._limits is None else self._limits.bounds(self._model.settings)

    def add(self, chunk: Chunk) -> None:
        """Add the next rows."""
        rows, coef = chunk.rows, self._model.coef.reshape(chunk.rows.y.shape[1], -1)
        predicted, X_next = predictions_of(self._model, chunk), None
        if rows.X_next is not None:  # that of a terminal state may have no features
            X_next = np.where(rows.terminated[:, np.newaxis], 0.0, rows.X_next @ coef.T + self._model.intercept)
        self._waiting.append(rows.changed(X=predicted, X_next=X_next, names=None, single=False))
        self.predicted.add(predicted)
        self.rows += len(rows)
        self._n_waiting += len(rows)
        if self._n_waiting >= self._due:  # when waiting rows have doubled, which takes time linear in all rows
            self.settle()
            self._due = 2 * self._n_waiting

    def settle(self, *, at_end: bool = False) -> None:
        """Move the rows whose returns are known to the sums; all of them at the end."""
        if not self._waiting:
            return
        rows = Rows.joined(self._waiting)
        episode = np.asarray(rows.episode)
        self._limits = Limits.of(rows) if self._limits is None else self._limits.then(rows, False)
        returns, shares = completed_returns(rows, rows.X, rows.X_next), unobserved_shares(rows)
        known = len(rows)
        if not at_end:
            begins = int(np.searchsorted(episode, episode[-1]))
            late = np.flatnonzero(self._whole | (shares[begins:] > _NEGLIGIBLE))
            known = begins + int(late[0]) if len(late) else known
        weight = self._treatment.weights(rows, shares, self._first_age)[:known]
        given = weight * rows.weight[:known]
        counted = rows.full[:known] & ((given > 0.0) | (weight == 0.0))
        self.terminated += int(rows.terminated[:known].sum())
        self.left_out += int(np.count_nonzero(counted & (given == 0.0)))
        scored = np.flatnonzero(counted & (given > 0.0))
        self._add(returns[scored], (returns - rows.X)[scored], given[scored], 1.0 - shares[scored])
        first = int(np.searchsorted(episode, episode[known])) if known < len(rows) else known
        self._first_age = known - first + (self._first_age if not first else 0)
        self._waiting = [rows.taken(slice(known, None))] if known < len(rows) else []
        self._n_waiting = len(rows) - known

    def _add(self, returns: Array, errors: Array, weight: Array, seen: Array) -> None:
        """Add rows of a weight above zero: arrays of shape (T, m), weights and observed shares of shape (T,)."""
        if not len(weight):
            return
        before, more = self.weight, float(weight.sum())
        mean = weight @ returns / more
        step, self.weight = mean - self.mean, before + more
        self.spread = self.spread + weight @ (returns - mean) ** 2 + step**2 * (before * more / self.weight)
        self.mean = self.mean + step * (more / self.weight)
        self.squares = self.squares + weight @ errors**2
        self.count, self.observed = self.count + len(weight), self.observed + float(weight @ seen)


# ------------------------------------------------------------ all rows in memory


def score_horizons(
    saved: SavedHorizons, rows: Rows, horizons: Sequence[int], unobserved: str = "predict"
) -> Iterator[Score]:  # fmt: skip
    """Yield the score for each number of steps, as :meth:`lstd.HorizonLSTD.score`; raises as `score_tables` does."""
    check_treatment(unobserved, TOLERANCE)
    for h in horizons:
        found = AtHorizons(saved, range(1, h + 1)).returns(rows.changed(single=False), unobserved)
        prediction, scored = AtHorizons(saved, [h]).predict(rows.X), found.weight > 0.0
        if np.count_nonzero(scored) < 2:
            raise InvalidInputError(
                f"Two rows must have {h} steps to score. Give longer episodes, or a smaller number."
            )
        warn(little_observed(found.share, SELF_SCORED), UnobservedWarning)
        weight, returns = found.weight[scored], found.returns[scored]
        mean, mse = (np.average(a, axis=0, weights=weight) for a in (returns, (returns - prediction[scored]) ** 2))
        spread = np.average((returns - mean) ** 2, axis=0, weights=weight)
        yield Score(_r2(mse, spread), mse, len(rows), len(weight), found.share)


def backtest_tables(
    estimator: Any, rows: Rows, time: Any, names: Sequence[str], cut: Any, horizons: Sequence[int]
) -> Iterator[tuple[str, Backtest]]:  # fmt: skip
    """Yield :func:`lstd.metrics.backtest` for each reward, with its name, and number of steps."""
    from lstd.metrics import backtest  # imports scikit-learn

    columns = {**rows.arguments, "y": None, "time": time}
    for j, name in enumerate(names):
        y = np.where(rows.known, rows.y[:, j], np.nan)
        yield from ((name, backtest(estimator, **columns | {"y": y}, cut=cut, steps=h)) for h in horizons)


def all_rows(
    tables: Sequence[str | Table], roles: Roles, gamma: float, on_progress: OnProgress | None = None
) -> tuple[Rows, Any]:  # fmt: skip
    """Return the rows of tables, with times if a column is named; raises InvalidInputError at the first bad row."""
    kept = () if roles.time is None else (roles.time,)
    reader = RowReader(watched(tables, on_progress), replace(roles, kept=kept), gamma=gamma)
    chunks = [chunk for chunk in reader.chunks() if len(chunk.rows)]
    if not chunks:
        raise InvalidInputError(f"{', '.join(table.file for table in reader.tables)}: there are no rows to score.")
    rows = Rows.joined([c.rows for c in chunks], episode=np.concatenate([np.asarray(c.rows.episode) for c in chunks]))
    if not kept:
        return rows, None
    return rows, times_of(pa.chunked_array([chunk.kept[0] for chunk in chunks]).combine_chunks(), kept[0])
