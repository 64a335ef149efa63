"""The linear system (A + αI) θ = b that the weights of a model solve, and what is left out of it.

Everything that solves for weights, or asks how they depend on a block, a fold or the ridge term, takes the system from
here. So all of them agree on the variant, on the penalty of the intercept, and on columns without an end.

At γ = 1, a row from which no end is reached contributes z_t (φ_t − φ_{t+1}) = 0 to the column of a feature that is
constant, such as the column of ones. In sums this zero is rounding, of either sign, and dividing by it would give an
arbitrary weight. The data determine none then: without a ridge term it is zero, and the weights of the other features
are those of a model without the feature. Rounding is relative to A of the Uncorrected estimator, in which the end of
the data counts as an end, and for the ones to the weight of all rows.

Uncorrected and Mixed estimators take the end of the data as an end. If it is the only one, it alone decides the weight
of the ones; without the block that holds it, no end is reached.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from lstd.errors import IllConditionedWarning, warn
from lstd.statistics.solve import Solution, solve, warn_of_condition
from lstd.types import Array, Flags

_NO_INTERCEPT = (
    "At `gamma` 1, no end is reached from some rows, so the data determine no intercept: it is zero. Drop these "
    "rows, or use a `gamma` below 1."
)
_NO_WEIGHTS = (
    "At `gamma` 1, no end is reached from some rows, so the data determine no weight of features that are constant "
    "from row to row: it is zero. Drop these rows, use a `gamma` below 1, or a larger `alpha`."
)
_ONLY_CUTS = (
    "At `gamma` 1, no row reaches an end. The variant takes the places where the data were cut off as ends, and these "
    "alone decide the predictions, which grow with the number of rows. Pass `terminated` for episodes that ended, or "
    "use a `gamma` below 1."
)
_ROUNDING = 1e-12  # of a sum whose terms cancel, relative to their size
_OF_OTHERS = 1e3  # the same of entries beside the diagonal, whose terms may be larger


class Sums(Protocol):
    """Sums over data, such as :class:`lstd.LSTDStatistics`."""

    @property
    def A(self) -> Array:  # noqa: N802
        """Matrix of the Uncorrected estimator, (n, n)."""

    @property
    def b(self) -> Array:
        """Sums of traces times rewards, (n, m)."""

    @property
    def total_weight(self) -> float:
        """Sum of the weights of the full transitions."""

    def matrix(self, variant: str) -> Array:
        """Return A of a variant, (n, n)."""

    def boundary_at(self, j: int) -> float:
        """Return entry (j, j) of the boundary terms at all cuts, the end of the data among them."""


@dataclass(frozen=True, eq=False)
class System:
    """The system (A + diag(ridge)) θ = b; n weights, m rewards.

    Attributes
    ----------
    A : ndarray of shape (n, n)
        Matrix of the variant, without the ridge term.
    b : ndarray of shape (n, m)
    ridge : ndarray of shape (n,)
        Ridge coefficient of each weight; zero for the column of ones.
    intercept : bool
        Whether the last weight is that of the column of ones.
    variant : str
    rounding : ndarray of shape (n,)
        Size of a diagonal entry of A up to which its terms have cancelled.
    only_cuts : bool
        Whether the ones have ends only where the data were cut off.
    columns : ndarray of shape (n,), optional
        Which features of the sums it has; by default all.

    Examples
    --------
    >>> import numpy as np
    >>> from lstd import LSTDStatistics
    >>> from lstd.statistics.system import System
    >>> sums = LSTDStatistics.from_arrays(np.ones((3, 1)), [1.0, 2.0, 3.0], gamma=0.0, lmbda=0.0, terminated=[1, 1, 1])
    >>> System.of(sums, "boyan", np.zeros(1), intercept=False).solve().weights
    array([[2.]])
    """

    A: Array
    b: Array
    ridge: Array
    intercept: bool
    variant: str
    rounding: Array
    only_cuts: bool = False
    columns: NDArray[np.intp] | None = None

    @classmethod
    def of(cls, sums: Sums, variant: str, ridge: Array, *, intercept: bool) -> Self:
        """Return the system of sums; `ridge` has a coefficient of each feature, and none of the column of ones."""
        A = sums.matrix(variant)
        rounding = _ROUNDING * np.abs(sums.A.diagonal())
        if not intercept:
            return cls(A, sums.b, ridge, intercept, variant, rounding)
        rounding[-1] += _ROUNDING * sums.total_weight
        of_ends = sums.A[-1, -1] - sums.boundary_at(-1)
        only_cuts = bool(abs(of_ends) <= rounding[-1] < abs(A[-1, -1]))
        return cls(A, sums.b, np.append(ridge, 0.0), intercept, variant, rounding, only_cuts)

    @property
    def penalty(self) -> Array:
        """Penalty of each weight in a vanishing ridge term: one, and zero for the column of ones, (n,)."""
        penalty = np.ones(len(self.A))
        if self.intercept:
            penalty[-1] = 0.0
        return penalty

    @cached_property
    def endless(self) -> Flags:
        """Columns, (n,), to which no row with an end contributes, nor a ridge term: their weights are zero."""
        diagonal = np.abs(self.A.diagonal()) + self.ridge
        endless: Flags = (diagonal <= self.rounding) & (self.rounding > 0.0)
        for j in np.flatnonzero(endless):
            size = _OF_OTHERS * np.sqrt(self.rounding * self.rounding[j])  # of entries that are rounding
            is_zero = bool(np.all(np.abs(self.A[:, j]) <= size))
            is_ones = self.intercept and j == len(endless) - 1
            is_seen = is_ones or bool(np.any(np.abs(self.A[j]) > size)) or bool(self.b[j].any())
            endless[j] = is_zero and is_seen
        return endless

    @cached_property
    def determined(self) -> Flags:
        """Weights, (n,), that may differ from zero.

        That of the ones is zero without an end, or without a ridge term if they repeat the other features.
        """
        determined = ~self.endless
        if self.intercept and determined[-1] and not self.ridge.any():
            determined[-1] = not self.solve().left_out
        return determined

    # ------------------------------------------------------------ solutions

    def solve(self, right: Array | None = None, *, report: bool = False) -> Solution:
        """Solve for the weights, or for another right-hand side than b, (n, k).

        With `report`, warn if the system is singular or nearly so.
        """
        if right is None:
            right = self.b
        solution = self._solve(self.A, right)
        if report:
            self.warn_of_condition(solution)
        return solution

    def solve_transposed(self, right: Array) -> Solution:
        """Solve (A + diag(ridge))ᵀ x = right."""
        return self._solve(self.A.T, right)

    def _solve(self, A: Array, right: Array) -> Solution:
        if not self.endless.any():
            return solve(A, right, self.ridge, penalty=self.penalty, warn=False)
        kept = np.flatnonzero(~self.endless)
        weights = np.zeros_like(right)
        others = A[np.ix_(kept, kept)]
        weights[kept] = solve(others, right[kept], self.ridge[kept], penalty=self.penalty[kept], warn=False).weights
        return Solution(weights, np.inf, singular=True, unbounded=True)

    def warn_of_condition(self, solution: Solution) -> None:
        """Give an IllConditionedWarning if the system is singular or nearly so, or cuts alone decide the solution."""
        if self.endless.any():
            is_ones = self.intercept and self.endless[-1]
            warn(_NO_INTERCEPT if is_ones else _NO_WEIGHTS, IllConditionedWarning)
            return
        if not solution.is_accurate:
            warn_of_condition(solution, self.A + np.diag(self.ridge), self.b)
        elif self.only_cuts:
            warn(_ONLY_CUTS, IllConditionedWarning)

    # ------------------------------------------------------------ other systems

    def only(self, kept: Flags) -> Self:
        """Return the system of some of the weights, (n,), without the equations of the others."""
        if kept.all():
            return self
        (columns,) = kept.nonzero()
        return replace(
            self,
            A=self.A[np.ix_(columns, columns)],
            b=self.b[columns],
            ridge=self.ridge[columns],
            intercept=self.intercept and bool(kept[-1]),
            rounding=self.rounding[columns],
            columns=columns if self.columns is None else self.columns[columns],
        )

    def with_ridge(self, ridge: Array) -> Self:
        """Return the system with other ridge coefficients, (n,)."""
        return replace(self, ridge=ridge)

    def without(self, A: Array, b: Array) -> Self:
        """Return the system without a part of its data; the ridge term stays."""
        return replace(self, A=self.A - A, b=self.b - b)

    def of_part(self, part: Sums, variant: str) -> tuple[Array, Array]:
        """Return A, (n, n), and b, (n, m), of a part of the data, for the weights of this system."""
        A = part.matrix(variant)
        if self.columns is None:
            return A, part.b
        return A[np.ix_(self.columns, self.columns)], part.b[self.columns]
