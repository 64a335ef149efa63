"""Effective sample size of rows with importance ratios or weights: how much of the data they leave.

Row t counts g_t = w_t e_t in the sums, with its weight w_t and the trace e_t = ρ_t (1 + c_t λγ_t e_{t−1}) of a feature
that is always one. Two rows share as much of the trace as the product κ of cλγ between them. So the effective sample
size (Kish 1965) is

    (Σ_t g_t)² / Σ_t Σ_s κ_ts g_t g_s,   Σ_s κ_ts g_s over s ≤ t is f_t = g_t + c_t λγ_t f_{t−1}.

At λγ = 1 that is the effective number of episodes; without ratios and weights, (1 − λγ)/(1 + λγ) times that of rows.
Trace coefficients above one are products of ratios too: what weights alone leave, and the data, has min(1, c_t).

Both sums merge exactly at any split of the data: g_t and f_t are linear in s = (1, u, v), where the traces u = λγe and
v = λγf enter a chunk. So they are wᵀs and sᵀKs, and the next chunk has s' = Ms.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from lstd._kernels.traces import sample_sums
from lstd.data.rows import FACTORS, Rows
from lstd.types import Array


@dataclass(frozen=True, eq=False)
class SampleSums:
    """Sums over full transitions of a chunk: with ratios alone, with weights alone, and without both."""

    off_policy: bool  # a ratio is not one
    step: Annotated[Array, "3 3 3 nan"]  # M of each
    weight: Annotated[Array, "3 3 nan"]  # w of each
    square: Annotated[Array, "3 3 3 nan"]  # K of each

    @classmethod
    def of(cls, rows: Rows, lmbda: float, part: slice) -> SampleSums | None:
        """Return the sums of some rows, none of them pending; None if no row has a factor."""
        if not rows.given & FACTORS:
            return None
        ends: NDArray[np.bool_] = rows.last[part].copy()
        full: Array = rows.full_among(part).astype(np.float64)
        if part.stop == len(rows):
            ends[-1] = False  # its episode may go on
        decay = np.where(ends, 0.0, lmbda * rows.discount[part])
        return cls.of_transitions(
            rows.importance_ratio[part] * full, rows.trace_coefficient[part], rows.weight[part], decay, full
        )

    @classmethod
    def of_transitions(
        cls, ratios: Array, coefficients: Array, weights: Array, decay: Array, ones: Array
    ) -> SampleSums:  # fmt: skip
        """Return the sums of rows, (T,), with decays λγ on leaving; horizon rows have zero as ratio and in `ones`."""
        most_one = np.minimum(coefficients, 1.0)
        three = [
            _sums(ratios, ones, coefficients, decay),
            _sums(ones, weights, most_one, decay),
            _sums(ones, ones, most_one, decay),
        ]
        return cls(bool((ratios != ones).any()), *(np.array(sums) for sums in zip(*three, strict=True)))

    def with_transition(self, ratio: float, coefficient: float, weight: float, decay: float) -> SampleSums:
        """Return the sums with one more full transition."""
        row = (np.array([value]) for value in (ratio, coefficient, weight, decay, 1.0))
        return self.then(SampleSums.of_transitions(*row))

    @np.errstate(all="ignore")
    def then(self, later: SampleSums) -> SampleSums:
        """Return the sums of this chunk and the next one."""
        M = self.step
        return SampleSums(
            self.off_policy or later.off_policy,
            later.step @ M,
            self.weight + (later.weight[:, np.newaxis] @ M)[:, 0],
            self.square + M.transpose(0, 2, 1) @ later.square @ M,
        )

    def closed(self) -> SampleSums:
        """Return the sums with the end of the chunk as the end of an episode."""
        return replace(self, step=self.step * [[1.0], [0.0], [0.0]])

    @np.errstate(all="ignore")
    def scaled(self, factor: float) -> SampleSums:
        """Return the sums with all weights times `factor`."""
        step, weight, square = self.step.copy(), self.weight.copy(), self.square.copy()
        of_v = np.array([factor, factor, 1.0])
        step[1, 2] *= of_v
        weight[1] *= factor
        square[1] *= np.outer(of_v, of_v)
        return SampleSums(self.off_policy, step, weight, square)

    @property
    @np.errstate(all="ignore")
    def size(self) -> Array:
        """Effective sample sizes, (3,), in the order of the class; NaN if not known or beyond floats."""
        return np.asarray(self.weight[:, 0] ** 2 / self.square[:, 0, 0])


def merged(one: SampleSums | None, two: SampleSums | None) -> SampleSums | None:
    """Return the sums of two chunks; sizes are not known if only one of them has ratios or weights."""
    if one is not None and two is not None:
        return one.then(two)
    known = one or two
    return known and replace(known, step=np.nan * known.step, weight=np.nan * known.weight)


def _sums(ratios: Array, weights: Array, coefficients: Array, decay: Array) -> tuple[Array, Array, Array]:
    """Return M, w and K of rows, at least none."""
    step, weight, square = np.eye(3), np.zeros(3), np.zeros((3, 3))
    rows = (np.ascontiguousarray(column, dtype=np.float64) for column in (ratios, weights, coefficients, decay))
    sample_sums(*rows, step, weight, square)
    return step, weight, square
