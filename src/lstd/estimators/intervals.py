"""Standard errors and intervals of predictions, from what each stretch of the data adds to the weights.

Let S = A + αI, θ = S⁻¹ b the weights, and A_e, b_e the sums over stretch e, an episode or a run of episodes or of rows,
which has the share w_e of the data. With centred scores g_e,

    g_e = b_e − A_e θ − w_e Σ (b − A θ),   q_e = √(1 − w_e) (S − A_e)⁻¹ g_e,   u_e(s) = φ(s)ᵀ q_e,   se²(s) = Σ u_e².

Solving without the stretch, as for a jackknife, counts what the stretch did to the weights by which it is judged; the
factor √(1 − w_e) makes a sample variance of the sum of squares. For E stretches of equal share and α = 0, q_e is
√(1 − 1/E) times the difference between θ and the weights without stretch e.

An interval takes the quantile of Student's t with degrees of freedom

    df(s) = 2 / (ρ(1 + 10 w²) − w²) in [2, 1/w² − 1],   ρ = Σ u_e⁴ / (Σ u_e²)²,   w² = Σ w_e²,

twice the squared mean over the variance of Σ u_e² (Satterthwaite), with a guard against the kurtosis that few stretches
do not show. Its half width allows for the ridge term too, which to first order shifts the prediction by φᵀ α S⁻¹ θ.

Stretches of one stream carry the trace across their ends, and those of all variants are of Boyan's sums: what the
variants take to happen at the end of the data is in the last one.

The interval is for the fixed point of LSTD(λ). With λ < 1 and features that cannot represent the values, the values
themselves may lie outside.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from lstd.data.rows import Features
from lstd.errors import InvalidInputError
from lstd.statistics.blocks import Blocks
from lstd.statistics.solve import Solution, check_range, solve
from lstd.statistics.threads import blas_threads, one_blas_thread

Array = NDArray[np.float64]

FEW = 5.0  # degrees of freedom below which a prediction is flagged
_FEWEST = 5  # episodes; as many stretches are there whenever there are twice as many blocks
_FEWEST_ROWS = 20  # of one stream
_HEAVY = 10.0  # chosen on simulated streams, and confirmed on others
_TINY = 2.0**-20  # of the mean square of a feature: a ridge coefficient that changes no digit that matters
_ENTRIES = 2**20  # of u at a time, 8 MiB
_BYTES = 2**28  # of the systems that are solved at a time
_FEATURES_FOR_THREADS = 200  # with fewer, threads wait for one another longer than they solve


@dataclass(frozen=True, eq=False)
class Interval:
    """Predictions with intervals; arrays of shape (T,), or (T, m) for m rewards.

    Attributes
    ----------
    prediction, lower, upper : ndarray
    standard_error : ndarray
        Of the prediction, by the scatter of the data; without the shift by the ridge term.
    degrees_of_freedom : ndarray
        Effective number of independent stretches of data that bear on the prediction, less one.
    shift : ndarray
        How far the ridge term moves the prediction, to first order, for which the interval allows. Where it is a large
        part of the prediction, the first order is not enough.
    flagged : ndarray of bool
        Fewer than 5 degrees of freedom: so little data bears on the prediction that the interval may be off.
    level : float
    """

    prediction: Array
    lower: Array
    upper: Array
    standard_error: Array
    degrees_of_freedom: Array
    shift: Array
    flagged: NDArray[np.bool_]
    level: float


@dataclass(frozen=True, eq=False)
class Influence:
    """What each of E stretches of the data adds to the weights; m rewards, n features with the column of ones, if any.

    Attributes
    ----------
    vectors : ndarray of shape (E, m, n)
        q_e of each reward.
    shift : ndarray of shape (m, n)
        α S⁻¹ θ of each reward.
    shares : ndarray of shape (E,)
        w_e, which add up to one.
    intercept : bool
        The last feature is the column of ones, which rows of features are given without.
    """

    vectors: Array
    shift: Array
    shares: Array
    intercept: bool

    def covariance(self) -> Array:
        """Covariance of the weights of the features, shape (m, n, n), without the column of ones."""
        vectors = self.vectors[..., :-1] if self.intercept else self.vectors
        return np.asarray(np.einsum("emi,emj->mij", vectors, vectors, optimize=True))

    def standard_error(self, phi: Features) -> Array:
        """Standard errors of the predictions for rows of features (T, n), shape (T, m)."""
        return self.spread(phi)[0]

    def interval(self, phi: Features, prediction: Array, level: float) -> Interval:
        """Intervals around predictions of shape (T, m) for rows of features (T, n)."""
        error, freedom, shift = self.spread(phi)
        half = special.stdtrit(freedom, 0.5 + 0.5 * level) * np.hypot(error, shift)
        return Interval(
            prediction, prediction - half, prediction + half, error, freedom, -shift, freedom < FEW, level
        )  # fmt: skip

    def spread(self, phi: Features) -> tuple[Array, Array, Array]:
        """Standard error, degrees of freedom and shift for rows of features (T, n), each of shape (T, m)."""
        n_stretches, m, _ = self.vectors.shape
        across = np.concatenate([self.vectors.reshape(n_stretches * m, -1), self.shift]).T
        error, freedom, shift = np.empty((3, phi.shape[0], m))
        size = max(1, _ENTRIES // across.shape[1])
        for first in range(0, phi.shape[0], size):
            rows = slice(first, first + size)
            along = np.asarray(phi[rows] @ across[:-1] + across[-1] if self.intercept else phi[rows] @ across)
            shift[rows] = along[:, -m:]
            with np.errstate(over="ignore", invalid="ignore"):
                squares = along[:, :-m].reshape(-1, n_stretches, m) ** 2
                error[rows] = np.sqrt(squares.sum(axis=1))
            check_range(error[rows])
            freedom[rows] = degrees_of_freedom(squares, self.shares)
        return error, freedom, shift


def degrees_of_freedom(squares: Array, shares: Array) -> Array:
    """df from the squares u_e², (T, E, m), of stretches with shares (E,); shape (T, m)."""
    whole = squares.sum(axis=1)
    w2 = float(np.sum(shares**2))
    parts = np.divide(squares, whole[:, np.newaxis], out=np.zeros_like(squares), where=whole[:, np.newaxis] > 0.0)
    rho = np.where(whole > 0.0, (parts**2).sum(axis=1), 1.0)
    freedom = 2.0 / np.maximum(rho * (1.0 + _HEAVY * w2) - w2, 1e-12)
    return np.asarray(np.clip(freedom, 2.0, max(2.0, 1.0 / w2 - 1.0)))


def influence_of(
    blocks: Blocks, weights: Array, ridge: Array, variant: str, *, intercept: bool, threads: int | None = None
) -> Influence:
    """What each stretch of the data adds to weights θ of shape (n, m), solved for with these ridge coefficients.

    Systems are solved by so many threads, as many as the BLAS may use unless told, with the BLAS at one thread in each:
    the result is the same to the last bit for any number.

    Raises
    ------
    InvalidInputError
        When no stretches, or too few, are told apart.
    """
    _check_stretches(blocks)
    A, b = blocks.total.matrix(variant), blocks.total.b
    threads = min(threads or blas_threads(), max(1, _BYTES // (48 * len(A) ** 2)))  # each holds six matrices
    with one_blas_thread():
        shift = solve(A, ridge[:, np.newaxis] * weights, ridge, warn=False).weights.T
        vectors, singular = _vectors(blocks, A, weights, ridge, variant, threads)
        if (
            singular
        ):  # a feature occurs in one stretch only: with a prior that is all but flat, all of its weight is at stake
            square = abs(float(np.trace(A))) / (len(A) * max(1, blocks.total.n_transitions))
            ridge = ridge + _TINY * square
            weights = solve(A, b, ridge, warn=False).weights
            vectors, _ = _vectors(blocks, A, weights, ridge, variant, threads)
    return Influence(vectors, shift, blocks.shares, intercept)


def _vectors(blocks: Blocks, A: Array, weights: Array, ridge: Array, variant: str, threads: int) -> tuple[Array, bool]:
    """q_e, (E, m, n), and whether a system without a stretch was singular."""
    shares, rest = blocks.shares, blocks.total.b - A @ weights

    def until(e: int) -> tuple[Array, Array]:
        """A and b of the data up to the end of a stretch."""
        if e == len(blocks.prefixes):
            return A, blocks.total.b
        return blocks.prefixes[e].matrix(variant if blocks.by_episode else "boyan"), blocks.prefixes[e].b

    def without(e: int) -> Solution:
        A_e, b_e = until(e)
        if e:
            A_before, b_before = until(e - 1)
            A_e, b_e = A_e - A_before, b_e - b_before
        return solve(A - A_e, b_e - A_e @ weights - shares[e] * rest, ridge, warn=False)

    stretches = range(len(shares))
    if len(A) < _FEATURES_FOR_THREADS or threads == 1:
        found = [without(e) for e in stretches]
    else:
        with ThreadPoolExecutor(threads, thread_name_prefix="lstd") as pool:
            found = list(pool.map(without, stretches))
    vectors = np.array([np.sqrt(1.0 - w) * one.weights.T for w, one in zip(shares, found, strict=True)])
    return vectors, any(one.singular for one in found)


def _check_stretches(blocks: Blocks) -> None:
    if blocks.limit < 2 * _FEWEST:
        raise InvalidInputError(
            blocks.reason
            or f"Intervals need `n_blocks` of at least {2 * _FEWEST}; the model was fitted with {blocks.limit}. Fit it "
            "again with more."
        )
    what, count, fewest = "episodes", blocks.total.n_episodes, _FEWEST
    if not blocks.by_episode:
        what, count, fewest = "rows", blocks.total.n_rows, _FEWEST_ROWS
    if count < fewest:
        raise InvalidInputError(
            f"Intervals need at least {fewest} {what}, and mean little with as few; the model was fitted to {count}. "
            "Fit it to more."
        )
