"""How much of the predictions the ridge term decides, from the sums alone.

Let θ(α) = (A + αD)⁻¹ b, D the penalties of the weights. For symmetric A, bᵀθ is the mean square of the predictions plus
that of the ridge term. The movement

    |bᵀ(θ(α/2) − θ(α))| / |bᵀθ(α)|

is (α/2)/(g + α/2) in a direction in which A is g: 0 where the data decide, 1 where the ridge term does. An intercept is
eliminated first, so that the movement is that about the mean.
"""

from __future__ import annotations

import numpy as np

from lstd.data.feature_arrays import column_spread
from lstd.data.rows import Rows
from lstd.errors import RidgeWarning, warn
from lstd.types import Array

MOST = 0.5  # movement from which there is a warning; at most 0.3 for chosen settings on small data
_FAR, _LEAST = 2.0**-20, 2.0**-60  # factors of α, or of A if it is less, at which weights without a bound still grow
_ALIKE = 1e3  # ratio of penalties, by ranges, below which spreads need not be computed
_UNEQUAL, _ENTRIES, _ROWS = 1e6, 2**13, 64  # ratio of penalties from which there is a warning; what shows it
NOTHING = 1e-12  # share of bᵀθ that is rounding


def ridge_movement(
    A: Array, b: Array, ridge: Array, weights: Array, factor: float = 0.5, about_mean: bool = True, *,
    intercept: bool = False,
) -> Array:  # fmt: skip
    """Compute how far θ moves as the ridge term falls by a factor, relative to its size, (m,); 0 where it cannot.

    Parameters
    ----------
    A : ndarray of shape (n, n)
    b : ndarray of shape (n, m)
    ridge : ndarray of shape (n,)
        Ridge coefficient of each weight; zero in the last place for the column of ones.
    weights : ndarray of shape (n, m)
        θ(α).
    factor : float, default 0.5
    about_mean : bool, default True
        Whether the size leaves out the mean, which an intercept fits.
    intercept : bool, default False
        Whether the last weight is that of the column of ones.

    Examples
    --------
    >>> import numpy as np
    >>> from lstd.statistics.ridge_warning import ridge_movement
    >>> A, b = np.diag([3.0, 0.0]), np.eye(2)
    >>> ridge_movement(A, b, np.full(2, 2.0), np.diag([0.2, 0.5]))  # (α/2)/(3 + α/2) and 1
    array([0.25, 1.  ])
    """
    total = np.zeros(b.shape[1])
    if len(ridge) > 1 and intercept:
        if not A[-1, -1]:
            return total
        total = b[-1] ** 2 / abs(A[-1, -1])
        means = A[:-1, [-1]] / A[-1, -1]
        A, b = A[:-1] - means * A[-1], b[:-1] - means * b[-1]
        A, ridge, weights = A[:, :-1], ridge[:-1], weights[:-1]
    if not ridge.any():
        return np.zeros(b.shape[1])
    try:
        moved = np.linalg.solve(A + np.diag(factor * ridge), b)
    except np.linalg.LinAlgError:
        return np.zeros(b.shape[1])
    before, after = np.sum(b * weights, axis=0), np.sum(b * moved, axis=0)
    size, whole = np.abs(before), np.abs(before) + total
    some = size > NOTHING * whole
    moves = np.divide(np.abs(after - before), size if about_mean else whole, out=np.zeros_like(size), where=some)
    return np.asarray(moves)


@np.errstate(all="ignore")
def grows_without_bound(A: Array, b: Array, ridge: Array, weights: Array, *, intercept: bool) -> bool:
    """Return whether weights grow without bound as the ridge term falls; arguments are those of `ridge_movement`."""
    if not ridge.any():
        return False
    typical = float(np.mean(np.abs(A.diagonal()[ridge > 0.0]) / ridge[ridge > 0.0]))
    far = max(_FAR * min(1.0, typical), _LEAST)
    movement = ridge_movement(A, b, ridge, weights, far, intercept=intercept)
    return bool(np.nan_to_num(movement).max() > 2.0**-4 / far)


@np.errstate(all="ignore")
def warn_of_ridge(
    A: Array, b: Array, ridge: Array, weights: Array, gamma: float, *, intercept: bool, chosen: bool
) -> None:
    """Give a RidgeWarning if halving the ridge term moves predictions by more than half of their size.

    The size is about the mean, unless the ridge coefficient was chosen: useless features may then deserve a large one.
    """
    about_mean = intercept and not chosen
    moves = ridge_movement(A, b, ridge, weights, about_mean=about_mean, intercept=intercept)
    if np.nan_to_num(moves).max(initial=0.0) > MOST:
        grows = grows_without_bound(A, b, ridge, weights, intercept=intercept)
        warn_of_movement(moves, ridge, gamma, grows=grows, intercept=intercept, about_mean=about_mean)


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
        why += "" if intercept else ", or `fit_intercept` if values are far from zero"
        why += "; it may be 0 for some features" if np.sum(ridge > 0.0) > 1 else ""
    size = "spread" if about_mean else "size"
    warn(f"Halving `alpha` moves the predictions by {100.0 * movement:.0f} % of their {size}: {why}.", RidgeWarning)


@np.errstate(all="ignore")
def scales_doubt(rows: Rows, ridge: Array, intercept: bool) -> str:
    """Say which ridge coefficients, relative to the squared spreads of features, differ too much; empty if none do.

    `ridge` is (n,), without the column of ones. Spreads are those of some of the rows.
    """
    if not len(rows) or not len(ridge):
        return ""
    X = rows.X[:: max(1, len(rows) // max(_ROWS, _ENTRIES // len(ridge)))]
    if isinstance(X, np.ndarray):
        span = np.ptp(X, axis=0) if intercept else np.abs(X).max(axis=0)
        wide = (span[: len(ridge)] > 0.0) & (ridge > 0.0)
        relative = ridge[wide] / span[: len(ridge)][wide] ** 2
        if not relative.max(initial=0.0) > _ALIKE * relative.min(initial=np.inf):
            return ""
    _, spread, square = column_spread(X, about_zero=not intercept)[:, : len(ridge)]
    relative = np.where((square > 0.0) & (ridge > 0.0), ridge / spread, np.nan)
    if not np.nanmax(relative, initial=0.0) > _UNEQUAL * np.nanmin(relative, initial=np.inf):
        return ""
    names = rows.names or [f"x{j}" for j in range(len(ridge))]
    least, most = int(np.nanargmin(relative)), int(np.nanargmax(relative))
    return (
        f"`alpha` penalises {names[least]} {relative[most] / relative[least]:.1g} times less than {names[most]}: the "
        "squares of their spreads differ so much. Divide the columns by their spreads, or give `alpha` one number per "
        "column; LSTDCV, whose choice does not depend on scales, has them as `ridge_`."
    )
