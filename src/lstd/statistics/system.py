"""The linear system (A + αI) θ = b that the weights of a model solve, and what is left out of it.

Everything that solves for weights, or asks how they depend on a block, a fold or the ridge term, takes the system from
here. So all of them agree on the variant, on the penalty of the intercept, and on the column of ones at γ = 1.

A row from which no end is reached contributes z_t (1 − γ) = 0 to the column of ones at γ = 1. In sums this zero is
rounding, of either sign, and dividing by it would give an arbitrary intercept. The data determine no intercept then: it
is zero, and the weights of the features are those of a model without one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from lstd.errors import IllConditionedWarning, warn
from lstd.statistics.merging import LSTDStatistics
from lstd.statistics.solve import Solution, solve, warn_of_condition
from lstd.types import Array

NO_INTERCEPT = (
    "At `gamma` 1, no end is reached from some rows, so the data determine no intercept: it is zero. Drop these "
    "rows, or use a `gamma` below 1."
)
_NO_END = 1e-13  # mean of 1 − γ below which no end is reached


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
    endless : bool
        Whether no end is reached at γ = 1, so that the weight of the ones is zero.

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
    endless: bool = False

    @classmethod
    def of(cls, sums: LSTDStatistics, variant: str, ridge: Array, *, intercept: bool) -> Self:
        """Return the system of sums; `ridge` has a coefficient of each feature, and none of the column of ones."""
        A = sums.matrix(variant)
        if not intercept:
            return cls(A, sums.b, ridge, intercept, variant)
        endless = abs(A[-1, -1]) <= _NO_END * sums.total_weight
        return cls(A, sums.b, np.append(ridge, 0.0), intercept, variant, endless)

    @property
    def penalty(self) -> Array:
        """Penalty of each weight in a vanishing ridge term: one, and zero for the column of ones, (n,)."""
        penalty = np.ones(len(self.A))
        if self.intercept:
            penalty[-1] = 0.0
        return penalty

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
        if not self.endless:
            return solve(A, right, self.ridge, penalty=self.penalty, warn=False)
        weights = np.zeros_like(right)
        weights[:-1] = solve(A[:-1, :-1], right[:-1], self.ridge[:-1], warn=False).weights
        return Solution(weights, np.inf, singular=True, unbounded=True)

    def warn_of_condition(self, solution: Solution) -> None:
        """Give an IllConditionedWarning if the system is singular or nearly so."""
        if self.endless:
            warn(NO_INTERCEPT, IllConditionedWarning)
        else:
            warn_of_condition(solution, self.A + np.diag(self.ridge), self.b)

    @property
    def leaves_out_ones(self) -> bool:
        """Whether the weight of the ones is zero: without an end, or without a ridge term if they repeat the others."""
        if self.endless:
            return True
        if not self.intercept or self.ridge.any():
            return False
        return self.solve().left_out

    def without_ones(self) -> Self:
        """Return the system of the features alone."""
        return replace(self, A=self.A[:-1, :-1], b=self.b[:-1], ridge=self.ridge[:-1], intercept=False, endless=False)

    def with_ridge(self, ridge: Array) -> Self:
        """Return the system with other ridge coefficients, (n,)."""
        return replace(self, ridge=ridge)

    def without_part(self, A_part: Array) -> Self:
        """Return the system without a part of its data, for other right-hand sides; the ridge term stays."""
        return replace(self, A=self.A - A_part)

    def matrix_of(self, part: LSTDStatistics, variant: str) -> Array:
        """Return A of a part of the data, for the weights of this system, (n, n)."""
        n = len(self.A)
        return part.matrix(variant)[:n, :n]
