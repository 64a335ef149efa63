"""Sums of large data, chunk by chunk: by threads or on a Dask cluster.

In come chunks and the function that sums one; :func:`lstd.fit_chunks` and :func:`lstd.fit_tables` bring them.
Out come merged sums, with the blocks that intervals need: the same to the last bit whatever runs the sums.

The way of a chunk of arrays: fit_chunks → runner, by threads or by on_dask → sum_arrays, which checks and sums its rows
on a worker → chunk_sums, where sums are merged in a fixed order → estimators/model.
"""
