"""Progress on stderr with the time left: a bar on a terminal, an occasional line elsewhere."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
import warnings
from collections.abc import Iterator
from typing import Any

from lstd.cli.console import in_the_shell, say
from lstd.errors import CompilationCacheWarning, LSTDWarning

QUIET = "Hide progress and warnings, except those of the cache of kernels."
SECONDS_BETWEEN_LINES = 5.0
# Below this share of the work, the speed of this machine is not known better than the estimates are.
_SHARE_TO_JUDGE = 0.05


class TimeLeft:
    """Estimate the time left from work done and in all; the clock starts with the first work, after compilation."""

    def __init__(self) -> None:
        self._since: tuple[float, float] | None = None

    def __call__(self, done: float, total: float) -> str:
        now = time.monotonic()
        if self._since is None or done < self._since[1]:  # something else is being done
            self._since = (now, done) if done > 0 else None
            return _words(total - done)
        worked = done - self._since[1]
        slowness = (now - self._since[0]) / worked if worked > _SHARE_TO_JUDGE * total else 1.0
        return _words((total - done) * slowness)


def _words(seconds: float) -> str:
    whole = max(1, round(seconds))
    return f"{whole // 60} min {whole % 60} s left" if whole >= 60 else f"{whole} s left"


class Reporter:
    """Show nothing but failures: the base of all displays, and the display of --quiet."""

    def show(self, text: str, done: float, total: float) -> None:
        """Show what is being done, and the work done and in all, in estimated seconds."""

    def note(self, text: str) -> None:
        """Show a line that stays."""

    def fail(self, text: str) -> None:
        """Show a line that stays even with --quiet."""
        say(f"lstd: {text}")

    def close(self) -> None:
        """End the display."""


class Lines(Reporter):
    """A line at most every few seconds, for log files and pipes."""

    def __init__(self) -> None:
        self._left = TimeLeft()
        self._last = float("-inf")

    def show(self, text: str, done: float, total: float) -> None:
        left = self._left(done, total)
        now = time.monotonic()
        if now - self._last >= SECONDS_BETWEEN_LINES:
            self._last = now
            self.note(f"{_percent(done, total)}, {left}: {text}")

    def note(self, text: str) -> None:
        self.fail(text)


class Bar(Reporter):
    """A bar on a terminal, drawn by Rich."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        columns = (BarColumn(bar_width=30), TextColumn("{task.fields[state]}"), TextColumn("{task.description}"))
        self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._progress.add_task("", total=None, state="")
        self._left = TimeLeft()
        self._progress.start()

    def show(self, text: str, done: float, total: float) -> None:
        state = f"{_percent(done, total)}, {self._left(done, total)}:"
        with contextlib.suppress(OSError, ValueError):  # a closed stderr is no failure of the work that is reported
            self._progress.update(self._task, completed=done, total=total, state=state, description=text)

    def note(self, text: str) -> None:
        self._progress.console.print(f"lstd: {text}", markup=False, highlight=False, soft_wrap=True)

    def fail(self, text: str) -> None:
        self.note(text)

    def close(self) -> None:
        self._progress.stop()


def _percent(done: float, total: float) -> str:
    return f"{int(100 * done / total) if total else 0:d} %"


def make_reporter(quiet: bool) -> Reporter:
    """Return the display that suits stderr."""
    if quiet:
        return Reporter()
    if sys.stderr is not None and sys.stderr.isatty():
        with contextlib.suppress(ImportError):
            return Bar()
    return Lines()


@contextlib.contextmanager
def reporting(reporter: Reporter) -> Iterator[Reporter]:
    """Show the package's log records and all warnings as notes, and close the display at the end."""
    handler = _Notes(reporter)
    logger = logging.getLogger("lstd")
    logger.addHandler(handler)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _as_note(reporter)
            yield reporter
    finally:
        logger.removeHandler(handler)
        with contextlib.suppress(OSError, ValueError):
            reporter.close()


class _Notes(logging.Handler):
    def __init__(self, reporter: Reporter) -> None:
        super().__init__(logging.WARNING)
        self._reporter = reporter

    def emit(self, record: logging.LogRecord) -> None:
        self._reporter.note(record.getMessage().removeprefix("lstd: "))


def _as_note(reporter: Reporter) -> Any:
    def show(message: Warning | str, category: type[Warning], *rest: Any) -> None:
        kind = "" if issubclass(category, LSTDWarning) else f"{category.__name__}: "
        # Shown in spite of --quiet: it is why every start takes so long.
        note = reporter.fail if issubclass(category, CompilationCacheWarning) else reporter.note
        note(kind + in_the_shell(str(message)))

    return show
