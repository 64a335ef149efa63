"""The commands of ``lstd``, and the errors of all of them as one line and an exit code."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any

import typer

from lstd.cli.commands import fit, inspect, predict, reproduce, score, steps
from lstd.cli.console import BAD_INPUT, DONE, INTERRUPTED, advice, fail, fail_with, lost_output
from lstd.errors import LSTDError
from lstd.version import __version__

# Plain help: rich help would triple the time that it takes.
app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
for command in (steps, fit, predict, score, inspect, reproduce):
    app.command()(command)


@app.callback(invoke_without_command=True)
def top(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    """Least-squares temporal-difference prediction, for tables of episodes; the experiments of Osogami (AAAI-20)."""
    if version:
        typer.echo(f"lstd {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit


@cache
def _command() -> Any:
    return typer.main.get_command(app)  # which takes milliseconds


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    try:
        code = _command()(args=None if arguments is None else list(arguments), prog_name="lstd", standalone_mode=False)
    except KeyboardInterrupt:
        return fail(f"interrupted{advice()}.", INTERRUPTED)
    except LSTDError as error:
        return fail_with(error)
    except OSError as error:  # without the name of a file, writing the help or the version failed
        return lost_output("the text", error) if error.filename is None else fail_with(error)
    except Exception as error:
        # Usage errors are Click's, which some versions of Typer bundle and others import.
        if not hasattr(error, "format_message"):
            raise
        hint = "`lstd fit --report` writes a report; " if "'report'" in (text := error.format_message()) else ""
        return fail(f"{text.rstrip('.')}; {hint}see `lstd --help`.", BAD_INPUT)
    return code if isinstance(code, int) else DONE
