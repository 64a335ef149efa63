"""Features, dense or sparse: checked once; their rows, products with weights, and the spread of each column."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd.data.convert import as_real, check_real_dtype, library_of
from lstd.errors import InvalidInputError
from lstd.types import Array, FeaturesLike

_FEW = 2**12  # entries
Features = Any  # Array | scipy.sparse.csr_array, which has no types | SummingFeatures of lstd.statistics


def check_features(name: str, X: FeaturesLike, *, finite: bool = True, single: bool = False) -> Features:
    """Return float64 features in C order, dense or as compressed sparse rows; unless `finite=False`, all are finite.

    With `single`, an array of float32 stays one: the caller converts it in batches.
    """
    given = X
    phi = _converted(name, X, single)
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
    if finite and not all_finite(phi):
        check_finite(name, phi, column_names(name, given))
    return phi


def _converted(name: str, X: Any, single: bool = False) -> Features:
    """Return float64 features, or those of float32 as they are if `single`."""
    if type(X) is not np.ndarray:
        X = _plain(X)
    if sparse.issparse(X):
        return _as_sparse(name, X)
    if single and getattr(X, "dtype", None) == np.float32:
        return as_real(name, X, np.float32)
    return as_real(name, X)


def column_names(name: str, X: Any) -> tuple[str, ...] | None:
    """Return the names of a data frame's columns if all are text, as scikit-learn does; else None.

    Raises InvalidInputError when two columns have one name.
    """
    columns = getattr(X, "columns", ())
    names = list(getattr(X, "column_names", columns))  # of a table of Arrow, whose `columns` are values
    different = {*map(repr, names)}
    if len(different) < len(names):
        raise InvalidInputError(
            f"`{name}` must have columns of different names; got {names!r:.200}. Rename all but one."
        )
    are_texts = all(isinstance(one, str) for one in names)
    if not names or not are_texts:
        return None
    return tuple(map(str, names))


def by_name(name: str, X: Any, expected: Sequence[str] | None) -> Any:
    """Return the expected columns of a data frame in their order; features without names, or any if none are expected.

    Raises InvalidInputError when a column is missing.
    """
    found = column_names(name, X)
    if not found or expected is None or not len(expected):
        return X
    wanted = list(expected)
    if list(found) == wanted:
        return X
    missing = [column for column in wanted if column not in found]
    if missing:
        raise InvalidInputError(
            f"`{name}` must have the columns {wanted!r:.200}, in any order; {missing[0]!r} is missing: it has "
            f"{list(found)!r:.200}. Rename or add it."
        )
    if hasattr(X, "select"):
        return X.select(wanted)
    return X[wanted]


def _plain(X: Any) -> Any:
    """Return a pandas frame of sparse columns as a sparse matrix; others as they are."""
    if library_of(X) != "pandas" or getattr(X, "ndim", 0) != 2:
        return X
    kinds = X.dtypes
    are_sparse = [type(kind).__name__ == "SparseDtype" for kind in kinds]
    if not are_sparse or not all(are_sparse):
        return X
    if any(kind.subtype.kind not in "biuf" for kind in kinds):
        return X
    if not all(kind.fill_value == 0 for kind in kinds):
        return X.sparse.to_dense()
    subtypes = {str(kind.subtype) for kind in kinds}
    if len(subtypes) > 1:  # of which pandas makes objects
        sparse_dtype = type(kinds.iloc[0])
        X = X.astype(sparse_dtype(np.float64, 0.0))
    return X.sparse.to_coo()


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
    are_aligned = all(part.flags.aligned for part in parts)
    if not are_aligned:
        aligned = tuple(np.require(part, requirements="A") for part in parts)
        phi = sparse.csr_array(aligned, shape=phi.shape)
    if not phi.has_canonical_format:
        phi = phi.copy()  # it may share its arrays with `X`
        phi.sum_duplicates()
    return phi


def check_finite(name: str, phi: Features, names: Sequence[str] | None = None) -> None:
    """Refuse features that are NaN or infinite; `names` are those of the columns, if they have any."""
    if not all_finite(phi):
        row, j, value = _first_not_finite(phi)
        column = str(j)
        if names is not None:
            column = repr(names[j])
        raise InvalidInputError(
            f"`{name}` must be finite, without NaN or inf; row {row} has {value} in column {column}. Impute such "
            "values, with a column of 0 and 1 that says where: dropping rows inside an episode loses rewards and ends."
        )


def all_finite(phi: Features) -> bool:
    """Whether no value is NaN or infinite: usually the sum alone shows it, without a second array."""
    values = phi
    if sparse.issparse(phi):
        values = phi.data
    if values.dtype == np.float64 and values.size <= _FEW:  # no warning to ignore, which takes longer than the rest
        if math.isfinite(np.vdot(values, values)):
            return True
    else:
        with np.errstate(over="ignore", invalid="ignore"):
            total = values.sum()
        if np.isfinite(total):
            return True
    return bool(np.isfinite(values).all())


def _first_not_finite(phi: Features) -> tuple[int, int, float]:
    """Return the row, the column and the value of the first feature that is NaN or infinite."""
    if sparse.issparse(phi):
        entry = int(np.argmin(np.isfinite(phi.data)))
        row = int(np.searchsorted(phi.indptr, entry, side="right")) - 1
        column = int(phi.indices[entry])
        return row, column, float(phi.data[entry])
    is_finite = np.isfinite(phi)
    row = int(np.argmin(is_finite.all(axis=1)))
    column = int(np.argmin(is_finite[row]))
    return row, column, float(phi[row, column])


def check_indices(name: str, X: Any) -> None:
    """Refuse a broken sparse matrix, with which SciPy and kernels would read or write memory outside of it."""
    try:
        for indices, length in _indices_of(X):
            if indices.ndim != 1 or indices.dtype.kind != "i":
                raise ValueError(f"they are of dtype {indices.dtype} and shape {indices.shape}")
            if not len(indices):
                continue
            if indices.min() < 0 or indices.max() >= length:
                raise ValueError("some lie outside")
    except Exception as error:  # its parts may be anything
        raise InvalidInputError(
            f"`{name}` must be a sparse matrix whose indices lie within its shape, {X.shape}, one for each value; "
            f"{error or type(error).__name__}. Build it again; its `check_format()` shows what is wrong."
        ) from error


def _indices_of(X: Any) -> list[tuple[NDArray[Any], int]]:
    """Return the indices of a sparse matrix and the bound that each must stay below; raise if its arrays do not fit."""
    if X.format in ("csr", "csc", "bsr"):
        return [_indices_of_lines(X)]
    if X.format == "dia":
        different = {*X.offsets.tolist()}
        _check_fit(X.data.ndim == 2)
        _check_fit(len(X.offsets) == len(X.data) == len(different))
        return [(X.offsets + 2**30, 2**31)]  # SciPy cuts the numbers of diagonals off at 32 bits
    if X.format == "lil":
        n_rows, n_columns = X.shape
        _check_fit(len(X.rows) == n_rows)
        _check_fit([*map(len, X.rows)] == [*map(len, X.data)])
        indices = [0, *itertools.chain.from_iterable(X.rows)]
        return [(np.array(indices), max(1, n_columns))]
    X = X.tocoo()
    for indices in X.coords:
        _check_fit(len(indices) == len(X.data))
    return list(zip(X.coords, X.shape, strict=True))


def _indices_of_lines(X: Any) -> tuple[NDArray[Any], int]:
    """Return the indices of compressed rows, columns or blocks and their bound; raise if the arrays do not fit."""
    n_lines = 1
    if X.ndim > 1:
        n_lines = X.shape[0]
    length = X.shape[-1]
    if X.format == "csc":
        n_lines = X.shape[1]
        length = X.shape[0]
    dimensions = 1
    if X.format == "bsr":
        height, width = X.blocksize
        n_lines //= height
        length //= width
        dimensions = 3
    ends = X.indptr
    _check_fit(ends.shape == (n_lines + 1,))
    _check_fit(ends.dtype.kind == "i")
    _check_fit(X.data.ndim == dimensions)
    falls = np.diff(ends) < 0
    _check_fit(ends[0] == 0 and not falls.any())
    n_entries = ends[-1]
    _check_fit(n_entries <= len(X.indices) == len(X.data))
    return X.indices[:n_entries], length


def _check_fit(fit: bool) -> None:
    if not fit:
        raise ValueError("its arrays do not fit together")


# ------------------------------------------------------------ rows and products

_ENTRIES_CONVERTED = 2**17  # of float32 features at a time, about one MiB, which stays in the cache


def dense(product: Features) -> Array:
    """Return a product of features as an array."""
    if sparse.issparse(product):
        product = product.toarray()
    return np.asarray(product)


def in_form_of(one: Features, other: Features) -> Features:
    """Return `other` dense or sparse as `one` is."""
    if sparse.issparse(one) == sparse.issparse(other):
        return other
    if sparse.issparse(one):
        return sparse.csr_array(other, dtype=np.float64)
    return dense(other)


def rows_of(features: Features, part: slice) -> Features:
    """Return consecutive rows; those of a sparse array share its memory, as SciPy's do not."""
    if isinstance(features, np.ndarray):
        return features[part]
    if not sparse.issparse(features):
        return features.rows(part)
    n_rows, n = features.shape
    if part.start == 0 and part.stop == n_rows:
        return features
    edges = features.indptr[part.start : part.stop + 1]
    entries = slice(edges[0], edges[-1])
    rows = sparse.csr_array((len(edges) - 1, n))
    rows.data = features.data[entries]
    rows.indices = features.indices[entries]
    rows.indptr = edges - edges[0]
    return rows


def product(
    name: str,
    phi: Features,
    weights: Array,
    intercept: float | Array = 0.0,
    names: Sequence[str] | None = None,
) -> Array:
    """Return predictions from features; raise InvalidInputError if a feature is not finite, or they overflow.

    A feature that is not finite shows in its prediction, so that one pass over the features is enough. Those of float32
    are converted in batches. `names` are those of the features, if they have any.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        values = np.asarray(phi @ weights) if phi.dtype == np.float64 else _converted_product(phi, weights)
        values += intercept
    if not (np.isfinite(values).all() and weights.all()):  # a BLAS may leave out weights of zero
        check_finite(name, phi, names)
        check_not_overflowed(name, values)
    return values


def values_of(phi: Features, weights: Array) -> Array:
    """Return φᵀθ, (T, m), of features (T, n) and weights (n, m), or (n + 1, m) with those of the ones last."""
    n = phi.shape[1]
    values: Array = phi @ weights[:n]
    values += weights[n:].sum(axis=0)
    return values


def _converted_product(phi: NDArray[Any], weights: Array) -> Array:
    """Return the product of features of float32, which are converted in batches."""
    n_rows, n = phi.shape
    size = max(1, _ENTRIES_CONVERTED // n)
    memory = np.empty((min(size, n_rows), n))
    values = np.empty((n_rows, *weights.shape[1:]))
    for first in range(0, n_rows, size):
        rows = slice(first, min(first + size, n_rows))
        batch = memory[: rows.stop - first]
        batch[:] = phi[rows]
        np.dot(batch, weights, out=values[rows])
    return values


def check_not_overflowed(name: str, values: Array) -> None:
    """Refuse features from which predictions are not finite."""
    if not np.isfinite(values).all():
        raise InvalidInputError(f"`{name}` must not be so large that predictions overflow. Scale features to order 1.")


# ------------------------------------------------------------ the spread of columns

ENTRIES = 2**20  # of the columns that are compared at a time, 8 MiB

_CONSTANT = 2.0**-40  # spread, relative to the largest value, that is rounding


@np.errstate(over="ignore", under="ignore", invalid="ignore")  # the caller checks the range
def column_spread(X: Features, weights: Array | None = None, *, about_zero: bool = False) -> Array:
    """Return the centre of each column, its squared spread, and its mean square about the centre, (3, n).

    The centre is the value that at least half of the rows have, by weight; else it is the mean, or zero if `about_zero`
    is true. The squared spread is the mean square about a common value over the rows with another value, so that of
    one-hot columns is 1 however rare their states are. It is 1 for constant columns, and the variance where no value is
    common.

    Parameters
    ----------
    X : ndarray or sparse of shape (T, n), T at least 1
    weights : ndarray of shape (T,), optional
        Weights of the rows, not all zero.
    about_zero : bool, default False
        Whether the centre of each column is zero.

    Examples
    --------
    >>> import numpy as np
    >>> from lstd.data.feature_arrays import column_spread
    >>> for numbers in column_spread(np.array([[0.0, 10.0], [0.0, 11.0], [0.0, 12.0], [3.0, 15.0]])):
    ...     print(numbers)
    [ 0. 12.]
    [9.  3.5]
    [2.25 3.5 ]
    """
    if not sparse.issparse(X):
        return _of_columns(X, weights, about_zero)
    weights_of_rows = weights
    if weights_of_rows is None:
        weights_of_rows = np.ones(X.shape[0])
    share = weights_of_rows / weights_of_rows.sum()
    is_filled = (X != 0.0).astype(np.float64)
    others = share @ is_filled  # shares of the rows with another value than zero
    square = share @ X.power(2)
    spread = square / np.where(others > 0.0, others, 1.0)
    spread[~(square > 0.0)] = 1.0
    numbers = np.stack([np.zeros_like(spread), spread, square])
    (filled,) = np.nonzero(others >= 0.5)
    if len(filled) and not about_zero:
        columns = X.tocsc()[:, filled]
        numbers[:, filled] = _of_columns(columns, weights, about_zero)
    return numbers


def _of_columns(X: Features, weights: Array | None, about_zero: bool) -> Array:
    """Return the three numbers of each column, (3, n)."""
    n_rows, n = X.shape
    numbers = np.empty((3, n))
    step = max(1, ENTRIES // n_rows)
    for first in range(0, n, step):
        columns = slice(first, first + step)
        x = np.ascontiguousarray(dense(X[:, columns]).T, np.float64)
        places = np.arange(len(x))
        values = np.zeros((1, len(x), 1))
        if not about_zero:
            values = _medians(x, weights)
        shares = np.average(x != values, axis=2, weights=weights)  # of the rows with another value
        others = shares.min(axis=0)
        value = values[shares.argmin(axis=0), places, 0]
        is_common = about_zero | (others <= 0.5)
        mean = np.average(x, axis=1, weights=weights)
        centre = np.where(is_common, value, mean)
        deviation = x - centre[:, np.newaxis]
        square = np.average(deviation**2, axis=1, weights=weights)
        has_others = is_common & (others > 0.0)
        spread = square / np.where(has_others, others, 1.0)
        rounding = _CONSTANT * np.abs(x).max(axis=1)
        is_constant = ~(spread > rounding**2)
        spread[is_constant] = 1.0
        numbers[:, columns] = [centre, spread, square]
    return numbers


def _medians(x: Array, weights: Array | None) -> Array:
    """Return the lower and the upper median of each column, (2, n, 1), by weight."""
    if weights is None:
        n_rows = x.shape[1]
        middle = [(n_rows - 1) // 2, n_rows // 2]
        partitioned = np.partition(x, middle, axis=1)
        return partitioned[:, middle].T[:, :, np.newaxis]
    order = np.argsort(x, axis=1)
    below = np.cumsum(weights[order], axis=1)
    half = 0.5 * below[:, [-1]]
    lower = np.argmax(below >= half, axis=1)
    upper = np.argmax(below > half, axis=1)
    places = np.stack([lower, upper], axis=1)
    rows = np.take_along_axis(order, places, axis=1)
    medians = np.take_along_axis(x, rows, axis=1)
    return medians.T[:, :, np.newaxis]
