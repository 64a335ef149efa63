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

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Unpack

import numpy as np

from lstd._kernels.traces import add_later_sums
from lstd.data.arguments import check_flag, check_integer, check_real, shown, shown_id
from lstd.data.check_rows import check_rows
from lstd.data.doubts import warn_of_breaks
from lstd.data.rows import Columns, Rows
from lstd.data.seen_ids import groups_seen
from lstd.errors import InvalidInputError
from lstd.files import Saved
from lstd.statistics.adding import Added, Adding, chunk_edges, chunk_statistics
from lstd.statistics.solve import check_range
from lstd.statistics.stream_sums import UNKNOWN, About, Counts, Pending, StreamSums, check_sums
from lstd.types import Array


@dataclass(frozen=True, eq=False, repr=False)
class LSTDStatistics(StreamSums, Saved):
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

    @classmethod
    def empty(
        cls, n_features: int, n_rewards: int = 1, *, gamma: float, lmbda: float, single: bool = True,
        about: About = UNKNOWN,
    ) -> LSTDStatistics:  # fmt: skip
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
        n, m = check_integer("n_features", n_features, 1), check_integer("n_rewards", n_rewards, 1)
        check_real("gamma", gamma, 0.0, 1.0), check_real("lmbda", lmbda, 0.0, 1.0)
        return cls(
            gamma=float(gamma), lmbda=float(lmbda), cuts=None, trace=np.eye(2, n + 2, n),
            sums=np.broadcast_to(0.0, (n + m, n + 2)),
            pending=None, first_episode=None, last_episode=None, n_episodes=0, single=single and m == 1,
            successors=None, about=about,
        )  # fmt: skip

    @classmethod
    def empty_like(cls, rows: Rows, lmbda: float) -> LSTDStatistics:
        """Statistics of no data, for data like `rows`."""
        about = About(rows.names, rows.intercept, own_discounts=rows.own_discounts)
        return _empty(rows.n_features, rows.y.shape[1], rows.gamma, lmbda, rows.single, about)

    @classmethod
    def from_arrays(
        cls, X: Any, y: Any, *, gamma: float, lmbda: float, fit_intercept: bool = False, label: str | None = None,
        **columns: Unpack[Columns],
    ) -> LSTDStatistics:  # fmt: skip
        """Sum rows in time order.

        Parameters
        ----------
        X, y, episode, terminated, X_next, discount, importance_ratio, trace_coefficient, weight, groups
            As in :meth:`lstd.LSTD.partial_fit`, with the same errors and warnings.
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
        rows = check_rows(X, y, gamma=gamma, **columns, finite=False, summed=True)
        groups_seen(rows)  # checks that they are contiguous
        statistics = cls.from_rows(rows.with_intercept() if check_flag("fit_intercept", fit_intercept) else rows, lmbda)
        warn_of_breaks(rows, lmbda)
        return statistics if label is None else statistics._with(replace(statistics.about, labels=frozenset({label})))

    @classmethod
    def from_rows(cls, rows: Rows, lmbda: float) -> LSTDStatistics:
        """Statistics of checked rows, whose features may still hold NaN and inf."""
        total = cls.empty_like(rows, lmbda)
        if len(rows):
            with np.errstate(over="ignore", invalid="ignore"):  # `check_sums` reports overflow
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
        if later.n_rows == 0:
            return self._with(about)
        if self.n_rows == 0:
            return later._with(about)
        apart = later.apart and begins is None
        goes_on = not apart and self._goes_on(later.first_episode, later.first_group, later.successors, begins)
        (sums, cuts, trace), counts = self._settled(goes_on)
        return later.changed(
            sums=_joined(sums, later.sums, trace),
            cuts=_joined(cuts, later.cuts, trace),
            trace=_joined(None, later.trace, trace),
            first_episode=self.first_episode,
            apart=self.apart,
            n_episodes=self.n_episodes + later.n_episodes - goes_on,
            n_groups=_together(self, later, self.in_group(later.first_group)),
            first_group=self.first_group,
            about=about,
            counts=counts.then(later.counts),
        )

    @np.errstate(over="ignore", invalid="ignore")  # `check_sums` reports overflow
    def followed_by(self, rows: Rows) -> LSTDStatistics:
        """Return the statistics with the next rows of the stream, not checked for overflow.

        They are those that :meth:`merged` gives with the statistics of the rows.
        """
        (total,) = self._passed(rows, [len(rows)])
        return total

    def totals(self, rows: Rows, at: Iterable[int] = (), *, threads: int | None = None) -> Iterator[LSTDStatistics]:
        """Yield the statistics after each chunk of the next rows of the stream; not checked for overflow.

        The caller ignores warnings of NumPy, which overflow gives. The chunks are cut before each row of `at` too.
        They, and how they are summed, depend on the rows only, so the result does not depend on `threads`.
        """
        total, (edges, many) = self, chunk_edges(rows, self.lmbda, at)
        if not many and hasattr(rows.X, "dtype"):
            yield from self._passed(rows, edges[1:])
            return
        nothing = self.empty_like(rows, self.lmbda)
        for chunk in chunk_statistics(rows, nothing, at, threads=threads):
            yield (total := total.merged(chunk))

    def _passed(self, rows: Rows, ends: Sequence[int]) -> Iterator[LSTDStatistics]:
        """Yield the statistics with the next rows of the stream up to each of `ends`, in one pass.

        All but the last have the effective sample and the observed share of `self`.
        """
        about = self.check_alike(LSTDStatistics.empty_like(rows, self.lmbda))
        new, group = not self.n_rows, None if rows.groups is None else rows.groups[0]
        goes_on = not new and self._goes_on(rows.first_episode, group, rows.X_next is not None, None)
        arrays, counts = (Added(self.sums, self.cuts, self.trace), self.counts) if new else self._settled(goes_on)
        adding, groups = Adding(rows, self.lmbda, arrays), None if group is None else np.flatnonzero(rows.begins)
        pending, summed = [], []
        for end in ends:
            row = None if adding.is_cut[end - 1] else Pending.of_row(rows, end - 1)
            pending.append(row)
            summed.append(end - (row is not None and not row.complete))
        counted = counts.with_rows(rows, ends, summed)
        counted[-1] = counted[-1].with_chains(rows, slice(0, summed[-1]), self.lmbda)
        n_episodes = self.n_episodes + (not goes_on) + np.searchsorted(np.flatnonzero(rows.last), np.array(ends) - 1)
        n_groups = (self.n_groups or 0) - (not new and self.in_group(group))
        start = self.changed(
            about=about, successors=rows.X_next is not None, first_group=group if new else self.first_group,
            first_episode=rows.first_episode if new else self.first_episode,
        )  # fmt: skip
        for k, end in enumerate(np.array(ends) - 1):
            adding.add_until(summed[k])
            now = adding.sums_before(pending[k], done=k == len(ends) - 1)
            yield start.changed(
                **now._asdict(), pending=pending[k], counts=counted[k],
                n_episodes=int(n_episodes[k]),
                n_groups=None if groups is None else n_groups + int(np.searchsorted(groups, end, side="right")),
                last_episode=None if rows.episode is None else rows.episode[end],
                last_group=None if rows.groups is None else rows.groups[end],
            )  # fmt: skip

    def _with(self, about: About) -> LSTDStatistics:
        return self if about == self.about else self.changed(about=about)

    def _goes_on(self, episode: Any, group: Any, successors: bool | None, begins: bool | None) -> bool:
        """Return whether a chunk, with this first row, continues the last episode; check that it may follow."""
        self.check_successors(successors)
        if (self.n_groups is None) != (group is None):
            raise InvalidInputError("`groups` must be given for all chunks of a stream or for none.")
        goes_on = self.goes_on_with(episode, successors) if begins is None else not begins
        if goes_on and self.pending is None:
            raise InvalidInputError("`begins` must be True after a row that terminated; got False.")
        if goes_on and not self.in_group(group):
            raise InvalidInputError(
                f"`groups` must be the same on all rows of an episode; one chunk ends with "
                f"{shown_id(self.last_group)}, and the next one, which continues its episode, begins with "
                f"{shown_id(group)}. Give rows of different groups different ids in `episode`."
            )
        return goes_on

    @np.errstate(over="ignore", invalid="ignore")  # `_in_range` and `check_sums` report overflow
    def _settled(self, goes_on: bool) -> tuple[Added, Counts]:
        """Return sums and counts with the pending row as a transition if the stream `goes_on`, else as a cut."""
        row, n, v, counts = self.pending, self.n_features, self.trace[1], self.counts
        sums, cuts, trace = self.sums, self.cuts, self.trace
        if row is None or not goes_on:
            if row is not None:
                boundary = np.multiply.outer(row.phi, v)
                cuts = boundary if cuts is None else cuts + boundary
            if counts.n_rows:
                trace, counts = np.zeros_like(trace), counts.closed(self.n_unused_rewards)
        elif row.complete:
            sums = sums.copy()
            sums[:n] -= np.multiply.outer(row.phi, v)
        else:
            self.end.check_continued()
            sums, trace = row.added(sums, trace, self.lmbda)
            counts = counts.with_transition(row, self.lmbda)
        return Added(sums, cuts, trace), counts

    def __add__(self, other: LSTDStatistics) -> LSTDStatistics:
        """Merge independent data: pending rows become horizon rows, and no chunk continues an episode of the sum."""
        if not isinstance(other, LSTDStatistics):
            return NotImplemented
        about = self.check_alike(other)
        (one, counts), (two, more) = self._settled(False), other._settled(False)
        nothing = np.zeros_like(self.trace)
        given = {s.successors for s in (self, other) if s.n_rows}
        return _in_range(self.changed(
            sums=_joined(_alone(one.sums), two.sums, nothing),
            cuts=_joined(_alone(one.cuts), two.cuts, nothing),
            trace=nothing, pending=None, first_episode=None, last_episode=None, apart=True,
            n_episodes=self.n_episodes + other.n_episodes,
            n_groups=_together(self, other, shared=False), first_group=None, last_group=None,
            successors=given.pop() if len(given) == 1 else None,
            about=about, counts=counts.then(more),
        ))  # fmt: skip

    def __radd__(self, other: Any) -> LSTDStatistics:
        """Return the statistics for 0 on the left, from which `sum` starts."""
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def __mul__(self, factor: float) -> LSTDStatistics:
        """Return the statistics of the same rows with their weights times `factor`, at least 0; counts stay.

        For forgetting, multiply the past before each merge: ``past = (0.9 * past).then(day)``.
        """
        factor, row = check_real("factor", factor, 0.0, np.inf), self.pending
        scale = np.full(self.n_features + 2, factor)
        scale[-1] = 1.0  # v enters with weights of rows before
        with np.errstate(over="ignore", invalid="ignore"):  # `_in_range` reports overflow
            return _in_range(self.changed(
                sums=scale * self.sums, cuts=None if self.cuts is None else scale * self.cuts,
                trace=np.stack([self.trace[0], scale * self.trace[1]]), counts=self.counts.scaled(factor),
                pending=None if row is None else row.changed(weight=factor * row.weight),
            ))  # fmt: skip

    __rmul__ = __mul__


@lru_cache(maxsize=8)
def _empty(n: int, m: int, gamma: float, lmbda: float, single: bool, about: About) -> LSTDStatistics:
    return LSTDStatistics.empty(n, m, gamma=gamma, lmbda=lmbda, single=single, about=about)


def _joined(one: Array | None, two: Array | None, trace: Array) -> Any:
    """Join sums (k, n + 2), changed in place if they may be, and those of a chunk that a trace (2, n + 2) enters.

    None stands for zeros.
    """
    if two is None:
        return one
    out = np.zeros(two.shape) if one is None else one if one.flags.writeable else one.copy()
    add_later_sums(out, np.ascontiguousarray(two), *trace)
    return out


def _alone(sums: Array | None) -> Array | None:
    """Return sums of data that no trace enters."""
    if sums is None:
        return None
    alone = sums.copy()
    alone[:, -2:] = 0.0
    return alone


def _in_range(s: LSTDStatistics) -> LSTDStatistics:
    """Return merged statistics; raise InvalidInputError if they overflowed."""
    check_range(s.sums, s.trace, *([] if s.cuts is None else [s.cuts]))
    return s


def _together(one: LSTDStatistics, two: LSTDStatistics, shared: bool) -> int | None:
    """Return the number of groups in both; None if that of one is not known."""
    if not (one.n_rows and two.n_rows):
        return one.n_groups if one.n_rows else two.n_groups
    return None if one.n_groups is None or two.n_groups is None else one.n_groups + two.n_groups - shared
