"""The folder `store=`: a file of sums for each chunk, named by a digest of the chunk and the settings."""

from __future__ import annotations

import hashlib
import logging
import os
import pickle
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from lstd.distributed.sums import Leaf, Part, Task
from lstd.errors import InvalidInputError
from lstd.files import checked_path, pack, read, unpack, write
from lstd.statistics.blocks import Blocks
from lstd.version import __version__

_LOG = logging.getLogger("lstd")


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


def keyed(leaf: Leaf, chunks: Iterable[Any]) -> Iterator[Task]:
    """Yield the arguments of a leaf for each chunk.

    The keys of functions are computed in this process: in a worker, functions of a script belong to another
    ``__main__``, which gives them another pickle.
    """
    for place, chunk in enumerate(chunks):
        is_function = leaf.store is not None and callable(chunk) and not hasattr(chunk, "__dask_graph__")
        yield place, chunk, key_of(chunk, place) if is_function else None


def look_up(leaf: Leaf, place: int, chunk: Any, key: bytes | None) -> tuple[Path | None, Part | None]:
    """Return the file of a chunk's sums, None without a store, and its content, None if there is no sound one."""
    if leaf.store is None:
        return None, None
    path = Path(leaf.store) / f"{place:08d}-{_digest(leaf, place, chunk, key)}.statistics"
    return path, _kept(leaf, path, place)


def _digest(leaf: Leaf, place: int, chunk: Any, key: bytes | None) -> str:
    """Identify a chunk's sums, which serve all values of `alpha` and `variant`."""
    s = leaf.settings
    others = [value for name, value in vars(leaf).items() if name not in ("settings", "store", "independent")]
    digest = hashlib.sha256(repr((__version__, s.gamma, s.lmbda, s.fit_intercept, *others)).encode())
    if callable(chunk):
        digest.update(key or key_of(chunk, place))
    elif isinstance(chunk, (str, os.PathLike)):
        about = status(chunk)
        digest.update(repr((os.fspath(chunk), about.st_size, about.st_mtime_ns)).encode())
    else:
        leaf.add_content(digest, place, chunk)
    return digest.hexdigest()[:32]


def _kept(leaf: Leaf, path: Path, place: int) -> Part | None:
    """Read sums from the store; None if the file is missing or damaged."""
    if not path.exists():
        return None

    def build(document: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Part:
        ends = unpack(leaf.ends_kind, document["ends"], {})
        return Part(unpack(Blocks, document, arrays), place, place, ends=ends)

    try:
        return read(path, {"sums": build})
    except InvalidInputError as error:
        _LOG.warning("%s It is summed again.", error)
        return None


def keep(path: Path | None, part: Part) -> None:
    """Write a chunk's sums to the store, if there is one."""
    if path is not None:
        (document, arrays), (ends, _) = pack(part.blocks), pack(part.ends)
        write(path, "sums", {**document, "ends": ends}, arrays)


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
