"""The first rows of tables, which are kept while the tables are read, for all that sums do not show."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstd.data.episodes import Followed
from lstd.data.rows import Rows
from lstd.data.time_steps import steps_since_earliest
from lstd.tables.reader import Chunk, RowReader, times_of

REPORT_ENTRIES = 2**20  # features of the rows of a report, 8 MiB
_FEWEST_ROWS = 64
_NO_LIMIT = 2**62


class FirstRows:
    """The first rows of tables, up to so many features in all; whole episodes, if that leaves at least half.

    Parameters
    ----------
    max_entries : int
        Features in all. There is room for 64 rows, however little it is.
    max_rows : int, optional
        Rows in all, if they are fewer.
    ones : bool, default False
        Whether a column of ones is the last feature. It is added in place: a copy of all rows would take as much memory
        again.
    independent : bool, default False
        Whether each table begins a new episode.
    """

    def __init__(
        self, max_entries: int, max_rows: int = _NO_LIMIT, *, ones: bool = False, independent: bool = False
    ) -> None:
        self.is_full = False  # there was no room for a row
        self._max_entries = max_entries
        self._max_rows = max_rows
        self._ones = ones
        self._independent = independent
        self._X = np.empty((0, 0))
        self._n_rows = 0  # in X
        self._parts: list[Rows] = []  # without features
        self._chunks: list[Chunk] = []  # without rows, of these numbers of them
        self._sizes: list[int] = []
        self._reader: RowReader | None = None  # the last one
        self._first_number = 0  # of its episodes
        self._divided = False  # whether the last episode goes on after the rows kept

    def add(self, reader: RowReader, chunk: Chunk) -> Chunk:
        """Add the next rows of a reader as far as there is room.

        Returns the chunk; its features share the memory of these rows, if there was room for all.
        """
        rows = chunk.rows
        if self.is_full or not len(rows):
            return chunk
        if self._chunks and chunk.columns != self._chunks[0].columns:
            return chunk  # which is refused where the tables meet
        if reader is not self._reader:
            self._begin(reader)

        n = rows.X.shape[1]
        if not self._parts:
            self._X = self._room(n + self._ones)
        first = self._n_rows
        size = min(len(rows), len(self._X) - first)
        self._X[first : first + size, :n] = rows.X[:size]
        self._X[first : first + size, n:] = 1.0
        self._n_rows += size
        self._chunks.append(chunk._replace(rows=rows.taken(slice(0))))
        self._sizes.append(len(rows))
        self._parts.append(self._without_features(rows, size))
        if size == len(rows):
            return chunk._replace(rows=rows.changed(X=self._X[first : first + size, :n]))
        self.is_full = True
        self._divided = self._number(rows, size) == self._last_number
        return chunk

    def _begin(self, reader: RowReader) -> None:
        """Number the episodes of the next table on."""
        if self._reader is not None:
            before: Followed = self._reader.episodes.state
            goes_on = not self._independent and before.continued_by(reader.episodes.state)
            self._first_number = self._last_number + (not goes_on)
        self._reader = reader

    def _room(self, n_columns: int) -> NDArray[np.float64]:
        """Return memory for the features of as many rows as the limits allow."""
        n_rows = min(self._max_rows, self._max_entries // n_columns)
        return np.empty((max(_FEWEST_ROWS, n_rows), n_columns))

    def _without_features(self, rows: Rows, size: int) -> Rows:
        """Return the first rows of a chunk with an empty array of features, and their episodes numbered on."""
        if self._ones and rows.X_next is not None:
            rows = rows.with_ones()
        part = rows.taken(slice(size))
        return part.changed(X=self._X[:0], episode=np.asarray(part.episode) + self._first_number)

    def _number(self, rows: Rows, row: int) -> int:
        """Return the number of a row's episode."""
        assert rows.episode is not None
        return int(rows.episode[row]) + self._first_number

    @property
    def _last_number(self) -> int:
        """Number of the episode of the last row that was added."""
        episodes = [part.episode for part in self._parts if part.episode is not None and len(part)]
        return int(episodes[-1][-1])

    def __len__(self) -> int:
        """Return the number of rows: without those of a divided episode, if that leaves at least half."""
        if not self._divided:
            return self._n_rows
        n_divided = sum(int(np.count_nonzero(part.episode == self._last_number)) for part in self._parts)
        n_whole = self._n_rows - n_divided
        if 2 * n_whole < self._n_rows:
            return self._n_rows
        return n_whole

    @property
    def rows(self) -> Rows | None:
        """The rows, whose episodes are numbered; None if there are none."""
        if not self._parts:
            return None
        rows = Rows.joined(self._parts, X=self._X, intercept=self._ones).taken(slice(len(self)))
        times = self._times
        if times is None:
            return rows
        return rows.changed(time=steps_since_earliest(times, rows.last))

    @property
    def _times(self) -> NDArray[Any] | None:
        """Times of the rows, if there are any."""
        times = times_of(self._chunks)
        if times is None:
            return None
        return times[: len(self)]

    def named(self) -> dict[str, NDArray[Any] | None]:
        """Return ids of episodes as text and times of the rows, if there are any."""
        found: dict[str, NDArray[Any] | None] = {"ids": None, "time": None}
        if not self._parts:
            return found
        n_rows = len(self)
        found["time"] = self._times
        ids = [chunk.ids.per_row(size) for chunk, size in zip(self._chunks, self._sizes, strict=True) if chunk.ids]
        if ids:
            found["ids"] = np.concatenate([part.astype(str) for part in ids])[:n_rows]
        else:
            numbers = np.concatenate([np.asarray(part.episode) for part in self._parts])[:n_rows]
            found["ids"] = np.array([f"no. {number + 1}" for number in numbers])
        return found
