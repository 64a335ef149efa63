"""Subjects that are still active but look closed: nearly all whom the log sees last are marked as ended.

A subject has one row at a time. Of the subjects with a row at the latest time of a log, few end just then, unless the
log marks every last row as an end. Where all subjects begin at the earliest time, the clock may be one of each episode,
and then the latest time is a fixed length. So nothing is said of such logs.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lstd.errors import TerminationWarning, warn
from lstd.types import Flags

_FEWEST = 10  # subjects that end at the latest time
_NEARLY_ALL, _MANY = 0.9, 0.3  # of the subjects seen at the latest time, and of all ends


class TimesOfEnds(NamedTuple):
    """Counts of rows at the earliest and the latest time of a log, and of ends; they merge exactly."""

    earliest: Annotated[Any, "time"] = None
    n_earliest: int = 0
    latest: Annotated[Any, "time"] = None
    n_latest: int = 0
    ended_latest: int = 0  # of the rows at the latest time, those that terminate
    ended: int = 0

    @classmethod
    def of(cls, times: NDArray[Any] | None, terminated: Flags) -> TimesOfEnds:
        """Count rows (T,); there is nothing to count without times."""
        if times is None or not len(times):
            return cls()
        first, last = times.min(), times.max()
        at_last = times == last
        return cls(
            first.item(), int(np.count_nonzero(times == first)), last.item(), int(np.count_nonzero(at_last)),
            int(np.count_nonzero(at_last & terminated)), int(np.count_nonzero(terminated)),
        )  # fmt: skip

    def then(self, other: TimesOfEnds) -> TimesOfEnds:
        """Return the counts of both."""
        if self.latest is None or other.latest is None:
            return other if self.latest is None else self
        first, last = min(self.earliest, other.earliest), max(self.latest, other.latest)
        starts = [c for c in (self, other) if c.earliest == first]
        ends = [c for c in (self, other) if c.latest == last]
        return TimesOfEnds(
            first, sum(c.n_earliest for c in starts), last, sum(c.n_latest for c in ends),
            sum(c.ended_latest for c in ends), self.ended + other.ended,
        )  # fmt: skip

    def check(self) -> None:
        """Warn if nearly all subjects seen at the latest time are marked as ended, and many ends lie there."""
        n = self.ended_latest
        if n < max(_FEWEST, _NEARLY_ALL * self.n_latest, _MANY * self.ended) or self.n_earliest >= 0.5 * self.ended:
            return
        warn(
            f"{n} of {self.ended} ends (`terminated`) lie at the latest time of the log, where {self.n_latest} "
            "subjects have a row. A log often marks each last row as an end. Subjects who are still active then look "
            "as if they had ended for good, and their values are too low wherever rewards go on. Leave `terminated` "
            "false for them, and give each a horizon row: a last row with the features of today and no reward.",
            TerminationWarning,
        )


NO_TIMES = TimesOfEnds()
