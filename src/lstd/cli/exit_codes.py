"""The exit codes of ``lstd``, one per outcome."""

from __future__ import annotations

from lstd.errors import ConfigurationMismatchError, InvalidInputError

DONE = 0
FAILED = 1  # a step failed, or output could not be written
BAD_INPUT = 2  # bad usage, options or data
OTHER_CONFIGURATION = 3  # the results folder holds another configuration
SIGNALLED = 128  # plus the number of the signal: 130 for SIGINT, 143 for SIGTERM
INTERRUPTED = 130


def exit_code(error: Exception) -> int:
    """Return the exit code for an error."""
    if isinstance(error, ConfigurationMismatchError):
        return OTHER_CONFIGURATION
    return BAD_INPUT if isinstance(error, InvalidInputError) else FAILED
