"""Sums of lags: what the values of the next h steps need of the data, for all h up to a horizon H.

With Γ_{t,k} the product of the discounts of rows t, …, t+k−1, zero across ends, sums over full rows t of weight w_t

    b_k = Σ w_t Γ_{t,k} φ_t r_{t+k+1},   C_k = Σ w_t Γ_{t,k} φ_t φ_{t+k}ᵀ over full rows t+k,   H_k over horizon rows,

for k < H, determine the weights for every trace decay λ and ridge coefficient α: with G_{t,h} the λ-return of the next
h steps, which a horizon row completes by its prediction for the steps that are left,

    θ_h = (C_0 + αI)⁻¹ Σ_t w_t φ_t G_{t,h}
        = (C_0 + αI)⁻¹ Σ_{k<h} λᵏ [b_k + ((1−λ) C_{k+1} + H_{k+1}) θ_{h−1−k}],   θ_0 = 0.

Sums of independent data add. A pair of rows belongs to the chunk of its later row, so consecutive chunks add as well
once the later one has seen the last H rows of the earlier one. Value of horizon h: De Asis et al. (2020), arXiv
1909.03906; a least-squares solution: Duan, Jia and Wang (2020), arXiv 2002.09516.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count, islice, pairwise
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd.data.feature_arrays import Features, dense, rows_of
from lstd.data.follow import follows, in_group
from lstd.data.identity import Identity
from lstd.data.rows import Record, Rows
from lstd.errors import InvalidInputError
from lstd.statistics.blocks import BlockList
from lstd.statistics.solve import Solution, check_range
from lstd.statistics.system import System
from lstd.statistics.threads import one_blas_thread
from lstd.types import Array, Flags

_WIDTH = 128  # columns of a product at a time
_ROWS = 4096  # at a time
_CONSTANT = 2.0**-40  # share of the mean square of a column that is rounding


@dataclass(frozen=True, eq=False)
class LagSums(Record):
    """Sums of lags; n features with the column of ones, m rewards, horizon H.

    Attributes
    ----------
    full : ndarray of shape (H, n, n + m)
        C_k, and beside it b_k.
    cut : ndarray of shape (H, n, n)
        H_k; zero at k = 0.
    weight : float
        Sum of the weights of full rows.
    n_full : int
        Number of full rows.
    square : ndarray of shape (m,)
        Weighted sum of squared rewards.
    filled : ndarray of shape (n,)
        Weight of the full rows in which each column, before its centre is subtracted, is not zero.
    """

    full: Annotated[Array, "H k c"]
    cut: Annotated[Array, "H k k"]
    weight: float
    n_full: int
    square: Annotated[Array, "m"]
    filled: Annotated[Array, "k"]

    @classmethod
    def zero(cls, horizon: int, n: int, m: int) -> LagSums:
        """Return the sums of no data."""
        return cls.of(
            full=np.zeros((horizon, n, n + m)),
            cut=np.zeros((horizon, n, n)),
            weight=0.0,
            n_full=0,
            square=np.zeros(m),
            filled=np.zeros(n),
        )

    def less(self, other: LagSums) -> LagSums:
        """Return the sums without those of a part of the data."""
        return self.plus(other, -1.0)

    def plus(self, other: LagSums, sign: float = 1.0) -> LagSums:
        """Return the sums with those of other data, or with the sign −1 without them."""
        return LagSums.of(
            full=self.full + sign * other.full,
            cut=self.cut + sign * other.cut,
            weight=self.weight + sign * other.weight,
            n_full=self.n_full + int(sign) * other.n_full,
            square=self.square + sign * other.square,
            filled=self.filled + sign * other.filled,
        )

    def only(self, kept: Flags) -> LagSums:
        """Return the sums of some of the columns, (n,)."""
        m = self.full.shape[2] - len(kept)
        with_rewards = np.append(kept, np.ones(m, np.bool_))
        return self.changed(
            full=self.full[:, kept][:, :, with_rewards],
            cut=self.cut[:, kept][:, :, kept],
            filled=self.filled[kept],
        )

    def system(self, lmbda: float, ridge: Array, penalty: Array, *, intercept: bool) -> System:
        """Return the normal equations, with C_0 as their matrix, of λᵏ [(1−λ) C_{k+1} + H_{k+1}, b_k] for all k.

        `ridge` and `penalty` (n,) are those of :class:`lstd.statistics.system.System`.
        """
        n = self.full.shape[1]
        summed = self.full[0, :, :n]
        gram = 0.5 * (summed + summed.T)  # symmetric but for rounding
        right = np.hstack([*self.decayed(lmbda)])
        return System.of_regression(gram, right, ridge, penalty=penalty, intercept=intercept)

    @np.errstate(over="ignore", invalid="ignore")
    def check_range(self) -> None:
        """Raise InvalidInputError unless the sums, and those of any part, are in the range of float64."""
        arrays = (self.full, self.cut, self.square, np.array(self.weight))
        check_range(*(2.0 * array for array in arrays))  # a part is the difference of two such sums

    def decayed(self, lmbda: float) -> Array:
        """Return λᵏ [(1−λ) C_{k+1} + H_{k+1}, b_k], (H, n, n + m)."""
        horizon, n, _ = self.full.shape
        completed = (1.0 - lmbda) * self.full[1:, :, :n] + self.cut[1:]
        ahead = np.vstack([completed, np.zeros((1, n, n))])  # nothing completes the longest lag
        rewards = self.full[:, :, n:]
        terms = np.concatenate([ahead, rewards], axis=2)
        decay = lmbda ** np.arange(horizon)
        return np.asarray(terms * decay[:, np.newaxis, np.newaxis])

    def units(self, centre: Array | None, *, intercept: bool) -> Units:
        """Return the units of the features, without the column of ones that an `intercept` adds.

        `centre` (n,) was subtracted from the features before they were summed.
        """
        n = len(self.filled) - intercept
        if not self.weight > 0.0:
            return Units(np.ones(n), np.zeros(n))
        square = self.full[0].diagonal()[:n] / self.weight  # about the centre
        about_zero = square
        about_mean = square
        if intercept:
            mean = self.full[0, :n, n] / self.weight  # less the centre
            about_mean = square - mean**2
            if centre is not None:
                about_zero = square + centre * (2.0 * mean + centre)
        share = self.filled[:n] / self.weight
        is_rare = share < 0.5
        mean_square = np.where(is_rare, about_zero, about_mean)
        varies = mean_square > np.maximum(_CONSTANT * square, _CONSTANT**2 * about_zero)
        rows = np.where(is_rare & (share > 0.0), share, 1.0)
        return Units(np.where(varies, mean_square / rows, 1.0), mean_square)


class Units(NamedTuple):
    """Units of features; n features.

    Attributes
    ----------
    spread : ndarray of shape (n,)
        Squared spread: the mean square over the rows that are not zero, where they are fewer than half; else the
        variance, about zero without an intercept; 1 for constant columns.
    square : ndarray of shape (n,)
        Mean square over all rows, about zero where fewer than half of them are not zero; else about the mean, or about
        zero without an intercept.
    """

    spread: Array
    square: Array


class _Span(NamedTuple):
    """Rows `first` to `end` − 1, whose pairs are of the sums at a place in a list."""

    place: int
    first: int
    end: int


@np.errstate(over="ignore", invalid="ignore")  # `solve` reports overflow
def lag_sums(rows: Rows, horizon: int, edges: Sequence[int]) -> list[LagSums]:
    """Sum the pairs of rows whose later row is between two consecutive `edges`, for each two; checked rows.

    A centre is subtracted, and the column of ones appended, a batch at a time. A last row that did not terminate counts
    as a horizon row.
    """
    between = [LagSums.zero(horizon, rows.n_features, rows.y.shape[1]) for _ in edges[1:]]
    with one_blas_thread():
        for spans in _batches(edges, max(_ROWS, horizon)):
            _add_pairs(between, rows, spans)
        return [_counted(sums, rows, first, end) for sums, (first, end) in zip(between, pairwise(edges), strict=True)]


def _batches(edges: Sequence[int], size: int) -> Iterator[list[_Span]]:
    """Yield the rows between each two edges, up to `size` at a time: some short spans, or a chunk of a long one."""
    batch: list[_Span] = []
    for place, (first, end) in enumerate(pairwise(edges)):
        for start in range(first, end, size):
            span = _Span(place, start, min(start + size, end))
            if batch and span.end - batch[0].first > size:
                yield batch
                batch = []
            batch.append(span)
    if batch:
        yield batch


def _counted(sums: LagSums, rows: Rows, first: int, end: int) -> LagSums:
    """Return sums with what they need of the rows `first` to `end` − 1 alone."""
    full = rows.full[first:end]
    weight = rows.weight[first:end] * full
    n_given = rows.X.shape[1]
    sums.filled[:n_given] = weight @ (rows_of(rows.X, slice(first, end)) != 0.0)
    sums.filled[n_given:] = weight.sum()
    return sums.changed(
        weight=float(weight.sum()),
        n_full=int(full.sum()),
        square=weight @ rows.y[first:end] ** 2,
    )


def _add_pairs(between: Sequence[LagSums], rows: Rows, spans: Sequence[_Span]) -> None:
    """Add the pairs whose later row u is in a span to the sums of that; spans follow one another; s lags at a time.

    With E_v = [w φ_v, w Γ φ_{v−1}, …, w Γ φ_{v−s+1}], Σ_u E_{u−k} Γ_{u−k,k} [φ_u, r_{u+1}]ᵀ has lags k to k + s − 1.
    """
    horizon, n, _ = between[0].full.shape
    first = spans[0].first
    ends = np.flatnonzero(rows.last[max(0, first - horizon + 1) : first][::-1])
    before = min(first, horizon - 1)  # rows of the same episode
    if len(ends):
        before = int(ends[0])
    origin = first - before
    batch = rows.taken(slice(origin, spans[-1].end))
    discount = np.where(batch.last, 0.0, batch.discount)
    phi = _features(batch)
    s = 1
    if isinstance(phi, np.ndarray):
        s = max(1, min(horizon, _WIDTH // n))
    earlier = _shifted(_scaled(phi, batch.weight), discount, s)  # E_v of each row
    right = _beside(phi, batch.y)

    def add(goal: Array, k: int, rows_before: Any, rows_after: Any, weight: Array) -> None:
        """Add the pairs of some rows and of those k to k + s − 1 rows before to the sums of these lags."""
        if not weight.any():
            return
        lags = goal[k : k + s]
        added = dense(earlier[rows_before].T @ _scaled(right[rows_after], weight)).reshape(s, n, -1)
        lags += added[: len(lags), :, : lags.shape[2]]

    last_k = (horizon - 1) // s * s
    for k, factor in islice(enumerate(_products(discount)), 0, last_k + 1, s):
        of_full = factor * batch.full
        is_cut = ~batch.full & (factor != 0.0)
        for place, start, stop in spans:
            sums = between[place]
            u = max(start - origin, k)
            end = stop - origin
            add(sums.full, k, slice(u - k, end - k), slice(u, end), of_full[u:end])
            cut = np.flatnonzero(is_cut[u:end]) + u
            add(sums.cut, k, cut - k, cut, factor[cut])
            if k == 0:
                sums.cut[0] = 0.0
        if not factor[before:].any():
            break


def completed(rows: Rows) -> Rows:
    """Return rows whose features are less their centre, with the column of ones if there is an intercept."""
    return rows.changed(X=_features(rows), appended=0, centre=None)


def _features(rows: Rows) -> Features:
    """Return features less their centre, with the column of ones if there is an intercept."""
    if not rows.appended:
        return rows.X
    if rows.centre is None and sparse.issparse(rows.X):
        return rows.with_ones().X
    phi = np.ones((len(rows), rows.n_features))
    phi[:, :-1] = dense(rows.X)
    if rows.centre is not None:
        phi[:, :-1] -= rows.centre
    return phi


def _shifted(weighted: Features, discount: Array, s: int) -> Features:
    """Return w φ of each row and of the s − 1 rows before it, times the product of discounts between, (T, s n)."""
    if s == 1:
        return weighted
    n_rows, n = weighted.shape
    shifted = np.zeros((n_rows, s, n))
    for b, factor in zip(range(min(s, n_rows)), _products(discount), strict=False):
        np.multiply(weighted[: n_rows - b], factor[b:, np.newaxis], out=shifted[b:, b])
    return shifted.reshape(n_rows, -1)


def _products(discount: Array) -> Iterator[Array]:
    """Yield the products of the discounts of the k rows before each row, (T,), for k = 0, 1, …"""
    n_rows = len(discount)
    products = np.ones(n_rows)
    for k in count(1):
        yield products
        later = np.zeros(n_rows)
        np.multiply(products[k:], discount[: max(0, n_rows - k)], out=later[k:])  # of rows with k rows before
        products = later


def _scaled(phi: Features, weight: Array) -> Features:
    """Return rows times their weights."""
    if (weight == 1.0).all():
        return phi
    column = weight[:, np.newaxis]
    if isinstance(phi, np.ndarray):
        return phi * column
    return phi.multiply(column).tocsr()


def _beside(phi: Features, y: Array) -> Features:
    """Return features with the rewards beside them."""
    if isinstance(phi, np.ndarray):
        return np.hstack([phi, y])
    return sparse.hstack([phi, y], format="csr")


# ------------------------------------------------------------ blocks of a stream


@dataclass(frozen=True, eq=False)
class LagStatistics(Record):
    """Sums of lags over a stream, and the rows that later rows of the stream need.

    Attributes
    ----------
    sums : LagSums
        Without the last row of an episode that may go on.
    last : Rows or None
        The last rows of the last episode, up to the horizon, which pairs with later rows need; of one that terminated
        the last row alone. None without data, and at the end of a block within the stream, where all rows are in the
        sums.
    n_rows, n_episodes : int
        Rows, and episodes begun.
    n_groups : int or None
        Groups begun; None without groups.
    """

    sums: LagSums
    last: Rows | None = None
    n_rows: int = 0
    n_episodes: int = 0
    n_groups: int | None = None

    def __post_init__(self) -> None:
        n = self.sums.full.shape[1]
        if self.last is not None and self.last.n_features != n:
            raise InvalidInputError(f"`last` must be rows of {n} features; got {self.last.n_features}.")

    @property
    def horizon(self) -> int:
        """The longest horizon."""
        return len(self.sums.full)

    @cached_property
    @np.errstate(over="ignore", invalid="ignore")  # `check_range` reports overflow
    def closed(self) -> LagSums:
        """The sums if the stream ends here: its last row is a horizon row."""
        rows = self.last
        if rows is None or rows.terminated[-1]:
            return self.sums
        (of_last_row,) = lag_sums(rows, self.horizon, [len(rows) - 1, len(rows)])
        return self.sums.plus(of_last_row)

    def continued_by(self, first: Rows) -> bool:
        """Return whether the first of the next rows is of the last episode; raises InvalidInputError as `follows`."""
        return self.last is not None and follows(self.last, first)

    def shares_group_with(self, first: Rows) -> bool:
        """Return whether this first of the next rows is of the group of the last row; also without groups."""
        return self.last is not None and in_group(self.last, first)

    def named(self, episode: Identity | None) -> LagStatistics:
        """Return the sums with the id of this key for the last episode; None for rows without ids."""
        if self.last is None:
            return self.changed(last=None)
        return self.changed(last=self.last.named(episode))

    @np.errstate(over="ignore", invalid="ignore")  # `check_range` reports overflow
    def totals(
        self, rows: Rows, at: Iterable[int] = (), *, goes_on: bool | None = None, threads: int | None = None
    ) -> list[LagStatistics]:
        """Return the sums before each of the next rows `at`, and after all; in one thread, whatever `threads` is.

        `goes_on` says whether the rows continue the last episode, if that is known. Raises InvalidInputError when they
        may not follow the last row.
        """
        if goes_on is None:
            goes_on = self.continued_by(rows)
        n_episodes = self.n_episodes + (not goes_on)
        n_groups = None
        if rows.groups is not None:
            n_groups = (self.n_groups or 0) - self.shares_group_with(rows)
            starts = np.flatnonzero(rows.begins)

        def after(end: int, sums: LagSums, last: Rows | None) -> LagStatistics:
            """Return the statistics before the next row `end`."""
            n_groups_then = None
            if n_groups is not None:
                n_groups_then = n_groups + int(np.searchsorted(starts, end))
            return LagStatistics.of(
                sums=sums,
                last=last,
                n_rows=self.n_rows + end,
                n_episodes=n_episodes + int(np.count_nonzero(rows.last[: max(0, end - 1)])),
                n_groups=n_groups_then,
            )

        both = rows
        sums = self.closed
        n_before = 0  # rows of the last episode, of which the last one is not in the sums
        if self.last is not None and goes_on:
            both = _joined(self.last, rows)
            sums = self.sums
            n_before = len(self.last)
        starts_of_chunks = list(at)
        end = len(both) - (not both.terminated[-1])
        edges = [max(0, n_before - 1), *(n_before + start for start in starts_of_chunks), end]
        between = lag_sums(both, self.horizon, edges)
        between.reverse()  # so that each is freed when it is added
        chunks = []
        for start in starts_of_chunks:
            sums = sums.plus(between.pop())
            chunks.append(after(start, sums, None))
        sums = sums.plus(between.pop())
        return [*chunks, after(len(rows), sums, _last_rows(both, self.horizon))]


@dataclass(frozen=True, eq=False)
class LagBlocks(BlockList[LagStatistics]):
    """Blocks of the sums of lags. A pair of rows belongs to the block of its later row."""

    total: LagStatistics
    limit: int
    prefixes: tuple[LagStatistics, ...] = ()

    @classmethod
    def empty(cls, horizon: int, n: int, m: int, limit: int) -> LagBlocks:
        """Return the blocks of no data of n features and m rewards, at most `limit`."""
        return cls(LagStatistics(LagSums.zero(horizon, n, m)), limit)

    @property
    def horizon(self) -> int:
        """The longest horizon."""
        return self.total.horizon

    @property
    def in_one_block(self) -> LagBlocks:
        """The same stream in one block, of which further data make no others."""
        return self.changed(limit=0, prefixes=(), size=1, seen=None)

    @property
    def weights(self) -> Array:
        """Weight of the full rows in each block, (n_blocks,)."""
        until = [self.until(e).closed.weight for e in range(self.n_blocks)]
        return np.diff([0.0, *until])

    def own(self, e: int) -> LagSums:
        """Return the sums of block e alone, if the stream ends here."""
        return self._own(e, _closed)

    def named(self, episode: Identity | None) -> LagBlocks:
        """Return the blocks with the id of this key for the last episode; None for rows without ids."""
        return self.changed(total=self.total.named(episode))

    def _check(self, total: LagStatistics, rows: Rows) -> None:
        total.closed.check_range()


def _closed(statistics: LagStatistics) -> LagSums:
    return statistics.closed


def _joined(last: Rows, rows: Rows) -> Rows:
    """Return the last rows of an episode and the rows that continue it as one chunk."""
    n_before = len(last)
    ends = np.append(last.last, rows.last)
    ends[n_before - 1] = False
    ids = {name: _preceded(getattr(rows, name), n_before) for name in ("episode", "groups")}
    return Rows.joined((last, rows), last=ends, **ids)


def _preceded(ids: NDArray[Any] | None, n_before: int) -> NDArray[Any] | None:
    """Return the ids of rows, and before them as many of the first one."""
    if ids is None:
        return None
    before = ids[:1].repeat(n_before)
    return np.concatenate([before, ids])


def _last_rows(rows: Rows, horizon: int) -> Rows:
    """Return the last rows of the last episode, up to the horizon; the last one alone if it terminated."""
    first = len(rows) - 1
    if not rows.terminated[-1]:
        (ends,) = rows.last[:-1].nonzero()
        begin = ends.max(initial=-1) + 1  # of the last episode
        first = max(begin, len(rows) - horizon)
    return rows.kept(slice(first, len(rows)))


# ------------------------------------------------------------ weights


@dataclass(frozen=True, eq=False)
class HorizonSolution(Record):
    """The weights of all horizons as a linear recursion, θ_h = Σ_{k<h} (c_k + K_k θ_{h−1−k}).

    Attributes
    ----------
    constants : ndarray of shape (H, n, m)
    matrices : ndarray of shape (n, H n)
        K_0, K_1, … side by side.
    system : System
        The normal equations of all horizons, which have one matrix.
    accuracy : Solution
        How accurate the solution of the system is, without its weights.
    """

    constants: Array
    matrices: Array
    system: System
    accuracy: Solution

    @classmethod
    def of_system(cls, system: System, horizon: int) -> HorizonSolution:
        """Solve for the constants and matrices; one factorisation serves all horizons.

        `system` is that of :meth:`LagSums.system`.
        """
        n = len(system.A)
        solution = system.solve()
        solved = solution.weights.reshape(n, horizon, -1)
        return cls.of(
            accuracy=replace(solution, weights=np.empty((n, 0))),
            constants=solved[:, :, n:].transpose(1, 0, 2),
            matrices=np.ascontiguousarray(solved[:, :, :n]).reshape(n, horizon * n),
            system=system,
        )

    def warn_of_condition(self, warned: frozenset[str]) -> frozenset[str]:
        """Give an IllConditionedWarning if the system is singular or nearly so; see :meth:`System.warn_of_condition`.

        A fault that is named in `warned` is not said again. Returns the names with that of the fault, if any.
        """
        return self.system.warn_of_condition(self.accuracy, warned)

    def run(self, added: Array | None = None) -> Array:
        """Return the weights θ_1, …, θ_H, (H, n, m); or, with `added` (H, n, m) in place of Σ c_k, what follows."""
        right = added
        if right is None:
            right = np.cumsum(self.constants, axis=0)
        (weights,) = weights_of_recursions(right[np.newaxis], self.matrices[np.newaxis])
        return np.asarray(weights)


@np.errstate(over="ignore", invalid="ignore")  # `check_range` reports overflow
def weights_of_recursions(right: Array, matrices: Array) -> Array:
    """Return the weights of E recursions, (E, H, n, m), from Σ c_k, (E, H, n, m), and K_0, K_1, …, (E, n, H n).

    Raises InvalidInputError when they overflow.
    """
    n_recursions, horizon, n, m = right.shape
    backwards = np.zeros((n_recursions, (horizon + 1) * n, m))  # θ_H, …, θ_1, θ_0
    for h in range(1, horizon + 1):
        place = (horizon - h) * n
        later = backwards[:, place + n : place + n + h * n]  # θ_{h−1}, …, θ_0
        backwards[:, place : place + n] = right[:, h - 1] + matrices[:, :, : h * n] @ later
    longest_first = backwards[:, : horizon * n].reshape(n_recursions, horizon, n, m)
    weights = np.ascontiguousarray(longest_first[:, ::-1])
    check_range(weights)
    return weights
