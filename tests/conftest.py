"""How the suite is spread over processes, how long each of its folders takes, and fixtures of several folders."""

import gc
import os
import re
import sys
from collections import Counter
from functools import cache
from itertools import chain
from pathlib import Path

import pytest

# Pytest would rewrite the assertions of Hypothesis, since it has a plugin: a second in each process without bytecode.
finders = sys.meta_path
sys.meta_path = [finder for finder in finders if type(finder).__module__ != "_pytest.assertion.rewrite"]
try:
    import hypothesis
    from hypothesis import HealthCheck, settings

    hypothesis.__doc__ = f"{hypothesis.__doc__}\nPYTEST_DONT_REWRITE"  # or processes that fork from this one warn
finally:
    sys.meta_path = finders

if "PYTEST_XDIST_WORKER" in os.environ:  # processes that share the cores: threads of a BLAS would wait for one another
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(variable, "1")

# Examples do not change from run to run, and a machine that is slow or busy fails no test.
settings.register_profile(
    "lstd", derandomize=True, deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("lstd")

ROOT = Path(__file__).parent
MOST_PROCESSES = 8
TOGETHER = (  # share what takes seconds to start
    r"faults/test_(memory|disk|kill)\.py",
    r"distributed/test_distributed|laws/test_runners",
)
SLOW = (  # files that start first, the longest at the beginning, so that none is waited for
    "test_compilation.py",  # compiles what sweeps in other files then load
    "test_njit.py",
    "test_pages.py", "test_memory.py", "test_disk.py", "test_kill.py", "test_distributed_faults.py",
    "test_distributed_collections.py", "test_distributed.py", "test_examples.py", "test_report.py",
    "test_model_page.py", "test_runners.py", "test_sklearn.py", "test_sparse_solver.py",
    "test_fuzz_tables.py", "test_sweep.py", "test_cli_intervals.py", "test_cli_model.py", "test_misfit_check.py",
    "test_benchmarks.py", "test_units.py", "test_sources.py", "test_evaluate_policy.py", "test_docstrings.py",
    "test_doubts.py", "test_horizon.py", "test_sums.py", "test_selection.py", "test_stream_changes.py",
    "test_cli_output.py", "test_groups_of_chunks.py", "test_saving.py", "test_reproduce.py", "test_prepared.py",
    "test_cli.py", "test_forgetting.py", "test_layout.py",
)  # fmt: skip


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """Number of processes of ``-n auto``: one for each core. With more, they lose what caches hold."""
    import joblib

    return min(joblib.cpu_count(), MOST_PROCESSES)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Run the tests of a file in one process, since they share fixtures; files start in the order of collection.

    Files that share a cluster, or a server of commands, are as one file.
    """
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid):
            file = nodeid.partition("::")[0]
            return next((together for together in TOGETHER if re.search(together, file)), file)

    config.option.loadscopereorder = False
    return Scheduling(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config, specs):
    """Fork the processes from one that has imported all tests: importing takes 8 s, 15 s in a new environment."""
    from forked_workers import start

    start(config, specs)


def pytest_sessionstart():
    gc.disable()  # what is imported and collected stays until the end


def pytest_collection_finish():
    if "lstd.ope" in sys.modules:
        import trees_fitted_once

        trees_fitted_once.install()
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: SLOW.index(item.path.name) if item.path.name in SLOW else len(SLOW))


def pytest_terminal_summary(terminalreporter):
    """Print the seconds that the tests of each folder took, summed over processes."""
    seconds, counts = Counter(), Counter()
    folder_of = cache(lambda file: (terminalreporter.config.rootpath / file).relative_to(ROOT).parts[0])
    for report in chain.from_iterable(terminalreporter.stats.values()):
        if isinstance(report, pytest.TestReport):
            folder = folder_of(report.location[0])  # some files, of thousands of reports
            seconds[folder] += report.duration
            counts[folder] += report.when == "call"
    if seconds:
        terminalreporter.section("seconds by folder")
    for folder, total in seconds.most_common():
        terminalreporter.line(f"{total:8.1f} s  {counts[folder]:5} tests  {folder}")


@pytest.fixture
def fakes(monkeypatch):
    """Quick stand-ins for sweep, timings, theory and report of `lstd reproduce`."""
    from fake_experiments import Fakes

    def set_module(name, module):
        package, _, attribute = name.rpartition(".")
        monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.setattr(sys.modules[package], attribute, module, raising=False)

    fakes = Fakes()
    fakes.install(set_module)
    return fakes


@pytest.fixture
def no_pictures(monkeypatch):
    """Pages of fits without the figures as pictures, which take most of their time."""
    monkeypatch.setattr("lstd.report.model_page.rendered", lambda figure: b"<svg/>")


@pytest.fixture
def few_pairs(monkeypatch):
    """The first, a middle and the last of the default trace decays and ridge coefficients."""
    from lstd.estimators import choose_settings

    monkeypatch.setattr(choose_settings, "LMBDAS", choose_settings.LMBDAS[[0, 9, 19]])
    alphas_for = choose_settings.alphas_for
    monkeypatch.setattr(choose_settings, "alphas_for", lambda *numbers: alphas_for(*numbers)[::4])
