"""Snapshots of a recursive estimator: flat mappings of arrays, which `numpy.savez` writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from lstd._kernels import online_state as at
from lstd.data.rows import Rows
from lstd.errors import InvalidInputError
from lstd.files import BROKEN, json_bytes, pack, unpack
from lstd.online.forgetting import Choice
from lstd.online.recorded_rows import RowLearner
from lstd.online.recursion import Recursion
from lstd.statistics.blocks import Blocks
from lstd.types import Array

L = TypeVar("L", bound=RowLearner)

VERSION = 19
_PARAMETERS = ("gamma", "lmbda", "forgetting", "n_rewards", "n_blocks", "check_every", "variant")
_STATIC = slice(at.FEATURES, at.ROTATION + 1)  # counts that follow from the parameters
_FINITE = [at.TRACE, at.NEXT, at.RIDGE, at.ALPHA]


class CoreState(NamedTuple):
    """State of a recursion."""

    state: Annotated[Array, "r c nan"]
    numbers: Annotated[Array, "_ nan"]
    counts: Annotated[NDArray[np.int64], "_"]
    buffer: Annotated[Array, "_ w"]
    blocks: Blocks
    warned: bool


class State(NamedTuple):
    """Everything that a snapshot holds, but for its version."""

    gamma: float
    lmbda: float
    forgetting: float | str
    n_rewards: int | None
    n_blocks: int | str
    check_every: int
    alpha: Annotated[Array, "a"]
    variant: str
    warned: bool
    beyond: Annotated[Array, "4 m"]
    cores: tuple[CoreState, ...]
    choice: Choice | None
    last: Rows | None  # the last row of `partial_fit`, unless an update came after it


def _not_a_snapshot(why: str) -> InvalidInputError:
    """Make the error for arrays that are not a snapshot."""
    return InvalidInputError(
        f"`snapshot` must be a result of RecursiveLSTD.snapshot; {why}. Take it again with this version."
    )


def snapshot_of(model: RowLearner) -> dict[str, NDArray[Any]]:
    """Return the arrays of an estimator's state, copies of its own."""
    choice = None
    if model._bank is not None:
        choice = model._bank.state
    state = State(
        **{name: getattr(model, name) for name in _PARAMETERS},
        alpha=np.atleast_1d(np.array(model.alpha, np.float64)),
        warned=model._warned,
        beyond=model._beyond,
        cores=tuple(map(_core_state, model._cores)),
        choice=choice,
        last=model._row_before,
    )
    document, arrays = pack(state)
    text = np.array(json_bytes(document).decode())
    return {"version": np.array(VERSION), "document": text} | {name: array.copy() for name, array in arrays.items()}


def restored(kind: Callable[..., L], snapshot: Mapping[str, Any]) -> L:
    """Return the estimator of a snapshot, which may come from a file; raises InvalidInputError if it does not fit."""
    state = _unpacked(snapshot)
    if not state.cores:
        raise _not_a_snapshot("it has no recursion")
    n = state.cores[-1].blocks.total.n_features
    alpha: float | Array = state.alpha
    if len(state.alpha) == 1:
        alpha = float(state.alpha[0])
    parameters = {name: getattr(state, name) for name in _PARAMETERS}
    model = kind(n, alpha=alpha, **parameters)
    if len(state.cores) != len(model._cores) or (state.choice is None) != (model._bank is None):
        raise _not_a_snapshot("its recursions are not those of its parameters")
    for core, saved in zip(model._cores, state.cores, strict=True):
        _restore_core(core, saved)
    if model._bank is not None and state.choice is not None:
        try:
            model._bank.restore(state.choice)
        except ValueError as error:
            raise _not_a_snapshot(str(error)) from error
    m = model.n_rewards or 1
    if state.last is not None and (len(state.last), state.last.n_features, state.last.y.shape[1]) != (1, n, m):
        raise _not_a_snapshot(f"its last row is not one of {n} features and {m} rewards")
    model._last = state.last
    model._n_updates_then = model.n_updates
    model._warned = state.warned
    model._beyond = np.array(state.beyond)
    return model


def _unpacked(snapshot: Mapping[str, Any]) -> State:
    """Return the state of the arrays of `snapshot_of`, or of a file of these; raises InvalidInputError for others."""
    try:
        own = {"version", "document", *State._fields}  # a file may hold other arrays beside
        arrays = {name: np.asarray(snapshot[name]) for name in snapshot if name.partition(".")[0] in own}
        version = arrays.pop("version")
        document = arrays.pop("document")
    except Exception as error:  # no mapping at all, or a file that is damaged
        raise _not_a_snapshot(f"its arrays cannot be read ({type(error).__name__}: {error})") from error
    if version.shape != () or version.dtype.kind not in "iu" or version != VERSION:
        raise _not_a_snapshot(f"its version is {version!s:.20}, not {VERSION}")
    try:
        return unpack(State, json.loads(str(document)), arrays)
    except (*BROKEN, InvalidInputError) as error:
        raise _not_a_snapshot(f"its content is not one ({type(error).__name__}: {error})") from error


def _core_state(core: Recursion) -> CoreState:
    """Return the state of a recursion."""
    rows = core.buffer[: core.counts[at.BUFFERED]]
    state = core.state.copy()
    numbers = core.numbers.copy()
    state[at.PHI : at.THETA] = 0.0  # scratch
    numbers[at.DOTS :] = 0.0
    return CoreState(state, numbers, core.counts, rows, core.blocks, core.warned)


def _restore_core(core: Recursion, saved: CoreState) -> None:
    """Let a new recursion go on from a state, which may come from a file; raises InvalidInputError if it cannot."""
    n = core.n
    m = core.m
    total = saved.blocks.total
    arrays = [(core.state, saved.state), (core.numbers, saved.numbers), (core.counts, saved.counts)]
    has_shapes = all(own.shape == other.shape for own, other in arrays)
    if not has_shapes or (total.n_features, total.b.shape[1]) != (n, m):
        raise _not_a_snapshot(f"its arrays are not those of {n} features and {m} rewards")
    if not (_counts_fit(core, saved) and _buffer_fits(core, saved) and _numbers_fit(core, saved)):
        raise _not_a_snapshot("its numbers do not fit one another")
    for own, other in arrays:
        own[:] = other
    core.buffer[: len(saved.buffer)] = saved.buffer
    core.blocks = saved.blocks
    core.warned = saved.warned


def _counts_fit(core: Recursion, saved: CoreState) -> bool:
    """Return whether counts are those of the parameters, and in range."""
    counts = saved.counts
    is_static = bool((counts[_STATIC] == core.counts[_STATIC]).all())
    in_range = bool((counts >= 0).all()) and counts[at.INTERVAL] >= 1
    waits = counts[at.WAITING] <= counts[at.PANEL]
    has_flags = counts[at.AHEAD] <= 1 and counts[at.SOLVED] <= 1
    return bool(is_static and in_range and waits and has_flags)


def _buffer_fits(core: Recursion, saved: CoreState) -> bool:
    """Return whether the buffer has as many rows as were counted, and their columns."""
    n_rows = len(saved.buffer)
    is_counted = saved.counts[at.BUFFERED] == n_rows < len(core.buffer)
    has_columns = n_rows == 0 or saved.buffer.shape[1] == core.buffer.shape[1]
    return bool(is_counted and has_columns)


def _numbers_fit(core: Recursion, saved: CoreState) -> bool:
    """Return whether numbers are those of the parameters, and finite and in range."""
    numbers = saved.numbers
    same = [at.LMBDA, at.FRACTION, at.FORGETTING, at.WEIGHT, at.COEFFICIENT]
    is_static = bool((numbers[same] == core.numbers[same]).all())
    is_finite = np.isfinite(saved.state[_FINITE]).all() and np.isfinite(numbers[at.CHARTS : at.DOTS]).all()
    in_range = (
        0.0 <= numbers[at.DECAY] <= 1.0
        and 0.0 <= numbers[at.SAMPLES] < np.inf
        and 0.0 <= numbers[at.BOOTSTRAP] < np.inf
        and 1.0 <= numbers[at.GROWTH] < np.inf
    )
    has_ridge = (saved.state[at.RIDGE] >= 0.0).all()
    return bool(is_static and is_finite and in_range and has_ridge)
