"""What all estimators have in common that learn from one transition at a time."""

from __future__ import annotations

import contextlib
import copy
import inspect
from abc import ABC, abstractmethod
from typing import Any, Self

from numpy import ndarray
from numpy.typing import ArrayLike
from scipy import sparse

from lstd.data.arguments import check_array, to_real_array
from lstd.data.check_rows import check_rows
from lstd.data.feature_arrays import by_name, check_features, product
from lstd.data.rows import Rows
from lstd.errors import InvalidInputError
from lstd.online.open_end import OpenEnd
from lstd.online.transition import SparseRow, check_sparse_row, compiled, sparse_parts
from lstd.types import Array

Numbers = tuple[float, float, float, bool]  # reward, discount, importance ratio, whether the transition terminates


class OnlinePredictor(ABC):
    """Linear prediction of values whose weights change with every transition."""

    n_features: int
    gamma: float
    _kernels: Any  # module with the kernels `step` and `step_sparse`
    _typed: bool  # whether Numba compiles them
    _names: tuple[str, ...] | None = None  # of the features, where they are known
    _end: OpenEnd | None = None  # of the rows of `partial_fit`

    @property
    @abstractmethod
    def n_updates(self) -> int:
        """Number of transitions so far."""

    @property
    @abstractmethod
    def weights(self) -> Array:
        """Copy of the weights after the last transition, shape (n,)."""

    @property
    @abstractmethod
    def _arrays(self) -> tuple[Any, ...]:
        """The state, as the kernels take it."""

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
        return product("x", self._checked_features(x), weights.T)

    def _checked_features(self, x: Any) -> Any:
        """Check a matrix of features, (k, n)."""
        phi = check_features("x", x)
        if phi.shape[1] != self.n_features:
            raise InvalidInputError(
                f"`x` must have {self.n_features} features, as the estimator has; got shape {phi.shape}."
            )
        return phi

    # ------------------------------------------------------------ learning

    def _step(self, x: Any, x_next: Any, numbers: Numbers) -> int:
        """Learn from features that need no conversion; returns a code, negative for others and if a rule is broken."""
        if self._typed:
            with contextlib.suppress(Exception):
                if type(x) is ndarray:
                    return int(self._kernels.step(x, x_next, *numbers, *self._arrays))
                compiled(self._kernels, "step_sparse")
                rows = *sparse_parts(x, self.n_features), *sparse_parts(x_next, self.n_features)
                return int(self._kernels.step_sparse(*rows, *numbers, *self._arrays))
        return int(self._kernels.BAD)

    def _step_checked(self, row: Any, successor: Any, numbers: Numbers) -> int:
        """Learn from the result of `check_pair`; returns a code."""
        if isinstance(row, SparseRow):
            compiled(self._kernels, "step_sparse")
            return int(self._kernels.step_sparse(*row, *successor, *numbers, *self._arrays))
        return int(self._kernels.step(row, successor, *numbers, *self._arrays))

    def _checked_rows(self, X: Any, y: ArrayLike, **given: Any) -> Rows:
        """Check the arguments of `partial_fit`."""
        rows = check_rows(by_name("X", X, self._names), y, gamma=self.gamma, **given)
        if rows.n_features != self.n_features:
            raise InvalidInputError(f"`X` must have {self.n_features} features; got {rows.n_features}.")
        return rows

    @property
    def _end_before(self) -> OpenEnd | None:
        """The end of the rows of `partial_fit`, unless they terminated or an update came after them."""
        return self._end if self._end is not None and self._end.n_updates == self.n_updates else None

    def __repr__(self) -> str:
        values = {name: getattr(self, name) for name in list(inspect.signature(type(self)).parameters)[1:]}
        shown = (f"{name}={f'{v:g}' if isinstance(v, float) else repr(v)}" for name, v in values.items())
        return f"{type(self).__name__}({self.n_features}, {', '.join(shown)})"

    def __copy__(self) -> Self:
        return copy.deepcopy(self)  # two estimators must not learn into the same arrays


def _plain(value: Array) -> Any:
    return value if value.ndim else float(value)
