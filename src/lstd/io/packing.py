"""Records, which are dataclasses and named tuples, as a JSON document and arrays, and back.

The types of the fields say what a file may hold. Anything else is refused, in writing as in reading:

    bool, str                       themselves
    int                             at least 0
    float                           finite, or Annotated[float, (low, high)]: in this range, whose end may be infinite
    Annotated[NDArray, "n m"]       finite, of this shape and dtype; "n m nan" may hold NaN and inf
    Annotated[Any, "episode"]       None or an id of `episode`: an integer, a float or text, which keeps its type
    Any                             numbers, flags and texts, or lists of them
    tuple[T, ...], tuple[X, Y], frozenset[T], Mapping[str, T], X | Y, None, and records
    a class with `packed`           the document that `packed` returns, and `unpacked` takes

A letter in a shape is the same length in all arrays of a file.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache, partial
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from lstd.errors import InvalidInputError

T = TypeVar("T")

BROKEN = (LookupError, ValueError, TypeError, AttributeError)  # what content of another form raises
_FINITE = (-sys.float_info.max, sys.float_info.max)


def pack(record: Any) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the document and the arrays of a record.

    Raises
    ------
    InvalidInputError
        When an id is neither a number nor text, or a number is not finite.
    """
    walk = _Walk({}, reading=False)
    return walk.value(record, type(record), ""), walk.arrays


def unpack(kind: type[T], document: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> T:
    """Return the record that `pack` was given; raises one of `BROKEN` if the content breaks a rule."""
    record: T = _Walk({**arrays}, reading=True).value(document, kind, "")
    return record


class _Walk:
    """A walk along the fields of a record, from values to their documents, or back if `reading`."""

    def __init__(self, arrays: dict[str, NDArray[Any]], *, reading: bool) -> None:
        self.arrays, self._reading = arrays, reading
        self._lengths: dict[str, int] = {}  # by letter

    def value(self, value: Any, kind: Any, name: str) -> Any:
        """Return the other form of a value; `name` is that of its array, or the start of the names of its arrays."""
        kind, rule = get_args(kind) if get_origin(kind) is Annotated else (kind, None)
        if hasattr(get_origin(kind), "__value__"):  # an alias of a type, as NDArray is from NumPy 2.5 on
            kind = get_origin(kind).__value__[get_args(kind)]
        origin, inner = get_origin(kind), get_args(kind)
        if origin in (Union, UnionType):
            return self._of_first_kind(value, inner, name)
        if origin is np.ndarray:
            return self._array(value, np.dtype(get_args(inner[1])[0]), rule, name)
        if origin in (tuple, frozenset):
            return self._items(value, origin, inner, name)
        if origin in (dict, Mapping):
            return {_plain(key, str): self.value(item, inner[1], f"{name}.{key}") for key, item in value.items()}
        if hasattr(kind, "packed"):
            return kind.unpacked(value) if self._reading else value.packed()
        return self._record(value, kind, f"{name}." if name else "") if _types_of(kind) else _plain(value, kind, rule)

    def _record(self, value: Any, kind: Any, prefix: str) -> Any:
        given = value.__getitem__ if self._reading else partial(getattr, value)
        content = {name: self.value(given(name), of, prefix + name) for name, of in _types_of(kind).items()}
        return kind(**content) if self._reading else content

    def _of_first_kind(self, value: Any, kinds: tuple[Any, ...], name: str) -> Any:
        """Return the other form of a value of the first of some kinds that fits."""
        if value is None and NoneType in kinds:
            return None
        for kind in kinds:
            try:
                return self.value(value, kind, name)
            except InvalidInputError:  # of this kind, but broken
                raise
            except BROKEN:
                continue
        raise TypeError(value)

    def _items(self, value: Any, kind: Any, of: tuple[Any, ...], name: str) -> Any:
        if not isinstance(value, list if self._reading else kind):
            raise TypeError(value)
        kinds = of if len(of) == 2 and of[1] is not ... else of[:1] * len(value)
        ordered = value if self._reading or kind is tuple else sorted(value)
        items = [self.value(item, of, f"{name}.{i}") for i, (item, of) in enumerate(zip(ordered, kinds, strict=True))]
        return kind(items) if self._reading else items

    def _array(self, value: Any, dtype: np.dtype[Any], rule: str, name: str) -> Any:
        """Return an array, or its shape for the document, after a check of both and of its numbers."""
        if not self._reading:
            self.arrays[name], value = value, list(value.shape)
        array, letters = self.arrays[name], rule.removesuffix(" nan").split()
        for letter, length in zip(letters, array.shape, strict=True):
            if (int(letter) if letter.isdecimal() else self._lengths.setdefault(letter, length)) != length:
                raise ValueError(array.shape)
        if array.dtype != dtype or value != list(array.shape):
            raise ValueError(value)
        if not rule.endswith("nan") and not np.isfinite(array).all():
            raise _overflow()
        return array if self._reading else value


@cache
def _types_of(kind: Any) -> dict[str, Any]:
    """Return the types of the fields of a record by name; none for other types."""
    names = [field.name for field in fields(kind)] if is_dataclass(kind) else getattr(kind, "_fields", ())
    types = get_type_hints(kind, include_extras=True) if names else {}
    return {name: types[name] for name in names}


def _plain(value: Any, kind: Any, rule: Any = None) -> Any:
    """Return a number, flag, text or id; raise TypeError if it is of another type."""
    if kind is Any and rule is None:
        return np.asarray(value).tolist()
    if isinstance(value, (np.number, np.bool_, np.str_)):
        value = value.item()
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind is Any:
        if value is None or isinstance(value, str) or (is_number and abs(value) < np.inf):
            return value
        raise InvalidInputError(
            f"`{rule}` ids must be integers, floats or text to be saved; got {value!r}. Convert them to text first."
        )
    if kind is float:
        low, high = rule or _FINITE
        if value is None and high == np.inf:  # which is null in JSON
            return high
        if is_number and not (low <= value <= high and (isinstance(value, float) or abs(value) <= _FINITE[1])):
            raise _overflow()
        value = float(value) if is_number else None
    if not isinstance(value, kind) or (kind is int and not (is_number and value >= 0)):
        raise TypeError(value)
    return value


def _overflow() -> InvalidInputError:
    return InvalidInputError("The sums must be finite to be saved; they overflowed. Scale features to order 1.")
