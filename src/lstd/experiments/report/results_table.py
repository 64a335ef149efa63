"""The file results.parquet. PyArrow is loaded only when it is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import IO, TYPE_CHECKING

import numpy as np

from lstd.experiments.protocol import ALGORITHMS, FEATURES, PROBLEMS

if TYPE_CHECKING:
    import pyarrow as pa

    from lstd.experiments.report.results import Key, Sweep


def write_table(file: IO[bytes], sweeps: Mapping[Key, Sweep]) -> None:
    """Write errors as Parquet: one row per problem, features, algorithm, λ, α and run.

    The columns are problem, features, algorithm (dictionary-encoded strings), lmbda, alpha (float64; the step size of
    true online TD), run (int32, the run seed) and error (float64, infinite where the run diverged). Each sweep is a row
    group.

    Parameters
    ----------
    file : binary file
    sweeps : dict of (problem, features, algorithm) -> Sweep
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = pa.dictionary(pa.int8(), pa.string())
    types = [names, names, names, pa.float64(), pa.float64(), pa.int32(), pa.float64()]
    columns = ["problem", "features", "algorithm", "lmbda", "alpha", "run", "error"]
    schema = pa.schema(list(zip(columns, types, strict=True)))
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for key, sweep in sweeps.items():
            writer.write_table(_rows(key, sweep, schema))


def _rows(key: Key, sweep: Sweep, schema: pa.Schema) -> pa.Table:
    import pyarrow as pa

    errors = sweep.errors.transpose(1, 2, 0)
    lmbda, alpha, run = np.indices(errors.shape).reshape(3, -1)

    def repeated(name: str, words: Iterable[str]) -> pa.DictionaryArray:
        index = np.full(errors.size, list(words).index(name), np.int8)
        return pa.DictionaryArray.from_arrays(index, pa.array(words, pa.string()))

    labels = [repeated(name, words) for name, words in zip(key, (PROBLEMS, FEATURES, ALGORITHMS), strict=True)]
    axes = [sweep.lmbdas[lmbda], sweep.alphas[alpha], run.astype(np.int32) + np.int32(1)]
    return pa.table([*labels, *axes, errors.reshape(-1)], schema=schema)
