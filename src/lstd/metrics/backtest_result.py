"""Result of a backtest: what a model predicted at a cut, beside what was observed in the steps after it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstd.data.arguments import check_integer
from lstd.errors import InvalidInputError
from lstd.metrics.calibration import Calibration, bins_of
from lstd.statistics.intervals import Interval, degrees_of_freedom, interval_of
from lstd.types import Array


@dataclass(frozen=True, eq=False, repr=False)
class Backtest:
    """Predictions at a cut compared with the k steps that followed; arrays of shape (N,), for N subjects or rows.

    Attributes
    ----------
    cut : number or datetime64
        The latest cut; the others are in `earlier`.
    steps : int
        Steps k that are compared.
    gamma : float
    value : ndarray
        Prediction v at the cut.
    observed : ndarray
        Discounted rewards R of the steps after the cut.
    predicted : ndarray
        Prediction i of `observed`: v less the discounted prediction k steps later.
    forecast : ndarray
        Prediction f of `observed` from what was known at the cut alone, which R² compares.
    expected_error : ndarray
        Cross-fitted regression ê of R − f, for standard errors.
    subject : ndarray of int
        Number of the subject of each entry, or of its block of a stream; they count as independent.
    n_left_out : int
        Number of subjects, or rows of a stream, that were active at the cut but not observed for k steps or to an end.
    level : float
        Level of intervals.
    of_steps : bool
        Whether the model predicts the sum over k steps itself, as :class:`lstd.HorizonLSTD` does.
    earlier : tuple of Backtest
        Results at earlier cuts, in order of time. Choose models by the latest cut.

    Examples
    --------
    An AR(1) process, whose value is linear in its state, beside features that say nothing:

    >>> import numpy as np
    >>> from lstd import LSTD
    >>> from lstd.metrics import backtest
    >>> random, x = np.random.default_rng(0), np.zeros(1000)
    >>> for t in range(1, 1000):
    ...     x[t] = 0.9 * x[t - 1] + random.normal()
    >>> features, model = (x[:, np.newaxis], random.normal(size=(1000, 1))), LSTD(gamma=0.8, lmbda=0.8)
    >>> one, other = (backtest(model, X, np.append(x[1:], 0.0), cut=500, steps=10) for X in features)
    >>> bool(one.difference(other).prediction < 0.0)
    True
    """

    cut: Any
    steps: int
    gamma: float
    value: Array
    observed: Array
    predicted: Array
    forecast: Array
    expected_error: Array
    subject: NDArray[np.intp]
    n_left_out: int
    level: float
    of_steps: bool = False
    earlier: tuple[Backtest, ...] = ()

    @property
    def r2(self) -> float:
        """1 − Σ(R − f)² / Σ(R − R̄)²."""
        return 1.0 - float(np.sum((self.observed - self.forecast) ** 2) / np.sum(self._deviations))

    @property
    def r2_interval(self) -> Interval:
        """R² with its interval."""
        return self._interval(self.r2, (self._influence - (1.0 - self.r2) * self._deviations) / self._deviations.mean())

    @property
    def total(self) -> Interval:
        """Σi ÷ ΣR, the total that was predicted in units of what was observed, with its interval.

        Raises InvalidInputError when ΣR is within two standard errors of 0: such a ratio says nothing.
        """
        mean = float(self.observed.mean())
        if self._near_zero:
            raise InvalidInputError(
                "`total` needs rewards whose sum is more than two standard errors from 0; they add up to "
                f"{self.observed.sum():.3g}. Compare the sums of `predicted` and `observed` instead."
            )
        return self._interval(float(self.predicted.mean()) / mean, (self.predicted - self.observed) / mean)

    def calibration(self, n_bins: int = 10) -> Calibration:
        """Compare mean `predicted` with mean `observed`, in bins of `value`.

        Standard errors are of the difference. They are larger by half of the quantile of Student's t that is 2 for
        many subjects or blocks, as few blocks of a stream make up a bin; 1 / Σ s² − 1 degrees of freedom, s the shares.
        """
        from scipy import special  # takes 0.1 s to import

        bins = bins_of(self.value, check_integer("n_bins", n_bins, 1))(self.value)
        lines = []
        for inside in (bins == b for b in range(bins.max() + 1)):
            subject = np.unique(self.subject[inside], return_inverse=True)[1]
            difference = (self.observed - self.predicted)[inside]
            scatter = _standard_error(difference, subject)
            freedom = 1.0 / np.sum((np.bincount(subject) / len(subject)) ** 2) - 1.0
            scatter *= 0.5 * float(special.stdtrit(max(freedom, 1e-3), special.ndtr(2.0)))
            means = self.predicted[inside].mean(), self.observed[inside].mean()
            lines.append((*means, 1.0, scatter, inside.sum(), subject.max() + 1))
        predicted, observed, share, error, count, n_groups = (np.array(column) for column in zip(*lines, strict=True))
        return Calibration(predicted, observed, share, error, count, n_groups)

    def difference(self, other: Backtest) -> Interval:
        """Compute the mean of (R − f)² less that of another model, with its interval: below 0, this one is better.

        Both must be of the same rows, cut, steps and discount.
        """
        if not isinstance(other, Backtest):
            raise InvalidInputError(f"`other` must be the Backtest of another model; got {other!r:.80}.")
        same = len(self.observed) == len(other.observed) and np.array_equal(self.subject, other.subject)
        if not (same and self.cut == other.cut and np.allclose(self.observed, other.observed, rtol=1e-9, atol=0.0)):
            raise InvalidInputError(
                "`other` must be a backtest of the same rows with the same `cut`, `steps` and `gamma`. Run both "
                "models on one set of rows."
            )
        mean = np.mean((self.observed - self.forecast) ** 2 - (self.observed - other.forecast) ** 2)
        return self._interval(float(mean), self._influence - other._influence)

    @property
    def _near_zero(self) -> bool:
        """Whether ΣR is within two standard errors of 0."""
        return not abs(self.observed.mean()) > 2.0 * _standard_error(self.observed, self.subject)

    @property
    def _deviations(self) -> Array:
        return np.asarray((self.observed - self.observed.mean()) ** 2)

    @property
    def _influence(self) -> Array:
        """ψ = (R − f)² − 2ê(i − f), whose scatter includes that of the regression in f."""
        return (self.observed - self.forecast) ** 2 - 2.0 * self.expected_error * (self.predicted - self.forecast)

    def _interval(self, mean: float, influence: Array) -> Interval:
        squares = np.asarray(np.bincount(self.subject, influence - influence.mean()) ** 2.0, np.float64)
        shares = np.asarray(np.bincount(self.subject) / len(self.subject), np.float64)
        freedom = degrees_of_freedom(squares[np.newaxis, :, np.newaxis], shares)[0, 0]
        error = np.asarray(_standard_error(influence, self.subject))
        return interval_of(np.asarray(mean), error, freedom, np.zeros(()), self.level)

    @property
    def moment(self) -> str:
        """The cut as text, a date without the time at midnight."""
        return str(self.cut).removesuffix("T00:00:00.000000000").removesuffix("T00:00:00.000000")

    @property
    def document(self) -> dict[str, Any]:
        """The numbers of the table, for programs."""
        numbers = {"r2": self.r2, "predicted": float(self.predicted.sum()), "observed": float(self.observed.sum())}
        counts = {"steps": self.steps, "rows": len(self.value), "left_out": self.n_left_out}
        return {"cut": self.moment, **counts, **numbers}

    @property
    def advised_steps(self) -> int | None:
        """Least number of steps that is advised, ¼ / (1 − γ); None at γ = 1, where all that follow count."""
        return None if self.gamma == 1.0 else math.ceil(round(0.25 / (1.0 - self.gamma), 6))

    def __str__(self) -> str:
        few = "all that the data have are" if self.advised_steps is None else f"at least {self.advised_steps} are"
        advice = "" if self.of_steps else f" ({few} advised at gamma {self.gamma:g})"
        lines = [f"Backtest over {self.steps} steps{advice}"]
        heads = ("cut", "rows", "left out", "R²", "predicted", "observed", "ratio", f"{100 * self.level:g} % interval")
        table = [heads, *(one._line() for one in (*self.earlier, self))]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines += ["  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)) for row in table]
        return "\n".join([*lines, "Choose by the latest cut."] if self.earlier else lines)

    __repr__ = __str__

    def _line(self) -> tuple[str, ...]:
        sums = [f"{values.sum():.6g}" for values in (self.predicted, self.observed)]
        ratio = ("sum near 0", "–")
        if not self._near_zero:
            total = self.total
            ratio = f"{total.prediction:.2f}", f"{total.lower:.2f} to {total.upper:.2f}"
        return (self.moment, str(len(self.value)), str(self.n_left_out), f"{self.r2:.3f}", *sums, *ratio)


def _standard_error(values: Array, subject: NDArray[np.intp]) -> float:
    """Standard error of a mean, by subject; NaN for fewer than two."""
    sums = np.bincount(subject, values - values.mean())
    return math.sqrt(len(sums) / (len(sums) - 1.0) * float(sums @ sums)) / len(values) if len(sums) > 1 else math.nan
