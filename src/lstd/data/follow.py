"""Rows that follow one another: where episodes go on, and every rule about neighbouring rows.

A rule concerns a row and the next one. :func:`broken_pairs` and :func:`broken_by_missing` apply every rule to many
pairs at once, and state its words once. So a rule is the same for rows of one chunk of arrays, for those of a table,
where :mod:`lstd.data.episodes` follows them from file to file, and for the ends of two chunks; each route adds only its
name of the row:

- an episode that terminated does not go on under its id,
- an episode lies in one group, and its times increase,
- the reward of a row whose episode goes on is not missing, nor is another number of the transition,
- `X_next` and `groups` are given for all chunks or none; so is `episode`, where an episode may go on.

That an id does not reappear after others is a rule about all ids so far: see :mod:`lstd.data.seen_ids`.

The state of a stream between two chunks is its last row: :class:`lstd.data.rows.Rows` of length one, which
:meth:`lstd.data.rows.Rows.kept` copies. For fixed horizons it is the last rows of the last episode, up to the horizon.
Sums, estimators, snapshots and files hold such rows and no other form of them. :func:`follows` says whether the next
rows continue the episode, and refuses those that may not follow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lstd.data.arguments import shown_key
from lstd.data.identity import NO_VALUE
from lstd.data.ids import Fault, first_true
from lstd.data.rows import Rows
from lstd.data.time_steps import exact_numbers
from lstd.errors import InvalidInputError
from lstd.types import Flags

Signs = Flags | np.bool_ | bool  # of many rows or pairs, or of one
_UNEQUAL = 1.2  # factor by which steps may differ: months and the days of a clock that changes are equal steps
Shown = Callable[[str, int], str]  # the id of a row in "episode" or "groups", as messages show it; "" without ids
_IN_ORDER = "must increase within each episode"


class Broken(NamedTuple):
    """A rule, and the row that breaks it, in words that are the same on every route."""

    row: int  # of those that were looked at
    argument: str
    must: str  # the rule, after the name of the argument
    found: str  # what is wrong, after the place of the row
    remedy: str

    def error(self, place: str) -> InvalidInputError:
        """Return the error for a row of arrays, which the message calls `place`."""
        return InvalidInputError(f"`{self.argument}` {self.must}; {place} {self.found}. {self.remedy}")

    def fault(self, column: str | None, hint: str = "") -> Fault:
        """Return the fault of a row of a table, and of the column that is the argument; `hint` is one more remedy."""
        return Fault(self.row, str(column), f"{self.found}; it {self.must}. {self.remedy}{hint}")


def next_begins(other_id: Signs | None, ended: Signs) -> Signs:
    """Return whether the row after each row begins another episode: `other_id` says where ids differ.

    Where `other_id` is None, there are no ids, and the row after one in which an episode `ended` does.
    """
    if other_id is None:
        return ended
    return other_id


class Pairs(NamedTuple):
    """Rows and the next row of each, as the rules see them: flags of P pairs, or of one pair.

    None stands for a column that is not given, or is not to be checked.
    """

    together: Signs  # both are of one episode
    terminated: Signs | None = None  # the first one terminated
    torn: Signs | None = None  # they are of different groups
    earlier: Signs | None = None  # the next one is earlier
    at_once: Signs | None = None  # both have the same time


def broken_pairs(pairs: Pairs, shown: Shown) -> list[Broken]:
    """Return each rule about a row and the next one that some of the pairs break, and the row of the first of these."""
    found = []
    pair = _first(pairs.terminated, pairs.together)
    if pair is not None:
        name = shown("episode", pair)
        found.append(
            Broken(
                row=pair,
                argument="terminated",
                must="may be true only on the last row of an episode",
                found="is followed by a row of the same episode" + (name and f", {name}"),
                remedy="Rows that are not sorted by time are the likely cause: sort them, or give the rows after it "
                "another id.",
            )
        )
    pair = _first(pairs.torn, pairs.together)
    if pair is not None:
        before = shown("groups", pair)
        after = shown("groups", pair + 1)
        found.append(
            Broken(
                row=pair + 1,
                argument="groups",
                must="must be the same on all rows of an episode",
                found=f"has {after}, and the row before it, of the same episode, has {before}",
                remedy="Give rows of different groups different ids of episodes.",
            )
        )
    orders = (
        (pairs.earlier, "is earlier than", "Sort the rows of each episode by time."),
        (pairs.at_once, "has the time of", "Drop or merge such rows."),
    )
    for broken, what, remedy in orders:
        pair = _first(broken, pairs.together)
        if pair is not None:
            found.append(
                Broken(
                    row=pair + 1,
                    argument="time",
                    must=_IN_ORDER,
                    found=f"{what} the row before it, of the same episode",
                    remedy=remedy,
                )
            )
    return found


def broken_by_missing(
    argument: str, missing: Signs, together: Signs, terminated: Signs, *, flag: str, successors: bool
) -> Broken | None:
    """Return the first of some rows, (T,), or of one row, in which a number of the transition must not be missing.

    It may be missing in the last row of an episode that did not terminate. `together` says whether the next row is of
    the same episode, `flag` is the name of the column of `terminated`, and `successors` says whether every row is a
    transition.
    """
    row = _first(missing, together | terminated | successors)
    if row is None:
        return None
    must = "must be finite on every row but the last one of an episode that did not terminate"
    found = NO_VALUE
    if successors:
        must = "must be finite, since every row is a transition: successors are given, or rows are intervals"
        remedy = "Correct or impute it."
    elif np.atleast_1d(terminated)[row]:
        found = f"{NO_VALUE}, and {flag} is true in this row, which says that it is the last step"
        remedy = "Fill it in, or set the flag to 0 if the episode still goes on."
    else:
        remedy = (
            "If its episode was cut off there, give the rows after it another id, and sort the rows by time. Else "
            "correct or impute it: dropping rows inside an episode loses rewards and ends."
        )
    return Broken(row, argument, must, found, remedy)


def _first(sign: Signs | None, where: Signs) -> int | None:
    """Return the first row or pair with a sign, if there is one, among those `where` it is not allowed."""
    if sign is None:
        return None
    bad = sign & where
    if isinstance(bad, np.ndarray):
        return first_true(bad)
    return 0 if bad else None  # a single row or pair


# ------------------------------------------------------------ two chunks


_OF_TWO_CHUNKS = ("the last row of the chunk before", "the first row of the next chunk")


def follows(last: Rows, first: Rows, *, begins: bool | None = None) -> bool:
    """Return whether the first of the rows `first` continues the episode of the last of the rows `last`.

    Both have at least one row. `begins` says whether the next rows begin an episode; by default the ids do.

    Raises
    ------
    InvalidInputError
        When the rows may not follow one another in a stream.
    """
    check_given_throughout("X_next", last.X_next is not None, first.X_next is not None)
    check_given_throughout("groups", last.groups is not None, first.groups is not None)
    terminated = last.terminated[-1]
    if begins is None:
        if not terminated:  # else no episode goes on, with or without ids
            check_given_throughout("episode", last.episode is not None, first.episode is not None)
        together = has_same_episode(last, first)
    else:
        together = not begins
        if together and terminated:
            raise InvalidInputError("`begins` must be True after a row that terminated; got False.")
    if not together:
        return False
    pair = Pairs(together, terminated, torn=not in_group(last, first))
    is_missing = not last.known[-1]
    if pair.terminated or pair.torn or is_missing:  # else no rule can be broken, which is known in less time
        _check_pair(last, first, pair, is_missing=is_missing)
    return True


def _check_pair(last: Rows, first: Rows, pair: Pairs, *, is_missing: bool) -> None:
    """Raise the error of a rule that the last row of a chunk and the first one of the next chunk break, if any."""

    def shown(argument: str, row: int) -> str:
        if argument == "groups":
            return shown_key((last.last_group, first.first_group)[row])
        if last.episode is None:
            return ""
        return shown_key(last.last_episode)

    for broken in broken_pairs(pair, shown):
        raise broken.error(_OF_TWO_CHUNKS[broken.row])
    numbers = "` and `".join(["y", *sorted(last.given)])  # one of which is missing in a row that is not known
    lost = broken_by_missing(
        numbers,
        is_missing,
        pair.together,
        last.terminated[-1],
        flag="`terminated`",
        successors=last.X_next is not None,
    )
    if lost is not None:
        raise lost.error(_OF_TWO_CHUNKS[lost.row])


def check_given_throughout(name: str, before: bool, now: bool) -> None:
    """Refuse a column that was given `before` and is not `now`, or the reverse."""
    if before != now:
        raise InvalidInputError(f"`{name}` must be given for all chunks of a stream or for none.")


def has_same_episode(last: Rows, first: Rows) -> bool:
    """Return whether the last of `last` and the first of `first` are of one episode."""
    one = last.last_episode
    two = first.first_episode
    other_id = None
    if one is not None or two is not None:
        other_id = one != two
    return not next_begins(other_id, last.terminated[-1])


def in_group(last: Rows, first: Rows) -> bool:
    """Return whether the first of the rows `first` is of the group of the last of `last`; also without groups."""
    return last.last_group == first.first_group


def unit_goes_on(last: Rows | None, first: Rows | None, goes_on: bool) -> bool:
    """Return whether the group of the row before or, without groups, its episode goes on in the first of some rows.

    `goes_on` says whether the episode does. A block of data ends only where neither goes on.
    """
    if last is None or first is None or first.groups is None:
        return goes_on
    return in_group(last, first)


def begins_of_units(last: Rows | None, rows: Rows, goes_on: bool) -> Flags:
    """Return whether each row begins a group or, without groups, an episode, (T,); see :func:`unit_goes_on`."""
    begins = rows.begins
    begins[0] = not unit_goes_on(last, rows, goes_on)
    return begins


# ------------------------------------------------------------ equal steps


class Clock(NamedTuple):
    """What the steps of a stream so far say of its next rows."""

    time: float  # of the last row; an integer of nanoseconds for dates and durations
    step: float | None  # the usual one; None if there was none
    last: Rows  # of length one


@np.errstate(over="ignore", invalid="ignore")  # steps beyond float64 are not equal
def check_equal(times: NDArray[Any], rows: Rows, before: Clock | None = None) -> Clock | None:
    """Refuse times (T,) that do not increase in equal steps within each episode, and return the clock.

    The rows `before` may have begun the first episode. Without rows, the clock stays as it was.
    """
    if not len(rows):
        return before
    times, ticks = exact_numbers(times)
    goes_on = before is not None and follows(before.last, rows)
    first_step = 0.0
    if before is not None and goes_on:
        first_step = times[0].item() * ticks - before.time
    steps = np.append(first_step, np.diff(times) * float(ticks))  # that lead to each row
    within = np.append(goes_on, ~rows.last[:-1])  # of one episode
    pairs = Pairs(within, earlier=steps < 0.0, at_once=steps == 0.0)
    for broken in broken_pairs(pairs, lambda argument, row: ""):
        raise broken.error(f"row {broken.row - 1}")  # a pair is a row and the one before it

    usual = None
    if before is not None:
        usual = before.step
    if usual is None and within.any():
        usual = float(np.median(steps[within]))
    unit = abs(usual or 1.0)
    row = first_true(within & ~((steps <= _UNEQUAL * unit) & (_UNEQUAL * steps >= unit)))
    if row is not None:
        raise InvalidInputError(
            f"Steps must be equal: at row {row}, `time` grows by {steps[row] / unit:.3g} times the usual step of an "
            "episode. Make equal steps of a log with Trajectories.from_events. Where a subject was not seen for some "
            "steps, begin a new episode: end the one before the gap with a last row of the last known features and no "
            "reward, and name the subject by `groups`. Or repeat the last known features in the steps that are missing."
        )
    return Clock(times[-1].item() * ticks, usual, rows.last_row)
