"""Weights, predictions and intervals, read from a recursive least-squares estimator between two transitions.

The last check (`lost_digits`) decides how weights are read until the next one:

- FAST, with a moderate condition number and a precise P: from the recursion, in O(n).
- CORRECTED, with a larger condition number: from the recursion, then corrected by the residual of the sums until only
  rounding errors are left, in O(n²).
- SOLVED, if no recursion can keep digits: by a solve from the sums, in O(n³), with the warnings of the batch estimator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy import ndarray
from numpy.typing import NDArray
from scipy import sparse

from lstd._kernels import recursive_state as layout
from lstd._kernels import recursive_update as kernels
from lstd._kernels.recursive_state import FAST, INVERSE, NEXT, READING, SCALE, SYSTEM, TRACE, Y
from lstd.data.arguments import check_flag, to_real_array
from lstd.data.feature_arrays import by_name
from lstd.online.precision import relative_size
from lstd.online.recursive_system import SOLVED, RecursiveSystem
from lstd.online.transition import check_sparse_row, compiled
from lstd.statistics.covariance import Influence
from lstd.statistics.intervals import Interval, check_level
from lstd.statistics.solve import solve
from lstd.types import Array

SOLVED_ABOVE = 1e8  # condition number with which P would need recomputing after a few thousand updates
_EPS = float(np.finfo(np.float64).eps)
_CORRECTIONS = 6
_SOLVER_STEPS, _SOLVED = 40, 1e-10  # corrections of a system without a block, and the relative size of the last one


class RecursivePredictions(RecursiveSystem):
    """A recursive least-squares estimator with its weights, predictions and intervals."""

    def predict(self, x: Any, return_std: bool = False) -> Any:
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
            return self.predict(x), self._shaped(x, self.reader.influence().standard_error(self._rows_of(x)))
        if type(x) is ndarray and self._typed:  # no conversion needed
            state = self._state if self._single else self.reader._state
            try:
                if self.n_rewards is None:
                    found = kernels.value(x, state)
                    if found == found:
                        return found
                else:
                    values = np.empty(self.n_rewards)
                    if kernels.predict(x, values, state):
                        return values
            except Exception:  # arguments of other types are converted below, or raise
                pass
        return super().predict(x)

    def predict_interval(self, x: Any, level: float = 0.95) -> Interval:
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
        phi, predictions = self._rows_of(x), self.predict(x)
        interval = self.reader.influence().interval(phi, np.reshape(predictions, (phi.shape[0], -1)), level)
        arrays = {name: value for name, value in vars(interval).items() if name != "level"}
        return replace(interval, **{name: self._shaped(x, value) for name, value in arrays.items()})

    def _rows_of(self, x: Any) -> Any:
        """Return features as a matrix, (k, n)."""
        x = by_name("x", x, self._names)
        if isinstance(x, tuple):
            return check_sparse_row("x", x, self.n_features).dense(self.n_features)[np.newaxis]
        return self._checked_features(x if sparse.issparse(x) else np.atleast_2d(to_real_array("x", x)))

    def _shaped(self, x: Any, values: NDArray[Any]) -> Any:
        """Return values (k, m) in the shape of predictions for `x`."""
        if self.n_rewards is None:
            values = values[:, 0]
        one = isinstance(x, tuple) or (not sparse.issparse(x) and np.ndim(x) == 1)
        return values[0] if one else values

    # ------------------------------------------------------------ weights

    def _growth(self) -> float:
        """Return the factor by which reading the weights may multiply their errors; large near a singular system."""
        compiled(kernels, "growth")
        return float(kernels.growth(self._state))

    def _weights(self, fraction: float) -> Array:
        """Read the weights of the variant that subtracts a fraction of the boundary terms."""
        if self._read is not None and self._read[:2] == (self.n_updates, fraction):
            return self._read[2].copy()
        own = self._boundary is None or fraction == self._boundary_fraction(self.variant)
        if own and self._counts[READING] != SOLVED:
            theta = self._weights_from_recursion(fraction)
            if theta is not None:
                return theta
        moments = np.stack([moment for _, moment in self._columns()], axis=1)
        solution = solve(self._matrix(fraction), moments, self._ridge)
        weights = solution.weights[:, 0] if self.n_rewards is None else np.ascontiguousarray(solution.weights.T)
        if solution.condition_number <= SOLVED_ABOVE:  # otherwise solve and warn at each reading
            self._read = self.n_updates, fraction, weights.copy()
        return weights

    @np.errstate(all="ignore")  # an overflow shows as NaN
    def _weights_from_recursion(self, fraction: float) -> Array | None:
        """Read weights from the recursion, corrected if necessary; None if the correction fails."""
        found, corrected = [], False
        for column, moment in self._columns():
            theta, grown = self._read_out(column, fraction)
            if not (self._counts[READING] == FAST and grown <= layout.GROWN and np.isfinite(theta).all()):
                within = self._scalars[layout.CONDITION] * grown <= SOLVED_ABOVE
                if not (within and self._correct(theta, moment, fraction)):
                    return None
                corrected = True
            found.append(theta)
        weights = found[0] if self.n_rewards is None else np.stack(found)
        if corrected:
            self._read = self.n_updates, fraction, weights.copy()
        return weights

    def _read_out(self, column: Array, fraction: float) -> tuple[Array, float]:
        """Compute θ_c = θ + c y (φ₊ᵀθ) / (1 − c φ₊ᵀy), and the factor by which this may multiply errors."""
        n, c = self.n_features, fraction * self._scalars[layout.BOOTSTRAP]
        theta: Array = column.copy()
        if c == 0.0:
            return theta, 1.0
        phi, y = self._state[NEXT, :n], self._state[Y, :n]
        rest = 1.0 - c * float(phi @ y)
        theta += y * (c * float(phi @ theta) / rest)
        return theta, float(1.0 + c * (np.abs(phi) @ np.abs(y)) / abs(rest))

    def _correct(self, theta: Array, moment: Array, fraction: float) -> bool:
        """Add P_c (b − (A_c + αI)θ_c) to θ_c until it changes by rounding only; False if it does not converge."""
        scale = self._state[SCALE, : self.n_features]
        enough = max(1e-13, 4.0 * _EPS * self._scalars[layout.CONDITION])
        for _ in range(_CORRECTIONS):
            move = self._times_inverse(moment - self._times_system(theta, fraction), fraction)
            theta += move
            size = relative_size(move, theta, scale)
            if size <= enough:
                return True
            if not size <= 0.1:
                return False
        return False

    def _times_system(self, v: Array, fraction: float) -> Array:
        """Compute (A_c + αI) v for the estimator's variant, or before the first truncated end for any variant."""
        n, c = self.n_features, fraction * self._scalars[layout.BOOTSTRAP]
        M, Q, R = self._parts(SYSTEM)
        product = v @ M - (Q @ v) @ R + self._ridge * v
        return np.asarray(product - self._state[TRACE, :n] * (c * float(self._state[NEXT, :n] @ v)))

    def _times_inverse(self, w: Array, fraction: float) -> Array:
        """Compute (A_c + αI)⁻¹ w from P."""
        n, c = self.n_features, fraction * self._scalars[layout.BOOTSTRAP]
        M, Q, R = self._parts(INVERSE)
        product, phi, y = M @ w - (R @ w) @ Q, self._state[NEXT, :n], self._state[Y, :n]
        return product if c == 0.0 else product + y * (c * float(phi @ product) / (1.0 - c * float(phi @ y)))

    # ------------------------------------------------------------ standard errors

    def influence(self) -> Influence:
        """Compute the influence of each block of the stream on the weights, of which standard errors are made.

        Raises InvalidInputError when the stream has too few blocks.
        """
        fraction = self._boundary_fraction(self.variant)
        weights = np.atleast_2d(self._weights(fraction)).T
        b = np.stack([moment for _, moment in self._columns()], axis=1)
        usable = self._counts[READING] != SOLVED
        solver = self._solver(fraction) if usable else None
        return self._blocks.influence(self._matrix(fraction), b, weights, self._ridge.copy(), self.n_updates, solver)

    def _solver(self, fraction: float) -> Callable[[Array, Array], Array | None]:
        """Return a solver of systems near A + αI: residuals are corrected by P, in O(n²) each."""
        n, c, scale = self.n_features, fraction * self._scalars[layout.BOOTSTRAP], self._state[SCALE]
        inverse, phi, y = self._inverse(), self._state[NEXT, :n], self._state[Y, :n]
        if c != 0.0:
            inverse += np.outer(y * (c / (1.0 - c * float(phi @ y))), phi @ inverse)
        scale = scale[:n]

        @np.errstate(all="ignore")  # an overflow shows as NaN
        def solved(M: Array, right: Array) -> Array | None:
            found, before = inverse @ right, np.inf
            for _ in range(_SOLVER_STEPS):
                move = inverse @ (right - M @ found)
                found += move
                size = relative_size(move, found, scale)
                if size <= _SOLVED:
                    return found
                if not size <= 0.5 * before:
                    return None
                before = size
            return None

        return solved
