"""Times of rows, and a cut among them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lstd.data import parsing as rules
from lstd.data.arguments import check_length
from lstd.data.parsing import first_true
from lstd.errors import InvalidInputError
from lstd.types import Flags


def check_times(values: ArrayLike, last: Flags) -> NDArray[Any]:
    """Return times (T,), numbers or times of NumPy, which must increase up to the `last` row of each episode."""
    check_length("time", np.asarray(values), "time", len(last))
    times = parse_times("time", values)
    if (row := first_true(~(times[1:] > times[:-1]) & ~last[:-1])) is not None:
        raise InvalidInputError(
            f"`time` must increase within each episode; row {row + 1} has {times[row + 1]} after {times[row]}. Sort "
            "the rows of each episode by time, and keep one row for each time."
        )
    return times


def parse_times(name: str, values: Any, kind: np.dtype[Any] | None = None) -> NDArray[Any]:
    """Return times as numbers, or as times of NumPy; with `kind`, those of another array, in its unit."""
    try:
        times = np.asarray(values)
        times = times.astype(kind) if kind is not None and kind.kind in "mM" else times
        found, fault = rules.times(times, name)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"`{name}` must hold numbers or dates: {error}.") from error
    if fault is not None:
        raise InvalidInputError(f"`{name}` must hold numbers or dates; row {fault.row} {fault.text}")
    return found.view(times.dtype) if times.dtype.kind in "mM" else found
