"""Warnings of a live stream: that it has changed or jumped, and that predictions are outside of what rewards allow."""

from __future__ import annotations

import numpy as np

from lstd._kernels import change_detection
from lstd.data.doubts import FEWEST, bounds_of, distance, percent, sides
from lstd.data.rows import Rows
from lstd.errors import BoundsWarning, BrokenEpisodeWarning, ChangeWarning, warn
from lstd.types import Array

_FAR = 0.25  # of the range that rewards allow, beyond which a prediction is far outside of it
_MOST = 0.05  # of the predictions, that may be far outside


@np.errstate(all="ignore")  # an overflow shows as inf or NaN, of which nothing is said
def warn_of_bounds(beyond: Array, rows: Rows, predictions: Array, boundary_share: float) -> Array:
    """Warn once if predictions (T, m), made before their rows, are far outside of what the rewards before them allow.

    At γ = 1, where one side has no bound, none is far outside. Returns `beyond` (4, m) after these rows: the number of
    rows, the least and the greatest reward or zero, and the number of predictions far outside after the first rows, −1
    after the warning. `boundary_share` is that of the variant, which says what to do.
    """
    n, least, most, before = beyond
    if before[0] < 0.0:
        return beyond
    low = np.minimum.accumulate(np.vstack([least, rows.y]), axis=0)
    high = np.maximum.accumulate(np.vstack([most, rows.y]), axis=0)
    first = min(max(0, FEWEST - int(n[0])), len(rows))
    gamma = max(rows.gamma, float(rows.discount.max()))
    made = predictions[first:]
    bounds = bounds_of(low[first:-1], high[first:-1], gamma, ends=True, intercept=False)
    far = before + np.cumsum(distance(made, bounds) > _FAR * (bounds[1] - bounds[0]), axis=0)
    count = n[0] + np.arange(first + 1.0, len(rows) + 1.0)[:, np.newaxis] - FEWEST
    beyond = np.stack([n + len(rows), low[-1], high[-1], far[-1] if len(far) else before])
    due = (far > _MOST * count) & (count >= FEWEST)
    if due.any():
        t, j = np.argwhere(due)[0].tolist()
        beyond[3] = -1.0
        outside = sides(made[: t + 1, j], bounds[:, : t + 1, j])
        share = float(far[t, j] / count[t, 0])
        warn(_bounds_message(outside, share, boundary_share), BoundsWarning)
    return beyond


def _bounds_message(outside: str, share: float, boundary_share: float) -> str:
    """Say which predictions are outside of what the rewards allow, and what to do."""
    why = "Too few data count to determine the weights. Use a larger `alpha`, fewer features or less forgetting"
    if boundary_share:
        why = (
            "Where few data count, the end of the stream decides the weights of this variant. Use "
            'variant="uncorrected", whose predictions stay inside, a smaller `gamma` or less forgetting'
        )
    of_last_rows = ""
    if outside:
        of_last_rows = f" (of the last rows, {outside})"
    return (
        f"Of the predictions made before their rewards, {percent(share)} are outside of what the rewards so far allow, "
        f"by more than a quarter of that range{of_last_rows}. {why}."
    )


def warn_of_change(charts: Array, n_updates: int, forgetting: float | str, row: str = "") -> None:
    """Say what has changed, after the name of a row if it has one, and what to do."""
    highest = charts[charts[:, change_detection.LEVEL].argmax(), change_detection.HIGHEST]
    texts = {
        change_detection.UP: "rewards higher than predicted",
        change_detection.DOWN: "rewards lower than predicted",
    }
    found = texts.get(int(highest), "errors larger than before")
    remedy = "Set `forgetting` below 1 (0.999 keeps about the last 1000 transitions), or start a new model."
    if forgetting != 1.0:
        rate = "gradually" if isinstance(forgetting, str) else f"within some {1 / (1 - forgetting):.0f} transitions"
        remedy = f"The model forgets earlier transitions {rate}; start a new one if that is too slow."
    warn(
        f"{row}After {n_updates} updates, recent errors are larger than the stream's own history allows: "
        f"{found}. The stream has probably changed. {remedy}",
        ChangeWarning,
    )


def warn_of_jump(n_updates: int, ratio: float) -> None:
    """Say that a row, whose transition has this ratio, is not the successor of the last one."""
    twice = (
        " If `x_next` is the expected successor under the target policy, leave `importance_ratio` out: it would count "
        "that policy twice."
    )
    warn(
        f"`x` differs from `x_next` of update {n_updates}, which neither terminated nor was "
        "truncated: the episode is assumed to continue, and each transition keeps its own `x` and "
        "`x_next`. Pass truncated=True with the last transition of an episode that was cut off."
        + (twice if ratio != 1.0 else ""),
        BrokenEpisodeWarning,
    )
