"""A lock per kernel: one process compiles it, the others wait and load its file.

The lock is an empty file beside the kernel's. The system releases it when its process ends, however that happens. A
process that has waited too long, or whose system or file system has no such locks, compiles for itself from then on.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment,unused-ignore]

PATIENCE = 60.0  # seconds; the slowest kernel compiles in less than ten
PAUSE = 0.02
_held: dict[Path, int] = {}  # Numba's own lock keeps other threads out
_given_up: list[Path] = []


def acquire(kernel: Path) -> bool:
    """Wait until no other process compiles `kernel`; return whether this one now has the lock."""
    if fcntl is None or _given_up or kernel in _held:
        return False
    try:
        kernel.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(_lock_of(kernel), os.O_RDWR | os.O_CREAT, 0o666)
    except OSError:
        return False
    try:
        _wait(handle)
        _held[kernel] = handle
    except OSError:  # no locks there, or a process that holds one has stopped
        _given_up.append(kernel)
    finally:
        if kernel not in _held:
            os.close(handle)
    return kernel in _held


def release(kernel: Path) -> None:
    """Let the processes that wait for `kernel` go on; do nothing if this process does not have its lock."""
    handle = _held.pop(kernel, None)
    if handle is not None:
        with contextlib.suppress(OSError):
            _lock_of(kernel).unlink()
        os.close(handle)


def _lock_of(kernel: Path) -> Path:
    return kernel.with_suffix(".lock")


def _wait(handle: int) -> None:
    """Lock the open file; raise BlockingIOError after `PATIENCE` seconds."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                raise
        time.sleep(PAUSE)
