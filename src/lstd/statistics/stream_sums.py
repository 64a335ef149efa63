"""The sums over a stream and what is counted beside them; matrices of the variants, weights, the end of the stream.

The sums are defined, and merged, in :mod:`lstd.statistics.merging`.

Effective sample size. Row t counts g_t = w_t e_t in the sums, with its weight w_t and the trace e_t = ρ_t (1 + c_t u_t)
of a feature that is always one. Two rows share as much of the trace as the product κ of cλγ between them. So the
effective sample size (Kish 1965) is

    (Σ_t g_t)² / Σ_t Σ_s κ_ts g_t g_s,   Σ_s κ_ts g_s over s ≤ t is f_t = g_t + c_t v_t,

where u_{t+1} = λγ_t e_t and v_{t+1} = λγ_t f_t enter the next row. At λγ = 1 it is the effective number of episodes;
without ratios and weights, (1 − λγ)/(1 + λγ) times that of rows. Trace coefficients above one are products of ratios
too: what weights alone leave, and the data, has min(1, c_t).

Observed share. With f_t = w_t + min(1, c_t) v_t and v_{t+1} = γ_t f_t, the discounted weight of what was seen of all
returns is Σ_t (1 − γ_t) f_t over full transitions, of Σ_t w_t. The rest lies behind cuts, or is what coefficients below
one take (:func:`lstd.data.returns.unobserved_shares` has the same of each row).

The observed share is exact at any split of the data. The effective sample of rows summed apart leaves out what the
first rows of one part share with the last rows of another.

Fingerprints are called marks: two models whose blocks have equal marks were fitted to the same data. The mark of the
features of rows is Σ_t Σ_j k_j bits(x_tj) modulo 2⁶⁴, with odd numbers k_j and the bits of a feature as an integer. For
speed, the sum takes all of the first 1024 rows of a stream and then every 64th. Different features have different
marks, except by a chance of 2⁻⁶⁴, or where they have few values that occur equally often in every block. The weight and
the rewards of these rows have a mark of their own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from operator import attrgetter
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from lstd._kernels.traces import observed_weight, sample_sums
from lstd.data.arguments import check_real, is_single
from lstd.data.doubts import unused_rows, warn_of_ratios
from lstd.data.feature_arrays import Features, check_finite
from lstd.data.follow import StreamEnd
from lstd.data.parsing import same_id
from lstd.data.rows import COLUMNS, FACTORS, ReadOnly, Record, Rows, repeated, uniform
from lstd.data.settings import boundary_share, check_ridge
from lstd.errors import InvalidInputError
from lstd.statistics.solve import Solution, check_range, solve
from lstd.types import Array

_MODULUS = 2**64
_ALL, _EVERY = 1024, 64
_ODD = 0x9E3779B97F4A7C15  # 2⁶⁴ over the golden ratio: its multiples are far apart
_NONE = np.empty(0)


@dataclass(frozen=True, eq=False)
class Sample(Record):
    """Effective samples: with ratios alone, with weights alone, and without both."""

    sums: Annotated[Array, "3 4 nan"]  # u, v, Σ g and the double sum of each; NaN if not known
    off_policy: bool = False  # whether a ratio is not one

    def then(self, later: Sample) -> Sample:
        """Return the samples of these rows and later ones, which were summed apart."""
        sums = later.sums.copy()
        sums[:, 2:] += self.sums[:, 2:]
        return Sample(sums, self.off_policy or later.off_policy)

    def times(self, u: float, v: float, total: float, square: float) -> Sample:
        """Return the samples with their sums times factors."""
        return self.changed(sums=self.sums * np.array([u, v, total, square]))

    @property
    @np.errstate(all="ignore")
    def size(self) -> Array:
        """Effective sample sizes, (3,); NaN if not known or beyond floats."""
        return np.asarray(self.sums[:, 2] ** 2 / self.sums[:, 3])


@dataclass(frozen=True, eq=False)
class Counts(Record):
    """Counts of rows and of the full transitions among them, without a pending row unless it is complete."""

    n_rows: int = 0  # the pending row included
    n_transitions: int = 0
    total_weight: float = 0.0  # of full transitions
    unused: int = 0  # rewards of horizon rows, other than 0 and NaN
    mark: int = 0  # of the features of all rows
    reward_mark: int = 0  # of their rewards and weights
    sample: Sample | None = None  # None without ratios, weights and trace coefficients
    # What rows do to (1, v, observed weight); NaN if it is not known, as successors were given.
    observed: Annotated[Array, "3 3 nan"] = field(default_factory=partial(np.eye, 3))

    def with_rows(self, rows: Rows, ends: Sequence[int], summed: Sequence[int]) -> list[Counts]:
        """Return the counts with the next rows up to each of `ends`; transitions are those up to `summed`.

        The effective sample and the observed share stay.
        """
        until, weight = np.array(summed), rows.weight
        n = until - np.searchsorted(np.flatnonzero(~rows.full), until)
        totals = float(weight[0]) * n if uniform(weight) else np.append(0.0, np.cumsum(weight * rows.full))[until]
        unused = np.searchsorted(unused_rows(rows, summed[-1]), until)
        numbers = zip(
            ends, n.tolist(), totals.tolist(), unused.tolist(), marks_until(rows, ends).tolist(), strict=True
        )  # fmt: skip
        return [
            self.changed(
                n_rows=self.n_rows + end, n_transitions=self.n_transitions + count, unused=self.unused + lost,
                total_weight=self.total_weight + total, mark=(self.mark + mark) % _MODULUS,
                reward_mark=(self.reward_mark + reward_mark) % _MODULUS,
            )
            for end, count, total, lost, (mark, reward_mark) in numbers
        ]  # fmt: skip

    def with_chains(self, rows: Rows, part: slice, lmbda: float) -> Counts:
        """Add the rows of `part`, which are counted and summed, to the effective sample and the observed share."""
        full, coefficient, weight = rows.full[part], rows.trace_coefficient[part], rows.weight[part]
        step, sample, first = np.eye(3), self.sample, self.n_rows <= len(rows)
        if rows.X_next is None:
            kept, counted = _NONE if uniform(coefficient) else coefficient, _NONE if uniform(weight) else weight
            step[1:, :2] = observed_weight(np.ascontiguousarray(rows.discount[part]), full, kept, counted)
        else:
            step[:] = np.nan
        if rows.given & FACTORS:
            ends, ratio = rows.last[part].copy(), rows.importance_ratio[part]
            ends[-1:] &= part.stop < len(rows)  # the episode of the last row may go on
            decay = np.where(ends, 0.0, lmbda * rows.discount[part])
            sums = np.zeros((3, 4)) if first else np.full((3, 4), np.nan) if sample is None else sample.sums.copy()
            sample_sums(full, *map(np.ascontiguousarray, (ratio, weight, coefficient, decay)), sums.reshape(-1))
            before = sample is not None and sample.off_policy
            sample = Sample(sums, before or bool((ratio[full] != 1.0).any()))
        elif sample is not None:
            sample = sample.times(*[np.nan] * 4)
        return self.changed(sample=sample, observed=step @ self.observed)

    def with_transition(self, row: Any, lmbda: float) -> Counts:
        """Add the transition that leaves a pending row, which is counted as a row."""
        discount, kept, sample = row.discount, min(row.coefficient, 1.0), self.sample
        step = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
        step[1:, :2] = np.multiply.outer((discount, 1.0 - discount), (row.weight, kept))
        if sample is not None:
            sums, columns = sample.sums.copy(), (row.ratio, row.weight, row.coefficient, lmbda * discount)
            sample_sums(np.ones(1, np.bool_), *np.array(columns)[:, np.newaxis], sums.reshape(-1))
            sample = Sample(sums, sample.off_policy or row.ratio != 1.0)
        return self.changed(
            n_transitions=self.n_transitions + 1, total_weight=self.total_weight + row.weight, sample=sample,
            observed=step @ self.observed,
        )  # fmt: skip

    def then(self, later: Counts) -> Counts:
        """Return the counts of these rows and later ones of the stream."""
        if not (self.n_rows and later.n_rows):
            return self if self.n_rows else later
        one, two = self.sample, later.sample
        known = one or two
        return Counts(
            self.n_rows + later.n_rows,
            self.n_transitions + later.n_transitions,
            self.total_weight + later.total_weight,
            self.unused + later.unused,
            (self.mark + later.mark) % _MODULUS,
            (self.reward_mark + later.reward_mark) % _MODULUS,
            one.then(two) if one and two else known and known.times(*[np.nan] * 4),
            later.observed @ self.observed,
        )

    def closed(self, unused: int) -> Counts:
        """Return the counts without a next row, with so many unused rewards."""
        return self.changed(
            unused=unused,
            sample=self.sample and self.sample.times(0.0, 0.0, 1.0, 1.0),
            observed=self.observed * np.array([[1.0], [0.0], [1.0]]),
        )

    def scaled(self, factor: float) -> Counts:
        """Return the counts of the same rows with their weights times `factor`."""
        observed = self.observed.copy()
        observed[1:, 0] *= factor
        sample = self.sample
        if sample is not None:  # only the second has weights
            factors = np.array([np.ones(4), [1.0, factor, factor, factor**2], np.ones(4)])
            sample = sample.changed(sums=sample.sums * factors)
        return self.changed(total_weight=factor * self.total_weight, sample=sample, observed=observed)


def marks_until(rows: Rows, ends: Sequence[int]) -> NDArray[np.uint64]:
    """Return the marks of features, and of rewards and weights, of rows up to each of `ends`, (K, 2)."""
    n, first, last = rows.n_features - rows.intercept, rows.place, ends[-1]  # place in the stream
    head, tail = max(_ALL, first), max(_ALL, first) + -max(_ALL, first) % _EVERY  # first row of every 64th
    places, marks = [np.zeros(1, np.intp)], [np.zeros((1, 2), np.uint64)]
    for part in (slice(0, min(head - first, last), 1), slice(tail - first, last, _EVERY)):
        if part.start < part.stop:
            places.append(np.arange(part.start + 1, part.stop + 1, part.step))
            numbers = np.column_stack([rows.y[part], rows.weight[part]])
            marks.append(np.column_stack([_marks_of(rows.X[part], n), _marks_of(numbers, numbers.shape[1])]))
    if len(places) == 1:
        return np.zeros((len(ends), 2), np.uint64)
    until = np.searchsorted(np.concatenate(places), ends, side="right")
    return np.asarray(np.cumsum(np.concatenate(marks), axis=0)[until - 1])


def _marks_of(X: Features, n: int) -> NDArray[np.uint64]:
    """Return the mark of each row, (T,), of its first n features."""
    if not sparse.issparse(X):
        bits = np.ascontiguousarray(X[:, :n], dtype=np.float64).view(np.uint64)
        return np.asarray(bits @ _factors(n))
    marks, kept = np.zeros(X.shape[0], np.uint64), X.indices < n
    row = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    np.add.at(
        marks, row[kept], X.data[kept].view(np.uint64) * (np.uint64(_ODD) * (2 * X.indices[kept].astype(np.uint64) + 1))
    )
    return marks


@lru_cache(maxsize=8)
def _factors(n: int) -> NDArray[np.uint64]:
    """Return the odd numbers k_j of n features."""
    return np.uint64(_ODD) * np.arange(1, 2 * n, 2, dtype=np.uint64)


@dataclass(frozen=True)
class About:
    """Description of summed data; None means unknown, and matches anything."""

    feature_names: tuple[str, ...] | None = None  # without the column of ones
    intercept: bool | None = None  # whether the last feature is the column of ones
    labels: frozenset[str] = frozenset()
    own_discounts: bool = False  # whether some row has another discount than `gamma`

    def merged(self, other: About) -> About:
        """Return the description of both; raises InvalidInputError when they do not fit, or share a label."""
        if self == other and not self.labels:
            return self
        if None not in (self.intercept, other.intercept) and self.intercept != other.intercept:
            raise InvalidInputError(
                "Statistics merge only if all have an intercept or none has; one has a column of ones as its last "
                "feature, the other does not. Sum both with the same `fit_intercept`."
            )
        names, others = self.feature_names, other.feature_names
        if names is not None and others is not None and names != others:
            place = next((i for i, (a, b) in enumerate(zip(names, others, strict=False)) if a != b), 0)
            raise InvalidInputError(
                "Statistics merge only with the same features in the same order; feature "
                f"{place} is {names[place]!r} in one and {others[place]!r} in the other. Select the columns by name."
            )
        if twice := self.labels & other.labels:
            raise InvalidInputError(
                f"Statistics merge only if they share no data; both have the label {min(twice)!r}. Leave out the "
                "second one, or give different data different labels."
            )
        intercept = other.intercept if self.intercept is None else self.intercept
        own_discounts = self.own_discounts or other.own_discounts
        return About(others if names is None else names, intercept, self.labels | other.labels, own_discounts)


UNKNOWN = About()


_NO_ROWS = Counts()


@dataclass(frozen=True, eq=False)
class Pending(ReadOnly):
    """The last row of a stream that did not terminate: a transition if the stream continues, else a horizon row."""

    phi: Annotated[Array, "n"]  # its features; with successors given, those of its successor
    reward: Annotated[Array, "m nan"]
    missing: bool  # the reward is NaN
    ratio: float
    discount: float
    complete: bool  # successors were given: the transition is in the sums, and only its boundary term is open
    coefficient: float
    weight: float

    @classmethod
    def of_row(cls, rows: Rows, t: int) -> Pending | None:
        """Return row t as the last one; None if it terminated."""
        if rows.terminated[t]:
            return None
        given = rows.X_next is not None
        return cls.of(
            phi=rows.row(rows.X_next if given else rows.X, t), reward=rows.y[t].copy(), missing=not rows.known[t],
            ratio=float(rows.importance_ratio[t]), discount=float(rows.discount[t]), complete=given,
            coefficient=float(rows.trace_coefficient[t]), weight=float(rows.weight[t]),
        )  # fmt: skip

    def added(self, sums: Array, trace: Array, lmbda: float) -> tuple[Array, Array]:
        """Return sums and traces with the transition that leaves the row, which a trace enters."""
        n, (u, v) = len(self.phi), trace
        z = self.ratio * self.coefficient * lmbda * u
        z[:n] += self.ratio * self.phi
        more = np.empty_like(sums)
        np.multiply.outer(self.phi, self.weight * z - v, out=more[:n])
        np.multiply.outer(self.weight * self.reward, z, out=more[n:])
        more += sums
        return more, np.multiply.outer([self.discount, self.weight * self.discount], z)

    def as_rows(self, given: frozenset[str]) -> Rows:
        """Return the row as one of a stream that goes on; `given` says which of `COLUMNS` were given."""
        no, numbers = np.zeros(1, np.bool_), (self.discount, self.ratio, self.coefficient, self.weight)
        columns = {name: repeated(1.0, 1) for name in COLUMNS}
        columns |= {name: np.array([number]) for name, number in zip(COLUMNS, numbers, strict=False)}
        return Rows.of(
            X=self.phi[np.newaxis], X_next=None, y=self.reward[np.newaxis], known=~no, last=no, terminated=no,
            **columns, episode=None, given=given,
        )  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class StreamSums(ReadOnly):
    """Sums over a stream, or over independent streams; n features, m rewards.

    The arrays hold transposes, so that the columns that a sparse row touches are contiguous, and of each row the
    changes by a unit of the u and of the v that enter the data.
    """

    gamma: Annotated[float, (0.0, 1.0)]
    lmbda: Annotated[float, (0.0, 1.0)]
    sums: Annotated[Array, "n+m n+2"]
    cuts: Annotated[Array, "n n+2"] | None
    trace: Annotated[Array, "2 n+2"]  # u and v that enter the pending row
    pending: Pending | None
    first_episode: Annotated[Any, "episode"]
    last_episode: Annotated[Any, "episode"]
    n_episodes: int
    single: bool  # one reward, given as a vector
    successors: bool | None  # `X_next` was given; None without data, or in a sum of data with it and without
    apart: bool = False  # begins with a sum of independent data, which continues no stream
    n_groups: int | None = None  # None without `groups`
    first_group: Annotated[Any, "groups"] = None
    last_group: Annotated[Any, "groups"] = None
    about: About = UNKNOWN
    counts: Counts = _NO_ROWS

    def __post_init__(self) -> None:
        super().__post_init__()
        names = self.feature_names
        if names is not None and len(names) != self.n_features - self.has_intercept:
            raise InvalidInputError(f"`about` must name the {self.n_features} features; it has {len(names)} names.")
        if self.single and self.n_rewards > 1:
            raise InvalidInputError(f"`single` must be False for {self.n_rewards} rewards; got True.")

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
        return np.broadcast_to(0.0, (n, n)) if self.cuts is None else self.cuts[:, :n].T

    @property
    def b(self) -> Array:
        """Sums of traces times rewards, (n, m)."""
        n = self.n_features
        return self.sums[n:, :n].T

    n_rows = property(attrgetter("counts.n_rows"), doc="Number of rows.")
    n_transitions = property(attrgetter("counts.n_transitions"), doc="Number of full transitions.")
    total_weight = property(attrgetter("counts.total_weight"), doc="Sum of the weights of the full transitions.")
    feature_names = property(attrgetter("about.feature_names"), doc="Names of the features but the ones, or None.")
    labels = property(attrgetter("about.labels"), doc="Labels of the data.")

    @property
    def n_unused_rewards(self) -> int:
        """Number of rewards on horizon rows that are neither 0 nor NaN, and not used; the last row counts."""
        row = self.pending
        last = row is not None and not (row.complete or row.missing) and bool(row.reward.any())
        return self.counts.unused + last

    @property
    def observed_share(self) -> float | None:
        """Share of the discounted weight of all returns that was observed; None if successors were given.

        The mean over full transitions of 1 − γ^h, where h transitions are left to the cut, and of 1 where the episode
        terminated. For rows given with successors, see :func:`lstd.metrics.observed_returns`.
        """
        seen, total = float(self.counts.observed[2, 0]), self.total_weight
        return None if np.isnan(seen) or not total > 0.0 else min(1.0, seen / total)  # above one by rounding

    @property
    def has_intercept(self) -> bool:
        """Whether the last feature is the column of ones."""
        return bool(self.about.intercept)

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

    def uncentred(self, centre: ArrayLike | None) -> Self:
        """Return the sums over the features from those over the features less their centre, (n − 1,), with ones."""
        if centre is None:
            return self
        n, row, S = self.n_features, self.pending, np.eye(self.n_features + 2)
        S[: n - 1, n - 1] = centre
        sums = self.sums @ S.T
        sums[:n] = S[:n, :n] @ sums[:n]
        return self.changed(
            sums=sums, cuts=None if self.cuts is None else S[:n, :n] @ self.cuts @ S.T, trace=self.trace @ S.T,
            pending=None if row is None else row.changed(phi=S[:n, :n] @ row.phi),
        )  # fmt: skip

    def check_alike(self, other: Any) -> About:
        """Check that these sums fit together with others; return the description of both."""
        if not isinstance(other, StreamSums):
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

    def matrix(self, variant: str = "boyan") -> Array:
        """Return a copy of A of the variant "boyan", "uncorrected" or "mixed", (n, n), without the ridge term."""
        n, row, share = self.n_features, self.pending, boundary_share(variant, self.lmbda)
        M = self.sums[:n, :n].copy()
        with np.errstate(over="ignore", invalid="ignore"):  # `solve` reports overflow
            if share and self.cuts is not None:
                M -= share * self.cuts[:, :n]
            if share and row is not None:
                M -= np.multiply.outer(share * row.phi, self.trace[1, :n])
        return M.T

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
        if (sample := self.counts.sample) is not None:
            warn_of_ratios(sample.size, sample.off_policy, self.lmbda)
        return replace(solution, weights=solution.weights[:, 0]) if self.single else solution

    def __repr__(self) -> str:
        names = ("n_features", "n_rewards", "gamma", "lmbda", "n_transitions", "n_episodes")
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)}' for name in names)})"


def check_sums(statistics: Any, rows: Rows) -> None:
    """Raise if the last `rows` had features that are NaN or infinite, or the sums overflow.

    Such a feature makes the diagonal of A or the pending row NaN, as 0·inf is NaN. So only if the sums are not finite
    does it take a pass over all features.
    """
    for name, phi in (("X", rows.X), ("X_next", rows.X_next)):
        if sparse.issparse(phi):  # entries may meet no others
            check_finite(name, phi, rows.names)
    s = statistics
    sums = [s.sums, s.trace, *([] if s.cuts is None else [s.cuts]), *([] if s.pending is None else [s.pending.phi])]
    with np.errstate(over="ignore", invalid="ignore"):
        if math.isfinite(sum(float(array.sum()) for array in sums)):
            return
    if all(np.isfinite(array).all() for array in sums):  # only a sum of them overflows
        return
    for name, phi in (("X", rows.X), ("X_next", rows.X_next)):
        if isinstance(phi, np.ndarray):
            check_finite(name, phi, rows.names)
    check_range(*sums)


def check_weighted(total_weight: float, n_transitions: int) -> None:
    """Refuse rows that all have weight zero."""
    if n_transitions and not total_weight > 0.0:
        raise InvalidInputError(
            f"`weight` must be above 0 for some transition; got 0 for all {n_transitions}. Pass weights that are not "
            "all zero, or none for weights of 1."
        )
