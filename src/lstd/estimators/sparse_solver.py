"""LSTD(λ) for sparse rows of many features, without the matrix: Krylov solves of (A + αI) θ = b by products with A.

A product is one pass backwards over the rows (:mod:`lstd._kernels.products`), so time and memory are those of the data.
Rows and columns are scaled alike by the square root of the diagonal of Σ w_t ρ_t φ_t φ_tᵀ + αI, so that neither the
scale nor the frequency of a feature matters; BiCGSTAB solves the scaled system S x = R b to the relative residual
‖R b − S x‖ / ‖R b‖. An equation without data and without a ridge term leaves its weight at zero, which is what a
vanishing ridge term gives.

Intervals are those of :mod:`lstd.statistics.intervals`: the system without block e leaves the TD errors of the block's
transitions out of the pass, and is solved for q_e. Counts, shares and marks of the blocks are those of sums over the
column of ones alone.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from lstd._kernels.products import CUT, FULL, LAST, add_squares, add_td_errors
from lstd.data.doubts import unused_rows
from lstd.data.feature_arrays import check_finite
from lstd.data.rows import Rows
from lstd.data.settings import Settings, Solver, boundary_share
from lstd.errors import IllConditionedWarning, InvalidInputError, warn
from lstd.estimators.limits import Limits
from lstd.estimators.model import Model, warned_of
from lstd.estimators.model_parts import MatrixFree, Solved
from lstd.statistics.adding import column_of, parts_of
from lstd.statistics.blocks import Blocks, no_blocks
from lstd.statistics.counts import marks_until
from lstd.statistics.intervals import Influence, check_blocks, check_ends
from lstd.statistics.merging import LSTDStatistics
from lstd.statistics.ridge import NOTHING, warn_of_movement
from lstd.statistics.solve import Solution, check_range
from lstd.statistics.system import NO_LEVEL, ONLY_CUTS_OF_LEVEL, System
from lstd.statistics.threads import blas_threads, in_threads
from lstd.types import Array

Part = tuple[int, int]  # rows from the first up to the second
NO_ROWS: Part = (0, 0)
_N_BLOCKS = 20  # with "auto": more would take a solve each, and narrow the intervals by 3 %
BATCH = 2**12  # rows
_PARTS, LEAST_ROWS = 4, 2**16  # of the rows for threads, and rows of each
_TOL_OF_MOVEMENT = 1e-2
_TOL_TO_CHECK = 1e-5  # above it, the solver's own residual is exact enough
_ROUNDING = 1e-12  # of a sum of squares from which a part is subtracted
_ATTEMPTS, _RESTART = 4, 20  # of BiCGSTAB and GMRES in turn, each from the weights so far; vectors of GMRES


class Found(NamedTuple):
    """Weights, (n + 1,), that of the column of ones last, with the products that they took and their residual."""

    weights: Array
    n_products: int
    residual: float


class MatrixFreeSystem:
    """The system (A + αI) θ = b of sparse rows, without the column of ones, as products; n features, m rewards.

    All vectors are of n + 1 numbers, the last for the column of ones; unless it has `ones`, its weight stays zero.
    Several `threads` share a product; the result does not depend on their number.
    """

    threads = 1
    common = 0.0  # sum of each row beside a column of ones, which ridge terms alone tell apart; zero if there is none

    def __init__(self, rows: Rows, settings: Settings, ridge: Array, *, ones: bool) -> None:
        self.rows, self.n, self._ones = rows, rows.n_features, ones
        self._X, given, cut = parts_of(rows.X), rows.X_next is not None, rows.last & ~rows.terminated
        self._next = parts_of(rows.X_next) if given else (self._X[0][:0], *self._X[1:])
        self._marks = FULL * rows.full.view(np.uint8)
        self._marks |= LAST * rows.last.view(np.uint8)
        self._marks |= CUT * (cut if given else np.append(cut[1:], False)).view(np.uint8)
        self._rewards = [np.ascontiguousarray(column) for column in rows.y.T]
        factors = rows.importance_ratio, rows.trace_coefficient, rows.weight
        self._columns = np.ascontiguousarray(rows.discount), *(column_of(factor) for factor in factors)
        self._parts = rows.whole_episodes(max(-(-len(rows) // _PARTS), 2 * self.n, LEAST_ROWS))
        self._squares = self.squares()
        check_range(self._squares)
        self.unseen = self._squares[:-1] == 0.0
        self.choose(settings, ridge)

    def choose(self, settings: Settings, ridge: Array) -> None:
        """Set the trace decay, and the ridge coefficients, (n,)."""
        self._factors = settings.lmbda, boundary_share(settings.variant, settings.lmbda)
        self.ridge = np.append(ridge, 0.0)

    def residual(
        self, weights: Array, reward: int | None = None, leave: Part = NO_ROWS, within: Part | None = None
    ) -> Array:  # fmt: skip
        """Return b − A v, or −A v without a reward, of the transitions in all or some rows but those to leave out."""
        factors = np.array([float(reward is not None), *self._factors])

        def over(part: Part) -> Array:
            goal = np.zeros(self.n + 1)
            add_td_errors(
                *self._X, *self._next, self._rewards[reward or 0], *self._columns, self._marks, factors, weights,
                (*part, *leave), np.empty((2, BATCH + 1)), goal,
            )  # fmt: skip
            return goal

        parts = self._parts if within is None else [within]
        return reduce(operator.iadd, in_threads(over, parts, min(self.threads, len(parts))))

    def right(self, reward: int) -> Array:
        """Return b of a reward."""
        return self.residual(np.zeros(self.n + 1), reward)

    def squares(self, part: Part | None = None) -> Array:
        """Return the diagonal of Σ w_t ρ_t φ_t φ_tᵀ over all or some rows."""
        part = part or (0, len(self.rows))
        goal, rows = np.zeros(self.n + 1), slice(*part)
        own = self.rows.importance_ratio[rows] * self.rows.weight[rows]
        own *= self.rows.full[rows]
        add_squares(*self._X, own, part[0], goal)
        return goal

    def remaining(self, leave: Part = NO_ROWS) -> Array:
        """Return the diagonal of Σ w_t ρ_t φ_t φ_tᵀ without some rows; zero where rounding is all that remains."""
        rest = self._squares - self.squares(leave) if leave != NO_ROWS else self._squares.copy()
        rest[rest < _ROUNDING * self._squares] = 0.0
        return rest

    def scale(self, leave: Part = NO_ROWS) -> Array:
        """Return one over the square root of the diagonal of the system; zero where an equation is left out."""
        diagonal = self.remaining(leave) + self.ridge
        diagonal[-1] *= self._ones
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.where(diagonal > 0.0, 1.0 / np.sqrt(diagonal), 0.0))

    def solve(
        self, right: Array, scale: Array, solver: Solver, leave: Part = NO_ROWS, start: Array | None = None
    ) -> Found:  # fmt: skip
        """Solve for a right-hand side, which is overwritten, from the weights `start` or zero.

        Equations that `scale` leaves out have weights of zero.
        """
        from scipy.sparse.linalg import LinearOperator, bicgstab, gmres  # takes 0.1 s to import

        count, fixed, tol = 0, scale == 0.0, solver.tol

        def times(x: Array) -> Array:
            nonlocal count
            count += 1
            out = scale * x
            less = self.residual(out, leave=leave)
            out *= self.ridge
            out -= less
            out *= scale
            out[fixed] = x[fixed]
            return out

        target = np.multiply(scale, right, out=right)
        size, rest = float(np.linalg.norm(target)), target
        x: Any = 0.0  # an array takes 8 bytes a feature
        if start is not None:
            x = np.divide(start, scale, out=np.zeros_like(target), where=scale > 0.0)
            rest = target - times(x)
        left, matrix = float(np.linalg.norm(rest)), LinearOperator((self.n + 1,) * 2, times, dtype=np.float64)
        for attempt in range(_ATTEMPTS):
            most = solver.max_iter - count - 1  # one is for the residual
            if not left > tol * size or most < 2:
                break
            cycle = min(_RESTART, most - 1) + 1
            method, options = (gmres, {"restart": cycle - 1}) if attempt % 2 else (bicgstab, {})
            steps = most // (cycle if attempt % 2 else 2)
            step, failed = method(matrix, rest, rtol=0.5 * tol * size / left, atol=0.0, maxiter=steps, **options)
            if not failed and tol > _TOL_TO_CHECK:
                return Found(scale * self._levelled(x + step, target, times, scale, leave), count, tol)
            tried = target - times(x + step)
            if (norm := float(np.linalg.norm(tried))) < left:
                x, rest, left = x + step, tried, norm
        x = self._levelled(x, target, times, scale, leave) if np.any(x) else x
        return Found(scale * x, count, left / size if size else 0.0)

    def _levelled(
        self, x: Array, target: Array, times: Callable[[Array], Array], scale: Array, leave: Part
    ) -> Array:  # fmt: skip
        """Solve for the change that moves no row's value: it is small in the residual even where it is large."""
        if not self.common:
            return x
        some = (self.remaining(leave) > 0.0) & (scale > 0.0)
        change = np.divide(1.0, scale, out=np.zeros_like(target), where=some)
        change[-1] *= -self.common
        size = change @ times(change)
        return x + change * (change @ (target - times(x)) / size) if size > 0.0 else x


def fit_without_matrix(
    rows: Rows, settings: Settings, solver: Solver, options: Mapping[str, Any], **fields: Any
) -> Model:  # fmt: skip
    """Return the solved model of checked rows without the column of ones; not solved if none is a full transition."""
    limits, ridge = Limits.of_rows(rows), settings.ridge(rows.n_features)
    rows = _sparse(rows)
    ones_alone = _ones_in_blocks(rows, settings, options["n_blocks"])
    blocks = _marked(ones_alone, rows)
    matrix_free = MatrixFree(rows.names, np.zeros(rows.n_features, np.bool_), 0, 0.0)
    warned = warned_of(rows, settings) | ({"unused"} if not len(unused_rows(rows, len(rows) - 1)) else set())
    model = Model(blocks, settings, options=options, limits=limits, matrix_free=matrix_free, warned=warned, **fields)
    if not blocks.total.total_weight > 0.0:
        return model
    of_ones = System.of(ones_alone.total, settings.variant, np.empty(0), intercept=True)
    ones = False
    common = 0.0
    if settings.fit_intercept:
        of_ones.solve(report=True)
        ones = not of_ones.endless[-1]
    if ones or of_ones.is_without_end:
        common = _common_sum(rows)
    has_penalty = bool(ridge.any())
    is_level = bool(common) and not ones  # whether a sum of the features stands for the ones
    if is_level and not settings.fit_intercept:
        _warn_of_level(of_ones, has_penalty=has_penalty)
    repeated = 0.0 if has_penalty else common
    system = MatrixFreeSystem(rows, settings, ridge, ones=ones and not repeated)
    del ridge
    system.threads = blas_threads()
    found = [system.solve(system.right(j), system.scale(), solver) for j in range(rows.y.shape[1])]
    thetas, counts, residuals = zip(*found, strict=True)
    check_range(*thetas)
    if max(residuals) > solver.tol:
        _warn_of_convergence(_not_converged(sum(counts), max(residuals), solver.tol, settings))
    elif system.ridge.any():
        _warn_of_ridge(system, thetas, settings, solver, chosen=model.selection is not None)
    matrix_free = replace(matrix_free, unseen=system.unseen, n_iter=sum(counts), residual=max(residuals))
    model = model.changed(matrix_free=matrix_free)

    def shaped(weights: Array) -> Array:
        """Return weights (…, n + 1) of which no prediction has changed in the shape of those of a direct solution."""
        if ones and repeated and not system.unseen.any():  # as a vanishing ridge term
            mean = weights[..., :-1].mean(axis=-1, keepdims=True)
            weights[..., :-1] -= mean
            weights[..., -1:] = repeated * mean
        return weights if settings.fit_intercept else weights[..., :-1]

    solution = Solution(np.ascontiguousarray(shaped(np.array(thetas)).T), np.inf)
    try:
        check_blocks(blocks)
        if ones or (is_level and not has_penalty):
            check_ends(ones_alone, of_ones)
    except InvalidInputError as error:
        return model.changed(known=Solved(solution, None, str(error)))
    system.common = 0.0 if repeated or not ones else common
    q, shift = map(shaped, _influence(system, blocks, thetas, solver.loose))
    influence = Influence(q, shift, blocks.shares, settings.fit_intercept, blocks.marks)
    return model.changed(known=Solved(solution, influence, ""))


def _warn_of_ridge(
    system: MatrixFreeSystem, thetas: Sequence[Array], settings: Settings, solver: Solver, *, chosen: bool
) -> None:
    """Give a RidgeWarning as :func:`lstd.statistics.ridge.warn_of_ridge` does, after one solve for a reward."""
    intercept, loose, moves = bool(system.scale()[-1]), replace(solver, tol=_TOL_OF_MOVEMENT), []
    about_mean, unit = intercept and not chosen, np.append(np.zeros(system.n), intercept)
    system.ridge *= 0.5
    for j, theta in enumerate(thetas):
        change = system.solve(system.ridge * theta, system.scale(), loose).weights
        b, column = system.right(j), -system.residual(unit)  # of the ones in A
        total = b[-1] ** 2 / abs(column[-1]) if intercept else 0.0
        b -= column * (b[-1] / column[-1]) if intercept else 0.0
        size = abs(b[:-1] @ theta[:-1])
        some = size > NOTHING * (size + total)
        moves.append(abs(b[:-1] @ change[:-1]) / (size if about_mean else size + total) if some else 0.0)
    system.ridge *= 2.0
    warn_of_movement(
        np.array(moves),
        system.ridge,
        settings.gamma,
        grows=False,
        intercept=settings.fit_intercept,
        about_mean=about_mean,
    )


def solve_grid(
    rows: Rows, settings: Settings, lmbdas: Sequence[float], ridges: Sequence[Array], solver: Solver, leave: Part
) -> tuple[Array, Array]:  # fmt: skip
    """Solve for each λ and each of some ridge coefficients (n,), in ascending order, each from the weights of the last.

    Returns weights, (λ, α, n, m), and the largest number of products of a solve, (λ, α), infinite without convergence.
    """
    system, m = MatrixFreeSystem(_sparse(rows), settings, ridges[0], ones=False), rows.y.shape[1]
    weights, counts = np.empty((len(lmbdas), len(ridges), system.n, m)), np.zeros((len(lmbdas), len(ridges)))
    starts: list[Array | None] = [None] * m
    for i, k in product(range(len(lmbdas)), reversed(range(len(ridges)))):
        system.choose(replace(settings, lmbda=lmbdas[i]), ridges[k])
        scale = system.scale(leave)
        for j in range(m):
            right = system.residual(np.zeros(system.n + 1), j, leave)
            found = system.solve(right, scale, solver, leave, starts[j])
            starts[j], weights[i, k, :, j] = found.weights, found.weights[:-1]
            counts[i, k] = max(counts[i, k], found.n_products if found.residual <= solver.tol else np.inf)
    check_range(weights)
    return weights, counts


def _sparse(rows: Rows) -> Rows:
    """Return rows with compressed sparse features, which are finite."""
    X, X_next = (None if phi is None else sparse.csr_array(phi, dtype=np.float64) for phi in (rows.X, rows.X_next))
    check_finite("X", X)
    if X_next is not None:
        check_finite("X_next", X_next)
    return rows.changed(X=X, X_next=X_next)


def _ones_in_blocks(rows: Rows, settings: Settings, n_blocks: int | str) -> Blocks:
    """Return sums over the column of ones alone in blocks of rows."""
    nothing = np.empty((len(rows), 0))
    ones = rows.changed(
        X=nothing,
        X_next=None if rows.X_next is None else nothing,
        names=None,
        appended=1,
        intercept=True,
    )
    limit = _N_BLOCKS if isinstance(n_blocks, str) and n_blocks == "auto" else n_blocks
    return no_blocks(ones, settings.lmbda, limit).extended(ones)


def _marked(blocks: Blocks, rows: Rows) -> Blocks:
    """Return blocks of the ones, whose counts are used alone, with the marks of the features of rows."""

    def marked(one: LSTDStatistics) -> LSTDStatistics:
        counts = one.counts.changed(mark=int(marks_until(rows, [one.n_rows])[0, 0]), unused=one.n_unused_rewards)
        return one.changed(first=None, last=None, cuts=None, counts=counts)

    return blocks.changed(total=marked(blocks.total), prefixes=tuple(map(marked, blocks.prefixes)))


def _warn_of_level(of_ones: System, *, has_penalty: bool) -> None:
    """Warn if no end decides the level of predictions from features that add up to a constant."""
    if of_ones.only_cuts:
        warn(ONLY_CUTS_OF_LEVEL, IllConditionedWarning)
    elif not has_penalty:
        warn(NO_LEVEL, IllConditionedWarning)


def _common_sum(rows: Rows) -> float:
    """Return the sum of each row if all are the same but for rounding, so that ones repeat the features; else zero."""
    ones, after = np.ones(rows.n_features), []
    if rows.X_next is not None:
        after = [(rows.X_next @ ones)[~rows.terminated]]
    sums = np.concatenate([rows.X @ ones, *after])
    is_common = np.abs(sums - sums[0]) <= _ROUNDING * abs(sums[0])
    if not is_common.all():
        return 0.0
    return float(sums[0])


def _influence(
    system: MatrixFreeSystem, blocks: Blocks, thetas: Sequence[Array], solver: Solver
) -> tuple[Array, Array]:
    """Return q_e of each block, (E, m, n + 1), and α S⁻¹ θ, (m, n + 1); they are solved for loosely."""
    shares, m, whole = blocks.shares, len(thetas), system.scale()
    vectors, shift = np.zeros((len(shares), m, system.n + 1)), np.zeros((m, system.n + 1))
    rests = [system.residual(theta, j) for j, theta in enumerate(thetas)]
    for j, theta in enumerate(thetas if system.ridge.any() else ()):
        shift[j] = system.solve(system.ridge * theta, whole, solver).weights
    threads, system.threads = system.threads, 1

    def without(block: tuple[int, Part]) -> float:
        """Solve for q_e; return the largest residual."""
        (e, leave), residuals = block, []
        scale, before = system.scale(leave), 0 if not blocks.by_episode else leave[0]
        alone = (system.remaining(leave) == 0.0) & (whole > 0.0)  # features that no other block has lose their weights
        for j, theta in enumerate(thetas):
            right = system.residual(theta, j, (before, leave[0]), (before, leave[1])) - shares[e] * rests[j]
            if alone.any():
                vectors[e, j] = np.where(alone, (1.0 - shares[e]) * theta, 0.0)
                right += system.residual(vectors[e, j], leave=leave) - system.ridge * vectors[e, j]
            found = system.solve(right, scale, solver, leave)
            vectors[e, j] = np.sqrt(1.0 - shares[e]) * (vectors[e, j] + found.weights)
            residuals.append(found.residual)
        return max(residuals)

    worst = max(in_threads(without, enumerate(_transitions_of(blocks, system.rows)), threads))
    check_range(vectors, shift)
    if worst > solver.tol:
        _warn_of_convergence(
            f"The weights without some block of the data have a relative residual of {worst:.1e}, so standard errors "
            "are not exact. Increase `max_iter` or `alpha`."
        )
    return vectors, shift


def _transitions_of(blocks: Blocks, rows: Rows) -> Iterator[Part]:
    """Yield the transitions of each block; within an episode, one belongs to the block of the row that it leads to."""
    early = int(not blocks.by_episode and rows.X_next is None)
    for first, end in pairwise([0, *(prefix.n_rows for prefix in blocks.prefixes), len(rows)]):
        yield max(0, first - early), end - early * (end < len(rows))


def _not_converged(n_products: int, residual: float, tol: float, settings: Settings) -> str:
    ends = "drop rows from which no end is reached, " if settings.gamma == 1.0 else "use a smaller `gamma`, "
    return (
        f"The iterative solver stopped after {n_products} products with a relative residual of {residual:.1e}, above "
        f"`tol`, {tol:g}: weights may be far off. Increase `max_iter` or `alpha`, {ends}a larger `lmbda`, or "
        'solver="direct" if the matrix fits in memory.'
    )


def _warn_of_convergence(message: str) -> None:
    from sklearn.exceptions import ConvergenceWarning  # the shell imports this module, and waits for no scikit-learn

    warn(message, ConvergenceWarning)
