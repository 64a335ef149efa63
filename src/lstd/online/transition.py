"""Checks of the arguments of one transition, and buffers for kernels."""

from __future__ import annotations

import math
from decimal import Decimal
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd._kernels.blocked import BLOCK
from lstd._kernels.recursive_state import HUGE
from lstd.data.arguments import check_array, check_real, to_real_array
from lstd.data.feature_arrays import check_indices
from lstd.errors import InvalidInputError
from lstd.types import Array

_LINE = 8  # float64 in a cache line
_PAGE = 512  # float64 in a page of 4 KiB


class SparseRow(NamedTuple):
    """Sparse row: increasing indices and their values."""

    indices: NDArray[np.int64]
    values: Array

    def dense(self, n: int) -> Array:
        row = np.zeros(n)
        row[self.indices] = self.values
        return row


def padded(n: int) -> int:
    """Compute the length of a buffer for n entries: whole blocks, but not whole pages.

    Columns that are whole pages apart would share cache lines.
    """
    length = -(-n // BLOCK) * BLOCK
    return length + BLOCK if length % _PAGE == 0 else length


def aligned(*shape: int) -> Array:
    """Allocate zeros that start at a cache line; raises InvalidInputError if `n_features` is too large for memory."""
    size = math.prod(shape)
    try:
        buffer = np.zeros(size + _LINE)
    except (MemoryError, OverflowError, ValueError) as error:
        raise InvalidInputError(
            f"`n_features` must be so small that the estimator fits in memory; it needs {Decimal(size) / 2**27:.3g} "
            "GiB. Select or hash features; TD takes 16 bytes per feature, RecursiveLSTD 16 per pair of features."
        ) from error
    skip = -(buffer.ctypes.data // 8) % _LINE
    return buffer[skip : skip + size].reshape(shape)


@cache  # asking Numba takes longer than most kernels take to run
def compiled(module: Any, name: str) -> bool:
    """Compile or load a kernel of a module for its only signature; returns False if Numba's compiler is turned off.

    Arguments of another type then raise TypeError before anything changes; Numba does not compile for them.
    """
    function = getattr(module, name)
    if not hasattr(function, "compile"):
        return False
    if not function.signatures:
        function.compile(module.SIGNATURES[name])
        function.disable_compile()
    return True


def check_row(name: str, value: Any, n: int) -> Array | SparseRow:
    """Check a row of n features: a vector, a sparse row, or a pair (indices, values)."""
    if isinstance(value, tuple):
        return check_sparse_row(name, value, n)
    if sparse.issparse(value):
        if value.shape not in ((1, n), (n,)):
            raise InvalidInputError(f"`{name}` must be one row of {n} features, shape (1, {n}); got {value.shape}.")
        check_indices(name, value)
        if hasattr(value, "prune"):  # SciPy fails to convert entries beyond `indptr`
            value = value.copy()
            value.prune()
        entries = sparse.coo_array(value)
        return check_sparse_row(name, (entries.coords[-1], entries.data), n)
    return check_array(name, value, (n,))


def check_sparse_row(name: str, value: tuple[Any, ...], n: int) -> SparseRow:
    """Check a pair (indices, values); sorts the indices and adds up the values of equal ones."""
    if len(value) != 2:
        raise InvalidInputError(
            f"`{name}` must be a vector, a sparse row or a pair (indices, values); got {value!r:.80}."
        )
    indices = to_real_array(f"{name}[0]", value[0])
    if indices.size == 0:
        indices = indices.astype(np.int64)
    if indices.ndim != 1 or indices.dtype.kind not in "iu":
        raise InvalidInputError(f"`{name}[0]`, the indices, must be a vector of integers; got {value[0]!r:.80}.")
    values = check_array(f"{name}[1]", value[1], (len(indices),))
    outside = (indices < 0) | (indices >= n)
    if outside.any():
        raise InvalidInputError(f"`{name}[0]`, the indices, must be in [0, {n}); got {indices[outside.argmax()]}.")
    order, place = np.unique(indices, return_inverse=True)
    sums = np.zeros(len(order))
    np.add.at(sums, place, values)
    return SparseRow(order.astype(np.int64), sums)


def sparse_parts(row: Any, n: int) -> tuple[Any, Any]:
    """Return indices and values of a sparse row, unchecked; raises TypeError for other types."""
    if type(row) is tuple and len(row) == 2:
        return row
    if isinstance(row, (sparse.csr_array, sparse.csr_matrix)) and row.shape == (1, n):
        indices = row.indices
        if indices.dtype.kind == "i" and row.indptr.tolist() == [0, len(indices)]:
            return indices.astype(np.int64), row.data
    raise TypeError


def check_numbers(reward: Any, discount: Any, importance_ratio: Any) -> tuple[float, float, float]:
    """Check the numbers of a transition; returns floats."""
    return (
        check_real("reward", reward, -np.inf, np.inf),
        check_real("discount", discount, 0.0, 1.0),
        check_real("importance_ratio", importance_ratio, 0.0, np.inf),
    )


def check_rewards(rewards: Any, m: int) -> Array:
    """Check the rewards of a transition, (m,), each so small that its products with the trace do not overflow."""
    values = check_array("reward", rewards, (m,))
    if not (np.abs(values) <= HUGE).all():
        raise InvalidInputError(
            f"`reward` must be below {HUGE:.0e}; got {np.abs(values).max():.1e}. Scale rewards to order 1."
        )
    return values


def check_pair(x: Any, x_next: Any, terminated: bool, n: int) -> tuple[Array | SparseRow, Array | SparseRow]:
    """Check both rows and convert them to one type; `x_next` is not used, and may be None, if `terminated`."""
    row = check_row("x", x, n)
    if terminated:
        return row, row
    if x_next is None:
        raise InvalidInputError(
            f"`x_next` must be a row of {n} features unless the transition terminated; got None. Pass the features "
            "of the successor, or terminated=True."
        )
    successor = check_row("x_next", x_next, n)
    if isinstance(row, SparseRow) != isinstance(successor, SparseRow):
        row = row.dense(n) if isinstance(row, SparseRow) else row
        successor = successor.dense(n) if isinstance(successor, SparseRow) else successor
    return row, successor


def too_large(row: Array | SparseRow, successor: Array | SparseRow, reward: float) -> InvalidInputError:
    """Make the error for a transition that would make the sums of a recursion overflow."""
    for name, features in (("x", row), ("x_next", successor)):
        largest = np.max(np.abs(features.values if isinstance(features, SparseRow) else features), initial=0.0)
        if largest > HUGE:
            return InvalidInputError(
                f"`{name}` must be below {HUGE:.0e}, so that sums of products do not overflow; it has an entry of "
                f"size {largest:.1e}. Scale features to order 1, or drop the transition."
            )
    return InvalidInputError(
        f"`reward` and `importance_ratio` must be so small that the trace stays below {HUGE:.0e}, and the trace times "
        f"the reward below {HUGE * HUGE:.0e}; got the reward {reward:.1e}. Scale features and rewards to "
        "order 1, and look for huge importance ratios and weights."
    )
