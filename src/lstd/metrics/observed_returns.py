"""Discounted returns as scores compare them with predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lstd.data.arguments import check_array, check_real, to_real_array
from lstd.data.check_rows import check_rows
from lstd.data.returns import TOLERANCE, ObservedReturns, check_treatment, observed
from lstd.data.rows import PerRow
from lstd.errors import InvalidInputError


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
