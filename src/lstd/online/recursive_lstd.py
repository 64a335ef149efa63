"""Recursive LSTD(λ): the least-squares weights after every transition.

The recursion of `lstd._kernels.recursive_update` updates the inverse P of the Uncorrected estimator's matrix. The
weights of the other two variants differ by one term at the end of the data (Osogami 2020, (7), (8), (17), Theorem 1,
Lemma 2):

    θ_c = θ + c y (φ₊ᵀθ) / (1 − c φ₊ᵀy),   c = γ₊ (Boyan), (1 − λ)γ₊ (Mixed), 0 (Uncorrected),

with y = Pz, and φ₊, γ₊ the features and the discount of the last successor. When an episode is truncated, this term
stays in the matrix. The sum B = Σ γ₊ z φ₊ᵀ over truncated ends is kept too, so that the weights of the other variants
can still be solved for.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy import ndarray
from numpy.typing import ArrayLike, NDArray

from lstd._kernels import recursive_state as layout
from lstd._kernels import recursive_update as kernels
from lstd._kernels import sample_size
from lstd._kernels.recursive_state import BAD, DONE, JUMP
from lstd._kernels.recursive_update import step, step_sparse
from lstd.data.arguments import check_choice, check_flag, check_integer, check_real, is_single
from lstd.data.ids import same_id
from lstd.data.rows import PerRow, Rows
from lstd.data.seen_ids import episodes_seen
from lstd.data.settings import ALPHA, GAMMA, LMBDA, VARIANT, VARIANTS, check_ridge
from lstd.errors import BrokenEpisodeWarning, InvalidInputError, warn
from lstd.online import transition
from lstd.online.forgetting_choice import RateBank, rates
from lstd.online.open_end import goes_on, packed_end, unpacked_end
from lstd.online.recorded_rows import learn
from lstd.online.recursion import Recursion
from lstd.online.snapshot import VERSION, check_snapshot
from lstd.types import Array

_ONE = 1.0  # the default of `weight` and `trace_coefficient`, by which a call without them is known

_COUNTED_TWICE = (
    " If `x_next` is the expected successor under the target policy, leave `importance_ratio` out: it would count that "
    "policy twice."
)


class RecursiveLSTD(Recursion):
    """Least-squares temporal-difference prediction, one transition at a time.

    After every :meth:`update` the weights equal the batch estimator's on the transitions so far. An update takes
    O(n²) for dense features. For sparse features with k non-zero entries it takes O(n k), apart from rank-one changes,
    which are applied together, up to 32 at a time. A periodic check of the inverse against the system detects lost
    digits and recomputes the inverse. If the system is too ill-conditioned for any recursion, the weights are solved
    for when they are read.

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
    variant : {"boyan", "uncorrected", "mixed"}, default "boyan"
        The estimator of :attr:`weights` and :meth:`predict`.
    forgetting : float in (0, 1] or "auto", default 1.0
        Factor f by which each transition multiplies the weights of all earlier ones. The transition k updates ago has
        the weight f^k, so about the last 1/(1 − f) count: a thousand for 0.999. 1 forgets nothing. "auto" learns with
        five rates at once, in five times the time and memory, and predicts with the one whose predictions were recently
        closest to the returns that followed. It does not forget unless a rate is better by three standard errors.
    n_rewards : int, optional
        Number of rewards per transition, m. :attr:`weights` then has shape (m, n), and predictions a column for each.
        Without it a reward is a number.
    n_blocks : int or "auto", default "auto"
        Largest number of blocks of the stream to keep for standard errors, 0 for none. Each takes 8 n² bytes. "auto" is
        64, or what fits in 32 MiB if that is fewer, and 0 if it is fewer than 10. A single episode has at most 28.
    check_every : int, optional
        Largest number of updates between two checks, by default the larger of 1000 and 10 n. The first check comes
        after the larger of n and 16 updates. Intervals then double until a check finds lost digits. A check takes
        O(n²), and O(n³) if digits were lost.

    Attributes
    ----------
    n_updates, n_repairs : int
        Number of transitions so far, and of times the inverse was recomputed.
    n_effective : float
        Effective number of transitions, the sum of their weights f^k.
    forgetting_ : float
        Rate of forgetting of the weights that are read: `forgetting`, or the rate chosen by "auto".
    drift_ : float
        Size of recent errors, divided by the largest that the stream's own history allows. Above 1, a ChangeWarning is
        given and the history starts over. 0 until the history has some 100 blocks of 16 to 32 transitions. With
        importance ratios, errors count only while the effective sample is at least 50 runs of rows.

    Warns
    -----
    LostDigitsWarning
        By :meth:`update`, when lost digits made it recompute the inverse, or when weights are solved for from now on
        because the system is ill-conditioned. Do not repeat the update: it was learned.
    EffectiveSampleWarning
        Once, at a check or after recorded rows, when a few products of importance ratios, or a few weights, decide.
    ChangeWarning
        By :meth:`update`, when recent errors say that the stream has changed.
    BrokenEpisodeWarning
        By :meth:`update`, once, before learning, when `x` differs from the last `x_next` within an episode.
    IllConditionedWarning
        When weights are read and the system is singular or nearly so.

    Notes
    -----
    Memory is 16 n² bytes, and 8 n² more after an episode was truncated.

    Weights are precise to about eight digits or better, in units of each feature. If the data determine fewer digits,
    they are about as precise as with :class:`lstd.LSTD`. The time of a reading depends on the condition number κ of the
    system, after scaling rows and columns, at the last check. Up to κ = 1e6, weights are read from the recursion, in
    O(n). Up to 1e8, they are corrected by the residual of the sums, in O(n²). Above that, after a failed correction, or
    if an update since the check may have lost digits, they are solved for, in O(n³). With a small `alpha`, κ is large
    until there are as many transitions as features.

    With forgetting, the weights after T transitions equal those of :class:`lstd.LSTD` with ``weight`` f^(T − 1 − t) for
    transition t, times the weight given, and with a ridge that does not fade. Each transition multiplies the ridge of
    each feature by f, as it does all sums, and the ridge of feature i is set back to `alpha` after transitions
    T ≡ ⌊iL/n⌋ (mod L). L is n, but at least a tenth of 1/(1 − f) and at most 1/(1 − f). So a ridge is never above
    `alpha`, and never below about a third of it; with n up to a tenth of 1/(1 − f), never below 0.9 of it. This takes
    one more rank-one change per update, of O(n²), and about n(1 − f) of them if n is above 1/(1 − f).

    Within an episode, `x_next` should be the next `x`. Otherwise each transition counts with its own two rows, as with
    `X_next` of the batch estimator, and the trace continues. The usual cause is a forgotten ``truncated=True``.

    Standard errors are those of :class:`lstd.LSTD`, from blocks of the stream; with forgetting, from blocks of its
    effective sample. The sums at the end of each block are kept, which takes O(n²) once a block. Computing the standard
    errors takes O(n²) per block.

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
        self.gamma = check_real("gamma", gamma, 0.0, 1.0)
        every = max(1000, 10 * n) if check_every is None else check_every
        super().__init__(
            n,
            check_real("lmbda", lmbda, 0.0, 1.0),
            _check_alpha(alpha, n),
            check_choice("variant", variant, VARIANTS),
            check_integer("check_every", every, 1),
            None if n_rewards is None else check_integer("n_rewards", n_rewards, 1),
            _check_rate(forgetting),
            n_blocks,
        )
        self.forgetting, self.n_blocks = forgetting, n_blocks
        self._begin_charts()
        self._warned = False
        self._beyond = np.zeros((7, self.n_rewards or 1))  # see `_warn_of_bounds`
        self._episodes: Any = None  # ids of the rows of `partial_fit`
        self._bank: RateBank | None = None
        if isinstance(forgetting, str):
            settings = (n, self.gamma, self.lmbda, self.alpha, self.variant)
            others = [
                RecursiveLSTD(*settings, forgetting=f, n_rewards=n_rewards, n_blocks=n_blocks, check_every=every)
                for f in rates(n, self.gamma)[:-1]
            ]
            for model in others:  # the charts and warnings of one are enough
                model._charts[:] = 0.0
                model._state[layout.SAMPLE, sample_size.SILENT] = 1.0
            self._bank = RateBank(others, self.gamma, n_rewards or 1)
            self._single = self._direct = False

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
        """
        if (  # no conversion needed
            self._direct and weight is _ONE and trace_coefficient is _ONE and terminated is False and truncated is False
        ):
            ahead, code = self.gamma if discount is None else discount, BAD
            try:
                if type(x) is ndarray:
                    code = step(x, x_next, reward, ahead, importance_ratio, False, self._state)
                elif self._typed_sparse and len(x) == 2 and len(x_next) == 2:
                    code = step_sparse(*x, *x_next, reward, ahead, importance_ratio, False, self._state)
            except Exception:  # arguments of other types are converted below, or raise
                code = BAD
            if code == DONE:
                return
            if code > DONE:
                self._check(code)
                return
        numbers = {"terminated": terminated, "truncated": truncated, "importance_ratio": importance_ratio}
        numbers["discount"] = self.gamma if discount is None else discount
        if self._bank is not None and not self._single:
            factors = {"weight": weight, "trace_coefficient": trace_coefficient}
            self._bank.update(self, x, reward, x_next, **numbers, **factors)
        elif weight is not _ONE or trace_coefficient is not _ONE:
            self._update_weighted(weight, trace_coefficient, x, reward, x_next, **numbers)
        else:
            self._check(self._learn(x, reward, x_next, **numbers))

    def _update_weighted(self, weight: Any, trace_coefficient: Any, *row: Any, **numbers: Any) -> None:
        """Learn from a transition with a weight and a trace coefficient of its own."""
        given = (
            check_real("weight", weight, 0.0, np.inf),
            check_real("trace_coefficient", trace_coefficient, 0.0, np.inf),
        )
        self._scalars[layout.WEIGHT : layout.COEFFICIENT + 1] = given
        try:
            self.update(*row, **numbers)
        finally:
            self._scalars[layout.WEIGHT : layout.COEFFICIENT + 1] = 1.0

    def _cut_off(self) -> None:
        """Cut the episode off at the last successor."""
        if self._bank is not None:
            self._bank.cut_off(self, self._state[layout.NEXT, : self.n_features].copy())
        self._check(self._truncate())

    def _learn(
        self, x: Any, reward: Any, x_next: Any, terminated: Any, truncated: Any, discount: Any, importance_ratio: Any
    ) -> int:
        """Learn from arguments of any kind; returns a code of `kernels`, at least DONE."""
        terminated = check_flag("terminated", terminated)
        truncated = check_flag("truncated", truncated)
        x_next = x if terminated else x_next
        rest = None
        if self.n_rewards is not None:
            rest = transition.check_rewards(reward, self.n_rewards)
            reward, rest = float(rest[0]), rest[1:]
        code = self._step(x, x_next, (reward, discount, importance_ratio, terminated))
        self._typed_sparse |= code >= DONE and type(x) is tuple
        if code < DONE:
            code = self._convert_and_step(x, x_next, reward, discount, importance_ratio, terminated)
        if rest is not None:
            transition.compiled(kernels, "follow")
            code = max(code, kernels.follow(rest, self._state))
        return max(code, self._truncate()) if truncated else code

    def _convert_and_step(
        self, x: Any, x_next: Any, reward: Any, discount: Any, importance_ratio: Any, terminated: bool
    ) -> int:
        """Check each argument and learn the transition; first adds a boundary term if `x` is not the last `x_next`."""
        numbers = *transition.check_numbers(reward, discount, importance_ratio), terminated
        pair = transition.check_pair(x, x_next, terminated, self.n_features)
        code = self._step_checked(*pair, numbers)
        if code == JUMP:
            if not self._warned:
                warn(
                    f"`x` differs from `x_next` of update {self.n_updates}, which neither terminated nor was "
                    "truncated: the episode is assumed to continue, and each transition keeps its own `x` and "
                    "`x_next`. Pass truncated=True with the last transition of an episode that was cut off."
                    + (_COUNTED_TWICE if numbers[2] != 1.0 else ""),
                    BrokenEpisodeWarning,
                )
                self._warned = True
            lost = self._add_boundary_term(1.0)
            code = max(self._step_checked(*pair, numbers), lost)
        if code < DONE:
            raise transition.too_large(*pair, numbers[0])
        return code

    def partial_fit(
        self, X: Any, y: ArrayLike, *, episode: PerRow = None, terminated: PerRow = None, X_next: Any = None,
        discount: PerRow = None, importance_ratio: PerRow = None, trace_coefficient: PerRow = None,
        weight: PerRow = None, return_predictions: bool = False,
    ) -> Any:  # fmt: skip
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
            When `episode` is given without `terminated`.
        BoundsWarning
            Once, with `return_predictions`, when predictions after the first 30 are so far outside of what the rewards
            before them allow that at least 15 % of their variance is error.
        LostDigitsWarning, BrokenEpisodeWarning
            As by :meth:`update`.

        Examples
        --------
        >>> import numpy as np
        >>> from lstd import RecursiveLSTD
        >>> model = RecursiveLSTD(1, gamma=0.5, lmbda=0.0, alpha=1.0)
        >>> model.partial_fit(np.ones((4, 1)), np.ones(4), return_predictions=True).round(2)
        array([0.  , 0.67, 1.  , 1.2 ])
        """
        rows = self._checked_rows(
            X, y, episode=episode, terminated=terminated, X_next=X_next, discount=discount,
            importance_ratio=importance_ratio, trace_coefficient=trace_coefficient, weight=weight,
        )  # fmt: skip
        expected = (len(rows),) if self.n_rewards is None else (len(rows), self.n_rewards)
        given = (len(rows),) if rows.single else rows.y.shape
        if given != expected:
            one = "" if self.n_rewards else ", one reward per row; an estimator made with `n_rewards` takes several"
            raise InvalidInputError(f"`y` must have shape {expected}{one}; got {given}.")
        predictions = np.empty(expected) if check_flag("return_predictions", return_predictions) else None
        if len(rows):
            self._learn_rows(rows, predictions)
            self._warn_of_ratios()
        if predictions is not None and len(rows):
            self._warn_of_bounds(rows, predictions.reshape(rows.y.shape))
        self._names = self._names or rows.names
        return self if predictions is None else predictions

    def _learn_rows(self, rows: Rows, predictions: Array | None) -> None:
        """Learn from rows, or from none if one of them is refused."""
        kept = copy.deepcopy({name: value for name, value in vars(self).items() if name != "_episodes"})
        before = self._end_before
        same = self._end is not None and same_id(self._end.episode, rows.first_episode)
        episodes = episodes_seen(rows, self._episodes, continues=same)
        try:
            if before is not None and not goes_on(rows, before):
                before = None
                self._cut_off()
            self._end = learn(self, rows, before, predictions)
            self._episodes = episodes
        except BaseException:
            self.__setstate__(kept)
            raise

    # ------------------------------------------------------------ reading

    @property
    def reader(self) -> RecursiveLSTD:
        """The estimator from which weights are read: itself, or with "auto" the one whose rate is chosen."""
        return self if self._single or self._bank is None else self._bank.chosen(self)

    @property
    def forgetting_(self) -> float:
        """Rate of forgetting of the weights that are read."""
        return float(self.reader._scalars[layout.FORGETTING])

    @property
    def weights(self) -> Array:
        return self.weights_for(self.variant)

    def weights_for(self, variant: str) -> Array:
        """Return the weights of any variant after the last transition, shape (n,) or (m, n).

        After an episode was truncated, the weights of variants other than the estimator's take O(n³): their matrices
        differ by one term for each truncated end.

        Raises
        ------
        InvalidInputError
            When the weights overflow, or `variant` is unknown.
        """
        return self.reader._weights(self._boundary_fraction(check_choice("variant", variant, VARIANTS)))

    # ------------------------------------------------------------ state

    def snapshot(self) -> dict[str, NDArray[Any]]:
        """Return copies of all arrays from which :meth:`restore` makes an estimator that continues with the same bits.

        They can be saved with `numpy.savez`.
        """
        rate = np.nan if isinstance(self.forgetting, str) else self.forgetting
        return {
            "version": np.array(VERSION),
            "parameters": np.array([self.gamma, self.lmbda, rate]),
            "alpha": np.array(self.alpha),
            "variant": np.array(self.variant),
            "n_rewards": np.array(self.n_rewards or 0),
            "check_every": np.array(self.check_every),
            "warned": np.array(self._warned),
            "beyond": self._beyond.copy(),
            "boundary": np.zeros((0, 0)) if self._boundary is None else self._boundary.copy(),
            **self._blocks.packed(self.n_features, self.n_rewards or 1),
            **packed_end(self._end_before, self.n_features),
            **{name: view.copy() for name, view in self._views().items()},
            **({} if self._bank is None else self._bank.packed()),
        }

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
        state = check_snapshot(snapshot)
        gamma, lmbda, rate = state["parameters"].tolist()
        alpha, blocks, n_rewards = state["alpha"], int(state["blocks"][0]), int(state["n_rewards"]) or None
        model = cls(
            state["vectors"].shape[1], gamma, lmbda, alpha if alpha.ndim else float(alpha), str(state["variant"]),
            forgetting="auto" if np.isnan(rate) else rate, n_rewards=n_rewards,
            n_blocks="auto" if blocks < 0 else blocks, check_every=int(state["check_every"]),
        )  # fmt: skip
        for name, view in model._views().items():
            view[...] = state[name]
        model._boundary = state["boundary"].copy() if state["boundary"].size else None
        model._blocks.unpack(state)
        model._warned, model._beyond = bool(state["warned"]), state["beyond"].copy()
        model._end = unpacked_end(state, n_rewards)
        if model._bank is not None:
            model._bank.unpack(snapshot, cls.restore)
        return model


def _check_rate(forgetting: Any) -> float:
    """Check `forgetting` and return the rate of the estimator's own recursion; with "auto", only others forget."""
    if isinstance(forgetting, str):
        if forgetting != "auto":
            raise InvalidInputError(f'`forgetting` must be a number in (0, 1] or "auto"; got {forgetting!r}.')
        return 1.0
    return check_real("forgetting", forgetting, 0.0, 1.0, open_low=True)


def _check_alpha(alpha: Any, n: int) -> float | Array:
    """Check a ridge coefficient above 0, or one for each feature, at least 0."""
    if is_single(alpha):
        return check_real("alpha", alpha, 0.0, np.inf, open_low=True)
    return check_ridge("alpha", alpha, n)
