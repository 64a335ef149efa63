"""Whole lines as they come: from a file that grows, or from standard input.

A line counts once its end has come, so a row that is still being written waits. `bytes` counts those of the lines that
were handed on; a file is opened again at that place.
"""

from __future__ import annotations

import hashlib
import os
import queue
import stat
import threading
import time
from collections.abc import Iterator
from typing import IO

from lstd.errors import InvalidInputError
from lstd.tables.table import could_not_be_read

_AT_ONCE = 2**18  # bytes
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
            data = self._file.read(_AT_ONCE)
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
                data = os.read(number, _AT_ONCE) or None
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
