"""How good predictions are: against exact values, against returns, and how much of them the data decided."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from lstd.data.check_arguments import check_array, check_choice, check_integer, check_real, to_real_array
from lstd.data.check_rows import PerRow, check_rows
from lstd.data.returns import TOLERANCE, ObservedReturns, check_treatment, observed
from lstd.errors import InvalidInputError

if TYPE_CHECKING:
    from lstd.mrp import MRP

__all__ = [
    "Calibration",
    "ObservedReturns",
    "calibration",
    "effective_degrees_of_freedom",
    "observed_returns",
    "value_error",
]

Array = NDArray[np.float64]

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


def observed_returns(
    y: ArrayLike, *, gamma: float, prediction: ArrayLike | None = None, episode: PerRow = None,
    terminated: PerRow = None, discount: PerRow = None, importance_ratio: PerRow = None, weight: PerRow = None,
    unobserved: str = "predict", tolerance: float = TOLERANCE,
) -> ObservedReturns:  # fmt: skip
    """Compute the discounted returns that :meth:`lstd.LSTD.score` compares with predictions, and the rows' weights.

    Parameters
    ----------
    gamma : float in [0, 1]
        Discount per transition, unless `discount` gives one per row.
    prediction : array-like of the shape of `y`, optional
        Prediction for each row, which completes the returns; 0 unless given, which ``unobserved="predict"`` refuses.
    y, episode, terminated, discount, importance_ratio, weight, unobserved, tolerance
        As in :meth:`lstd.LSTD.score`, with the same errors and warnings about arrays.

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
    gamma = check_real("gamma", gamma, 0.0, 1.0)
    tolerance = check_treatment(unobserved, tolerance)
    rewards = to_real_array("y", y)
    columns: dict[str, Any] = {
        "episode": episode, "terminated": terminated, "discount": discount, "importance_ratio": importance_ratio,
        "weight": weight,
    }  # fmt: skip
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
    values = np.zeros(rewards.shape) if prediction is None else check_array("prediction", prediction, rewards.shape)
    return observed(rows, values.reshape(rows.y.shape), unobserved=unobserved, tolerance=tolerance)


@dataclass(frozen=True, eq=False)
class Calibration:
    """Predictions and returns in bins of increasing predictions; arrays of shape (n_bins,).

    Attributes
    ----------
    predicted : ndarray
        Weighted mean of the predictions.
    observed : ndarray
        Mean return; see the notes of :func:`calibration`. NaN if what was observed does not determine it.
    share : ndarray
        Share of the discounted weight of these returns that was observed.
    standard_error : ndarray
        Standard error of `observed`; NaN if the bin has fewer than two groups.
    count : ndarray of int
        Number of rows.
    n_groups : ndarray of int
        Number of groups; of rows, if no groups were given.

    Examples
    --------
    >>> from lstd.metrics import calibration
    >>> table = calibration([0.0, 0.0, 1.0], [0.0, 1.0, 3.0])
    >>> table.count.tolist(), table.observed.tolist()
    ([2, 1], [0.5, 3.0])
    """

    predicted: Array
    observed: Array
    share: Array
    standard_error: Array
    count: NDArray[np.int64]
    n_groups: NDArray[np.int64]


def calibration(
    prediction: ArrayLike, returns: ArrayLike | ObservedReturns, n_bins: int = 10, *, groups: ArrayLike | None = None
) -> Calibration:
    """Compare the mean return with the mean prediction, in bins of about the same number of rows.

    Rows of equal predictions share a bin, so there may be fewer bins. With at most `n_bins` different predictions,
    there is one bin for each.

    Parameters
    ----------
    prediction : array-like of shape (T,)
    returns : ObservedReturns, or array-like of shape (T,)
        Discounted returns of the same rows: those of :func:`observed_returns`, or complete ones.
    n_bins : int, default 10
        Largest number of bins.
    groups : array-like of shape (T,), optional
        Group of each row. Rows of a group may depend on one another. Pass episode ids here, since the returns of an
        episode share rewards; if rows count as independent, the standard error is far too small.

    Returns
    -------
    Calibration

    Raises
    ------
    InvalidInputError
        When a shape is wrong, a number is not finite, or there is no row with a weight above 0.

    Notes
    -----
    With weights w_i, residuals e_i from the bin's mean and G groups, se² = G/(G − 1) Σ_g (Σ_{i∈g} w_i e_i)² / (Σ w_i)²:
    the usual standard error if each row is a group and all weights are equal.

    Returns that were completed by predictions lean towards them. If predictions of bin b are too low by δ_b on average,
    then so are those that complete returns, and the mean residual of the bin is

        r_b = δ_b − Σ_c U_bc δ_c,

    with U_bc the mean share of the returns of b that predictions of bin c complete. This is solved for δ; returns are
    completed by predictions plus δ, and standard errors are those of δ = (I − U)⁻¹ r. Where U = 0, nothing changes.

    Examples
    --------
    >>> from lstd.metrics import calibration
    >>> table = calibration([0.0, 0.0, 1.0, 1.0], [0.0, 1.0, 1.0, 3.0], n_bins=2)
    >>> table.predicted.tolist(), table.observed.tolist(), table.standard_error.tolist()
    ([0.0, 1.0], [0.5, 2.0], [0.5, 1.0])
    """
    predicted = check_array("prediction", prediction, (None,))
    if not isinstance(returns, ObservedReturns):
        returns = ObservedReturns.whole(check_array("returns", returns, predicted.shape))
    found, kept = check_array("returns", returns.returns, predicted.shape), returns.weight > 0.0
    if not kept.any():
        raise InvalidInputError("`prediction` must have at least one row, with a weight above 0; got none.")
    if groups is not None and np.shape(groups) != predicted.shape:
        raise InvalidInputError(f"`groups` must have shape {predicted.shape}; got {np.shape(groups)}.")
    names = np.arange(len(predicted)) if groups is None else np.asarray(groups)
    group = np.unique(names[kept], return_inverse=True)[1].reshape(-1)
    arrays = (predicted, found, returns.unobserved, returns.completion, returns.weight)
    predicted, found, unobserved, completion, weight = (array[kept] for array in arrays)
    place = _bins(predicted, check_integer("n_bins", n_bins, 1))
    bins, ahead = place(predicted), place(completion)
    n_rows, total = np.bincount(bins), np.bincount(bins, weight)
    average = sparse.csr_array((weight / total[bins], (bins, np.arange(len(bins)))))  # (n_bins, T)
    expected, share = average @ predicted, average @ (1.0 - unobserved)
    behind = average @ sparse.csr_array((unobserved, (np.arange(len(bins)), ahead)), shape=average.shape[::-1])
    change = _corrections(behind, (average @ found - expected)[:, np.newaxis])[:, 0]
    found = found + np.where(unobserved > 0.0, unobserved * change[ahead], 0.0)
    mean = average @ found
    members = sparse.csr_array((np.ones(len(bins)), (np.arange(len(bins)), group)))
    sums = average.multiply(found - mean[bins]) @ members  # (n_bins, n_groups)
    n_groups = np.diff((average @ members).indptr)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        influence = _corrections(behind, np.nan_to_num((sums @ sums.T).toarray()))
        squared = _corrections(behind, influence.T).diagonal() * n_groups / (n_groups - 1.0)
    error = np.where(n_groups > 1, np.sqrt(squared), np.nan)
    return Calibration(expected, mean, share, error, n_rows, n_groups)


def _corrections(behind: Any, right: Array) -> Array:
    """Solve (I − U) x = right; NaN where rows lead to bins from which no end is seen."""
    if not behind.count_nonzero():
        return right
    U = behind.toarray()
    lost = ~_leading_to(U, U.sum(axis=1) < 1.0 - 1e-12)
    known = ~_leading_to(U, lost)
    solution = np.full(right.shape, np.nan)
    solution[known] = np.linalg.solve(np.eye(known.sum()) - U[np.ix_(known, known)], right[known])
    return solution


def _leading_to(U: Array, bins: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return `bins` and those from which U leads to one of them."""
    while not np.array_equal(more := bins | ((U > 0.0) @ bins), bins):
        bins = more
    return bins


def _bins(predicted: Array, n_bins: int) -> Callable[[Array], NDArray[np.intp]]:
    """Return a function that gives the bins of predictions, 0, 1, … in their order."""
    low, span = predicted.min(), np.ptp(predicted)

    def key(values: Array) -> Array:
        # Predictions of equal features may differ in their last digits; states differ by more than 1e-9 of the range.
        return np.zeros_like(values) if not span > 0.0 else np.rint((values - low) / span * 1e9)

    keys = key(predicted)
    edges = np.unique(keys)
    if len(edges) > n_bins:
        edges = np.unique(np.quantile(keys, np.arange(1, n_bins + 1) / n_bins, method="inverted_cdf"))
    return lambda values: np.minimum(np.searchsorted(edges, key(values), side="left"), len(edges) - 1)


def effective_degrees_of_freedom(model: BaseEstimator) -> Array:
    """Compute how far the data, rather than the ridge term, decided each weight: the diagonal of (A + αI)⁻¹ A.

    The weights are a mixture of the solution without a ridge term and of zero. An entry is 1 if the data decides, as
    always with α = 0, and 0 if the ridge term does. The sum is the effective number of parameters. A is not symmetric,
    so entries may be a little outside [0, 1].

    Parameters
    ----------
    model : fitted LSTD or LSTDCV

    Returns
    -------
    ndarray of shape (n_features,)
        Without the intercept, which is not penalised.

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
