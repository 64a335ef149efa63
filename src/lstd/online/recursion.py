"""State of a recursive least-squares estimator: its arrays, the system they stand for, readings, checks and repairs.

A check finds the condition number of A + αI and how much P is off, both in terms that the units of features do not
change (`lstd.online.precision`). What comes of it is the way in which weights are read until the next check:

- FAST, where the condition number is moderate and P is right: from the recursion, O(n).
- CORRECTED, where it is larger: from the recursion, then corrected by the residual of the sums until that changes
  nothing any more, O(n²).
- SOLVED, where a recursion cannot keep digits: by a solve from the sums, O(n³), which warns as that of the batch
  estimator does.

After an update that may have lost digits, the condition number is not known until the next check: weights are solved
for.
"""

from __future__ import annotations

import copy
from functools import lru_cache
from typing import Any, Self

import numpy as np

from lstd._kernels import recursive_update as kernels
from lstd._kernels.recursive_update import CHECK_AT, INVERSE, MOMENT, NEXT, SCALE, SYSTEM, TRACE, UPDATES, WEIGHTS, Y
from lstd.errors import LostDigitsWarning, warn
from lstd.online.precision import condition_number, factorise, relative_size, scales
from lstd.online.transition import Array, aligned, compiled, padded
from lstd.statistics.solve import solve

# The caller's counts: the transition of the last check, repairs, transitions between two checks, and how to read.
CHECKED_AT, REPAIRS, INTERVAL, READING = range(CHECK_AT + 1, CHECK_AT + 5)
FAST, CORRECTED, SOLVED = range(3)

# Each update may add the unit roundoff times the condition number to what P is off: up to FAST_BELOW, thousands of them
# stay below TOLERANCE. A correction takes away all but as large a part as P is off, so that CORRECTABLE makes twelve
# digits of two. Above SOLVED_ABOVE, P would have to be computed anew after a few thousand updates.
FAST_BELOW, TOLERANCE = 1e6, 1e-8
SOLVED_ABOVE, CORRECTABLE = 1e8, 1e-3
_INVERSE_VECTORS = [WEIGHTS, Y, kernels.P_NEXT, kernels.NEXT_P, kernels.P_PHI, kernels.PHI_P]
_EPS = float(np.finfo(np.float64).eps)
_GROWN = 100.0  # a read-out that multiplies errors by more than this is corrected
_CORRECTIONS = 6
_SHORTEST = 16  # updates between two checks, or n / 8


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
        first = min(check_every, max(_SHORTEST, n))
        self._counts[[kernels.FEATURES, kernels.PANEL, CHECK_AT, INTERVAL]] = n, waiting, first, first
        self._scalars[[kernels.LMBDA, kernels.CONDITION]] = lmbda, 1.0
        self._state[SCALE, :n] = 1.0
        self._matrices[INVERSE, np.arange(n), np.arange(n)] = 1.0 / alpha
        self._boundary: Array | None = None  # B, from the first truncated end on
        self._read: tuple[int, float, Array] | None = None  # transitions, share and weights of the last slow reading
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
        kept = abs(1.0 - next_y) >= kernels.LOST * (1.0 + abs(next_y)) and abs(1.0 - next_y) * kernels.LOST <= 1.0
        return kernels.DONE if kept else kernels.CHECK

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

    # ------------------------------------------------------------ readings

    def _weights(self, share: float) -> Array:
        """Weights of the variant with that share, in the way that suits the state."""
        if self._read is not None and self._read[:2] == (self.n_updates, share):
            return self._read[2].copy()
        own = self._boundary is None or share == self._share(self.variant)
        if own and self._counts[READING] != SOLVED:
            theta = self._recursed(share)
            if theta is not None:
                return theta
        found = solve(self._matrix(share), self._state[MOMENT, : self.n_features, np.newaxis], self.alpha)
        weights = found.weights[:, 0]
        if found.condition_number <= SOLVED_ABOVE:  # else each reading warns
            self._read = self.n_updates, share, weights.copy()
        return weights

    @np.errstate(all="ignore")  # a NaN is what tells of an overflow
    def _recursed(self, share: float) -> Array | None:
        """Weights from the recursion, corrected where need be; None where that does not make them right."""
        theta, grown = self._read_out(share)
        if self._counts[READING] == FAST and grown <= _GROWN and np.isfinite(theta).all():
            return theta
        if self._scalars[kernels.CONDITION] * grown <= SOLVED_ABOVE and self._correct(theta, share):
            self._read = self.n_updates, share, theta
            return theta.copy()
        return None

    def _read_out(self, share: float) -> tuple[Array, float]:
        """θ_c = θ + c y (φ₊ᵀθ) / (1 − c φ₊ᵀy), and by how much that may multiply errors."""
        n, c = self.n_features, share * self._scalars[kernels.BOOTSTRAP]
        theta: Array = self._state[WEIGHTS, :n].copy()
        if c == 0.0:
            return theta, 1.0
        phi, y = self._state[NEXT, :n], self._state[Y, :n]
        rest = 1.0 - c * float(phi @ y)
        theta += y * (c * float(phi @ theta) / rest)
        return theta, float(1.0 + c * (np.abs(phi) @ np.abs(y)) / abs(rest))

    def _correct(self, theta: Array, share: float) -> bool:
        """Add P_c (b − (A_c + αI)θ_c) to θ_c until it changes by rounding only; False if it does not come to that."""
        n, scale = self.n_features, self._state[SCALE, : self.n_features]
        enough = max(1e-13, 4.0 * _EPS * self._scalars[kernels.CONDITION])
        for _ in range(_CORRECTIONS):
            move = self._times_inverse(self._state[MOMENT, :n] - self._times_system(theta, share), share)
            theta += move
            size = relative_size(move, theta, scale)
            if size <= enough:
                return True
            if not size <= 0.1:
                return False
        return False

    def _times_system(self, v: Array, share: float) -> Array:
        """(A_c + αI) v of the own variant or before any truncated end."""
        n, waiting = self.n_features, self._counts[kernels.WAITING_SYSTEM]
        Q, R = self._panels[kernels.Q_SYSTEM, :waiting, :n], self._panels[kernels.R_SYSTEM, :waiting, :n]
        found = v @ self._matrices[SYSTEM, :n, :n] - (Q @ v) @ R + self.alpha * v
        c = share * self._scalars[kernels.BOOTSTRAP]
        return np.asarray(found - self._state[TRACE, :n] * (c * float(self._state[NEXT, :n] @ v)))

    def _times_inverse(self, w: Array, share: float) -> Array:
        """(A_c + αI)⁻¹ w, by the recursion's inverse."""
        n, waiting = self.n_features, self._counts[kernels.WAITING_INVERSE]
        Q, R = self._panels[kernels.Q_INVERSE, :waiting, :n], self._panels[kernels.R_INVERSE, :waiting, :n]
        found = self._matrices[INVERSE, :n, :n] @ w - (R @ w) @ Q
        c, phi, y = share * self._scalars[kernels.BOOTSTRAP], self._state[NEXT, :n], self._state[Y, :n]
        return np.asarray(found if c == 0.0 else found + y * (c * float(phi @ found) / (1.0 - c * float(phi @ y))))

    # ------------------------------------------------------------ loss of digits

    @np.errstate(all="ignore")  # a NaN is what tells of an overflow
    def residual(self) -> float:
        """How much the recursion is off, relative to what it should be, whatever units the features are in.

        The largest of |P(w − (A + αI)v)| / |v| over (v, w) = (θ, b) and (y, z), and of |P(A + αI)v − v| / |v| for a
        fixed random v; each entry counts in units of its feature. Below 1e-12 when all is well; NaN when numbers
        overflowed. Takes O(n²).
        """
        M = self._system() + self.alpha * np.eye(self.n_features)
        return self._off(M, self._inverse(), scales(M)[1])

    @np.errstate(over="ignore", invalid="ignore")
    def _inverse(self) -> Array:
        """P, (n, n)."""
        n, waiting = self.n_features, self._counts[kernels.WAITING_INVERSE]
        Q, R = self._panels[kernels.Q_INVERSE, :waiting, :n], self._panels[kernels.R_INVERSE, :waiting, :n]
        return np.asarray(self._matrices[INVERSE, :n, :n] - Q.T @ R)

    def _off(self, M: Array, inverse: Array, scale: Array) -> float:
        """`residual` for M = A + αI, P and units of the features."""
        n = self.n_features
        probe = scale * _probe(n)
        v = np.stack([self._state[WEIGHTS, :n], self._state[Y, :n], probe], axis=1)
        image = M @ v
        w = np.stack([self._state[MOMENT, :n], self._state[TRACE, :n], image[:, 2]], axis=1)
        image[:, 2] = 0.0
        move = inverse @ (w - image)
        move[:, 2] -= probe
        sizes = [relative_size(move[:, k], v[:, k], scale) for k in range(3)]
        return float(np.max(sizes))

    def _check(self) -> None:
        """A check that is due; after an update that lost digits it is, unless there was one just now or none yet."""
        counts = self._counts
        if counts[UPDATES] < counts[CHECK_AT]:  # digits were lost
            if counts[READING] == SOLVED:
                return
            counts[READING], self._scalars[kernels.CONDITION] = CORRECTED, np.inf
            if counts[CHECKED_AT]:  # the first check waits for as many transitions as make a system regular
                counts[CHECK_AT] = min(counts[CHECK_AT], max(counts[UPDATES], counts[CHECKED_AT] + self._shortest()))
        if counts[UPDATES] >= counts[CHECK_AT]:
            self._examine()

    def _shortest(self) -> int:
        """Least number of updates between two checks: O(n) of checks per update."""
        return min(self.check_every, max(_SHORTEST, self.n_features // 8))

    def _examine(self) -> None:
        """Choose how weights are read until the next check; compute P anew where it is too much off."""
        counts = self._counts
        before, counts[CHECKED_AT] = int(counts[CHECKED_AT]), counts[UPDATES]
        with np.errstate(all="ignore"):  # a NaN is what tells of an overflow
            M = self._system()
            M[np.diag_indices_from(M)] += self.alpha
            inverse, (rows, columns) = self._inverse(), scales(M)
            condition, off = condition_number(M, inverse, rows, columns), self._off(M, inverse, columns)
        right = off <= (TOLERANCE if condition <= FAST_BELOW else CORRECTABLE) and condition <= SOLVED_ABOVE
        if right and counts[READING] != SOLVED:
            self._state[SCALE, : self.n_features] = columns
            self._go_on(condition, min(self.check_every, 2 * int(counts[INTERVAL])))
        else:
            self._repair(M, off, before)

    def _go_on(self, condition: float, interval: int) -> None:
        """Take P as right, and set the next check."""
        self._scalars[kernels.CONDITION] = condition
        self._counts[READING] = FAST if condition <= FAST_BELOW else CORRECTED
        self._counts[INTERVAL] = interval
        self._counts[CHECK_AT] = self._counts[UPDATES] + interval

    def _repair(self, M: Array, off: float, before: int) -> None:
        """Factorise M = A + αI anew for P, θ and y; where it is too ill-conditioned, solve for readings from now on."""
        counts, n, reading = self._counts, self.n_features, int(self._counts[READING])
        with np.errstate(all="ignore"):
            found = factorise(M)
        if found.inverse is None or not found.condition <= SOLVED_ABOVE:
            self._solve_from_now_on(found.condition)
            return
        self._matrices[INVERSE] = self._state[_INVERSE_VECTORS] = 0.0  # a NaN may have come into the padding
        self._panels[[kernels.Q_INVERSE, kernels.R_INVERSE]] = 0.0
        self._matrices[INVERSE, :n, :n] = found.inverse
        counts[kernels.WAITING_INVERSE] = counts[kernels.AHEAD] = 0
        self._state[WEIGHTS, :n] = found.inverse @ self._state[MOMENT, :n]
        self._state[Y, :n] = found.inverse @ self._state[TRACE, :n]
        self._state[SCALE, :n] = found.scale
        counts[REPAIRS] += 1
        self._go_on(found.condition, self._shortest())
        if reading != SOLVED:
            warn(self._repaired(off, before, reading), LostDigitsWarning)

    def _repaired(self, off: float, before: int, reading: int) -> str:
        affected = (
            f"Weights read since update {before} may be as imprecise."
            if reading == FAST
            else "Weights read before were corrected by these sums, or solved for: they are not affected."
        )
        return (
            f"After {self.n_updates} updates the recursion had lost digits (relative error about {off:.0e}); its "
            f"inverse was computed anew from the sums over the data (error now {self.residual():.0e}). {affected} "
            "If it happens often, increase `alpha`, or scale the features alike."
        )

    def _solve_from_now_on(self, condition: float) -> None:
        """Leave P as it is; try again later, and the later the longer that has been so."""
        counts, was = self._counts, self._counts[READING]
        again = max(_SHORTEST, self.n_features)
        counts[INTERVAL] = min(2 * int(counts[INTERVAL]), max(again, self.check_every)) if was == SOLVED else again
        counts[CHECK_AT] = counts[UPDATES] + counts[INTERVAL]
        counts[READING] = SOLVED
        if was == SOLVED:
            return
        state = (
            f"ill-conditioned (condition number {condition:.1e}, its rows and columns scaled alike): a recursion loses "
            "its digits"
            if np.isfinite(condition)
            else "singular to working precision"
        )
        warn(
            f"After {self.n_updates} updates the system A + αI is {state}. Until more data make it better, weights are "
            "solved for from the sums over the data at each reading, in O(n³). Increase `alpha`, or drop or combine "
            "features that repeat each other.",
            LostDigitsWarning,
        )


def _panel(n: int) -> int:
    """Rank-one changes that are applied together: more of them cost more per transition, and save passes over P."""
    return 4 if n <= 48 else 8 if n <= 256 else 32


@lru_cache(maxsize=4)
def _probe(n: int) -> Array:
    """A fixed random vector."""
    return np.random.RandomState(0).normal(size=n)
