"""The checks of a model of the next steps, for its longest horizon H, and its score on held-out groups.

Misfit. The returns are discounted sums of rewards that reach about as far as H steps do: each step is discounted by a
further 1 − 1/H, and nothing but the next reward counts if H is 1. So the test is that of
:mod:`lstd.estimators.misfit_check`, by the same sums, which account for what predictions complete at cuts. Returns of
exactly H steps, completed by the weights of fewer, are noisier just where a beginning shows: in twelve tables of
survival, in ten steps, their test of ages missed two effects that the discounted sums find.

Bias. Predictions of H steps with λ and with λ = 1, both with the same small ridge coefficient and blocks, are compared
as in :mod:`lstd.estimators.bias_check`.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from lstd.data.feature_arrays import Features, check_finite
from lstd.data.returns import ObservedReturns
from lstd.data.rows import Rows
from lstd.errors import BiasWarning, IllConditionedWarning, InvalidInputError, warn
from lstd.estimators.base import mean_r2
from lstd.estimators.bias_check import FEWEST as FEWEST_OF_BIAS
from lstd.estimators.bias_check import RIDGE as RIDGE_OF_BIAS
from lstd.estimators.bias_check import compared, note_of_check, or_why
from lstd.estimators.folds import check_enough, folds_of, mean_product, mean_square
from lstd.estimators.horizon_model import HorizonModel
from lstd.estimators.misfit_check import FEWEST, TestFunctions, result, scores_of
from lstd.estimators.model_parts import BiasCheck, Checks, HeldOut, MisfitCheck
from lstd.estimators.naive_forecast import (
    Compared,
    Cut,
    compare,
    cuts_looking_ahead,
    known_at,
    rows_at,
    rows_looking_back,
)
from lstd.estimators.step_spread import Held, StepSpread, spread_of
from lstd.statistics.horizon_sums import LagSums, completed, lag_sums
from lstd.statistics.solve import check_range
from lstd.statistics.threads import one_blas_thread
from lstd.types import Array

_ROWS_OF_WEIGHT = 10  # for each step and weight, of a fit to what was known earlier


def with_checks(model: HorizonModel, some: Rows) -> HorizonModel:
    """Return a fitted model with what checks of some of its rows find, and its score on them, and warn of it."""
    note = note_of_check(len(some), model.stream.layout.n_rows)
    with warnings.catch_warnings(), np.errstate(over="ignore", invalid="ignore"):  # what overflows is not known
        warnings.simplefilter("ignore", IllConditionedWarning)  # the model gives its own
        try:
            refit = Refit.of(model, some)
        except InvalidInputError as error:
            return model.described(checks=Checks(str(error), str(error)))
        checks = Checks(
            bias=or_why(partial(check_bias_of_steps, refit, note)),
            misfit=or_why(partial(check_misfit_of_steps, refit, note)),
        )
        held = hold_out(refit)
        if held is None:
            return model.described(checks=checks)
        try:
            naive = naive_forecast(refit, held)
            score = HeldOut(_score(refit, held), len(some), len(held.places))
            spread = _spread(refit, held)
        except InvalidInputError:  # squares overflow, as those of the weights do not
            return model.described(checks=checks)
        if naive is not None:
            naive.warn(note)
        found = None if naive is None else naive.found
        return model.described(checks=checks, held_out=score, naive=found, spread=spread)


# ------------------------------------------------------------ returns


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
class Refit:
    """A model, and another fit to rows of it, of which λ and the ridge coefficient are free; n features with the ones.

    Attributes
    ----------
    model : HorizonModel
        The model that is checked.
    given, rows : Rows
        Some of its rows, and these with the columns that replace the age, and that of ones if the model has an
        intercept.
    fitted : HorizonModel
        The sums of these rows, in blocks.
    returns : StepReturns
    """

    model: HorizonModel
    given: Rows
    rows: Rows
    fitted: HorizonModel
    returns: StepReturns

    @classmethod
    def of(cls, model: HorizonModel, rows: Rows) -> Refit:
        """Sum rows without the column of ones."""
        settings = replace(model.settings, alpha=1.0, choose=(), penalty=None, centre=None)
        horizon = model.stream.horizon
        fitted = HorizonModel.of_rows(rows, horizon, settings, "auto", age=model.age, spreads=True)
        with_ones = model.with_columns(rows)
        if settings.fit_intercept:
            with_ones = with_ones.with_ones()
        return cls(model, rows, with_ones, fitted, StepReturns.of(rows, horizon))

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


# ------------------------------------------------------------ checks


def check_misfit_of_steps(refit: Refit, note: str = "") -> MisfitCheck:
    """Look for what the model leaves out of returns that reach as far as H steps; a warning ends with `note`."""
    refit.check_enough("A check of misfit", FEWEST)
    rows = refit.rows
    linear = refit.model.at()
    near = 1.0 - 1.0 / refit.model.stream.horizon
    rows = rows.changed(
        gamma=near * rows.gamma,
        discount=np.where(rows.terminated, 0.0, near * rows.discount),
        given=rows.given | {"discount"},
    )
    with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
        gram = mean_product(rows, rows.X, rows.X)
        check_range(gram)
        of_features = linear.weights[: linear.n_features]
        tests = TestFunctions.of(rows, gram, of_features, intercept=linear.has_ones)
        scores = scores_of(tests, rows, gram)
    errors = None
    if not linear.no_intervals:
        errors = linear.standard_error(refit.given.X).mean(axis=0)
    has_age = refit.model.age is not None
    return result(tests, scores, errors, note=note, single=refit.model.single, has_age=has_age)


@np.errstate(over="ignore", invalid="ignore")  # `compared` reports overflow
def check_bias_of_steps(refit: Refit, note: str = "") -> BiasCheck:
    """Compare predictions of H steps with λ and with λ = 1, both fitted to the rows; a warning ends with `note`."""
    lmbda = refit.model.solved.lmbda
    if lmbda == 1.0:
        raise InvalidInputError("`lmbda` must be below 1 for a check of bias; got 1, which does not bootstrap.")
    refit.check_enough("A check of bias", FEWEST_OF_BIAS)
    fitted = refit.fitted
    alpha = RIDGE_OF_BIAS * fitted.unit / fitted.n_features
    with_lmbda = fitted.changed(settings=replace(fitted.settings, lmbda=lmbda, alpha=alpha))
    with_one = fitted.changed(settings=replace(fitted.settings, lmbda=1.0, alpha=alpha))
    residual = mean_square(refit.rows, refit.residuals(with_one.solved.weights))
    gram = mean_product(refit.rows, refit.rows.X, refit.rows.X)
    check_range(gram, residual)
    check = compared(with_lmbda.at(), with_one.at(), gram, residual)
    if np.any(check.biased):
        warn(check.message(lmbda) + note, BiasWarning)
    return check.first() if refit.model.single else check


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
        theta=[model.uncentred(model.recursion(rest, lmbda, alpha).run()) for rest in rests],
        system=model.recursion(total, lmbda, alpha).system,
    )


def _spread(refit: Refit, held: Held) -> StepSpread:
    """Return the variance of the rewards of the next steps about held-out predictions."""
    spread = spread_of(held)
    return replace(spread, weights=refit.model.uncentred(spread.weights))


def naive_forecast(refit: Refit, held: Held) -> Compared | None:
    """Compare predictions with naive forecasts, ahead where that can be; None of too few rows or groups."""
    model = refit.model
    rows = refit.rows
    horizon = model.stream.horizon
    has_all = len(rows) == model.stream.layout.n_rows
    steps, cuts = cuts_looking_ahead(rows, horizon)
    n_needed = _ROWS_OF_WEIGHT * steps * rows.n_features  # or a fit to some of the rows is worse than that to all
    if cuts and (has_all or len(rows) >= n_needed):
        returns = StepReturns.of(rows, steps)
        found = compare(rows, [_ahead(refit, returns, steps, cut) for cut in cuts], steps, ahead=True)
        if found is not None:
            return found
    curve = held.curve()
    if not has_all:  # many columns would be fitted to too few rows
        curve = (np.asarray(rows.X @ theta) for theta in model.solved.weights)
    place, n_compared = rows_looking_back(rows, horizon)
    came = refit.returns.rewards[place]
    predicted = np.empty_like(came)
    for k, values in enumerate(curve, 1):
        is_then = n_compared == k
        predicted[is_then] = model.bounded(values)[place[is_then]]
    return compare(rows, [Cut(place, n_compared, came, predicted)], horizon)


def _ahead(refit: Refit, returns: StepReturns, steps: int, cut: int) -> Cut:
    """Return predictions of the rows at a cut, fitted to what was known then, and what followed."""
    model = refit.model
    prepared = model.prepared(known_at(refit.given, cut))
    (sums,) = lag_sums(prepared, steps, [0, len(prepared)])
    theta = model.uncentred(model.recursion(sums, model.solved.lmbda, model.solved.alpha).run())
    place = rows_at(refit.rows, cut)
    predicted = model.bounded(np.asarray(refit.rows.X[place] @ theta[-1]))
    return Cut(place, np.full(len(place), steps), returns.rewards[place], predicted)


def _score(refit: Refit, held: Held) -> float:
    """Return R² of held-out predictions of H steps."""
    predictions = []
    returns = []
    for place, theta in zip(held.places, held.theta, strict=True):
        predictions.append(refit.model.bounded(np.asarray(refit.rows.X[place] @ theta[-1])))
        returns.append(refit.returns.completed(refit.rows.X, theta)[place])
    weight = refit.weight
    nothing = np.zeros(len(weight))
    observed = ObservedReturns(np.vstack(returns), nothing, weight, nothing)
    return mean_r2(observed, np.vstack(predictions), weight)
