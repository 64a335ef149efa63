"""Sums of consecutive chunks: what a worker returns, how neighbours are merged, and the folder that keeps them."""

from __future__ import annotations

import hashlib
import logging
import os
import pickle
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import lstd
from lstd.data.seen_ids import SeenIds
from lstd.data.settings import Settings
from lstd.distributed import memory as shares
from lstd.distributed.ahead import Ahead
from lstd.errors import InvalidInputError, LSTDError
from lstd.io.archive import read, write
from lstd.io.files import checked_path
from lstd.statistics.blocks import Blocks, empty_blocks
from lstd.statistics.packing import pack
from lstd.statistics.statistics import LSTDStatistics, unpack_statistics
from lstd.statistics.threads import one_blas_thread

_LOG = logging.getLogger("lstd")


@dataclass(frozen=True)
class Part:
    """Sums over consecutive chunks, and the places of data to warn about."""

    blocks: Blocks
    first: int  # place of the first chunk
    last: int
    assumed: int | None = None  # a chunk with `episode` and without `terminated`
    broken: tuple[int, int] | None = None  # a chunk and its row that does not follow the row before it
    ends: Any = None  # for rules that concern two chunks: ids of episodes, and of tables the rows at both ends


@dataclass(frozen=True)
class Leaf:
    """Sum chunks; with a store, read their sums from there or add them."""

    settings: Settings
    n_blocks: Any  # an integer or "auto"
    memory: int  # bytes
    store: str | None  # full name of a folder
    independent: bool  # each chunk begins a new episode
    alone: bool = field(default=False, kw_only=True)  # there is only one chunk

    def __call__(self, place: int, chunk: Any, key: bytes | None = None) -> Part:
        """Sum a chunk on a worker; `key` identifies a function in the store."""
        with one_blas_thread(), Ahead(1) as ahead:
            [part] = self.parts([(place, chunk, key)], ahead)
        return part

    @abstractmethod
    def parts(self, tasks: Iterable[tuple[int, Any, bytes | None]], ahead: Ahead) -> Iterator[Part]:
        """Yield the sums of chunks in their order, with the same bits for any number of threads."""

    @abstractmethod
    def merge(self, one: Part, two: Part) -> Part:
        """Merge the sums over chunks that follow one another."""

    @abstractmethod
    def add_content(self, digest: Any, place: int, chunk: Any) -> None:
        """Add the content of a chunk that is neither a function nor a path to a digest."""

    def unpack_ends(self, document: Any) -> Any:
        """Return the `Part.ends` of a document that their `packed` made."""

    def no_blocks(self, nothing: LSTDStatistics) -> Blocks:
        """Return blocks of no data, with the limit of all data; `nothing` is the statistics of no data."""
        return empty_blocks(nothing, self.n_blocks, shares.block_bytes(self.memory, alone=self.alone))

    def limit_of(self, blocks: Blocks, n_rows: int) -> int:
        """Return how many blocks to keep of the first `n_rows` rows of a chunk."""
        return shares.most_blocks(blocks.limit, n_rows, blocks.total.n_features, alone=self.alone)

    def look_up(self, place: int, chunk: Any, key: bytes | None) -> tuple[Path | None, Part | None]:
        """Return the file of a chunk's sums, None without a store, and its content, None if there is no sound one."""
        if self.store is None:
            return None, None
        path = Path(self.store) / f"{place:08d}-{self._digest(place, chunk, key)}.statistics"
        return path, self._kept(path, place)

    def _digest(self, place: int, chunk: Any, key: bytes | None) -> str:
        """Identify a chunk's sums, which serve all values of `alpha` and `variant`."""
        s = self.settings
        others = [value for name, value in vars(self).items() if name not in ("settings", "store", "independent")]
        digest = hashlib.sha256(repr((lstd.__version__, s.gamma, s.lmbda, s.fit_intercept, *others)).encode())
        if callable(chunk):
            digest.update(key or key_of(chunk, place))
        elif isinstance(chunk, (str, os.PathLike)):
            about = status(chunk)
            digest.update(repr((os.fspath(chunk), about.st_size, about.st_mtime_ns)).encode())
        else:
            self.add_content(digest, place, chunk)
        return digest.hexdigest()[:32]

    def _kept(self, path: Path, place: int) -> Part | None:
        """Read sums from the store; None if the file is missing or damaged."""
        if not path.exists():
            return None

        def build(document: Mapping[str, Any], arrays: Mapping[str, NDArray[np.float64]]) -> Part:
            about = document["blocks"]
            prefixes = tuple(
                unpack_statistics(prefix, {name: arrays[f"prefix{i}_{name}"] for name in about["arrays"][i]})
                for i, prefix in enumerate(about["prefixes"])
            )
            more = {name: about[name] for name in ("limit", "size", "reason")}
            seen = None if about["seen"] is None else SeenIds.unpacked(about["seen"])
            blocks = Blocks(unpack_statistics(document, arrays), prefixes=prefixes, seen=seen, **more)
            return Part(blocks, place, place, ends=self.unpack_ends(document["ends"]))

        try:
            return read(path, {"statistics": build})
        except InvalidInputError as error:
            _LOG.warning("%s It is summed again.", error)
            return None

    def keep(self, path: Path | None, part: Part) -> None:
        """Write a chunk's sums to the store, if there is one."""
        if path is None:
            return
        blocks = part.blocks
        document, arrays = pack(blocks.total)
        prefixes = [pack(prefix) for prefix in blocks.prefixes]
        about = {name: getattr(blocks, name) for name in ("limit", "size", "reason")}
        about["seen"] = None if blocks.seen is None else blocks.seen.packed()
        about |= {"prefixes": [prefix for prefix, _ in prefixes], "arrays": [[*own] for _, own in prefixes]}
        arrays |= {f"prefix{i}_{name}": array for i, (_, own) in enumerate(prefixes) for name, array in own.items()}
        content = {**document, "blocks": about, "ends": part.ends and part.ends.packed()}
        write(path, "statistics", content, arrays)


def keyed(leaf: Leaf, chunks: Iterable[Any]) -> Iterator[tuple[int, Any, bytes | None]]:
    """Yield the arguments of a leaf for each chunk.

    The keys of functions are made here, where modules have their own names: a process that starts anew has another
    ``__main__``.
    """
    for place, chunk in enumerate(chunks):
        is_function = leaf.store is not None and callable(chunk) and not hasattr(chunk, "__dask_graph__")
        yield place, chunk, key_of(chunk, place) if is_function else None


def called(load: Any) -> Any:
    """Call a function without arguments; raises InvalidInputError when it fails."""
    try:
        return load()
    except LSTDError:
        raise
    except Exception as error:
        raise InvalidInputError(f"could not be loaded: {error!r:.500}.") from error


def status(path: str | os.PathLike[str]) -> os.stat_result:
    """Return size and modification time of a file; raises InvalidInputError when there is none."""
    try:
        return os.stat(path)
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"{os.fspath(path)} could not be read: {error}.") from error


def key_of(load: Any, place: int) -> bytes:
    """Return the key of a function in a store; raises InvalidInputError when it cannot be pickled."""
    try:
        return hashlib.sha256(pickled(load)).digest()
    except InvalidInputError as error:
        raise InvalidInputError(f"`source[{place}]`: {error}") from error


def pickled(value: Any) -> bytes:
    """Pickle a function or a list; raises InvalidInputError when that fails."""
    try:
        return pickle.dumps(value, protocol=5)
    except Exception as error:
        raise InvalidInputError(
            f"must be a function that can be pickled, by which a `store` identifies it ({error}). Pass a "
            "functools.partial of a function of a module, or a path."
        ) from error


def folder(store: str | os.PathLike[str] | None) -> str | None:
    """Return the full name of the folder `store`, which is made if it is missing.

    Raises InvalidInputError when it cannot be made.
    """
    if store is None:
        return None
    path = Path(os.path.abspath(checked_path(store, "store")))
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or error
        raise InvalidInputError(
            f"`store` must be a folder that can be written; got {str(store)!r} ({reason})."
        ) from error
    return str(path)
