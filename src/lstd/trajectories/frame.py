"""Long tables, one row per state, as arrays of the data contract."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd.data.checks import check_integer
from lstd.data.columns import LATE_ROW, LOST_REWARD, NO_SUCCESSOR, NO_VALUE, NOT_CUT, Array, Flags, first_true
from lstd.errors import InvalidInputError, MissingTerminationWarning
from lstd.trajectories.extras import import_narwhals
from lstd.trajectories.frame_columns import Table
from lstd.trajectories.structure import Indices, first_return, last_rows, same_as_previous

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
                    f"`features` must not contain the `{known_later[name]}` column {name!r}, which is not known before "
                    "the row is left. Drop it, or use a copy of it shifted by one row within each episode."
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
    order: Indices | None  # (T,) row of the table that each row comes from; None where nothing was moved

    @property
    def horizon(self) -> Flags:
        return self.last & ~self.terminated

    def source(self, row: int) -> int:
        return row if self.order is None else int(self.order[row])

    def arranged(self, values: Any) -> Any:
        return values if self.order is None else values[self.order]


def read_frame(frame: Any, columns: Columns, *, sort: bool = False, first_row: int = 0) -> dict[str, Any]:
    """Arguments of `Trajectories` from a table; see `Trajectories.from_frame`."""
    if sort and columns.time is None:
        raise InvalidInputError("`sort` needs `time`, a column to sort by; got None.")
    table = Table(frame, list(columns.roles()), check_integer("first_row", first_row, 0))
    names = columns.several("features")
    X = np.empty((len(table), len(names)))
    for position, name in enumerate(names):
        X[:, position] = table.numbers("features", name)
    ends = _episode_ends(table, columns, sort)
    y = _rewards(table, columns, ends)
    if columns.truncated is not None:
        _check_truncated(table, columns, ends, y)
    arrays = {"X": ends.arranged(X), "y": y, "episode": ends.ids, "terminated": ends.terminated}
    unused = ends.horizon & np.isnan(y.reshape(len(table), -1)).any(axis=1)
    for role, high in (("discount", 1.0), ("importance_ratio", np.inf)):
        if getattr(columns, role) is not None:
            arrays[role] = _per_transition(table, role, getattr(columns, role), ends, unused, high)
    if columns.terminated is None and columns.truncated is None and columns.episode is not None:
        warnings.warn(
            f"`episode` ({columns.episode!r}) was given without `terminated`: every episode is taken as truncated, its "
            "last row as features only. Name a column that is True on the last row of episodes that ended for good.",
            MissingTerminationWarning,
            stacklevel=3,
        )
    for value in arrays.values():
        if value is not None:
            value.setflags(write=False)
    return arrays | {"feature_names": names}


def _episode_ends(table: Table, columns: Columns, sort: bool) -> _Ends:
    terminated = np.zeros(len(table), dtype=np.bool_)
    if columns.terminated is not None:
        terminated = table.flags("terminated", columns.terminated)
    ids = None if columns.episode is None else table.ids("episode", columns.episode)
    ranks = None if columns.time is None else table.ranks("time", columns.time)
    order = None
    if sort and ranks is not None:
        order = np.argsort(ranks, kind="stable") if ids is None else np.lexsort((ranks, _by_appearance(ids)))
        ranks, terminated = ranks[order], terminated[order]
        ids = None if ids is None else ids[order]
    last = terminated.copy() if ids is None else last_rows(ids)
    last[-1] = True
    ends = _Ends(ids, last, terminated, order)
    if ids is not None:
        _check_contiguous(table, columns, ends)
    early = first_true(terminated & ~last)
    if early is not None and columns.terminated is not None:
        raise table.error("terminated", columns.terminated, ends.source(early), LATE_ROW)
    if ranks is not None:
        _check_time(table, columns, ends, ranks)
    return ends


def _by_appearance(ids: NDArray[Any]) -> Indices:
    """Number of each row's id in the order in which the ids first appear, shape (T,)."""
    _, first, number = np.unique(ids, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[number.reshape(-1)]


def _check_contiguous(table: Table, columns: Columns, ends: _Ends) -> None:
    assert ends.ids is not None
    assert columns.episode is not None
    row = first_return(ends.ids)
    if row is None:
        return
    remedy = "a stable sort by episode keeps the order of time"
    if columns.time is not None:
        remedy = f"or name the column of time, {columns.time!r}, and pass sort=True"
    text = f"{ends.ids[row]!s} comes again after other episodes; sort the rows by episode and time ({remedy})."
    raise table.error("episode", columns.episode, ends.source(row), text)


def _check_time(table: Table, columns: Columns, ends: _Ends, ranks: NDArray[Any]) -> None:
    assert columns.time is not None
    follows = np.zeros(len(table), dtype=np.bool_)
    follows[1:] = ~ends.last[:-1]
    wrong = follows.copy()
    wrong[1:] &= ranks[1:] <= ranks[:-1]
    row = first_true(wrong)
    if row is None:
        return
    text = "has the time of the row before it, of the same episode; drop or merge such rows."
    if ranks[row] != ranks[row - 1]:
        text = "is earlier than the row before it, of the same episode; sort the rows by it, or pass sort=True."
    raise table.error("time", columns.time, ends.source(row), text)


def _check_truncated(table: Table, columns: Columns, ends: _Ends, y: Array) -> None:
    """The flag may stand on a horizon row, on the row before it, or where the episode terminated."""
    assert columns.truncated is not None
    assert ends.ids is not None
    flags = ends.arranged(table.flags("truncated", columns.truncated))
    before_horizon = np.zeros(len(table), dtype=np.bool_)
    before_horizon[:-1] = same_as_previous(ends.ids)[1:] & ends.horizon[1:]
    row = first_true(flags & ~ends.last & ~before_horizon)
    if row is not None:
        raise table.error("truncated", columns.truncated, ends.source(row), NOT_CUT)
    step_recorded = np.zeros(len(table), dtype=np.bool_)
    step_recorded[1:] = (flags & before_horizon)[:-1]
    row = first_true(ends.horizon & ~flags & ~step_recorded)
    if row is not None and columns.terminated is None:
        text = (
            "is false to the end of its episode, which must be true when `terminated` is not given. Name a column for "
            "`terminated`."
        )
        raise table.error("truncated", columns.truncated, ends.source(row), text)
    has_reward = ~np.isnan(y.reshape(len(table), -1)).all(axis=1)
    row = first_true(flags & ends.horizon & ~step_recorded & has_reward)
    if row is not None:
        raise table.error("truncated", columns.truncated, ends.source(row), NO_SUCCESSOR)


def _rewards(table: Table, columns: Columns, ends: _Ends) -> Array:
    names = columns.several("reward")
    y = np.stack([ends.arranged(table.numbers("reward", name, may_miss=True)) for name in names], axis=1)
    for position, name in enumerate(names):
        row = first_true(np.isnan(y[:, position]) & ~ends.horizon)
        if row is not None:
            raise table.error("reward", name, ends.source(row), LOST_REWARD)
    return np.ascontiguousarray(y[:, 0]) if isinstance(columns.reward, str) else y


def _per_transition(table: Table, role: str, column: str, ends: _Ends, unused: Flags, high: float) -> Array:
    """Discounts or ratios, 1 where they are missing and their row is no transition."""
    values = ends.arranged(table.numbers(role, column, may_miss=True))
    values[unused & np.isnan(values)] = 1.0
    row = first_true(~((values >= 0.0) & (values <= high)))
    if row is not None:
        found = NO_VALUE if np.isnan(values[row]) else f"has {values[row]:g}"
        rule = "at least 0" if high == np.inf else f"in [0, {high:g}]"
        text = f"{found}; it must be {rule}, and may be missing only where the reward of a horizon row is."
        raise table.error(role, column, ends.source(row), text)
    return np.asarray(values)


def named(X: Any, names: Sequence[str] | None, library: str) -> Any:
    """Features (T, n) as a data frame; raises InvalidInputError when they have no names, or are sparse."""
    if library not in _LIBRARIES:
        raise InvalidInputError(f"`frame` must be one of {', '.join(map(repr, _LIBRARIES))}; got {library!r}.")
    if names is None or sparse.issparse(X):
        what = "no `feature_names`" if names is None else "sparse features"
        raise InvalidInputError(f"`frame` needs dense features with names; these Trajectories have {what}.")
    return import_narwhals().from_numpy(X, list(names), backend=library).to_native()
