"""Whether the advice of a warning about misfit helps: a trial of the columns that it names on rows that are held out.

A misfit may be clear and its remedy of no use: squares go far off for the last rows, or little is left to explain. So
the model is fitted with the age of each episode, as with `age`, or with squares and products of its features, whatever
the warning would advise. It must lower the root mean square error of the rewards of H steps by a hundredth on groups or
episodes that were held out and, where that can be looked at, at the latest two cuts of
:mod:`lstd.estimators.naive_forecast`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lstd.data.age_columns import AgeColumns
from lstd.data.rows import Rows
from lstd.errors import InvalidInputError
from lstd.estimators.horizon_model import HorizonModel
from lstd.estimators.model_parts import MisfitCheck
from lstd.estimators.naive_forecast import cuts_looking_ahead
from lstd.estimators.step_refit import ROWS_OF_WEIGHT, Refit, StepReturns, hold_out, look_ahead
from lstd.estimators.step_spread import Held
from lstd.types import Array, Flags

_HELPS = 0.99  # ratio of the errors with and without the advice, at most
_MOST_CUTS = 2  # the latest ones
_MOST_COLUMNS = 150  # of a trial, which otherwise takes longer than the fit


def worth_their_advice(refit: Refit, held: Held | None, check: MisfitCheck) -> Flags:
    """Return of which rewards, (m,), the advice about a misfit lowers the error, or cannot be tried."""
    worth = np.array(check.misfit, ndmin=1)
    of_age = np.atleast_1d(check.of_age)
    for advises_age in (True, False):
        tried = worth & (of_age == advises_age) & ~np.atleast_1d(check.of_time)
        if held is not None and tried.any():
            worth[tried] = _helps(refit, held, advises_age=advises_age)[tried]
    return worth


def _helps(refit: Refit, held: Held, *, advises_age: bool) -> Flags:
    """Return for which rewards, (m,), an age, or else squares and products, lower the error, or cannot be tried."""
    unknown = np.ones(refit.rows.y.shape[1], np.bool_)
    try:
        wide = _with_advice(refit, advises_age=advises_age)
        if wide is None:
            return unknown
        held_wide = hold_out(wide)
        if held_wide is None:
            return unknown
        return _is_lower(_errors_held_out(refit, held, held_wide)) & _is_lower(_errors_ahead(refit, wide))
    except InvalidInputError:  # products overflow
        return unknown


def _is_lower(errors: Array) -> Flags:
    """Return for which rewards sums of squared errors, without and with the advice (2, m), are lower with it."""
    without, with_advice = errors
    return np.asarray(with_advice <= _HELPS**2 * without)


def _with_advice(refit: Refit, *, advises_age: bool) -> Refit | None:
    """Return a fit to the same rows with what is advised; None if that cannot be made of them."""
    model = refit.model
    rows = refit.given
    settings = model.settings
    has_own_units = isinstance(settings.alpha, tuple) or settings.penalty is not None
    if has_own_units or not isinstance(rows.X, np.ndarray):
        return None
    age = model.age
    if advises_age:
        if age is not None:
            return None
        n = rows.n_features
        rows = _beside(rows, rows.age[:, np.newaxis].astype(np.float64))
        age = AgeColumns.in_place_of(n, None, n + 1, model.stream.horizon)
        n_columns = 3 * n + age.n_scales
    else:
        kept = np.arange(rows.n_features)
        if age is not None:
            kept = np.delete(kept, age.place)
        n_columns = len(kept) * (len(kept) + 3) // 2
        if n_columns > _MOST_COLUMNS:
            return None
        rows = _beside(rows, _products(rows.X[:, kept]))
        if age is not None:
            age = AgeColumns.in_place_of(age.place, None, rows.n_features, model.stream.horizon)
            n_columns *= 3
    has_all = len(rows) == model.stream.layout.n_rows
    most = _MOST_COLUMNS
    if not has_all:  # a fit of many columns to some of the rows is worse than that to all
        most = min(most, len(rows) // (ROWS_OF_WEIGHT * model.stream.horizon))
    if n_columns > most:
        return None
    solved = model.solved
    share = refit.weight.sum() / model.total.weight
    wide = HorizonModel.of_rows(
        rows,
        model.stream.horizon,
        replace(settings, lmbda=solved.lmbda, alpha=share * solved.alpha, choose=(), centre=None),
        0,
        age=age,
        bounds=model.bounds,
        spreads=model.spreads,
    )
    with_ones = wide.with_columns(rows)
    if settings.fit_intercept:
        with_ones = with_ones.with_ones()
    return Refit(wide, rows, with_ones, wide, refit.returns)


def _beside(rows: Rows, columns: Array) -> Rows:
    """Return rows with further features, without names."""
    return rows.changed(X=np.hstack([rows.X, columns]), names=None)


def _products(X: Array) -> Array:
    """Return the squares and products of features (T, n), in units of their spreads."""
    spread = X.std(axis=0)
    standardised = (X - X.mean(axis=0)) / np.where(spread > 0.0, spread, 1.0)
    i, j = np.triu_indices(X.shape[1])
    return np.asarray(standardised[:, i] * standardised[:, j])


def _errors_held_out(refit: Refit, held: Held, held_wide: Held) -> Array:
    """Return sums of squared errors (2, m) of held-out predictions without and with the advice, of the same returns."""
    weight = refit.weight
    squares = np.zeros((2, refit.rows.y.shape[1]))
    for place, theta, theta_wide in zip(held.places, held.theta, held_wide.theta, strict=True):
        returns = refit.returns.completed(refit.rows.X, theta)[place]
        for j, (rows, weights) in enumerate([(held.rows, theta), (held_wide.rows, theta_wide)]):
            predicted = refit.model.bounded(np.asarray(rows.X[place] @ weights[-1]))
            squares[j] += weight[place] @ (returns - predicted) ** 2
    return squares


def _errors_ahead(refit: Refit, wide: Refit) -> Array:
    """Return sums of squared errors (2, m) at cuts, without and with the advice."""
    steps, cuts = cuts_looking_ahead(refit.rows, refit.model.stream.horizon)
    squares = np.zeros((2, refit.rows.y.shape[1]))
    returns = StepReturns.of(refit.rows, steps)
    for cut in cuts[:_MOST_CUTS]:
        for j, one in enumerate((refit, wide)):
            found = look_ahead(one, returns, steps, cut).cut
            squares[j] += refit.rows.weight[found.place] @ (found.came - found.predicted) ** 2
    return squares
