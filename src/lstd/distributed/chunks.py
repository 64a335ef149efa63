"""From a chunk of data to its statistics, on a worker: load, check, sum, and keep what is done in a folder."""

from __future__ import annotations

import hashlib
import logging
import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from scipy import sparse

import lstd
from lstd.data.rows import Rows, check_rows, first_break
from lstd.errors import InvalidInputError, LSTDError
from lstd.statistics.statistics import LSTDStatistics
from lstd.statistics.threads import one_blas_thread

if TYPE_CHECKING:
    from lstd.distributed.ends import Ends

_TABLES = (".csv", ".csv.gz", ".parquet")
COLUMNS = ("X", "y", "episode", "terminated", "X_next", "discount", "importance_ratio")

T = TypeVar("T")
_LOG = logging.getLogger("lstd")


@dataclass(frozen=True)
class Part:
    """Statistics of consecutive chunks, and what there is to warn of."""

    statistics: LSTDStatistics
    first: int  # place of the first chunk
    last: int
    assumed: int | None = None  # a chunk with `episode` and without `terminated`
    broken: tuple[int, int] | None = None  # a chunk and its row that does not follow the row before it
    ends: Ends | None = None  # of tables


class Leaf(Protocol):
    """What chunks are summed with, on workers."""

    @property
    def store(self) -> str | None: ...

    def __call__(self, place: int, chunk: Any, key: bytes | None = None) -> Part: ...


def keyed(leaf: Leaf, chunks: Iterable[Any]) -> Iterator[tuple[int, Any, bytes | None]]:
    """What a leaf is called with for each chunk.

    Of functions the key is made here, where modules have their own names: a process that begins anew has another
    ``__main__``.

    Raises
    ------
    InvalidInputError
        When there is a store, and a function has no pickle; the message names its place.
    """
    for place, chunk in enumerate(chunks):
        here = leaf.store is not None and callable(chunk) and not hasattr(chunk, "__dask_graph__")
        try:
            key = key_of(chunk) if here else None
        except InvalidInputError as error:
            raise InvalidInputError(f"`chunks[{place}]`: {error}") from error
        yield place, chunk, key


@dataclass(frozen=True)
class Summing:
    """What chunks are summed with; called with a chunk and its place it gives the chunk's statistics.

    With a store, statistics that are in it are read, and others are added to it.
    """

    gamma: float
    lmbda: float
    fit_intercept: bool
    store: str | None

    def __call__(self, place: int, chunk: Any, key: bytes | None = None) -> Part:
        """Statistics of a chunk, by whose `key` the store knows a function; errors name its place."""
        try:
            kept = None
            if self.store is not None:
                kept = Path(self.store) / f"{place:08d}-{self._digest(chunk, key)}.statistics"
            found = None if kept is None else found_in_store(kept, LSTDStatistics.load)
            if found is not None:
                return Part(found, place, place)
            part = self._summed(place, _columns(chunk))
            if kept is not None:
                part.statistics.save(kept)
            return part
        except InvalidInputError as error:
            raise InvalidInputError(f"`chunks[{place}]`: {error}") from error

    def _summed(self, place: int, columns: dict[str, Any]) -> Part:
        with one_blas_thread():  # sums of other numbers of threads may differ in the last bit
            rows = check_rows(**columns, gamma=self.gamma, warn=False, finite=False)
            rows = with_ones(rows) if self.fit_intercept else rows
            found = LSTDStatistics.from_rows(rows, self.lmbda, threads=1)
        row = None if self.lmbda == 0.0 or rows.X_next is None else first_break(rows)
        return Part(found, place, place, place if rows.assumed else None, None if row is None else (place, row))

    def _digest(self, chunk: Any, key: bytes | None) -> str:
        digest = hashlib.sha256(repr((lstd.__version__, self.gamma, self.lmbda, self.fit_intercept)).encode())
        if callable(chunk):
            digest.update(key or key_of(chunk))
        elif isinstance(chunk, (str, os.PathLike)):
            found = status(chunk)
            digest.update(repr((os.fspath(chunk), found.st_size, found.st_mtime_ns)).encode())
        else:
            for name, values in _columns(chunk).items():
                digest.update(name.encode())
                _add(digest, values)
        return digest.hexdigest()[:32]


def merge(one: Part, two: Part, *, ordered: bool) -> Part:
    """Two parts that follow one another, as one stream or as independent data."""
    if one.ends is not None and two.ends is not None:
        found, ends = one.ends.merged(one.statistics, two.statistics, two.ends, ordered=ordered)
        return Part(found, one.first, two.last, ends=ends)
    try:
        both = one.statistics.then(two.statistics) if ordered else one.statistics + two.statistics
    except InvalidInputError as error:
        raise InvalidInputError(f"`chunks[{one.last}]` and `chunks[{two.first}]`: {error}") from error
    assumed = two.assumed if one.assumed is None else one.assumed
    return Part(both, one.first, two.last, assumed, one.broken or two.broken)


def found_in_store(path: Path, load: Callable[[Path], T]) -> T | None:
    """What a file of the store holds; nothing where it is missing or damaged: then it is made again and replaced."""
    if not path.exists():
        return None
    try:
        return load(path)
    except InvalidInputError as error:
        _LOG.warning("%s It is summed again.", error)
        return None


def _columns(chunk: Any) -> dict[str, Any]:
    """The arguments of `LSTDStatistics.from_arrays` that a chunk stands for."""
    if callable(chunk):
        chunk = called(chunk)
    elif isinstance(chunk, (str, os.PathLike)):
        chunk = _read(chunk)
    if isinstance(chunk, tuple) and len(chunk) == 2:
        chunk = dict(zip(("X", "y"), chunk, strict=True))
    if not isinstance(chunk, Mapping):
        if hasattr(chunk, "__arrow_c_stream__"):
            raise InvalidInputError(f"a {type(chunk).__name__} is a table; name its columns, as `reward`.")
        raise InvalidInputError(
            "must be a mapping of arrays by name, (X, y), the path of an .npz file, or a function without arguments "
            f"that returns one of the first two; got {chunk!r:.80}."
        )
    columns = {str(name): values for name, values in chunk.items()}
    unknown, missing = sorted(columns.keys() - set(COLUMNS)), sorted({"X", "y"} - columns.keys())
    if unknown or missing:
        raise InvalidInputError(
            f"must have `X` and `y`, and nothing but {', '.join(COLUMNS)}; got {sorted(columns)!r:.200}."
        )
    return columns


def called(load: Any) -> Any:
    """What a function without arguments returns; raises InvalidInputError when it fails."""
    try:
        return load()
    except LSTDError:
        raise
    except Exception as error:
        raise InvalidInputError(f"could not be loaded: {error!r:.500}.") from error


def _read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The arrays of an .npz file."""
    if os.fspath(path).lower().endswith(_TABLES):
        raise InvalidInputError(f"{os.fspath(path)} is a table; name its columns, as `reward`.")
    status(path)
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except Exception as error:  # of a damaged file, zipfile, zlib and NumPy raise what they like
        raise InvalidInputError(f"{os.fspath(path)} must be an .npz file of numbers; {error!r:.200}.") from error


def status(path: str | os.PathLike[str]) -> os.stat_result:
    """Size and time of change of a file; raises InvalidInputError when there is none."""
    try:
        return os.stat(path)
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"{os.fspath(path)} could not be read: {error}.") from error


def key_of(load: Any) -> bytes:
    """By what a store knows a function; raises InvalidInputError when it cannot."""
    return hashlib.sha256(pickled(load)).digest()


def pickled(load: Any) -> bytes:
    """The pickle of a function; raises InvalidInputError when it has none."""
    try:
        return pickle.dumps(load, protocol=5)
    except Exception as error:
        raise InvalidInputError(
            f"must be a function that can be pickled, for a `store` to know it again ({error}). Pass a "
            "functools.partial of a function of a module, or a path."
        ) from error


def _add(digest: Any, values: Any) -> None:
    """Add an array, dense or sparse, to a digest."""
    if sparse.issparse(values):
        digest.update(f"{values.format} {values.shape}".encode())
        values = values.tocsr()
        for array in (values.data, values.indices, values.indptr):
            _add(digest, array)
        return
    array = np.asarray(values)
    digest.update(f"{array.dtype} {array.shape}".encode())
    if array.dtype.kind == "O":
        digest.update(pickled(array.tolist()))
    else:
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def with_ones(rows: Rows) -> Rows:
    """Rows with a column of ones behind their features."""
    return replace(rows, X=_beside_ones(rows.X), X_next=None if rows.X_next is None else _beside_ones(rows.X_next))


def _beside_ones(phi: Any) -> Any:
    ones = np.ones((phi.shape[0], 1))
    return sparse.hstack([phi, ones], format="csr") if sparse.issparse(phi) else np.hstack([phi, ones])
