"""Recursive LSTD(λ): the least-squares weights after every transition.

The recursion is that of `lstd._kernels.recursive_update`, on the inverse of the Uncorrected estimator's matrix; the
weights of the other two variants differ by one term at the end of the data (Osogami
2020, (7), (8), (17), Theorem 1, Lemma 2)

    θ_c = θ + c y (φ₊ᵀθ) / (1 − c φ₊ᵀy),   c = γ₊ (Boyan), (1 − λ)γ₊ (Mixed), 0 (Uncorrected),

with y = Pz and φ₊, γ₊ the features of, and the discount on arrival in, the row that the last transition led to. Where
an episode is truncated, that term stays in the matrix of the variant for good; the boundary terms B = Σ γ₊ z φ₊ᵀ of
truncated ends are kept too, so that the other variants can still be solved for.
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
from lstd.online.transition import Array, Entries

VARIANTS = ("boyan", "uncorrected", "mixed")


class RecursiveLSTD(Recursion):
    """Least-squares temporal-difference prediction, one transition at a time.

    After every :meth:`update` the weights are those of the batch estimator on the transitions so far. An update takes
    O(n²) for dense features; for sparse ones O(n k), k the entries that are not zero, but for the rank-one changes,
    which are applied together, a few tens at a time. The inverse of the system is kept beside the system itself; a
    check of one against the other now and then finds out whether digits were lost, and mends it. Where no recursion
    could keep them, weights are solved for when they are read.

    Parameters
    ----------
    n_features : int
        Number of features, n.
    gamma : float in [0, 1], default 0.99
        Discount, where an update does not give its own.
    lmbda : float in [0, 1], default 0.9
        Trace decay.
    alpha : float > 0, default 1.0
        Ridge coefficient.
    variant : {"boyan", "uncorrected", "mixed"}, default "boyan"
        The estimator whose weights :attr:`weights` and :meth:`predict` give.
    check_every : int, optional
        Updates between two checks at most, by default the larger of 1000 and 10 n. The first comes after n updates, or
        16; later ones the sooner, the more digits an update may have lost; a check that finds digits lost begins anew
        with short intervals. A check takes O(n²), and O(n³) where it finds digits lost.

    Attributes
    ----------
    n_updates, n_repairs : int
        Transitions so far, and how often the inverse was computed anew.

    Notes
    -----
    Memory: 16 n² bytes, and 8 n² more once an episode was truncated. From then on only the estimator's own variant is
    read in O(n); see :meth:`weights_for`.

    Weights are right to about eight digits, each feature in units of its own, or better; where the system itself does
    not determine so many, to about as many as :class:`lstd.LSTD` finds, with the same IllConditionedWarning. With κ the
    condition number of the system, its rows and columns scaled alike, as the last check found it: up to κ = 1e6 they
    are read from the recursion, in O(n). Up to 1e8 they are then corrected by the residual of the sums, in O(n²).
    Above, where that fails, and when an update since may have lost digits, they are solved for, in O(n³). A small
    `alpha` makes for a large κ until there are as many transitions as features.

    `x_next` should be the `x` of the next update, unless the episode ended. Where it is not, each transition counts
    with its own two rows, as with `X_next` of the batch estimator, the trace goes on, and a BrokenEpisodeWarning says
    so once: mostly a `truncated=True` was forgotten.

    Not safe for updates from several threads at once.

    Examples
    --------
    A reward of 1 at each of two states that follow one another, with discount 0.5: both are worth 2.

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
        """Learn from one transition.

        Parameters
        ----------
        x, x_next : array-like of shape (n,), sparse row, or tuple (indices, values)
            Features of the row that is left and of its successor. Float64 vectors in C order are fastest. `x_next` does
            not count, and may be None, when the transition terminated.
        reward : float
            Reward received on the transition.
        terminated : bool, default False
            The successor is terminal: its value is zero, and the next update begins an episode.
        truncated : bool, default False
            The episode was cut short after this transition: the successor has a value, and the next update begins an
            episode. Nothing beyond `terminated` where both are True.
        discount : float in [0, 1], optional
            Discount of this transition, by default `gamma`; zero when it terminated.
        importance_ratio : float, default 1.0
            Ratio of the probabilities of the action under the target and the behaviour policy.

        Raises
        ------
        InvalidInputError
            When an argument breaks a rule, or is so large that the sums would overflow; nothing has changed then.

        Warns
        -----
        LostDigitsWarning
            When digits had been lost and the inverse was computed anew, or when a recursion cannot keep digits and
            weights are solved for from now on. It comes after the transition was learned from: where warnings are
            turned into errors, do not repeat the update.
        BrokenEpisodeWarning
            Once, when `x` is not the `x_next` of an update before whose episode had not ended; before the transition
            is learned from.
        """
        if discount is None:
            discount = self.gamma
        code = kernels.BAD
        if self._typed and terminated is False and truncated is False:  # the fast ways
            try:
                if type(x) is ndarray:
                    code = step(x, x_next, reward, discount, importance_ratio, False, self._state, self._counts)
                elif self._typed_sparse and len(x) == 2 and len(x_next) == 2:
                    code = step_sparse(
                        *x, *x_next, reward, discount, importance_ratio, False, self._state, self._counts
                    )
            except Exception:  # arguments of other types: they are converted below, or named in an error
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
        """`update` for arguments of any kind; DONE or CHECK."""
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
                    entries = *transition.entries(x, self.n_features), *transition.entries(x_next, self.n_features)
                    code = kernels.step_sparse(*entries, *numbers, self._state, self._counts)
        if code < DONE:
            code = self._convert_and_step(x, x_next, *numbers)
        return max(int(code), self._truncate()) if truncated else int(code)

    def _convert_and_step(
        self, x: Any, x_next: Any, reward: Any, discount: Any, importance_ratio: Any, terminated: bool
    ) -> int:
        """Check each argument, and take the transition, closing a gap before it where there is one."""
        numbers = transition.check_numbers(reward, discount, importance_ratio)
        row, successor = transition.check_pair(x, x_next, terminated, self.n_features)
        rest = (*numbers, terminated, self._state, self._counts)
        if isinstance(row, Entries):
            transition.compiled(kernels, "step_sparse")
            take, arguments = kernels.step_sparse, (*row, *successor, *rest)
        else:
            take, arguments = kernels.step, (row, successor, *rest)
        code = int(take(*arguments))
        if code == JUMP:
            self._warn_of_gap()
            lost = self._close(1.0)
            code = max(int(take(*arguments)), lost)
        if code < DONE:
            raise transition.too_large(row, successor, numbers[0])
        return code

    def _warn_of_gap(self) -> None:
        if not self._warned:
            warn(
                f"`x` differs from `x_next` of update {self.n_updates}, which neither terminated nor was truncated: "
                "the episode is taken to go on, each transition with its own two rows. Pass truncated=True with the "
                "last transition of an episode that was cut short.",
                BrokenEpisodeWarning,
            )
            self._warned = True

    # ------------------------------------------------------------ reading

    @property
    def weights(self) -> Array:
        """Weights of the variant after the last transition, shape (n,); a copy."""
        return self.weights_for(self.variant)

    def weights_for(self, variant: str) -> Array:
        """Weights of any variant after the last transition.

        O(n) while the system is well-conditioned, else O(n²) or O(n³): see the notes of the class. O(n³) for another
        variant than the estimator's own once an episode was truncated, as their matrices then differ by one term for
        each truncated end.

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
            When the system is singular or nearly so, as that of the batch estimator.
        """
        return self._weights(self._share(check_choice("variant", variant, VARIANTS)))

    def predict(self, x: Any) -> Any:
        """Predicted value of a row, or of each row of a matrix.

        Parameters
        ----------
        x : array-like of shape (n,) or (k, n), sparse matrix, or tuple (indices, values)

        Returns
        -------
        float or ndarray of shape (k,)

        Raises
        ------
        InvalidInputError
            When `x` is not finite or has another number of features.
        """
        return transition.predict(x, self.weights)

    # ------------------------------------------------------------ state

    def snapshot(self) -> dict[str, NDArray[Any]]:
        """Everything that the estimator has learned, as arrays: for `numpy.savez`, without pickle.

        Returns
        -------
        dict of str to ndarray
            Copies; :meth:`restore` makes an estimator of them that goes on with the same bits.
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
        """The estimator that :meth:`snapshot` was taken of.

        Parameters
        ----------
        snapshot : mapping of str to ndarray
            What :meth:`snapshot` returned, or a file opened by `numpy.load`.

        Raises
        ------
        InvalidInputError
            When it is not a snapshot, or one of a later version.

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
        found = snapshots.check_snapshot(snapshot)
        n = found["vectors"].shape[1]
        gamma, lmbda, alpha = found["parameters"].tolist()
        model = cls(n, gamma, lmbda, alpha, str(found["variant"]), check_every=int(found["check_every"]))
        if found["panels"].shape[1] != model._panels.shape[1]:
            raise snapshots.not_a_snapshot(f"'panels' has shape {found['panels'].shape}")
        model._state[: kernels.SCALARS, :n] = found["vectors"]
        model._scalars[: kernels.N_SCALARS] = found["scalars"]
        model._panels[:, :, :n] = found["panels"]
        model._matrices[:, :n, :n] = found["matrices"]
        model._counts[:] = found["counts"]
        model._boundary = found["boundary"].copy() if found["boundary"].size else None
        model._warned = bool(found["warned"])
        return model
