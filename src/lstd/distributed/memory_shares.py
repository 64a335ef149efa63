"""The bound on memory, and its shares: a quarter for rows that are read ahead, half for blocks, the rest for sums.

A chunk is always read and summed, however little memory there is.
"""

from __future__ import annotations

MEMORY = 2**29  # bytes, the default bound
LEAST_MEMORY = 2**24

_CHUNK_ENTRIES = 2**20  # of a chunk's features, 8 MiB
_ENTRY_BYTES = 128  # of memory that a chunk's feature needs, so that several chunks have a place
_CHUNK_ROWS = 64, 2**15  # fewest and most
_CHOICE_ENTRIES = 2**25  # features of the rows that settings are chosen from, 256 MiB
_SUMS_HELD = 4  # of several chunks in a tree, each with its blocks
_FEW_BLOCKS = 16  # of each of several chunks; more only of _BLOCK_ROWS rows and 16 rows per feature each,
_BLOCK_ROWS = 2**12  # so that they take at most an eighth of the memory of the rows, and little of their time


def chunk_rows(memory: int, n_features: int) -> int:
    """Return the rows of a table that are read at a time."""
    fewest, most = _CHUNK_ROWS
    return max(fewest, min(most, min(_CHUNK_ENTRIES, memory // _ENTRY_BYTES) // n_features))


def bytes_ahead(memory: int) -> int:
    """Return the bytes of rows that are read and converted ahead of their sums."""
    return memory // 4


def choice_entries(memory: int) -> int:
    """Return how many features the first rows may have from which settings are chosen."""
    return min(_CHOICE_ENTRIES, bytes_ahead(memory) // 8)


def block_bytes(memory: int, *, alone: bool) -> int:
    """Return the bytes that the blocks of one sum may take; `alone` if there is one chunk, hence one sum."""
    return memory // 2 if alone else memory // 2 // _SUMS_HELD


def bytes_under_way(memory: int, n_features: int, limit: int, *, alone: bool) -> int:
    """Return the bytes left for chunks and sums in progress, if each sum keeps `limit` blocks."""
    blocks = 16 * n_features**2 * limit * (1 if alone else _SUMS_HELD)
    return memory - bytes_ahead(memory) - min(memory // 2, blocks)


def most_blocks(limit: int, n_rows: int, n_features: int, *, alone: bool) -> int:
    """Return how many blocks to keep for the first `n_rows` rows of a chunk, at most `limit`."""
    return limit if alone else min(limit, max(_FEW_BLOCKS, n_rows // max(_BLOCK_ROWS, 16 * n_features)))
