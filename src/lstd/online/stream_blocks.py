"""Sums of a stream up to the ends of blocks, in bounded memory, from which standard errors follow.

Blocks are those of :mod:`lstd.statistics.blocks`: of one episode, k · size rows, with the size doubled and every second
sum dropped when there are too many; of several, whole episodes of at least `size` transitions. With forgetting, blocks
stop growing at an eighth of 1/(1 − f) transitions, and the oldest two are joined instead.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstd.data.arguments import check_integer
from lstd.errors import InvalidInputError
from lstd.statistics.blocks import MOST_OF_ROWS, default_limit
from lstd.statistics.covariance import FEWEST_BLOCKS, BlockSums, Influence, influence_from
from lstd.types import Array

BYTES = 2**25  # of all sums, with "auto"
_SHORTEST = 64  # rows of a block: shorter ones depend on their neighbours, and would be dropped soon


class StreamBlocks:
    """Sums A, b, at the ends of blocks.

    Parameters
    ----------
    n_features : int
    n_blocks : int or "auto"
        Largest number of blocks, 0 for none; "auto" for 64, or as few as fit in 32 MiB, and at least 10.
    forgetting : float
    """

    def __init__(self, n_features: int, n_blocks: Any, forgetting: float) -> None:
        if isinstance(n_blocks, str) and n_blocks == "auto":
            self.limit = default_limit(n_features, BYTES)
        else:
            self.limit = check_integer("n_blocks", n_blocks, 0)
        self._n_blocks, self._forgetting = n_blocks, forgetting
        self.size = 1 << max(2 * n_features - 1, _SHORTEST - 1).bit_length()
        self._largest = np.inf if forgetting == 1.0 else max(self.size, 1.0 / (8.0 * (1.0 - forgetting)))
        self.ends: list[int] = []  # transitions up to the end of each block but the last
        self.matrices: list[Array] = []  # (n, n), Aᵀ, of Boyan for one episode
        self.moments: list[Array] = []  # (m, n)
        self.by_episode = False

    def __copy__(self) -> StreamBlocks:
        other = object.__new__(StreamBlocks)
        other.__dict__.update(vars(self))
        other.ends, other.matrices, other.moments = [*self.ends], [*self.matrices], [*self.moments]
        return other

    def __deepcopy__(self, memo: Any) -> StreamBlocks:
        return copy.copy(self)  # arrays are never written to

    @property
    def next_end(self) -> int:
        """Transition from which on a block may end; 0 for none. The next row is the first of the next block."""
        if not self.limit:
            return 0
        last = self.ends[-1] if self.ends else 0
        return last + self.size if self.by_episode else (last + 1) // self.size * self.size + self.size - 1

    def add(self, n_updates: int, transposed: Array, b: Array, episodes: int) -> None:
        """Add the sums up to now: the transpose of A (n, n), and b (m, n)."""
        if episodes and not self.by_episode:
            self.by_episode, self.ends, self.matrices, self.moments = True, [], [], []
        self.ends.append(n_updates)
        self.matrices.append(transposed)
        self.moments.append(b)
        if len(self.ends) < (self.limit if self.by_episode else min(self.limit, MOST_OF_ROWS)):
            return
        first, step = (1, 2) if self.size < self._largest else (1, 1)
        self.size *= step
        self.ends, self.matrices, self.moments = (
            self.ends[first::step], self.matrices[first::step], self.moments[first::step]
        )  # fmt: skip

    def scale(self, factor: float) -> None:
        """Multiply the sums by a factor."""
        self.matrices, self.moments = ([factor * one for one in held] for held in (self.matrices, self.moments))

    def influence(self, A: Array, b: Array, weights: Array, ridge: Array, now: int, solver: Any) -> Influence:
        """Compute the influence of each block on the weights (n, m), of sums up to transition `now`.

        Raises InvalidInputError when there are too few blocks.
        """
        kept = [i for i, end in enumerate(self.ends) if end < now]
        if len(kept) + 1 < FEWEST_BLOCKS:
            raise InvalidInputError(self._too_few(len(kept) + 1))
        sums = BlockSums(
            A, b, lambda e: self.matrices[kept[e]].T, [self.moments[i].T for i in kept],
            self._shares([self.ends[i] for i in kept], now), now,
        )  # fmt: skip
        return influence_from(sums, weights, ridge, solver=solver)

    def _shares(self, ends: list[int], now: int) -> Array:
        """Return the share of each block in the weights of transitions."""
        rows = np.array([0, *ends, now], dtype=np.float64)
        if not self.by_episode:
            rows[1:] += 1.0  # the row whose transition is open
        if self._forgetting < 1.0:
            rows = self._forgetting ** (rows[-1] - rows)
        return np.asarray(np.diff(rows) / (rows[-1] - rows[0]))

    def _too_few(self, found: int) -> str:
        if self.limit < 2 * FEWEST_BLOCKS:
            return (
                f"Standard errors need `n_blocks` of at least {2 * FEWEST_BLOCKS}; the model keeps {self.limit}. Make "
                "it again with a larger `n_blocks`, or with fewer features."
            )
        unit = "whole episodes of " if self.by_episode else ""
        return (
            f"Standard errors need at least {FEWEST_BLOCKS} blocks of the stream, {unit}{self.size} transitions each; "
            f"there are {found}. Learn from more transitions."
        )

    def packed(self, n: int, m: int) -> dict[str, NDArray[Any]]:
        """Return arrays for a snapshot, of n features and m rewards."""
        about = [-1.0 if self._n_blocks == "auto" else float(self.limit), float(self.size), float(self.by_episode)]
        return {
            "blocks": np.array([*about, *self.ends], dtype=np.float64),
            "block_matrices": np.array(self.matrices).reshape(len(self.ends), n, n),
            "block_moments": np.array(self.moments).reshape(len(self.ends), m, n),
        }

    def unpack(self, arrays: Any) -> None:
        """Go on from arrays of `packed`."""
        self.size, self.by_episode = int(arrays["blocks"][1]), bool(arrays["blocks"][2])
        self.ends = arrays["blocks"][3:].astype(int).tolist()
        self.matrices, self.moments = [*arrays["block_matrices"].copy()], [*arrays["block_moments"].copy()]
