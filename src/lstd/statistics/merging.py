"""Sums over a stream, which merge exactly and are solved for any ridge coefficient and variant afterwards.

With γ_t the discount of row t's transition, u_t = γ_{t−1} z_{t−1} the incoming trace of row t (zero in an episode's
first row), ρ_t the importance ratio, c_t the trace coefficient and w_t the weight,

    z_t = ρ_t (c_t λ u_t + φ_t),   A = Σ (w_t z_t − w_{t−1} u_t) φ_tᵀ,
    b = Σ w_t z_t r_{t+1},   B = Σ_cuts w_{h−1} u_h φ_hᵀ

over full transitions t, and over the horizon rows h where an episode was cut off. Then

    A_Uncorrected = A,   A_Boyan = A − B,   A_Mixed = A − (1−λ) B         (Osogami 2020, (7), (8), (17), Theorem 1)

where the end of the data counts as a cut too.

**The algebra of merging.** The sums over a chunk are linear in the trace u that enters its first row: u adds u aᵀ to A,
u hᵀ to B and u cᵀ to b, and leaves by the last row as e u. The :class:`Carry` of the chunk holds e as `decay`, a as
`matrix`, h as `boundary` and c as `rewards`. With e_0 = 1, d_t = ρ_t c_t λ e_t and e_{t+1} = γ_t d_t,

    a = Σ (w_t d_t − w_{t−1} e_t) φ_t,   h = Σ_cuts w_{h−1} e_h φ_h,   c = Σ w_t d_t r_{t+1}.

The weight before the chunk's first row, w_{−1}, is 1 in the carry. After a row of weight w, a has another −(w − 1) φ_0,
or h another (w − 1) φ_0 if an episode was cut off in the first row.

Chunks 1 and 2 of one stream, where u_1 is the trace that leaves chunk 1, therefore have

    A = A_1 + A_2 + u_1 a_2ᵀ,   B = B_1 + B_2 + u_1 h_2ᵀ,   b = b_1 + b_2 + u_1 c_2ᵀ,   u = u_2 + e_2 u_1,
    e = e_1 e_2,   a = a_1 + e_1 a_2,   h = h_1 + e_1 h_2,   c = c_1 + e_1 c_2.

This is a monoid: it is associative, and the statistics of no data are its unit. The last row of a chunk is pending. If
the next chunk continues its episode, it becomes a full transition before the chunks are joined; if not, a horizon row.
Independent data, which no trace enters, add up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Unpack

import numpy as np

from lstd.data.arguments import check_flag, check_integer, check_real, shown, shown_id
from lstd.data.broken_episodes import warn_of_breaks
from lstd.data.check_rows import check_rows
from lstd.data.feature_arrays import all_finite
from lstd.data.rows import Columns, Rows
from lstd.data.seen_ids import groups_seen
from lstd.errors import InvalidInputError
from lstd.files import Saved
from lstd.statistics.carry import Carry
from lstd.statistics.matrix_sums import no_sum, plus_outer, sum_and_outer
from lstd.statistics.names_and_labels import UNKNOWN, About
from lstd.statistics.stream_sums import Sums
from lstd.statistics.summing import check_sums, chunk_edges, chunk_statistics, summed_until


@dataclass(frozen=True, eq=False, repr=False)
class LSTDStatistics(Sums, Saved):
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
        return cls(
            gamma=check_real("gamma", gamma, 0.0, 1.0), lmbda=check_real("lmbda", lmbda, 0.0, 1.0),
            A=no_sum(n, n), B=no_sum(n, n), b=np.zeros((n, m)),
            incoming_trace=np.zeros(n), carry=Carry.of_nothing(n, m, decay=1.0),
            pending=None, first_episode=None, last_episode=None,
            n_episodes=0, single=single and m == 1, successors=None,
            about=about,
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

    def _with(self, about: About) -> LSTDStatistics:
        return self if about == self.about else self.changed(about=about)

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
        begins = self._begins(later, begins)
        with np.errstate(over="ignore", invalid="ignore"):  # `_in_range` and `check_sums` report overflow
            return _joined(_closed(self) if begins else _completed(self), later, begins)._with(about)

    def _begins(self, later: LSTDStatistics, begins: bool | None = None) -> bool:
        """Return whether `later` begins with a new episode; check that it may follow."""
        self.check_successors(later.successors)
        if (self.n_groups is None) != (later.n_groups is None):
            raise InvalidInputError("`groups` must be given for all chunks of a stream or for none.")
        if begins is None:
            begins = later.apart or not self.goes_on_with(later.first_episode, later.successors)
        elif not begins and self.pending is None:
            raise InvalidInputError("`begins` must be True after a row that terminated; got False.")
        if not begins and not self.in_group(later.first_group):
            raise InvalidInputError(
                f"`groups` must be the same on all rows of an episode; one chunk ends with "
                f"{shown_id(self.last_group)}, and the next one, which continues its episode, begins with "
                f"{shown_id(later.first_group)}. Give rows of different groups different ids in `episode`."
            )
        return begins

    def totals(self, rows: Rows, at: Iterable[int] = (), *, threads: int | None = None) -> Iterator[LSTDStatistics]:
        """Yield the statistics after each chunk of the next rows of the stream; not checked for overflow.

        The caller ignores warnings of NumPy, which overflow gives. The chunks are cut before each row of `at` too.
        They, and how they are summed, depend on the rows only, so the result does not depend on `threads`.
        """
        edges, many = chunk_edges(rows, self.lmbda, at)
        if not many and rows.X_next is None:
            yield from self.followed_by(rows, edges[1:])
            return
        total = self
        for chunk in chunk_statistics(rows, self.empty_like(rows, self.lmbda), at, threads=threads):
            yield (total := total.merged(chunk))

    def followed_by(self, rows: Rows, ends: Sequence[int]) -> Iterator[LSTDStatistics]:
        """Yield the statistics with the next rows of the stream up to each of `ends`, not checked for overflow.

        They are those that :meth:`merged` gives with the statistics of the rows, in one pass and without a merge.
        """
        nothing = LSTDStatistics.empty_like(rows, self.lmbda)
        about = self.check_alike(nothing)
        if not self.n_rows:
            return summed_until(nothing._with(about), rows, ends)
        first = {"first_episode": rows.first_episode, "successors": rows.X_next is not None}
        if rows.groups is not None:
            first |= {"n_groups": 1, "first_group": rows.groups[0]}
        begins = self._begins(nothing.changed(**first))
        start = (_closed if begins else _completed)(self)
        for name in ("A", "B"):  # new arrays, which nobody else has, may be added to
            getattr(start, name).flags.writeable = getattr(start, name) is not getattr(self, name)
        return summed_until(start._with(about), rows, ends, begins)

    def __add__(self, other: LSTDStatistics) -> LSTDStatistics:
        """Merge independent data: pending rows become horizon rows, and no chunk continues an episode of the sum."""
        if not isinstance(other, LSTDStatistics):
            return NotImplemented
        about = self.check_alike(other)
        with np.errstate(over="ignore", invalid="ignore"):  # `_in_range` reports overflow
            one, two = _closed(self), _closed(other)
            A, B, b = one.A + two.A, one.B + two.B, one.b + two.b
        given = {s.successors for s in (one, two) if s.n_rows}
        return _in_range(one.changed(
            A=A, B=B, b=b,
            carry=Carry.of_nothing(self.n_features, self.n_rewards, 0.0),
            first_episode=None, last_episode=None, apart=True,
            n_episodes=one.n_episodes + two.n_episodes,
            n_groups=_together(one, two, shared=False), first_group=None, last_group=None,
            successors=given.pop() if len(given) == 1 else None,
            about=about, tally=one.tally + two.tally,
        ))  # fmt: skip

    def __radd__(self, other: Any) -> LSTDStatistics:
        """Return the statistics for 0 on the left, from which `sum` starts."""
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def __mul__(self, factor: float) -> LSTDStatistics:
        """Return the statistics of the same rows with their weights times `factor`, at least 0; counts stay.

        For forgetting, multiply the past before each merge: ``past = (0.9 * past).then(day)``.
        """
        factor, row = check_real("factor", factor, 0.0, np.inf), self.pending
        with np.errstate(over="ignore", invalid="ignore"):  # `_in_range` reports overflow
            sums = {name: factor * getattr(self, name) for name in ("A", "B", "b")}
            carry, tally = self.carry.scaled(factor), self.tally.scaled(factor)
        return _in_range(self.changed(
            **sums, carry=carry, tally=tally, pending=None if row is None else row.changed(weight=factor * row.weight),
            last_weight=1.0 if self.is_first else factor * self.last_weight,
        ))  # fmt: skip

    __rmul__ = __mul__


@lru_cache(maxsize=8)
def _empty(n: int, m: int, gamma: float, lmbda: float, single: bool, about: About) -> LSTDStatistics:
    return LSTDStatistics.empty(n, m, gamma=gamma, lmbda=lmbda, single=single, about=about)


def _in_range(s: LSTDStatistics) -> LSTDStatistics:
    """Return merged statistics; raise InvalidInputError if they overflowed."""
    sums = {name: getattr(s, name) for name in ("A", "B", "b", "incoming_trace")}
    for name, array in (*sums.items(), ("carry", np.hstack([*vars(s.carry).values()]))):
        if not all_finite(array):
            raise InvalidInputError(
                f"Merged statistics must stay below 1e308; the sum `{name}` overflowed. Scale features and rewards "
                "(`X`, `y`) to order 1 before they are summed."
            )
    return s


def _joined(start: LSTDStatistics, later: LSTDStatistics, begins: bool) -> LSTDStatistics:
    """Join `start`, in which no row is pending, and the chunk that follows it."""
    u, carry = start.incoming_trace, later.carry.after(start.last_weight)
    return later.changed(
        A=sum_and_outer(start.A, later.A, u, carry.matrix),
        B=sum_and_outer(start.B, later.B, u, carry.boundary),
        b=start.b + later.b + np.outer(u, carry.rewards),
        incoming_trace=later.incoming_trace + carry.decay * u,
        carry=start.carry.then(carry),
        first_episode=start.first_episode,
        apart=start.apart,
        n_episodes=start.n_episodes + later.n_episodes - (not begins),
        n_groups=_together(start, later, start.in_group(later.first_group)),
        first_group=start.first_group,
        tally=start.tally.then(later.tally),
        last_weight=start.last_weight if later.is_first else later.last_weight,
    )


def _together(one: LSTDStatistics, two: LSTDStatistics, shared: bool) -> int | None:
    """Return the number of groups in both; None if that of one is not known."""
    if not (one.n_rows and two.n_rows):
        return one.n_groups if one.n_rows else two.n_groups
    return None if one.n_groups is None or two.n_groups is None else one.n_groups + two.n_groups - shared


def _completed(s: LSTDStatistics) -> LSTDStatistics:
    """Return `s` with its pending row as a full transition; the trace then enters the row after it."""
    row, u, carry = s.pending, s.incoming_trace, s.carry
    assert row is not None  # `then` has checked
    if row.complete:
        carry = carry.changed(matrix=carry.matrix - row.weight * carry.decay * row.phi)
        return s.changed(A=plus_outer(s.A, -row.weight * u, row.phi), carry=carry, pending=None)
    s.end.check_continued()
    before, w = s.last_weight, row.weight
    z = row.ratio * (row.coefficient * s.lmbda * u + row.phi)
    d = row.ratio * row.coefficient * s.lmbda * carry.decay
    carry = carry.changed(
        decay=row.discount * d, matrix=carry.matrix + (w * d - before * carry.decay) * row.phi,
        rewards=carry.rewards + w * d * row.reward, first=row.phi if s.is_first else carry.first,
    )  # fmt: skip
    return s.changed(
        A=plus_outer(s.A, w * z - before * u, row.phi),
        b=s.b + np.outer(w * z, row.reward),
        incoming_trace=row.discount * z,
        carry=carry,
        pending=None,
        tally=s.tally.with_transition(row, s.lmbda),
        last_weight=w,
    )


def _closed(s: LSTDStatistics) -> LSTDStatistics:
    """Return `s` with its end as a cut: its pending row is a horizon row."""
    row, carry, B = s.pending, s.carry.changed(decay=0.0), s.B
    if row is not None:
        weight = s.pending_weight
        B = plus_outer(B, weight * s.incoming_trace, row.phi)
        carry = carry.changed(boundary=carry.boundary + weight * s.carry.decay * row.phi)
        if s.is_first:
            carry = carry.changed(first=row.phi, first_cut=True)
    return s.changed(
        B=B,
        incoming_trace=np.zeros_like(s.incoming_trace),
        carry=carry,
        pending=None,
        tally=s.tally.closed(row),
    )
