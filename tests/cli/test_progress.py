"""Progress on stderr."""

from __future__ import annotations

import logging
import warnings

from lstd.cli import progress
from lstd.errors import CompilationCacheWarning


def test_time_left_starts_from_the_estimate_and_follows_the_clock(monkeypatch):
    now = iter([0.0, 100.0, 104.0, 1000.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(now))
    left = progress.TimeLeft()
    assert left(0.0, 130.0) == "2 min 10 s left"
    assert left(1.0, 130.0) == "2 min 9 s left"  # the clock starts here, after compilation
    assert left(2.0, 130.0) == "2 min 8 s left"  # too early to judge
    assert left(101.0, 130.0) == "4 min 21 s left"  # 9 times slower than estimated


def test_lines_come_at_most_every_few_seconds(monkeypatch, capsys):
    now = {"s": 0.0}
    monkeypatch.setattr(progress.time, "monotonic", lambda: now["s"])
    lines = progress.Lines()
    for step in range(100):
        now["s"] = step / 10
        lines.show("working", step, 100.0)
    shown = capsys.readouterr().err.splitlines()
    assert shown == ["lstd: 0 %, 1 min 40 s left: working", "lstd: 50 %, 5 s left: working"]


def test_log_records_and_warnings_become_notes(capsys):
    with progress.reporting(progress.Lines()):
        logging.getLogger("lstd").warning("lstd: compiling its kernels")
        warnings.simplefilter("always")
        warnings.warn("no\ncache", CompilationCacheWarning, stacklevel=1)
        warnings.warn("odd", RuntimeWarning, stacklevel=1)
    assert capsys.readouterr().err == "lstd: compiling its kernels\nlstd: no cache\nlstd: RuntimeWarning: odd\n"


def test_quiet_still_says_that_the_cache_cannot_be_used(capsys):
    with progress.reporting(progress.make_reporter(quiet=True)):
        logging.getLogger("lstd").warning("lstd: compiling its kernels")
        warnings.simplefilter("always")
        warnings.warn("no cache", CompilationCacheWarning, stacklevel=1)
        warnings.warn("odd", RuntimeWarning, stacklevel=1)
    assert capsys.readouterr().err == "lstd: no cache\n"
