"""Exit codes, what is written to the two standard streams, progress, and the immediate exit on SIGINT and SIGTERM.

No error of a stream ends in a traceback. Python runs signal handlers in the main thread between two of its own
instructions, thus not while a kernel is being compiled, and an exception raised there would wait for the threads of a
sweep. Here a thread of its own is woken by the signal, says in one line how to resume, and ends the process. Nothing is
lost: every file is whole at every moment, under a temporary name or its own.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from lstd.errors import (
    CompilationCacheWarning,
    ConfigurationMismatchError,
    InvalidInputError,
    LSTDError,
    LSTDWarning,
    OutputError,
)

# Exit codes, one per outcome
DONE = 0
FAILED = 1  # a step failed, or output could not be written
BAD_INPUT = 2  # bad usage, options or data
OTHER_CONFIGURATION = 3  # the results folder holds another configuration
SIGNALLED = 128  # plus the number of the signal: 130 for SIGINT, 143 for SIGTERM
INTERRUPTED = 130

INSTALL = 'pip install "lstd[cli]"'
_ARGUMENT = re.compile(r'`([a-z_]+)(?:=(?:True|(False)|"([a-z]+)"))?`')
_SIGNALS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]|\r(?!\n)")  # all but tabs and line ends
_SECONDS_TO_WRITE = 0.3
_advice = ""
_sender: socket.socket | None = None


def say(text: str) -> None:
    """Write a line to stderr, if there is anyone to read it."""
    with contextlib.suppress(OSError, ValueError):  # ValueError: stderr is closed
        print(without_controls(text), file=sys.stderr, flush=True)


def without_controls(text: str) -> str:
    """Return text with the characters that control a terminal escaped, as names of columns may hold them."""
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def in_the_shell(message: str) -> str:
    """Return a message of the package in one line, with arguments of Python named as options."""
    return _ARGUMENT.sub(_as_option, " ".join(message.split()))


def _as_option(argument: re.Match[str]) -> str:
    """Return an argument of Python as the option that sets it, or as it is."""
    from lstd.cli.options import OPTIONS, option_name

    name = argument[1]
    value = argument[3]
    if argument[2]:  # False
        name = f"no_{name}"
    if name not in OPTIONS or OPTIONS[name].place:
        return argument[0]
    return f"`{option_name(name)} {value}`" if value else f"`{option_name(name)}`"


def fail(message: str, code: int) -> int:
    """Write an error in one line to stderr; returns the exit code."""
    say(f"lstd: {in_the_shell(message)}")
    return code


def fail_with(error: LSTDError | OSError, advice: str = "") -> int:
    """Write an error in one line to stderr, with advice if output failed; returns the exit code that goes with it."""
    if not isinstance(error, LSTDError):
        error = OutputError(f"{error.filename}: {error.strerror or error}.")
    if isinstance(error, ConfigurationMismatchError):
        return fail(str(error), OTHER_CONFIGURATION)
    if isinstance(error, InvalidInputError):
        return fail(str(error), BAD_INPUT)
    return fail(f"{error} {advice}", FAILED)


def output(content: str | Mapping[str, Any]) -> int:
    """Write text, or a document as JSON, to stdout; returns the exit code.

    Bytes of file names that are not valid text are escaped. A reader that has gone away (``lstd reproduce | head``) is
    not an error.
    """
    if sys.stdout is None:
        return closed_output("the summary")
    if not isinstance(content, str):
        from lstd.files import json_bytes

        content = json_bytes(content).decode().rstrip("\n")
    try:
        print(without_controls(content).encode("utf-8", "backslashreplace").decode(), flush=True)
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


# ------------------------------------------------------------ signals


def advise(text: str) -> None:
    """Set the rest of the line after "interrupted", for example how to resume."""
    global _advice
    _advice = text


def advice() -> str:
    """Return the rest of the line after "interrupted"; may be empty."""
    return _advice


def exit_on_signals() -> None:
    """End the process with exit code 130 on SIGINT and 143 on SIGTERM, from now on.

    A signal that is ignored, as in a background job, stays so.
    """
    global _sender
    if _sender is not None or threading.current_thread() is not threading.main_thread():
        return
    receiver, _sender = socket.socketpair()
    _sender.setblocking(False)
    signal.set_wakeup_fd(_sender.fileno(), warn_on_full_buffer=False)
    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: None)  # only signals with a handler wake the thread
    threading.Thread(target=_wait, args=(receiver,), name="signals", daemon=True).start()


def _wait(receiver: socket.socket) -> None:
    """End the process when a byte comes, which is the number of a signal."""
    while received := receiver.recv(1):
        if received[0] in _SIGNALS:
            _end(signal.Signals(received[0]))


def _end(number: signal.Signals) -> None:
    """Say how to go on, remove unfinished files, and end the process."""
    line = f"lstd: {_SIGNALS[number]}{_advice}.\n"
    with contextlib.suppress(Exception):
        if sys.stderr.isatty():
            line = f"\r\x1b[2K\x1b[?25h{line}"  # clear the progress bar, show the cursor
    # A reader that has stopped reading must not keep the process.
    writer = threading.Thread(target=_write, args=(line.encode(),), daemon=True)
    writer.start()
    writer.join(_SECONDS_TO_WRITE)
    with contextlib.suppress(OSError):  # nothing follows: errors of work that loses its files now are of no use
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    files = sys.modules.get("lstd.files")
    if files is not None:
        files.remove_unfinished()
    os._exit(SIGNALLED + number)


def _write(line: bytes) -> None:
    """Write to stderr past Python's buffers, which the main thread may hold."""
    with contextlib.suppress(OSError):
        os.write(2, line)


# ------------------------------------------------------------ progress


_SECONDS_BETWEEN_LINES = 5.0
_SHORT = 2.0  # seconds of reading that show no progress
# Below this share of the work, the speed of this machine is not known better than the estimates are.
_SHARE_TO_JUDGE = 0.05
_BYTES_PER_SECOND = 5e7  # until the speed of this machine is known


class Display:
    """Lines on stderr: a bar on a terminal, elsewhere a line at most every few seconds; if quiet, failures only."""

    def __init__(self, quiet: bool = False, bar: bool = False, wait: float = 0.0) -> None:
        self._quiet = quiet
        self._wait = wait  # seconds before the first line
        self._due = float("-inf")  # when the next line may be shown
        self._since: tuple[float, float] | None = None  # the clock starts with the first work, after compilation
        self._bar: Any = None
        if bar and not quiet:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            self._bar = Progress(
                BarColumn(bar_width=30),
                TextColumn("{task.description}", markup=False),
                console=Console(stderr=True),
                transient=True,
            )
            self._task = self._bar.add_task("", total=None)

    def show(self, text: str, done: float, total: float) -> None:
        """Show what is being done, and the work done and in all, in estimated seconds."""
        now = time.monotonic()
        if self._since is None or done < self._since[1]:  # something else is being done
            self._since = (now, done) if done > 0 else None
        began, before = self._since or (now, done)
        speed = 1.0  # seconds for an estimated second
        if done - before > _SHARE_TO_JUDGE * total:
            speed = (now - began) / (done - before)
        seconds = max(1, round((total - done) * speed))
        left = f"{seconds} s left"
        if seconds >= 60:
            left = f"{seconds // 60} min {seconds % 60} s left"
        percent = 0
        if total:
            percent = int(100 * done / total)
        line = f"{percent} %, {left}: {text}"
        if self._wait and done > 0:
            self._due = now + self._wait
            self._wait = 0.0
        if self._wait or now < self._due:
            return
        if self._bar is not None:
            with contextlib.suppress(OSError, ValueError):  # a closed stderr is no failure of the work
                self._bar.start()
                self._bar.update(self._task, completed=done, total=total, description=line)
        else:
            self._due = now + _SECONDS_BETWEEN_LINES
            self.note(line)

    def note(self, text: str) -> None:
        """Show a line that stays, unless --quiet is given."""
        if not self._quiet:
            self.fail(text)

    def fail(self, text: str) -> None:
        """Show a line that stays even with --quiet."""
        if self._bar is None:
            say(f"lstd: {text}")
        else:
            self._bar.console.print(f"lstd: {text}", markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """End the display; nothing is shown later on."""
        self._wait = 0.0
        self._due = float("inf")
        if self._bar is not None:
            self._bar.stop()


@contextlib.contextmanager
def reporting(quiet: bool, *, bar: bool = True, wait: float = 0.0) -> Iterator[Display]:
    """Show the package's log records and all warnings as notes, on the display that suits stderr."""
    display = Display(quiet, bar and sys.stderr is not None and sys.stderr.isatty(), wait)
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: display.note(record.getMessage().removeprefix("lstd: "))  # type: ignore[method-assign]
    logger = logging.getLogger("lstd")
    logger.addHandler(handler)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, category, *_: _warned(display, str(message), category)
            yield display
    finally:
        logger.removeHandler(handler)
        with contextlib.suppress(OSError, ValueError):
            display.close()


def _warned(display: Display, message: str, category: type[Warning]) -> None:
    """Show a warning as a note, with its category if that is not of this package."""
    text = in_the_shell(message)
    if not issubclass(category, LSTDWarning):
        text = f"{category.__name__}: {text}"
    if issubclass(category, CompilationCacheWarning):  # in spite of --quiet: it is why every start takes so long
        display.fail(text)
    else:
        display.note(text)


@contextlib.contextmanager
def reading(quiet: bool) -> Iterator[Callable[[str, float, float], None]]:
    """Show the progress of reading that is not short, which is reported in bytes, and warnings."""
    with reporting(quiet, wait=_SHORT) as display:
        yield lambda text, done, total: display.show(text, done / _BYTES_PER_SECOND, total / _BYTES_PER_SECOND)
