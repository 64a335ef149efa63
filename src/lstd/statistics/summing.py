"""Sums over checked rows: a kernel for the traces of a batch of rows, a matrix product for the rest.

The quantities are defined in :mod:`lstd.statistics.statistics`. Large data is summed in chunks, by threads.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd._kernels.traces import dense_traces, sparse_traces, trace_shares
from lstd.data.feature_matrix import Features, dense
from lstd.data.rows import Rows
from lstd.statistics.threads import blas_threads, in_threads

Array = NDArray[np.float64]

ENTRIES_AT_ONCE = 2**22  # of the rows that one thread sums at a time, 32 MiB
_CHUNK_WORK = 2**24  # products in a chunk's sums, half a millisecond, that are worth a thread's while
_BATCH_ENTRIES = 2**17  # of a batch of traces, about one MiB: it stays in the cache between kernel and product
_LEAST_BATCH = 512  # rows: each batch passes over A, which is larger than any cache where n is some thousands
_memory = threading.local()
_COUNTS_FROM = 2.0**-200  # decay below which an entering trace is far below rounding at any scale of the features


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums over the rows of one chunk; n features, m rewards."""

    A: Array  # (n, n)
    B: Array  # (n, n)
    b: Array  # (n, m)
    trace: Array  # (n,) that leaves the last row, or enters it if it is pending
    decay: float  # what a trace that enters the chunk changes: fields of Carry
    carry_matrix: Array  # (n,)
    carry_boundary: Array  # (n,)
    carry_rewards: Array  # (m,)
    first: Array  # (n,)
    first_cut: bool
    n_transitions: int
    total_weight: float  # of the transitions


def no_sum(*shape: int) -> Array:
    """Return zeros that take no memory and cannot be written to."""
    return np.broadcast_to(0.0, shape)


def is_no_sum(array: Array) -> bool:
    """Return whether an array is one of `no_sum`."""
    return not any(array.strides)


def sum_chunks(
    rows: Rows, lmbda: float, at: Iterable[int] = (), *, threads: int | None = None
) -> Iterator[tuple[Rows, Sums]]:
    """Yield consecutive chunks of rows and their sums, not checked for overflow.

    Parameters
    ----------
    rows : Rows
    lmbda : float
    at : iterable of int
        Rows before which a chunk ends, beside the ends that memory sets.
    threads : int, optional
        Threads for large data, each with a single-threaded BLAS; by default the limit of the BLAS.
    """
    n = max(1, rows.n_features)
    chunks = list(rows.split(max(1, ENTRIES_AT_ONCE // n), at))
    few = len(chunks) == 1 or len(rows) * n**2 < len(chunks) * _CHUNK_WORK
    summed = in_threads(partial(sum_rows, lmbda=lmbda), chunks, 1 if few else threads or blas_threads())
    yield from zip(chunks, summed, strict=True)


def sum_rows(rows: Rows, lmbda: float) -> Sums:
    """Sum rows, at least one; the last row's boundary term is left out unless it terminated."""
    given = rows.X_next is not None
    end = len(rows) - 1
    is_open = not rows.terminated[end]
    n_full = end if is_open and not given else end + 1  # rows that are in the sums, horizon rows among them
    cut = rows.last[:n_full] & ~rows.terminated[:n_full]  # truncated ends
    if given and is_open:
        cut[end] = False  # its boundary term is pending
    with np.errstate(over="ignore", invalid="ignore"):  # the caller checks the sums
        return _sum_with_successors(rows, cut, lmbda) if given else _sum(rows, n_full, cut, lmbda)


class _Running:
    """A, B, b and the trace u, summed batch by batch."""

    def __init__(self, rows: Rows, lmbda: float) -> None:
        n = rows.n_features
        self.rows, self._lmbda = rows, lmbda
        self.A = self.B = no_sum(n, n)
        self.b = np.zeros((rows.y.shape[1], n))
        self.u, self._z = np.zeros((2, n))
        most = min(4096, max(_LEAST_BATCH, _BATCH_ENTRIES // max(1, n)))
        count = -(-len(rows) // most)  # of batches of equal length, as a short one is slow per row
        self._size = -(-len(rows) // count)
        self._left = _scratch(self._size, n)

    def batches(self, n_rows: int, discount: Array, ratios: Array, kept: float) -> Iterator[tuple[slice, Array]]:
        """Yield batches of rows with w_t z_t − kept w_{t−1} u_t of each row, (T, n), and update `b` and `u`."""
        coefficients, all_weights, before = self.rows.coefficients, self.rows.weights, 1.0
        same, ones = np.full(self._size, self._lmbda), np.ones(self._size)
        for first in range(0, n_rows, self._size):
            batch = slice(first, min(first + self._size, n_rows))
            length = batch.stop - first
            lmbdas = same[:length] if coefficients is None else self._lmbda * coefficients[batch]
            weights = ones[:length] if all_weights is None else all_weights[batch]
            phi, y = self.rows.X[batch], np.ascontiguousarray(self.rows.y[batch])
            left = self._left[:length]
            state = (lmbdas, weights, kept, before, self.u, self._z, left, self.b)
            before = float(weights[-1])
            if sparse.issparse(phi):
                indptr, indices = phi.indptr.astype(np.int64), phi.indices.astype(np.int64)
                sparse_traces(indptr, indices, phi.data, y, discount[batch], ratios[batch], *state)
            else:
                dense_traces(phi, y, discount[batch], ratios[batch], *state)
            yield batch, left


def _scratch(n_rows: int, n: int) -> Array:
    """Return this thread's memory for a batch of traces; many small chunks share it, as new memory costs time."""
    held: Array | None = getattr(_memory, "batch", None)
    if held is None or held.shape[1] != n or len(held) < n_rows:
        held = _memory.batch = np.empty((n_rows, n))
    return held[:n_rows]


def _sum(rows: Rows, n_full: int, cut: NDArray[np.bool_], lmbda: float) -> Sums:
    """Sum the first `n_full` rows, where each row's successor is the next row."""
    sums = _Running(rows, lmbda)
    # A horizon row with ratio and discount zero adds nothing to b and leaves no trace; it has z = 0.
    ratios, discount = np.where(cut, 0.0, rows.ratios[:n_full]), np.where(cut, 0.0, rows.discount[:n_full])
    for batch, left in sums.batches(n_full, discount, ratios, 1.0):
        phi = rows.X[batch]
        ends = np.flatnonzero(cut[batch])
        if len(ends):
            sums.B = _plus(sums.B, _product(-left[ends], phi[ends]))
            left[ends] = 0.0
        sums.A = _plus(sums.A, _product(left, phi))
    e, d, decay = _decays(discount, ratios if rows.coefficients is None else ratios * rows.coefficients[:n_full], lmbda)
    near = slice(0, len(e))
    full = ~cut[near]
    if rows.weights is not None:
        d = d * rows.weights[near]
        e[1:] *= rows.weights[: max(0, len(e) - 1)]
    a = _weighted(np.where(full, d - e, 0.0), rows.X[near])
    h = _weighted(np.where(full, 0.0, e), rows.X[near])
    c = _weighted(d, rows.y[near])
    first = dense(rows.X[[0]])[0].copy() if n_full else np.zeros(rows.n_features)
    return Sums(
        sums.A, sums.B, sums.b.T.copy(), sums.u, decay, a, h, c, first, bool(cut[:1].any()), *_total(rows, n_full, ~cut)
    )


def _total(rows: Rows, n_full: int, full: NDArray[np.bool_]) -> tuple[int, float]:
    """Return the number of full transitions among the first rows, and the sum of their weights."""
    count = int(full.sum())
    return count, float(count) if rows.weights is None else float(rows.weights[:n_full] @ full)


def _sum_with_successors(rows: Rows, cut: NDArray[np.bool_], lmbda: float) -> Sums:
    """Sum all rows, each given with the features of its successor; the last boundary term is left out."""
    X_next: Features = rows.X_next
    sums = _Running(rows, lmbda)
    carried = np.where(cut, 0.0, rows.discount)
    inner = ~cut
    inner[-1] = False
    for batch, z in sums.batches(len(rows), carried, rows.ratios, 0.0):  # z times the weight
        phi_next = X_next[batch]
        sums.A = _plus(sums.A, _product(z, rows.X[batch]))
        z *= rows.discount[batch, np.newaxis]
        ends = np.flatnonzero(cut[batch])
        if len(ends):
            sums.B = _plus(sums.B, _product(z[ends], phi_next[ends]))
        z[~inner[batch]] = 0.0
        sums.A -= _product(z, phi_next)
    _, d, decay = _decays(carried, rows.ratios if rows.coefficients is None else rows.ratios * rows.coefficients, lmbda)
    near = slice(0, len(d))
    if rows.weights is not None:
        d = d * rows.weights[near]
    out = d * rows.discount[near]
    a = _weighted(d, rows.X[near]) - _weighted(np.where(inner[near], out, 0.0), X_next[near])
    h = _weighted(np.where(cut[near], out, 0.0), X_next[near])
    c = _weighted(d, rows.y[near])
    none, everything = np.zeros(rows.n_features), np.ones(len(rows), np.bool_)
    return Sums(
        sums.A, sums.B, sums.b.T.copy(), sums.u, decay, a, h, c, none, False, *_total(rows, len(rows), everything)
    )


def _plus(one: Array, two: Array) -> Array:
    """Return one + two, in the memory of `one` unless it is a `no_sum`."""
    if is_no_sum(one):
        return two
    one += two
    return one


def _decays(discount: Array, ratios: Array, lmbda: float) -> tuple[Array, Array, float]:
    """Return e and d for the rows in which an entering trace still counts, and its decay over all rows."""
    e, d = np.empty((2, len(discount)))
    decay = trace_shares(discount, ratios, lmbda, e, d)
    counts = np.flatnonzero(e >= _COUNTS_FROM)
    reach = int(counts[-1]) + 1 if len(counts) else 0
    return e[:reach], d[:reach], float(decay)


def _product(left: Array, right: Features) -> Array:
    """Return leftᵀ right, dense."""
    if sparse.issparse(right):
        return np.asarray((right.T @ left).T)
    return np.asarray(left.T @ right)


def _weighted(weights: Array, rows: Features) -> Array:
    """Return the weighted sum of rows."""
    return np.asarray(rows.T @ weights).reshape(-1)
