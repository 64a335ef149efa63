"""Rows of tables sorted by group, episode and time, in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lstd.data import arrow_columns as convert
from lstd.data.ids import id_key
from lstd.distributed.on_dask import is_future
from lstd.errors import InvalidInputError
from lstd.tables.column_roles import Roles
from lstd.tables.reader import Raw, RowReader
from lstd.tables.table import FrameTable, SortedFile, Table, at_row


def sorted_tables(tables: Any, roles: Roles, memory: int, independent: bool = False) -> list[Table]:
    """Return one table of all rows, by group and episode in order of first appearance, and by time.

    Raises InvalidInputError when there is no column of time, rows take more than half of `memory`, or an id or a time
    has no value.
    """
    if roles.time is None:
        raise InvalidInputError("`sort` needs `time`, a column to sort by; got None.")
    if independent:
        raise InvalidInputError("`independent` must be False with `sort`, which joins all tables.")
    if not isinstance(tables, list) or any(callable(table) or is_future(table) for table in tables):
        raise InvalidInputError("`sort` needs files or data frames in this process; sort other sources beforehand.")
    reader = RowReader(tables, roles)
    batches: list[pa.RecordBatch] = []
    ids: dict[str, list[Any]] = {column: [] for column in (roles.groups, roles.episode) if column and roles.episode}
    places: dict[Any, int] = {}  # of ids of both kinds, in order of first appearance
    times: list[Any] = []
    n_bytes = 0
    for raw in reader.raw():
        together, failure = raw.batch.parsed(reader.columns) if raw.table.text else (raw.batch, None)
        if failure is not None:
            raise failure
        n_bytes += together.nbytes
        if 2 * n_bytes > memory:
            raise InvalidInputError(
                f"`sort`: the rows take more than half of `memory`, {memory >> 20} MB. Give more, or sort the "
                "files beforehand by episode and time, for example with DuckDB or the command sort."
            )
        times.append(_known(convert.times(together[roles.time], roles.time), raw))
        for column, parts in ids.items():
            found = convert.ids(together[column], column)
            lengths = np.diff(_known((found.changes, found.fault), raw), append=len(together))
            keys = [places.setdefault((column, id_key(name)), len(places)) for name in found.names]
            parts.append(np.repeat(np.array(keys, np.intp), lengths))
        batches.append(together)
    if not batches:
        return list(reader.tables)
    order = _order(np.concatenate(times), *map(np.concatenate, ids.values()))
    table = pa.Table.from_batches([batch.cast(batches[0].schema) for batch in batches])
    rows, file = table.take(convert.from_numpy(order)), SortedFile(", ".join(one.file for one in reader.tables))
    file.columns = [(name, rows[name]) for name in (roles.episode, roles.time) if name]
    return [FrameTable(file, rows)]


def _known(parsed: Any, raw: Raw) -> Any:
    """Return parsed values, unless one of them is at fault."""
    values, fault = parsed
    if fault is not None:
        raise at_row(raw.table.file, fault.column, raw.first + fault.row, fault.text)
    return values


def _order(times: NDArray[Any], *places: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the order of rows by `places`, of groups if there are any and of episodes, and then by time."""
    if not places:
        return np.argsort(times, kind="stable")
    *groups, episodes = places
    _, first, number = np.unique(episodes, return_index=True, return_inverse=True)
    number = number.reshape(-1)  # an episode is placed by its first row, in whatever group
    return np.lexsort((times, number, *(group[first][number] for group in groups)))
