"""Tables whose rows come as lines of CSV or JSON.

The first line decides: an object of JSON, or the names of the columns of CSV.
"""

from __future__ import annotations

import contextlib
import csv
import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from lstd.data.arrow_columns import from_texts
from lstd.errors import InvalidInputError
from lstd.tables.csv_table import BOM
from lstd.tables.table import FROM_ONE, Table

_NOT_UTF8 = "is not text in UTF-8. Write the data in that encoding."


class LiveTable(Table):
    """Columns of text whose rows come as lines; a `header` if they are CSV, else they are objects of JSON."""

    text = True

    def __init__(self, file: str, names: Sequence[str], header: str) -> None:
        super().__init__(file, 0, names)
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

    def batch(self, lines: list[bytes], columns: Sequence[str], n_before: int, n_rows: int) -> tuple[Any, int]:
        """Return the columns of the rows that lines hold, and how many lines there are up to the last row.

        `n_before` lines and `n_rows` rows came before. Raises InvalidInputError at a bad line.
        """
        records: list[dict[str, str]] = []
        last = 0
        for number, line in enumerate(lines, 1):
            try:
                record = self._record(line, n_before + number == 1)
            except ValueError as error:
                row = n_rows + len(records) + 1
                raise InvalidInputError(f"{self.file}: row {row} {FROM_ONE} {error}") from error
            if record is not None:
                records.append(record)
                last = number
        texts = [from_texts([record.get(name, "") for record in records]) for name in columns]
        return pa.RecordBatch.from_arrays(texts, [*columns]), last

    def _record(self, line: bytes, is_first: bool) -> dict[str, str] | None:
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
