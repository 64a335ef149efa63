"""Statistics of LSTD(λ): sums over a stream that merge exactly, and are solved for any α and variant afterwards.

With g_t the discount on arrival in row t (zero in an episode's first row), u_t = g_t z_{t−1} the trace that arrives
there, and ρ_t the importance ratio,

    z_t = ρ_t (λ u_t + φ_t),   A = Σ (z_t − u_t) φ_tᵀ,   b = Σ z_t r_{t+1},   B = Σ_ends u_h φ_hᵀ

over full transitions t and over the horizon rows h at the ends of truncated episodes. Then

    A_Uncorrected = A,   A_Boyan = A − B,   A_Mixed = A − (1−λ) B         (Osogami 2020, (7), (8), (17), Theorem 1)

where the end of the data counts as a truncated end too. Consecutive chunks of a stream form a monoid: see
:mod:`lstd.statistics.merging`.
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

from lstd.data.checks import check_choice, check_integer, check_real
from lstd.data.rows import Features, Rows, check_finite, check_rows, warn_of_breaks
from lstd.data.settings import VARIANTS
from lstd.io.archive import read, write
from lstd.statistics.merging import Mergeable, Pending, boundary
from lstd.statistics.packing import pack, unpack
from lstd.statistics.solve import Solution, check_range, solve
from lstd.statistics.summing import no_sum, sum_rows
from lstd.statistics.threads import blas_threads, one_blas_thread

Array = NDArray[np.float64]

ENTRIES_AT_ONCE = 2**22  # of the rows that one thread sums at a time, 32 MiB
_PIECE_WORK = 2**24  # products in a piece's sums, half a millisecond, that are worth a thread's while


@dataclass(frozen=True, eq=False, repr=False)
class LSTDStatistics(Mergeable):
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
            arriving=np.zeros(n), share=1.0, a=np.zeros(n), h=np.zeros(n), c=np.zeros(m),
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
        for piece in pieces_of(rows, lmbda, threads=threads):
            total = total.then(piece)
        check_sums(total, rows)
        return total

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
            return np.asarray(self.A - weight * boundary(self))

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


def unpack_statistics(document: Mapping[str, Any], arrays: Mapping[str, Array]) -> LSTDStatistics:
    """Make statistics of the content of their file; raises what :func:`lstd.io.archive.read` expects."""
    return LSTDStatistics(**unpack(document["statistics"], arrays))


def _nothing(rows: Rows, lmbda: float) -> LSTDStatistics:
    """Statistics of no data, for data like these rows."""
    return LSTDStatistics.empty(rows.n_features, rows.y.shape[1], gamma=rows.gamma, lmbda=lmbda, single=rows.single)


def pieces_of(
    rows: Rows, lmbda: float, at: Iterable[int] = (), *, threads: int | None = None
) -> Iterator[LSTDStatistics]:
    """Statistics of consecutive pieces of rows, cut at the rows `at`; large data by as many threads as BLAS may use.

    Nothing has looked for features that are NaN or infinite: see `check_sums`.
    """
    nothing, n = _nothing(rows, lmbda), max(1, rows.n_features)
    pieces = list(rows.split(max(1, ENTRIES_AT_ONCE // n), at))
    few = len(pieces) == 1 or len(rows) * n**2 < len(pieces) * _PIECE_WORK
    threads = 1 if few else threads or blas_threads()
    if threads == 1:
        yield from (_of_rows(piece, nothing) for piece in pieces)
        return
    waiting: deque[Future[LSTDStatistics]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="lstd") as pool:
        for piece in pieces:
            waiting.append(pool.submit(_beside_others, piece, nothing))
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
        ratio, leaving = float(rows.ratios[end]), float(rows.leaving[end])
        pending = Pending(phi, rows.y[end].copy(), bool(rows.y_missing[end]), ratio, leaving, given)
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
    edges = (np.array(found.share), found.a, found.h, found.c)  # which other sums are multiplied by when merged
    sums = (found.A, found.B, found.b, found.arriving, *edges, *([] if found.pending is None else [found.pending.phi]))
    if all(np.isfinite(array).all() for array in sums):
        return
    check_finite("X", rows.X)
    if rows.X_next is not None:
        check_finite("X_next", rows.X_next)
    check_range(*sums)


def _row(X: Features, i: int) -> Array:
    return np.asarray(X[[i]].toarray() if sparse.issparse(X) else X[i]).reshape(-1).copy()
