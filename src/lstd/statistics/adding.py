"""Add rows to the sums of a stream: a kernel for the traces of a batch of rows, a matrix product for the rest.

The quantities are defined in :mod:`lstd.statistics.merging`. Sparse rows are multiplied entry by entry where that is
less work.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lstd._kernels.traces import add_entries, add_later_sums, dense_traces, sparse_sums
from lstd.data.feature_arrays import Features, dense, rows_of
from lstd.data.rows import COLUMNS, ReadOnly, Rows, repeated, uniform
from lstd.errors import InvalidInputError
from lstd.types import Array, Flags

_BATCH_ENTRIES = 2**17  # of a batch of traces, about one MiB: it stays in the cache between kernel and product
_LEAST_BATCH = 512  # rows: each batch passes over A, which is larger than any cache where n is some thousands
SPARSE_BATCH = 2**13  # rows, with whose traces no array is filled
DENSE_FROM = 0.25  # share of entries from which a matrix product is faster than a loop over entries
_TINY = 2.0**-200  # share of an entering trace that is far below rounding at any scale of the features
ENTRIES_AT_ONCE = 2**22  # of the rows that one thread sums at a time, 32 MiB
CHUNK_WORK = 2**24  # products in a chunk's sums, half a millisecond, that are worth a thread's while
_MERGE_SHARE = 128  # of the work of a chunk of sparse rows to n², which merging takes
_NEVER = np.zeros(1, np.bool_)
_memory = threading.local()


@dataclass(frozen=True, eq=False)
class Pending(ReadOnly):
    """The last row of a stream that did not terminate: a transition if the stream continues, else a horizon row."""

    phi: Annotated[Array, "n"]  # its features; with successors given, those of its successor
    reward: Annotated[Array, "m nan"]
    missing: bool  # the reward is NaN
    ratio: float
    discount: float
    complete: bool  # successors were given: the transition is in the sums, and only its boundary term is open
    coefficient: float
    weight: float

    @classmethod
    def of_row(cls, rows: Rows, t: int) -> Pending | None:
        """Return row t as the last one; None if it terminated."""
        if rows.terminated[t]:
            return None
        given = rows.X_next is not None
        return cls.of(
            phi=rows.row(rows.X_next if given else rows.X, t), reward=rows.y[t].copy(), missing=not rows.known[t],
            ratio=float(rows.importance_ratio[t]), discount=float(rows.discount[t]), complete=given,
            coefficient=float(rows.trace_coefficient[t]), weight=float(rows.weight[t]),
        )  # fmt: skip

    def as_rows(self, given: frozenset[str]) -> Rows:
        """Return the row as one of a stream that goes on; `given` says which of `COLUMNS` were given."""
        no, numbers = np.zeros(1, np.bool_), (self.discount, self.ratio, self.coefficient, self.weight)
        columns = {name: repeated(1.0, 1) for name in COLUMNS}
        columns |= {name: np.array([number]) for name, number in zip(COLUMNS, numbers, strict=False)}
        return Rows.of(
            X=self.phi[np.newaxis], X_next=None, y=self.reward[np.newaxis], known=~no, last=no, terminated=no,
            **columns, episode=None, given=given,
        )  # fmt: skip


class Added(NamedTuple):
    """Sums of a stream of n features and m rewards, whose arrays may be written to."""

    sums: Array  # (n + m, n + 2)
    cuts: Array | None  # (n, n + 2)
    trace: Array  # (2, n + 2)

    def then(self, later: Added) -> Added:
        """Join with those of a later chunk, which the trace enters: S = S₁ + S₂[:n] + u S₂[n]ᵀ + v S₂[n + 1]ᵀ."""
        return Added(
            _joined(self.sums, later.sums, self.trace), _joined(self.cuts, later.cuts, self.trace),
            _joined(np.zeros_like(self.trace), later.trace, self.trace),
        )  # fmt: skip

    def alone(self) -> Added:
        """Return the sums as those of data that no trace enters, and which none leaves."""
        kept = np.append(np.ones(self.trace.shape[1] - 2), [0.0, 0.0])
        return Added(self.sums * kept, None if self.cuts is None else self.cuts * kept, np.zeros_like(self.trace))

    def ended(self, row: Pending) -> Added:
        """Add the boundary term of the pending row, where the stream ends."""
        boundary = np.multiply.outer(row.phi, self.trace[1])
        return self._replace(cuts=boundary if self.cuts is None else self.cuts + boundary)

    def continued(self, row: Pending, lmbda: float) -> Added:
        """Add the transition that leaves the pending row; if it is in the sums, the successor that was left out."""
        n, (u, v) = len(row.phi), self.trace
        z, sums = row.ratio * row.coefficient * lmbda * u, np.zeros_like(self.sums)
        if row.complete:
            np.multiply.outer(row.phi, -v, out=sums[:n])
            return self._replace(sums=np.add(sums, self.sums, out=sums))
        z[:n] += row.ratio * row.phi
        np.multiply.outer(row.phi, row.weight * z - v, out=sums[:n])
        np.multiply.outer(row.weight * row.reward, z, out=sums[n:])
        trace = np.multiply.outer([row.discount, row.weight * row.discount], z)
        return Added(np.add(sums, self.sums, out=sums), self.cuts, trace)


def _joined(one: Array | None, two: Array | None, trace: Array) -> Any:
    """Join sums, changed in place if they may be; None stands for zeros."""
    if two is None:
        return one
    out = np.zeros_like(two) if one is None else one if one.flags.writeable else one.copy()
    add_later_sums(out, np.ascontiguousarray(two), *trace)
    return out


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
        self.sums, self.cuts, self.trace = map(_own, before)
        self.at, self._rows, self._lmbda, self._given = 0, rows, lmbda, rows.X_next is not None
        self._cut = rows.last & ~rows.terminated  # truncated ends
        if self._given:
            self._cut[-1] = False  # its boundary term is pending
            self._inner = ~self._cut
            self._inner[-1] = False
        columns = rows.discount, rows.importance_ratio, rows.trace_coefficient, rows.weight
        discount, ratio, coefficient, weight = map(column_of, columns)
        self._columns = discount, ratio, lmbda * coefficient, weight
        self._dense = is_dense(rows.X) or (self._given and is_dense(rows.X_next))
        most = min(4096, max(_LEAST_BATCH, _BATCH_ENTRIES // max(1, rows.n_features))) if self._dense else SPARSE_BATCH
        self._most, kind = most, type(self)  # a bound method would be a cycle, which holds the rows until it is found
        self._add = kind._add_dense if self._dense else kind._add_sparse
        if not self._dense and is_short(rows, lmbda):
            self._add = kind._add_short
        if self.cuts is None and self._cut.any():
            self.cuts = np.zeros((rows.n_features, self.trace.shape[1]))

    def until(self, end: int, *, done: bool) -> tuple[Added, Pending | None]:
        """Add the rows up to `end`; return the sums, copies unless `done`, and the last row if it is pending.

        The transition that leaves this row is not in the sums, or its successor is not.
        """
        cut_off = self._given and self._cut[end - 1]  # its boundary term was added with it
        pending = None if cut_off else Pending.of_row(self._rows, end - 1)
        stop = end - (pending is not None and not self._given)
        if hasattr(self._rows.X, "sums"):  # features that sum themselves, to nothing before
            self.sums, self.cuts, self.trace = self._rows.X.sums(self._rows, self._lmbda)
        elif stop > self.at:
            size = -(-(stop - self.at) // -(-(stop - self.at) // self._most))  # equal ones: short ones are slow per row
            for first in range(self.at, stop, size):
                self._add(self, slice(first, min(first + size, stop)))
        self.at, added = stop, Added(self.sums, self.cuts, self.trace)
        if done:
            return added, pending
        copies = Added(self.sums.copy(), None if self.cuts is None else self.cuts.copy(), self.trace.copy())
        if pending is not None and self._given and self._inner[end - 1]:
            copies.sums[: len(pending.phi)] += np.multiply.outer(pending.phi, self.trace[1])
        return copies, pending

    def _numbers(self, part: slice) -> tuple[Array, list[Array], Flags]:
        """Return rewards, the columns of some rows, of one number if it is that of all, and truncated ends.

        The columns are discounts, zero where a trace ends, ratios, decays and weights.
        """
        cut, columns = self._cut[part], [column if len(column) == 1 else column[part] for column in self._columns]
        if self._given and cut.any():
            columns[0] = np.where(cut, 0.0, columns[0])
        return np.ascontiguousarray(self._rows.y[part]), columns, cut

    def _add_dense(self, part: slice) -> None:
        """Add Σ l_t x_tᵀ to A, and −Σ l_h φ_hᵀ or Σ γ_h l_h φ'_hᵀ over the cuts to B, by products.

        l_t is w_t z_t − v_t and x_t is φ_t; with successors given, w_t z_t and φ_t − γ_t φ'_t. The unit traces are left
        out once they are zero.
        """
        n, (u, v), (y, columns, cut) = self._rows.n_features, self.trace, self._numbers(part)
        width = n + 2 * bool(u[n] or v[n] or v[n + 1])
        phi, left, first = self._filled("phi", self._rows.X, part), _scratch("left", len(cut), width), v[:width].copy()
        horizon, kept = (_NEVER, 0.0) if self._given else (cut, 1.0)
        dense_traces(phi, y, *columns, horizon, kept, u, left, self.sums[n:])
        if width > n and abs(u[n]) < _TINY:
            u[n] = 0.0
        np.multiply(u, columns[-1][-1], out=v)
        (ends,), right = cut.nonzero(), phi
        if self._given:
            right, beyond = self._differences(phi, part, ends)
        else:
            left[0] -= first  # the v of the batch before, which the kernel does not have
            beyond = -phi[ends]
        if len(ends):
            assert self.cuts is not None
            self.cuts[:, :width] += beyond.T @ left[ends]
            left[ends] *= float(self._given)  # without successors, horizon rows are in B alone
        self.sums[:n, :width] += right.T @ left

    def _differences(self, phi: Array, part: slice, ends: NDArray[np.intp]) -> tuple[Array, Array]:
        """Return φ_t − γ_t φ'_t, without the second term where it is not in A, and γ_t φ'_t of the cuts."""
        outgoing, inner = self._rows.discount[part], self._inner[part]
        phi_next, right = self._filled("next", self._rows.X_next, part), _scratch("right", *phi.shape)
        np.multiply(phi_next, np.where(inner, -outgoing, 0.0)[:, np.newaxis], out=right)
        right += phi
        return right, outgoing[ends, np.newaxis] * phi_next[ends]

    def _filled(self, name: str, features: Features, part: slice) -> Array:
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

    def _add_sparse(self, part: slice) -> None:
        """Add rows with few entries, each times a trace."""
        phi, (y, columns, inner) = parts_of(rows_of(self._rows.X, part)), self._numbers(part)
        outgoing, ahead = columns[0], (phi[0][:0], *phi[1:])
        if self._given:
            inner, outgoing = self._inner[part], np.ascontiguousarray(self._rows.discount[part])
            ahead = parts_of(rows_of(self._rows.X_next, part))
        left, cuts = _scratch("left", 1, self.trace.shape[1])[0], self.sums if self.cuts is None else self.cuts
        sparse_sums(
            *phi, y, *columns, self._cut[part], inner, outgoing, *ahead, *self.trace, left, self.sums, cuts
        )  # fmt: skip

    def _add_short(self, part: slice) -> None:
        """Add rows with few entries, whose traces have as few."""
        n, given, phi, (y, columns, cut) = (
            self._rows.n_features,
            self._given,
            rows_of(self._rows.X, part),
            self._numbers(part),
        )
        discounts, ratios, _, weights = (np.broadcast_to(column, len(cut)) for column in columns)
        z, v = _zero(weights * ratios, cut & (not given)), self.trace[1].copy()
        leaving, parts, by_column = _zero(discounts * ratios, cut), parts_of(phi), parts_of(phi.tocsc())
        self.sums[n:, :n] += (phi.T @ (z[:, np.newaxis] * y)).T
        self.trace[:] = 0.0
        self.trace[0, :n] = leaving[-1] * dense(rows_of(phi, slice(len(cut) - 1, len(cut))))[0]
        self.trace[1] = weights[-1] * self.trace[0]
        add_entries(z, 0, *parts, *by_column, self.sums)
        cuts = self.sums if self.cuts is None else self.cuts
        if given:
            outgoing = self._rows.discount[part] * z
            ahead = parts_of(rows_of(self._rows.X_next, part).tocsc())
            add_entries(-_zero(outgoing, ~self._inner[part]), 0, *parts, *ahead, self.sums)
            if cut.any():
                add_entries(_zero(outgoing, ~cut), 0, *parts, *ahead, cuts)
            return
        subtracted = np.append(0.0, (weights * leaving)[:-1])
        add_entries(-_zero(subtracted, cut), 1, *parts, *by_column, self.sums)
        if cut.any():
            add_entries(_zero(subtracted, ~cut), 1, *parts, *by_column, cuts)
        first, goal = slice(*phi.indptr[:2]), cuts if cut[0] else self.sums
        goal[phi.indices[first]] += np.outer(phi.data[first], v if cut[0] else -v)


def chunk_edges(rows: Rows, lmbda: float, at: Iterable[int]) -> tuple[list[int], bool]:
    """Return where chunks begin, and the end, and whether threads share them, as each has enough work for one.

    All are cut before the rows `at`, and sparse ones such that threads can share them and merging them is little of the
    work. That depends on the rows only.
    """
    n, n_rows = max(1, rows.n_features), len(rows)
    if is_dense(rows.X) and not hasattr(rows.X, "sums"):
        return sorted({0, *at, n_rows}), False
    entries = max(1.0, rows.X.nnz / max(1, n_rows))
    work = entries * (entries if is_short(rows, lmbda) else n)
    length = int(max(1, ENTRIES_AT_ONCE // n, _MERGE_SHARE * n**2 / work))
    edges = sorted({*range(0, n_rows, length), *at, n_rows})
    return edges, len(edges) > 2 and n_rows * n**2 >= (len(edges) - 1) * CHUNK_WORK


def column_of(column: Array) -> Array:
    """Return a column for kernels, which take one number for all rows."""
    return column[:1].copy() if uniform(column) else np.ascontiguousarray(column)


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
