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

import copy
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
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
from lstd.statistics.system import NO_LEVEL, ONLY_CUTS_OF_LEVEL, System, with_ones_free
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
        self.rows = rows
        self.n = rows.n_features
        self._ones = ones
        self._X = parts_of(rows.X)
        cut = rows.cut
        if rows.X_next is None:
            self._next = (self._X[0][:0], *self._X[1:])
            cut = np.append(cut[1:], False)  # at the row before a horizon row
        else:
            self._next = parts_of(rows.X_next)
        self._marks = FULL * rows.full.view(np.uint8)
        self._marks |= LAST * rows.last.view(np.uint8)
        self._marks |= CUT * cut.view(np.uint8)
        self._rewards = [np.ascontiguousarray(column) for column in rows.y.T]
        factors = (rows.importance_ratio, rows.trace_coefficient, rows.weight)
        self._columns = (np.ascontiguousarray(rows.discount), *map(column_of, factors))
        self._parts = rows.whole_episodes(max(-(-len(rows) // _PARTS), 2 * self.n, LEAST_ROWS))
        self._squares = self.squares()
        check_range(self._squares)
        self.unseen = self._squares[:-1] == 0.0
        self.choose(settings, ridge)

    def choose(self, settings: Settings, ridge: Array) -> None:
        """Set the trace decay, and the ridge coefficients, (n,)."""
        self._factors = (settings.lmbda, boundary_share(settings.variant, settings.lmbda))
        self.ridge = with_ones_free(ridge)

    def with_half_the_ridge(self) -> MatrixFreeSystem:
        """Return the system with half of each ridge coefficient."""
        other = copy.copy(self)
        other.ridge = 0.5 * self.ridge
        return other

    def residual(
        self, weights: Array, reward: int | None = None, leave: Part = NO_ROWS, within: Part | None = None
    ) -> Array:
        """Return b − A v, or −A v without a reward, of the transitions in all or some rows but those to leave out."""
        factors = np.array([float(reward is not None), *self._factors])

        def over(part: Part) -> Array:
            goal = np.zeros(self.n + 1)
            add_td_errors(
                *self._X,
                *self._next,
                self._rewards[reward or 0],
                *self._columns,
                self._marks,
                factors,
                weights,
                (*part, *leave),
                np.empty((2, BATCH + 1)),
                goal,
            )
            return goal

        parts = self._parts if within is None else [within]
        return reduce(operator.iadd, in_threads(over, parts, min(self.threads, len(parts))))

    def right(self, reward: int) -> Array:
        """Return b of a reward."""
        return self.residual(np.zeros(self.n + 1), reward)

    def squares(self, part: Part | None = None) -> Array:
        """Return the diagonal of Σ w_t ρ_t φ_t φ_tᵀ over all or some rows."""
        first, end = part or (0, len(self.rows))
        rows = slice(first, end)
        own = self.rows.importance_ratio[rows] * self.rows.weight[rows]
        own *= self.rows.full[rows]
        goal = np.zeros(self.n + 1)
        add_squares(*self._X, own, first, goal)
        return goal

    def remaining(self, leave: Part = NO_ROWS) -> Array:
        """Return the diagonal of Σ w_t ρ_t φ_t φ_tᵀ without some rows; zero where rounding is all that remains."""
        rest = self._squares.copy()
        if leave != NO_ROWS:
            rest -= self.squares(leave)
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
    ) -> Found:
        """Solve for a right-hand side, which is overwritten, from the weights `start` or zero.

        Equations that `scale` leaves out have weights of zero.
        """
        n_products = 0
        fixed = scale == 0.0

        def times(x: Array) -> Array:
            """Return S x of the scaled system."""
            nonlocal n_products
            n_products += 1
            out = scale * x
            less = self.residual(out, leave=leave)
            out *= self.ridge
            out -= less
            out *= scale
            out[fixed] = x[fixed]
            return out

        def weights_of(x: Array | float) -> Array:
            """Return the weights of a solution of the scaled system."""
            if np.any(x):
                x = self._levelled(np.asarray(x), target, times, scale, leave)
            return scale * x

        target = np.multiply(scale, right, out=right)
        size = float(np.linalg.norm(target))
        x: Array | float = 0.0  # an array takes 8 bytes a feature
        rest = target
        if start is not None:
            x = np.divide(start, scale, out=np.zeros_like(target), where=scale > 0.0)
            rest = target - times(x)
        left = float(np.linalg.norm(rest))
        for attempt in range(_ATTEMPTS):
            most = solver.max_iter - n_products - 1  # one is for the residual
            if not left > solver.tol * size or most < 2:
                break
            step, failed = self._step(times, rest, 0.5 * solver.tol * size / left, most, restarts=attempt % 2 == 1)
            if not failed and solver.tol > _TOL_TO_CHECK:
                return Found(weights_of(x + step), n_products, solver.tol)
            tried = target - times(x + step)
            norm = float(np.linalg.norm(tried))
            if norm < left:
                x = x + step
                rest = tried
                left = norm
        weights = weights_of(x)
        if size:
            left /= size
        return Found(weights, n_products, left)

    def _step(
        self, times: Callable[[Array], Array], rest: Array, tol: float, most: int, *, restarts: bool
    ) -> tuple[Array, int]:
        """Solve for what is left by BiCGSTAB, or by GMRES, which restarts, with at most so many products.

        Returns the step and whether the relative residual is above `tol`.
        """
        from scipy.sparse.linalg import LinearOperator, bicgstab, gmres  # takes 0.1 s to import

        matrix = LinearOperator((self.n + 1,) * 2, times, dtype=np.float64)
        if restarts:
            cycle = min(_RESTART, most - 1)
            step, failed = gmres(matrix, rest, restart=cycle, rtol=tol, atol=0.0, maxiter=most // (cycle + 1))
        else:
            step, failed = bicgstab(matrix, rest, rtol=tol, atol=0.0, maxiter=most // 2)
        return step, failed

    def _levelled(self, x: Array, target: Array, times: Callable[[Array], Array], scale: Array, leave: Part) -> Array:
        """Solve for the change that moves no row's value: it is small in the residual even where it is large."""
        if not self.common:
            return x
        some = (self.remaining(leave) > 0.0) & (scale > 0.0)
        change = np.divide(1.0, scale, out=np.zeros_like(target), where=some)
        change[-1] *= -self.common
        size = change @ times(change)
        if not size > 0.0:
            return x
        return np.asarray(x + change * (change @ (target - times(x)) / size))


# ------------------------------------------------------------ fits: counts, weights, influence


class _Level(NamedTuple):
    """What decides the level of predictions: the column of ones, or features that add up to a constant."""

    has_ones: bool  # whether the column of ones has a weight
    common: float  # sum of each row's features, if all are the same; else zero
    has_penalty: bool  # whether some feature has a ridge coefficient

    @classmethod
    def of(cls, rows: Rows, of_ones: System, settings: Settings, *, has_penalty: bool) -> _Level:
        """Find what decides the level, and warn if no end does; `of_ones` is the system of the ones alone."""
        has_ones = False
        if settings.fit_intercept:
            of_ones.solve(report=True)
            has_ones = not of_ones.endless[-1]
        common = 0.0
        if has_ones or of_ones.is_without_end:
            common = _common_sum(rows)
        if common and not settings.fit_intercept:
            _warn_of_level(of_ones, has_penalty=has_penalty)
        return cls(has_ones, common, has_penalty)

    @property
    def needs_ends(self) -> bool:
        """Whether ends alone decide the level, as no ridge term does."""
        return self.has_ones or (bool(self.common) and not self.has_penalty)

    @property
    def repeats_ones(self) -> bool:
        """Whether the other features repeat the ones, and no ridge term tells them apart."""
        return self.has_ones and bool(self.common) and not self.has_penalty

    def shaped(self, weights: Array, *, intercept: bool, all_seen: bool) -> Array:
        """Return weights (…, n + 1) in the shape of those of a direct solution; no prediction changes."""
        if self.repeats_ones and all_seen:  # as a vanishing ridge term
            mean = weights[..., :-1].mean(axis=-1, keepdims=True)
            weights[..., :-1] -= mean
            weights[..., -1:] = self.common * mean
        if intercept:
            return weights
        return weights[..., :-1]


def fit_without_matrix(
    rows: Rows, settings: Settings, solver: Solver, options: Mapping[str, Any], **fields: Any
) -> Model:
    """Return the solved model of checked rows without the column of ones; not solved if none is a full transition."""
    limits = Limits.of_rows(rows)
    ridge = settings.ridge(rows.n_features)
    rows = _sparse(rows)
    ones_alone = _ones_in_blocks(rows, settings, options["n_blocks"])
    model = _counted(rows, ones_alone, settings, options, limits=limits, **fields)
    if not model.statistics.total_weight > 0.0:
        return model

    of_ones = System.of(ones_alone.total, settings.variant, np.empty(0), intercept=True)
    level = _Level.of(rows, of_ones, settings, has_penalty=bool(ridge.any()))
    system = MatrixFreeSystem(rows, settings, ridge, ones=level.has_ones and not level.repeats_ones)
    del ridge  # 8 bytes a feature
    system.threads = blas_threads()
    solved = _solve(system, settings, solver, chosen=model.selection is not None)
    shape = partial(level.shaped, intercept=settings.fit_intercept, all_seen=not system.unseen.any())
    solution = Solution(np.ascontiguousarray(shape(np.array(solved.weights)).T), np.inf)
    model = model.changed(matrix_free=MatrixFree(rows.names, system.unseen, solved.n_products, solved.residual))
    try:
        check_blocks(model.blocks)
        if level.needs_ends:
            check_ends(ones_alone, of_ones)
    except InvalidInputError as error:
        return model.changed(known=Solved(solution, None, str(error)))
    if level.has_ones and level.has_penalty:
        system.common = level.common
    vectors, shift = map(shape, _influence(system, model.blocks, solved.weights, solver.loose))
    influence = Influence(vectors, shift, model.blocks.shares, settings.fit_intercept, model.blocks.marks)
    return model.changed(known=Solved(solution, influence, ""))


def _counted(rows: Rows, ones_alone: Blocks, settings: Settings, options: Mapping[str, Any], **fields: Any) -> Model:
    """Return the model of rows before it is solved: with counts and blocks of the rows, and no sums of features."""
    warned = warned_of(rows, settings)
    if not len(unused_rows(rows, len(rows) - 1)):
        warned |= {"unused"}
    unseen = np.zeros(rows.n_features, np.bool_)
    return Model(
        _marked(ones_alone, rows),
        settings,
        options=options,
        matrix_free=MatrixFree(rows.names, unseen, 0, 0.0),
        warned=warned,
        **fields,
    )


class _AllFound(NamedTuple):
    """Weights of all rewards, (n + 1,) each, with the products that they took together and the largest residual."""

    weights: Sequence[Array]
    n_products: int
    residual: float


def _solve(system: MatrixFreeSystem, settings: Settings, solver: Solver, *, chosen: bool) -> _AllFound:
    """Solve for the weights of each reward, and warn if they are not exact, or the ridge term decides them."""
    of_rewards = [system.solve(system.right(j), system.scale(), solver) for j in range(len(system.rows.y.T))]
    weights = [one.weights for one in of_rewards]
    n_products = sum(one.n_products for one in of_rewards)
    residual = max(one.residual for one in of_rewards)
    check_range(*weights)
    if residual > solver.tol:
        _warn_of_convergence(_not_converged(n_products, residual, solver.tol, settings))
    elif system.ridge.any():
        _warn_of_ridge(system, weights, settings, solver, chosen=chosen)
    return _AllFound(weights, n_products, residual)


def _warn_of_ridge(
    system: MatrixFreeSystem, thetas: Sequence[Array], settings: Settings, solver: Solver, *, chosen: bool
) -> None:
    """Give a RidgeWarning as :func:`lstd.statistics.ridge.warn_of_ridge` does, after one solve for a reward."""
    intercept = bool(system.scale()[-1])
    about_mean = intercept and not chosen
    loose = replace(solver, tol=_TOL_OF_MOVEMENT)
    halved = system.with_half_the_ridge()
    unit = np.append(np.zeros(system.n), intercept)
    column = -system.residual(unit)  # of the ones in A
    moves = []
    for j, theta in enumerate(thetas):
        change = halved.solve(halved.ridge * theta, halved.scale(), loose).weights
        b = system.right(j)
        total = 0.0
        if intercept:  # about the mean
            total = float(b[-1] ** 2 / abs(column[-1]))
            b -= column * (b[-1] / column[-1])
        size = abs(b[:-1] @ theta[:-1])
        move = 0.0
        if size > NOTHING * (size + total):
            beside = size if about_mean else size + total
            move = float(abs(b[:-1] @ change[:-1]) / beside)
        moves.append(move)
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
) -> tuple[Array, Array]:
    """Solve for each λ and each of some ridge coefficients (n,), in ascending order, each from the weights of the last.

    Returns weights, (λ, α, n, m), and the largest number of products of a solve, (λ, α), infinite without convergence.
    """
    system = MatrixFreeSystem(_sparse(rows), settings, ridges[0], ones=False)
    m = rows.y.shape[1]
    weights = np.empty((len(lmbdas), len(ridges), system.n, m))
    counts = np.zeros((len(lmbdas), len(ridges)))
    starts: list[Array | None] = [None] * m
    for i, k in product(range(len(lmbdas)), reversed(range(len(ridges)))):
        system.choose(replace(settings, lmbda=lmbdas[i]), ridges[k])
        scale = system.scale(leave)
        for j in range(m):
            right = system.residual(np.zeros(system.n + 1), j, leave)
            solved = system.solve(right, scale, solver, leave, starts[j])
            starts[j] = solved.weights
            weights[i, k, :, j] = solved.weights[:-1]
            count = solved.n_products if solved.residual <= solver.tol else np.inf
            counts[i, k] = max(counts[i, k], count)
    check_range(weights)
    return weights, counts


def _sparse(rows: Rows) -> Rows:
    """Return rows with compressed sparse features, which are finite."""
    X = sparse.csr_array(rows.X, dtype=np.float64)
    check_finite("X", X)
    X_next = None
    if rows.X_next is not None:
        X_next = sparse.csr_array(rows.X_next, dtype=np.float64)
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
    limit = n_blocks
    if isinstance(n_blocks, str) and n_blocks == "auto":
        limit = _N_BLOCKS
    return no_blocks(ones, settings.lmbda, limit).extended(ones)


def _marked(blocks: Blocks, rows: Rows) -> Blocks:
    """Return blocks of the ones, whose counts are used alone, with the marks of the features of rows."""

    def marked(one: LSTDStatistics) -> LSTDStatistics:
        mark = int(marks_until(rows, [one.n_rows])[0, 0])
        counts = one.counts.changed(mark=mark, unused=one.n_unused_rewards)
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
    ones = np.ones(rows.n_features)
    sums = rows.X @ ones
    if rows.X_next is not None:
        after = rows.X_next @ ones
        sums = np.concatenate([sums, after[~rows.terminated]])
    is_common = np.abs(sums - sums[0]) <= _ROUNDING * abs(sums[0])
    if not is_common.all():
        return 0.0
    return float(sums[0])


def _influence(
    system: MatrixFreeSystem, blocks: Blocks, thetas: Sequence[Array], solver: Solver
) -> tuple[Array, Array]:
    """Return q_e of each block, (E, m, n + 1), and α S⁻¹ θ, (m, n + 1); they are solved for loosely."""
    shares = blocks.shares
    m = len(thetas)
    whole = system.scale()
    vectors = np.zeros((len(shares), m, system.n + 1))
    shift = np.zeros((m, system.n + 1))
    rests = [system.residual(theta, j) for j, theta in enumerate(thetas)]
    if system.ridge.any():
        for j, theta in enumerate(thetas):
            shift[j] = system.solve(system.ridge * theta, whole, solver).weights
    threads = system.threads
    system.threads = 1  # the blocks share the threads

    def without(block: tuple[int, Part]) -> float:
        """Solve for q_e; return the largest residual."""
        e, leave = block
        first, end = leave
        before = first if blocks.by_episode else 0
        scale = system.scale(leave)
        alone = (system.remaining(leave) == 0.0) & (whole > 0.0)  # features that no other block has lose their weights
        residuals = []
        for j, theta in enumerate(thetas):
            own = system.residual(theta, j, (before, first), (before, end))
            right = own - shares[e] * rests[j]
            if alone.any():
                vectors[e, j] = np.where(alone, (1.0 - shares[e]) * theta, 0.0)
                right += system.residual(vectors[e, j], leave=leave) - system.ridge * vectors[e, j]
            solved = system.solve(right, scale, solver, leave)
            vectors[e, j] = np.sqrt(1.0 - shares[e]) * (vectors[e, j] + solved.weights)
            residuals.append(solved.residual)
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
