"""Descriptions of a model: lines for people, or one JSON document."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from lstd.estimators.summary import Summary, aligned, ridge_text

if TYPE_CHECKING:
    from pathlib import Path

    from lstd.estimators.model import Model, Origin
    from lstd.tables.first_rows import Sample


def fit_text(model: Model, sample: Sample | None, file: str, report: Path | None) -> str:
    """Describe what a model was fitted to, the choice of its settings, its intervals and the files written."""
    lines = _summary(model, file)
    if report is not None and sample is not None and model.origin is not None:
        which = f"the first {len(sample)} of" if sample.is_full else "all"
        lines.append(f"  report      {report}, on {which} {model.origin.rows} rows")
    return "\n".join(lines)


def fit_json(model: Model, sample: Sample | None, file: str, report: Path | None) -> str:
    """Return the same as one JSON document, with coefficients."""
    page = None if report is None or sample is None else {"file": str(report), "rows": len(sample)}
    content = {"no_intervals": model.no_intervals or None, "report": page}
    return document(_content(model, file) | content)


def model_text(model: Model, file: str) -> str:
    """Describe what a model was fitted to, its parameters, its condition number and its coefficients."""
    return "\n".join([*_summary(model, file), *_coefficients(model)])


def model_json(model: Model, file: str) -> str:
    """Return the same as one JSON document; an infinite condition number is null."""
    return document(_content(model, file))


def _summary(model: Model, file: str) -> list[str]:
    settings, condition = model.settings, model.solution.condition_number
    intercept = "" if settings.fit_intercept else ", no intercept"
    numbers = f"gamma {settings.gamma:g}, lmbda {settings.lmbda:g}, alpha {ridge_text(model)}"
    singular = "" if math.isfinite(condition) else " (singular; the weights are the limit as the ridge term vanishes)"
    blocks = f"from {_n_blocks(model)} blocks of the data"
    return [
        file,
        *([] if model.origin is None else _origin(model.origin, model.statistics.n_groups)),
        *_unused(model),
        f"  parameters  {numbers}, {settings.variant}{intercept}",
        f"  features    {len(model.feature_names)}",
        f"  rewards     {', '.join(model.reward_names)}",
        f"  condition   {condition:.2g}{singular}",
        f"  intervals   {f'none. {model.no_intervals}' if model.no_intervals else blocks}",
        *_choice(model),
        *_checks(model),
        *(f"  doubt       {doubt}" for doubt in model.doubts),
    ]


def _choice(model: Model) -> Iterator[str]:
    if (chosen := model.selection) is None:
        return
    rows = f"all {chosen.n_rows}"
    if model.origin is not None and chosen.n_rows < model.origin.rows:
        rows = f"the first {chosen.n_rows} of {model.origin.rows}"
    yield (
        f"  chosen      lmbda {chosen.lmbda:g}, alpha {chosen.alpha:g}, from {rows} rows in {chosen.n_folds} folds;"
        f" R² {chosen.score:.4g} on held-out rows; observed share of their returns: {100 * chosen.observed_share:.0f} %"
    )
    if (scores := chosen.arbitrary_scores) is not None:
        yield (
            f"              the data do not decide lmbda: the best R² of each value, {scores[0]:.3g} to "
            f"{scores[1]:.3g}, differ by no more than chance"
        )


def _checks(model: Model) -> Iterator[str]:
    if model.checks is None:
        return
    bias, misfit = model.checks.bias, model.checks.misfit
    if isinstance(bias, str):
        yield f"  bias        not checked. {bias}"
    else:
        found, difference, p = _found(bias.biased, bias.difference, bias.p_value)
        yield f"  bias        {found}: predictions differ by {difference} from those with lmbda 1 (p = {p})"
    if isinstance(misfit, str):
        yield f"  misfit      not checked. {misfit}"
    else:
        found, systematic, p = _found(misfit.misfit, misfit.systematic, misfit.p_value)
        yield f"  misfit      {found}: {systematic} of returns is beyond weighted sums of features (p = {p})"


def _found(flagged: Any, size: Any, p_value: Any) -> tuple[str, str, str]:
    """The outcome of a check over all rewards: found or not, the largest size and the smallest p-value."""
    from lstd.estimators.check_results import two_digits

    words = "found" if np.any(flagged) else "none found"
    return words, two_digits(float(np.max(size))), f"{np.min(p_value):.2g}"


def _n_blocks(model: Model) -> int | None:
    return None if model.no_intervals else len(model.influence.shares)


def _content(model: Model, file: str) -> dict[str, Any]:
    n, condition = model.n_features, model.solution.condition_number

    def by_reward(rows: list[list[float]]) -> dict[str, dict[str, float]]:
        features = (dict(zip(model.feature_names, row[:n], strict=True)) for row in rows)
        return dict(zip(model.reward_names, features, strict=True))

    found, intercept_error = Summary(model, "").interval, None
    errors: Any = None if found is None else found.standard_error.T.tolist()
    if errors is not None and model.settings.fit_intercept:
        intercept_error = dict(zip(model.reward_names, (row[n] for row in errors), strict=True))
    return {
        "file": file,
        "origin": None if model.origin is None else asdict(model.origin),
        **{name: getattr(model.settings, name) for name in ("gamma", "lmbda", "alpha", "variant", "fit_intercept")},
        **({} if model.settings.penalty is None else {"ridge": model.ridge[:n].tolist()}),
        "selection": _selection(model),
        "unused_rewards": model.statistics.n_unused_rewards,
        "doubts": list(model.doubts),
        "condition_number": condition if math.isfinite(condition) else None,
        "blocks": _n_blocks(model),
        "coefficients": by_reward(model.solution.weights.T.tolist()),
        "intercept": dict(zip(model.reward_names, np.atleast_1d(model.intercept).tolist(), strict=True)),
        "coefficient_errors": None if errors is None else by_reward(errors),
        "intercept_error": intercept_error,
    }


def _selection(model: Model) -> dict[str, Any] | None:
    if (chosen := model.selection) is None:
        return None
    names = {"rows": "n_rows", "folds": "n_folds"} | {
        name: name for name in ("lmbda", "alpha", "score", "observed_share")
    }
    return {name: getattr(chosen, attribute) for name, attribute in names.items()}


def document(content: dict[str, Any]) -> str:
    """Return a JSON document as it is written to stdout."""
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)


def _origin(origin: Origin, n_groups: int | None) -> Iterator[str]:
    yield f"  fitted on   {', '.join(origin.files)}"
    counts = {"row": origin.rows, "transition": origin.transitions, "episode": origin.episodes, "group": n_groups}
    numbers = [f"{n} {what}{'' if n == 1 else 's'}" for what, n in counts.items() if n is not None]
    yield f"              {', '.join(numbers)}"
    yield f"              {origin.date}, lstd {origin.lstd}"
    if named := ", ".join([f"{role}: {column}" for role, column in origin.columns.items()]):
        yield f"  columns     {named}"


def _unused(model: Model) -> Iterator[str]:
    from lstd.data.horizon_rows import unused_rewards

    if count := model.statistics.n_unused_rewards:
        yield f"              {unused_rewards(count)}"


def _coefficients(model: Model) -> Iterator[str]:
    summary = Summary(model, "")
    beside = "" if summary.interval is None else f", standard errors and {100 * summary.level:g} % intervals"
    for j, reward in enumerate(model.reward_names):
        yield f"  coefficients for {reward}{beside}"
        (_, *head), *lines = summary.table(j, ridge=False)
        yield from (f"    {line}" for line in aligned([["", *head], *lines]))
