"""One transition: checks of its arguments, buffers for kernels, and what all online estimators have in common."""

from __future__ import annotations

import copy
import inspect
import math
from abc import ABC, abstractmethod
from decimal import Decimal
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from lstd._kernels.online_state import HUGE
from lstd.data.arguments import check_array, check_flag, check_real
from lstd.data.check_rows import check_rows
from lstd.data.convert import to_real_array
from lstd.data.doubts import assumed_cut
from lstd.data.feature_arrays import Features, by_name, check_features, check_finite, check_indices, dense, product
from lstd.data.follow import follows
from lstd.data.rows import Rows
from lstd.errors import InvalidInputError, MissingTerminationWarning, warn_once
from lstd.types import Array, FeaturesLike

_LINE = 8  # float64 in a cache line


def aligned(*shape: int) -> Array:
    """Allocate zeros that start at a cache line; raises InvalidInputError if `n_features` is too large for memory."""
    size = math.prod(shape)
    try:
        buffer = np.zeros(size + _LINE)
    except (MemoryError, OverflowError, ValueError) as error:
        raise InvalidInputError(
            f"`n_features` must be so small that the estimator fits in memory; it needs {Decimal(size) / 2**27:.3g} "
            "GiB. Select or hash features; TD takes 16 bytes per feature, RecursiveLSTD 16 per pair of features."
        ) from error
    skip = -(buffer.ctypes.data // 8) % _LINE
    return buffer[skip : skip + size].reshape(shape)


@cache  # asking Numba takes longer than most kernels take to run
def compiled(module: ModuleType, name: str) -> bool:
    """Compile or load a kernel of a module for its only signature; returns False if Numba's compiler is turned off.

    Arguments of another type then raise TypeError before anything changes; Numba does not compile for them.
    """
    function = getattr(module, name)
    if not hasattr(function, "compile"):
        return False
    if not function.signatures:
        function.compile(module.SIGNATURES[name])
        function.disable_compile()
    return True


# ------------------------------------------------------------ rows of features


class SparseRow(NamedTuple):
    """Sparse row: increasing indices and their values."""

    indices: NDArray[np.int64]
    values: Array

    def dense(self, n: int) -> Array:
        row = np.zeros(n)
        row[self.indices] = self.values
        return row


Row = Array | SparseRow


def check_row(name: str, value: Any, n: int) -> Row:
    """Check a row of n features: a vector, a sparse row, or a pair (indices, values)."""
    if isinstance(value, tuple):
        return check_sparse_row(name, value, n)
    if sparse.issparse(value):
        if value.shape not in ((1, n), (n,)):
            raise InvalidInputError(f"`{name}` must be one row of {n} features, shape (1, {n}); got {value.shape}.")
        check_indices(name, value)
        if hasattr(value, "prune"):  # SciPy fails to convert entries beyond `indptr`
            value = value.copy()
            value.prune()
        entries = sparse.coo_array(value)
        return check_sparse_row(name, (entries.coords[-1], entries.data), n)
    return check_array(name, value, (n,))


def check_sparse_row(name: str, value: tuple[Any, ...], n: int) -> SparseRow:
    """Check a pair (indices, values); sorts the indices and adds up the values of equal ones."""
    if len(value) != 2:
        raise InvalidInputError(
            f"`{name}` must be a vector, a sparse row or a pair (indices, values); got {value!r:.80}."
        )
    indices = to_real_array(f"{name}[0]", value[0])
    if indices.size == 0:
        indices = indices.astype(np.int64)
    if indices.ndim != 1 or indices.dtype.kind not in "iu":
        raise InvalidInputError(f"`{name}[0]`, the indices, must be a vector of integers; got {value[0]!r:.80}.")
    values = check_array(f"{name}[1]", value[1], (len(indices),))
    outside = (indices < 0) | (indices >= n)
    if outside.any():
        raise InvalidInputError(f"`{name}[0]`, the indices, must be in [0, {n}); got {indices[outside.argmax()]}.")
    order, place = np.unique(indices, return_inverse=True)
    sums = np.zeros(len(order))
    np.add.at(sums, place, values)
    return SparseRow(order.astype(np.int64), sums)


def row_of(X: Features, t: int) -> Array | tuple[NDArray[np.int64], Array]:
    """Return a row as an argument of `update`."""
    if isinstance(X, np.ndarray):
        row: Array = X[t]
        return row
    part = slice(X.indptr[t], X.indptr[t + 1])
    return X.indices[part].astype(np.int64), X.data[part]


# ------------------------------------------------------------ transitions


class Transition(NamedTuple):
    """A checked transition; both rows are vectors, or both are sparse."""

    x: Row
    x_next: Row  # `x` if it terminates
    rewards: Array  # (m,)
    discount: float
    ratio: float
    coefficient: float
    weight: float
    terminated: bool

    @classmethod
    def checked(
        cls,
        n: int,
        m: int | None,
        x: FeaturesLike,
        reward: Any,
        x_next: FeaturesLike | None,
        terminated: object,
        discount: object,
        ratio: object,
        coefficient: object = 1.0,
        weight: object = 1.0,
    ) -> Transition:
        """Check the arguments of `update` for n features and m rewards; None: one, which is a number."""
        terminated = check_flag("terminated", terminated)
        discount = check_real("discount", discount, 0.0, 1.0)
        ratio = check_real("importance_ratio", ratio, 0.0, np.inf)
        coefficient = check_real("trace_coefficient", coefficient, 0.0, np.inf)
        weight = check_real("weight", weight, 0.0, np.inf)
        if m is None:
            rewards = np.array([check_real("reward", reward, -np.inf, np.inf)])
        else:
            rewards = check_array("reward", reward, (m,))
            if not (np.abs(rewards) <= HUGE).all():  # products with the trace would overflow
                raise InvalidInputError(
                    f"`reward` must be below {HUGE:.0e}; got {np.abs(rewards).max():.1e}. Scale rewards to order 1."
                )
        row = check_row("x", x, n)
        if x_next is None and not terminated:
            raise InvalidInputError(
                f"`x_next` must be a row of {n} features unless the transition terminated; got None. Pass the features "
                "of the successor, or terminated=True."
            )
        row, there = (row, row) if terminated else _alike(row, check_row("x_next", x_next, n), n)
        return cls(row, there, rewards, discount, ratio, coefficient, weight, terminated)

    @classmethod
    def of_row(cls, rows: Rows, t: int) -> Transition:
        """Return the transition of a full row."""
        x = there = _of(rows.X, t)
        terminated = bool(rows.terminated[t])
        if not terminated:
            there = _of(rows.X, t + 1) if rows.X_next is None else _of(rows.X_next, t)
            x, there = _alike(x, there, rows.n_features)
        return cls._with_columns(x, there, rows, t)

    @classmethod
    def between(cls, last: Rows, rows: Rows) -> Transition:
        """Return the transition from the last row, as a stream keeps it, to the first of the next rows."""
        before = dense(last.X)[-1].copy()
        there = _of(rows.X, 0)
        if not isinstance(there, SparseRow):
            return cls._with_columns(before, there, last, -1)
        (indices,) = before.nonzero()
        return cls._with_columns(SparseRow(indices, before[indices]), there, last, -1)

    @classmethod
    def _with_columns(cls, x: Row, there: Row, rows: Rows, t: int) -> Transition:
        """Return the transition between two rows of features that has the numbers of row t."""
        return cls(
            x,
            there,
            rows.y[t].copy(),
            discount=float(rows.discount[t]),
            ratio=float(rows.importance_ratio[t]),
            coefficient=float(rows.trace_coefficient[t]),
            weight=float(rows.weight[t]),
            terminated=bool(rows.terminated[t]),
        )

    def taken(self, kernels: ModuleType, *arrays: NDArray[Any], name: str = "step") -> int:
        """Let the kernel `name` learn from it, or `step_sparse`; returns its code."""
        numbers = float(self.rewards[0]), self.discount, self.ratio, self.terminated
        if isinstance(self.x, SparseRow) and isinstance(self.x_next, SparseRow):
            compiled(kernels, "step_sparse")
            return int(kernels.step_sparse(*self.x, *self.x_next, *numbers, *arrays))
        take = getattr(kernels, name)
        return int(take(self.x, self.x_next, *numbers, *arrays))

    def too_large(self) -> InvalidInputError:
        """Make the error for a transition that would make the sums of a recursion overflow."""
        for name, features in (("x", self.x), ("x_next", self.x_next)):
            largest = np.max(np.abs(features.values if isinstance(features, SparseRow) else features), initial=0.0)
            if largest > HUGE:
                return InvalidInputError(
                    f"`{name}` must be below {HUGE:.0e}, so that sums of products do not overflow; it has an entry of "
                    f"size {largest:.1e}. Scale features to order 1, or drop the transition."
                )
        return InvalidInputError(
            f"`reward` and `importance_ratio` must be so small that the trace stays below {HUGE:.0e}, and the trace "
            f"times the reward below {HUGE * HUGE:.0e}; got the reward {self.rewards[0]:.1e}. Scale features and "
            "rewards to order 1, and look for huge importance ratios and weights."
        )


def _of(X: Features, t: int) -> Row:
    """Return a row of checked features."""
    row = row_of(X, t)
    if not isinstance(row, tuple):
        return np.ascontiguousarray(row, np.float64)
    if X.has_canonical_format:
        return SparseRow(*row)
    return check_sparse_row("x", row, X.shape[1])


def _alike(row: Row, successor: Row, n: int) -> tuple[Row, Row]:
    """Return both rows, dense unless both are sparse."""
    if isinstance(row, SparseRow) and isinstance(successor, SparseRow):
        return row, successor
    return _dense(row, n), _dense(successor, n)


def _dense(row: Row, n: int) -> Array:
    """Return a row as a vector of n numbers."""
    if isinstance(row, SparseRow):
        return row.dense(n)
    return row


# ------------------------------------------------------------ estimators


NO_GROUPS = "Online estimators learn transition by transition and have no groups; `LSTD.partial_fit` takes them."


class OnlinePredictor(ABC):
    """Linear prediction of values whose weights change with every transition."""

    n_features: int
    gamma: float
    n_rewards: int | None = None
    _names: tuple[str, ...] | None = None  # of the features, where they are known
    _last: Rows | None = None  # the last row of `partial_fit`,
    _n_updates_then: int = 0  # the transitions when it was learned,
    _episodes: Any = None  # and the ids so far

    @property
    @abstractmethod
    def n_updates(self) -> int:
        """Number of transitions so far."""

    @property
    @abstractmethod
    def weights(self) -> Array:
        """The weights after the last transition, shape (n,), or (m, n) with several rewards, read-only."""

    def predict(self, x: FeaturesLike) -> float | Array:
        """Predict the value of a row, or of each row of a matrix.

        Parameters
        ----------
        x : array-like of shape (n,) or (k, n), sparse matrix, or tuple (indices, values)
            A row of features, or k rows. A tuple is one sparse row.

        Returns
        -------
        float or ndarray of shape (k,)
            With several rewards of shape (m,) or (k, m).

        Raises
        ------
        InvalidInputError
            When `x` is not finite or has another number of features, or the weights overflowed.
        """
        n = self.n_features
        weights = self.weights
        x = by_name("x", x, self._names)
        if isinstance(x, tuple):
            row = check_sparse_row("x", x, n)
            return _plain(product("x", row.values, weights.T[row.indices]))
        if not sparse.issparse(x):
            x = to_real_array("x", x)
            if x.ndim == 1:
                return _plain(product("x", check_array("x", x, (n,)), weights.T))
        return product("x", self._checked_features(x), weights.T)

    def _checked_features(self, x: FeaturesLike) -> Features:
        """Check a matrix of features, (k, n)."""
        phi = check_features("x", x, finite=False)
        check_finite("x", phi, self._names)
        if phi.shape[1] != self.n_features:
            raise InvalidInputError(
                f"`x` must have {self.n_features} features, as the estimator has; got shape {phi.shape}."
            )
        return phi

    def _rows_of(self, x: FeaturesLike) -> Features:
        """Return features as a matrix, (k, n)."""
        x = by_name("x", x, self._names)
        if isinstance(x, tuple):
            return check_sparse_row("x", x, self.n_features).dense(self.n_features)[np.newaxis]
        return self._checked_features(x if sparse.issparse(x) else np.atleast_2d(to_real_array("x", x)))

    def _place_of(self, x: FeaturesLike) -> tuple[int | slice, int | slice]:
        """Return where values (k, m) have the predictions for `x`: for one row and one reward, a number."""
        row: int | slice = slice(None)
        if isinstance(x, tuple) or (not sparse.issparse(x) and np.asarray(x).ndim == 1):
            row = 0
        reward: int | slice = slice(None)
        if self.n_rewards is None:
            reward = 0
        return row, reward

    def _checked_rows(self, X: FeaturesLike, y: ArrayLike, **given: Any) -> Rows:
        """Check the arguments of `partial_fit`, and ask once whether ends were seen, when an episode is cut off."""
        rows = check_rows(by_name("X", X, self._names), y, gamma=self.gamma, warn=False, **given)
        if rows.n_features != self.n_features:
            raise InvalidInputError(f"`X` must have {self.n_features} features; got {rows.n_features}.")
        if rows.assumed and self._cuts(rows):
            warn_once(self, assumed_cut(), MissingTerminationWarning)
        return rows

    def _cuts(self, rows: Rows) -> bool:
        """Return whether an episode is followed by another one in these rows, or just before them."""
        if rows.last[:-1].any():
            return True
        before = self._row_before
        if before is None or before.terminated[-1] or not len(rows):
            return False
        return not follows(before, rows)

    @property
    def _row_before(self) -> Rows | None:
        """The last row of `partial_fit`, unless an update came after it, which replaces the transition from it."""
        return self._last if self._n_updates_then == self.n_updates else None

    def _keep_last(self, rows: Rows) -> None:
        """Keep the last of the rows that were learned."""
        self._last = rows.last_row
        self._n_updates_then = self.n_updates

    def __repr__(self) -> str:
        values = {name: getattr(self, name) for name in list(inspect.signature(type(self)).parameters)[1:]}
        shown = (f"{name}={f'{v:g}' if isinstance(v, float) else repr(v)}" for name, v in values.items())
        return f"{type(self).__name__}({self.n_features}, {', '.join(shown)})"

    def __copy__(self) -> Self:
        return copy.deepcopy(self)  # two estimators must not learn into the same arrays


def _plain(value: Array) -> float | Array:
    """Return one number as a float."""
    if value.ndim:
        return value
    return float(value)
