"""Sums over consecutive chunks of a stream, which merge exactly; quantities as in :mod:`lstd.statistics.statistics`.

A trace u that arrives in a chunk's first row adds u aᵀ to A, u hᵀ to B, u cᵀ to b and arrives in its last row with the
factor e, where, with e_0 = 1, d_t = ρ_t λ e_t and e_{t+1} = g_{t+1} d_t,

    a = Σ (d_t − e_t) φ_t,   c = Σ d_t r_{t+1},   h = Σ_ends e_h φ_h.

The last row of a chunk is pending: it becomes a full transition when the next chunk goes on with its episode, and a
horizon row otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from lstd._kernels.add_outer import add_with_outer
from lstd.errors import InvalidInputError
from lstd.statistics.summing import is_no_sum

Array = NDArray[np.float64]

_APART = "(sum of independent data)"  # in place of the episode id of a sum, which no chunk goes on from


@dataclass(frozen=True, eq=False)
class Pending:
    """The last row of a stream that did not terminate."""

    phi: Array  # (n,) its features; with successors given, those of its successor
    reward: Array  # (m,)
    missing: bool  # the reward is NaN
    ratio: float
    leaving: float
    complete: bool  # successors were given: its transition is in the sums, and only the boundary term is open


@dataclass(frozen=True, eq=False, repr=False)
class Mergeable:
    """Sums over a stream or over independent streams, for one (γ, λ); n features, m rewards. Nothing writes to them."""

    gamma: float
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

    def __post_init__(self) -> None:
        for array in (self.A, self.B, self.b, self.arriving, self.a, self.h, self.c):
            array.flags.writeable = False
        if self.pending is not None:
            self.pending.phi.flags.writeable = self.pending.reward.flags.writeable = False

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__post_init__()  # copies and pickles of arrays may be written to

    @property
    def n_features(self) -> int:
        """Number of features, n."""
        return len(self.b)

    def then(self, following: Self) -> Self:
        """Sums over this stream followed by the next chunk of the same stream.

        Exact at any split, in any bracketing, up to rounding.

        Parameters
        ----------
        following : LSTDStatistics
            Its first row is the successor of this stream's last row, unless that one terminated or the episode ids
            differ. An id that comes again after other episodes is not noticed across chunks: it begins an episode.

        Returns
        -------
        LSTDStatistics

        Raises
        ------
        InvalidInputError
            When the two do not fit: another `gamma` or `lmbda`, other numbers of features or rewards, `episode` or
            `X_next` given for one of them only; when the chunk goes on with an episode that terminated, or after a
            row whose reward is NaN.
        """
        _check_alike(self, following)
        if following.n_rows == 0:
            return self
        if self.n_rows == 0:
            return following
        goes_on = self.goes_on_with(following.first_episode, following.successors)
        with np.errstate(over="ignore", invalid="ignore"):  # what solves looks at what comes out
            return _joined(_completed(self) if goes_on else _closed(self), following, goes_on)

    def goes_on_with(self, episode: Any, successors: bool | None) -> bool:
        """Whether a row of this episode id, given with its successor or not, goes on with the last row's episode.

        Raises
        ------
        InvalidInputError
            When successors or ids were given before and are not now, or the other way round; when that episode
            terminated.
        """
        if None not in (self.successors, successors) and self.successors != successors:
            raise InvalidInputError("`X_next` must be given for all chunks of a stream or for none.")
        if isinstance(episode, str) and episode == _APART:
            return False
        same = bool(np.all(self.last_episode == episode))
        if self.pending is None:
            if same and episode is not None:
                raise InvalidInputError(
                    "`terminated` may be True on the last row of an episode only; it was on the last row of the chunk "
                    f"before, and this one begins with the same `episode`, {episode!r}. Give what follows an id of "
                    "its own."
                )
            return False
        if (self.last_episode is None) != (episode is None):
            raise InvalidInputError(
                "`episode` must be given for all chunks of a stream or for none, where a chunk may go on with the "
                "episode of the one before."
            )
        return same

    def __add__(self, other: Self) -> Self:
        """Sums over both, as independent data: the ends of both streams are truncated.

        No chunk goes on with an episode of a sum, nor a sum with an episode of a chunk.
        """
        if not isinstance(other, Mergeable):
            return NotImplemented
        _check_alike(self, other)
        one, two = _closed(self), _closed(other)
        zeros = np.zeros(self.n_features)
        given = {s.successors for s in (one, two) if s.n_rows}
        with np.errstate(over="ignore", invalid="ignore"):  # what solves looks at what comes out
            A, B, b = one.A + two.A, one.B + two.B, one.b + two.b
        return replace(
            one,
            A=A, B=B, b=b,
            share=0.0, a=zeros, h=zeros, c=np.zeros(self.b.shape[1]), first_episode=_APART, last_episode=_APART,
            n_rows=one.n_rows + two.n_rows,
            n_transitions=one.n_transitions + two.n_transitions,
            n_episodes=one.n_episodes + two.n_episodes,
            successors=given.pop() if len(given) == 1 else None,
        )  # fmt: skip

    def __radd__(self, other: Any) -> Self:
        """The same after 0, with which `sum` begins."""
        return self if isinstance(other, int) and other == 0 else NotImplemented


_M = TypeVar("_M", bound=Mergeable)


def _check_alike(one: Mergeable, two: Any) -> None:
    if not isinstance(two, Mergeable):
        raise InvalidInputError(f"Statistics merge with statistics only; got {two!r:.80}.")
    for name, left, right in (
        ("gamma", one.gamma, two.gamma),
        ("lmbda", one.lmbda, two.lmbda),
        ("number of features", one.n_features, two.n_features),
        ("number of rewards", one.b.shape[1], two.b.shape[1]),
    ):
        if left != right:
            raise InvalidInputError(f"Statistics merge only with the same {name}; got {left} and {right}.")
    if one.single != two.single:
        raise InvalidInputError("`y` must be a vector in all data that are merged, or have shape (T, 1) in all.")


def _joined(start: _M, following: _M, goes_on: bool) -> _M:
    """`start`, whose last row is not pending any more, and what follows."""
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
        first_episode=start.first_episode,
        n_rows=start.n_rows + following.n_rows,
        n_transitions=start.n_transitions + following.n_transitions,
        n_episodes=start.n_episodes + following.n_episodes - goes_on,
    )


def _sum_and_outer(one: Array, two: Array, u: Array, v: Array) -> Array:
    """one + two + u vᵀ; arrays may be shared with those given, as no statistics are ever written to."""
    if not (u.any() and v.any()):
        if is_no_sum(one) or is_no_sum(two):
            return two if is_no_sum(one) else one
        return np.add(one, two, order="C")
    found = np.empty(one.shape)
    # In one pass, and without the BLAS, whose threads take longer to meet than to add.
    add_with_outer(np.ascontiguousarray(one), np.ascontiguousarray(two), u, v, found)
    return found


def _completed(s: _M) -> _M:
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


def boundary(s: Mergeable) -> Array:
    """B with the end of the data as that of a truncated episode, (n, n)."""
    return s.B if s.pending is None else s.B + np.outer(s.arriving, s.pending.phi)


def _closed(s: _M) -> _M:
    """`s` with its end as that of a truncated episode."""
    zero = np.zeros_like(s.arriving)
    h = s.h if s.pending is None else s.h + s.share * s.pending.phi
    return replace(s, B=boundary(s), h=h, arriving=zero, share=0.0, pending=None)
