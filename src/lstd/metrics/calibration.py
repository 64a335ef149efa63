"""Mean return against mean prediction, in bins of the prediction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from lstd.data.arguments import check_array, check_integer
from lstd.data.check_rows import check_ids
from lstd.data.ids import numbered
from lstd.data.returns import ObservedReturns
from lstd.data.takes import LSTD_COLUMNS, Takes
from lstd.errors import InvalidInputError
from lstd.types import Array

_OF_RETURNS = "Give it to `observed_returns`, whose result is `returns` here."
_CALIBRATION = Takes("calibration", ("groups",), dict.fromkeys(LSTD_COLUMNS, _OF_RETURNS))


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
    prediction: ArrayLike,
    returns: ArrayLike | ObservedReturns,
    n_bins: int = 10,
    *,
    groups: ArrayLike | None = None,
    **others: Any,
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
    **others
        Any other argument is refused: :func:`observed_returns` takes the columns of rows.

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
    _CALIBRATION.check(others)
    predicted = check_array("prediction", prediction, (None,))
    if not isinstance(returns, ObservedReturns):
        returns = ObservedReturns.whole(check_array("returns", returns, predicted.shape))
    values = check_array("returns", returns.returns, predicted.shape)
    kept = returns.weight > 0.0
    if not kept.any():
        raise InvalidInputError("`prediction` must have at least one row, with a weight above 0; got none.")
    names = np.arange(len(predicted))
    if groups is not None:
        names = check_ids("groups", groups, len(predicted), "prediction")
    _, group = numbered(names[kept])
    predicted = predicted[kept]
    values = values[kept]
    unobserved = returns.unobserved[kept]
    weight = returns.weight[kept]

    place = bins_of(predicted, check_integer("n_bins", n_bins, 1))
    bins = place(predicted)
    ahead = place(returns.completion[kept])  # bins of the predictions that complete returns
    row = np.arange(len(bins))
    total = np.bincount(bins, weight)
    average = sparse.csr_array((weight / total[bins], (bins, row)))  # (n_bins, T)
    expected = average @ predicted

    completed_in = sparse.csr_array((unobserved, (row, ahead)), shape=average.shape[::-1])
    U = average @ completed_in
    residual = average @ values - expected
    delta = _corrections(U, residual[:, np.newaxis])[:, 0]
    values = values + np.where(unobserved > 0.0, unobserved * delta[ahead], 0.0)
    mean = average @ values

    members = sparse.csr_array((np.ones(len(bins)), (row, group)))
    sums = average.multiply(values - mean[bins]) @ members  # (n_bins, n_groups)
    n_groups = np.diff((average @ members).indptr)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        covariance = np.nan_to_num((sums @ sums.T).toarray())
        one_side = _corrections(U, covariance)
        squared = _corrections(U, one_side.T).diagonal() * n_groups / (n_groups - 1.0)
    return Calibration(
        predicted=expected,
        observed=mean,
        share=average @ (1.0 - unobserved),
        standard_error=np.where(n_groups > 1, np.sqrt(squared), np.nan),
        count=np.bincount(bins),
        n_groups=n_groups,
    )


def _corrections(shares: Any, right: Array) -> Array:
    """Solve (I − U) x = right, U the sparse `shares`; NaN where rows lead to bins from which no end is seen."""
    if not shares.count_nonzero():
        return right
    U = shares.toarray()
    lost = ~_leading_to(U, U.sum(axis=1) < 1.0 - 1e-12)
    known = ~_leading_to(U, lost)
    solution = np.full(right.shape, np.nan)
    among_known = U[np.ix_(known, known)]
    solution[known] = np.linalg.solve(np.eye(known.sum()) - among_known, right[known])
    return solution


def _leading_to(U: Array, bins: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return `bins` and those from which U leads to one of them."""
    leads = U > 0.0
    while True:
        more = bins | (leads @ bins)
        if np.array_equal(more, bins):
            return bins
        bins = more


def bins_of(predicted: Array, n_bins: int) -> Callable[[Array], NDArray[np.intp]]:
    """Return a function that gives the bins of predictions, 0, 1, … in their order."""
    low = predicted.min()
    span = np.ptp(predicted)

    def key(values: Array) -> Array:
        if not span > 0.0:
            return np.zeros_like(values)
        # Predictions of equal features may differ in their last digits; states differ by more than 1e-9 of the range.
        return np.asarray(np.rint((values - low) / span * 1e9))

    keys = key(predicted)
    edges = np.unique(keys)
    if len(edges) > n_bins:
        edges = np.unique(np.quantile(keys, np.arange(1, n_bins + 1) / n_bins, method="inverted_cdf"))
    return lambda values: np.minimum(np.searchsorted(edges, key(values), side="left"), len(edges) - 1)
