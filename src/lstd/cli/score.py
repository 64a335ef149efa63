"""The command ``lstd score``: arguments in, exit code out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lstd.cli import options
from lstd.cli.console import output
from lstd.cli.options import NAMES, names, prepare_tables, reading, score_roles, sorted_files

if TYPE_CHECKING:
    from lstd.tables.scoring import Score

AS_IN_FIT = "Default: the column given to fit; '' for none."
AsInFit = Annotated[str | None, typer.Option(metavar="NAME", help=AS_IN_FIT)]


def score(
    model: options.ModelFile,
    data: options.Data,
    reward: Annotated[list[str] | None, typer.Option(metavar=NAMES, help="Default: the columns given to fit.")] = None,
    episode: AsInFit = None,
    terminated: AsInFit = None,
    truncated: AsInFit = None,
    discount: AsInFit = None,
    importance_ratio: AsInFit = None,
    trace_coefficient: AsInFit = None,
    weight: AsInFit = None,
    next_features: Annotated[list[str] | None, typer.Option(metavar=NAMES, help=AS_IN_FIT)] = None,
    time: AsInFit = None,
    sort: options.Sort = False,
    unobserved: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="predict, ipcw or drop: what to do with returns that were cut off.", show_default=True
        ),
    ] = "predict",
    tolerance: Annotated[
        float,
        typer.Option(
            metavar="NUMBER", help="A return is complete after h rows if gamma^h is below this.", show_default=True
        ),
    ] = 0.01,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> int:
    """Compare predictions with the discounted returns observed in tables.

    Gives R² and the mean squared error. Where an episode was cut off, the prediction there completes the return. With
    --unobserved ipcw, only complete returns count, weighted by the inverse probability that they are complete; with
    drop, they count alike, which is refused if some episodes terminated and others were cut off. Says which share of
    the discounted returns was observed: a small one says little about the model. Exit codes: 0 done, 1 output could not
    be written, 2 bad usage or input, 130 interrupted (143 by SIGTERM).
    """
    prepare_tables("score")
    from lstd.distributed.memory_shares import MEMORY
    from lstd.estimators.saving import read_model
    from lstd.tables.scoring import score_tables

    loaded = read_model(model)
    roles = score_roles(
        loaded, names(reward), next_features, episode=episode, terminated=terminated, truncated=truncated, time=time,
        discount=discount, importance_ratio=importance_ratio, trace_coefficient=trace_coefficient, weight=weight,
    )  # fmt: skip
    with reading(quiet) as on_progress:
        tables = sorted_files(data, roles, sort, MEMORY)
        result = score_tables(
            loaded, tables, roles, unobserved=unobserved, tolerance=tolerance, on_progress=on_progress
        )  # fmt: skip
    content = _content(result, roles.rewards)
    about = {"model": model, "data": data, "unobserved": unobserved, "tolerance": tolerance}
    return output(_json(about, result, content) if as_json else _text(result, content))


def _content(result: Score, rewards: tuple[str, ...]) -> dict[str, dict[str, float | None]]:
    """Return R² and mean squared error by reward; R² is None if it is not defined."""
    values = zip(rewards, result.r2.tolist(), result.mse.tolist(), strict=True)
    return {reward: {"r2": r2 if r2 == r2 else None, "mse": mse} for reward, r2, mse in values}


def _text(result: Score, content: dict[str, dict[str, float | None]]) -> str:
    observed = f"observed share of their returns: {100 * result.observed_share:.0f} %"
    lines = [f"{result.scored} of {result.rows} rows scored; {observed}"]
    for reward, values in content.items():
        r2 = "not defined, since all returns are equal" if values["r2"] is None else f"{values['r2']:.6g}"
        lines.append(f"  {reward}: R² {r2}; mean squared error {values['mse']:.6g}")
    return "\n".join(lines)


def _json(about: dict[str, Any], result: Score, content: dict[str, Any]) -> str:
    from lstd.cli.describe import document

    counts = {"rows": result.rows, "scored": result.scored, "observed_share": result.observed_share}
    return document(about | counts | {"rewards": content})
