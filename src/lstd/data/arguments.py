"""Checks of single arguments, one function per kind; `lstd.data.check_rows` checks rows.

A message names the argument, the rule, the value and the remedy.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Protocol, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lstd.data.convert import TOO_LARGE, as_real, library_of, to_real_array
from lstd.data.identity import Identity, name_of
from lstd.data.ids import first_true
from lstd.errors import InvalidInputError
from lstd.types import Array


def listed(names: Sequence[str], most: int = 12) -> str:
    """The first names, and how many more there are.

    >>> listed(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    text = ", ".join(names[:most])
    more = len(names) - most
    if more > 0:
        text += f" and {more} more"
    return text


def shown(value: object) -> str:
    """Return the start of a value's representation, for a message; of an array or a data frame, its type and shape."""
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and shape and all(isinstance(length, int) for length in shape):
        return f"{type(value).__name__} of shape {shape}"
    if is_of_arrow(value):
        return f"{type(value).__name__} of {value.type}"
    return f"{value!r:.80}"


class _ArrowColumn(Protocol):
    """A column of Arrow."""

    @property
    def type(self) -> object:
        """Type of its values."""


def is_of_arrow(value: object) -> TypeGuard[_ArrowColumn]:
    """Return whether a value is a column of Arrow."""
    return library_of(value) == "pyarrow" and hasattr(value, "type")


def shown_id(name: Any) -> str:
    """Return an id of an episode or a group as a message shows it."""
    if isinstance(name, (np.datetime64, np.timedelta64)):  # of nanoseconds, which Python has as integers
        return repr(str(name))
    if hasattr(name, "item"):
        name = name.item()
    return f"{name!r:.80}"


def shown_key(key: Identity | None) -> str:
    """Return an id of this key as a message shows it."""
    if key is None:
        return "None"
    return shown_id(name_of(key))


def check_real(
    name: str, value: object, low: float, high: float, *, open_low: bool = False, open_high: bool = False
) -> float:
    """Return `value` as a finite float in [low, high], without the ends that are open, or raise InvalidInputError."""
    if type(value) is not float and (isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Real)):
        raise _no_number(name, value)
    try:
        number = float(value)
    except TypeError as error:  # a duration of NumPy, which is a number for Python
        raise _no_number(name, value) from error
    except OverflowError as error:
        raise InvalidInputError(TOO_LARGE.format(name=name, found="got a larger one")) from error
    is_above = number > low or (number == low and not open_low)
    is_below = number < high or (number == high and not open_high)
    if not (is_above and is_below) and (low, high) != (-math.inf, math.inf):
        interval = _interval(low, high, open_low=open_low, open_high=open_high)
        raise InvalidInputError(f"`{name}` must be in {interval}; got {number:g}.")
    if not math.isfinite(number):
        raise InvalidInputError(f"`{name}` must be finite; got {number:g}.")
    return number


def _no_number(name: str, value: object) -> InvalidInputError:
    return InvalidInputError(f"`{name}` must be a number; got {shown(value)}.")


def _interval(low: float, high: float, *, open_low: bool, open_high: bool) -> str:
    """Return an interval as messages have it, such as (0, 1]."""
    opening = "(" if open_low else "["
    if high == math.inf:
        return f"{opening}{low:g}, ∞)"
    closing = ")" if open_high else "]"
    return f"{opening}{low:g}, {high:g}{closing}"


def check_integer(name: str, value: object, low: int, high: int | None = None) -> int:
    """Return `value` as an int in [low, high], or raise InvalidInputError."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise InvalidInputError(f"`{name}` must be an integer; got {shown(value)}.")
    try:
        number = int(value)
    except TypeError as error:  # a duration of NumPy, which is an integer for Python
        raise InvalidInputError(f"`{name}` must be an integer; got {shown(value)}.") from error
    if number < low or (high is not None and number > high):
        rule = f"at least {low}"
        if high is not None:
            rule = f"in [{low}, {high}]"
        raise InvalidInputError(f"`{name}` must be {rule}; got {number}.")
    return number


def check_flag(name: str, value: object) -> bool:
    """Return `value` as a bool if it is True or False, or raise InvalidInputError."""
    if not isinstance(value, (bool, np.bool_)):
        raise InvalidInputError(f"`{name}` must be True or False; got {shown(value)}.")
    return bool(value)


def says_no_ends(terminated: object, what: str = "flags, one for each row") -> bool:
    """Return whether `terminated` is False alone, which says that no end was seen; refuse other single flags.

    `what` it is otherwise.
    """
    if isinstance(terminated, (bool, np.bool_)) and not terminated:
        return True
    if isinstance(terminated, (bool, np.bool_, numbers.Number)):
        raise InvalidInputError(
            f"`terminated` must be {what}, or False alone, which says that no end was seen; got {terminated!r}. Flag "
            "the last row of each episode that ended for good."
        )
    return False


def check_choice(name: str, value: object, choices: Collection[str]) -> str:
    """Return `value` if it is one of `choices`, or raise InvalidInputError."""
    if not isinstance(value, str) or value not in choices:
        raise InvalidInputError(f"`{name}` must be one of {', '.join(map(repr, choices))}; got {shown(value)}.")
    return value


def check_columns(name: str, value: object, *, several: bool = True, least: int = 1) -> tuple[str, ...]:
    """Return the names of columns: one alone or, where `several` may be given, a list in order, each once."""
    if isinstance(value, (set, frozenset)):
        raise InvalidInputError(f"`{name}` must have an order; got a {type(value).__name__}. Give a list.")
    given: list[object] = [value]
    if several and isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        given = [*value]
    names = []
    for one in given:
        if not isinstance(one, str):
            what = "the name of a column"
            if several:
                what += " or several"
            raise InvalidInputError(f"`{name}` must be {what}; got {shown(one)} of type {type(one).__name__}.")
        names.append(one)
    if len({*names}) < len(names):
        twice = next(one for one in names if names.count(one) > 1)
        raise InvalidInputError(f"`{name}` must name each column once; {twice!r} is in it twice.")
    if len(names) < least:
        raise InvalidInputError(f"`{name}` must name at least one column; got none.")
    return tuple(names)


def is_single(value: Any) -> bool:
    """Return whether a value is a single one, rather than a list or an array of them."""
    try:
        return np.ndim(value) == 0
    except Exception:  # lists of unequal lengths, or an object that raises anything: no array, as its check will say
        return False


def check_array(name: str, value: ArrayLike, shape: tuple[int | None, ...]) -> Array:
    """Return a finite float64 copy of `value` with the given shape (None: any length), or raise."""
    array = np.array(to_real_array(name, value), dtype=np.float64, order="C")
    has_shape = array.ndim == len(shape)
    for length, wanted in zip(array.shape, shape, strict=False):
        has_shape = has_shape and wanted in (None, length)
    if not has_shape:
        rule = ", ".join("any" if length is None else str(length) for length in shape)
        if len(shape) == 1:
            rule += ","
        raise InvalidInputError(f"`{name}` must have shape ({rule}); got {array.shape}.")
    finite = np.isfinite(array)
    if not finite.all():
        bad = np.argwhere(~finite)[0]
        where = ", ".join(map(str, bad))
        found = array[tuple(bad)]
        raise InvalidInputError(f"`{name}` must be finite; entry {where} is {found}. Correct or impute it first.")
    return array


def check_grid(name: str, values: ArrayLike, low: float, high: float, *, open_low: bool = False) -> Array:
    """Return a non-empty float64 vector whose entries lie in [low, high] (or (low, high])."""
    try:
        grid = np.atleast_1d(np.asarray(values))
    except Exception as error:  # ragged lists; `__array__` may raise anything
        raise InvalidInputError(f"`{name}` must be a list of numbers; got {shown(values)}.") from error
    if grid.ndim != 1:
        raise InvalidInputError(f"`{name}` must have shape (any,); got {grid.shape}.")
    if not grid.size:
        raise InvalidInputError(f"`{name}` must hold at least one value; got shape {grid.shape}.")
    numbers = [check_real(f"{name}[{i}]", value, low, high, open_low=open_low) for i, value in enumerate(grid)]
    return np.array(numbers)


def check_per_row(
    name: str,
    values: ArrayLike,
    n_rows: int,
    high: float = np.inf,
    what: str = "value",
    of: str = "X",
    *,
    may_miss: bool = False,
) -> Array:
    """Return one number in [0, high] per row, or NaN where rows `may_miss` it; `values` may be a single number."""
    array = as_real(name, values)
    if array.ndim == 0:
        return np.full(n_rows, check_real(name, np.asarray(values).item(), 0.0, high))
    check_length(name, array, what, n_rows, of)
    bad = ~((array >= 0.0) & (array <= high) & (array < np.inf))
    if may_miss:
        bad &= ~np.isnan(array)
    row = first_true(bad)
    if row is not None:
        rule = "finite and at least 0" if high == np.inf else f"in [0, {high:g}]"
        drop = "the row's episode" if of == "X" else f"this row of `{of}`"
        raise InvalidInputError(f"`{name}` must be {rule}; row {row} has {array[row]:g}. Correct it, or drop {drop}.")
    return array


def check_length(name: str, array: NDArray[Any], what: str, n_rows: int, of: str = "X") -> None:
    """Refuse a vector that has not one entry for each row of the argument `of`."""
    if array.shape != (n_rows,):
        raise InvalidInputError(
            f"`{name}` must have one {what} per row of `{of}`, shape ({n_rows},); got {array.shape}."
        )
