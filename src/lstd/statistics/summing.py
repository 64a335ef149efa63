"""Sums over the rows of one chunk, block by block: a kernel for the traces, a matrix product for the rest.

The quantities are those of :mod:`lstd.statistics.statistics`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd._kernels.traces import arrivals, dense_traces, sparse_traces
from lstd.data.rows import Features, Rows
from lstd.statistics.edges import Carry

Array = NDArray[np.float64]

_BLOCK_ENTRIES = 2**17  # of a block of traces, about one MiB: it stays in the cache between kernel and product
_LEAST_BLOCK = 512  # rows: each block passes over A, which is larger than any cache where n is some thousands
_memory = threading.local()
_COUNTS_FROM = 2.0**-200  # decay below which an entering trace is far below rounding, whatever the units


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums over rows; n features, m rewards."""

    A: Array  # (n, n)
    B: Array  # (n, n)
    b: Array  # (n, m)
    incoming_trace: Array  # (n,)
    carry: Carry
    n_transitions: int


def no_sum(*shape: int) -> Array:
    """Zeros that take no memory and cannot be written to."""
    return np.broadcast_to(0.0, shape)


def is_no_sum(array: Array) -> bool:
    """Whether the array is one of `no_sum`."""
    return not any(array.strides)


def sum_rows(rows: Rows, lmbda: float) -> Sums:
    """Sums over rows, at least one, with the last row's boundary term left open unless it terminated."""
    given = rows.X_next is not None
    end = len(rows) - 1
    is_open = not rows.terminated[end]
    n_full = end if is_open and not given else end + 1  # rows that are in the sums, horizon rows among them
    cut = rows.last[:n_full] & ~rows.terminated[:n_full]  # truncated ends
    if given and is_open:
        cut[end] = False  # its boundary term is pending
    return _sum_with_successors(rows, cut, lmbda) if given else _sum(rows, n_full, cut, lmbda)


class _Running:
    """A, B, b and the trace u, summed block by block."""

    def __init__(self, rows: Rows, lmbda: float) -> None:
        n = rows.n_features
        self.rows, self.lmbda = rows, lmbda
        self.A = self.B = no_sum(n, n)
        self.b = np.zeros((rows.y.shape[1], n))
        self.u, self._z = np.zeros((2, n))
        most = min(4096, max(_LEAST_BLOCK, _BLOCK_ENTRIES // max(1, n)))
        count = -(-len(rows) // most)  # of blocks alike in length, as a short one is slow for what it does
        self._size = -(-len(rows) // count)
        self._left = _scratch(self._size, n)

    def blocks(self, n_rows: int, discount: Array, ratios: Array, kept: float) -> Iterator[tuple[slice, Array]]:
        """Blocks of rows and z − kept u of each, (T, n); `b` and `u` go on."""
        for first in range(0, n_rows, self._size):
            block = slice(first, min(first + self._size, n_rows))
            phi, y = self.rows.X[block], np.ascontiguousarray(self.rows.y[block])
            left = self._left[: block.stop - first]
            state = (self.lmbda, kept, self.u, self._z, left, self.b)
            if sparse.issparse(phi):
                indptr, indices = phi.indptr.astype(np.int64), phi.indices.astype(np.int64)
                sparse_traces(indptr, indices, phi.data, y, discount[block], ratios[block], *state)
            else:
                dense_traces(phi, y, discount[block], ratios[block], *state)
            yield block, left


def _scratch(n_rows: int, n: int) -> Array:
    """Memory of this thread for a block of traces, the same for each of many small chunks: new memory costs time."""
    held: Array | None = getattr(_memory, "block", None)
    if held is None or held.shape[1] != n or len(held) < n_rows:
        held = _memory.block = np.empty((n_rows, n))
    return held[:n_rows]


def _sum(rows: Rows, n_full: int, cut: NDArray[np.bool_], lmbda: float) -> Sums:
    """Sums over the first `n_full` rows, where each row's successor is the next row."""
    sums = _Running(rows, lmbda)
    # A horizon row with ratio and discount zero adds nothing to b and leaves no trace; it has z − u = −u.
    ratios, discount = np.where(cut, 0.0, rows.ratios[:n_full]), np.where(cut, 0.0, rows.discount[:n_full])
    for block, left in sums.blocks(n_full, discount, ratios, 1.0):
        phi = rows.X[block]
        ends = np.flatnonzero(cut[block])
        if len(ends):
            sums.B = _plus(sums.B, _product(-left[ends], phi[ends]))
            left[ends] = 0.0
        sums.A = _plus(sums.A, _product(left, phi))
    e, d, decay = _decays(discount, ratios, lmbda)
    near = slice(0, len(e))
    full = ~cut[near]
    a = _weighted(np.where(full, d - e, 0.0), rows.X[near])
    h = _weighted(np.where(full, 0.0, e), rows.X[near])
    c = _weighted(d, rows.y[near])
    return Sums(sums.A, sums.B, sums.b.T.copy(), sums.u, Carry(decay, a, h, c), n_full - int(cut.sum()))


def _sum_with_successors(rows: Rows, cut: NDArray[np.bool_], lmbda: float) -> Sums:
    """Sums over all rows, each with the features of its successor; the last boundary term is left open."""
    X_next: Features = rows.X_next
    sums = _Running(rows, lmbda)
    carried = np.where(cut, 0.0, rows.discount)
    inner = ~cut
    inner[-1] = False
    for block, z in sums.blocks(len(rows), carried, rows.ratios, 0.0):
        phi_next = X_next[block]
        sums.A = _plus(sums.A, _product(z, rows.X[block]))
        z *= rows.discount[block, np.newaxis]
        ends = np.flatnonzero(cut[block])
        if len(ends):
            sums.B = _plus(sums.B, _product(z[ends], phi_next[ends]))
        z[~inner[block]] = 0.0
        sums.A -= _product(z, phi_next)
    _, d, decay = _decays(carried, rows.ratios, lmbda)
    near = slice(0, len(d))
    out = d * rows.discount[near]
    a = _weighted(d, rows.X[near]) - _weighted(np.where(inner[near], out, 0.0), X_next[near])
    h = _weighted(np.where(cut[near], out, 0.0), X_next[near])
    c = _weighted(d, rows.y[near])
    return Sums(sums.A, sums.B, sums.b.T.copy(), sums.u, Carry(decay, a, h, c), len(rows))


def _plus(one: Array, two: Array) -> Array:
    """one + two, in the memory of `one` where it has any."""
    if is_no_sum(one):
        return two
    one += two
    return one


def _decays(discount: Array, ratios: Array, lmbda: float) -> tuple[Array, Array, float]:
    """Return e, d and the decay of an entering trace, for the rows in which it still counts."""
    e, d = np.empty((2, len(discount)))
    decay = arrivals(discount, ratios, lmbda, e, d)
    counts = np.flatnonzero(e >= _COUNTS_FROM)
    reach = int(counts[-1]) + 1 if len(counts) else 0
    return e[:reach], d[:reach], float(decay)


def _product(left: Array, right: Features) -> Array:
    """leftᵀ right, dense."""
    if sparse.issparse(right):
        return np.asarray((right.T @ left).T)
    return np.asarray(left.T @ right)


def _weighted(weights: Array, rows: Features) -> Array:
    """Weighted sum of rows."""
    return np.asarray(rows.T @ weights).reshape(-1)
