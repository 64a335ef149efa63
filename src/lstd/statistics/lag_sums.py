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

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstd.data.feature_arrays import Features, dense
from lstd.data.follow import StreamEnd
from lstd.data.ids import same_id
from lstd.data.rows import Record, Rows
from lstd.statistics.blocks import Layout
from lstd.statistics.solve import Solution, check_range, solve
from lstd.statistics.threads import one_blas_thread
from lstd.types import Array


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
    """

    full: Array
    cut: Array
    weight: float
    n_full: int
    square: Array

    @classmethod
    def zero(cls, horizon: int, n: int, m: int) -> LagSums:
        """Return the sums of no data."""
        full, cut = np.zeros((horizon, n, n + m)), np.zeros((horizon, n, n))
        return cls.of(full=full, cut=cut, weight=0.0, n_full=0, square=np.zeros(m))

    def plus(self, other: LagSums, sign: float = 1.0) -> LagSums:
        """Return the sums with those of other data, or with the sign −1 without them."""
        return LagSums.of(
            full=self.full + sign * other.full, cut=self.cut + sign * other.cut,
            weight=self.weight + sign * other.weight, n_full=self.n_full + int(sign) * other.n_full,
            square=self.square + sign * other.square,
        )  # fmt: skip


@np.errstate(over="ignore", invalid="ignore")  # `solve` reports overflow
def lag_sums(rows: Rows, horizon: int, edges: Sequence[int]) -> list[LagSums]:
    """Sum the pairs of rows whose later row is between two consecutive `edges`, for each two; checked rows.

    Dense `rows` have the column of ones already. A last row that did not terminate counts as a horizon row.
    """
    with one_blas_thread():
        return [_sums_of(rows, horizon, first, end) for first, end in pairwise(edges)]


def _sums_of(rows: Rows, horizon: int, first: int, end: int) -> LagSums:
    """Sum the pairs whose later row is one of `first` to `end` − 1."""
    sums, later = LagSums.zero(horizon, rows.n_features, rows.y.shape[1]), np.arange(first, end)
    full = rows.full_among(slice(first, end))
    weight = rows.weight[first:end][full]
    square = weight @ rows.y[first:end][full] ** 2
    sums = sums.changed(weight=float(weight.sum()), n_full=int(full.sum()), square=square)
    for chosen, out, y in ((later[full], sums.full, rows.y), (later[~full], sums.cut, None)):
        weighs, factor = np.ones(len(chosen), np.bool_), np.ones(len(chosen))
        for k in range(horizon):
            if k:  # one row further back, unless an episode ends there
                before = chosen - k
                weighs = before >= 0
                weighs &= ~rows.last[before]
                factor = factor * rows.discount[before]
                weighs &= factor != 0.0
                if not weighs.all():
                    chosen, factor = chosen[weighs], factor[weighs]
            if not len(chosen):
                break
            if k or y is not None:
                _add(out[k], rows, chosen - k, factor, chosen, y)
    return sums


def _add(
    out: Array, rows: Rows, earlier: NDArray[np.intp], factor: Array, later: NDArray[np.intp], y: Array | None
) -> None:
    """Add Σ w_t Γ φ_t [φ_{t+k}, r_{t+k+1}] to `out`, over pairs of rows."""
    one = slice(earlier[0], earlier[-1] + 1) if earlier[-1] - earlier[0] + 1 == len(earlier) else earlier
    two = slice(later[0], later[-1] + 1) if isinstance(one, slice) else later
    weight = factor * rows.weight[one]
    phi: Features = rows.X[one]
    weighted = (
        (phi * weight[:, np.newaxis]).T if isinstance(phi, np.ndarray) else (phi.multiply(weight[:, np.newaxis])).T
    )
    n = rows.X.shape[1]
    out[:, :n] += dense(weighted @ rows.X[two])
    if y is not None:
        out[:, n:] += weighted @ y[two]


# ------------------------------------------------------------ blocks of a stream


@dataclass(frozen=True, eq=False)
class LagBlocks(Record):
    """Sums of lags over a stream, in blocks of the data, and the rows that later rows of the stream need.

    Attributes
    ----------
    horizon : int
    layout : Layout
        Where blocks end; their number is at most its `limit`.
    blocks : tuple of LagSums
        Without the last row of an episode that may go on.
    tail : Rows or None
        At most the last `horizon` rows of the episode that may go on, the last one not yet summed.
    group : object
        Id of the last group; None without groups.
    """

    horizon: int
    layout: Layout
    blocks: tuple[LagSums, ...]
    tail: Rows | None
    group: Any
    n_episodes: int

    @classmethod
    def empty(cls, rows: Rows, horizon: int, limit: int) -> LagBlocks:
        """Return the blocks of no data, for data like `rows`."""
        nothing = LagSums.zero(horizon, rows.n_features, rows.y.shape[1])
        return cls.of(horizon=horizon, layout=Layout(limit), blocks=(nothing,), tail=None, group=None, n_episodes=0)

    @property
    def closed(self) -> tuple[LagSums, ...]:
        """The blocks if the stream ends here: its last row is a horizon row."""
        if self.tail is None:
            return self.blocks
        (of_last_row,) = lag_sums(self.tail, self.horizon, [len(self.tail) - 1, len(self.tail)])
        return (*self.blocks[:-1], self.blocks[-1].plus(of_last_row))

    def goes_on_with(self, rows: Rows) -> bool:
        """Return whether the first of the next rows is of the last episode."""
        return self.tail is not None and bool(StreamEnd.of(self.tail).goes_on_with(rows.first_episode))

    def extended(self, rows: Rows) -> LagBlocks:
        """Return the blocks with the next rows of the stream, at least one.

        Raises InvalidInputError when the episode of the last row goes on and lacks its reward.
        """
        goes_on = self.goes_on_with(rows)
        new = int(rows.last.sum()) - goes_on
        blocks, n_before = self.blocks if goes_on else self.closed, 0
        begins = rows.begins
        begins[0] = not goes_on and (rows.groups is None or not same_id(self.group, rows.groups[0]))
        layout = self.layout if rows.groups is None else replace(self.layout, by_episode=True)
        layout, starts = layout.extended(begins)
        if goes_on and self.tail is not None:
            StreamEnd.of(self.tail).check_continued()
            n_before = len(self.tail)
            last = np.append(self.tail.last, rows.last)
            last[n_before - 1] = False
            rows = Rows.joined((self.tail, rows), last=last)
        is_open = not rows.terminated[-1]
        edges = [max(0, n_before - 1), *(n_before + start for start in starts), len(rows) - is_open]
        sums = lag_sums(rows, self.horizon, edges)
        step = layout.size // self.layout.size if layout.by_episode == self.layout.by_episode else len(blocks)
        merged = [reduce(LagSums.plus, blocks[i : i + step]) for i in range(0, len(blocks), step)]
        blocks = (*merged[:-1], merged[-1].plus(sums[0]), *sums[1:])
        return self.changed(
            layout=layout, blocks=blocks, tail=_tail_of(rows, self.horizon) if is_open else None,
            group=None if rows.groups is None else rows.groups[-1], n_episodes=self.n_episodes + new,
        )  # fmt: skip


def _tail_of(rows: Rows, horizon: int) -> Rows:
    """Return copies of the last rows of the last episode, at most `horizon`."""
    begins = np.flatnonzero(rows.last[:-1])
    first = max(int(begins[-1]) + 1 if len(begins) else 0, len(rows) - horizon)
    tail = rows.taken(np.arange(first, len(rows)))
    return tail.changed(order=None)


# ------------------------------------------------------------ weights


@dataclass(frozen=True, eq=False)
class Recursion(Record):
    """The weights of all horizons as a linear recursion, θ_h = Σ_{k<h} (c_k + K_k θ_{h−1−k}).

    Attributes
    ----------
    constants : ndarray of shape (H, n, m)
    matrices : ndarray of shape (n, H n)
        K_0, K_1, … side by side.
    """

    constants: Array
    matrices: Array
    solution: Solution

    @classmethod
    def of_sums(cls, sums: LagSums, lmbda: float, ridge: Array, penalty: Array, *, warn: bool = False) -> Recursion:
        """Solve for the constants and matrices; one factorisation serves all horizons.

        `penalty` (n,) is that of a vanishing ridge term, as :func:`lstd.statistics.solve.solve` takes it.
        """
        horizon, n, width = sums.full.shape
        right = np.zeros((horizon, n, width))
        right[:, :, n:] = sums.full[:, :, n:]
        right[:-1, :, :n] = (1.0 - lmbda) * sums.full[1:, :, :n] + sums.cut[1:]
        right *= (lmbda ** np.arange(horizon))[:, np.newaxis, np.newaxis]
        gram = 0.5 * (sums.full[0, :, :n] + sums.full[0, :, :n].T)
        solution = solve(gram, np.hstack([*right]), ridge, penalty=penalty, warn=warn)
        solved = solution.weights.reshape(n, horizon, width)
        matrices = np.ascontiguousarray(solved[:, :, :n]).reshape(n, horizon * n)
        return cls.of(constants=solved[:, :, n:].transpose(1, 0, 2), matrices=matrices, solution=solution)

    def run(self, added: Array | None = None) -> Array:
        """Return the weights θ_1, …, θ_H, (H, n, m); or, with `added` (H, n, m) in place of Σ c_k, what follows."""
        horizon, n, m = self.constants.shape
        right = np.cumsum(self.constants, axis=0) if added is None else added
        backwards = np.zeros(((horizon + 1) * n, m))  # θ_H, …, θ_1, θ_0
        for h in range(1, horizon + 1):
            place = (horizon - h) * n
            later = backwards[place + n : place + n + h * n]  # θ_{h−1}, …, θ_0
            backwards[place : place + n] = right[h - 1] + self.matrices[:, : h * n] @ later
        weights = backwards[: horizon * n].reshape(horizon, n, m)[::-1]
        check_range(weights)
        return np.ascontiguousarray(weights)
