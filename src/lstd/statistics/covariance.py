"""Covariance of the weights, from the influence of each block of the data on them.

The covariance is Σ_e q_e q_eᵀ: the cluster-robust (sandwich) covariance, with blocks as clusters and the jackknife's
correction for leverage.

Let S = A + αI, θ = S⁻¹ b the weights, and A_e, b_e the sums over block e, which has the share w_e of the data. With
centred scores g_e,

    g_e = b_e − A_e θ − w_e Σ (b − A θ),   q_e = √(1 − w_e) (S − A_e)⁻¹ g_e,   u_e(s) = φ(s)ᵀ q_e,   se²(s) = Σ u_e².

As in a block jackknife, the system is solved without block e: otherwise the block would influence the weights that its
score is computed from. The factor √(1 − w_e) makes the sum of squares a sample variance. For E blocks of equal share
and α = 0, q_e is √(1 − 1/E) times the difference between θ and the weights without block e.

If all blocks are of one episode, the trace runs across their ends, and the blocks of all variants are of Boyan's sums;
the last block has what the variants do at the end of the data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lstd.data.feature_arrays import Features
from lstd.errors import InvalidInputError
from lstd.statistics.blocks import Blocks
from lstd.statistics.intervals import Interval, degrees_of_freedom, interval_of
from lstd.statistics.solve import Solution, check_range, ones_left_out, solve
from lstd.statistics.threads import blas_threads, one_blas_thread
from lstd.types import Array

FEWEST_BLOCKS = _FEWEST = 5  # blocks, and groups or episodes
_FEWEST_ROWS = 20  # of one episode
_TINY = 2.0**-20  # ridge coefficient that changes no relevant digit, in units of the mean square of a feature
_ENTRIES = 2**20  # of u at a time, 8 MiB
_BYTES = 2**28  # of the systems that are solved at a time
_FEATURES_FOR_THREADS = 200  # with fewer, threads wait longer than they compute


@dataclass(frozen=True, eq=False)
class Influence:
    """Influence of each of E blocks on the weights; m rewards, n features including the column of ones, if any."""

    vectors: Annotated[Array, "E m n"]  # q_e for each reward
    shift: Annotated[Array, "m n"]  # α S⁻¹ θ for each reward
    shares: Annotated[Array, "E"]  # w_e; their sum is one
    intercept: bool  # whether the last of the n features is the column of ones, which rows to predict do not have
    marks: Annotated[NDArray[np.uint64], "E 4"]  # as those of `Blocks`

    def of_same_rows(self, other: Influence) -> bool:
        """Return whether the blocks have the same rows, but for rewards and weights."""
        return np.array_equal(self.marks[:, :3], other.marks[:, :3])

    def covariance(self) -> Array:
        """Compute the covariance of the weights, shape (m, n, n), n without the column of ones."""
        vectors = self.vectors[..., :-1] if self.intercept else self.vectors
        with np.errstate(over="ignore", invalid="ignore"):
            covariance = np.asarray(np.einsum("emi,emj->mij", vectors, vectors, optimize=True))
        check_range(covariance)
        return covariance

    def standard_error(self, phi: Features) -> Array:
        """Compute standard errors of predictions from features (T, n), shape (T, m)."""
        return self.spread(phi, freedom=False)[0]

    def interval(
        self, phi: Features, prediction: Array, level: float, *, ones: float = 1.0, scale: str = "identity"
    ) -> Interval:
        """Compute intervals around predictions (T, m), symmetric on a scale, from features (T, n); see `spread`."""
        return interval_of(prediction, *self.spread(phi, ones), level, scale)

    def of_weights(self, weights: Array, level: float) -> Interval:
        """Compute intervals around the weights (n, m) themselves."""
        with np.errstate(over="ignore", invalid="ignore"):
            squares = self.vectors.transpose(2, 0, 1) ** 2
            error = np.sqrt(squares.sum(axis=1))
        check_range(error)
        return interval_of(weights, error, degrees_of_freedom(squares, self.shares), self.shift.T, level)

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
        across = np.concatenate([self.vectors.reshape(n_blocks * m, -1), self.shift]).T
        size = max(1, _ENTRIES // across.shape[1])
        for first in range(0, phi.shape[0], size):
            rows = slice(first, first + size)
            with np.errstate(over="ignore", invalid="ignore"):
                along = phi[rows] @ across[:-1] + ones * across[-1] if self.intercept else phi[rows] @ across
            yield rows, along[:, :-m].reshape(-1, n_blocks, m), along[:, -m:]


def influence_of(
    blocks: Blocks, weights: Array, ridge: Array, variant: str, *, intercept: bool, threads: int | None = None
) -> Influence:
    """Compute the influence of each block on the weights (n, m), which were solved for with these ridge coefficients.

    Uses `threads` threads (default: the BLAS limit), each with a single-threaded BLAS; the result does not depend on
    `threads`.

    Raises
    ------
    InvalidInputError
        When there are no blocks, or too few episodes or rows.
    """
    _check_blocks(blocks)
    of_block = variant if blocks.by_episode else "boyan"
    sums = BlockSums(
        blocks.total.matrix(variant), blocks.total.b, lambda e: blocks.prefixes[e].matrix(of_block),
        [prefix.b for prefix in blocks.prefixes], blocks.shares, blocks.total.n_transitions,
    )  # fmt: skip
    influence = influence_from(sums, weights, ridge, intercept=intercept, threads=threads)
    return replace(influence, marks=blocks.marks)


class BlockSums(NamedTuple):
    """Sums over all data, and up to the end of each block but the last."""

    A: Array  # (n, n)
    b: Array  # (n, m)
    matrix: Callable[[int], Array]  # (n, n) up to the end of block e
    moments: Sequence[Array]  # (n, m) each
    shares: Array  # (E,)
    n_transitions: int


Solver = Callable[[Array, Array], Array | None]  # from M (n, n) and right sides (n, m) to M⁻¹ of these, or None


def influence_from(
    sums: BlockSums, weights: Array, ridge: Array, *, intercept: bool = False, threads: int | None = None,
    solver: Solver | None = None,
) -> Influence:  # fmt: skip
    """Compute the influence of each block from sums, as :func:`influence_of` does; `solver` may be faster."""
    A, b = sums.A, sums.b
    penalty = np.ones(len(A))
    penalty[len(A) - intercept :] = 0.0
    kept = slice(len(A) - (intercept and not ridge.any() and ones_left_out(A, b)))
    vectors, shift = np.zeros((len(sums.shares), *weights.T.shape)), np.zeros(weights.T.shape)
    A, weights, ridge, penalty = A[kept, kept], weights[kept], ridge[kept], penalty[kept]
    threads = min(threads or blas_threads(), max(1, _BYTES // (48 * len(A) ** 2)))  # each holds six matrices
    with one_blas_thread():
        shift[:, kept] = _solved(A, ridge[:, np.newaxis] * weights, ridge, penalty, solver).weights.T
        vectors[..., kept], singular = _vectors(sums, weights, ridge, penalty, threads, solver)
        if singular:  # a feature occurs in one block only: a tiny ridge makes its whole weight uncertain
            square = abs(float(np.trace(A))) / (len(A) * max(1, sums.n_transitions))
            ridge = ridge + _TINY * square * penalty
            weights = solve(A, b[kept], ridge, penalty=penalty, warn=False).weights
            vectors[..., kept], _ = _vectors(sums, weights, ridge, penalty, threads)
    return Influence(vectors, shift, sums.shares, intercept, np.zeros((len(sums.shares), 4), np.uint64))


def _solved(A: Array, right: Array, ridge: Array, penalty: Array, solver: Solver | None = None) -> Solution:
    """Solve (A + diag(ridge)) x = right."""
    if solver is not None:
        M = A.copy()
        M[np.diag_indices_from(M)] += ridge
        if (found := solver(M, right)) is not None:
            return Solution(found, 1.0, False)
    return solve(A, right, ridge, penalty=penalty, warn=False)


def _vectors(
    sums: BlockSums, weights: Array, ridge: Array, penalty: Array, threads: int, solver: Solver | None = None
) -> tuple[Array, bool]:
    """q_e of shape (E, m, n) of the first n features, and whether a system without a block was singular."""
    kept = slice(len(weights))
    A, b, shares = sums.A[kept, kept], sums.b[kept], sums.shares
    rest = b - A @ weights

    def until(e: int) -> tuple[Array, Array]:
        """A and b of the data up to the end of a block."""
        if e == len(sums.moments):
            return A, b
        return sums.matrix(e)[kept, kept], sums.moments[e][kept]

    def without(e: int) -> Solution:
        A_e, b_e = until(e)
        if e:
            A_before, b_before = until(e - 1)
            A_e, b_e = A_e - A_before, b_e - b_before
        return _solved(A - A_e, b_e - A_e @ weights - shares[e] * rest, ridge, penalty, solver)

    if len(A) < _FEATURES_FOR_THREADS or threads == 1:
        solutions = [without(e) for e in range(len(shares))]
    else:
        with ThreadPoolExecutor(threads, thread_name_prefix="lstd") as pool:
            solutions = list(pool.map(without, range(len(shares))))
    vectors = np.array([np.sqrt(1.0 - w) * one.weights.T for w, one in zip(shares, solutions, strict=True)])
    return vectors, any(solution.singular for solution in solutions)


def _check_blocks(blocks: Blocks) -> None:
    if blocks.limit < 2 * _FEWEST:
        raise InvalidInputError(
            blocks.reason
            or f"Intervals need `n_blocks` of at least {2 * _FEWEST}; the model was fitted with {blocks.limit}. Fit it "
            "again with more."
        )
    count, fewest = blocks.count(blocks.total), _FEWEST if blocks.by_episode else _FEWEST_ROWS
    if count < fewest:
        raise InvalidInputError(
            f"Intervals need at least {fewest} {blocks.unit}; the model was fitted to {count}. Fit it to more."
        )
    if (found := len(blocks.prefixes) + 1) < _FEWEST:
        raise InvalidInputError(
            f"Intervals need at least {_FEWEST} blocks of the data; got {found}. Each of several "
            f"statistics is a block, unless its last {blocks.unit[:-1]} continues in the next one. Pass more "
            f"statistics, each of whole {blocks.unit}."
        )
