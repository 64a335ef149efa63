"""The rows of a batch of a table: its columns as numbers, flags, ids and times, by `lstd.data.parse_columns`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lstd.data.episodes import Marks
from lstd.data.identity import NO_VALUE, Identity
from lstd.data.ids import Fault, Ids
from lstd.data.parse_columns import (
    exact_unit,
    first_outside,
    flags,
    ids,
    kind_of_times,
    matrix,
    merged_times,
    numbers,
    times,
    typed_times,
)
from lstd.data.roles import Roles
from lstd.data.rows import COLUMNS, Rows
from lstd.types import Array, Flags

_DROP = (
    f"{NO_VALUE}; impute it, with a column of 0 and 1 that says where. Dropping rows inside an episode loses rewards "
    "and ends."
)
_IMPUTE = f"{NO_VALUE}; `--impute` fills in the mean, with a column of 0 and 1 that says where."


class Converted:
    """The rows of a batch, their ids and flags, and the first bad value of each column.

    Dates are numbers of this `unit` since 1970, "us" or "ns"; by default of the one in which they are exact.
    """

    def __init__(self, batch: pa.RecordBatch, roles: Roles, gamma: float = 1.0, unit: str = "") -> None:
        self._faults: list[Fault | None] = []
        self._batch = batch
        T = len(batch)
        missing_feature = _DROP
        if roles.prepared and not roles.next_features:
            missing_feature = _IMPUTE
        X = self._numbers(roles.features or (), missing_feature)
        self.y = self._numbers(roles.rewards)  # NaN where it is missing, as `numbers` are
        self.numbers: dict[str, Array] = {}
        for role, name in roles.transitions.items():
            high = COLUMNS[role].high if role in COLUMNS else np.inf
            self.numbers[role] = self._numbers([name], low=0.0, high=high)[:, 0]
        no_flags = np.zeros(T, np.bool_)
        terminated = self._parsed(flags, roles.terminated, no_flags)
        truncated = self._parsed(flags, roles.truncated, no_flags) & ~terminated
        names = self._parsed(ids, roles.episode)
        groups = self._parsed(ids, roles.groups)
        missing = np.isnan(np.column_stack([self.y, *self.numbers.values()]))
        self.marks = Marks(names, groups, terminated, truncated, missing)
        self.times: NDArray[Any] | None = None  # as times of NumPy unless they are numbers
        if roles.time is not None:
            self._add_times(roles.time, unit)
        self.kept = [batch.column(name) for name in roles.kept]
        successors = None
        if roles.next_features:
            successors = self._numbers(roles.next_features, _DROP, unused=terminated)
        self.rows = Rows.built(
            X,
            self.y,
            self.numbers,
            gamma=gamma,
            terminated=terminated,
            last=terminated,
            X_next=successors,
            episode=None,
            single=self.y.shape[1] == 1,
            assumed=False,
            names=roles.features,
            groups=None if groups is None else groups.per_row(T),
        )
        self.fault = min(filter(None, self._faults), default=None, key=lambda fault: fault.row)
        del self._batch  # the columns of features are not kept

    def _add_times(self, name: str, unit: str) -> None:
        """Parse the column of times; what rows of one episode have in common is looked for where all else is right."""
        typed = typed_times(self._batch.column(name))
        unit = unit or exact_unit(typed)
        values, fault = times(typed, name, unit)
        self._faults.append(fault)
        kind = kind_of_times(typed)
        marks = replace(self.marks, times=values, unit=unit if kind else "")
        if not any(self._faults):
            episode = _numbers_of_episodes(marks, len(values))
            self._faults.append(merged_times(typed, values, episode, name, unit))
        self.marks = marks
        self.times = values
        if kind:
            self.times = values.view(f"{kind}8[{unit}]")

    def _numbers(
        self,
        names: Sequence[str],
        missing: str = "",
        low: float = -np.inf,
        high: float = np.inf,
        unused: Flags | None = None,
    ) -> Array:
        """Convert columns, all at once unless a value is bad; those of `unused` rows may be, and become zero."""
        if low == -np.inf:
            at_once = matrix(self._batch, names)
            if at_once is not None:
                return at_once
        X = np.empty((len(self._batch), len(names)))
        for j, name in enumerate(names):
            values, fault = numbers(self._batch.column(name), name)
            if unused is not None:
                values = np.where(unused & ~np.isfinite(values), 0.0, values)
            X[:, j] = values
            if fault is not None and missing == _IMPUTE:
                fault = fault._replace(text=f"{fault.text} A column of words: `--categories {name}`.")
            self._faults.append(first_outside(X[:, j], name, fault, low, high, missing))
        return X

    def _parsed(
        self, parse: Callable[[pa.Array, str], tuple[Any, Fault | None]], name: str | None, none: Any = None
    ) -> Any:
        """Parse a column, and note its first bad value; return `none` without one."""
        if name is None:
            return none
        values, fault = parse(self._batch.column(name), name)
        self._faults.append(fault)
        return values


def _numbers_of_episodes(marks: Marks, n_rows: int) -> NDArray[np.intp]:
    """Return the number of the episode of each row, (T,), also where its rows do not follow one another."""
    if marks.ids is None:
        return np.cumsum(marks.begins).astype(np.intp)
    return _numbers_of_ids(marks.ids, n_rows)


def _numbers_of_ids(ids_of_rows: Ids, n_rows: int) -> NDArray[np.intp]:
    """Return numbers that are equal where the ids of rows are one, in order of first appearance, (T,)."""
    places: dict[Identity, int] = {}
    codes = [places.setdefault(key, len(places)) for key in ids_of_rows.keys]
    return np.repeat(np.array(codes, np.intp), np.diff(ids_of_rows.changes, append=n_rows))


def sorted_order(
    rows: Any, roles: Roles, known: Callable[[Any, Fault | None], Any], unit: str = ""
) -> NDArray[np.intp]:
    """Return the order of rows by group and episode, in order of first appearance, and by time.

    `known` is given values and the first bad one, and raises the error of that.
    """

    def numbered(column: str) -> NDArray[np.intp]:
        found, fault = ids(rows.column(column), column)
        return _numbers_of_ids(known(found, fault), len(rows))

    assert roles.time is not None
    typed = typed_times(rows.column(roles.time))
    times_of_rows, fault = times(typed, roles.time, unit or exact_unit(typed))
    keys = [known(times_of_rows, fault)]
    if roles.episode is not None:
        episode = numbered(roles.episode)
        keys.append(episode)
        if roles.groups is not None:  # an episode is placed by its first row, in whatever group
            first = np.unique(episode, return_index=True)[1]
            keys.append(numbered(roles.groups)[first][episode])
    return np.lexsort(keys)
