"""Checks whether a recursive least-squares estimator has lost digits, and repairs of its inverse.

A check computes the condition number of A + αI and the error of P, both independent of the units of features
(`lstd.online.precision`). It decides how weights are read until the next check: FAST, CORRECTED or SOLVED
(`lstd.online.recursive_predictions`). After an update that may have lost digits, the condition number is unknown and
weights are corrected, or solved for, until the next check.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from lstd._kernels import recursive_state as layout
from lstd._kernels.recursive_state import CHECK_AT, FAST, INVERSE, READING, SCALE, TRACE, UPDATES, WEIGHTS, Y
from lstd.errors import LostDigitsWarning, warn
from lstd.online.precision import condition_number, factorise, relative_size, scales
from lstd.online.recursive_predictions import SOLVED_ABOVE, RecursivePredictions
from lstd.online.recursive_system import CHECKED_AT, CORRECTED, INTERVAL, REPAIRS, SHORTEST, SOLVED
from lstd.types import Array

# Each update may add the unit roundoff times the condition number to the error of P. Up to FAST_BELOW, the error stays
# below TOLERANCE for thousands of updates. A correction multiplies the error of the weights by the error of P; several
# corrections reach rounding if the latter is at most CORRECTABLE.
FAST_BELOW, TOLERANCE = 1e6, 1e-8
CORRECTABLE = 1e-3
_INVERSE_VECTORS = [WEIGHTS, Y, layout.P_NEXT, layout.NEXT_P, layout.P_PHI, layout.PHI_P]


class DigitChecks(RecursivePredictions):
    """A recursive least-squares estimator that checks its digits and recomputes its inverse where they are lost."""

    @property
    def n_repairs(self) -> int:
        """Number of times the inverse was recomputed."""
        return int(self._counts[REPAIRS])

    @np.errstate(all="ignore")  # an overflow shows as NaN
    def residual(self) -> float:
        """Compute the relative error of the recursion, independent of the units of features.

        It is the largest of ``|P(w − (A + αI)v)| / |v|`` over (v, w) = each (θ, b) and (y, z), and of
        ``|P(A + αI)v − v| / |v|`` for a fixed random v, with each entry in units of its feature. It is below 1e-12 if
        no digits were lost, and NaN if numbers overflowed. Takes O(n²).
        """
        M = self._system() + np.diag(self._ridge)
        return self._relative_error(M, self._inverse(), scales(M)[1])

    def _relative_error(self, M: Array, inverse: Array, scale: Array) -> float:
        """Compute the `residual` for M = A + αI, its inverse, and units of the features."""
        n = self.n_features
        probe = scale * _probe(n)
        thetas, moments = zip(*self._columns(), strict=True)
        v, w = np.array([*thetas, self._state[Y, :n], probe]).T, np.empty((n, len(thetas) + 2))
        image = M @ v
        w[:, :-2], w[:, -2], w[:, -1] = np.array(moments).T, self._state[TRACE, :n], image[:, -1]
        image[:, -1] = 0.0
        move = inverse @ (w - image)
        move[:, -1] -= probe
        return relative_size(move, v, scale)

    def _examine(self) -> None:
        """Choose how weights are read until the next check; recompute P if its error is too large."""
        counts = self._counts
        before, counts[CHECKED_AT] = int(counts[CHECKED_AT]), counts[UPDATES]
        with np.errstate(all="ignore"):  # an overflow shows as NaN
            M = self._system()
            np.einsum("ii->i", M)[:] += self._ridge
            inverse, (rows, columns) = self._inverse(), scales(M)
            condition, error = condition_number(M, inverse, rows, columns), self._relative_error(M, inverse, columns)
        precise = error <= (TOLERANCE if condition <= FAST_BELOW else CORRECTABLE) and condition <= SOLVED_ABOVE
        if precise and counts[READING] != SOLVED:
            self._state[SCALE, : self.n_features] = columns
            self._accept(condition, min(self.check_every, 2 * int(counts[INTERVAL])))
        else:
            self._repair(M, error, before)

    def _accept(self, condition: float, interval: int) -> None:
        """Accept P and schedule the next check."""
        self._scalars[layout.CONDITION] = condition
        self._counts[READING] = FAST if condition <= FAST_BELOW else CORRECTED
        self._counts[INTERVAL] = interval
        self._counts[CHECK_AT] = self._counts[UPDATES] + interval

    @np.errstate(all="ignore")  # weights that overflow are reported when they are read
    def _repair(self, M: Array, error: float, before: int) -> None:
        """Recompute P, θ and y from M = A + αI; if it is too ill-conditioned, solve for weights from now on."""
        counts, n, reading = self._counts, self.n_features, int(self._counts[READING])
        solution = factorise(M)
        if solution.inverse is None or not solution.condition <= SOLVED_ABOVE:
            self._solve_from_now_on(solution.condition)
            return
        self._matrices[INVERSE] = self._state[_INVERSE_VECTORS] = 0.0  # the padding may hold NaN
        self._panels[[layout.Q_INVERSE, layout.R_INVERSE]] = 0.0
        self._matrices[INVERSE, :n, :n] = solution.inverse
        counts[layout.WAITING_INVERSE] = counts[layout.AHEAD] = 0
        for theta, moment in self._columns():
            theta[:] = solution.inverse @ moment
        self._state[Y, :n] = solution.inverse @ self._state[TRACE, :n]
        self._state[SCALE, :n] = solution.scale
        counts[REPAIRS] += 1
        self._accept(solution.condition, self._shortest())
        if reading == SOLVED:
            return
        affected = "Weights read so far are not affected: they were corrected, or solved for, with these sums."
        if reading == FAST:
            affected = f"Weights read since update {before} may have as large an error."
        warn(
            f"After {self.n_updates} updates the recursion had lost digits (relative error about {error:.0e}); its "
            f"inverse was recomputed from the sums over the data (error now {self.residual():.0e}). {affected} "
            "If it happens often, increase `alpha`, or give features similar scales.",
            LostDigitsWarning,
        )

    def _solve_from_now_on(self, condition: float) -> None:
        """Solve for weights from now on; repeat the check at intervals that double."""
        counts, reading = self._counts, self._counts[READING]
        again = max(SHORTEST, self.n_features)
        counts[INTERVAL] = min(2 * int(counts[INTERVAL]), max(again, self.check_every)) if reading == SOLVED else again
        counts[CHECK_AT] = counts[UPDATES] + counts[INTERVAL]
        counts[READING] = SOLVED
        if reading == SOLVED:
            return
        state = "singular to working precision"
        if np.isfinite(condition):
            state = f"ill-conditioned (condition number {condition:.1e} after scaling): a recursion loses digits"
        warn(
            f"After {self.n_updates} updates the system A + αI is {state}. Until more data improve it, each reading "
            "of the weights solves the system from the sums over the data, in O(n³). Increase `alpha`, or drop or "
            "combine collinear features.",
            LostDigitsWarning,
        )

    def _shortest(self) -> int:
        """Return the smallest number of updates between two checks, with which checks take O(n) per update."""
        return min(self.check_every, max(SHORTEST, self.n_features // 8))


@lru_cache(maxsize=4)
def _probe(n: int) -> Array:
    """Draw a fixed random vector."""
    return np.random.RandomState(0).normal(size=n)
