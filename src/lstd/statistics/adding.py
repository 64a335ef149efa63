"""Add rows to the sums of a stream: a kernel for the traces of a batch of rows, a matrix product for the rest.

The quantities are defined in :mod:`lstd.statistics.merging`. Sparse rows are multiplied entry by entry where that is
less work.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lstd._kernels.traces import add_entries, dense_traces, sparse_sums
from lstd.data.feature_arrays import Features, dense, rows_of
from lstd.data.rows import Rows, uniform
from lstd.errors import InvalidInputError
from lstd.statistics.threads import blas_threads, in_threads
from lstd.types import Array, Flags

_BATCH_ENTRIES = 2**17  # of a batch of traces, about one MiB: it stays in the cache between kernel and product
_LEAST_BATCH = 512  # rows: each batch passes over A, which is larger than any cache where n is some thousands
SPARSE_BATCH = 2**13  # rows, with whose traces no array is filled
DENSE_FROM = 0.25  # share of entries from which a matrix product is faster than a loop over entries
_TINY = 2.0**-200  # share of an entering trace that is far below rounding at any scale of the features
ENTRIES_AT_ONCE = 2**22  # of the rows that one thread sums at a time, 32 MiB
CHUNK_WORK = 2**24  # products in a chunk's sums, half a millisecond, that are worth a thread's while
_MERGE_SHARE = 128  # of the work of a chunk of sparse rows to n², which merging takes
_memory = threading.local()


class Added(NamedTuple):
    """Sums of a stream of n features and m rewards, whose arrays may be written to."""

    sums: Array  # (n + m, n + 2)
    cuts: Array | None  # (n, n + 2)
    trace: Array  # (2, n + 2)


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


def is_dense(features: Features) -> bool:
    """Return whether features are dense, or sparse with so many entries that dense ones are faster."""
    return isinstance(features, np.ndarray) or features.nnz >= DENSE_FROM * features.shape[0] * features.shape[1]


def is_short(rows: Rows, lmbda: float) -> bool:
    """Return whether the trace of each row holds the features of that row alone."""
    return lmbda == 0.0 or not rows.trace_coefficient.any()


class Adding:
    """Rows that are added to the sums of a stream; the state is that before row `at`.

    The caller checks the sums for overflow, and ignores the warnings of NumPy about it.
    """

    def __init__(self, rows: Rows, lmbda: float, before: Added) -> None:
        self.sums, self.trace, self.cuts = _own(before.sums), _own(before.trace), _own(before.cuts)
        self.at, self._rows, self._lmbda, self._given = 0, rows, lmbda, rows.X_next is not None
        self._cut = rows.last & ~rows.terminated  # truncated ends
        self._dense = is_dense(rows.X) or (self._given and is_dense(rows.X_next))
        self._short = not self._dense and is_short(rows, lmbda)
        columns = rows.discount, rows.importance_ratio, rows.trace_coefficient, rows.weight
        self._columns = [*map(_column, columns, (1.0, 1.0, lmbda, 1.0))]
        if self._given:
            self._cut[-1] = False  # its boundary term is pending
            self._inner = ~self._cut
            self._inner[-1] = False
        self.is_cut = self._cut & self._given  # rows whose boundary term is added with them
        if self.cuts is None and self._cut.any():
            self.cuts = np.zeros((rows.n_features, self.trace.shape[1]))

    def add_until(self, end: int) -> None:
        """Add the rows up to `end`, the last one of all without its boundary term unless it terminated."""
        if hasattr(self._rows.X, "sums"):  # features that sum themselves, to nothing before
            self.sums, self.cuts, self.trace = self._rows.X.sums(self._rows, self._lmbda)
        elif end > self.at:
            n, count = self._rows.n_features, end - self.at
            most = min(4096, max(_LEAST_BATCH, _BATCH_ENTRIES // max(1, n))) if self._dense else SPARSE_BATCH
            size = -(-count // -(-count // most))  # equal lengths, as a short batch is slow per row
            add = self._add_dense if self._dense else self._add_short if self._short else self._add_sparse
            for first in range(self.at, end, size):
                add(self._batch(slice(first, min(first + size, end))))
        self.at = end

    def sums_before(self, pending: Any, *, done: bool) -> Added:
        """Return the sums, without the boundary term of the last row, which is `pending`; copies unless `done`."""
        if done:
            return Added(self.sums, self.cuts, self.trace)
        sums = self.sums.copy()
        if pending is not None and pending.complete and self._inner[self.at - 1]:
            sums[: len(pending.phi)] += np.multiply.outer(pending.phi, self.trace[1])
        return Added(sums, None if self.cuts is None else self.cuts.copy(), self.trace.copy())

    def _batch(self, part: slice) -> _Batch:
        """Return some rows."""
        cut, columns = self._cut[part], []
        for column, fixed in self._columns:
            columns.append(column[: part.stop - part.start] if fixed else column[part])
        if self._given and cut.any():
            columns[0] = np.where(cut, 0.0, columns[0])
        X = self._rows.X
        phi = self._dense_batch("phi", X, part) if self._dense else rows_of(X, part)
        discount, ratios, lmbdas, weights = columns
        return _Batch(part, phi, np.ascontiguousarray(self._rows.y[part]), discount, ratios, lmbdas, weights, cut)

    def _add_dense(self, batch: _Batch) -> None:
        n, (u, v), (ends,) = self._rows.n_features, self.trace, batch.cut.nonzero()
        width = n + 2 * bool(u[n] or v[n] or v[n + 1])
        left, right = _scratch("left", len(batch.cut), width), batch.phi
        _, _, *columns, cut = batch
        first = v[:width].copy()
        dense_traces(batch.phi, *columns, cut & (not self._given), 1.0 - self._given, u, left, self.sums[n:])
        if width > n and abs(u[n]) < _TINY:
            u[n] = 0.0
        np.multiply(u, batch.weights[-1], out=v)
        if self._given:
            right, boundary = self._differences(batch, ends)
        else:
            left[0] -= first
        if len(ends):
            assert self.cuts is not None
            beyond = boundary if self._given else -right[ends]
            self.cuts[:, :width] += beyond.T @ left[ends]
            left[ends] *= float(self._given)  # without successors, horizon rows are in B alone
        self.sums[:n, :width] += right.T @ left

    def _differences(self, batch: _Batch, ends: NDArray[np.intp]) -> tuple[Array, Array]:
        """Return φ_t − γ_t φ'_t, without the second term where it is not in A, and γ_t φ'_t of the cuts."""
        outgoing, inner = self._rows.discount[batch.rows], self._inner[batch.rows]
        phi_next, right = self._dense_batch("next", self._rows.X_next, batch.rows), _scratch("right", *batch.phi.shape)
        np.multiply(phi_next, np.where(inner, -outgoing, 0.0)[:, np.newaxis], out=right)
        right += batch.phi
        return right, outgoing[ends, np.newaxis] * phi_next[ends]

    def _add_sparse(self, batch: _Batch) -> None:
        """Add rows with few entries, each time a trace."""
        left = _scratch("left", 1, self.trace.shape[1])[0]
        state = *self.trace, left, self.sums, self.sums if self.cuts is None else self.cuts
        _, _, *columns = batch
        inner, outgoing, ahead = batch.cut, batch.discount, (batch.phi.indptr[:0], *parts_of(batch.phi)[1:])
        if self._given:
            inner, outgoing = self._inner[batch.rows], np.ascontiguousarray(self._rows.discount[batch.rows])
            ahead = parts_of(rows_of(self._rows.X_next, batch.rows))
        sparse_sums(*parts_of(batch.phi), *columns, inner, outgoing, *ahead, *state)

    def _add_short(self, batch: _Batch) -> None:
        """Add rows with few entries, whose traces have as few."""
        n, cut, phi, given = self._rows.n_features, batch.cut, batch.phi, self._given
        z, v = _zero(batch.weights * batch.ratios, cut & (not given)), self.trace[1].copy()
        leaving, parts, by_column = _zero(batch.discount * batch.ratios, cut), parts_of(phi), parts_of(phi.tocsc())
        self.sums[n:, :n] += (phi.T @ (z[:, np.newaxis] * batch.y)).T
        self.trace[:] = 0.0
        self.trace[0, :n] = leaving[-1] * dense(rows_of(phi, slice(len(cut) - 1, len(cut))))[0]
        self.trace[1] = batch.weights[-1] * self.trace[0]
        add_entries(z, 0, *parts, *by_column, self.sums)
        cuts = self.sums if self.cuts is None else self.cuts
        if given:
            outgoing = self._rows.discount[batch.rows] * z
            ahead = parts_of(rows_of(self._rows.X_next, batch.rows).tocsc())
            add_entries(-_zero(outgoing, ~self._inner[batch.rows]), 0, *parts, *ahead, self.sums)
            if cut.any():
                add_entries(_zero(outgoing, ~cut), 0, *parts, *ahead, cuts)
            return
        subtracted = np.append(0.0, (batch.weights * leaving)[:-1])
        add_entries(-_zero(subtracted, cut), 1, *parts, *by_column, self.sums)
        if cut.any():
            add_entries(_zero(subtracted, ~cut), 1, *parts, *by_column, cuts)
        first, goal = slice(*phi.indptr[:2]), cuts if cut[0] else self.sums
        goal[phi.indices[first]] += np.outer(phi.data[first], v if cut[0] else -v)

    def _dense_batch(self, name: str, features: Features, part: slice) -> Array:
        """Return rows of features, dense, of float64 and with the column of ones."""
        rows, n = rows_of(features, part), self._rows.n_features
        if isinstance(rows, np.ndarray) and rows.dtype == np.float64 and rows.shape[1] == n:
            return np.asarray(rows)
        goal = _scratch(name, rows.shape[0], n)
        if not isinstance(rows, np.ndarray):
            goal[...] = 0.0
            return np.asarray(rows.toarray(out=goal))
        goal[:, : rows.shape[1]] = rows
        goal[:, rows.shape[1] :] = 1.0
        if self._rows.centre is not None:
            goal[:, :-1] -= self._rows.centre
        return goal


def chunk_statistics(rows: Rows, nothing: Any, at: Iterable[int] = (), *, threads: int | None = None) -> Iterator[Any]:
    """Yield statistics of consecutive chunks of rows, cut where :func:`chunk_edges` says; not checked for overflow.

    They are summed by `threads` threads (default: the limit of the BLAS), each with a single-threaded BLAS. `nothing`
    are statistics of no data.
    """
    edges, many = chunk_edges(rows, nothing.lmbda, at)
    return in_threads(nothing.followed_by, rows.split(edges), (threads or blas_threads()) if many else 1)


def chunk_edges(rows: Rows, lmbda: float, at: Iterable[int]) -> tuple[list[int], bool]:
    """Return where chunks begin, and the end, and whether threads share them, as each has enough work for one.

    All are cut before the rows `at`, and sparse ones where memory requires it, such that merging the chunks is little
    of the work. That depends on the rows only.
    """
    n, n_rows = max(1, rows.n_features), len(rows)
    if is_dense(rows.X) and hasattr(rows.X, "dtype"):
        edges = sorted({0, *at, n_rows})
        return edges, len(edges) > 2 and n_rows * n**2 >= (len(edges) - 1) * CHUNK_WORK
    entries = max(1.0, rows.X.nnz / max(1, n_rows))
    work = entries * (entries if is_short(rows, lmbda) else n)
    length = int(max(1, ENTRIES_AT_ONCE // n, _MERGE_SHARE * n**2 / work))
    edges = sorted({*range(0, n_rows, length), *at, n_rows})
    return edges, len(edges) > 2 and n_rows * n**2 >= (len(edges) - 1) * CHUNK_WORK


def _column(column: Array, factor: float) -> tuple[Array, bool]:
    """Return a column times a factor, contiguous for kernels, and whether it is one value, for any batch of rows."""
    if uniform(column) and len(column):
        return _constant(factor * float(column[0])), True
    return (column if factor == 1.0 else factor * column), False


@lru_cache(maxsize=8)
def _constant(value: float) -> Array:
    """Return a column of one value, longer than any batch, that is not written to."""
    return np.full(max(4096, SPARSE_BATCH), value)


def _scratch(name: str, n_rows: int, n: int) -> Array:
    """Return this thread's memory for a batch; many small chunks share it, as new memory costs time."""
    held: Array | None = getattr(_memory, name, None)
    if held is None or held.size < n_rows * n:
        held = np.empty(n_rows * n)
        setattr(_memory, name, held)
    return held[: n_rows * n].reshape(n_rows, n)


def _own(array: Any) -> Any:
    """Return an array that may be written to; None for None. Raises InvalidInputError if it does not fit in memory."""
    try:
        return array if array is None or array.flags.writeable else array.copy()
    except MemoryError:
        raise InvalidInputError(
            f"`X` has {array.shape[1] - 2} features, with the column of ones: the sums over them take "
            f"{array.nbytes / 1e9:.3g} GB, which is more memory than there is. Fit to all rows at once, sparse, by "
            '`LSTD(solver="iterative").fit`, or hash the features to fewer columns, as '
            "`sklearn.feature_extraction.FeatureHasher` does."
        ) from None


def parts_of(phi: Features) -> tuple[NDArray[np.integer], NDArray[np.integer], Array]:
    """Return the three arrays of sparse features, for kernels."""
    return phi.indptr, phi.indices, phi.data


def _zero(values: Array, where: Flags) -> Array:
    """Return values with zeros at some places."""
    return np.where(where, 0.0, values) if where.any() else values
