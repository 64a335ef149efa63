"""The sums of a stream, and the inverse of their matrix, kept up to date by rank-one changes.

Transitions wait in a buffer. When it is full, they go into the blocks of sums of :mod:`lstd.statistics.blocks`, as rows
of `LSTD.fit` do. From time to time the inverse P = (A + αI)⁻¹, with y = Pz and θ = Pb, is computed anew from the sums.
So errors of the recursion cannot grow, and intervals, effective samples and forgetting are those of the batch
estimator. Readings do not change the state.

A is the Uncorrected estimator's matrix up to the last transition, with the boundary terms of truncated ends that the
variant subtracts. The weights of any variant differ by one term at the end of the data (Osogami 2020, Theorem 1, Lemma
2):

    θ_c = θ + c y (φ₊ᵀθ) / (1 − c φ₊ᵀy),   c = γ₊ (Boyan), (1 − λ)γ₊ (Mixed), 0 (Uncorrected),

with φ₊, γ₊ the features and the discount of the last successor. Where the system is ill-conditioned, or this term is
nearly singular, weights are solved for from the sums.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstd._kernels import change_detection
from lstd._kernels import online_state as at
from lstd._kernels import online_step as kernels
from lstd._kernels.blocked import BLOCK
from lstd._kernels.traces import SQUARE, TOTAL
from lstd.data.doubts import warn_of_ratios
from lstd.data.ids import last_rows
from lstd.data.rows import Rows, usual_columns
from lstd.data.settings import boundary_share
from lstd.errors import InvalidInputError
from lstd.online.one_transition import Row, SparseRow, Transition, aligned, compiled
from lstd.statistics.blocks import Blocks, empty_blocks
from lstd.statistics.intervals import Influence, influence_of
from lstd.statistics.merging import LSTDStatistics
from lstd.statistics.solve import Solution
from lstd.statistics.system import System
from lstd.types import Array

_ENDS = [at.NEXT, at.Y]
_PAGE = 512  # float64 in a page of 4 KiB
_BUFFERED = 4096  # largest number of rows in the buffer
_ENTRIES = 2**20  # largest number of features of rows and successors in it
_BYTES = 2**26  # of all blocks, with "auto"
_SHORTEST = 64.0  # rows of a block of a stream that forgets, or 2 n, or an eighth of its effective sample
_FIRST = 16  # updates before P is first computed from the sums, or n
_SLOWER = 8  # factor of later intervals
_SOLVED_ABOVE = 1e7  # condition number from which weights are solved for
_MOST_GROWN = 100.0  # factor of errors in a read-out, up to a condition number of 1e5; above it, less


def rotation(n: int, forgetting: float) -> int:
    """Return the number of transitions in which the ridge of each of n features is restored once.

    It keeps at least 0.9 of `alpha` if n is below a tenth of 1/(1 − f). Above 1/(1 − f), several features are restored
    per transition, as the ridge would otherwise fall below 1/e.
    """
    if forgetting == 1.0:
        return 1
    effective = 1.0 / (1.0 - forgetting)
    return min(max(n, round(effective / 10.0)), max(1, round(effective)))


class Recursion:
    """Sums in blocks, rows that wait in a buffer, and P, y and θ after the last transition; n features, m rewards.

    P is computed anew from the sums after at most `renew_every` transitions. A recursion that `monitors` errors keeps
    charts of them, and warns of ratios and weights.
    """

    def __init__(
        self,
        n: int,
        m: int,
        gamma: float,
        lmbda: float,
        alpha: Array,
        variant: str,
        *,
        forgetting: float,
        n_blocks: int | str,
        renew_every: int,
        monitors: bool = True,
    ) -> None:
        self.n = n
        self.m = m
        self.gamma = gamma
        self.lmbda = lmbda
        self.variant = variant
        self.forgetting = forgetting
        self.renew_every = renew_every
        self.monitors = monitors
        nothing = LSTDStatistics.empty(n, m, gamma=gamma, lmbda=lmbda, single=False)
        largest = np.inf
        if forgetting != 1.0:
            largest = max(_SHORTEST, 2.0 * n, 0.125 / (1.0 - forgetting))
        self.blocks = empty_blocks(nothing, n_blocks, _BYTES).changed(largest=largest)

        panel = _panel_of(n)
        length = _length_of(n)
        self.state = aligned(at.THETA + m + 2 * panel + length, length)
        self.numbers = aligned(at.N_NUMBERS)
        self.counts = np.zeros(at.N_COUNTS, np.int64)
        self._set_counts(panel)
        self._set_numbers()
        self.state[[at.RIDGE, at.ALPHA], :n] = alpha
        self._inverse[np.diag_indices(n)] = 1.0 / np.where(alpha > 0.0, alpha, 1.0)
        self.counts[at.SOLVED] = not np.all(alpha > 0.0)  # until the data determine the weights
        if monitors:
            self.begin_charts()
        self.warned = False  # of ratios or weights
        self.keeps_buffer = False  # whether rows of the buffer must not be written over, as they may be restored
        n_buffered = max(64, min(_BUFFERED, _ENTRIES // (2 * n)))
        self.buffer = np.zeros((n_buffered, 2 * n + m + 6))

    def _set_counts(self, panel: int) -> None:
        """Set the counts that follow from the parameters."""
        counts = self.counts
        first = at.THETA + self.m
        counts[at.FEATURES] = self.n
        counts[at.REWARDS] = self.m
        counts[at.PANEL] = panel
        counts[at.Q_AT] = first
        counts[at.R_AT] = first + panel
        counts[at.M_AT] = first + 2 * panel
        counts[at.ROTATION] = rotation(self.n, self.forgetting)
        first_interval = min(self.renew_every, max(_FIRST, self.n))
        counts[at.RENEW_AT] = first_interval
        counts[at.INTERVAL] = first_interval

    def _set_numbers(self) -> None:
        """Set the numbers that follow from the parameters."""
        numbers = self.numbers
        numbers[at.LMBDA] = self.lmbda
        numbers[at.FRACTION] = boundary_share(self.variant, self.lmbda)
        numbers[at.FORGETTING] = self.forgetting
        numbers[at.GROWTH] = 1.0
        numbers[at.WEIGHT] = 1.0
        numbers[at.COEFFICIENT] = 1.0
        numbers[at.MOST_GROWN] = _MOST_GROWN

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for name in ("state", "numbers"):
            setattr(self, name, aligned(*state[name].shape))
            getattr(self, name)[:] = state[name]

    # ------------------------------------------------------------ views

    @property
    def arrays(self) -> tuple[Array, Array, NDArray[np.int64], Array]:
        """The arrays of the kernels."""
        return self.state, self.numbers, self.counts, self.buffer

    @property
    def _inverse(self) -> Array:
        """View of M, (n, n), of which P is M − QᵀR."""
        first = int(self.counts[at.M_AT])
        return self.state[first : first + self.n, : self.n]

    @property
    def thetas(self) -> Array:
        """View of θ of each reward, (m, n)."""
        return self.state[at.THETA : at.THETA + self.m, : self.n]

    @property
    def charts(self) -> Array:
        """View of the charts of errors, (2, entries)."""
        return self.numbers[at.CHARTS : at.CHARTS + 2 * change_detection.N_CHART].reshape(2, -1)

    @property
    def ridge(self) -> Array:
        """Ridge of each feature relative to the weight of the last transition, (n,)."""
        return np.asarray(self.state[at.RIDGE, : self.n] / self.numbers[at.GROWTH])

    @property
    def step_name(self) -> str:
        """Name of the kernel that takes a transition with dense features."""
        if self.forgetting == 1.0:
            return "step"
        return "step_forgetting"

    @property
    def n_updates(self) -> int:
        """Number of transitions so far."""
        return int(self.counts[at.UPDATES])

    @property
    def n_effective(self) -> float:
        """Effective number of transitions, Σ f^k, k < `n_updates`; with forgetting f < 1 it approaches 1/(1 − f)."""
        f = self.forgetting
        if f == 1.0:
            return float(self.n_updates)
        return float(-np.expm1(self.n_updates * np.log(f)) / (1.0 - f))

    def begin_charts(self) -> None:
        """Begin the charts of errors anew."""
        change_detection.begin(self.charts, self.gamma, self.n)
        self.counts[at.CHANGED] = 0

    # ------------------------------------------------------------ from the buffer to the sums, and from these to P

    def summed(self) -> Blocks:
        """Return the blocks with the rows of the buffer, which stay there."""
        return self._extended(self.blocks, 0, int(self.counts[at.BUFFERED]))

    def total(self) -> LSTDStatistics:
        """Return the sums with the rows of the buffer, without those of its blocks, in less time."""
        return self._extended(self.blocks.changed(limit=0, prefixes=()), 0, int(self.counts[at.BUFFERED])).total

    def _extended(self, blocks: Blocks, first: int, stop: int) -> Blocks:
        """Return the blocks with some rows of the buffer."""
        if self.forgetting != 1.0:
            blocks = blocks.scaled(self.forgetting ** (stop - first))
        if stop == first:
            return blocks
        return blocks.extended(self._rows(first, stop))

    def _rows(self, first: int, stop: int) -> Rows:
        """Return some rows of the buffer, in which the last has its own weight and earlier ones less."""
        n = self.n
        k = stop - first
        rows = self.buffer[first:stop]
        numbers = np.ascontiguousarray(rows[:, at.DISCOUNT :].T)
        episode = numbers[at.EPISODE]
        terminated = numbers[at.TERMINAL] == 1.0
        usual = usual_columns(self.gamma, terminated)
        given = {}
        for name, place in at.PLACES.items():
            column = numbers[place]
            if name == "weight" and self.forgetting != 1.0:
                column = column * self.forgetting ** np.arange(k - 1, -1, -1.0)
            if name == "discount":
                column = np.where(terminated, 0.0, column)
            if (column != usual[name]).any():
                given[name] = column
        built = Rows.built(  # of values that were checked when they came
            rows[:, :n],
            rows[:, 2 * n : 2 * n + self.m],
            given,
            gamma=self.gamma,
            terminated=terminated,
            X_next=rows[:, n : 2 * n],
            last=last_rows(episode),
            episode=episode,
            single=False,
            assumed=False,
        )
        return built.changed(given=frozenset())  # the state has the effective sample

    def after(self) -> None:
        """Do what is due after a transition: move a full buffer into the sums, and compute P anew."""
        counts = self.counts
        if counts[at.SOLVED] and counts[at.RENEWED]:  # not each time, as there may be too few rows for a regular system
            soon = counts[at.RENEWED] + max(_FIRST, self.n // 8)
            counts[at.RENEW_AT] = min(counts[at.RENEW_AT], max(counts[at.UPDATES], soon))
        due = counts[at.UPDATES] >= counts[at.RENEW_AT] or self.numbers[at.GROWTH] >= at.GROWN_AT
        if counts[at.BUFFERED] >= len(self.buffer):
            self._flush()
        if due:
            self._renew()
        if due or counts[at.UPDATES] % at.SAMPLED == 0:
            self.warn_of_ratios()

    def _flush(self) -> None:
        """Move the rows of the buffer into the sums."""
        self.blocks = self.summed()
        if self.keeps_buffer:
            self.buffer = np.empty_like(self.buffer)
            self.keeps_buffer = False
        self.counts[at.BUFFERED] = 0

    @property
    @np.errstate(all="ignore")
    def sample(self) -> Array:
        """Effective sample sizes with ratios alone, with weights alone, and without both, (3,)."""
        sums = self.numbers[at.SAMPLES : at.CHARTS].reshape(3, 4)
        return np.asarray(sums[:, TOTAL] ** 2 / sums[:, SQUARE])

    def warn_of_ratios(self) -> None:
        """Give the EffectiveSampleWarning of the batch estimator, once."""
        off_policy, factors = self.numbers[[at.OFF_POLICY, at.FACTORS]] == 1.0
        if factors and self.monitors and not self.warned:
            self.warned = warn_of_ratios(self.sample, bool(off_policy), self.lmbda)

    @np.errstate(all="ignore")  # weights that overflow are reported when they are read
    def _renew(self) -> None:
        """Compute P, y and θ from the sums of all rows; if they have no digits, solve from now on."""
        counts = self.counts
        state = self.state
        numbers = self.numbers
        n = self.n
        total = self.total()
        ridge = self.ridge
        state[at.RIDGE, :n] = ridge
        numbers[at.BOOTSTRAP] /= numbers[at.GROWTH]
        numbers[at.GROWTH] = 1.0
        state[[at.Y, at.P_NEXT, at.NEXT_P]] = 0.0
        state[at.THETA :] = 0.0  # the padding may hold NaN
        counts[[at.WAITING, at.AHEAD]] = 0

        z = state[at.TRACE, :n]
        open_share = numbers[at.FRACTION] * numbers[at.BOOTSTRAP]
        boundary = np.outer(open_share * z, state[at.NEXT, :n])  # of the end of the stream, which is open
        system = System.of(total, self.variant, ridge, intercept=False).without(-boundary, np.zeros((n, self.m)))
        solution = _solved(system, np.column_stack([np.eye(n), z]))
        was_solved = bool(counts[at.SOLVED])
        counts[at.SOLVED] = solution is None
        numbers[at.MOST_GROWN] = 0.0
        if solution is not None:
            self._inverse[:] = solution.weights[:, :n]
            state[at.Y, :n] = solution.weights[:, n]
            for theta, b in zip(self.thetas, total.b.T, strict=True):  # each by itself: the same bits
                theta[:] = self._inverse @ np.ascontiguousarray(b)
            numbers[at.MOST_GROWN] = min(_MOST_GROWN, _SOLVED_ABOVE / solution.condition_number)
        counts[at.RENEWED] = counts[at.UPDATES]
        counts[at.INTERVAL] = self._interval(was_solved)
        counts[at.RENEW_AT] = counts[at.RENEWED] + counts[at.INTERVAL]

    def _interval(self, was_solved: bool) -> int:
        """Return after how many transitions P is computed next: soon after weights begin or cease to be solved for."""
        before = int(self.counts[at.INTERVAL])
        first = max(_FIRST, self.n)
        if self.counts[at.SOLVED] and was_solved:
            return min(2 * before, max(first, self.renew_every))
        if self.counts[at.SOLVED]:
            return first
        if was_solved:
            return min(self.renew_every, max(_FIRST, self.n // 8))
        return min(self.renew_every, _SLOWER * before)

    # ------------------------------------------------------------ transitions

    def learn(self, given: Transition) -> int:
        """Learn from a transition; returns a code of the kernels, and :meth:`after` is then due."""
        if self.m > 1:
            self.buffer[self.counts[at.BUFFERED], 2 * self.n + 1 : 2 * self.n + self.m] = given.rewards[1:]
        self.numbers[at.WEIGHT] = given.weight
        self.numbers[at.COEFFICIENT] = given.coefficient
        try:
            return given.taken(kernels, *self.arrays, name=self.step_name)
        finally:
            self.numbers[at.WEIGHT] = 1.0
            self.numbers[at.COEFFICIENT] = 1.0

    def cut_off(self) -> None:
        """Cut the episode off at the last successor."""
        numbers = self.numbers
        counts = self.counts
        if numbers[at.BOOTSTRAP] != 0.0:
            counts[at.CUT] = 1
            self.close(numbers[at.FRACTION])
        numbers[at.DECAY] = 0.0
        self.charts[:, change_detection.OPEN] = 0.0
        counts[at.EPISODES] += 1
        self.after()

    @np.errstate(all="ignore")  # an overflow shows as NaN
    def close(self, fraction: float) -> None:
        """Add −c z φ₊ᵀ to A, c = fraction · γ₊, so that the next row adds z'φᵀ alone.

        P' = P − q ρ with ρ = φ₊ᵀP and q = −c y / (1 − c φ₊ᵀy);  y' = y − q φ₊ᵀy,  θ' = θ − q φ₊ᵀθ.
        """
        state = self.state
        counts = self.counts
        panel = int(counts[at.PANEL])
        waiting = int(counts[at.WAITING])
        first = int(counts[at.Q_AT])
        Q = state[first : first + panel]
        R = state[first + panel : first + 2 * panel]
        M = state[first + 2 * panel :]
        phi = state[at.NEXT]
        y = state[at.Y]
        theta = state[at.THETA : at.THETA + self.m]

        c = fraction * self.numbers[at.BOOTSTRAP]
        rest = 1.0 - c * float(phi @ y)
        q = y * (-c / rest)
        row = phi @ M - (Q[:waiting] @ phi) @ R[:waiting]  # ρ
        if waiting == panel:
            M -= Q.T @ R
            waiting = 0
            counts[at.AHEAD] = 0
        Q[waiting] = q
        R[waiting] = row
        counts[at.WAITING] = waiting + 1
        theta -= np.outer(theta @ phi, q)
        y -= q * (phi @ y)
        self.numbers[at.BOOTSTRAP] = 0.0
        if not (abs(rest) >= at.LOST * (1.0 + abs(1.0 - rest)) and abs(rest) * at.LOST <= 1.0):
            counts[at.SOLVED] = 1

    # ------------------------------------------------------------ reading

    def growth(self) -> float:
        """Return the factor by which reading the weights may multiply their errors; large near a singular system."""
        compiled(kernels, "growth")
        return float(kernels.growth(*self.arrays[:3]))

    def predict(self, x: Row, values: Array, most: float = np.inf) -> bool:
        """Fill `values` (m,) with predictions from a row that `check_pair` returns.

        Returns False where `most` is given and reading the weights may multiply their errors by more, or they are to be
        solved for.
        """
        if not isinstance(x, SparseRow) and kernels.predict(x, values, most, *self.arrays[:3]) == values[0]:
            return True
        if most < np.inf:
            return False
        weights = self.weights(self.variant)
        if isinstance(x, SparseRow):
            values[:] = weights[:, x.indices] @ x.values
        else:
            values[:] = weights @ x
        return True

    @np.errstate(all="ignore")  # an overflow shows as NaN
    def weights(self, variant: str) -> Array:
        """Return θ_c = θ + c y (φ₊ᵀθ) / (1 − c φ₊ᵀy), (m, n), or solve for it if that may lose too many digits."""
        share = boundary_share(variant, self.lmbda)
        is_own = share == boundary_share(self.variant, self.lmbda)
        if not self.counts[at.SOLVED] and (is_own or not self.counts[at.CUT]):
            phi, y = self.state[_ENDS, : self.n]
            c = share * self.numbers[at.BOOTSTRAP]
            rest = 1.0 - c * float(phi @ y)
            theta = self.thetas + np.outer(self.thetas @ phi, y * (c / rest))
            grown = 1.0 + c * (np.abs(phi) @ np.abs(y)) / abs(rest)
            if grown <= self.numbers[at.MOST_GROWN] and np.isfinite(theta).all():
                return np.ascontiguousarray(theta)
        total = self.total()
        system = System.of(total, variant, self.ridge, intercept=False)
        return np.ascontiguousarray(system.solve(report=True).weights.T)

    def influence(self) -> Influence:
        """Compute the influence of each block of the stream on the weights, of which standard errors are made.

        Raises InvalidInputError when the stream has too few blocks.
        """
        weights = self.weights(self.variant).T
        blocks = self.summed()
        system = System.of(blocks.total, self.variant, self.ridge, intercept=False)
        return influence_of(blocks, system, weights)


def _solved(system: System, right: Array) -> Solution | None:
    """Solve a system for a right-hand side; None if that is too ill-conditioned for a recursion."""
    try:
        solution = system.solve(right)
    except InvalidInputError:  # weights, or the inverse, overflow
        return None
    if solution.condition_number <= _SOLVED_ABOVE:
        return solution
    return None


def _panel_of(n: int) -> int:
    """Return how many changes of the inverse of n features are applied together."""
    if n <= 48:
        return 4
    if n <= 256:
        return 8
    return 32


def _length_of(n: int) -> int:
    """Return the length of a row of n features with its padding, a multiple of BLOCK."""
    length = -(-n // BLOCK) * BLOCK
    if length % _PAGE == 0:  # columns that are whole pages apart would share cache lines
        length += BLOCK
    return length
