"""Where episodes end in rows that are in time order, and checks of ids, names and arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from lstd.data.columns import Flags, plain_ids
from lstd.errors import InvalidInputError

Indices = NDArray[np.intp]


def last_rows(ids: NDArray[Any]) -> Flags:
    """Whether each row, shape (T,), is the last of its run of equal ids."""
    last = np.ones(len(ids), dtype=np.bool_)
    last[:-1] = ids[1:] != ids[:-1]
    return last


def first_return(ids: NDArray[Any]) -> int | None:
    """Find the first row of a run of equal ids whose id an earlier run had; None if every id has one run."""
    seen: set[Any] = set()
    ends = np.flatnonzero(last_rows(ids)).tolist()
    for row, name in zip([0, *(end + 1 for end in ends)], ids[ends].tolist(), strict=False):
        if name in seen:
            return int(row)
        seen.add(name)
    return None


def check_ids(episode: ArrayLike) -> NDArray[Any]:
    """Return the argument `episode` as plain ids; raises InvalidInputError."""
    ids, bad = plain_ids(episode)
    if bad is not None:
        raise InvalidInputError(
            f"`episode` must hold integers, text or dates, all of one type; row {bad} has {ids[bad]!r}. "
            "Give every row an id; convert other objects to text with str."
        )
    return ids


def check_names(names: Sequence[str], n_features: int) -> tuple[str, ...]:
    """Return the argument `feature_names` as a tuple; raises InvalidInputError."""
    checked = tuple(names)
    if isinstance(names, str) or not all(isinstance(name, str) for name in checked):
        raise InvalidInputError(f"`feature_names` must be a sequence of str; got {names!r:.80}.")
    if len(checked) != n_features:
        raise InvalidInputError(f"`feature_names` must have one name per feature, {n_features}; got {len(checked)}.")
    return checked


def freeze(value: Any) -> Any:
    """Make an array read-only, as a copy unless it is read-only and owns its memory already."""
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
