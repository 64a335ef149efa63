"""The results of all experiments in memory, from which a report is made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstd.experiments.plan import Cell
from lstd.experiments.protocol import ALPHAS_OF, LMBDAS

Array = NDArray[np.float64]
Key = tuple[str, str, str]
KEY = ("problem", "features", "algorithm")
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Sweep:
    """The errors of one problem, features and algorithm."""

    errors: Array  # (runs, lmbdas, alphas) normalised mean squared error; infinite where the run diverged
    lmbdas: Array  # (lmbdas,)
    alphas: Array  # (alphas,) ridge coefficients of LSTD(λ), step sizes of TD(λ)

    @property
    def n_runs(self) -> int:
        """Number of runs."""
        return len(self.errors)

    @cached_property
    def mean(self) -> Array:
        """Mean over the runs, shape (lmbdas, alphas); infinite where any run diverged."""
        return np.asarray(self._scale * (self.errors / self._scale).mean(axis=0))

    @cached_property
    def std(self) -> Array:
        """Standard deviation over the runs (divisor runs − 1), shape (lmbdas, alphas).

        NaN where a run diverged, and everywhere if there is only one run.
        """
        if self.n_runs < 2:
            return np.full(self.errors.shape[1:], np.nan)
        finite = np.isfinite(self.errors).all(axis=0)
        std = self._scale * np.where(finite, self.errors / self._scale, 0.0).std(axis=0, ddof=1)
        return np.where(finite, std, np.nan)

    @cached_property
    def _scale(self) -> Array:
        """Largest finite error over the runs: errors near 1e300 must not overflow in a sum or a square."""
        largest = np.where(np.isfinite(self.errors), self.errors, 0.0).max(axis=0)
        return np.where(largest > 1.0, largest, 1.0)

    @property
    def best_alpha(self) -> NDArray[np.intp]:
        """Index of the α with the lowest mean error for each λ, shape (lmbdas,)."""
        return np.asarray(np.argmin(self.mean, axis=1))

    @property
    def best(self) -> tuple[int, int] | None:
        """Indices of the λ and α with the lowest mean error; None if all of them diverged."""
        if not np.isfinite(self.mean).any():
            return None
        i, j = np.unravel_index(np.argmin(self.mean), self.mean.shape)
        return int(i), int(j)

    @property
    def largest_finite(self) -> float:
        """The largest finite error; 0 if there is none."""
        return float(np.where(np.isfinite(self.errors), self.errors, 0.0).max())

    @property
    def diverged_entries(self) -> int:
        """Number of infinite errors (λ, α, run)."""
        return int(np.isinf(self.errors).sum())

    @property
    def diverged_runs(self) -> int:
        """Number of runs with at least one infinite error."""
        return int(np.isinf(self.errors).any(axis=(1, 2)).sum())


@dataclass(frozen=True)
class Timing:
    """Seconds per run of one problem, features and algorithm, and the seconds to compare them with.

    Without `seconds`, the algorithm is computed in the pass of all three LSTD(λ) and costs as much alone.
    """

    loop_seconds: float
    loop_low: float
    loop_high: float
    loop_sample: str
    paper_seconds: float
    paper_spread: float
    seconds: float | None = None
    low: float | None = None
    high: float | None = None
    runs: int | None = None

    @property
    def ratio(self) -> float | None:
        """Seconds of the NumPy loop divided by those of the sweep."""
        return self.loop_seconds / self.seconds if self.seconds else None


@dataclass(frozen=True)
class Results:
    """Everything that a report is made from."""

    sweeps: Mapping[Key, Sweep]  # by problem, features and algorithm, in the order of the protocol
    timings: Mapping[Key, Timing]
    timing_sample: str  # what was timed, in words
    provenance: Row  # the contents of provenance.json
    theory: Row = field(default_factory=dict)  # the contents of theory.json

    @property
    def problems(self) -> tuple[str, ...]:
        """The problems in the order of the protocol."""
        return tuple(dict.fromkeys(problem for problem, _, _ in self.sweeps))

    @property
    def algorithms(self) -> tuple[str, ...]:
        """The algorithms in the order of the protocol."""
        return tuple(dict.fromkeys(algorithm for _, _, algorithm in self.sweeps))

    @property
    def panels(self) -> tuple[tuple[str, str], ...]:
        """The pairs (problem, features) in the order of the protocol."""
        return tuple(dict.fromkeys((problem, features) for problem, features, _ in self.sweeps))

    @property
    def n_runs(self) -> int:
        """Number of runs of each sweep."""
        return next(iter(self.sweeps.values())).n_runs


def gather(cells: Mapping[Cell, Mapping[str, Array]], timings: Row, provenance: Row) -> Results:
    """Collect finished cells, in the order of the plan, and the contents of timings.json and provenance.json."""
    sweeps = {
        (cell.problem, cell.features, algorithm): Sweep(errors, LMBDAS, ALPHAS_OF[cell.group])
        for cell, arrays in cells.items()
        for algorithm, errors in arrays.items()
    }
    seconds = {}
    for row in timings["rows"]:
        key, numbers = [row[name] for name in KEY], {name: row[name] for name in row if name not in KEY}
        seconds[*key] = Timing(**numbers)
    return Results(sweeps, seconds, timings["sample"], provenance)


def select(rows: Iterable[Row], **where: object) -> list[Row]:
    """Return the rows whose entries equal `where`, by growing T.

    Examples
    --------
    >>> select([{"T": 2, "lmbda": 0.0}, {"T": 1, "lmbda": 0.0}, {"T": 1, "lmbda": 1.0}], lmbda=0.0)
    [{'T': 1, 'lmbda': 0.0}, {'T': 2, 'lmbda': 0.0}]
    """
    chosen = [row for row in rows if all(row[name] == value for name, value in where.items())]
    return sorted(chosen, key=lambda row: float(row["T"]))


def column(rows: Sequence[Row], name: str) -> Array:
    """Return one entry of every row; null is NaN."""
    return np.array([np.nan if row[name] is None else float(row[name]) for row in rows])


def levels(rows: Iterable[Row], name: str) -> list[float]:
    """Return the distinct values of an entry, in growing order."""
    return sorted({float(row[name]) for row in rows})
