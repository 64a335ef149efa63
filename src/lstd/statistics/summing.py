"""Rows into statistics: the next rows of a stream in one pass, and large data in chunks, by threads.

Statistics are those of :mod:`lstd.statistics.merging`, which holds the algebra.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
from scipy import sparse

from lstd.data.feature_arrays import check_finite
from lstd.data.rows import Rows
from lstd.errors import InvalidInputError
from lstd.statistics.batch_sums import BatchSums, is_dense, is_short
from lstd.statistics.carry import Pending
from lstd.statistics.matrix_sums import is_no_sum
from lstd.statistics.solve import check_range
from lstd.statistics.stream_sums import Sums
from lstd.statistics.tally import tallies
from lstd.statistics.threads import blas_threads, in_threads

S = TypeVar("S", bound=Sums)

ENTRIES_AT_ONCE = 2**22  # of the rows that one thread sums at a time, 32 MiB
CHUNK_WORK = 2**24  # products in a chunk's sums, half a millisecond, that are worth a thread's while
_MERGE_SHARE = 128  # of the work of a chunk of sparse rows to n², which merging takes


def chunk_statistics(rows: Rows, nothing: S, at: Iterable[int] = (), *, threads: int | None = None) -> Iterator[S]:
    """Yield statistics of consecutive chunks of rows, cut before each row of `at` too; not checked by `check_sums`.

    They are summed by `threads` threads (default: the limit of the BLAS), each with a single-threaded BLAS. `nothing`
    are statistics of no data.
    """
    edges, many = chunk_edges(rows, nothing.lmbda, at)
    yield from in_threads(partial(_summed, nothing), rows.split(edges), (threads or blas_threads()) if many else 1)


@np.errstate(over="ignore", invalid="ignore")
def _summed(nothing: S, rows: Rows) -> S:
    (statistics,) = summed_until(nothing, rows, [len(rows)])
    return statistics


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


def summed_until(start: S, rows: Rows, ends: Sequence[int], begins: bool = True) -> Iterator[S]:
    """Yield statistics with the next rows of the stream up to each of `ends`, at least 1; not checked for overflow.

    In `start` no row is pending. `begins` says whether the first row begins a new episode. Rows that are given with
    successors have one end.
    """
    sums, given = BatchSums(rows, start), rows.X_next is not None
    groups, known, tally = _groups_until(start, rows), start.n_rows > 0, tallies(start.tally, rows, start.lmbda)
    for end in ends:
        part = slice(sums.at, end - (not given and not rows.terminated[end - 1]))  # but for a pending row
        sums.add_until(part.stop)
        ended = int(np.count_nonzero(rows.last[: end - 1]))
        yield start.changed(
            **sums.fields(), **groups(end), pending=_pending(rows, end - 1), successors=given,
            first_episode=start.first_episode if known else rows.first_episode,
            last_episode=None if rows.episode is None else rows.episode[end - 1],
            n_episodes=start.n_episodes + begins + ended, tally=tally(part, end), last_weight=sums.before,
        )  # fmt: skip


def _pending(rows: Rows, t: int) -> Pending | None:
    """Return row t as the last row of the data; None if it terminated."""
    if rows.terminated[t]:
        return None
    given = rows.X_next is not None
    return Pending.of(
        phi=rows.row(rows.X_next if given else rows.X, t), reward=rows.y[t].copy(), missing=not rows.known[t],
        ratio=float(rows.importance_ratio[t]), discount=float(rows.discount[t]), complete=given,
        coefficient=float(rows.trace_coefficient[t]), weight=float(rows.weight[t]),
    )  # fmt: skip


def _groups_until(start: Sums, rows: Rows) -> Callable[[int], dict[str, Any]]:
    """Return a function that gives the fields about groups after `start` and the first rows."""
    if rows.groups is None:
        return lambda end: {}
    ids, begins = rows.groups, rows.begins
    shared = start.n_rows > 0 and start.in_group(ids[0])
    before, first = (start.n_groups or 0) - shared, start.first_group if start.n_rows else ids[0]
    return lambda end: {
        "n_groups": before + int(np.count_nonzero(begins[:end])), "first_group": first, "last_group": ids[end - 1]
    }  # fmt: skip


def check_sums(statistics: Sums, rows: Rows) -> None:
    """Raise if the last `rows` had features that are NaN or infinite, or the sums overflow.

    Such a feature makes the diagonal of A or the pending row NaN, as 0·inf is NaN. So only if the sums are not finite
    does it take a pass over all features.
    """
    for name, phi in (("X", rows.X), ("X_next", rows.X_next)):
        if sparse.issparse(phi):  # entries may meet no others
            check_finite(name, phi)
    s = statistics
    sums = [s.A, *([] if is_no_sum(s.B) else [s.B])]
    vectors = [s.b.ravel(), s.incoming_trace, s.carry.matrix, s.carry.boundary, s.carry.rewards, s.carry.first]
    sums.append(np.concatenate(vectors if s.pending is None else [*vectors, s.pending.phi]))
    with np.errstate(over="ignore", invalid="ignore"):
        if math.isfinite(s.carry.decay) and all(math.isfinite(array.sum()) for array in sums):
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
