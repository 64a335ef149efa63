"""Sums of chunks of arrays: a chunk in any of its forms is loaded, checked and summed, on a worker or in a thread."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lstd.data.arguments import shown
from lstd.data.check_rows import check_rows
from lstd.data.doubts import find_break
from lstd.data.ids import EPISODE_AGAIN
from lstd.data.rows import Rows
from lstd.data.seen_ids import SeenIds, episodes_seen
from lstd.distributed.chunk_sums import Part, SumChunks, Task, called, naming, status
from lstd.distributed.on_dask import CHUNK
from lstd.errors import InvalidInputError
from lstd.statistics.merging import LSTDStatistics
from lstd.statistics.threads import Ahead

_TABLES = (".csv", ".csv.gz", ".parquet")


@dataclass(frozen=True)
class SumArrays(SumChunks):
    """Sum one chunk of arrays; errors name its place."""

    def parts(self, tasks: Iterable[Task], ahead: Ahead) -> Iterator[Part]:
        """Yield the sums of chunks in their order; each is summed in one thread."""
        return ahead.map(lambda task: self._part(*task), tasks)

    def _part(self, place: int, chunk: Any) -> Part:
        """Load, check and sum a chunk."""
        lmbda = self.settings.lmbda
        with naming(place):
            rows = self.rows(columns_of(chunk), summed=True)
            blocks = self.no_blocks(LSTDStatistics.empty_like(rows, lmbda))
            limit = self.limit_of(blocks, len(rows))
            summed = replace(blocks, limit=limit).extended(rows, threads=1)
        broken = find_break(rows, lmbda)
        if broken is not None:
            broken = broken._replace(place=place)
        assumed = None
        if rows.assumed:
            assumed = place
        return Part(
            replace(summed, limit=blocks.limit),
            place,
            place,
            assumed=assumed,
            broken=broken,
            ends=episodes_seen(rows, SeenIds()),
        )

    def rows(self, columns: Mapping[str, Any], *, summed: bool = False) -> Rows:
        """Check arrays by name, and add the column of ones; where `summed`, as sums alone need it."""
        rows = check_rows(**columns, gamma=self.settings.gamma, warn=False, finite=False, summed=summed)
        if not self.settings.fit_intercept:
            return rows
        if not summed:
            return rows.with_ones()
        return rows.with_intercept(self.settings.centre)

    @property
    def begins(self) -> bool | None:
        """Whether each chunk begins an episode; None where its ids, or the row before, say so."""
        if self.independent:
            return True
        return None

    def merge(self, one: Part, two: Part) -> Part:
        """Merge the sums over chunks that follow one another."""
        with naming_both(one.last, two.first):
            blocks = one.blocks.then(two.blocks, begins=self.begins)
        ids = one.ends
        if not self.independent:
            ids, again = ids.then(two.ends, one.blocks.total.episode_shared_with(two.blocks.total))
            if again is not None:
                raise InvalidInputError(
                    f"`source[{two.first}]`, or a chunk after it: `episode` {again} {EPISODE_AGAIN} With chunks of "
                    "whole episodes, `independent=True` allows it."
                )
        assumed = one.assumed
        if assumed is None:
            assumed = two.assumed
        return Part(
            blocks,
            one.first,
            two.last,
            assumed=assumed,
            broken=one.broken or two.broken,
            ends=ids,
        )


@contextmanager
def naming_both(one: int, two: int) -> Iterator[None]:
    """Name two chunks, of which one follows the other, in errors."""
    try:
        yield
    except InvalidInputError as error:
        raise InvalidInputError(f"`source[{one}]` and `source[{two}]`: {error}") from error


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
    CHUNK.check(columns)
    if not {"X", "y"} <= columns.keys():
        raise InvalidInputError(f"must have `X` and `y`; got {sorted(columns)!r:.200}.")
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
