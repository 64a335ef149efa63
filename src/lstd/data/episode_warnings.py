"""Episodes that are unlikely to be meant as they are, though they break no rule: found, and warned of.

Rows may not follow one another although their episode goes on. A horizon row, the last one of an episode that was cut
off, may have a reward: only its features count, as the successor of the row before, and a reward there is not used.
Subjects that are still active may look closed: nearly all whom the log sees last are marked as ended.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lstd.data import parsing
from lstd.data.feature_arrays import Features
from lstd.data.rows import Rows, breaks, differ
from lstd.errors import BrokenEpisodeWarning, MissingTerminationWarning, UnusedRewardWarning
from lstd.errors import warn as give_warning
from lstd.types import Array, Flags

_COUNTED_TWICE = (
    ", and rows have an `importance_ratio`. If `{X_next}` holds expected successors under the target policy, leave the "
    "ratio out: it would count that policy twice. Use it only in `trace_coefficient`, as lstd.ope.LSTDQ does."
)
_TRACED = (
    ". The trace continues, because rows are taken in time order. If `{X_next}` holds expected successors, as for "
    "action values, pass `trace_coefficient`, such as min(1, ratio), in place of any `importance_ratio`, or use "
    "lstd.ope.LSTDQ. Give transitions that do not follow one another different ids in `episode`, or use lmbda=0."
)
_APART = " Give transitions that do not follow one another different ids in `episode`."
_ROWS_COUNTED, _FEWEST_COUNTED = 2**12, 20  # rows of which entries are counted: the first ones, and the fewest
_REMEDY = "Append a row with the features of the state that followed and no reward, or flag the episode as terminated."
_FEWEST = 10  # subjects that end at the latest time
_NEARLY_ALL, _MANY = 0.9, 0.3  # of the subjects seen at the latest time, and of all ends


# ------------------------------------------------------------ rows that do not follow one another


class Break(NamedTuple):
    """Successors that disagree with the rows after them, in what they are used for."""

    row: int | None  # that is not the successor given for the row before; None if most successors mix features
    traced: bool  # whether a trace connects the rows; if not, ratios count for the successors
    place: Any = None  # chunk or file


def find_break(rows: Rows, lmbda: float, before: Array | None = None, *, ids: bool | None = None) -> Break | None:
    """Return the first row that is not the successor of the row before it, if that makes the sums wrong.

    It does if a trace connects the two rows. At `lmbda` 0 there are no traces, and trace coefficients say where they
    end. In both cases it does if there are ratios, and `ids` of episodes (by default: those of `rows`) that connect the
    rows. Without ids, successors that mix features as no row does show that they are expected ones.

    `before` is the successor, by `X_next`, of the row before these, if its episode continues.
    """
    if rows.X_next is None or not len(rows):
        return None
    traced = lmbda > 0.0 and "trace_coefficient" not in rows.given
    with_ratios = "importance_ratio" in rows.given
    if not traced and with_ratios and _are_mixed(rows):
        return Break(None, traced)
    if not traced and not (with_ratios and (rows.episode is not None if ids is None else ids)):
        return None
    if before is not None and differ(rows.X[:1], before[np.newaxis, : rows.X.shape[1]])[0]:
        row: int | None = 0
    elif (after := parsing.first_true(breaks(rows))) is not None:
        row = after + 1
    else:
        return None
    return Break(row if rows.order is None else int(rows.order[row]), traced)


def warn_of_breaks(rows: Rows, lmbda: float, before: Array | None = None) -> bool:
    """Warn of what :func:`find_break` returns; return whether there is one."""
    found = find_break(rows, lmbda, before)
    if found is not None:
        warn_of_break(found)
    return found is not None


def warn_of_assumed(what: str) -> None:
    """Warn that episodes are taken as truncated; `what` says which argument is missing."""
    give_warning(
        f"{what}: every episode is taken as truncated, and only the features of its last row are used. Give "
        "`terminated`: true on the last row of episodes that ended for good, false elsewhere.",
        MissingTerminationWarning,
    )


def warn_of_break(found: Break, where: str = "", *, columns: bool = False) -> None:
    """Warn of a break in the arrays X and X_next, or in named `columns`, of the data named by `where`."""
    X, X_next, of = ("X", "X_next", " of `X`")
    if columns:
        X, X_next, of = ("features", "next_features", " (the first row of data is 1)")
    if found.row is None:
        text = "most rows of `{X_next}` have more entries other than zero than any row of `{X}`" + _COUNTED_TWICE
    else:
        text = "row {row}{of} is not the successor that `{X_next}` gives for the row before it, in the same episode"
        text += _TRACED if found.traced else _COUNTED_TWICE + _APART
    text = text.format(X=X, X_next=X_next, of=of, row=found.row)
    give_warning(f"{where}: {text}" if where else text[0].upper() + text[1:], BrokenEpisodeWarning)


def _are_mixed(rows: Rows) -> bool:
    """Whether most successors have more entries other than zero than any row, as expected ones of one-hot actions do.

    Observed successors are rows like others. With dense features, or a policy that takes one action, it does not show.
    """
    first = slice(0, _ROWS_COUNTED)
    both: tuple[Features, Features] = (rows.X, rows.X_next)
    X, X_next = ((phi[first] != 0.0).sum(axis=1) for phi in both)
    of_inner = X_next[~rows.terminated[first]]
    return len(of_inner) >= _FEWEST_COUNTED and bool(np.mean(of_inner > X.max()) > 0.5)


# ------------------------------------------------------------ rewards of horizon rows


def unused_rows(rows: Rows, end: int) -> NDArray[np.intp]:
    """Return the horizon rows with rewards other than 0 and NaN among the rows before `end`, none of them pending."""
    if rows.X_next is not None or not rows.last[:end].any():
        return np.empty(0, np.intp)
    (horizon,) = (rows.last[:end] & ~rows.terminated[:end] & rows.known[:end]).nonzero()
    return horizon[rows.y[horizon].any(axis=1)]


def warn_of_unused(lost: int, count: int) -> None:
    """Warn of `count` unused rewards if any is `lost`; that of a pending row is not, as the next chunk may use it."""
    if lost:
        give_warning(f"{unused_rewards(count)} {_REMEDY}", UnusedRewardWarning)


def unused_rewards(count: int) -> str:
    """Return a sentence about rewards that are not used."""
    what = "1 reward of a last row is" if count == 1 else f"{count} rewards of last rows are"
    return f"{what} not used: {'its' if count == 1 else 'their'} successor is unknown."


# ------------------------------------------------------------ subjects that look closed


class TimesOfEnds(NamedTuple):
    """Counts of rows at the earliest and the latest time of a log, and of ends; they merge exactly.

    A subject has one row at a time. Of the subjects with a row at the latest time of a log, few end just then, unless
    the log marks every last row as an end. Where all subjects begin at the earliest time, the clock may be one of each
    episode, and then the latest time is a fixed length. So nothing is said of such logs. Where a whole log is at hand,
    a last row counts as one at the latest time within a step of it, and a first row likewise.
    """

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

    @classmethod
    def of_whole(cls, times: NDArray[Any], terminated: Flags, last: Flags) -> TimesOfEnds:
        """Count first and last rows of the episodes of a whole log, (T,), within its typical step."""
        within = (times[1:] - times[:-1])[~last[:-1]]
        if not len(within):
            return cls.of(times, terminated)
        step, begins = np.sort(within)[len(within) // 2], np.append(True, last[:-1])
        early = begins & ((times - times.min() < step) | (times == times.min()))
        late = last & ((times.max() - times < step) | (times == times.max()))
        return cls(
            times.min().item(), int(np.count_nonzero(early)), times.max().item(), int(np.count_nonzero(late)),
            int(np.count_nonzero(late & terminated)), int(np.count_nonzero(terminated)),
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

    def doubt(self) -> str:
        """Say that nearly all subjects seen at the latest time are marked as ended, and many ends lie there, if so."""
        n = self.ended_latest
        if n < max(_FEWEST, _NEARLY_ALL * self.n_latest, _MANY * self.ended) or self.n_earliest >= 0.5 * self.ended:
            return ""
        return (
            f"{n} of {self.ended} ends (`terminated`) lie at the latest time of the log, where {self.n_latest} "
            "subjects have a row. A log often marks each last row as an end. Subjects who are still active then look "
            "as if they had ended for good, and their values are too low wherever rewards go on. Leave `terminated` "
            "false for them, and give each a horizon row: a last row with the features of today and no reward. Only if "
            "no reward can follow, as after the last day of a season, they have ended."
        )


NO_TIMES = TimesOfEnds()
