"""Rows into statistics: the next rows of a stream in one pass, and large data in chunks, by threads.

Statistics are those of :mod:`lstd.statistics.merging`, which holds the algebra.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
from scipy import sparse

from lstd.data.feature_arrays import check_finite
from lstd.data.rows import Rows
from lstd.errors import InvalidInputError
from lstd.statistics.adding import is_dense, is_short
from lstd.statistics.solve import check_range
from lstd.statistics.threads import blas_threads, in_threads

S = TypeVar("S", bound=Any)

ENTRIES_AT_ONCE = 2**22  # of the rows that one thread sums at a time, 32 MiB
CHUNK_WORK = 2**24  # products in a chunk's sums, half a millisecond, that are worth a thread's while
_MERGE_SHARE = 128  # of the work of a chunk of sparse rows to n², which merging takes


def chunk_statistics(rows: Rows, nothing: S, at: Iterable[int] = (), *, threads: int | None = None) -> Iterator[S]:
    """Yield statistics of consecutive chunks of rows, cut before each row of `at` too; not checked by `check_sums`.

    They are summed by `threads` threads (default: the limit of the BLAS), each with a single-threaded BLAS. `nothing`
    are statistics of no data.
    """
    edges, many = chunk_edges(rows, nothing.lmbda, at)
    yield from chunks_summed(rows, edges, nothing, threads=threads if many else 1)


def chunks_summed(rows: Rows, edges: Sequence[int], nothing: S, *, threads: int | None = None) -> Iterator[S]:
    """Yield statistics of chunks of rows that begin at `edges`, as `chunk_statistics` does."""
    return in_threads(nothing.followed_by, rows.split(edges), threads or blas_threads())


def chunk_edges(rows: Rows, lmbda: float, at: Iterable[int]) -> tuple[list[int], bool]:
    """Return where chunks begin, and the end, and whether each has enough work for a thread.

    They are cut where memory requires it and before the rows `at`. That depends on the rows only.
    """
    edges = sorted({*range(0, len(rows), _chunk_length(rows, lmbda)), *at, len(rows)})
    many = len(edges) > 2 and len(rows) * rows.n_features**2 >= (len(edges) - 1) * CHUNK_WORK
    return edges, many


def _chunk_length(rows: Rows, lmbda: float) -> int:
    """Return the rows of a chunk; for sparse rows, such that merging the chunks is little of the work."""
    n = max(1, rows.n_features)
    if is_dense(rows.X):
        return max(1, ENTRIES_AT_ONCE // n)
    entries = max(1.0, rows.X.nnz / max(1, len(rows)))
    work = entries * (entries if is_short(rows, lmbda) else n)
    return int(max(1, ENTRIES_AT_ONCE // n, _MERGE_SHARE * n**2 / work))


def check_sums(statistics: Any, rows: Rows) -> None:
    """Raise if the last `rows` had features that are NaN or infinite, or the sums overflow.

    Such a feature makes the diagonal of A or the pending row NaN, as 0·inf is NaN. So only if the sums are not finite
    does it take a pass over all features.
    """
    for name, phi in (("X", rows.X), ("X_next", rows.X_next)):
        if sparse.issparse(phi):  # entries may meet no others
            check_finite(name, phi)
    s = statistics
    sums = [s.sums, s.trace, *([] if s.cuts is None else [s.cuts]), *([] if s.pending is None else [s.pending.phi])]
    with np.errstate(over="ignore", invalid="ignore"):
        if all(math.isfinite(array.sum()) for array in sums):
            return
    if all(np.isfinite(array).all() for array in sums):  # only their sum overflows
        return
    for name, phi in (("X", rows.X), ("X_next", rows.X_next)):
        if isinstance(phi, np.ndarray):
            check_finite(name, phi)
    check_range(*sums)


def check_weighted(total_weight: float, n_transitions: int) -> None:
    """Refuse rows that all have weight zero."""
    if n_transitions and not total_weight > 0.0:
        raise InvalidInputError(
            f"`weight` must be above 0 for some transition; got 0 for all {n_transitions}. Pass weights that are not "
            "all zero, or none for weights of 1."
        )
