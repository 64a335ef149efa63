"""Tasks on an existing Dask cluster: results as they finish, and what is wrong with a cluster told in words."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import pickle
import re
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import CancelledError
from importlib.util import find_spec
from typing import Any

import lstd
from lstd.distributed.tasks import AHEAD, Task
from lstd.errors import InvalidInputError, LSTDError, MissingExtraError

SECONDS_TO_CONNECT = 10
_SECONDS_TO_LOOK = 1.0  # between looks at a cluster from which nothing comes
# A worker without lstd could not read a task that names something of it: it would leave the cluster without a word.
_CALL = "(lambda function, arguments, more: function(*arguments, *more))(*__import__('pickle').loads(call), more)"
_VERSION = "__import__('lstd').__version__"  # evaluated where lstd may be missing or another one

Tell = Callable[[str], None]


@contextlib.contextmanager
def connected(address: str, name: str = "address") -> Iterator[Any]:
    """A client of the Dask scheduler at an address, as tcp://HOST:8786, closed at the end; errors call it `name`.

    Raises
    ------
    MissingExtraError
        When `distributed` is not installed.
    InvalidInputError
        When no scheduler answers there within 10 s.
    """
    if find_spec("distributed") is None:
        raise MissingExtraError(
            'A Dask cluster needs the package distributed. Install it with: pip install "lstd[dask]"'
        )
    client = _client(address, name)
    try:
        yield client
    finally:
        with contextlib.suppress(Exception):
            client.close(timeout=_SECONDS_TO_LOOK)


def _client(address: str, name: str) -> Any:
    distributed: Any = importlib.import_module("distributed")
    for logger in ("distributed", *filter(re.compile(r"distributed\.").match, logging.root.manager.loggerDict)):
        logging.getLogger(logger).setLevel(logging.CRITICAL)  # what is wrong is raised, and told once
    try:
        kind = asyncio.run(asyncio.wait_for(_kind(address), SECONDS_TO_CONNECT))
        reason = "" if kind == "Scheduler" else f"it is that of a {kind}"
    except TimeoutError:
        reason = f"nothing has answered there as a scheduler does for {SECONDS_TO_CONNECT} s"
    except Exception as error:  # parsing, resolving and connecting fail each in their own way
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
    if reason:
        raise InvalidInputError(
            f"`{name}` must be that of a Dask scheduler, as tcp://HOST:8786; got {address!r} ({reason})."
        )
    return distributed.Client(address, timeout=SECONDS_TO_CONNECT, set_as_default=False)


async def _kind(address: str) -> str:
    """What answers at an address; a client would wait for ever where something else than Dask listens."""
    distributed: Any = importlib.import_module("distributed")
    how = distributed.Security().get_connection_args("client")
    async with distributed.rpc(address, timeout=SECONDS_TO_CONNECT, connection_args=how) as there:
        identity = await there.identity()
    return str(identity["type"])


def check_versions(client: Any) -> None:
    """Check that the scheduler and all workers that are there have this version of lstd.

    Raises
    ------
    InvalidInputError
        If not; the message names the versions.
    """
    if getattr(client, "asynchronous", False):
        raise InvalidInputError("`client` must be a distributed.Client with asynchronous=False.")
    with as_lost(client):
        workers = client.run(eval, _VERSION, on_error="return")
        try:
            scheduler = client.run_on_scheduler(eval, _VERSION)
        except ImportError as error:
            scheduler = error
        except ValueError:  # it does not run what it is sent
            scheduler = lstd.__version__
    found = Counter(_version(answer) for answer in workers.values())
    wrong = [f"{count} of {found.total()} workers has {_named(version)}" for version, count in _others(found)]
    wrong += [f"the scheduler has {_named(version)}" for version, _ in _others(Counter([_version(scheduler)]))]
    if wrong:
        raise other_version("; ".join(wrong))


def other_version(found: str) -> InvalidInputError:
    """The error of workers that have another version of lstd than this process."""
    return InvalidInputError(
        f"Workers must have lstd {lstd.__version__}, as this process has, since results of several versions must not "
        f"be mixed; {found}. Install the same version everywhere."
    )


def _version(answer: Any) -> str | None:
    """None where lstd is missing; of a worker that died meanwhile, nothing is said."""
    if isinstance(answer, str):
        return answer
    return None if isinstance(answer, (ImportError, AttributeError)) else lstd.__version__


def _others(found: Counter[str | None]) -> list[tuple[str | None, int]]:
    return [(version, count) for version, count in found.items() if version != lstd.__version__]


def _named(version: str | None) -> str:
    return "none" if version is None else f"lstd {version}"


def on_cluster(
    function: Callable[..., Any], tasks: Iterable[Task], client: Any, tell: Tell
) -> Generator[tuple[Task, Any]]:
    """Each task with its finished future, once, in the order in which they finish; `tell` of a wait for workers.

    The scheduler does the tasks of a worker that dies elsewhere. Close the iterator: that cancels what is under way.

    Raises
    ------
    InvalidInputError
        When a worker that has joined has another version of lstd.
    LSTDError
        When the scheduler is lost.
    """
    source = iter(tasks)
    running: dict[Any, Task] = {}
    watch = Watch(client, tell)
    name = function.__name__.strip("_")
    try:
        while True:
            threads = watch.threads()
            while len(running) < AHEAD * max(1, threads) and (task := next(source, None)) is not None:
                running[submit(client, name, function, task)] = task
            if not running:
                return
            for future in watch.finished(running):
                yield running.pop(future), future
                future.release()
    finally:
        with contextlib.suppress(Exception):
            client.cancel(list(running))
        running.clear()


def submit(client: Any, name: str, function: Callable[..., Any], arguments: Task, *more: Any) -> Any:
    """The future of a call with these arguments and, behind them, `more`, among which futures may be.

    Of lstd, nothing but `arguments` may speak.

    Raises
    ------
    LSTDError
        When the scheduler is lost.
    """
    call = {"call": pickle.dumps((function, arguments)), "more": list(more)}
    with as_lost(client):
        return client.submit(eval, _CALL, call, key=f"{name}-{uuid.uuid4()}", pure=False)


class Watch:
    """A cluster that is looked at while it works: who is there, and whether all have this version of lstd."""

    def __init__(self, client: Any, tell: Tell) -> None:
        self._client, self._tell, self._told = client, tell, False
        self._checked: set[str] = set()

    def threads(self) -> int:
        """Number of threads of all workers, after a look at the versions of those that are new.

        Raises
        ------
        InvalidInputError
            When a worker, or the scheduler, has another version of lstd, or none.
        LSTDError
            When the scheduler is lost.
        """
        with as_lost(self._client):
            there = self._client.nthreads()
            if not self._checked or not there.keys() <= self._checked:
                check_versions(self._client)
                self._checked |= there.keys()
        return sum(there.values())

    def finished(self, running: Iterable[Any]) -> set[Any]:
        """Futures that are finished; none after a while in which none has been. Tells once of no workers."""
        with as_lost(self._client):
            done = _wait(running, self._client)
            there = bool(done or self._client.nthreads())
        if not there and not self._told:
            self._tell("The cluster has no workers; waiting for one.")
        self._told = not there
        return done

    def result(self, future: Any) -> Any:
        """What a future gives, once it is there; raises as its task does, and as `threads`."""
        while not self.finished([future]):
            self.threads()
        self.threads()  # who has come meanwhile, without lstd, may be why it failed
        if future.status == "error":
            return future.result()
        with as_lost(future.client):
            return future.result()


def outcome(future: Any) -> Any:
    """The result of a finished future, or the error that its task ended in.

    Raises
    ------
    LSTDError
        When the scheduler is lost.
    """
    from distributed import KilledWorker

    if future.status != "error":
        with as_lost(future.client):
            return future.result()
    error = future.exception()
    if isinstance(error, KilledWorker):
        return LSTDError("workers died again and again of it, as they often do of too little memory")
    return error


def _wait(running: Iterable[Any], client: Any) -> set[Any]:
    """Futures that are finished; none after a while in which none has been."""
    distributed: Any = importlib.import_module("distributed")
    try:
        with client.as_current():
            waited = distributed.wait(list(running), timeout=_SECONDS_TO_LOOK, return_when="FIRST_COMPLETED")
    except TimeoutError:
        return set()
    done: set[Any] = waited.done
    return done


@contextlib.contextmanager
def as_lost(client: Any) -> Iterator[None]:
    """An error of ours when the connection to the scheduler breaks, or is closed."""
    try:
        yield
    except LSTDError:
        raise
    except Exception as error:  # without a scheduler, a client raises what comes
        if not isinstance(error, (CancelledError, OSError)) and getattr(client, "status", "running") == "running":
            raise
        raise LSTDError("The connection to the Dask scheduler was lost, or tasks were cancelled there.") from error
