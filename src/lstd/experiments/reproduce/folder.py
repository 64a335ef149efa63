"""The results folder of `lstd reproduce`: one configuration, one writer at a time, every file whole or absent.

A folder belongs to the configuration in ``configuration.json``. What takes long is kept below ``cells/``: each cell of
the sweep, the timings and the theory, one sealed file each; a damaged one is computed again. All other files are made
from these. A process killed at any moment leaves whole files only. Files of others are never changed or removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

from lstd import files
from lstd.errors import ConfigurationMismatchError, InvalidInputError, OutputError
from lstd.experiments.protocol import FEATURES, GROUPS, PROBLEMS, Cell
from lstd.types import Array

Errors = dict[str, Array]
Kept = tuple[dict[str, Any], Errors]

CONFIGURATION = "configuration.json"
PROVENANCE = "provenance.json"
LOCK = ".lstd.lock"
FORMAT = "lstd reproduce 4"  # by which a configuration written by this command is recognised
FIGURES = ("figure2", "differences", "figure3", "figure4", "figure5", "proposition1", "theorem2")
SUBFOLDERS = ("cells", "figures", "tables")
RESULTS = {
    "report.html": "all figures, tables and findings in one page",
    "figures": "Figures 2-5 and those of the theory, as PDF and PNG",
    "tables": "Tables 1-3 and the best settings as CSV",
    "results.parquet": "a row per problem, features, algorithm, λ, α and run",
    "timings.json": "seconds per run beside a NumPy loop and the paper",
    "theory.json": "Proposition 1 and Theorem 2 in numbers",
    "provenance.json": "versions, processor, seeds, times and checksums",
    "cells": "finished parts of the sweep, from which a run resumes",
}
# What is written beside the configuration; nothing else in a folder is ever removed.
OUR_FILES = (
    *("timings.json", "theory.json", "results.parquet", "report.html", PROVENANCE),
    *(f"cells/{Cell(*names, runs=0).name}.npz" for names in product(PROBLEMS, FEATURES, GROUPS)),
    *("cells/timings.npz", "cells/theory.npz"),
    *(f"figures/{name}.{kind}" for name in FIGURES for kind in ("pdf", "png")),
    *(f"tables/{name}.csv" for name in ("table1", "table2", "table3", "best")),
)
_MOST_DIFFERENCES = 3  # that a message names
_LONGEST_VALUE = 24  # characters of a value in a message


class ResultsFolder:
    """The files of one configuration, JSON values, in a folder. Reading needs no lock; writing needs :meth:`claimed`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as out, ResultsFolder(out, {"runs": 2}).claimed() as folder:
    ...     _ = folder.keep("theory", {"mu": 1.0})
    ...     folder.kept("theory")
    ({'mu': 1.0}, {})
    """

    def __init__(self, path: str | os.PathLike[str], configuration: Mapping[str, Any]) -> None:
        self.path = Path(path)
        self.configuration = {"format": FORMAT, **json.loads(files.json_bytes(configuration))}
        self._digest = hashlib.sha256(files.json_bytes(configuration)).hexdigest()

    @contextlib.contextmanager
    def claimed(self, *, force: bool = False) -> Iterator[ResultsFolder]:
        """Make the folder if needed and lock it for this process while the block runs.

        With `force`, remove the files of an earlier run, and only those, and start over. Raises InvalidInputError if
        the folder cannot be made or written, another process is writing to it, or other files have the names to be
        written; ConfigurationMismatchError if it holds results of another configuration and `force` is false;
        OutputError if the disk is full.
        """
        files.check_not_a_file(self.path)
        made = not os.path.exists(self.path)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise files.unusable(self.path, error) from error
        with contextlib.ExitStack() as stack:
            if made:
                stack.callback(_remove_if_empty, self.path)
            stack.callback(files.FolderLock(self.path / LOCK).release)
            self._prepare(force)
            yield self

    def _prepare(self, force: bool) -> None:
        for name in SUBFOLDERS:
            files.check_not_a_file(self.path / name)
        stored = files.read_json(self.path / CONFIGURATION) or {}
        ours = stored.get("format") == FORMAT
        foreign = [name for name in (CONFIGURATION, *OUR_FILES) if os.path.lexists(self.path / name)]
        if foreign and not ours:
            raise InvalidInputError(
                f"`out` must be a new folder or one written by `lstd reproduce`; {str(self.path)!r} has a "
                f"{foreign[0]} that this command did not write; give another folder."
            )
        if ours and not force:
            _check_same(self.path, stored, self.configuration)
            return
        self._remove_results()
        try:
            self.write(CONFIGURATION, files.json_bytes(self.configuration))
        except OutputError as error:
            cause: OSError = error
            if isinstance(error.__cause__, OSError):  # our message names the folder, as the user did, not the file
                cause = error.__cause__
            raise files.unusable(self.path, cause) from error

    def _remove_results(self) -> None:
        """Remove what `lstd reproduce` wrote, the configuration last, and nothing else."""
        try:
            for file in [*self.files(), self.path / CONFIGURATION]:
                file.unlink(missing_ok=True)
        except OSError as error:
            raise OutputError(f"{error.filename} could not be removed: {files.reason(error)}.") from error
        for name in SUBFOLDERS:
            _remove_if_empty(self.path / name)

    def files(self) -> list[Path]:
        """Return the files that `lstd reproduce` has written, except the configuration."""
        return [self.path / name for name in OUR_FILES if os.path.lexists(self.path / name)]

    def checksums(self) -> dict[str, str]:
        """SHA-256 of each file by its path in the folder, except of provenance.json, which records them."""
        return {
            file.relative_to(self.path).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
            for file in sorted(self.files())
            if file.name != PROVENANCE
        }

    def write(self, name: str, content: bytes) -> None:
        """Write a file, whole or not at all."""
        with files.replacing(self.path / name) as file:
            file.write(content)

    def keep(self, name: str, document: Mapping[str, Any], arrays: Errors | None = None) -> Kept:
        """Keep a document and arrays, and return them as they are kept: infinite and undefined numbers become null."""
        key = {"name": name, "configuration": self._digest}
        files.write(self._cell(name), "cell", {"key": key, "content": document}, arrays or {})
        return json.loads(files.json_bytes(document)), arrays or {}

    def kept(self, name: str) -> Kept | None:
        """Return what is kept under a name; None if there is nothing, or it is damaged, which is logged."""

        def build(document: dict[str, Any], arrays: Errors) -> Kept:
            if document["key"] != {"name": name, "configuration": self._digest}:
                raise ValueError(document["key"])
            return document["content"], arrays

        return files.read_kept(self._cell(name), {"cell": build})

    def _cell(self, name: str) -> Path:
        return self.path / f"cells/{name}.npz"


def _remove_if_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()


def _check_same(path: Path, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Refuse a folder with the results of another configuration; the message names what differs."""
    changed = [key for key in dict.fromkeys([*new, *old]) if old.get(key) != new.get(key)]
    if not changed:
        return
    differences = [f"{key} was {_brief(old.get(key))}, now {_brief(new.get(key))}" for key in changed]
    named = "; ".join(differences[:_MOST_DIFFERENCES])
    more = len(differences) - _MOST_DIFFERENCES
    if more > 0:
        named += f"; and {more} more"
    raise ConfigurationMismatchError(
        f"{str(path)!r} holds results of another configuration: {named}; give another folder, or start over in this "
        "one with --force."
    )


def _brief(value: Any) -> str:
    """Return a value of the configuration as a message shows it, cut off if it is long."""
    if value is None:
        return "absent"
    text = json.dumps(value, ensure_ascii=False)
    if len(text) > _LONGEST_VALUE:
        return f"{text[: _LONGEST_VALUE - 2]} …"
    return text
