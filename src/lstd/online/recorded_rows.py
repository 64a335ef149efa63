"""Recorded rows learned one transition at a time, as a stream that goes on from call to call."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd._kernels import online_step as kernels
from lstd._kernels.online_state import DONE, GOES_ON, IS_CUT, PLACES, TERMINATES, WAITS
from lstd.data.follow import follows, has_same_episode
from lstd.data.rows import Rows
from lstd.data.seen_ids import episodes_seen
from lstd.errors import InvalidInputError
from lstd.online.forgetting import RateBank
from lstd.online.one_transition import OnlinePredictor, Transition, compiled, row_of
from lstd.online.recursion import Recursion
from lstd.types import Array

ENTRIES_AT_ONCE = 2**20  # of features, converted at a time

Block = tuple[NDArray[Any], ...]  # dense rows as the kernel `stream` takes them: X, X_next, y, numbers and kinds
Name = Callable[[int], str] | None  # of recorded rows, in warnings


class RowLearner(OnlinePredictor):
    """An online estimator that learns recorded rows: one or several recursions, of which one may learn alone."""

    alpha: float | Array
    _cores: list[Recursion]
    _bank: RateBank | None  # that chooses among several recursions
    _warned: bool  # of a jump
    _beyond: Array  # (4, m), see `warn_of_bounds`
    alone: Recursion | None  # that learns by compiled kernels, if it is the only one
    n_changes_: int

    @property
    @abstractmethod
    def arrays(self) -> list[NDArray[Any]]:
        """The arrays that change in place, but for the buffers."""

    @property
    @abstractmethod
    def drift_(self) -> float:
        """Size of recent errors over the largest that the stream's own history allows."""

    @abstractmethod
    def learn(self, given: Transition, name: Name = None, t: int = 0) -> None:
        """Learn from a checked transition, to a row that warnings call `name(t)`."""

    @abstractmethod
    def cut_off(self) -> None:
        """Cut the episode off at the last successor."""

    @abstractmethod
    def after(self, core: Recursion, name: Name = None, t: int = 0) -> None:
        """Do what is due after a transition of a recursion, to a row that warnings call `name(t)`."""


def learn(model: RowLearner, rows: Rows, before_rows: Array | None, name: Name) -> None:
    """Learn from at least one row, or from none if one of them is refused.

    `before_rows` (T, m + 2) is filled with the predictions for each row before its transition is learned, with the
    drift, and with the number of changes so far.
    """
    before = model._row_before
    goes_on = before is not None and follows(before, rows)
    same = goes_on
    if before is None and model._last is not None:  # an update replaced the transition
        same = not model._last.terminated[-1] and has_same_episode(model._last, rows)
    episodes = episodes_seen(rows, model._episodes, continues=same)
    state = _State(model)
    try:
        if before is not None and goes_on and rows.X_next is None:
            try:
                model.learn(Transition.between(before, rows), name)
            except InvalidInputError as error:
                raise _named(error, rows, -1) from error
        elif before is not None and not (goes_on or before.terminated[-1]):
            model.cut_off()
        size = max(1, ENTRIES_AT_ONCE // rows.n_features)
        for first in range(0, len(rows), size):
            _learn_part(model, rows, slice(first, min(first + size, len(rows))), before_rows, name)
        model._keep_last(rows)
        model._episodes = episodes
    except BaseException:
        state.restore()
        raise


class _State:
    """The state of an estimator before it learns rows."""

    def __init__(self, model: RowLearner) -> None:
        self._objects = (model, *model._cores)
        self._values = [{**vars(each)} for each in self._objects]
        self._arrays = model.arrays
        self._copies = [array.copy() for array in self._arrays]
        for core in model._cores:
            core.keeps_buffer = True

    def restore(self) -> None:
        """Give the estimator this state again."""
        for each, values in zip(self._objects, self._values, strict=True):
            each.__dict__.update(values)
        for array, old in zip(self._arrays, self._copies, strict=True):
            array[:] = old


def _learn_part(model: RowLearner, rows: Rows, part: slice, before_rows: Array | None, name: Name) -> None:
    """Learn some of the rows: dense ones by the kernel `stream`, but for those before which it stops."""
    kinds = _kinds(rows, part)
    m = rows.y.shape[1]
    filled = np.empty((0, m + 2))
    if before_rows is not None:
        filled = before_rows[part]
    core = None
    block = None
    if model.alone is not None and not sparse.issparse(rows.X):
        core = model.alone
        block = block_of(rows, kinds, part)
    t = part.start
    while t < part.stop:
        if core is not None and block is not None:
            t = part.start + learn_block(model, core, block, t - part.start, filled, name, part.start)
        if t < part.stop:
            if before_rows is not None:
                before_rows[t, :m] = model.predict(row_of(rows.X, t))
                before_rows[t, m] = model.drift_
                before_rows[t, m + 1] = model.n_changes_
            try:
                _learn_row(model, rows, kinds[t - part.start], t, name)
            except InvalidInputError as error:
                raise _named(error, rows, t) from error
            t += 1


def learn_block(
    model: RowLearner, core: Recursion, block: Block, first: int, before_rows: Array, name: Name = None, start: int = 0
) -> int:
    """Learn the rows of a block from `first` on by the only recursion; returns the row that is to be learned by itself.

    The block begins with the row `start` of recorded rows.
    """
    compiled(kernels, "stream")
    while first < len(block[0]):
        before = first
        first, code = kernels.stream(*block, first, before_rows, *core.arrays)
        before_rows[before:first, -1] = model.n_changes_
        if code < DONE:
            break
        if code != DONE:
            model.after(core, name, start + int(first))
    return int(first)


def _kinds(rows: Rows, part: slice) -> NDArray[np.int8]:
    """Return what follows each row: `GOES_ON`, `TERMINATES`, `IS_CUT` or, in the last row of all, `WAITS`.

    Without `X_next` a horizon row is where its episode `IS_CUT`: its own prediction is made before that is known, in
    one chunk as in several.
    """
    kinds = np.full(part.stop - part.start, GOES_ON, np.int8)
    kinds[rows.last[part]] = IS_CUT
    if part.stop == len(rows):
        kinds[-1] = WAITS if rows.X_next is None else GOES_ON
    kinds[rows.terminated[part]] = TERMINATES
    return kinds


def block_of(rows: Rows, kinds: NDArray[np.int8], part: slice) -> Block:
    """Return some dense rows as a block."""
    successors = rows.X[part.start + 1 : part.stop + 1]
    if rows.X_next is not None:
        successors = rows.X_next[part]
    X = np.ascontiguousarray(rows.X[part], np.float64)
    X_next = np.ascontiguousarray(successors, np.float64)
    y = np.ascontiguousarray(rows.y[part], np.float64)
    columns = np.empty((len(X), len(PLACES)))
    for k, name in enumerate(PLACES):
        columns[:, k] = getattr(rows, name)[part]
    return X, X_next, y, columns, kinds


def _learn_row(model: RowLearner, rows: Rows, kind: int, t: int, name: Name) -> None:
    """Learn one row; a horizon row cuts its episode off, unless the next chunk may continue it."""
    if rows.X_next is not None or kind < WAITS:
        model.learn(Transition.of_row(rows, t), name, t + 1)
    if kind == IS_CUT:
        model.cut_off()


def _named(error: InvalidInputError, rows: Rows, t: int) -> InvalidInputError:
    """Name the row in an error of its transition; -1 is the last row of the chunk before."""
    text = str(error)
    successor = f"X_next[{t}]"
    if rows.X_next is None:
        successor = f"X[{t + 1}]"
    for name, place in (("`x_next`", successor), ("`x`", f"X[{t}]")):
        if text.startswith(name):
            return InvalidInputError(text.replace(name, f"`{place}`", 1))
    place = "At the last row before"
    if t >= 0:
        place = f"At row {t}"
    return InvalidInputError(f"{place}: {text}")
