"""Rows of tables sorted by episode and time, in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from lstd.data.parsing import id_key
from lstd.distributed.dask_collections import is_future
from lstd.errors import InvalidInputError
from lstd.tables import arrow_columns as convert
from lstd.tables.frames import FrameTable
from lstd.tables.readers import Table
from lstd.tables.roles import Roles
from lstd.tables.row_reader import RowReader
from lstd.tables.table_errors import at_row


def sorted_tables(tables: Any, roles: Roles, memory: int, independent: bool = False) -> list[Table]:
    """Return one table of all rows, by episode in order of first appearance, and by time.

    Raises
    ------
    InvalidInputError
        When there is no column of time, rows take more than half of `memory`, or an id or a time has no value.
    """
    if roles.time is None:
        raise InvalidInputError("`sort` needs `time`, a column to sort by; got None.")
    if independent:
        raise InvalidInputError("`independent` must be False with `sort`, which joins all tables.")
    if not isinstance(tables, list) or any(callable(table) or is_future(table) for table in tables):
        raise InvalidInputError("`sort` needs files or data frames in this process; sort other sources beforehand.")
    reader = RowReader(tables, roles)
    batches: list[pa.RecordBatch] = []
    ids: list[Any] = []
    times: list[Any] = []
    n_bytes = 0
    for raw in reader.raw():
        for batch in raw.batches:
            n_bytes += batch.nbytes
            if 2 * n_bytes > memory:
                raise InvalidInputError(
                    f"`sort`: the rows take more than half of `memory`, {memory >> 20} MB. Give more, or sort the "
                    "files beforehand by episode and time, for example with DuckDB or the command sort."
                )
        together = pa.Table.from_batches(raw.batches)
        times.append(_known(convert.times(together[roles.time], roles.time), raw))
        if roles.episode is not None:
            found = convert.ids(together[roles.episode], roles.episode)
            lengths = np.diff(_known((found.changes, found.fault), raw), append=len(together))
            ids.append(np.repeat(np.array([id_key(name) for name in found.names], dtype=object), lengths))
        batches.extend(raw.batches)
    if not batches:
        return list(reader.tables)
    order = _order(np.concatenate(times), np.concatenate(ids) if ids else None)
    table = pa.Table.from_batches([batch.cast(batches[0].schema) for batch in batches])
    files = ", ".join(one.file for one in reader.tables)
    return [FrameTable(f"{files} (sorted)", table.take(convert.from_numpy(order)))]


def _known(parsed: Any, raw: Any) -> Any:
    """Return parsed values, unless one of them is at fault."""
    values, fault = parsed
    if fault is not None:
        raise at_row(raw.table.file, fault.column, raw.first + fault.row, fault.text)
    return values


def _order(times: Any, ids: Any) -> Any:
    if ids is None:
        return np.argsort(times, kind="stable")
    place: dict[Any, int] = {}
    return np.lexsort((times, [place.setdefault(name, len(place)) for name in ids]))
