"""The command ``lstd fit``: arguments in, exit code out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lstd.cli.console import fail_with, output
from lstd.cli.interruption import advise
from lstd.cli.tables import DATA_HELP, NAMES, check_out, check_packages, listener, names

if TYPE_CHECKING:
    from pathlib import Path

    from lstd.tables.fitting import Settings
    from lstd.tables.rows import Roles


def fit(
    data: Annotated[list[str], typer.Argument(metavar="DATA", help=DATA_HELP, show_default=False)],
    reward: Annotated[list[str], typer.Option(metavar=NAMES, help="Reward received on leaving the row.")],
    gamma: Annotated[float, typer.Option(metavar="NUMBER", help="Discount per row, in [0, 1].")],
    out: Annotated[str, typer.Option("--out", "-o", metavar="FILE", help="Where the model goes.")],
    features: Annotated[list[str] | None, typer.Option(metavar=NAMES, help="Columns of features.")] = None,
    all_others: Annotated[
        bool, typer.Option("--all-others", help="Every column that no other option names is a feature.")
    ] = False,
    exclude: Annotated[list[str] | None, typer.Option(metavar=NAMES, help="Not these, with --all-others.")] = None,
    episode: Annotated[str | None, typer.Option(metavar="NAME", help="Id of the row's episode.")] = None,
    terminated: Annotated[
        str | None, typer.Option(metavar="NAME", help="1 where the episode ends for good, at value 0; else 0.")
    ] = None,
    truncated: Annotated[
        str | None, typer.Option(metavar="NAME", help="1 on the last row of an episode that was cut off; else 0.")
    ] = None,
    lmbda: Annotated[float, typer.Option(metavar="NUMBER", help="Trace decay, in [0, 1].", show_default=True)] = 0.9,
    alpha: Annotated[float, typer.Option(metavar="NUMBER", help="Ridge coefficient.", show_default=True)] = 1.0,
    variant: Annotated[
        str, typer.Option(metavar="NAME", help="boyan, uncorrected or mixed.", show_default=True)
    ] = "boyan",
    fit_intercept: Annotated[bool, typer.Option("--fit-intercept", help="Fit an intercept too.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE if it is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Summary as one JSON document.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress and no warnings on stderr.")] = False,
) -> int:
    """Fit a model of discounted future rewards to tables.

    A table has a row per step, in time order. The last row of an episode that did not terminate counts by its features
    only; its reward is not used and may be missing. Without --episode, an episode ends at a row that is flagged. Names
    have commas between them, and options that take several may be repeated. Exit codes: 0 done, 1 the model could not
    be written, 2 bad usage or input, 130 interrupted (143 by SIGTERM).
    """
    from lstd.errors import LSTDError

    try:
        check_packages("fit")
        from lstd.tables.fitting import Settings

        roles = _roles(features, all_others, names(reward), episode, terminated, truncated, names(exclude))
        settings = Settings(gamma, lmbda, alpha, variant, fit_intercept)
        return _carry_out(data, roles, settings, check_out(out, force, data), as_json, quiet)
    except (LSTDError, OSError) as error:
        return fail_with(error)


def _roles(
    features: list[str] | None,
    all_others: bool,
    rewards: tuple[str, ...],
    episode: str | None,
    terminated: str | None,
    truncated: str | None,
    excluded: tuple[str, ...],
) -> Roles:
    from lstd.errors import InvalidInputError
    from lstd.tables.rows import Roles

    if all_others == bool(features):
        raise InvalidInputError("either `--features` with names or `--all-others` must be given, and not both.")
    if excluded and not all_others:
        raise InvalidInputError("`--exclude` goes with `--all-others` only.")
    if not rewards:
        raise InvalidInputError("`--reward` must name a column.")
    if truncated is not None and terminated is None:
        raise InvalidInputError(
            "`--truncated` goes with `--terminated` only: what is not said to be truncated may have terminated or not."
        )
    return Roles(None if all_others else names(features), rewards, episode, terminated, truncated, excluded=excluded)


def _carry_out(data: list[str], roles: Roles, settings: Settings, out: Path, as_json: bool, quiet: bool) -> int:
    from lstd.cli.describe import model_json, model_text
    from lstd.cli.progress import make_reporter, reporting
    from lstd.persistence import save_model
    from lstd.tables.fitting import fit_tables

    advise("; no model was written")
    with reporting(make_reporter(quiet)) as reporter:
        model = fit_tables(data, roles, settings, on_progress=listener(reporter))
        save_model(model, out)
    return output(model_json(model, str(out)) if as_json else model_text(model, str(out), coefficients=False))
