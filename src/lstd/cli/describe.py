"""What the commands print on stdout: lines for people, or one JSON document, of a model, a score or an experiment."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lstd.data.episode_warnings import unused_rewards
from lstd.estimators.model_parts import two_digits
from lstd.estimators.summary import Summary, aligned, ridge_text

if TYPE_CHECKING:
    from lstd.estimators.model import Model
    from lstd.experiments.reproduce.run import Outcome
    from lstd.tables.scoring import Score

RESULTS = {
    "report.html": "all figures, tables and findings in one page",
    "figures": "Figures 2-5 and those of the theory, as PDF, PNG and SVG",
    "tables": "Tables 1-3 as CSV, Markdown and LaTeX",
    "results.parquet": "a row per problem, features, algorithm, λ, α and run",
    "timings.json": "seconds per run beside a NumPy loop and the paper",
    "theory.json": "Proposition 1, the theorems and lemmas in numbers",
    "provenance.json": "versions, processor, seeds, times and checksums",
    "cells": "finished parts of the sweep, from which a run resumes",
}


def document(content: dict[str, Any]) -> str:
    """Return a JSON document as it is written to stdout; bytes of file names that are not valid text are escaped."""
    return encodable(json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False))


def encodable(text: str) -> str:
    """Escape bytes of a file name that are not valid text; the escapes are those of JSON too."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


# ------------------------------------------------------------ a model


def model_json(model: Model, file: str, **more: Any) -> str:
    """Describe a model as one JSON document, with coefficients; an infinite condition number is null."""
    n, settings, condition, chosen = model.n_features, model.settings, model.solution.condition_number, model.selection
    found = Summary(model, "").interval
    errors = None if found is None else found.standard_error

    def by_reward(columns: Any) -> dict[str, dict[str, float]]:
        values = (dict(zip(model.feature_names, column, strict=True)) for column in columns[:n].T.tolist())
        return dict(zip(model.reward_names, values, strict=True))

    def of_intercept(row: Any) -> dict[str, float]:
        return dict(zip(model.reward_names, np.atleast_1d(row).tolist(), strict=True))

    content = {
        "file": file,
        "origin": None if model.origin is None else asdict(model.origin),
        **{name: getattr(settings, name) for name in ("gamma", "lmbda", "alpha", "variant", "fit_intercept")},
        **({} if settings.penalty is None else {"ridge": model.ridge[:n].tolist()}),
        "selection": chosen
        and {"rows": chosen.n_rows, "folds": chosen.n_folds}
        | {name: getattr(chosen, name) for name in ("lmbda", "alpha", "score", "observed_share")},
        "unused_rewards": model.statistics.n_unused_rewards,
        "doubts": list(model.doubts),
        "condition_number": condition if math.isfinite(condition) else None,
        "blocks": None if model.no_intervals else len(model.influence.shares),
        "coefficients": by_reward(model.solution.weights),
        "intercept": of_intercept(model.intercept),
        "coefficient_errors": None if errors is None else by_reward(errors),
        "intercept_error": of_intercept(errors[n]) if errors is not None and settings.fit_intercept else None,
    }
    return document(content | more)


def model_text(model: Model, file: str, report: str = "", *, coefficients: bool = False) -> str:
    """Describe what a model was fitted to, the choice of its settings, its condition and intervals."""
    blocks = "" if model.no_intervals else f"from {len(model.influence.shares)} blocks of the data"
    condition = model.solution.condition_number
    singular = "" if math.isfinite(condition) else " (singular; the weights are the limit as the ridge term vanishes)"
    facts = [
        *_origin(model),
        ("parameters", _parameters(model)),
        ("features", str(len(model.feature_names))),
        ("rewards", ", ".join(model.reward_names)),
        ("condition", f"{condition:.2g}{singular}"),
        ("intervals", blocks or f"none. {model.no_intervals}"),
        *_choice(model),
        *_checks(model),
        *(("doubt", doubt) for doubt in model.doubts),
        *([("report", report)] if report else []),
    ]
    lines = [file, *(f"  {name:<12}{text}" for name, text in facts)]
    return "\n".join([*lines, *(_coefficients(model) if coefficients else [])])


def _origin(model: Model) -> Iterator[tuple[str, str]]:
    if (origin := model.origin) is not None:
        yield "fitted on", ", ".join(origin.files)
        counts = {"row": origin.rows, "transition": origin.transitions, "episode": origin.episodes}
        numbers = (counts | {"group": model.statistics.n_groups}).items()
        yield "", ", ".join(f"{n} {what}{'' if n == 1 else 's'}" for what, n in numbers if n is not None)
        yield "", f"{origin.date}, lstd {origin.lstd}"
        if origin.columns:
            yield "columns", ", ".join(f"{role}: {column}" for role, column in origin.columns.items())
    if count := model.statistics.n_unused_rewards:
        yield "", unused_rewards(count)


def _parameters(model: Model) -> str:
    settings = model.settings
    intercept = "" if settings.fit_intercept else ", no intercept"
    numbers = f"gamma {settings.gamma:g}, lmbda {settings.lmbda:g}, alpha {ridge_text(model)}"
    return f"{numbers}, {settings.variant}{intercept}"


def _choice(model: Model) -> Iterator[tuple[str, str]]:
    if (chosen := model.selection) is None:
        return
    rows = f"all {chosen.n_rows}"
    if model.origin is not None and chosen.n_rows < model.origin.rows:
        rows = f"the first {chosen.n_rows} of {model.origin.rows}"
    yield (
        "chosen",
        f"lmbda {chosen.lmbda:g}, alpha {chosen.alpha:g}, from {rows} rows in {chosen.n_folds} folds;"
        f" R² {chosen.score:.4g} on held-out rows; "
        f"observed share of their returns: {100 * chosen.observed_share:.0f} %",
    )
    if (scores := chosen.arbitrary_scores) is not None:
        yield (
            "",
            f"the data do not decide lmbda: the best R² of each value, {scores[0]:.3g} to "
            f"{scores[1]:.3g}, differ by no more than chance",
        )


def _checks(model: Model) -> Iterator[tuple[str, str]]:
    if model.checks is None:
        return
    bias, misfit = model.checks.bias, model.checks.misfit
    if isinstance(bias, str):
        yield "bias", f"not checked. {bias}"
    else:
        found, difference, p = _found(bias.biased, bias.difference, bias.p_value)
        yield "bias", f"{found}: predictions differ by {difference} from those with lmbda 1 (p = {p})"
    if isinstance(misfit, str):
        yield "misfit", f"not checked. {misfit}"
    else:
        found, systematic, p = _found(misfit.misfit, misfit.systematic, misfit.p_value)
        yield "misfit", f"{found}: {systematic} of returns is beyond weighted sums of features (p = {p})"


def _found(flagged: Any, size: Any, p_value: Any) -> tuple[str, str, str]:
    """The outcome of a check over all rewards: found or not, the largest size and the smallest p-value."""
    return "found" if np.any(flagged) else "none found", two_digits(float(np.max(size))), f"{np.min(p_value):.2g}"


def _coefficients(model: Model) -> Iterator[str]:
    summary = Summary(model, "")
    beside = "" if summary.interval is None else f", standard errors and {100 * summary.level:g} % intervals"
    for j, reward in enumerate(model.reward_names):
        yield f"  coefficients for {reward}{beside}"
        (_, *head), *lines = summary.table(j, ridge=False)
        yield from (f"    {line}" for line in aligned([["", *head], *lines]))


# ------------------------------------------------------------ a score


def score_json(score: Score, rewards: tuple[str, ...], **about: Any) -> str:
    """Describe a score as one JSON document; R² is null where it is not defined."""
    values = zip(rewards, score.r2.tolist(), score.mse.tolist(), strict=True)
    by_reward = {reward: {"r2": None if math.isnan(r2) else r2, "mse": mse} for reward, r2, mse in values}
    counts = {"rows": score.rows, "scored": score.scored, "observed_share": score.observed_share}
    return document(about | counts | {"rewards": by_reward})


def score_text(score: Score, rewards: tuple[str, ...]) -> str:
    """Describe a score: rows scored, and R² and mean squared error by reward."""
    observed = f"observed share of their returns: {100 * score.observed_share:.0f} %"
    lines = [f"{score.scored} of {score.rows} rows scored; {observed}"]
    for reward, r2, mse in zip(rewards, score.r2.tolist(), score.mse.tolist(), strict=True):
        text = "not defined, since all returns are equal" if math.isnan(r2) else f"{r2:.6g}"
        lines.append(f"  {reward}: R² {text}; mean squared error {mse:.6g}")
    return "\n".join(lines)


# ------------------------------------------------------------ the experiments


def outcome_text(outcome: Outcome) -> str:
    """Describe the files that were written, line by line."""
    seconds = f"{sum(outcome.wall_seconds.values()):.1f} s" if outcome.wall_seconds else "nothing left to do"
    paths = [(outcome.folder / name, contents) for name, contents in RESULTS.items()]
    lines = [
        f"{outcome.folder}: {outcome.computed + outcome.reused} cells done "
        f"({outcome.computed} computed, {outcome.reused} stored before), {seconds}",
        *(f"  {path.name:<16}{_extent(path):>20}  {contents}" for path, contents in paths if path.exists()),
    ]
    return encodable("\n".join(lines))


def outcome_json(outcome: Outcome) -> str:
    """Describe the same as one JSON document."""
    from lstd.experiments.reproduce.folder import CONFIGURATION, ResultsFolder

    files = [*ResultsFolder(outcome.folder, {}).files(), outcome.folder / CONFIGURATION]
    return document(
        {
            "folder": str(outcome.folder),
            "status": "done",
            "cells": {"computed": outcome.computed, "reused": outcome.reused},
            "wall_seconds": dict(outcome.wall_seconds),
            "files": sorted(file.relative_to(outcome.folder).as_posix() for file in files),
        }
    )


def _extent(path: Path) -> str:
    files = [file for file in path.iterdir() if file.is_file()] if path.is_dir() else [path]
    size = sum(file.stat().st_size for file in files)
    amount = f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.0f} kB"
    return f"{len(files)} files, {amount}" if path.is_dir() else amount
