"""Fingerprints of rows, called marks: two models whose blocks have equal marks were fitted to the same data.

The mark of the features of rows is Σ_t Σ_j k_j bits(x_tj) modulo 2⁶⁴, with odd numbers k_j and the bits of a feature as
an integer. Marks of consecutive rows add up. For speed, the sum takes all of the first 1024 rows of a stream and then
every 64th. Other features have another mark but for one case in 2⁶⁴, unless features have few values and the counts of
these agree in every block.

The mark of rewards and weights takes all full transitions, t = 0, 1, …, in their order: Σ_t gᵗ h_t modulo 2⁶⁴. As
above, h_t sums over the weight and the rewards of a row, but their bits are rotated by 12. The marks M and N of
consecutive data, n transitions and later ones, join to M + gⁿ N. Those of independent data add up.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd._kernels.reward_marks import add_reward_marks
from lstd.data.feature_arrays import Features
from lstd.data.rows import Rows, uniform
from lstd.types import Array

MODULUS = 2**64
_ALL, _EVERY = 1024, 64
_ODD = 0x9E3779B97F4A7C15  # 2⁶⁴ over the golden ratio: its multiples are far apart


def marks_of(rows: Rows) -> Callable[[int, int], int]:
    """Return a function (first, last) that gives the mark of the rows from `first` up to `last`."""
    n = rows.n_features - rows.intercept
    head = min(max(_ALL - rows.place, 0), len(rows))
    tail = max(_ALL, rows.place) + -max(_ALL, rows.place) % _EVERY - rows.place  # first row of every 64th
    if not head and tail >= len(rows):
        return lambda first, last: 0
    some = rows.X[:head] if tail >= len(rows) else _both(rows.X[:head], rows.X[tail::_EVERY])
    odd = _factors(n)
    if sparse.issparse(some):
        kept = some.indices < n
        terms = np.where(kept, some.data.view(np.uint64) * odd[np.where(kept, some.indices, 0)], np.uint64(0))
        until = np.append(np.uint64(0), np.cumsum(terms))[some.indptr]
    else:
        bits = np.ascontiguousarray(some[:, :n], dtype=np.float64).view(np.uint64)
        until = np.zeros(len(bits) + 1, np.uint64)
        np.cumsum(bits @ odd, out=until[1:])

    def count(row: int) -> int:
        return min(row, head) + max(0, -((tail - row) // _EVERY))

    return lambda first, last: (int(until[count(last)]) - int(until[count(first)])) % MODULUS


@lru_cache(maxsize=8)
def _factors(n: int) -> NDArray[np.uint64]:
    """Return the odd numbers k_j of n features."""
    return np.uint64(_ODD) * np.arange(1, 2 * n, 2, dtype=np.uint64)


def reward_marks_of(rows: Rows, mark: int, count: int) -> Callable[[slice, NDArray[np.bool_]], int]:
    """Return a function that adds the full transitions of the next rows to the `mark` of `count` transitions before."""
    state = np.array([mark, pow(_ODD, count, MODULUS)], np.uint64)
    factors, g = _factors(rows.y.shape[1] + 1), np.uint64(_ODD)

    def add(part: slice, full: NDArray[np.bool_]) -> int:
        weights = rows.weight[:1] if uniform(rows.weight) else rows.weight[part]
        bits = (np.ascontiguousarray(values).view(np.uint64) for values in (rows.y[part], weights))
        add_reward_marks(*bits, full, factors, g, state)
        return int(state[0])

    return add


def reward_mark_of(reward: Array, weight: float) -> int:
    """Return the mark of the rewards (m,) of one transition."""
    values = (weight, *reward.tolist())
    bits: tuple[int, ...] = struct.unpack(f"={len(values)}Q", struct.pack(f"={len(values)}d", *values))
    return sum((2 * j + 1) * _ODD * (b >> 52 | b << 12 & MODULUS - 1) for j, b in enumerate(bits)) % MODULUS


def joined(one: int, two: int, count: int) -> int:
    """Return the mark of the rewards of `count` transitions and of later ones."""
    return (one + pow(_ODD, count, MODULUS) * two) % MODULUS


def _both(one: Features, two: Features) -> Features:
    return sparse.vstack([one, two], format="csr") if sparse.issparse(one) else np.vstack([one, two])
