"""What all estimators that learn from one transition at a time have in common."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import Any, Self

from lstd.online import transition
from lstd.online.transition import Array


class OnlinePredictor(ABC):
    """Linear prediction of values whose weights change with every transition."""

    @property
    @abstractmethod
    def n_updates(self) -> int:
        """Number of transitions so far."""

    @property
    @abstractmethod
    def weights(self) -> Array:
        """Weights after the last transition, shape (n,); a copy."""

    @abstractmethod
    def update(
        self,
        x: Any,
        reward: float,
        x_next: Any,
        *,
        terminated: bool = False,
        truncated: bool = False,
        discount: float | None = None,
        importance_ratio: float = 1.0,
    ) -> None:
        """Learn from one transition.

        Parameters
        ----------
        x, x_next : array-like of shape (n,), sparse row, or tuple (indices, values)
            Features of a row and of its successor. Float64 vectors in C order are fastest. `x_next` is not used, and
            may be None, if the transition terminated.
        reward : float
            Reward received on the transition.
        terminated : bool, default False
            Whether the successor is terminal: its value is zero, and the next update begins an episode.
        truncated : bool, default False
            Whether the episode was cut off after this transition: the successor has a value, and the next update begins
            an episode. Ignored if `terminated`.
        discount : float in [0, 1], optional
            Discount of this transition, by default `gamma`; not used if it terminated.
        importance_ratio : float, default 1.0
            Ratio of the probabilities of the action under the target and the behaviour policy. It must be 1 with true
            online TD(λ), which learns on-policy.

        Raises
        ------
        InvalidInputError
            When an argument breaks a rule, or is so large that sums would overflow; the estimator is unchanged then.
        """

    def predict(self, x: Any) -> Any:
        """Predict the value of a row, or of each row of a matrix.

        Parameters
        ----------
        x : array-like of shape (n,) or (k, n), sparse matrix, or tuple (indices, values)

        Returns
        -------
        float or ndarray of shape (k,)

        Raises
        ------
        InvalidInputError
            When `x` is not finite or has another number of features, or the weights overflowed.
        """
        return transition.predict(x, self.weights)

    def __copy__(self) -> Self:
        return copy.deepcopy(self)  # two estimators must not learn into the same arrays
