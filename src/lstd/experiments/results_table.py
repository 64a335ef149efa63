"""The rows of results.parquet. PyArrow is loaded only when they are written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from lstd.experiments.protocol import ALGORITHMS, FEATURES, PROBLEMS

if TYPE_CHECKING:
    import pyarrow as pa

    from lstd.experiments.store import Cell

FloatArray = npt.NDArray[np.float64]


def write_table(
    file: IO[bytes], cells: Iterable[tuple[Cell, Mapping[str, FloatArray]]], grids: Mapping[str, Any]
) -> None:
    """Write the rows of stored cells as Parquet: one per problem, features, algorithm, λ, α and run.

    Columns: problem, features, algorithm (dictionary-encoded strings), lmbda, alpha (float64; the step size
    for true online TD), run (int32, the run seed), error (float64, infinite when the run diverged). A row
    group per cell, in the order given.

    Parameters
    ----------
    file : binary file
    cells : iterable of (cell, dict of algorithm -> errors of shape (runs, lmbdas, alphas))
    grids : dict
        Group of algorithms -> {"lmbdas": [...], "alphas": [...]}.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = pa.dictionary(pa.int8(), pa.string())
    types = [names, names, names, pa.float64(), pa.float64(), pa.int32(), pa.float64()]
    columns = ["problem", "features", "algorithm", "lmbda", "alpha", "run", "error"]
    schema = pa.schema(list(zip(columns, types, strict=True)))
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for cell, arrays in cells:
            writer.write_table(_rows(cell, arrays, grids[cell.group], schema))


def _rows(cell: Cell, arrays: Mapping[str, FloatArray], grid: Mapping[str, list[float]], schema: pa.Schema) -> pa.Table:
    import pyarrow as pa

    def encoded(index: npt.NDArray[np.int8], words: Iterable[str]) -> pa.DictionaryArray:
        return pa.DictionaryArray.from_arrays(index, pa.array(words, pa.string()))

    errors = np.stack([arrays[name].transpose(1, 2, 0) for name in cell.algorithms])
    axes = np.indices(errors.shape).reshape(4, -1)
    position = np.array([ALGORITHMS.index(name) for name in cell.algorithms], np.int8)
    constant = np.zeros(errors.size, np.int8)
    values = [
        encoded(constant + np.int8(list(PROBLEMS).index(cell.problem)), PROBLEMS),
        encoded(constant + np.int8(FEATURES.index(cell.features)), FEATURES),
        encoded(position[axes[0]], ALGORITHMS),
        np.asarray(grid["lmbdas"], float)[axes[1]],
        np.asarray(grid["alphas"], float)[axes[2]],
        np.asarray(cell.run_seeds, np.int32)[axes[3]],
        errors.reshape(-1),
    ]
    return pa.table(values, schema=schema)
