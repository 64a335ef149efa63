"""Reading a results folder into arrays: everything in a report is made from what is stored there."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lstd.errors import OutputError
from lstd.experiments.protocol import ALGORITHMS, FEATURES, PROBLEMS

FloatArray = npt.NDArray[np.float64]
Key = tuple[str, str, str]
Row = Mapping[str, Any]

OPTIONAL = ("timings.json", "theory.json", "provenance.json")
_COLUMNS = ("problem", "features", "algorithm", "lmbda", "alpha", "run", "error")


@dataclass(frozen=True)
class Sweep:
    """The stored errors of one (problem, features, algorithm).

    Attributes
    ----------
    errors : array of shape (runs, lmbdas, alphas)
        Normalised mean squared error; infinite where the run diverged.
    lmbdas : array of shape (lmbdas,)
    alphas : array of shape (alphas,)
        Ridge coefficients of an LSTD(λ), step sizes of a TD(λ).
    runs : array of shape (runs,)
        Run seeds.
    """

    errors: FloatArray
    lmbdas: FloatArray
    alphas: FloatArray
    runs: npt.NDArray[np.int64]

    @property
    def mean(self) -> FloatArray:
        """Mean over the runs, shape (lmbdas, alphas); infinite where any run diverged."""
        scale = self._scale
        mean: FloatArray = scale * (self.errors / scale).mean(axis=0)
        return mean

    @property
    def std(self) -> FloatArray:
        """Standard deviation over the runs (divisor runs − 1), shape (lmbdas, alphas).

        NaN where a run diverged, and everywhere when there is only one run.
        """
        if len(self.runs) < 2:
            return np.full(self.errors.shape[1:], np.nan)
        finite = np.isfinite(self.errors).all(axis=0)
        scale = self._scale
        std = scale * np.where(finite, self.errors / scale, 0.0).std(axis=0, ddof=1)
        return np.where(finite, std, np.nan)

    @property
    def _scale(self) -> FloatArray:
        """Largest finite error over the runs: errors near 1e300 must not overflow in a sum or a square."""
        largest = np.where(np.isfinite(self.errors), self.errors, 0.0).max(axis=0)
        return np.where(largest > 1.0, largest, 1.0)

    @property
    def best_alpha(self) -> npt.NDArray[np.intp]:
        """Index of the α with the lowest mean error for each λ, shape (lmbdas,)."""
        best: npt.NDArray[np.intp] = np.argmin(self.mean, axis=1)
        return best

    @property
    def largest_finite(self) -> float:
        """The largest error that is not infinite; 0 when every one is."""
        return float(np.where(np.isfinite(self.errors), self.errors, 0.0).max())

    @property
    def diverged_entries(self) -> int:
        """Number of (λ, α, run) whose error is infinite."""
        return int(np.isinf(self.errors).sum())

    @property
    def diverged_runs(self) -> int:
        """Number of runs with at least one infinite error."""
        return int(np.isinf(self.errors).any(axis=(1, 2)).sum())


@dataclass(frozen=True)
class Timing:
    """Seconds per run of one (problem, features, algorithm), with what they are compared to."""

    seconds: float
    low: float
    high: float
    runs: int
    loop_seconds: float | None = None
    loop_low: float | None = None
    loop_high: float | None = None
    loop_sample: str | None = None
    paper_seconds: float | None = None
    paper_spread: float | None = None

    @property
    def ratio(self) -> float | None:
        """Seconds of the NumPy loop divided by ours."""
        if self.loop_seconds is None or self.seconds <= 0:
            return None
        return self.loop_seconds / self.seconds


@dataclass(frozen=True)
class Results:
    """A results folder in memory.

    Attributes
    ----------
    folder : Path
    sweeps : dict (problem, features, algorithm) -> Sweep
        In the order of the protocol.
    timings : dict (problem, features, algorithm) -> Timing
        Empty when timings.json is missing.
    timing_notes : dict
        The remaining entries of timings.json: "threads", "sample".
    theory, provenance : dict
        The contents of theory.json and provenance.json; empty when missing.
    missing : tuple of str
        Which of the optional files were not found.
    """

    folder: Path
    sweeps: Mapping[Key, Sweep]
    timings: Mapping[Key, Timing] = field(default_factory=dict)
    timing_notes: Row = field(default_factory=dict)
    theory: Row = field(default_factory=dict)
    provenance: Row = field(default_factory=dict)
    missing: tuple[str, ...] = ()

    @property
    def errors(self) -> dict[Key, FloatArray]:
        """(problem, features, algorithm) -> errors of shape (runs, lmbdas, alphas)."""
        return {key: sweep.errors for key, sweep in self.sweeps.items()}

    @property
    def problems(self) -> tuple[str, ...]:
        """The problems present, in the order of the protocol."""
        return tuple(dict.fromkeys(problem for problem, _, _ in self.sweeps))

    @property
    def algorithms(self) -> tuple[str, ...]:
        """The algorithms present, in the order of the protocol."""
        return tuple(_in_order({algorithm for _, _, algorithm in self.sweeps}, ALGORITHMS))

    @property
    def panels(self) -> tuple[tuple[str, str], ...]:
        """The (problem, features) present, in the order of the protocol."""
        return tuple(dict.fromkeys((problem, features) for problem, features, _ in self.sweeps))

    @property
    def n_runs(self) -> int:
        """The largest number of runs of any sweep."""
        return max(len(sweep.runs) for sweep in self.sweeps.values())


def load(folder: str | os.PathLike[str]) -> Results:
    """Read a folder written by ``lstd reproduce``.

    Parameters
    ----------
    folder : path
        Must hold results.parquet; timings.json, theory.json and provenance.json are read when they are there
        and listed in `Results.missing` when they are not.

    Returns
    -------
    Results

    Raises
    ------
    OutputError
        If results.parquet is missing, unreadable, empty or incomplete, or a JSON file is malformed.

    Examples
    --------
    >>> results = load("lstd-results")                    # doctest: +SKIP
    >>> results.errors["small", "tabular", "boyan"].shape  # doctest: +SKIP
    (50, 20, 17)
    """
    root = Path(folder)
    sweeps = _read_sweeps(root / "results.parquet")
    documents = {name: _read_json(root / name) for name in OPTIONAL}
    timings = documents["timings.json"] or {}
    return Results(
        folder=root,
        sweeps=sweeps,
        timings=_read_timings(root / "timings.json", timings.get("rows", ())),
        timing_notes={name: value for name, value in timings.items() if name != "rows"},
        theory=documents["theory.json"] or {},
        provenance=documents["provenance.json"] or {},
        missing=tuple(name for name, document in documents.items() if document is None),
    )


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise OutputError(f"{path} could not be read: {error}; delete it and run the command again.") from error
    if not isinstance(document, dict):
        raise OutputError(
            f"{path} must hold a JSON object; it holds a {type(document).__name__}; delete it and run the "
            "command again."
        )
    return document


def _read_timings(path: Path, rows: Iterable[Row]) -> dict[Key, Timing]:
    names = Timing.__dataclass_fields__
    try:
        found = {
            (row["problem"], row["features"], row["algorithm"]): Timing(
                **{name: row[name] for name in names if name in row}
            )
            for row in rows
        }
    except (KeyError, TypeError) as error:
        raise OutputError(f"{path} has a row without {error}; delete the file and run the command again.") from error
    return found


def _read_sweeps(path: Path) -> dict[Key, Sweep]:
    columns = _read_parquet(path)
    names, codes = _group(columns)
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], np.arange(len(names) + 1))
    found = {
        key: _sweep(path, key, {c: columns[c][order[start:stop]] for c in ("lmbda", "alpha", "run", "error")})
        for key, start, stop in zip(names, starts[:-1], starts[1:], strict=True)
    }
    return {key: found[key] for key in sorted(found, key=_rank)}


def _read_parquet(path: Path) -> dict[str, npt.NDArray[Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.is_file():
        raise OutputError(f"{path} does not exist; write it with `lstd reproduce --out {path.parent}`.")
    try:
        # PyArrow opens no path that is not valid Unicode.
        with path.open("rb") as file:
            table = pq.read_table(file, columns=list(_COLUMNS))
    except (OSError, pa.ArrowException, ValueError) as error:
        raise OutputError(f"{path} could not be read: {error}; run `lstd reproduce` again.") from error
    if table.num_rows == 0:
        raise OutputError(f"{path} must hold at least one row; it holds none; run `lstd reproduce` again.")
    table = table.unify_dictionaries()
    columns: dict[str, npt.NDArray[Any]] = {}
    for name in _COLUMNS:
        column = table.column(name).combine_chunks()
        if name in _COLUMNS[:3]:
            encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
            columns[name] = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
            columns[f"{name}s"] = np.array(encoded.dictionary.to_pylist(), dtype=object)
        else:
            columns[name] = column.to_numpy(zero_copy_only=False)
    return columns


def _group(columns: Mapping[str, npt.NDArray[Any]]) -> tuple[list[Key], npt.NDArray[np.int64]]:
    """The distinct (problem, features, algorithm), and for each row the index of its own."""
    levels = [columns[f"{name}s"] for name in _COLUMNS[:3]]
    shape = tuple(len(level) for level in levels)
    flat = np.ravel_multi_index(tuple(columns[name] for name in _COLUMNS[:3]), shape)
    distinct, codes = np.unique(flat, return_inverse=True)
    keys = [
        (str(levels[0][i]), str(levels[1][j]), str(levels[2][k]))
        for i, j, k in zip(*np.unravel_index(distinct, shape), strict=True)
    ]
    return keys, codes.astype(np.int64)


def _sweep(path: Path, key: Key, columns: Mapping[str, npt.NDArray[Any]]) -> Sweep:
    runs, run = np.unique(columns["run"], return_inverse=True)
    lmbdas, lmbda = np.unique(columns["lmbda"], return_inverse=True)
    alphas, alpha = np.unique(columns["alpha"], return_inverse=True)
    shape = (len(runs), len(lmbdas), len(alphas))
    position = np.ravel_multi_index((run, lmbda, alpha), shape)
    expected = int(np.prod(shape))
    if len(position) != expected or len(np.unique(position)) != expected:
        raise OutputError(
            f"{path}: {'/'.join(key)} must have one row for each of its {shape[0]} runs x {shape[1]} lmbda x "
            f"{shape[2]} alpha = {expected}; found {len(position)} rows, {len(np.unique(position))} of them "
            "distinct; run `lstd reproduce` again."
        )
    errors = np.empty(expected)
    errors[position] = columns["error"]
    # A NaN can only come from ∞ − ∞ in a run that diverged, so it counts as diverged too.
    errors[np.isnan(errors)] = np.inf
    return Sweep(errors.reshape(shape), lmbdas.astype(float), alphas.astype(float), runs.astype(np.int64))


def _rank(key: Key) -> tuple[Any, ...]:
    known = (tuple(PROBLEMS), FEATURES, ALGORITHMS)
    return tuple(
        (names.index(name) if name in names else len(names), name) for name, names in zip(key, known, strict=True)
    )


def _in_order(names: Iterable[str], known: tuple[str, ...]) -> list[str]:
    return sorted(names, key=lambda name: (known.index(name) if name in known else len(known), name))
