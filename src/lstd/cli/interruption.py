"""Immediate exit on SIGINT (Ctrl-C) and SIGTERM.

Python runs signal handlers in the main thread between two of its own instructions, thus not while a kernel
is being compiled, and an exception raised there would wait for the threads of a sweep. Here a thread of its
own is woken by the signal, says in one line how to resume, and ends the process. Nothing is lost: every file
is whole at every moment, under a temporary name or its own.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
from types import FrameType

from lstd.cli.console import SIGNALLED

_SIGNALS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
_SECONDS_TO_WRITE = 0.3
_advice = ""
_sender: socket.socket | None = None


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
            signal.signal(number, _leave_it_to_the_thread)
    threading.Thread(target=_wait, args=(receiver,), name="signals", daemon=True).start()


def advise(text: str) -> None:
    """Set the rest of the line after "interrupted", for example how to resume."""
    global _advice
    _advice = text


def advice() -> str:
    """Return the rest of the line after "interrupted"; may be empty."""
    return _advice


def _leave_it_to_the_thread(number: int, frame: FrameType | None) -> None:
    """Do nothing: only signals with a handler wake the thread."""


def _wait(receiver: socket.socket) -> None:
    while received := receiver.recv(1):
        if received[0] in _SIGNALS:
            _end(signal.Signals(received[0]))


def _end(number: signal.Signals) -> None:
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
    with contextlib.suppress(OSError):
        os.write(2, line)
