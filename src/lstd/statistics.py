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

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.linalg import blas
from threadpoolctl import threadpool_info, threadpool_limits

from lstd._rows import Features, Rows, check_finite, check_rows
from lstd._sums import is_no_sum, no_sum, sum_rows
from lstd._validation import check_choice, check_real
from lstd.errors import InvalidInputError
from lstd.solve import Solution, check_range, solve

Array = NDArray[np.float64]

VARIANTS = ("boyan", "uncorrected", "mixed")
_APART = "(sum of independent data)"  # in place of the episode id of a sum, which no chunk goes on from
_PIECE_ENTRIES = 2**22  # of the rows that one thread sums at a time, 32 MiB


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
            A=no_sum(n, n), B=no_sum(n, n), b=np.zeros((n, m)),
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
        """Statistics of rows that `check_rows` has checked, but for NaN and inf among the features.

        They are summed in pieces that depend on the shape of the data only, and so does the result to the last bit.
        """
        total = cls.empty(rows.n_features, rows.y.shape[1], lmbda=lmbda, single=rows.single)
        with np.errstate(over="ignore", invalid="ignore"):  # `check_sums` looks at what comes out
            for piece in pieces_of(rows, lmbda):
                total = total.then(piece)
        check_sums(total, rows)
        return total

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
        goes_on = self.goes_on_with(following.first_episode, following.successors)
        start = _completed(self) if goes_on else _closed(self)
        u = start.arriving
        return replace(
            following,
            A=_sum_and_outer(start.A, following.A, u, following.a),
            B=_sum_and_outer(start.B, following.B, u, following.h),
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

    def goes_on_with(self, episode: Any, successors: bool | None) -> bool:
        """Whether a row of this episode id, given with its successor or not, goes on with the last row's episode.

        Raises
        ------
        InvalidInputError
            When successors or ids were given before and are not now, or the other way round.
        """
        if None not in (self.successors, successors) and self.successors != successors:
            raise InvalidInputError("`X_next` must be given for all chunks of a stream or for none.")
        if self.pending is None or (isinstance(episode, str) and episode == _APART):
            return False
        if (self.last_episode is None) != (episode is None):
            raise InvalidInputError(
                "`episode` must be given for all chunks of a stream or for none, where a chunk may go on with the "
                "episode of the one before."
            )
        return bool(np.all(self.last_episode == episode))

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


def _sum_and_outer(one: Array, two: Array, u: Array, v: Array) -> Array:
    """one + two + u vᵀ; arrays may be shared with those given, as no statistics are ever written to."""
    changes = bool(u.any() and v.any())
    if not changes and (is_no_sum(one) or is_no_sum(two)):
        return two if is_no_sum(one) else one
    found = one + two
    if changes:
        blas.dger(1.0, v, u, a=found.T, overwrite_a=True)
    return found


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


def pieces_of(rows: Rows, lmbda: float, at: Iterable[int] = ()) -> Iterator[LSTDStatistics]:
    """Statistics of consecutive pieces of rows, cut at the rows `at`; large data by as many threads as BLAS may use.

    Nothing has looked for features that are NaN or infinite: see `check_sums`.
    """
    nothing = LSTDStatistics.empty(rows.n_features, rows.y.shape[1], lmbda=lmbda, single=rows.single)
    size = max(1, _PIECE_ENTRIES // max(1, rows.n_features))
    pieces = rows.split(size, at)
    if len(rows) <= size:
        yield from (_of_rows(piece, nothing) for piece in pieces)
        return
    threads = max((library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"), default=1)
    waiting: deque[Future[LSTDStatistics]] = deque()
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(threads, thread_name_prefix="lstd") as pool:
        for piece in pieces:
            waiting.append(pool.submit(_of_rows, piece, nothing))
            if len(waiting) > 2 * threads:  # so that few sums are held at a time
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _of_rows(rows: Rows, nothing: LSTDStatistics) -> LSTDStatistics:
    with np.errstate(over="ignore", invalid="ignore"):  # `check_sums` looks at what comes out
        sums = sum_rows(rows, nothing.lmbda)
    end = len(rows) - 1
    pending = None
    if not rows.terminated[end]:
        given = rows.X_next is not None
        phi = _row(rows.X_next if given else rows.X, end)
        ratio, leaving = float(rows.ratios[end]), float(rows.leaving[end])
        pending = Pending(phi, rows.y[end], bool(rows.y_missing[end]), ratio, leaving, given)
    return replace(
        nothing,
        **vars(sums),
        pending=pending,
        first_episode=rows.first_episode,
        last_episode=rows.last_episode,
        n_rows=len(rows),
        n_episodes=int(rows.last.sum()),
        successors=rows.X_next is not None,
    )


def check_sums(found: LSTDStatistics, rows: Rows) -> None:
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


def _row(X: Features, i: int) -> Array:
    return np.asarray(X[[i]].toarray() if sparse.issparse(X) else X[i]).reshape(-1).copy()
