"""Statistics and fitted models in files: arrays and a JSON document, nothing executable, checked as a whole."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstd._container import not_ours, read, write
from lstd._validation import check_real
from lstd.errors import InvalidInputError
from lstd.statistics import VARIANTS, LSTDStatistics, Pending

Array = NDArray[np.float64]

_ARRAYS = ("A", "B", "b", "arriving", "a", "h", "c")
_COUNTS = ("n_rows", "n_transitions", "n_episodes")
_ID_TYPES = {"int": int, "float": float, "str": str}


@dataclass(frozen=True)
class Origin:
    """What a model was fitted on.

    Attributes
    ----------
    files : tuple of str
        Names of the files, in the order in which they were read.
    rows, transitions, episodes : int
    date : str
        When, in ISO 8601.
    lstd : str
        Version of the package.
    episode, terminated, truncated : str or None
        Names of the columns that were used.
    """

    files: tuple[str, ...]
    rows: int
    transitions: int
    episodes: int
    date: str
    lstd: str
    episode: str | None = None
    terminated: str | None = None
    truncated: str | None = None


@dataclass(frozen=True, eq=False)
class FittedModel:
    """A fitted model with all that a file keeps of it; n features, m rewards.

    Attributes
    ----------
    statistics : LSTDStatistics
        With `fit_intercept` its last feature is the column of ones.
    gamma, lmbda, alpha, variant, fit_intercept
        Parameters, as of :class:`lstd.LSTD`.
    coef : ndarray of shape (m, n)
    intercept : ndarray of shape (m,)
    feature_names, reward_names : tuple of str
        Of lengths n and m.
    condition_number : float
        Of the system that was solved; infinite when it is singular.
    origin : Origin or None
    """

    statistics: LSTDStatistics
    gamma: float
    lmbda: float
    alpha: float
    variant: str
    fit_intercept: bool
    coef: Array
    intercept: Array
    feature_names: tuple[str, ...]
    reward_names: tuple[str, ...]
    condition_number: float
    origin: Origin | None = None

    def predict(self, X: Array) -> Array:
        """Predictions for rows of features (T, n), shape (T, m)."""
        return np.asarray(X @ self.coef.T + self.intercept)


def save_statistics(statistics: LSTDStatistics, path: str | os.PathLike[str]) -> None:
    """Write statistics to a file, whole or not at all; an existing file is replaced.

    Parameters
    ----------
    statistics : LSTDStatistics
        Its episode ids must be integers, floats or text.
    path : path-like

    Raises
    ------
    InvalidInputError
        When an episode id is of another type.
    OutputError
        When the file could not be written.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from lstd.persistence import load_statistics, save_statistics
    >>> from lstd.statistics import LSTDStatistics
    >>> statistics = LSTDStatistics.from_arrays(np.ones((3, 1)), np.ones(3), gamma=0.5, lmbda=0.0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_statistics(statistics, f"{folder}/sums")
    ...     load_statistics(f"{folder}/sums").n_transitions
    2
    """
    document, arrays = _pack(statistics)
    write(_path(path), "statistics", {"statistics": document}, arrays)


def load_statistics(path: str | os.PathLike[str]) -> LSTDStatistics:
    """Read statistics that :func:`save_statistics` wrote.

    Raises
    ------
    InvalidInputError
        When there is no such file, or it is damaged, of another kind, or written by a newer version.
    """
    where = _path(path)
    document, arrays = read(where, "statistics")
    try:
        return _unpack(document["statistics"], arrays)
    except (LookupError, ValueError, TypeError, AttributeError) as error:
        raise not_ours(where, "statistics") from error


def save_model(model: FittedModel, path: str | os.PathLike[str]) -> None:
    """Write a fitted model to a file, whole or not at all; an existing file is replaced.

    Raises
    ------
    InvalidInputError
        When an episode id in its statistics is neither an integer nor a float nor text.
    OutputError
        When the file could not be written.
    """
    document, arrays = _pack(model.statistics)
    content = {
        "model": {
            name: getattr(model, name)
            for name in ("gamma", "lmbda", "alpha", "variant", "fit_intercept", "feature_names", "reward_names")
        },
        "origin": None if model.origin is None else asdict(model.origin),
        "statistics": document,
    }
    solution = {
        "coef": model.coef,
        "intercept": model.intercept,
        "condition_number": np.array([model.condition_number]),
    }
    write(_path(path), "model", content, {**solution, **arrays})


def load_model(path: str | os.PathLike[str]) -> FittedModel:
    """Read a model that :func:`save_model` wrote.

    Raises
    ------
    InvalidInputError
        When there is no such file, or it is damaged, of another kind, or written by a newer version.
    """
    where = _path(path)
    document, arrays = read(where, "model")
    try:
        return _model(document, arrays)
    except (LookupError, ValueError, TypeError, AttributeError) as error:
        raise not_ours(where, "model") from error


def _path(path: str | os.PathLike[str]) -> Path:
    """The file itself where the path is a link, so that the link stays."""
    return Path(os.path.realpath(path)) if os.path.islink(path) else Path(path)


def _model(document: Mapping[str, Any], arrays: Mapping[str, Array]) -> FittedModel:
    found, origin = document["model"], document["origin"]
    statistics = _unpack(document["statistics"], arrays)
    features, rewards = _texts(found["feature_names"]), _texts(found["reward_names"])
    if len(features) != statistics.n_features - _flag(found["fit_intercept"]) or found["variant"] not in VARIANTS:
        raise ValueError(found)
    return FittedModel(
        statistics=statistics,
        gamma=check_real("gamma", found["gamma"], 0.0, 1.0),
        lmbda=check_real("lmbda", found["lmbda"], 0.0, 1.0),
        alpha=check_real("alpha", found["alpha"], 0.0, np.inf),
        variant=found["variant"],
        fit_intercept=found["fit_intercept"],
        coef=_shaped(arrays["coef"], len(rewards), len(features)),
        intercept=_shaped(arrays["intercept"], len(rewards)),
        feature_names=features,
        reward_names=rewards,
        condition_number=float(_shaped(arrays["condition_number"], 1)[0]),
        origin=None if origin is None else _origin(origin),
    )


def _origin(found: Mapping[str, Any]) -> Origin:
    values = {field.name: found[field.name] for field in fields(Origin)}
    counts = {name: _count(values[name]) for name in ("rows", "transitions", "episodes")}
    for name in ("date", "lstd", "episode", "terminated", "truncated"):
        if not isinstance(values[name], str) and (values[name] is not None or name in ("date", "lstd")):
            raise TypeError(name)
    return Origin(**{**values, **counts, "files": _texts(values["files"])})


def _pack(s: LSTDStatistics) -> tuple[dict[str, Any], dict[str, Array]]:
    document = {
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


def _unpack(document: Mapping[str, Any], arrays: Mapping[str, Array]) -> LSTDStatistics:
    n, m = arrays["b"].shape
    successors = document["successors"]
    return LSTDStatistics(
        lmbda=check_real("lmbda", document["lmbda"], 0.0, 1.0),
        share=_number(document["share"]),
        A=_shaped(arrays["A"], n, n),
        B=_shaped(arrays["B"], n, n),
        b=arrays["b"],
        arriving=_shaped(arrays["arriving"], n),
        a=_shaped(arrays["a"], n),
        h=_shaped(arrays["h"], n),
        c=_shaped(arrays["c"], m),
        n_rows=_count(document["n_rows"]),
        n_transitions=_count(document["n_transitions"]),
        n_episodes=_count(document["n_episodes"]),
        pending=_unpack_pending(document["pending"], arrays, n, m),
        first_episode=_untyped(document["first_episode"]),
        last_episode=_untyped(document["last_episode"]),
        single=_flag(document["single"]),
        successors=None if successors is None else _flag(successors),
    )


def _unpack_pending(row: Mapping[str, Any] | None, arrays: Mapping[str, Array], n: int, m: int) -> Pending | None:
    if row is None:
        return None
    return Pending(
        phi=_shaped(arrays["pending_phi"], n),
        reward=_shaped(arrays["pending_reward"], m),
        missing=_flag(row["missing"]),
        ratio=_number(row["ratio"]),
        leaving=_number(row["leaving"]),
        complete=_flag(row["complete"]),
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


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(value)
    return float(value)


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise TypeError(value)
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(value)
    return value


def _texts(values: Any) -> tuple[str, ...]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise TypeError(values)
    return tuple(values)


def _shaped(array: Array, *shape: int) -> Array:
    if array.shape != shape:
        raise ValueError(f"{array.shape} in place of {shape}")
    return array
