"""Measures of predictions: against exact values, against returns, and how far the data decided the weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from lstd.data.arguments import check_array, check_choice, check_real
from lstd.data.check_rows import check_rows
from lstd.data.convert import to_real_array
from lstd.data.returns import TOLERANCE, ObservedReturns, check_treatment, observed
from lstd.data.rows import PerRow
from lstd.data.takes import Takes
from lstd.errors import InvalidInputError
from lstd.types import Array

_OBSERVED_RETURNS = Takes(
    "observed_returns",
    (),  # beside the named arguments
    {
        "X_next": "Call `score` of a model, which predicts for successors.",
        "trace_coefficient": "Call `score` of a model, which predicts for each row.",
        "groups": "Returns do not depend on groups; `calibration` takes them.",
    },
)

if TYPE_CHECKING:
    from lstd.mrp import MRP

REFERENCES = ("values", "best_fit")


def value_error(
    prediction: Any,
    model: MRP,
    features: ArrayLike | None = None,
    *,
    reference: str = "values",
    weights: ArrayLike | None = None,
    normalise: bool = False,
) -> float:
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
    phi = None
    if features is not None:
        phi = check_array("features", features, (k, None))
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
    share = model.stationary
    if weights is not None:
        share = _shares(weights, k)
    error = float(share @ (predicted - target) ** 2)
    if not normalise:
        return error
    size = float(share @ target**2)
    if not size > 0.0:
        raise InvalidInputError("`normalise` must be False if the weighted mean square of the values is zero.")
    return error / size


def _needed(phi: Array | None, what: str) -> Array:
    """Return features; raises InvalidInputError where `what` needs them and they were not given."""
    if phi is None:
        raise InvalidInputError(f"`features` must be given with {what}: one row of features per state of the model.")
    return phi


def _shares(weights: ArrayLike, k: int) -> Array:
    """Return checked weights of the k states, which add up to one."""
    given = check_array("weights", weights, (k,))
    if given.min() < 0.0 or not given.sum() > 0.0:
        raise InvalidInputError(
            f"`weights` must be at least 0 with a positive sum; got {given.min():g} to {given.max():g}. Pass the "
            "number of visits to each state, or leave them out."
        )
    return np.asarray(given / given.sum())


def observed_returns(
    y: ArrayLike,
    *,
    gamma: float,
    prediction: ArrayLike | None = None,
    episode: PerRow = None,
    terminated: PerRow = None,
    discount: PerRow = None,
    importance_ratio: PerRow = None,
    weight: PerRow = None,
    unobserved: str = "predict",
    tolerance: float = TOLERANCE,
    **others: Any,
) -> ObservedReturns:
    """Compute the discounted returns that :meth:`lstd.LSTD.score` compares with predictions, and the rows' weights.

    Parameters
    ----------
    gamma : float in [0, 1]
        Discount per transition, unless `discount` gives one per row.
    prediction : array-like of the shape of `y`, optional
        Prediction for each row, which completes the returns; 0 unless given, which ``unobserved="predict"`` refuses.
    y, episode, terminated, discount, importance_ratio, weight, unobserved, tolerance
        As in :meth:`lstd.LSTD.score`, with the same errors and warnings about arrays.
    **others
        Any other argument is refused: returns do not depend on groups, and those of given successors, or with trace
        coefficients, need the predictions of a model.

    Returns
    -------
    ObservedReturns
        With `returns`, `unobserved`, `weight` and `share`.

    Examples
    --------
    The first episode terminated. The second was cut off before its last row, where 2 is predicted:

    >>> from lstd.metrics import observed_returns
    >>> y, prediction = [1, 1, 1, 1, 0], [2, 2, 2, 2, 2]
    >>> columns = {"episode": [1, 1, 2, 2, 2], "terminated": [0, 1, 0, 0, 0]}
    >>> observed = observed_returns(y, gamma=0.5, prediction=prediction, **columns)
    >>> observed.returns.tolist(), observed.weight.tolist(), observed.share
    ([1.5, 1.0, 2.0, 2.0, 2.0], [1.0, 1.0, 1.0, 1.0, 0.0], 0.8125)
    """
    _OBSERVED_RETURNS.check(others)
    gamma = check_real("gamma", gamma, 0.0, 1.0)
    tolerance = check_treatment(unobserved, tolerance)
    rewards = to_real_array("y", y)
    columns: dict[str, Any] = {
        "episode": episode,
        "terminated": terminated,
        "discount": discount,
        "importance_ratio": importance_ratio,
        "weight": weight,
    }
    if rewards.ndim not in (1, 2):
        raise InvalidInputError(f"`y` must have shape (n_rows,) or (n_rows, n_rewards); got {rewards.shape}.")
    for name, column in columns.items():
        if column is not None and np.ndim(column) and len(np.asarray(column)) != len(rewards):
            raise InvalidInputError(
                f"`{name}` must have one entry per row of `y`, shape ({len(rewards)},); got {np.shape(column)}."
            )
    ones = np.ones((len(rewards), 1))
    rows = check_rows(ones, rewards, **columns, gamma=gamma)
    if prediction is None and unobserved == "predict":
        raise InvalidInputError(
            '`prediction` must be given with unobserved="predict": it completes the returns. Pass the predictions '
            "of a model for all rows."
        )
    values = np.zeros(rewards.shape)
    if prediction is not None:
        values = check_array("prediction", prediction, rewards.shape)
    return observed(rows, values.reshape(rows.y.shape), unobserved=unobserved, tolerance=tolerance)


def effective_degrees_of_freedom(model: BaseEstimator) -> Array:
    """Compute how far the data, rather than the ridge term, decided each weight: the diagonal of (A + αI)⁻¹ A.

    The weights are a mixture of the solution without a ridge term and of zero. An entry is 1 if the data decides, as
    always with α = 0, and 0 if the ridge term does. The sum is the effective number of parameters. A is not symmetric,
    so entries may be a little outside [0, 1].

    Parameters
    ----------
    model : fitted LSTD, LSTDCV or HorizonLSTD

    Returns
    -------
    ndarray of shape (n_features,)
        Without the intercept, which is not penalised. Of a HorizonLSTD, for the columns of `coef_`, and alike for all
        horizons: A is the Gram matrix.

    Examples
    --------
    The first feature is 1 in three rows, the second in one row; the ridge coefficient is 1:

    >>> import numpy as np
    >>> from lstd import LSTD
    >>> from lstd.metrics import effective_degrees_of_freedom
    >>> X = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> model = LSTD(gamma=0.0, fit_intercept=False).fit(X, np.ones(4), terminated=[False, False, False, True])
    >>> effective_degrees_of_freedom(model)
    array([0.75, 0.5 ])
    """
    check_is_fitted(model)
    values: Array = model.model_.degrees_of_freedom
    return values
