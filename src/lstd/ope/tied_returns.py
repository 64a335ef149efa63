"""Intervals of returns that mostly agree: what a small log cannot show.

Where all patients of a log go home, the standard error is zero, but a few of those to come may not. Returns are tied if
more than half of the episodes have the same sum of rewards, not discounted, or, with bounds [a, b] of the return given,
if more than half of their returns are within (b − a)/100 of the median. Without bounds, a is the least return or 0 and
b the largest or 0; where episodes were cut off, they hold the value too, and if data are few, or all returns agree, a
warning asks for bounds. Let v be the value, h the half width by the standard error, and g_t the dual weights. For
untied returns, v and v ± h are cut at a and b if these are given. For tied returns, let

    w_e ∝ max |g_t| over the transitions of group or episode e, Σ w_e = 1,   n = max(1, 1 / Σ w_e²),
    p = 1 − ((1 − level)/2)^(1/n),   c = p max(0, v − a) below and p max(0, b − v) above,

and the half width is c/2 + √(c²/4 + h²), with the value and the ends of the interval within [a, b]. p is the largest
share of the population that n draws all miss with probability (1 − level)/2. For equal returns at the bound, the
interval is that of Clopper and Pearson (1934); for large n it is v ± h.

For the difference of two policies with weights w¹ and w², w ∝ |w¹ − w²| gives n, and c = p min(1, Σ |w¹ − w²|)(b − a).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lstd.data.arguments import shown
from lstd.data.ids import first_true
from lstd.data.returns import run_backwards
from lstd.errors import InvalidInputError
from lstd.ope.logged_rows import LoggedRows
from lstd.types import Array

_SAME = 1e-9  # of the largest sum: what rounding leaves between equal sums of rewards
_HIDDEN = 0.05  # of the population: a smaller share that the log may miss is not little data
_NEAR = 0.01  # of b − a: returns that close to their median are tied

Bounds = tuple[float, float]


@dataclass(frozen=True, eq=False)
class TiedReturns:
    """Bounds of the return, and the share of each group or episode in the value of a policy."""

    bounds: Bounds
    given: bool  # whether the bounds are known; otherwise they are those of the log
    shares: Array  # (n_groups,) w_e
    alike: bool = False  # whether all episodes have the same sum of rewards

    def interval(self, value: float, half: float, level: float) -> tuple[float, float, float]:
        """Return the value within the bounds and the ends of its interval, from the half width by standard errors."""
        if not np.isfinite(half) and not self.given:
            return value, value - half, value + half
        below, above = self.hidden(value, level)
        return cut_interval(value, _widened(half, below), _widened(half, above), self.bounds)

    def decides(self, value: float, half: float, level: float) -> bool:
        """Say whether the log may hide a part of the population that matters, and more than standard errors show."""
        return max(self.hidden(value, level)) > half and missed_share(self.shares, level) > _HIDDEN

    def doubt(self, little_data: bool) -> str:
        """Return the text of a warning if the interval rests on bounds that the log may not show; otherwise empty."""
        if self.given or not (little_data or self.alike):
            return ""
        remedy = "Give `bounds=(a, b)`, the least and the largest return that an episode can have."
        a, b = self.bounds
        if a == b:
            return (
                "All returns of the log are 0, so the interval has no width, whatever a larger log would show. "
                f"{remedy}"
            )
        return (
            f"Most returns of the log agree, and the interval takes returns outside of [{a:.4g}, {b:.4g}] as "
            f"impossible, which a larger log may show. {remedy}"
        )

    def hidden(self, value: float, level: float) -> tuple[float, float]:
        """Return what the log may hide below and above the value, c."""
        a, b = self.bounds
        p = missed_share(self.shares, level)
        return p * max(0.0, value - a), p * max(0.0, b - value)

    def widened_difference(self, other: TiedReturns, half: float, level: float) -> float:
        """Return the half width of the difference from another value, from the half width by standard errors."""
        apart = np.abs(self.shares - other.shares)
        total = float(apart.sum())
        if not total:
            return half
        a, b = zip(self.bounds, other.bounds, strict=True)  # guessed bounds may differ
        hidden = missed_share(apart / total, level) * min(1.0, total) * (max(b) - min(a))
        return _widened(half, hidden)


def cut_interval(value: float, below: float, above: float, bounds: Bounds) -> tuple[float, float, float]:
    """Return the value within the bounds, and the ends of its interval, so far below and above it, within them too."""
    a, b = bounds
    value = min(max(value, a), b)
    return value, max(value - below, a), min(value + above, b)


def missed_share(shares: Array, level: float) -> float:
    """Return the largest share of a population that the effective number of draws all miss, p."""
    n = max(1.0, 1.0 / float(shares @ shares))
    return 1.0 - ((1.0 - level) / 2.0) ** (1.0 / n)  # type: ignore[no-any-return]


def _widened(half: float, hidden: float) -> float:
    """Return c/2 + √(c²/4 + h²)."""
    return hidden / 2.0 + float(np.hypot(hidden / 2.0, half))


def tied_returns(log: LoggedRows, value: float, dual: Array | None, bounds: Bounds | None) -> TiedReturns | None:
    """Return what bounds the value of a policy if the returns of the log are tied; None if they are not.

    Parameters
    ----------
    dual : ndarray of shape (N,), or None
        Dual weight g_t of each transition; without them, all groups count alike.
    bounds : tuple of two floats, or None
        Checked bounds of the return.
    """
    returns = log.returns[log.begins]
    sums = _sums(log)
    if not _mostly_same(sums) and not (bounds is not None and _mostly_near(returns, bounds)):
        return None
    if bounds is not None:
        return TiedReturns(bounds, True, _shares(log, dual))
    seen = np.append(returns, 0.0)
    if not log.ended.all():
        seen = np.append(seen, value)
    alike = bool(np.ptp(sums) <= _SAME * np.abs(sums).max())
    return TiedReturns((float(seen.min()), float(seen.max())), False, _shares(log, dual), alike)


def checked_bounds(bounds: Any, log: LoggedRows | None = None) -> Bounds | None:
    """Check the bounds of the return of an episode, which complete returns of the log must not exceed."""
    if bounds is None:
        return None
    try:
        a, b = map(float, bounds)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"`bounds` must be two numbers, the least and the largest return; got {shown(bounds)}."
        ) from error
    if not (np.isfinite([a, b]).all() and a < b):
        raise InvalidInputError(f"`bounds` must be finite, the smaller one first; got ({a:g}, {b:g}).")
    if log is not None:
        _check_within(log, a, b)
    return a, b


def _check_within(log: LoggedRows, a: float, b: float) -> None:
    returns = log.returns[log.begins]
    rounding = _SAME * (b - a)
    outside = log.ended & ((returns < a - rounding) | (returns > b + rounding))
    if (i := first_true(np.asarray(outside))) is not None:
        row = int(log.numbers[log.begins][i])
        raise InvalidInputError(
            f"`bounds` must hold the discounted returns of all episodes; that which begins in row {row} has "
            f"{returns[i]:.6g}, outside of ({a:g}, {b:g}). Correct the bounds."
        )


def _sums(log: LoggedRows) -> Array:
    """Sum the rewards of each episode, (m,), without discount."""
    return np.add.reduceat(log.rewards, np.flatnonzero(log.begins))


def _mostly_same(values: Array) -> bool:
    """Say whether more than half of the values agree but for rounding."""
    return _most_within(values, _SAME * float(np.abs(values).max()))


def _mostly_near(values: Array, bounds: Bounds) -> bool:
    """Say whether more than half of the values are near their median."""
    near = np.abs(values - np.median(values)) <= _NEAR * (bounds[1] - bounds[0])
    return len(values) > 1 and bool(2 * np.count_nonzero(near) > len(values))


def _most_within(values: Array, width: float) -> bool:
    n = len(values)
    ordered = np.sort(values)
    more_than_half = n // 2 + 1
    return n > 1 and bool((ordered[more_than_half - 1 :] - ordered[: n - more_than_half + 1] <= width).any())


def _shares(log: LoggedRows, dual: Array | None) -> Array:
    """Return the share of each group or episode, by the largest weight of its transitions, (n_groups,)."""
    group = log.group
    largest = np.zeros(int(group[-1]) + 1)
    np.maximum.at(largest, group, np.ones(len(group)) if dual is None else np.abs(dual))
    total = float(largest.sum())
    if not total:
        return np.full(len(largest), 1.0 / len(largest))
    return np.asarray(largest / total)


def largest_sum(log: LoggedRows) -> float:
    """Return the largest sum of absolute discounted rewards of an episode: the scale of rounding in values."""
    sums = run_backwards(np.abs(log.rewards)[:, np.newaxis], log.discount, np.append(log.begins[1:], True))[:, 0]
    return float(sums[log.begins].max())
