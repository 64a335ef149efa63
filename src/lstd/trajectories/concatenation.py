"""Rows of several `Trajectories`, joined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd.data.ids import last_rows
from lstd.errors import InvalidInputError

# Properties of `Trajectories` that must agree.
_AGREE: dict[str, Callable[[Any], Any]] = {
    "features": lambda part: part.n_features,
    "rewards": lambda part: part.y.shape[1:],
    "feature names": lambda part: part.feature_names,
    "discounts": lambda part: part.discount is not None,
    "groups": lambda part: part.groups is not None,
    "actions": lambda part: (
        None if part.actions is None else (part.actions.dtype.kind in "OSU", *part.actions.shape[1:])
    ),
    "behavior probabilities": lambda part: part.behavior_probability is not None,
    "times": lambda part: None if part.time is None else part.time.dtype.kind in "mM",
}


def join(parts: Sequence[Any], renumber: bool) -> dict[str, Any]:
    """Join the rows of `parts` in order; returns the arguments of `Trajectories`. See `Trajectories.concat`."""
    if not parts:
        raise InvalidInputError("`parts` must hold at least one Trajectories; got none.")
    for what, of in _AGREE.items():
        for number, part in enumerate(parts):
            if of(part) != of(parts[0]):
                raise InvalidInputError(
                    f"`parts` must have the same {what}; part 0 has {of(parts[0])!r}, part {number} {of(part)!r}."
                )
    names = ("X", "y", "terminated", "discount", "groups", "actions", "behavior_probability", "time")
    arrays = {name: _joined([getattr(part, name) for part in parts]) for name in names}
    for name in ("importance_ratio", "trace_coefficient", "weight"):
        columns = [getattr(part, name) for part in parts]
        if any(column is not None for column in columns):
            pairs = zip(columns, parts, strict=True)
            arrays[name] = np.concatenate([np.ones(len(part)) if one is None else one for one, part in pairs])
    ids = _joined_ids([part.episode for part in parts], renumber)
    return arrays | {"episode": ids, "feature_names": parts[0].feature_names}


def _joined(arrays: Sequence[Any]) -> Any:
    if arrays[0] is None:
        return None
    if any(sparse.issparse(array) for array in arrays):
        return sparse.vstack([sparse.csr_array(array) for array in arrays], format="csr")
    return np.concatenate(arrays)


def _joined_ids(ids: Sequence[NDArray[Any]], renumber: bool) -> NDArray[Any]:
    if renumber:
        last = np.concatenate([last_rows(part) for part in ids])
        return np.asarray(np.cumsum(last) - last)
    kinds = {"number" if part.dtype.kind in "iuf" else part.dtype.kind for part in ids if len(part)}
    if len(kinds) > 1:
        raise InvalidInputError(
            f"`parts` must have ids of one type; got {', '.join(sorted({str(part.dtype) for part in ids}))}. "
            "Pass renumber=True to renumber all episodes."
        )
    owner: dict[Any, int] = {}
    for number, part in enumerate(ids):
        for name in np.unique(part).tolist():
            if owner.setdefault(name, number) != number:
                raise InvalidInputError(
                    f"`parts` must not share ids of episodes; {name!r} is in parts {owner[name]} and {number}. "
                    "Pass renumber=True if they are different episodes; else build the Trajectories from joined rows."
                )
    return np.concatenate([part for part in ids if len(part)] or ids[:1])
