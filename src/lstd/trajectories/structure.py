"""Where episodes begin and end in rows that are in time order, and what ids and arrays may be."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from lstd.errors import InvalidInputError

Flags = NDArray[np.bool_]
Indices = NDArray[np.intp]


def first_true(mask: Flags) -> int | None:
    """Index of the first True; None where there is none."""
    return int(np.argmax(mask)) if mask.any() else None


def same_as_previous(ids: NDArray[Any]) -> Flags:
    """Whether each row, shape (T,), has the id of the row before it; False on the first."""
    same = np.zeros(len(ids), dtype=np.bool_)
    same[1:] = ids[1:] == ids[:-1]
    return same


def last_rows(ids: NDArray[Any]) -> Flags:
    """Whether each row, shape (T,), is the last of its run of equal ids."""
    last = np.ones(len(ids), dtype=np.bool_)
    last[:-1] = ids[1:] != ids[:-1]
    return last


def first_return(ids: NDArray[Any]) -> int | None:
    """First row of a run of equal ids whose id an earlier run had; None where every id has one run."""
    seen: set[Any] = set()
    starts = np.flatnonzero(~same_as_previous(ids))
    for row, name in zip(starts.tolist(), ids[starts].tolist(), strict=True):
        if name in seen:
            return int(row)
        seen.add(name)
    return None


def plain_ids(values: Any) -> tuple[NDArray[Any], int | None]:
    """Ids as an array of one plain type, and the first row without a usable id.

    Integers, booleans, finite floats, dates and text are usable. Ids held as Python objects are when all of them are of
    one of these kinds, or finite decimal numbers, which become text.

    Returns
    -------
    (ids, bad)
        `ids` of shape (T,); `bad` is None where every row has an id.
    """
    ids = np.array(values)
    if ids.dtype.kind == "f":
        return ids, first_true(~np.isfinite(ids))
    if ids.dtype.kind in "mM":
        return ids, first_true(np.isnat(ids))
    if ids.dtype.kind in "biuUS" or ids.ndim != 1:
        return ids, None
    found = [_kind(value) for value in ids.tolist()]
    wanted = found[0] if found else None
    for row, kind in enumerate(found):
        if kind is None or kind is not wanted:
            return ids, row
    return (_converted(ids.tolist(), wanted) if wanted else ids), None


def _kind(value: Any) -> type | None:
    """What an object counts as; None for no usable id. A time is a date too, but one with a zone is neither."""
    kinds = (str, bool, int, Decimal, datetime, date)
    kind = next((kind for kind in kinds if isinstance(value, kind)), None)
    zoned = isinstance(value, datetime) and value.tzinfo is not None
    return None if zoned or (isinstance(value, Decimal) and not value.is_finite()) else kind


def _converted(values: list[Any], kind: type) -> NDArray[Any]:
    if kind is Decimal:
        return np.array([f"{value.normalize():f}" for value in values])
    dtypes: dict[type, str] = {str: "U", datetime: "M8[us]", date: "M8[D]"}
    return np.array(values, dtype=dtypes.get(kind))


def check_ids(episode: ArrayLike) -> NDArray[Any]:
    """The argument `episode` as plain ids, or InvalidInputError."""
    ids, bad = plain_ids(episode)
    if bad is not None:
        raise InvalidInputError(
            f"`episode` must hold integers, text or dates, one kind of them; row {bad} has {ids[bad]!r}. "
            "Give every row an id; convert other objects to text with str."
        )
    return ids


def check_names(names: Sequence[str], n_features: int) -> tuple[str, ...]:
    """The argument `feature_names` as a tuple, or InvalidInputError."""
    checked = tuple(names)
    if isinstance(names, str) or not all(isinstance(name, str) for name in checked):
        raise InvalidInputError(f"`feature_names` must be a sequence of str; got {names!r:.80}.")
    if len(checked) != n_features:
        raise InvalidInputError(f"`feature_names` must have one name per feature, {n_features}; got {len(checked)}.")
    return checked


def frozen(value: Any) -> Any:
    """A read-only copy of an array; a read-only array that owns its memory is kept as it is."""
    if sparse.issparse(value):
        for part in (value.data, value.indices, value.indptr):
            part.setflags(write=False)
        return value
    if not isinstance(value, np.ndarray):
        return value
    if value.flags.writeable or not value.flags.owndata:
        value = np.array(value, order="C")
    value.setflags(write=False)
    return value
