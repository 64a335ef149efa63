"""Times of rows in steps since the earliest, and when the step of each row is over."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstd.types import Array, Flags

NANOSECONDS = {"us": 1000, "ns": 1}  # in the units that hold dates and durations of tables exactly


def numbers_of(times: NDArray[Any]) -> Array:
    """Return times (T,), numbers or times of NumPy, as float64; microseconds for the latter."""
    if times.dtype.kind in "mM":
        times = times.astype(f"{times.dtype.kind}8[us]")
    return np.asarray(times.astype(np.float64))


def exact_numbers(times: NDArray[Any]) -> tuple[NDArray[Any], int]:
    """Return times (T,) as numbers, and how many nanoseconds one is, so that products compare exactly.

    It is 1 for times that are numbers.
    """
    kind = times.dtype.kind
    if kind == "u":
        return times.astype(np.float64), 1
    if kind not in "mM":
        return times, 1
    unit, _ = np.datetime_data(times.dtype)
    if unit != "ns":
        unit = "us"
    return times.astype(f"{kind}8[{unit}]").astype(np.int64), NANOSECONDS[unit]


def steps_since_earliest(times: NDArray[Any], last: Flags, earliest: Any = None) -> Array | None:
    """Return the steps from the earliest time to each row, (T,); None where no row of an episode is a step later.

    A step is the median difference of the times (T,) of two rows that follow one another in an episode; `last` are the
    last rows of the episodes. The `earliest` time is that of a log of which these are some rows, by default theirs.

    Examples
    --------
    >>> import numpy as np
    >>> from lstd.data.time_steps import steps_since_earliest
    >>> steps_since_earliest(np.array([20.0, 27.0, 34.0, 27.0, 34.0]), np.array([False, False, True, False, True]))
    array([0., 1., 2., 1., 2.])
    """
    numbers = numbers_of(times)
    differences = np.diff(numbers)[~last[:-1]]
    if not len(differences):
        return None
    step = float(np.median(differences))
    if not step > 0.0:
        return None
    begin = numbers.min()
    if earliest is not None:
        (begin,) = numbers_of(np.asarray(earliest)[np.newaxis])
    return np.asarray((numbers - begin) / step)


_SAME_CALENDAR = 0.25  # of a step, by which steps of one calendar differ at most, as months do


def ends_of_steps(times: NDArray[Any], last: Flags) -> NDArray[Any]:
    """Return when the step of each row is over, (T,), as `exact_numbers` returns times.

    That is the time of the next row. The last row of an episode has none: its step is taken to be as long as the one
    before it, or as the median step where it is the only row. Of steps of others that begin at the same time, the
    nearest in length decides, so that the months of a calendar are as long as they are. Where no row of any episode
    follows another, a step has no length.

    Parameters
    ----------
    times : ndarray of shape (T,)
        Numbers or times of NumPy, which increase within each episode.
    last : ndarray of bool, shape (T,)
        The last rows of the episodes.

    Examples
    --------
    >>> import numpy as np
    >>> from lstd.data.time_steps import ends_of_steps
    >>> ends_of_steps(np.array([0, 31, 59, 31, 59, 90]), np.array([False, False, True, False, False, True]))
    array([ 31,  59,  90,  59,  90, 121])
    """
    begin, _ = exact_numbers(times)
    begin = begin.astype(np.float64 if begin.dtype.kind == "f" else np.int64)
    goes_on = np.flatnonzero(~last)
    (finals,) = np.nonzero(last)
    end = begin.copy()
    if not len(goes_on):
        return end
    end[goes_on] = begin[goes_on + 1]

    lengths = end[goes_on] - begin[goes_on]
    length = np.full(len(finals), np.sort(lengths)[(len(lengths) - 1) // 2])
    has_step_before = ~np.append(True, last[:-1])[finals]
    before = finals[has_step_before] - 1
    length[has_step_before] = end[before] - begin[before]
    end[finals] = _of_calendar(begin[goes_on], end[goes_on], begin[finals], length)
    return end


def _of_calendar(begin: NDArray[Any], end: NDArray[Any], start: NDArray[Any], length: NDArray[Any]) -> NDArray[Any]:
    """Return start + length, or the nearest end of the steps (begin, end) that begin at the same time."""
    order = np.lexsort((end, begin))
    begin = begin[order]
    end = end[order]
    ends = start + length
    first = np.searchsorted(begin, start, "left")
    stop = np.searchsorted(begin, start, "right")
    for row in np.flatnonzero(first < stop):
        candidates = end[first[row] : stop[row]]
        at = np.searchsorted(candidates, ends[row])
        around = candidates[max(0, at - 1) : at + 1]
        nearest = around[np.argmin(np.abs(around - ends[row]))]
        if abs(nearest - ends[row]) <= _SAME_CALENDAR * length[row]:
            ends[row] = nearest
    return np.asarray(ends)
