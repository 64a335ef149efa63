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
    prediction: ArrayLike, returns: ArrayLike | ObservedReturns, n_bins: int = 10, *,
    groups: ArrayLike | None = None, **others: Any,
) -> Calibration:  # fmt: skip
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
    found, kept = check_array("returns", returns.returns, predicted.shape), returns.weight > 0.0
    if not kept.any():
        raise InvalidInputError("`prediction` must have at least one row, with a weight above 0; got none.")
    names = np.arange(len(predicted)) if groups is None else check_ids("groups", groups, len(predicted), "prediction")
    group = numbered(names[kept])[1]
    arrays = (predicted, found, returns.unobserved, returns.completion, returns.weight)
    predicted, found, unobserved, completion, weight = (array[kept] for array in arrays)
    place = bins_of(predicted, check_integer("n_bins", n_bins, 1))
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


def bins_of(predicted: Array, n_bins: int) -> Callable[[Array], NDArray[np.intp]]:
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
