"""The common part of the TD algorithms: one transition at a time, or rows of a stream."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy import ndarray
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from lstd._kernels import td_update as kernels
from lstd._kernels.td_update import step
from lstd.data.checks import check_flag, check_integer, check_real
from lstd.data.rows import Features, Rows, check_features, check_rows
from lstd.errors import InvalidInputError
from lstd.online import transition
from lstd.online.predictor import OnlinePredictor
from lstd.online.transition import Array, SparseRow

ENTRIES_AT_ONCE = 2**20  # of sparse rows made dense at a time, 8 MiB


@dataclass(frozen=True)
class _Pending:
    """The last row of a stream, whose successor is not known yet."""

    phi: Array  # (n,)
    reward: float
    missing: bool  # the reward is NaN
    ratio: float
    discount: float


class TemporalDifference(OnlinePredictor):
    """The common part of the TD algorithms."""

    def __init__(self, n_features: int, gamma: float, lmbda: float, step_size: float, kind: int) -> None:
        self.n_features = check_integer("n_features", n_features, 1)
        self.gamma = check_real("gamma", gamma, 0.0, 1.0)
        self.lmbda = check_real("lmbda", lmbda, 0.0, 1.0)
        self.step_size = check_real("step_size", step_size, 0.0, np.inf, open_low=True)
        self._state = transition.aligned(2, self.n_features)
        self._scalars = np.array([self.lmbda, self.step_size, 0.0, 0.0])
        self._counts = np.array([kind, 0], dtype=np.int64)
        self._pending: _Pending | None = None
        self._episode: Any = None  # id of the last row of a stream that may continue
        self._open = False  # whether the last row of `partial_fit` did not terminate …
        self._successors = False  # … and had features of its successor
        self._warned = False
        self._typed = transition.compiled(kernels, "step")

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._typed = transition.compiled(kernels, "step")  # a new process compiles its own

    @property
    def n_updates(self) -> int:
        return int(self._counts[kernels.UPDATES])

    @property
    def weights(self) -> Array:
        """Weights after the last transition, shape (n,); a copy. Raises if they overflowed."""
        weights: Array = self._state[kernels.WEIGHTS].copy()
        if not np.isfinite(weights).all():
            raise InvalidInputError(
                f"`step_size` must be small enough for the weights to stay finite; with {self.step_size:g} they "
                "overflowed. Begin anew with a smaller one, below 1 over the largest squared length of the features."
            )
        return weights

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
        if discount is None:
            discount = self.gamma
        if type(x) is ndarray and self._typed and terminated is False and truncated is False:  # no conversion needed
            try:
                code = step(
                    x, x_next, reward, discount, importance_ratio, False, self._state, self._scalars, self._counts
                )
            except Exception:  # arguments of other types are converted below, or raise
                code = kernels.BAD
        else:
            code = kernels.BAD
        if code != kernels.DONE:
            self._convert_and_step(x, reward, x_next, terminated, truncated, discount, importance_ratio)
        if self._open:
            self._pending, self._open = None, False

    def _convert_and_step(
        self, x: Any, reward: Any, x_next: Any, terminated: Any, truncated: Any, discount: Any, importance_ratio: Any
    ) -> None:
        """Learn from arguments of any kind."""
        terminated = check_flag("terminated", terminated)
        truncated = check_flag("truncated", truncated)
        numbers = transition.check_numbers(reward, discount, importance_ratio)
        self._check_ratios(importance_ratio)
        if self._step_sparse(x, x if terminated else x_next, (*numbers, terminated)) != kernels.DONE:
            pair = transition.check_pair(x, x_next, terminated, self.n_features)
            row, successor = (r.dense(self.n_features) if isinstance(r, SparseRow) else r for r in pair)
            kernels.step(row, successor, *numbers, terminated, *self._arrays)
        if truncated:
            self._scalars[kernels.DECAY] = 0.0

    def _step_sparse(self, x: Any, x_next: Any, numbers: tuple[float, float, float, bool]) -> int:
        """Learn from sparse rows of the types that need no conversion; BAD if they are of others, or break a rule."""
        if self._typed and type(x) is not ndarray:
            with contextlib.suppress(Exception):
                transition.compiled(kernels, "step_sparse")
                rows = *transition.sparse_parts(x, self.n_features), *transition.sparse_parts(x_next, self.n_features)
                return int(kernels.step_sparse(*rows, *numbers, *self._arrays))
        return kernels.BAD

    @property
    def _arrays(self) -> tuple[Array, Array, NDArray[np.int64]]:
        return self._state, self._scalars, self._counts

    def _check_ratios(self, ratios: Any) -> None:
        """Raise if ratios other than 1 are given to an algorithm that learns on-policy."""

    # ------------------------------------------------------------ whole streams

    def partial_fit(
        self,
        X: Any,
        y: ArrayLike,
        *,
        episode: ArrayLike | None = None,
        terminated: ArrayLike | None = None,
        X_next: Any = None,
        discount: ArrayLike | None = None,
        importance_ratio: ArrayLike | None = None,
    ) -> Any:
        """Learn from rows in time order, as `update` would from one transition after another.

        The next call continues the stream: its first row is the successor of the last row of this call, unless that
        row terminated or the episode ids differ. The transition between them is then learned too. An `update` in
        between replaces that transition.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (T, n)
            Features of each row.
        y : array-like of shape (T,)
            Rewards received on leaving each row; ignored in the last row of an episode that did not terminate, where
            NaN is allowed, unless `X_next` is given.
        episode : array-like of shape (T,), optional
            Id of each row's episode; the rows of an episode follow one another.
        terminated : array-like of shape (T,), optional
            Whether the row's successor is terminal, that is, of value zero.
        X_next : array-like or sparse matrix of shape (T, n), optional
            Features of each row's successor; every row is a full transition then.
        discount, importance_ratio : array-like of shape (T,), optional
            Discount and ratio of each row's transition; by default `gamma` and 1.

        Returns
        -------
        self

        Raises
        ------
        InvalidInputError
            When an array breaks a rule; the estimator is unchanged then.

        Warns
        -----
        MissingTerminationWarning
            Once, before learning, when rows are first given with `episode` but without `terminated` and `X_next`.
        """
        phi, phi_next = _features("X", X), None if X_next is None else _features("X_next", X_next)
        if phi_next is not None and phi_next.shape != phi.shape:
            raise InvalidInputError(f"`X_next` must have the shape of `X`, {phi.shape}; got {phi_next.shape}.")
        bare = np.zeros((phi.shape[0], 1))  # features are checked while they are learned from
        rows = check_rows(
            bare, y, gamma=self.gamma, episode=episode, terminated=terminated, X_next=None if X_next is None else bare,
            discount=discount, importance_ratio=importance_ratio, warn=not self._warned,
        )  # fmt: skip
        self._warned |= rows.assumed
        self._check_stream(rows, phi.shape[1])
        if len(rows):
            self._learn_stream(replace(rows, X=phi, X_next=phi_next))
        return self

    def _check_stream(self, rows: Rows, n_features: int) -> None:
        if n_features != self.n_features:
            raise InvalidInputError(f"`X` must have {self.n_features} features; got {n_features}.")
        if rows.y.shape[1] != 1:
            raise InvalidInputError(f"`y` must hold one reward per row, shape ({len(rows)},); got {rows.y.shape}.")
        self._check_ratios(rows.ratios)

    def _goes_on(self, rows: Rows) -> bool:
        """Whether the first row continues the episode of the call before; raises if the two calls do not fit."""
        if not self._open:
            return False
        if self._successors != (rows.X_next is not None):
            raise InvalidInputError("`X_next` must be given for all chunks of a stream or for none.")
        if (self._episode is None) != (rows.first_episode is None):
            raise InvalidInputError(
                "`episode` must be given for all chunks of a stream or for none, because a chunk may continue the "
                "episode of the one before."
            )
        goes_on = bool(np.all(self._episode == rows.first_episode))
        if goes_on and self._pending is not None and self._pending.missing:
            raise InvalidInputError(
                "`y` must be finite on a row whose episode continues in the next chunk; the last row of the chunk "
                "before has NaN. Pass that reward, or give the next chunk another `episode` id if the episode was cut "
                "off there."
            )
        return goes_on

    def _learn_stream(self, rows: Rows) -> None:
        """Learn from the rows; at a value that is not finite, undo that and check whether features are the cause."""
        goes_on = self._goes_on(rows)
        before = [array.copy() for array in self._arrays]
        trusted = sparse.issparse(rows.X)
        if not self._learn(rows, goes_on, trusted):
            for array, old in zip(self._arrays, before, strict=True):
                array[:] = old
            check_features("X", rows.X)
            if rows.X_next is not None:
                check_features("X_next", rows.X_next)
            self._learn(rows, goes_on, True)  # features are finite, so the weights diverged
        self._open = not rows.terminated[-1]
        self._episode, self._successors = rows.last_episode, rows.X_next is not None
        self._pending = None
        if self._open and rows.X_next is None:
            self._pending = _Pending(
                _dense(rows.X, len(rows) - 1, len(rows))[0].copy(), float(rows.y[-1, 0]), bool(rows.y_missing[-1]),
                float(rows.ratios[-1]), float(rows.discount[-1]),
            )  # fmt: skip

    def _learn(self, rows: Rows, goes_on: bool, trusted: bool) -> bool:
        """Learn the transitions of the pending row and of the rows; False at the first value that is not finite."""
        n_rows, given, row = len(rows), rows.X_next is not None, self._pending
        if self._open and not goes_on:
            self._scalars[kernels.DECAY] = 0.0
        elif goes_on and row is not None:
            first = _dense(rows.X, 0, 1)[0]
            arguments = (row.phi, first, row.reward, row.discount, row.ratio, False, *self._arrays)
            if kernels.step(*arguments) != kernels.DONE:
                return False
        full = np.ones(n_rows, np.bool_) if given else rows.terminated | ~rows.last
        ends = rows.last.copy()
        ends[-1] = False  # the episode may continue; a termination has discount 0
        transition.compiled(kernels, "stream")
        size = max(1, ENTRIES_AT_ONCE // self.n_features) if sparse.issparse(rows.X) else n_rows
        for first in range(0, n_rows, size):
            part = slice(first, min(first + size, n_rows))
            X = _dense(rows.X, first, min(part.stop + 1, n_rows))
            successors = _dense(rows.X_next, first, part.stop) if given else X
            at = kernels.stream(
                X, successors, 0 if given else 1, rows.y[part, 0].copy(), rows.discount[part], rows.ratios[part],
                full[part], ends[part], trusted, *self._arrays,
            )  # fmt: skip
            if at >= 0:
                return False
        return True


def _features(name: str, X: Any) -> Features:
    """Return features as float64 in C order; unchecked if they need no conversion."""
    if type(X) is np.ndarray and X.dtype == np.float64 and X.ndim == 2 and X.flags.c_contiguous:
        return X
    return check_features(name, X)


def _dense(X: Features, first: int, stop: int) -> Array:
    """Return rows `first` to `stop`, dense and in C order."""
    return np.ascontiguousarray(X[first:stop].toarray() if sparse.issparse(X) else X[first:stop])
