"""Recorded rows learned one transition at a time, as a stream that goes on from call to call."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd._kernels import online_step as kernels
from lstd._kernels.online_state import DONE, GOES_ON, IS_CUT, TERMINATES, WAITS
from lstd.data.parsing import same_id
from lstd.data.rows import Rows
from lstd.data.seen_ids import episodes_seen
from lstd.errors import InvalidInputError
from lstd.online.one_transition import OpenEnd, compiled, numbers_of, row_of
from lstd.online.recursion import Recursion
from lstd.types import Array

ENTRIES_AT_ONCE = 2**20  # of features, converted at a time


def learn(model: Any, rows: Rows, predictions: Array | None) -> None:
    """Learn from at least one row, or from none if one of them is refused; see `_learned`."""
    kept, bank = {**vars(model)}, None if model._bank is None else copy.deepcopy(model._bank.state)
    cores = [core.kept() for core in model._cores]
    before = model._end_before
    same = model._end is not None and same_id(model._end.episode, rows.first_episode)
    episodes = episodes_seen(rows, model._episodes, continues=same)
    try:
        if before is not None and not before.goes_on(rows):
            before = None
            model.cut_off()
        model._end, model._episodes = _learned(model, rows, before, predictions), episodes
    except BaseException:
        model.__dict__.update(kept)
        for core, old in zip(model._cores, cores, strict=True):
            core.__setstate__(old)
        if model._bank is not None and bank is not None:
            model._bank.restore(bank)
        raise


def _learned(model: Any, rows: Rows, before: OpenEnd | None, predictions: Array | None) -> OpenEnd | None:
    """Update an estimator with rows, the first of which goes on after `before`; return their end.

    `predictions` (T, m + 2) is filled with those for each row before its transition is learned, with the drift, and
    with the number of changes so far.
    """
    (kinds, t), m = (_kinds(rows), 0), rows.y.shape[1]
    model.next_row = 0
    if before is not None and not before.row.complete:
        with _named(rows, -1):
            model.update(x_next=row_of(rows.X, 0), **before.arguments(rows.single))
    asked = np.empty((0, m + 2)) if predictions is None else predictions
    while t < len(rows):
        part = slice(t, min(len(rows), t + max(1, ENTRIES_AT_ONCE // rows.n_features)))
        block = None if sparse.issparse(rows.X) else block_of(rows, kinds, part)
        while t < part.stop:
            if block is not None and model.alone is not None:
                t = part.start + learn_block(model, model.alone, block, t - part.start, asked[part], part.start)
            if t < part.stop:
                if predictions is not None:
                    predictions[t, :m] = model.predict(row_of(rows.X, t))
                    predictions[t, m:] = model.drift_, model.n_changes_
                model.next_row = t + 1
                _learn_row(model, rows, kinds, t)
                t += 1
    return OpenEnd.of(rows, model.n_updates)


def learn_block(
    model: Any, core: Recursion, block: tuple[NDArray[Any], ...], first: int, predictions: Array, start: int = 0
) -> int:  # fmt: skip
    """Learn the rows of a block from `first` on; returns the row at which :meth:`update` must go on.

    The block begins with the row `start` of recorded rows.
    """
    compiled(kernels, "stream")
    while first < len(block[0]):
        before = first
        first, code = kernels.stream(*block, first, predictions, *core.arrays)
        predictions[before:first, -1] = model.n_changes_
        if code < DONE:
            break
        if code != DONE:
            model.next_row = start + int(first)
            model.after(core)
    return int(first)


def _kinds(rows: Rows) -> NDArray[np.int8]:
    """Return what follows each row: `GOES_ON`, `TERMINATES`, `IS_CUT` or, in the last row, `WAITS`.

    Without `X_next` a horizon row is where its episode `IS_CUT`: its own prediction is made before that is known, in
    one chunk as in several.
    """
    kinds = np.where(rows.last, IS_CUT, GOES_ON).astype(np.int8)
    kinds[-1] = WAITS if rows.X_next is None else GOES_ON
    kinds[rows.terminated] = TERMINATES
    return kinds


def block_of(rows: Rows, kinds: NDArray[np.int8], part: slice) -> tuple[NDArray[Any], ...]:
    """Return dense rows as the kernel `stream` takes them: X, X_next, y, numbers and kinds."""
    successors = rows.X[part.start + 1 : part.stop + 1] if rows.X_next is None else rows.X_next[part]
    X, X_next, y = (np.ascontiguousarray(values, np.float64) for values in (rows.X[part], successors, rows.y[part]))
    columns = rows.discount, rows.importance_ratio, rows.weight, rows.trace_coefficient
    return X, X_next, y, np.column_stack([column[part] for column in columns]), kinds[part]


def _learn_row(model: Any, rows: Rows, kinds: NDArray[np.int8], t: int) -> None:
    """Learn one row by `update`; a horizon row cuts its episode off, unless the next chunk may continue it."""
    if rows.X_next is None and kinds[t] >= WAITS:
        if kinds[t] == IS_CUT:
            model.cut_off()
        return
    terminated, x_next = bool(kinds[t] == TERMINATES), None
    if not terminated:
        x_next = row_of(rows.X, t + 1) if rows.X_next is None else row_of(rows.X_next, t)
    ends = {"terminated": terminated, "truncated": bool(kinds[t] == IS_CUT)}
    with _named(rows, t):
        model.update(x=row_of(rows.X, t), x_next=x_next, **ends, **numbers_of(rows, t))


@contextlib.contextmanager
def _named(rows: Rows, t: int) -> Iterator[None]:
    """Name the row in errors of its transition; -1 is the last row of the chunk before."""
    try:
        yield
    except InvalidInputError as error:
        text = str(error)
        successor = f"X[{t + 1}]" if rows.X_next is None else f"X_next[{t}]"
        for name, place in (("`x_next`", successor), ("`x`", f"X[{t}]")):
            if text.startswith(name):
                raise InvalidInputError(text.replace(name, f"`{place}`", 1)) from error
        raise InvalidInputError(f"{f'At row {t}' if t >= 0 else 'At the last row before'}: {text}") from error
