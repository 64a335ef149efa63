"""Sums over checked rows: a kernel for the traces of a batch of rows, a matrix product for the rest.

The quantities are defined in :mod:`lstd.statistics.merging`. Large data is summed in chunks, by threads. Sparse rows
are multiplied entry by entry where that is less work; `A` and `B` then are in Fortran order.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import blas

from lstd._kernels.traces import (
    add_entries,
    carry_factors,
    dense_traces,
    sparse_sums,
    sparse_sums_of_pairs,
    sparse_traces,
)
from lstd.data.feature_matrix import Features, dense, rows_of
from lstd.data.rows import Rows
from lstd.statistics.threads import blas_threads, in_threads

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

ENTRIES_AT_ONCE = 2**22  # of the rows that one thread sums at a time, 32 MiB
_CHUNK_WORK = 2**24  # products in a chunk's sums, half a millisecond, that are worth a thread's while
_BATCH_ENTRIES = 2**17  # of a batch of traces, about one MiB: it stays in the cache between kernel and product
_LEAST_BATCH = 512  # rows: each batch passes over A, which is larger than any cache where n is some thousands
SPARSE_BATCH = 2**13  # rows, with whose traces no array is filled
_MERGE_SHARE = 32  # of the work of a chunk of sparse rows to n², which merging takes
DENSE_FROM = 0.25  # share of entries from which a matrix product is faster than a loop over entries
_ALIKE = 16  # rows with entries in the same columns, on average, that are worth a product of their own
_ZERO = bytes(8)
_memory = threading.local()


class Sums(NamedTuple):
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


class Start(NamedTuple):
    """Sums that the next rows, which are dense and without successors, are added to; fields as in `Sums`."""

    sums: tuple[Array, Array, Array, Array]  # A, B, b and the trace, which are not changed
    decay: float
    carry: tuple[Array, Array, Array]
    before: float  # weight of the row that the trace leaves
    first: tuple[Array, bool] | None = None
    head: Any = None  # the pending row, which comes first
    head_cut: bool = False  # whether it is a horizon row


def no_sum(*shape: int) -> Array:
    """Return zeros that take no memory and cannot be written to."""
    return np.ndarray(shape, np.float64, _ZERO, strides=(0,) * len(shape))


def is_no_sum(array: Array) -> bool:
    """Return whether an array is one of `no_sum`."""
    return not any(array.strides)


def split_rows(rows: Rows, lmbda: float, at: Iterable[int] = ()) -> tuple[list[Rows], bool]:
    """Return consecutive chunks of rows, cut where memory requires it and before the rows `at`.

    Also return whether each has enough work for a thread. That depends on the rows only.
    """
    chunks = rows.split(_chunk_length(rows, lmbda), at)
    return chunks, len(chunks) > 1 and len(rows) * rows.n_features**2 >= len(chunks) * _CHUNK_WORK


def sum_chunks(chunks: Sequence[Rows], lmbda: float, threads: int | None) -> Iterator[tuple[Rows, Sums]]:
    """Yield chunks and their sums, not checked for overflow.

    They are summed by `threads` threads (default: the limit of the BLAS), each with a single-threaded BLAS.
    """
    summed = in_threads(partial(sum_rows, lmbda=lmbda), chunks, threads or blas_threads())
    yield from zip(chunks, summed, strict=True)


def _chunk_length(rows: Rows, lmbda: float) -> int:
    """Return the rows of a chunk; for sparse rows, such that merging the chunks is little of the work."""
    n = max(1, rows.n_features)
    if _is_dense(rows.X):
        return max(1, ENTRIES_AT_ONCE // n)
    entries = max(1.0, rows.X.nnz / max(1, len(rows)))
    work = entries * (entries if _is_short(rows, lmbda) else n)
    return int(max(1, ENTRIES_AT_ONCE // n, _MERGE_SHARE * n**2 / work))


def _is_dense(features: Features) -> bool:
    """Return whether features are dense, or sparse with so many entries that dense ones are faster."""
    return isinstance(features, np.ndarray) or features.nnz >= DENSE_FROM * features.shape[0] * features.shape[1]


def _is_short(rows: Rows, lmbda: float) -> bool:
    """Return whether the trace of each row holds the features of that row alone."""
    return lmbda == 0.0 or (rows.coefficients is not None and not rows.coefficients.any())


@np.errstate(over="ignore", invalid="ignore")  # the caller checks the sums
def sum_rows(rows: Rows, lmbda: float, start: Start | None = None) -> Sums:
    """Sum rows, at least one; the last row's boundary term is left out unless it terminated."""
    if not (isinstance(rows.X, np.ndarray) or sparse.issparse(rows.X)):
        return cast(Sums, rows.X.sums(rows, lmbda))
    given = rows.X_next is not None
    end = len(rows) - 1
    is_open = not rows.terminated[end]
    n_full = end if is_open and not given else end + 1  # rows that are in the sums, horizon rows among them
    cut = rows.last[:n_full] & ~rows.terminated[:n_full]  # truncated ends
    if given and is_open:
        cut[end] = False  # its boundary term is pending
    running = _Running(rows, lmbda, n_full, cut, start)
    for batch in running.batches():
        running.add(batch)
        running.add_carry(batch)
    full = ~cut
    if given:
        full[:] = True
    if start is not None and start.first is not None:
        first, first_cut = start.first
    else:
        first = np.zeros(rows.n_features) if given or not n_full else rows.row(rows.X, 0)
        first_cut = not given and bool(cut[:1].any())
    (a, h, c), count = running.carry, int(np.count_nonzero(full))
    return Sums(
        running.A, running.B, running.b.T.copy(), running.u, running.share, a, h, c,
        first, first_cut, count, float(count) if rows.weights is None else float(rows.weights[:n_full] @ full),
    )  # fmt: skip


class _Batch(NamedTuple):
    """Columns of some rows; `discount` is zero where the trace ends."""

    rows: slice
    phi: Features  # (T, n) dense, or sparse
    y: Array  # (T, m)
    discount: Array
    ratios: Array
    lmbdas: Array
    weights: Array
    cut: Flags

    @property
    def columns(self) -> tuple[NDArray[Any], ...]:
        return self.y, self.discount, self.ratios, self.lmbdas, self.weights, self.cut


class _Running:
    """The sums of a chunk, batch by batch; the state is that before the next batch."""

    def __init__(self, rows: Rows, lmbda: float, n_full: int, cut: Flags, start: Start | None) -> None:
        n, m = rows.n_features, rows.y.shape[1]
        self.rows, self._lmbda, self._n_full, self._cut = rows, lmbda, n_full, cut
        if start is None:
            nothing = no_sum(n, n)
            carry = np.zeros(n), np.zeros(n), np.zeros(m)
            start = Start((nothing, nothing, np.zeros((n, m)), np.zeros(n)), 1.0, carry, 1.0)
        self.A, self.B, b, u = start.sums
        self.b, self.u, self._z = b.T.copy(), u.copy(), np.empty(n)
        self.before, self.share = start.before, start.decay  # weight of the last row; share of an entering trace left
        a, h, c = start.carry
        self.carry = a.copy(), h.copy(), c.copy()
        self._head, self._head_cut = start.head, start.head_cut
        self._dense = _is_dense(rows.X) or (rows.X_next is not None and _is_dense(rows.X_next))
        self._short = not _is_dense(rows.X) and _is_short(rows, lmbda)
        self._inner = np.empty(0, np.bool_)
        if rows.X_next is not None:
            self._inner = ~cut
            self._inner[-1] = False

    def batches(self) -> Iterator[_Batch]:
        """Yield the rows that are in the sums, in order."""
        rows, n = self.rows, self.rows.n_features
        most = min(4096, max(_LEAST_BATCH, _BATCH_ENTRIES // max(1, n))) if self._dense else SPARSE_BATCH
        size = -(-len(rows) // -(-len(rows) // most))  # batches of equal length, as a short one is slow per row
        lmbdas, ones = _constant(self._lmbda), _constant(1.0)

        def column(values: Array | None, same: Array, part: slice, first: tuple[float, ...]) -> Array:
            if values is None and first in ((), (1.0,)):
                return same[: part.stop - part.start + len(first)]
            rest = ones[: part.stop - part.start] if values is None else values[part]
            rest = np.concatenate((first, rest)) if first else rest
            return rest if same is ones else self._lmbda * rest

        for first in range(0, max(self._n_full, self._head is not None), size):
            part, head = slice(first, min(first + size, self._n_full)), self._head
            y, discount, cut, self._head = rows.y[part], rows.discount[part], self._cut[part], None
            values: tuple[tuple[float, ...], ...] = ((), (), ())
            if head is not None:
                y, discount = np.concatenate(([head.reward], y)), np.concatenate(([head.discount], discount))
                cut, values = (
                    np.concatenate(([self._head_cut], cut)),
                    ((head.ratio,), (head.coefficient,), (head.weight,)),
                )
            elif rows.X_next is not None and cut.any():
                discount = np.where(cut, 0.0, discount)
            phi = self._batch_of("phi", rows.X, part, head) if _is_dense(rows.X) else rows_of(rows.X, part)
            yield _Batch(
                part, phi, np.ascontiguousarray(y), discount,
                column(rows.ratios if rows.ratios_given else None, ones, part, values[0]),
                column(rows.coefficients, lmbdas, part, values[1]), column(rows.weights, ones, part, values[2]), cut,
            )  # fmt: skip

    def _batch_of(self, name: str, features: Features, part: slice, head: Any = None) -> Array:
        """Return rows of features, dense, of float64 and with the column of ones, after the features of `head`."""
        rows, n = rows_of(features, part), self.rows.n_features
        if isinstance(rows, np.ndarray) and rows.dtype == np.float64 and rows.shape[1] == n and head is None:
            return np.asarray(rows)
        goal = _scratch(name, rows.shape[0] + (head is not None), n)
        if not isinstance(rows, np.ndarray):
            goal[...] = 0.0
            return np.asarray(rows.toarray(out=goal))
        if head is not None:
            goal[0] = head.phi
        tail = goal[len(goal) - len(rows) :]
        tail[:, : rows.shape[1]] = rows
        tail[:, rows.shape[1] :] = 1.0
        return goal

    def add(self, batch: _Batch) -> None:
        """Add the products of a batch to A, B and b."""
        if self._short:
            self._add_short(batch)
        elif self._dense:
            self._add_products(batch)
        else:
            self._add_sparse(batch)

    def _add_products(self, batch: _Batch) -> None:
        """Add rows of which at least one factor is dense."""
        given, left = self.rows.X_next is not None, _scratch("left", *batch.phi.shape)
        ends = np.flatnonzero(batch.cut)
        if given:  # no row is a horizon row
            batch = batch._replace(cut=np.zeros_like(batch.cut))
        if not isinstance(batch.phi, np.ndarray):
            sparse_traces(*_parts(batch.phi), *batch.columns, 1.0 - given, self.before, self.u, left, self.b)
        else:
            dense_traces(batch.phi, *batch.columns, 1.0 - given, self.before, self.u, self._z, left, self.b)
        if given:
            right, outgoing, phi_next = self._differences(batch)
            if len(ends):
                self.B = _plus(self.B, (left[ends] * outgoing[ends, np.newaxis]).T @ phi_next[ends])
        else:
            right = batch.phi
            if len(ends):
                self.B = _plus(self.B, -left[ends].T @ right[ends])
                left[ends] = 0.0
        self.A = _plus_product(self.A, left, right)

    def _differences(self, batch: _Batch) -> tuple[Array, Array, Array]:
        """Return φ_t − γ_t φ'_t, without the second term where it is not in A; γ_t; and φ'_t."""
        outgoing, inner = self.rows.discount[batch.rows], self._inner[batch.rows]
        phi_next, right = self._batch_of("next", self.rows.X_next, batch.rows), _scratch("right", *batch.phi.shape)
        np.multiply(phi_next, np.where(inner, -outgoing, 0.0)[:, np.newaxis], out=right)
        if not isinstance(batch.phi, np.ndarray):
            right[np.repeat(np.arange(len(right)), np.diff(batch.phi.indptr)), batch.phi.indices] += batch.phi.data
        else:
            right += batch.phi
        return right, outgoing, phi_next

    def _add_sparse(self, batch: _Batch) -> None:
        """Add rows with few entries, each time a trace."""
        self._make_transposed(bool(batch.cut.any()))
        state = (
            self.u,
            _scratch("left", 1, len(self.u))[0],
            self.b,
            self.A.T,
            (self.A if is_no_sum(self.B) else self.B).T,
        )
        if self.rows.X_next is None:
            sparse_sums(*_parts(batch.phi), *batch.columns, self.before, *state)
        else:
            inner, outgoing = self._inner[batch.rows], self.rows.discount[batch.rows]
            phi_next = rows_of(self.rows.X_next, batch.rows)
            sparse_sums_of_pairs(*_parts(batch.phi), *batch.columns, inner, outgoing, *_parts(phi_next), *state)

    def _add_short(self, batch: _Batch) -> None:
        """Add rows with few entries, whose traces have as few."""
        cut, phi, given = batch.cut, batch.phi, self.rows.X_next is not None
        z = batch.weights * batch.ratios if given else _zero(batch.weights * batch.ratios, cut)
        self.b += (phi.T @ (z[:, np.newaxis] * batch.y)).T
        leaving, u = _zero(batch.discount * batch.ratios, cut), self.u
        self.u = leaving[-1] * dense(rows_of(phi, slice(len(cut) - 1, len(cut))))[0]
        if given:
            self._add_short_pairs(batch, z)
            return
        self._make_transposed(bool(cut.any()))
        parts, columns = _parts(phi), _parts(phi.tocsc())
        subtracted = np.append(0.0, (batch.weights * leaving)[:-1])
        add_entries(z, 0, *parts, *columns, self.A.T)
        add_entries(-_zero(subtracted, cut), 1, *parts, *columns, self.A.T)
        if cut.any():
            add_entries(_zero(subtracted, ~cut), 1, *parts, *columns, self.B.T)
        first, goal, sign = slice(*phi.indptr[:2]), (self.B if cut[0] else self.A).T, 1.0 if cut[0] else -1.0
        goal[phi.indices[first]] += np.outer(phi.data[first], sign * self.before * u)

    def _add_short_pairs(self, batch: _Batch, z: Array) -> None:
        phi, ends = batch.phi, np.flatnonzero(batch.cut)
        if self._dense:
            right, outgoing, phi_next = self._differences(batch)
            self.A = self.A if not is_no_sum(self.A) else np.zeros(self.A.shape)
            _add_alike(self.A, phi, z, right)
            if len(ends):
                self.B = _plus(self.B, np.asarray(phi[ends].T @ ((z * outgoing)[ends, np.newaxis] * phi_next[ends])))
            return
        self._make_transposed(len(ends) > 0)
        outgoing, parts = self.rows.discount[batch.rows] * z, _parts(phi)
        ahead = _parts(rows_of(self.rows.X_next, batch.rows).tocsc())
        add_entries(z, 0, *parts, *_parts(phi.tocsc()), self.A.T)
        add_entries(-_zero(outgoing, ~self._inner[batch.rows]), 0, *parts, *ahead, self.A.T)
        if len(ends):
            add_entries(_zero(outgoing, ~batch.cut), 0, *parts, *ahead, self.B.T)

    def _make_transposed(self, cuts: bool) -> None:
        """Make A, and B for `cuts`, arrays in Fortran order that can be added to."""
        if is_no_sum(self.A):
            self.A = np.zeros(self.A.shape, order="F")
        if cuts and is_no_sum(self.B):
            self.B = np.zeros(self.B.shape, order="F")

    def add_carry(self, batch: _Batch) -> None:
        """Add what a trace that enters the chunk changes; then the state is that after the batch."""
        given, before, self.before = self.rows.X_next is not None, self.before, float(batch.weights[-1])
        if self.share == 0.0:
            return
        factors = np.empty((4, len(batch.cut)))
        outgoing = self.rows.discount[batch.rows][: given * len(batch.cut)]
        reach, self.share = carry_factors(
            batch.discount, batch.ratios, batch.lmbdas, batch.weights, batch.cut, outgoing, before, self.share, factors
        )
        near, (of_a, of_h, of_c, ahead) = slice(0, reach), factors[:, :reach]
        a, h, c = self.carry
        phi = rows_of(batch.phi, near)
        a += of_a @ phi
        c += of_c @ batch.y[near]
        if given:
            phi_next, ahead_of = self.rows.X_next, slice(batch.rows.start, batch.rows.start + reach)
            is_sparse = not isinstance(phi_next, np.ndarray)
            phi_next = rows_of(phi_next, ahead_of) if is_sparse else self._batch_of("next", phi_next, ahead_of)
            a -= _zero(ahead, ~self._inner[batch.rows][near]) @ phi_next
            h += _zero(ahead, ~batch.cut[near]) @ phi_next
        elif batch.cut[near].any():
            h += of_h @ phi


@lru_cache(maxsize=4)
def _constant(value: float) -> Array:
    """Return a column of one value, longer than any batch, that is not written to."""
    return np.full(max(4096, SPARSE_BATCH) + 1, value)


def _scratch(name: str, n_rows: int, n: int) -> Array:
    """Return this thread's memory for a batch; many small chunks share it, as new memory costs time."""
    held: Array | None = getattr(_memory, name, None)
    if held is None or held.shape[1] != n or len(held) < n_rows:
        held = np.empty((n_rows, n))
        setattr(_memory, name, held)
    return held[:n_rows]


def _parts(phi: Features) -> tuple[NDArray[np.integer], NDArray[np.integer], Array]:
    return phi.indptr, phi.indices, phi.data


def _zero(values: Array, where: Flags) -> Array:
    """Return values with zeros at some places."""
    return np.where(where, 0.0, values) if where.any() else values


def _plus(one: Array, two: Array) -> Array:
    """Return one + two, in the memory of `one` if it may be written to."""
    if is_no_sum(one):
        return two
    return np.add(one, two, out=one if one.flags.writeable else None)


def _plus_product(A: Array, left: Array, right: Array) -> Array:
    """Return A + leftᵀ right, in the memory of A if it may be written to."""
    if is_no_sum(A):
        return np.asarray(left.T @ right)
    A = A if A.flags.writeable else np.array(A, order="C")
    blas.dgemm(1.0, right.T, left.T, 1.0, A.T, trans_b=True, overwrite_c=True)  # in the Fortran order of transposes
    return A


def _add_alike(A: Array, phi: Features, z: Array, right: Array) -> None:
    """Add Σ_t z_t φ_t right_tᵀ to A, by products of rows with entries in the same columns, if they are many."""
    counts = np.diff(phi.indptr)
    if len(counts) and counts[0] and (counts == counts[0]).all():
        indices, values = phi.indices.reshape(len(counts), -1), z[:, np.newaxis] * phi.data.reshape(len(counts), -1)
        _, place, kind = np.unique(indices[:, 0], return_index=True, return_inverse=True)
        if len(place) * _ALIKE <= len(counts) and (indices == indices[place][kind]).all():
            for k, columns in enumerate(indices[place]):
                rows, first = np.flatnonzero(kind == k), columns[0]
                if columns[-1] - first == len(columns) - 1:
                    _plus_product(A[first : first + len(columns)], values[rows], right[rows])
                else:
                    A[columns] += values[rows].T @ right[rows]
            return
    A += (phi * z[:, np.newaxis]).T @ right
