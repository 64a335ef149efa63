"""TD(λ) with accumulating or replacing traces, and true online TD(λ): one transition at a time, or rows of a stream.

Recursions and sources are in `lstd._kernels.td_update`. A transition takes O(n).
"""

from __future__ import annotations

import contextlib
import math
from typing import Any, NamedTuple, Self

import numpy as np
from numpy import ndarray
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from lstd._kernels import td_update as kernels
from lstd._kernels.td_update import step
from lstd.data.check_rows import PerRow, check_rows
from lstd.data.checks import check_choice, check_flag, check_integer, check_real
from lstd.data.feature_matrix import Features, by_name, check_finite
from lstd.data.rows import Rows
from lstd.data.settings import GAMMA, LMBDA
from lstd.errors import InvalidInputError
from lstd.online import transition
from lstd.online.predictor import OnlinePredictor
from lstd.online.recorded_rows import goes_on
from lstd.online.transition import Array, SparseRow

ENTRIES_AT_ONCE = 2**20  # of sparse rows made dense at a time, 8 MiB


class _Pending(NamedTuple):
    """Last row of a stream, whose successor is not known yet."""

    phi: Array  # (n,)
    reward: float  # NaN if it is missing
    discount: float
    ratio: float


class TemporalDifference(OnlinePredictor):
    """Base class of the TD algorithms."""

    def __init__(self, n_features: int, gamma: float, lmbda: float, step_size: float, kind: int) -> None:
        self.n_features = check_integer("n_features", n_features, 1)
        self.gamma = check_real("gamma", gamma, 0.0, 1.0)
        self.lmbda = check_real("lmbda", lmbda, 0.0, 1.0)
        self.step_size = check_real("step_size", step_size, 0.0, np.inf, open_low=True)
        self._state = transition.aligned(2, self.n_features)
        self._scalars = np.array([self.lmbda, self.step_size, 0.0, 0.0])
        self._counts = np.array([kind, 0], dtype=np.int64)
        self._pending: _Pending | None = None
        self._episode: Any = None  # id of the last row of `partial_fit`
        self._open = False  # whether the last row of `partial_fit` did not terminate …
        self._successors = False  # … and had features of its successor
        self._warned = False
        self._names: tuple[str, ...] | None = None  # of the features, if `X` was a data frame
        self._typed = transition.compiled(kernels, "step")

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._typed = transition.compiled(kernels, "step")  # a new process compiles its own

    @property
    def n_updates(self) -> int:
        return int(self._counts[kernels.UPDATES])

    @property
    def weights(self) -> Array:
        """Copy of the weights after the last transition, shape (n,); raises InvalidInputError if they overflowed."""
        weights: Array = self._state[kernels.WEIGHTS].copy()
        if not np.isfinite(weights).all():
            raise InvalidInputError(
                f"`step_size` must be small enough for the weights to stay finite; with {self.step_size:g} they "
                "overflowed. Start again with a smaller one, below 1 divided by the largest squared norm of a row."
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
        code = kernels.BAD
        if type(x) is ndarray and self._typed and terminated is False and truncated is False:  # no conversion needed
            try:
                code = step(
                    x, x_next, reward, discount, importance_ratio, False, self._state, self._scalars, self._counts
                )
            except Exception:  # arguments of other types are converted below, or raise
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
        """Learn from sparse rows that need no conversion; returns BAD for other rows, or if they break a rule."""
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
        """Raise InvalidInputError for ratios other than 1 if the algorithm learns on-policy."""

    # ------------------------------------------------------------ whole streams

    def partial_fit(
        self, X: Any, y: ArrayLike, *, episode: PerRow = None, terminated: PerRow = None, X_next: Any = None,
        discount: PerRow = None, importance_ratio: PerRow = None,
    ) -> Self:  # fmt: skip
        """Learn from rows in time order, as from one :meth:`update` per transition.

        The parameters mean the same as in :meth:`lstd.LSTD.partial_fit`; each row has one reward. If `X` is a data
        frame, the columns of the first call are selected by name. The next call continues the stream: its first row is
        the successor of the last row of this call, unless that row terminated or the episode ids differ. An
        :meth:`update` in between replaces the transition between the two rows.

        Returns
        -------
        self
        """
        rows = check_rows(
            by_name("X", X, self._names), y, gamma=self.gamma, episode=episode, terminated=terminated, X_next=X_next,
            discount=discount, importance_ratio=importance_ratio, warn=not self._warned, finite=False,
        )  # fmt: skip
        self._warned |= rows.assumed
        if rows.n_features != self.n_features:
            raise InvalidInputError(f"`X` must have {self.n_features} features; got {rows.n_features}.")
        if rows.y.shape[1] != 1:
            raise InvalidInputError(f"`y` must hold one reward per row, shape ({len(rows)},); got {rows.y.shape}.")
        self._check_ratios(rows.ratios)
        if len(rows):
            self._learn_stream(rows)
        self._names = self._names or rows.names
        return self

    def _learn_stream(self, rows: Rows) -> None:
        """Learn from the rows; at a value that is not finite, restore the arrays and check the features."""
        missing = self._pending is not None and math.isnan(self._pending.reward)
        continues = self._open and goes_on(rows, self._episode, self._successors, missing)
        before = [array.copy() for array in self._arrays]
        if not self._learn(rows, continues, trusted=False):
            for array, old in zip(self._arrays, before, strict=True):
                array[:] = old
            check_finite("X", rows.X)
            if rows.X_next is not None:
                check_finite("X_next", rows.X_next)
            self._learn(rows, continues, trusted=True)  # features are finite, so the weights diverged
        self._open = not rows.terminated[-1]
        self._episode, self._successors = rows.last_episode, rows.X_next is not None
        self._pending = None
        if self._open and rows.X_next is None:
            reward = math.nan if rows.y_missing[-1] else float(rows.y[-1, 0])
            phi = _dense(rows.X, len(rows) - 1, len(rows))[0].copy()
            self._pending = _Pending(phi, reward, float(rows.discount[-1]), float(rows.ratios[-1]))

    def _learn(self, rows: Rows, continues: bool, trusted: bool) -> bool:
        """Learn from the pending row and the rows; returns False at the first value that is not finite."""
        n_rows, given, pending = len(rows), rows.X_next is not None, self._pending
        if self._open and not continues:
            self._scalars[kernels.DECAY] = 0.0
        elif continues and pending is not None:
            successor = _dense(rows.X, 0, 1)[0]
            numbers = (pending.reward, pending.discount, pending.ratio, False)
            if kernels.step(pending.phi, successor, *numbers, *self._arrays) != kernels.DONE:
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


def _dense(X: Features, first: int, stop: int) -> Array:
    """Return rows `first` to `stop`, dense and in C order."""
    return np.ascontiguousarray(X[first:stop].toarray() if sparse.issparse(X) else X[first:stop])


class TD(TemporalDifference):
    """TD(λ) with accumulating or replacing traces (Sutton 1988; Singh and Sutton 1996).

    Parameters
    ----------
    n_features : int
        Number of features, n.
    gamma : float in [0, 1], default 0.99
        Default discount of :meth:`update`.
    lmbda : float in [0, 1], default 0.9
        Trace decay.
    step_size : float > 0, default 0.01
    trace : {"accumulating", "replacing"}, default "accumulating"
        Whether a feature's trace grows with every visit or is reset by it.

    Attributes
    ----------
    n_updates : int
        Number of transitions so far.

    Notes
    -----
    Importance ratios are per decision: they multiply the trace (Precup, Sutton and Singh 2000).

    Examples
    --------
    >>> import numpy as np
    >>> from lstd import TD
    >>> model = TD(2, gamma=0.5, lmbda=0.0, step_size=0.5)
    >>> here, there = np.eye(2)
    >>> for _ in range(100):
    ...     model.update(here, 1.0, there)
    ...     here, there = there, here
    >>> model.weights.round(6)
    array([2., 2.])
    """

    def __init__(
        self,
        n_features: int,
        gamma: float = GAMMA,
        lmbda: float = LMBDA,
        step_size: float = 0.01,
        trace: str = "accumulating",
    ) -> None:
        kinds = {"accumulating": kernels.ACCUMULATING, "replacing": kernels.REPLACING}
        self.trace = check_choice("trace", trace, kinds)
        super().__init__(n_features, gamma, lmbda, step_size, kinds[trace])


class TrueOnlineTD(TemporalDifference):
    """True online TD(λ) (van Seijen, Mahmood, Pilarski, Machado and Sutton 2016).

    After every transition its weights equal the weights of the online λ-return algorithm. It has the parameters and
    attributes of :class:`TD`, except for `trace`.

    Notes
    -----
    If `x` is not the `x_next` of the previous update, values are bootstrapped at `x_next` and updated at `x`.

    Examples
    --------
    >>> import numpy as np
    >>> from lstd import TrueOnlineTD
    >>> model = TrueOnlineTD(2, gamma=0.5, lmbda=0.5, step_size=0.5)
    >>> model.partial_fit(np.eye(2)[np.arange(200) % 2], np.ones(200)).weights.round(6)
    array([2., 2.])
    """

    def __init__(self, n_features: int, gamma: float = GAMMA, lmbda: float = LMBDA, step_size: float = 0.01) -> None:
        super().__init__(n_features, gamma, lmbda, step_size, kernels.TRUE_ONLINE)

    def _check_ratios(self, ratios: Any) -> None:
        if np.any(np.asarray(ratios) != 1.0):
            raise InvalidInputError(
                "`importance_ratio` must be 1 with true online TD(λ), which learns on-policy; got another value. "
                "Use TD or RecursiveLSTD to learn off-policy."
            )
