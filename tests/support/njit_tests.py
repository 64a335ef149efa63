"""Numerical tests with kernels that `numba.njit` compiles, in a process of their own.

It takes 5 s once its kernels are compiled, so that a run of the whole suite starts it before tests are collected, when
a core has nothing to do. As a program it runs the tests.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
EARLY = "LSTD_TESTS_NJIT"  # the variable that names the folder of a process that was started early
LONGEST = 600  # seconds


def start_early(config, folder):
    """Start the tests if pytest is to run them, with output and exit code in files; return how to end them."""
    if not {"tests", "_kernels", "test_njit.py"} & {Path(argument).name for argument in config.args}:
        return lambda: None
    os.environ[EARLY] = folder
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    line = 'cd "$0"; "$1" "$2" > output 2>&1; echo $? > code; mv code ended'
    process = subprocess.Popen(["bash", "-c", line, folder, sys.executable, __file__], env=environment, process_group=0)

    def end():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait()

    return end


def result():
    """Return exit code and output of the tests, which run now unless they were started early."""
    if EARLY not in os.environ:
        environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
        done = subprocess.run([sys.executable, __file__], env=environment, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr
    folder = Path(os.environ[EARLY])
    end = time.monotonic() + LONGEST
    while not (folder / "ended").exists() and time.monotonic() < end:
        time.sleep(0.1)
    return int((folder / "ended").read_text()), (folder / "output").read_text()


def main():
    """Run the tests of kernels in the cache of all tests, so that the next run compiles nothing."""
    lines = ". .ci/numerical_tests && printf '%s\\n' ${njit[@]}"
    listed = subprocess.run(["bash", "-c", lines], cwd=ROOT, check=True, capture_output=True, text=True).stdout

    os.environ.pop("NUMBA_DISABLE_JIT", None)
    os.environ["LSTD_KERNELS"] = "njit"
    from lstd._kernels import dispatcher

    with tempfile.TemporaryDirectory() as folder:
        os.environ["LSTD_CACHE_DIR"] = str(dispatcher.folder() or folder)
        os.chdir(ROOT)
        import pytest

        return pytest.main(["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", *listed.split()])


if __name__ == "__main__":
    sys.exit(main())
