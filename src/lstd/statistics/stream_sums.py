"""The sums over a stream, and what follows from them: matrices of the variants, weights, the end of the stream.

The sums are defined, and merged, in :mod:`lstd.statistics.merging`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from lstd.data.arguments import check_real, is_single
from lstd.data.doubts import warn_of_ratios
from lstd.data.feature_arrays import check_finite
from lstd.data.follow import StreamEnd
from lstd.data.parsing import same_id
from lstd.data.rows import COLUMNS, ReadOnly, Rows, repeated
from lstd.data.settings import boundary_share, check_ridge
from lstd.errors import InvalidInputError
from lstd.statistics.counts import UNKNOWN, About, Counts
from lstd.statistics.solve import Solution, check_range, solve
from lstd.types import Array

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
