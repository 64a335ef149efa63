"""How the suite is spread over processes, and how long each of its folders takes."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parent


def folder_of(path):
    """Folder of a test file below `tests`, or the file itself if it lies in none."""
    return Path(path).resolve().relative_to(ROOT).parts[0]


def pytest_terminal_summary(terminalreporter):
    """Print the seconds that the tests of each folder took, summed over processes."""
    seconds, counts = Counter(), Counter()
    for report in chain.from_iterable(terminalreporter.stats.values()):
        if isinstance(report, pytest.TestReport):
            folder = folder_of(terminalreporter.config.rootpath / report.location[0])
            seconds[folder] += report.duration
            counts[folder] += report.when == "call"
    if not seconds:
        return
    terminalreporter.section("seconds by folder")
    for folder, total in seconds.most_common():
        terminalreporter.line(f"{total:8.1f} s  {counts[folder]:5} tests  {folder}")
