"""Checks of arguments with one number per row: weights, discounts, ratios and trace coefficients."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lstd.data.check_arguments import check_real
from lstd.data.check_features import as_real
from lstd.data.parsing import first_true
from lstd.errors import InvalidInputError
from lstd.types import Array


def check_per_row(
    name: str, values: ArrayLike, n_rows: int, high: float = np.inf, what: str = "value", of: str = "X",
    may_miss: NDArray[np.bool_] | None = None,
) -> Array:  # fmt: skip
    """Return one number in [0, high] per row; `values` may be a single number.

    In rows that `may_miss` it, (T,), which are horizon rows, it may be NaN.
    """
    array = as_real(name, values).copy()
    if array.ndim == 0:
        array = np.full(n_rows, check_real(name, np.asarray(values).item(), 0.0, high))
    check_length(name, array, what, n_rows, of)
    bad = ~((array >= 0.0) & (array <= high)) | np.isinf(array)
    if may_miss is not None:
        unknown = np.isnan(array)
        if (row := first_true(unknown & ~may_miss)) is not None:
            raise InvalidInputError(
                f"`{name}` must be finite on every row but the last one of an episode that did not terminate; row "
                f"{row} has nan. Fill it in, or drop the row's episode."
            )
        bad &= ~unknown
    if (row := first_true(bad)) is not None:
        rule = "finite and at least 0" if high == np.inf else f"in [0, {high:g}]"
        drop = "the row's episode" if of == "X" else f"this row of `{of}`"
        raise InvalidInputError(f"`{name}` must be {rule}; row {row} has {array[row]:g}. Correct it, or drop {drop}.")
    return array


def check_length(name: str, array: NDArray[Any], what: str, n_rows: int, of: str = "X") -> None:
    if array.shape != (n_rows,):
        raise InvalidInputError(
            f"`{name}` must have one {what} per row of `{of}`, shape ({n_rows},); got {array.shape}."
        )
