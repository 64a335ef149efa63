"""State of a recursive least-squares estimator: its arrays, the system that they represent, readings and checks.

A check computes the condition number of A + αI and the error of P, both independent of the units of features
(`lstd.online.precision`). It decides how weights are read until the next check:

- FAST, with a moderate condition number and a precise P: from the recursion, in O(n).
- CORRECTED, with a larger condition number: from the recursion, then corrected by the residual of the sums until only
  rounding errors are left, in O(n²).
- SOLVED, if no recursion can keep digits: by a solve from the sums, in O(n³), with the warnings of the batch estimator.

After an update that may have lost digits, the condition number is unknown and weights are solved for until the next
check.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray
from numpy.typing import NDArray
from scipy import sparse

from lstd._kernels import change_detection, sample_size
from lstd._kernels import recursive_state as layout
from lstd._kernels import recursive_update as kernels
from lstd._kernels.recursive_state import (
    CHECK_AT,
    DONE,
    FAST,
    INVERSE,
    MOMENT,
    NEXT,
    READING,
    RIDGE,
    SCALE,
    SYSTEM,
    TRACE,
    UPDATES,
    WEIGHTS,
    Y,
)
from lstd.data.checks import check_flag, check_real, to_real_array
from lstd.data.effective_sample import warn_of_ratios
from lstd.data.feature_matrix import by_name, check_features
from lstd.errors import ChangeWarning, InvalidInputError, LostDigitsWarning, warn
from lstd.online.precision import condition_number, factorise, relative_size, scales
from lstd.online.predictor import OnlinePredictor
from lstd.online.stream_blocks import StreamBlocks
from lstd.online.transition import Array, aligned, check_sparse_row, compiled, padded
from lstd.statistics.covariance import Influence
from lstd.statistics.intervals import Interval
from lstd.statistics.solve import solve

# Counts that follow the counts of the kernels: the transition of the last check, repairs, and transitions between two
# checks.
CHECKED_AT, REPAIRS, INTERVAL = range(layout.CHANGED + 1, layout.N_COUNTS)
CORRECTED, SOLVED = FAST + 1, FAST + 2

# Each update may add the unit roundoff times the condition number to the error of P. Up to FAST_BELOW, the error stays
# below TOLERANCE for thousands of updates. A correction multiplies the error of the weights by the error of P; several
# corrections reach rounding if the latter is at most CORRECTABLE. Above SOLVED_ABOVE, P would need recomputing after a
# few thousand updates.
FAST_BELOW, TOLERANCE = 1e6, 1e-8
SOLVED_ABOVE, CORRECTABLE = 1e8, 1e-3
_INVERSE_VECTORS = [WEIGHTS, Y, layout.P_NEXT, layout.NEXT_P, layout.P_PHI, layout.PHI_P]
_EPS = float(np.finfo(np.float64).eps)
_CORRECTIONS = 6
_SOLVER_STEPS, _SOLVED = 40, 1e-10  # corrections of a system without a block, and the relative size of the last one
_SHORTEST = 16  # updates between two checks, or n / 8


class Block(NamedTuple):
    """Recorded rows in the form of `recursive_update.stream`."""

    X: Array  # (T, n)
    X_next: Array  # (T, n)
    y: Array  # (T, m)
    numbers: Array  # (T, 4)
    kinds: NDArray[np.int8]


class Recursion(OnlinePredictor):
    """Sums A, b and z, and with them P = (A + αI)⁻¹, y = Pz and θ = Pb.

    A includes the variant's boundary terms of truncated ends, but not the boundary term of the last transition.
    """

    _single = True  # whether it stands for itself, not for several rates of forgetting

    def __init__(
        self, n_features: int, lmbda: float, alpha: float | Array, variant: str, check_every: int,
        n_rewards: int | None = None, forgetting: float = 1.0, n_blocks: Any = 0,
    ) -> None:  # fmt: skip
        self.n_features = n = n_features
        self.n_rewards = n_rewards
        self.lmbda, self.alpha, self.variant, self.check_every = lmbda, alpha, variant, check_every
        length, waiting = padded(n), _panel(n)
        others = 0 if n_rewards is None else n_rewards - 1
        self._state = aligned(layout.N_VECTORS + 4 * waiting + 2 * length + 2 * others, length)
        self._counts = self._view_of_counts()
        first = min(check_every, max(_SHORTEST, n))
        self._counts[[layout.FEATURES, layout.PANEL, layout.OTHERS]] = n, waiting, others
        self._counts[[CHECK_AT, INTERVAL, layout.ROTATION]] = first, first, rotation(n, forgetting)
        self._scalars[[layout.CONDITION, layout.GROWTH, layout.WEIGHT, layout.COEFFICIENT]] = 1.0
        self._scalars[[layout.LMBDA, layout.FRACTION]] = lmbda, self._boundary_fraction(variant)
        self._scalars[layout.FORGETTING] = forgetting
        self._state[SCALE, :n] = 1.0
        self._state[[RIDGE, layout.ALPHA], :n] = alpha
        self._matrices[INVERSE, np.arange(n), np.arange(n)] = 1.0 / np.where(alpha > 0.0, alpha, 1.0)
        if not np.all(alpha > 0.0):  # no inverse yet: a check recomputes it once the data determine the weights
            self._counts[READING] = SOLVED
        self._boundary: Array | None = None  # B, from the first truncated end on
        self._blocks = StreamBlocks(n, n_blocks, forgetting)
        self._counts[layout.BLOCK_AT] = self._blocks.next_end
        self._read: tuple[int, float, Array] | None = None  # update, fraction and weights of the last slow reading
        self._compile()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._state = aligned(*state["_state"].shape)
        self._state[:] = state["_state"]
        self._counts = self._view_of_counts()
        self._compile()  # a new process compiles its own

    def _view_of_counts(self) -> NDArray[np.int64]:
        counts: NDArray[np.int64] = self._state[layout.COUNTS].view(np.int64)[: layout.N_COUNTS]
        return counts

    def _compile(self) -> None:
        self._typed, self._typed_sparse = compiled(kernels, "step"), False
        self._direct = (
            self._typed and self.n_rewards is None and self._single
        )  # an update with numbers needs no conversion
        compiled(kernels, "value" if self.n_rewards is None else "predict")

    @property
    def n_updates(self) -> int:
        return int(self._counts[UPDATES])

    @property
    def reader(self) -> Recursion:
        """The recursion from which weights are read: itself."""
        return self

    @property
    def n_effective(self) -> float:
        """Effective number of transitions, Σ f^k, k < `n_updates`; with forgetting f < 1 it approaches 1/(1 − f)."""
        f, n_updates = float(self.reader._scalars[layout.FORGETTING]), self.n_updates
        return float(n_updates) if f == 1.0 else float(-np.expm1(n_updates * np.log(f)) / (1.0 - f))

    @property
    def n_repairs(self) -> int:
        """Number of times the inverse was recomputed."""
        return int(self._counts[REPAIRS])

    @property
    def _ridge(self) -> Array:
        """View of the diagonal of R, (n,), relative to a weight of GROWTH for the last transition."""
        ridge: Array = self._state[RIDGE, : self.n_features]
        return ridge

    @property
    def _scalars(self) -> Array:
        scalars: Array = self._state[layout.SCALARS]
        return scalars

    @property
    def _panels(self) -> Array:
        """View of the panels of rank-one changes, (4, changes, columns)."""
        waiting = int(self._counts[layout.PANEL])
        return self._state[layout.N_VECTORS :][: 4 * waiting].reshape(4, waiting, -1)

    @property
    def _matrices(self) -> Array:
        """View of the matrices, (2, rows, columns)."""
        length, first = self._state.shape[1], layout.N_VECTORS + 4 * int(self._counts[layout.PANEL])
        return self._state[first : first + 2 * length].reshape(2, length, length)

    @property
    def _others(self) -> Array:
        """View of θ and b of the rewards after the first, (2, m − 1, columns)."""
        more = int(self._counts[layout.OTHERS])
        return self._state[len(self._state) - 2 * more :].reshape(2, more, self._state.shape[1])

    def learn_block(self, block: Block, first: int, predictions: Array) -> int:
        """Learn the rows of a block from `first` on; returns the row at which :meth:`update` must go on.

        `predictions`, (T, m) or with no rows, is filled with those for each row before its transition is learned.
        """
        if not (self._single and self._typed):
            return first
        compiled(kernels, "stream")
        while first < len(block.y):
            first, code = kernels.stream(*block, first, predictions, self._state)
            if code < DONE:
                break
            if code != DONE:
                self._check(code)
        return int(first)

    # ------------------------------------------------------------ the system

    def _boundary_fraction(self, variant: str) -> float:
        """Return the fraction of the boundary terms that a variant subtracts from the Uncorrected matrix."""
        return {"boyan": 1.0, "uncorrected": 0.0, "mixed": 1.0 - self.lmbda}[variant]

    @np.errstate(over="ignore", invalid="ignore")
    def _truncate(self) -> int:
        """Add the boundary term of the last transition to A and end the episode; returns a code of `kernels`."""
        code, ahead = DONE, self._scalars[layout.BOOTSTRAP]
        if ahead != 0.0:
            n, fraction = self.n_features, self._boundary_fraction(self.variant)
            if self._boundary is None:
                self._boundary = np.zeros((n, n))
            self._boundary += np.outer(ahead * self._state[TRACE, :n], self._state[NEXT, :n])
            if fraction != 0.0:
                code = self._add_boundary_term(fraction)
        self._scalars[layout.DECAY] = self._scalars[layout.BOOTSTRAP] = 0.0
        self._charts[:, change_detection.OPEN] = 0.0
        self._counts[layout.EPISODES] += 1
        due = 0 < self._counts[layout.BLOCK_AT] <= self._counts[UPDATES]
        return max(code, layout.MARK) if due else code

    @np.errstate(all="ignore")  # an overflow shows as NaN
    def _add_boundary_term(self, fraction: float) -> int:
        """Add −c z φ₊ᵀ to A, c = fraction · γ, so that the next row adds z'φᵀ alone; returns a code of `kernels`.

        P' = P − q ρ with ρ = φ₊ᵀP and q = −c y / (1 − c φ₊ᵀy);  y' = y − q φ₊ᵀy,  θ' = θ − q φ₊ᵀθ.
        """
        phi, y, theta = self._state[NEXT], self._state[Y], self._state[WEIGHTS]
        c = fraction * self._scalars[layout.BOOTSTRAP]
        waiting = self._counts[layout.WAITING_INVERSE]
        Q, R = self._panels[layout.Q_INVERSE, :waiting], self._panels[layout.R_INVERSE, :waiting]
        next_y = c * float(phi @ y)
        q = y * (-c / (1.0 - next_y))
        self._subtract_outer(INVERSE, q, phi @ self._matrices[INVERSE] - (Q @ phi) @ R)
        self._subtract_outer(SYSTEM, -phi, -c * self._state[TRACE])
        y -= q * (phi @ y)
        theta -= q * (phi @ theta)
        for theta in self._others[0]:
            theta -= q * (phi @ theta)
        self._scalars[layout.BOOTSTRAP] = 0.0
        kept = abs(1.0 - next_y) >= layout.LOST * (1.0 + abs(next_y)) and abs(1.0 - next_y) * layout.LOST <= 1.0
        return DONE if kept else layout.CHECK

    def _subtract_outer(self, which: int, q: Array, r: Array) -> None:
        """Subtract q rᵀ from a matrix by appending it to the panel."""
        Q, R = self._panels[2 * which], self._panels[2 * which + 1]
        place = layout.WAITING_INVERSE + which
        if self._counts[place] == len(Q):
            self._matrices[which] -= Q.T @ R
            self._counts[place] = 0
            self._counts[layout.AHEAD] = 0
        Q[self._counts[place]], R[self._counts[place]] = q, r
        self._counts[place] += 1

    def _parts(self, which: int) -> tuple[Array, Array, Array]:
        """Return M (n, n), Q and R (waiting, n), of which P or Aᵀ is M − QᵀR."""
        n, waiting = self.n_features, self._counts[layout.WAITING_INVERSE + which]
        return self._matrices[which, :n, :n], *self._panels[2 * which : 2 * which + 2, :waiting, :n]

    @np.errstate(over="ignore", invalid="ignore")
    def _inverse(self) -> Array:
        """Compute P, (n, n)."""
        M, Q, R = self._parts(INVERSE)
        return np.asarray(M - Q.T @ R)

    @np.errstate(over="ignore", invalid="ignore")
    def _system(self) -> Array:
        """Compute A, (n, n)."""
        M, Q, R = self._parts(SYSTEM)
        return np.asarray((M - Q.T @ R).T)

    @np.errstate(over="ignore", invalid="ignore")
    def _matrix(self, fraction: float) -> Array:
        """Compute A_Unc − fraction · B, (n, n), where B sums all boundary terms, including the last transition's."""
        n = self.n_features
        A = self._system()
        if self._boundary is not None:
            A += (self._boundary_fraction(self.variant) - fraction) * self._boundary
        c = fraction * self._scalars[layout.BOOTSTRAP]
        if c != 0.0:
            A -= np.outer(c * self._state[TRACE, :n], self._state[NEXT, :n])
        return A

    # ------------------------------------------------------------ readings

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
        level = check_real("level", level, 0.0, 1.0, open_low=True, open_high=True)
        phi, predictions = self._rows_of(x), self.predict(x)
        interval = self.reader.influence().interval(phi, np.reshape(predictions, (phi.shape[0], -1)), level)
        arrays = {name: value for name, value in vars(interval).items() if name != "level"}
        return replace(interval, **{name: self._shaped(x, value) for name, value in arrays.items()})

    def _rows_of(self, x: Any) -> Any:
        """Return features as a matrix, (k, n)."""
        x = by_name("x", x, self._names)
        if isinstance(x, tuple):
            return check_sparse_row("x", x, self.n_features).dense(self.n_features)[np.newaxis]
        phi = check_features("x", x if sparse.issparse(x) else np.atleast_2d(to_real_array("x", x)))
        if phi.shape[1] != self.n_features:
            raise InvalidInputError(
                f"`x` must have {self.n_features} features, as the estimator has; got shape {phi.shape}."
            )
        return phi

    def _shaped(self, x: Any, values: NDArray[Any]) -> Any:
        """Return values (k, m) in the shape of predictions for `x`."""
        if self.n_rewards is None:
            values = values[:, 0]
        one = isinstance(x, tuple) or (not sparse.issparse(x) and np.ndim(x) == 1)
        return values[0] if one else values

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

    def _columns(self) -> list[tuple[Array, Array]]:
        """Return views of θ and b of each reward, (n,) each."""
        n = self.n_features
        return [(self._state[WEIGHTS, :n], self._state[MOMENT, :n]), *zip(*self._others[:, :, :n], strict=True)]

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

    # ------------------------------------------------------------ loss of digits

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

    def _check(self, code: int) -> None:
        """Run a check if one is due; an update that lost digits brings the next check forward."""
        counts = self._counts
        if self._scalars[layout.GROWTH] >= layout.RESCALED_AT:
            self._rescale()
        self._mark()
        if code != layout.CHECK:
            return
        if counts[UPDATES] < counts[CHECK_AT]:  # digits were lost
            if counts[READING] == SOLVED:
                return
            counts[READING], self._scalars[layout.CONDITION] = CORRECTED, np.inf
            if counts[CHECKED_AT]:  # before the first check, there may be too few transitions for a regular system
                counts[CHECK_AT] = min(counts[CHECK_AT], max(counts[UPDATES], counts[CHECKED_AT] + self._shortest()))
        if counts[UPDATES] >= counts[CHECK_AT]:
            self._examine()

    def _mark(self) -> None:
        """Keep the sums if a block ends here, and warn of a change of the stream."""
        counts, episodes = self._counts, int(self._counts[layout.EPISODES])
        ends = not episodes or self._scalars[layout.DECAY] == 0.0
        if ends and 0 < counts[layout.BLOCK_AT] <= counts[UPDATES]:
            compiled(kernels, "transposed_system")
            transposed = np.empty((self.n_features, self.n_features))
            kernels.transposed_system(0.0 if episodes else 1.0, self._state, transposed)
            b = self._state[[MOMENT], : self.n_features]
            if self.n_rewards is not None:
                b = np.concatenate([b, self._others[1, :, : self.n_features]])
            self._blocks.add(self.n_updates, transposed, b, episodes)
            counts[layout.BLOCK_AT] = self._blocks.next_end
        if counts[layout.CHANGED]:
            warn(change_message(self._charts, self.n_updates, vars(self).get("forgetting", 1.0)), ChangeWarning)
            self._begin_charts()

    @np.errstate(all="ignore")
    def _warn_of_ratios(self) -> None:
        """Give the EffectiveSampleWarning of the batch estimator, once until the sample is large again."""
        sample = self._state[layout.SAMPLE, : sample_size.N_SAMPLE]
        if sample[sample_size.BEGUN] == 0.0:
            return
        sums = sample[sample_size.FIRST :].reshape(3, 4)
        size, off_policy = sums[:, sample_size.TOTAL] ** 2 / sums[:, sample_size.SQUARE], sample[sample_size.OFF_POLICY]
        if sample[sample_size.SILENT] == 0.0:
            sample[sample_size.SILENT] = warn_of_ratios(size, bool(off_policy), self.lmbda)

    def _begin_charts(self) -> None:
        """Begin the charts of errors anew."""
        change_detection.begin(self._charts, vars(self).get("gamma", 1.0), self.n_features)
        self._counts[layout.CHANGED] = 0

    @property
    def drift_(self) -> float:
        """Size of recent errors, divided by the largest that the stream's own history allows; above 1, a warning."""
        return float(self._charts[:, change_detection.LEVEL].max())

    @property
    def _charts(self) -> Array:
        """View of the charts of errors, (2, entries)."""
        charts: Array = self._state[layout.CHART : layout.SAMPLE].reshape(-1)[: 2 * change_detection.N_CHART]
        return charts.reshape(2, -1)

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

    @np.errstate(over="ignore", invalid="ignore")  # an overflow of the inverse shows as NaN
    def _rescale(self) -> None:
        """Divide the sums by the growth of the weights, rounded to a power of two, so that nothing else is rounded."""
        down = 1.0 / np.exp2(np.floor(np.log2(self._scalars[layout.GROWTH])))
        self._scalars[[layout.GROWTH, layout.BOOTSTRAP]] *= down
        self._state[[MOMENT, RIDGE]] *= down
        self._state[[Y, layout.P_NEXT, layout.NEXT_P]] /= down
        self._others[1] *= down
        self._matrices[SYSTEM] *= down
        self._matrices[INVERSE] /= down
        self._panels[layout.R_SYSTEM] *= down
        self._panels[layout.R_INVERSE] /= down
        self._blocks.scale(float(down))
        if self._boundary is not None:
            self._boundary *= down

    def _shortest(self) -> int:
        """Return the smallest number of updates between two checks, with which checks take O(n) per update."""
        return min(self.check_every, max(_SHORTEST, self.n_features // 8))

    def _examine(self) -> None:
        """Choose how weights are read until the next check; recompute P if its error is too large."""
        counts = self._counts
        before, counts[CHECKED_AT] = int(counts[CHECKED_AT]), counts[UPDATES]
        self._warn_of_ratios()
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
        again = max(_SHORTEST, self.n_features)
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


def rotation(n: int, forgetting: float) -> int:
    """Return the number of transitions in which the ridge of each of n features is restored once.

    It keeps at least 0.9 of `alpha` if n is below a tenth of 1/(1 − f). Above 1/(1 − f), several features are restored
    per transition, as the ridge would otherwise fall below 1/e.
    """
    if forgetting == 1.0:
        return 1
    effective = 1.0 / (1.0 - forgetting)
    return min(max(n, round(effective / 10.0)), max(1, round(effective)))


def change_message(charts: Array, n_updates: int, forgetting: Any) -> str:
    """Say what has changed, and what to do."""
    highest = charts[charts[:, change_detection.LEVEL].argmax(), change_detection.HIGHEST]
    found = {
        change_detection.UP: "rewards higher than predicted", change_detection.DOWN: "rewards lower than predicted",
    }.get(int(highest), "errors larger than before")  # fmt: skip
    remedy = "Set `forgetting` below 1 (0.999 keeps about the last 1000 transitions), or start a new model."
    if forgetting != 1.0:
        rate = "gradually" if isinstance(forgetting, str) else f"within some {1 / (1 - forgetting):.0f} transitions"
        remedy = f"The model forgets earlier transitions {rate}; start a new one if that is too slow."
    return (
        f"After {n_updates} updates, recent errors are larger than the stream's own history allows: {found}. The "
        f"stream has probably changed. {remedy}"
    )


def _panel(n: int) -> int:
    """Choose how many rank-one changes to apply together: more make a transition dearer but save passes over P."""
    return 4 if n <= 48 else 8 if n <= 256 else 32


@lru_cache(maxsize=4)
def _probe(n: int) -> Array:
    """Draw a fixed random vector."""
    return np.random.RandomState(0).normal(size=n)
