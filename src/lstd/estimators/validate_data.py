"""Checked input of the estimators: rows by the data contract, number and names of the features by scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from lstd.data.check_rows import check_rows
from lstd.data.convert import check_values_known, is_lazy
from lstd.data.feature_arrays import Features, by_name, check_features, check_finite, column_names
from lstd.data.rows import Columns, Rows
from lstd.data.takes import OF_FIT, OF_RETURNS, Takes, check_one_stream, names_given
from lstd.errors import InvalidInputError
from lstd.estimators.model import Model
from lstd.types import FeaturesLike


def checked_rows(
    estimator: BaseEstimator,
    X: FeaturesLike,
    y: Any,
    columns: Columns,
    takes: Takes,
    *,
    reset: bool = False,
    **options: Any,
) -> Rows:
    """Check the arguments of :func:`check_rows`; return rows without the column of ones.

    `estimator` has the number and the names of the features, or gets them with `reset`. Unless `options` has `finite`,
    features may be NaN or infinite: the sums show them. Unless it has `warn`, no warning says if episodes are assumed
    to be truncated. `takes` says which columns the method takes.
    """
    takes.check(columns)
    if not reset:
        X = _by_name(estimator, "X", X)
        X_next = columns.get("X_next")
        if X_next is not None:
            columns = {**columns, "X_next": _by_name(estimator, "X_next", X_next)}
    options = {"warn": False, "finite": False, **options}
    rows = check_rows(X, y, **columns, **options)
    if type(X) is not np.ndarray or type(estimator) is not BaseEstimator:  # names to check, or to keep
        _check_names(estimator, "X", X, rows.X, reset=reset)
    return rows


def comparable_rows(
    estimator: BaseEstimator,
    model: Model,
    X: FeaturesLike,
    y: Any,
    columns: Columns,
    takes: Takes,
    *,
    ones: bool = False,
    **options: Any,
) -> Rows:
    """Check rows as :func:`checked_rows` does, and that their returns are of the kind that the fitted model predicts.

    With `ones`, they are those of the fit, or like them: in order of their groups, with the column of ones if the model
    has an intercept, and with all columns that the fit was given.
    """
    statistics = model.statistics
    given = names_given(columns)
    check_one_stream(statistics.n_episodes, bool(statistics.successors), given)
    rows = checked_rows(estimator, X, y, columns, takes, gamma=model.settings.gamma, sort=ones, **options)
    model.check_given(given, OF_FIT if ones else OF_RETURNS)
    m = model.statistics.n_rewards
    if rows.y.shape[1] != m:
        raise InvalidInputError(f"`y` must have the rewards that the model predicts, {m}; got {rows.y.shape[1]}.")
    if ones and model.settings.fit_intercept:
        return rows.with_ones()
    return rows


def checked_features(estimator: BaseEstimator, X: FeaturesLike, *, raw: bool = False) -> Features:
    """Check the features of rows to predict for; a data frame may have the columns in any order, and others too.

    With `raw`, they may be of float32, NaN and infinite: :func:`lstd.data.feature_arrays.product` takes them.
    """
    X = _by_name(estimator, "X", X)
    phi = check_features("X", X, finite=False, single=raw)
    _check_names(estimator, "X", X, phi)
    if not raw:
        check_finite("X", phi, getattr(estimator, "feature_names_in_", None))
    return phi


def _by_name(estimator: BaseEstimator, name: str, X: FeaturesLike) -> Any:
    """Return the columns of a data frame that the estimator was fitted to, in their order; arrays as they are."""
    if type(X) is np.ndarray:
        return X
    if is_lazy(X):  # asking for the columns gives a warning of Polars
        check_values_known(name, X)
    if not hasattr(X, "columns"):
        return X
    return by_name(name, X, getattr(estimator, "feature_names_in_", None))


def _check_names(estimator: BaseEstimator, name: str, X: FeaturesLike, phi: Features, *, reset: bool = False) -> None:
    """Check the number and the names of the features; with `reset`, set them on `estimator`."""
    model = vars(estimator).get("model_")
    if not reset and type(X) is np.ndarray and model and not model.names and model.n_given == phi.shape[1]:
        return  # scikit-learn takes some 50 µs for the same
    names = column_names(name, X)  # checks that they differ
    if not reset and names and names == tuple(getattr(estimator, "feature_names_in_", ())):
        return  # scikit-learn does not find the names of all kinds of frames
    of_names = X if hasattr(X, "columns") else phi
    validate_data(estimator, of_names, reset=reset, skip_check_array=True)
