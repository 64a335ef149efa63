"""Long tables, one row per state, as arrays of the data contract."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd.data.arguments import check_choice, check_integer, shown_id
from lstd.data.broken_episodes import warn_of_assumed
from lstd.data.follow import Episodes, Marks
from lstd.data.horizon_rows import with_horizon_rows
from lstd.data.ids import EPISODE_AGAIN, first_repeat, ids_of_runs, last_rows
from lstd.data.parsing import check_not_infinite, check_not_outside, first_true
from lstd.errors import InvalidInputError
from lstd.trajectories.parsing_frames import FrameColumns, import_narwhals
from lstd.trajectories.time_intervals import interval_roles, read_lengths, rewards_of
from lstd.types import Flags

_PER_TRANSITION = ("discount", "importance_ratio", "trace_coefficient", "weight", "behavior_probability")


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
    arrays: dict[str, Any] = {"episode": _read_ids(table, sort), "y": None}
    arrays["groups"] = table.ids("groups") if "groups" in roles else None
    arrays["time"] = table.times(kept=True) if "time" in roles and not spans else None
    if "reward" in roles:
        y = table.matrix("reward", check_not_infinite)
        arrays["y"] = np.ascontiguousarray(y[:, 0]) if isinstance(columns["reward"], str) else y
    for role in roles:
        if role in _PER_TRANSITION:
            high = 1.0 if role == "discount" else np.inf
            arrays[role] = table.numbers(role, check=partial(check_not_outside, high=high))
    arrays["terminated"], last = _follow(table, arrays)
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
    roles: dict[str, list[str]] = {}
    for role, given in columns.items():
        if given is None and role != "features":
            continue
        several = role in ("features", "reward") and not isinstance(given, str)
        if several and not isinstance(given, Iterable):
            raise InvalidInputError(f"`{role}` must be a column's name, or a list; got {given!r}.")
        names = roles[role] = list(given) if several else [given]
        if not names:
            raise InvalidInputError(f"`{role}` must name at least one column; got none.")
        for name in names:
            if not isinstance(name, str):
                raise InvalidInputError(f"`{role}` must name columns by str; got {name!r}. Rename the column first.")
            if names.count(name) > 1:
                raise InvalidInputError(f"`{role}` must name each column once; {name!r} is in it twice.")
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


def _read_ids(table: FrameColumns, sort: bool) -> NDArray[Any] | None:
    """Read the ids of episodes, None without them, and sort by episode, in order of first appearance, and by time."""
    ids = table.ids("episode") if "episode" in table.roles else None
    if sort:
        keys = [table.times()]
        if ids is not None:
            _, first, number = np.unique(ids, return_index=True, return_inverse=True)
            keys.append(first[number.reshape(-1)])
        order = np.lexsort(keys)
        table.sort(order)
        ids = None if ids is None else ids[order]
    if ids is not None and (row := first_repeat(ids)) is not None:
        remedy = " With sort=True, rows are sorted by the column of time." if "time" in table.roles else ""
        raise table.error(table.roles["episode"][0], row, f"{shown_id(ids[row])} {EPISODE_AGAIN}{remedy}")
    return ids


def _follow(table: FrameColumns, arrays: dict[str, Any]) -> tuple[Flags, Flags]:
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
    ids, groups = (None if arrays[role] is None else ids_of_runs(arrays[role]) for role in ("episode", "groups"))
    times = table.times() if "time" in roles else None
    episodes = Episodes(columns, lambda _, column, row, text: table.error(column, row, text), whole=True)
    numbers = episodes.follow("", 0, Marks(ids, groups, terminated, truncated, missing, times))
    episodes.finish()
    episodes.times.check()
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
    return import_narwhals().from_numpy(X, list(names), backend=library).to_native()
