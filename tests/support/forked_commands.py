"""The command ``lstd`` in processes that get into trouble: killed or stopped before a step on files, or short of room.

A server imports all modules once, and each command runs in a process forked from it; those that nothing disturbs run
in one such process, one after another.
"""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import gc
import importlib
import io
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterable
from typing import Any, BinaryIO, NamedTuple, TextIO

import numpy as np

from forked_workers import asking

SECONDS = 300  # for a command to end or to stop; then it is killed
COMMAND_MODULES = (  # that commands load when they are first used; imported before the server forks
    "lstd.cli.app",
    "lstd.tables.sum_tables",
    "lstd.tables.predicting",
    "lstd.online",
    "lstd.estimators.model",
    "lstd.statistics.intervals",
    "lstd.experiments.reproduce.run",
    "lstd.report.model_page",
    "pyarrow.parquet",
    "pandas",
)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink")


class Done(NamedTuple):
    """How a command ended: `code` is its exit code, -9 when it was killed, None while it is stopped."""

    code: int | None
    out: str
    err: str
    steps: int  # on files in its folder
    process: int


class Commands:
    """Runs commands in forked processes; leaving it ends the server, which has imported `modules`."""

    def __init__(self, *modules: str) -> None:
        line = f"import sys; sys.path[:] = {sys.path!r}; import forked_commands; forked_commands.serve({modules!r})"
        environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
        command = asking() or [sys.executable, "-c", "import sys; exec(eval(sys.stdin.readline()))"]
        self._server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        assert self._server.stdin is not None
        self._server.stdin.write(f"{line!r}\n".encode())

    def __enter__(self) -> Commands:
        return self

    def __exit__(self, *error: object) -> None:
        self._server.communicate(timeout=SECONDS)

    def __call__(self, *words: object, **trouble: Any) -> Done:
        """Run a command in the working folder until it ends or stops.

        Parameters
        ----------
        words : of the command, or "module:function" and the arguments of a function that returns an exit code
        at, number : int, optional
            A signal that the process sends itself before that step on files, from 1; SIGKILL by default.
        after : float, optional
            Seconds after which the process is killed.
        room : int, optional
            Most bytes of a file.
        bound : bool, optional
            Permissions bind root too.
        """
        return self._ask({"words": [str(word) for word in words], "folder": os.getcwd(), **trouble})

    def undisturbed(self, *words: object) -> Done:
        """Run a command in the process of all that nothing disturbs; a fork for each would take more than its work."""
        return self._ask({"words": [str(word) for word in words], "folder": os.getcwd(), "undisturbed": True})

    def resume(self, stopped: Done) -> Done:
        """Let a command go on."""
        return self._ask({"process": stopped.process})

    def _ask(self, request: dict[str, Any]) -> Done:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(request).encode() + b"\n")
        self._server.stdin.flush()
        ready, _, _ = select.select([self._server.stdout], [], [], 2 * SECONDS)
        assert ready, f"no answer to {request}"
        return Done(**json.loads(self._server.stdout.readline()))


# In the server


def _load() -> None:
    """Do what takes time once: load compiled kernels, prepare to read words, look for BLAS, read templates."""
    from lstd import LSTD
    from lstd.cli.app import run
    from lstd.statistics.threads import one_blas_thread

    with contextlib.redirect_stderr(io.StringIO()):
        run(["inspect", ""])

    with one_blas_thread():
        X, y = np.tile(np.eye(2), (20, 1)), np.ones(40)
        ends = {"episode": np.arange(40) // 2, "terminated": np.arange(40) % 2 == 1}
        model = LSTD(0.9, 0.9).fit(X, y, **ends)
        if "lstd.report.model_page" in sys.modules:
            from lstd.report import write_fit_report

            _draw_quickly()
            with tempfile.TemporaryDirectory() as folder:
                write_fit_report(f"{folder}/page.html", model, X, y, **ends)
        if "lstd.online" in sys.modules:
            from lstd import RecursiveLSTD

            RecursiveLSTD(2, 0.9).partial_fit(np.tile(np.eye(2), (1000, 1)), np.ones(2000))  # enough for a block


def _draw_quickly() -> None:
    """Put fixed figures, of the same order of size, and no checks on a page: they take most of its time."""
    from matplotlib.figure import Figure

    from lstd.estimators.model_parts import Checks

    for module in ("lstd.estimators.bias_check", "lstd.report.figure_data"):
        importlib.import_module(module).__dict__["checks_for_report"] = lambda *_: Checks("not run", "not run")
    page: Any = importlib.import_module("lstd.report.model_page")
    for name in [name for name in vars(page) if name.startswith("draw_")]:
        setattr(page, name, lambda *_: Figure().add_subplot().bar([0.0], [1.0]))
    page.rendered = lambda figure: b"<svg/>" * 5000


def serve(modules: Iterable[str]) -> None:
    """Import modules; then run the commands in standard input until it is closed."""
    warnings.simplefilter("ignore")
    for module in modules:
        importlib.import_module(module)
    _load()
    gc.freeze()  # forked processes share the pages of what is loaded until they write there
    pipes: dict[int, list[int]] = {}
    runner: _Runner | None = None
    for line in sys.stdin:
        request = json.loads(line)
        if request.get("undisturbed"):
            runner = runner or _Runner()
            print(runner.answer(line), flush=True)
            continue
        process = request.get("process")
        if process is None:
            process, pipes[process] = _started(request)
        else:
            os.kill(process, signal.SIGCONT)
        status = _status(process, request.get("after"))
        if os.WIFSTOPPED(status):
            found = Done(None, "", "", 0, process)
        else:
            out, err, steps = map(_content, pipes.pop(process))
            found = Done(os.waitstatus_to_exitcode(status), out, err, int(steps or 0), process)
        print(json.dumps(found._asdict()), flush=True)


class _Runner:
    """A process forked from the server that carries out requests, one after another, until the server ends."""

    def __init__(self) -> None:
        requests = os.pipe()
        answers = os.pipe()
        if not os.fork():
            os.close(requests[1])
            try:
                with open(requests[0]) as asked, open(answers[1], "w") as answered:
                    _run_each(asked, answered)
            finally:
                os._exit(0)
        os.close(requests[0])
        os.close(answers[1])
        self._requests = os.fdopen(requests[1], "w")
        self._answers = os.fdopen(answers[0])

    def answer(self, request: str) -> str:
        """Return the line of a command that has ended."""
        self._requests.write(request)
        self._requests.flush()
        return self._answers.readline().rstrip("\n")


def _run_each(requests: Iterable[str], answers: TextIO) -> None:
    """Carry out the commands in `requests`, and write how they ended to `answers`."""
    steps = _Steps("", None, 0)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        for place, file in enumerate((out, err), start=1):
            os.dup2(file.fileno(), place)  # which moves in the file as `file` does
        for line in requests:
            request = json.loads(line)
            os.chdir(request["folder"])
            steps.restart(request["folder"])
            code = 70
            try:
                code = _carry_out(request)
            except BaseException:
                traceback.print_exc()
            sys.stdout.flush()
            done = Done(code, _taken(out), _taken(err), steps.count, os.getpid())
            print(json.dumps(done._asdict()), file=answers, flush=True)


def _taken(file: BinaryIO) -> str:
    """Return what a file holds, and empty it."""
    file.seek(0)
    content = file.read().decode()
    file.seek(0)
    file.truncate()
    return content


def _started(request: dict[str, Any]) -> tuple[int, list[int]]:
    """Process of a command, and where its output, errors and number of steps can be read when it has ended."""
    pipes = [os.pipe() for _ in range(3)]
    process = os.fork()
    if not process:
        code = 70
        try:
            for place, (_, end) in enumerate(pipes[:2]):
                os.dup2(end, place + 1)
            os.chdir(request["folder"])
            steps = _Steps(request["folder"], request.get("at"), request.get("number", signal.SIGKILL))
            code = _carry_out(request)
            os.write(pipes[2][1], str(steps.count).encode())
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.flush()
            os._exit(code)
    for _, end in pipes:
        os.close(end)
    return process, [end for end, _ in pipes]


def _status(process: int, after: float | None) -> int:
    """Wait until a process stops or ends; kill it after so many seconds."""
    end, pause = time.monotonic() + (SECONDS if after is None else after), 5e-4
    while (left := end - time.monotonic()) > 0:
        found, status = os.waitpid(process, os.WUNTRACED | os.WNOHANG)
        if found:
            return status
        time.sleep(min(pause, left))
        pause = min(1.5 * pause, 0.01)
    os.kill(process, signal.SIGKILL)
    return os.waitpid(process, 0)[1]


def _content(pipe: int) -> str:
    with open(pipe, encoding="utf-8") as file:
        return file.read()


def _carry_out(request: dict[str, Any]) -> int:
    words = request["words"]
    if request.get("bound"):
        _give_up_rights()
    if request.get("room") is not None:
        import resource  # not on Windows

        resource.setrlimit(resource.RLIMIT_FSIZE, (request["room"], resource.RLIM_INFINITY))
    module, colon, name = words[0].partition(":")
    if colon:
        return int(getattr(importlib.import_module(module), name)(*words[1:]))
    from lstd.cli import main

    return main(words)


def _give_up_rights() -> None:
    """Give up the rights by which root passes over permissions, CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH."""
    if sys.platform != "linux" or os.geteuid():
        return
    kernel = ctypes.CDLL(None, use_errno=True)
    header, rights = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert not kernel.capget(header, rights)
    rights[0] &= ~0b110
    assert not kernel.capset(header, rights)


class _Steps:
    """Counts what is done to files in a folder, and sends a signal before one of these steps."""

    def __init__(self, folder: str, at: int | None, number: int) -> None:
        self.count = 0
        self._folder, self._at, self._number = folder, at, number
        files: Any = importlib.import_module("lstd.files")
        files.open = self._open
        os.fsync = self._before(os.fsync)
        sys.addaudithook(self._heard)

    def restart(self, folder: str) -> None:
        """Count anew, in another folder."""
        self.count = 0
        self._folder = folder

    def step(self) -> None:
        self.count += 1
        if self.count == self._at:
            signal.raise_signal(self._number)  # in this thread: it comes before the step
            if self._number in (signal.SIGINT, signal.SIGTERM):  # another thread ends the process
                time.sleep(SECONDS)

    def _heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        changing = event in _CHANGES or (event == "open" and bool(arguments[2] & _WRITING))
        if changing and isinstance(arguments[0], (str, os.PathLike)) and self._is_within(arguments[0]):
            self.step()

    def _is_within(self, path: str | os.PathLike[str]) -> bool:
        return os.path.abspath(path).startswith(self._folder)

    def _before(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def stepping(*arguments: Any) -> Any:
            self.step()
            return function(*arguments)

        return stepping

    def _open(self, path: Any, mode: str = "r", *rest: Any) -> Any:
        """Files that are written without a buffer of Python's, so that a killed process leaves what it has written."""
        if mode not in ("xb", "wb", "ab"):
            return builtins.open(path, mode, *rest)
        file = _Written(path, mode)
        file.before = self.step
        return file


class _Written(io.FileIO):
    """A file with a step before each block that is written."""

    before: Callable[[], None]

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self.before()
        written = 0
        while written < len(view):
            written += super().write(view[written:])
        return written
