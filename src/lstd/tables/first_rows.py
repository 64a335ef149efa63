"""The first rows of a stream, in a bounded amount of memory, for what cannot be computed chunk by chunk."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstd.data.check_rows import check_rows
from lstd.data.rows import Rows
from lstd.errors import InvalidInputError
from lstd.tables.row_reader import Chunk
from lstd.tables.table_errors import overflow_at

_FEWEST_ROWS = 64


class Sample:
    """Gather rows up to `max_entries` features in all; whole episodes, if that leaves at least half of the rows.

    With `ones`, a column of ones is the last feature. It is added in place: a copy of all rows would take as much
    memory again.
    """

    def __init__(self, n_features: int, n_rewards: int, max_entries: int, *, ones: bool = False) -> None:
        limit = max(_FEWEST_ROWS, max_entries // (n_features + ones))
        self._n_features = n_features
        self._X = np.empty((limit, n_features + ones))
        self._y = np.empty((limit, n_rewards))
        self._episode = np.empty(limit, dtype=np.int64)
        self._terminated = np.empty(limit, dtype=np.bool_)
        self._others: dict[str, list[NDArray[Any]]] = {}  # by argument
        self._n = 0
        self._chunks: list[tuple[int, str, int, tuple[str, ...]]] = []  # row here, and file, row there, columns
        self.is_full = False  # there was no room for a row

    def __len__(self) -> int:
        return self._n

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features; none without rows."""
        return self._chunks[0][3][: self._n_features] if self._chunks else ()

    def add(self, chunk: Chunk) -> None:
        """Add the rows of the next chunk until the sample is full."""
        if self.is_full:
            return
        size = min(len(chunk), len(self._X) - self._n)
        self._chunks.append((self._n, chunk.file, chunk.first, chunk.names))
        rows = slice(self._n, self._n + size)
        self._X[rows, : self._n_features] = chunk.X[:size]
        self._X[rows, self._n_features :] = 1.0
        self._y[rows], self._episode[rows] = chunk.y[:size], chunk.episode[:size]
        self._terminated[rows] = chunk.terminated[:size]
        others = {"groups": chunk.groups, "X_next": chunk.X_next, **chunk.transitions}
        if chunk.X_next is not None and self._X.shape[1] > self._n_features:
            others["X_next"] = np.column_stack([chunk.X_next, np.ones(len(chunk))])
        for name, values in others.items():
            if values is not None:
                self._others.setdefault(name, []).append(values[:size])
        self._n += size
        if size < len(chunk):
            self.is_full = True
            self._drop_part_of_episode(int(chunk.episode[size]))

    def _drop_part_of_episode(self, following: int) -> None:
        """Drop the last episode if the row of episode `following` continues it, unless too little would be left."""
        if following != self._episode[self._n - 1]:
            return
        first = int(np.searchsorted(self._episode[: self._n], following))
        if 2 * first >= self._n:
            self._n = first

    @property
    def columns(self) -> dict[str, NDArray[Any]]:
        """Arrays by their names as arguments of `fit`; X has the column of ones."""
        y = self._y[:, 0] if self._y.shape[1] == 1 else self._y
        columns = {"X": self._X, "y": y, "episode": self._episode, "terminated": self._terminated}
        columns |= {name: np.concatenate(values) for name, values in self._others.items()}
        return {name: values[: self._n] for name, values in columns.items()}

    def checked(self, gamma: float) -> Rows:
        """Return the rows as the data contract has them."""
        columns: dict[str, Any] = self.columns
        return check_rows(**columns, gamma=gamma, warn=False, finite=False)

    def overflow(self, error: InvalidInputError) -> InvalidInputError:
        """Return the error for sums that overflow, with the chunk of the largest value; `error` if none is large."""
        ends = [first for first, *_ in self._chunks[1:]] + [self._n]
        largest, worst = 1e150, error
        for (row, file, first, names), end in zip(self._chunks, ends, strict=True):
            if row < end:
                values = np.column_stack([self._X[row:end, : self._n_features], self._y[row:end]])
                if (size := np.nanmax(np.abs(values), initial=0.0)) > largest:
                    largest, worst = size, overflow_at(file, first, values, names, error)
        return worst
