"""Results of the checks for bias and misfit, without the code that computes them: a model holds these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from lstd.types import Array

PerReward = float | Annotated[Array, "m"]
Flags = bool | Annotated[NDArray[np.bool_], "m"]

SIGNIFICANT = 0.01  # p-value below which there is a warning


def two_digits(value: Any) -> str:
    """Return a number rounded to two significant digits, in plain notation where that is short.

    Examples
    --------
    >>> two_digits(1632.4), two_digits(0.01234)
    ('1600', '0.012')
    """
    return f"{float(f'{float(value):.2g}'):g}"


@dataclass(frozen=True, eq=False)
class BiasCheck:
    """Predictions with λ compared with predictions with λ = 1; numbers, or arrays of shape (m,) for m rewards.

    Attributes
    ----------
    difference : float or ndarray
        Root mean square of the difference of the predictions, over the rows.
    expected : float or ndarray
        Expectation of `difference` by chance alone.
    size : float or ndarray
        Root mean square of the predictions with λ = 1.
    p_value : float or ndarray
        Probability of a difference at least as large without bias.
    biased : bool or ndarray of bool
        Whether the p-value is below 0.01, and the difference is above a quarter of the standard error.

    Examples
    --------
    One constant feature cannot tell the first state of an episode, of value 2, from the second, of value 1:

    >>> import warnings
    >>> import numpy as np
    >>> from lstd import LSTD
    >>> X, y, done = np.ones((400, 1)), np.tile([0.0, 3.0], 200), np.tile([False, True], 200)
    >>> y += np.random.default_rng(0).normal(size=400)
    >>> model = LSTD(gamma=0.5, lmbda=0.0, fit_intercept=False).fit(X, y, terminated=done)
    >>> with warnings.catch_warnings(action="ignore"):
    ...     model.bias_check(X, y, terminated=done).biased
    True
    """

    difference: PerReward
    expected: PerReward
    size: PerReward
    p_value: PerReward
    biased: Flags


@dataclass(frozen=True, eq=False)
class MisfitCheck:
    """Returns compared with what any weighted sum of the features can predict; arrays have shape (m,), for m rewards.

    Attributes
    ----------
    systematic : float or ndarray
        Root mean square, over the rows, of the part of the expected returns that squares, products and a boosted tree
        of the features predict and no weighted sum of the features does; less what chance contributes, at least 0.
    expected : float or ndarray
        What chance alone would contribute.
    standard_error : float, ndarray or None
        Mean standard error of the model's predictions; None if the model has no intervals.
    p_value : float or ndarray
        Probability of a dependence at least as clear by chance.
    misfit : bool or ndarray of bool
        Whether the p-value is below 0.01, and the systematic part is above its own noise.

    Examples
    --------
    >>> from lstd.inference import MisfitCheck
    >>> check = MisfitCheck(systematic=3.0, expected=0.5, standard_error=1.0, p_value=0.001, misfit=True)
    >>> check.dominates
    True
    """

    systematic: PerReward
    expected: PerReward
    standard_error: PerReward | None
    p_value: PerReward
    misfit: Flags

    @property
    def dominates(self) -> bool:
        """Whether, for some reward, there is a misfit that exceeds the mean standard error of the predictions."""
        return self.standard_error is not None and bool(np.any(self.misfit & (self.systematic > self.standard_error)))

    @property
    def message(self) -> str:
        """What the check found for the reward with the smallest p-value, and what to do."""
        j = int(np.argmin(self.p_value))
        size = f"{two_digits(np.atleast_1d(self.systematic)[j])} (root mean square"
        if self.standard_error is not None:
            size += f", beside a mean standard error of {two_digits(np.atleast_1d(self.standard_error)[j])}"
        return (
            f"Returns depend on the features in ways that no weighted sum of them can follow: by {size}). Intervals "
            "leave this out, and more data does not reduce it. Add features such as squares, products or bins, or an "
            "intercept if the model has none; a larger `lmbda` does not help."
        )


@dataclass(frozen=True, eq=False)
class Checks:
    """Results of the checks that follow a choice of settings, or why a check could not run."""

    bias: BiasCheck | str
    misfit: MisfitCheck | str
