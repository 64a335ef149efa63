"""Horizon rows, the last rows of episodes that were cut off: made, what they may leave out, and what is not used.

Only the features of a horizon row count, as the successor of the row before. Its reward, discount, ratio, coefficient
and weight belong to a transition that nobody saw: they may be NaN, and a reward in its place is not used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstd.data.rows import Rows
from lstd.errors import UnusedRewardWarning, warn
from lstd.types import Array

_REMEDY = "Append a row with the features of the state that followed and no reward, or flag the episode as terminated."


def with_horizon_rows(
    arrays: Mapping[str, NDArray[Any] | None], cut: NDArray[np.bool_], now: Mapping[int, Array]
) -> dict[str, Any]:
    """Repeat the last rows of episodes that were cut off, `cut` (T,), as their horizon rows, which have no reward.

    Their features at the positions of `now` are those values, (T,) each, at the time when observation stopped.
    """
    order = np.repeat(np.arange(len(cut)), 1 + cut)
    added = np.flatnonzero(np.append(False, order[1:] == order[:-1]))
    longer: dict[str, Any] = {name: None if values is None else values[order] for name, values in arrays.items()}
    longer["y"][added] = np.nan
    for position, values in now.items():
        longer["X"][added, position] = values[cut]
    return longer


def count_unused(rows: Rows, part: slice) -> int:
    """Count the horizon rows with rewards other than 0 and NaN among some rows, none of them pending."""
    if rows.X_next is not None or not rows.last[part].any():
        return 0
    (horizon,) = (rows.last[part] & ~rows.terminated[part] & rows.known[part]).nonzero()
    return int(rows.y[part][horizon].any(axis=1).sum())


def warn_of_unused(lost: int, count: int) -> None:
    """Warn of `count` unused rewards if any is `lost`; that of a pending row is not, as the next chunk may use it."""
    if lost:
        warn(f"{unused_rewards(count)} {_REMEDY}", UnusedRewardWarning)


def unused_rewards(count: int) -> str:
    """Return a sentence about rewards that are not used."""
    what = "1 reward of a last row is" if count == 1 else f"{count} rewards of last rows are"
    return f"{what} not used: {'its' if count == 1 else 'their'} successor is unknown."
