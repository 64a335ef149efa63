"""Statistics as a JSON document and arrays, and back, with the type and range of every value checked."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstd.data.checks import check_real
from lstd.errors import InvalidInputError
from lstd.statistics.merging import Mergeable, Pending

Array = NDArray[np.float64]

_ARRAYS = ("A", "B", "b", "arriving", "a", "h", "c")
_COUNTS = ("n_rows", "n_transitions", "n_episodes")
_ID_TYPES = {"int": int, "float": float, "str": str}


def pack(s: Mergeable) -> tuple[dict[str, Any], dict[str, Array]]:
    """Document and arrays of statistics.

    Raises
    ------
    InvalidInputError
        When an episode id is neither an integer nor a float nor text, or sums have overflowed.
    """
    if not all(np.isfinite(getattr(s, name)).all() for name in _ARRAYS):
        raise InvalidInputError("The sums must be finite to be saved; they overflowed. Scale features to order 1.")
    document = {
        "gamma": s.gamma,
        "lmbda": s.lmbda,
        "share": s.share,
        **{name: int(getattr(s, name)) for name in _COUNTS},
        "single": bool(s.single),
        "successors": s.successors,
        "first_episode": _typed(s.first_episode),
        "last_episode": _typed(s.last_episode),
        "pending": None,
    }
    arrays = {name: getattr(s, name) for name in _ARRAYS}
    if s.pending is not None:
        row = s.pending
        document["pending"] = {
            "missing": bool(row.missing), "ratio": float(row.ratio), "leaving": float(row.leaving),
            "complete": bool(row.complete),
        }  # fmt: skip
        arrays |= {"pending_phi": row.phi, "pending_reward": row.reward}
    return document, arrays


def unpack(document: Mapping[str, Any], arrays: Mapping[str, Array]) -> dict[str, Any]:
    """Fields of statistics; any error of a kind that `_container.read` expects where something is amiss."""
    n, m = arrays["b"].shape
    successors = document["successors"]
    return {
        "gamma": check_real("gamma", document["gamma"], 0.0, 1.0),
        "lmbda": check_real("lmbda", document["lmbda"], 0.0, 1.0),
        "share": number(document["share"]),
        "A": finite(shaped(arrays["A"], n, n)),
        "B": finite(shaped(arrays["B"], n, n)),
        "b": finite(arrays["b"]),
        "arriving": finite(shaped(arrays["arriving"], n)),
        "a": finite(shaped(arrays["a"], n)),
        "h": finite(shaped(arrays["h"], n)),
        "c": finite(shaped(arrays["c"], m)),
        **{name: count(document[name]) for name in _COUNTS},
        "pending": _unpack_pending(document["pending"], arrays, n, m),
        "first_episode": _untyped(document["first_episode"]),
        "last_episode": _untyped(document["last_episode"]),
        "single": flag(document["single"]),
        "successors": None if successors is None else flag(successors),
    }


def _unpack_pending(row: Mapping[str, Any] | None, arrays: Mapping[str, Array], n: int, m: int) -> Pending | None:
    if row is None:
        return None
    return Pending(
        phi=finite(shaped(arrays["pending_phi"], n)),
        reward=shaped(arrays["pending_reward"], m),
        missing=flag(row["missing"]),
        ratio=number(row["ratio"]),
        leaving=number(row["leaving"]),
        complete=flag(row["complete"]),
    )


def _typed(episode: Any) -> dict[str, Any] | None:
    """An episode id with its type, since 1, 1.0 and "1" are one in JSON or might be."""
    if episode is None:
        return None
    if isinstance(episode, str):
        return {"type": "str", "value": str(episode)}
    if isinstance(episode, (int, np.integer)) and not isinstance(episode, bool):
        return {"type": "int", "value": int(episode)}
    if isinstance(episode, (float, np.floating)) and math.isfinite(episode):
        return {"type": "float", "value": float(episode)}
    raise InvalidInputError(
        f"`episode` ids must be integers, floats or text to be saved; got {episode!r}. Convert them to text first."
    )


def _untyped(found: Mapping[str, Any] | None) -> Any:
    if found is None:
        return None
    value = found["value"]
    if type(value) is not _ID_TYPES[found["type"]]:
        raise TypeError(found)
    return value


def number(value: Any) -> float:
    """A number of a document, finite in float64."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= sys.float_info.max:
        raise TypeError(value)
    return float(value)


def count(value: Any) -> int:
    """A count of a document."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise TypeError(value)
    return value


def flag(value: Any) -> bool:
    """A flag of a document."""
    if not isinstance(value, bool):
        raise TypeError(value)
    return value


def texts(values: Any) -> tuple[str, ...]:
    """A list of texts of a document."""
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise TypeError(values)
    return tuple(values)


def shaped(array: Array, *shape: int) -> Array:
    """An array, where it has that shape."""
    if array.shape != shape:
        raise ValueError(f"{array.shape} in place of {shape}")
    return array


def finite(array: Array) -> Array:
    """An array, where it has neither NaN nor inf."""
    if not np.isfinite(array).all():
        raise ValueError("not finite")
    return array
