"""Checked rows from lines of CSV or JSON, by the rules of tables, and what is wrong with bad lines.

The first line decides: an object of JSON, or the names of the columns of CSV. A bad row cuts its episode off: it is
left out, or kept without its transition where only that is bad.
"""

from __future__ import annotations

import contextlib
import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from lstd._kernels.recursive_state import HUGE
from lstd.data.arrow_columns import from_texts
from lstd.data.follow import Episodes
from lstd.data.parsing import Fault
from lstd.errors import InvalidInputError
from lstd.tables.column_roles import Roles
from lstd.tables.csv_table import BOM
from lstd.tables.row_reader import Chunk, RowReader, Values
from lstd.tables.table import Table
from lstd.tables.table_errors import at_row

AGAIN = (
    "reappears after other episodes. Give new episodes new ids; if several episodes run at once, give the rows of each "
    "source to an `lstd watch` of its own."
)
EARLIER = "is earlier than the row before it, of the same episode. Send rows in the order of time."


class BadLine(NamedTuple):
    """What is wrong with a line."""

    error: InvalidInputError
    line: int  # of the source, from 1; blank lines and the header count
    left_out: bool  # otherwise its row has a prediction, but its transition is not learned

    def __str__(self) -> str:
        done = f"Line {self.line} is left out." if self.left_out else f"Its episode is cut off at line {self.line}."
        return f"{self.error} {done}"


class Part(NamedTuple):
    """What was made of some lines: rows, or what is wrong with a line, or neither of empty lines."""

    lines: list[bytes]
    chunk: Chunk | None = None
    bad: BadLine | None = None


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
        self.lines = self._last_line = self._first = 0  # lines so far, the last one with a row; first row of a part
        self.reader: RowReader | None = None
        self._columns: list[str] = []
        if state is not None:
            self.lines, self._last_line = state["lines"]
        if state is not None and state["names"]:
            self.rows, self.header, self.gaps = state["rows"], state["header"], state["gaps"]
            self._open(state["names"]).episodes.unpack(state["episodes"])

    def packed(self) -> dict[str, Any]:
        """Return the state as a JSON document."""
        names, episodes = ([], None) if self.reader is None else (self.reader.tables[0].names, self.reader.episodes)
        return {
            "names": names, "header": self.header, "rows": self.rows, "gaps": self.gaps,
            "lines": [self.lines, self._last_line], "episodes": episodes and episodes.packed(),
        }  # fmt: skip

    def _open(self, names: list[str]) -> RowReader:
        self.reader = RowReader([_LiveTable(self.file, names)], self._roles)
        self.reader.episodes = Episodes(self._roles, at_row, AGAIN, EARLIER)
        roles = self.reader.roles
        self._columns = list(dict.fromkeys((*self.reader.features, *roles.others, *roles.next_features, *roles.kept)))
        return self.reader

    def take(self, lines: list[bytes]) -> Iterator[Part]:
        """Yield the parts of some lines, in order; all of them together are the lines."""
        for part in self._parts(lines):
            yield part
            self.lines += len(part.lines)
            if part.chunk is not None:
                self._last_line = self.lines

    def line_of(self, row: int) -> int:
        """Return the line of a row of the part that was yielded last, or of the row before it; rows count from 0."""
        at = self.lines + row - self._first + 1
        return at if row >= self._first else self._last_line

    def _parts(self, lines: list[bytes]) -> Iterator[Part]:
        if self.reader is None and lines:
            lines = [*lines]
            head: list[bytes] = []
            while lines and not lines[0].strip():
                head.append(lines.pop(0))
            if lines and not self._begin(lines[0]):
                head.append(lines.pop(0))
            yield Part(head)  # without lines too, so that a state of no rows can be kept before one is learned
        place = 0
        while place < len(lines):
            records, fault = self._records(lines, place)
            if records:
                yield from self._checked(lines[place : place + len(records)], records)
            place += len(records)
            if place < len(lines):
                yield self._without_row(lines[place], fault)
                place += 1

    def _begin(self, line: bytes) -> bool:
        """Take the names of the columns from the first line; return whether it is a row too."""
        is_row = line.removeprefix(BOM).lstrip().startswith(b"{")
        try:
            text = line.decode("utf-8-sig")
            names = [*_object(text)] if is_row or _is_list(text) else _values(text)
        except UnicodeDecodeError as error:
            raise InvalidInputError(f"{self.file}: its first line {_NOT_UTF8}") from error
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
                first = self.lines + len(records) == 0
                text = line.decode("utf-8-sig" if first else "utf-8").strip("\r")
                if text.strip() in ("", self.header):  # rotated files repeat the header
                    return records, None
                records.append(self._record(text))
            except UnicodeDecodeError:
                return records, Fault(len(records), "", _NOT_UTF8)
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

    def _without_row(self, line: bytes, fault: Fault | None) -> Part:
        """Count an empty line or a bad one."""
        if fault is None:
            return Part([line])
        if fault.column:
            return self._left_out(line, at_row(self.file, fault.column, self.rows, fault.text))
        row = f"row {self.rows + 1} (the first row of data is 1)"
        return self._left_out(line, InvalidInputError(f"{self.file}: {row} {fault.text}"))

    def _left_out(self, line: bytes, error: InvalidInputError) -> Part:
        self.rows, self.gaps = self.rows + 1, self.gaps + 1
        return Part([line], bad=BadLine(error, self.lines + 1, True))

    def _checked(self, lines: list[bytes], records: list[list[str]]) -> Iterator[Part]:
        """Yield the parts of lines whose values are known."""
        assert self.reader is not None
        while records:
            columns = [from_texts(column) for column in zip(*records, strict=True)]
            values = Values(pa.RecordBatch.from_arrays(columns, self._columns), self.reader.roles)
            faults = [fault for fault in (values.first_fault(), self._too_large(values)) if fault is not None]
            fault = min(faults, default=None, key=lambda fault: fault.row)
            if fault is None:
                yield from self._followed(lines, records, values)
                return
            if fault.row:
                yield from self._checked(lines[: fault.row], records[: fault.row])
            yield self._without_row(lines[fault.row], fault)
            lines, records = lines[fault.row + 1 :], records[fault.row + 1 :]

    def _too_large(self, values: Values) -> Fault | None:
        """Find the first row with a feature that a recursion cannot learn."""
        assert self.reader is not None
        X, names = values.X, self.reader.features
        if values.X_next is not None:
            X = np.hstack([X, np.where(values.terminated[:, np.newaxis], 0.0, values.X_next)])
            names = (*names, *self.reader.roles.next_features)
        large = np.argwhere(np.abs(X) > HUGE)
        if not len(large):
            return None
        row, column = large[0].tolist()
        text = f"has {X[row, column]:.3g}; features must be below {HUGE:.0e}. Scale features to order 1."
        return Fault(row, names[column], text)

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
        self.reader.episodes.forgive()
        before = self.reader.episodes.copy()
        self.gaps += 1
        try:  # the rule may be broken by the row before, which has no successor then
            part = self._part(lines, values)
        except InvalidInputError:
            self.reader.episodes = before
            self.gaps -= 1
            yield self._left_out(lines[0], wrong)
            return
        yield Part([], bad=BadLine(wrong, self._last_line, False))
        yield part

    def _part(self, lines: list[bytes], values: Values) -> Part:
        assert self.reader is not None
        chunk = self.reader.checked(self.reader.tables[0], self.rows, values)
        self._first = self.rows
        self.rows += len(lines)
        return Part(lines, replace(chunk, episode=chunk.episode + self.gaps))


_NOT_UTF8 = "is not text in UTF-8. Write the data in that encoding."


class _LiveTable(Table):
    text = True

    def __init__(self, file: str, names: list[str]) -> None:
        super().__init__(file, 0)
        self.names = names


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
