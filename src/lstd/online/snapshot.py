"""Snapshots of a recursive estimator: flat mappings of arrays, which `numpy.savez` writes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd._kernels import rank_one as layout
from lstd.data.check_rows import check_rows
from lstd.data.rows import COLUMNS, Rows
from lstd.errors import InvalidInputError
from lstd.files import BROKEN, json_bytes, pack, unpack
from lstd.online.forgetting import Choice
from lstd.online.one_transition import OpenEnd
from lstd.online.recursion import Recursion
from lstd.statistics.blocks import Blocks
from lstd.types import Array

VERSION = 13
_STATIC = slice(layout.FEATURES, layout.ROTATION + 1)  # counts that follow from the parameters
_FINITE = [layout.TRACE, layout.NEXT, layout.RIDGE, layout.ALPHA, *range(layout.CHART, layout.PHI)]


class CoreState(NamedTuple):
    """State of a recursion."""

    state: Annotated[Array, "r c nan"]
    buffer: Annotated[Array, "k w"]
    blocks: Blocks
    warned: bool


class EndState(NamedTuple):
    """The last row of recorded rows whose episode did not terminate."""

    numbers: Annotated[Array, "q"]  # those of `COLUMNS`, then the rewards
    x: Annotated[Array, "n"]
    episode: str | None
    known: bool
    is_sparse: bool
    successors: bool


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
    beyond: Annotated[Array, "7 m"]
    cores: tuple[CoreState, ...]
    choice: Choice | None
    end: EndState | None


def not_a_snapshot(why: str) -> InvalidInputError:
    """Make the error for arrays that are not a snapshot."""
    return InvalidInputError(
        f"`snapshot` must be a result of RecursiveLSTD.snapshot; {why}. Take it again with this version."
    )


def packed(state: State) -> dict[str, NDArray[Any]]:
    """Return the arrays of a state, copies of its own."""
    document, arrays = pack(state)
    text = np.array(json_bytes(document).decode())
    return {"version": np.array(VERSION), "document": text} | {name: array.copy() for name, array in arrays.items()}


def unpacked(snapshot: Mapping[str, Any]) -> State:
    """Return the state of which `packed` made arrays, or of a file of these; raises InvalidInputError for others."""
    try:
        own = {"version", "document", *State._fields}  # a file may hold other arrays beside
        arrays = {name: np.asarray(snapshot[name]) for name in snapshot if name.partition(".")[0] in own}
        version, document = arrays.pop("version"), arrays.pop("document")
    except Exception as error:  # no mapping at all, or a file that is damaged
        raise not_a_snapshot(f"its arrays cannot be read ({type(error).__name__}: {error})") from error
    if version.shape != () or version.dtype.kind not in "iu" or version != VERSION:
        raise not_a_snapshot(f"its version is {version!s:.20}, not {VERSION}")
    try:
        return unpack(State, json.loads(str(document)), arrays)
    except (*BROKEN, InvalidInputError) as error:
        raise not_a_snapshot(f"its content is not one ({type(error).__name__}: {error})") from error


def core_state(core: Recursion) -> CoreState:
    """Return the state of a recursion."""
    rows, state = core.buffer[: core.counts[layout.BUFFERED]], core.state.copy()
    state[layout.PHI : layout.THETA] = 0.0  # scratch
    return CoreState(state, rows, core.blocks, core.warned)


def restore_core(core: Recursion, saved: CoreState) -> None:
    """Let a new recursion go on from a state, which may come from a file; raises InvalidInputError if it cannot."""
    static, scalars = core.counts[_STATIC].copy(), core.state[layout.SCALARS].copy()
    n, m, total = core.n, core.m, saved.blocks.total
    if saved.state.shape != core.state.shape or (total.n_features, total.b.shape[1]) != (n, m):
        raise not_a_snapshot(f"its arrays are not those of {n} features and {m} rewards")
    core.state[:] = saved.state
    counts, now, k = core.counts, core.state[layout.SCALARS], len(saved.buffer)
    fits = (counts[_STATIC] == static).all() and (counts >= 0).all() and counts[layout.INTERVAL] >= 1
    fits &= counts[layout.WAITING] <= counts[layout.PANEL] and counts[layout.AHEAD] <= 1 and counts[layout.SOLVED] <= 1
    fits &= counts[layout.BUFFERED] == k < len(core.buffer) and (not k or saved.buffer.shape[1] == core.buffer.shape[1])
    same = [layout.LMBDA, layout.FRACTION, layout.FORGETTING, layout.WEIGHT, layout.COEFFICIENT]
    fits &= bool((now[same] == scalars[same]).all()) and 0.0 <= now[layout.DECAY] <= 1.0
    fits &= 0.0 <= core.state[layout.SAMPLE, layout.SIZES] < np.inf
    fits &= 0.0 <= now[layout.BOOTSTRAP] < np.inf and 1.0 <= now[layout.GROWTH] < np.inf
    fits &= bool(np.isfinite(core.state[_FINITE]).all() and (core.state[layout.RIDGE] >= 0.0).all())
    if not fits:
        raise not_a_snapshot("its numbers do not fit one another")
    core.buffer[:k], core.blocks, core.warned = saved.buffer, saved.blocks, saved.warned


def end_state(end: OpenEnd | None) -> EndState | None:
    """Return the state of an open end; its id becomes text."""
    if end is None:
        return None
    row, x = end.row, end.row.X
    numbers = [getattr(row, name)[0] for name in COLUMNS]
    dense, episode = x.toarray()[0] if sparse.issparse(x) else np.array(x[0], np.float64), row.last_episode
    name = None if row.episode is None else str(episode)
    return EndState(
        np.array([*numbers, *row.y[0]]), dense, name, bool(row.known[0]), sparse.issparse(x), row.X_next is not None
    )


def restored_end(saved: EndState | None, gamma: float, single: bool) -> Rows | None:
    """Return the row of an open end."""
    if saved is None:
        return None
    columns: Any = {name: saved.numbers[[k]] for k, name in enumerate(COLUMNS)}
    y = saved.numbers[len(COLUMNS) :]
    X = sparse.csr_array(saved.x[np.newaxis]) if saved.is_sparse else saved.x[np.newaxis]
    rows = check_rows(
        X, y if single else y[np.newaxis], gamma=gamma, terminated=[False], X_next=X if saved.successors else None,
        episode=None if saved.episode is None else [saved.episode], warn=False,
        **columns,
    )  # fmt: skip
    return rows.changed(known=np.array([saved.known]))
