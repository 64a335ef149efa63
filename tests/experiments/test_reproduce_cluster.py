"""The experiments on workers of executors and Dask clusters: the same cells, byte for byte, whichever workers die."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

import lstd
from dask_commands import commands, free_port, local_client
from fake_experiments import Fakes
from fake_worker import install
from lstd.cli.app import run
from lstd.distributed import cluster
from lstd.errors import InvalidInputError, LSTDError
from lstd.experiments import workers
from lstd.experiments.folder import PROVENANCE
from lstd.experiments.plan import make_plan
from lstd.experiments.run import reproduce
from lstd.experiments.store import Cell
from lstd.experiments.workers import split

distributed = pytest.importorskip("distributed")

DRIVER = str(Path(__file__).parents[1] / "support" / "fake_experiments.py")
SECONDS = 90  # for what is waited for
PRELOAD = ("--preload", "fake_worker")
LARGE = make_plan("large", 12)  # its cells are divided in up to four parts
N_PARTS = sum(len(split(cell)) for cell in LARGE.cells)
REAL = make_plan("small", 3)
REAL = replace(REAL, cells=(*REAL.cells, Cell("large", "binary", "lstd", 1, 2)))


@pytest.fixture
def fakes(monkeypatch):
    """Quick stand-ins for sweep, timings, theory and report."""
    return installed(monkeypatch, Fakes())


@pytest.fixture
def stages(monkeypatch):
    """Quick stand-ins for all but the sweep."""
    from lstd.experiments import sweep

    fakes = Fakes()
    fakes.run_sweep = sweep.run_sweep
    return installed(monkeypatch, fakes)


def installed(monkeypatch, fakes):
    def set_module(name, module):
        package, _, attribute = name.rpartition(".")
        monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.setattr(sys.modules[package], attribute, module, raising=False)

    fakes.install(set_module)
    return fakes


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Cells of the stand-ins, computed here."""
    out = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patch:
        installed(patch, Fakes())
        assert reproduce(LARGE, out).failures == ()
    return contents(out)


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """Cells of the sweep itself, computed here."""
    out = tmp_path_factory.mktemp("real")
    with pytest.MonkeyPatch.context() as patch:
        from lstd.experiments import sweep

        fakes = Fakes()
        fakes.run_sweep = sweep.run_sweep
        installed(patch, fakes)
        assert reproduce(REAL, out).failures == ()
    return cells(out)


@pytest.fixture(scope="module")
def client():
    with local_client() as found:
        yield found


@pytest.fixture
def dask(tmp_path):
    """A scheduler, started as a command."""
    with commands(tmp_path) as started:
        yield started


@pytest.fixture
def calls(tmp_path):
    """Where the workers' stand-ins leave a file for each call."""
    (tmp_path / "calls").mkdir()
    return tmp_path / "calls"


def contents(folder):
    """What must not depend on where cells are computed."""
    files = [file for file in Path(folder).rglob("*") if file.is_file()]
    assert not [file for file in files if file.name.startswith(".")]
    varying = ("timings.json", PROVENANCE)
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in files if file.name not in varying}


def cells(folder):
    return {name: content for name, content in contents(folder).items() if name.startswith("cells/")}


def called(folder):
    """Names of the tasks that workers were at, as often as they were."""
    return sorted(file.name.partition(",")[0] for file in folder.iterdir())


def stored(folder):
    return list(Path(folder).glob("cells/*.npz"))


def until(condition):
    deadline = time.monotonic() + SECONDS
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert condition()


def processes(calls, workers=2, **options):
    return ProcessPoolExecutor(
        workers, mp_context=get_context("spawn"), initializer=partial(install, str(calls), **options)
    )


def start(out, address, *words):
    """The command in a process of its own, stand-ins in place."""
    words = ["reproduce", "large", "--runs", "12", "--out", str(out), "--dask", address, *words]
    return subprocess.Popen(
        [sys.executable, DRIVER, "0", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def n_tasks(address):
    with distributed.Client(address, timeout=SECONDS, set_as_default=False) as found:
        return found.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))


# ---------------------------------------------------------------- parts of cells


@pytest.mark.parametrize("plan", [make_plan("all", 50), make_plan("large", 101)])
def test_parts_are_the_runs_of_the_cell(plan):
    for cell in plan.cells:
        parts = split(cell)
        assert [seed for part in parts for seed in part.run_seeds] == list(cell.run_seeds)
        assert {replace(part, first=cell.first, last=cell.last) for part in parts} == {cell}
    assert [len(split(cell)) for cell in make_plan("small").cells] == 6 * [1]
    assert 5 <= len(split(Cell("large", "tabular", "lstd", 1, 50))) <= 50
    assert len(LARGE.cells) < N_PARTS


def test_cells_do_not_depend_on_the_threads_of_the_blas():
    from threadpoolctl import threadpool_limits

    found = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            arrays = workers.compute(REAL.cells[-1], REAL.configuration["grids"]["lstd"], 1, lambda done, total: None)
            found.append(arrays["boyan"].tobytes())
    assert found[0] == found[1]


# ---------------------------------------------------------------- the same cells


@pytest.mark.parametrize("where", ["threads", "processes", "dask"])
def test_cells_are_the_same_whatever_computes_them(tmp_path, stages, real, monkeypatch, where, request):
    monkeypatch.setattr(workers, "PART_SECONDS", 1e-3)  # divides every cell
    assert {len(split(cell)) for cell in REAL.cells} >= {2, 3}
    if where == "dask":
        outcome = reproduce(REAL, tmp_path, client=request.getfixturevalue("client"))
    else:
        pool = ThreadPoolExecutor if where == "threads" else partial(ProcessPoolExecutor, 2, get_context("spawn"))
        with pool() as executor:
            outcome = reproduce(REAL, tmp_path, executor=executor)
    assert (outcome.computed, outcome.failures) == (len(REAL.cells), ())
    assert cells(tmp_path) == real


def test_progress_and_provenance(tmp_path, fakes, undisturbed):
    events = []
    with ThreadPoolExecutor(3) as pool:
        outcome = reproduce(LARGE, tmp_path, executor=pool, n_jobs=1, on_event=events.append)
    assert (outcome.computed, outcome.reused, outcome.failures) == (6, 0, ())
    assert contents(tmp_path) == undisturbed
    assert {event.kind for event in events} == {"progress"}
    assert [event.done for event in events] == sorted(event.done for event in events)
    assert events[-1].done <= events[-1].total
    assert "6 of 6 cells done by workers" in [event.text for event in events]
    provenance = json.loads((tmp_path / PROVENANCE).read_text())
    assert list(provenance["wall_seconds"]) == ["sweep", "timings", "theory", "table", "report"]
    (session,) = provenance["sessions"]
    (machine,) = session["workers"].pop("machines")
    assert session["workers"] == {"processes": 1, "threads_per_task": 1}
    assert (machine["processes"], machine["lstd"], machine["packages"]["numpy"]) == (
        1,
        lstd.__version__,
        np.__version__,
    )


def test_what_is_stored_is_not_sent(tmp_path, fakes, undisturbed):
    with ThreadPoolExecutor(2) as pool:
        reproduce(LARGE, tmp_path, executor=pool)
        for file in stored(tmp_path)[:2]:
            file.unlink()
        fakes.calls.clear()
        outcome = reproduce(LARGE, tmp_path, executor=pool)
        assert (outcome.computed, outcome.reused) == (2, 4)
        assert len({call.rpartition(" ")[0] for call in fakes.calls if call.startswith("large")}) == 2
        fakes.calls.clear()
        assert reproduce(LARGE, tmp_path, executor=pool).computed == 0
        assert fakes.calls == []
    assert contents(tmp_path) == undisturbed


def test_a_part_that_fails_fails_its_cell_once(tmp_path, fakes, undisturbed):
    def fail(problem, features, algorithm, seeds):
        if (features, algorithm[0]) == ("tabular", "boyan") and seeds[0] > 1:
            raise OSError("no\nroom")

    fakes.on_cell = fail
    with ThreadPoolExecutor(2) as pool:
        outcome = reproduce(LARGE, tmp_path, executor=pool)
        assert outcome.failures == ("large tabular, three LSTD(λ), runs 1 to 12: OSError: no room",)
        assert outcome.computed == 5
        fakes.on_cell = None
        assert reproduce(LARGE, tmp_path, executor=pool).failures == ()
    assert cells(tmp_path) == {name: data for name, data in undisturbed.items() if name.startswith("cells/")}


def test_a_failure_on_a_cluster_is_that_of_the_cell(tmp_path, stages, client, real):
    bad = Cell("small", "normal", "lstd", -1, 2)
    outcome = reproduce(replace(REAL, cells=(bad, *REAL.cells)), tmp_path, client=client)
    assert len(outcome.failures) == 1
    assert outcome.failures[0].startswith("small normal, three LSTD(λ), runs -1 to 2: InvalidInputError: ")
    assert cells(tmp_path) == real


# ---------------------------------------------------------------- workers that die


def test_a_process_that_dies_is_replaced(tmp_path, fakes, calls, undisturbed):
    make = partial(processes, calls, deadly="large-tabular-boyan-004")
    outcome = reproduce(LARGE, tmp_path / "out", executor=make)
    assert (outcome.computed, outcome.failures) == (6, ())
    assert contents(tmp_path / "out") == undisturbed
    assert N_PARTS < len(called(calls)) <= N_PARTS + 4  # the pool dies as a whole


def test_an_executor_that_is_given_and_breaks_is_an_error(tmp_path, fakes, calls, undisturbed):
    out = tmp_path / "out"
    with (
        processes(calls, 1, deadly="large-normal") as pool,
        pytest.raises(LSTDError, match=r"the executor was given; .*large normal.*function makes is replaced"),
    ):
        reproduce(LARGE, out, executor=pool)
    assert len(stored(out)) == 4
    assert reproduce(LARGE, out, executor=ThreadPoolExecutor).reused == 4
    assert contents(out) == undisturbed


def test_a_part_that_kills_every_process_is_given_up(tmp_path, fakes, calls):
    make = partial(processes, calls, 1, deadly="large-normal", always=True)
    with pytest.raises(LSTDError, match="4 executors in a row broke"):
        reproduce(LARGE, tmp_path / "out", executor=make)
    assert len(stored(tmp_path / "out")) == 4


def test_a_closed_executor_is_an_error(tmp_path, fakes):
    with ThreadPoolExecutor(1) as pool:
        pass
    with pytest.raises(InvalidInputError, match="`executor` must take tasks"):
        reproduce(LARGE, tmp_path, executor=pool)


def test_a_worker_of_a_cluster_is_killed_in_the_middle(tmp_path, dask, calls, undisturbed):
    variables = {"FAKE_CALLS": str(calls), "FAKE_SECONDS": "0.2"}
    for _ in range(2):
        dask.add_worker(*PRELOAD, **variables)
    out = tmp_path / "out"
    command = start(out, dask.address)
    until(lambda: stored(out) or command.poll() is not None)
    dask.workers[0].send_signal(signal.SIGKILL)
    output, errors = command.communicate(timeout=SECONDS)
    assert command.returncode == 0, errors
    assert "6 cells done (6 computed, 0 found), 0 failures" in output
    assert contents(out) == undisturbed
    assert dask.workers[0].wait() == -signal.SIGKILL
    done = called(calls)
    assert len(set(done)) == N_PARTS
    assert len(done) <= N_PARTS + 2 + 2  # what it was at, and what it had not yet sent
    (session,) = json.loads((out / PROVENANCE).read_text())["sessions"]
    assert 1 <= session["workers"]["processes"] <= 2
    assert dask.address not in (out / PROVENANCE).read_text()


# ---------------------------------------------------------------- the command ends early


def test_the_command_is_killed_and_interrupted_and_resumes(tmp_path, dask, calls, undisturbed):
    dask.add_worker(*PRELOAD, FAKE_CALLS=str(calls), FAKE_SECONDS="0.3")
    out = tmp_path / "out"
    for number, code in ((signal.SIGKILL, -9), (signal.SIGTERM, 143), (signal.SIGINT, 130)):
        before = len(stored(out))
        command = start(out, dask.address, "--quiet")
        until(lambda before=before: len(stored(out)) > before)
        command.send_signal(number)
        _, errors = command.communicate(timeout=SECONDS)
        assert command.returncode == code
        if code > 0:
            assert errors.endswith("; what is finished is kept, and the same command resumes.\n")
            assert errors.count("\n") == 1
        until(lambda: n_tasks(dask.address) == 0)  # what was on its way is cancelled
        found = {file.name for file in stored(out)}
        n_called = len(called(calls))
    assert len(found) < 6
    command = start(out, dask.address)
    output, errors = command.communicate(timeout=SECONDS)
    assert command.returncode == 0, errors
    assert f"({6 - len(found)} computed, {len(found)} found)" in output
    assert contents(out) == undisturbed
    left = sum(len(split(cell)) for cell in LARGE.cells if Path(cell.filename).name not in found)
    assert len(called(calls)) == n_called + left


def test_a_scheduler_that_is_lost_ends_the_command(tmp_path, dask, calls):
    dask.add_worker(*PRELOAD, FAKE_CALLS=str(calls), FAKE_SECONDS="0.3")
    out = tmp_path / "out"
    command = start(out, dask.address, "--quiet")
    until(lambda: stored(out))
    dask.scheduler.kill()
    _, errors = command.communicate(timeout=SECONDS)
    assert command.returncode == 1
    assert errors == (
        "lstd: The connection to the Dask scheduler was lost, or tasks were cancelled there. What is finished is kept; "
        "the same command (without --force) resumes.\n"
    )


def test_a_cluster_without_workers_is_waited_for(tmp_path, dask, calls, undisturbed):
    out = tmp_path / "out"
    command = start(out, dask.address)
    lines = [command.stderr.readline() for _ in range(2)]
    assert "lstd: The cluster has no workers; waiting for one.\n" in lines
    dask.add_worker(*PRELOAD, FAKE_CALLS=str(calls))
    _, errors = command.communicate(timeout=SECONDS)
    assert command.returncode == 0, errors
    assert contents(out) == undisturbed


# ---------------------------------------------------------------- versions, addresses, arguments


def set_version(version):
    """On a worker, lstd of another version, or none."""
    if version is None:
        sys.modules["lstd"] = None
    else:
        sys.modules.pop("lstd")
        __import__("lstd").__version__ = version


@pytest.mark.parametrize("version", ["0.0.1", None])
def test_workers_of_another_version_are_refused(tmp_path, client, version):
    (one, *_) = client.scheduler_info()["workers"]
    client.run(set_version, version, workers=[one])
    named = "none" if version is None else r"lstd 0\.0\.1"
    try:
        with pytest.raises(
            InvalidInputError, match=f"must have lstd {lstd.__version__}, .*; 1 of 2 workers has {named}.*Install"
        ):
            reproduce(LARGE, tmp_path / "out", client=client, force=True)
    finally:
        client.run(set_version, lstd.__version__, workers=[one])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("version", "named"), [("0.0.1", "lstd 0.0.1"), ("none", "none")])
def test_workers_of_another_version_that_join_later_are_refused(tmp_path, dask, calls, version, named):
    out = tmp_path / "out"
    command = start(out, dask.address)
    assert any("no workers" in command.stderr.readline() for _ in range(2))
    dask.add_worker(*PRELOAD, FAKE_CALLS=str(calls), FAKE_VERSION=version)
    _, errors = command.communicate(timeout=SECONDS)
    assert command.returncode == 2
    assert f"must have lstd {lstd.__version__}, as this process has" in errors
    assert f" has {named}. Install the same version everywhere.\n" in errors
    assert "Traceback" not in errors
    assert stored(out) == []


def test_results_of_another_version_are_refused(tmp_path, fakes, monkeypatch):
    monkeypatch.setattr(workers, "_machine", lambda: {"lstd": "0.0.1"})
    with pytest.raises(InvalidInputError, match=r"one of them has lstd 0\.0\.1"):
        reproduce(LARGE, tmp_path, executor=ThreadPoolExecutor)
    assert stored(tmp_path) == []


@pytest.mark.parametrize("silent", [False, True])
def test_an_address_without_scheduler_is_bad_input(tmp_path, fakes, monkeypatch, capsys, silent):
    monkeypatch.setattr(cluster, "SECONDS_TO_CONNECT", 1)
    out = tmp_path / "out"
    reproduce(make_plan("small", 2), out)
    before = contents(out)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        if silent:
            listening.listen()
        address = f"tcp://127.0.0.1:{listening.getsockname()[1]}"
        began = time.monotonic()
        assert run(["reproduce", "small", "--runs", "2", "--out", str(out), "--force", "--dask", address]) == 2
    assert time.monotonic() - began < 20
    errors = capsys.readouterr().err
    assert errors.startswith(f"lstd: `--dask` must be that of a Dask scheduler, as tcp://HOST:8786; got '{address}' (")
    assert errors.count("\n") == 1
    assert contents(out) == before


def test_the_address_of_a_worker_is_bad_input(client):
    (worker, *_) = client.scheduler_info()["workers"]
    with pytest.raises(InvalidInputError, match="it is that of a Worker"), cluster.connected(worker):
        pass


def test_without_distributed_there_is_advice_and_a_dry_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("lstd.cli.reproduce.find_spec", lambda name: None if name == "distributed" else name)
    words = ["reproduce", "small", "--out", str(tmp_path / "out"), "--dask", f"tcp://127.0.0.1:{free_port()}"]
    assert run(words) == 2
    assert capsys.readouterr().err == (
        'lstd: `--dask` needs the package distributed; install it: pip install "lstd[cli,dask]"\n'
    )
    assert run([*words, "--dry-run"]) == 0
    assert "6 cells, 0 stored" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"executor": 3}, "`executor` must be"),
        ({"client": 3}, "`client` must be a distributed.Client"),
        ({"client": 3, "executor": ThreadPoolExecutor}, "`client` must not be given beside"),
        ({"executor": ThreadPoolExecutor, "n_jobs": 0}, "`n_jobs` must be at least 1"),
    ],
)
def test_arguments_are_checked(tmp_path, arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        reproduce(LARGE, tmp_path / "out", **arguments)
    assert not (tmp_path / "out").exists()
    assert os.listdir(tmp_path) == []
