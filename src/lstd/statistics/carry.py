"""What joins the sums over a chunk to those before and after it: its carry and its last row.

The quantities are defined in :mod:`lstd.statistics.merging`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from lstd.data.rows import ReadOnly
from lstd.types import Array


@dataclass(frozen=True, eq=False)
class Carry(ReadOnly):
    """Changes that a trace u which enters a chunk makes to its sums; it leaves the chunk as decay · u."""

    decay: float
    matrix: Annotated[Array, "n"]  # A += u matrixᵀ
    boundary: Annotated[Array, "n"]  # B += u boundaryᵀ
    rewards: Annotated[Array, "m"]  # b += u rewardsᵀ
    first: Annotated[Array, "n"]  # φ_0, which the weight before the chunk multiplies; zero if a successor was given
    first_cut: bool  # whether φ_0 is in the boundary, not in the matrix

    @classmethod
    def of_nothing(cls, n: int, m: int, decay: float) -> Carry:
        """Return the carry of no rows (decay 1), or of data that no trace enters (decay 0)."""
        return cls(decay, np.zeros(n), np.zeros(n), np.zeros(m), np.zeros(n), False)

    def after(self, weight: float) -> Carry:
        """Return the carry after a row of this weight in place of 1."""
        if weight == 1.0:
            return self
        change = (weight - 1.0) * self.first
        if self.first_cut:
            return self.changed(boundary=self.boundary + change)
        return self.changed(matrix=self.matrix - change)

    def then(self, later: Carry) -> Carry:
        """Return the carry of this chunk followed by the next one, which is `after` this chunk's last weight."""
        d = self.decay
        return self.changed(
            decay=d * later.decay,
            matrix=self.matrix + d * later.matrix,
            boundary=self.boundary + d * later.boundary,
            rewards=self.rewards + d * later.rewards,
        )

    def scaled(self, factor: float) -> Carry:
        """Return the carry of the chunk with its weights times a factor; the weight before it stays 1."""
        scaled = {name: factor * getattr(self, name) for name in ("matrix", "boundary", "rewards")}
        return self.changed(**scaled).after(2.0 - factor)  # the terms of w₋ = 1, ∓φ_0, were scaled too: undo that


@dataclass(frozen=True, eq=False)
class Pending(ReadOnly):
    """The last row of a stream that did not terminate: a transition if the stream continues, else a horizon row."""

    phi: Annotated[Array, "n"]  # its features; with successors given, those of its successor
    reward: Annotated[Array, "m nan"]
    missing: bool  # the reward is NaN
    ratio: float
    discount: float
    complete: bool  # successors were given: the transition is in the sums, and only its boundary term is open
    coefficient: float
    weight: float
