"""Recursive LSTD(λ): the least-squares weights after every transition.

How they are kept up to date is in :mod:`lstd.online.recursion`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self, Unpack, overload

import numpy as np
from numpy import ndarray
from numpy.typing import ArrayLike, NDArray

from lstd._kernels import change_detection
from lstd._kernels import online_step as kernels
from lstd._kernels.online_state import BAD, CHANGED, DONE, JUMP, LOOK, NEXT
from lstd._kernels.online_step import step, step_forgetting, step_sparse
from lstd.data.arguments import check_choice, check_flag, check_integer, check_real, is_single
from lstd.data.doubts import FEWEST
from lstd.data.read_only import lock, read_only
from lstd.data.returns import mean_squared_residual
from lstd.data.rows import Columns, PerRow, Rows
from lstd.data.settings import ALPHA, GAMMA, LMBDA, boundary_share, check_ridge
from lstd.data.takes import Takes
from lstd.data.variants import SHARES, VARIANT
from lstd.errors import InvalidInputError, RidgeWarning, warn
from lstd.online import snapshot as snapshots
from lstd.online.forgetting import RateBank, check_rates
from lstd.online.one_transition import NO_GROUPS, SparseRow, Transition, aligned, compiled
from lstd.online.recorded_rows import Name, RowLearner, learn
from lstd.online.recursion import Recursion
from lstd.online.stream_warnings import warn_of_bounds, warn_of_change, warn_of_jump
from lstd.statistics.intervals import Interval, check_level
from lstd.statistics.ridge import Scales
from lstd.statistics.system import System
from lstd.types import Array, FeaturesLike

_PARTIAL_FIT, _UPDATE = (  # beside the named arguments
    Takes(f"RecursiveLSTD.{method}", (), {"groups": NO_GROUPS}) for method in ("partial_fit", "update")
)
_INFINITE = np.inf
_NO_ROOM = np.empty(0)
_ONE = 1.0  # the default of `weight` and `trace_coefficient`, by which a call without them is known


class RecursiveLSTD(RowLearner):
    """Least-squares temporal-difference prediction, one transition at a time.

    After every :meth:`update` the weights equal the batch estimator's on the transitions so far. An update takes
    O(n²) for dense features. For sparse features with k non-zero entries it takes O(n k), apart from rank-one changes,
    which are applied together, up to 32 at a time. Now and then, transitions are moved into the sums of the batch
    estimator, and the recursion starts again from these. If the system is too ill-conditioned for any recursion, the
    weights are solved for when they are read.

    Parameters
    ----------
    n_features : int
        Number of features, n.
    gamma : float in [0, 1], default 0.99
        Default discount of :meth:`update`.
    lmbda : float in [0, 1], default 0.9
        Trace decay.
    alpha : float > 0, or array-like of shape (n_features,), default 1.0
        Ridge coefficient, or one for each feature; 0 leaves a feature without a penalty. Until the data determine the
        weights of such features, each reading of the weights solves the system.
    variant : str, default "boyan"
        The estimator of :attr:`weights` and :meth:`predict`: a variant of :class:`lstd.LSTD`.
    forgetting : float in (0, 1] or "auto", default 1.0
        Factor f by which each transition multiplies the weights of all earlier ones. The transition k updates ago has
        the weight f^k, so about the last 1/(1 − f) count: a thousand for 0.999. 1 forgets nothing. "auto" learns with
        five rates at once, in five times the time and memory, and predicts with the one whose predictions were recently
        closest to the returns that followed. It does not forget unless a rate is better by three standard errors.
    n_rewards : int, optional
        Number of rewards per transition, m. :attr:`weights` then has shape (m, n), and predictions a column for each.
        Without it a reward is a number.
    n_blocks : int or "auto", default "auto"
        Largest number of blocks of the stream to keep for standard errors, 0 for none. Each takes 16 n² bytes. "auto"
        is 64, or what fits in 64 MiB if that is fewer, and 0 if it is fewer than 10. A single episode has at most 28.
    check_every : int, optional
        Largest number of updates between two computations of the inverse from the sums, by default the larger of 8192
        and 10 n. The first comes after the larger of n and 16 updates; then intervals grow. Each takes O(n³).

    Attributes
    ----------
    n_updates : int
        Number of transitions so far.
    n_effective : float
        Effective number of transitions, the sum of their weights f^k.
    forgetting_ : float
        Rate of forgetting of the weights that are read: `forgetting`, or the rate chosen by "auto".
    drift_ : float
        Size of recent errors, divided by the largest that the stream's own history allows. Above 1, a ChangeWarning is
        given and the history starts over. NaN while no change could be noticed: until the history has some 100 blocks
        of 16 to 32 transitions. With importance ratios, errors count only while the effective sample is at least 50
        runs of rows.

    n_changes_ : int
        Number of ChangeWarnings that this object has given.
    drifts_ : ndarray of shape (T, 2), or None
        Of each row of the last :meth:`partial_fit` with `return_predictions`: `drift_` and `n_changes_` before it.

    Warns
    -----
    EffectiveSampleWarning
        Once, when a few products of importance ratios, or a few weights, decide. It is looked for after recorded rows,
        and at the latest every 1024 updates.
    ChangeWarning
        By :meth:`update`, when recent errors say that the stream has changed.
    BrokenEpisodeWarning
        By :meth:`update`, once, before learning, when `x` differs from the last `x_next` within an episode.
    IllConditionedWarning
        When weights are read and the system is singular or nearly so.

    Notes
    -----
    Memory is 32 n² bytes, those of the blocks, and a buffer of at most 4096 transitions, or of 8 MiB.

    Weights have at least eight correct digits, or those that :class:`lstd.LSTD` has on the same data. They are read
    from the recursion, in O(n), while the condition number of the system, after scaling rows and columns, was at most
    1e7 when the inverse was computed. Otherwise, and if an update since then may have lost digits, each reading adds
    the buffer to the sums and solves the system, in O(n³). With a small `alpha`, that is so until there are as many
    transitions as features.

    With forgetting, the weights after T transitions equal those of :class:`lstd.LSTD` with ``weight`` f^(T − 1 − t) for
    transition t, times the weight given, and with a ridge that does not fade. As its sums fade, the ridge is restored
    one feature after another, so that it stays between about a third of `alpha` and `alpha` (above 0.9 with few
    features). This takes one more rank-one change per update, of O(n²), and about n(1 − f) of them if n is above
    1/(1 − f).

    Within an episode, `x_next` should be the next `x`. Otherwise each transition counts with its own two rows, as with
    `X_next` of the batch estimator, and the trace continues. The usual cause is a forgotten ``truncated=True``.

    Standard errors are those of :class:`lstd.LSTD` on the same transitions; with forgetting, from blocks of the
    effective sample.

    Updates from several threads at once are not safe.

    Examples
    --------
    Two states follow each other with a reward of 1 and discount 0.5, so the value of each is 2.

    >>> import numpy as np
    >>> from lstd import RecursiveLSTD
    >>> model = RecursiveLSTD(2, gamma=0.5, lmbda=0.0, alpha=1e-9)
    >>> here, there = np.eye(2)
    >>> for _ in range(4):
    ...     model.update(here, 1.0, there)
    ...     here, there = there, here
    >>> model.weights.round(6)
    array([2., 2.])
    >>> round(model.predict([1.0, 1.0]), 6)
    4.0
    """

    def __init__(
        self,
        n_features: int,
        gamma: float = GAMMA,
        lmbda: float = LMBDA,
        alpha: float | ArrayLike = ALPHA,
        variant: str = VARIANT,
        *,
        forgetting: float | str = 1.0,
        n_rewards: int | None = None,
        n_blocks: int | str = "auto",
        check_every: int | None = None,
    ) -> None:
        n = check_integer("n_features", n_features, 1)
        aligned(2, n, n)  # A and its inverse fit in memory, or this raises
        self.n_features = n
        self.gamma = check_real("gamma", gamma, 0.0, 1.0)
        self.lmbda = check_real("lmbda", lmbda, 0.0, 1.0)
        self.alpha = read_only(_check_alpha(alpha, n))
        self.variant = check_choice("variant", variant, SHARES)
        self.n_rewards = None
        if n_rewards is not None:
            self.n_rewards = check_integer("n_rewards", n_rewards, 1)
        if check_every is None:
            check_every = max(8192, 10 * n)
        self.check_every = check_integer("check_every", check_every, 1)
        self.forgetting = forgetting
        self.n_blocks = n_blocks
        rates = check_rates(forgetting, n, self.gamma)
        self._cores = [self._core_of(rate, monitors=rate == rates[-1]) for rate in rates]
        self._core = self._cores[-1]  # which alone has charts, and warns of ratios
        self._bank = None
        if len(rates) > 1:
            self._bank = RateBank(self._cores, self.gamma)
        self._compile()
        self._warned = False
        self._beyond = np.zeros((4, self.n_rewards or 1))  # see `warn_of_bounds`
        self.n_changes_ = 0
        self.drifts_: Array | None = None

    def _core_of(self, rate: float, *, monitors: bool) -> Recursion:
        """Return a recursion with a rate of forgetting."""
        return Recursion(
            self.n_features,
            self.n_rewards or 1,
            self.gamma,
            self.lmbda,
            np.broadcast_to(self.alpha, self.n_features),
            self.variant,
            forgetting=rate,
            n_blocks=self.n_blocks,
            renew_every=self.check_every,
            monitors=monitors,
        )

    def _compile(self) -> None:
        """Compile the kernels, and note which recursion they may update without conversion of arguments."""
        self._typed = compiled(kernels, "predict")
        for core in self._cores:
            compiled(kernels, core.step_name)
        self.alone = None
        if self._typed and self._bank is None:
            self.alone = self._core  # learns by compiled kernels
        self._direct = None
        if self.n_rewards is None:
            self._direct = self.alone  # and its numbers need no conversion
        self._forgets = self._core.forgetting != 1.0
        self._sparse = False  # whether the kernel of sparse rows is compiled

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        lock([self.alpha, self.drifts_])
        self._compile()  # a new process compiles its own

    @property
    def n_updates(self) -> int:
        """Number of transitions so far."""
        return self._core.n_updates

    @property
    def n_effective(self) -> float:
        """Effective number of transitions, Σ f^k, k < `n_updates`; with forgetting f < 1 it approaches 1/(1 − f)."""
        return self.reader.n_effective

    @property
    def drift_(self) -> float:
        """Size of recent errors over the largest that the stream's own history allows; NaN with too little history."""
        level = float(self._core.charts[:, change_detection.LEVEL].max())
        if level < 0.0:
            return np.nan
        return level

    # ------------------------------------------------------------ learning

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
        weight: float = _ONE,
        trace_coefficient: float = _ONE,
        **others: Any,
    ) -> None:
        """Learn from one transition, as :meth:`lstd.TD.update` does.

        Parameters
        ----------
        x, reward, x_next, terminated, truncated, discount, importance_ratio
            As in :meth:`lstd.TD.update`; with `n_rewards`, `reward` has shape (m,).
        weight : float, at least 0, default 1.0
            Weight of the transition in the sums; see :meth:`lstd.LSTD.fit`.
        trace_coefficient : float, at least 0, default 1.0
            Factor of the decay of the incoming trace, beside γλ.
        **others
            Any other argument is refused, with what to do instead.
        """
        if others:
            _UPDATE.check(others)
        core = self._direct
        if discount is None:
            discount = self.gamma
        is_usual = weight is _ONE and trace_coefficient is _ONE and terminated is False and truncated is False
        if is_usual and core is not None:  # no conversion needed
            code = BAD
            try:
                if type(x) is ndarray:
                    take = step
                    if self._forgets:
                        take = step_forgetting
                    code = take(
                        x,
                        x_next,
                        reward,
                        discount,
                        importance_ratio,
                        False,
                        core.state,
                        core.numbers,
                        core.counts,
                        core.buffer,
                    )
                elif self._sparse and len(x) == 2 and len(x_next) == 2:
                    code = step_sparse(*x, *x_next, reward, discount, importance_ratio, False, *core.arrays)
            except Exception:  # arguments of other types are converted below, or raise
                code = BAD
            if code == DONE:
                return
            if code > DONE:
                self.after(core)
                return
        truncated = check_flag("truncated", truncated)
        given = Transition.checked(
            self.n_features,
            self.n_rewards,
            x,
            reward,
            x_next,
            terminated,
            discount,
            importance_ratio,
            trace_coefficient,
            weight,
        )
        self.learn(given)
        if truncated and not terminated:
            self.cut_off()

    def learn(self, given: Transition, name: Name = None, t: int = 0) -> None:
        """Learn from a checked transition, to a row that warnings call `name(t)`.

        Adds a boundary term first if its row is not the last successor.
        """
        before = None
        if self._bank is not None:
            before = self._bank.predictions(given.x)
        for core in self._cores:
            code = core.learn(given)
            if code == JUMP:
                if not self._warned:
                    warn_of_jump(self.n_updates, given.ratio)
                self._warned = True
                core.close(1.0)
                code = core.learn(given)
                if code == DONE:
                    code = LOOK  # the boundary term may have cost digits
            if code < DONE:
                raise given.too_large()
            if code > DONE:
                self.after(core, name, t)
        self._sparse |= self._typed and isinstance(given.x, SparseRow)
        if self._bank is not None and before is not None:
            self._bank.note(before, given)

    def cut_off(self) -> None:
        """Cut the episode off at the last successor, as ``truncated=True`` with its transition does."""
        if self._bank is not None:
            self._bank.cut_off(self._core.state[NEXT, : self.n_features].copy())
        for core in self._cores:
            core.cut_off()

    def after(self, core: Recursion, name: Name = None, t: int = 0) -> None:
        """Do what is due after a transition of a recursion, to a row that warnings call `name(t)`."""
        core.after()
        if core.counts[CHANGED]:
            charts = core.charts.copy()
            core.begin_charts()
            self.n_changes_ += 1
            row = ""
            if name is not None:
                row = f"{name(t)}: "
            warn_of_change(charts, core.n_updates, self.forgetting, row)

    @property
    def arrays(self) -> list[NDArray[Any]]:
        """The arrays that change in place, but for the buffers."""
        arrays = [array for core in self._cores for array in core.arrays[:3]]
        if self._bank is not None:
            arrays.extend(self._bank.state)
        return arrays

    @overload
    def partial_fit(
        self, X: FeaturesLike, y: ArrayLike, *, return_predictions: Literal[False] = ..., **columns: Unpack[Columns]
    ) -> Self: ...
    @overload
    def partial_fit(
        self, X: FeaturesLike, y: ArrayLike, *, return_predictions: Literal[True], **columns: Unpack[Columns]
    ) -> Array: ...
    @overload
    def partial_fit(
        self, X: FeaturesLike, y: ArrayLike, *, return_predictions: bool, **columns: Unpack[Columns]
    ) -> Self | Array: ...
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
        trace_coefficient: PerRow = None,
        weight: PerRow = None,
        return_predictions: bool = False,
        **others: Any,
    ) -> Self | Array:
        """Learn from recorded rows in time order, as from one :meth:`update` per transition.

        Parameters
        ----------
        X, y, episode, terminated, X_next, discount, importance_ratio, trace_coefficient, weight
            As in :meth:`lstd.LSTD.partial_fit`. The first row of the next call is the successor of the last row of this
            one, unless that terminated or the ids differ. An :meth:`update` between two calls replaces the transition
            from one row to the other. An id that reappears after others is refused; a restored model knows no earlier
            ids.
        return_predictions : bool, default False
            Whether to return the prediction for each row before its transition is learned, as a live system would have
            made it.
        **others
            Any other argument is refused, with what to do instead.

        Returns
        -------
        self, or ndarray of shape (T,) or (T, m) with `return_predictions`

        Raises
        ------
        InvalidInputError
            When an argument breaks a rule, or sums would overflow. The estimator is unchanged then.

        Warns
        -----
        MissingTerminationWarning
            Once, when `episode` is given without `terminated`, and one episode follows another.
        BoundsWarning
            Once, with `return_predictions`, when more than 5 % of the predictions after the first 30 are outside of
            what the rewards before them allow, by more than a quarter of that range.
        BrokenEpisodeWarning, ChangeWarning
            As by :meth:`update`.

        Examples
        --------
        >>> import numpy as np
        >>> from lstd import RecursiveLSTD
        >>> model = RecursiveLSTD(1, gamma=0.5, lmbda=0.0, alpha=1.0)
        >>> model.partial_fit(np.ones((4, 1)), np.ones(4), return_predictions=True).round(2)
        array([0.  , 0.67, 1.  , 1.2 ])
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
            trace_coefficient=trace_coefficient,
            weight=weight,
        )
        self._check_shape(rows)
        if not check_flag("return_predictions", return_predictions):
            self._learn_rows(rows, None, lambda t: _name_of(X, t))
            self._names = self._names or rows.names
            return self
        T, m = rows.y.shape
        before = np.empty((T, m + 2))  # predictions, and what is known of drift, before each row
        self._learn_rows(rows, before, lambda t: _name_of(X, t))
        self._names = self._names or rows.names
        predictions = before[:, :-2]
        if T:
            self._beyond = warn_of_bounds(self._beyond, rows, predictions, boundary_share(self.variant, self.lmbda))
        if self.n_rewards is None:
            return predictions[:, 0]
        return predictions

    def _check_shape(self, rows: Rows) -> None:
        """Raise InvalidInputError unless the rows have as many rewards as the estimator."""
        expected: tuple[int, ...] = (len(rows),)
        rule = ", one reward per row; an estimator made with `n_rewards` takes several"
        if self.n_rewards is not None:
            expected = (len(rows), self.n_rewards)
            rule = ""
        given = rows.y.shape
        if rows.single:
            given = (len(rows),)
        if given != expected:
            raise InvalidInputError(f"`y` must have shape {expected}{rule}; got {given}.")

    def _learn_rows(self, rows: Rows, before: Array | None, name: Name) -> None:
        """Learn from checked rows, with these names in warnings; fill `before`, see :func:`learn`."""
        T = len(rows)
        if not T:
            return
        is_first = not self.n_updates
        learn(self, rows, before, name)
        if is_first and T >= FEWEST:
            warn(self._scales_doubt(rows), RidgeWarning)
        self.drifts_ = None
        if before is not None:
            self.drifts_ = read_only(before[:, -2:].copy())
        if self.n_updates <= 8 * T:
            self._core.warn_of_ratios()

    def _scales_doubt(self, rows: Rows) -> str:
        """Say that predictions for the first rows depend on the units of the features, if they do."""
        if not is_single(self.alpha):
            return ""
        ridge = np.full(self.n_features, float(self.alpha))
        scales = Scales.of(rows, ridge, intercept=False)
        if scales is None:
            return ""
        system = System.of(self.reader.total(), self.variant, ridge, intercept=False)
        solution = system.solve()
        weights = solution.weights
        if solution.unbounded or not scales.may_move(system.A.diagonal(), solution.condition_number):
            return ""
        moved = rows.part @ scales.moved_weights(system, weights)

        def residual() -> Array:
            ahead = None
            if rows.X_next is not None:
                ahead = rows.X_next @ weights
            return mean_squared_residual(rows, rows.X @ weights, ahead)

        return scales.doubt(moved, rows.part @ weights, residual)

    # ------------------------------------------------------------ reading

    @property
    def reader(self) -> Recursion:
        """The recursion from which weights are read: with "auto", that of the rate that is chosen."""
        if self._bank is None:
            return self._core
        return self._bank.chosen

    @property
    def forgetting_(self) -> float:
        """Rate of forgetting of the weights that are read."""
        return self.reader.forgetting

    @overload
    def predict(self, x: FeaturesLike, return_std: Literal[False] = ...) -> float | Array: ...
    @overload
    def predict(self, x: FeaturesLike, return_std: Literal[True]) -> tuple[float | Array, float | Array]: ...
    def predict(self, x: FeaturesLike, return_std: bool = False) -> float | Array | tuple[float | Array, float | Array]:
        """Predict the value of a row, or of each row of a matrix.

        Parameters
        ----------
        x : array-like of shape (n,) or (k, n), sparse matrix, or tuple (indices, values)
        return_std : bool, default False
            Whether to return standard errors too, as :meth:`lstd.LSTD.predict` does; see :meth:`predict_interval`.

        Returns
        -------
        float or ndarray of shape (k,), or two of them with `return_std`
            With several rewards of shape (m,) or (k, m).

        Raises
        ------
        InvalidInputError
            When `x` is not finite or has another number of features, or the weights overflowed; with `return_std`, when
            the stream has too few blocks.
        """
        if return_std is not False and check_flag("return_std", return_std):
            errors = self.reader.influence().standard_error(self._rows_of(x))
            return self.predict(x), errors[self._place_of(x)]
        if type(x) is ndarray and self._typed:  # no conversion needed
            core = self._core if self._bank is None else self._bank.chosen
            values = _NO_ROOM if self.n_rewards is None else np.empty(self.n_rewards)
            try:
                value = kernels.predict(x, values, _INFINITE, core.state, core.numbers, core.counts)
                if value == value:
                    return value if self.n_rewards is None else values
            except Exception:  # arguments of other types are converted below, or raise
                pass
        return super().predict(x)

    def predict_interval(self, x: FeaturesLike, level: float = 0.95) -> Interval:
        """Predict with intervals for what the model would predict with unlimited data of the same kind.

        Parameters
        ----------
        x : as in :meth:`predict`
        level : float in (0, 1), default 0.95

        Returns
        -------
        Interval
            With numbers for one row, arrays of shape (k,) for k rows; with several rewards (m,) or (k, m).

        Raises
        ------
        InvalidInputError
            When an argument breaks a rule, or the stream has too few blocks.
        """
        level = check_level(level)
        phi = self._rows_of(x)
        predictions = np.reshape(self.predict(x), (phi.shape[0], -1))
        return self.reader.influence().interval(phi, predictions, level).at(self._place_of(x))

    @property
    def weights(self) -> Array:
        return read_only(self.weights_for(self.variant))

    def weights_for(self, variant: str) -> Array:
        """Return a copy of the weights of any variant after the last transition, shape (n,) or (m, n).

        After an episode was truncated, the weights of variants other than the estimator's take O(n³): their matrices
        differ by one term for each truncated end.

        Raises
        ------
        InvalidInputError
            When the weights overflow, or `variant` is unknown.
        """
        weights = self.reader.weights(check_choice("variant", variant, SHARES))
        return weights[0] if self.n_rewards is None else weights

    # ------------------------------------------------------------ state

    def snapshot(self) -> dict[str, NDArray[Any]]:
        """Return copies of all arrays from which :meth:`restore` makes an estimator that continues with the same bits.

        They can be saved with `numpy.savez`.
        """
        return snapshots.snapshot_of(self)

    @classmethod
    def restore(cls, snapshot: Mapping[str, Any]) -> RecursiveLSTD:
        """Make an estimator from a result of :meth:`snapshot`, or from a file of it opened by `numpy.load`.

        Raises
        ------
        InvalidInputError
            When `snapshot` is not a snapshot of this version.

        Examples
        --------
        >>> import io
        >>> import numpy as np
        >>> from lstd import RecursiveLSTD
        >>> model = RecursiveLSTD(1, gamma=0.5)
        >>> model.update([1.0], 1.0, [1.0])
        >>> file = io.BytesIO()
        >>> np.savez(file, **model.snapshot())
        >>> _ = file.seek(0)
        >>> again = RecursiveLSTD.restore(np.load(file))
        >>> bool(again.weights[0] == model.weights[0])
        True
        """
        return snapshots.restored(cls, snapshot)


def _name_of(X: FeaturesLike, t: int) -> str:
    """Name a row by its number and, in a data frame with other labels, by its label."""
    index: Any = getattr(X, "index", None)
    label = index[t] if hasattr(index, "dtype") and t < len(index) else t
    return f"Row {t}" + (f" ({label})" if str(label) != str(t) else "")


def _check_alpha(alpha: Any, n: int) -> float | Array:
    """Check a ridge coefficient above 0, or one for each feature, at least 0."""
    if is_single(alpha):
        return check_real("alpha", alpha, 0.0, np.inf, open_low=True)
    return check_ridge("alpha", alpha, n).copy()
