"""Kernels that `numba.njit` compiles, where the dispatcher on Numba's inner classes cannot: the same numbers."""

import os
import re
import shutil
from pathlib import Path

import pytest
from test_compilation import SMALLEST

import lstd
import njit_tests
from lstd._kernels import alignment, public_numba

# The smallest kernel, and two that call other ones and are compiled for given types, by name.
SOME_KERNELS = """
import json
{before}
from lstd._kernels import alignment, return_window
from lstd.online.forgetting import CompletedReturns
padded = alignment.padded(9)
window = CompletedReturns(horizon=2)
errors = [window.add([v], [1.0], 0.5)[:, 0].tolist() for v in (1.0, 2.0, 4.0)]
refused = []
for kernel in (alignment.padded, return_window.push):
    try:
        kernel("text")
    except Exception as error:
        refused.append(type(error).__name__)
kernels = alignment.padded, return_window.push
print(json.dumps({{
    "padded": padded,
    "errors": [*errors, window.close()[:, 0].tolist()],
    "kinds": [type(kernel).__name__ for kernel in kernels],
    "hits": sum(sum(kernel.stats.cache_hits.values()) for kernel in kernels),
    "refused": refused,
}}))
"""
FAIL = """
import sys
import numba
def fail(*arguments, **words):
    raise AttributeError("gone")
"""
FAIL_LATER = f"{FAIL}\nfrom lstd._kernels import dispatcher\n"
BREAKAGES = {
    "a module is gone": f"{FAIL}\nsys.modules['numba.misc.appdirs'] = None",
    "the class takes other arguments": f"{FAIL_LATER}\ndispatcher.Kernel.__init__ = fail",
    "kernels do not compile": f"{FAIL_LATER}\ndispatcher._NoAlias.define_pipelines = fail",
    "kernels that others call do not compile": f"{FAIL_LATER}\ndispatcher.compile_extra = fail",
    "calls are typed in another way": f"{FAIL_LATER}\ndispatcher.make_concrete_template = fail",
    "the cache is called in another way": f"{FAIL_LATER}\ndispatcher.rtsys = None",
}


@pytest.fixture(scope="module")
def run(run_code):
    """A function that returns what some kernels give in a process of their own."""

    def run(before="", **variables):
        return run_code(SOME_KERNELS.format(before=before), **variables)

    return run


def check(found):
    assert found["padded"] == 16
    assert found["errors"] == [[], [], [-1.5], [0.5, 3.0]]
    assert found["refused"] == ["TypingError", "TypeError"]


@pytest.fixture(scope="module")
def asked(tmp_path_factory, run):
    """A folder with what `numba.njit` compiles when it is asked to, and what that process found."""
    folder = tmp_path_factory.mktemp("njit") / "cache"
    return folder, run(LSTD_CACHE_DIR=folder, LSTD_KERNELS="njit")


def test_asked_for_it_compiles_all_kernels_and_caches_them(asked, run):
    folder, first = asked
    check(first)
    assert (first["log"], first["hits"]) == ("", 0)
    assert set(first["kinds"]) == {"CPUDispatcher"}
    second = run(LSTD_CACHE_DIR=folder, LSTD_KERNELS="njit")
    assert second == first | {"hits": 2}


@pytest.mark.parametrize("breakage", BREAKAGES)
def test_it_compiles_where_the_dispatcher_cannot(asked, tmp_path, run, breakage):
    """Kernels are those that are in its cache, and one line says why."""
    shutil.copytree(asked[0], tmp_path / "cache")
    found = run(BREAKAGES[breakage], LSTD_CACHE_DIR=tmp_path / "cache")
    check(found)
    assert found["log"].count("so numba.njit compiles its kernels") == 1
    assert found["log"].count("\n") == 1 + ("lstd: compiling" in found["log"])


def test_arguments_of_another_type_are_no_reason(tmp_path, run):
    found = run(LSTD_CACHE_DIR=tmp_path)
    check(found)
    assert found["log"] == "lstd: compiling its kernels, some seconds at first use\n"
    assert set(found["kinds"]) == {"Kernel"}


# ---------------------------------------------------------------- the cache of Numba


def cached(folder):
    return sorted(path.name for path in folder.rglob("*.nb?"))


def test_the_name_of_a_kernel_in_the_cache_has_the_digest_of_its_sources(asked):
    digest = public_numba.digest_of(Path(alignment.__file__))
    assert any(name.startswith(f"alignment.padded_{digest[:12]}-") for name in cached(asked[0]))


@pytest.fixture
def package(tmp_path):
    """A copy of the package, without anything compiled."""
    ignored = shutil.ignore_patterns("__pycache__")
    return shutil.copytree(Path(lstd.__file__).parent, tmp_path / "package" / "lstd", ignore=ignored).parent


@pytest.fixture
def smallest(run_code):
    """A function that returns what the smallest kernel gives in a process of its own."""

    def run(before="", **variables):
        return run_code(before + SMALLEST.replace("ARGUMENTS", "(9,)"), LSTD_KERNELS="njit", **variables)

    return run


def test_an_empty_name_of_the_folder_turns_the_cache_off(package, smallest):
    found = smallest(PYTHONPATH=package, LSTD_CACHE_DIR="")
    assert (found["results"], found["hits"], found["misses"]) == ([16], 0, 1)
    assert cached(package) == []


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs folders that cannot be written")
def test_without_a_folder_that_can_be_written_nothing_is_cached(package, smallest):
    # root may write everywhere until the process gives up its capabilities
    capset = "ctypes.CDLL(None).capset((ctypes.c_uint32 * 2)(0x20080522), (ctypes.c_uint32 * 6)())"
    before = f"import ctypes\nassert {capset} == 0\n" if os.geteuid() == 0 else ""
    folders = [path for path in (package, *package.rglob("*")) if path.is_dir()]
    for path in folders:
        path.chmod(0o555)
    home = dict.fromkeys(("HOME", "XDG_CACHE_HOME"), package)
    found = smallest(before, PYTHONPATH=package, LSTD_CACHE_DIR=package / "cache", **home)
    for path in folders:
        path.chmod(0o755)
    assert (found["results"], found["hits"], found["misses"]) == ([16], 0, 1)
    assert cached(package) == []


# ---------------------------------------------------------------- all numbers


def test_numerical_tests_pass_with_kernels_of_njit():
    if shutil.which("bash") is None:
        pytest.skip("needs bash")
    code, output = njit_tests.result()
    assert code == 0, output
    assert re.search(r"\b[1-9]\d\d passed", output), output
