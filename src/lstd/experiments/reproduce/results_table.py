"""The file results.parquet. PyArrow is loaded only when it is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, TYPE_CHECKING

import numpy as np

from lstd.experiments.protocol import ALGORITHMS, FEATURES, PROBLEMS
from lstd.experiments.reproduce.results import KEY

if TYPE_CHECKING:
    from lstd.experiments.reproduce.results import Key, Sweep

LABELS = (list(PROBLEMS), list(FEATURES), list(ALGORITHMS))


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
    schema = pa.schema(list(zip((*KEY, "lmbda", "alpha", "run", "error"), types, strict=True)))
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for key, sweep in sweeps.items():
            errors = sweep.errors.transpose(1, 2, 0)
            lmbda, alpha, run = np.indices(errors.shape).reshape(3, -1)
            labels = [
                pa.DictionaryArray.from_arrays(np.full(errors.size, words.index(word), np.int8), words)
                for word, words in zip(key, LABELS, strict=True)
            ]
            columns = [sweep.lmbdas[lmbda], sweep.alphas[alpha], run.astype(np.int32) + np.int32(1), errors.reshape(-1)]
            writer.write_table(pa.table([*labels, *columns], schema=schema))
