"""Checks of single arguments; `lstd.data.check_rows` checks rows.

A message names the argument, the rule, the value and the remedy.
"""

from __future__ import annotations

import itertools
import math
import numbers
from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lstd.errors import InvalidInputError, InvalidTypeError


def shown(value: Any) -> str:
    """Return the start of a value's representation, for a message; of an array or a data frame, its type and shape."""
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and shape and all(isinstance(length, int) for length in shape):
        return f"{type(value).__name__} of shape {shape}"
    return f"{value!r:.80}"


def shown_id(name: Any) -> str:
    """Return an id of an episode or a group as a message shows it."""
    if isinstance(name, np.datetime64):  # of nanoseconds, which Python has as integers
        return repr(str(name))
    return f"{name.item() if hasattr(name, 'item') else name!r:.80}"


def check_real(
    name: str, value: Any, low: float, high: float, *, open_low: bool = False, open_high: bool = False
) -> float:
    """Return `value` as a float in [low, high], without the ends that are open, or raise InvalidInputError."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Real):
        raise InvalidInputError(f"`{name}` must be a number; got {shown(value)}.")
    try:
        number = float(value)
    except OverflowError as error:
        raise InvalidInputError(
            f"`{name}` must be finite in float64, below 1e308 in absolute value; got a larger one."
        ) from error
    too_low = number <= low if open_low else number < low
    too_high = number >= high if open_high else number > high
    if math.isinf(low) and math.isinf(high):
        too_low = too_high = not math.isfinite(number)
    if math.isnan(number) or too_low or too_high:
        raise InvalidInputError(f"`{name}` must be {_range(low, high, open_low, open_high)}; got {number:g}.")
    if math.isinf(number):
        raise InvalidInputError(f"`{name}` must be finite; got {number:g}.")
    return number


def _range(low: float, high: float, open_low: bool, open_high: bool) -> str:
    if math.isinf(low) and math.isinf(high):
        return "finite"
    upper = "∞)" if high == math.inf else f"{high:g}{')' if open_high else ']'}"
    return f"in {'(' if open_low else '['}{low:g}, {upper}"


def check_integer(name: str, value: Any, low: int, high: int | None = None) -> int:
    """Return `value` as an int in [low, high], or raise InvalidInputError."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise InvalidInputError(f"`{name}` must be an integer; got {shown(value)}.")
    number = int(value)
    if number < low or (high is not None and number > high):
        rule = f"at least {low}" if high is None else f"in [{low}, {high}]"
        raise InvalidInputError(f"`{name}` must be {rule}; got {number}.")
    return number


def check_flag(name: str, value: Any) -> bool:
    """Return `value` as a bool if it is True or False, or raise InvalidInputError."""
    if not isinstance(value, (bool, np.bool_)):
        raise InvalidInputError(f"`{name}` must be True or False; got {shown(value)}.")
    return bool(value)


def check_choice(name: str, value: Any, choices: Collection[str]) -> str:
    """Return `value` if it is one of `choices`, or raise InvalidInputError."""
    if not isinstance(value, str) or value not in choices:
        raise InvalidInputError(f"`{name}` must be one of {', '.join(map(repr, choices))}; got {shown(value)}.")
    return value


def is_single(value: Any) -> bool:
    """Return whether a value is a single one, rather than a list or an array of them."""
    try:
        return np.ndim(value) == 0
    except Exception:  # lists of unequal lengths, or an object that raises anything: no array, as its check will say
        return False


def check_array(name: str, value: ArrayLike, shape: tuple[int | None, ...]) -> NDArray[np.float64]:
    """Return a finite float64 copy of `value` with the given shape (None: any length), or raise."""
    array = np.array(to_real_array(name, value), dtype=np.float64, order="C")
    wanted = tuple(size if rule is None else rule for rule, size in zip(shape, array.shape, strict=False))
    if array.ndim != len(shape) or array.shape != wanted:
        rule = ", ".join("any" if length is None else str(length) for length in shape) + "," * (len(shape) == 1)
        raise InvalidInputError(f"`{name}` must have shape ({rule}); got {array.shape}.")
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        where, found = ", ".join(map(str, bad[0])), array[tuple(bad[0])]
        raise InvalidInputError(f"`{name}` must be finite; entry {where} is {found}. Drop or impute such rows first.")
    return array


def is_lazy(value: Any) -> bool:
    """Return whether a value is a lazy frame, as those of Polars and narwhals are."""
    return type(value).__name__ == "LazyFrame"


def check_values_known(name: str, value: Any) -> None:
    """Refuse lazy frames, which hold no values yet, and masked entries, whose hidden values would be used."""
    if is_lazy(value):
        raise InvalidInputError(f"`{name}` must hold values; got a {type(value).__name__}. Call its `collect()` first.")
    structured = getattr(getattr(value, "dtype", None), "names", None) is not None  # refused by its dtype
    if not structured and np.ma.is_masked(value):
        raise InvalidInputError(f"`{name}` must not have masked entries. Fill them, or drop their rows, first.")


def check_indices(name: str, X: Any) -> None:
    """Refuse a broken sparse matrix, with which SciPy and kernels would read or write memory outside of it."""
    try:
        for indices, low, high in _index_ranges(X):
            if indices.ndim != 1 or indices.dtype.kind != "i":
                raise ValueError(f"they are of dtype {indices.dtype} and shape {indices.shape}")
            if len(indices) and not (indices.min() >= low and indices.max() < high):
                raise ValueError("some lie outside")
    except Exception as error:  # its parts may be anything
        raise InvalidInputError(
            f"`{name}` must be a sparse matrix whose indices lie within its shape, {X.shape}, one for each value; "
            f"{error or type(error).__name__}. Build it again; its `check_format()` shows what is wrong."
        ) from error


def _index_ranges(X: Any) -> list[tuple[NDArray[Any], int, int]]:
    """Indices of a sparse matrix, with the least value allowed and the bound that they must stay below."""
    if X.format in ("csr", "csc", "bsr"):
        return [(_compressed_indices(X), 0, X.shape[-1 if X.format != "csc" else 0] // _block(X)[1])]
    if X.format == "dia":
        # Diagonals outside of the shape are empty, but SciPy cuts their numbers off at 32 bits.
        _check_lengths(X.data.ndim == 2 and len(X.offsets) == len(X.data) == len(np.unique(X.offsets)))
        return [(X.offsets, -(2**30), 2**30)]
    if X.format == "lil":
        lengths = [len(row) for row in X.rows]
        _check_lengths(len(lengths) == X.shape[0] and lengths == [len(values) for values in X.data])
        indices = list(itertools.chain.from_iterable(X.rows))
        return [(np.array(indices) if indices else np.empty(0, np.intp), 0, X.shape[1])]
    if X.format == "dok":
        keys = np.array(list(X.keys())) if X.keys() else np.empty(0, np.intp)
        coords = keys.reshape(-1, len(X.shape)).T
    else:
        coords = X.coords
        _check_lengths(all(len(indices) == len(X.data) for indices in coords))
    return [(indices, 0, length) for indices, length in zip(coords, X.shape, strict=True)]


def _compressed_indices(X: Any) -> NDArray[Any]:
    """Indices of compressed rows, columns or blocks, without unused ones at the end."""
    ends, n_lines = X.indptr, (1, *X.shape)[-2 if X.format != "csc" else -1]
    _check_lengths(ends.shape == (n_lines // _block(X)[0] + 1,) and ends.dtype.kind == "i")
    _check_lengths(X.data.ndim == (3 if X.format == "bsr" else 1) and len(X.data) == len(X.indices))
    _check_lengths(ends[0] == 0 and not (np.diff(ends) < 0).any() and ends[-1] <= len(X.indices))
    indices: NDArray[Any] = X.indices
    return indices[: ends[-1]] if indices.dtype.kind == "i" else indices


def _block(X: Any) -> tuple[int, int]:
    return X.blocksize if X.format == "bsr" else (1, 1)


def _check_lengths(fit: bool) -> None:
    if not fit:
        raise ValueError("its arrays do not fit together")


def to_real_array(name: str, value: ArrayLike) -> NDArray[Any]:
    """Return `value` as an array of booleans, integers or floats, or raise InvalidInputError."""
    check_values_known(name, value)
    try:
        array = np.asarray(value)
    except MemoryError:
        raise
    except Exception as error:  # ragged lists; `__array__` may raise anything
        raise InvalidInputError(f"`{name}` must be an array of real numbers: {error}.") from error
    if array.dtype.kind in "OSU":
        try:
            numbers_read = array.astype(np.float64)
        except OverflowError as error:
            raise InvalidInputError(
                f"`{name}` must be finite in float64, below 1e308 in absolute value; it has larger ones."
            ) from error
        except (TypeError, ValueError) as error:
            refusal = InvalidTypeError if isinstance(error, TypeError) else InvalidInputError
            raise refusal(f"`{name}` must be an array of real numbers: {error}.") from error
        if array.dtype.kind == "O":  # text is refused even if it reads as numbers
            array = numbers_read
    check_real_dtype(name, array.dtype)
    return array


def check_real_dtype(name: str, dtype: np.dtype[Any]) -> None:
    """Refuse dtypes other than booleans, integers and floats."""
    if dtype.kind not in "biuf":
        rule = f"`{name}` must be an array of real numbers; got dtype {dtype}."
        parts = " Complex data not supported: pass real and imaginary parts as columns of their own."
        raise InvalidInputError(rule + (parts if dtype.kind == "c" else ""))


def check_grid(name: str, values: ArrayLike, low: float, high: float, *, open_low: bool = False) -> NDArray[np.float64]:
    """Return a non-empty float64 vector whose entries lie in [low, high] (or (low, high])."""
    try:
        grid = np.atleast_1d(np.asarray(values))
    except Exception as error:  # ragged lists; `__array__` may raise anything
        raise InvalidInputError(f"`{name}` must be an array of real numbers: {error}.") from error
    if grid.ndim != 1:
        raise InvalidInputError(f"`{name}` must have shape (any,); got {grid.shape}.")
    if not grid.size:
        raise InvalidInputError(f"`{name}` must hold at least one value; got shape {grid.shape}.")
    return np.array([check_real(f"{name}[{i}]", v, low, high, open_low=open_low) for i, v in enumerate(grid)])
