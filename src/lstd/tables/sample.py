"""The first rows of a stream, in memory of a fixed size, for what cannot be computed chunk by chunk."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lstd.data.rows import Rows, check_rows
from lstd.tables.row_reader import Chunk

Array = NDArray[np.float64]

_FEWEST_ROWS = 64


class Sample:
    """Gather rows until it is full; whole episodes where that leaves at least half of the rows.

    Parameters
    ----------
    n_features, n_rewards : int
    max_entries : int
        Most features in all, 8 bytes each. The system provides memory as rows come.
    ones : bool
        Add a column of ones as the last feature, in place: a copy of all rows would take as much memory again.
    """

    def __init__(self, n_features: int, n_rewards: int, max_entries: int, *, ones: bool = False) -> None:
        limit = max(_FEWEST_ROWS, max_entries // (n_features + ones))
        self._n_features = n_features
        self._X = np.empty((limit, n_features + ones))
        self._y = np.empty((limit, n_rewards))
        self._episode = np.empty(limit, dtype=np.int64)
        self._terminated = np.empty(limit, dtype=np.bool_)
        self._n = 0
        self.is_full = False  # a row had no place

    def __len__(self) -> int:
        return self._n

    def add(self, chunk: Chunk) -> None:
        """Add the rows of the next chunk until the sample is full."""
        if self.is_full:
            return
        size = min(len(chunk), len(self._X) - self._n)
        rows = slice(self._n, self._n + size)
        self._X[rows, : self._n_features] = chunk.X[:size]
        self._X[rows, self._n_features :] = 1.0
        self._y[rows], self._episode[rows] = chunk.y[:size], chunk.episode[:size]
        self._terminated[rows] = chunk.terminated[:size]
        self._n += size
        if size < len(chunk):
            self.is_full = True
            self._drop_part_of_episode(int(chunk.episode[size]))

    def _drop_part_of_episode(self, following: int) -> None:
        """Drop the last episode if the row that had no place goes on with it, unless too little would be left."""
        if following != self._episode[self._n - 1]:
            return
        first = int(np.searchsorted(self._episode[: self._n], following))
        if 2 * first >= self._n:
            self._n = first

    @property
    def X(self) -> Array:  # noqa: N802
        """Features, shape (T, n), with the column of ones."""
        return self._X[: self._n]

    @property
    def y(self) -> Array:
        """Rewards, shape (T, m), or (T,) when there is one."""
        return self._y[: self._n, 0] if self._y.shape[1] == 1 else self._y[: self._n]

    @property
    def episode(self) -> NDArray[np.int64]:
        """Numbers of the episodes."""
        return self._episode[: self._n]

    @property
    def terminated(self) -> NDArray[np.bool_]:
        """Whether the successor of a row is terminal."""
        return self._terminated[: self._n]

    def checked(self, gamma: float) -> Rows:
        """Return the rows as the data contract has them."""
        return check_rows(
            self.X, self.y, gamma=gamma, episode=self.episode, terminated=self.terminated, warn=False, finite=False
        )
