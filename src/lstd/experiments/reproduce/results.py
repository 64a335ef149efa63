"""The results of all experiments in memory, and what the panels of Figures 2 to 5 show of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from lstd.experiments import protocol
from lstd.types import Array

Key = tuple[str, str, str]
KEY = {
    "problem": list(protocol.PROBLEMS),
    "features": list(protocol.FEATURES),
    "algorithm": list(protocol.ALGORITHMS),
}  # and the possible values
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Sweep:
    """The errors of one problem, features and algorithm."""

    errors: Array  # (runs, lmbdas, alphas) normalised mean squared error; infinite where the run diverged
    lmbdas: Array  # (lmbdas,)
    alphas: Array  # (alphas,) ridge coefficients of LSTD(λ), step sizes of TD(λ)

    @property
    def n_runs(self) -> int:
        return len(self.errors)

    @cached_property
    def mean(self) -> Array:
        """Mean over the runs, shape (lmbdas, alphas); infinite where any run diverged."""
        return np.asarray((self.errors / self.n_runs).sum(axis=0))  # the sum of errors near 1e308 would overflow

    @cached_property
    def std(self) -> Array:
        """Standard deviation over the runs (divisor runs − 1), shape (lmbdas, alphas).

        NaN where a run diverged or a square overflows, and everywhere if there is only one run.
        """
        if self.n_runs < 2:
            return np.full(self.errors.shape[1:], np.nan)
        with np.errstate(over="ignore", invalid="ignore"):
            std = self.errors.std(axis=0, ddof=1)
        return np.where(np.isfinite(std), std, np.nan)

    @property
    def best_alpha(self) -> NDArray[np.intp]:
        """Index of the α with the lowest mean error for each λ, shape (lmbdas,)."""
        return np.asarray(np.argmin(self.mean, axis=1))

    @property
    def best_errors(self) -> Array:
        """Errors of each run and λ at that α, shape (runs, lmbdas)."""
        return self.errors[:, np.arange(len(self.lmbdas)), self.best_alpha]

    @property
    def best(self) -> tuple[int, int] | None:
        """Indices of the λ and α with the lowest mean error; None if all of them diverged."""
        if not np.isfinite(self.mean).any():
            return None
        i, j = np.unravel_index(np.argmin(self.mean), self.mean.shape)
        return int(i), int(j)

    @property
    def largest_finite(self) -> float:
        return float(np.where(np.isfinite(self.errors), self.errors, 0.0).max())

    @property
    def diverged_entries(self) -> int:
        """Number of infinite errors (λ, α, run)."""
        return int(np.isinf(self.errors).sum())

    @property
    def diverged_runs(self) -> int:
        """Number of runs with at least one infinite error."""
        return int(np.isinf(self.errors).any(axis=(1, 2)).sum())


def loop_ratio(timing: Row) -> float | None:
    """Return the seconds of the NumPy loop divided by those of the sweep; None for a part of one pass."""
    if "seconds" not in timing:
        return None
    ratio: float = timing["loop_seconds"] / timing["seconds"]
    return ratio


@dataclass(frozen=True)
class Results:
    """Everything that a report is made from."""

    sweeps: Mapping[Key, Sweep]  # by problem, features and algorithm, in the order of the protocol
    timings: Mapping[Key, Row]  # the rows of timings.json, whose fields `timing.measure` describes
    timing_sample: str  # what was timed, in words
    provenance: Row  # the contents of provenance.json
    theory: Row = field(default_factory=dict)  # the contents of theory.json

    @property
    def problems(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(problem for problem, _, _ in self.sweeps))

    @property
    def algorithms(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(algorithm for _, _, algorithm in self.sweeps))

    @property
    def panels(self) -> tuple[tuple[str, str], ...]:
        """The pairs (problem, features)."""
        return tuple(dict.fromkeys((problem, features) for problem, features, _ in self.sweeps))

    @property
    def n_runs(self) -> int:
        return next(iter(self.sweeps.values())).n_runs


def gather(cells: Mapping[protocol.Cell, Mapping[str, Array]], timings: Row, provenance: Row) -> Results:
    """Collect finished cells, in the order of the plan, and the contents of timings.json and provenance.json."""
    sweeps = {}
    for cell, arrays in cells.items():
        alphas = protocol.ALPHAS_OF[cell.group]
        for algorithm, errors in arrays.items():
            key = (cell.problem, cell.features, algorithm)
            sweeps[key] = Sweep(errors, protocol.LMBDAS, alphas)
    seconds = {(row["problem"], row["features"], row["algorithm"]): row for row in timings["rows"]}
    return Results(sweeps, seconds, timings["sample"], provenance)


def write_table(file: IO[bytes], sweeps: Mapping[Key, Sweep]) -> None:
    """Write errors as Parquet: one row per problem, features, algorithm, λ, α and run; each sweep is a row group.

    The columns are problem, features, algorithm (dictionary-encoded strings), lmbda, alpha (float64; the step size of
    true online TD), run (int32, the run seed) and error (float64, infinite where the run diverged).
    """
    import pyarrow as pa  # loaded only when a table is written
    import pyarrow.parquet as pq

    numbers = {"lmbda": pa.float64(), "alpha": pa.float64(), "run": pa.int32(), "error": pa.float64()}
    schema = pa.schema(dict.fromkeys(KEY, pa.dictionary(pa.int8(), pa.string())) | numbers)
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for key, sweep in sweeps.items():
            errors = sweep.errors.transpose(1, 2, 0)
            columns = []
            for word, words in zip(key, KEY.values(), strict=True):
                code = np.full(errors.size, words.index(word), np.int8)
                columns.append(pa.DictionaryArray.from_arrays(code, words))
            lmbda, alpha, run = np.indices(errors.shape).reshape(3, -1)
            run_seed = run.astype(np.int32) + np.int32(1)
            columns += [sweep.lmbdas[lmbda], sweep.alphas[alpha], run_seed, errors.reshape(-1)]
            writer.write_table(pa.table(columns, schema=schema))


def select(rows: Iterable[Row], **where: object) -> list[Row]:
    """Return the rows whose entries equal `where`, by growing T."""
    selected = [row for row in rows if where.items() <= row.items()]
    return sorted(selected, key=lambda row: float(row["T"]))


def column(rows: Sequence[Row], name: str) -> Array:
    """Return one entry of every row; null is NaN."""
    return np.array([row[name] for row in rows], dtype=np.float64)


def levels(rows: Iterable[Row], name: str) -> list[float]:
    """Return the distinct values of an entry, in growing order."""
    return sorted({float(row[name]) for row in rows})


def sensitivity_limits(results: Results, problem: str, features: str) -> tuple[float, float]:
    """Vertical limits shared by the three variants: from their lowest mean error up to at most `protocol.TOP`."""
    means = [results.sweeps[problem, features, algorithm].mean for algorithm in protocol.SENSITIVITY_ROWS]
    values = np.array(means)
    values = values[np.isfinite(values) & (values > 0)]
    if not len(values):
        return 0.5, protocol.TOP
    top = min(protocol.TOP, 1.04 * values.max())
    bottom = min(values.min() * 0.94, 0.5 * top)
    return bottom, max(top, 1.06)


def points_above(sweep: Sweep, top: float) -> int:
    """Count the (λ, α) whose mean error is above `top` or infinite."""
    return int((sweep.mean > top).sum())
