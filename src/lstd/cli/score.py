"""The command ``lstd score``: arguments in, exit code out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lstd.cli.console import fail_with, output
from lstd.cli.options import DATA_HELP, NAMES, check_packages, listener, names, score_roles
from lstd.cli.progress import QUIET

if TYPE_CHECKING:
    from lstd.tables.scoring import Score

AS_IN_FIT = "As in fit; by default the same; '' for none."


def score(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A file that `lstd fit` wrote.", show_default=False)],
    data: Annotated[list[str], typer.Argument(metavar="DATA", help=DATA_HELP, show_default=False)],
    reward: Annotated[list[str] | None, typer.Option(metavar=NAMES, help="As in fit; by default the same.")] = None,
    episode: Annotated[str | None, typer.Option(metavar="NAME", help=AS_IN_FIT)] = None,
    terminated: Annotated[str | None, typer.Option(metavar="NAME", help=AS_IN_FIT)] = None,
    truncated: Annotated[str | None, typer.Option(metavar="NAME", help=AS_IN_FIT)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As one JSON document.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help=QUIET)] = False,
) -> int:
    """Compare predictions with the returns in tables.

    Gives R² and the mean squared error of the predictions of discounted returns. In an episode that did not terminate,
    a row counts when gamma^h < 0.01, with h rows to its end: then less than 1 % of its return was not observed. Exit
    codes: 0 done, 1 output could not be written, 2 bad usage or input, 130 interrupted (143 by SIGTERM).
    """
    from lstd.errors import LSTDError

    try:
        check_packages("score")
        from lstd.cli.progress import make_reporter, reporting
        from lstd.estimators.saving import read_model
        from lstd.tables.scoring import score_tables

        loaded = read_model(model)
        roles = score_roles(loaded, names(reward), episode, terminated, truncated)
        with reporting(make_reporter(quiet)) as reporter:
            found = score_tables(loaded, data, roles, on_progress=listener(reporter))
        content = _content(found, roles.rewards)
        return output(_json(model, data, found, content) if as_json else _text(found, content))
    except (LSTDError, OSError) as error:
        return fail_with(error)


def _content(found: Score, rewards: tuple[str, ...]) -> dict[str, dict[str, float | None]]:
    """R² and mean squared error by reward; None where R² is not defined."""
    values = zip(rewards, found.r2.tolist(), found.mse.tolist(), strict=True)
    return {reward: {"r2": r2 if r2 == r2 else None, "mse": mse} for reward, r2, mse in values}


def _text(found: Score, content: dict[str, dict[str, float | None]]) -> str:
    lines = [f"{found.scored} of {found.rows} rows scored, those whose returns were observed to {found.tolerance:.0%}"]
    for reward, values in content.items():
        r2 = "not defined, since all returns are equal" if values["r2"] is None else f"{values['r2']:.6g}"
        lines.append(f"  {reward}: R² {r2}; mean squared error {values['mse']:.6g}")
    return "\n".join(lines)


def _json(model: str, data: list[str], found: Score, content: dict[str, Any]) -> str:
    from lstd.cli.describe import document

    return document(
        {
            "model": model,
            "data": data,
            "rows": found.rows,
            "scored": found.scored,
            "tolerance": found.tolerance,
            "rewards": content,
        }
    )
