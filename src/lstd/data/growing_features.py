"""Features that only grow within one cohort, such as tenure and totals: their horizon rows lie where no row went on.

Subjects who begin at about the same time have horizon rows of about the same age, later than that of almost all full
rows. A feature that never decreases has its largest values there. No row shows what follows them, while predictions
there complete the returns of all rows before, so a straight line is continued where nothing was seen.

Ages in many cohorts are no such features: others were seen at the same age, and went on.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lstd.data.feature_products import dense
from lstd.data.returns import unobserved_shares
from lstd.data.rows import Rows
from lstd.types import Array

_FEWEST = 20  # horizon rows
_LEAST_UNOBSERVED = 0.1  # mean share of the returns behind horizon rows
_AS_OLD = 0.1  # most full rows as old as half of the horizon rows: 0 in one cohort, 1/4 if subjects join at all times
_LEAST_GROWING = 0.2  # share of the episodes
_AT_TOP = 0.02  # most full rows at the largest value of horizon rows; a feature with a limit has more


def growing_features(rows: Rows) -> NDArray[np.intp]:
    """Return which features only grow within one cohort of episodes; see the module."""
    ends, nothing = np.flatnonzero(rows.last), np.empty(0, np.intp)
    first = np.append(0, ends[:-1] + 1)
    open_ends = ~rows.full[ends] & (ends > first)
    first, last, full = first[open_ends], ends[open_ends], rows.full
    if len(last) < _FEWEST:
        return nothing
    age = _ages(rows)
    if np.mean(age[full] >= np.median(age[last])) > _AS_OLD:
        return nothing
    if np.mean(unobserved_shares(rows)[full]) < _LEAST_UNOBSERVED:
        return nothing
    start, stop = dense(rows.X[first]), dense(rows.X[last])
    low, high = np.quantile(start, [0.25, 0.75], axis=0)
    grows = (stop >= start).all(axis=0) & (np.mean(stop > start, axis=0) >= _LEAST_GROWING)
    grows &= np.mean(stop - start, axis=0) > high - low
    return np.array([j for j in np.flatnonzero(grows) if _outgrows(rows, int(j), stop[:, j])], np.intp)


def _ages(rows: Rows) -> Array:
    """Time since each episode began, (T,), in steps, or by the discounts of rows if they have their own."""
    steps = np.where((rows.discount > 0.0) & (rows.discount < 1.0), rows.discount, np.exp(-1.0))
    passed = np.append(0.0, np.cumsum(-np.log(steps))[:-1]) if rows.own_discounts else np.arange(float(len(rows)))
    begins = np.append(True, rows.last[:-1])
    return np.asarray(passed - passed[begins][np.cumsum(begins) - 1])


def _outgrows(rows: Rows, j: int, stop: Array) -> bool:
    """Whether a feature never decreases, and hardly any full row has the largest value of horizon rows, `stop`."""
    x = dense(rows.X[:, [j]])[:, 0]
    seen, decreases = x[rows.full], np.any((np.diff(x) < 0.0) & ~rows.last[:-1])
    return not decreases and bool(seen.max() > seen.min() and np.mean(seen >= stop.max()) <= _AT_TOP)


def growing_doubt(rows: Rows) -> str:
    """Say which features only grow within one cohort of episodes, and what to do; empty if none do."""
    found = growing_features(rows)
    if not len(found):
        return ""
    names = [f"x{j}" if rows.names is None else repr(rows.names[j]) for j in found[:5]]
    listed = ", ".join(names) + (f" and {len(found) - 5} more" if len(found) > 5 else "")
    return (
        f"Features that only grow within an episode ({listed}) have their largest values in horizon rows, where no row "
        "shows what follows. Predictions there complete the returns of the rows before, and may be far off. Use "
        "features that stay in the range seen before: recent rates, shrunken rates such as (total + a) / (age + b), or "
        "a recency with a limit. Compare predictions with what followed (`lstd.metrics.backtest`)."
    )
