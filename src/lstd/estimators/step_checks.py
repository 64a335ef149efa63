"""The checks of a model of the next steps, for its longest horizon H, and its score on held-out groups.

Misfit. The returns are discounted sums of rewards that reach about as far as H steps do: each step is discounted by a
further 1 − 1/H, and nothing but the next reward counts if H is 1. So the test is that of
:mod:`lstd.estimators.misfit_check`, by the same sums, which account for what predictions complete at cuts. Returns of
exactly H steps, completed by the weights of fewer, are noisier just where a beginning shows: in twelve tables of
survival, in ten steps, their test of ages missed two effects that the discounted sums find.

Bias. Predictions of H steps with λ and with λ = 1, both with the same small ridge coefficient and blocks, are compared
as in :mod:`lstd.estimators.bias_check`.

A misfit gives a warning only where its remedy helps: see :mod:`lstd.estimators.advice_trial`.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import partial

import numpy as np

from lstd.data.returns import ObservedReturns
from lstd.data.rows import Rows
from lstd.errors import BiasWarning, IllConditionedWarning, InvalidInputError, MisfitWarning, warn
from lstd.estimators.advice_trial import worth_their_advice
from lstd.estimators.base import mean_r2
from lstd.estimators.bias_check import FEWEST as FEWEST_OF_BIAS
from lstd.estimators.bias_check import RIDGE as RIDGE_OF_BIAS
from lstd.estimators.bias_check import compared, note_of_check, or_why
from lstd.estimators.folds import mean_product, mean_square
from lstd.estimators.horizon_model import HorizonModel
from lstd.estimators.misfit_check import FEWEST, TestFunctions, result, scores_of
from lstd.estimators.model_parts import BiasCheck, Checks, HeldOut, MisfitCheck
from lstd.estimators.naive_forecast import Compared, Cut, compare, rows_looking_back
from lstd.estimators.shared_shocks import SharedShock, shared_shock
from lstd.estimators.step_refit import Ahead, ModelRows, Refit, hold_out, looking_ahead
from lstd.estimators.step_spread import Held, StepSpread, spread_of
from lstd.statistics.solve import check_range
from lstd.statistics.threads import one_blas_thread


def with_checks(model: HorizonModel, some: Rows, more: Rows) -> HorizonModel:
    """Return a fitted model with what checks of some of its rows find, and its score on them, and warn of it.

    The log is looked at ahead by `more` of the rows.
    """
    n_rows = model.stream.layout.n_rows
    note = note_of_check(len(some), n_rows)
    with warnings.catch_warnings(), np.errstate(over="ignore", invalid="ignore"):  # what overflows is not known
        warnings.simplefilter("ignore", IllConditionedWarning)  # the model gives its own
        try:
            refit = Refit.of(model, some)
        except InvalidInputError as error:
            return model.described(checks=Checks(str(error), str(error)))
        checks = Checks(
            bias=or_why(partial(check_bias_of_steps, refit, note)),
            misfit=or_why(partial(_quiet_misfit_of_steps, refit)),
        )
        held = hold_out(refit)
        checks = replace(checks, misfit=_worth_mending(refit, held, checks.misfit, note))
        if held is None:
            return model.described(checks=checks)
        try:
            ahead = looking_ahead(ModelRows.of(model, more))
            naive = naive_forecast(refit, held, ahead)
            score = HeldOut(_score(refit, held), len(some), len(held.places))
            spread = _spread(refit, held)
        except InvalidInputError:  # squares overflow, as those of the weights do not
            return model.described(checks=checks)
        shock = _shock(model, ahead)
        found = None
        if naive is not None:
            found = naive.found
            if naive.ahead:
                note = note_of_check(len(more), n_rows)
            naive.warn(note)
        return model.described(checks=checks, held_out=score, naive=found, spread=spread, shock=shock)


# ------------------------------------------------------------ checks


def _worth_mending(refit: Refit, held: Held | None, check: MisfitCheck | str, note: str) -> MisfitCheck | str:
    """Return a check for misfit, without what its advice would not mend; warn of the rest, with `note` at the end."""
    if isinstance(check, str) or not np.any(check.misfit):
        return check
    worth = worth_their_advice(refit, held, check)
    kept = bool(worth[0]) if refit.model.single else worth
    check = replace(check, misfit=kept)
    if worth.any():
        warn(check.message + note, MisfitWarning)
    return check


def _quiet_misfit_of_steps(refit: Refit) -> MisfitCheck:
    """Look for what the model leaves out, without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MisfitWarning)
        return check_misfit_of_steps(refit)


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


def _spread(refit: Refit, held: Held) -> StepSpread:
    """Return the variance of the rewards of the next steps about held-out predictions."""
    spread = spread_of(held)
    return replace(spread, weights=refit.model.uncentred(spread.weights))


def _shock(model: HorizonModel, ahead: Ahead) -> SharedShock | None:
    """Return the shock that rows share; None where it is not known."""
    try:
        return shared_shock(model.at([ahead.steps]), ahead.rows, ahead.cuts)
    except InvalidInputError:  # squares overflow
        return None


def naive_forecast(refit: Refit, held: Held, ahead: Ahead) -> Compared | None:
    """Compare predictions with naive forecasts, ahead where that can be; None of too few rows or groups."""
    model = refit.model
    rows = refit.rows
    horizon = model.stream.horizon
    if ahead.cuts:
        found = compare(ahead.rows, [followed.cut for followed in ahead.cuts], ahead.steps, ahead=True)
        if found is not None:
            return found
    curve = held.curve()
    if len(rows) < model.stream.layout.n_rows:  # many columns would be fitted to too few rows
        curve = (np.asarray(rows.X @ theta) for theta in model.solved.weights)
    place, n_compared = rows_looking_back(rows, horizon)
    came = refit.returns.rewards[place]
    predicted = np.empty_like(came)
    for k, values in enumerate(curve, 1):
        is_then = n_compared == k
        predicted[is_then] = model.bounded(values)[place[is_then]]
    return compare(rows, [Cut(place, n_compared, came, predicted)], horizon)


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
