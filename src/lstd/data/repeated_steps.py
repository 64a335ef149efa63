"""Naive forecasts: that each of the next steps of an episode brings what steps before brought, on average."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lstd.types import Array


class NaiveForecasts(NamedTuple):
    """Two forecasts of N rows, for m rewards, (N, m); NaN for a row without steps before it."""

    recent: Array  # by the mean of up to k steps before
    own_mean: Array  # by the mean of all steps of the episode before


def naive_forecasts(
    rewards: Array, place: NDArray[np.intp], age: NDArray[np.intp], longest: int, discounted: Array
) -> NaiveForecasts:
    """Forecast what rows bring from the rewards before them in their episode.

    Parameters
    ----------
    rewards : ndarray of shape (T, m)
        Of all rows; 0 where there is none.
    place : ndarray of shape (N,)
        Numbers of the rows to forecast for.
    age : ndarray of shape (N,)
        Steps of the episode before each of them.
    longest : int
        Number of steps k.
    discounted : ndarray of shape (N,)
        Sum of the discounts of the steps that are forecast.
    """
    total = np.vstack([np.zeros((1, rewards.shape[1])), np.cumsum(rewards, axis=0)])

    def repeated(n_before: NDArray[np.intp]) -> Array:
        """Repeat the mean of some steps before."""
        before = total[place] - total[place - n_before]
        share = np.divide(discounted, n_before, out=np.full(len(place), np.nan), where=n_before > 0)
        return np.asarray(before * share[:, np.newaxis])

    return NaiveForecasts(recent=repeated(np.minimum(age, longest)), own_mean=repeated(age))
