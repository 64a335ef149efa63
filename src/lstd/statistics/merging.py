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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import blas

from lstd._kernels.add_outer import add_with_outer
from lstd.data.check_rows import PerRow, check_rows
from lstd.data.checks import check_choice, check_flag, check_integer, check_real, is_single, shown, shown_id
from lstd.data.effective_sample import SampleSums, merged, warn_of_ratios
from lstd.data.feature_matrix import all_finite
from lstd.data.observed_share import NOTHING_BEHIND, BehindCuts
from lstd.data.parsing import same_id
from lstd.data.records import ReadOnly
from lstd.data.rows import Rows, warn_of_breaks
from lstd.data.seen_ids import groups_seen
from lstd.data.settings import VARIANTS, check_ridge
from lstd.data.stream_end import StreamEnd
from lstd.errors import InvalidInputError
from lstd.io.saved import Saved
from lstd.statistics.batch_sums import is_no_sum, no_sum
from lstd.statistics.carry import Carry, Pending
from lstd.statistics.fingerprints import MODULUS, joined, reward_mark_of
from lstd.statistics.names_and_labels import About
from lstd.statistics.solve import Solution, solve
from lstd.statistics.summing import check_sums, summed_until, totals

Array = NDArray[np.float64]

_UNKNOWN = About()


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
    A: Annotated[Array, "n n"]
    B: Annotated[Array, "n n"]
    b: Annotated[Array, "n m"]
    incoming_trace: Annotated[Array, "n"]  # u that enters the pending row
    carry: Carry
    pending: Pending | None
    first_episode: Annotated[Any, "episode"]
    last_episode: Annotated[Any, "episode"]
    n_rows: int
    n_transitions: int
    n_episodes: int
    single: bool  # one reward, given as a vector
    successors: bool | None  # `X_next` was given; None without data, or in a sum of data with it and without
    apart: bool = False  # begins with a sum of independent data, which continues no stream
    n_groups: int | None = None  # None without `groups`
    first_group: Annotated[Any, "groups"] = None
    last_group: Annotated[Any, "groups"] = None
    unused: int = 0  # rewards of horizon rows, other than 0 and NaN, without the pending row
    about: About = _UNKNOWN
    total_weight: float = 0.0
    sample: SampleSums | None = None  # but for the pending row, unless it is complete; None without such columns
    behind_cuts: BehindCuts | None = NOTHING_BEHIND  # but for the pending row; None if successors were given
    mark: int = 0  # of the rows: see `lstd.statistics.fingerprints`
    reward_mark: int = 0  # of rewards and weights
    last_weight: float = 1.0  # of the row that `incoming_trace` leaves; 1 as long as that row is of a chunk before

    def __post_init__(self) -> None:
        super().__post_init__()
        names = self.feature_names
        if names is not None and len(names) != self.n_features - self.has_intercept:
            raise InvalidInputError(f"`about` must name the {self.n_features} features; it has {len(names)} names.")

    @classmethod
    def empty(
        cls, n_features: int, n_rewards: int = 1, *, gamma: float, lmbda: float, single: bool = True,
        about: About = _UNKNOWN,
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
            n_rows=0, n_transitions=0, n_episodes=0, single=single and m == 1, successors=None,
            about=about,
        )  # fmt: skip

    @classmethod
    def empty_like(cls, rows: Rows, lmbda: float) -> LSTDStatistics:
        """Statistics of no data, for data like `rows`."""
        about = About(rows.names, rows.intercept, own_discounts=rows.own_discounts)
        return _empty(rows.n_features, rows.y.shape[1], rows.gamma, lmbda, rows.single, about)

    @classmethod
    def from_arrays(
        cls, X: Any, y: Any, *, gamma: float, lmbda: float, episode: PerRow = None, terminated: PerRow = None,
        X_next: Any = None, discount: PerRow = None, importance_ratio: PerRow = None, trace_coefficient: PerRow = None,
        weight: PerRow = None, groups: PerRow = None, fit_intercept: bool = False, label: str | None = None,
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
        rows = check_rows(
            X, y, gamma=gamma, episode=episode, terminated=terminated, X_next=X_next, discount=discount,
            importance_ratio=importance_ratio, trace_coefficient=trace_coefficient, weight=weight, groups=groups,
            finite=False, summed=True,
        )  # fmt: skip
        groups_seen(rows)  # checks that they are contiguous
        statistics = cls.from_rows(rows.with_intercept() if check_flag("fit_intercept", fit_intercept) else rows, lmbda)
        warn_of_breaks(rows, lmbda)
        return statistics if label is None else statistics._with(replace(statistics.about, labels=frozenset({label})))

    @classmethod
    def from_rows(cls, rows: Rows, lmbda: float, *, threads: int | None = None) -> LSTDStatistics:
        """Statistics of checked rows, whose features may still hold NaN and inf.

        Rows are summed in chunks by `threads` threads (default: the BLAS limit). The chunks depend on the shape of the
        data only, so the result does not depend on `threads`.
        """
        total = cls.empty_like(rows, lmbda)
        if len(rows):
            with np.errstate(over="ignore", invalid="ignore"):  # `check_sums` reports overflow
                *_, total = totals(total, rows, threads=threads)
        check_sums(total, rows)
        return total

    @property
    def n_features(self) -> int:
        """Number of features, n."""
        return len(self.b)

    @property
    def n_rewards(self) -> int:
        """Number of rewards, m."""
        return int(self.b.shape[1])

    @property
    def n_unused_rewards(self) -> int:
        """Number of rewards of horizon rows, other than 0 and NaN, the end of the data included."""
        return self.unused + _is_unused(self.pending)

    @property
    def observed_share(self) -> float | None:
        """Share of the discounted weight of all returns that was observed; None if successors were given.

        The mean over full transitions of 1 − γ^h, where h transitions are left to the cut, and of 1 where the episode
        terminated. For rows given with successors, see :func:`lstd.metrics.observed_returns`.
        """
        if self.behind_cuts is None or not self.total_weight > 0.0:
            return None
        return 1.0 - (self.behind_cuts.behind + self.behind_cuts.leaving) / self.total_weight

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the features, without the column of ones; None if they are not known."""
        return self.about.feature_names

    @property
    def has_intercept(self) -> bool:
        """Whether the last feature is the column of ones."""
        return bool(self.about.intercept)

    @property
    def labels(self) -> frozenset[str]:
        """Labels of the data."""
        return self.about.labels

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
        about = _check_alike(self, later)
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

    def followed_by(self, rows: Rows, ends: Sequence[int]) -> Iterator[LSTDStatistics]:
        """Yield the statistics with the next rows of the stream up to each of `ends`, not checked for overflow.

        They are those that :meth:`merged` gives with the statistics of the rows, in one pass and without a merge.
        """
        nothing = LSTDStatistics.empty_like(rows, self.lmbda)
        about = _check_alike(self, nothing)
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

    def goes_on_with(self, episode: Any, successors: bool | None) -> bool:
        """Return whether a next row, of id `episode` and given with its successor or not, continues the last episode.

        Raises
        ------
        InvalidInputError
            When the id is that of an episode that terminated; when ids or successors were given for only some rows.
        """
        self.check_successors(successors)
        return self.end.goes_on_with(episode)

    @property
    def end(self) -> StreamEnd:
        """The last row."""
        row = self.pending
        return StreamEnd(self.last_episode, row is None, row is not None and row.missing)

    def in_group(self, group: Any) -> bool:
        """Return whether the last row is of this group; also without groups."""
        return self.n_groups is None or (group is not None and same_id(self.last_group, group))

    def check_successors(self, successors: bool | None) -> None:
        """Raise InvalidInputError if successors were given for these rows, and not for the next ones, or vice versa."""
        if None not in (self.successors, successors) and self.successors != successors:
            raise InvalidInputError("`X_next` must be given for all chunks of a stream or for none.")

    def __add__(self, other: LSTDStatistics) -> LSTDStatistics:
        """Merge independent data: pending rows become horizon rows, and no chunk continues an episode of the sum."""
        if not isinstance(other, LSTDStatistics):
            return NotImplemented
        about = _check_alike(self, other)
        with np.errstate(over="ignore", invalid="ignore"):  # `_in_range` reports overflow
            one, two = _closed(self), _closed(other)
            A, B, b = one.A + two.A, one.B + two.B, one.b + two.b
        given = {s.successors for s in (one, two) if s.n_rows}
        return _in_range(one.changed(
            A=A, B=B, b=b,
            carry=Carry.of_nothing(self.n_features, self.n_rewards, 0.0),
            first_episode=None, last_episode=None, apart=True,
            n_rows=one.n_rows + two.n_rows,
            n_transitions=one.n_transitions + two.n_transitions,
            n_episodes=one.n_episodes + two.n_episodes,
            n_groups=_together(one, two, shared=False), first_group=None, last_group=None,
            successors=given.pop() if len(given) == 1 else None,
            unused=one.unused + two.unused, about=about, total_weight=one.total_weight + two.total_weight,
            mark=(one.mark + two.mark) % MODULUS, reward_mark=(one.reward_mark + two.reward_mark) % MODULUS,
            sample=merged(one.sample, two.sample) if one.n_rows and two.n_rows else one.sample or two.sample,
            behind_cuts=_both_behind_cuts(one, two),
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
            sums = {name: factor * getattr(self, name) for name in ("A", "B", "b", "total_weight")}
            carry = self.carry.scaled(factor)
        return _in_range(self.changed(
            **sums, carry=carry, pending=None if row is None else row.changed(weight=factor * row.weight),
            last_weight=1.0 if _is_first(self) else factor * self.last_weight,
            sample=self.sample and self.sample.scaled(factor),
            behind_cuts=self.behind_cuts and self.behind_cuts.scaled(factor),
        ))  # fmt: skip

    __rmul__ = __mul__

    def matrix(self, variant: str = "boyan") -> Array:
        """Return a copy of A of the variant "boyan", "uncorrected" or "mixed", (n, n), without the ridge term."""
        check_choice("variant", variant, VARIANTS)
        weight = {"boyan": 1.0, "uncorrected": 0.0, "mixed": 1.0 - self.lmbda}[variant]
        if weight == 0.0:
            return self.A.copy()
        row, A = self.pending, self.A
        with np.errstate(over="ignore", invalid="ignore"):  # `solve` reports overflow
            if not is_no_sum(self.B):
                A = A - weight * self.B
            if row is not None:
                A = _plus_outer(A, (-weight * _pending_weight(self, row)) * self.incoming_trace, row.phi)
        return A.copy() if A is self.A else A

    def solve(self, alpha: float | ArrayLike = 1.0, variant: str = "boyan") -> Solution:
        """Solve (A + αI) θ = b.

        Parameters
        ----------
        alpha : float, at least 0, or array-like of shape (n,), default 1.0
            Ridge coefficient, or one for each feature. An array may leave out the column of ones, which then has no
            penalty.
        variant : {"boyan", "uncorrected", "mixed"}, default "boyan"

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
        if is_single(alpha):
            ridge = np.full(self.n_features, check_real("alpha", alpha, 0.0, np.inf))
        else:
            given = check_ridge("alpha", alpha)
            short = self.has_intercept and len(given) == self.n_features - 1
            ridge = np.append(check_ridge("alpha", given, self.n_features - short), [0.0] * short)
        solution = solve(self.matrix(variant), self.b, ridge)
        if self.sample is not None:
            warn_of_ratios(self.sample.size, self.sample.off_policy, self.lmbda)
        return replace(solution, weights=solution.weights[:, 0]) if self.single else solution

    def __repr__(self) -> str:
        names = ("n_features", "n_rewards", "gamma", "lmbda", "n_transitions", "n_episodes")
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)}' for name in names)})"


@lru_cache(maxsize=8)
def _empty(n: int, m: int, gamma: float, lmbda: float, single: bool, about: About) -> LSTDStatistics:
    return LSTDStatistics.empty(n, m, gamma=gamma, lmbda=lmbda, single=single, about=about)


def _check_alike(one: LSTDStatistics, two: Any) -> About:
    """Check that statistics fit together; return the description of both."""
    if not isinstance(two, LSTDStatistics):
        raise InvalidInputError(f"Statistics merge with statistics only; got {two!r:.80}.")
    one.about.check_intercept(two.about)
    for name, left, right in (
        ("gamma", one.gamma, two.gamma),
        ("lmbda", one.lmbda, two.lmbda),
        ("number of features", one.n_features, two.n_features),
        ("number of rewards", one.n_rewards, two.n_rewards),
    ):
        if left != right:
            raise InvalidInputError(f"Statistics merge only with the same {name}; got {left} and {right}.")
    if one.single != two.single:
        raise InvalidInputError("`y` must be a vector in all data that are merged, or have shape (T, 1) in all.")
    return one.about.merged(two.about)


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
        A=_sum_and_outer(start.A, later.A, u, carry.matrix),
        B=_sum_and_outer(start.B, later.B, u, carry.boundary),
        b=start.b + later.b + np.outer(u, carry.rewards),
        incoming_trace=later.incoming_trace + carry.decay * u,
        carry=start.carry.then(carry),
        first_episode=start.first_episode,
        apart=start.apart,
        n_rows=start.n_rows + later.n_rows,
        n_transitions=start.n_transitions + later.n_transitions,
        n_episodes=start.n_episodes + later.n_episodes - (not begins),
        n_groups=_together(start, later, start.in_group(later.first_group)),
        first_group=start.first_group,
        unused=start.unused + later.unused,
        total_weight=start.total_weight + later.total_weight,
        mark=(start.mark + later.mark) % MODULUS,
        reward_mark=joined(start.reward_mark, later.reward_mark, start.n_transitions),
        sample=merged(start.sample, later.sample),
        behind_cuts=_both_behind_cuts(start, later),
        last_weight=start.last_weight if _is_first(later) else later.last_weight,
    )


def _is_first(s: LSTDStatistics) -> bool:
    """Return whether the pending row is the only row, so that any trace before it comes from an earlier chunk."""
    return s.n_rows == 1 and s.pending is not None and not s.pending.complete


def _together(one: LSTDStatistics, two: LSTDStatistics, shared: bool) -> int | None:
    """Return the number of groups in both; None if that of one is not known."""
    if not (one.n_rows and two.n_rows):
        return one.n_groups if one.n_rows else two.n_groups
    return None if one.n_groups is None or two.n_groups is None else one.n_groups + two.n_groups - shared


def _sum_and_outer(one: Array, two: Array, u: Array, v: Array) -> Array:
    """Return one + two + u vᵀ; the result may share memory with an argument, as statistics never change."""
    if not (u.any() and v.any()):
        if is_no_sum(one) or is_no_sum(two):
            return two if is_no_sum(one) else one
        return np.add(one, two)
    if one.flags.fnc and two.flags.fnc:  # in Fortran order, as those of sparse rows
        return _sum_and_outer(one.T, two.T, v, u).T
    out = np.empty(one.shape)
    # In one pass, and without the BLAS, whose threads take longer to start than to add.
    add_with_outer(np.ascontiguousarray(one), np.ascontiguousarray(two), u, v, out)
    return out


def _plus_outer(A: Array, u: Array, v: Array) -> Array:
    """Return A + u vᵀ; the result may be A, as statistics never change."""
    if not (u.any() and v.any()):
        return A
    if is_no_sum(A):
        return np.outer(u, v)
    if A.flags.fnc:  # in Fortran order, as those of sparse rows
        return _plus_outer(A.T, v, u).T
    return np.asarray(blas.dger(1.0, v, u, a=A.copy().T, overwrite_a=True).T)


def _completed(s: LSTDStatistics) -> LSTDStatistics:
    """Return `s` with its pending row as a full transition; the trace then enters the row after it."""
    row, u, carry = s.pending, s.incoming_trace, s.carry
    assert row is not None  # `then` has checked
    if row.complete:
        carry = carry.changed(matrix=carry.matrix - row.weight * carry.decay * row.phi)
        return s.changed(A=_plus_outer(s.A, -row.weight * u, row.phi), carry=carry, pending=None)
    s.end.check_continued()
    before, w = s.last_weight, row.weight
    z = row.ratio * (row.coefficient * s.lmbda * u + row.phi)
    d = row.ratio * row.coefficient * s.lmbda * carry.decay
    carry = carry.changed(
        decay=row.discount * d, matrix=carry.matrix + (w * d - before * carry.decay) * row.phi,
        rewards=carry.rewards + w * d * row.reward, first=row.phi if _is_first(s) else carry.first,
    )  # fmt: skip
    return s.changed(
        A=_plus_outer(s.A, w * z - before * u, row.phi),
        b=s.b + np.outer(w * z, row.reward),
        incoming_trace=row.discount * z,
        carry=carry,
        pending=None,
        n_transitions=s.n_transitions + 1,
        total_weight=s.total_weight + w,
        reward_mark=joined(s.reward_mark, reward_mark_of(row.reward, w), s.n_transitions),
        sample=s.sample and s.sample.then(_sample_of(row, s.lmbda)),
        behind_cuts=s.behind_cuts and s.behind_cuts.step(row.discount, row.coefficient, w),
        last_weight=w,
    )


def _both_behind_cuts(one: LSTDStatistics, two: LSTDStatistics) -> BehindCuts | None:
    return one.behind_cuts and two.behind_cuts and one.behind_cuts.then(two.behind_cuts)


def _sample_of(row: Pending, lmbda: float) -> SampleSums:
    values = (row.ratio, row.coefficient, row.weight, lmbda * row.discount, 1.0)
    return SampleSums.of_transitions(*(np.array([value]) for value in values))


def _pending_weight(s: LSTDStatistics, row: Pending) -> float:
    """Return the weight of the boundary term of the pending row."""
    return row.weight if row.complete else s.last_weight


def _closed(s: LSTDStatistics) -> LSTDStatistics:
    """Return `s` with its end as a cut: its pending row is a horizon row."""
    row, carry, B = s.pending, s.carry.changed(decay=0.0), s.B
    if row is not None:
        weight = _pending_weight(s, row)
        B = _plus_outer(B, weight * s.incoming_trace, row.phi)
        carry = carry.changed(boundary=carry.boundary + weight * s.carry.decay * row.phi)
        if _is_first(s):
            carry = carry.changed(first=row.phi, first_cut=True)
    return s.changed(
        B=B,
        incoming_trace=np.zeros_like(s.incoming_trace),
        carry=carry,
        pending=None,
        unused=s.n_unused_rewards,
        sample=s.sample and s.sample.closed(),
        behind_cuts=s.behind_cuts and s.behind_cuts.closed(),
    )


def _is_unused(row: Pending | None) -> bool:
    """Return whether a row has rewards other than 0 and NaN that are not in the sums."""
    return row is not None and not (row.complete or row.missing) and bool(row.reward.any())
