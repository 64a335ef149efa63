"""Rewards of horizon rows, which are not used because the successor of the row is not known."""

from __future__ import annotations

import numpy as np

from lstd.data.rows import Rows
from lstd.errors import UnusedRewardWarning, warn

_REMEDY = "Append a row with the features of the state that followed and no reward, or flag the episode as terminated."


def count_unused(rows: Rows) -> int:
    """Count the horizon rows with rewards other than 0 and NaN; the last row, which may be pending, does not count."""
    if rows.X_next is not None or not rows.last[:-1].any():
        return 0
    horizon = np.flatnonzero((rows.last & ~rows.terminated & ~rows.y_missing)[:-1])
    return int(rows.y[horizon].any(axis=1).sum())


def warn_of_unused(lost: int, count: int) -> None:
    """Warn of `count` unused rewards if any is `lost`; that of a pending row is not, as the next chunk may use it."""
    if lost:
        warn(f"{unused_rewards(count)} {_REMEDY}", UnusedRewardWarning)


def unused_rewards(count: int) -> str:
    """Return a sentence about rewards that are not used."""
    what = "1 reward of a last row is" if count == 1 else f"{count} rewards of last rows are"
    return f"{what} not used: {'its' if count == 1 else 'their'} successor is unknown."
