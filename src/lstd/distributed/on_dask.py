"""Sums on Dask: of chunks, by the workers of a cluster, and of collections, where their parts are."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import math
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import Any

from lstd.data.arguments import shown
from lstd.data.takes import LSTD_COLUMNS, Takes
from lstd.distributed.chunk_sums import Part, SumChunks, merged, naming
from lstd.errors import InvalidInputError, LSTDError
from lstd.version import __version__

_VERSION = "__import__('lstd').__version__"  # evaluated where lstd may be missing or another one
_OWN = f"lstd {__version__}"


# ------------------------------------------------------------ a cluster

CHUNK = Takes("a chunk", ("X", "y", *LSTD_COLUMNS))


def check_versions(client: Any) -> None:
    """Raise InvalidInputError unless the scheduler and all workers of a cluster have this version of lstd."""
    with dask_errors(client):
        found = [*client.run(eval, _VERSION, on_error="return").values()]
        try:
            scheduler = client.run_on_scheduler(eval, _VERSION)
        except ImportError as error:
            scheduler = error
        except ValueError:  # it does not run functions that are sent to it
            scheduler = __version__
    counts = Counter(map(_version, found))
    wrong = [f"{count} of {len(found)} workers has {version}" for version, count in counts.items() if version != _OWN]
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
    if isinstance(answer, (ImportError, AttributeError)):
        return "none"
    return _OWN


@contextlib.contextmanager
def dask_errors(client: Any = None) -> Iterator[None]:
    """Raise an LSTDError where Dask did not compute a result."""
    try:
        yield
    except LSTDError:
        raise
    except Exception as error:  # without a scheduler, a client raises errors of many types
        kind = type(error).__name__
        if kind == "KilledWorker":
            raise LSTDError(
                f"A chunk killed its workers repeatedly: {error}. Often the reason is too little memory: use "
                "smaller chunks, or fewer threads per worker."
            ) from error
        is_open = getattr(client, "status", "running") == "running"
        if not is_open or isinstance(error, CancelledError) or kind == "CommClosedError":
            raise LSTDError("The connection to the Dask scheduler was lost, or tasks were cancelled there.") from error
        raise LSTDError(f"`source` could not be computed by Dask: {error!r:.500}.") from error


# ------------------------------------------------------------ collections


@dataclass(frozen=True)
class Partitions:
    """Chunks that Dask sums: delayed objects and futures, or any other chunks."""

    chunks: Sequence[Any]
    client: Any = None  # of the cluster that holds some of them, if one does


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
    """Return chunks of an iterable, a delayed object or a future: partitions if some of them are Dask's.

    Raises InvalidInputError when `source` or one of its chunks is a Dask collection of another kind; `expected` is what
    the message says it must be.
    """
    if is_kind(source, "Delayed") or is_future(source):
        source = [source]
    if is_dask(source):
        raise InvalidInputError(f"`source` must be {expected}; got {source!r:.80}.")
    if not isinstance(source, (list, tuple)):  # the first chunk of an iterator shows whether Dask holds them
        rest = iter(source)
        first = list(itertools.islice(rest, 1))
        if not any(is_dask(chunk) or is_future(chunk) for chunk in first):
            return itertools.chain(first, rest)
        source = [*first, *rest]  # delayed objects take little memory
    chunks: Sequence[Any] = source
    for place, chunk in enumerate(chunks):
        if is_dask(chunk) and not is_kind(chunk, "Delayed"):
            raise InvalidInputError(
                f"`source` must be {expected}; `source[{place}]` is {chunk!r:.80}. Join several into one, for example "
                "by dask.dataframe.concat."
            )
    if any(is_dask(chunk) or is_future(chunk) for chunk in chunks):
        return Partitions(chunks, _client_of(chunks))
    return chunks


def frame_partitions(frame: Any, columns: Sequence[str], *, others: bool) -> Partitions:
    """Return the partitions of a Dask DataFrame with these columns; without `others`, Dask reads no other columns."""
    names = list(frame.columns)
    for column in columns:
        count = names.count(column)
        if count == 1:
            continue
        found = f"has it {count} times"
        if not count:
            found = f"has {names!r:.200}"
        raise InvalidInputError(f"`source` must have a column {column!r}, once; the Dask DataFrame {found}.")
    wanted = frame
    if not others:
        wanted = frame[list(columns)]
    return Partitions(list(wanted.to_delayed()), _client_of(frame))


def array_partitions(arrays: Mapping[str, Any]) -> Partitions:
    """Return the blocks of rows of Dask arrays by name."""
    arrays = {name: array for name, array in arrays.items() if array is not None}
    CHUNK.check(arrays)
    missing = sorted({"X", "y"} - arrays.keys())
    if missing:
        raise InvalidInputError(f"`source` must have `X` and `y`, if it is a mapping; {missing[0]!r} is missing.")
    for name, array in arrays.items():
        if not is_kind(array, "Array") or array.ndim not in (1, 2):
            raise InvalidInputError(
                f"`{name}` of `source` must be a Dask array of one or two dimensions, like every array of a mapping or "
                f"a tuple (X, y); got {shown(array)}. Arrays in memory are one chunk: put their mapping in a list."
            )
        rows = arrays["X"].chunks[0]
        own = array.chunks[0]
        are_known = not math.isnan(sum(rows + own))  # Dask gives NaN for a length that it does not know
        if len(rows) != len(own) or (are_known and rows != own):
            raise InvalidInputError(
                f"`{name}` of `source` must have the row chunks of `X`, {rows!r:.80}; got {own!r:.80}. Rechunk it: "
                f"{name}.rechunk({{0: X.chunks[0]}})."
            )
    blocks = []  # of rows, of each array
    for array in arrays.values():
        if array.ndim == 2:
            array = array.rechunk({1: -1})  # all columns of a row in one chunk
        blocks.append(array.to_delayed().ravel())
    chunks = [dict(zip(arrays, parts, strict=True)) for parts in zip(*blocks, strict=True)]
    return Partitions(chunks, _client_of(list(arrays.values())))


def on_graph(sums: SumChunks, partitions: Partitions, client: Any) -> Part | None:
    """Sum all partitions in one graph, in which Dask computes once what they share.

    Without a client Dask computes it as any collection: on the cluster that holds it, by the default client, or on the
    local scheduler.
    """
    from dask.delayed import delayed

    client = client or partitions.client
    if client is not None:
        check_versions(client)
    sum_chunk = delayed(sums, pure=False, traverse=False)
    merge = delayed(sums.merge, pure=False, traverse=False)
    parts = (sum_chunk(place, chunk) for place, chunk in enumerate(partitions.chunks))
    root = merged(parts, merge)
    if root is None:
        return None
    part: Part = load(root, client)
    return part


def load(chunk: Any, client: Any) -> Any:
    """Compute a chunk that Dask holds, alone or as arrays by name, and return any other as it is."""
    with dask_errors(client):
        if is_future(chunk):
            return chunk.result()
        if is_dask(chunk) or (isinstance(chunk, dict) and any(map(is_dask, chunk.values()))):
            dask: Any = importlib.import_module("dask")
            (computed,) = dask.compute(chunk, scheduler=client)
            return computed
    return chunk


def loaded_once(
    partitions: Partitions, client: Any, function: Callable[[Any], Any]
) -> tuple[Partitions, Iterator[Any]]:
    """Return partitions, and an iterator that brings them here from the first on.

    A partition that is drawn stays where Dask computed it, and is not computed again for its sums. `function` is called
    there: with a chunk that Dask holds, or whose data is only loaded by it.
    """
    client = client or partitions.client
    chunks = list(partitions.chunks)

    def first() -> Iterator[Any]:
        if client is not None:
            check_versions(client)
        for place, chunk in enumerate(chunks):
            if is_loaded(chunk):
                yield chunk
                continue
            with naming(place), dask_errors(client):
                kept = _persisted(chunk, client, function)
                loaded = load(kept, client)
            chunks[place] = kept
            yield loaded

    return Partitions(chunks, partitions.client), first()


def is_loaded(chunk: Any) -> bool:
    """Return whether a chunk has its data in this process: it is not Dask's, and neither a function nor a path."""
    if is_future(chunk) or is_dask(chunk) or callable(chunk) or isinstance(chunk, (str, os.PathLike)):
        return False
    return not (isinstance(chunk, dict) and any(map(is_dask, chunk.values())))


def _persisted(chunk: Any, client: Any, function: Callable[[Any], Any]) -> Any:
    """Let Dask compute a function of a chunk and keep the result."""
    from dask.delayed import delayed

    result = delayed(function, pure=False)(chunk)
    if client is None:
        return result.persist()
    return client.persist(result)


def _client_of(collection: Any) -> Any:
    """Return the client of a cluster that holds a part of a collection, or of a list of them; None if there is none."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    futures = distributed.futures_of(collection)
    if not futures:
        return None
    return futures[0].client
