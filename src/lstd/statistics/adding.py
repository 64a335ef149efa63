"""Add rows to the sums of a stream: a kernel for the traces of a batch of rows, a matrix product for the rest.

The quantities are defined in :mod:`lstd.statistics.merging`. Sparse rows are multiplied entry by entry where that is
less work.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import NamedTuple, Protocol, Self, TypeGuard

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd._kernels.traces import (
    add_entries,
    add_few,
    add_later_sums,
    add_transition,
    dense_traces,
    sparse_sums,
)
from lstd.data.feature_arrays import Features, dense, rows_of
from lstd.data.rows import Rows, uniform
from lstd.errors import InvalidInputError
from lstd.types import Array, Flags

_BATCH_ENTRIES = 2**17  # of a batch of traces, about one MiB: it stays in the cache between kernel and product
_SHORTEST_BATCH = 512  # rows: each batch passes over A, which is larger than any cache where n is some thousands
_LONGEST_BATCH = 4096  # rows
SPARSE_BATCH = 2**13  # rows, with whose traces no array is filled
DENSE_FROM = 0.25  # share of entries from which a matrix product is faster than a loop over entries
FEW_PRODUCTS = 2**14  # in the sums of a few rows, up to which a loop is faster than a matrix product
_TINY = 2.0**-200  # share of an entering trace that is far below rounding at any scale of the features
ENTRIES_AT_ONCE = 2**22  # of the rows that one thread sums at a time, 32 MiB
CHUNK_WORK = 2**24  # products in a chunk's sums, half a millisecond, that are worth a thread's while
_MERGE_SHARE = 128  # of the work of a chunk of sparse rows to n², which merging takes
_NEVER = np.zeros(1, np.bool_)
_NO_CUTS = np.empty((0, 0))
_memory = threading.local()


def features_at_end(row: Rows) -> Array:
    """Return the features where a stream stops, (n,): of its last row or, given successors, of that row's successor."""
    features = row.X
    if row.X_next is not None:
        features = row.X_next
    return row.row(features, -1)


class Added(NamedTuple):
    """Sums of a stream of n features and m rewards, whose arrays may be written to."""

    sums: Array  # (n + m, n + 2): A, and below it b
    cuts: Array | None  # (n, n + 2): B; None for zeros
    trace: Array  # (2, n + 2): u and v

    def then(self, later: Added) -> Added:
        """Join with those of a later chunk, which the trace enters: S = S₁ + S₂[:n] + u S₂[n]ᵀ + v S₂[n + 1]ᵀ."""
        cuts = self.cuts
        if later.cuts is not None:
            if cuts is None:
                cuts = np.zeros_like(later.cuts)
            cuts = _joined(cuts, later.cuts, self.trace)
        return Added(
            sums=_joined(self.sums, later.sums, self.trace),
            cuts=cuts,
            trace=_joined(np.zeros_like(self.trace), later.trace, self.trace),
        )

    def alone(self) -> Added:
        """Return the sums as those of data that no trace enters, and which none leaves."""
        kept = np.ones(self.trace.shape[1])
        kept[-2:] = 0.0
        cuts = self.cuts
        if cuts is not None:
            cuts = cuts * kept
        return Added(self.sums * kept, cuts, np.zeros_like(self.trace))

    def ended(self, row: Rows) -> Added:
        """Add the boundary term φ vᵀ of the last row, where the stream ends."""
        v = self.trace[1]
        cuts = np.multiply.outer(features_at_end(row), v)
        if self.cuts is not None:
            cuts += self.cuts
        return self._replace(cuts=cuts)

    def continued(self, row: Rows, lmbda: float) -> Added:
        """Add the transition that leaves the last row; if it is in the sums, the successor that was left out."""
        phi = features_at_end(row)
        sums = self.sums.copy()
        if row.X_next is not None:
            sums[: len(phi)] -= np.multiply.outer(phi, self.trace[1])
            return self._replace(sums=sums)
        trace = self.trace.copy()
        decay = row.trace_coefficient[0] * lmbda
        numbers = (row.importance_ratio[0], row.discount[0], decay, row.weight[0])
        add_transition(phi, row.y[0], *numbers, *trace, sums)
        return Added(sums, self.cuts, trace)


class SummingFeatures(Protocol):
    """Features (T, n) that are never an array of their width: they sum the rows that they are of, as pairs do."""

    @property
    def shape(self) -> tuple[int, int]:
        """T and n."""

    @property
    def nnz(self) -> int:
        """Number of entries of an array of the features, as far as work is divided by it."""

    def rows(self, part: slice) -> Self:
        """Return consecutive rows."""

    def __getitem__(self, rows: slice) -> Features:
        """Return the features of some rows, dense or sparse."""

    def toarray(self) -> Array:
        """Return the features as an array."""

    def sums(self, rows: Rows, lmbda: float) -> Added:
        """Sum rows with these features, which follow no others."""


def sum_themselves(features: Features) -> TypeGuard[SummingFeatures]:
    """Return whether features are neither dense nor sparse."""
    return not (isinstance(features, np.ndarray) or sparse.issparse(features))


def _joined(sums: Array, later: Array, trace: Array) -> Array:
    """Join sums with those of a later chunk, which the trace enters; `sums` are changed in place if they may be."""
    if not sums.flags.writeable:
        sums = sums.copy()
    u, v = trace
    read_only = np.ascontiguousarray(later).view()
    read_only.setflags(write=False)  # one type of argument, so that the kernel is compiled once
    add_later_sums(sums, read_only, u, v)
    return sums


def is_dense(features: Features) -> bool:
    """Return whether features are dense, or sparse with so many entries that dense ones are faster."""
    if isinstance(features, np.ndarray):
        return True
    n_rows, n = features.shape
    return bool(features.nnz >= DENSE_FROM * n_rows * n)


def is_short(rows: Rows, lmbda: float) -> bool:
    """Return whether the trace of each row holds the features of that row alone."""
    return lmbda == 0.0 or not rows.trace_coefficient.any()


class TransitionColumns(NamedTuple):
    """What transitions are multiplied by, as kernels take it: (T,), or (1,) for one number of all rows."""

    discount: Array
    ratio: Array
    coefficient: Array  # of the trace
    weight: Array

    @classmethod
    def of(cls, rows: Rows) -> Self:
        """Return the columns of rows."""
        columns = (rows.discount, rows.importance_ratio, rows.trace_coefficient, rows.weight)
        return cls(*map(column_of, columns))

    def part(self, rows: slice) -> Self:
        """Return the columns of some rows."""
        parts = []
        for column in self:
            if len(column) > 1:
                column = column[rows]
            parts.append(column)
        return type(self)(*parts)


class Adding:
    """Rows that are added to the sums of a stream; the state is that before row `at`.

    The caller checks the sums for overflow, and ignores the warnings of NumPy about it.
    """

    def __init__(self, rows: Rows, columns: TransitionColumns, lmbda: float, before: Added) -> None:
        self.sums = _writeable(before.sums)
        self.cuts = before.cuts
        if before.cuts is not None:
            self.cuts = _writeable(before.cuts)
        self.trace = _writeable(before.trace)
        self.at = 0
        self._rows = rows
        self._lmbda = lmbda
        self._given = rows.X_next is not None
        self._columns = columns._replace(coefficient=lmbda * columns.coefficient)
        self._cut = rows.cut
        self._may_be_few = not self._given and rows.centre is None and isinstance(rows.X, np.ndarray)
        if self._given:
            self._cut[-1] = False  # its boundary term is open
            self._has_successor = ~self._cut  # rows whose successor is in A
            self._has_successor[-1] = False
        self._dense = is_dense(rows.X) or (self._given and is_dense(rows.X_next))
        self._short = not self._dense and is_short(rows, lmbda)
        if self.cuts is None and self._cut.any():
            self.cuts = np.zeros((rows.n_features, self.trace.shape[1]))

    def until(self, end: int, last: Rows, *, done: bool) -> tuple[Added, Rows]:
        """Add the rows up to `end`, the `last` of which is kept; return the sums, copies unless `done`, and this row.

        Unless it terminated, the transition that leaves this row is not in the sums, or its successor is not.
        """
        if self._given and self._cut[end - 1]:  # its boundary term is added with it, and nothing is open
            last = last.changed(terminated=np.ones(1, np.bool_))
        is_open = not last.terminated[0]
        stop = end
        if is_open and not self._given:
            stop = end - 1
        if sum_themselves(self._rows.X):  # to nothing before
            self.sums, self.cuts, self.trace = self._rows.X.sums(self._rows, self._lmbda)
        elif stop > self.at:
            few = (stop - self.at) * self.sums.size <= FEW_PRODUCTS
            if few and self._may_be_few:
                self._add_few(slice(self.at, stop))
            else:
                self._add_in_batches(stop)
        self.at = stop
        if done:
            return Added(self.sums, self.cuts, self.trace), last

        sums = self.sums.copy()
        cuts = self.cuts
        if cuts is not None:
            cuts = cuts.copy()
        if is_open and self._given and self._has_successor[end - 1]:
            v = self.trace[1]
            phi = features_at_end(last)
            sums[: len(phi)] += np.multiply.outer(phi, v)  # which is in these sums, but is open
        return Added(sums, cuts, self.trace.copy()), last

    def _add_in_batches(self, stop: int) -> None:
        """Add the rows up to `stop` in batches of equal size, as short ones are slow per row."""
        longest = SPARSE_BATCH
        if self._dense:
            longest = _BATCH_ENTRIES // max(1, self._rows.n_features)
            longest = min(max(_SHORTEST_BATCH, longest), _LONGEST_BATCH)
        n_rows = stop - self.at
        n_batches = -(-n_rows // longest)
        size = -(-n_rows // n_batches)
        for first in range(self.at, stop, size):
            batch = slice(first, min(first + size, stop))
            if self._dense:
                self._add_dense(batch)
            elif self._short:
                self._add_short(batch)
            else:
                self._add_sparse(batch)

    def _columns_of(self, batch: slice) -> TransitionColumns:
        """Return the columns of some rows: discounts, zero where a trace ends, and coefficients times λ."""
        columns = self._columns.part(batch)
        cut = self._cut[batch]
        if self._given and cut.any():
            return columns._replace(discount=np.where(cut, 0.0, columns.discount))
        return columns

    # ------------------------------------------------------------ dense rows

    def _add_few(self, batch: slice) -> None:
        """Add a few dense rows without successors, one by one, which is faster than a product."""
        add_few(
            np.ascontiguousarray(self._rows.X[batch], np.float64),
            np.ascontiguousarray(self._rows.y[batch]),
            *self._columns.part(batch),
            self._cut[batch],
            *self.trace,
            self.sums,
            _NO_CUTS if self.cuts is None else self.cuts,
        )

    def _add_dense(self, batch: slice) -> None:
        """Add Σ l_t x_tᵀ to A, and −Σ l_h φ_hᵀ or Σ γ_h l_h φ'_hᵀ over the cuts to B, by products.

        l_t is w_t z_t − v_t and x_t is φ_t; with successors given, w_t z_t and φ_t − γ_t φ'_t.
        """
        n = self._rows.n_features
        u, v = self.trace
        width = n  # of the traces, without the two unit traces once these are zero
        if u[n] or v[n] or v[n + 1]:
            width = n + 2
        v_before = v[:width].copy()

        phi = self._filled("phi", self._rows.X, batch)
        y = np.ascontiguousarray(self._rows.y[batch])
        cut = self._cut[batch]
        columns = self._columns_of(batch)
        left = _scratch("left", len(cut), width)
        horizon = _NEVER if self._given else cut  # rows that only serve as successors
        kept = 0.0 if self._given else 1.0  # factor of v_t in l_t
        dense_traces(phi, y, *columns, horizon, kept, u, left, self.sums[n:])
        if width > n and abs(u[n]) < _TINY:
            u[n] = 0.0
        np.multiply(u, columns.weight[-1], out=v)

        (ends,) = cut.nonzero()
        if self._given:
            right, boundary = self._differences(phi, batch, ends)
        else:
            right = phi
            boundary = -phi[ends]
            left[0] -= v_before  # of the batch before, which the kernel does not have
        if len(ends):
            assert self.cuts is not None
            self.cuts[:, :width] += boundary.T @ left[ends]
            if not self._given:
                left[ends] = 0.0  # horizon rows are in B alone
        self.sums[:n, :width] += right.T @ left

    def _differences(self, phi: Array, batch: slice, ends: NDArray[np.intp]) -> tuple[Array, Array]:
        """Return φ_t − γ_t φ'_t, without the second term where it is not in A, and γ_t φ'_t of the cuts."""
        discount = self._rows.discount[batch]
        phi_next = self._filled("next", self._rows.X_next, batch)
        factor = np.where(self._has_successor[batch], -discount, 0.0)
        right = _scratch("right", *phi.shape)
        np.multiply(phi_next, factor[:, np.newaxis], out=right)
        right += phi
        return right, discount[ends, np.newaxis] * phi_next[ends]

    def _filled(self, name: str, features: Features, batch: slice) -> Array:
        """Return rows of features, dense, of float64 and with the column of ones."""
        rows = rows_of(features, batch)
        n = self._rows.n_features
        is_array = isinstance(rows, np.ndarray)
        if is_array and rows.dtype == np.float64 and rows.shape[1] == n:
            return np.asarray(rows)
        filled = _scratch(name, rows.shape[0], n)
        if not is_array:
            filled[...] = 0.0
            rows.toarray(out=filled)
            return filled
        n_given = rows.shape[1]
        filled[:, :n_given] = rows
        filled[:, n_given:] = 1.0
        if self._rows.centre is not None:
            filled[:, :-1] -= self._rows.centre
        return filled

    # ------------------------------------------------------------ sparse rows

    def _add_sparse(self, batch: slice) -> None:
        """Add rows with few entries, each times a trace."""
        phi = parts_of(rows_of(self._rows.X, batch))
        y = np.ascontiguousarray(self._rows.y[batch])
        columns = self._columns_of(batch)
        cut = self._cut[batch]
        if self._given:
            has_successor = self._has_successor[batch]
            discount = np.ascontiguousarray(self._rows.discount[batch])
            phi_next = parts_of(rows_of(self._rows.X_next, batch))
        else:  # of the right types, and not used
            has_successor = cut
            discount = columns.discount
            phi_next = Parts(phi.indptr[:0], phi.indices, phi.values)
        u, v = self.trace
        left = _scratch("left", 1, len(u))[0]
        cuts = self.sums if self.cuts is None else self.cuts
        sparse_sums(*phi, y, *columns, cut, has_successor, discount, *phi_next, u, v, left, self.sums, cuts)

    def _add_short(self, batch: slice) -> None:
        """Add rows with few entries, whose traces, z_t = ρ_t φ_t, have as few."""
        n = self._rows.n_features
        phi = rows_of(self._rows.X, batch)
        cut = self._cut[batch]
        columns = self._columns_of(batch)
        n_rows = len(cut)
        ratio = np.broadcast_to(columns.ratio, n_rows)
        weight = np.broadcast_to(columns.weight, n_rows)
        outgoing = np.broadcast_to(columns.discount * columns.ratio, n_rows)  # u_{t+1} = outgoing_t φ_t
        outgoing = _zero_where(cut, outgoing)
        weighted = weight * ratio  # w_t z_t = weighted_t φ_t
        if not self._given:
            weighted = _zero_where(cut, weighted)

        v_before = self.trace[1].copy()
        last_phi = dense(rows_of(phi, slice(n_rows - 1, n_rows)))[0]
        self.trace[:] = 0.0
        self.trace[0, :n] = outgoing[-1] * last_phi
        self.trace[1] = weight[-1] * self.trace[0]

        self.sums[n:, :n] += (phi.T @ (weighted[:, np.newaxis] * self._rows.y[batch])).T
        by_row = parts_of(phi)
        by_column = parts_of(phi.tocsc())
        cuts = self.sums if self.cuts is None else self.cuts
        add_entries(weighted, 0, *by_row, *by_column, self.sums)
        if self._given:
            discounted = self._rows.discount[batch] * weighted
            phi_next = parts_of(rows_of(self._rows.X_next, batch).tocsc())
            of_successors = _zero_where(~self._has_successor[batch], discounted)
            add_entries(-of_successors, 0, *by_row, *phi_next, self.sums)
            if cut.any():
                add_entries(_zero_where(~cut, discounted), 0, *by_row, *phi_next, cuts)
            return
        of_v = np.append(0.0, (weight * outgoing)[:-1])  # v_t = of_v_t φ_{t−1}
        add_entries(-_zero_where(cut, of_v), 1, *by_row, *by_column, self.sums)
        if cut.any():
            add_entries(_zero_where(~cut, of_v), 1, *by_row, *by_column, cuts)
        first = slice(phi.indptr[0], phi.indptr[1])  # v of the first row is that of the batch before
        if cut[0]:
            cuts[phi.indices[first]] += np.outer(phi.data[first], v_before)
        else:
            self.sums[phi.indices[first]] -= np.outer(phi.data[first], v_before)


def chunk_edges(rows: Rows, lmbda: float, at: Iterable[int]) -> tuple[list[int], bool]:
    """Return where chunks begin, and the end, and whether threads share them, as each has enough work for one.

    All are cut before the rows `at`, and sparse ones such that threads can share them and merging them is little of the
    work. That depends on the rows only.
    """
    n = max(1, rows.n_features)
    n_rows = len(rows)
    if is_dense(rows.X) and not sum_themselves(rows.X):
        return sorted({0, *at, n_rows}), False
    n_entries = max(1.0, rows.X.nnz / max(1, n_rows))  # of a row
    work = n_entries * (n_entries if is_short(rows, lmbda) else n)  # products for a row
    length = int(max(1, ENTRIES_AT_ONCE // n, _MERGE_SHARE * n**2 / work))
    edges = sorted({*range(0, n_rows, length), *at, n_rows})
    n_chunks = len(edges) - 1
    return edges, n_chunks > 1 and n_rows * n**2 >= n_chunks * CHUNK_WORK


def column_of(column: Array) -> Array:
    """Return a column for kernels, which take one number for all rows."""
    if uniform(column):
        return column[:1].copy()
    return np.ascontiguousarray(column)


class Parts(NamedTuple):
    """The three arrays of sparse features."""

    indptr: NDArray[np.integer]
    indices: NDArray[np.integer]
    values: Array


def parts_of(phi: Features) -> Parts:
    """Return the three arrays of sparse features, for kernels."""
    return Parts(phi.indptr, phi.indices, phi.data)


def _scratch(name: str, n_rows: int, n: int) -> Array:
    """Return this thread's memory for a batch; many small chunks share it, as new memory costs time."""
    size = n_rows * n
    memory: Array | None = getattr(_memory, name, None)
    if memory is None or memory.size < size:
        memory = np.empty(size)
        setattr(_memory, name, memory)
    return memory[:size].reshape(n_rows, n)


def _writeable(array: Array) -> Array:
    """Return an array that may be written to; raises InvalidInputError if a copy does not fit in memory."""
    if array.flags.writeable:
        return array
    try:
        return array.copy()
    except MemoryError:
        raise InvalidInputError(
            f"`X` has {array.shape[1] - 2} features, with the column of ones: the sums over them take "
            f"{array.nbytes / 1e9:.3g} GB, which is more memory than there is. Fit to all rows at once, sparse, by "
            '`LSTD(solver="iterative").fit`, or hash the features to fewer columns, as '
            "`sklearn.feature_extraction.FeatureHasher` does."
        ) from None


def _zero_where(where: Flags, values: Array) -> Array:
    """Return values with zeros at some places."""
    if not where.any():
        return values
    return np.where(where, 0.0, values)
