"""Sums on Dask: of chunks, by the workers of a cluster; of collections, where their parts are."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import logging
import math
import pickle
import sys
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse

from lstd.data.arguments import shown
from lstd.data.rows import ARGUMENTS
from lstd.distributed.chunk_sums import Leaf, Part, merged
from lstd.errors import InvalidInputError, LSTDError
from lstd.version import __version__

AHEAD = 4  # chunks under way per worker
SECONDS_TO_LOOK = 1.0  # between checks of a cluster without results
# A worker without lstd cannot read a task that contains objects of it: it would leave the cluster silently.
_CALL = "(lambda function, arguments, more: function(*arguments, *more))(*__import__('pickle').loads(call), more)"
_VERSION = "__import__('lstd').__version__"  # evaluated where lstd may be missing or another one
_OWN = f"lstd {__version__}"


# ------------------------------------------------------------ a cluster


def on_cluster(leaf: Leaf, chunks: Iterable[Any], client: Any) -> Part | None:
    """Sum chunks and merge their sums on the workers of a Dask cluster.

    If a worker dies, the scheduler repeats the sums and merges whose results are lost. The tree stays the same.
    """
    cluster = Cluster(client)
    running: deque[Any] = deque()

    def sums() -> Iterator[Any]:
        for place, chunk, key in leaf.tasks(chunks):
            running.append(cluster.submit("sum", leaf, (place,), chunk, key))
            yield running[-1]
            while len(running) >= AHEAD * max(1, cluster.threads()):
                cluster.wait(running[0])
                running.popleft()

    try:
        cluster.threads()
        root = merged(sums(), lambda one, two: cluster.submit("merge", leaf.merge, (), one, two))
        return None if root is None else cluster.result(root)
    finally:
        running.clear()  # the scheduler drops what nobody refers to, after an error too


class Cluster:
    """The workers of a Dask cluster, which must all have this version of lstd."""

    def __init__(self, client: Any) -> None:
        self._client, self._reported = client, False
        self._checked: set[str] = set()

    def submit(self, name: str, function: Callable[..., Any], arguments: tuple[Any, ...], *more: Any) -> Any:
        """Return the future of a call with these arguments followed by `more`, which may hold futures.

        Only `arguments` may contain objects of lstd. Raises LSTDError when the scheduler is lost.
        """
        call = {"call": pickle.dumps((function, arguments)), "more": list(more)}
        with as_lost(self._client):
            return self._client.submit(eval, _CALL, call, key=f"{name}-{uuid.uuid4()}", pure=False)

    def threads(self) -> int:
        """Return the number of threads of all workers, after a check of the versions of new ones.

        Raises InvalidInputError when a worker, or the scheduler, has another version of lstd or none, and LSTDError
        when the scheduler is lost.
        """
        with as_lost(self._client):
            there = self._client.nthreads()
            if not self._checked or not there.keys() <= self._checked:
                self._check_versions()
                self._checked |= there.keys()
        return sum(there.values())

    def _check_versions(self) -> None:
        """Raise InvalidInputError, with the versions, unless scheduler and workers have this version of lstd."""
        workers = self._client.run(eval, _VERSION, on_error="return")
        try:
            scheduler = self._client.run_on_scheduler(eval, _VERSION)
        except ImportError as error:
            scheduler = error
        except ValueError:  # it does not run functions that are sent to it
            scheduler = __version__
        counts = Counter(map(_version, workers.values()))
        wrong = [f"{count} of {counts.total()} workers has {found}" for found, count in counts.items() if found != _OWN]
        if _version(scheduler) != _OWN:
            wrong.append(f"the scheduler has {_version(scheduler)}")
        if wrong:
            raise InvalidInputError(
                f"Workers must have {_OWN}, as this process has, because sums of different versions must not be mixed; "
                f"{'; '.join(wrong)}. Install the same version everywhere."
            )

    def wait(self, future: Any) -> None:
        """Wait for a future; raises what its task raises, or `threads`."""
        distributed: Any = importlib.import_module("distributed")
        while future.status == "pending":
            with as_lost(self._client), contextlib.suppress(TimeoutError), self._client.as_current():
                distributed.wait([future], timeout=SECONDS_TO_LOOK)
            there = future.status != "pending" or self.threads()
            if not there and not self._reported:
                logging.getLogger("lstd").warning("The cluster has no workers; waiting for one.")
            self._reported = not there
        if future.status != "finished":
            self.threads()  # a worker that joined meanwhile, without lstd, may be the reason
        if future.status == "error":
            computed(future.result)

    def result(self, future: Any) -> Any:
        """Wait for the result of a future; raises what its task raises, or `threads`."""
        self.wait(future)
        with as_lost(self._client):
            return future.result()


def _version(answer: Any) -> str:
    """Return the version in an answer; a worker that died meanwhile counts as having this one."""
    if isinstance(answer, str):
        return f"lstd {answer}"
    return "none" if isinstance(answer, (ImportError, AttributeError)) else _OWN


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


# ------------------------------------------------------------ collections


@dataclass(frozen=True)
class Partitions:
    """Chunks that Dask computes: delayed objects, or any other chunks."""

    chunks: Sequence[Any]
    client: Any = None  # of the cluster on which the collection is persisted, if it is
    in_blocks: bool = False  # each chunk maps names to lists of delayed blocks of columns


def is_dask(value: Any) -> bool:
    """Return whether a value is a Dask collection, delayed objects included."""
    dask = sys.modules.get("dask.base")  # a collection exists only if Dask was imported
    return dask is not None and bool(dask.is_dask_collection(value))


def is_kind(value: Any, kind: str) -> bool:
    """Return whether a value is a Dask collection of a kind: "DataFrame", "Array" or "Delayed"."""
    return is_dask(value) and any(base.__name__ == kind for base in type(value).__mro__)


def is_future(value: Any) -> bool:
    """Return whether a value is a future of a Dask cluster."""
    distributed = sys.modules.get("distributed")
    return distributed is not None and isinstance(value, distributed.Future)


def listed(source: Any, expected: str) -> Partitions | Iterable[Any]:
    """Return chunks of an iterable, a delayed object or a future: partitions if some are delayed objects.

    Raises InvalidInputError when `source` or one of its chunks is a Dask collection of another kind; `expected` is what
    the message says it must be.
    """
    if is_kind(source, "Delayed") or is_future(source):
        source = [source]
    if is_dask(source):
        raise InvalidInputError(f"`source` must be {expected}; got {source!r:.80}.")
    if not isinstance(source, (list, tuple)):
        rest = iter(source)
        first = list(itertools.islice(rest, 1))
        if not any(is_dask(chunk) or is_future(chunk) for chunk in first):
            return itertools.chain(first, rest)
        source = [*first, *rest]
    chunks: Sequence[Any] = source
    for place, chunk in enumerate(chunks):
        if is_dask(chunk) and not is_kind(chunk, "Delayed"):
            raise InvalidInputError(
                f"`source` must be {expected}; `source[{place}]` is {chunk!r:.80}. Join several into one, for example "
                "by dask.dataframe.concat."
            )
    return Partitions(chunks, _client_of(chunks)) if any(map(is_dask, chunks)) else chunks


def frame_partitions(frame: Any, columns: Sequence[str], *, others: bool) -> Partitions:
    """Return the partitions of a Dask DataFrame with these columns; without `others`, Dask reads no other columns."""
    names = list(frame.columns)
    for column in columns:
        if names.count(column) != 1:
            found = f"has it {names.count(column)} times" if column in names else f"has {names!r:.200}"
            raise InvalidInputError(f"`source` must have a column {column!r}, once; the Dask DataFrame {found}.")
    return Partitions(list((frame if others else frame[list(columns)]).to_delayed()), _client_of(frame))


def array_partitions(arrays: Mapping[str, Any]) -> Partitions:
    """Return the blocks of rows of Dask arrays by name."""
    arrays = {name: array for name, array in arrays.items() if array is not None}
    if unknown := sorted({*arrays} - {*ARGUMENTS}) or sorted({"X", "y"} - {*arrays}):
        raise InvalidInputError(
            f"`source` must have `X` and `y`, and nothing but {', '.join(ARGUMENTS)}, if it is a mapping; "
            f"{unknown[0]!r} is {'unknown' if unknown[0] in arrays else 'missing'}."
        )
    for name, array in arrays.items():
        if not is_kind(array, "Array") or array.ndim not in (1, 2):
            raise InvalidInputError(
                f"`{name}` of `source` must be a Dask array of one or two dimensions, like every array of a mapping or "
                f"a tuple (X, y); got {shown(array)}. Arrays in memory are one chunk: put their mapping in a list."
            )
        if not _fit(arrays["X"].chunks[0], array.chunks[0]):
            raise InvalidInputError(
                f"`{name}` of `source` must have the row chunks of `X`, {arrays['X'].chunks[0]!r:.80}; got "
                f"{array.chunks[0]!r:.80}. Rechunk it: {name}.rechunk({{0: X.chunks[0]}})."
            )
    blocks = {name: array.to_delayed().reshape(array.numblocks[0], -1).tolist() for name, array in arrays.items()}
    rows = [{name: parts[place] for name, parts in blocks.items()} for place in range(len(blocks["X"]))]
    return Partitions(rows, _client_of(list(arrays.values())), in_blocks=True)


def _fit(one: Sequence[float], two: Sequence[float]) -> bool:
    """Return whether chunks have the same sizes, as far as they are known."""
    if len(one) != len(two):
        return False
    return all(a == b or math.isnan(a) or math.isnan(b) for a, b in zip(one, two, strict=True))


def on_graph(leaf: Leaf, partitions: Partitions, client: Any) -> Part | None:
    """Sum all partitions in one graph, in which Dask computes once what they share.

    Without a client Dask computes it as any collection: on the cluster that holds it, by the default client, or on the
    local scheduler.
    """
    from dask.delayed import delayed

    summed = delayed(partial(_of_blocks, leaf) if partitions.in_blocks else leaf, pure=False, traverse=False)
    merge = delayed(leaf.merge, pure=False, traverse=False)
    root = merged((summed(*task) for task in leaf.tasks(partitions.chunks)), merge)
    return None if root is None else _computed_by(client or partitions.client, root)


def load(chunk: Any, client: Any) -> Any:
    """Compute a chunk that Dask holds, and return any other as it is."""
    if is_future(chunk):
        return computed(chunk.result)
    if isinstance(chunk, dict) and any(isinstance(parts, list) and is_dask(parts[0]) for parts in chunk.values()):
        return {name: _beside([load(part, client) for part in parts]) for name, parts in chunk.items()}
    return _computed_by(client, chunk) if is_dask(chunk) else chunk


def _computed_by(client: Any, collection: Any) -> Any:
    client = client or _default_client(collection)
    if client is None:
        return computed(collection.compute)
    cluster = Cluster(client)
    cluster.threads()
    with as_lost(client):
        future = client.compute(collection)
    try:
        return cluster.result(future)
    finally:
        future.release()  # an error refers to it too


def _default_client(collection: Any) -> Any:
    """Return the client of the cluster on which Dask computes a collection; None on the local scheduler."""
    dask: Any = importlib.import_module("dask.base")
    found = getattr(dask.get_scheduler(collections=[collection]), "__self__", None)
    return found if hasattr(found, "nthreads") else None


def _client_of(collection: Any) -> Any:
    """Return the client of a cluster that holds a part of a collection, or of a list of them; None if there is none."""
    distributed = sys.modules.get("distributed")
    futures = [] if distributed is None else distributed.futures_of(collection)
    return futures[0].client if futures else None


def _of_blocks(leaf: Leaf, place: int, blocks: Mapping[str, list[Any]], key: bytes | None) -> Part:
    try:
        arrays = {name: _beside(parts) for name, parts in blocks.items()}
    except ValueError as error:
        raise InvalidInputError(f"`source[{place}]`: blocks do not fit side by side: {error}.") from error
    return leaf(place, arrays, key)


def _beside(parts: list[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    return sparse.hstack(parts, format="csr") if any(map(sparse.issparse, parts)) else np.hstack(parts)
