"""The CSV file of `lstd watch`, which predictions are added to."""

from __future__ import annotations

import contextlib
import csv
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from lstd.errors import InvalidInputError, OutputError
from lstd.files import reason


class PredictionsFile:
    """A CSV file that predictions are added to.

    It is cut to `written` bytes first. Raises InvalidInputError if it has fewer.
    """

    def __init__(self, path: Path, header: list[str], written: int = 0) -> None:
        self._path = path
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
        if not written:
            self.add([header])

    def add(self, rows: list[Any]) -> None:
        """Add rows; raises OutputError when there is no room."""
        data = memoryview(csv_bytes(rows))
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


def csv_bytes(rows: list[Any]) -> bytes:
    """Return rows as lines of CSV; numbers in the fewest digits that give the same float64."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode("utf-8", "surrogateescape")
