"""TD(λ) with accumulating or replacing traces, and true online TD(λ): one transition at a time, or rows of a stream.

Recursions and sources are in `lstd._kernels.td_update`. A transition takes O(n).
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy import ndarray
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from lstd._kernels import td_update as kernels
from lstd._kernels.td_update import step
from lstd.data.arguments import check_choice, check_flag, check_integer, check_real
from lstd.data.feature_arrays import Features, all_finite, check_finite
from lstd.data.follow import follows
from lstd.data.read_only import read_only
from lstd.data.rows import PerRow, Rows
from lstd.data.settings import GAMMA, LMBDA
from lstd.data.takes import Takes
from lstd.errors import InvalidInputError
from lstd.online.one_transition import NO_GROUPS, OnlinePredictor, Transition, aligned, compiled
from lstd.types import Array, FeaturesLike

_USE_LSTD = "TD learns each transition alike; use RecursiveLSTD or LSTD."
_REMEDIES = {"weight": _USE_LSTD, "sample_weight": _USE_LSTD, "trace_coefficient": _USE_LSTD, "groups": NO_GROUPS}
_PARTIAL_FIT = Takes("partial_fit", (), _REMEDIES)  # beside the named arguments
_UPDATE = Takes("update", (), _REMEDIES)
ENTRIES_AT_ONCE = 2**20  # of sparse rows made dense at a time, 8 MiB


class TemporalDifference(OnlinePredictor):
    """Base class of the TD algorithms."""

    def __init__(self, n_features: int, gamma: float, lmbda: float, step_size: float, kind: int) -> None:
        self.n_features = check_integer("n_features", n_features, 1)
        self.gamma = check_real("gamma", gamma, 0.0, 1.0)
        self.lmbda = check_real("lmbda", lmbda, 0.0, 1.0)
        self.step_size = check_real("step_size", step_size, 0.0, np.inf, open_low=True)
        self._state = aligned(2, self.n_features)
        self._scalars = np.array([self.lmbda, self.step_size, 0.0, 0.0])
        self._counts = np.array([kind, 0], dtype=np.int64)
        self._typed = compiled(kernels, "step")

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._typed = compiled(kernels, "step")  # a new process compiles its own

    @property
    def n_updates(self) -> int:
        return int(self._counts[kernels.UPDATES])

    @property
    def weights(self) -> Array:
        """The weights after the last transition, shape (n,), read-only; raises InvalidInputError if they overflowed."""
        weights: Array = self._state[kernels.WEIGHTS].copy()
        if not np.isfinite(weights).all():
            raise InvalidInputError(
                f"`step_size` must be small enough for the weights to stay finite; with {self.step_size:g} they "
                "overflowed. Start again with a smaller one, below 1 divided by the largest squared norm of a row."
            )
        return read_only(weights)

    def update(
        self,
        x: FeaturesLike,
        reward: float,
        x_next: FeaturesLike,
        *,
        terminated: bool = False,
        truncated: bool = False,
        discount: float | None = None,
        importance_ratio: float = 1.0,
        **others: Any,
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
        **others
            Any other argument is refused, with what to do instead.

        Raises
        ------
        InvalidInputError
            When an argument breaks a rule, or is so large that sums would overflow. The estimator is unchanged then.
        """
        if others:
            _UPDATE.check(others)
        discount = self.gamma if discount is None else discount
        if type(x) is ndarray and self._typed and terminated is False and truncated is False:  # no conversion needed
            try:
                code = step(
                    x, x_next, reward, discount, importance_ratio, False, self._state, self._scalars, self._counts
                )
                if code == kernels.DONE:
                    return
            except Exception:  # arguments of other types are converted below, or raise
                pass
        truncated = check_flag("truncated", truncated)
        given = Transition.checked(self.n_features, None, x, reward, x_next, terminated, discount, importance_ratio)
        self._check_ratios(importance_ratio)
        given.taken(kernels, *self._arrays)
        if truncated:
            self._scalars[kernels.DECAY] = 0.0

    @property
    def _arrays(self) -> tuple[Array, Array, NDArray[np.int64]]:
        return self._state, self._scalars, self._counts

    def _check_ratios(self, ratios: ArrayLike) -> None:
        """Raise InvalidInputError for ratios other than 1 if the algorithm learns on-policy."""

    # ------------------------------------------------------------ whole streams

    def partial_fit(
        self,
        X: FeaturesLike,
        y: ArrayLike,
        *,
        episode: PerRow = None,
        terminated: PerRow = None,
        X_next: FeaturesLike | None = None,
        discount: PerRow = None,
        importance_ratio: PerRow = None,
        **others: Any,
    ) -> Self:
        """Learn from rows in time order, as from one :meth:`update` per transition.

        The parameters mean the same as in :meth:`lstd.LSTD.partial_fit`; each row has one reward. If `X` is a data
        frame, the columns of the first call are selected by name. The next call continues the stream: its first row is
        the successor of the last row of this call, unless that row terminated or the episode ids differ. An
        :meth:`update` in between replaces the transition between the two rows. Any other argument is refused.

        Returns
        -------
        self
        """
        _PARTIAL_FIT.check(others)
        rows = self._checked_rows(
            X,
            y,
            episode=episode,
            terminated=terminated,
            X_next=X_next,
            discount=discount,
            importance_ratio=importance_ratio,
            finite=False,
        )
        if rows.y.shape[1] != 1:
            raise InvalidInputError(f"`y` must hold one reward per row, shape ({len(rows)},); got {rows.y.shape}.")
        self._check_ratios(rows.importance_ratio)
        if len(rows):
            self._learn_stream(rows)
        self._names = self._names or rows.names
        return self

    def _learn_stream(self, rows: Rows) -> None:
        """Learn from the rows, or from none if a feature that counts is not finite, which makes weights so."""
        last = self._row_before
        goes_on = last is not None and follows(last, rows)
        before = [array.copy() for array in self._arrays]
        if last is not None and not goes_on:
            self._scalars[kernels.DECAY] = 0.0
        elif last is not None and rows.X_next is None and all_finite(rows.X[:1]):
            Transition.between(last, rows).taken(kernels, *self._arrays)
        self._learn(rows)
        if not (np.isfinite(self._state).all() and all_finite(rows.X[~rows.full])):
            try:
                check_finite("X", rows.X)
                if rows.X_next is not None:
                    check_finite("X_next", rows.X_next)
            except InvalidInputError:
                for array, old in zip(self._arrays, before, strict=True):
                    array[:] = old
                raise
        self._keep_last(rows)

    def _learn(self, rows: Rows) -> None:
        """Take the transitions of the rows."""
        n_rows = len(rows)
        ends = rows.last.copy()
        ends[-1] = False  # the episode may continue; a termination has discount 0
        compiled(kernels, "stream")
        size = n_rows
        if sparse.issparse(rows.X):
            size = max(1, ENTRIES_AT_ONCE // self.n_features)
        for first in range(0, n_rows, size):
            part = slice(first, min(first + size, n_rows))
            X = _dense(rows.X, first, min(part.stop + 1, n_rows))
            successors = X
            ahead = 1  # rows from a row to its successor
            if rows.X_next is not None:
                successors = _dense(rows.X_next, first, part.stop)
                ahead = 0
            kernels.stream(
                X,
                successors,
                ahead,
                rows.y[part, 0].copy(),
                np.ascontiguousarray(rows.discount[part]),
                np.ascontiguousarray(rows.importance_ratio[part]),
                rows.full[part],
                ends[part],
                *self._arrays,
            )


def _dense(X: Features, first: int, stop: int) -> Array:
    """Return rows `first` to `stop`, dense and in C order."""
    rows = X[first:stop]
    if sparse.issparse(rows):
        rows = rows.toarray()
    return np.ascontiguousarray(rows)


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

    def _check_ratios(self, ratios: ArrayLike) -> None:
        if np.any(np.asarray(ratios) != 1.0):
            raise InvalidInputError(
                "`importance_ratio` must be 1 with true online TD(λ), which learns on-policy; got another value. "
                "Use TD or RecursiveLSTD to learn off-policy."
            )
