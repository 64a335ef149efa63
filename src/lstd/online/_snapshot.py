"""Shapes and version of the arrays that hold a recursive estimator's state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstd._kernels import recursive as kernels
from lstd.errors import InvalidInputError

VERSION = 1


def not_a_snapshot(why: str) -> InvalidInputError:
    return InvalidInputError(
        f"`snapshot` must be what RecursiveLSTD.snapshot returned; {why}. Take it again with this version."
    )


def check_snapshot(snapshot: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """The arrays of a snapshot, of the right shapes."""
    names = (
        "version", "parameters", "variant", "check_every", "warned",
        "vectors", "panels", "matrices", "boundary", "scalars", "counts",
    )  # fmt: skip
    missing = [name for name in names if name not in snapshot]
    if missing:
        raise not_a_snapshot(f"{missing[0]!r} is missing")
    found = {name: np.asarray(snapshot[name]) for name in names}
    if found["version"].shape != () or int(found["version"]) != VERSION:
        raise not_a_snapshot(f"its version is {found['version']!s:.20}, not {VERSION}")
    if found["vectors"].ndim != 2 or found["panels"].ndim != 3:
        raise not_a_snapshot(f'"vectors" has shape {found["vectors"].shape}')
    n, waiting = found["vectors"].shape[1], found["panels"].shape[1]
    shapes = {
        "parameters": (3,), "vectors": (kernels.SCALARS, n), "panels": (4, waiting, n), "matrices": (2, n, n),
        "scalars": (kernels.N_SCALARS,), "counts": (kernels.N_COUNTS,),
    }  # fmt: skip
    for name, shape in shapes.items():
        if found[name].shape != shape:
            raise not_a_snapshot(f"{name!r} has shape {found[name].shape}, not {shape}")
    counts = found["counts"]
    fits = counts[kernels.FEATURES] == n and counts[kernels.PANEL] == waiting and (counts >= 0).all()
    fits &= max(counts[kernels.WAITING_INVERSE], counts[kernels.WAITING_SYSTEM]) <= waiting
    if found["boundary"].shape not in ((0, 0), (n, n)) or not fits:
        raise not_a_snapshot("its counts do not fit its arrays")
    return found
