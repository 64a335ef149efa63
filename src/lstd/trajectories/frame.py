"""Long tables, one row per state, as arrays of the data contract."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd.data.checks import check_choice, check_integer
from lstd.data.horizon_rows import with_horizon_rows
from lstd.data.parsing import (
    EARLIER,
    EPISODE_AGAIN,
    LATE_ROW,
    LOST_REWARD,
    NO_SUCCESSOR,
    NO_VALUE,
    NOT_CUT,
    ONE_GROUP,
    SAME_TIME,
    Array,
    Flags,
    first_repeat,
    first_true,
    last_rows,
)
from lstd.data.rows import warn_of_assumed
from lstd.errors import InvalidInputError
from lstd.trajectories.frame_columns import Table
from lstd.trajectories.optional_imports import import_narwhals
from lstd.trajectories.time_intervals import interval_roles, read_lengths, rewards_of


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
    table = Table(frame, roles, check_integer("first_row", first_row, 0))
    ids = _read_ids(table, sort)
    terminated, last = _read_ends(table, ids)
    cut = last & ~terminated
    horizon = np.zeros_like(cut) if spans else cut
    arrays: dict[str, Any] = {"X": _read_features(table), "episode": ids, "terminated": terminated}
    arrays["groups"] = _read_groups(table, last) if "groups" in roles else None
    if spans:
        arrays["y"], arrays["discount"] = rewards_of(read_lengths(table, last), gamma)
    if "reward" in roles:
        y = _read_rewards(table, horizon)
        arrays["y"] = np.ascontiguousarray(y[:, 0]) if isinstance(columns["reward"], str) else y
    if "truncated" in roles:
        _check_truncated(table, last, horizon, np.asarray(np.isnan(arrays["y"]).reshape(len(table), -1).all(axis=1)))
    for role in ("discount", "importance_ratio", "trace_coefficient", "weight", "behavior_probability"):
        if role in roles:
            arrays[role] = _read_per_transition(table, role, 1.0 if role == "discount" else np.inf, horizon)
    if "action" in roles:
        arrays["actions"] = table.labels("action", horizon)
    if spans:
        names, stop = roles["features"], table.numbers("stop")
        now = {names.index(name): stop for name in roles["start"] if name in names}
        arrays = with_horizon_rows(arrays, cut, now)
    if ids is not None and "terminated" not in roles and "truncated" not in roles:
        warn_of_assumed(f"`episode` ({columns['episode']!r}) was given without `terminated`")
    for value in arrays.values():
        if value is not None:
            value.setflags(write=False)
    return arrays | {"feature_names": roles["features"]}


def _check_roles(columns: Mapping[str, Any]) -> dict[str, list[str]]:
    """Check the names of columns; returns the list of names of each argument that was given."""
    roles: dict[str, list[str]] = {}
    for role, given in columns.items():
        if role == "features" or (role == "reward" and given is not None):
            if not isinstance(given, Iterable):
                raise InvalidInputError(f"`{role}` must be a column's name, or a list; got {given!r}.")
            names = [given] if isinstance(given, str) else list(given)
            if not names:
                raise InvalidInputError(f"`{role}` must name at least one column; got none.")
            twice = next((name for name in names if names.count(name) > 1), None)
            if twice is not None:
                raise InvalidInputError(f"`{role}` must name each column once; {twice!r} is in it twice.")
            roles[role] = names
        elif given is not None:
            roles[role] = [given]
    for role, names in roles.items():
        for name in names:
            if not isinstance(name, str):
                raise InvalidInputError(f"`{role}` must name columns by str; got {name!r}. Rename the column first.")
    known_later = {
        name: role for role in ("reward", "terminated", "truncated", "stop", "event") for name in roles.get(role, ())
    }
    for name in roles["features"]:
        if name in known_later:
            raise InvalidInputError(
                f"`features` must not contain the `{known_later[name]}` column {name!r}, which is not known "
                "until the row is left. Drop it, or use a copy of it shifted by one row within each episode."
            )
    if "truncated" in roles and "episode" not in roles:
        raise InvalidInputError("`truncated` needs `episode`, a column of ids; got None.")
    return roles


def _read_ids(table: Table, sort: bool) -> NDArray[Any] | None:
    """Read and check the ids of episodes, None without them, and sort the table."""
    ids = table.ids() if "episode" in table.roles else None
    if sort:
        times = table.times()
        if ids is None:
            table.sort(np.argsort(times, kind="stable"))
        else:
            _, first, number = np.unique(ids, return_index=True, return_inverse=True)
            appearance = np.argsort(np.argsort(first))[number.reshape(-1)]
            order = np.lexsort((times, appearance))
            table.sort(order)
            ids = ids[order]
    if ids is not None and (row := first_repeat(ids)) is not None:
        remedy = " With sort=True, rows are sorted by the column of time." if "time" in table.roles else ""
        raise table.error("episode", row, f"{ids[row]!s} {EPISODE_AGAIN}{remedy}")
    return ids


def _read_features(table: Table) -> Array:
    """Read the features, (T, n)."""
    X = np.empty((len(table), len(table.roles["features"])))
    for position, name in enumerate(table.roles["features"]):
        X[:, position] = table.numbers("features", name)
    return X


def _read_ends(table: Table, ids: NDArray[Any] | None) -> tuple[Flags, Flags]:
    """Flag the rows that terminate and the last rows of episodes; raises if times do not increase within episodes."""
    terminated = table.flags("terminated") if "terminated" in table.roles else np.zeros(len(table), dtype=np.bool_)
    last = terminated.copy() if ids is None else last_rows(ids)
    last[-1] = True
    if "time" in table.roles:  # first: in rows out of order, ends are out of place too
        times = table.times()
        row = first_true(np.append(False, ~last[:-1] & (times[1:] <= times[:-1])))
        if row is not None:
            raise table.error("time", row, SAME_TIME if times[row] == times[row - 1] else EARLIER)
    early = first_true(terminated & ~last)
    if early is not None:
        raise table.error("terminated", early, LATE_ROW)
    return terminated, last


def _read_groups(table: Table, last: Flags) -> NDArray[Any]:
    """Read the ids of groups; raises if an episode lies in two."""
    groups = table.ids("groups")
    row = first_true(last_rows(groups) & ~last)
    if row is not None:
        raise table.error(
            "groups", row + 1, f"has {groups[row + 1]!s}, and the row before it {groups[row]!s}; {ONE_GROUP}"
        )
    return groups


def _read_rewards(table: Table, horizon: Flags) -> Array:
    """Read the rewards, shape (T, m), NaN where they are missing on a horizon row."""
    names = table.roles["reward"]
    y = np.stack([table.numbers("reward", name, may_miss=True) for name in names], axis=1)
    for position, name in enumerate(names):
        row = first_true(np.isnan(y[:, position]) & ~horizon)
        if row is not None:
            raise table.error("reward", row, LOST_REWARD, name)
    return y


def _check_truncated(table: Table, last: Flags, horizon: Flags, no_reward: Flags) -> None:
    """Raise unless flags are on horizon rows, on rows before them, or on rows that terminated."""
    flags = table.flags("truncated")
    before_horizon = np.append(~last[:-1] & horizon[1:], False)
    row = first_true(flags & ~last & ~before_horizon)
    if row is not None:
        raise table.error("truncated", row, NOT_CUT)
    step_recorded = np.append(False, (flags & before_horizon)[:-1])
    row = first_true(horizon & ~flags & ~step_recorded)
    if row is not None and "terminated" not in table.roles:
        text = (
            "is false at the end of its episode, but without `terminated` every episode must be truncated. Name a "
            "column for `terminated`."
        )
        raise table.error("truncated", row, text)
    row = first_true(flags & horizon & ~step_recorded & ~no_reward)
    if row is not None:
        raise table.error("truncated", row, NO_SUCCESSOR)


def _read_per_transition(table: Table, role: str, high: float, horizon: Flags) -> Array:
    """Read discounts or ratios, 1 where they are missing on a horizon row."""
    values = table.numbers(role, may_miss=True)
    values[horizon & np.isnan(values)] = 1.0
    row = first_true(~((values >= 0.0) & (values <= high)))
    if row is not None:
        value = NO_VALUE if np.isnan(values[row]) else f"has {values[row]:g}"
        rule = "at least 0" if high == np.inf else f"in [0, {high:g}]"
        text = (
            f"{value}; it must be {rule}, and may be missing only in the last row of an episode that did not terminate."
        )
        raise table.error(role, row, text)
    return values


def to_frame(X: Any, names: Sequence[str] | None, library: str) -> Any:
    """Make a data frame of features (T, n); raises InvalidInputError if they have no names or are sparse."""
    check_choice("frame", library, ("pandas", "polars"))
    if names is None or sparse.issparse(X):
        what = "no `feature_names`" if names is None else "sparse features"
        raise InvalidInputError(f"`frame` needs dense features with names; these Trajectories have {what}.")
    return import_narwhals().from_numpy(X, list(names), backend=library).to_native()
