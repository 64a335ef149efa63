"""Progress on stderr with the time left: a bar on a terminal, an occasional line elsewhere."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

from lstd.cli.console import say

QUIET = "No progress on stderr, and no warning but that the cache of compiled kernels cannot be used."
SECONDS_BETWEEN_LINES = 5.0
# Below this share of the work, the speed of this machine is not known better than the estimates are.
_SHARE_TO_JUDGE = 0.05


class Progress(Protocol):
    """A step of progress: what is being done, and work done and in all, in estimated seconds."""

    @property
    def text(self) -> str: ...
    @property
    def done(self) -> float: ...
    @property
    def total(self) -> float: ...


class Step(NamedTuple):
    """A step of progress."""

    text: str
    done: float
    total: float


class Reporter(Protocol):
    """Shows progress to the user."""

    def show(self, event: Progress) -> None:
        """Show a step of progress."""

    def note(self, text: str) -> None:
        """Show a line that stays."""

    def fail(self, text: str) -> None:
        """Show a failure that does not stop the rest."""

    def close(self) -> None:
        """End the display."""


class TimeLeft:
    """Estimates the time left. The clock starts when the first work is done, that is, after compilation."""

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


class Silent:
    """Shows failures only, and that the cache of compiled kernels cannot be used."""

    def show(self, event: Progress) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """Nothing."""

    def fail(self, text: str) -> None:
        say(f"lstd: {text}")

    def close(self) -> None:
        """Nothing."""


class Lines:
    """A line at most every few seconds, for log files and pipes."""

    def __init__(self) -> None:
        self._left = TimeLeft()
        self._last = float("-inf")

    def show(self, event: Progress) -> None:
        left = self._left(event.done, event.total)
        now = time.monotonic()
        if now - self._last >= SECONDS_BETWEEN_LINES:
            self._last = now
            say(f"lstd: {_percent(event)}, {left}: {event.text}")

    def note(self, text: str) -> None:
        say(f"lstd: {text}")

    fail = note

    def close(self) -> None:
        """Nothing is left open."""


class Bar:
    """A bar on a terminal, drawn by Rich."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bars

        columns = [
            BarColumn(bar_width=30),
            *map(TextColumn, ("{task.fields[percent]}", "{task.description}")),
        ]
        self._progress = Bars(*columns, console=Console(stderr=True), transient=True)
        self._task = self._progress.add_task("", total=None, percent="")
        self._left = TimeLeft()
        self._progress.start()

    def show(self, event: Progress) -> None:
        percent = f"{_percent(event)}, {self._left(event.done, event.total)}:"
        self._progress.update(
            self._task, completed=event.done, total=event.total, percent=percent, description=event.text
        )

    def note(self, text: str) -> None:
        self._progress.console.print(f"lstd: {text}", markup=False, highlight=False, soft_wrap=True)

    fail = note

    def close(self) -> None:
        self._progress.stop()


def _percent(event: Progress) -> str:
    return f"{int(100 * event.done / event.total) if event.total else 0:d} %"


def make_reporter(quiet: bool) -> Reporter:
    """The reporter for this process's stderr."""
    if quiet:
        return Silent()
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
        from lstd.errors import CompilationCacheWarning, LSTDWarning

        kind = "" if issubclass(category, LSTDWarning) else f"{category.__name__}: "
        # Shown in spite of --quiet: it is why every start takes so long.
        tell = reporter.fail if issubclass(category, CompilationCacheWarning) else reporter.note
        tell(kind + " ".join(str(message).split()))

    return show
