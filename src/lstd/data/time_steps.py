"""Times of rows in steps since the earliest, for checks of what depends on the calendar."""

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


def steps_since_earliest(times: NDArray[Any], last: Flags) -> Array | None:
    """Return the steps from the earliest time to each row, (T,); None where no row of an episode is a step later.

    A step is the median difference of the times (T,) of two rows that follow one another in an episode; `last` are the
    last rows of the episodes.

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
    return np.asarray((numbers - numbers.min()) / step)
