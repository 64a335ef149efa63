"""Inverse probability of censoring weights (IPCW), from the Kaplan-Meier curve of the ages at which episodes are cut.

S(a) is the Kaplan-Meier probability that an episode is cut after age a, in steps since its first row; an
episode that terminates at age a is at risk of cuts before a. Each episode counts once, whatever the weights of its
rows, as cuts are taken to depend on nothing else. A return from age a is complete at k, the age where the episode
terminates or that is H steps later, γ^H below the tolerance. Its row has the weight S(a)/S(k−). If no episode has more
rows than one that was cut at age L, S is zero from L on: rows with a + H > L might never be complete, and none of them
is scored.

Source: Robins and Rotnitzky (1992).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lstd.errors import InvalidInputError
from lstd.types import Array, Flags


class Cuts:
    """Kaplan-Meier curve S of the ages at which episodes are cut off, from their transitions `lengths`, (n_episodes,).

    Attributes
    ----------
    reach : float
        Age from which S is zero; infinite if an episode has more rows than all that were cut.
    """

    def __init__(self, lengths: NDArray[np.int64], terminated: Flags) -> None:
        self._ages, n_cut = np.unique(lengths[~terminated], return_counts=True)
        n_longer = len(lengths) - np.searchsorted(np.sort(lengths), self._ages, side="right")
        if len(self._ages) and lengths.max() <= self._ages[-1] + 1:
            n_longer[-1] = 0  # of as many rows as one that was cut: in a log that ends there, none is seen to go on
        self._survival = np.append(1.0, np.cumprod(n_longer / (n_longer + n_cut)))
        self.reach = float(self._ages[-1]) if self._survival[-1] == 0.0 else np.inf

    def after(self, age: NDArray[np.int64]) -> Array:
        """Return S(age), the probability of a cut after an age."""
        return self._survival[np.searchsorted(self._ages, age, side="right")]

    def not_before(self, age: NDArray[np.int64]) -> Array:
        """Return S(age−), the probability of no cut before an age."""
        return self._survival[np.searchsorted(self._ages, age, side="left")]

    def check_reach(self, needed: float) -> None:
        """Raise InvalidInputError if no return of `needed` steps can be complete with a probability above zero."""
        if needed > self.reach:
            steps = "to the end of the episode" if needed == np.inf else f"over {needed:g} steps"
            raise InvalidInputError(
                '`unobserved` "ipcw" needs complete returns of long episodes too. Those must be observed '
                f"{steps}, but episodes are cut off after {self.reach:g} steps at the latest. "
                f'Use "predict"{"" if needed == np.inf else ", or raise `tolerance`"}.'
            )


def steps_to_complete(discount: float, tolerance: float) -> float:
    """Return the least number of steps H ≥ 1 with discount^H below the tolerance; infinite if there is none."""
    if discount >= 1.0:
        return np.inf
    return 1.0 if discount <= 0.0 else float(max(1, np.floor(np.log(tolerance) / np.log(discount) * (1 + 1e-12)) + 1))


def ipcw_weights(cuts: Cuts, age: NDArray[np.int64], length: NDArray[np.int64], ended: Flags, needed: float) -> Array:
    """Compute the inverse probability weights of rows of some age, in episodes of some length that ended or not."""
    complete = (ended | (age + needed <= length)) & (age + needed <= cuts.reach)
    until = np.minimum(age + needed, length)
    return np.where(complete, cuts.after(age), 0.0) / np.where(complete, cuts.not_before(until), 1.0)
