"""Sums of consecutive chunks: what a worker returns, how neighbours are merged, and the folder that keeps them."""

from __future__ import annotations

import hashlib
import logging
import os
import pickle
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import lstd
from lstd.data.seen import SeenIds
from lstd.data.settings import Settings
from lstd.errors import InvalidInputError, LSTDError
from lstd.io.archive import read, write
from lstd.io.files import checked_path
from lstd.statistics.blocks import Blocks
from lstd.statistics.packing import pack, texts
from lstd.statistics.statistics import unpack_statistics

_LOG = logging.getLogger("lstd")
_SHARE = 8  # of a chunk's memory that the blocks kept of it may take, and of `memory` that all blocks may
_FEWEST_BLOCKS, _SMALL = 5, 2**16  # blocks of any chunk; entries of their matrices that need no saving


@dataclass(frozen=True)
class Part:
    """Sums over consecutive chunks, and the places of data to warn about."""

    blocks: Blocks
    first: int  # place of the first chunk
    last: int
    assumed: int | None = None  # a chunk with `episode` and without `terminated`
    broken: tuple[int, int] | None = None  # a chunk and its row that does not follow the row before it
    ends: Any = None  # the rows at both ends of tables, for rules that concern rows of two tables
    names: tuple[str, ...] | None = None  # of the features, where `X` is a data frame


@dataclass(frozen=True)
class Leaf:
    """Sum one chunk on a worker; with a store, read its sums from there or add them."""

    settings: Settings
    n_blocks: Any  # an integer or "auto"
    memory: int  # bytes; an eighth of it bounds the blocks that "auto" keeps
    store: str | None  # full name of a folder
    independent: bool  # each chunk begins a new episode

    def __call__(self, place: int, chunk: Any, key: bytes | None = None) -> Part:
        """Sum a chunk; `key` identifies a function in the store."""
        if self.store is None:
            return self.summed(place, chunk)
        path = Path(self.store) / f"{place:08d}-{self._digest(place, chunk, key)}.statistics"
        part = self._kept(path, place)
        if part is None:
            part = self.summed(place, chunk)
            self._keep(path, part)
        return part

    @abstractmethod
    def summed(self, place: int, chunk: Any) -> Part:
        """Load, check and sum a chunk."""

    @abstractmethod
    def merge(self, one: Part, two: Part) -> Part:
        """Merge the sums over chunks that follow one another."""

    @abstractmethod
    def add_content(self, digest: Any, place: int, chunk: Any) -> None:
        """Add the content of a chunk that is neither a function nor a path to a digest."""

    def pack_ends(self, ends: Any) -> Any:
        """Return a document of `Part.ends`."""

    def unpack_ends(self, document: Any) -> Any:
        """Return the `Part.ends` of a document."""

    @property
    def block_bytes(self) -> int:
        """Bytes that all blocks of a part may take."""
        return self.memory // _SHARE

    def few_blocks(self, blocks: Blocks) -> Blocks:
        """Thin the blocks of a chunk until their matrices take at most an eighth of the memory of its rows."""
        n, n_rows = blocks.total.n_features, blocks.total.n_rows
        return blocks.thinned(max(_FEWEST_BLOCKS, n_rows // (2 * _SHARE * n), _SMALL // n**2))

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
            more = {name: about[name] for name in ("limit", "size", "by_episode", "reason")}
            seen = None if about["seen"] is None else SeenIds.unpacked(about["seen"])
            blocks = Blocks(unpack_statistics(document, arrays), prefixes=prefixes, seen=seen, **more)
            names = None if document["names"] is None else texts(document["names"])
            return Part(blocks, place, place, ends=self.unpack_ends(document["ends"]), names=names)

        try:
            return read(path, {"statistics": build})
        except InvalidInputError as error:
            _LOG.warning("%s It is summed again.", error)
            return None

    def _keep(self, path: Path, part: Part) -> None:
        blocks = part.blocks
        document, arrays = pack(blocks.total)
        prefixes = [pack(prefix) for prefix in blocks.prefixes]
        about = {name: getattr(blocks, name) for name in ("limit", "size", "by_episode", "reason")}
        about["seen"] = None if blocks.seen is None else blocks.seen.packed()
        about |= {"prefixes": [prefix for prefix, _ in prefixes], "arrays": [[*own] for _, own in prefixes]}
        arrays |= {f"prefix{i}_{name}": array for i, (_, own) in enumerate(prefixes) for name, array in own.items()}
        content = {**document, "blocks": about, "ends": self.pack_ends(part.ends), "names": part.names}
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
