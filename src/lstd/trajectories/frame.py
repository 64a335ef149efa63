"""Long tables as arrays of the data contract: one row per state, or per interval as in survival analysis."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd.data.arguments import check_choice, check_columns, check_integer, check_real
from lstd.data.episode_warnings import warn_of_assumed
from lstd.data.follow import Episodes, Marks
from lstd.data.ids import EPISODE_AGAIN, Ids, last_rows
from lstd.data.parsing import check_not_infinite, check_not_outside, first_true
from lstd.data.rows import COLUMNS
from lstd.errors import InvalidInputError, TerminationWarning, warn
from lstd.trajectories.frame_columns import FrameColumns
from lstd.types import Array, Flags

_SAME = 1e-9  # relative difference between equal times that were computed in different ways
_OF_INTERVALS = ("start", "stop", "event")
_PER_TRANSITION = (*COLUMNS, "behavior_probability")


def read_frame(
    frame: Any, columns: Mapping[str, Any], *, sort: bool = False, gamma: float | None = None, first_row: int = 0
) -> dict[str, Any]:
    """Read a table and return the arguments of `Trajectories`; see `Trajectories.from_frame`.

    `columns` holds the arguments of `from_frame` that name columns, by their names.
    """
    roles = interval_roles(_check_roles(columns), gamma)
    spans = "start" in roles
    if sort and "time" not in roles:
        raise InvalidInputError("`sort` needs `time`, a column to sort by; got None.")
    if "reward" not in roles and not spans:
        raise InvalidInputError("`reward` must name a column, unless `start`, `stop` and `event` do; got None.")
    table = FrameColumns(frame, roles, check_integer("first_row", first_row, 0))
    if sort:
        table.sort()
    marks = {role: table.ids(role) if role in roles else None for role in ("episode", "groups")}
    arrays: dict[str, Any] = {role: None if ids is None else table.id_values(role, ids) for role, ids in marks.items()}
    arrays["y"], arrays["time"] = None, table.dates() if "time" in roles and not spans else None
    if "reward" in roles:
        y = table.matrix("reward", check_not_infinite)
        arrays["y"] = np.ascontiguousarray(y[:, 0]) if isinstance(columns["reward"], str) else y
    for role in roles:
        if role in _PER_TRANSITION:
            high = 1.0 if role == "discount" else np.inf
            arrays[role] = table.numbers(role, check=partial(check_not_outside, high=high))
    arrays["terminated"], last = _follow(table, arrays, marks)
    arrays["X"], cut = table.matrix("features"), last & ~arrays["terminated"]
    if spans:
        times, arrays["discount"] = rewards_of(read_lengths(table, last), gamma)
        arrays["y"] = times if arrays["y"] is None else arrays["y"]
    if "action" in roles:
        arrays["actions"] = table.labels("action", cut & (not spans))
    if spans:
        names, stop = roles["features"], table.numbers("stop")
        now = {names.index(name): stop for name in roles["start"] if name in names}
        arrays = with_horizon_rows(arrays, cut, now)
    if "episode" in roles and "terminated" not in roles and "truncated" not in roles:
        warn_of_assumed(f"`episode` ({columns['episode']!r}) was given without `terminated`")
    for value in arrays.values():
        if value is not None:
            value.setflags(write=False)
    return arrays | {"feature_names": roles["features"]}


def _check_roles(columns: Mapping[str, Any]) -> dict[str, list[str]]:
    """Check the names of columns; returns the list of names of each argument that was given."""
    roles = {
        role: [*check_columns(role, given, several=role in ("features", "reward"))]
        for role, given in columns.items()
        if given is not None or role == "features"
    }
    known_later = {
        name: role for role in ("reward", "terminated", "truncated", "stop", "event") for name in roles.get(role, ())
    }
    for name in roles["features"]:
        if name in known_later:
            raise InvalidInputError(
                f"`features` must not contain the `{known_later[name]}` column {name!r}, which is not known "
                "until the row is left. Drop it, or use a copy of it shifted by one row within each episode."
            )
    return roles


def _follow(table: FrameColumns, arrays: dict[str, Any], marks: dict[str, Ids | None]) -> tuple[Flags, Flags]:
    """Flag the rows that terminate and the last rows of episodes, which are numbered if they have no ids.

    Raises InvalidInputError where rows break a rule about their neighbours.
    """
    roles, size = table.roles, len(table)
    terminated, truncated = (
        table.flags(role) if role in roles else np.zeros(size, dtype=np.bool_) for role in ("terminated", "truncated")
    )
    columns = SimpleNamespace(
        **{role: roles.get(role, [None])[0] for role in ("episode", "terminated", "truncated", "groups", "time")},
        rewards=roles.get("reward", []),
        transitions={role: roles[role][0] for role in roles if role in _PER_TRANSITION},
        next_features="start" in roles,  # every interval is a full transition
    )
    rewards = [] if arrays["y"] is None else [arrays["y"]]
    missing = np.isnan(
        np.column_stack([np.empty((size, 0)), *rewards, *(arrays[role] for role in columns.transitions)])
    )
    times = table.times() if "time" in roles else None
    again = EPISODE_AGAIN + (" With sort=True, rows are sorted by the column of time." if "time" in roles else "")
    episodes = Episodes(columns, lambda _, column, row, text: table.error(column, row, text), again, whole=True)
    numbers = episodes.follow("", 0, Marks(marks["episode"], marks["groups"], terminated, truncated, missing, times))
    episodes.finish()
    if "start" in roles:  # else `Trajectories` have the times
        warn(episodes.state.times.doubt(), TerminationWarning)
    last = last_rows(numbers)
    if "truncated" in roles and "terminated" not in roles:
        flagged = truncated | np.append(False, truncated[:-1] & ~last[:-1])
        if (row := first_true(last & ~flagged)) is not None:
            text = (
                "is false at the end of its episode, but without `terminated` every episode must be truncated. Name a "
                "column for `terminated`."
            )
            raise table.error(columns.truncated, row, text)
    if arrays["episode"] is None:
        arrays["episode"] = numbers
    return terminated, last


def to_frame(X: Any, names: Sequence[str] | None, library: str) -> Any:
    """Make a data frame of features (T, n); raises InvalidInputError if they have no names or are sparse."""
    check_choice("frame", library, ("pandas", "polars"))
    if names is None or sparse.issparse(X):
        what = "no `feature_names`" if names is None else "sparse features"
        raise InvalidInputError(f"`frame` needs dense features with names; these Trajectories have {what}.")
    if library == "pandas":
        return importlib.import_module("pandas").DataFrame(X, columns=list(names))
    return importlib.import_module("polars").DataFrame(X, schema=list(names))


# ------------------------------------------------------------ intervals


def interval_roles(roles: Mapping[str, list[str]], gamma: Any) -> dict[str, list[str]]:
    """Return roles where `start` is the time and `event` terminates, unless the table has no intervals."""
    given = [name for name in _OF_INTERVALS if name in roles]
    if not given:
        if gamma is not None:
            raise InvalidInputError(
                "`gamma` must be None without `start`, `stop` and `event`; pass it to the estimator instead."
            )
        return dict(roles)
    for name in (*_OF_INTERVALS, "episode"):
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


def with_horizon_rows(
    arrays: Mapping[str, NDArray[Any] | None], cut: Flags, now: Mapping[int, Array]
) -> dict[str, Any]:
    """Repeat the last rows of episodes that were cut off, `cut` (T,), as their horizon rows, which have no reward.

    Their features at the positions of `now` are those values, (T,) each, at the time when observation stopped.
    """
    order = np.repeat(np.arange(len(cut)), 1 + cut)
    added = np.flatnonzero(np.append(False, order[1:] == order[:-1]))
    longer: dict[str, Any] = {name: None if values is None else values[order] for name, values in arrays.items()}
    longer["y"][added] = np.nan
    for position, values in now.items():
        longer["X"][added, position] = values[cut]
    return longer
