"""Sums of a stream as rows are added: a kernel for the traces of a batch of rows, a matrix product for the rest.

The quantities are defined in :mod:`lstd.statistics.merging`. Sparse rows are multiplied entry by entry where that is
less work; `A` and `B` then are in Fortran order.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd._kernels.traces import (
    add_entries,
    carry_factors,
    dense_traces,
    sparse_sums,
    sparse_sums_of_pairs,
    sparse_traces,
)
from lstd.data.feature_arrays import Features, dense, rows_of
from lstd.data.rows import Rows, uniform
from lstd.statistics.carry import Carry
from lstd.statistics.matrix_sums import plus, plus_product, transposed, writable
from lstd.statistics.stream_sums import Sums
from lstd.types import Array, Flags

_BATCH_ENTRIES = 2**17  # of a batch of traces, about one MiB: it stays in the cache between kernel and product
_LEAST_BATCH = 512  # rows: each batch passes over A, which is larger than any cache where n is some thousands
SPARSE_BATCH = 2**13  # rows, with whose traces no array is filled
DENSE_FROM = 0.25  # share of entries from which a matrix product is faster than a loop over entries
_ALIKE = 16  # rows with entries in the same columns, on average, that are worth a product of their own
_memory = threading.local()


def is_dense(features: Features) -> bool:
    """Return whether features are dense, or sparse with so many entries that dense ones are faster."""
    return isinstance(features, np.ndarray) or features.nnz >= DENSE_FROM * features.shape[0] * features.shape[1]


def is_short(rows: Rows, lmbda: float) -> bool:
    """Return whether the trace of each row holds the features of that row alone."""
    return lmbda == 0.0 or not rows.trace_coefficient.any()


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


class BatchSums:
    """The sums of a stream, to which rows are added; the state is that before row `at`.

    `start` are statistics in which no row is pending; they are not changed.
    """

    def __init__(self, rows: Rows, start: Sums) -> None:
        carry = start.carry
        self.rows, self._lmbda, self.at = rows, start.lmbda, 0
        self._A, self._B, self._b, self._u = start.A, start.B, start.b.T.copy(), start.incoming_trace.copy()
        self.before, self._share = start.last_weight, carry.decay  # weight of the last row; share of an entering trace
        self._carry = carry.matrix.copy(), carry.boundary.copy(), carry.rewards.copy()
        self._carried: Carry | None = carry
        self._first, self._is_new = (carry.first, carry.first_cut), not start.n_rows
        self._own: dict[str, Any] | None = None  # of features that sum themselves, from an empty start
        given = rows.X_next is not None
        self._cut = rows.last & ~rows.terminated  # truncated ends
        self._dense_X = is_dense(rows.X)
        self._dense = self._dense_X or (given and is_dense(rows.X_next))
        self._short = not self._dense_X and is_short(rows, start.lmbda)
        self._inner = np.empty(0, np.bool_)
        if given:
            self._cut[-1] = False  # its boundary term is pending
            self._inner = ~self._cut
            self._inner[-1] = False

    def add_until(self, end: int) -> None:
        """Add the rows up to `end`, without the boundary term of the last row unless it terminated.

        The caller checks the sums, and ignores warnings of NumPy.
        """
        if not (isinstance(self.rows.X, np.ndarray) or sparse.issparse(self.rows.X)):
            self._own = self.rows.X.sums(self.rows, self._lmbda)
            return
        if self._is_new and self.at == 0 < end and self.rows.X_next is None:
            self._first, self._carried = (self.rows.row(self.rows.X, 0), bool(self._cut[0])), None
        for batch in self._batches(end):
            self._add(batch)
            self._add_carry(batch)
        self.at = end

    def fields(self) -> dict[str, Any]:
        """Return the sums as fields of statistics, whose arrays are not to be written to."""
        if self._own is not None:
            return self._own
        if self._carried is None:
            (a, h, c), (first, first_cut) = (part.copy() for part in self._carry), self._first
            self._carried = Carry.of(
                decay=self._share, matrix=a, boundary=h, rewards=c, first=first, first_cut=first_cut
            )
        b, u = self._b.T.copy(), self._u.copy()
        return {"A": self._A, "B": self._B, "b": b, "incoming_trace": u, "carry": self._carried}

    def _batches(self, end: int) -> Iterator[_Batch]:
        """Yield the next rows, in order."""
        rows, n, count = self.rows, self.rows.n_features, end - self.at
        most = min(4096, max(_LEAST_BATCH, _BATCH_ENTRIES // max(1, n))) if self._dense else SPARSE_BATCH
        size = -(-count // -(-count // most)) if count else 1  # equal lengths, as a short batch is slow per row
        for first in range(self.at, end, size):
            part = slice(first, min(first + size, end))
            discount, cut = _column(rows.discount, part), self._cut[part]
            if rows.X_next is not None and cut.any():
                discount = np.where(cut, 0.0, discount)
            yield _Batch(
                part, self._batch_of("phi", rows.X, part) if self._dense_X else rows_of(rows.X, part),
                np.ascontiguousarray(rows.y[part]), discount,
                _column(rows.importance_ratio, part), _column(rows.trace_coefficient, part, self._lmbda),
                _column(rows.weight, part), cut,
            )  # fmt: skip

    def _batch_of(self, name: str, features: Features, part: slice) -> Array:
        """Return rows of features, dense, of float64 and with the column of ones."""
        rows, n = rows_of(features, part), self.rows.n_features
        if isinstance(rows, np.ndarray) and rows.dtype == np.float64 and rows.shape[1] == n:
            return np.asarray(rows)
        goal = _scratch(name, rows.shape[0], n)
        if not isinstance(rows, np.ndarray):
            goal[...] = 0.0
            return np.asarray(rows.toarray(out=goal))
        goal[:, : rows.shape[1]] = rows
        goal[:, rows.shape[1] :] = 1.0
        if self.rows.centre is not None:
            goal[:, :-1] -= self.rows.centre
        return goal

    def _add(self, batch: _Batch) -> None:
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
        (ends,) = batch.cut.nonzero()
        if given:  # no row is a horizon row
            batch = batch._replace(cut=np.zeros_like(batch.cut))
        if not isinstance(batch.phi, np.ndarray):
            sparse_traces(*_parts(batch.phi), *batch.columns, 1.0 - given, self.before, self._u, left, self._b)
        else:
            z = np.empty(len(self._u))
            dense_traces(batch.phi, *batch.columns, 1.0 - given, self.before, self._u, z, left, self._b)
        if given:
            right, outgoing, phi_next = self._differences(batch)
            if len(ends):
                self._B = plus(self._B, (left[ends] * outgoing[ends, np.newaxis]).T @ phi_next[ends])
        else:
            right = batch.phi
            if len(ends):
                self._B = plus_product(self._B, left.take(ends, 0), right.take(ends, 0), -1.0)
                left[ends] = 0.0
        self._A = plus_product(self._A, left, right)

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
        cuts = bool(batch.cut.any())
        self._make_transposed(cuts)
        left = _scratch("left", 1, len(self._u))[0]
        state = self._u, left, self._b, self._A.T, (self._B if cuts else self._A).T
        if self.rows.X_next is None:
            sparse_sums(*_parts(batch.phi), *batch.columns, self.before, *state)
        else:
            inner, outgoing = self._inner[batch.rows], _column(self.rows.discount, batch.rows)
            phi_next = rows_of(self.rows.X_next, batch.rows)
            sparse_sums_of_pairs(*_parts(batch.phi), *batch.columns, inner, outgoing, *_parts(phi_next), *state)

    def _add_short(self, batch: _Batch) -> None:
        """Add rows with few entries, whose traces have as few."""
        cut, phi, given = batch.cut, batch.phi, self.rows.X_next is not None
        z = batch.weights * batch.ratios if given else _zero(batch.weights * batch.ratios, cut)
        self._b += (phi.T @ (z[:, np.newaxis] * batch.y)).T
        leaving, u = _zero(batch.discount * batch.ratios, cut), self._u
        self._u = leaving[-1] * dense(rows_of(phi, slice(len(cut) - 1, len(cut))))[0]
        if given:
            self._add_short_pairs(batch, z)
            return
        self._make_transposed(bool(cut.any()))
        parts, columns = _parts(phi), _parts(phi.tocsc())
        subtracted = np.append(0.0, (batch.weights * leaving)[:-1])
        add_entries(z, 0, *parts, *columns, self._A.T)
        add_entries(-_zero(subtracted, cut), 1, *parts, *columns, self._A.T)
        if cut.any():
            add_entries(_zero(subtracted, ~cut), 1, *parts, *columns, self._B.T)
        first, goal, sign = slice(*phi.indptr[:2]), (self._B if cut[0] else self._A).T, 1.0 if cut[0] else -1.0
        goal[phi.indices[first]] += np.outer(phi.data[first], sign * self.before * u)

    def _add_short_pairs(self, batch: _Batch, z: Array) -> None:
        phi, ends = batch.phi, np.flatnonzero(batch.cut)
        if self._dense:
            right, outgoing, phi_next = self._differences(batch)
            self._A = writable(self._A)
            _add_alike(self._A, phi, z, right)
            if len(ends):
                self._B = plus(self._B, np.asarray(phi[ends].T @ ((z * outgoing)[ends, np.newaxis] * phi_next[ends])))
            return
        self._make_transposed(len(ends) > 0)
        outgoing, parts = self.rows.discount[batch.rows] * z, _parts(phi)
        ahead = _parts(rows_of(self.rows.X_next, batch.rows).tocsc())
        add_entries(z, 0, *parts, *_parts(phi.tocsc()), self._A.T)
        add_entries(-_zero(outgoing, ~self._inner[batch.rows]), 0, *parts, *ahead, self._A.T)
        if len(ends):
            add_entries(_zero(outgoing, ~batch.cut), 0, *parts, *ahead, self._B.T)

    def _make_transposed(self, cuts: bool) -> None:
        """Make A, and B for `cuts`, arrays in Fortran order that can be added to."""
        self._A = transposed(self._A)
        if cuts:
            self._B = transposed(self._B)

    def _add_carry(self, batch: _Batch) -> None:
        """Add what a trace that enters the chunk changes; then the state is that after the batch."""
        given, before, self.before = self.rows.X_next is not None, self.before, float(batch.weights[-1])
        if self._share == 0.0:
            return
        self._carried = None
        factors = np.empty((4, len(batch.cut)))
        outgoing = _column(self.rows.discount, batch.rows)[: given * len(batch.cut)]
        reach, self._share = carry_factors(
            batch.discount, batch.ratios, batch.lmbdas, batch.weights, batch.cut, outgoing, before, self._share, factors
        )
        if not reach:
            return
        near, (of_a, of_h, of_c, ahead) = slice(0, reach), factors[:, :reach]
        a, h, c = self._carry
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


def _column(column: Array, rows: slice, factor: float = 1.0) -> Array:
    """Return a column of a batch of rows times a factor, for kernels, which take contiguous arrays."""
    if uniform(column):
        return _constant(factor * float(column[rows.start]))[: rows.stop - rows.start]
    return column[rows] if factor == 1.0 else factor * column[rows]


@lru_cache(maxsize=8)
def _constant(value: float) -> Array:
    """Return a column of one value, longer than any batch, that is not written to."""
    return np.full(max(4096, SPARSE_BATCH), value)


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
                    plus_product(A[first : first + len(columns)], values[rows], right[rows])
                else:
                    A[columns] += values[rows].T @ right[rows]
            return
    A += (phi * z[:, np.newaxis]).T @ right
