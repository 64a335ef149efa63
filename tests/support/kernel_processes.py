"""Processes that run code with kernels: each started anew, or forked from a server that has imported Numba."""

import json
import os
import subprocess
import sys

# Has imported Numba, and compiled something with it, and runs each line of code in a process forked from itself.
SERVER = """
import json, os, sys, traceback
import numba, numba.core.compiler, numba.core.serialize
numba.njit(lambda n: (n + 1) // 2 * 2)(1)
for line in sys.stdin:
    code, variables, output, log = json.loads(line)
    process = os.fork()
    if not process:
        for stream, path in ((1, output), (2, log)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), stream)
        os.environ |= variables
        sys.path[:0] = filter(None, [variables.get("PYTHONPATH")])
        status = 1
        try:
            exec(code, {"__name__": "__main__"})
            status = 0
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        os._exit(status)
    print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
"""


def environment(**variables):
    """The variables of a process that says itself where its cache is."""
    own = {name: value for name, value in os.environ.items() if name not in ("LSTD_CACHE_DIR", "NUMBA_DISABLE_JIT")}
    return own | {name: str(value) for name, value in variables.items()}


def start(code, **variables):
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([sys.executable, "-c", code], env=environment(**variables), text=True, **streams)


def finish(process):
    """What the process printed, as a dict, and all it logged."""
    output, log = process.communicate(timeout=300)
    return checked(process.returncode, output, log)


def checked(status, output, log):
    assert status == 0, log
    assert "Traceback" not in log
    return {**json.loads(output), "log": log}
