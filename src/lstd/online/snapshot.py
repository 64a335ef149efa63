"""The arrays that hold the state of a recursive estimator, and the checks of those that come from a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstd._kernels import recursive_state as layout
from lstd._kernels.change_detection import N_CHART
from lstd._kernels.sample_size import N_SAMPLE
from lstd.errors import InvalidInputError
from lstd.online.recursive_system import INTERVAL, SOLVED, panel_rows

VERSION = 11
# Name, kinds of dtype, and possible shapes, with n features, m rewards, p rows of a panel and k blocks of the stream.
ARRAYS: dict[str, tuple[Any, ...]] = {
    "version": ("iu", ()),
    "parameters": ("f", (3,)),  # γ, λ, forgetting; NaN where that is chosen from the stream
    "alpha": ("f", (), ("n",)),
    "variant": ("U", ()),
    "n_rewards": ("iu", ()),  # 0 if a reward is a number
    "check_every": ("iu", ()),
    "warned": ("b", ()),
    "beyond": ("f", (7, "m")),  # rewards and predictions so far: see `Recursion._warn_of_bounds`
    "vectors": ("f", (layout.SCALARS, "n")),
    "scalars": ("f", (layout.N_SCALARS,)),
    "counts": ("iu", (layout.N_COUNTS,)),
    "panels": ("f", (4, "p", "n")),
    "matrices": ("f", (2, "n", "n")),
    "others": ("f", (2, "m - 1", "n")),  # θ and b of the rewards after the first
    "charts": ("f", (2, N_CHART)),
    "sample": ("f", (N_SAMPLE,)),
    "boundary": ("f", (0, 0), ("n", "n")),
    "blocks": ("f", ("3 + k",)),
    "block_matrices": ("f", ("k", "n", "n")),
    "block_moments": ("f", ("k", "m", "n")),
    "end": ("f", (0,), (3,), ("7 + m",)),  # of recorded rows
    "end_x": ("f", (0,), ("n",)),
    "end_episode": ("U", ()),
}
# Vectors of sums over the data; the others belong to the inverse and may have overflowed.
_SUMS = [layout.TRACE, layout.MOMENT, layout.NEXT, layout.SCALE, layout.RIDGE, layout.ALPHA]


def not_a_snapshot(why: str) -> InvalidInputError:
    """Make the error for arrays that are not a snapshot."""
    return InvalidInputError(
        f"`snapshot` must be a result of RecursiveLSTD.snapshot; {why}. Take it again with this version."
    )


def check_snapshot(snapshot: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Return the arrays of a snapshot; raises InvalidInputError unless an estimator can continue from them."""
    arrays = {name: _array(snapshot, name, kinds) for name, (kinds, *_) in ARRAYS.items()}
    version = arrays["version"]
    if version.shape != () or int(version) != VERSION:
        raise not_a_snapshot(f"its version is {version!s:.20}, not {VERSION}")
    _check_shapes(arrays)
    _check_counts(arrays)
    _check_values(arrays)
    return arrays


def _array(snapshot: Mapping[str, Any], name: str, kinds: str) -> NDArray[Any]:
    """Return an array of the right type."""
    try:
        array = np.asarray(snapshot[name]) if name in snapshot else None
    except Exception as error:  # no mapping at all, or a file that is damaged
        raise not_a_snapshot(f"{name!r} cannot be read from it ({type(error).__name__})") from error
    if array is None:
        raise not_a_snapshot(f"{name!r} is missing")
    if array.dtype.kind not in kinds:
        raise not_a_snapshot(f"{name!r} has dtype {array.dtype}")
    return array


def _check_shapes(arrays: Mapping[str, NDArray[Any]]) -> None:
    n, k = arrays["vectors"].size // layout.SCALARS, arrays["blocks"].size - 3
    m = max(1, int(arrays["n_rewards"].max(initial=0)))
    sizes = {"n": n, "p": panel_rows(n), "m": m, "m - 1": m - 1, "7 + m": 7 + m, "k": k, "3 + k": 3 + k}
    for name, (_, *shapes) in ARRAYS.items():
        allowed = [tuple(sizes.get(size, size) for size in shape) for shape in shapes]
        if arrays[name].shape not in allowed:
            raise not_a_snapshot(f"{name!r} has shape {arrays[name].shape}, not {' or '.join(map(str, allowed))}")


def _check_counts(arrays: Mapping[str, NDArray[Any]]) -> None:
    counts, (_, waiting, n) = arrays["counts"], arrays["panels"].shape
    fits = counts[layout.FEATURES] == n and counts[layout.PANEL] == waiting and bool((counts >= 0).all())
    fits &= (
        arrays["n_rewards"] >= 0 and counts[layout.OTHERS] == arrays["others"].shape[1] and counts[layout.ROTATION] >= 1
    )
    fits &= max(counts[layout.WAITING_INVERSE], counts[layout.WAITING_SYSTEM]) <= waiting
    if not (fits and counts[layout.AHEAD] <= 1 and counts[INTERVAL] >= 1 and counts[layout.READING] <= SOLVED):
        raise not_a_snapshot("its counts do not fit its arrays")


def _check_values(arrays: Mapping[str, NDArray[Any]]) -> None:
    """Raise InvalidInputError unless discounts are in [0, 1], sums finite and scales positive."""
    scalars, vectors = arrays["scalars"], arrays["vectors"]
    known = 0.0 <= scalars[layout.DECAY] <= 1.0 and 0.0 <= scalars[layout.BOOTSTRAP] < np.inf
    known &= 0.0 <= scalars[layout.FRACTION] <= 1.0 <= scalars[layout.GROWTH] < np.inf
    rate = arrays["parameters"][2]
    known &= scalars[layout.FORGETTING] == (1.0 if np.isnan(rate) else rate)
    if scalars[layout.LMBDA] != arrays["parameters"][1] or not known:
        raise not_a_snapshot(f"its 'scalars' are {scalars.tolist()}")
    sums = {
        name: arrays[name]
        for name in ("beyond", "others", "boundary", "blocks", "block_matrices", "block_moments", "charts")
    }
    sums |= {"vectors": vectors[_SUMS], "matrices": arrays["matrices"][layout.SYSTEM]}
    sums["panels"] = arrays["panels"][2:, : arrays["counts"][layout.WAITING_SYSTEM]]
    for name, values in sums.items():
        if not np.isfinite(values).all():
            raise not_a_snapshot(f"{name!r} has sums that are not finite")
    if not (vectors[[layout.RIDGE, layout.ALPHA]] >= 0.0).all():
        raise not_a_snapshot("'vectors' has a negative ridge")
    if not (vectors[layout.SCALE] > 0.0).all():
        raise not_a_snapshot("'vectors' has scales that are not positive")
