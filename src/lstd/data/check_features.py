"""Features: dense or sparse, checked once, and the predictions that weights make from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd.data.check_arguments import check_indices, check_real_dtype, to_real_array
from lstd.errors import InvalidInputError

Features = Any  # Array | scipy.sparse.csr_array, which has no types | features that sum themselves: lstd.ope.pair_rows


def check_features(name: str, X: Any, *, finite: bool = True, single: bool = False) -> Features:
    """Return float64 features in C order, dense or as compressed sparse rows; unless `finite=False`, all are finite.

    With `single`, an array of float32 stays one: the caller converts it in batches.
    """
    X = _plain(name, X)
    if sparse.issparse(X):
        phi = _as_sparse(name, X)
    else:
        phi = as_real(name, X, np.float32 if single and getattr(X, "dtype", None) == np.float32 else np.float64)
    if phi.ndim != 2:
        raise InvalidInputError(
            f"`{name}` must have shape (n_rows, n_features); got {phi.shape}. Reshape your data with X.reshape(-1, 1) "
            "if it is one feature, with X.reshape(1, -1) if it is one row."
        )
    if not phi.shape[1]:
        raise InvalidInputError(
            f"`{name}` must have at least one feature; got 0 feature(s) (shape={phi.shape}) while a minimum of 1 is "
            "required. For a mean without features, pass a column of ones."
        )
    if finite:
        check_finite(name, phi)
    return phi


def column_names(name: str, X: Any) -> tuple[str, ...] | None:
    """Return the names of a data frame's columns if all are text, as scikit-learn does; else None.

    Raises InvalidInputError when two columns have one name.
    """
    names = list(getattr(X, "column_names", getattr(X, "columns", ())))
    if len(names) != len({*map(repr, names)}):
        raise InvalidInputError(
            f"`{name}` must have columns of different names; got {names!r:.200}. Rename all but one."
        )
    return tuple(map(str, names)) if names and all(isinstance(one, str) for one in names) else None


def by_name(name: str, X: Any, expected: Sequence[str] | None) -> Any:
    """Return the expected columns of a data frame in their order; features without names, or any if none are expected.

    Raises InvalidInputError when a column is missing.
    """
    found, wanted = column_names(name, X), list(() if expected is None else expected)
    if not found or not wanted or list(found) == wanted:
        return X
    if missing := [column for column in wanted if column not in found]:
        raise InvalidInputError(
            f"`{name}` must have the columns {wanted!r:.200}, in any order; {missing[0]!r} is missing: it has "
            f"{list(found)!r:.200}. Rename or add it."
        )
    return X.select(wanted) if hasattr(X, "select") else X[wanted]


def _plain(name: str, X: Any) -> Any:
    """Convert nullable and sparse columns of a pandas frame, which NumPy reads as objects."""
    dtypes = X.dtypes if getattr(X, "ndim", 0) == 2 and hasattr(X, "dtypes") else ()
    extended = [dtype for dtype in dtypes if not isinstance(dtype, np.dtype)]
    if not extended or any(dtype.kind not in "biuf" for dtype in extended):
        return X
    if len(extended) == X.shape[1] and all(type(dtype).__name__ == "SparseDtype" for dtype in extended):
        return X.sparse.to_coo()
    try:
        return X.astype(np.float64)
    except (TypeError, ValueError) as error:  # other columns hold text
        raise InvalidInputError(f"`{name}` must be an array of real numbers: {error}.") from error


def _as_sparse(name: str, X: Any) -> Features:
    """Float64 compressed sparse rows in canonical format."""
    check_indices(name, X)
    if X.dtype.kind == "c":
        check_real_dtype(name, X.dtype)
    try:
        phi = sparse.csr_array(X, dtype=np.float64)
    except (TypeError, ValueError, LookupError, OverflowError) as error:  # values of any type, more dimensions
        raise InvalidInputError(f"`{name}` must be a sparse matrix of real numbers: {error}.") from error
    parts = (phi.data, phi.indices, phi.indptr)
    if not all(part.flags.aligned for part in parts):
        phi = sparse.csr_array(tuple(map(_aligned, parts)), shape=phi.shape)
    if not phi.has_canonical_format:
        phi = phi.copy()  # it may share its arrays with `X`
        phi.sum_duplicates()
    return phi


def check_finite(name: str, phi: Features) -> None:
    """Refuse features that are NaN or infinite."""
    if not all_finite(phi):
        row, column, value = _first_not_finite(phi)
        raise InvalidInputError(
            f"`{name}` must be finite, without NaN or inf; row {row} has {value} in column {column}. Drop or impute "
            "such values first."
        )


def all_finite(phi: Features) -> bool:
    """Whether no value is NaN or infinite: usually the sum alone shows it, without a second array."""
    values = phi.data if sparse.issparse(phi) else phi
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(values.sum())) or bool(np.isfinite(values).all())


def _first_not_finite(phi: Features) -> tuple[int, int, float]:
    """Row, column and value."""
    if sparse.issparse(phi):
        i = int(np.argmin(np.isfinite(phi.data)))
        return int(np.searchsorted(phi.indptr, i, side="right")) - 1, int(phi.indices[i]), float(phi.data[i])
    row = int(np.argmin(np.isfinite(phi).all(axis=1)))
    column = int(np.argmin(np.isfinite(phi[row])))
    return row, column, float(phi[row, column])


def as_real(name: str, values: Any, dtype: Any = np.float64) -> NDArray[Any]:
    """Convert to floats in C order; copy only where needed."""
    return _aligned(np.asarray(to_real_array(name, values), dtype=dtype, order="C"))


def _aligned(array: NDArray[Any]) -> NDArray[Any]:
    """Copy unaligned memory, such as arrays that came over a network: NumPy sums it in another order."""
    return array if array.flags.aligned else array.copy()
