"""How good predictions are: against exact values, against observed returns, and how much of them the data decided.

value error      Σ_s d(s) (v̂(s) − v(s))², d the stationary distribution of a model, v its values or their best fit
calibration      mean observed return against mean prediction, in bins of the prediction
effective degrees of freedom     the diagonal of (A + αI)⁻¹ A: 1 where the data decides a weight, 0 where α does
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from lstd.data.checks import check_array, check_choice, check_integer, check_real, to_real_array
from lstd.data.returns import TOLERANCE, discounted_returns
from lstd.data.rows import Rows, check_rows
from lstd.errors import InvalidInputError
from lstd.statistics.solve import solve

if TYPE_CHECKING:
    from lstd.estimators.base import Predictor
    from lstd.mrp import MRP

Array = NDArray[np.float64]

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
    """Mean squared error of predicted values against the exact ones of a model, over its states.

    Parameters
    ----------
    prediction : array-like of shape (k,), or fitted estimator
        Predicted value of each state; of an estimator, its prediction of each row of `features`.
    model : MRP
        Markov reward process with k states.
    features : array-like of shape (k, n), optional
        Features of each state. An estimator needs them, and the best fit.
    reference : {"values", "best_fit"}, default "values"
        The values themselves, or the stationary-weighted least-squares fit of them, which is the best that these
        features can do.
    weights : array-like of shape (k,), optional
        Weight of each state, at least 0, such as the number of visits; by default the model's stationary distribution.
    normalise : bool, default False
        Divide by the weighted mean square of the reference: predicting 0 everywhere scores 1.

    Returns
    -------
    float
        In the square of the units of the reward, unless normalised.

    Raises
    ------
    InvalidInputError
        When a shape or weight is not valid, `features` are missing, or the reference is zero and cannot normalise.

    Notes
    -----
    ``reference="best_fit", normalise=True`` is the error of Osogami (2020) and of `lstd.experiments`.

    Examples
    --------
    >>> from lstd.estimators.metrics import value_error
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
                f"`prediction` must be of one reward; the estimator predicts {prediction.shape[1]}. Pass one column "
                "of its predictions of `features`."
            )
        prediction = prediction[:, 0]
    predicted = check_array("prediction", prediction, (k,))
    target = model.values if reference == "values" else _best_fit(model, _needed(phi, 'reference="best_fit"'))
    share = model.stationary if weights is None else _shares(weights, k)
    error = float(share @ (predicted - target) ** 2)
    if not normalise:
        return error
    size = float(share @ target**2)
    if not size > 0.0:
        raise InvalidInputError("`normalise` must be False for values that are all zero, weighted by visits.")
    return error / size


def _needed(phi: Array | None, what: str) -> Array:
    if phi is None:
        raise InvalidInputError(f"`features` must be given with {what}: one row of features per state of the model.")
    return phi


def _best_fit(model: MRP, phi: Array) -> Array:
    return np.asarray(phi @ model.best_fit(phi))


def _shares(weights: ArrayLike, k: int) -> Array:
    given = check_array("weights", weights, (k,))
    if given.min() < 0.0 or not given.sum() > 0.0:
        raise InvalidInputError(
            f"`weights` must be at least 0 with a positive sum; got {given.min():g} to {given.max():g}. Pass the "
            "number of visits to each state, or leave them out."
        )
    return np.asarray(given / given.sum())


@dataclass(frozen=True, eq=False)
class ObservedReturns:
    """Discounted returns of rows, as far as they were observed.

    Attributes
    ----------
    returns : ndarray of shape (T,) or (T, m)
        Discounted sum of the rewards from each row to the end of its episode, or of the data.
    unobserved : ndarray of shape (T,)
        Share that the value of the episode's last row, which was not observed, has in the row's return: γ^h with h
        transitions left, 0 where the episode terminated, 1 in a horizon row.
    counts : ndarray of bool, shape (T,)
        Rows whose return was observed, up to the tolerance.
    """

    returns: Array
    unobserved: Array
    counts: NDArray[np.bool_]


def observed_returns(
    y: ArrayLike,
    *,
    gamma: float,
    episode: ArrayLike | None = None,
    terminated: ArrayLike | None = None,
    discount: ArrayLike | None = None,
    tolerance: float = TOLERANCE,
) -> ObservedReturns:
    """Discounted returns of rows in time order, and which of them were observed whole, up to a tolerance.

    In an episode that did not terminate, a row counts when the share of its return that lies behind the end is below
    `tolerance`. So :meth:`lstd.LSTD.score` does.

    Parameters
    ----------
    y : array-like of shape (T,) or (T, m)
        Rewards received on leaving each row; ignored in the last row of an episode that did not terminate, where NaN
        is allowed.
    gamma : float in [0, 1]
        Discount, where `discount` does not give one per row.
    episode, terminated, discount : array-like of shape (T,), optional
        As in :meth:`lstd.LSTD.fit`. Without `episode` and `terminated` the rows are one stream that has not ended.
    tolerance : float in (0, 1], default 0.01
        Largest share of a return that may be unobserved.

    Returns
    -------
    ObservedReturns

    Raises
    ------
    InvalidInputError
        When an array breaks the data contract.

    Warns
    -----
    MissingTerminationWarning
        When `episode` is given without `terminated`: the episodes are taken as truncated.

    Examples
    --------
    The first episode terminated, the second was cut off before its last row:

    >>> from lstd.estimators.metrics import observed_returns
    >>> found = observed_returns([1, 1, 1, 1, 0], gamma=0.5, episode=[1, 1, 2, 2, 2], terminated=[0, 1, 0, 0, 0])
    >>> found.returns.tolist(), found.counts.tolist()
    ([1.5, 1.0, 1.5, 1.0, 0.0], [True, True, False, False, False])
    """
    gamma = check_real("gamma", gamma, 0.0, 1.0)
    tolerance = check_real("tolerance", tolerance, 0.0, 1.0, open_low=True)
    rewards = to_real_array("y", y)
    columns = {"episode": episode, "terminated": terminated, "discount": discount}
    if rewards.ndim not in (1, 2):
        raise InvalidInputError(f"`y` must have shape (n_rows,) or (n_rows, n_rewards); got {rewards.shape}.")
    for name, column in columns.items():
        if column is not None and np.ndim(column) and len(np.asarray(column)) != len(rewards):
            raise InvalidInputError(
                f"`{name}` must have one entry per row of `y`, shape ({len(rewards)},); got {np.shape(column)}."
            )
    rows = check_rows(
        np.ones((len(rewards), 1)), rewards, gamma=gamma, episode=episode, terminated=terminated, discount=discount
    )
    return returns_of_rows(rows, tolerance)


def returns_of_rows(rows: Rows, tolerance: float = TOLERANCE) -> ObservedReturns:
    """The same of rows that `check_rows` has checked."""
    y = rows.y[:, 0] if rows.single else rows.y
    returns, unobserved = discounted_returns(y, rows.discount, rows.last, rows.terminated)
    return ObservedReturns(returns, unobserved, unobserved < tolerance)


@dataclass(frozen=True, eq=False)
class Calibration:
    """Predictions and observed returns in bins of the prediction, from the lowest up; arrays of shape (n_bins,).

    Attributes
    ----------
    predicted, observed : ndarray
        Means over the rows of the bin.
    standard_error : ndarray
        That of the mean observed return; NaN where a bin has fewer than two groups of rows.
    count : ndarray of int
        Rows.
    n_groups : ndarray of int
        Groups that these rows come from; rows, when no groups were given.
    """

    predicted: Array
    observed: Array
    standard_error: Array
    count: NDArray[np.int64]
    n_groups: NDArray[np.int64]


def calibration(
    prediction: ArrayLike, returns: ArrayLike, n_bins: int = 10, *, groups: ArrayLike | None = None
) -> Calibration:
    """Mean observed return against mean prediction, in bins of about as many rows each.

    Rows of the same prediction stay together, so there may be fewer bins, and one for each prediction where there are
    `n_bins` of them or fewer.

    Parameters
    ----------
    prediction : array-like of shape (T,)
    returns : array-like of shape (T,)
        Observed discounted return of the same rows: of :func:`observed_returns`, those that count.
    n_bins : int, default 10
        Most bins: 10 for deciles.
    groups : array-like of shape (T,), optional
        Group of each row, for standard errors that hold when rows of a group depend on one another. Returns of one
        episode share rewards, so pass its id: without, each row counts as if it were independent, and the standard
        error comes out far too small.

    Returns
    -------
    Calibration

    Raises
    ------
    InvalidInputError
        When a shape is wrong, a number is not finite, or there is no row.

    Notes
    -----
    With residuals e_i from the bin's mean, N rows and G groups, se² = G/(G − 1) Σ_g (Σ_{i∈g} e_i)² / N², which is the
    usual standard error when each row is a group.

    Examples
    --------
    >>> from lstd.estimators.metrics import calibration
    >>> found = calibration([0.0, 0.0, 1.0, 1.0], [0.0, 1.0, 1.0, 3.0], n_bins=2)
    >>> found.predicted.tolist(), found.observed.tolist(), found.standard_error.tolist()
    ([0.0, 1.0], [0.5, 2.0], [0.5, 1.0])
    """
    predicted = check_array("prediction", prediction, (None,))
    observed = check_array("returns", returns, (len(predicted),))
    if not len(predicted):
        raise InvalidInputError("`prediction` must have at least one row; got none.")
    bins = _bins(predicted, check_integer("n_bins", n_bins, 1))
    count = np.bincount(bins)
    mean = np.bincount(bins, observed) / count
    if groups is None:
        group = np.arange(len(predicted))
    else:
        if np.shape(groups) != predicted.shape:
            raise InvalidInputError(f"`groups` must have shape {predicted.shape}; got {np.shape(groups)}.")
        group = np.unique(np.asarray(groups), return_inverse=True)[1].reshape(-1)
    pairs, pair = np.unique(bins * (group.max() + 1) + group, return_inverse=True)
    sums = np.bincount(pair.reshape(-1), observed - mean[bins])
    bin_of_pair = pairs // (group.max() + 1)
    n_groups = np.bincount(bin_of_pair)
    with np.errstate(divide="ignore", invalid="ignore"):
        squared = np.bincount(bin_of_pair, sums**2) * n_groups / (n_groups - 1.0) / count**2
    error = np.where(n_groups > 1, np.sqrt(squared), np.nan)
    return Calibration(np.bincount(bins, predicted) / count, mean, error, count, n_groups)


def _bins(predicted: Array, n_bins: int) -> NDArray[np.intp]:
    """Number of each row's bin, 0 … without gaps, by growing prediction."""
    low, span = predicted.min(), np.ptp(predicted)
    # Predictions of equal features may differ in their last digits: 1e-9 of the range tells states apart well enough.
    keys = np.zeros_like(predicted) if not span > 0.0 else np.rint((predicted - low) / span * 1e9)
    edges = np.unique(keys)
    if len(edges) > n_bins:
        edges = np.unique(np.quantile(keys, np.arange(1, n_bins + 1) / n_bins, method="inverted_cdf"))
    return np.searchsorted(edges, keys, side="left")


def effective_degrees_of_freedom(model: Predictor) -> Array:
    """How far the data, rather than the ridge term, decided each weight: the diagonal of (A + αI)⁻¹ A.

    The weights are a mixture of what the data alone would give and of zero. An entry is 1 where the data decides, as
    it does everywhere with α = 0, and 0 where the ridge term does; their sum is the effective number of parameters. A
    is not symmetric, so that entries a little outside [0, 1] are possible.

    Parameters
    ----------
    model : fitted estimator
        A fitted :class:`lstd.LSTD`.

    Returns
    -------
    ndarray of shape (n_features,)
        Without the intercept, which the ridge term leaves alone.

    Raises
    ------
    sklearn.exceptions.NotFittedError
        When the model was not fitted.

    Examples
    --------
    The first feature was seen in three rows, the second in one; both face a ridge term of 1:

    >>> import numpy as np
    >>> from lstd import LSTD
    >>> from lstd.estimators.metrics import effective_degrees_of_freedom
    >>> X = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> model = LSTD(gamma=0.0, alpha=1.0).fit(X, np.ones(4), terminated=[False, False, False, True])
    >>> effective_degrees_of_freedom(model)
    array([0.75, 0.5 ])
    """
    check_is_fitted(model)
    fitted = model.model_
    A = fitted.statistics.matrix(fitted.settings.variant)
    found = solve(A, A, fitted.ridge, warn=False).weights.diagonal()
    return np.array(found[: model.n_features_in_])
