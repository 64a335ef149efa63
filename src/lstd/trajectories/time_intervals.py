"""Tables of intervals, as in survival analysis: a row per subject and interval [start, stop), the event at its end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lstd.data.arguments import check_real
from lstd.data.parsing import first_true
from lstd.errors import InvalidInputError
from lstd.trajectories.parsing_frames import FrameColumns
from lstd.types import Array, Flags

_SAME = 1e-9  # relative difference between equal times that were computed in different ways
_NAMES = ("start", "stop", "event")


def interval_roles(roles: Mapping[str, list[str]], gamma: Any) -> dict[str, list[str]]:
    """Return roles where `start` is the time and `event` terminates, unless the table has no intervals."""
    given = [name for name in _NAMES if name in roles]
    if not given:
        if gamma is not None:
            raise InvalidInputError(
                "`gamma` must be None without `start`, `stop` and `event`; pass it to the estimator instead."
            )
        return dict(roles)
    for name in (*_NAMES, "episode"):
        if name not in roles:
            raise InvalidInputError(
                f"`{name}` must be given with `{given[0]}`, to read a table of intervals; got None."
            )
    for name in ("time", "terminated", "truncated", "discount"):
        if name in roles:
            raise InvalidInputError(f"`{name}` must be None with `start`, `stop` and `event`, which replace it.")
    return {**roles, "time": roles["start"], "terminated": roles["event"]}


def read_lengths(table: FrameColumns, last: Flags) -> Array:
    """Read the lengths of intervals, (T,); raises InvalidInputError unless those of a subject follow one another."""
    start, stop = table.numbers("start"), table.numbers("stop")
    lengths = np.asarray(stop - start)
    if (row := first_true(~(lengths > 0.0))) is not None:
        what = "equals the start" if lengths[row] == 0.0 else f"is before the start, {start[row]:g}"
        raise table.error(table.roles["stop"][0], row, f"has {stop[row]:g}, which {what}; correct it, or drop the row.")
    ahead = np.where(last[:-1], 0.0, start[1:] - stop[:-1])
    row = first_true(np.abs(ahead) > _SAME * np.maximum(np.abs(start[1:]), lengths[1:]))
    if row is not None:
        what = f"{start[row + 1]:g}, but the interval before it ends at {stop[row]:g}"
        remedy = "they overlap: cut or merge them."
        if ahead[row] > 0.0:
            remedy = "add a row for the gap, with the features that held then, or give the rows after it another id."
        raise table.error(table.roles["start"][0], row + 1, f"has {what}; {remedy}")
    return lengths


def rewards_of(lengths: Array, gamma: float | None) -> tuple[Array, Array]:
    """Return ∫₀^Δ γ^s ds = (1 − γ^Δ) / (−log γ) and γ^Δ for each length Δ; Δ and 1 at γ = 1."""
    gamma = 1.0 if gamma is None else check_real("gamma", gamma, 0.0, 1.0)
    if gamma in (0.0, 1.0):
        return lengths * gamma, np.full(len(lengths), gamma)
    rate = -np.log(gamma)
    return -np.expm1(-rate * lengths) / rate, np.exp(-rate * lengths)
