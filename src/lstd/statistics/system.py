"""The linear system (A + αI) θ = b that the weights of a model solve, and what is left out of it.

Everything that solves for weights, or asks how they depend on a block, a fold or the ridge term, takes the system from
here. So all of them agree on the variant, on the penalty of the intercept, and on columns without an end.

At γ = 1, a row from which no end is reached contributes z_t (φ_t − φ_{t+1}) = 0 to the column of a feature that is
constant, such as the column of ones. In sums this zero is rounding, of either sign, and dividing by it would give an
arbitrary weight. The data determine none then: without a ridge term it is zero, and the weights of the other features
are those of a model without the feature. Rounding is relative to A of the Uncorrected estimator, in which the end of
the data counts as an end, and for the ones to the weight of all rows.

Uncorrected and Mixed estimators take the end of the data as an end. If it is the only one, it alone decides the weight
of the ones; without the block that holds it, no end is reached. The same holds for any other sum of features that is
constant, such as that of all one-hot features: A of Boyan's estimator is singular, with that sum in its null space, and
A of the variant is not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from lstd.data.variants import VARIANT
from lstd.errors import IllConditionedWarning, warn
from lstd.statistics.solve import Outcome, Solution, null_space, solve, warn_of_condition
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
ONLY_CUTS_OF_LEVEL = (
    "At `gamma` 1, no end is reached from some rows, along which some sum of the features is constant. The variant "
    "takes the places where the data were cut off as ends, and these and `alpha` alone decide the level of the "
    "predictions. Pass `terminated` for episodes that ended, or use a `gamma` below 1."
)
NO_LEVEL = (
    "At `gamma` 1, no end is reached, and some sum of the features is constant, so the data determine no level of the "
    "predictions. Drop a feature, pass `terminated` for episodes that ended, or use a `gamma` below 1."
)
_EPS = float(np.finfo(np.float64).eps)
_CANCELLED = 1e-12  # relative size of singular values of sums whose terms cancel, if they are zero
_ROUNDING = 1e-12  # of a sum whose terms cancel, relative to their size
_OF_OTHERS = 1e3  # the same of entries beside the diagonal, whose terms may be larger


def with_ones_free(ridge: Array) -> Array:
    """Return ridge coefficients with that of the column of ones in the last place, which is zero."""
    return np.append(ridge, 0.0)


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

    @property
    def has_discounts_of_one(self) -> bool:
        """Whether some transition may have a discount of 1, at which terms of A cancel."""

    def boundary_at(self, j: int) -> float:
        """Return entry (j, j) of the boundary terms at all cuts, the end of the data among them."""


class Equations(NamedTuple):
    """Sums over a part of the data, for the weights of a system; n weights, m rewards."""

    A: Array  # (n, n)
    b: Array  # (n, m)

    def less(self, other: Equations) -> Equations:
        """Return the sums without those of a part of the data."""
        return Equations(self.A - other.A, self.b - other.b)


_FAULTS = {
    "no intercept": _NO_INTERCEPT,
    "no weights": _NO_WEIGHTS,
    "only cuts": _ONLY_CUTS,
    "only cuts of level": ONLY_CUTS_OF_LEVEL,
}


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
    penalty : ndarray of shape (n,)
        Penalty of each weight in a vanishing ridge term; zero for the column of ones.
    intercept : bool
        Whether the last weight is that of the column of ones.
    variant : str, optional
        None for a regression.
    rounding : ndarray of shape (n,), optional
        Size of a diagonal entry of A up to which its terms have cancelled; None for a regression, whose terms do not.
    only_cuts : bool
        Whether the ones have ends only where the data were cut off.
    A_boyan : ndarray of shape (n, n), optional
        Matrix of Boyan's estimator, which does not take cuts as ends; only where terms of A cancel and it differs from
        that of the variant.
    columns : ndarray of shape (n,), optional
        Which features of the sums it has; by default all.
    null : float
        Relative size of singular values that are zero but for rounding.

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
    penalty: Array
    intercept: bool = False
    variant: str | None = None
    rounding: Array | None = None
    only_cuts: bool = False
    A_boyan: Array | None = None
    columns: NDArray[np.intp] | None = None
    null: float = _EPS

    @classmethod
    def of(cls, sums: Sums, variant: str, ridge: Array, *, intercept: bool) -> Self:
        """Return the system of sums; `ridge` has a coefficient of each feature, and none of the column of ones."""
        A = sums.matrix(variant)
        penalty = np.ones(len(A))
        rounding = _ROUNDING * np.abs(sums.A.diagonal())
        only_cuts = False
        if intercept:
            ridge = with_ones_free(ridge)
            penalty[-1] = 0.0
            rounding[-1] += _ROUNDING * sums.total_weight
            size_at_ends = abs(sums.A[-1, -1] - sums.boundary_at(-1))
            only_cuts = bool(size_at_ends <= rounding[-1] < abs(A[-1, -1]))
        null = _EPS
        A_boyan = None
        if sums.has_discounts_of_one:
            null = _CANCELLED
            if variant != VARIANT:
                A_boyan = sums.matrix(VARIANT)
                if np.array_equal(A_boyan, A):
                    A_boyan = None
        return cls(A, sums.b, ridge, penalty, intercept, variant, rounding, only_cuts, A_boyan, null=null)

    @classmethod
    def of_regression(
        cls, gram: Array, b: Array, ridge: float | Array, *, penalty: Array | None = None, intercept: bool = False
    ) -> Self:
        """Return the normal equations of a ridge regression.

        Parameters
        ----------
        gram : ndarray of shape (n, n)
            Sum, or mean, of products of the columns.
        b : ndarray of shape (n, m)
            The same of products with the targets.
        ridge : float or ndarray of shape (n,)
            Ridge coefficient of all columns, or of each.
        penalty : ndarray of shape (n,), optional
            Penalty of each weight in a vanishing ridge term; by default one.
        intercept : bool, default False
            Whether the last column is that of ones.
        """
        n = len(gram)
        if penalty is None:
            penalty = np.ones(n)
        return cls(gram, b, np.broadcast_to(ridge, n), penalty, intercept)

    @cached_property
    def endless(self) -> Flags:
        """Columns, (n,), to which no row with an end contributes, nor a ridge term: their weights are zero."""
        if self.rounding is None:
            return np.zeros(len(self.A), np.bool_)
        diagonal = np.abs(self.A.diagonal()) + self.ridge
        endless: Flags = diagonal <= self.rounding
        if not endless.any():  # the usual case, in less time
            return endless
        endless &= self.rounding > 0.0
        for j in np.flatnonzero(endless):
            size = _OF_OTHERS * np.sqrt(self.rounding * self.rounding[j])  # of entries that are rounding
            is_zero = bool(np.all(np.abs(self.A[:, j]) <= size))
            is_ones = self.intercept and j == len(endless) - 1
            is_seen = is_ones or bool(np.any(np.abs(self.A[j]) > size)) or bool(self.b[j].any())
            endless[j] = is_zero and is_seen
        return endless

    @property
    def is_without_end(self) -> bool:
        """Whether the ones have no end, or only where the data were cut off."""
        return self.only_cuts or bool(self.endless[-1])

    @cached_property
    def determined(self) -> Flags:
        """Weights, (n,), that may differ from zero.

        That of the ones is zero without an end, or without a ridge term if they repeat the other features.
        """
        determined = ~self.endless
        if self.intercept and determined[-1] and not self.ridge.any():
            determined[-1] = not self.solve().without_ones
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
            return solve(A, right, self.ridge, self.penalty, self.null)
        (kept,) = np.nonzero(~self.endless)
        weights = np.zeros_like(right)
        rest = solve(A[np.ix_(kept, kept)], right[kept], self.ridge[kept], self.penalty[kept], self.null)
        weights[kept] = rest.weights
        return Solution(weights, np.inf, Outcome.UNBOUNDED)

    def weights_with(self, ridge: Array) -> Array | None:
        """Return the weights with other ridge coefficients, (n, m), in the least time; None if A is singular with them.

        Nothing is known of their condition: for comparisons with :meth:`solve`, of weights that are not used.
        """
        M = self.A.copy()
        diagonal = np.einsum("ii->i", M)
        diagonal += ridge
        try:
            return np.asarray(np.linalg.solve(M, self.b), np.float64)
        except np.linalg.LinAlgError:
            return None

    def warn_of_condition(self, solution: Solution, warned: frozenset[str] = frozenset()) -> frozenset[str]:
        """Give an IllConditionedWarning if the system is singular or nearly so, or cuts alone decide the solution.

        A fault that is named in `warned` is not said again. Returns the names with that of the fault, if any.
        """
        fault = self.fault_of(solution)
        if not fault or fault in warned:
            return warned
        if fault == "inaccurate":
            warn_of_condition(solution, self.A + np.diag(self.ridge), self.b)
        else:
            warn(_FAULTS[fault], IllConditionedWarning)
        return warned | {fault}

    def fault_of(self, solution: Solution) -> str:
        """Return the name of what is wrong with the system; empty if nothing is."""
        if self.endless.any():
            if self.intercept and self.endless[-1]:
                return "no intercept"
            return "no weights"
        if not solution.is_accurate:
            return "inaccurate"
        if self.only_cuts:
            return "only cuts"
        if self._cuts_decide_level:
            return "only cuts of level"
        return ""

    @property
    def _cuts_decide_level(self) -> bool:
        """Whether some sum of the features that is constant has ends only where the data were cut off."""
        if self.A_boyan is None:
            return False
        constant = null_space(self.A_boyan, self.null)
        size = np.abs(self.A) @ np.abs(constant)
        return bool((np.abs(self.A @ constant) > _OF_OTHERS * _ROUNDING * size).any())

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
            penalty=self.penalty[columns],
            intercept=self.intercept and bool(kept[-1]),
            rounding=None if self.rounding is None else self.rounding[columns],
            A_boyan=None,
            columns=columns if self.columns is None else self.columns[columns],
        )

    def with_ridge(self, ridge: Array) -> Self:
        """Return the system with other ridge coefficients, (n,)."""
        return replace(self, ridge=ridge)

    def without(self, A: Array, b: Array) -> Self:
        """Return the system without a part of its data; the ridge term stays."""
        return type(self)(  # `replace` takes five times as long
            A=self.A - A,
            b=self.b - b,
            ridge=self.ridge,
            penalty=self.penalty,
            intercept=self.intercept,
            variant=self.variant,
            rounding=self.rounding,
            only_cuts=self.only_cuts,
            columns=self.columns,
            null=self.null,
        )

    def of_part(self, part: Sums, *, cuts_end: bool) -> Equations:
        """Return A, (n, n), and b, (n, m), of a part of the data, for the weights of this system.

        Where no cut ends the part, its matrix is that of Boyan's estimator.
        """
        variant = self.variant
        if variant is None or not cuts_end:
            variant = VARIANT
        A = part.matrix(variant)
        if self.columns is None:
            return Equations(A, part.b)
        return Equations(A[np.ix_(self.columns, self.columns)], part.b[self.columns])
