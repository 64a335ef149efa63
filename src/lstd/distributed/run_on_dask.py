"""Sums on a Dask cluster: calls, results, versions of the workers, and errors in plain words."""

from __future__ import annotations

import contextlib
import importlib
import logging
import pickle
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from functools import partial
from typing import Any

from lstd.distributed.store import keyed
from lstd.distributed.sums import AHEAD, Leaf, Part
from lstd.distributed.tree import Tree
from lstd.errors import InvalidInputError, LSTDError
from lstd.version import __version__

_LOG = logging.getLogger("lstd")
SECONDS_TO_LOOK = 1.0  # between checks of a cluster without results
# A worker without lstd cannot read a task that contains objects of it: it would leave the cluster silently.
_CALL = "(lambda function, arguments, more: function(*arguments, *more))(*__import__('pickle').loads(call), more)"
_VERSION = "__import__('lstd').__version__"  # evaluated where lstd may be missing or another one
_OWN = f"lstd {__version__}"


def on_cluster(leaf: Leaf, chunks: Iterable[Any], client: Any) -> Part | None:
    """Sum chunks and merge their sums on the workers of a Dask cluster.

    If a worker dies, the scheduler repeats the sums and merges whose results are lost. The tree stays the same.
    """
    tree: Tree[Any] = Tree(lambda one, two: submit(client, "merge", leaf.merge, (), one, two))
    running: set[Any] = set()
    watch = Watch(client)
    try:
        threads = watch.threads()
        for place, chunk, key in keyed(leaf, chunks):
            future = submit(client, "sum", leaf, (place,), chunk, key)
            running.add(future)
            tree.add(place, future)
            while len(running) >= AHEAD * max(1, threads):
                done = watch.finished(running)
                threads = watch.threads()
                for future in filter(_failed, done):
                    computed(partial(watch.result, future))
                running -= done
        root = tree.result()
        return None if root is None else computed(partial(watch.result, root))
    finally:
        running.clear()  # the scheduler drops what nobody refers to, after an error too
        tree.clear()


def _failed(future: Any) -> bool:
    """Whether a future failed, or was cancelled because the scheduler was lost."""
    return future.status in ("error", "cancelled")


def _check_versions(client: Any) -> None:
    """Raise InvalidInputError, with the versions, unless the scheduler and all workers have this version of lstd."""
    with as_lost(client):
        workers = client.run(eval, _VERSION, on_error="return")
        try:
            scheduler = client.run_on_scheduler(eval, _VERSION)
        except ImportError as error:
            scheduler = error
        except ValueError:  # it does not run functions that are sent to it
            scheduler = __version__
    counts = Counter(map(_version, workers.values()))
    wrong = [
        f"{count} of {counts.total()} workers has {version}" for version, count in counts.items() if version != _OWN
    ]
    if _version(scheduler) != _OWN:
        wrong.append(f"the scheduler has {_version(scheduler)}")
    if wrong:
        raise InvalidInputError(
            f"Workers must have {_OWN}, as this process has, because sums of different versions must not be mixed; "
            f"{'; '.join(wrong)}. Install the same version everywhere."
        )


def _version(answer: Any) -> str:
    """Return the version in an answer; a worker that died meanwhile counts as having this one."""
    if isinstance(answer, str):
        return f"lstd {answer}"
    return "none" if isinstance(answer, (ImportError, AttributeError)) else _OWN


def submit(client: Any, name: str, function: Callable[..., Any], arguments: tuple[Any, ...], *more: Any) -> Any:
    """Return the future of a call with these arguments followed by `more`, which may hold futures.

    Only `arguments` may contain objects of lstd.

    Raises LSTDError when the scheduler is lost.
    """
    call = {"call": pickle.dumps((function, arguments)), "more": list(more)}
    with as_lost(client):
        return client.submit(eval, _CALL, call, key=f"{name}-{uuid.uuid4()}", pure=False)


class Watch:
    """Watch a cluster while it works: its workers, and whether all have this version of lstd."""

    def __init__(self, client: Any) -> None:
        self._client, self._reported = client, False
        self._checked: set[str] = set()

    def threads(self) -> int:
        """Return the number of threads of all workers, after a check of the versions of new ones.

        Raises InvalidInputError when a worker, or the scheduler, has another version of lstd or none, and LSTDError
        when the scheduler is lost.
        """
        with as_lost(self._client):
            there = self._client.nthreads()
            if not self._checked or not there.keys() <= self._checked:
                _check_versions(self._client)
                self._checked |= there.keys()
        return sum(there.values())

    def finished(self, running: Iterable[Any]) -> set[Any]:
        """Return the finished futures; none after a second without any. Report once that there are no workers."""
        with as_lost(self._client):
            done = _wait(running, self._client)
            there = bool(done or self._client.nthreads())
        if not there and not self._reported:
            _LOG.warning("The cluster has no workers; waiting for one.")
        self._reported = not there
        return done

    def result(self, future: Any) -> Any:
        """Wait for the result of a future; raises what its task raises, or `threads`."""
        while not self.finished([future]):
            self.threads()
        self.threads()  # a worker that joined meanwhile, without lstd, may be the reason
        if future.status == "error":
            return future.result()
        with as_lost(future.client):
            return future.result()


def _wait(running: Iterable[Any], client: Any) -> set[Any]:
    """Return the futures that are finished; none after a second without any."""
    distributed: Any = importlib.import_module("distributed")
    try:
        with client.as_current():
            waited = distributed.wait(list(running), timeout=SECONDS_TO_LOOK, return_when="FIRST_COMPLETED")
    except TimeoutError:
        return set()
    done: set[Any] = waited.done
    return done


@contextlib.contextmanager
def as_lost(client: Any) -> Iterator[None]:
    """Raise an LSTDError when the connection to the scheduler breaks or is closed."""
    try:
        yield
    except LSTDError:
        raise
    except Exception as error:  # without a scheduler, a client raises errors of many types
        if not isinstance(error, (CancelledError, OSError)) and getattr(client, "status", "running") == "running":
            raise
        raise LSTDError("The connection to the Dask scheduler was lost, or tasks were cancelled there.") from error


def computed(result: Callable[[], Any]) -> Any:
    """Call a function that waits for Dask; raises LSTDError where Dask did not compute its result."""
    try:
        return result()
    except LSTDError:
        raise
    except Exception as error:
        if type(error).__name__ == "KilledWorker":
            raise LSTDError(
                f"A chunk killed its workers repeatedly: {error}. Often the reason is too little memory: use "
                "smaller chunks. With a `store`, finished sums are kept."
            ) from error
        raise LSTDError(f"`source` could not be computed by Dask: {error!r:.500}.") from error
