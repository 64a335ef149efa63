"""A fit to some rows of a model of the next steps: returns, predictions of folds that were held out, and from cuts on.

What checks of :mod:`lstd.estimators.step_checks` share.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lstd.data.feature_arrays import Features, check_finite
from lstd.data.rows import Rows
from lstd.errors import InvalidInputError
from lstd.estimators.folds import check_enough, folds_of
from lstd.estimators.horizon_model import HorizonModel
from lstd.estimators.naive_forecast import Cut, cuts_looking_ahead, known_at, rows_at
from lstd.estimators.shared_shocks import Followed
from lstd.estimators.step_spread import Held
from lstd.statistics.horizon_sums import LagSums, completed, lag_sums
from lstd.types import Array

ROWS_OF_WEIGHT = 10  # for each step and weight, of a fit to some of the rows that tells of one to all


@dataclass(frozen=True, eq=False)
class StepReturns:
    """The rewards of the next H steps of checked rows, and where predictions complete them; T rows, m rewards.

    Attributes
    ----------
    rewards : ndarray of shape (T, m)
        Discounted sum of the rewards that were observed; 0 in horizon rows.
    cuts : list of (int, ndarray, ndarray, ndarray)
        For each number h of steps that a cut left: h, the full rows whose returns were cut off then, the discounts up
        to there, and the horizon rows, (T_h,) each.
    """

    rewards: Array
    cuts: list[tuple[int, NDArray[np.intp], Array, NDArray[np.intp]]]

    @classmethod
    def of(cls, rows: Rows, horizon: int) -> StepReturns:
        """Compute the returns of `horizon` steps."""
        full = rows.full
        discount = np.where(rows.last, 0.0, rows.discount)
        rewards = np.zeros_like(rows.y)
        to_cut = np.zeros(len(rows))
        for _ in range(horizon):
            later = np.append(rewards[1:], rewards[:1], axis=0)
            rewards = np.where(full[:, np.newaxis], rows.y + discount[:, np.newaxis] * later, 0.0)
            to_cut = np.where(full, discount * np.append(to_cut[1:], 0.0), 1.0)
        (place,) = np.nonzero(full & (to_cut != 0.0))
        ends = np.flatnonzero(rows.last)
        end = ends[np.searchsorted(ends, place)]
        left = horizon - (end - place)
        cuts = []
        for h in np.unique(left).tolist():
            (cut_then,) = np.nonzero(left == h)
            cuts.append((h, place[cut_then], to_cut[place[cut_then]], end[cut_then]))
        return cls(rewards, cuts)

    def completed(self, phi: Features, theta: Array) -> Array:
        """Return the returns (T, m), completed by weights θ_1, …, θ_H (H, n, m) of features (T, n)."""
        returns = self.rewards.copy()
        for h, place, factor, end in self.cuts:
            returns[place] += factor[:, np.newaxis] * np.asarray(phi[end] @ theta[h - 1])
        return returns


@dataclass(frozen=True, eq=False)
class ModelRows:
    """A model, and some of its rows; n features with the ones.

    Attributes
    ----------
    model : HorizonModel
        The model that is checked.
    given, rows : Rows
        Some of its rows, and these with the columns that replace the age, and that of ones if the model has an
        intercept.
    """

    model: HorizonModel
    given: Rows
    rows: Rows

    @classmethod
    def of(cls, model: HorizonModel, rows: Rows) -> ModelRows:
        """Take rows without the column of ones."""
        return ModelRows(model, rows, _with_columns(model, rows))


def _with_columns(model: HorizonModel, rows: Rows) -> Rows:
    """Return rows with the columns that replace the age, and that of ones if the model has an intercept."""
    with_columns = model.with_columns(rows)
    if model.settings.fit_intercept:
        return with_columns.with_ones()
    return with_columns


@dataclass(frozen=True, eq=False)
class Refit(ModelRows):
    """Another fit to rows of a model, of which λ and the ridge coefficient are free.

    Attributes
    ----------
    fitted : HorizonModel
        The sums of these rows, in blocks.
    returns : StepReturns
    """

    fitted: HorizonModel
    returns: StepReturns

    @classmethod
    def of(cls, model: HorizonModel, rows: Rows) -> Refit:
        """Sum rows without the column of ones."""
        settings = replace(model.settings, alpha=1.0, choose=(), penalty=None, centre=None)
        horizon = model.stream.horizon
        fitted = HorizonModel.of_rows(rows, horizon, settings, "auto", age=model.age, spreads=True)
        return cls(model, rows, _with_columns(model, rows), fitted, StepReturns.of(rows, horizon))

    @property
    def weight(self) -> Array:
        """Weights of the rows, (T,), 0 for horizon rows."""
        return self.rows.weight * self.rows.full

    def residuals(self, theta: Array) -> Array:
        """Return the returns of H steps less their predictions, (T, m)."""
        return np.asarray(self.returns.completed(self.rows.X, theta) - self.rows.X @ theta[-1])

    def check_enough(self, what: str, fewest: tuple[int, int]) -> None:
        """Refuse too few rows for `what`, and features that are not finite."""
        check_enough(what, self.rows, *fewest)
        check_finite("X", self.given.X, self.given.names)


def hold_out(refit: Refit) -> Held | None:
    """Return predictions for folds of the rows, fitted without each; None if there are too few groups or rows.

    The weights are those of the model's λ and ridge coefficients, these in proportion to the rows.
    """
    model = refit.model
    try:
        folds = folds_of(refit.given)
    except InvalidInputError:
        return None
    weight = refit.weight
    if len(folds) < 2 or np.count_nonzero(weight) < 2:
        return None
    edges = np.cumsum([0, *map(len, folds)]).tolist()
    prepared = model.prepared(refit.given)
    sums = lag_sums(prepared, model.stream.horizon, edges)
    total = reduce(LagSums.plus, sums)
    rests = [total.plus(part, -1.0) for part in sums]
    if not all(rest.weight > 0.0 for rest in rests):
        return None
    lmbda = model.solved.lmbda
    alpha = model.solved.alpha
    return Held(
        rows=refit.rows,
        centred=completed(prepared).X,
        places=[slice(first, end) for first, end in pairwise(edges)],
        theta=[model.uncentred(theta) for theta in model.weights_of_parts(rests, lmbda, alpha)],
        system=model.recursion(total, lmbda, alpha).system,
    )


class Ahead(NamedTuple):
    """What followed the cuts at which a log can be looked at ahead."""

    rows: Rows
    steps: int
    cuts: list[Followed]  # empty if there are none


def looking_ahead(some: ModelRows) -> Ahead:
    """Return predictions at all cuts and what followed; none where rows are too few for a fit to tell of one to all."""
    rows = some.rows
    has_all = len(rows) == some.model.stream.layout.n_rows
    steps, cuts = cuts_looking_ahead(rows, some.model.stream.horizon)
    n_needed = ROWS_OF_WEIGHT * steps * rows.n_features
    if not cuts or not (has_all or len(rows) >= n_needed):
        return Ahead(rows, steps, [])
    returns = StepReturns.of(rows, steps)
    return Ahead(rows, steps, [look_ahead(some, returns, steps, cut) for cut in cuts])


def look_ahead(some: ModelRows, returns: StepReturns, steps: int, cut: int) -> Followed:
    """Return predictions of the rows at a cut, fitted to what was known then, and what followed."""
    model = some.model
    prepared = model.prepared(known_at(some.given, cut))
    (sums,) = lag_sums(prepared, steps, [0, len(prepared)])
    theta = model.uncentred(model.recursion(sums, model.solved.lmbda, model.solved.alpha).run())
    place = rows_at(some.rows, cut)
    values = np.asarray(some.rows.X[place] @ theta[-1])
    compared = Cut(place, np.full(len(place), steps), returns.rewards[place], model.bounded(values))
    return Followed(compared, values, sums.weight / model.total.weight)
