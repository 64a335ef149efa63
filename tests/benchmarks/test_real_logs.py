"""Tables of real logs: losses first, and as the results that are stored say."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def real_logs(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    before = set(sys.modules)
    import real_logs

    yield real_logs
    for name in set(sys.modules) - before:
        if (ROOT / "benchmarks").as_posix() in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def row(log, ours, theirs):
    return {"log": log, "measure": "m", "way": "w", "size": 5, "lstd": ours, "theirs": theirs}


def test_losses_come_first_with_the_median_of_ratios(real_logs):
    lines = list(real_logs.by_log([row("better", [1.0], [2.0]), row("worse", [1.0, 2.0, 9.0], [1.0, 1.0, 3.0])]))
    assert lines[2:] == [
        "| worse | m | w | 5 | 2 | 1 | 2.00 (1.00 to 3.00) |",
        "| better | m | w | 5 | 1 | 2 | 0.50 |",
    ]


def test_the_page_has_the_newest_results(real_logs):
    page = real_logs.PAGE.read_text(encoding="utf-8")
    for kind in real_logs.KINDS:
        assert "\n".join(real_logs.table(real_logs.newest(f"real-{kind}"))) in page
