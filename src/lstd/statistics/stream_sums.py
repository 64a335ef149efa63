"""The sums over a stream, and what follows from them: matrices of the variants, weights, the end of the stream.

The sums are defined, and merged, in :mod:`lstd.statistics.merging`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from lstd.data.arguments import check_real, is_single
from lstd.data.doubts import warn_of_ratios
from lstd.data.follow import StreamEnd
from lstd.data.ids import same_id
from lstd.data.rows import ReadOnly
from lstd.data.settings import boundary_share, check_ridge
from lstd.errors import InvalidInputError
from lstd.statistics.carry import Carry, Pending
from lstd.statistics.matrix_sums import is_no_sum, plus_outer
from lstd.statistics.names_and_labels import UNKNOWN, About
from lstd.statistics.solve import Solution, solve
from lstd.statistics.tally import Tally, is_unused
from lstd.types import Array

_NO_ROWS = Tally()


@dataclass(frozen=True, eq=False, repr=False)
class Sums(ReadOnly):
    """Sums over a stream, or over independent streams; n features, m rewards."""

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
    n_episodes: int
    single: bool  # one reward, given as a vector
    successors: bool | None  # `X_next` was given; None without data, or in a sum of data with it and without
    apart: bool = False  # begins with a sum of independent data, which continues no stream
    n_groups: int | None = None  # None without `groups`
    first_group: Annotated[Any, "groups"] = None
    last_group: Annotated[Any, "groups"] = None
    about: About = UNKNOWN
    tally: Tally = _NO_ROWS
    last_weight: float = 1.0  # of the row that `incoming_trace` leaves; 1 as long as that row is of a chunk before

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
        return len(self.b)

    @property
    def n_rewards(self) -> int:
        """Number of rewards, m."""
        return int(self.b.shape[1])

    n_rows = property(attrgetter("tally.n_rows"), doc="Number of rows.")
    n_transitions = property(attrgetter("tally.n_transitions"), doc="Number of full transitions.")
    total_weight = property(attrgetter("tally.total_weight"), doc="Sum of the weights of the full transitions.")
    feature_names = property(attrgetter("about.feature_names"), doc="Names of the features but the ones, or None.")
    labels = property(attrgetter("about.labels"), doc="Labels of the data.")

    @property
    def n_unused_rewards(self) -> int:
        """Number of rewards of horizon rows, other than 0 and NaN, the end of the data included."""
        return self.tally.unused + is_unused(self.pending)

    @property
    def observed_share(self) -> float | None:
        """Share of the discounted weight of all returns that was observed; None if successors were given.

        The mean over full transitions of 1 − γ^h, where h transitions are left to the cut, and of 1 where the episode
        terminated. For rows given with successors, see :func:`lstd.metrics.observed_returns`.
        """
        cuts, total = self.tally.behind_cuts, self.total_weight
        return 1.0 - (cuts.behind + cuts.leaving) / total if cuts is not None and total > 0.0 else None

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

    @property
    def is_first(self) -> bool:
        """Whether the pending row is the only row, so that any trace before it comes from an earlier chunk."""
        return self.n_rows == 1 and self.pending is not None and not self.pending.complete

    @property
    def pending_weight(self) -> float:
        """Weight of the boundary term of the pending row."""
        row = self.pending
        return row.weight if row is not None and row.complete else self.last_weight

    def check_alike(self, other: Any) -> About:
        """Check that these sums fit together with others; return the description of both."""
        if not isinstance(other, Sums):
            raise InvalidInputError(f"Statistics merge with statistics only; got {other!r:.80}.")
        self.about.check_intercept(other.about)
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
        return self.about.merged(other.about)

    def matrix(self, variant: str = "boyan") -> Array:
        """Return a copy of A of the variant "boyan", "uncorrected" or "mixed", (n, n), without the ridge term."""
        weight = boundary_share(variant, self.lmbda)
        if weight == 0.0:
            return self.A.copy()
        row, A = self.pending, self.A
        with np.errstate(over="ignore", invalid="ignore"):  # `solve` reports overflow
            if not is_no_sum(self.B):
                A = A - weight * self.B
            if row is not None:
                A = plus_outer(A, (-weight * self.pending_weight) * self.incoming_trace, row.phi)
        return A.copy() if A is self.A else A

    def uncentred(self, centre: ArrayLike | None) -> Self:
        """Return the sums over the features from those over the features less their centre, (n − 1,), with ones."""
        if centre is None:
            return self
        S = np.eye(self.n_features)
        S[:-1, -1] = centre
        carry, row = self.carry, self.pending
        return self.changed(
            A=S @ self.A @ S.T, B=S @ self.B @ S.T, b=S @ self.b, incoming_trace=S @ self.incoming_trace,
            carry=carry.changed(**{name: S @ getattr(carry, name) for name in ("matrix", "boundary", "first")}),
            pending=None if row is None else row.changed(phi=S @ row.phi),
        )  # fmt: skip

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
        if (sample := self.tally.sample) is not None:
            warn_of_ratios(sample.size, sample.off_policy, self.lmbda)
        return replace(solution, weights=solution.weights[:, 0]) if self.single else solution

    def __repr__(self) -> str:
        names = ("n_features", "n_rewards", "gamma", "lmbda", "n_transitions", "n_episodes")
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)}' for name in names)})"
