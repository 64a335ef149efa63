"""Discounted returns, as far as they were observed, and the share of each that was not.

    G_t = r_{t+1} + g_{t+1} G_{t+1},   w_t = g_{t+1} w_{t+1}

backwards over an episode, with g the discount. A horizon row, the last one of an episode that did not terminate, has
G = 0 and w = 1; a row that terminates has G = r and w = 0. So w is the share of the unknown value of the horizon row in
a return: γ^h with h transitions left and a constant discount.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import solve_banded

Array = NDArray[np.float64]

TOLERANCE = 0.01  # a return counts as observed if the unobserved share is below


def discounted_returns(
    y: ArrayLike, discount: ArrayLike, last: ArrayLike, terminated: ArrayLike
) -> tuple[Array, Array]:
    """Compute discounted returns of rows in time order, and the share of each that was not observed.

    Parameters
    ----------
    y : array-like of shape (T,) or (T, m)
        Rewards received on leaving each row; ignored in horizon rows, where NaN is allowed.
    discount : float or array-like of shape (T,)
        Discount of each row's transition.
    last : array-like of shape (T,)
        Whether the row is the last one of its episode; always assumed of the last row of all.
    terminated : array-like of shape (T,)
        Whether the row's successor is terminal. A last row that is not terminated is a horizon row.

    Returns
    -------
    returns : ndarray of shape (T,) or (T, m)
        Zero in horizon rows.
    unobserved : ndarray of shape (T,)
        One in horizon rows, zero where the episode terminated.

    Examples
    --------
    >>> from lstd.data.returns import discounted_returns
    >>> returns, unobserved = discounted_returns([1.0, 1.0, 0.0], 0.5, [False, False, True], [False, False, False])
    >>> returns.tolist(), unobserved.tolist()
    ([1.5, 1.0, 0.0], [0.25, 0.5, 1.0])
    """
    rewards = np.asarray(y, dtype=np.float64)
    n_rows = len(rewards)
    ends = np.array(last, dtype=np.bool_)
    ends[-1:] = True
    horizon = ends & ~np.asarray(terminated, dtype=np.bool_)
    columns = rewards[:, np.newaxis] if rewards.ndim == 1 else rewards
    known = np.column_stack([np.where(horizon[:, np.newaxis], 0.0, columns), horizon])
    if n_rows > 1:
        bands = np.ones((2, n_rows))
        bands[0, 1:] = -np.where(ends, 0.0, np.broadcast_to(discount, n_rows))[:-1]
        known = solve_banded((0, 1), bands, known, overwrite_ab=True, overwrite_b=True, check_finite=False)
    return np.asarray(known[:, :-1].reshape(rewards.shape)), np.asarray(known[:, -1])
