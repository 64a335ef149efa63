"""Standard errors and intervals of predictions.

An interval is the quantile of Student's t times √(se² + shift²). The standard error se is that of the sandwich
covariance (:mod:`lstd.statistics.covariance`), from the influence u_e of each block e of the data, which has the share
w_e. The degrees of freedom

    df(s) = 2 / (ρ(1 + 10 w²) − w²) in [2, 1/w² − 1],   ρ = Σ u_e⁴ / (Σ u_e²)²,   w² = Σ w_e²,

are twice the squared mean over the variance of Σ u_e² (Satterthwaite). The factor 10 guards against kurtosis that a few
blocks do not show. The shift is the bias of the ridge term, to first order φᵀ α S⁻¹ θ.

The interval is for the fixed point of LSTD(λ). With λ < 1 and features that cannot represent the values, the values
themselves may lie outside.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstd.data.arguments import check_real
from lstd.data.parsing import first_true
from lstd.errors import InvalidInputError
from lstd.types import Array

SCALES = ("identity", "log", "logit")
FEW = 5.0  # degrees of freedom below which little data bears on a prediction
_HEAVY = 10.0  # chosen on simulated streams, and confirmed on others
_LARGEST_EXPONENT = 300.0  # an interval on the log scale ends at a number that is finite


@dataclass(frozen=True, eq=False)
class Interval:
    """Predictions with intervals; arrays of shape (T,), or (T, m) for m rewards.

    For one weighted sum of rows: numbers, or arrays of shape (m,).

    Attributes
    ----------
    prediction, lower, upper : ndarray
    standard_error : ndarray
        Standard deviation of the prediction over data sets; without the shift.
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
    half = half_width(error, freedom, level, shift)
    lower, upper = _bounds(prediction, half, scale)
    return Interval(prediction, lower, upper, error, freedom, -shift, freedom < FEW, level)


def _bounds(prediction: Array, half: Array, scale: str) -> tuple[Array, Array]:
    """Ends of intervals that are symmetric on a scale, from half widths h on the identity scale.

    The half width is h/v on the log scale and h/(v(1 − v)) on the logit scale (delta method).
    """
    if scale == "identity":
        return prediction - half, prediction + half
    high = np.inf if scale == "log" else 1.0
    outside = ~((prediction > 0.0) & (prediction < high))
    if (row := first_true(np.asarray(outside.any(axis=1)))) is not None:
        rule = "above 0" if scale == "log" else "between 0 and 1"
        raise InvalidInputError(
            f'`scale` "{scale}" needs predictions {rule}; row {row} has '
            f'{prediction[row][outside[row]][0]:g}. Leave out such rows, or use scale="identity".'
        )
    if scale == "log":
        factor = np.exp(np.minimum(half / prediction, _LARGEST_EXPONENT))
        return prediction / factor, prediction * factor
    from scipy import special

    centre, half = special.logit(prediction), half / (prediction * (1.0 - prediction))
    return special.expit(centre - half), special.expit(centre + half)


def degrees_of_freedom(squares: Array, shares: Array) -> Array:
    """Compute df, shape (T, m), from u_e² of shape (T, E, m) and the shares of the blocks, (E,)."""
    whole = squares.sum(axis=1)
    w2 = float(np.sum(shares**2))
    parts = np.divide(squares, whole[:, np.newaxis], out=np.zeros_like(squares), where=whole[:, np.newaxis] > 0.0)
    rho = np.where(whole > 0.0, (parts**2).sum(axis=1), 1.0)
    freedom = 2.0 / np.maximum(rho * (1.0 + _HEAVY * w2) - w2, 1e-12)
    return np.asarray(np.clip(freedom, 2.0, max(2.0, 1.0 / w2 - 1.0)))
