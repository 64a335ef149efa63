"""Statistics of LSTD(λ): sums over a stream that merge exactly, and are solved for any α and variant afterwards.

With g_t the discount on arrival in row t (zero in an episode's first row), u_t = g_t z_{t−1} the trace that arrives
there, and ρ_t the importance ratio,

    z_t = ρ_t (λ u_t + φ_t),   A = Σ (z_t − u_t) φ_tᵀ,   b = Σ z_t r_{t+1},   B = Σ_ends u_h φ_hᵀ

over full transitions t and over the horizon rows h at the ends of truncated episodes. Then

    A_Uncorrected = A,   A_Boyan = A − B,   A_Mixed = A − (1−λ) B         (Osogami 2020, (7), (8), (17), Theorem 1)

where the end of the data counts as a truncated end too. Consecutive chunks of a stream form a monoid. A trace u that
arrives in a chunk's first row adds u aᵀ to A, u hᵀ to B, u cᵀ to b and arrives in its last row with the factor e,
where, with e_0 = 1, d_t = ρ_t λ e_t and e_{t+1} = g_{t+1} d_t,

    a = Σ (d_t − e_t) φ_t,   c = Σ d_t r_{t+1},   h = Σ_ends e_h φ_h.

The last row of a chunk is pending: it becomes a full transition when the next chunk goes on with its episode, and a
horizon row otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from threadpoolctl import threadpool_info, threadpool_limits

from lstd._kernels.traces import arrivals, dense_traces, sparse_traces
from lstd._rows import Features, Rows, check_finite, check_rows
from lstd._validation import check_choice, check_real
from lstd.errors import InvalidInputError
from lstd.solve import Solution, check_range, solve

Array = NDArray[np.float64]

VARIANTS = ("boyan", "uncorrected", "mixed")
_APART = "(sum of independent data)"  # in place of the episode id of a sum, which no chunk goes on from
_PIECE_ENTRIES = 2**22  # of the rows that one thread sums at a time, 32 MiB
_BLOCK_ENTRIES = 2**17  # of a block of traces, about one MiB: it stays in the cache between kernel and product


@dataclass(frozen=True, eq=False)
class Pending:
    """The last row of a stream that did not terminate."""

    phi: Array  # (n,) its features; with successors given, those of its successor
    reward: Array  # (m,)
    missing: bool  # the reward is NaN
    ratio: float
    leaving: float
    complete: bool  # successors were given: its transition is in the sums, and only the boundary term is open


@dataclass(frozen=True, eq=False)
class LSTDStatistics:
    """Statistics of a stream or of independent streams, for one (γ, λ); n features, m rewards.

    Make them with :meth:`from_arrays`; go on with the same stream by :meth:`then`, add independent data by ``+``, and
    :meth:`solve` for any ridge coefficient and variant, without the data. `lstd.persistence.save_statistics` and
    `load_statistics` keep them in a file.

    Attributes
    ----------
    lmbda : float
        Trace decay.
    A, B : ndarray of shape (n, n)
        Matrix of the Uncorrected estimator, and its boundary terms at truncated ends.
    b : ndarray of shape (n, m)
    n_transitions, n_episodes : int
        Full transitions, and episodes begun.

    Examples
    --------
    >>> import numpy as np
    >>> from lstd.statistics import LSTDStatistics
    >>> X, y = np.ones((4, 1)), np.ones(4)
    >>> whole = LSTDStatistics.from_arrays(X, y, gamma=0.5, lmbda=0.0)
    >>> parts = [LSTDStatistics.from_arrays(X[i : i + 1], y[i : i + 1], gamma=0.5, lmbda=0.0) for i in range(4)]
    >>> merged = parts[0].then(parts[1]).then(parts[2].then(parts[3]))
    >>> float(whole.solve(0.0, "boyan").weights[0]), float(merged.solve(0.0, "boyan").weights[0])
    (2.0, 2.0)
    """

    lmbda: float
    A: Array
    B: Array
    b: Array
    arriving: Array  # (n,) u, in the pending row
    share: float  # e
    a: Array  # (n,)
    h: Array  # (n,)
    c: Array  # (m,)
    pending: Pending | None
    first_episode: Any
    last_episode: Any
    n_rows: int
    n_transitions: int
    n_episodes: int
    single: bool  # one reward, given as a vector
    successors: bool | None  # whether features of successors were given; None without data, or in a sum of both

    @classmethod
    def empty(cls, n_features: int, n_rewards: int = 1, *, lmbda: float, single: bool = True) -> LSTDStatistics:
        """Statistics of no data."""
        n, m = n_features, n_rewards
        return cls(
            lmbda=check_real("lmbda", lmbda, 0.0, 1.0),
            A=np.zeros((n, n)), B=np.zeros((n, n)), b=np.zeros((n, m)),
            arriving=np.zeros(n), share=1.0, a=np.zeros(n), h=np.zeros(n), c=np.zeros(m),
            pending=None, first_episode=None, last_episode=None,
            n_rows=0, n_transitions=0, n_episodes=0, single=single, successors=None,
        )  # fmt: skip

    @classmethod
    def from_arrays(
        cls,
        X: Any,
        y: Any,
        *,
        gamma: float,
        lmbda: float,
        episode: ArrayLike | None = None,
        terminated: ArrayLike | None = None,
        X_next: Any = None,
        discount: ArrayLike | None = None,
        importance_ratio: ArrayLike | None = None,
    ) -> LSTDStatistics:
        """Statistics of rows in time order.

        Parameters
        ----------
        X : array-like or CSR of shape (T, n)
            Features of each row.
        y : array-like of shape (T,) or (T, m)
            Rewards received on leaving each row; ignored in the last row of an episode that did not terminate, where
            NaN is allowed.
        gamma : float in [0, 1]
            Discount, where `discount` does not give one per row.
        lmbda : float in [0, 1]
            Trace decay.
        episode : array-like of shape (T,), optional
            Id of each row's episode; the rows of an episode follow one another.
        terminated : array-like of shape (T,), optional
            Whether the row's successor is terminal, of value zero.
        X_next : array-like or CSR of shape (T, n), optional
            Features of each row's successor: then every row is a full transition.
        discount : array-like of shape (T,), optional
            Discount of each row's transition, in [0, 1].
        importance_ratio : array-like of shape (T,), optional
            Importance ratio of each row's transition, at least 0.

        Raises
        ------
        InvalidInputError
            When an array breaks the data contract.
        """
        gamma = check_real("gamma", gamma, 0.0, 1.0)
        lmbda = check_real("lmbda", lmbda, 0.0, 1.0)
        rows = check_rows(
            X, y, gamma=gamma, episode=episode, terminated=terminated, X_next=X_next, discount=discount,
            importance_ratio=importance_ratio, finite=False,
        )  # fmt: skip
        return cls.from_rows(rows, lmbda)

    @classmethod
    def from_rows(cls, rows: Rows, lmbda: float) -> LSTDStatistics:
        """Statistics of rows that `check_rows` has checked, but for NaN and inf among the features."""
        nothing = cls.empty(rows.n_features, rows.y.shape[1], lmbda=lmbda, single=rows.single)
        if not len(rows):
            return nothing
        found = _of_pieces(rows, nothing)
        _check_sums(found, rows)
        return found

    @property
    def n_features(self) -> int:
        """Number of features, n."""
        return len(self.b)

    def then(self, following: LSTDStatistics) -> LSTDStatistics:
        """Statistics of this stream followed by the next chunk of the same stream.

        The chunk's first row is the successor of this stream's last row, unless that one terminated or the episode
        ids differ. Exact at any split, in any bracketing, up to rounding.
        """
        _check_alike(self, following)
        if following.n_rows == 0:
            return self
        if self.n_rows == 0:
            return following
        goes_on = _goes_on(self, following)
        start = _completed(self) if goes_on else _closed(self)
        u = start.arriving
        return replace(
            following,
            A=start.A + following.A + np.outer(u, following.a),
            B=start.B + following.B + np.outer(u, following.h),
            b=start.b + following.b + np.outer(u, following.c),
            arriving=following.arriving + following.share * u,
            share=start.share * following.share,
            a=start.a + start.share * following.a,
            h=start.h + start.share * following.h,
            c=start.c + start.share * following.c,
            first_episode=self.first_episode,
            n_rows=self.n_rows + following.n_rows,
            n_transitions=start.n_transitions + following.n_transitions,
            n_episodes=self.n_episodes + following.n_episodes - goes_on,
        )

    def __add__(self, other: LSTDStatistics) -> LSTDStatistics:
        """Statistics of both, as independent data: the ends of both streams are truncated.

        No chunk goes on with an episode of a sum, nor a sum with an episode of a chunk.
        """
        if not isinstance(other, LSTDStatistics):
            return NotImplemented
        _check_alike(self, other)
        one, two = _closed(self), _closed(other)
        zeros = np.zeros(self.n_features)
        given = {s.successors for s in (one, two) if s.n_rows}
        return replace(
            one,
            A=one.A + two.A, B=one.B + two.B, b=one.b + two.b,
            share=0.0, a=zeros, h=zeros, c=np.zeros(self.b.shape[1]), first_episode=_APART, last_episode=_APART,
            n_rows=one.n_rows + two.n_rows,
            n_transitions=one.n_transitions + two.n_transitions,
            n_episodes=one.n_episodes + two.n_episodes,
            successors=given.pop() if len(given) == 1 else None,
        )  # fmt: skip

    def matrix(self, variant: str = "boyan") -> Array:
        """A of a variant, without the ridge term, shape (n, n)."""
        check_choice("variant", variant, VARIANTS)
        weight = {"boyan": 1.0, "uncorrected": 0.0, "mixed": 1.0 - self.lmbda}[variant]
        if weight == 0.0:
            return self.A.copy()
        return self.A - weight * _closed(self).B

    def solve(self, alpha: float = 1.0, variant: str = "boyan") -> Solution:
        """Weights (A + αI)⁻¹ b of a variant, for any α ≥ 0, with the condition number.

        Warns
        -----
        IllConditionedWarning
            When the system is singular or nearly so.
        """
        alpha = check_real("alpha", alpha, 0.0, np.inf)
        found = solve(self.matrix(variant), self.b, alpha)
        return replace(found, weights=found.weights[:, 0]) if self.single else found


def _check_alike(one: LSTDStatistics, two: LSTDStatistics) -> None:
    for name, left, right in (
        ("lmbda", one.lmbda, two.lmbda),
        ("number of features", one.n_features, two.n_features),
        ("number of rewards", one.b.shape[1], two.b.shape[1]),
    ):
        if left != right:
            raise InvalidInputError(f"Statistics merge only with the same {name}; got {left} and {right}.")
    if one.single != two.single:
        raise InvalidInputError("`y` must be a vector in all data that are merged, or have shape (T, 1) in all.")


def _goes_on(s: LSTDStatistics, following: LSTDStatistics) -> bool:
    """Whether the first row of `following` belongs to the episode of the last row of `s`."""
    if None not in (s.successors, following.successors) and s.successors != following.successors:
        raise InvalidInputError("`X_next` must be given for all chunks of a stream or for none.")
    if s.pending is None or (isinstance(following.first_episode, str) and following.first_episode == _APART):
        return False
    if (s.last_episode is None) != (following.first_episode is None):
        raise InvalidInputError(
            "`episode` must be given for all chunks of a stream or for none, where a chunk may go on with the episode "
            "of the one before."
        )
    return bool(np.all(s.last_episode == following.first_episode))


def _completed(s: LSTDStatistics) -> LSTDStatistics:
    """`s` with its pending row as a full transition, and what arrives in the row after it."""
    row = s.pending
    assert row is not None  # the caller has looked
    if row.complete:
        return replace(s, A=s.A - np.outer(s.arriving, row.phi), a=s.a - s.share * row.phi, pending=None)
    if row.missing:
        raise InvalidInputError(
            "`y` must be finite on a row whose episode goes on in the next chunk; the last row of the chunk before has "
            "NaN. Pass that reward, or give the next chunk another `episode` id if the episode was cut there."
        )
    z = row.ratio * (s.lmbda * s.arriving + row.phi)
    d = row.ratio * s.lmbda * s.share
    return replace(
        s,
        A=s.A + np.outer(z - s.arriving, row.phi),
        b=s.b + np.outer(z, row.reward),
        arriving=row.leaving * z,
        share=row.leaving * d,
        a=s.a + (d - s.share) * row.phi,
        c=s.c + d * row.reward,
        pending=None,
        n_transitions=s.n_transitions + 1,
    )


def _closed(s: LSTDStatistics) -> LSTDStatistics:
    """`s` with its end as that of a truncated episode."""
    zero = np.zeros_like(s.arriving)
    if s.pending is None:
        return replace(s, arriving=zero, share=0.0)
    phi = s.pending.phi
    return replace(s, B=s.B + np.outer(s.arriving, phi), h=s.h + s.share * phi, arriving=zero, share=0.0, pending=None)


def _of_pieces(rows: Rows, nothing: LSTDStatistics) -> LSTDStatistics:
    """Sums over pieces of fixed size, by as many threads as BLAS may use, merged in order.

    The pieces depend on the shape of the data only, and so does the result to the last bit.
    """
    pieces = rows.pieces(max(1, _PIECE_ENTRIES // max(1, rows.n_features)))
    if len(pieces) == 1:
        return _of_rows(rows, nothing)
    threads = max((library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"), default=1)
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(threads, thread_name_prefix="lstd") as pool:
        found = reduce(LSTDStatistics.then, pool.map(lambda piece: _of_rows(piece, nothing), pieces))
    return replace(found, first_episode=rows.first_episode, last_episode=rows.last_episode)


def _of_rows(rows: Rows, nothing: LSTDStatistics) -> LSTDStatistics:
    with np.errstate(over="ignore", invalid="ignore"):  # `_check_sums` looks at what comes out
        return _sums_and_end(rows, nothing)


def _sums_and_end(rows: Rows, nothing: LSTDStatistics) -> LSTDStatistics:
    given = rows.X_next is not None
    end = len(rows) - 1
    is_open = not rows.terminated[end]
    n_full = end if is_open and not given else end + 1  # rows that are in the sums, horizon rows among them
    cut = rows.last[:n_full] & ~rows.terminated[:n_full]  # truncated ends
    if given and is_open:
        cut[end] = False  # its boundary term is pending
    sums = _sum_with_successors(rows, cut, nothing) if given else _sum(rows, n_full, cut, nothing)
    n_transitions = n_full if given else n_full - int(cut.sum())
    if not is_open:
        return replace(sums, n_transitions=n_transitions)
    phi = _row(rows.X_next if given else rows.X, end)
    pending = Pending(
        phi, rows.y[end], bool(rows.y_missing[end]), float(rows.ratios[end]), float(rows.leaving[end]), given
    )
    return replace(sums, pending=pending, n_transitions=n_transitions)


def _check_sums(found: LSTDStatistics, rows: Rows) -> None:
    """Refuse features that are NaN or infinite, and sums that overflow.

    Such a feature leaves its mark on the diagonal of A or in the pending row, as 0·inf is NaN: no pass over all
    features is needed to find out that there is one.
    """
    sums = (found.A, found.B, found.b, found.arriving, *([] if found.pending is None else [found.pending.phi]))
    if all(np.isfinite(array).all() for array in sums):
        return
    check_finite("X", rows.X)
    if rows.X_next is not None:
        check_finite("X_next", rows.X_next)
    check_range(*sums)


class _Sums:
    """A, B, b and the trace u, summed block by block."""

    def __init__(self, rows: Rows, lmbda: float) -> None:
        n = rows.n_features
        self.rows, self.lmbda = rows, lmbda
        self.A, self.B = np.zeros((2, n, n))
        self.b = np.zeros((rows.y.shape[1], n))
        self.u, self._z = np.zeros((2, n))
        self._size = min(4096, max(64, _BLOCK_ENTRIES // max(1, n)))
        self._left = np.empty((min(self._size, len(rows)), n))

    def blocks(self, n_rows: int, leaving: Array, ratios: Array, kept: float) -> Iterator[tuple[slice, Array]]:
        """Blocks of rows and z − kept u of each, (T, n); `b` and `u` go on."""
        for first in range(0, n_rows, self._size):
            block = slice(first, min(first + self._size, n_rows))
            phi, y = self.rows.X[block], np.ascontiguousarray(self.rows.y[block])
            left = self._left[: block.stop - first]
            state = (self.lmbda, kept, self.u, self._z, left, self.b)
            if sparse.issparse(phi):
                indptr, indices = phi.indptr.astype(np.int64), phi.indices.astype(np.int64)
                sparse_traces(indptr, indices, phi.data, y, leaving[block], ratios[block], *state)
            else:
                dense_traces(phi, y, leaving[block], ratios[block], *state)
            yield block, left


def _sum(rows: Rows, n_full: int, cut: NDArray[np.bool_], nothing: LSTDStatistics) -> LSTDStatistics:
    """Sums over the first `n_full` rows, where each row's successor is the next row."""
    sums = _Sums(rows, nothing.lmbda)
    # A horizon row with ratio and discount zero adds nothing to b and leaves no trace; it has z − u = −u.
    ratios, leaving = np.where(cut, 0.0, rows.ratios[:n_full]), np.where(cut, 0.0, rows.leaving[:n_full])
    for block, left in sums.blocks(n_full, leaving, ratios, 1.0):
        phi = rows.X[block]
        ends = np.flatnonzero(cut[block])
        if len(ends):
            sums.B -= _product(left[ends], phi[ends])
            left[ends] = 0.0
        sums.A += _product(left, phi)
    e, d, share = _shares(leaving, ratios, nothing.lmbda)
    near = slice(0, len(e))
    full = ~cut[near]
    a = _weighted(np.where(full, d - e, 0.0), rows.X[near])
    h = _weighted(np.where(full, 0.0, e), rows.X[near])
    return _summed(rows, sums, nothing, share=share, a=a, h=h, c=_weighted(d, rows.y[near]))


def _sum_with_successors(rows: Rows, cut: NDArray[np.bool_], nothing: LSTDStatistics) -> LSTDStatistics:
    """Sums over all rows, each with the features of its successor; the last boundary term is left open."""
    X_next: Features = rows.X_next
    sums = _Sums(rows, nothing.lmbda)
    carried = np.where(cut, 0.0, rows.leaving)
    inner = ~cut
    inner[-1] = False
    for block, z in sums.blocks(len(rows), carried, rows.ratios, 0.0):
        phi_next = X_next[block]
        sums.A += _product(z, rows.X[block])
        z *= rows.leaving[block, np.newaxis]
        ends = np.flatnonzero(cut[block])
        if len(ends):
            sums.B += _product(z[ends], phi_next[ends])
        z[~inner[block]] = 0.0
        sums.A -= _product(z, phi_next)
    _, d, share = _shares(carried, rows.ratios, nothing.lmbda)
    near = slice(0, len(d))
    out = d * rows.leaving[near]
    a = _weighted(d, rows.X[near]) - _weighted(np.where(inner[near], out, 0.0), X_next[near])
    h = _weighted(np.where(cut[near], out, 0.0), X_next[near])
    return _summed(rows, sums, nothing, share=share, a=a, h=h, c=_weighted(d, rows.y[near]))


def _summed(rows: Rows, sums: _Sums, nothing: LSTDStatistics, **incoming: Any) -> LSTDStatistics:
    return replace(
        nothing, A=sums.A, B=sums.B, b=sums.b.T.copy(), arriving=sums.u,
        n_rows=len(rows), n_episodes=int(rows.last.sum()), successors=rows.X_next is not None,
        first_episode=rows.first_episode, last_episode=rows.last_episode, **incoming,
    )  # fmt: skip


def _shares(leaving: Array, ratios: Array, lmbda: float) -> tuple[Array, Array, float]:
    """e, d and the share that leaves, over the rows in which anything that arrived in the first row is left."""
    e, d = np.empty((2, len(leaving)))
    share = arrivals(leaving, ratios, lmbda, e, d)
    gone = np.flatnonzero(e == 0.0)
    reach = int(gone[0]) if len(gone) else len(e)
    return e[:reach], d[:reach], float(share)


def _product(left: Array, right: Features) -> Array:
    """leftᵀ right, dense."""
    if sparse.issparse(right):
        return np.asarray((right.T @ left).T)
    return np.asarray(left.T @ right)


def _weighted(weights: Array, rows: Features) -> Array:
    """Weighted sum of rows."""
    return np.asarray(rows.T @ weights).reshape(-1)


def _row(X: Features, i: int) -> Array:
    return np.asarray(X[[i]].toarray() if sparse.issparse(X) else X[i]).reshape(-1).copy()
