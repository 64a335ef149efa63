"""Recursive LSTD(λ): the least-squares weights after every transition.

The recursion is that of `lstd._kernels.recursive_update`, on the inverse of the Uncorrected estimator's matrix; the
weights of the other two variants differ by one term at the end of the data (Osogami
2020, (7), (8), (17), Theorem 1, Lemma 2)

    θ_c = θ + c y (φ₊ᵀθ) / (1 − c φ₊ᵀy),   c = γ₊ (Boyan), (1 − λ)γ₊ (Mixed), 0 (Uncorrected),

with y = Pz, and φ₊, γ₊ the features of the row that the last transition led to and the discount on arrival in it. When
an episode is truncated, that term stays in the matrix of the variant. The boundary terms B = Σ γ₊ z φ₊ᵀ of truncated
ends are kept too, so that the other variants can still be solved.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy import ndarray
from numpy.typing import NDArray

from lstd._kernels import recursive_update as kernels
from lstd._kernels.recursive_update import DONE, JUMP, step, step_sparse
from lstd.data.checks import check_choice, check_flag, check_integer, check_real
from lstd.errors import BrokenEpisodeWarning, warn
from lstd.online import snapshot as snapshots
from lstd.online import transition
from lstd.online.recursion import Recursion
from lstd.online.transition import Array, SparseRow

VARIANTS = ("boyan", "uncorrected", "mixed")


class RecursiveLSTD(Recursion):
    """Least-squares temporal-difference prediction, one transition at a time.

    After every :meth:`update` the weights are those of the batch estimator on the transitions so far. An update takes
    O(n²) for dense features. For sparse features with k non-zero entries it takes O(n k), apart from rank-one changes,
    which are applied together, up to 32 at a time. The system and its inverse are both kept. A periodic check of one
    against the other detects lost digits and recomputes the inverse. If the system is too ill-conditioned for any
    recursion, the weights are solved for when they are read.

    Parameters
    ----------
    n_features : int
        Number of features, n.
    gamma : float in [0, 1], default 0.99
        Discount of updates that do not give their own.
    lmbda : float in [0, 1], default 0.9
        Trace decay.
    alpha : float > 0, default 1.0
        Ridge coefficient.
    variant : {"boyan", "uncorrected", "mixed"}, default "boyan"
        The estimator of :attr:`weights` and :meth:`predict`.
    check_every : int, optional
        Largest number of updates between two checks, by default the larger of 1000 and 10 n. The first check comes
        after the larger of n and 16 updates. Intervals then double, and start again from a short one when a check
        finds that digits were lost. A check takes O(n²), and O(n³) if digits were lost.

    Attributes
    ----------
    n_updates, n_repairs : int
        Number of transitions so far, and of times that the inverse was computed anew.

    Warns
    -----
    LostDigitsWarning
        By :meth:`update`, when digits had been lost and the inverse was computed anew, or when the system has become
        so ill-conditioned that weights are solved for from now on. The update has been learned: if warnings are turned
        into errors, do not repeat it.
    BrokenEpisodeWarning
        By :meth:`update`, once, before learning, when `x` is not the `x_next` of the update before and the episode had
        not ended.
    IllConditionedWarning
        When weights are read and the system is singular or nearly so.

    Notes
    -----
    Memory is 16 n² bytes, and 8 n² more after an episode was truncated. From then on, only the estimator's own variant
    is read in O(n); see :meth:`weights_for`.

    Weights are precise to about eight digits or better, in units of each feature. If the system itself determines
    fewer, they are about as precise as those of :class:`lstd.LSTD`, with the same IllConditionedWarning. How they are
    read depends on the condition number κ of the system, after scaling rows and columns, at the last check. Up to
    κ = 1e6 they are read from the recursion, in O(n). Up to 1e8 they are corrected by the residual of the sums, in
    O(n²). Above that, if the correction fails, or if an update since the check may have lost digits, they are solved
    for, in O(n³). With a small `alpha`, κ is large until there are as many transitions as features.

    `x_next` should be the `x` of the next update, unless the episode ended. Otherwise each transition counts with its
    own two rows, as with `X_next` of the batch estimator, and the trace continues. The usual cause is a forgotten
    ``truncated=True``.

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
        gamma: float = 0.99,
        lmbda: float = 0.9,
        alpha: float = 1.0,
        variant: str = "boyan",
        *,
        check_every: int | None = None,
    ) -> None:
        n = check_integer("n_features", n_features, 1)
        self.gamma = check_real("gamma", gamma, 0.0, 1.0)
        every = max(1000, 10 * n) if check_every is None else check_every
        super().__init__(
            n,
            check_real("lmbda", lmbda, 0.0, 1.0),
            check_real("alpha", alpha, 0.0, np.inf, open_low=True),
            check_choice("variant", variant, VARIANTS),
            check_integer("check_every", every, 1),
        )
        self._warned = False

    def __repr__(self) -> str:
        return (
            f"RecursiveLSTD({self.n_features}, gamma={self.gamma:g}, lmbda={self.lmbda:g}, alpha={self.alpha:g}, "
            f"variant={self.variant!r}, check_every={self.check_every})"
        )

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
    ) -> None:
        if discount is None:
            discount = self.gamma
        code = kernels.BAD
        if self._typed and terminated is False and truncated is False:  # no conversion needed
            try:
                if type(x) is ndarray:
                    code = step(x, x_next, reward, discount, importance_ratio, False, self._state, self._counts)
                elif self._typed_sparse and len(x) == 2 and len(x_next) == 2:
                    code = step_sparse(
                        *x, *x_next, reward, discount, importance_ratio, False, self._state, self._counts
                    )
            except Exception:  # arguments of other types are converted below, or raise
                code = kernels.BAD
            if code == DONE:
                return
        if code < DONE:
            code = self._learn(x, reward, x_next, terminated, truncated, discount, importance_ratio)
        if code != DONE:
            self._check()

    def _learn(
        self, x: Any, reward: Any, x_next: Any, terminated: Any, truncated: Any, discount: Any, importance_ratio: Any
    ) -> int:
        """Learn from arguments of any kind; returns DONE or CHECK."""
        terminated = check_flag("terminated", terminated)
        truncated = check_flag("truncated", truncated)
        x_next = x if terminated else x_next
        numbers = (reward, discount, importance_ratio, terminated)
        code = kernels.BAD
        if self._typed:
            with contextlib.suppress(Exception):
                if type(x) is ndarray:
                    code = kernels.step(x, x_next, *numbers, self._state, self._counts)
                else:
                    self._typed_sparse = transition.compiled(kernels, "step_sparse")
                    n = self.n_features
                    rows = *transition.sparse_parts(x, n), *transition.sparse_parts(x_next, n)
                    code = kernels.step_sparse(*rows, *numbers, self._state, self._counts)
        if code < DONE:
            code = self._convert_and_step(x, x_next, *numbers)
        return max(int(code), self._truncate()) if truncated else int(code)

    def _convert_and_step(
        self, x: Any, x_next: Any, reward: Any, discount: Any, importance_ratio: Any, terminated: bool
    ) -> int:
        """Check each argument and learn the transition; if `x` is not the last `x_next`, close that gap first."""
        numbers = transition.check_numbers(reward, discount, importance_ratio)
        row, successor = transition.check_pair(x, x_next, terminated, self.n_features)
        rest = (*numbers, terminated, self._state, self._counts)
        if isinstance(row, SparseRow):
            transition.compiled(kernels, "step_sparse")
            learn, arguments = kernels.step_sparse, (*row, *successor, *rest)
        else:
            learn, arguments = kernels.step, (row, successor, *rest)
        code = int(learn(*arguments))
        if code == JUMP:
            self._warn_of_gap()
            lost = self._add_boundary_term(1.0)
            code = max(int(learn(*arguments)), lost)
        if code < DONE:
            raise transition.too_large(row, successor, numbers[0])
        return code

    def _warn_of_gap(self) -> None:
        if not self._warned:
            warn(
                f"`x` differs from `x_next` of update {self.n_updates}, which neither terminated nor was truncated: "
                "the episode is assumed to continue, each transition with its own two rows. Pass truncated=True with "
                "the last transition of an episode that was cut off.",
                BrokenEpisodeWarning,
            )
            self._warned = True

    # ------------------------------------------------------------ reading

    @property
    def weights(self) -> Array:
        return self.weights_for(self.variant)

    def weights_for(self, variant: str) -> Array:
        """Return the weights of any variant after the last transition.

        Takes O(n) while the system is well-conditioned, and O(n²) or O(n³) otherwise; see the notes of the class. Takes
        O(n³) for a variant other than the estimator's own after an episode was truncated, because their matrices then
        differ by one term for each truncated end.

        Parameters
        ----------
        variant : {"boyan", "uncorrected", "mixed"}

        Returns
        -------
        ndarray of shape (n,)

        Raises
        ------
        InvalidInputError
            When the weights overflow.

        Warns
        -----
        IllConditionedWarning
            When the system is singular or nearly so.
        """
        return self._weights(self._boundary_fraction(check_choice("variant", variant, VARIANTS)))

    # ------------------------------------------------------------ state

    def snapshot(self) -> dict[str, NDArray[Any]]:
        """Return all that the estimator has learned as arrays, for example for `numpy.savez`.

        Returns
        -------
        dict of str to ndarray
            Copies; :meth:`restore` returns an estimator that continues with the same bits.
        """
        n = self.n_features
        return {
            "version": np.array(snapshots.VERSION),
            "parameters": np.array([self.gamma, self.lmbda, self.alpha]),
            "variant": np.array(self.variant),
            "check_every": np.array(self.check_every),
            "warned": np.array(self._warned),
            "vectors": self._state[: kernels.SCALARS, :n].copy(),
            "scalars": self._scalars[: kernels.N_SCALARS].copy(),
            "panels": self._panels[:, :, :n].copy(),
            "matrices": self._matrices[:, :n, :n].copy(),
            "boundary": np.zeros((0, 0)) if self._boundary is None else self._boundary.copy(),
            "counts": self._counts.copy(),
        }

    @classmethod
    def restore(cls, snapshot: Mapping[str, Any]) -> RecursiveLSTD:
        """Return the estimator of which :meth:`snapshot` was taken.

        Parameters
        ----------
        snapshot : mapping of str to ndarray
            A result of :meth:`snapshot`, or a file opened by `numpy.load`.

        Raises
        ------
        InvalidInputError
            When it is not a snapshot of this version.

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
        state = snapshots.check_snapshot(snapshot)
        n = state["vectors"].shape[1]
        gamma, lmbda, alpha = state["parameters"].tolist()
        model = cls(n, gamma, lmbda, alpha, str(state["variant"]), check_every=int(state["check_every"]))
        if state["panels"].shape[1] != model._panels.shape[1]:
            raise snapshots.not_a_snapshot(f"'panels' has shape {state['panels'].shape}")
        model._state[: kernels.SCALARS, :n] = state["vectors"]
        model._scalars[: kernels.N_SCALARS] = state["scalars"]
        model._panels[:, :, :n] = state["panels"]
        model._matrices[:, :n, :n] = state["matrices"]
        model._counts[:] = state["counts"]
        model._boundary = state["boundary"].copy() if state["boundary"].size else None
        model._warned = bool(state["warned"])
        return model
