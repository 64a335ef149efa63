"""Progress on stderr."""

import logging
import warnings

import pytest

from lstd.cli import console
from lstd.errors import CompilationCacheWarning


@pytest.fixture
def clock(monkeypatch):
    """Seconds that a test sets."""
    now = {"s": 0.0}
    monkeypatch.setattr(console.time, "monotonic", lambda: now["s"])
    return now


def test_lines_come_at_most_every_few_seconds(clock, capsys):
    for wait, expected in ((0.0, ["0 %, 1 min 40", "50 %, 5"]), (2.0, ["21 %, 8", "71 %, 3"]), (20.0, [])):
        lines = console.Display(wait=wait)
        for step in range(100):
            clock["s"] = step / 10
            lines.show("working", step, 100.0)
        assert capsys.readouterr().err.splitlines() == [f"lstd: {line} s left: working" for line in expected]


@pytest.mark.parametrize("quiet", [False, True])
def test_log_records_and_warnings_become_notes(capsys, quiet):
    """Quiet still says that the cache cannot be used."""
    with console.reporting(quiet):
        logging.getLogger("lstd").warning("lstd: compiling its kernels")
        warnings.simplefilter("always")
        warnings.warn("no\ncache", CompilationCacheWarning, stacklevel=1)
        warnings.warn("odd", RuntimeWarning, stacklevel=1)
    notes = ["lstd: compiling its kernels", "lstd: no cache", "lstd: RuntimeWarning: odd"]
    assert capsys.readouterr().err.splitlines() == ([notes[1]] if quiet else notes)
