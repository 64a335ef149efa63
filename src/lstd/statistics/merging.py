"""Sums over a stream, which merge exactly and are solved for any ridge coefficient and variant afterwards.

With γ_t the discount of row t's transition, u_t = γ_{t−1} z_{t−1} the incoming trace of row t and v_t = w_{t−1} u_t
(both zero in an episode's first row), ρ_t the importance ratio, c_t the trace coefficient and w_t the weight,

    z_t = ρ_t (c_t λ u_t + φ_t),   A = Σ (w_t z_t − v_t) φ_tᵀ,   b = Σ w_t z_t r_{t+1},   B = Σ_cuts v_h φ_hᵀ

over full transitions t, and over the horizon rows h where an episode was cut off. If successors φ' are given, every
row is a full transition, and A = Σ w_t z_t (φ_t − γ_t φ'_t)ᵀ without the second term at the cuts, which is −B. Then

    A_Uncorrected = A,   A_Boyan = A − B,   A_Mixed = A − (1−λ) B         (Osogami 2020, (7), (8), (17), Theorem 1)

where the end of the data counts as a cut too.

**Merging.** All sums are linear in the u and the v that enter a chunk. So two more features, which are zero in every
row, and whose traces enter the chunk as u = (1, 0) and v = (0, 1), collect what an entering trace changes: row n of A,
B and b is the change per unit of u, row n + 1 that per unit of v. With these rows, and the traces u and v of n + 2
entries that leave a chunk, consecutive chunks 1 and 2 of one stream have

    S = S_1 + S_2[:n] + u_1 S_2[n]ᵀ + v_1 S_2[n + 1]ᵀ   for S = A, B, b, and likewise u and v.

This is a monoid: it is associative, and the statistics of no data are its unit. The last row of a chunk is pending. If
the next chunk continues its episode, it becomes a full transition before the chunks are joined; if not, a horizon row.
Independent data, which no trace enters, add up.

The arrays hold transposes, so that the columns that a sparse row touches are contiguous: `sums` A and below it b,
`cuts` B or None for zeros, `trace` u and v.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate, islice
from operator import attrgetter
from typing import Annotated, NamedTuple, Self, Unpack

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from lstd.data.arguments import check_flag, check_integer, check_real, is_single, shown
from lstd.data.check_rows import check_rows
from lstd.data.doubts import warn_of_breaks, warn_of_ratios
from lstd.data.feature_arrays import check_finite
from lstd.data.follow import check_given_throughout, follows, in_group
from lstd.data.identity import Identity
from lstd.data.rows import Columns, ReadOnly, Rows
from lstd.data.seen_ids import groups_seen
from lstd.data.settings import ALPHA, boundary_share, check_ridge
from lstd.data.takes import LSTD_COLUMNS, Takes
from lstd.data.variants import VARIANT
from lstd.errors import InvalidInputError
from lstd.files import Saved
from lstd.statistics.adding import Added, Adding, TransitionColumns, chunk_edges, features_at_end, sum_themselves
from lstd.statistics.counts import UNKNOWN, About, Counts, marks_until
from lstd.statistics.solve import Solution, check_range
from lstd.statistics.system import System
from lstd.statistics.threads import blas_threads, in_threads
from lstd.types import Array, FeaturesLike, Flags

_FROM_ARRAYS = Takes("LSTDStatistics.from_arrays", LSTD_COLUMNS)
_NO_ROWS = Counts()


class Settled(NamedTuple):
    """Sums and counts without a pending row: it is a transition of the stream, or a cut."""

    added: Added
    counts: Counts


@dataclass(frozen=True, eq=False, repr=False)
class LSTDStatistics(ReadOnly, Saved):
    """Sums over a stream, or over independent streams, for one γ and λ; n features, m rewards.

    Make them with :meth:`from_arrays`. Merge them with :meth:`then` for the next chunk of the same stream, and with
    ``+`` for independent data. ``0.5 * statistics`` are those of the same rows with half their weights: older data that
    count less. Then :meth:`solve` for any ridge coefficient and variant, without the data. The arrays cannot be written
    to.

    Attributes
    ----------
    gamma : float
        Discount of every transition, unless one was given per row.
    lmbda : float
        Trace decay.
    A, B : ndarray of shape (n, n)
        Matrix of the Uncorrected estimator, and its boundary terms at truncated ends.
    b : ndarray of shape (n, m)
    n_rows, n_transitions, n_episodes : int
        Rows, the full transitions among them, and episodes begun.
    n_groups : int or None
        Groups begun; None without `groups`.
    total_weight : float
        Sum of the weights of the full transitions; `n_transitions` without weights.
    n_unused_rewards : int
        Rewards of horizon rows, other than 0 and NaN, which are not used: the successor is unknown.
    feature_names : tuple of str, or None
        Names of the features if `X` was a data frame, without the column of ones.
    has_intercept : bool
        Whether the last feature is the column of ones.
    labels : frozenset of str
        Labels of the data.

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

    file_kind = "statistics"

    gamma: Annotated[float, (0.0, 1.0)]
    lmbda: Annotated[float, (0.0, 1.0)]
    sums: Annotated[Array, "n+m n+2"]
    cuts: Annotated[Array, "n n+2"] | None
    trace: Annotated[Array, "2 n+2"]  # u and v that enter the pending row
    n_episodes: int
    single: bool  # one reward, given as a vector
    successors: bool | None  # `X_next` was given; None without data, or in a sum of data with it and without
    n_groups: int | None = None  # None without `groups`
    first: Rows | None = None  # the first row; None without data, or where they begin with a sum of independent data
    last: Rows | None = None  # the last row; None without data, or where they end with such a sum
    about: About = UNKNOWN
    counts: Counts = _NO_ROWS

    def __post_init__(self) -> None:
        super().__post_init__()
        names = self.feature_names
        if names is not None and len(names) != self.n_features - self.has_intercept:
            raise InvalidInputError(f"`about` must name the {self.n_features} features; it has {len(names)} names.")
        if self.single and self.n_rewards > 1:
            raise InvalidInputError(f"`single` must be False for {self.n_rewards} rewards; got True.")
        for row in (self.first, self.last):
            if row is not None and (len(row), row.n_features, row.y.shape[1]) != (1, self.n_features, self.n_rewards):
                raise InvalidInputError(
                    f"`first` and `last` must be one row of {self.n_features} features and {self.n_rewards} rewards."
                )

    @property
    def pending(self) -> Rows | None:
        """The last row, unless it terminated: a transition if the stream continues, else a horizon row."""
        if self.last is None or self.last.terminated[0]:
            return None
        return self.last

    @property
    def first_episode(self) -> Identity | None:
        """Key of the id of the first episode, if it has one."""
        return None if self.first is None else self.first.first_episode

    @property
    def last_episode(self) -> Identity | None:
        """Key of the id of the last episode, if it has one."""
        return None if self.last is None else self.last.last_episode

    @property
    def n_features(self) -> int:
        """Number of features, n."""
        return int(self.trace.shape[1]) - 2

    @property
    def n_rewards(self) -> int:
        """Number of rewards, m."""
        return len(self.sums) - self.n_features

    @property
    def A(self) -> Array:  # noqa: N802
        """Matrix of the Uncorrected estimator, (n, n)."""
        n = self.n_features
        return self.sums[:n, :n].T

    @property
    def B(self) -> Array:  # noqa: N802
        """Boundary terms at truncated ends, (n, n)."""
        n = self.n_features
        if self.cuts is None:
            return np.broadcast_to(0.0, (n, n))
        return self.cuts[:, :n].T

    @property
    def b(self) -> Array:
        """Sums of traces times rewards, (n, m)."""
        n = self.n_features
        return self.sums[n:, :n].T

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.counts.n_rows

    n_transitions = property(attrgetter("counts.n_transitions"), doc="Number of full transitions.")
    feature_names = property(attrgetter("about.feature_names"), doc="Names of the features but the ones, or None.")
    labels = property(attrgetter("about.labels"), doc="Labels of the data.")

    @property
    def total_weight(self) -> float:
        """Sum of the weights of the full transitions."""
        return self.counts.total_weight

    @property
    def n_unused_rewards(self) -> int:
        """Number of rewards on horizon rows that are neither 0 nor NaN, and not used; the last row counts."""
        row = self.pending
        if row is None or row.X_next is not None:
            return self.counts.unused
        return self.counts.unused + bool(row.known[0] and row.y.any())

    @property
    def observed_share(self) -> float | None:
        """Share of the discounted weight of all returns that was observed; None if successors were given.

        The mean over full transitions of 1 − γ^h, where h transitions are left to the cut, and of 1 where the episode
        terminated. For rows given with successors, see :func:`lstd.metrics.observed_returns`.
        """
        seen = float(self.counts.observed[2, 0])
        total = self.total_weight
        if np.isnan(seen) or not total > 0.0:
            return None
        return min(1.0, seen / total)  # above one by rounding

    @property
    def has_intercept(self) -> bool:
        """Whether the last feature is the column of ones."""
        return bool(self.about.intercept)

    @classmethod
    def empty(
        cls,
        n_features: int,
        n_rewards: int = 1,
        *,
        gamma: float,
        lmbda: float,
        single: bool = True,
        about: About = UNKNOWN,
    ) -> LSTDStatistics:
        """Statistics of no data, the unit of the monoid.

        Parameters
        ----------
        n_features, n_rewards : int, at least 1
        gamma, lmbda : float in [0, 1]
            Discount and trace decay of the data to come.
        single : bool, default True
            Whether rewards will come as a vector, not as an array with a column for each.
        about : About, optional
            Names of the features, intercept and labels.

        Returns
        -------
        LSTDStatistics
        """
        n = check_integer("n_features", n_features, 1)
        m = check_integer("n_rewards", n_rewards, 1)
        return cls(
            gamma=check_real("gamma", gamma, 0.0, 1.0),
            lmbda=check_real("lmbda", lmbda, 0.0, 1.0),
            sums=np.broadcast_to(0.0, (n + m, n + 2)),
            cuts=None,
            trace=np.eye(2, n + 2, n),  # u = (1, 0) and v = (0, 1) in the two more features
            n_episodes=0,
            single=single and m == 1,
            successors=None,
            about=about,
        )

    @classmethod
    def empty_like(cls, rows: Rows, lmbda: float) -> LSTDStatistics:
        """Statistics of no data, for data like `rows`."""
        about = About(rows.names, rows.intercept, unusual=rows.unusual)
        return _empty(rows.n_features, rows.y.shape[1], rows.gamma, lmbda, rows.single, about)

    @classmethod
    def from_arrays(
        cls,
        X: FeaturesLike,
        y: ArrayLike,
        *,
        gamma: float,
        lmbda: float,
        fit_intercept: bool = False,
        label: str | None = None,
        **columns: Unpack[Columns],
    ) -> LSTDStatistics:
        """Sum rows in time order.

        Parameters
        ----------
        X, y, episode, terminated, X_next, discount, importance_ratio, trace_coefficient, weight, groups
            As in :meth:`lstd.LSTD.partial_fit`, with the same errors and warnings. Sums do not depend on groups.
        gamma : float in [0, 1]
            Discount of every transition, unless `discount` is given.
        lmbda : float in [0, 1]
            Trace decay.
        fit_intercept : bool, default False
            Whether to add a column of ones, for a model with an intercept.
        label : str, optional
            Name of the data, such as a date. Statistics with the same label do not merge.

        Returns
        -------
        LSTDStatistics
        """
        if label is not None and not isinstance(label, str):
            raise InvalidInputError(f"`label` must be text; got {shown(label)}. Convert it with str().")
        gamma = check_real("gamma", gamma, 0.0, 1.0)
        lmbda = check_real("lmbda", lmbda, 0.0, 1.0)
        _FROM_ARRAYS.check(columns)
        rows = check_rows(X, y, gamma=gamma, **columns, finite=False, summed=True)
        groups_seen(rows)  # checks that they are contiguous
        with_ones = rows
        if check_flag("fit_intercept", fit_intercept):
            with_ones = rows.with_intercept()
        statistics = cls.from_rows(with_ones, lmbda)
        warn_of_breaks(rows, lmbda)
        if label is None:
            return statistics
        return statistics.changed(about=replace(statistics.about, labels=frozenset({label})))

    @classmethod
    def from_rows(cls, rows: Rows, lmbda: float) -> LSTDStatistics:
        """Statistics of checked rows, whose features may still hold NaN and inf."""
        total = cls.empty_like(rows, lmbda)
        if len(rows):
            *_, total = total.totals(rows)
        check_sums(total, rows)
        return total

    def then(self, later: LSTDStatistics, *, begins: bool | None = None) -> LSTDStatistics:
        """Merge with the next chunk of the same stream; exact up to rounding at any split, in any bracketing.

        Parameters
        ----------
        later : LSTDStatistics
            Statistics of the next chunk.
        begins : bool, optional
            Whether `later` begins with a new episode. By default it does after a row that terminated, or if the
            episode ids differ. An id that reappears after other episodes starts a new episode.

        Returns
        -------
        LSTDStatistics

        Raises
        ------
        InvalidInputError
            When the two differ in `gamma`, `lmbda`, the features or the number of rewards, in whether there is an
            intercept, or whether `episode`, `X_next` or `groups` was given; when they share a label; when an episode
            continues that terminated, in another group, or after a row whose reward is NaN; when sums overflow.
        """
        return _in_range(self.merged(later, begins=begins))

    def merged(self, later: LSTDStatistics, *, begins: bool | None = None) -> LSTDStatistics:
        """Merge as :meth:`then` does, without the check for overflow, which :func:`check_sums` may do later."""
        about = self.check_alike(later)
        if not (self.n_rows and later.n_rows):
            one = later if later.n_rows else self
            if about == one.about:
                return one
            return one.changed(about=about)
        goes_on = later.first is not None and self.continued_by(later.first, begins=begins)
        before = self._settled(goes_on)
        joined = before.added.then(Added(later.sums, later.cuts, later.trace))
        return later.changed(
            sums=joined.sums,
            cuts=joined.cuts,
            trace=joined.trace,
            counts=before.counts.then(later.counts),
            n_episodes=self.n_episodes + later.n_episodes - goes_on,
            n_groups=_together(self, later, self.shares_group_with(later.first)),
            first=self.first,
            about=about,
        )

    @np.errstate(over="ignore", invalid="ignore")  # `_in_range` and `check_sums` report overflow
    def _settled(self, goes_on: bool) -> Settled:
        """Return sums and counts with the pending row as a transition if the stream `goes_on`, else as a cut."""
        row = self.pending
        counts = self.counts
        added = Added(self.sums, self.cuts, self.trace)
        if row is not None and goes_on:
            if row.X_next is None:  # else the transition has been counted
                counts = counts.with_transition(row, self.lmbda)
            return Settled(added.continued(row, self.lmbda), counts)
        if row is not None:
            added = added.ended(row)
        if not counts.n_rows:
            return Settled(added, counts)
        without_trace = added._replace(trace=np.zeros_like(self.trace))
        return Settled(without_trace, counts.closed(self.n_unused_rewards))

    # ------------------------------------------------------------ the next rows, and merging

    def continued_by(self, first: Rows, *, begins: bool | None = None) -> bool:
        """Return whether the next rows, of which this is the first, continue the last episode.

        `begins` says whether they begin an episode; by default the ids do. Raises InvalidInputError as
        :func:`lstd.data.follow.follows` does.
        """
        if self.last is not None:
            return follows(self.last, first, begins=begins)
        if self.successors is not None:
            check_given_throughout("X_next", self.successors, first.X_next is not None)
        check_given_throughout("groups", self.n_groups is not None, first.groups is not None)
        if begins is False:
            raise InvalidInputError("`begins` must be True after a sum of independent data; got False.")
        return False

    def shares_group_with(self, first: Rows | None) -> bool:
        """Return whether this first of the next rows is of the group of the last row; also without groups."""
        if self.last is None or first is None:
            return self.n_groups is None
        return in_group(self.last, first)

    def episode_shared_with(self, later: LSTDStatistics) -> Identity | None:
        """Return the id of the episode that goes on in the statistics of the next chunk; None if none does."""
        if self.last is None or later.first is None or not self.continued_by(later.first):
            return None
        return self.last_episode

    def named(self, first: Identity | None, last: Identity | None) -> LSTDStatistics:
        """Return the statistics with ids of these keys for the first and the last episode; None for rows without."""
        return self.changed(
            first=None if self.first is None else self.first.named(first),
            last=None if self.last is None else self.last.named(last),
        )

    @np.errstate(over="ignore", invalid="ignore")  # `check_sums` reports overflow
    def followed(self, rows: Rows, ends: Sequence[int], goes_on: bool | None = None) -> list[LSTDStatistics]:
        """Return the statistics with the next rows of the stream up to each of `ends`, not checked for overflow.

        The last of `ends` is that of the rows. The statistics at others have the effective sample and the observed
        share of `self`. `goes_on` says whether the rows continue the last episode, if that is known.
        """
        new = not self.n_rows
        nothing = LSTDStatistics.empty_like(rows, self.lmbda)
        about = self.about
        if nothing is not self:
            about = self.check_alike(nothing)
        if goes_on is None:
            goes_on = not new and self.continued_by(rows)
        n_groups = self.n_groups or 0
        starts = np.empty(0, np.intp)  # of groups
        if rows.groups is not None:
            starts = np.flatnonzero(rows.begins)
            n_groups -= not new and self.shares_group_with(rows)
        n_begun = self.n_episodes + (not goes_on)  # episodes up to the first row
        before = self._settled(goes_on)
        first = self.first
        if new:
            first = rows.kept(slice(0, 1))
        start = self.changed(about=about, successors=rows.X_next is not None, first=first)

        def until(end: int, n_ended: int, arrays: Added, last: Rows, counts: Counts) -> LSTDStatistics:
            # After the first `end` rows, `last` the last of them, before which `n_ended` episodes end.
            return start.changed(
                sums=arrays.sums,
                cuts=arrays.cuts,
                trace=arrays.trace,
                last=last,
                counts=counts,
                n_episodes=n_begun + n_ended,
                n_groups=None if rows.groups is None else n_groups + int(np.searchsorted(starts, end)),
            )

        *inner, _ = ends
        columns = TransitionColumns.of(rows)
        adding = Adding(rows, columns, self.lmbda, before.added)
        chunks = []
        *last_rows, last = rows.kept_each([end - 1 for end in ends])
        *n_ended, all_ended = _ended_before(rows.last, ends)
        marks = marks_until(rows, ends)
        if inner:
            counted = before.counts.with_rows_until(rows, inner, marks)
            for end, ended, last_row, counts_then in zip(inner, n_ended, last_rows, counted, strict=True):
                added = adding.until(end, last_row, done=False)
                chunks.append(until(end, ended, *added, counts_then))
        added = adding.until(len(rows), last, done=True)
        counts = before.counts.with_rows(rows, columns, self.lmbda, marks[-1])
        return [*chunks, until(len(rows), all_ended, *added, counts)]

    def totals(
        self, rows: Rows, at: Iterable[int] = (), *, goes_on: bool | None = None, threads: int | None = None
    ) -> Iterable[LSTDStatistics]:
        """Return the statistics before some of the next rows of the stream, among them those `at`, and after all.

        They are not checked for overflow. Sparse rows are summed in chunks by `threads` threads (default: the limit of
        the BLAS), each with a single-threaded BLAS. The chunks depend on the rows only, so the result does not depend
        on `threads`. `goes_on` is that of :meth:`followed`.
        """
        edges: list[int] = []
        many = False
        if not isinstance(rows.X, np.ndarray):
            edges, many = chunk_edges(rows, self.lmbda, at)
        if not many and not sum_themselves(rows.X):  # products have threads of their own
            return self.followed(rows, [*sorted({*at} - {0}), len(rows)], goes_on)
        if not many:
            threads = 1
        elif threads is None:
            threads = blas_threads()
        nothing = LSTDStatistics.empty_like(rows, self.lmbda)

        def alone(chunk: Rows) -> LSTDStatistics:
            return nothing.followed(chunk, [len(chunk)])[0]

        chunks = in_threads(alone, rows.split(edges), threads)
        return islice(accumulate(chunks, LSTDStatistics.merged, initial=self), 1, None)

    def __add__(self, other: LSTDStatistics) -> LSTDStatistics:
        """Merge independent data: pending rows become horizon rows, and no chunk continues an episode of the sum."""
        if not isinstance(other, LSTDStatistics):
            return NotImplemented
        about = self.check_alike(other)
        one = self._settled(False)
        two = other._settled(False)
        both = one.added.alone().then(two.added)
        successors = None
        given = {s.successors for s in (self, other) if s.n_rows}
        if len(given) == 1:
            successors = given.pop()
        total = self.changed(
            sums=both.sums,
            cuts=both.cuts,
            trace=both.trace,
            first=None,
            last=None,
            n_episodes=self.n_episodes + other.n_episodes,
            n_groups=_together(self, other, shared=False),
            successors=successors,
            about=about,
            counts=one.counts.then(two.counts),
        )
        return _in_range(total)

    def __radd__(self, other: object) -> LSTDStatistics:
        """Return the statistics for 0 on the left, from which `sum` starts."""
        if isinstance(other, int) and other == 0:
            return self
        return NotImplemented

    def __mul__(self, factor: float) -> LSTDStatistics:
        """Return the statistics of the same rows with their weights times `factor`, at least 0; counts stay.

        For forgetting, multiply the past before each merge: ``past = (0.9 * past).then(day)``.
        """
        factor = check_real("factor", factor, 0.0, np.inf)
        scale = np.full(self.n_features + 2, factor)
        scale[-1] = 1.0  # v enters with weights of rows before
        u, v = self.trace
        cuts = self.cuts
        last = self.last
        with np.errstate(over="ignore", invalid="ignore"):  # `_in_range` reports overflow
            if cuts is not None:
                cuts = scale * cuts
            if last is not None:
                last = last.changed(weight=factor * last.weight)
            scaled = self.changed(
                sums=scale * self.sums,
                cuts=cuts,
                trace=np.stack([u, scale * v]),
                counts=self.counts.scaled(factor),
                last=last,
            )
            return _in_range(scaled)

    __rmul__ = __mul__

    def uncentred(self, centre: ArrayLike | None) -> Self:
        """Return the sums over the features from those over the features less their centre, (n − 1,), with ones."""
        if centre is None:
            return self
        n = self.n_features
        S = np.eye(n + 2)  # φ = S φ_centred, for the ones are the last feature
        S[: n - 1, n - 1] = centre
        sums = self.sums @ S.T
        sums[:n] = S[:n, :n] @ sums[:n]
        cuts = self.cuts
        if cuts is not None:
            cuts = S[:n, :n] @ cuts @ S.T
        return self.changed(
            sums=sums,
            cuts=cuts,
            trace=self.trace @ S.T,
            first=None if self.first is None else self.first.changed(centre=None),
            last=None if self.last is None else self.last.changed(centre=None),
        )

    def check_alike(self, other: object) -> About:
        """Check that these sums fit together with others; return the description of both."""
        if not isinstance(other, LSTDStatistics):
            raise InvalidInputError(f"Statistics merge with statistics only; got {other!r:.80}.")
        about = self.about.merged(other.about)
        for name, left, right in (
            ("gamma", self.gamma, other.gamma),
            ("lmbda", self.lmbda, other.lmbda),
            ("number of features", self.n_features, other.n_features),
            ("number of rewards", self.n_rewards, other.n_rewards),
        ):
            if left != right:
                raise InvalidInputError(f"Statistics merge only with the same {name}; got {left} and {right}.")
        if self.single != other.single:
            raise InvalidInputError("`y` must be a vector in all data that are merged, or have shape (T, 1) in all.")
        return about

    @property
    def has_discounts_of_one(self) -> bool:
        """Whether some transition may have a discount of 1, at which terms of A cancel."""
        return self.gamma == 1.0 or "discount" in self.about.unusual

    def boundary_at(self, j: int) -> float:
        """Return entry (j, j) of the boundary terms at all cuts, the end of the data among them."""
        n = self.n_features
        total = 0.0
        if self.cuts is not None:
            total += float(self.cuts[:, :n][j, j])
        if self.pending is not None:
            total += float(features_at_end(self.pending)[j] * self.trace[1, :n][j])
        return total

    def matrix(self, variant: str = VARIANT) -> Array:
        """Return a copy of A of a variant of :class:`lstd.LSTD`, (n, n), without the ridge term."""
        n = self.n_features
        row = self.pending
        share = boundary_share(variant, self.lmbda)
        M = self.sums[:n, :n].copy()
        with np.errstate(over="ignore", invalid="ignore"):  # `solve` reports overflow
            if share and self.cuts is not None:
                M -= share * self.cuts[:, :n]
            if share and row is not None:
                M -= np.multiply.outer(share * features_at_end(row), self.trace[1, :n])
        return M.T

    def solve(self, alpha: float | ArrayLike = ALPHA, variant: str = VARIANT) -> Solution:
        """Solve (A + αI) θ = b.

        Parameters
        ----------
        alpha : float, at least 0, or array-like of shape (n,), default 1.0
            Ridge coefficient, or one for each feature. An array may leave out the column of ones, which then has no
            penalty.
        variant : str, default "boyan"
            A variant of :class:`lstd.LSTD`.

        Returns
        -------
        Solution
            With `weights` of shape (n,) or (n, m), `condition_number` and `singular`.

        Raises
        ------
        InvalidInputError
            When an argument breaks a rule, or the sums or the weights overflow.

        Warns
        -----
        IllConditionedWarning
            When the system is singular or nearly so.
        EffectiveSampleWarning
            When importance ratios, trace coefficients or weights leave little of the data.
        """
        intercept = False  # whether the column of ones has no penalty
        if is_single(alpha):
            ridge = np.full(self.n_features, check_real("alpha", alpha, 0.0, np.inf))
        else:
            ridge = check_ridge("alpha", alpha)
            intercept = self.has_intercept and len(ridge) == self.n_features - 1
            check_ridge("alpha", ridge, self.n_features - intercept)
        solution = System.of(self, variant, ridge, intercept=intercept).solve(report=True)
        if (sample := self.counts.sample) is not None:
            warn_of_ratios(sample.size, sample.off_policy, self.lmbda)
        if not self.single:
            return solution
        return replace(solution, weights=solution.weights[:, 0])

    def __repr__(self) -> str:
        names = ("n_features", "n_rewards", "gamma", "lmbda", "n_transitions", "n_episodes")
        texts = [f"{name}={getattr(self, name)}" for name in names]
        return f"{type(self).__name__}({', '.join(texts)})"


@lru_cache(maxsize=8)
def _empty(n: int, m: int, gamma: float, lmbda: float, single: bool, about: About) -> LSTDStatistics:
    return LSTDStatistics.empty(n, m, gamma=gamma, lmbda=lmbda, single=single, about=about)


def _in_range(s: LSTDStatistics) -> LSTDStatistics:
    """Return merged statistics; raise InvalidInputError if they overflowed."""
    check_range(*_arrays_of(s))
    return s


def _ended_before(last: Flags, ends: Sequence[int]) -> list[int]:
    """Return how many episodes end before the last row of the first rows, for each of some numbers of rows."""
    if len(ends) == 1:  # in less time
        return [int(np.count_nonzero(last[: ends[0] - 1]))]
    counts: list[int] = np.searchsorted(np.flatnonzero(last), np.subtract(ends, 1)).tolist()
    return counts


def _arrays_of(s: LSTDStatistics) -> list[Array]:
    """Return the arrays of sums."""
    if s.cuts is None:
        return [s.sums, s.trace]
    return [s.sums, s.trace, s.cuts]


def _together(one: LSTDStatistics, two: LSTDStatistics, shared: bool) -> int | None:
    """Return the number of groups in both; None if that of one is not known."""
    if not two.n_rows:
        return one.n_groups
    if not one.n_rows:
        return two.n_groups
    if one.n_groups is None or two.n_groups is None:
        return None
    return one.n_groups + two.n_groups - shared


def check_sums(statistics: LSTDStatistics, rows: Rows) -> None:
    """Raise if the last `rows` had features that are NaN or infinite, or the sums overflow.

    Such a feature makes the diagonal of A or the pending row NaN, as 0·inf is NaN. So only if the sums are not finite
    does it take a pass over all features.
    """
    for name, phi in (("X", rows.X), ("X_next", rows.X_next)):
        if sparse.issparse(phi):  # entries may meet no others
            check_finite(name, phi, rows.names)
    sums = _arrays_of(statistics)
    row = statistics.pending
    if row is not None:
        end = row.X
        if row.X_next is not None:
            end = row.X_next
        sums.append(end)
    total = 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        for array in sums:
            total += float(array.sum())
    if math.isfinite(total):
        return
    if all(np.isfinite(array).all() for array in sums):  # only a sum of them overflows
        return
    for name, phi in (("X", rows.X), ("X_next", rows.X_next)):
        if isinstance(phi, np.ndarray):
            check_finite(name, phi, rows.names)
    check_range(*sums)
