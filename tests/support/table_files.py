"""Tables in files, for tests of what reads them."""

import gzip

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lstd.data.roles import Roles
from lstd.data.settings import Settings
from lstd.distributed.chunk_sums import MEMORY
from lstd.distributed.runner import Runner
from lstd.tables.reader import open_tables
from lstd.tables.sum_tables import SumTables
from lstd.tables.table_fit import TableFit

ROLES = Roles(("x", "y"), ("r",), "id", "done")


def episodes(lengths, seed, *, names=None):
    """A table of episodes, every other one terminated; the rest end in a row without reward."""
    rng = np.random.default_rng(seed)
    n_rows = sum(lengths)
    number = np.repeat(np.arange(len(lengths)), lengths)
    last = np.append(number[1:] != number[:-1], True) if n_rows else np.empty(0, bool)
    done = last & (number % 2 == 0)
    reward = np.where(last & ~done, np.nan, rng.normal(size=n_rows))
    ids = number if names is None else [names[i] for i in number]
    columns = {"x": rng.normal(size=n_rows), "id": ids, "y": rng.normal(size=n_rows), "r": reward, "done": done}
    return pa.table({**columns, "cut": last & ~done})


def write(table, path):
    """Write a table by the extension, missing values as nothing in CSV."""
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=7)
        return str(path)
    text = ",".join(table.column_names) + "\n"
    for row in table.to_pylist():
        text += ",".join("" if value != value else str(value) for value in row.values()) + "\n"
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return str(path)


def statistics(paths, roles=ROLES, chunk_rows=None, parameters=None):
    """Sums over tables that follow one another, and over the rows at their ends."""
    settings = parameters or Settings(0.9, 0.7, fit_intercept=False)
    sums = SumTables(settings, "auto", MEMORY, False, roles, chunk_rows)
    part = Runner(n_jobs=1).sum(sums, open_tables(paths, None))
    part.ends.check()
    return part.ends.named(part.blocks.total)


def fit_files(paths, roles, settings, *, n_jobs=None, on_progress=None, **options):
    """A model of tables in threads of this process; `options` are those of a fit."""
    fit = TableFit(roles, settings, Runner(n_jobs), **options, on_progress=on_progress)
    return fit.model(open_tables(paths, on_progress))
