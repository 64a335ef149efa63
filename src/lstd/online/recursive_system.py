"""Arrays of a recursive least-squares estimator, and the system (A + αI)θ = b that they represent."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

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
from lstd.data.settings import boundary_share
from lstd.online.predictor import OnlinePredictor
from lstd.online.stream_blocks import StreamBlocks
from lstd.online.transition import aligned, compiled, padded
from lstd.types import Array

# Counts that follow the counts of the kernels: the transition of the last check, repairs, and transitions between two
# checks.
CHECKED_AT, REPAIRS, INTERVAL = range(layout.CHANGED + 1, layout.N_COUNTS)
CORRECTED, SOLVED = FAST + 1, FAST + 2  # ways of reading weights, as FAST is; see `recursive_predictions`
SHORTEST = 16  # updates between two checks, or n / 8


class RecursiveSystem(OnlinePredictor):
    """Sums A, b and z, and with them P = (A + αI)⁻¹, y = Pz and θ = Pb.

    A includes the variant's boundary terms of truncated ends, but not the boundary term of the last transition.
    """

    _kernels = kernels
    _single = True  # whether it stands for itself, not for several rates of forgetting

    def __init__(
        self, n_features: int, lmbda: float, alpha: float | Array, variant: str, check_every: int,
        n_rewards: int | None = None, forgetting: float = 1.0, n_blocks: Any = 0,
    ) -> None:  # fmt: skip
        self.n_features = n = n_features
        self.n_rewards = n_rewards
        self.lmbda, self.alpha, self.variant, self.check_every = lmbda, alpha, variant, check_every
        length, waiting = padded(n), panel_rows(n)
        others = 0 if n_rewards is None else n_rewards - 1
        self._state = aligned(layout.N_VECTORS + 4 * waiting + 2 * length + 2 * others, length)
        self._counts = self._view_of_counts()
        first = min(check_every, max(SHORTEST, n))
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
        self._direct = self._typed and self.n_rewards is None and self._single  # numbers need no conversion
        compiled(kernels, "value" if self.n_rewards is None else "predict")

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Let the estimator stand for itself within the block."""
        self._single = True
        try:
            yield
        finally:
            self._single = False

    @property
    def _arrays(self) -> tuple[Array]:
        return (self._state,)

    @property
    def n_updates(self) -> int:
        return int(self._counts[UPDATES])

    @property
    def reader(self) -> Self:
        """The recursion from which weights are read: itself."""
        return self

    @property
    def n_effective(self) -> float:
        """Effective number of transitions, Σ f^k, k < `n_updates`; with forgetting f < 1 it approaches 1/(1 − f)."""
        f, n_updates = float(self.reader._scalars[layout.FORGETTING]), self.n_updates
        return float(n_updates) if f == 1.0 else float(-np.expm1(n_updates * np.log(f)) / (1.0 - f))

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

    @property
    def _charts(self) -> Array:
        """View of the charts of errors, (2, entries)."""
        charts: Array = self._state[layout.CHART : layout.SAMPLE].reshape(-1)[: 2 * change_detection.N_CHART]
        return charts.reshape(2, -1)

    def _views(self) -> dict[str, NDArray[Any]]:
        """Return views of the arrays of a snapshot, without their padding."""
        n = self.n_features
        return {
            "vectors": self._state[: layout.SCALARS, :n], "scalars": self._scalars[: layout.N_SCALARS],
            "panels": self._panels[:, :, :n], "matrices": self._matrices[:, :n, :n], "counts": self._counts,
            "others": self._others[:, :, :n], "charts": self._charts,
            "sample": self._state[layout.SAMPLE, : sample_size.N_SAMPLE],
        }  # fmt: skip

    def _columns(self) -> list[tuple[Array, Array]]:
        """Return views of θ and b of each reward, (n,) each."""
        n = self.n_features
        return [(self._state[WEIGHTS, :n], self._state[MOMENT, :n]), *zip(*self._others[:, :, :n], strict=True)]

    # ------------------------------------------------------------ matrices

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

    def _boundary_fraction(self, variant: str) -> float:
        """Return the fraction of the boundary terms that a variant subtracts from the Uncorrected matrix."""
        return boundary_share(variant, self.lmbda)

    # ------------------------------------------------------------ changes of the system

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


def rotation(n: int, forgetting: float) -> int:
    """Return the number of transitions in which the ridge of each of n features is restored once.

    It keeps at least 0.9 of `alpha` if n is below a tenth of 1/(1 − f). Above 1/(1 − f), several features are restored
    per transition, as the ridge would otherwise fall below 1/e.
    """
    if forgetting == 1.0:
        return 1
    effective = 1.0 / (1.0 - forgetting)
    return min(max(n, round(effective / 10.0)), max(1, round(effective)))


def panel_rows(n: int) -> int:
    """Choose how many rank-one changes to apply together: more make a transition dearer but save passes over P."""
    return 4 if n <= 48 else 8 if n <= 256 else 32
