"""Arrays of several `Trajectories` joined."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd.errors import InvalidInputError
from lstd.trajectories.structure import last_rows

_AGREE: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "features": lambda part: part["X"].shape[1],
    "rewards": lambda part: part["y"].shape[1:],
    "feature names": lambda part: part["feature_names"],
    "discounts": lambda part: "discount" in part,
}


def join(parts: Sequence[Mapping[str, Any]], renumber: bool) -> dict[str, Any]:
    """Join the arrays of all parts, one part after another.

    Raises
    ------
    InvalidInputError
        When there is no part, or when two parts do not fit together or share an id.
    """
    if not parts:
        raise InvalidInputError("`parts` must hold at least one Trajectories; got none.")
    for what, of in _AGREE.items():
        for number, part in enumerate(parts):
            if of(part) != of(parts[0]):
                raise InvalidInputError(
                    f"`parts` must have the same {what}; part 0 has {of(parts[0])!r}, part {number} {of(part)!r}."
                )
    arrays: dict[str, Any] = {name: np.concatenate([part[name] for part in parts]) for name in ("y", "terminated")}
    arrays["X"] = _stacked([part["X"] for part in parts])
    arrays["episode"] = _joined_ids([part["episode"] for part in parts], renumber)
    arrays["feature_names"] = parts[0]["feature_names"]
    if "discount" in parts[0]:
        arrays["discount"] = np.concatenate([part["discount"] for part in parts])
    if any("importance_ratio" in part for part in parts):
        ratios = [part.get("importance_ratio", np.ones(len(part["y"]))) for part in parts]
        arrays["importance_ratio"] = np.concatenate(ratios)
    return arrays


def _stacked(blocks: Sequence[Any]) -> Any:
    if any(sparse.issparse(block) for block in blocks):
        return sparse.vstack([sparse.csr_array(block) for block in blocks], format="csr")
    return np.concatenate(blocks)


def _joined_ids(ids: Sequence[NDArray[Any]], renumber: bool) -> NDArray[Any]:
    if renumber:
        last = np.concatenate([last_rows(part) for part in ids])
        return np.asarray(np.cumsum(last) - last)
    kinds = {"number" if part.dtype.kind in "iuf" else part.dtype.kind for part in ids if len(part)}
    if len(kinds) > 1:
        raise InvalidInputError(
            "`parts` must have ids of one type; got "
            f"{', '.join(sorted({str(part.dtype) for part in ids}))}. Pass renumber=True to number all episodes anew."
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
