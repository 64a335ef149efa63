"""Live streams: whole lines as they come from a file or standard input, the rows in them, and the file of predictions.

A line counts once its end has come, so a row that is still being written waits. `bytes` counts those of the lines that
were handed on; a file is opened again at that place. The first line decides what lines hold: an object of JSON, or the
names of the columns of CSV.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import json
import os
import queue
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from lstd.data.parse_columns import from_texts
from lstd.errors import InvalidInputError, OutputError
from lstd.files import reason
from lstd.tables.csv_table import BOM
from lstd.tables.predicting import csv_bytes
from lstd.tables.table import FROM_ONE, Table, could_not_be_read

_NOT_UTF8 = "is not text in UTF-8. Write the data in that encoding."
AT_ONCE = 2**18  # bytes
_SECONDS = 0.1  # between two looks at a file
_COMPARED = 4096  # bytes before the place where reading goes on
_LONGEST = 2**24  # bytes of a line


class LiveLines:
    """Lines of a source; `file` is its name in messages."""

    file: str

    def __init__(self, begin: int) -> None:
        self.bytes = begin
        self._rest = b""

    def lines(self, wait: bool) -> Iterator[list[bytes]]:
        """Yield lists of whole lines, an empty one if none came; endless if `wait`."""
        while (data := self._read()) is not None:
            if not data and not wait:
                break
            *lines, self._rest = (self._rest + data).split(b"\n")
            if len(self._rest) > _LONGEST:
                raise InvalidInputError(
                    f"{self.file}: a line is longer than {_LONGEST >> 20} MiB; write one row per line."
                )
            yield lines

    def count(self, lines: list[bytes]) -> None:
        """Count lines as done with."""
        self.bytes += sum(map(len, lines)) + len(lines)

    @property
    def unfinished(self) -> bool:
        """Whether a line has begun whose end has not come."""
        return bool(self._rest)

    def fingerprint(self) -> str:
        """Return a digest of the last bytes that count; empty where they cannot be read again."""
        return ""

    def close(self) -> None:
        """Stop reading."""

    def _read(self) -> bytes | None:
        """Return the next bytes, b"" if there are none for now, None at the end."""
        raise NotImplementedError


class GrowingFile(LiveLines):
    """Lines of a regular file from a place on.

    Raises InvalidInputError when the file is missing, or is not the one with that fingerprint before that place; by
    `lines` when it was cut off or replaced by another one.
    """

    def __init__(self, file: str, begin: int = 0, fingerprint: str = "") -> None:
        super().__init__(begin)
        self.file = file
        try:
            self._file: IO[bytes] = open(file, "rb", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise could_not_be_read(file, error) from error
        status, wrong = os.fstat(self._file.fileno()), ""
        if not stat.S_ISREG(status.st_mode):
            wrong = "must be a regular file; pipe anything else into `lstd watch -`."
        elif status.st_size < begin or fingerprint != self.fingerprint():
            wrong = (
                f"is not the file that was read before, or its first {begin} bytes have changed. To go on with the "
                "rows of another file, pipe them into `lstd watch -`; to start over, use --force."
            )
        if wrong:
            self.close()
            raise InvalidInputError(f"{file} {wrong}")
        self._file.seek(begin)

    def close(self) -> None:
        self._file.close()

    def fingerprint(self) -> str:
        place = self._file.tell()
        self._file.seek(max(0, self.bytes - _COMPARED))
        digest = hashlib.sha256(self._file.read(min(self.bytes, _COMPARED))).hexdigest() if self.bytes else ""
        self._file.seek(place)
        return digest

    def _read(self) -> bytes:
        try:
            data = self._file.read(AT_ONCE)
            if not data:
                self._check()
                time.sleep(_SECONDS)
            return data
        except OSError as error:
            raise could_not_be_read(self.file, error) from error

    def _check(self) -> None:
        """Raise InvalidInputError if no more rows can come."""
        own = os.fstat(self._file.fileno())
        if own.st_size < self._file.tell():
            raise InvalidInputError(
                f"{self.file} was cut off: it has {own.st_size} bytes, and {self._file.tell()} were read. {_ROTATED}"
            )
        try:
            same = os.path.samestat(own, os.stat(self.file))
        except FileNotFoundError:
            same = False
        if not same:
            raise InvalidInputError(f"{self.file} was removed or replaced; all of its rows were read. {_ROTATED}")


_ROTATED = "For files that are rotated, pipe their rows: tail -F FILE | lstd watch -."


class StandardInput(LiveLines):
    """Lines of a pipe, read by a thread so that waiting for them stops nothing else."""

    file = "standard input"

    def __init__(self, begin: int = 0, number: int = 0) -> None:
        super().__init__(begin)
        self._queue: queue.Queue[bytes | None] = queue.Queue(16)
        threading.Thread(target=self._fill, args=(number,), name="lines", daemon=True).start()

    def _fill(self, number: int) -> None:
        data: bytes | None = b"-"
        while data:
            try:
                data = os.read(number, AT_ONCE) or None
            except OSError:  # closed
                data = None
            self._queue.put(data)

    def lines(self, wait: bool) -> Iterator[list[bytes]]:
        return super().lines(True)  # the sender ends it

    def _read(self) -> bytes | None:
        try:
            return self._queue.get(timeout=_SECONDS)
        except queue.Empty:
            return b""


# ------------------------------------------------------------ rows in lines


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
            if line.removeprefix(BOM).lstrip().startswith(b"{") or _has_no_names(text):
                return cls(file, _names(text), "")
            return cls(file, _values(text), text.strip())
        except UnicodeDecodeError as error:
            raise InvalidInputError(f"{file}: its first line {_NOT_UTF8}") from error
        except ValueError as error:
            raise InvalidInputError(
                f"{file}: its first line is neither CSV nor JSON ({str(error).rstrip('.')})."
            ) from error

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


def _names(text: str) -> list[str]:
    """Return the names in a first line of JSON."""
    if not (names := [*_object(text)]):
        raise ValueError("is an object of JSON without names; write one object per line, with named values.")
    return names


def _has_no_names(text: str) -> bool:
    """Return whether a first line is JSON that has no names; CSV may have names in brackets or quotes."""
    with contextlib.suppress(ValueError, RecursionError):
        return not isinstance(json.loads(text), (dict, str))
    return False


def _text(value: Any) -> str:
    """Return a value of JSON as a CSV file has it."""
    if isinstance(value, str):
        return value
    return "" if value is None else str(value).lower() if isinstance(value, bool) else json.dumps(value)


# ------------------------------------------------------------ predictions


class PredictionsFile:
    """A file of CSV, or of what `encode` makes of rows, that predictions are added to.

    It is cut to `written` bytes first. Raises InvalidInputError if it has fewer.
    """

    def __init__(
        self, path: Path, header: list[str], written: int = 0, encode: Callable[[list[Any]], bytes] = csv_bytes
    ) -> None:
        self._path, self._encode = path, encode
        found = path.stat().st_size if path.exists() else None
        if (found or 0) < written:
            raise InvalidInputError(
                f"{path} {'is missing' if found is None else f'has {found} bytes'}, and the state records {written} "
                "bytes; give the file that was written, or --force to start over."
            )
        with self._named():
            self._file: IO[bytes] = open(path, "w+b" if found is None else "r+b", buffering=0)  # noqa: SIM115
            self._file.truncate(written)
            self.written = self._file.seek(written)
        if not written and encode is csv_bytes:
            self.add([header])

    def add(self, rows: list[Any]) -> None:
        """Add rows; raises OutputError when there is no room."""
        data = memoryview(self._encode(rows))
        with self._named():
            while data:
                data = data[self._file.write(data) :]
            self.written = self._file.tell()

    def close(self) -> None:
        self._file.close()

    def sync(self) -> None:
        """Return when the rows are on the disk."""
        with self._named():
            os.fsync(self._file.fileno())

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            remedy = "free some space or fix the folder."
            raise OutputError(f"{self._path} could not be written: {reason(error)}; {remedy}") from error
