"""State of a recursive least-squares estimator: its arrays, the system they stand for, checks and repairs."""

from __future__ import annotations

import copy
import warnings
from typing import Any, Self

import numpy as np
from scipy.linalg import lapack

from lstd._kernels import recursive as kernels
from lstd._kernels.recursive import INVERSE, MOMENT, NEXT, SYSTEM, TRACE, UPDATES, WEIGHTS, Y
from lstd.errors import LostDigitsWarning
from lstd.online._inputs import Array, aligned, compiled, padded

TOLERANCE = 1e-9  # residual from which the inverse is computed anew; it stays near 1e-15 where no digits are lost
_EPS = float(np.finfo(np.float64).eps)
# The caller's counts.
CHECKED_AT, REPAIRS, TRUNCATIONS, SINGULAR = range(kernels.CHECK_AT + 1, kernels.CHECK_AT + 5)


class Recursion:
    """P = (A + αI)⁻¹, y = Pz and θ = Pb beside A, b and z, where A is that of a variant.

    Boundary terms of truncated ends that count for the variant are in A already; that of the last transition is not.
    """

    def __init__(self, n_features: int, lmbda: float, alpha: float, variant: str, check_every: int) -> None:
        self.n_features = n = n_features
        self.lmbda, self.alpha, self.variant, self.check_every = lmbda, alpha, variant, check_every
        length, waiting = padded(n), _panel(n)
        self._state = aligned(kernels.N_VECTORS + 4 * waiting + 2 * length, length)
        self._counts = np.zeros(kernels.N_COUNTS, np.int64)
        self._counts[[kernels.FEATURES, kernels.PANEL, kernels.CHECK_AT]] = (
            n,
            waiting,
            min(check_every, max(16, n // 2)),
        )
        self._scalars[kernels.LMBDA] = lmbda
        self._matrices[INVERSE, np.arange(n), np.arange(n)] = 1.0 / alpha
        self._boundary: Array | None = None  # B, from the first truncated end on
        self._typed, self._typed_sparse = compiled(kernels, "step"), False

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._state = aligned(*state["_state"].shape)
        self._state[:] = state["_state"]
        self._typed, self._typed_sparse = compiled(kernels, "step"), False  # they may not be in this process yet

    def __copy__(self) -> Self:
        return copy.deepcopy(self)  # two estimators must not learn into the same arrays

    @property
    def n_updates(self) -> int:
        """Transitions so far."""
        return int(self._counts[UPDATES])

    @property
    def n_repairs(self) -> int:
        """How often the inverse was computed anew."""
        return int(self._counts[REPAIRS])

    @property
    def _scalars(self) -> Array:
        scalars: Array = self._state[kernels.SCALARS]
        return scalars

    @property
    def _panels(self) -> Array:
        """View of the panels, (4, changes, columns)."""
        length, waiting = self._state.shape[1], int(self._counts[kernels.PANEL])
        return self._state[kernels.N_VECTORS :][: 4 * waiting].reshape(4, waiting, length)

    @property
    def _matrices(self) -> Array:
        """View of the matrices, (2, rows, columns)."""
        length = self._state.shape[1]
        return self._state[-2 * length :].reshape(2, length, length)

    # ------------------------------------------------------------ the system

    def _share(self, variant: str) -> float:
        """Share of the boundary terms that the matrix of a variant is less of."""
        return {"boyan": 1.0, "uncorrected": 0.0, "mixed": 1.0 - self.lmbda}[variant]

    @np.errstate(over="ignore", invalid="ignore")
    def _truncate(self) -> int:
        """Leave the boundary term of the last transition in A, and begin an episode; a code of `kernels`."""
        code, ahead = kernels.DONE, self._scalars[kernels.BOOTSTRAP]
        if ahead != 0.0:
            n, share = self.n_features, self._share(self.variant)
            if self._boundary is None:
                self._boundary = np.zeros((n, n))
            self._boundary += np.outer(ahead * self._state[TRACE, :n], self._state[NEXT, :n])
            self._counts[TRUNCATIONS] += 1
            if share != 0.0:
                code = self._close(share)
        self._scalars[kernels.DECAY] = self._scalars[kernels.BOOTSTRAP] = 0.0
        return code

    @np.errstate(all="ignore")  # a NaN is what tells of an overflow
    def _close(self, share: float) -> int:
        """Add −c z φ₊ᵀ to A for good, c = share · γ; the row to come then adds z'φᵀ alone. A code of `kernels`.

        P' = P − q ρ with ρ = φ₊ᵀP and q = −c y / (1 − c φ₊ᵀy);  y' = y − q φ₊ᵀy,  θ' = θ − q φ₊ᵀθ.
        """
        phi, y, theta = self._state[NEXT], self._state[Y], self._state[WEIGHTS]
        c = share * self._scalars[kernels.BOOTSTRAP]
        waiting = self._counts[kernels.WAITING_INVERSE]
        Q, R = self._panels[kernels.Q_INVERSE, :waiting], self._panels[kernels.R_INVERSE, :waiting]
        next_y = c * float(phi @ y)
        q = y * (-c / (1.0 - next_y))
        self._put(INVERSE, q, phi @ self._matrices[INVERSE] - (Q @ phi) @ R)
        self._put(SYSTEM, -phi, -c * self._state[TRACE])
        y -= q * (phi @ y)
        theta -= q * (phi @ theta)
        self._scalars[kernels.BOOTSTRAP] = 0.0
        return kernels.CHECK if not abs(1.0 - next_y) >= kernels.LOST * (1.0 + abs(next_y)) else kernels.DONE

    def _put(self, which: int, q: Array, r: Array) -> None:
        """Subtract q rᵀ from a matrix, by way of its panel."""
        Q, R = self._panels[2 * which], self._panels[2 * which + 1]
        place = kernels.WAITING_INVERSE + which
        if self._counts[place] == len(Q):
            self._matrices[which] -= Q.T @ R
            self._counts[place] = 0
            self._counts[kernels.AHEAD] = 0
        Q[self._counts[place]], R[self._counts[place]] = q, r
        self._counts[place] += 1

    @np.errstate(over="ignore", invalid="ignore")
    def _system(self) -> Array:
        """A, (n, n)."""
        n, waiting = self.n_features, self._counts[kernels.WAITING_SYSTEM]
        Q, R = self._panels[kernels.Q_SYSTEM, :waiting, :n], self._panels[kernels.R_SYSTEM, :waiting, :n]
        return np.asarray((self._matrices[SYSTEM, :n, :n] - Q.T @ R).T)

    @np.errstate(over="ignore", invalid="ignore")
    def _matrix(self, share: float) -> Array:
        """A of the variant with that share, the boundary term of the last transition included; (n, n)."""
        n = self.n_features
        A = self._system()
        if self._boundary is not None:
            A += (self._share(self.variant) - share) * self._boundary
        c = share * self._scalars[kernels.BOOTSTRAP]
        if c != 0.0:
            A -= np.outer(c * self._state[TRACE, :n], self._state[NEXT, :n])
        return A

    # ------------------------------------------------------------ loss of digits

    def residual(self) -> float:
        """Relative residual of the recursion: how well its inverse and weights solve the system that was summed.

        The largest of |(A + αI)v − w| / (|A + αI| |v| + |w|) over the pairs (v, w) = (θ, b), (y, z) and (Pw, w) for a
        fixed w of ±1. Near 1e-16 when all is well; NaN when numbers overflowed. Takes O(n²).
        """
        return self._residual_of(self._system() + self.alpha * np.eye(self.n_features))

    @np.errstate(all="ignore")  # a NaN is what tells of an overflow
    def _residual_of(self, M: Array) -> float:
        n, waiting = self.n_features, self._counts[kernels.WAITING_INVERSE]
        Q, R = self._panels[kernels.Q_INVERSE, :waiting, :n], self._panels[kernels.R_INVERSE, :waiting, :n]
        probe = np.where(np.random.RandomState(0).uniform(size=n) < 0.5, -1.0, 1.0)
        solved = self._matrices[INVERSE, :n, :n] @ probe - Q.T @ (R @ probe)
        v = np.column_stack([self._state[WEIGHTS, :n], self._state[Y, :n], solved])
        w = np.column_stack([self._state[MOMENT, :n], self._state[TRACE, :n], probe])
        size = np.linalg.norm(M) * np.linalg.norm(v, axis=0) + np.linalg.norm(w, axis=0)
        off = np.linalg.norm(M @ v - w, axis=0)
        return float(np.max(np.divide(off, size, out=np.zeros(3), where=size != 0.0)))

    def _check(self) -> None:
        """Measure the residual, unless that was done a moment ago; repair when it is too large."""
        counts, n = self._counts, self.n_features
        earliest = counts[CHECKED_AT] + 1 + n // 8 if counts[CHECKED_AT] else 0
        if counts[UPDATES] < earliest:  # digits seem to be lost at every step: O(n) of checks per step are enough
            counts[kernels.CHECK_AT] = min(counts[kernels.CHECK_AT], earliest)
            return
        counts[CHECKED_AT] = counts[UPDATES]
        counts[kernels.CHECK_AT] = counts[UPDATES] + min(self.check_every, max(16, counts[UPDATES]))
        M = self._system() + self.alpha * np.eye(n)
        residual = self._residual_of(M)
        if counts[SINGULAR] or not residual <= TOLERANCE:
            self._repair(M, residual)

    def _repair(self, M: Array, residual: float) -> None:
        """Factorise M = A + αI anew for P, θ and y; where M is singular, try again n updates later."""
        counts, n = self._counts, self.n_features
        was_singular = bool(counts[SINGULAR])
        solved = _solve_all(M, self._state[MOMENT, :n], self._state[TRACE, :n])
        if solved is None:
            counts[kernels.CHECK_AT] = counts[UPDATES] + n
            counts[SINGULAR] = True
            if not was_singular:
                warnings.warn(self._singular_message(), LostDigitsWarning, stacklevel=4)
            return
        counts[SINGULAR] = False
        counts[REPAIRS] += 1
        counts[kernels.WAITING_INVERSE] = counts[kernels.AHEAD] = 0
        self._matrices[INVERSE, :n, :n], self._state[WEIGHTS, :n], self._state[Y, :n] = solved
        found = (
            "was singular" if was_singular else f"had lost digits (residual {residual:.1e}, tolerance {TOLERANCE:.0e})"
        )
        warnings.warn(
            f"After {self.n_updates} updates the recursion {found}; its inverse was computed anew "
            f"from the sums over the data (residual now {self._residual_of(M):.1e}). Weights read before this one "
            "may be less precise. If it happens often, increase `alpha` or scale the features alike.",
            LostDigitsWarning,
            stacklevel=4,
        )

    def _singular_message(self) -> str:
        return (
            f"After {self.n_updates} updates the system A + αI is singular to working precision, or has overflowed. "
            "Until more data make it regular, weights are solved for anew at each reading, and the inverse is tried "
            f"again every {self.n_features} updates. Increase `alpha`, or scale the features alike."
        )


def _panel(n: int) -> int:
    """Rank-one changes that are applied together: more of them cost more per transition, and save passes over P."""
    return 4 if n <= 48 else 8 if n <= 256 else 32


def _solve_all(M: Array, b: Array, z: Array) -> tuple[Array, Array, Array] | None:
    """M⁻¹, M⁻¹b and M⁻¹z; None where M is singular to working precision, or not finite."""
    if not np.isfinite(M).all():
        return None
    factors, pivots, info = lapack.dgetrf(M)
    if info != 0:
        return None
    reciprocal, _ = lapack.dgecon(factors, np.abs(M).sum(axis=0).max(), norm="1")
    if not reciprocal > _EPS:
        return None
    solved, _ = lapack.dgetrs(factors, pivots, np.column_stack([np.eye(len(M)), b, z]))
    return (solved[:, :-2], solved[:, -2], solved[:, -1]) if np.isfinite(solved).all() else None
