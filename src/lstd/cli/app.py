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
    """Make the command, once, since that takes milliseconds."""
    return typer.main.get_command(app)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    words = None if arguments is None else list(arguments)
    try:
        code = _command()(args=words, prog_name="lstd", standalone_mode=False)
    except KeyboardInterrupt:
        return fail(f"interrupted{advice()}.", INTERRUPTED)
    except LSTDError as error:
        return fail_with(error)
    except OSError as error:
        if error.filename is None:  # the help or the version could not be written
            return lost_output("the text", error)
        return fail_with(error)
    except Exception as error:
        # Usage errors are Click's, which some versions of Typer bundle and others import.
        if not hasattr(error, "format_message"):
            raise
        text = error.format_message()
        hint = ""
        if "'report'" in text:  # of `lstd report`
            hint = "`lstd fit --report` writes a report; "
        return fail(f"{text.rstrip('.')}; {hint}see `lstd --help`.", BAD_INPUT)
    return code if isinstance(code, int) else DONE
