"""The sums of LSTD(λ) over rows: how they are computed, merged across chunks, kept in blocks, solved and saved.

In: checked rows of :mod:`lstd.data.rows`, chunk by chunk.
Out: statistics that merge exactly, blocks of them for intervals, and solutions with their condition number.
"""
