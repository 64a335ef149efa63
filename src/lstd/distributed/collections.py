"""Dask collections as chunks: one graph of their partitions' statistics and of the merges, computed where they are."""

from __future__ import annotations

import importlib
import itertools
import logging
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from lstd.distributed.chunks import COLUMNS, Leaf, Part, keyed, merge
from lstd.distributed.cluster import Watch, as_lost
from lstd.distributed.reduction import Tree
from lstd.errors import InvalidInputError, LSTDError

if TYPE_CHECKING:
    from lstd.tables.row_reader import Roles

_LOG = logging.getLogger("lstd")

_KINDS = (
    "a Dask DataFrame, a tuple (X, y) or a mapping of Dask arrays, or a list of delayed objects or futures, where it "
    "is of Dask"
)


@dataclass(frozen=True)
class Partitions:
    """Chunks that Dask computes: delayed objects, or what else a chunk may be.

    With `in_blocks`, each is a mapping of lists of delayed blocks, which belong side by side. The `client` is that of
    the cluster on which the collection is persisted, if it is.
    """

    chunks: Sequence[Any]
    client: Any
    in_blocks: bool = False


def partitions_of(chunks: Any, roles: Roles | None) -> Partitions | Iterable[Any]:
    """The partitions of a Dask collection; else the chunks, as an iterable, as they are.

    Parameters
    ----------
    chunks : object
        As of :func:`lstd.distributed.sum_chunks`.
    roles : Roles or None
        Of columns, where chunks are tables.

    Raises
    ------
    InvalidInputError
        When a collection is of another kind, or its parts do not fit.
    """
    if _is(chunks, "DataFrame"):
        if roles is None:
            raise InvalidInputError("`reward` must name columns of the Dask DataFrame that `chunks` is; got None.")
        return Partitions(_frames_of(chunks, roles), _client_of(chunks))
    if _is_arrays(chunks):
        if roles is not None:
            raise InvalidInputError("`reward` must be None where `chunks` are Dask arrays, which have no columns.")
        arrays = chunks if isinstance(chunks, Mapping) else dict(zip("Xy", chunks, strict=True))
        return Partitions(_rows_of(arrays), _client_of(list(arrays.values())), in_blocks=True)
    if _is(chunks, "Delayed") or is_future(chunks):
        chunks = [chunks]
    if _is_dask(chunks):
        raise InvalidInputError(f"`chunks` must be {_KINDS}; got {chunks!r:.80}.")
    if not isinstance(chunks, (list, tuple)):
        source = iter(chunks)
        first = list(itertools.islice(source, 1))
        if not any(_is_dask(chunk) or is_future(chunk) for chunk in first):
            return itertools.chain(first, source)
        chunks = [*first, *source]
    several: Sequence[Any] = chunks
    if not any(map(_is_dask, several)):
        return several
    return Partitions(_listed(several), _client_of(several))


def on_graph(leaf: Leaf, partitions: Partitions, ordered: bool, client: Any) -> Any:
    """Part of all partitions, merged in the same bracketing as anywhere, in one graph; None without any.

    In one graph, what partitions share is computed once, and Dask merges statistics as soon as they are there. Without
    a client it is computed as any collection: where it is persisted, by the client that is the default, or on the local
    scheduler.
    """
    from dask.delayed import delayed

    whole = partial(_of_blocks, leaf) if partitions.in_blocks else leaf
    summed = delayed(whole, pure=False, traverse=False)
    tree: Tree[Any] = Tree(delayed(partial(merge, ordered=ordered), pure=False, traverse=False))
    for place, chunk, key in keyed(leaf, partitions.chunks):
        tree.add(place, summed(place, chunk, key))
    root = tree.result()
    if root is None:
        return None
    client = client or partitions.client or _default_client(root)
    if client is None:
        return computed(root.compute)
    watch = Watch(client, _LOG.warning)
    watch.threads()
    with as_lost(client):
        future = client.compute(root)
    try:
        return computed(partial(watch.result, future))
    finally:
        future.release()  # an error holds it too


def _default_client(collection: Any) -> Any:
    """The client of the cluster on which Dask computes a collection; None where it does so by itself."""
    dask: Any = importlib.import_module("dask.base")
    found = getattr(dask.get_scheduler(collections=[collection]), "__self__", None)
    return found if hasattr(found, "nthreads") else None


def computed(result: Callable[[], Any]) -> Any:
    """What a function gives that waits for Dask; raises LSTDError where Dask did not compute it."""
    try:
        return result()
    except LSTDError:
        raise
    except Exception as error:
        if type(error).__name__ == "KilledWorker":
            raise LSTDError(
                f"Workers died again and again of a chunk: {error}. A worker often dies of too little memory: use "
                "smaller chunks; with a `store`, what is finished is found again."
            ) from error
        raise LSTDError(f"`chunks` could not be computed by Dask: {error!r:.500}.") from error


def is_future(value: Any) -> bool:
    """Whether a value is a future of a Dask cluster."""
    distributed = sys.modules.get("distributed")
    return distributed is not None and isinstance(value, distributed.Future)


def _client_of(collection: Any) -> Any:
    """The client of a cluster on which parts of a collection, or of several in a list, are; None if none are."""
    distributed = sys.modules.get("distributed")
    futures = [] if distributed is None else distributed.futures_of(collection)
    return futures[0].client if futures else None


def _is_dask(value: Any) -> bool:
    dask = sys.modules.get("dask.base")  # who has a collection has imported it
    return dask is not None and bool(dask.is_dask_collection(value))


def _is(value: Any, kind: str) -> bool:
    return _is_dask(value) and any(base.__name__ == kind for base in type(value).__mro__)


def _is_arrays(chunks: Any) -> bool:
    if isinstance(chunks, Mapping):
        return True
    pair = isinstance(chunks, tuple) and len(chunks) == 2
    return pair and any(_is_dask(one) and not _is(one, "Delayed") for one in chunks)


def _listed(chunks: Sequence[Any]) -> Sequence[Any]:
    for place, chunk in enumerate(chunks):
        if _is_dask(chunk) and not _is(chunk, "Delayed"):
            raise InvalidInputError(
                f"`chunks` must be {_KINDS}; `chunks[{place}]` is {chunk!r:.80}. Put several into one, as by "
                "dask.dataframe.concat."
            )
    return chunks


def _frames_of(frame: Any, roles: Roles) -> list[Any]:
    """Partitions with the columns that are needed, which Dask then does not read the others of."""
    names, columns = list(frame.columns), list(dict.fromkeys((*(roles.features or ()), *roles.others)))
    for column in columns:
        if names.count(column) != 1:
            found = f"has it {names.count(column)} times" if column in names else f"has {names!r:.200}"
            raise InvalidInputError(f"`chunks` must have a column {column!r}, once; the Dask DataFrame {found}.")
    return list((frame if roles.features is None else frame[columns]).to_delayed())


def _rows_of(arrays: Mapping[str, Any]) -> list[dict[str, list[Any]]]:
    """Blocks of rows of Dask arrays by name."""
    arrays = {name: array for name, array in arrays.items() if array is not None}
    if unknown := sorted({*arrays} - {*COLUMNS}) or sorted({"X", "y"} - {*arrays}):
        raise InvalidInputError(
            f"`chunks` must have `X` and `y`, and nothing but {', '.join(COLUMNS)}, where it is a mapping; "
            f"{unknown[0]!r} is {'unknown' if unknown[0] in arrays else 'missing'}."
        )
    for name, array in arrays.items():
        if not _is(array, "Array") or array.ndim not in (1, 2):
            raise InvalidInputError(
                f"`{name}` of `chunks` must be a Dask array of one or two dimensions, as all of a mapping or a tuple "
                f"(X, y); got {array!r:.80}. Other mappings and tuples are chunks themselves: give a list of them."
            )
        if not _fit(arrays["X"].chunks[0], array.chunks[0]):
            raise InvalidInputError(
                f"`{name}` of `chunks` must have the row chunks of `X`, {arrays['X'].chunks[0]!r:.80}; got "
                f"{array.chunks[0]!r:.80}. Rechunk it: {name}.rechunk({{0: X.chunks[0]}})."
            )
    blocks = {name: array.to_delayed().reshape(array.numblocks[0], -1).tolist() for name, array in arrays.items()}
    return [{name: rows[place] for name, rows in blocks.items()} for place in range(len(blocks["X"]))]


def _fit(one: Sequence[float], two: Sequence[float]) -> bool:
    """Whether chunks have the same sizes, as far as they are known."""
    if len(one) != len(two):
        return False
    return all(a == b or math.isnan(a) or math.isnan(b) for a, b in zip(one, two, strict=True))


def _of_blocks(leaf: Leaf, place: int, blocks: Mapping[str, list[Any]], key: bytes | None) -> Part:
    try:
        arrays = {name: _beside(parts) for name, parts in blocks.items()}
    except ValueError as error:
        raise InvalidInputError(f"`chunks[{place}]`: blocks do not fit side by side: {error}.") from error
    return leaf(place, arrays, key)


def _beside(parts: list[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    return sparse.hstack(parts, format="csr") if any(map(sparse.issparse, parts)) else np.hstack(parts)
