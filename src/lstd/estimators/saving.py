"""Fitted models in files: arrays and a JSON document, nothing executable, checked as a whole."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from lstd.data.settings import Settings
from lstd.estimators.check_results import BiasCheck, Checks, MisfitCheck
from lstd.estimators.model import LSTD_OPTIONS, LSTDCV_OPTIONS, Model, Origin, Selection
from lstd.io.archive import read, write
from lstd.statistics.blocks import Blocks
from lstd.statistics.covariance import Influence
from lstd.statistics.merging import unpack_statistics
from lstd.statistics.packing import count, finite, flag, number, pack, shaped, texts
from lstd.statistics.solve import Solution

Array = NDArray[np.float64]
T = TypeVar("T", BiasCheck, MisfitCheck)

_SETTINGS = ("gamma", "lmbda", "alpha", "variant", "fit_intercept", "penalty")
_GONE = (
    "Intervals need the blocks of the data, which files do not keep: this model was loaded and fitted further. Fit it "
    "to all data at once."
)


def write_model(model: Model, path: str | os.PathLike[str]) -> None:
    """Write a model to a file; see :meth:`lstd.LSTD.save`."""
    write(path, "model", *pack_model(model))


def pack_model(model: Model) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return the document and the arrays of a model's file."""
    document, arrays = pack(model.statistics)
    no_intervals = model.no_intervals
    content: dict[str, Any] = {
        "settings": {name: getattr(model.settings, name) for name in _SETTINGS},
        "reward_names": model.rewards,
        "options": {name: np.asarray(value).tolist() for name, value in model.options.items()},
        "origin": None if model.origin is None else asdict(model.origin),
        "selection": None,
        "checks": None if model.checks is None else _packed(model.checks),
        "statistics": document,
        "singular": bool(model.solution.singular),
        "no_intervals": no_intervals,
        "marks": None if no_intervals else model.influence.marks.tolist(),
    }
    arrays |= {"weights": model.solution.weights, "condition_number": np.array([model.solution.condition_number])}
    if not no_intervals:
        arrays |= {f"influence_{name}": getattr(model.influence, name) for name in ("vectors", "shift", "shares")}
    if model.selection is not None:
        choice = {name: value for name, value in vars(model.selection).items() if name != "results"}
        content["selection"] = choice | {"results": [*model.selection.results]}
        arrays |= {f"results_{name}": values for name, values in model.selection.results.items()}
    return content, arrays


def read_model(path: str | os.PathLike[str]) -> Model:
    """Read a file that :func:`write_model` wrote; see :func:`lstd.load`."""
    return read(path, {"model": unpack_model})


def unpack_model(document: Mapping[str, Any], arrays: Mapping[str, Array]) -> Model:
    """Build a model from the content of its file; raises the errors that :func:`lstd.io.archive.read` catches."""
    selection = document["selection"]
    statistics = unpack_statistics(document["statistics"], arrays)
    settings = Settings(**{name: document["settings"][name] for name in _SETTINGS})
    if (settings.gamma, settings.lmbda) != (statistics.gamma, statistics.lmbda):
        raise ValueError(settings)
    n, m = statistics.b.shape
    settings.ridge(n - settings.fit_intercept)  # checks the number of coefficients
    rewards = None if document["reward_names"] is None else texts(document["reward_names"])
    if statistics.has_intercept != settings.fit_intercept or (rewards is not None and len(rewards) != m):
        raise ValueError(rewards)
    options = document["options"]
    if {*options} - {*(LSTD_OPTIONS if selection is None else LSTDCV_OPTIONS)}:
        raise ValueError(options)
    no_intervals = document["no_intervals"]
    if not isinstance(no_intervals, str):
        raise TypeError(no_intervals)
    solution = Solution(
        finite(shaped(arrays["weights"], n, m)), float(shaped(arrays["condition_number"], 1)[0]),
        flag(document["singular"]),
    )  # fmt: skip
    return Model(
        Blocks(statistics, limit=0, reason=no_intervals or _GONE), settings, rewards=rewards,
        origin=None if document["origin"] is None else _origin(document["origin"]),
        selection=None if selection is None else _selection(selection, arrays),
        checks=_checks(document["checks"], m, statistics.single),
        options=options, saved_solution=solution,
        saved_influence=None if no_intervals else _influence(arrays, m, n, settings.fit_intercept, document["marks"]),
    )  # fmt: skip


def _influence(arrays: Mapping[str, Array], m: int, n: int, intercept: bool, marks: list[list[int]]) -> Influence:
    shares = arrays["influence_shares"]
    return Influence(
        finite(shaped(arrays["influence_vectors"], len(shares), m, n)), finite(shaped(arrays["influence_shift"], m, n)),
        finite(shaped(shares, len(shares))), intercept, np.array(marks, dtype=np.uint64).reshape(len(shares), 4),
    )  # fmt: skip


def _selection(choice: Mapping[str, Any], arrays: Mapping[str, Array]) -> Selection:
    results = {name: arrays[f"results_{name}"] for name in texts(choice["results"])}
    for values in results.values():
        shaped(values, len(results["lmbda"]))
    _ = results["observed_share"][0]
    results["rank_test_score"] = results["rank_test_score"].astype(np.intp)
    lmbda, alpha, score = (number(choice[name]) for name in ("lmbda", "alpha", "score"))
    return Selection(lmbda, alpha, score, count(choice["n_folds"]), count(choice["n_rows"]), results)


def _checks(content: Any, m: int, single: bool) -> Checks | None:
    if content is None:
        return None
    bias, misfit = _check(BiasCheck, content["bias"], m, single), _check(MisfitCheck, content["misfit"], m, single)
    return Checks(bias, misfit)


def _packed(checks: Checks) -> dict[str, Any]:
    """Return the results of checks as lists; why a check could not run as text."""
    return {
        check: result if isinstance(result, str) else {
            name: None if value is None else np.atleast_1d(value).tolist() for name, value in vars(result).items()
        }
        for check, result in vars(checks).items()
    }  # fmt: skip


def _check(kind: type[T], content: Any, m: int, single: bool) -> T | str:
    """Return the result of a check, one number or flag for each of m rewards."""
    if isinstance(content, str):
        return content
    values: dict[str, Any] = {}
    for one in fields(kind):
        if content[one.name] is None and one.name == "standard_error":
            values[one.name] = None
            continue
        given = [flag(value) if one.name in ("biased", "misfit") else number(value) for value in content[one.name]]
        values[one.name] = shaped(np.array(given), m)[0].item() if single else shaped(np.array(given), m)
    return kind(**values)


def _origin(values: Mapping[str, Any]) -> Origin:
    counts: dict[str, Any] = {name: count(values[name]) for name in ("rows", "transitions", "episodes")}
    columns, about = dict(values["columns"]), {name: values[name] for name in ("date", "lstd")}
    texts([*columns, *columns.values(), *about.values()])
    return Origin(
        files=texts(values["files"]), next_features=texts(values["next_features"]), columns=columns, **counts, **about
    )
