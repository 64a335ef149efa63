"""What the estimators of this package share: checks of one transition's arguments, prediction, aligned buffers."""

from __future__ import annotations

import math
from decimal import Decimal
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd._kernels.blocked import BLOCK
from lstd._kernels.recursive_update import HUGE
from lstd.data.checks import check_array, check_indices, check_real, to_real_array
from lstd.data.rows import check_features, product
from lstd.errors import InvalidInputError

Array = NDArray[np.float64]
_LINE = 8  # float64 in a cache line
_PAGE = 512  # float64 in a page of 4 KiB


class Entries(NamedTuple):
    """A sparse row: increasing indices and their values."""

    indices: NDArray[np.int64]
    values: Array

    def dense(self, n: int) -> Array:
        row = np.zeros(n)
        row[self.indices] = self.values
        return row


def padded(n: int) -> int:
    """Length of a buffer for n entries: whole blocks, and no whole pages, whose columns would share cache lines."""
    length = -(-n // BLOCK) * BLOCK
    return length + BLOCK if length % _PAGE == 0 else length


def aligned(*shape: int) -> Array:
    """Zeros that start at a cache line; an InvalidInputError where `n_features` asks for more than there is."""
    size = math.prod(shape)
    try:
        buffer = np.zeros(size + _LINE)
    except (MemoryError, OverflowError, ValueError) as error:
        raise InvalidInputError(
            "`n_features` must be so small that the estimator fits in memory; it would take "
            f"{Decimal(size) / 2**27:.3g} GiB. Select or hash features; TD takes 16 bytes for each, RecursiveLSTD 16 "
            "for each pair of them."
        ) from error
    skip = -(buffer.ctypes.data // 8) % _LINE
    return buffer[skip : skip + size].reshape(shape)


@cache  # Numba takes longer to tell that it has compiled a kernel than most kernels take
def compiled(module: Any, name: str) -> bool:
    """Compile a kernel of a module, or load it, for its only signature; False where Numba's compiler is turned off.

    Arguments of another type then raise a TypeError, before anything is changed, instead of compiling a variant.
    """
    function = getattr(module, name)
    if not hasattr(function, "compile"):
        return False
    if not function.signatures:
        function.compile(module.SIGNATURES[name])
        function.disable_compile()
    return True


def check_row(name: str, value: Any, n: int) -> Array | Entries:
    """A checked row of n features: a vector, or where it is given as a sparse row or as (indices, values), entries."""
    if isinstance(value, tuple):
        return _check_entries(name, value, n)
    if sparse.issparse(value):
        if value.shape not in ((1, n), (n,)):
            raise InvalidInputError(f"`{name}` must be one row of {n} features, shape (1, {n}); got {value.shape}.")
        check_indices(name, value)
        if hasattr(value, "prune"):  # SciPy converts no entries beyond `indptr`, and fails
            value = value.copy()
            value.prune()
        found = sparse.coo_array(value)
        return _check_entries(name, (found.coords[-1], found.data), n)
    return check_array(name, value, (n,))


def _check_entries(name: str, value: tuple[Any, ...], n: int) -> Entries:
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
    return Entries(order.astype(np.int64), sums)


def entries(row: Any, n: int) -> tuple[Any, Any]:
    """Indices and values of a sparse row, unchecked; a TypeError where it has another form."""
    if type(row) is tuple and len(row) == 2:
        return row
    if isinstance(row, (sparse.csr_array, sparse.csr_matrix)) and row.shape == (1, n):
        indices = row.indices
        if indices.dtype.kind == "i" and row.indptr.tolist() == [0, len(indices)]:
            return indices.astype(np.int64), row.data
    raise TypeError


def check_numbers(reward: Any, discount: Any, importance_ratio: Any) -> tuple[float, float, float]:
    """The three as floats in their ranges."""
    return (
        check_real("reward", reward, -np.inf, np.inf),
        check_real("discount", discount, 0.0, 1.0),
        check_real("importance_ratio", importance_ratio, 0.0, np.inf),
    )


def check_pair(x: Any, x_next: Any, terminated: bool, n: int) -> tuple[Array | Entries, Array | Entries]:
    """Both rows, checked, of one kind; the successor of a row that terminates does not count, and may be None."""
    row = check_row("x", x, n)
    if terminated:
        return row, row
    if x_next is None:
        raise InvalidInputError(
            f"`x_next` must be a row of {n} features unless the transition terminated; got None. Pass the features "
            "that the transition led to, or terminated=True."
        )
    successor = check_row("x_next", x_next, n)
    if isinstance(row, Entries) != isinstance(successor, Entries):
        row = row.dense(n) if isinstance(row, Entries) else row
        successor = successor.dense(n) if isinstance(successor, Entries) else successor
    return row, successor


def too_large(row: Array | Entries, successor: Array | Entries, reward: float) -> InvalidInputError:
    """The error for a transition that would make the sums of a recursion overflow."""
    for name, features in (("x", row), ("x_next", successor)):
        largest = np.max(np.abs(features.values if isinstance(features, Entries) else features), initial=0.0)
        if largest > HUGE:
            return InvalidInputError(
                f"`{name}` must be below {HUGE:.0e}, so that sums of products do not overflow; it has an entry of "
                f"size {largest:.1e}. Scale features to order 1, or drop the transition."
            )
    return InvalidInputError(
        f"`reward` and `importance_ratio` must be so small that the trace stays below {HUGE:.0e}, and the trace times "
        f"the reward below {HUGE * HUGE:.0e}; with the reward {reward:.1e} they do not. Scale features and rewards to "
        "order 1, and look for huge importance ratios."
    )


def predict(x: Any, weights: Array) -> Any:
    """Inner products of a row, or of each row of a matrix, with the weights."""
    n = len(weights)
    if isinstance(x, tuple):
        row = _check_entries("x", x, n)
        return float(product("x", row.values, weights[row.indices]))
    if not sparse.issparse(x):
        x = to_real_array("x", x)
    if x.ndim == 1 and not sparse.issparse(x):
        return float(product("x", check_array("x", x, (n,)), weights))
    phi = check_features("x", x)
    if phi.shape[1] != n:
        raise InvalidInputError(f"`x` must have {n} features, as the estimator has; got shape {phi.shape}.")
    return product("x", phi, weights)
