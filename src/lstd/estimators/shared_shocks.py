"""The variance of what all subjects share: a season, a price or a pandemic that moves the level of all of them at once.

The total of n independent rows has a standard deviation that grows as √n. A shock that all share moves the total in
proportion to itself, however large n is; one period of a log cannot show it, but several can. Predictions by weights
that were fitted to what was known at K cuts of the log, see :mod:`lstd.estimators.naive_forecast`, are held against
what followed. Of the rows i at cut k, with the weights ω_i of rows and predictions v_i which no bound limits, let

    d_i = came_i − v_i,   D_k = Σ ω_i d_i,   S_k = Σ ω_i |v_i|,   V_k = Σ_g (Σ_{i in g} ω_i (d_i − d̄_k))²,

with sums over groups g, and d̄_k the mean of the d_i by weight. Were the groups independent, D_k² would have the
expected value V_k, apart from the error of the prediction itself. If all v_i are multiplied by 1 + ε, with ε of mean 0
and variance τ², it is V_k + τ² S_k². So

    τ² = Σ (D_k² − V_k) / Σ S_k²,

as far as chance does not explain: without a shock, its variance is 2 Σ V_k² / (Σ S_k²)², if the D_k are normal and
independent. It is at least 0, and has the degrees of freedom K, or four for fewer cuts. A total Σ w_i v_i has the
variance τ² (Σ |w_i v_i|)² more, and a row is the sum of one.

The steps that are compared may be fewer than those of a prediction: τ² is taken to be the same for any number of steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lstd.data.rows import Rows
from lstd.estimators.naive_forecast import FEWEST, Cut
from lstd.estimators.step_spread import independent_groups
from lstd.statistics.intervals import power_of_two
from lstd.statistics.solve import check_range
from lstd.types import Array

_LEAST_FREEDOM = 4  # fewer degrees of freedom would make intervals of one or two cuts useless


@dataclass(frozen=True, eq=False)
class SharedShock:
    """A shock that all rows share, by what followed some cuts; m rewards.

    Attributes
    ----------
    variance : ndarray of shape (m,)
        Variance τ² of the factor by which all rewards of a period differ from what is expected.
    n_cuts : int
    """

    variance: Annotated[Array, "m"]
    n_cuts: int

    def check_read(self) -> None:
        """Refuse numbers of a file that are no variances, or of no cuts."""
        if not ((self.variance >= 0.0).all() and self.n_cuts > 0):
            raise ValueError(self.variance)

    @property
    def is_seen(self) -> bool:
        """Whether there is a shock of some reward."""
        return bool(self.variance.any())

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the variance."""
        return float(max(self.n_cuts, _LEAST_FREEDOM))

    @property
    def text(self) -> str:
        """The standard deviation, in percent of a total."""
        shares = ", ".join(f"{100.0 * share:.2g} %" for share in np.sqrt(self.variance).tolist())
        cuts = "1 cut"
        if self.n_cuts > 1:
            cuts = f"{self.n_cuts} cuts"
        return f"standard deviation {shares} of a total, from {cuts}"

    def deviation(self, values: Array) -> Array:
        """Return the standard deviations of predictions (T, k), for one or more horizons of m rewards each."""
        relative = np.tile(np.sqrt(self.variance), values.shape[1] // len(self.variance))
        return np.asarray(np.abs(values) * relative)


class _Excess(NamedTuple):
    """What followed a cut, less what was predicted, over all rows; (m,) each, in one unit."""

    square: Array  # D²
    by_chance: Array  # V
    size: Array  # S


def shared_shock(rows: Rows, cuts: Sequence[Cut]) -> SharedShock | None:
    """Estimate the shock that rows share, from what followed cuts; None if no cut has enough groups."""
    group = independent_groups(rows, 1)
    kept = [cut for cut in cuts if len(np.unique(group[cut.place])) >= FEWEST]
    if not kept:
        return None
    largest = np.max([np.abs([cut.came, cut.values]).max(axis=(0, 1)) for cut in kept], axis=0)
    check_range(largest)
    unit = power_of_two(largest)  # so that no square is out of range
    heaviest = max(float(rows.weight[cut.place].sum()) for cut in kept)
    found = [_excess(cut, group[cut.place], rows.weight[cut.place] / heaviest, unit) for cut in kept]
    return SharedShock(_variance(found), len(kept))


def _excess(cut: Cut, group: NDArray[np.intp], weight: Array, unit: Array) -> _Excess:
    """Return D², V and S of a cut."""
    values = cut.values / unit
    missed = cut.came / unit - values  # d
    total = weight @ missed
    about_mean = weight[:, np.newaxis] * (missed - total / weight.sum())
    by_group = np.array([np.bincount(group, column) for column in about_mean.T])  # (m, groups)
    return _Excess(total**2, np.sum(by_group**2, axis=1), weight @ np.abs(values))


def _variance(found: Sequence[_Excess]) -> Array:
    """Return τ², (m,), as far as chance does not explain it."""
    squares, by_chance, sizes = np.array(found).swapaxes(0, 1)  # (K, m) each
    whole = np.sum(sizes**2, axis=0)
    divisor = np.where(whole > 0.0, whole, np.inf)
    excess = np.sum(squares - by_chance, axis=0) / divisor
    squared_error = 2.0 * np.sum((by_chance / divisor) ** 2, axis=0)
    is_seen = (excess > 0.0) & (excess**2 > squared_error)
    chance = squared_error / np.where(is_seen, excess, 1.0)
    return np.where(is_seen, excess - chance, 0.0)
