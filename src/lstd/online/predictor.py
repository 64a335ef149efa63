"""Interface of all estimators that learn from one transition at a time."""

from __future__ import annotations

import copy
import inspect
from abc import ABC, abstractmethod
from typing import Any, Self

from scipy import sparse

from lstd.data.checks import check_array, to_real_array
from lstd.data.feature_matrix import by_name, check_features, product
from lstd.errors import InvalidInputError
from lstd.online.transition import Array, check_sparse_row


class OnlinePredictor(ABC):
    """Linear prediction of values whose weights change with every transition."""

    n_features: int
    _names: tuple[str, ...] | None = None  # of the features, where they are known

    @property
    @abstractmethod
    def n_updates(self) -> int:
        """Number of transitions so far."""

    @property
    @abstractmethod
    def weights(self) -> Array:
        """Copy of the weights after the last transition, shape (n,)."""

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
            Whether the successor is terminal. Its value is zero, and the next update begins an episode.
        truncated : bool, default False
            Whether the episode was cut off after this transition. The successor has a value, and the next update begins
            an episode. Ignored if `terminated`.
        discount : float in [0, 1], optional
            Discount of this transition, by default `gamma`. Not used if it terminated.
        importance_ratio : float, default 1.0
            Probability of the action under the target policy divided by its probability under the behaviour policy.
            True online TD(λ) learns on-policy and requires 1.

        Raises
        ------
        InvalidInputError
            When an argument breaks a rule, or is so large that sums would overflow. The estimator is unchanged then.
        """

    def predict(self, x: Any) -> Any:
        """Predict the value of a row, or of each row of a matrix.

        Parameters
        ----------
        x : array-like of shape (n,) or (k, n), sparse matrix, or tuple (indices, values)

        Returns
        -------
        float or ndarray of shape (k,)
            With several rewards of shape (m,) or (k, m).

        Raises
        ------
        InvalidInputError
            When `x` is not finite or has another number of features, or the weights overflowed.
        """
        n, weights, x = self.n_features, self.weights, by_name("x", x, self._names)
        if isinstance(x, tuple):
            row = check_sparse_row("x", x, n)
            return _plain(product("x", row.values, weights.T[row.indices]))
        if not sparse.issparse(x):
            x = to_real_array("x", x)
            if x.ndim == 1:
                return _plain(product("x", check_array("x", x, (n,)), weights.T))
        phi = check_features("x", x)
        if phi.shape[1] != n:
            raise InvalidInputError(f"`x` must have {n} features, as the estimator has; got shape {phi.shape}.")
        return product("x", phi, weights.T)

    def __repr__(self) -> str:
        values = {name: getattr(self, name) for name in list(inspect.signature(type(self)).parameters)[1:]}
        shown = (f"{name}={f'{v:g}' if isinstance(v, float) else repr(v)}" for name, v in values.items())
        return f"{type(self).__name__}({self.n_features}, {', '.join(shown)})"

    def __copy__(self) -> Self:
        return copy.deepcopy(self)  # two estimators must not learn into the same arrays


def _plain(value: Array) -> Any:
    return value if value.ndim else float(value)
