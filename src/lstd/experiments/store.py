"""The results folder: the only file input and output of the experiments.

A folder belongs to one configuration, kept in ``configuration.json``. Each finished cell is one ``.npz`` file
under ``cells/``. Every file is written under a temporary name, flushed to the disk and renamed, so that a
process killed at any moment leaves whole files only; cells and documents hold checksums, and what does not match
its own is computed again. A process that writes holds a lock on the folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from lstd.errors import LSTDError, OutputError
from lstd.experiments.folder import (
    CONFIGURATION,
    FORMAT,
    GROUPS,
    LOCK,
    PROVENANCE,
    TABLE,
    check_folder,
    our_files,
    remove_partial,
    remove_results,
)
from lstd.experiments.results_table import write_table
from lstd.io.files import FolderLock, check_not_a_file, json_bytes, read_json, reason, replacing, unusable

if TYPE_CHECKING:
    from types import TracebackType

FloatArray = npt.NDArray[np.float64]


class CorruptCellError(LSTDError):
    """A stored cell is not what was written: truncated, damaged, or of another experiment."""


@dataclass(frozen=True)
class Cell:
    """The unit of work that is stored: one problem, features, group of algorithms, and range of run seeds.

    Attributes
    ----------
    problem, features : str
    group : str
        "lstd" (the three variants, computed in one pass) or "true_online_td".
    first, last : int
        The run seeds, both included.

    Examples
    --------
    >>> Cell("small", "tabular", "lstd", 1, 50).algorithms
    ('boyan', 'uncorrected', 'mixed')
    """

    problem: str
    features: str
    group: str
    first: int
    last: int

    @property
    def algorithms(self) -> tuple[str, ...]:
        """The names of the arrays in the cell."""
        return GROUPS[self.group]

    @property
    def run_seeds(self) -> range:
        """The seeds of its runs."""
        return range(self.first, self.last + 1)

    @property
    def filename(self) -> str:
        """Path in the results folder."""
        return f"cells/{self.problem}-{self.features}-{self.group}-{self.first:06d}-{self.last:06d}.npz"

    def __str__(self) -> str:
        algorithms = "three LSTD(λ)" if self.group == "lstd" else "true online TD(λ)"
        return f"{self.problem} {self.features}, {algorithms}, runs {self.first} to {self.last}"


class ResultsFolder:
    """A results folder that this process alone may write; use it in a ``with`` statement.

    Parameters
    ----------
    path : path
        A folder without results, which is made where needed, or with results of the same configuration.
    configuration : dict
        Plain JSON values; "grids" maps a group of algorithms to its {"lmbdas": [...], "alphas": [...]}, the
        rest is only compared.
    force : bool
        Remove the files of an earlier run, and only those, and start over.

    Raises
    ------
    InvalidInputError
        If the folder cannot be made or written, has files of other origin under the names to be written, or
        another process is writing to it.
    ConfigurationMismatchError
        If it holds results of another configuration and `force` is false.
    OutputError
        If the disk is full.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as out, ResultsFolder(out, {"runs": 2}) as folder:
    ...     folder.write_json("theory.json", {"mu": 1.0})
    ...     folder.read_json("theory.json")
    {'mu': 1.0}
    """

    def __init__(self, path: str | os.PathLike[str], configuration: Mapping[str, Any], *, force: bool = False) -> None:
        self.path = Path(path)
        self.configuration = dict(configuration)
        check_not_a_file(self.path)
        made = not os.path.exists(self.path)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unusable(self.path, error) from error
        try:
            self._claim(force)
        except BaseException:
            if made:
                with contextlib.suppress(OSError):
                    self.path.rmdir()
            raise

    def _claim(self, force: bool) -> None:
        self._lock = FolderLock(self.path / LOCK)
        try:
            ours = check_folder(self.path, self.configuration, force=force)
            remove_partial(self.path)
            if ours and force:
                remove_results(self.path)
            if force or not ours:
                with replacing(self.path / CONFIGURATION) as file:
                    file.write(json_bytes({"format": FORMAT, **self.configuration}))
        except OutputError as error:
            self._lock.release()
            cause = error.__cause__
            raise unusable(self.path, cause if isinstance(cause, OSError) else error) from error
        except BaseException:
            self._lock.release()
            raise

    def __enter__(self) -> ResultsFolder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._lock.release()

    def write_cell(self, cell: Cell, arrays: Mapping[str, FloatArray]) -> None:
        """Store the results of a cell: name of algorithm -> errors of shape (runs, lmbdas, alphas).

        Raises
        ------
        OutputError
            If the file could not be written.
        ValueError
            If an array has another shape or holds NaN or a negative error.
        """
        ordered = {name: np.ascontiguousarray(arrays[name], dtype=np.float64) for name in cell.algorithms}
        _check_arrays(ordered, _shape(self.configuration, cell))
        header = np.array(_header(cell, self.configuration, ordered))
        content = io.BytesIO()
        np.savez(content, allow_pickle=False, header=header, **ordered)
        with replacing(self.path / cell.filename) as file:
            file.write(content.getbuffer())

    def read_cell(self, cell: Cell) -> dict[str, FloatArray] | None:
        """Read a cell back; None when it was not stored.

        Raises
        ------
        CorruptCellError
            If the file is truncated or damaged, or holds something else than this cell.
        """
        return read_cell(self.path, cell, self.configuration)

    def write_json(self, name: str, document: Mapping[str, Any]) -> None:
        """Store a JSON document with its checksum; infinite and undefined numbers become null."""
        content = json.loads(json_bytes(document))
        with replacing(self.path / name) as file:
            file.write(json_bytes({**content, "sha256": _checksum(content, self.configuration)}))

    def read_json(self, name: str) -> dict[str, Any] | None:
        """Read a JSON document back; None when it is missing, changed, or of another configuration."""
        return read_document(self.path, name, self.configuration)

    def write_table(self, cells: Iterable[Cell]) -> None:
        """Write results.parquet: a row per problem, features, algorithm, λ, α and run of the stored cells.

        See :func:`lstd.experiments.results_table.write_table`.

        Raises
        ------
        OutputError
            If the file could not be written.
        CorruptCellError
            If a cell is missing or damaged.
        """
        with replacing(self.path / TABLE) as file:
            write_table(file, ((cell, self._stored(cell)) for cell in cells), self.configuration["grids"])

    def _stored(self, cell: Cell) -> dict[str, FloatArray]:
        arrays = self.read_cell(cell)
        if arrays is None:
            raise CorruptCellError(f"{self.path / cell.filename} has disappeared; run the same command again.")
        return arrays

    def checksums(self) -> dict[str, str]:
        """SHA-256 of each of our files, by path in the folder, but for provenance.json, which lists them."""
        return {
            file.relative_to(self.path).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
            for file in sorted(our_files(self.path))
            if file.name != PROVENANCE
        }


def read_document(root: Path, name: str, configuration: Mapping[str, Any]) -> dict[str, Any] | None:
    """Read a JSON document without claiming its folder; see :meth:`ResultsFolder.read_json`."""
    document = read_json(root / name) or {}
    checksum = document.pop("sha256", None)
    return document if checksum == _checksum(document, configuration) else None


def _checksum(document: Mapping[str, Any], configuration: Mapping[str, Any]) -> str:
    return hashlib.sha256(json_bytes(configuration) + json_bytes(document)).hexdigest()


def read_cell(root: Path, cell: Cell, configuration: Mapping[str, Any]) -> dict[str, FloatArray] | None:
    """Read a cell without claiming its folder; see :meth:`ResultsFolder.read_cell`."""
    path = root / cell.filename
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CorruptCellError(f"{path} could not be read: {reason(error)}.") from error
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            intact = archive.testzip() is None
        with np.load(io.BytesIO(content), allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in cell.algorithms}
            intact &= stored["header"].item() == _header(cell, configuration, arrays)
        _check_arrays(arrays, _shape(configuration, cell))
    except Exception as error:
        # zipfile, zlib and NumPy's parser each fail in their own way on damaged bytes.
        raise CorruptCellError(f"{path} is damaged.") from error
    if not intact:
        raise CorruptCellError(f"{path} is damaged or is not the cell that its name says.")
    return arrays


def _shape(configuration: Mapping[str, Any], cell: Cell) -> tuple[int, int, int]:
    grid = configuration["grids"][cell.group]
    return len(cell.run_seeds), len(grid["lmbdas"]), len(grid["alphas"])


def _check_arrays(arrays: Mapping[str, FloatArray], shape: tuple[int, int, int]) -> None:
    for name, errors in arrays.items():
        if errors.shape != shape or errors.dtype != np.float64:
            raise ValueError(f"{name} must be float64 of shape {shape}; got {errors.dtype}, {errors.shape}.")
        if not (errors >= 0).all():
            raise ValueError(f"{name} must hold errors >= 0, infinite where a run diverged; got {errors.min()}.")


def _header(cell: Cell, configuration: Mapping[str, Any], arrays: Mapping[str, FloatArray]) -> str:
    """What a stored cell is, with checksums of what it was computed for and of its numbers."""
    numbers = hashlib.sha256()
    for name, errors in arrays.items():
        numbers.update(name.encode() + errors.astype("<f8").tobytes())
    configured = hashlib.sha256(json_bytes(configuration)).hexdigest()
    return json.dumps({**asdict(cell), "configuration": configured, "sha256": numbers.hexdigest()})
