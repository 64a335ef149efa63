"""What is said about a model: lines for people, or one JSON document."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lstd.persistence import FittedModel, Origin


def model_text(model: FittedModel, file: str, *, coefficients: bool = True) -> str:
    """What a model was fitted on, its parameters, how well its system is conditioned, and its coefficients."""
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
        + ("" if math.isfinite(model.condition_number) else " (singular)"),
    ]
    return "\n".join([*lines, *_coefficients(model)] if coefficients else lines)


def model_json(model: FittedModel, file: str) -> str:
    """The same as one JSON document; an infinite condition number is null."""
    finite = math.isfinite(model.condition_number)
    return document(
        {
            "file": file,
            "origin": None if model.origin is None else asdict(model.origin),
            "gamma": model.gamma,
            "lmbda": model.lmbda,
            "alpha": model.alpha,
            "variant": model.variant,
            "fit_intercept": model.fit_intercept,
            "condition_number": model.condition_number if finite else None,
            "coefficients": {
                reward: dict(zip(model.feature_names, row, strict=True))
                for reward, row in zip(model.reward_names, model.coef.tolist(), strict=True)
            },
            "intercept": dict(zip(model.reward_names, model.intercept.tolist(), strict=True)),
        }
    )


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
    for j, reward in enumerate(model.reward_names):
        yield f"  coefficients for {reward}"
        values = [*model.coef[j].tolist(), *([float(model.intercept[j])] if model.fit_intercept else [])]
        yield from (f"    {name:<{width}}  {value:.6g}" for name, value in zip(names, values, strict=True))
