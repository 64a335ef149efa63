"""Progress on stderr with the time left: a bar on a terminal, drawn by Rich, an occasional line elsewhere."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from lstd.cli.console import in_the_shell, say
from lstd.errors import CompilationCacheWarning, LSTDWarning

SECONDS_BETWEEN_LINES = 5.0
_SHORT = 2.0  # seconds of reading that show no progress
# Below this share of the work, the speed of this machine is not known better than the estimates are.
_SHARE_TO_JUDGE = 0.05
_BYTES_PER_SECOND = 5e7  # until the speed of this machine is known


class Display:
    """Lines on stderr: a bar on a terminal, elsewhere a line at most every few seconds; if quiet, failures only."""

    def __init__(self, quiet: bool = False, bar: bool = False, wait: float = 0.0) -> None:
        self._quiet, self._wait, self._due = quiet, wait, float("-inf")  # seconds before the first line; when the next
        self._since: tuple[float, float] | None = None  # the clock starts with the first work, after compilation
        self._bar: Any = None
        if bar and not quiet:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            columns = BarColumn(bar_width=30), TextColumn("{task.description}", markup=False)
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task("", total=None)

    def show(self, text: str, done: float, total: float) -> None:
        """Show what is being done, and the work done and in all, in estimated seconds."""
        now = time.monotonic()
        if self._since is None or done < self._since[1]:  # something else is being done
            self._since = (now, done) if done > 0 else None
        began, before = self._since or (now, done)
        known = done - before > _SHARE_TO_JUDGE * total
        seconds = max(1, round((total - done) * ((now - began) / (done - before) if known else 1.0)))
        left = f"{seconds // 60} min {seconds % 60} s left" if seconds >= 60 else f"{seconds} s left"
        line = f"{int(100 * done / total) if total else 0} %, {left}: {text}"
        if self._wait:
            self._wait, self._due = 0.0, now + self._wait
        if now < self._due:
            return
        if self._bar is not None:
            with contextlib.suppress(OSError, ValueError):  # a closed stderr is no failure of the work
                self._bar.start()
                self._bar.update(self._task, completed=done, total=total, description=line)
        else:
            self._due = now + SECONDS_BETWEEN_LINES
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
        """End the display."""
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
    kind = "" if issubclass(category, LSTDWarning) else f"{category.__name__}: "
    # That of the cache is shown in spite of --quiet: it is why every start takes so long.
    note = display.fail if issubclass(category, CompilationCacheWarning) else display.note
    note(kind + in_the_shell(message))


@contextlib.contextmanager
def reading(quiet: bool) -> Iterator[Callable[[str, float, float], None]]:
    """Show the progress of reading that is not short, which is reported in bytes, and warnings."""
    with reporting(quiet, wait=_SHORT) as display:
        yield lambda text, done, total: display.show(text, done / _BYTES_PER_SECOND, total / _BYTES_PER_SECOND)
