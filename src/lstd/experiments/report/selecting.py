"""Lists of JSON objects, as in theory.json, turned into arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from lstd.experiments.report.results import FloatArray, Row


def select(rows: Iterable[Row], **where: object) -> list[Row]:
    """The rows whose entries equal `where`, by growing T.

    Examples
    --------
    >>> select([{"T": 2, "lmbda": 0.0}, {"T": 1, "lmbda": 0.0}, {"T": 1, "lmbda": 1.0}], lmbda=0.0)
    [{'T': 1, 'lmbda': 0.0}, {'T': 2, 'lmbda': 0.0}]
    """
    found = [row for row in rows if all(row[name] == value for name, value in where.items())]
    return sorted(found, key=lambda row: float(row["T"]))


def column(rows: Sequence[Row], name: str) -> FloatArray:
    """One entry of every row as an array; a missing one or null is NaN."""
    return np.array([np.nan if row.get(name) is None else float(row[name]) for row in rows])


def levels(rows: Iterable[Row], name: str) -> list[float]:
    """The distinct values of an entry, in growing order."""
    return sorted({float(row[name]) for row in rows})
