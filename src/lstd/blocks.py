"""A stream's statistics with marks along the way: what each stretch of the data adds, for intervals.

A mark is the statistics of all that came before it; the sums over a stretch are the difference of the marks at its
ends. Marks are set after every 1, 2, 4, … episodes, or rows as long as the data is one episode; when there are more
stretches than a limit, every second mark is dropped. So memory is bounded, nothing but sums is kept, and where the
marks stand depends on the data only, not on the chunks it came in.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstd._rows import Rows
from lstd._validation import check_integer
from lstd.errors import InvalidInputError
from lstd.statistics import LSTDStatistics, check_sums, pieces_of

_MOST = 64  # stretches: more narrow the intervals by 2 %, half as many widen them by 6 %
_MOST_ROWS = 28  # stretches of one stream: scores of short ones depend on their neighbours'
_FEWEST = 10  # stretches that are worth their memory
_BYTES = 2**28  # of all marks together


@dataclass(frozen=True, eq=False)
class Blocks:
    """Statistics of a stream, and of its beginnings up to each mark.

    Attributes
    ----------
    total : LSTDStatistics
        Of the whole stream.
    marks : tuple of LSTDStatistics
        Of its beginnings, in the order of time: `size` units, twice `size`, and so on.
    size : int
        Units in a stretch, a power of two; the last stretch may have fewer.
    by_episode : bool
        A unit is an episode; else a row, while the data is one episode.
    limit : int
        Most stretches that are told apart, of one episode at most 28; zero when none are.
    """

    total: LSTDStatistics
    limit: int
    marks: tuple[LSTDStatistics, ...] = ()
    size: int = 1
    by_episode: bool = False

    @property
    def shares(self) -> NDArray[np.float64]:
        """Share of the units that each stretch has, shape (n_stretches,)."""
        count = self.total.n_episodes if self.by_episode else self.total.n_rows
        return np.diff([*range(0, count, self.size), count]) / max(1, count)

    def extended(self, rows: Rows) -> Blocks:
        """With the next chunk of the stream, its rows checked by `check_rows` but for NaN and inf among the features.

        Raises
        ------
        InvalidInputError
            When the chunk does not fit the stream, a feature is NaN or infinite, or the sums overflow.
        """
        total = self.total
        if not self.limit or not len(rows):
            return replace(self, total=total.then(LSTDStatistics.from_rows(rows, total.lmbda)))
        unit, before, by_episode = self._units(rows)
        alike = by_episode == self.by_episode
        size = self.size if alike else 1
        while unit[-1] // size >= (self.limit if by_episode else min(self.limit, _MOST_ROWS)):
            size *= 2
        marks = [*self.marks[size // self.size - 1 :: size // self.size]] if alike else []
        starts = np.flatnonzero(np.diff(unit // size, prepend=max(0, before) // size)).tolist()
        row = 0
        with np.errstate(over="ignore", invalid="ignore"):  # `check_sums` looks at what comes out
            for piece in pieces_of(rows, total.lmbda, starts):
                if row in starts:
                    marks.append(total)
                total = total.then(piece)
                row += piece.n_rows
        check_sums(total, rows)
        return Blocks(total, self.limit, tuple(marks), size, by_episode)

    def _units(self, rows: Rows) -> tuple[NDArray[np.intp], int, bool]:
        """Number of each row's unit, of the unit before them, and whether units are episodes."""
        total = self.total
        begins = np.concatenate([[not total.goes_on_with(rows.first_episode, rows.X_next is not None)], rows.last[:-1]])
        episode = total.n_episodes - 1 + np.cumsum(begins)
        if self.by_episode or episode[-1] > 0:
            return episode, total.n_episodes - 1, True
        return total.n_rows + np.arange(len(rows)), total.n_rows - 1, False


def default_limit(n_features: int) -> int:
    """As many stretches as their memory, 16 bytes times the number of features squared each, is worth."""
    affordable = min(_MOST, _BYTES // (16 * max(1, n_features) ** 2))
    return affordable if affordable >= _FEWEST else 0


def no_blocks(rows: Rows, lmbda: float, n_blocks: Any) -> Blocks:
    """Blocks of no data, for data like these rows; `n_blocks` as of :class:`lstd.LSTD`."""
    nothing = LSTDStatistics.empty(rows.n_features, rows.y.shape[1], gamma=rows.gamma, lmbda=lmbda, single=rows.single)
    if isinstance(n_blocks, str) and n_blocks == "auto":
        return Blocks(nothing, default_limit(rows.n_features))
    if isinstance(n_blocks, str):
        raise InvalidInputError(f'`n_blocks` must be "auto" or an integer, at least 0; got {n_blocks!r}.')
    return Blocks(nothing, check_integer("n_blocks", n_blocks, 0))
