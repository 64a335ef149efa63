"""Long tables, one row per state, as arrays of the data contract."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd.data.checks import check_integer
from lstd.data.columns import LATE_ROW, LOST_REWARD, NO_SUCCESSOR, NO_VALUE, NOT_CUT, Array, Flags, first_true
from lstd.data.rows import warn_of_assumed
from lstd.errors import InvalidInputError
from lstd.trajectories.extras import import_narwhals
from lstd.trajectories.frame_columns import Table
from lstd.trajectories.structure import Indices, first_return, last_rows

_LIBRARIES = ("pandas", "polars")


@dataclass(frozen=True)
class Columns:
    """Names of the columns of a table, checked against one another."""

    features: str | Sequence[str]
    reward: str | Sequence[str]
    episode: str | None = None
    terminated: str | None = None
    truncated: str | None = None
    time: str | None = None
    discount: str | None = None
    importance_ratio: str | None = None

    def __post_init__(self) -> None:
        for role in ("features", "reward"):
            if not isinstance(getattr(self, role), Iterable):
                raise InvalidInputError(f"`{role}` must be a column's name, or a list; got {getattr(self, role)!r}.")
            names = self.several(role)
            if not names:
                raise InvalidInputError(f"`{role}` must name at least one column; got none.")
            twice = next((name for name in names if names.count(name) > 1), None)
            if twice is not None:
                raise InvalidInputError(f"`{role}` must name each column once; {twice!r} is in it twice.")
        for role, name in self.roles():
            if not isinstance(name, str):
                raise InvalidInputError(f"`{role}` must name columns by str; got {name!r}. Rename the column first.")
        known_later = {name: role for role, name in self.roles() if role in ("reward", "terminated", "truncated")}
        for name in self.several("features"):
            if name in known_later:
                raise InvalidInputError(
                    f"`features` must not contain the `{known_later[name]}` column {name!r}, which is not known "
                    "until the row is left. Drop it, or use a copy of it shifted by one row within each episode."
                )
        if self.truncated is not None and self.episode is None:
            raise InvalidInputError("`truncated` needs `episode`, a column of ids; got None.")

    def several(self, role: str) -> list[str]:
        """Names given as `features` or `reward`."""
        names = getattr(self, role)
        return [names] if isinstance(names, str) else list(names)

    def roles(self) -> Iterator[tuple[str, str]]:
        """Pairs of argument and column."""
        for role in ("features", "reward"):
            for name in self.several(role):
                yield role, name
        for role in ("episode", "terminated", "truncated", "time", "discount", "importance_ratio"):
            name = getattr(self, role)
            if name is not None:
                yield role, name


@dataclass(frozen=True)
class _Ends:
    """Where episodes end, in the final order of the rows."""

    ids: NDArray[Any] | None  # (T,)
    last: Flags  # (T,) last row of its episode
    terminated: Flags  # (T,)

    @property
    def horizon(self) -> Flags:
        return self.last & ~self.terminated


def read_frame(frame: Any, columns: Columns, *, sort: bool = False, first_row: int = 0) -> dict[str, Any]:
    """Read a table and return arguments of `Trajectories`; see `Trajectories.from_frame`."""
    if sort and columns.time is None:
        raise InvalidInputError("`sort` needs `time`, a column to sort by; got None.")
    table = Table(frame, list(columns.roles()), check_integer("first_row", first_row, 0))
    ends = _episode_ends(table, columns, sort)
    names = columns.several("features")
    X = np.empty((len(table), len(names)))
    for position, name in enumerate(names):
        X[:, position] = table.numbers("features", name)
    y = _rewards(table, columns, ends)
    if columns.truncated is not None:
        _check_truncated(table, columns, ends, y)
    arrays = {"X": X, "y": y, "episode": ends.ids, "terminated": ends.terminated}
    unused = ends.horizon & np.isnan(y.reshape(len(table), -1)).any(axis=1)
    for role, high in (("discount", 1.0), ("importance_ratio", np.inf)):
        if getattr(columns, role) is not None:
            arrays[role] = _per_transition(table, role, getattr(columns, role), unused, high)
    if columns.terminated is None and columns.truncated is None and columns.episode is not None:
        warn_of_assumed(f"`episode` ({columns.episode!r}) was given without `terminated`")
    for value in arrays.values():
        if value is not None:
            value.setflags(write=False)
    return arrays | {"feature_names": names}


def _episode_ends(table: Table, columns: Columns, sort: bool) -> _Ends:
    """Find the ends of episodes and check the columns that bear on them; sorts the table."""
    ids = None if columns.episode is None else table.ids("episode", columns.episode)
    ranks = None if columns.time is None else table.ranks("time", columns.time)
    if sort and ranks is not None:
        order = np.argsort(ranks, kind="stable") if ids is None else np.lexsort((ranks, _by_appearance(ids)))
        table.sort(order)
        ranks, ids = ranks[order], None if ids is None else ids[order]
    terminated = np.zeros(len(table), dtype=np.bool_)
    if columns.terminated is not None:
        terminated = table.flags("terminated", columns.terminated)
    last = terminated.copy() if ids is None else last_rows(ids)
    last[-1] = True
    if ids is not None:
        _check_contiguous(table, columns, ids)
    early = first_true(terminated & ~last)
    if early is not None:
        raise table.error("terminated", str(columns.terminated), early, LATE_ROW)
    if ranks is not None:
        _check_time(table, columns, last, ranks)
    return _Ends(ids, last, terminated)


def _by_appearance(ids: NDArray[Any]) -> Indices:
    """Number of each row's id in the order in which the ids first appear, shape (T,)."""
    _, first, number = np.unique(ids, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[number.reshape(-1)]


def _check_contiguous(table: Table, columns: Columns, ids: NDArray[Any]) -> None:
    row = first_return(ids)
    if row is None:
        return
    remedy = "a stable sort by episode keeps the order of time"
    if columns.time is not None:
        remedy = f"or name the column of time, {columns.time!r}, and pass sort=True"
    text = f"{ids[row]!s} comes again after other episodes; sort the rows by episode and time ({remedy})."
    raise table.error("episode", str(columns.episode), row, text)


def _check_time(table: Table, columns: Columns, last: Flags, ranks: NDArray[Any]) -> None:
    """Raise unless times rise within episodes."""
    wrong = np.zeros(len(table), dtype=np.bool_)
    wrong[1:] = ~last[:-1] & (ranks[1:] <= ranks[:-1])
    row = first_true(wrong)
    if row is None:
        return
    text = "has the time of the row before it, of the same episode; drop or merge such rows."
    if ranks[row] != ranks[row - 1]:
        text = "is earlier than the row before it, of the same episode; sort the rows by it, or pass sort=True."
    raise table.error("time", str(columns.time), row, text)


def _check_truncated(table: Table, columns: Columns, ends: _Ends, y: Array) -> None:
    """Raise unless flags are on horizon rows, on rows before them, or on rows that terminated."""
    column = str(columns.truncated)
    flags = table.flags("truncated", column)
    before_horizon = np.zeros(len(table), dtype=np.bool_)
    before_horizon[:-1] = ~ends.last[:-1] & ends.horizon[1:]
    row = first_true(flags & ~ends.last & ~before_horizon)
    if row is not None:
        raise table.error("truncated", column, row, NOT_CUT)
    step_recorded = np.zeros(len(table), dtype=np.bool_)
    step_recorded[1:] = (flags & before_horizon)[:-1]
    row = first_true(ends.horizon & ~flags & ~step_recorded)
    if row is not None and columns.terminated is None:
        text = (
            "is false to the end of its episode, which must be true when `terminated` is not given. Name a column for "
            "`terminated`."
        )
        raise table.error("truncated", column, row, text)
    has_reward = ~np.isnan(y.reshape(len(table), -1)).all(axis=1)
    row = first_true(flags & ends.horizon & ~step_recorded & has_reward)
    if row is not None:
        raise table.error("truncated", column, row, NO_SUCCESSOR)


def _rewards(table: Table, columns: Columns, ends: _Ends) -> Array:
    names = columns.several("reward")
    y = np.stack([table.numbers("reward", name, may_miss=True) for name in names], axis=1)
    for position, name in enumerate(names):
        row = first_true(np.isnan(y[:, position]) & ~ends.horizon)
        if row is not None:
            raise table.error("reward", name, row, LOST_REWARD)
    return np.ascontiguousarray(y[:, 0]) if isinstance(columns.reward, str) else y


def _per_transition(table: Table, role: str, column: str, unused: Flags, high: float) -> Array:
    """Read discounts or ratios, 1 where they are missing and `unused`."""
    values = table.numbers(role, column, may_miss=True)
    values[unused & np.isnan(values)] = 1.0
    row = first_true(~((values >= 0.0) & (values <= high)))
    if row is not None:
        value = NO_VALUE if np.isnan(values[row]) else f"has {values[row]:g}"
        rule = "at least 0" if high == np.inf else f"in [0, {high:g}]"
        text = f"{value}; it must be {rule}, and may be missing only where the reward of a horizon row is."
        raise table.error(role, column, row, text)
    return values


def to_frame(X: Any, names: Sequence[str] | None, library: str) -> Any:
    """Make a data frame of features (T, n); raises InvalidInputError if they have no names or are sparse."""
    if library not in _LIBRARIES:
        raise InvalidInputError(f"`frame` must be one of {', '.join(map(repr, _LIBRARIES))}; got {library!r}.")
    if names is None or sparse.issparse(X):
        what = "no `feature_names`" if names is None else "sparse features"
        raise InvalidInputError(f"`frame` needs dense features with names; these Trajectories have {what}.")
    return import_narwhals().from_numpy(X, list(names), backend=library).to_native()
