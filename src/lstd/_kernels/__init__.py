"""Compiled loops: traces, the recursive updates, walks along a chain; NumPy and Numba only.

In: contiguous arrays that the caller has checked, or whose entries the kernel checks itself.
Out: the same arrays, changed in place, and codes that say how it went.
"""
