"""How many steps the mean of all ids counts as, in the rate of one of them: what actuaries call credibility.

A rate (x + u m) / (s + u) is drawn towards the mean m as if that were u steps of its own. Where ids differ far more
than each of them varies, such as counties, u should be small; where they are much alike, or come seldom, large. The
window w is right for most logs, so that it stays unless the log clearly shows that w/4 or w/16 predicts better.

Rows that have a complete step behind them, and whose next w steps end at the moment of the mean or before, say so.
With the error e of a rate as a forecast of what comes in these steps, per step, another u is taken if it has

    a smaller sum of e^2 over all rows than w,
    a sum of e^2 / (m + rate), with the rate and the m of w, that is smaller by 1 %, and by more than two standard
    errors of the difference. Ids are independent of one another, their rows are not.

Of several, the one with the smallest sum of e^2. The second sum gives no id of huge rates all the weight: spending has
heavy tails, and one customer must not decide for all.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lstd.trajectories.rates import Known, Recent
from lstd.types import Array

_SHARES = (0.25, 0.0625)  # of the window
_CLEAR = 2.0  # standard errors
_LEAST = 0.01  # of the weighted error


def steps_of_mean(known: Known, recent: Recent, means: Array, place: int, window: int) -> Array:
    """Return how many steps the mean counts as, for the number of events and for each amount, (1 + m,).

    `means` are the mean rates, (1 + m,), and `place` is that of the edge at which they are taken.
    """
    chosen = np.full(len(means), float(window))
    rows = _with_a_future(known, recent, place, window)
    if not len(rows):
        return chosen
    of_id = np.unique(known.who[rows], return_inverse=True)[1]
    for j, mean in enumerate(means):
        sums = known.sums[:, j]
        came = (sums[rows + window] - sums[rows]) / window
        chosen[j] = _chosen(sums[rows], known.since[rows, 1], came, of_id, mean, window)
    return chosen


def _with_a_future(known: Known, recent: Recent, place: int, window: int) -> NDArray[np.intp]:
    """Return the rows with a complete step behind them, and a window that ends at an edge or before ahead of them."""
    n_rows = max(0, len(known.who) - window)  # without the last ones of all
    same_id = known.who[window:] == known.who[:n_rows]
    in_time = known.edge[:n_rows] + window <= place
    return np.flatnonzero(same_id & in_time & (recent.n_steps[:n_rows] > 0))


def _chosen(sums: Array, since: Array, came: Array, of_id: NDArray[np.intp], mean: float, window: int) -> float:
    """Return the number of steps that the mean of one sum counts as; `sums`, `since` and `came` are of the rows."""
    usual = _drawn(sums, since, mean, window)
    scale = abs(mean) + np.abs(usual)
    if not scale.all():  # nothing came to anybody, or a mean of zero
        return float(window)
    squares = (came - usual) ** 2
    chosen = float(window)
    least = squares.sum()
    weighted = (squares / scale).sum()
    for share in _SHARES:
        other = (came - _drawn(sums, since, mean, share * window)) ** 2
        gains = np.bincount(of_id, (squares - other) / scale)  # of each id
        if other.sum() < least and _is_clear(np.asarray(gains, np.float64), weighted):
            chosen = share * window
            least = other.sum()
    return chosen


def _drawn(sums: Array, since: Array, mean: float, steps: float) -> Array:
    """Return rates in which the mean counts as so many steps."""
    return (sums + steps * mean) / (since + steps)


def _is_clear(gains: Array, before: float) -> bool:
    """Return whether the sum of the gains of ids, (I,), is large beside the error before, and beside chance."""
    n_ids = len(gains)
    total = gains.sum()
    if n_ids < 2 or total <= _LEAST * before:
        return False
    variance = n_ids * gains.var(ddof=1)
    return bool(total**2 > _CLEAR**2 * variance)
