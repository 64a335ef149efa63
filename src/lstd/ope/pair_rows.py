"""Rows of state–action pairs with a block of columns per action, summed without arrays of their width.

In the sums Σ_t z_t x_tᵀ of :mod:`lstd.statistics.merging`, traces of pairs fill up although φ_t has the n features
of one block. In the forward view the same sums are products of these n columns, for each action over its own rows:

    Σ_t w_t z_t x_tᵀ = Σ_t φ_t f_tᵀ,   f_t = w_t x_t + c_{t+1} λγ_t f_{t+1},   x_t = φ_t − γ_t φ̄_t

and likewise for b, and for B with x_t = γ_t φ̄_t at cuts alone. That takes n·k products per row of k features, not k².
A trace u that enters the first row adds u c_0 λ f_0ᵀ.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lstd._kernels.forward_view import forward_rows
from lstd.data.feature_arrays import Features, dense
from lstd.data.rows import Rows, repeated
from lstd.ope.logged_rows import ENTRIES_AT_ONCE, LoggedRows
from lstd.statistics.adding import Added
from lstd.statistics.blocks import Blocks, no_blocks
from lstd.types import Array

_ENTRIES = 2**18  # of f in a batch, 2 MiB, which stay in the cache until they are multiplied,
_ROWS_PER_ACTION = 64  # but with so many rows for each action, on average
_SMALLEST = 1e-290  # entries of f that are far below the rounding of any sum; denormal ones are slow
_LEAST_SHARE = 2.0**-200  # of a row in a later trace: smaller ones are far below rounding at any scale of the features


@dataclass(frozen=True, eq=False)
class PairRows:
    """Features φ(s_t, a_t) of N logged pairs, or their expected successors, as sums and rows need them."""

    logged: LoggedRows
    first: int
    end: int
    expected: bool

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (N, k) of the features."""
        return self.end - self.first, self.logged.width

    @property
    def nnz(self) -> int:
        """Number of entries of an array of the features, as far as work is divided by it."""
        return self.shape[0] * self.shape[1]

    def rows(self, part: slice) -> PairRows:
        """Return consecutive rows."""
        return replace(self, first=self.first + part.start, end=self.first + part.stop)

    def __getitem__(self, rows: slice) -> Features:
        """Return the features of some rows."""
        part = slice(*rows.indices(self.shape[0]))
        part = slice(self.first + part.start, self.first + part.stop, part.step)
        return self.logged.expected(part) if self.expected else self.logged.pairs(part)

    def toarray(self) -> Array:
        """Return the features as an array."""
        return dense(self[:])

    def sums(self, rows: Rows, lmbda: float) -> Added:
        """Sum `rows`, of which these are the features; return `sums`, `cuts` and `trace` of statistics."""
        lmbdas = lmbda * rows.trace_coefficient
        kept = np.where(rows.last, 0.0, rows.discount * np.append(lmbdas[1:], 0.0))
        weights, nothing = np.ascontiguousarray(rows.weight), np.zeros(len(rows))
        ahead, cut = weights * rows.discount, rows.last & ~rows.terminated
        A, a = self._products(weights, np.where(cut, 0.0, ahead), rows.y[:, 0], kept, rows.appended)
        sums, cuts = _with_unit_traces(A, lmbdas[0] * a), None
        cut[-1] = False  # the boundary term of the last row is pending
        if cut.any():
            B, h = self._products(nothing, np.where(cut, -ahead, 0.0), nothing, kept, rows.appended)
            cuts = _with_unit_traces(B, lmbdas[0] * h)[:-1].copy()
        u, decay = self._leaving(kept, rows.discount[-1], rows.appended)
        u = np.concatenate([u, [lmbdas[0] * decay, 0.0]])
        return Added(sums, cuts, np.stack([u, weights[-1] * u]))

    def _products(self, own: Array, ahead: Array, rewards: Array, kept: Array, ones: int) -> tuple[Array, Array]:
        """Return Σ φ_t f_tᵀ with the rewards as a last column, (k, k + 1), and f_0, of x_t = own φ_t − ahead φ̄_t."""
        logged, n = self.logged, self.logged.rows.n_features
        k, n_actions = logged.width + ones, logged.features.n_actions
        out, running = np.zeros((k, k + 1)), np.zeros(k + 1)
        size = max(_ENTRIES // (k + 1), _ROWS_PER_ACTION * n_actions)
        left, right = (np.empty((min(size, len(own)), columns)) for columns in (n + ones, k + 1))
        for first in reversed(range(0, len(own), size)):
            part = slice(first, min(first + size, len(own)))
            whole = slice(self.first + part.start, self.first + part.stop)
            codes, columns = logged.codes[whole], (own[part], ahead[part], rewards[part], kept[part])
            order, edges = np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes, minlength=n_actions))
            places = np.empty_like(order)
            places[order] = np.arange(len(order))
            states = logged.rows.X, logged.full[whole], *logged.places_after(whole)
            running[np.abs(running) < _SMALLEST] = 0.0
            forward_rows(*states, codes, logged.successors[whole], *columns, places, running, left, right)
            for a, (start, end) in enumerate(zip([0, *edges[:-1]], edges, strict=True)):
                if start < end:
                    product = left[start:end].T @ right[start:end]
                    out[a * n : (a + 1) * n] += product[:n]
                    out[k - ones :] += product[n:]
        return out, running

    def _leaving(self, kept: Array, discount: float, ones: int) -> tuple[Array, float]:
        """Return the trace that leaves the last row, (k,), and the share in it of the trace of the first row."""
        shares = discount * np.append(np.cumprod(kept[-2::-1])[::-1], 1.0)
        first = int(np.argmax(shares >= _LEAST_SHARE))
        rows = slice(self.first + first, self.end)
        P = np.zeros((self.end - rows.start, self.logged.features.n_actions))
        P[np.arange(len(P)), self.logged.codes[rows]] = shares[first:]
        z = self.logged.features.total(self.logged.rows.X[self.logged.full[rows]], P)
        return np.append(z, [P.sum()] * ones), float(shares[0])


def _with_unit_traces(S: Array, entering: Array) -> Array:
    """Return the transpose of sums (k, k + 1) with two columns: what unit traces change that enter the first row."""
    return np.column_stack([S.T, entering, np.zeros(len(entering))])


def pair_rows(logged: LoggedRows) -> Rows:
    """Return the transitions as rows whose features are not arrays."""
    rows, full, N = logged.rows, logged.full, len(logged.full)
    coefficients = repeated(1.0, N) if logged.coefficients is None else logged.coefficients
    traced = set() if logged.coefficients is None else {"trace_coefficient"}
    columns = rows.columns(full) | {
        "known": np.ones(N, np.bool_), "last": np.append(logged.begins[1:], True), "episode": logged.episode,
        "importance_ratio": repeated(1.0, N), "trace_coefficient": coefficients,
    }  # fmt: skip
    return rows.changed(
        X=PairRows(logged, 0, N, False), X_next=PairRows(logged, 0, N, True), **columns, names=None, order=None,
        given=rows.given - {"importance_ratio", "trace_coefficient"} | traced,
    )  # fmt: skip


def summed_pairs(logged: LoggedRows, rows: Rows, lmbda: float, intercept: bool, n_blocks: Any) -> Blocks:
    """Sum `rows`, those of `logged` but for weights and rewards.

    Blocks of columns that would take much memory have sums of their own; others are summed as arrays, in chunks.
    """
    size, blocks = len(rows) if logged.wide else max(1, ENTRIES_AT_ONCE // logged.width), None
    for chunk in rows.split(range(0, len(rows), size)):
        arrays: Any = {} if logged.wide else {"X": chunk.X[:], "X_next": chunk.X_next[:]}  # type: ignore[index]
        part = chunk.changed(**arrays)
        part = part.with_intercept() if intercept else part
        blocks = (no_blocks(part, lmbda, n_blocks) if blocks is None else blocks).extended(part)
    assert blocks is not None
    return blocks
