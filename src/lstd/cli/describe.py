"""What is said about a model: lines for people, or one JSON document."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from lstd.estimators.model import Model, Origin
    from lstd.tables.sample import Sample


def fit_text(model: Model, sample: Sample | None, file: str, report: Path | None) -> str:
    """What a model was fitted on, how its settings were chosen, whether it has intervals, and what else was written."""
    lines = [_summary(model, file)]
    if model.selection is not None:
        lines.append(f"  chosen      {_choice(model)}")
    if report is not None and sample is not None and model.origin is not None:
        which = f"the first {len(sample)} of" if sample.is_full else "all"
        lines.append(f"  report      {report}, on {which} {model.origin.rows} rows")
    return "\n".join(lines)


def fit_json(model: Model, sample: Sample | None, file: str, report: Path | None) -> str:
    """The same as one JSON document, with coefficients."""
    chosen, selection = model.selection, None
    if chosen is not None:
        selection = {
            "lmbda": chosen.lmbda,
            "alpha": chosen.alpha,
            "rows": chosen.n_rows,
            "folds": chosen.n_folds,
            "score": chosen.score,
        }
    of_rows = None if report is None or sample is None else {"file": str(report), "rows": len(sample)}
    content = {"no_intervals": model.no_intervals or None, "selection": selection, "report": of_rows}
    return document(_content(model, file) | content)


def _choice(model: Model) -> str:
    chosen = model.selection
    assert chosen is not None
    total = f"all {chosen.n_rows}"
    if model.origin is not None and chosen.n_rows < model.origin.rows:
        total = f"the first {chosen.n_rows} of {model.origin.rows}"
    return (
        f"lmbda {chosen.lmbda:g}, alpha {chosen.alpha:g}, from {total} rows in {chosen.n_folds} folds; "
        f"R² {chosen.score:.4g} on held-out rows"
    )


def model_text(model: Model, file: str) -> str:
    """What a model was fitted on, its parameters, how well its system is conditioned, and its coefficients."""
    return "\n".join([_summary(model, file), *_coefficients(model)])


def _summary(model: Model, file: str) -> str:
    lines = [file]
    if model.origin is not None:
        lines += _origin(model.origin)
    settings, condition = model.settings, model.solution.condition_number
    intercept = ", with intercept" if settings.fit_intercept else ""
    numbers = f"gamma {settings.gamma:g}, lmbda {settings.lmbda:g}, alpha {settings.alpha:g}"
    lines += [
        f"  parameters  {numbers}, {settings.variant}{intercept}",
        f"  features    {len(model.feature_names)}",
        f"  rewards     {', '.join(model.reward_names)}",
        f"  condition   {condition:.2g}"
        + ("" if math.isfinite(condition) else " (singular; the weights are those of a vanishing ridge term)"),
        f"  intervals   {_intervals(model)}",
    ]
    return "\n".join(lines)


def _intervals(model: Model) -> str:
    if model.no_intervals:
        return f"none. {model.no_intervals}"
    return f"from {len(model.influence.shares)} blocks of the data"


def model_json(model: Model, file: str) -> str:
    """The same as one JSON document; an infinite condition number is null."""
    return document(_content(model, file))


def _content(model: Model, file: str) -> dict[str, Any]:
    errors = _standard_errors(model)
    n, condition = model.n_features, model.solution.condition_number
    return {
        "file": file,
        "origin": None if model.origin is None else asdict(model.origin),
        **{name: getattr(model.settings, name) for name in ("gamma", "lmbda", "alpha", "variant", "fit_intercept")},
        "condition_number": condition if math.isfinite(condition) else None,
        "blocks": None if model.no_intervals else len(model.influence.shares),
        "coefficients": _by_reward(model, _weights(model)[:, :n].tolist()),
        "intercept": dict(zip(model.reward_names, np.atleast_1d(model.intercept).tolist(), strict=True)),
        "coefficient_errors": None if errors is None else _by_reward(model, [row[:n] for row in errors]),
        "intercept_error": dict(zip(model.reward_names, (row[n] for row in errors), strict=True))
        if errors is not None and model.settings.fit_intercept
        else None,
    }


def _weights(model: Model) -> NDArray[np.float64]:
    """Weights of each reward, that of the column of ones last, if any."""
    return model.solution.weights.T


def _by_reward(model: Model, values: list[list[float]]) -> dict[str, dict[str, float]]:
    rows = zip(model.reward_names, values, strict=True)
    return {reward: dict(zip(model.feature_names, row, strict=True)) for reward, row in rows}


def _standard_errors(model: Model) -> list[list[float]] | None:
    """Standard errors of the coefficients of each reward, that of the intercept last; None when they are not known."""
    if model.no_intervals:
        return None
    errors: list[list[float]] = ((model.influence.vectors**2).sum(axis=0) ** 0.5).tolist()
    return errors


def document(content: dict[str, Any]) -> str:
    """A JSON document as it is written to stdout."""
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)


def _origin(origin: Origin) -> Iterator[str]:
    yield f"  fitted on   {', '.join(origin.files)}"
    yield f"              {origin.rows} rows, {origin.transitions} transitions, {origin.episodes} episodes"
    yield f"              {origin.date}, lstd {origin.lstd}"
    columns = ((name, getattr(origin, name)) for name in ("episode", "terminated", "truncated"))
    if said := ", ".join(f"{name}: {column}" for name, column in columns if column is not None):
        yield f"  columns     {said}"


def _coefficients(model: Model) -> Iterator[str]:
    names = (*model.feature_names, *(["(intercept)"] if model.settings.fit_intercept else []))
    width = max(map(len, names))
    errors = _standard_errors(model)
    for j, reward in enumerate(model.reward_names):
        yield f"  coefficients for {reward}" + ("" if errors is None else ", and their standard errors")
        values = _weights(model)[j].tolist()
        beside = [""] * len(values) if errors is None else [f"  {error:.2g}" for error in errors[j]]
        for name, value, error in zip(names, values, beside, strict=True):
            yield f"    {name:<{width}}  {value:<12.6g}{error}".rstrip()
