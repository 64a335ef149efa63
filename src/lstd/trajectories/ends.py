"""When observation of each id of a log of events ended: at the end of the log, unless it was seen to its own date.

The last row of an id is at the last edge that is not after this moment: a horizon row, since the step that begins there
was not seen whole. Of an id that ended for good at this moment, such as by death, that step is its last one instead,
with what it brought, and terminates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lstd.data.ids import first_true
from lstd.errors import InvalidInputError
from lstd.trajectories.frame import FrameRows
from lstd.types import Array, Flags

OBSERVED = "observed_until"
ENDED = "ended"


class Ends(NamedTuple):
    """Where the rows of I ids end at the latest."""

    edge: NDArray[np.intp]  # (I,) place of the edge of the last row
    terminated: Flags  # (I,) whether the id ends for good in the step of that edge


def check_ends(columns: dict[str, Any]) -> None:
    """Check that `ended` comes with what it is about."""
    if columns[ENDED] is not None and columns[OBSERVED] is None:
        raise InvalidInputError(
            f"`{ENDED}` must be None without `{OBSERVED}`, the column of when; got {columns[ENDED]!r}. For an id that "
            "ends with an event, name the column of flags of events as `terminated`."
        )


def read_ends(
    table: FrameRows,
    code: NDArray[np.intp],
    times: NDArray[Any],
    edges: NDArray[Any],
    snapped: Callable[[Array], Array] | None,
) -> Ends:
    """Return the ends of ids of all rows of a log, whose ids have the numbers `code`, (T,).

    `times` (T,) and `edges` are numbers. Of ends that are floats, `snapped` puts those on an edge that are within
    rounding of it.
    """
    n_ids = int(code.max()) + 1
    until = len(edges) - 1
    if OBSERVED not in table.roles:
        return Ends(np.full(n_ids, until), np.zeros(n_ids, np.bool_))
    rows, values = table.moments(OBSERVED)
    if snapped is not None:
        values = snapped(values.astype(np.float64))
    moment = np.full(len(code), edges[-1])  # of each row of the log; not used where it is not known
    moment[rows] = values
    is_known = np.zeros(len(code), np.bool_)
    is_known[rows] = True
    has_ended = np.zeros(len(code), np.bool_)
    if ENDED in table.roles:
        has_ended = table.flags(ENDED)
    _, one, place = np.unique(code, return_index=True, return_inverse=True)  # a row of each id
    one = one[place]
    _refuse(table, OBSERVED, (moment != moment[one]) | (is_known != is_known[one]), _DIFFERS)
    _refuse(table, ENDED, has_ended != has_ended[one], _DIFFERS)
    _refuse(table, ENDED, has_ended & ~is_known, _UNKNOWN)
    _refuse(table, "time", is_known & (times > moment), _LATE)

    before_until = is_known & (moment < edges[-1])
    last = np.full(n_ids, until)
    last[code[before_until]] = np.searchsorted(edges, moment[before_until], side="right") - 1
    terminated = np.zeros(n_ids, np.bool_)
    terminated[code[before_until & has_ended]] = True
    return Ends(last, terminated)


_DIFFERS = "differs from another row of the same id. Give the same in all rows of an id, also where it is missing."
_UNKNOWN = f"is true, but when the id ended is missing in `{OBSERVED}`. Give the time, or correct the flag."
_LATE = f"is after the end of observation of its id, `{OBSERVED}`. Correct one of the two, or drop the event."


def _refuse(table: FrameRows, role: str, is_wrong: Flags, text: str) -> None:
    """Raise the error of the first wrong row."""
    row = first_true(is_wrong)
    if row is not None:
        raise table.error(table.roles[role][0], row, text, role)
