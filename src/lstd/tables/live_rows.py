"""Checked rows from lines of CSV or JSON, by the rules of tables; a bad line is reported and left out, or ends it.

The first line decides: an object of JSON, or the names of the columns of CSV. A row that was left out leaves a gap, at
which an episode counts as cut off: the row before it has no successor.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa

from lstd.data.parsing import Fault
from lstd.errors import InvalidInputError
from lstd.tables.arrow_columns import from_texts
from lstd.tables.roles import Roles
from lstd.tables.row_reader import Chunk, RowReader, Values
from lstd.tables.table import Table
from lstd.tables.table_errors import at_row


class Part(NamedTuple):
    """What was made of some lines: rows, or an error and no rows, or neither of empty lines."""

    lines: list[bytes]
    chunk: Chunk | None = None
    error: InvalidInputError | None = None


class LiveRows:
    """Rows of one stream of lines.

    Parameters
    ----------
    file : str
        Name in messages.
    roles : Roles
    state : mapping, optional
        Result of `packed`, to go on from.
    """

    def __init__(self, file: str, roles: Roles, state: Mapping[str, Any] | None = None) -> None:
        self.file, self._roles = file, roles
        self.rows, self.header, self.gaps = 0, "", 0
        self.reader: RowReader | None = None
        self._columns: list[str] = []
        if state is not None and state["names"]:
            self.rows, self.header, self.gaps = state["rows"], state["header"], state["gaps"]
            self._open(state["names"]).episodes.unpack(state["episodes"])

    def packed(self) -> dict[str, Any]:
        """Return the state as a JSON document."""
        names, episodes = ([], None) if self.reader is None else (self.reader.tables[0].names, self.reader.episodes)
        return {
            "names": names, "header": self.header, "rows": self.rows, "gaps": self.gaps,
            "episodes": episodes and episodes.packed(),
        }  # fmt: skip

    def _open(self, names: list[str]) -> RowReader:
        self.reader = RowReader([_LiveTable(self.file, names)], self._roles)
        roles = self.reader.roles
        self._columns = list(dict.fromkeys((*self.reader.features, *roles.others, *roles.next_features, *roles.kept)))
        return self.reader

    def take(self, lines: list[bytes]) -> Iterator[Part]:
        """Yield the parts of some lines, in order; all of them together are the lines."""
        if self.reader is None and lines:
            lines = [*lines]
            head: list[bytes] = []
            while lines and not lines[0].strip():
                head.append(lines.pop(0))
            if lines and not self._begin(lines[0]):
                head.append(lines.pop(0))
            if head:
                yield Part(head)
        place = 0
        while place < len(lines):
            records, fault = self._records(lines, place)
            if records:
                yield from self._checked(lines[place : place + len(records)], records)
            place += len(records)
            if place < len(lines):
                yield self._left_out([lines[place]], fault)
                place += 1

    def _begin(self, line: bytes) -> bool:
        """Take the names of the columns from the first line; return whether it is a row too."""
        is_row = line.lstrip(b"\xef\xbb\xbf \t").startswith(b"{")
        try:
            text = line.decode("utf-8-sig")
            names = [*_object(text)] if is_row else _values(text)
        except ValueError as error:
            raise InvalidInputError(f"{self.file}: its first line is neither CSV nor JSON ({error}).") from error
        self._open(names)
        self.header = "" if is_row else text.strip()
        return is_row

    def _records(self, lines: list[bytes], place: int) -> tuple[list[list[str]], Fault | None]:
        """Return the values of lines from a place on, up to an empty or broken one, and what is wrong with that."""
        records: list[list[str]] = []
        for line in lines[place:]:
            try:
                text = line.decode().strip("\r")
                if text.strip() in ("", self.header):  # rotated files repeat the header
                    return records, None
                records.append(self._record(text))
            except ValueError as error:
                return records, Fault(len(records), "", str(error))
        return records, None

    def _record(self, text: str) -> list[str]:
        assert self.reader is not None
        names = self.reader.tables[0].names
        if not self.header:
            found = _object(text)
            return [_text(found.get(name, "")) for name in self._columns]
        values = _values(text)
        if len(values) != len(names):
            raise ValueError(f"has {len(values)} values where the header names {len(names)} columns.")
        row = dict(zip(names, values, strict=True))
        return [row[name] for name in self._columns]

    def _left_out(self, lines: list[bytes], fault: Fault | None) -> Part:
        """Count an empty line or a broken one."""
        if fault is None:
            return Part(lines)
        self.rows, self.gaps = self.rows + 1, self.gaps + 1
        row = f"row {self.rows} (the first row of data is 1)"
        if not fault.column:
            return Part(lines, error=InvalidInputError(f"{self.file}: {row} {fault.text}"))
        return Part(lines, error=at_row(self.file, fault.column, self.rows - 1, fault.text))

    def _checked(self, lines: list[bytes], records: list[list[str]]) -> Iterator[Part]:
        """Yield the parts of lines whose values are known."""
        assert self.reader is not None
        while records:
            columns = [from_texts(column) for column in zip(*records, strict=True)]
            values = Values(pa.RecordBatch.from_arrays(columns, self._columns), self.reader.roles)
            fault = values.first_fault()
            if fault is None:
                yield from self._followed(lines, records, values)
                return
            if fault.row:
                yield from self._checked(lines[: fault.row], records[: fault.row])
            yield self._left_out([lines[fault.row]], fault)
            lines, records = lines[fault.row + 1 :], records[fault.row + 1 :]

    def _followed(self, lines: list[bytes], records: list[list[str]], values: Values) -> Iterator[Part]:
        """Yield lines whose values are good as one chunk, or one by one if they break a rule of episodes."""
        assert self.reader is not None
        before = self.reader.episodes.copy()
        try:
            yield self._part(lines, values)
            return
        except InvalidInputError as error:
            self.reader.episodes = before
            if len(lines) > 1:
                for line, record in zip(lines, records, strict=True):
                    yield from self._checked([line], [record])
                return
            wrong = error
        self.gaps += 1
        self.reader.episodes.forgive()
        before = self.reader.episodes.copy()
        try:  # the rule may be broken by the row before, which has no successor then
            part = self._part(lines, values)
        except InvalidInputError:
            self.reader.episodes = before
            self.rows += 1
            yield Part(lines, error=wrong)
            return
        yield Part([], error=wrong)
        yield part

    def _part(self, lines: list[bytes], values: Values) -> Part:
        assert self.reader is not None
        chunk = self.reader.checked(self.reader.tables[0], self.rows, values)
        self.rows += len(lines)
        return Part(lines, replace(chunk, episode=chunk.episode + self.gaps))


class _LiveTable(Table):
    text = True

    def __init__(self, file: str, names: list[str]) -> None:
        super().__init__(file, 0)
        self.names = self.own = names


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


def _text(value: Any) -> str:
    """Return a value of JSON as a CSV file has it."""
    if isinstance(value, str):
        return value
    return "" if value is None else str(value).lower() if isinstance(value, bool) else json.dumps(value)
