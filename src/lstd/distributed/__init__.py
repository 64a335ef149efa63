"""Sums of chunks of large data, by threads, on executors or on a Dask cluster.

In come chunks of data and a function that sums one; out come the sums over all chunks, with the blocks that intervals
need, the same to the last bit whatever runs it. :func:`lstd.fit_chunks` and :func:`lstd.fit_tables` stand on it.
"""

from __future__ import annotations

from lstd.distributed.fit_chunks import sum_chunks
from lstd.distributed.runners import local_processes

__all__ = ["local_processes", "sum_chunks"]
