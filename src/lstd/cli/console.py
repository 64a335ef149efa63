"""Exit codes, and writing to the two standard streams without ever ending in a traceback."""

from __future__ import annotations

import contextlib
import os
import re
import sys

from lstd.errors import ConfigurationMismatchError, InvalidInputError, LSTDError, OutputError

# Exit codes, one per outcome
DONE = 0
FAILED = 1  # a step failed, or output could not be written
BAD_INPUT = 2  # bad usage, options or data
OTHER_CONFIGURATION = 3  # the results folder holds another configuration
SIGNALLED = 128  # plus the number of the signal: 130 for SIGINT, 143 for SIGTERM
INTERRUPTED = 130

INSTALL = 'pip install "lstd[cli]"'
_OPTIONS = (
    "gamma|lmbda|alpha|variant|forgetting|unpenalised|features|reward|next_features|episode|terminated|truncated|groups|"
    "discount|importance_ratio|trace_coefficient|weight|time|sort|independent|memory|unobserved|tolerance|out"
)
_ARGUMENT = re.compile(rf'`({_OPTIONS})(?:=(?:True|"([a-z]+)"))?`')


def say(text: str) -> None:
    """Write a line to stderr, if there is anyone to read it."""
    with contextlib.suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)


def in_the_shell(message: str) -> str:
    """Return a message of the package in one line, with arguments of Python named as options."""
    return _ARGUMENT.sub(_as_option, " ".join(message.split()))


def _as_option(argument: re.Match[str]) -> str:
    name, value = argument[1].replace("_", "-"), argument[2]
    return f"`--{name} {value}`" if value else f"`--{name}`"


def exit_code(error: Exception) -> int:
    """Return the exit code for an error."""
    if isinstance(error, ConfigurationMismatchError):
        return OTHER_CONFIGURATION
    return BAD_INPUT if isinstance(error, InvalidInputError) else FAILED


def fail(message: str, code: int) -> int:
    """Write an error in one line to stderr; returns the exit code."""
    say(f"lstd: {in_the_shell(message)}")
    return code


def fail_with(error: LSTDError | OSError, advice: str = "") -> int:
    """Write an error in one line to stderr, with advice if output failed; returns the exit code that goes with it."""
    code = exit_code(error)
    if not isinstance(error, LSTDError):
        error = OutputError(f"{error.filename}: {error.strerror or error}.")
    return fail(f"{error} {advice if code == FAILED else ''}", code)


def output(text: str) -> int:
    """Write data to stdout; returns the exit code.

    A reader that has gone away (``lstd reproduce | head``) is not an error.
    """
    if sys.stdout is None:
        return closed_output("the summary")
    try:
        print(text, flush=True)
    except OSError as error:
        return lost_output("the summary", error)
    return DONE


def closed_output(what: str) -> int:
    """Say that stdout was closed before the start; returns the exit code."""
    return fail(f"{what} could not be written to standard output: it is closed.", FAILED)


def lost_output(what: str, error: OSError) -> int:
    """Give up on stdout after an error; returns the exit code, DONE when the reader has gone away."""
    # What is left in the buffer would fail once more when the interpreter shuts down.
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        return DONE
    return fail(f"{what} could not be written to standard output: {error.strerror or error}.", FAILED)
