"""Statistics as a JSON document and arrays, and back, with the type and range of each value checked."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstd.data.checks import check_real
from lstd.data.effective_sample import SampleSums
from lstd.data.observed_share import BehindCuts
from lstd.errors import InvalidInputError
from lstd.statistics.names_and_labels import About

Array = NDArray[np.float64]

_ARRAYS = ("A", "B", "b", "incoming_trace")
_CARRIED = ("matrix", "boundary", "rewards", "first")
_WEIGHTS = ("total_weight", "last_weight")
_SAMPLE = {"step": (3, 3, 3), "weight": (3, 3), "square": (3, 3, 3)}
_COUNTS = ("n_rows", "n_transitions", "n_episodes", "unused", "mark", "reward_mark")
_NAMES = ("first_episode", "last_episode", "first_group", "last_group")
_ID_TYPES = {"int": int, "float": float, "str": str}


def pack(s: Any) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return the document and the arrays of statistics.

    Raises
    ------
    InvalidInputError
        When an episode id is neither an integer nor a float nor text, or the sums overflowed.
    """
    arrays = {name: getattr(s, name) for name in _ARRAYS} | {name: getattr(s.carry, name) for name in _CARRIED}
    if not all(np.isfinite(array).all() for array in arrays.values()):
        raise InvalidInputError("The sums must be finite to be saved; they overflowed. Scale features to order 1.")
    document = {
        "gamma": s.gamma,
        "lmbda": s.lmbda,
        "decay": s.carry.decay,
        "first_cut": bool(s.carry.first_cut),
        **{name: float(getattr(s, name)) for name in _WEIGHTS},
        **{name: int(getattr(s, name)) for name in _COUNTS},
        "single": bool(s.single),
        "successors": s.successors,
        "apart": bool(s.apart),
        **{name: _typed(name, getattr(s, name)) for name in _NAMES},
        "n_groups": s.n_groups,
        "feature_names": s.about.feature_names,
        "intercept": s.about.intercept,
        "labels": sorted(s.about.labels),
        "pending": None,
        "behind_cuts": s.behind_cuts,
        "off_policy": None if s.sample is None else s.sample.off_policy,
    }
    if s.sample is not None:
        arrays |= {f"sample_{name}": getattr(s.sample, name) for name in _SAMPLE}
    if s.pending is not None:
        row = s.pending
        document["pending"] = {
            "missing": bool(row.missing), "ratio": float(row.ratio), "discount": float(row.discount),
            "complete": bool(row.complete), "coefficient": float(row.coefficient), "weight": float(row.weight),
        }  # fmt: skip
        arrays |= {"pending_phi": row.phi, "pending_reward": row.reward}
    return document, arrays


def unpack(document: Mapping[str, Any], arrays: Mapping[str, Array]) -> dict[str, Any]:
    """Return the fields of statistics, with those of `carry` and `pending` as dictionaries.

    A wrong type or value raises an error that :func:`lstd.io.archive.read` expects.
    """
    n, m = arrays["b"].shape
    successors, lengths = document["successors"], {"matrix": n, "boundary": n, "rewards": m, "first": n}
    carry = {name: finite(shaped(arrays[name], length)) for name, length in lengths.items()}
    return {
        "gamma": check_real("gamma", document["gamma"], 0.0, 1.0),
        "lmbda": check_real("lmbda", document["lmbda"], 0.0, 1.0),
        "A": finite(shaped(arrays["A"], n, n)),
        "B": finite(shaped(arrays["B"], n, n)),
        "b": finite(arrays["b"]),
        "incoming_trace": finite(shaped(arrays["incoming_trace"], n)),
        "carry": carry | {"decay": number(document["decay"]), "first_cut": flag(document["first_cut"])},
        **{name: number(document[name]) for name in _WEIGHTS},
        **{name: count(document[name]) for name in _COUNTS},
        "pending": None if document["pending"] is None else _unpack_pending(document["pending"], arrays, n, m),
        **{name: _untyped(document[name]) for name in _NAMES},
        "n_groups": None if document["n_groups"] is None else count(document["n_groups"]),
        "single": flag(document["single"]),
        "successors": None if successors is None else flag(successors),
        "apart": flag(document["apart"]),
        "about": _unpack_about(document, n),
        "behind_cuts": _unpack_behind_cuts(document["behind_cuts"]),
        "sample": None if document["off_policy"] is None else _unpack_sample(flag(document["off_policy"]), arrays),
    }


def _unpack_about(document: Mapping[str, Any], n: int) -> About:
    names, intercept = document["feature_names"], document["intercept"]
    about = About(
        None if names is None else texts(names), None if intercept is None else flag(intercept),
        frozenset(texts(document["labels"])),
    )  # fmt: skip
    if about.feature_names is not None and len(about.feature_names) != n - bool(intercept):
        raise ValueError(names)
    return about


def _unpack_pending(row: Mapping[str, Any], arrays: Mapping[str, Array], n: int, m: int) -> dict[str, Any]:
    return {
        "phi": finite(shaped(arrays["pending_phi"], n)),
        "reward": shaped(arrays["pending_reward"], m),
        "missing": flag(row["missing"]),
        "ratio": number(row["ratio"]),
        "discount": number(row["discount"]),
        "complete": flag(row["complete"]),
        "coefficient": number(row["coefficient"]),
        "weight": number(row["weight"]),
    }


def _unpack_behind_cuts(values: Any) -> BehindCuts | None:
    return None if values is None else BehindCuts._make(map(number, values))


def _unpack_sample(off_policy: bool, arrays: Mapping[str, Array]) -> SampleSums:
    return SampleSums(off_policy, *(shaped(arrays[f"sample_{name}"], *shape) for name, shape in _SAMPLE.items()))


def _typed(name: str, value: Any) -> dict[str, Any] | None:
    """Return the id of an episode or a group with its type, as JSON may not tell 1 from 1.0."""
    if value is None:
        return None
    if isinstance(value, str):
        return {"type": "str", "value": str(value)}
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return {"type": "int", "value": int(value)}
    if isinstance(value, (float, np.floating)) and math.isfinite(value):
        return {"type": "float", "value": float(value)}
    which = "groups" if name.endswith("group") else "episode"
    raise InvalidInputError(
        f"`{which}` ids must be integers, floats or text to be saved; got {value!r}. Convert them to text first."
    )


def _untyped(value: Mapping[str, Any] | None) -> Any:
    if value is None:
        return None
    if type(value["value"]) is not _ID_TYPES[value["type"]]:
        raise TypeError(value)
    return value["value"]


def number(value: Any) -> float:
    """Return a number of a document; raise TypeError unless it is finite in float64."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= sys.float_info.max:
        raise TypeError(value)
    return float(value)


def count(value: Any) -> int:
    """Return a count of a document; raise TypeError if it is none."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise TypeError(value)
    return value


def flag(value: Any) -> bool:
    """Return a flag of a document; raise TypeError if it is none."""
    if not isinstance(value, bool):
        raise TypeError(value)
    return value


def texts(values: Any) -> tuple[str, ...]:
    """Return a list of texts of a document as a tuple; raise TypeError if it is none."""
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise TypeError(values)
    return tuple(values)


def shaped(array: Array, *shape: int) -> Array:
    """Return an array; raise ValueError if it has another shape."""
    if array.shape != shape:
        raise ValueError(array.shape)
    return array


def finite(array: Array) -> Array:
    """Return an array; raise ValueError if it has NaN or inf."""
    if not np.isfinite(array).all():
        raise ValueError(array)
    return array
