"""The server of commands that get into trouble: what they need is imported once for all files."""

import pytest

from few_trees import few_trees, real_trees
from forked_commands import COMMAND_MODULES, Commands

__all__ = ["command", "few_trees", "real_trees"]


@pytest.fixture(scope="session")
def command():
    tests = "test_kill", "test_disk", "test_memory"
    with Commands(*tests, *COMMAND_MODULES, "lstd.tables.scoring", "lstd.estimators.lstd_cv") as commands:
        yield commands
