"""The cache of compiled kernels: used when it can be, and never the end of a run."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

import lstd
from kernel_processes import finish, start
from lstd._kernels import dispatcher, inverse, online_step
from twins import compiled_only

# `padded` is the smallest kernel. Two signatures make two uses of the cache in one process.
SMALLEST = """
import json, sys, warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import lstd
    from lstd._kernels.alignment import padded
    results = [padded(argument) for argument in ARGUMENTS]
print(json.dumps({
    "results": results,
    "hits": sum(padded.stats.cache_hits.values()) if hasattr(padded, "stats") else 0,
    "misses": sum(padded.stats.cache_misses.values()) if hasattr(padded, "stats") else 0,
    "warnings": [str(w.message) for w in caught if w.category.__name__ == "CompilationCacheWarning"],
    "others": [str(w.message) for w in caught if w.category.__name__ != "CompilationCacheWarning"],
    "package": lstd.__file__,
}))
"""


@pytest.fixture(scope="module")
def run_smallest(run_code):
    def run(arguments="(9,)", before="", **variables):
        return sound(run_code(before + SMALLEST.replace("ARGUMENTS", arguments), **variables))

    return run


def start_smallest(before="", **variables):
    return start(before + SMALLEST.replace("ARGUMENTS", "(9,)"), **variables)


def sound(found):
    assert set(found["results"]) == {16}
    assert not found["others"]
    return found


def kernels(folder):
    """The compiled kernels in the folder, and nothing else in it."""
    files = sorted(folder.iterdir()) if folder.exists() else []
    assert all(file.suffix == ".kernel" for file in files)
    return files


@pytest.fixture(scope="module")
def filled(tmp_path_factory, run_smallest):
    """A cache with the smallest kernel in it, and what the process said that filled it."""
    folder = tmp_path_factory.mktemp("filled") / "new" / "cache"
    return folder, run_smallest(LSTD_CACHE_DIR=folder)


@pytest.fixture
def copied(filled, tmp_path):
    """A copy of that cache, to damage."""
    shutil.copytree(filled[0], tmp_path / "cache")
    return tmp_path / "cache"


# ---------------------------------------------------------------- a cache that works


def test_the_first_process_compiles_and_says_so_once(filled):
    folder, first = filled
    assert (first["hits"], first["misses"], first["warnings"]) == (0, 1, [])
    assert first["log"].count("compiling") == 1
    (file,) = kernels(folder)
    assert file.name.startswith("alignment.padded-")


def test_the_second_process_compiles_nothing(filled, run_smallest):
    folder, _ = filled
    times = [file.stat().st_mtime_ns for file in kernels(folder)]
    second = run_smallest(LSTD_CACHE_DIR=folder)
    assert (second["hits"], second["misses"], second["warnings"]) == (1, 0, [])
    assert second["log"] == ""
    assert [file.stat().st_mtime_ns for file in kernels(folder)] == times


WHOLE_SWEEP = """
import hashlib, json
from lstd.experiments import run_sweep
from lstd.experiments.protocol import ALGORITHMS, FEATURES, PROBLEMS
from lstd.mrp import BoyanChain
from lstd._kernels import chain
from lstd.experiments import sweep_dense, sweep_onehot, sweep_td
digest = hashlib.sha256()
pairs = {"lmbdas": [0.0, 0.7], "alphas": [0.01], "run_seeds": [1], "n_steps": 60}
for problem, features in [(p, f) for p in PROBLEMS for f in FEATURES] + [(BoyanChain(), "tabular")]:
    for errors in run_sweep(problem, features, list(ALGORITHMS), **pairs).values():
        digest.update(errors.tobytes())
used = [chain.walk, chain.deal, sweep_dense.lstd_dense, sweep_onehot.plan, sweep_onehot.lstd_onehot, sweep_td.td]
print(json.dumps({
    "digest": digest.hexdigest(),
    "signatures": [len(kernel.signatures) for kernel in used],
    "hits": [sum(kernel.stats.cache_hits.values()) for kernel in used],
    "misses": [sum(kernel.stats.cache_misses.values()) for kernel in used],
}))
"""


def test_a_second_sweep_compiles_nothing_and_gives_the_same_bits(tmp_path, run_code):
    """In the cache of all tests, where the first sweep compiles what no test has compiled yet: 20 s."""
    cache = dispatcher.folder() or tmp_path
    first, second = (run_code(WHOLE_SWEEP, LSTD_CACHE_DIR=cache) for _ in range(2))
    assert first["signatures"] == second["signatures"] == [1] * 6  # one set of types for all problems
    assert [hit + missed for hit, missed in zip(first["hits"], first["misses"], strict=True)] == [1] * 6
    assert (second["hits"], second["misses"], second["log"]) == ([1] * 6, [0] * 6, "")
    assert first["digest"] == second["digest"]


@compiled_only
def test_a_kernel_that_others_call_is_compiled_into_them_and_has_no_code_of_its_own():
    lstd.RecursiveLSTD(2)
    assert online_step.step.signatures
    assert not inverse.project.signatures


# ---------------------------------------------------------------- other names for other kernels


@pytest.fixture(scope="module")
def changed(tmp_path_factory):
    """Copy the package, and change a file of kernels that another one calls."""
    folder = tmp_path_factory.mktemp("changed")
    shutil.copytree(Path(lstd.__file__).parent, folder / "lstd", ignore=shutil.ignore_patterns("__pycache__"))
    with (folder / "lstd" / "_kernels" / "alignment.py").open("a") as source:
        source.write("# changed\n")
    return folder


INNER = """
import json
from pathlib import Path
from lstd._kernels.public_numba import digest_of
from lstd._kernels import alignment, blocked
from lstd.experiments import sweep_dense
print(json.dumps({m.__name__: digest_of(Path(m.__file__)) for m in (alignment, sweep_dense, blocked)}))
"""


def test_a_changed_source_concerns_the_kernels_that_call_it_and_no_others(changed, run_code, run_smallest, copied):
    found = run_smallest(PYTHONPATH=changed, LSTD_CACHE_DIR=copied)
    assert Path(found["package"]).parent == changed / "lstd"
    assert (found["hits"], found["misses"], found["warnings"]) == (0, 1, [])
    assert len(kernels(copied)) == 2
    before, after = (run_code(INNER, PYTHONPATH=path) for path in (Path(lstd.__file__).parents[1], changed))
    assert [name.rpartition(".")[2] for name in before if before[name] == after[name]] == ["blocked", "log"]


def test_another_processor_names_another_file(copied):
    found = sound(finish(start_smallest(LSTD_CACHE_DIR=copied, NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="")))
    assert (found["hits"], found["misses"], found["warnings"]) == (0, 1, [])
    assert len(kernels(copied)) == 2


BOTH = f"""
import os, sys
other = os.fork()
if not other:
    sys.stdout = open(os.environ["OTHER"], "w")
{SMALLEST.replace("ARGUMENTS", "(9,)")}
sys.stdout.flush()
if not other:
    os._exit(0)
assert os.waitpid(other, 0)[1] == 0
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that fork")
def test_two_processes_at_once_with_an_empty_cache(tmp_path, run_code):
    one = run_code(BOTH, LSTD_CACHE_DIR=tmp_path / "cache", OTHER=tmp_path / "other")
    for found in (one, json.loads((tmp_path / "other").read_text(encoding="utf-8"))):
        assert (found["results"], found["warnings"]) == ([16], [])
    assert len(kernels(tmp_path / "cache")) == 1


# ---------------------------------------------------------------- a cache that does not work


@pytest.mark.parametrize("damage", [lambda content: content[: len(content) // 2], lambda content: b"", lambda _: b"a"])
def test_a_damaged_file_is_replaced(copied, damage, run_smallest):
    (file,) = kernels(copied)
    file.write_bytes(damage(file.read_bytes()))
    found = run_smallest(LSTD_CACHE_DIR=copied)
    assert (found["hits"], found["misses"], len(found["warnings"])) == (0, 1, 1)
    assert run_smallest(LSTD_CACHE_DIR=copied)["hits"] == 1
    assert kernels(copied) == [file]


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs folders that cannot be written")
def test_a_folder_that_cannot_be_written(copied, run_smallest):
    """What is in it is read; what is not is compiled."""
    # root may write everywhere until the process gives up its capabilities; it still reads what is its own
    capset = "ctypes.CDLL(None).capset((ctypes.c_uint32 * 2)(0x20080522), (ctypes.c_uint32 * 6)())"
    before = f"import ctypes\nassert {capset} == 0\n" if os.geteuid() == 0 else ""
    copied.chmod(0o555)
    found = run_smallest("(9, 9.5)", before=before, LSTD_CACHE_DIR=copied)
    copied.chmod(0o700)
    assert (found["hits"], found["misses"], len(found["warnings"])) == (1, 1, 1)


def test_a_folder_that_cannot_be_made(tmp_path, run_smallest):
    (tmp_path / "file").write_text("not a folder")
    found = run_smallest("(9, 9.5)", LSTD_CACHE_DIR=tmp_path / "file" / "cache")
    assert found["misses"] == 2
    assert len(found["warnings"]) == 1, found["warnings"]  # for reading and writing, and for all kernels
    assert str(tmp_path / "file" / "cache") in found["warnings"][0]
    assert "LSTD_CACHE_DIR" in found["warnings"][0]
    assert (tmp_path / "file").read_text() == "not a folder"


FULL_DISK = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))  # bytes that a file may grow to
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs RLIMIT_FSIZE")
def test_a_full_disk(tmp_path, run_smallest):
    found = run_smallest("(9, 9.5)", before=FULL_DISK, LSTD_CACHE_DIR=tmp_path)
    assert found["misses"] == 2
    assert len(found["warnings"]) == 1, found["warnings"]
    assert "writing failed" in found["warnings"][0]
    assert list(tmp_path.iterdir()) == []


def test_without_the_compiler(tmp_path):
    found = sound(finish(start_smallest(LSTD_CACHE_DIR=tmp_path, NUMBA_DISABLE_JIT=1)))
    assert (found["warnings"], found["log"]) == ([], "")
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- where the cache is


def test_the_folder(monkeypatch, tmp_path):
    folder = dispatcher.folder.__wrapped__
    for chosen, expected in [(str(tmp_path), tmp_path), ("", None), ("~/.cache/lstd", None)]:
        monkeypatch.setenv("LSTD_CACHE_DIR", chosen)
        assert folder() == expected
    monkeypatch.delenv("LSTD_CACHE_DIR")
    assert folder().name in ("lstd", "Cache")
