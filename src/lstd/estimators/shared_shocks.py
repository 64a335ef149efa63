"""The variance of what all subjects share: a season, a price or a pandemic that moves the level of all of them at once.

The total of n independent rows has a standard deviation that grows as √n. A shock that all share moves the total in
proportion to itself, however large n is; one period of a log cannot show it, but several can. Predictions by weights
that were fitted to what was known at K cuts of the log, see :mod:`lstd.estimators.naive_forecast`, are held against
what followed. Of the rows i at cut k, with the weights ω_i of rows and predictions v_i which no bound limits, let

    d_i = came_i − v_i,   D_k = Σ ω_i d_i,   S_k = max(Σ ω_i |v_i|, Σ ω_i |came_i|),
    V_k = G/(G − 1) Σ_g (Σ_{i in g} ω_i (d_i − d̄_k))² + P_k,

with sums over G groups g, and d̄_k the mean of the d_i by weight. P_k is the variance of the prediction Σ ω_i v_i
itself: that of a fit to all rows, divided by the share of their weight that was known. Were the groups independent,
D_k² would have the expected value V_k. If all that came is multiplied by 1 + ε, with ε of mean 0 and variance τ², it
has τ² S_k² more. So

    τ² = (E − F/E) / Σ S_k²,   E = Σ (D_k² − V_k),   F = 2 Σ V_k²,

or 0 unless E > √F: without a shock, E has the variance F for normal D_k, and no more of E counts than chance does not
explain. Its degrees of freedom are K, or four for fewer cuts. A total Σ w_i v_i has the variance
τ² (Σ |w_i v_i|)² more, and a row is the sum of one.

Where all cuts have a D_k of one sign, as in a log that grows faster than predicted, that is no shock of mean 0; what
such predictions missed counts as one all the same, and no interval hides it. Two cuts may overlap by a half, and are
taken as independent.

The steps that are compared may be fewer than those of a prediction: τ² is taken to be the same for any number of steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lstd.data.rows import Rows
from lstd.estimators.linear import Linear
from lstd.estimators.model_parts import two_digits
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
        if not ((self.variance >= 0.0).all() and np.isfinite(self.variance).all() and self.n_cuts > 0):
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
        """The standard deviation, in percent of a total, or that there is none."""
        cuts = "1 cut"
        if self.n_cuts > 1:
            cuts = f"{self.n_cuts} cuts"
        if not self.is_seen:
            return f"none beyond chance, from {cuts}"
        shares = ", ".join(f"{two_digits(100.0 * share)} %" for share in np.sqrt(self.variance))
        return f"standard deviation {shares} of a total, from {cuts}"

    def deviation(self, values: Array) -> Array:
        """Return the standard deviations of predictions (T, k), for one or more horizons of m rewards each."""
        relative = np.tile(np.sqrt(self.variance), values.shape[1] // len(self.variance))
        with np.errstate(over="ignore"):
            deviation = np.asarray(np.abs(values) * relative)
        check_range(deviation)
        return deviation


class Followed(NamedTuple):
    """A cut, and predictions of its N rows before bounds limit them; m rewards."""

    cut: Cut
    values: Array  # (N, m)
    known: float  # share of the weight of all rows that was known


class _Excess(NamedTuple):
    """What followed a cut, less what was predicted, over all rows; (m,) each, in one unit."""

    square: Array  # D²
    by_chance: Array  # V
    size: Array  # S


def shared_shock(linear: Linear, rows: Rows, cuts: Sequence[Followed]) -> SharedShock | None:
    """Estimate the shock that rows share, from what followed cuts; None if no cut has enough groups.

    `linear` predicts the steps that are compared. Without intervals, it is None too.
    """
    group = independent_groups(rows, 1)
    kept = [followed for followed in cuts if len(np.unique(group[followed.cut.place])) >= FEWEST]
    if not kept or linear.no_intervals:
        return None
    largest = np.max([np.abs([one.cut.came, one.values]).max(axis=(0, 1)) for one in kept], axis=0)
    check_range(largest)
    unit = power_of_two(largest)  # so that no square is out of range
    heaviest = max(float(rows.weight[one.cut.place].sum()) for one in kept)
    found = []
    for one in kept:
        place = one.cut.place
        in_units = one._replace(cut=one.cut._replace(came=one.cut.came / unit), values=one.values / unit)
        error = _error_of_sum(linear, rows, one) / unit / heaviest
        found.append(_excess(in_units, error, group[place], rows.weight[place] / heaviest))
    return SharedShock(_variance(found), len(kept))


def _error_of_sum(linear: Linear, rows: Rows, followed: Followed) -> Array:
    """Return the standard error (m,) of the weighted sum of the predictions at a cut; rows have the column of ones."""
    if not followed.known > 0.0:
        return np.zeros(rows.y.shape[1])
    place = followed.cut.place
    weight = rows.weight[place]
    of_sum = np.asarray(rows.X[place].T @ weight)[np.newaxis, : linear.n_features]
    of_all, _, _ = linear.influence.spread(of_sum, float(weight.sum()), freedom=False)
    return np.asarray(of_all[0] / np.sqrt(followed.known))


def _excess(followed: Followed, error: Array, group: NDArray[np.intp], weight: Array) -> _Excess:
    """Return D², V and S of a cut, with the standard error of the predicted sum."""
    missed = followed.cut.came - followed.values  # d
    total = weight @ missed
    about_mean = weight[:, np.newaxis] * (missed - total / weight.sum())
    by_group = np.array([np.bincount(group, column) for column in about_mean.T])  # (m, groups)
    of_rows = np.sum(by_group**2, axis=1)
    n_groups = len(np.unique(group))
    by_chance = n_groups / (n_groups - 1.0) * of_rows + error**2
    size = np.maximum(weight @ np.abs(followed.values), weight @ np.abs(followed.cut.came))
    return _Excess(total**2, by_chance, size)


def _variance(found: Sequence[_Excess]) -> Array:
    """Return τ², (m,)."""
    squares, by_chance, sizes = np.array(found).swapaxes(0, 1)  # (K, m) each
    squared_sizes = np.sum(sizes**2, axis=0)
    excess = np.sum(squares - by_chance, axis=0)
    chance = 2.0 * np.sum(by_chance**2, axis=0)  # F
    is_seen = (squared_sizes > 0.0) & (excess > np.sqrt(chance))
    excess = np.where(is_seen, excess, 1.0)
    beyond = excess - chance / excess
    return np.where(is_seen, beyond / np.where(is_seen, squared_sizes, 1.0), 0.0)
