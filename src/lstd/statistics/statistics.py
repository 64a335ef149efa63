"""Sums over a stream, which merge exactly and are solved for any ridge coefficient and variant afterwards.

With g_t the discount on arrival in row t (zero in an episode's first row), u_t = g_t z_{t−1} the trace that enters it,
and ρ_t the importance ratio,

    z_t = ρ_t (λ u_t + φ_t),   A = Σ (z_t − u_t) φ_tᵀ,   b = Σ z_t r_{t+1},   B = Σ_cuts u_h φ_hᵀ

over full transitions t, and over the horizon rows h where an episode was cut off. Then

    A_Uncorrected = A,   A_Boyan = A − B,   A_Mixed = A − (1−λ) B         (Osogami 2020, (7), (8), (17), Theorem 1)

where the end of the data counts as a cut too.

**The algebra of merging.** The sums over a chunk are linear in the trace u that enters its first row: u adds u aᵀ to A,
u hᵀ to B and u cᵀ to b, and leaves by the last row as e u. The :class:`Carry` of the chunk holds e as `decay`, a as
`matrix`, h as `boundary` and c as `rewards`. With e_0 = 1, d_t = ρ_t λ e_t and e_{t+1} = g_{t+1} d_t,

    a = Σ (d_t − e_t) φ_t,   h = Σ_cuts e_h φ_h,   c = Σ d_t r_{t+1}.

Chunks 1 and 2 of one stream, where u_1 is the trace that leaves chunk 1, therefore have

    A = A_1 + A_2 + u_1 a_2ᵀ,   B = B_1 + B_2 + u_1 h_2ᵀ,   b = b_1 + b_2 + u_1 c_2ᵀ,   u = u_2 + e_2 u_1,
    e = e_1 e_2,   a = a_1 + e_1 a_2,   h = h_1 + e_1 h_2,   c = c_1 + e_1 c_2.

This is a monoid: it is associative, and the statistics of no data are its unit. The last row of a chunk is pending. If
the next chunk continues its episode, it becomes a full transition before the chunks are joined; if not, a horizon row.
Independent data, which no trace enters, add up.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from lstd._kernels.add_outer import add_with_outer
from lstd.data.checks import check_choice, check_integer, check_real
from lstd.data.rows import Features, Rows, check_finite, check_rows, warn_of_breaks
from lstd.data.settings import VARIANTS
from lstd.errors import InvalidInputError
from lstd.io.archive import read, write
from lstd.statistics.edges import Carry, Pending, ReadOnly
from lstd.statistics.packing import pack, unpack
from lstd.statistics.solve import Solution, check_range, solve
from lstd.statistics.summing import is_no_sum, no_sum, sum_rows
from lstd.statistics.threads import blas_threads, one_blas_thread

Array = NDArray[np.float64]

ENTRIES_AT_ONCE = 2**22  # of the rows that one thread sums at a time, 32 MiB
_CHUNK_WORK = 2**24  # products in a piece's sums, half a millisecond, that are worth a thread's while


@dataclass(frozen=True, eq=False, repr=False)
class LSTDStatistics(ReadOnly):
    """Statistics of a stream or of independent streams, for one (γ, λ); n features, m rewards.

    Make them with :meth:`from_arrays`; go on with the same stream by :meth:`then`, add independent data by ``+``, and
    :meth:`solve` for any ridge coefficient and variant, without the data. :meth:`save` and :meth:`load` keep them in a
    file. Their arrays cannot be written to.

    Attributes
    ----------
    gamma : float
        Discount, where none was given per row.
    lmbda : float
        Trace decay.
    A, B : ndarray of shape (n, n)
        Matrix of the Uncorrected estimator, and its boundary terms at truncated ends.
    b : ndarray of shape (n, m)
    n_rows, n_transitions, n_episodes : int
        Rows, full transitions among them, and episodes begun.

    Examples
    --------
    >>> import numpy as np
    >>> from lstd import LSTDStatistics
    >>> X, y = np.ones((4, 1)), np.ones(4)
    >>> whole = LSTDStatistics.from_arrays(X, y, gamma=0.5, lmbda=0.0)
    >>> parts = [LSTDStatistics.from_arrays(X[i : i + 1], y[i : i + 1], gamma=0.5, lmbda=0.0) for i in range(4)]
    >>> merged = parts[0].then(parts[1]).then(parts[2].then(parts[3]))
    >>> float(whole.solve(0.0, "boyan").weights[0]), float(merged.solve(0.0, "boyan").weights[0])
    (2.0, 2.0)
    >>> whole
    LSTDStatistics(n_features=1, n_rewards=1, gamma=0.5, lmbda=0.0, n_transitions=3, n_episodes=1)
    """

    gamma: float
    lmbda: float
    A: Array
    B: Array
    b: Array
    incoming_trace: Array  # (n,) u, in the pending row
    carry: Carry
    pending: Pending | None
    first_episode: Any
    last_episode: Any
    n_rows: int
    n_transitions: int
    n_episodes: int
    single: bool  # one reward, given as a vector
    successors: bool | None  # whether features of successors were given; None without data, or in a sum of both
    apart: bool = False  # begins with a sum of independent data, which continues no stream

    @classmethod
    def empty(
        cls, n_features: int, n_rewards: int = 1, *, gamma: float, lmbda: float, single: bool = True
    ) -> LSTDStatistics:
        """Statistics of no data.

        Parameters
        ----------
        n_features, n_rewards : int, at least 1
        gamma, lmbda : float in [0, 1]
            Discount and trace decay of the data to come.
        single : bool, default True
            Whether rewards will come as vectors; else with a column for each.

        Returns
        -------
        LSTDStatistics

        Raises
        ------
        InvalidInputError
            When a number is out of its range.
        """
        n, m = check_integer("n_features", n_features, 1), check_integer("n_rewards", n_rewards, 1)
        return cls(
            gamma=check_real("gamma", gamma, 0.0, 1.0), lmbda=check_real("lmbda", lmbda, 0.0, 1.0),
            A=no_sum(n, n), B=no_sum(n, n), b=np.zeros((n, m)),
            incoming_trace=np.zeros(n), carry=Carry.of_nothing(n, m, decay=1.0),
            pending=None, first_episode=None, last_episode=None,
            n_rows=0, n_transitions=0, n_episodes=0, single=single and m == 1, successors=None,
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
            Features of each row's successor: then every row is a full transition. Rows are in time order all the same:
            traces run from row to row of an episode.
        discount : array-like of shape (T,), optional
            Discount of each row's transition, in [0, 1].
        importance_ratio : array-like of shape (T,), optional
            Importance ratio of each row's transition, at least 0.

        Returns
        -------
        LSTDStatistics

        Raises
        ------
        InvalidInputError
            When an array breaks the data contract.

        Warns
        -----
        MissingTerminationWarning
            When `episode` is given without `terminated`: the episodes are taken as truncated.
        BrokenEpisodeWarning
            When a trace runs from a row to another than its successor in `X_next`.
        """
        gamma = check_real("gamma", gamma, 0.0, 1.0)
        lmbda = check_real("lmbda", lmbda, 0.0, 1.0)
        rows = check_rows(
            X, y, gamma=gamma, episode=episode, terminated=terminated, X_next=X_next, discount=discount,
            importance_ratio=importance_ratio, finite=False,
        )  # fmt: skip
        found = cls.from_rows(rows, lmbda)
        warn_of_breaks(rows, lmbda)
        return found

    @classmethod
    def from_rows(cls, rows: Rows, lmbda: float, *, threads: int | None = None) -> LSTDStatistics:
        """Statistics of rows that `check_rows` has checked, but for NaN and inf among the features.

        They are summed in pieces that depend on the shape of the data only, and so does the result to the last bit; by
        as many threads as the BLAS may use, unless told.
        """
        total = _nothing(rows, lmbda)
        for chunk in chunk_statistics(rows, lmbda, threads=threads):
            total = total.then(chunk)
        check_sums(total, rows)
        return total

    @property
    def n_features(self) -> int:
        """Number of features, n."""
        return len(self.b)

    def then(self, later: LSTDStatistics) -> LSTDStatistics:
        """Sums over this stream followed by the next chunk of the same stream.

        Exact at any split, in any bracketing, up to rounding.

        Parameters
        ----------
        later : LSTDStatistics
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
        _check_alike(self, later)
        if later.n_rows == 0:
            return self
        if self.n_rows == 0:
            return later
        self._check_successors(later.successors)
        goes_on = not later.apart and self.goes_on_with(later.first_episode, later.successors)
        with np.errstate(over="ignore", invalid="ignore"):  # what solves looks at what comes out
            return _joined(_completed(self) if goes_on else _closed(self), later, goes_on)

    def goes_on_with(self, episode: Any, successors: bool | None) -> bool:
        """Whether a row of this episode id, given with its successor or not, goes on with the last row's episode.

        Raises
        ------
        InvalidInputError
            When successors or ids were given before and are not now, or the other way round; when that episode
            terminated.
        """
        self._check_successors(successors)
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

    def _check_successors(self, successors: bool | None) -> None:
        if None not in (self.successors, successors) and self.successors != successors:
            raise InvalidInputError("`X_next` must be given for all chunks of a stream or for none.")

    def __add__(self, other: LSTDStatistics) -> LSTDStatistics:
        """Sums over both, as independent data: the ends of both streams are truncated.

        No chunk goes on with an episode of a sum, nor a sum with an episode of a chunk.
        """
        if not isinstance(other, LSTDStatistics):
            return NotImplemented
        _check_alike(self, other)
        one, two = _closed(self), _closed(other)
        given = {s.successors for s in (one, two) if s.n_rows}
        with np.errstate(over="ignore", invalid="ignore"):  # what solves looks at what comes out
            A, B, b = one.A + two.A, one.B + two.B, one.b + two.b
        return replace(
            one,
            A=A, B=B, b=b,
            carry=Carry.of_nothing(self.n_features, self.b.shape[1], 0.0),
            first_episode=None, last_episode=None, apart=True,
            n_rows=one.n_rows + two.n_rows,
            n_transitions=one.n_transitions + two.n_transitions,
            n_episodes=one.n_episodes + two.n_episodes,
            successors=given.pop() if len(given) == 1 else None,
        )  # fmt: skip

    def __radd__(self, other: Any) -> LSTDStatistics:
        """The same after 0, with which `sum` begins."""
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def matrix(self, variant: str = "boyan") -> Array:
        """A of a variant, without the ridge term.

        Parameters
        ----------
        variant : {"boyan", "uncorrected", "mixed"}, default "boyan"

        Returns
        -------
        ndarray of shape (n, n)
            A copy.

        Raises
        ------
        InvalidInputError
            When there is no such variant.
        """
        check_choice("variant", variant, VARIANTS)
        weight = {"boyan": 1.0, "uncorrected": 0.0, "mixed": 1.0 - self.lmbda}[variant]
        if weight == 0.0:
            return self.A.copy()
        with np.errstate(over="ignore", invalid="ignore"):  # `solve` looks at what comes out
            return np.asarray(self.A - weight * _boundary(self))

    def solve(self, alpha: float = 1.0, variant: str = "boyan") -> Solution:
        """Weights (A + αI)⁻¹ b of a variant, with the condition number.

        Parameters
        ----------
        alpha : float, at least 0, default 1.0
            Ridge coefficient.
        variant : {"boyan", "uncorrected", "mixed"}, default "boyan"

        Returns
        -------
        Solution
            With `weights` of shape (n,) or (n, m), `condition_number` and `singular`.

        Raises
        ------
        InvalidInputError
            When an argument breaks a rule; when the sums or the weights overflow.

        Warns
        -----
        IllConditionedWarning
            When the system is singular or nearly so.
        """
        alpha = check_real("alpha", alpha, 0.0, np.inf)
        found = solve(self.matrix(variant), self.b, alpha)
        return replace(found, weights=found.weights[:, 0]) if self.single else found

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to a file, whole or not at all; an existing file is replaced. It holds nothing executable.

        Parameters
        ----------
        path : path-like

        Raises
        ------
        InvalidInputError
            When the first or last episode's id is neither an integer nor a float nor text.
        OutputError
            When the file could not be written.

        Examples
        --------
        >>> import tempfile, numpy as np
        >>> from lstd import LSTDStatistics
        >>> statistics = LSTDStatistics.from_arrays(np.ones((3, 1)), np.ones(3), gamma=0.5, lmbda=0.0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     statistics.save(f"{folder}/sums")
        ...     LSTDStatistics.load(f"{folder}/sums").n_transitions
        2
        """
        document, arrays = pack(self)
        write(path, "statistics", {"statistics": document}, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> LSTDStatistics:
        """Read what :meth:`save` wrote.

        Parameters
        ----------
        path : path-like

        Returns
        -------
        LSTDStatistics
            The same to the last bit.

        Raises
        ------
        InvalidInputError
            When there is no such file, or it is damaged, of another kind, or of another version of the format.
        """
        return read(path, {"statistics": unpack_statistics})

    def __repr__(self) -> str:
        numbers = {
            "n_features": self.n_features,
            "n_rewards": self.b.shape[1],
            "gamma": self.gamma,
            "lmbda": self.lmbda,
        }
        numbers |= {"n_transitions": self.n_transitions, "n_episodes": self.n_episodes}
        return f"{type(self).__name__}({', '.join(f'{name}={value}' for name, value in numbers.items())})"


def _check_alike(one: LSTDStatistics, two: Any) -> None:
    if not isinstance(two, LSTDStatistics):
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


def _joined(start: LSTDStatistics, later: LSTDStatistics, goes_on: bool) -> LSTDStatistics:
    """Join `start`, whose last row is not pending any more, and the chunk that follows it."""
    u, carry = start.incoming_trace, later.carry
    return replace(
        later,
        A=_sum_and_outer(start.A, later.A, u, carry.matrix),
        B=_sum_and_outer(start.B, later.B, u, carry.boundary),
        b=start.b + later.b + np.outer(u, carry.rewards),
        incoming_trace=later.incoming_trace + carry.decay * u,
        carry=start.carry.then(carry),
        first_episode=start.first_episode,
        apart=start.apart,
        n_rows=start.n_rows + later.n_rows,
        n_transitions=start.n_transitions + later.n_transitions,
        n_episodes=start.n_episodes + later.n_episodes - goes_on,
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


def _completed(s: LSTDStatistics) -> LSTDStatistics:
    """Return `s` with its pending row as a full transition, and the trace that enters the row after it."""
    row, u, carry = s.pending, s.incoming_trace, s.carry
    assert row is not None  # the caller has checked
    if row.complete:
        carry = replace(carry, matrix=carry.matrix - carry.decay * row.phi)
        return replace(s, A=s.A - np.outer(u, row.phi), carry=carry, pending=None)
    if row.missing:
        raise InvalidInputError(
            "`y` must be finite on a row whose episode goes on in the next chunk; the last row of the chunk before has "
            "NaN. Pass that reward, or give the next chunk another `episode` id if the episode was cut there."
        )
    z = row.ratio * (s.lmbda * u + row.phi)
    d = row.ratio * s.lmbda * carry.decay
    carry = Carry(
        row.discount * d, carry.matrix + (d - carry.decay) * row.phi, carry.boundary, carry.rewards + d * row.reward
    )
    return replace(
        s,
        A=s.A + np.outer(z - u, row.phi),
        b=s.b + np.outer(z, row.reward),
        incoming_trace=row.discount * z,
        carry=carry,
        pending=None,
        n_transitions=s.n_transitions + 1,
    )


def _boundary(s: LSTDStatistics) -> Array:
    """Return B with the end of the data as that of a truncated episode, (n, n)."""
    return s.B if s.pending is None else s.B + np.outer(s.incoming_trace, s.pending.phi)


def _closed(s: LSTDStatistics) -> LSTDStatistics:
    """Return `s` with its end as that of a truncated episode."""
    carry = replace(s.carry, decay=0.0)
    if s.pending is not None:
        carry = replace(carry, boundary=carry.boundary + s.carry.decay * s.pending.phi)
    return replace(s, B=_boundary(s), incoming_trace=np.zeros_like(s.incoming_trace), carry=carry, pending=None)


def unpack_statistics(document: Mapping[str, Any], arrays: Mapping[str, Array]) -> LSTDStatistics:
    """Make statistics of the content of their file; raises what :func:`lstd.io.archive.read` expects."""
    return LSTDStatistics(**unpack(document["statistics"], arrays))


def _nothing(rows: Rows, lmbda: float) -> LSTDStatistics:
    """Statistics of no data, for data like these rows."""
    return LSTDStatistics.empty(rows.n_features, rows.y.shape[1], gamma=rows.gamma, lmbda=lmbda, single=rows.single)


def chunk_statistics(
    rows: Rows, lmbda: float, at: Iterable[int] = (), *, threads: int | None = None
) -> Iterator[LSTDStatistics]:
    """Statistics of consecutive pieces of rows, cut at the rows `at`; large data by as many threads as BLAS may use.

    Nothing has looked for features that are NaN or infinite: see `check_sums`.
    """
    nothing, n = _nothing(rows, lmbda), max(1, rows.n_features)
    chunks = list(rows.split(max(1, ENTRIES_AT_ONCE // n), at))
    few = len(chunks) == 1 or len(rows) * n**2 < len(chunks) * _CHUNK_WORK
    threads = 1 if few else threads or blas_threads()
    if threads == 1:
        yield from (_of_rows(chunk, nothing) for chunk in chunks)
        return
    waiting: deque[Future[LSTDStatistics]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="lstd") as pool:
        for chunk in chunks:
            waiting.append(pool.submit(_beside_others, chunk, nothing))
            if len(waiting) > 2 * threads:  # so that few sums are held at a time
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _beside_others(rows: Rows, nothing: LSTDStatistics) -> LSTDStatistics:
    with one_blas_thread():
        return _of_rows(rows, nothing)


def _of_rows(rows: Rows, nothing: LSTDStatistics) -> LSTDStatistics:
    with np.errstate(over="ignore", invalid="ignore"):  # `check_sums` looks at what comes out
        sums = sum_rows(rows, nothing.lmbda)
    end = len(rows) - 1
    pending = None
    if not rows.terminated[end]:
        given = rows.X_next is not None
        phi = _row(rows.X_next if given else rows.X, end)
        ratio, discount = float(rows.ratios[end]), float(rows.discount[end])
        pending = Pending(phi, rows.y[end].copy(), bool(rows.y_missing[end]), ratio, discount, given)
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
    carry = found.carry
    sums = [
        found.A,
        found.B,
        found.b,
        found.incoming_trace,
        np.array(carry.decay),
        carry.matrix,
        carry.boundary,
        carry.rewards,
    ]
    sums += [] if found.pending is None else [found.pending.phi]
    if all(np.isfinite(array).all() for array in sums):
        return
    check_finite("X", rows.X)
    if rows.X_next is not None:
        check_finite("X_next", rows.X_next)
    check_range(*sums)


def _row(X: Features, i: int) -> Array:
    return np.asarray(X[[i]].toarray() if sparse.issparse(X) else X[i]).reshape(-1).copy()
