"""The end of recorded rows whose last episode did not terminate: what the next rows go on from."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd._kernels.recursive_state import UPDATES
from lstd.data.ids import same_id
from lstd.data.rows import Rows
from lstd.errors import InvalidInputError
from lstd.online.transition import SparseRow

_PENDING = ("discount", "importance_ratio", "weight", "trace_coefficient")


class OpenEnd(NamedTuple):
    """The end of recorded rows whose last episode did not terminate."""

    n_updates: int  # an update after them replaces the transition to the next row
    episode: Any  # id of the last row
    pending: dict[str, Any] | None  # arguments of its transition but for the successor; None with `X_next`
    missing: bool  # whether its reward or another of these has no value


def goes_on(rows: Rows, end: OpenEnd) -> bool:
    """Return whether rows continue the last episode of a stream; raises InvalidInputError if the two do not fit."""
    if (end.pending is None) != (rows.X_next is not None):
        raise InvalidInputError("`X_next` must be given for all chunks of a stream or for none.")
    if (end.episode is None) != (rows.episode is None):
        raise InvalidInputError(
            "`episode` must be given for all chunks of a stream or for none, because a chunk may continue the "
            "episode of the previous chunk."
        )
    continues = same_id(end.episode, rows.first_episode)
    if continues and end.missing:
        raise InvalidInputError(
            "`y` must be finite on a row whose episode continues in the next chunk; the last row of the chunk "
            "before has NaN. Pass that reward, or give the next chunk another `episode` id if the episode was cut "
            "off there."
        )
    return continues


def end_of(rows: Rows, n_updates: int) -> OpenEnd | None:
    """Return the end of at least one row after so many transitions; None if it terminated."""
    end = len(rows) - 1
    if rows.terminated[end]:
        return None
    pending = None if rows.X_next is not None else numbers_of(rows, end) | {"x": copy.deepcopy(row_of(rows.X, end))}
    return OpenEnd(n_updates, rows.last_episode, pending, not rows.known[end])


def numbers_of(rows: Rows, t: int) -> dict[str, Any]:
    """Return the arguments of `update` for a row, but for its features and those of its successor."""
    given: dict[str, Any] = {"reward": float(rows.y[t, 0]) if rows.single else rows.y[t].copy()}
    return given | {
        name: float(getattr(rows, name)[t]) for name in ("discount", "importance_ratio", *sorted(rows.given))
    }


def row_of(X: Any, t: int) -> Any:
    """Return a row as an argument of `update`."""
    if not sparse.issparse(X):
        return X[t]
    part = slice(X.indptr[t], X.indptr[t + 1])
    return X.indices[part].astype(np.int64), X.data[part]


def packed_end(end: OpenEnd | None, n: int) -> dict[str, NDArray[Any]]:
    """Return arrays for a snapshot, of n features."""
    numbers, x, episode = np.zeros(0), np.zeros(0), None
    if end is not None:
        row = None if end.pending is None else end.pending["x"]
        about = [end.episode is not None, end.missing, isinstance(row, tuple)]
        numbers, episode = np.array(about, np.float64), end.episode
        if end.pending is not None:
            rest = [end.pending.get(name, 1.0) for name in _PENDING]
            numbers = np.concatenate([numbers, rest, np.atleast_1d(end.pending["reward"])])
            x = SparseRow(*row).dense(n) if isinstance(row, tuple) else np.asarray(row)
    return {"end": numbers, "end_x": x, "end_episode": np.array("" if episode is None else str(episode))}


def unpacked_end(state: Mapping[str, NDArray[Any]], n_rewards: int | None) -> OpenEnd | None:
    """Return the end of recorded rows from arrays; its id as text."""
    end = state["end"]
    if not len(end):
        return None
    pending: dict[str, Any] | None = None
    if len(end) > 3:
        row = state["end_x"].copy()
        pending = dict(zip(_PENDING, end[3:7].tolist(), strict=True))
        pending["x"] = (np.flatnonzero(row), row[row != 0.0]) if end[2] else row  # dense rows round otherwise
        pending["reward"] = float(end[7]) if n_rewards is None else end[7:].copy()
    episode = str(state["end_episode"]) if end[0] else None
    return OpenEnd(int(state["counts"][UPDATES]), episode, pending, bool(end[1]))
