"""Dask collections: one graph of the sums of their partitions and of the merges, computed where the partitions are."""

from __future__ import annotations

import importlib
import itertools
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse

from lstd.data.arguments import shown
from lstd.data.rows import ARGUMENTS
from lstd.distributed.run_on_dask import Watch, as_lost, computed
from lstd.distributed.store import keyed
from lstd.distributed.sums import Leaf, Part
from lstd.distributed.tree import Tree
from lstd.errors import InvalidInputError


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
    tree: Tree[Any] = Tree(delayed(leaf.merge, pure=False, traverse=False))
    for place, chunk, key in keyed(leaf, partitions.chunks):
        tree.add(place, summed(place, chunk, key))
    root = tree.result()
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
    watch = Watch(client)
    watch.threads()
    with as_lost(client):
        future = client.compute(collection)
    try:
        return computed(partial(watch.result, future))
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
