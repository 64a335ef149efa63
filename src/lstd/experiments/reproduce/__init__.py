"""All experiments of the paper in one command that can be interrupted.

In comes a plan, the path of a results folder and what an earlier run finished there; out go the figures, tables,
numbers and page of the paper. The sweep, the timings, the theory and the report are parts of `lstd.experiments`.
"""
