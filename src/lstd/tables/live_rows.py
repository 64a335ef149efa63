"""Checked rows from lines of CSV or JSON, by the rules of tables.

The first line decides: an object of JSON, or the names of the columns of CSV.
"""

from __future__ import annotations

import contextlib
import csv
import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from lstd._kernels.online_step import HUGE
from lstd.data.arrow_columns import from_texts
from lstd.data.follow import Episodes
from lstd.errors import InvalidInputError
from lstd.tables.column_roles import Roles
from lstd.tables.csv_table import BOM
from lstd.tables.row_reader import Chunk, RowReader, Values
from lstd.tables.table import Table
from lstd.tables.table_errors import at_row
from lstd.types import Array

_NOT_UTF8 = "is not text in UTF-8. Write the data in that encoding."
AGAIN = (
    "reappears after other episodes. Give new episodes new ids; if several episodes run at once, give the rows of each "
    "source to an `lstd watch` of its own."
)
EARLIER = "is earlier than the row before it, of the same episode. Send rows in the order of time."


@dataclass
class Place:
    """How far a stream of lines was read."""

    lines: int = 0  # blank ones and the header count
    last: int = 0  # line of the last row
    rows: int = 0  # good and bad
    gaps: int = 0  # between the rows of episodes that were cut off
    episodes: Episodes | None = None

    def copy(self) -> Place:
        """Return a copy from which the stream can go on differently."""
        return replace(self, episodes=None if self.episodes is None else self.episodes.copy())


class LiveTable(Table):
    """Columns of text whose rows come as lines; a `header` if they are CSV, else they are objects of JSON."""

    text = True

    def __init__(self, file: str, names: list[str], header: str) -> None:
        super().__init__(file, 0)
        self.names = names
        self.header = header

    @classmethod
    def of(cls, file: str, line: bytes) -> LiveTable:
        """Return the table that a first line begins, which is a row too if it is JSON."""
        try:
            text = line.decode("utf-8-sig")
            if line.removeprefix(BOM).lstrip().startswith(b"{") or _is_list(text):
                return cls(file, [*_object(text)], "")
            return cls(file, _values(text), text.strip())
        except UnicodeDecodeError as error:
            raise InvalidInputError(f"{file}: its first line {_NOT_UTF8}") from error
        except ValueError as error:
            raise InvalidInputError(f"{file}: its first line is neither CSV nor JSON ({error}).") from error

    def record(self, line: bytes, is_first: bool) -> dict[str, str] | None:
        """Return the values of a line by column; None if it is blank or repeats the header, as rotated files do.

        Raises ValueError that says what is wrong.
        """
        try:
            text = line.decode("utf-8-sig" if is_first else "utf-8").strip("\r")
        except UnicodeDecodeError as error:
            raise ValueError(_NOT_UTF8) from error
        if text.strip() in ("", self.header):
            return None
        if not self.header:
            return {name: _text(value) for name, value in _object(text).items()}
        values = _values(text)
        if len(values) != len(self.names):
            raise ValueError(f"has {len(values)} values where the header names {len(self.names)} columns.")
        return dict(zip(self.names, values, strict=True))


class LiveRows:
    """Checked rows of one stream of lines, from a place on."""

    def __init__(self, table: LiveTable, roles: Roles, place: Place) -> None:
        self.table, self.place = table, place
        self.reader = RowReader([table], roles)
        roles = self.reader.roles
        self._columns = list(dict.fromkeys((*self.reader.features, *roles.others, *roles.next_features, *roles.kept)))
        if place.episodes is None:
            place.episodes = Episodes(roles, at_row, AGAIN, EARLIER)

    def take(self, lines: list[bytes]) -> Chunk | None:
        """Return the rows of the next lines, None if they have none; raises InvalidInputError at a bad one."""
        place = self.place
        records: list[dict[str, str]] = []
        for line in lines:
            place.lines += 1
            try:
                record = self.table.record(line, place.lines == 1)
            except ValueError as error:
                row = place.rows + len(records) + 1
                raise InvalidInputError(f"{self.table.file}: row {row} (the first row of data is 1) {error}") from error
            if record is not None:
                records.append(record)
                place.last = place.lines
        if not records:
            return None
        columns = [from_texts([record.get(name, "") for record in records]) for name in self._columns]
        values = Values(pa.RecordBatch.from_arrays(columns, self._columns), self.reader.roles)
        self._check_size(values.X, self.reader.features)
        if values.X_next is not None:  # those of rows that terminated are not used
            used = np.where(values.terminated[:, np.newaxis], 0.0, values.X_next)
            self._check_size(used, self.reader.roles.next_features)
        assert place.episodes is not None
        self.reader.episodes = place.episodes
        chunk = self.reader.checked(self.table, place.rows, values)
        place.rows += len(records)
        return replace(chunk, episode=chunk.episode + place.gaps)

    def _check_size(self, X: Array, names: tuple[str, ...]) -> None:
        """Refuse features that the recursion could not square."""
        if len(large := np.argwhere(np.abs(X) > HUGE)):
            row, column = large[0].tolist()
            text = f"has {X[row, column]:.3g}; features must be below {HUGE:.0e}. Scale features to order 1."
            raise at_row(self.table.file, names[column], self.place.rows + row, text)

    def cut_off(self) -> None:
        """Let the next row begin an episode, whatever the row before it says."""
        assert self.place.episodes is not None
        self.place.episodes.forgive()
        self.place.gaps += 1

    def leave_out(self) -> None:
        """Count a line with a bad row."""
        place = self.place
        place.lines, place.rows, place.gaps = place.lines + 1, place.rows + 1, place.gaps + 1


def _values(text: str) -> list[str]:
    try:
        return next(csv.reader([text.strip("\r")], strict=True), [])
    except csv.Error as error:
        raise ValueError(f"is not a row of CSV: {error}; write one row per line.") from error


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text, parse_float=str, parse_int=str, parse_constant=str)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not JSON: {str(error).rstrip('.')}; write one object per line.") from error
    if not isinstance(found, dict):
        raise ValueError("is not an object of JSON; write one object per line.")
    return found


def _is_list(text: str) -> bool:
    """Return whether a first line is JSON that has no names; CSV may have names in brackets."""
    with contextlib.suppress(ValueError, RecursionError):
        return isinstance(json.loads(text), list)
    return False


def _text(value: Any) -> str:
    """Return a value of JSON as a CSV file has it."""
    if isinstance(value, str):
        return value
    return "" if value is None else str(value).lower() if isinstance(value, bool) else json.dumps(value)
