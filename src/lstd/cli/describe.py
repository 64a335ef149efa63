"""What is said about a model: lines for people, or one JSON document."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from lstd.estimators.persistence import FittedModel, Origin
    from lstd.tables.choosing import Choice
    from lstd.tables.fitting import TableFit


def fit_text(found: TableFit, file: str, report: Path | None) -> str:
    """What a model was fitted on, how its settings were chosen, whether it has intervals, and what else was written."""
    lines = [_summary(found.model, file, found.no_intervals)]
    if found.choice is not None:
        lines.append(f"  chosen      {_choice(found.choice, found.model)}")
    if report is not None and found.sample is not None and found.model.origin is not None:
        which = f"the first {len(found.sample)} of" if found.sample.is_full else "all"
        lines.append(f"  report      {report}, on {which} {found.model.origin.rows} rows")
    return "\n".join(lines)


def fit_json(found: TableFit, file: str, report: Path | None) -> str:
    """The same as one JSON document, with coefficients."""
    selection = None
    if found.choice is not None:
        chosen = found.choice.selection
        selection = {
            "lmbda": chosen.lmbda,
            "alpha": chosen.alpha,
            "rows": found.choice.rows,
            "folds": chosen.n_folds,
            "score": chosen.score,
        }
    of_rows = None if report is None or found.sample is None else {"file": str(report), "rows": len(found.sample)}
    content = {"no_intervals": found.no_intervals or None, "selection": selection, "report": of_rows}
    return document(_content(found.model, file) | content)


def _choice(choice: Choice, model: FittedModel) -> str:
    chosen = choice.selection
    total = f"all {choice.rows}"
    if not choice.all_rows and model.origin is not None:
        total = f"the first {choice.rows} of {model.origin.rows}"
    return (
        f"lmbda {chosen.lmbda:g}, alpha {chosen.alpha:g}, from {total} rows in {chosen.n_folds} folds; "
        f"R² {chosen.score:.4g} on held-out rows"
    )


def model_text(model: FittedModel, file: str) -> str:
    """What a model was fitted on, its parameters, how well its system is conditioned, and its coefficients."""
    return "\n".join([_summary(model, file), *_coefficients(model)])


def _summary(model: FittedModel, file: str, no_intervals: str = "") -> str:
    lines = [file]
    if model.origin is not None:
        lines += _origin(model.origin)
    intercept = ", with intercept" if model.fit_intercept else ""
    numbers = f"gamma {model.gamma:g}, lmbda {model.lmbda:g}, alpha {model.alpha:g}"
    lines += [
        f"  parameters  {numbers}, {model.variant}{intercept}",
        f"  features    {len(model.feature_names)}",
        f"  rewards     {', '.join(model.reward_names)}",
        f"  condition   {model.condition_number:.2g}"
        + ("" if math.isfinite(model.condition_number) else " (singular; the weights are those of least norm)"),
        f"  intervals   {_intervals(model, no_intervals)}",
    ]
    return "\n".join(lines)


def _intervals(model: FittedModel, why_none: str) -> str:
    if model.influence is None:
        return f"none{'. ' if why_none else ''}{why_none}"
    return f"from {len(model.influence.shares)} stretches of the data"


def model_json(model: FittedModel, file: str) -> str:
    """The same as one JSON document; an infinite condition number is null."""
    return document(_content(model, file))


def _content(model: FittedModel, file: str) -> dict[str, Any]:
    errors = _standard_errors(model)
    n = len(model.feature_names)
    return {
        "file": file,
        "origin": None if model.origin is None else asdict(model.origin),
        "gamma": model.gamma,
        "lmbda": model.lmbda,
        "alpha": model.alpha,
        "variant": model.variant,
        "fit_intercept": model.fit_intercept,
        "condition_number": model.condition_number if math.isfinite(model.condition_number) else None,
        "stretches": None if model.influence is None else len(model.influence.shares),
        "coefficients": _by_reward(model, model.coef.tolist()),
        "intercept": dict(zip(model.reward_names, model.intercept.tolist(), strict=True)),
        "coefficient_errors": None if errors is None else _by_reward(model, [row[:n] for row in errors]),
        "intercept_error": dict(zip(model.reward_names, (row[n] for row in errors), strict=True))
        if errors is not None and model.fit_intercept
        else None,
    }


def _by_reward(model: FittedModel, values: list[list[float]]) -> dict[str, dict[str, float]]:
    rows = zip(model.reward_names, values, strict=True)
    return {reward: dict(zip(model.feature_names, row, strict=True)) for reward, row in rows}


def _standard_errors(model: FittedModel) -> list[list[float]] | None:
    """Standard errors of the coefficients of each reward, that of the intercept last; None when they are not known."""
    if model.influence is None:
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


def _coefficients(model: FittedModel) -> Iterator[str]:
    names = (*model.feature_names, *(["(intercept)"] if model.fit_intercept else []))
    width = max(map(len, names))
    errors = _standard_errors(model)
    for j, reward in enumerate(model.reward_names):
        yield f"  coefficients for {reward}" + ("" if errors is None else ", and their standard errors")
        values = [*model.coef[j].tolist(), *([float(model.intercept[j])] if model.fit_intercept else [])]
        beside = [""] * len(values) if errors is None else [f"  {error:.2g}" for error in errors[j]]
        for name, value, error in zip(names, values, beside, strict=True):
            yield f"    {name:<{width}}  {value:<12.6g}{error}".rstrip()
