"""The sums over a stream in blocks of the data, which intervals need.

A mark holds the sums over all rows before it; the sums over a block are the difference of the marks at its ends. Marks
are set after every 1, 2, 4, … episodes, or rows as long as the data is one episode; when there are more blocks than a
limit, every second mark is dropped. So memory is bounded, and where the marks are depends on the data only, not on its
division into chunks. Parts of a stream that are summed apart have marks of their own, which :meth:`Blocks.then` merges.
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
from lstd.statistics.statistics import LSTDStatistics, check_sums, chunk_statistics
from lstd.statistics.threads import one_blas_thread

_MOST = 64  # blocks: more would narrow the intervals by 2 %, 32 would widen them by 6 %
_MOST_ROWS = 28  # blocks of one episode: scores of short ones depend on their neighbours'
_FEWEST = 10  # blocks that are worth their memory
_BYTES = 2**28  # of all marks together


@dataclass(frozen=True)
class Layout:
    """Where the marks of a stream are, which depends only on the lengths of its episodes.

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
    """Sums over a stream, and over its beginning up to each mark.

    Attributes
    ----------
    total : LSTDStatistics
        Of the whole stream.
    marks : tuple of LSTDStatistics
        Of its beginnings, in the order of time: of `size` units, twice `size`, and so on.
    size : int
        Units in a block, a power of two; the last block may have fewer, those of merged parts have other sizes.
    by_episode : bool
        A unit is an episode; else a row, while the data is one episode.
    limit : int
        Most blocks, of one episode at most 28; zero for none.
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
        """Share of the units that each block has, shape (n_blocks,)."""
        counts = [self._count(statistics) for statistics in (*self.marks, self.total)]
        return np.diff([0, *counts] if counts[-1] else [0]) / max(1, counts[-1])

    def _count(self, statistics: LSTDStatistics) -> int:
        return statistics.n_episodes if self.by_episode else statistics.n_rows

    def extended(self, rows: Rows, *, threads: int | None = None) -> Blocks:
        """Return the blocks with the next chunk of the stream: rows of `check_rows`, which may have NaN and inf in `X`.

        Raises
        ------
        InvalidInputError
            When the chunk does not fit the stream, a feature is NaN or infinite, or the sums overflow.
        """
        total = self.total
        if not self.limit or not len(rows):
            return replace(self, total=total.then(LSTDStatistics.from_rows(rows, total.lmbda, threads=threads)))
        begins = np.concatenate([[not total.goes_on_with(rows.first_episode, rows.X_next is not None)], rows.last[:-1]])
        layout, starts = self.layout.extended(begins)
        with one_blas_thread():  # its threads take longer to meet than for the sums of a short block
            return self.joined(rows, chunk_statistics(rows, total.lmbda, starts, threads=threads), layout, starts)

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

    def then(self, later: Blocks, *, begins: bool | None = None) -> Blocks:
        """Return the blocks of this stream followed by a later part of it, whose blocks were cut apart.

        Blocks end where they ended in the two parts, and where these meet unless an episode goes on there; if there
        are more than the limit, the smallest neighbours are joined.

        Parameters
        ----------
        later : Blocks
            With the same limit.
        begins : bool, optional
            Whether `later` begins with a new episode; by default its episode ids say so.
        """
        one, two = self.total, later.total
        if not (one.n_rows and two.n_rows):
            one.then(two)  # checks that they fit
            return self if one.n_rows else later
        if begins is None:
            begins = not one.goes_on_with(two.first_episode, two.successors)

        def after(part: LSTDStatistics) -> LSTDStatistics:
            return replace(one, last_episode=0).then(replace(part, first_episode=int(begins)))

        total = after(two)
        both = Blocks(total, self.limit, by_episode=total.n_episodes > 1, reason=self.reason)
        if not self.limit:
            return both
        own, others = (part.marks if part.by_episode == both.by_episode else () for part in (self, later))
        start = both._count(one) - (both.by_episode and not begins)
        cuts = [(both._count(mark), mark, False) for mark in own]
        cuts += [(start, one, False)] if begins or not both.by_episode else []
        cuts += [(start + both._count(mark), mark, True) for mark in others]
        kept = _fewer([*(end for end, *_ in cuts), both._count(total)], both._most)
        return both._with_marks(
            [after(mark) if is_later else mark for _, mark, is_later in map(cuts.__getitem__, kept)]
        )

    def thinned(self, most: int) -> Blocks:
        """Return at most so many blocks; the smallest neighbours are joined."""
        counts = [self._count(statistics) for statistics in (*self.marks, self.total)]
        kept = _fewer(counts, most)
        return self if len(kept) == len(self.marks) else self._with_marks([self.marks[i] for i in kept])

    @property
    def _most(self) -> int:
        return self.limit if self.by_episode else min(self.limit, _MOST_ROWS)

    def _with_marks(self, marks: Sequence[LSTDStatistics]) -> Blocks:
        """Return blocks that end at these marks; further data is cut into blocks of about their size."""
        size = 2 ** ((self._count(self.total) // (len(marks) + 1)).bit_length() - 1)
        return replace(self, marks=tuple(marks), size=max(1, size))


def _fewer(ends: Sequence[int], most: int) -> list[int]:
    """Return which blocks' ends but the last are kept, if the smallest neighbours are joined to leave `most` blocks."""
    kept = list(range(len(ends)))
    while len(kept) > most:
        edges = [0, *(ends[i] for i in kept)]
        pairs = [later - earlier for earlier, later in zip(edges, edges[2:], strict=False)]
        del kept[int(np.argmin(pairs))]
    return kept[:-1]


def default_limit(n_features: int, n_bytes: int = _BYTES) -> int:
    """Return how many blocks fit in `n_bytes`, at 16 bytes times the number of features squared each."""
    affordable = min(_MOST, n_bytes // (16 * max(1, n_features) ** 2))
    return affordable if affordable >= _FEWEST else 0


def no_blocks(rows: Rows, lmbda: float, n_blocks: Any, n_bytes: int = _BYTES) -> Blocks:
    """Blocks of no data, for data like these rows; other arguments as of `empty_blocks`."""
    nothing = LSTDStatistics.empty(rows.n_features, rows.y.shape[1], gamma=rows.gamma, lmbda=lmbda, single=rows.single)
    return empty_blocks(nothing, n_blocks, n_bytes)


def empty_blocks(nothing: LSTDStatistics, n_blocks: Any, n_bytes: int = _BYTES) -> Blocks:
    """Return blocks of no data.

    Parameters
    ----------
    nothing : LSTDStatistics
        Of no data.
    n_blocks : int or "auto"
        As of :class:`lstd.LSTD`.
    n_bytes : int
        Memory of all blocks with "auto".

    Raises
    ------
    InvalidInputError
        When `n_blocks` breaks its rule.
    """
    if isinstance(n_blocks, str) and n_blocks == "auto":
        limit = default_limit(nothing.n_features, n_bytes)
        return Blocks(nothing, limit, reason="" if limit else _too_many(nothing.n_features, n_bytes))
    if isinstance(n_blocks, str):
        raise InvalidInputError(f'`n_blocks` must be "auto" or an integer, at least 0; got {n_blocks!r}.')
    return Blocks(nothing, check_integer("n_blocks", n_blocks, 0))


def _too_many(n_features: int, n_bytes: int) -> str:
    needed = 16 * n_features**2 * _FEWEST / 2**20
    remedy = f"Set `n_blocks` to {_FEWEST} or more" if n_bytes == _BYTES else "Give more memory"
    return (
        f"Intervals of {n_features} features need blocks of the data of {needed:.3g} MB at least, more than the "
        f'{n_bytes >> 20} MB of `n_blocks="auto"`. {remedy}, or fit fewer features.'
    )
