"""How much of the predictions the ridge term decides, and the warnings about it.

Let θ(α) = (A + αD)⁻¹ b, D the penalties of the weights. For symmetric A, bᵀθ is the mean square of the predictions plus
that of the ridge term. The movement

    |bᵀ(θ(α/2) − θ(α))| / |bᵀθ(α)|

is (α/2)/(g + α/2) in a direction in which A is g: 0 where the data decide, 1 where the ridge term does. An intercept is
eliminated first, so that the movement is that about the mean.

The same α penalises a feature of small numbers more than one of large numbers. Whether that matters, the predictions
say: those with ridge coefficients α s², s² the squared spreads of the features, beside those with α.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from lstd.data.doubts import FEWEST
from lstd.data.feature_arrays import column_spread
from lstd.data.rows import Rows
from lstd.errors import RidgeWarning, warn
from lstd.statistics.system import System
from lstd.types import Array

MOST = 0.5  # movement from which there is a warning; at most 0.3 for chosen settings on small data
NOTHING = 1e-12  # share of bᵀθ that is rounding
_PLAIN_CONDITION, _PLAIN_SCALES = 1e6, 2.0**13  # below which a system is solved without equilibration
_SMALL_FACTOR = 2.0**-20  # of α, or of A if it is less, at which weights without a bound still grow
_SMALLEST_FACTOR = 2.0**-60
_ALIKE = 10.0  # ratio of penalties, in units of squared spreads, up to which scales do not differ
_MOVED = 0.02  # mean square by which predictions would move, as a share of that of the residuals, for a warning
# Of the variance of the predictions: they are a third of those in units, so halving `alpha` moves them by half.
_MOVES_TOO = 4.0
_HARDLY = 1e-4  # share of the variance of the predictions: residuals of noise are larger than 50 times that
_ENTRIES_COMPARED = 2**13  # features whose scales are looked at, but at least 64 rows of them
_ROWS_COMPARED = 64


def ridge_movement(
    system: System, weights: Array, factor: float = 0.5, *, about_mean: bool = True, condition: float = np.inf
) -> Array:
    """Compute how far θ moves as the ridge term falls by a factor, relative to its size, (m,); 0 where it cannot.

    Parameters
    ----------
    system : System
    weights : ndarray of shape (n, m)
        θ(α), the solution of the system.
    factor : float, default 0.5
    about_mean : bool, default True
        Whether the size leaves out the mean, which an intercept fits.
    condition : float, optional
        Condition number of the system, if known: where it is small, the second solution needs no equilibration.

    Examples
    --------
    >>> import numpy as np
    >>> from lstd.statistics.ridge import ridge_movement
    >>> from lstd.statistics.system import System
    >>> system = System.of_regression(np.diag([3.0, 0.0]), np.eye(2), 2.0)
    >>> ridge_movement(system, np.diag([0.2, 0.5]))  # (α/2)/(3 + α/2) and 1
    array([0.25, 1.  ])
    """
    if not system.ridge.any():
        return np.zeros(system.b.shape[1])
    ridge = factor * system.ridge
    moved = None
    if condition < _PLAIN_CONDITION:
        moved = _plain_weights(system, ridge)
    if moved is None:
        moved = system.with_ridge(ridge).solve().weights
    return _movement(system, weights, moved, about_mean=about_mean)


def _plain_weights(system: System, ridge: Array) -> Array | None:
    """Return the weights with other ridge coefficients if features are of alike scales; None if they are not."""
    diagonal = system.A.diagonal() + ridge
    if system.endless.any() or diagonal.min() * _PLAIN_SCALES < diagonal.max():
        return None
    return system.weights_with(ridge)


def _movement(system: System, weights: Array, moved: Array, *, about_mean: bool) -> Array:
    """Compute how far other weights are from those of a system, as :func:`ridge_movement` does."""
    b = system.b
    mean_square = np.zeros(b.shape[1])
    if system.intercept and len(b) > 1:
        ones = system.A[-1, -1]
        if system.endless[-1] or ones == 0.0:
            return mean_square
        mean_square = b[-1] ** 2 / abs(ones)
        b = b[:-1] - (system.A[:-1, [-1]] / ones) * b[-1]  # the equations without the intercept
        weights = weights[:-1]
        moved = moved[:-1]
    before = np.sum(b * weights, axis=0)
    after = np.sum(b * moved, axis=0)
    spread = np.abs(before)
    whole = spread + mean_square
    size = spread if about_mean else whole
    moves: Array = np.divide(np.abs(after - before), size, out=np.zeros_like(size), where=spread > NOTHING * whole)
    return moves


@np.errstate(all="ignore")
def grows_without_bound(system: System, weights: Array) -> bool:
    """Return whether the weights, (n, m), grow without bound as the ridge term of their system falls."""
    ridge = system.ridge
    penalised = ridge > 0.0
    if not penalised.any():
        return False
    typical = float(np.mean(np.abs(system.A.diagonal()[penalised]) / ridge[penalised]))
    factor = max(_SMALL_FACTOR * min(1.0, typical), _SMALLEST_FACTOR)
    smaller = system.with_ridge(factor * ridge).solve()
    if smaller.unbounded:
        return True
    movement = _movement(system, weights, smaller.weights, about_mean=True)
    return bool(np.nan_to_num(movement).max() > 2.0**-4 / factor)


@np.errstate(all="ignore")
def warn_of_ridge(system: System, weights: Array, gamma: float, *, chosen: bool, condition: float = np.inf) -> None:
    """Give a RidgeWarning if halving the ridge term moves predictions by more than half of their size.

    The size is about the mean, unless the ridge coefficient was chosen: useless features may then deserve a large one.
    `condition` is the condition number of the system, if known.
    """
    about_mean = system.intercept and not chosen
    moves = ridge_movement(system, weights, about_mean=about_mean, condition=condition)
    if np.nan_to_num(moves).max(initial=0.0) > MOST:
        grows = grows_without_bound(system, weights)
        warn_of_movement(moves, system.ridge, gamma, grows=grows, intercept=system.intercept, about_mean=about_mean)


def warn_of_movement(
    moves: Array, ridge: Array, gamma: float, *, grows: bool, intercept: bool, about_mean: bool
) -> None:
    """Give a RidgeWarning if predictions move too far; `grows` says that weights grow without bound."""
    movement = float(np.nan_to_num(moves).max(initial=0.0))
    if not movement > MOST:
        return
    if grows and gamma == 1.0:
        why = (
            "they grow without bound as `alpha` falls. At `gamma` 1 that happens in states from which no end is "
            "reached: their values are infinite. Drop these states, or use a `gamma` below 1"
        )
    elif grows:
        why = "they grow without bound as `alpha` falls, so the data do not determine them. Use fewer features"
    else:
        why = "the ridge term decides them, not the data. Use a smaller `alpha`"
        if not intercept:
            why += ", or `fit_intercept` if values are far from zero"
        if np.count_nonzero(ridge) > 1:
            why += "; it may be 0 for some features"
    what = "spread" if about_mean else "size"
    warn(f"Halving `alpha` moves the predictions by {100.0 * movement:.0f} % of their {what}: {why}.", RidgeWarning)


class Scales(NamedTuple):
    """Ridge coefficients of features whose scales differ."""

    ridge: Array  # (n,), without the column of ones
    spread: Array  # (n,) squared; 1 where a feature is constant, or not penalised
    relative: Array  # (n,) ridge coefficient in units of the squared spread; NaN there
    names: Sequence[str]

    @classmethod
    @np.errstate(all="ignore")
    def of(cls, rows: Rows, ridge: Array, *, intercept: bool) -> Scales | None:
        """Return the scales of some of the rows; None where all features are penalised alike, or hardly.

        Spreads are about zero without an `intercept`. `ridge` is (n,), without the column of ones.
        """
        n = len(ridge)
        if len(rows) < FEWEST or not ridge.any():
            return None
        n_compared = max(_ROWS_COMPARED, _ENTRIES_COMPARED // n)
        X = rows.X[:: max(1, len(rows) // n_compared)]
        if isinstance(X, np.ndarray) and _ranges_are_alike(X[:, :n], ridge, intercept):
            return None
        _, spread, square = column_spread(X, about_zero=not intercept)[:, :n]
        penalised = (square > 0.0) & (ridge > 0.0)
        penalties = ridge[penalised] / spread[penalised]
        if not _may_matter(penalties, ridge[penalised]):
            return None
        relative = np.where(penalised, ridge / spread, np.nan)
        return cls(ridge, np.where(penalised, spread, 1.0), relative, rows.names or [f"x{j}" for j in range(n)])

    @property
    def in_units(self) -> Array:
        """Ridge coefficients in units of the squared spreads, (n,)."""
        with np.errstate(over="ignore"):  # callers ask whether they are finite
            return self.ridge * self.spread

    @np.errstate(all="ignore")  # what overflows may move
    def may_move(self, diagonal: Array, condition_number: float) -> bool:
        """Return whether other units may move predictions at all; else nothing need be solved.

        In units in which A has a unit diagonal, weights move by at most κ max_j |α s_j² − α| / |A_jj| of their size,
        and predictions, which may be smaller than the weights, by κ times that.

        Parameters
        ----------
        diagonal : ndarray of shape (n,)
            Diagonal of A of the features.
        condition_number : float
            κ, that of the system in such units.
        """
        change = np.abs(self.in_units - self.ridge)
        size = np.abs(diagonal)
        bound = condition_number * condition_number * change
        return not bool(np.all(bound <= np.sqrt(_HARDLY) * size))

    @np.errstate(all="ignore")
    def moved_weights(self, system: System, weights: Array) -> Array:
        """Return how far the weights, (k, m), of a system would move, were the penalty in units; zero if it cannot be.

        The features repeat in the blocks of a system, which may have the column of ones behind them.
        """
        n_blocks = len(system.ridge) // len(self.ridge)
        ridge = system.ridge.copy()
        ridge[: n_blocks * len(self.ridge)] = np.tile(self.in_units, n_blocks)
        moved = system.weights_with(ridge)
        if moved is None:
            return np.zeros_like(weights)
        return moved - weights

    @np.errstate(all="ignore")
    def doubt(self, moved: Array, predictions: Array, residual: Callable[[], Array]) -> str:
        """Say that predictions depend on the units of the features; empty if they hardly do.

        Parameters
        ----------
        moved : ndarray of shape (T, m)
            How far predictions for rows of the fit would move, were the penalty in units.
        predictions : ndarray of shape (T, m)
            Those predictions.
        residual : callable
            Returns the mean squared residual of each reward, (m,). It is not called if predictions hardly move.
        """
        square = np.mean(moved**2, axis=0)
        if not np.isfinite(square).all() or not (square > _HARDLY * np.var(predictions, axis=0)).any():
            return ""
        share = square / residual()
        most = float(np.nanmax(share, initial=0.0))
        if not most >= _MOVED:
            return ""
        least = int(np.nanargmin(self.relative))
        strongest = int(np.nanargmax(self.relative))
        ratio = self.relative[strongest] / self.relative[least]
        how_far = f"{100.0 * most:.2g} % of the mean squared residual" if most < 1.0 else "more than the residuals"
        if not ratio > _ALIKE:
            if np.any(square > _MOVES_TOO * np.var(predictions, axis=0)):
                return ""  # halving `alpha` moves them as well, and has a warning of its own
            size = np.sqrt(self.spread[strongest])
            return (
                f"`alpha` penalises features much, as their spreads are small: {self.names[strongest]} varies by "
                f"{size:.1g}. In units of the squared spreads, it would move the predictions by {how_far}. Divide the "
                "columns by their spreads, or use a smaller `alpha`; LSTDCV, and HorizonLSTD with its default "
                "`penalty`, have such units."
            )
        return (
            f"`alpha` penalises {self.names[least]} {ratio:.1g} times less than {self.names[strongest]}: the squares "
            f"of their spreads differ so much. In units of these, it would move the predictions by {how_far}. Divide "
            "the columns by their spreads, or give `alpha` one number per column; LSTDCV, and HorizonLSTD with its "
            "default `penalty`, have such units."
        )


def _ranges_are_alike(X: Array, ridge: Array, intercept: bool) -> bool:
    """Return whether the ranges of dense features, which are quicker than spreads, show that the scales are alike."""
    size = np.ptp(X, axis=0) if intercept else np.abs(X).max(axis=0)
    wide = (size > 0.0) & (ridge > 0.0)
    return not _may_matter(ridge[wide] / size[wide] ** 2, ridge[wide])


def _may_matter(relative: Array, ridge: Array) -> bool:
    """Return whether units may matter: ridge coefficients in units of squares differ, or are far above those given."""
    most = relative.max(initial=0.0)
    return bool(most > _ALIKE * relative.min(initial=np.inf) or most > _ALIKE * ridge.max(initial=0.0))
