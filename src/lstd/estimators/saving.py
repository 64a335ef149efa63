"""Fitted models in files: arrays and a JSON document, nothing executable, checked as a whole."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstd.data.settings import Settings
from lstd.estimators.intervals import Influence
from lstd.estimators.model import Model, Origin, Selection
from lstd.io.archive import read, write
from lstd.statistics.blocks import Blocks
from lstd.statistics.packing import count, finite, flag, number, pack, shaped, texts
from lstd.statistics.solve import Solution
from lstd.statistics.statistics import unpack_statistics

Array = NDArray[np.float64]

_SETTINGS = ("gamma", "lmbda", "alpha", "variant", "fit_intercept")
_OPTIONS = {  # parameters of LSTD and of LSTDCV beside the settings
    False: ("n_blocks",),
    True: ("lmbdas", "alphas", "cv", "n_jobs", "n_blocks", "verbose"),
}
_GONE = (
    "Intervals need the blocks of the data, which files do not keep: this model was loaded and fitted further. Fit it "
    "to all data at once."
)


def write_model(model: Model, path: str | os.PathLike[str]) -> None:
    """Write a model to a file, whole or not at all; an existing file is replaced.

    Raises
    ------
    InvalidInputError
        When the first or last episode's id is neither an integer nor a float nor text.
    OutputError
        When the file could not be written.
    """
    document, arrays = pack(model.statistics)
    no_intervals = model.no_intervals
    content: dict[str, Any] = {
        "settings": {name: getattr(model.settings, name) for name in _SETTINGS},
        "feature_names": model.names,
        "reward_names": model.rewards,
        "options": dict(model.options),
        "origin": None if model.origin is None else asdict(model.origin),
        "selection": None,
        "statistics": document,
        "singular": bool(model.solution.singular),
        "no_intervals": no_intervals,
    }
    arrays |= {"weights": model.solution.weights, "condition_number": np.array([model.solution.condition_number])}
    if not no_intervals:
        arrays |= {f"influence_{name}": getattr(model.influence, name) for name in ("vectors", "shift", "shares")}
    if model.selection is not None:
        choice = {name: value for name, value in vars(model.selection).items() if name != "results"}
        content["selection"] = choice | {"results": [*model.selection.results]}
        arrays |= {f"results_{name}": values for name, values in model.selection.results.items()}
    write(path, "model", content, arrays)


def read_model(path: str | os.PathLike[str]) -> Model:
    """Read a model that :func:`write_model` wrote; it is the same to the last bit.

    Raises
    ------
    InvalidInputError
        When there is no such file, or it is damaged, of another kind, or of another version of the format.
    """
    return read(path, {"model": unpack_model})


def unpack_model(document: Mapping[str, Any], arrays: Mapping[str, Array]) -> Model:
    """Make a model of the content of its file; raises what :func:`lstd.io.archive.read` expects."""
    found, selection = document["settings"], document["selection"]
    statistics = unpack_statistics(document["statistics"], arrays)
    settings = Settings(**{name: found[name] for name in _SETTINGS})
    if (settings.gamma, settings.lmbda) != (statistics.gamma, statistics.lmbda):
        raise ValueError(found)
    n, m = statistics.b.shape
    names, rewards = (_names(document[name]) for name in ("feature_names", "reward_names"))
    for given, length in ((names, n - settings.fit_intercept), (rewards, m)):
        if given is not None and len(given) != length:
            raise ValueError(given)
    options = document["options"]
    if {*options} - {*_OPTIONS[selection is not None]}:
        raise ValueError(options)
    no_intervals = document["no_intervals"]
    if not isinstance(no_intervals, str):
        raise TypeError(no_intervals)
    return Model(
        blocks=Blocks(statistics, limit=0, reason=no_intervals or _GONE),
        settings=settings,
        names=names,
        rewards=rewards,
        origin=None if document["origin"] is None else _origin(document["origin"]),
        selection=None if selection is None else _selection(selection, arrays),
        options=options,
        saved_solution=Solution(
            finite(shaped(arrays["weights"], n, m)),
            float(shaped(arrays["condition_number"], 1)[0]),
            flag(document["singular"]),
        ),
        saved_influence=None if no_intervals else _influence(arrays, m, n, settings.fit_intercept),
    )


def _names(value: Any) -> tuple[str, ...] | None:
    return None if value is None else texts(value)


def _influence(arrays: Mapping[str, Array], m: int, n: int, intercept: bool) -> Influence:
    shares = arrays["influence_shares"]
    return Influence(
        vectors=shaped(arrays["influence_vectors"], len(shares), m, n),
        shift=shaped(arrays["influence_shift"], m, n),
        shares=shaped(shares, len(shares)),
        intercept=intercept,
    )


def _selection(found: Mapping[str, Any], arrays: Mapping[str, Array]) -> Selection:
    results = {name: arrays[f"results_{name}"] for name in texts(found["results"])}
    for values in results.values():
        shaped(values, len(results["lmbda"]))
    results["rank_test_score"] = results["rank_test_score"].astype(np.intp)
    return Selection(
        number(found["lmbda"]), number(found["alpha"]), number(found["score"]), count(found["n_folds"]),
        count(found["n_rows"]), results,
    )  # fmt: skip


def _origin(found: Mapping[str, Any]) -> Origin:
    values = {field.name: found[field.name] for field in fields(Origin)}
    counts = {name: count(values[name]) for name in ("rows", "transitions", "episodes")}
    for name in ("date", "lstd", "episode", "terminated", "truncated"):
        if not isinstance(values[name], str) and (values[name] is not None or name in ("date", "lstd")):
            raise TypeError(name)
    return Origin(**{**values, **counts, "files": texts(values["files"])})
