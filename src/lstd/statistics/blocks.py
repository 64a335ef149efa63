"""Sums over a stream in blocks of the data, which intervals need.

A block is a number of consecutive groups, of episodes without groups, or of rows while the data is one episode. Blocks
are kept as prefix sums: the sums over all rows up to the end of each block, so that a block's own sums are the
difference of two of them. :class:`BlockList` is for sums of any kind, here of LSTD, and in
:mod:`lstd.statistics.horizon_sums` of horizons. Tables are summed in pieces that end where :class:`Layout` says, and
then joined to the same list.

In one pass over a stream, all blocks but the last have the same size, a power of two. It doubles, and every second
prefix sum is dropped, when there would be more blocks than a limit. So memory is bounded, and where blocks end depends
on the data only, not on its chunks. Streams that were summed apart have blocks of their own; :meth:`Blocks.then` keeps
those, and joins the smallest neighbours if they are too many.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from lstd.data.arguments import check_integer, shown
from lstd.data.follow import begins_of_units, unit_goes_on
from lstd.data.ids import not_contiguous
from lstd.data.rows import Record, Rows
from lstd.data.seen_ids import SeenIds, groups_seen
from lstd.errors import InvalidInputError
from lstd.statistics.adding import CHUNK_WORK
from lstd.statistics.merging import LSTDStatistics, check_sums
from lstd.statistics.system import Equations, System
from lstd.statistics.threads import one_blas_thread

_MOST = 64  # blocks: more would narrow the intervals by 2 %, 32 would widen them by 6 %
MOST_OF_ROWS = 28  # blocks of one episode: short ones depend on their neighbours
_FEWEST = 10  # blocks that are worth their memory
_BYTES = 2**28  # of all prefix sums
_TINY_WORK = 2**18  # products for which the BLAS starts no thread


@dataclass(frozen=True)
class Layout:
    """Where the blocks of a stream end, which depends only on the lengths of its episodes.

    Attributes
    ----------
    limit : int
        Largest number of blocks; zero for none.
    n_rows, n_episodes : int
        Rows, and groups or episodes, of the stream so far.
    size, by_episode, largest
        As in :class:`Blocks`.
    """

    limit: int
    n_rows: int = 0
    n_episodes: int = 0
    size: int = 1
    by_episode: bool = False
    largest: Annotated[float, (0.0, np.inf)] = np.inf

    def extended(self, begins: NDArray[np.bool_], *, grouped: bool = False) -> tuple[Layout, list[int]]:
        """Return the layout with the next chunk, and the rows of the chunk with which a new block begins.

        `begins` (T,), T at least 1, are the first rows of groups, if the rows are `grouped`, or of episodes.
        """
        n_rows = self.n_rows + len(begins)
        n_episodes = self.n_episodes + int(np.count_nonzero(begins))
        by_episode = self.by_episode or grouped or n_episodes > 1
        size = self.size
        if by_episode and not self.by_episode:
            size = 1
        layout = Layout(self.limit, n_rows, n_episodes, size, by_episode, self.largest)
        if not self.limit:
            return layout, []
        before = self.n_rows
        count = n_rows
        if by_episode:
            before = self.n_episodes
            count = n_episodes
        while (count - 1) // size >= layout.most and 2 * size * n_rows <= self.largest * count:
            size *= 2
        first = -before % size  # unit of the chunk with which a block begins
        if not before:
            first = size
        if first >= count - before:
            starts = []
        elif by_episode:
            starts = np.flatnonzero(begins)[first::size].tolist()
        else:
            starts = list(range(first, len(begins), size))
        return Layout(self.limit, n_rows, n_episodes, size, by_episode, self.largest), starts[-layout.most :]

    def step_from(self, earlier: Layout, n_blocks: int) -> int:
        """Return how many of the `n_blocks` of an earlier layout of the stream make one block of this layout."""
        if self.by_episode == earlier.by_episode:
            return self.size // earlier.size
        return n_blocks  # of rows, before the second episode began

    @property
    def most(self) -> int:
        """Largest number of blocks."""
        return self.limit if self.by_episode else min(self.limit, MOST_OF_ROWS)


class StreamSums(Protocol):
    """Sums over a stream, which its next rows extend."""

    @property
    def n_rows(self) -> int:
        """Number of rows."""

    @property
    def n_episodes(self) -> int:
        """Number of episodes begun."""

    @property
    def n_groups(self) -> int | None:
        """Number of groups begun; None without groups."""

    @property
    def last(self) -> Rows | None:
        """The last rows of the stream, from which the next ones go on; None if there are none."""

    def continued_by(self, first: Rows) -> bool:
        """Return whether the next rows, of which this is the first, continue the last episode."""

    def shares_group_with(self, first: Rows) -> bool:
        """Return whether this first of the next rows is of the group of the last row; also without groups."""

    def totals(
        self, rows: Rows, at: Iterable[int] = (), *, goes_on: bool | None = None, threads: int | None = None
    ) -> Iterable[Self]:
        """Return the sums before some of the next rows, among them those `at`, and after all."""


class Subtractable(Protocol):
    """Sums of which a part is the difference of two."""

    def less(self, other: Self) -> Self:
        """Return the sums without those of a part of the data."""


S = TypeVar("S", bound=StreamSums)
D = TypeVar("D", bound=Subtractable)


@dataclass(frozen=True, eq=False)
class BlockList(Record, Generic[S]):
    """Sums over a stream, and its prefix sums at the ends of blocks.

    Attributes
    ----------
    total : StreamSums
        Sums over the whole stream.
    limit : int
        Largest number of blocks, at most 28 for one episode; zero for none.
    prefixes : tuple of StreamSums
        Sums up to the end of each block but the last, in time order.
    size : int
        Groups, episodes or rows in a block, a power of two. The last block may have fewer; merged blocks have about as
        many.
    reason : str
        Why there are no blocks, if there are none.
    seen : SeenIds, optional
        The groups so far.
    largest : float
        Rows beyond which blocks of one pass do not grow: the oldest two are joined instead, for sums that forget.
    """

    total: S
    limit: int
    prefixes: tuple[S, ...] = ()
    size: int = 1
    reason: str = ""
    seen: SeenIds | None = None
    largest: Annotated[float, (0.0, np.inf)] = np.inf

    @property
    def by_episode(self) -> bool:
        """Whether blocks consist of groups or episodes; else of rows of one episode."""
        return self.total.n_groups is not None or self.total.n_episodes > 1

    @property
    def unit(self) -> str:
        """What blocks consist of: "groups", "episodes" or "rows"."""
        if self.total.n_groups is not None:
            return "groups"
        return "episodes" if self.by_episode else "rows"

    @property
    def layout(self) -> Layout:
        """Where the blocks end."""
        count = self.total.n_groups or self.total.n_episodes
        return Layout(self.limit, self.total.n_rows, count, self.size, self.by_episode, self.largest)

    @property
    def n_blocks(self) -> int:
        """Number of blocks."""
        return len(self.prefixes) + 1

    def until(self, e: int) -> S:
        """Return the sums up to the end of block e."""
        if e == len(self.prefixes):
            return self.total
        return self.prefixes[e]

    def _own(self, e: int, part: Callable[[S], D]) -> D:
        """Return the sums of block e alone; `part` returns, of sums up to the end of a block, those that add up."""
        sums = part(self.until(e))
        if e == 0:
            return sums
        return sums.less(part(self.until(e - 1)))

    def _each(self, part: Callable[[S], D]) -> Iterator[D]:
        """Yield what :meth:`_own` returns for each block, in less time."""
        before = part(self.until(0))
        yield before
        for e in range(1, self.n_blocks):
            until = part(self.until(e))
            yield until.less(before)
            before = until

    def count(self, sums: S) -> int:
        """Return the number of groups, episodes or rows in sums."""
        return int(getattr(sums, f"n_{self.unit}"))

    @abstractmethod
    def _check(self, total: S, rows: Rows) -> None:
        """Raise InvalidInputError if the sums with the last `rows` overflow."""

    def extended(self, rows: Rows, *, goes_on: bool | None = None, threads: int | None = None) -> Self:
        """Return the blocks with the next rows of the stream, at least one, which are checked.

        `goes_on` says whether the rows continue the last episode, if that is known.

        Raises
        ------
        InvalidInputError
            When the chunk does not fit the stream, or the sums overflow.
        """
        total = self.total
        if total.n_rows:
            if goes_on is None:
                goes_on = total.continued_by(rows)
            rows = rows.changed(place=total.n_rows)
        begins = begins_of_units(total.last, rows, bool(goes_on))
        layout, starts = self.layout.extended(begins, grouped=rows.groups is not None)
        # Starting the threads of the BLAS takes longer than the sums of a short block; of a tiny one, it starts none.
        work = len(rows) * rows.n_features**2
        short = len(starts) * _TINY_WORK < work < len(starts) * CHUNK_WORK
        with one_blas_thread() if short else nullcontext():
            later = total.totals(rows, starts, goes_on=goes_on, threads=threads)
            return self._continued(rows, later, layout, starts)

    def _continued(self, rows: Rows, later: Iterable[S], layout: Layout, starts: Sequence[int]) -> Self:
        """Return the blocks with the next rows; `later` are the sums of the stream after each chunk of them."""
        total = self.total
        n_before = total.n_rows
        seen = self.seen
        if rows.groups is not None:
            seen = groups_seen(rows, seen, continues=n_before > 0 and total.shares_group_with(rows))
        step = layout.step_from(self.layout, self.n_blocks)
        prefixes = self.prefixes[step - 1 :: step]
        for after in later:
            if starts and total.n_rows - n_before in starts and after.n_rows > total.n_rows:
                prefixes = (*prefixes, total)
            total = after
        self._check(total, rows)
        kept = prefixes[max(0, len(prefixes) + 1 - layout.most) :]
        return self.changed(total=total, prefixes=kept, size=layout.size, seen=seen)


@dataclass(frozen=True, eq=False)
class Blocks(BlockList[LSTDStatistics]):
    """Blocks of the sums of LSTD."""

    total: LSTDStatistics
    limit: int
    prefixes: tuple[LSTDStatistics, ...] = ()

    @property
    def shares(self) -> NDArray[np.float64]:
        """Share of the groups, episodes, or rows of one episode, in each block, shape (n_blocks,).

        They count by the mean weight of the block's transitions.
        """
        until = (*self.prefixes, self.total)
        ends = [self.count(statistics) for statistics in until]
        if not ends[-1]:
            return np.empty(0)
        counts = np.diff([0, *ends])
        transitions = np.diff([0, *(statistics.n_transitions for statistics in until)])
        weights = np.diff([0.0, *(statistics.total_weight for statistics in until)])
        mean_weight = np.divide(weights, transitions, out=np.ones(len(counts)), where=transitions > 0)
        size = counts * mean_weight
        return np.asarray(size / (size.sum() or 1.0))

    @property
    def marks(self) -> NDArray[np.uint64]:
        """What identifies each block, (n_blocks, 4): counts of rows and of episodes begun, and marks of both kinds.

        The last is that of rewards and weights: two blocks of the same rows may differ in it.
        """
        until = [
            (sums.n_rows, sums.counts.mark, sums.n_episodes, sums.counts.reward_mark)
            for sums in (*self.prefixes, self.total)
        ]
        marks = np.array([(0, 0, 0, 0), *until], dtype=np.uint64)
        return np.asarray(marks[1:] - marks[:-1])

    def own(self, e: int, system: System) -> Equations:
        """Return A, (n, n), and b, (n, m), of block e alone, for the weights of the system of all blocks.

        Within one episode the trace runs across the ends of blocks, which cut nothing off: these sums are Boyan's.
        """
        return self._own(e, partial(self._equations, system))

    def each(self, system: System) -> Iterator[Equations]:
        """Yield what :meth:`own` returns for each block."""
        return self._each(partial(self._equations, system))

    def _equations(self, system: System, until: LSTDStatistics) -> Equations:
        """Return A and b of the data up to the end of a block."""
        if until is self.total:
            return Equations(system.A, system.b)
        return system.of_part(until, cuts_end=self.by_episode)

    def _check(self, total: LSTDStatistics, rows: Rows) -> None:
        check_sums(total, rows)

    def extended(self, rows: Rows, *, goes_on: bool | None = None, threads: int | None = None) -> Self:
        """Return the blocks with the next chunk of the stream, checked rows whose features may hold NaN and inf.

        `goes_on` says whether the rows continue the last episode, if that is known.

        Raises
        ------
        InvalidInputError
            When the chunk does not fit the stream, a feature is NaN or infinite, or the sums overflow.
        """
        if len(rows):
            return super().extended(rows, goes_on=goes_on, threads=threads)
        total = self.total
        return self.changed(total=total.then(LSTDStatistics.from_rows(rows, total.lmbda)))

    def joined(self, rows: Rows, later: Iterable[LSTDStatistics], layout: Layout, starts: Sequence[int]) -> Blocks:
        """Return the blocks with the next rows; `later` are their :meth:`LSTDStatistics.totals`, alone, at `starts`.

        These are the rows where :meth:`Layout.extended` says that blocks begin. Raises as :meth:`extended` does.
        """
        return self._continued(rows, map(self.total.merged, later), layout, starts)

    def then(self, later: Blocks, *, begins: bool | None = None) -> Blocks:
        """Return the blocks of this stream followed by a later one, which was summed apart.

        Blocks end where they ended in the two streams, and between the two unless a group or an episode continues
        there.

        Parameters
        ----------
        later : Blocks
            Blocks with the same limit.
        begins : bool, optional
            Whether `later` begins with a new episode; by default the episode ids say so.
        """
        one = self.total
        two = later.total
        if not one.n_rows:
            return later.changed(total=one.then(two))
        if not two.n_rows:
            return self.changed(total=one.then(two))
        if begins is None:
            begins = two.first is None or not one.continued_by(two.first)
        both = self.changed(total=one.then(two, begins=begins), prefixes=(), size=1)
        goes_on = unit_goes_on(one.last, two.first, not begins)
        if self.seen is not None and later.seen is not None:
            shared = None
            if goes_on and two.first is not None:
                shared = two.first.first_group
            seen, again = self.seen.then(later.seen, shared)
            if again is not None:
                raise not_contiguous("groups", again)
            both = both.changed(seen=seen)
        if not self.limit:
            return both
        before = [*self._prefixes_in(both)]
        others = later._prefixes_in(both)
        start = both.count(one)  # groups, episodes or rows before the later stream
        if goes_on and both.by_episode:
            start -= 1
        else:
            before.append(one)
        ends = [both.count(prefix) for prefix in before]
        ends += [start + both.count(prefix) for prefix in others]
        ends.append(both.count(both.total))
        prefixes = []
        for i in _kept(ends, both.layout.most):
            if i < len(before):
                prefixes.append(before[i])
            else:
                prefixes.append(one.merged(others[i - len(before)], begins=begins))
        return both._resized(prefixes)

    def _prefixes_in(self, both: Blocks) -> tuple[LSTDStatistics, ...]:
        """Return the prefix sums that end blocks of a longer stream; none at rows, if its blocks are of episodes."""
        return self.prefixes if self.by_episode == both.by_episode else ()

    def scaled(self, factor: float) -> Blocks:
        """Return the blocks of the same rows with their weights times `factor`."""
        return self.changed(total=factor * self.total, prefixes=tuple(factor * prefix for prefix in self.prefixes))

    def _resized(self, prefixes: Sequence[LSTDStatistics]) -> Blocks:
        """Return blocks with these prefix sums; further data is cut into blocks of about their size."""
        size = 2 ** ((self.count(self.total) // (len(prefixes) + 1)).bit_length() - 1)
        return self.changed(prefixes=tuple(prefixes), size=max(1, size))


def _kept(ends: Sequence[int], most: int) -> list[int]:
    """Return which ends but the last remain if the smallest neighbours are joined until `most` blocks are left."""
    kept = list(range(len(ends)))
    while len(kept) > most:
        edges = [0, *(ends[i] for i in kept)]
        pairs = [later - earlier for earlier, later in zip(edges, edges[2:], strict=False)]
        del kept[int(np.argmin(pairs))]
    return kept[:-1]


def default_limit(n_features: int, n_bytes: int = _BYTES) -> int:
    """Return how many blocks fit in `n_bytes`: each takes two matrices of float64."""
    affordable = min(_MOST, n_bytes // (16 * max(1, n_features) ** 2))
    if affordable < _FEWEST:
        return 0
    return affordable


def no_blocks(rows: Rows, lmbda: float, n_blocks: int | str) -> Blocks:
    """Return blocks of no data, for data like `rows`; `n_blocks` is that of `empty_blocks`."""
    return empty_blocks(LSTDStatistics.empty_like(rows, lmbda), n_blocks)


def check_n_blocks(n_blocks: object) -> int | str:
    """Return `n_blocks` if it is "auto" or an integer, at least 0, or raise InvalidInputError."""
    if not isinstance(n_blocks, str):
        return check_integer("n_blocks", n_blocks, 0)
    if n_blocks != "auto":
        raise InvalidInputError(f'`n_blocks` must be "auto" or an integer, at least 0; got {shown(n_blocks)}.')
    return n_blocks


def empty_blocks(nothing: LSTDStatistics, n_blocks: int | str, n_bytes: int = _BYTES) -> Blocks:
    """Return blocks of no data.

    Parameters
    ----------
    nothing : LSTDStatistics
        Statistics of no data.
    n_blocks : int or "auto"
        As in :class:`lstd.LSTD`.
    n_bytes : int
        Memory of all blocks with "auto".

    Raises
    ------
    InvalidInputError
        When `n_blocks` breaks its rule.
    """
    checked = check_n_blocks(n_blocks)
    if not isinstance(checked, str):
        return Blocks(nothing, checked)
    limit = default_limit(nothing.n_features, n_bytes)
    return Blocks(nothing, limit, reason="" if limit else _too_many(nothing.n_features, n_bytes))


def _too_many(n_features: int, n_bytes: int) -> str:
    needed = 16 * n_features**2 * _FEWEST / 2**20
    remedy = "Give more memory"
    if n_bytes == _BYTES:  # of a model in memory, whose user can set the number
        remedy = f"Set `n_blocks` to {_FEWEST} or more"
    return (
        f"Intervals of {n_features} weights need at least {needed:.3g} MB for blocks of the data; "
        f'`n_blocks="auto"` may take {n_bytes >> 20} MB. {remedy}, or fit fewer features.'
    )
