"""A stream's statistics with marks along the way: what each stretch of the data adds, for intervals.

A mark is the statistics of all that came before it; the sums over a stretch are the difference of the marks at its
ends. Marks are set after every 1, 2, 4, … episodes, or rows as long as the data is one episode; when there are more
stretches than a limit, every second mark is dropped. So memory is bounded, nothing but sums is kept, and where the
marks stand depends on the data only, not on the chunks it came in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstd.data.checks import check_integer
from lstd.data.rows import Rows
from lstd.errors import InvalidInputError
from lstd.statistics.statistics import LSTDStatistics, check_sums, pieces_of
from lstd.statistics.threads import one_blas_thread

_MOST = 64  # stretches: more narrow the intervals by 2 %, half as many widen them by 6 %
_MOST_ROWS = 28  # stretches of one stream: scores of short ones depend on their neighbours'
_FEWEST = 10  # stretches that are worth their memory
_BYTES = 2**28  # of all marks together


@dataclass(frozen=True)
class Layout:
    """Where the marks of a stream stand, which hangs on the lengths of its episodes and on nothing else.

    Attributes
    ----------
    limit, size, by_episode
        As of :class:`Blocks`.
    n_rows, n_episodes : int
        Of the stream so far.
    """

    limit: int
    n_rows: int = 0
    n_episodes: int = 0
    size: int = 1
    by_episode: bool = False

    def extended(self, begins: NDArray[np.bool_]) -> tuple[Layout, list[int]]:
        """With the next chunk, and its rows before which a mark is set.

        Parameters
        ----------
        begins : ndarray of shape (T,), T at least 1
            Which rows are the first of an episode.
        """
        n_rows, n_episodes = self.n_rows + len(begins), self.n_episodes + int(begins.sum())
        if not self.limit:
            return replace(self, n_rows=n_rows, n_episodes=n_episodes), []
        by_episode = self.by_episode or n_episodes > 1
        unit = self.n_episodes - 1 + np.cumsum(begins) if by_episode else self.n_rows + np.arange(len(begins))
        before = (self.n_episodes if by_episode else self.n_rows) - 1
        size = self.size if by_episode == self.by_episode else 1
        while unit[-1] // size >= (self.limit if by_episode else min(self.limit, _MOST_ROWS)):
            size *= 2
        starts = np.flatnonzero(np.diff(unit // size, prepend=max(0, before) // size)).tolist()
        return Layout(self.limit, n_rows, n_episodes, size, by_episode), starts


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
    reason : str
        Why no blocks are kept, where none are.
    """

    total: LSTDStatistics
    limit: int
    marks: tuple[LSTDStatistics, ...] = ()
    size: int = 1
    by_episode: bool = False
    reason: str = ""

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
        begins = np.concatenate([[not total.goes_on_with(rows.first_episode, rows.X_next is not None)], rows.last[:-1]])
        layout, starts = self.layout.extended(begins)
        with one_blas_thread():  # its threads take longer to meet than for the sums of a short stretch
            return self.joined(rows, pieces_of(rows, total.lmbda, starts), layout, starts)

    @property
    def layout(self) -> Layout:
        """Where the marks stand."""
        return Layout(self.limit, self.total.n_rows, self.total.n_episodes, self.size, self.by_episode)

    def joined(self, rows: Rows, pieces: Iterable[LSTDStatistics], layout: Layout, starts: Sequence[int]) -> Blocks:
        """With the next chunk in pieces that are summed already, cut where :meth:`Layout.extended` says.

        Raises as :meth:`extended` does.
        """
        step = layout.size // self.size if layout.by_episode == self.by_episode else 0
        marks = [*self.marks[step - 1 :: step]] if step else []
        total, row = self.total, 0
        with np.errstate(over="ignore", invalid="ignore"):  # `check_sums` looks at what comes out
            for piece in pieces:
                if row in starts:
                    marks.append(total)
                total = total.then(piece)
                row += piece.n_rows
        check_sums(total, rows)
        return Blocks(total, self.limit, tuple(marks), layout.size, layout.by_episode, self.reason)


def default_limit(n_features: int, n_bytes: int = _BYTES) -> int:
    """As many stretches as their memory, 16 bytes times the number of features squared each, is worth."""
    affordable = min(_MOST, n_bytes // (16 * max(1, n_features) ** 2))
    return affordable if affordable >= _FEWEST else 0


def no_blocks(rows: Rows, lmbda: float, n_blocks: Any) -> Blocks:
    """Blocks of no data, for data like these rows; `n_blocks` as of :class:`lstd.LSTD`."""
    nothing = LSTDStatistics.empty(rows.n_features, rows.y.shape[1], gamma=rows.gamma, lmbda=lmbda, single=rows.single)
    if isinstance(n_blocks, str) and n_blocks == "auto":
        return Blocks(nothing, default_limit(rows.n_features), reason=_too_many(rows.n_features))
    if isinstance(n_blocks, str):
        raise InvalidInputError(f'`n_blocks` must be "auto" or an integer, at least 0; got {n_blocks!r}.')
    return Blocks(nothing, check_integer("n_blocks", n_blocks, 0))


def _too_many(n_features: int) -> str:
    needed = 16 * n_features**2 * _FEWEST / 2**20
    return (
        f"Intervals of {n_features} features need blocks of the data of {needed:.3g} MB at least, more than the 256 MB "
        f'of `n_blocks="auto"`. Set `n_blocks` to {_FEWEST} or more, or fit fewer features.'
    )
