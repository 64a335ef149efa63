"""The ChangeWarning of a stream whose errors are larger than its own history allows; see `change_detection`."""

from __future__ import annotations

from typing import Any

from lstd._kernels import change_detection
from lstd._kernels import recursive_state as layout
from lstd.errors import ChangeWarning, warn
from lstd.online.recursive_system import RecursiveSystem
from lstd.online.transition import Array


class ChangeCharts(RecursiveSystem):
    """A recursive least-squares estimator that keeps charts of its errors."""

    @property
    def drift_(self) -> float:
        """Size of recent errors, divided by the largest that the stream's own history allows; above 1, a warning."""
        return float(self._charts[:, change_detection.LEVEL].max())

    def _begin_charts(self) -> None:
        """Begin the charts of errors anew."""
        change_detection.begin(self._charts, vars(self).get("gamma", 1.0), self.n_features)
        self._counts[layout.CHANGED] = 0

    def _warn_of_change(self) -> None:
        """Warn if the stream has changed, and begin the charts anew."""
        if self._counts[layout.CHANGED]:
            warn(change_message(self._charts, self.n_updates, vars(self).get("forgetting", 1.0)), ChangeWarning)
            self._begin_charts()


def change_message(charts: Array, n_updates: int, forgetting: Any) -> str:
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
