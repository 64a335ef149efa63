"""The command ``lstd``.

In come arguments, tables and files of models; out come files, a summary on stdout and an exit code.
Each command imports the slow packages that it needs.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the command ``lstd``.

    Parameters
    ----------
    arguments : sequence of str, optional
        The words after ``lstd``; those of the process by default.

    Returns
    -------
    int
        Exit code, one of those in `lstd.cli.console`.
    """
    from lstd.cli.console import BAD_INPUT, INSTALL, exit_on_signals

    exit_on_signals()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            with contextlib.suppress(OSError):
                stream.reconfigure(errors="backslashreplace")
    out = sys.stdout
    if isinstance(getattr(out, "buffer", None), io.RawIOBase):  # PYTHONUNBUFFERED: short writes would pass unnoticed
        sys.stdout = open(out.fileno(), "w", encoding=out.encoding, errors=out.errors, closefd=False)  # noqa: SIM115
    try:
        from lstd.cli.app import run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("lstd", ""):
            raise
        print(f"lstd: the command needs the package {error.name}; install it: {INSTALL}", file=sys.stderr)
        return BAD_INPUT
    try:
        return run(arguments)
    finally:  # a reader that has gone away would else fail the interpreter, which flushes both at its end
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper) and not stream.closed:
                try:
                    stream.flush()
                except OSError:
                    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
