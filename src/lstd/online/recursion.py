"""A recursive least-squares estimator while it learns: recorded rows, and the checks and warnings after an update."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lstd._kernels import change_detection, sample_size
from lstd._kernels import recursive_state as layout
from lstd._kernels import recursive_update as kernels
from lstd._kernels.recursive_state import CHECK_AT, DONE, MOMENT, READING, UPDATES
from lstd.data.doubts import FEWEST, MOST, bounds_of, distance, percent, sides, warn_of_ratios
from lstd.data.rows import Rows
from lstd.errors import BoundsWarning, ChangeWarning, warn
from lstd.online.lost_digits import DigitChecks
from lstd.online.recursive_system import CHECKED_AT, CORRECTED, SOLVED
from lstd.online.transition import compiled
from lstd.types import Array


class Block(NamedTuple):
    """Recorded rows in the form of `recursive_update.stream`."""

    X: Array  # (T, n)
    X_next: Array  # (T, n)
    y: Array  # (T, m)
    numbers: Array  # (T, 4)
    kinds: NDArray[np.int8]


class Recursion(DigitChecks):
    """A recursive least-squares estimator that learns rows, keeps the sums of blocks, and gives warnings."""

    forgetting: float | str
    variant: str
    _beyond: Array  # (7, m); see `_warn_of_bounds`
    update: Any  # of one transition; see `RecursiveLSTD`
    _cut_off: Any  # of the episode, at the last successor

    @property
    def drift_(self) -> float:
        """Size of recent errors, divided by the largest that the stream's own history allows; above 1, a warning."""
        return float(self._charts[:, change_detection.LEVEL].max())

    def _begin_charts(self) -> None:
        """Begin the charts of errors anew."""
        change_detection.begin(self._charts, self.gamma, self.n_features)
        self._counts[layout.CHANGED] = 0

    def _warn_of_change(self) -> None:
        """Warn if the stream has changed, and begin the charts anew."""
        if self._counts[layout.CHANGED]:
            warn(_change_message(self._charts, self.n_updates, self.forgetting), ChangeWarning)
            self._begin_charts()

    def learn_block(self, block: Block, first: int, predictions: Array) -> int:
        """Learn the rows of a block from `first` on; returns the row at which :meth:`update` must go on.

        `predictions`, (T, m) or with no rows, is filled with those for each row before its transition is learned.
        """
        if not (self._single and self._typed):
            return first
        compiled(kernels, "stream")
        while first < len(block.y):
            first, code = kernels.stream(*block, first, predictions, self._state)
            if code < DONE:
                break
            if code != DONE:
                self._check(code)
        return int(first)

    def _check(self, code: int) -> None:
        """Run a check if one is due; an update that lost digits brings the next check forward."""
        counts = self._counts
        if self._scalars[layout.GROWTH] >= layout.RESCALED_AT:
            self._rescale()
        self._mark()
        self._warn_of_change()
        if code != layout.CHECK:
            return
        if counts[UPDATES] < counts[CHECK_AT]:  # digits were lost
            if counts[READING] == SOLVED:
                return
            counts[READING], self._scalars[layout.CONDITION] = CORRECTED, np.inf
            if counts[CHECKED_AT]:  # before the first check, there may be too few transitions for a regular system
                counts[CHECK_AT] = min(counts[CHECK_AT], max(counts[UPDATES], counts[CHECKED_AT] + self._shortest()))
        if counts[UPDATES] >= counts[CHECK_AT]:
            self._warn_of_ratios()
            self._examine()

    def _mark(self) -> None:
        """Keep the sums if a block of the stream ends here."""
        counts, episodes = self._counts, int(self._counts[layout.EPISODES])
        ends = not episodes or self._scalars[layout.DECAY] == 0.0
        if ends and 0 < counts[layout.BLOCK_AT] <= counts[UPDATES]:
            compiled(kernels, "transposed_system")
            transposed = np.empty((self.n_features, self.n_features))
            kernels.transposed_system(0.0 if episodes else 1.0, self._state, transposed)
            b = self._state[[MOMENT], : self.n_features]
            if self.n_rewards is not None:
                b = np.concatenate([b, self._others[1, :, : self.n_features]])
            self._blocks.add(self.n_updates, transposed, b, episodes)
            counts[layout.BLOCK_AT] = self._blocks.next_end

    @np.errstate(all="ignore")
    def _warn_of_ratios(self) -> None:
        """Give the EffectiveSampleWarning of the batch estimator, once until the sample is large again."""
        sample = self._state[layout.SAMPLE, : sample_size.N_SAMPLE]
        if sample[sample_size.BEGUN] == 0.0:
            return
        sums = sample[sample_size.FIRST :].reshape(3, 4)
        size, off_policy = sums[:, sample_size.TOTAL] ** 2 / sums[:, sample_size.SQUARE], sample[sample_size.OFF_POLICY]
        if sample[sample_size.SILENT] == 0.0:
            sample[sample_size.SILENT] = warn_of_ratios(size, bool(off_policy), self.lmbda)

    @np.errstate(all="ignore")  # an overflow shows as inf or NaN, of which nothing is said
    def _warn_of_bounds(self, rows: Rows, predictions: Array) -> None:
        """Warn once if predictions (T, m), made before their rows, are outside of what the rewards before them allow.

        `_beyond` has the number of rows, the least and the greatest reward or zero, and of predictions after the first
        rows the number, −1 after the warning, the sum, the sum of squares, and that of squared distances to the bounds.
        """
        n, least, most = self._beyond[:3]
        if self._beyond[3, 0] < 0.0:
            return
        low = np.minimum.accumulate(np.vstack([least, rows.y]), axis=0)
        high = np.maximum.accumulate(np.vstack([most, rows.y]), axis=0)
        later = slice(max(0, FEWEST - int(n[0])), None)
        gamma = max(self.gamma, float(rows.discount.max()))
        bounds = bounds_of(low[:-1][later], high[:-1][later], gamma, ends=True, intercept=False)
        made = predictions[later]
        steps = np.stack([np.ones_like(made), made, made**2, distance(made, bounds) ** 2])
        sums = self._beyond[3:, np.newaxis] + steps.cumsum(axis=1)
        if not (len(made) and np.isfinite(sums[:, -1]).all()):
            self._beyond[:3] = n + len(rows), low[-1], high[-1]
            return
        self._beyond = np.concatenate([[n + len(rows), low[-1], high[-1]], sums[:, -1]])
        count, total, square, excess = sums
        certain = np.where(count >= FEWEST, excess / np.maximum(square - total**2 / count, 0.0), 0.0)
        t, j = np.unravel_index(np.argmax(np.nan_to_num(certain, posinf=np.inf)), certain.shape)
        if certain[t, j] > MOST:
            self._beyond[3] = -1.0
            outside = sides(made[: t + 1, j], bounds[:, : t + 1, j])
            warn(_bounds_message(outside, float(certain[t, j]), self.variant), BoundsWarning)


def _bounds_message(outside: str, certain: float, variant: str) -> str:
    """Say which predictions are outside of what the rewards allow, and what to do."""
    why = (
        "Too few data count to determine the weights. Use a larger `alpha`, fewer features or less forgetting"
        if variant == "uncorrected"
        else "Where few data count, the end of the stream decides the weights of this variant. Use "
        'variant="uncorrected", whose predictions stay inside, a smaller `gamma` or less forgetting'
    )
    return (
        "Predictions made before their rewards are outside of what the rewards so far allow"
        f"{f' (of the last rows, {outside})' if outside else ''}. At least {percent(certain)} of their "
        f"variance is error. {why}."
    )


def _change_message(charts: Array, n_updates: int, forgetting: float | str) -> str:
    """Say what has changed, and what to do."""
    highest = charts[charts[:, change_detection.LEVEL].argmax(), change_detection.HIGHEST]
    found = {
        change_detection.UP: "rewards higher than predicted", change_detection.DOWN: "rewards lower than predicted",
    }.get(int(highest), "errors larger than before")  # fmt: skip
    remedy = "Set `forgetting` below 1 (0.999 keeps about the last 1000 transitions), or start a new model."
    if forgetting != 1.0:
        rate = "gradually" if isinstance(forgetting, str) else f"within some {1 / (1 - forgetting):.0f} transitions"
        remedy = f"The model forgets earlier transitions {rate}; start a new one if that is too slow."
    return (
        f"After {n_updates} updates, recent errors are larger than the stream's own history allows: {found}. The "
        f"stream has probably changed. {remedy}"
    )
