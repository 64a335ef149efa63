"""Types that the whole package names: arrays, and what callers may pass for them."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]


class SparseLike(Protocol):
    """A sparse array or matrix of SciPy, of any format."""

    @property
    def format(self) -> str:
        """Name of the format, such as "csr"."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Numbers of rows and columns."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the entries."""


class FrameLike(Protocol):
    """A data frame of pandas, Polars or PyArrow, or a column of one: each hands out its values as Arrow has them."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the values in the C format of Arrow."""


FeaturesLike = ArrayLike | SparseLike | FrameLike  # one row of features, or a row for each row of the data
