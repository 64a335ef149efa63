"""Influence of each block of the data on the weights, and the standard errors and intervals that follow from it.

The covariance of the weights is Σ_e q_e q_eᵀ: the cluster-robust (sandwich) covariance, with blocks as clusters and the
jackknife's correction for leverage.

Let S = A + αI, θ = S⁻¹ b the weights, and A_e, b_e the sums over block e, which has the share w_e of the data. With
centred scores g_e,

    g_e = b_e − A_e θ − w_e Σ (b − A θ),   q_e = √(1 − w_e) (S − A_e)⁻¹ g_e,   u_e(s) = φ(s)ᵀ q_e,   se²(s) = Σ u_e².

As in a block jackknife, the system is solved without block e: otherwise the block would influence the weights that its
score is computed from. The factor √(1 − w_e) makes the sum of squares a sample variance. For E blocks of equal share
and α = 0, q_e is √(1 − 1/E) times the difference between θ and the weights without block e.

If all blocks are of one episode, the trace runs across their ends, and the blocks of all variants are of Boyan's sums;
the last block has what the variants do at the end of the data.

An interval is the quantile of Student's t times √(se² + shift²). The degrees of freedom

    df(s) = 2 / (ρ(1 + 10 w²) − w²) in [2, 1/w² − 1],   ρ = Σ u_e⁴ / (Σ u_e²)²,   w² = Σ w_e²,

are twice the squared mean over the variance of Σ u_e² (Satterthwaite). The factor 10 guards against kurtosis that a few
blocks do not show. The shift is the bias of the ridge term, to first order φᵀ α S⁻¹ θ.

An interval for what comes has the variance se² + v + c, with v = Σ w_i² v_i for a weighted sum of rows whose returns
have the variances v_i about their expected values, independently of one another, and c = (Σ |w_i| c_i)² for a shock
that all rows share, by which the return of a row has the standard deviation c_i. Its degrees of freedom are those of
the sum of all three estimates, (se² + v + c)² / (se⁴/df + v²/df_v + c²/df_c).

The interval is for the fixed point of LSTD(λ). With λ < 1 and features that cannot represent the values, the values
themselves may lie outside.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lstd.data.arguments import check_array, check_real
from lstd.data.feature_arrays import Features
from lstd.data.ids import first_true
from lstd.errors import InvalidInputError
from lstd.statistics.blocks import Blocks
from lstd.statistics.solve import Solution, check_range
from lstd.statistics.system import Equations, System
from lstd.statistics.threads import blas_threads, in_threads, one_blas_thread
from lstd.types import Array

SCALES = ("identity", "log", "logit")
MEAN, RETURN = OF = ("mean", "return")  # what intervals are for
FEW = 5.0  # degrees of freedom below which little data bears on a prediction
_HEAVY = 10.0  # chosen on simulated streams, and confirmed on others
_LARGEST_EXPONENT = 300.0  # an interval on the log scale ends at a number that is finite
FEWEST_BLOCKS = 5  # blocks, and groups or episodes
_FEWEST_ROWS = 20  # of one episode
_TINY = 2.0**-20  # ridge coefficient that changes no relevant digit, in units of the mean square of a feature
_ENTRIES = 2**20  # of u at a time, 8 MiB
_BYTES = 2**28  # of the systems that are solved at a time
_FEATURES_FOR_THREADS = 200  # with fewer, threads wait longer than they compute

_ONE_BLOCK_DECIDES = (
    "Intervals need data of which no block alone decides the values. At `gamma` 1, without one of the blocks no end is "
    "reached from some rows, and values grow without bound. Fit to data in which more episodes terminate, or use a "
    "`gamma` below 1."
)


@dataclass(frozen=True, eq=False)
class Interval:
    """Predictions with intervals; arrays of shape (T,), or (T, m) for m rewards.

    For one weighted sum of rows: numbers, or arrays of shape (m,).

    Attributes
    ----------
    prediction, lower, upper : ndarray
    standard_error : ndarray
        Standard deviation of the prediction over data sets, without the shift; for an interval of what comes, that of
        the difference between prediction and return.
    degrees_of_freedom : ndarray
        Effective number of independent blocks of data that bear on the prediction, less one.
    shift : ndarray
        Bias of the prediction by the ridge term, to first order, which widens the interval. If it is a large part of
        the prediction, the first order is not enough.
    little_data : ndarray of bool
        Whether there are fewer than 5 degrees of freedom, so that a few blocks decide an interval that is wide, or a
        feature that no full transition starts from, on which no data bears.
    level : float

    Examples
    --------
    >>> import numpy as np
    >>> from lstd import LSTD
    >>> rewards = np.array([1.0, 3.0, 2.0, 2.0, 1.0, 3.0])
    >>> model = LSTD(alpha=0.0, fit_intercept=False).fit(np.ones((6, 1)), rewards, terminated=np.ones(6))
    >>> interval = model.predict_interval([[1.0]])
    >>> interval.prediction.round(2), interval.lower.round(1), interval.upper.round(1), interval.little_data
    (array([2.]), array([1.]), array([3.]), array([ True]))
    """

    prediction: Array
    lower: Array
    upper: Array
    standard_error: Array
    degrees_of_freedom: Array
    shift: Array
    little_data: NDArray[np.bool_]
    level: float

    def __str__(self) -> str:
        text = in_short(self.prediction, self.lower, self.upper, self.level)
        if np.any(self.little_data):
            text += ", little data"
        return text

    __repr__ = __str__

    def at(self, place: Any) -> Interval:
        """Return the intervals at a place in arrays of shape (T, m)."""
        arrays = {}
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                arrays[name] = value[place]
        return replace(self, **arrays)


def in_short(prediction: Array, lower: Array, upper: Array, level: float) -> str:
    """Return intervals as text, of which long arrays have the first and the last numbers only."""
    shown = []
    for numbers in (prediction, lower, upper):
        if np.ndim(numbers):
            shown.append(np.array2string(numbers, precision=4, threshold=20))
        else:
            shown.append(f"{numbers:.5g}")
    return f"{shown[0]}, interval [{shown[1]}, {shown[2]}] at level {level:g}"


def power_of_two(size: ArrayLike) -> Array:
    """Return the largest power of two that is at most `size`, which is at least 0; a half for 0.

    Numbers in this unit, and their squares, are near one, with the same rounding errors as before.
    """
    _, exponent = np.frexp(size)
    return np.asarray(np.ldexp(0.5, exponent))


class Noise(NamedTuple):
    """How returns scatter about their expected values; T rows, m rewards."""

    variance: Array  # (T, m), of what is independent from row to row
    freedom: Array  # (m,) degrees of freedom of the estimated variances
    shared: Array  # (T, m) standard deviation by a shock that all rows share
    shared_freedom: float = 1.0

    @classmethod
    def of_independent_rows(cls, variance: Array, freedom: Array) -> Noise:
        """Return the noise of rows that share no shock."""
        return cls(variance, freedom, np.zeros_like(variance))

    def summed(self, weights: ArrayLike | None) -> Noise:
        """Return that of the weighted sum of rows, or of each row without weights.

        Of weights of both signs, the shares of the shock add up in size: it need not move all rows alike.
        """
        if weights is None:
            return self
        share = check_array("weights", weights, (len(self.variance),))
        with np.errstate(over="ignore", invalid="ignore"):
            variance = (share**2 @ self.variance)[np.newaxis]
            shared = (np.abs(share) @ self.shared)[np.newaxis]
        check_range(variance, shared)
        return self._replace(variance=variance, shared=shared)

    def added_to(self, error: Array, freedom: Array) -> tuple[Array, Array]:
        """Return standard errors and degrees of freedom, (T, m), of predictions beside what comes."""
        largest = np.maximum(np.maximum(error, np.sqrt(self.variance)), self.shared)
        unit = power_of_two(largest)  # so that no square is out of range
        square = (error / unit) ** 2
        variance = self.variance / unit / unit
        shared = (self.shared / unit) ** 2
        total = square + variance + shared
        parts = square**2 / freedom + variance**2 / self.freedom + shared**2 / self.shared_freedom
        together = np.divide(total**2, parts, out=np.array(freedom), where=parts > 0.0)
        return unit * np.sqrt(total), together


def summed(phi: Features, values: Array, weights: ArrayLike | None) -> tuple[Features, Array, float]:
    """Return features, predictions (T, m) and the column of ones, of rows or of their weighted sum."""
    if weights is None:
        return phi, values, 1.0
    share = check_array("weights", weights, (phi.shape[0],))
    with np.errstate(over="ignore", invalid="ignore"):
        phi_of_sum = np.asarray(phi.T @ share)[np.newaxis]
        value_of_sum = (share @ values)[np.newaxis]
        ones = share.sum()
    check_range(phi_of_sum, value_of_sum, np.array(ones))
    return phi_of_sum, value_of_sum, float(ones)


def check_level(level: Any, name: str = "level") -> float:
    """Return the level of intervals as a float, or raise InvalidInputError."""
    number = check_real(name, level, -np.inf, np.inf)
    if not 0.0 < number < 1.0:
        raise InvalidInputError(f"`{name}` must be above 0 and below 1, such as 0.95; got {number:g}.")
    return number


def half_width(error: Any, freedom: Any, level: float, shift: Any = 0.0) -> Any:
    """Compute half the width of intervals: the quantile of Student's t times √(error² + shift²)."""
    from scipy import special  # takes 0.1 s to import

    return special.stdtrit(freedom, 0.5 + 0.5 * level) * np.hypot(error, shift)


def interval_of(
    prediction: Array, error: Array, freedom: Array, shift: Array, level: float, scale: str = "identity"
) -> Interval:
    """Compute intervals around predictions from standard errors, degrees of freedom and shifts, (T, m) each."""
    with np.errstate(over="ignore", invalid="ignore"):
        half = half_width(error, freedom, level, shift)
        lower, upper = _bounds(prediction, half, scale)
    return Interval(
        prediction=prediction,
        lower=lower,
        upper=upper,
        standard_error=error,
        degrees_of_freedom=freedom,
        shift=-shift,
        little_data=freedom < FEW,
        level=level,
    )


def _bounds(prediction: Array, half: Array, scale: str) -> tuple[Array, Array]:
    """Ends of intervals that are symmetric on a scale, from half widths h on the identity scale.

    The half width is h/v on the log scale and h/(v(1 − v)) on the logit scale (delta method).
    """
    if scale == "identity":
        return prediction - half, prediction + half
    _check_domain(prediction, scale)
    if scale == "log":
        factor = np.exp(np.minimum(half / prediction, _LARGEST_EXPONENT))
        return prediction / factor, prediction * factor
    from scipy import special

    centre = special.logit(prediction)
    half_on_scale = half / (prediction * (1.0 - prediction))
    return special.expit(centre - half_on_scale), special.expit(centre + half_on_scale)


def _check_domain(prediction: Array, scale: str) -> None:
    """Raise InvalidInputError if some predictions, (T, m), have no place on the log or logit scale."""
    high = 1.0
    rule = "between 0 and 1"
    if scale == "log":
        high = np.inf
        rule = "above 0"
    outside = ~((prediction > 0.0) & (prediction < high))
    row = first_true(np.asarray(outside.any(axis=1)))
    if row is None:
        return
    value = prediction[row][outside[row]][0]
    raise InvalidInputError(
        f'`scale` "{scale}" needs predictions {rule}; row {row} has {value:g}. Leave out such rows, or use '
        'scale="identity".'
    )


def degrees_of_freedom(squares: Array, shares: Array) -> Array:
    """Compute df, shape (T, m), from u_e² of shape (T, E, m) and the shares of the blocks, (E,)."""
    whole = squares.sum(axis=1)
    w2 = float(np.sum(shares**2))
    divisor = whole[:, np.newaxis]
    parts = np.divide(squares, divisor, out=np.zeros_like(squares), where=divisor > 0.0)
    rho = np.where(whole > 0.0, (parts**2).sum(axis=1), 1.0)
    freedom = 2.0 / np.maximum(rho * (1.0 + _HEAVY * w2) - w2, 1e-12)
    return np.asarray(np.clip(freedom, 2.0, max(2.0, 1.0 / w2 - 1.0)))


@dataclass(frozen=True, eq=False)
class Influence:
    """Influence of each of E blocks on the weights; m rewards, n features including the column of ones, if any."""

    vectors: Annotated[Array, "E outputs n"]  # q_e for each reward
    shift: Annotated[Array, "outputs n"]  # α S⁻¹ θ for each reward
    shares: Annotated[Array, "E"]  # w_e; their sum is one
    intercept: bool  # whether the last of the n features is the column of ones, which rows to predict do not have
    marks: Annotated[NDArray[np.uint64], "E 4"]  # as those of `Blocks`

    def check_read(self) -> None:
        """Refuse shares of a file that are none."""
        if not ((self.shares >= 0.0).all() and abs(self.shares.sum() - 1.0) < 1e-6):
            raise ValueError(self.shares)

    def of_same_rows(self, other: Influence) -> bool:
        """Return whether the blocks have the same rows, but for rewards and weights."""
        return np.array_equal(self.marks[:, :3], other.marks[:, :3])

    def covariance(self) -> Array:
        """Compute the covariance of the weights, shape (m, n, n), n without the column of ones."""
        vectors = self.vectors
        if self.intercept:
            vectors = vectors[..., :-1]
        with np.errstate(over="ignore", invalid="ignore"):
            covariance = np.asarray(np.einsum("emi,emj->mij", vectors, vectors, optimize=True))
        check_range(covariance)
        return covariance

    def standard_error(self, phi: Features) -> Array:
        """Compute standard errors of predictions from features (T, n), shape (T, m)."""
        return self.spread(phi, freedom=False)[0]

    def interval(
        self,
        phi: Features,
        prediction: Array,
        level: float,
        *,
        ones: float = 1.0,
        scale: str = "identity",
        noise: Noise | None = None,
    ) -> Interval:
        """Compute intervals around predictions (T, m), symmetric on a scale, from features (T, n); see `spread`.

        With `noise`, they are for the returns that come.
        """
        error, degrees, shift = self.spread(phi, ones)
        if noise is not None:
            error, degrees = noise.added_to(error, degrees)
        interval = interval_of(prediction, error, degrees, shift, level, scale)
        check_range(interval.lower, interval.upper)
        return interval

    def of_weights_error(self) -> Array:
        """Compute the standard errors of the weights themselves, (m, n)."""
        with np.errstate(over="ignore", invalid="ignore"):
            error: Array = np.sqrt((self.vectors**2).sum(axis=0))
        check_range(error)
        return error

    def of_weights(self, weights: Array, level: float) -> Interval:
        """Compute intervals around the weights (n, m) themselves."""
        with np.errstate(over="ignore", invalid="ignore"):
            squares = self.vectors.transpose(2, 0, 1) ** 2
            error = np.sqrt(squares.sum(axis=1))
        check_range(error)
        degrees = degrees_of_freedom(squares, self.shares)
        interval = interval_of(weights, error, degrees, self.shift.T, level)
        check_range(interval.lower, interval.upper)
        return interval

    def spread(self, phi: Features, ones: float = 1.0, *, freedom: bool = True) -> tuple[Array, Array, Array]:
        """Compute standard error, degrees of freedom (unless not wanted) and shift, (T, m), from features (T, n).

        With an intercept, `ones` is the entry of the column of ones: the sum of the weights in a weighted sum of rows.
        """
        error, degrees, shift = np.empty((3, phi.shape[0], self.vectors.shape[1]))
        for rows, u, shift_of_rows in self.along(phi, ones):
            shift[rows] = shift_of_rows
            with np.errstate(over="ignore", invalid="ignore"):
                squares = u**2
                error[rows] = np.sqrt(squares.sum(axis=1))
            check_range(error[rows], shift[rows])
            if freedom:
                degrees[rows] = degrees_of_freedom(squares, self.shares)
        return error, degrees, shift

    def along(self, phi: Features, ones: float = 1.0) -> Iterator[tuple[slice, Array, Array]]:
        """Yield slices of rows with their block influences u_e, (T, E, m), and their shifts, (T, m)."""
        n_blocks, m, _ = self.vectors.shape
        stacked = np.concatenate([self.vectors.reshape(n_blocks * m, -1), self.shift])
        across = stacked.T  # (n, E m + m): one product gives influences and shifts
        size = max(1, _ENTRIES // across.shape[1])
        for first in range(0, phi.shape[0], size):
            rows = slice(first, first + size)
            with np.errstate(over="ignore", invalid="ignore"):
                if self.intercept:
                    of_features = phi[rows] @ across[:-1]
                    along = of_features + ones * across[-1]
                else:
                    along = phi[rows] @ across
            u = along[:, :-m].reshape(-1, n_blocks, m)
            shift = along[:, -m:]
            yield rows, u, shift


def influence_of(blocks: Blocks, system: System, weights: Array, *, threads: int | None = None) -> Influence:
    """Compute the influence of each block on the weights (n, m), the solution of the system of all blocks.

    Uses `threads` threads (default: the BLAS limit), each with a single-threaded BLAS; the result does not depend on
    `threads`.

    Raises
    ------
    InvalidInputError
        When there are no blocks, or too few episodes or rows.
    """
    check_blocks(blocks)
    shares = blocks.shares
    n, m = weights.shape
    vectors = np.zeros((len(shares), m, n))
    shift = np.zeros((m, n))
    intercept = system.intercept
    (kept,) = system.determined.nonzero()  # the other weights are zero, whatever the data
    system = system.only(system.determined)
    weights = weights[kept]
    if threads is None:
        threads = blas_threads()
    threads = min(threads, max(1, _BYTES // (48 * n**2)))  # each holds six matrices
    with one_blas_thread():
        pulled = system.solve(system.ridge[:, np.newaxis] * weights)
        shift[:, kept] = pulled.weights.T
        vectors[..., kept], singular = _vectors(blocks, system, weights, threads)
        if singular:  # a feature occurs in one block only: a tiny ridge makes its whole weight uncertain
            n_entries = len(weights) * max(1, blocks.total.n_transitions)
            mean_square = abs(float(np.trace(system.A))) / n_entries
            tiny = _TINY * mean_square * system.penalty
            system = system.with_ridge(system.ridge + tiny)
            weights = system.solve().weights
            vectors[..., kept], _ = _vectors(blocks, system, weights, threads)
    return Influence(vectors, shift, shares, intercept, blocks.marks)


@np.errstate(over="ignore", invalid="ignore")  # `solve` reports overflow
def _vectors(blocks: Blocks, system: System, weights: Array, threads: int) -> tuple[Array, bool]:
    """Compute q_e, (E, m, n), and whether a system without a block was singular."""
    shares = blocks.shares
    residual = system.b - system.A @ weights

    @np.errstate(over="ignore", invalid="ignore")  # in another thread
    def without_block(block: tuple[float, Equations]) -> Solution:
        """Solve the system without a block, given its share and sums, for its centred score g_e."""
        share, (A_e, b_e) = block
        rest = system.without(A_e, b_e)
        score = b_e - A_e @ weights - share * residual
        solution = rest.solve(score)
        if solution.singular and rest.solve().unbounded and system.solve().is_accurate:
            raise InvalidInputError(_ONE_BLOCK_DECIDES)
        return solution

    if len(weights) < _FEATURES_FOR_THREADS:
        threads = 1
    each = zip(shares, blocks.each(system), strict=True)
    solutions = list(in_threads(without_block, each, threads))
    vectors = np.array([solution.weights.T for solution in solutions])
    vectors *= np.sqrt(1.0 - shares)[:, np.newaxis, np.newaxis]
    return vectors, any(solution.singular for solution in solutions)


def check_ends(blocks: Blocks, system: System) -> None:
    """Raise InvalidInputError if the system has an end of the ones, but not without one of the blocks."""
    for own in blocks.each(system):
        if system.without(*own).endless[-1]:
            raise InvalidInputError(_ONE_BLOCK_DECIDES)


def check_blocks(blocks: Blocks) -> None:
    """Raise InvalidInputError when there are no blocks, or too few episodes or rows."""
    check_count(blocks.limit, blocks.count(blocks.total), blocks.unit, blocks.reason)
    n_blocks = blocks.n_blocks
    if n_blocks < FEWEST_BLOCKS:
        raise InvalidInputError(
            f"Intervals need at least {FEWEST_BLOCKS} blocks of the data; got {n_blocks}. Each of several "
            f"statistics is a block, unless its last {blocks.unit[:-1]} continues in the next one. Pass more "
            f"statistics, each of whole {blocks.unit}."
        )


def check_count(limit: int, count: int, unit: str, reason: str = "") -> None:
    """Raise InvalidInputError when the limit of blocks, or the count of groups, episodes or rows, is too small."""
    least = 2 * FEWEST_BLOCKS
    if limit < least and reason:
        raise InvalidInputError(reason)
    if limit < least:
        raise InvalidInputError(
            f"Intervals need `n_blocks` of at least {least}; the model was fitted with {limit}. Fit it again with more."
        )
    fewest = FEWEST_BLOCKS
    if unit == "rows":
        fewest = _FEWEST_ROWS
    if count < fewest:
        raise InvalidInputError(
            f"Intervals need at least {fewest} {unit}; the model was fitted to {count}. Fit it to more."
        )
