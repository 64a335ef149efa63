"""Checks of the arrays that hold the state of a recursive estimator: names, types, shapes, ranges and version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstd._kernels import recursive_state as layout
from lstd._kernels.change_detection import N_CHART
from lstd._kernels.sample_size import N_SAMPLE
from lstd.errors import InvalidInputError
from lstd.online.forgetting_choice import RateChoice
from lstd.online.recorded_rows import OpenEnd
from lstd.online.recursive_system import INTERVAL, SOLVED
from lstd.online.transition import SparseRow

VERSION = 8
_NUMBERS = (
    "parameters", "alpha", "vectors", "panels", "matrices", "boundary", "scalars", "others", "end", "end_x",
    "charts", "sample", "blocks", "block_matrices", "block_moments",
)  # fmt: skip
_KINDS = {"version": "iu", "variant": "U", "check_every": "iu", "warned": "b", "counts": "iu", "end_episode": "U"}
_KINDS |= dict.fromkeys(_NUMBERS, "f")
_PENDING = ("discount", "importance_ratio", "weight", "trace_coefficient")
# Vectors of sums over the data; the others belong to the inverse and may have overflowed.
_SUMS = [layout.TRACE, layout.MOMENT, layout.NEXT, layout.SCALE, layout.RIDGE, layout.ALPHA]


def not_a_snapshot(why: str) -> InvalidInputError:
    """Make the error for arrays that are not a snapshot."""
    return InvalidInputError(
        f"`snapshot` must be a result of RecursiveLSTD.snapshot; {why}. Take it again with this version."
    )


def check_snapshot(snapshot: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Return the arrays of a snapshot; raises InvalidInputError unless an estimator can continue from them."""
    arrays = {name: _array(snapshot, name) for name in _KINDS}
    version = arrays["version"]
    if version.shape != () or int(version) != VERSION:
        raise not_a_snapshot(f"its version is {version!s:.20}, not {VERSION}")
    vectors, panels, counts, boundary = (arrays[name] for name in ("vectors", "panels", "counts", "boundary"))
    if vectors.ndim != 2 or panels.ndim != 3:
        raise not_a_snapshot(f"'vectors' has shape {vectors.shape}, 'panels' {panels.shape}")
    n, waiting = vectors.shape[1], panels.shape[1]
    shapes: dict[str, tuple[int, ...]] = {
        "parameters": (3,), "alpha": (n,) if arrays["alpha"].ndim else (), "variant": (), "check_every": (),
        "warned": (), "vectors": (layout.SCALARS, n),
        "panels": (4, waiting, n), "matrices": (2, n, n), "scalars": (layout.N_SCALARS,),
        "counts": (layout.N_COUNTS,), "boundary": (0, 0) if boundary.shape == (0, 0) else (n, n),
        "others": (0,) if arrays["others"].ndim == 1 else (2, *arrays["others"].shape[1:2], n), "end_episode": (),
    }  # fmt: skip
    m = arrays["others"].shape[1] + 1 if arrays["others"].ndim > 1 else 1
    if arrays["end"].shape not in ((0,), (2,), (6 + m,)) or arrays["end_x"].shape not in ((0,), (n,)):
        raise not_a_snapshot(f"'end' has shape {arrays['end'].shape}")
    kept = max(0, arrays["blocks"].size - 3)
    shapes |= {
        "charts": (2, N_CHART), "sample": (N_SAMPLE,), "blocks": (3 + kept,),
        "block_matrices": (kept, n, n) if kept else (0, 0, 0),
        "block_moments": (kept, m, n) if kept else (0, 0, 0),
    }  # fmt: skip
    for name, shape in shapes.items():
        if arrays[name].shape != shape:
            raise not_a_snapshot(f"{name!r} has shape {arrays[name].shape}, not {shape}")
    fits = counts[layout.FEATURES] == n and counts[layout.PANEL] == waiting and bool((counts >= 0).all())
    fits &= counts[layout.OTHERS] == m - 1 and counts[layout.ROTATION] >= 1
    fits &= max(counts[layout.WAITING_INVERSE], counts[layout.WAITING_SYSTEM]) <= waiting
    if not (fits and counts[layout.AHEAD] <= 1 and counts[INTERVAL] >= 1 and counts[layout.READING] <= SOLVED):
        raise not_a_snapshot("its counts do not fit its arrays")
    _check_values(arrays)
    return arrays


def _array(snapshot: Mapping[str, Any], name: str) -> NDArray[Any]:
    """Return an array of the right type."""
    try:
        array = np.asarray(snapshot[name]) if name in snapshot else None
    except Exception as error:  # no mapping at all, or a file that is damaged
        raise not_a_snapshot(f"{name!r} cannot be read from it ({type(error).__name__})") from error
    if array is None:
        raise not_a_snapshot(f"{name!r} is missing")
    if array.dtype.kind not in _KINDS[name]:
        raise not_a_snapshot(f"{name!r} has dtype {array.dtype}")
    return array


def _check_values(arrays: Mapping[str, NDArray[Any]]) -> None:
    """Raise InvalidInputError unless discounts are in [0, 1], sums finite and scales positive."""
    scalars, vectors = arrays["scalars"], arrays["vectors"]
    known = 0.0 <= scalars[layout.DECAY] <= 1.0 and 0.0 <= scalars[layout.BOOTSTRAP] < np.inf
    known &= 0.0 <= scalars[layout.FRACTION] <= 1.0 <= scalars[layout.GROWTH] < np.inf
    rate = arrays["parameters"][2]
    known &= scalars[layout.FORGETTING] == (1.0 if np.isnan(rate) else rate)  # NaN: chosen from the stream
    if scalars[layout.LMBDA] != arrays["parameters"][1] or not known:
        raise not_a_snapshot(f"its 'scalars' are {scalars.tolist()}")
    sums = {
        "others": arrays["others"], "vectors": vectors[_SUMS],
        "matrices": arrays["matrices"][layout.SYSTEM], "boundary": arrays["boundary"],
        **{name: arrays[name] for name in ("blocks", "block_matrices", "block_moments", "charts")},
        "panels": arrays["panels"][2:, : arrays["counts"][layout.WAITING_SYSTEM]],
    }  # fmt: skip
    for name, values in sums.items():
        if not np.isfinite(values).all():
            raise not_a_snapshot(f"{name!r} has sums that are not finite")
    if not (vectors[[layout.RIDGE, layout.ALPHA]] >= 0.0).all():
        raise not_a_snapshot("'vectors' has a negative ridge")
    if not (vectors[layout.SCALE] > 0.0).all():
        raise not_a_snapshot("'vectors' has scales that are not positive")


def packed_end(end: OpenEnd | None, n_updates: int, n: int) -> dict[str, NDArray[Any]]:
    """Return arrays of the end of recorded rows, unless updates came after them."""
    none = np.zeros(0)
    if end is None or end.n_updates != n_updates:
        return {"end": none, "end_x": none, "end_episode": np.array("")}
    about = [float(end.episode is not None), float(end.missing)]
    episode = np.array("" if end.episode is None else str(end.episode))
    if end.pending is None:
        return {"end": np.array(about), "end_x": none, "end_episode": episode}
    numbers = [end.pending.get(name, 1.0) for name in _PENDING]
    x = end.pending["x"]
    row = SparseRow(*x).dense(n) if isinstance(x, tuple) else np.asarray(x)
    rewards = np.atleast_1d(end.pending["reward"])
    return {"end": np.concatenate([about, numbers, rewards]), "end_x": row, "end_episode": episode}


def unpacked_end(state: Mapping[str, NDArray[Any]], n_rewards: int | None) -> OpenEnd | None:
    """Return the end of recorded rows from arrays; its id as text."""
    end = state["end"]
    if not len(end):
        return None
    pending: dict[str, Any] | None = None
    if len(end) > 2:
        pending = dict(zip(_PENDING, end[2:6].tolist(), strict=True)) | {"x": state["end_x"].copy()}
        pending["reward"] = float(end[6]) if n_rewards is None else end[6:].copy()
    episode = str(state["end_episode"]) if end[0] else None
    return OpenEnd(int(state["counts"][layout.UPDATES]), episode, pending, bool(end[1]))


def packed_rates(snapshots: list[dict[str, NDArray[Any]]], choice: RateChoice | None) -> dict[str, NDArray[Any]]:
    """Return the arrays of the recursions of other rates, and of the choice among them."""
    packed = {f"rate{k}_{name}": array for k, part in enumerate(snapshots) for name, array in part.items()}
    own = {} if choice is None else choice.arrays()
    return packed | {f"choice_{name}": array.copy() for name, array in own.items()}


def unpacked_rates(snapshot: Mapping[str, Any], n_rates: int, choice: RateChoice) -> list[dict[str, Any]]:
    """Fill a choice from arrays; returns the snapshots of the recursions of other rates."""
    for name, view in choice.arrays().items():
        array = np.asarray(snapshot.get(f"choice_{name}"))
        if array.shape != view.shape or array.dtype != view.dtype:
            raise not_a_snapshot(f"'choice_{name}' has shape {array.shape} and dtype {array.dtype}")
        view[...] = array
    if not choice.fits():
        raise not_a_snapshot("its choice of a rate has values out of range")
    return [
        {name: snapshot[f"rate{k}_{name}"] for name in _KINDS if f"rate{k}_{name}" in snapshot} for k in range(n_rates)
    ]
