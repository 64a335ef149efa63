"""Errors of predictions against the exact values of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from lstd.data.arguments import check_array, check_choice
from lstd.errors import InvalidInputError
from lstd.types import Array

if TYPE_CHECKING:
    from lstd.mrp import MRP

REFERENCES = ("values", "best_fit")


def value_error(
    prediction: Any, model: MRP, features: ArrayLike | None = None, *, reference: str = "values",
    weights: ArrayLike | None = None, normalise: bool = False,
) -> float:  # fmt: skip
    """Compute Σ_s d(s) (v̂(s) − v(s))², the mean squared error of predictions against the exact values of a model.

    Parameters
    ----------
    prediction : array-like of shape (k,), or fitted estimator
        Predicted value of each state, or an estimator that predicts from `features`.
    model : MRP
        Markov reward process with k states.
    features : array-like of shape (k, n), optional
        Features of each state. Needed for an estimator and for the best fit.
    reference : {"values", "best_fit"}, default "values"
        The exact values, or their least-squares fit by the features, weighted by the stationary distribution.
    weights : array-like of shape (k,), optional
        Weight of each state, at least 0, such as the number of visits; by default the model's stationary distribution.
    normalise : bool, default False
        Divide by the weighted mean square of the reference, so that predicting 0 everywhere scores 1.

    Returns
    -------
    float
        In squared units of the reward, unless normalised.

    Raises
    ------
    InvalidInputError
        When a shape or weight is not valid, `features` are missing, or the reference is zero and cannot normalise.

    Notes
    -----
    ``reference="best_fit", normalise=True`` is the error of Osogami (2020) and of `lstd.experiments`.

    Examples
    --------
    >>> from lstd.metrics import value_error
    >>> from lstd.mrp import BoyanChain
    >>> chain = BoyanChain()
    >>> round(value_error(chain.values + 0.5, chain), 6)
    0.25
    >>> value_error([0.0] * 13, chain, normalise=True)
    1.0
    """
    k = model.n_states
    check_choice("reference", reference, REFERENCES)
    phi = None if features is None else check_array("features", features, (k, None))
    if hasattr(prediction, "predict"):
        prediction = prediction.predict(_needed(phi, "a fitted estimator")).reshape(k, -1)
        if prediction.shape[1] != 1:
            raise InvalidInputError(
                f"`prediction` must be of one reward; the estimator predicts {prediction.shape[1]}. Pass one column of "
                "what it predicts from `features`."
            )
        prediction = prediction[:, 0]
    predicted = check_array("prediction", prediction, (k,))
    if reference == "values":
        target = model.values
    else:
        phi = _needed(phi, 'reference="best_fit"')
        target = np.asarray(phi @ model.best_fit(phi))
    share = model.stationary if weights is None else _shares(weights, k)
    error = float(share @ (predicted - target) ** 2)
    if not normalise:
        return error
    size = float(share @ target**2)
    if not size > 0.0:
        raise InvalidInputError("`normalise` must be False if the weighted mean square of the values is zero.")
    return error / size


def _needed(phi: Array | None, what: str) -> Array:
    if phi is None:
        raise InvalidInputError(f"`features` must be given with {what}: one row of features per state of the model.")
    return phi


def _shares(weights: ArrayLike, k: int) -> Array:
    given = check_array("weights", weights, (k,))
    if given.min() < 0.0 or not given.sum() > 0.0:
        raise InvalidInputError(
            f"`weights` must be at least 0 with a positive sum; got {given.min():g} to {given.max():g}. Pass the "
            "number of visits to each state, or leave them out."
        )
    return np.asarray(given / given.sum())
