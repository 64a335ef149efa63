"""The two edges of a stream of data, where its sums are joined to those of other chunks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class ReadOnly:
    """Base of dataclasses whose arrays cannot be written to, nor those of their copies and pickles."""

    def __post_init__(self) -> None:
        for value in vars(self).values():
            if isinstance(value, np.ndarray):
                value.flags.writeable = False

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__post_init__()


@dataclass(frozen=True, eq=False)
class Carry(ReadOnly):
    """Changes that a trace u which enters a chunk makes to its sums; it leaves the chunk as decay · u."""

    decay: float
    matrix: Array  # (n,); A += u matrixᵀ
    boundary: Array  # (n,); B += u boundaryᵀ
    rewards: Array  # (m,); b += u rewardsᵀ

    @classmethod
    def of_nothing(cls, n: int, m: int, decay: float) -> Carry:
        """Return the carry of no rows (decay 1), or of data that no trace enters (decay 0)."""
        return cls(decay, np.zeros(n), np.zeros(n), np.zeros(m))

    def then(self, later: Carry) -> Carry:
        """Return the carry of this chunk followed by the next one."""
        d = self.decay
        return Carry(
            decay=d * later.decay,
            matrix=self.matrix + d * later.matrix,
            boundary=self.boundary + d * later.boundary,
            rewards=self.rewards + d * later.rewards,
        )


@dataclass(frozen=True, eq=False)
class Pending(ReadOnly):
    """The last row of a stream that did not terminate: a transition if the stream continues, else a horizon row."""

    phi: Array  # (n,) its features; with successors given, those of its successor
    reward: Array  # (m,)
    missing: bool  # the reward is NaN
    ratio: float
    discount: float
    complete: bool  # successors were given: the transition is in the sums, and only its boundary term is open
