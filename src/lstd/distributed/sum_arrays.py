"""Sums of a chunk of arrays, on a worker."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from lstd.data.arguments import shown
from lstd.data.broken_episodes import find_break
from lstd.data.check_rows import check_rows
from lstd.data.feature_arrays import column_names
from lstd.data.ids import EPISODE_AGAIN, same_id
from lstd.data.rows import ARGUMENTS, COLUMNS, Rows
from lstd.data.seen_ids import SeenIds, episodes_seen, group_key
from lstd.distributed.bounded_threads import Ahead
from lstd.distributed.store import keep, look_up, pickled, status
from lstd.distributed.sums import Leaf, Part, Task, called
from lstd.errors import InvalidInputError
from lstd.statistics.merging import LSTDStatistics

_TABLES = (".csv", ".csv.gz", ".parquet")


@dataclass(frozen=True)
class SumArrays(Leaf):
    """Sum one chunk of arrays; errors name its place."""

    ends_kind = SeenIds

    def parts(self, tasks: Iterable[Task], ahead: Ahead) -> Iterator[Part]:
        """Yield the sums of chunks in their order; each is summed in one thread."""
        return ahead.map(lambda task: self._part(*task), tasks)

    def _part(self, place: int, chunk: Any, key: bytes | None) -> Part:
        path, part = look_up(self, place, chunk, key)
        if part is None:
            part = self._summed(place, chunk)
            keep(path, part)
        return part

    def _summed(self, place: int, chunk: Any) -> Part:
        """Load, check and sum a chunk."""
        lmbda = self.settings.lmbda
        with naming(place):
            columns = columns_of(chunk)
            rows = self.rows(columns, summed=True)
            blocks = self.no_blocks(LSTDStatistics.empty_like(rows, lmbda))
            kept = replace(blocks, limit=self.limit_of(blocks, len(rows))).extended(rows, threads=1)
        broken = find_break(rows, lmbda)
        return Part(
            replace(kept, limit=blocks.limit),
            place,
            place,
            place if rows.assumed else None,
            broken and broken._replace(place=place),
            episodes_seen(rows, SeenIds()),
        )

    def rows(self, columns: Mapping[str, Any], *, summed: bool = False) -> Rows:
        """Check arrays by name, and add the column of ones; where `summed`, as sums alone need it."""
        rows = check_rows(**columns, gamma=self.settings.gamma, warn=False, finite=False, summed=summed)
        if not self.settings.fit_intercept:
            return rows
        return rows.with_intercept(self.settings.centre) if summed else rows.with_ones()

    def merge(self, one: Part, two: Part) -> Part:
        """Merge the sums over chunks that follow one another."""
        try:
            blocks = one.blocks.then(two.blocks, begins=True if self.independent else None)
        except InvalidInputError as error:
            raise InvalidInputError(f"`source[{one.last}]` and `source[{two.first}]`: {error}") from error
        ids = one.ends
        if not self.independent:
            first = two.blocks.total.first_episode
            goes_on = first is not None and same_id(one.blocks.total.last_episode, first)
            ids, again = ids.then(two.ends, group_key(first) if goes_on else None)
            if again is not None:
                raise InvalidInputError(
                    f"`source[{two.first}]`, or a chunk after it: `episode` {again} {EPISODE_AGAIN} With chunks of "
                    "whole episodes, `independent=True` allows it."
                )
        assumed = two.assumed if one.assumed is None else one.assumed
        return Part(blocks, one.first, two.last, assumed, one.broken or two.broken, ids)

    def add_content(self, digest: Any, place: int, chunk: Any) -> None:
        """Add arrays to a digest."""
        with naming(place):
            for name, values in columns_of(chunk).items():
                digest.update(f"{name} {column_names(name, values)}".encode())
                _add(digest, values)


@contextmanager
def naming(place: int) -> Iterator[None]:
    """Name a chunk in errors."""
    try:
        yield
    except InvalidInputError as error:
        raise InvalidInputError(f"`source[{place}]`: {error}") from error


def columns_of(chunk: Any) -> dict[str, Any]:
    """Load a chunk as arrays by name, the arguments of `LSTDStatistics.from_arrays`."""
    if callable(chunk):
        chunk = called(chunk)
    elif isinstance(chunk, (str, os.PathLike)):
        chunk = _read(chunk)
    if isinstance(chunk, tuple) and len(chunk) == 2:
        chunk = dict(zip(("X", "y"), chunk, strict=True))
    if not isinstance(chunk, Mapping):
        if hasattr(chunk, "__arrow_c_stream__"):
            raise InvalidInputError(f"a {type(chunk).__name__} has named columns; fit it with `lstd.fit_tables`.")
        raise InvalidInputError(
            "must be a mapping of arrays by name, (X, y), the path of an .npz file, or a function without arguments "
            f"that returns one of the first two; got {shown(chunk)}."
        )
    columns = {str(name): values for name, values in chunk.items()}
    unknown, missing = sorted(columns.keys() - {*ARGUMENTS}), sorted({"X", "y"} - columns.keys())
    if unknown or missing:
        raise InvalidInputError(
            f"must have `X` and `y`, and nothing but {', '.join(ARGUMENTS)}; got {sorted(columns)!r:.200}."
        )
    return columns


def _read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the arrays of an .npz file."""
    if os.fspath(path).lower().endswith(_TABLES):
        raise InvalidInputError(f"{os.fspath(path)} is a table; fit it with `lstd.fit_tables`.")
    status(path)
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except Exception as error:  # a damaged file raises errors of zipfile, zlib and NumPy
        raise InvalidInputError(f"{os.fspath(path)} must be an .npz file of numbers; {error!r:.200}.") from error


def _add(digest: hashlib._Hash, values: Any) -> None:
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


def first_rows(chunks: Iterator[Any], leaf: SumArrays, max_entries: int) -> Rows:
    """Join the first chunks of arrays, up to `max_entries` features in all, for a choice of settings.

    Episodes are numbered; without ids, an episode continues from chunk to chunk unless chunks are independent.
    """
    joined: dict[str, list[Any]] = {}
    entries, number, last, single = 0, 0, None, True
    for place, chunk in enumerate(chunks):
        with naming(place):
            columns = columns_of(chunk)
            rows = leaf.rows(columns)
        if not len(rows):
            continue
        size = min(len(rows), max(64, (max_entries - entries) // rows.n_features))
        begins = np.concatenate([[False], rows.last[:-1]])
        if place and joined:
            begins[0] = leaf.independent or not same_id(last, rows.first_episode) or joined["terminated"][-1][-1]
        episode = number + np.cumsum(begins)
        part = {
            "X": rows.X, "y": rows.y, "episode": episode, "terminated": rows.terminated, "X_next": rows.X_next,
            "groups": rows.groups, **{name: getattr(rows, name) for name in COLUMNS},
        }  # fmt: skip
        if joined and {name for name, value in part.items() if value is not None} != joined.keys():
            raise InvalidInputError("`X_next` and `groups` must be given for all chunks of a stream or for none.")
        for name, values in part.items():
            if values is not None:
                joined.setdefault(name, []).append(values[:size])
        number, last, single = int(episode[-1]), rows.last_episode, rows.single
        entries += size * rows.n_features
        if entries >= max_entries:
            break
    if not joined:
        raise InvalidInputError("`source` must hold at least one row to choose settings from; got none.")
    arrays = {name: _stacked(parts) for name, parts in joined.items()}
    y = arrays.pop("y")
    rows = check_rows(y=y[:, 0] if single else y, **arrays, gamma=leaf.settings.gamma, warn=False, finite=False)
    return replace(rows, assumed=False)


def _stacked(parts: list[Any]) -> Any:
    return sparse.vstack(parts, format="csr") if any(map(sparse.issparse, parts)) else np.concatenate(parts)
