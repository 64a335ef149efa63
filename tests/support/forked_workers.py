"""Processes of pytest-xdist forked from one that has collected the tests: all that is imported is imported once.

As a program it stands in for Python where pytest-xdist or a test starts a process: it asks the server for a fork that
reads and writes in its place, and waits until that ends. The fork runs the code in its first line of input.
"""

import os
import re
import signal
import socket
import sys
import types
from pathlib import Path

ADDRESS = "LSTD_TESTS_SERVER"  # the variable that names the server's socket

# Tests wait longest for these kernels, each process for itself; they are compiled while the tests are collected.
COMPILES = """
import numpy as np
from lstd import LSTD, TD, RecursiveLSTD
from scipy import sparse
model, rows, rewards = RecursiveLSTD(2), np.tile(np.eye(2), (9, 1)), np.ones(18)
LSTD().fit(rows, rewards)
model.update(rows[0], 1.0, rows[1])
model.partial_fit(rows, rewards)
LSTD().fit(sparse.csr_array(rows), rewards)
model.update(([0], [1.0]), 1.0, ([1], [1.0]))
TD(2).partial_fit(rows, rewards)
"""


def start(config, specs):
    """Start the server, and let pytest-xdist start `specs` from it; where that cannot be, change nothing."""
    if not sys.platform.startswith("linux") or config.pluginmanager.hasplugin("_cov") or len(specs) < 2:
        return
    if os.environ.get("OPENBLAS_NUM_THREADS", "1") != "1":  # a process of one thread forks safely
        return
    import shlex
    import subprocess
    import tempfile

    import njit_tests

    folder = tempfile.TemporaryDirectory()
    config.add_cleanup(folder.cleanup)
    config.add_cleanup(njit_tests.start_early(config, folder.name))  # first, or the server does not know of it
    os.environ[ADDRESS] = f"{folder.name}/socket"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(os.environ[ADDRESS])
    listener.listen()
    options = ["-c", str(config.inipath)] if config.inipath else []
    command = [sys.executable, __file__, f"--serve={listener.fileno()}", *options, *config.args]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[listener.fileno()])
    listener.close()
    config.add_cleanup(lambda: server.communicate(timeout=60))
    if not _are_compiled():
        compiler = subprocess.Popen([sys.executable, "-c", COMPILES], stderr=subprocess.DEVNULL)
        config.add_cleanup(lambda: (compiler.kill(), compiler.wait()))
    for spec in specs:
        if spec.popen and not spec.python:
            spec.python = shlex.join(asking())


def _are_compiled():
    """Whether the last kernel of `COMPILES` is in the cache, and newer than all sources of kernels."""
    usual = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "lstd"
    kernels = Path(os.environ.get("LSTD_CACHE_DIR", usual)).glob("td_update.stream-*.kernel")
    sources = Path(__file__).parents[2].glob("src/lstd/_kernels/*.py")
    newest = max((source.stat().st_mtime for source in sources), default=float("inf"))  # the latter without sources
    return any(kernel.stat().st_mtime > newest for kernel in kernels)


def asking():
    """Return the command of a process forked from the server; None where there is no server."""
    address = os.environ.get(ADDRESS)
    return [sys.executable, "-S", "-I", __file__, f"--ask={address}"] if address else None


def _serve(listener, arguments):
    """Collect the tests that pytest finds by `arguments`; then fork until standard input is closed."""
    import atexit
    import contextlib
    import gc
    import select
    import warnings

    atexit.register(_end_at_once, os.getpid())  # first, so that it is called last
    import pytest

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ |= {"PYTEST_XDIST_WORKER": "server"}
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        gc.disable()
        pytest.main([*arguments, "--collect-only", "-qq", "-n0", "-p", "no:cacheprovider"])
        gc.freeze()  # forked processes share the pages of what is imported until they write there
        gc.enable()
    names = [Path(f"/proc/self/task/{thread}/comm").read_text() for thread in os.listdir("/proc/self/task")]
    if any(re.match(r"polars-\d", name) for name in names):
        sys.exit(
            "A test computes with Polars while it is collected. Its threads do not survive the fork: tests would hang."
        )
    while listener in select.select([listener, sys.stdin], [], [])[0]:
        connection, _ = listener.accept()
        _, streams, _, _ = socket.recv_fds(connection, 1, 3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # allocators of Arrow and Polars have threads, which mind forks
            process = os.fork()
        if not process:
            listener.close()
            for place, stream in enumerate(streams):
                os.dup2(stream, place)
                os.close(stream)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            _run_line()
        for stream in streams:
            os.close(stream)
        connection.close()
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _end_at_once(server):
    """End a process forked from the server without freeing its memory object by object, which takes it a second."""
    if os.getppid() == server:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _run_line():
    """Do what pytest-xdist lets each of its processes do, as ``python -c`` does it."""
    sys.argv = ["-c"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    exec(eval(sys.stdin.readline()), vars(sys.modules["__main__"]))
    sys.exit()


def _ask(address):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        socket.send_fds(connection, [b" "], [0, 1, 2])
        connection.recv(1)  # nothing, when the process has ended


if __name__ == "__main__":
    role, _, where = sys.argv[1].partition("=")
    if role == "--ask":
        _ask(where)
    elif role == "--serve":
        _serve(socket.socket(fileno=int(where)), sys.argv[2:])
