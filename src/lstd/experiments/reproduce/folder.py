"""The results folder of `lstd reproduce`: one configuration, one writer at a time, every file whole or absent.

A folder belongs to the configuration in ``configuration.json``. Each finished cell of the sweep is one archive below
``cells/``. Files are written under a temporary name, flushed and renamed, so that a process killed at any moment leaves
whole files only. Cells and documents carry checksums; a damaged one is computed again. Other files are never changed or
removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstd import files
from lstd.errors import ConfigurationMismatchError, InvalidInputError, OutputError
from lstd.experiments.protocol import FEATURES, GROUPS, PROBLEMS, Cell
from lstd.files import FolderLock

Errors = dict[str, NDArray[np.float64]]
logger = logging.getLogger("lstd")

CONFIGURATION = "configuration.json"
FORMAT = "lstd reproduce 3"  # by which a configuration written by this command is recognised
LOCK = ".lstd.lock"
TIMINGS, THEORY, TABLE, REPORT = "timings.json", "theory.json", "results.parquet", "report.html"
PROVENANCE = "provenance.json"
FIGURES = ("figure2", "figure3", "figure4", "figure5", "proposition1", "theorem2")
SUBFOLDERS = ("cells", "figures", "tables")
# What is written beside the configuration; nothing else in a folder is ever removed.
OUR_FILES = (
    *(TIMINGS, THEORY, TABLE, REPORT, PROVENANCE),
    *(Cell(*names, runs=0).filename for names in product(PROBLEMS, FEATURES, GROUPS)),
    *(f"figures/{name}.{kind}" for name in FIGURES for kind in ("pdf", "png", "svg")),
    *(f"tables/{name}.{kind}" for name in ("table1", "table2", "table3") for kind in ("csv", "md", "tex")),
    *("tables/best.csv", "tables/best.md"),
)
_MOST_DIFFERENCES, _LONGEST_VALUE = 3, 24


class ResultsFolder:
    """The files of one configuration in a folder. Reading needs no lock; writing needs :meth:`claimed`.

    Parameters
    ----------
    path : path
    configuration : dict
        Everything that the results depend on, as JSON values.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as out, ResultsFolder(out, {"runs": 2}).claimed() as folder:
    ...     folder.write_json("theory.json", {"mu": 1.0})
    ...     folder.read_json("theory.json")
    {'mu': 1.0}
    """

    def __init__(self, path: str | os.PathLike[str], configuration: Mapping[str, Any]) -> None:
        self.path = Path(path)
        self.configuration = {"format": FORMAT, **json.loads(files.json_bytes(configuration))}
        self._digest = hashlib.sha256(files.json_bytes(configuration)).hexdigest()

    @contextlib.contextmanager
    def claimed(self, *, force: bool = False) -> Iterator[ResultsFolder]:
        """Make the folder if needed and lock it for this process while the block runs.

        Parameters
        ----------
        force : bool
            Remove the files of an earlier run, and only those, and start over.

        Raises
        ------
        InvalidInputError
            If the folder cannot be made or written, another process is writing to it, or other files have the
            names to be written.
        ConfigurationMismatchError
            If it holds results of another configuration and `force` is false.
        OutputError
            If the disk is full.
        """
        files.check_not_a_file(self.path)
        made = not os.path.exists(self.path)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise files.unusable(self.path, error) from error
        try:
            lock = FolderLock(self.path / LOCK)
            try:
                self._prepare(force)
                made = False
                yield self
            finally:
                lock.release()
        finally:
            if made:
                with contextlib.suppress(OSError):
                    self.path.rmdir()

    def _prepare(self, force: bool) -> None:
        for name in SUBFOLDERS:
            files.check_not_a_file(self.path / name)
        stored = files.read_json(self.path / CONFIGURATION) or {}
        ours = stored.get("format") == FORMAT
        names = (CONFIGURATION, *OUR_FILES)
        if not ours and (foreign := [name for name in names if os.path.lexists(self.path / name)]):
            raise InvalidInputError(
                f"`out` must be a new folder or one written by `lstd reproduce`; {str(self.path)!r} has a "
                f"{foreign[0]} that this command did not write; give another folder."
            )
        if ours and not force:
            _check_same(self.path, stored, self.configuration)
        if ours and force:
            self._remove_results()
        if force or not ours:
            try:
                with files.replacing(self.path / CONFIGURATION) as file:
                    file.write(files.json_bytes(self.configuration))
            except OutputError as error:
                cause = error.__cause__  # the message names the folder, as the user did
                raise files.unusable(self.path, cause if isinstance(cause, OSError) else error) from error

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

    def write_cell(self, cell: Cell, arrays: Mapping[str, NDArray[np.float64]]) -> None:
        """Store the results of a cell: algorithm -> errors of shape (runs, lmbdas, alphas), none NaN or negative."""
        ordered = {name: arrays[name] for name in cell.algorithms}
        _check_arrays(cell, ordered)
        files.write(self.path / cell.filename, "cell", self._head(cell), ordered)

    def read_cell(self, cell: Cell) -> Errors | None:
        """Read a cell back; None if it is not stored, or damaged, which is logged."""
        path = self.path / cell.filename

        def build(document: dict[str, Any], arrays: Errors) -> Errors:
            if self._head(cell).items() <= document.items():
                _check_arrays(cell, arrays)
                return arrays
            raise ValueError(document)

        if not os.path.lexists(path):
            return None
        try:
            return files.read(path, {"cell": build})
        except InvalidInputError:
            logger.warning("lstd: %s is damaged. It is computed again.", path)
            return None

    def _head(self, cell: Cell) -> dict[str, Any]:
        return {**cell._asdict(), "configuration": self._digest}

    def write_json(self, name: str, document: Mapping[str, Any]) -> None:
        """Store a JSON document with its checksum; infinite and undefined numbers become null."""
        content = json.loads(files.json_bytes(document))
        with files.replacing(self.path / name) as file:
            file.write(files.json_bytes({**content, "sha256": self._checksum(content)}))

    def read_json(self, name: str) -> dict[str, Any] | None:
        """Read a JSON document back; None if it is missing, changed, or of another configuration."""
        document = files.read_json(self.path / name) or {}
        checksum = document.pop("sha256", None)
        return document if checksum == self._checksum(document) else None

    def _checksum(self, document: Mapping[str, Any]) -> str:
        return hashlib.sha256(self._digest.encode() + files.json_bytes(document)).hexdigest()

    def _remove_results(self) -> None:
        """Remove what `lstd reproduce` wrote, the configuration last, and nothing else."""
        try:
            for file in [*self.files(), self.path / CONFIGURATION]:
                file.unlink(missing_ok=True)
        except OSError as error:
            raise OutputError(f"{error.filename} could not be removed: {files.reason(error)}.") from error
        for name in SUBFOLDERS:
            with contextlib.suppress(OSError):
                (self.path / name).rmdir()


def _check_arrays(cell: Cell, arrays: Mapping[str, NDArray[np.float64]]) -> None:
    if tuple(arrays) != cell.algorithms:
        raise ValueError(f"the arrays must be {cell.algorithms}; got {tuple(arrays)}.")
    for name, errors in arrays.items():
        if errors.shape != cell.shape or errors.dtype != np.float64:
            raise ValueError(f"{name} must be float64 of shape {cell.shape}; got {errors.dtype}, {errors.shape}.")
        if not (errors >= 0).all():
            raise ValueError(f"{name} must hold errors >= 0, infinite where a run diverged; got {errors.min()}.")


def _check_same(path: Path, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    differences = [
        f"{key} was {_brief(old.get(key))}, now {_brief(new.get(key))}"
        for key in dict.fromkeys([*new, *old])
        if old.get(key) != new.get(key)
    ]
    more = len(differences) - _MOST_DIFFERENCES
    if differences:
        raise ConfigurationMismatchError(
            f"{str(path)!r} holds results of another configuration: {'; '.join(differences[:_MOST_DIFFERENCES])}"
            f"{f'; and {more} more' if more > 0 else ''}; give another folder, or start over in this one with --force."
        )


def _brief(value: Any) -> str:
    text = "absent" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 2]} …"
