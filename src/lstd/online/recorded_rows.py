"""Recorded rows learned one transition at a time, as a stream that goes on from call to call."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from lstd.data.parsing import same_id
from lstd.data.rows import Rows
from lstd.errors import InvalidInputError
from lstd.online.transition import Array


class OpenEnd(NamedTuple):
    """The end of recorded rows whose last episode did not terminate."""

    n_updates: int  # an update after them replaces the transition to the next row
    episode: Any  # id of the last row
    pending: dict[str, Any] | None  # arguments of its transition but for the successor; None with `X_next`
    missing: bool  # whether its reward or another of these has no value


def goes_on(rows: Rows, episode: Any, successors: bool, missing: bool) -> bool:
    """Return whether rows continue the last episode of a stream; raises InvalidInputError if the two do not fit."""
    if successors != (rows.X_next is not None):
        raise InvalidInputError("`X_next` must be given for all chunks of a stream or for none.")
    if (episode is None) != (rows.first_episode is None):
        raise InvalidInputError(
            "`episode` must be given for all chunks of a stream or for none, because a chunk may continue the "
            "episode of the previous chunk."
        )
    continues = same_id(episode, rows.first_episode)
    if continues and missing:
        raise InvalidInputError(
            "`y` must be finite on a row whose episode continues in the next chunk; the last row of the chunk "
            "before has NaN. Pass that reward, or give the next chunk another `episode` id if the episode was cut "
            "off there."
        )
    return continues


def learn(model: Any, rows: Rows, before: OpenEnd | None, predictions: Array | None) -> OpenEnd | None:
    """Update a recursive estimator with at least one row, the first of which goes on after `before`.

    Returns the end of the rows, None if it terminated.

    `predictions` (T,) or (T, m) is filled with those for each row before its transition is learned.
    """
    end = len(rows) - 1
    cut = rows.last & ~rows.terminated
    cut[end] = False  # not known yet
    if before is not None and before.pending is not None:
        model.update(x_next=_row(rows.X, 0), truncated=bool(cut[0]), **before.pending)
    for t in range(end + 1):
        x = _row(rows.X, t)
        if predictions is not None:
            predictions[t] = model.predict(x)
        if rows.terminated[t]:
            model.update(x_next=None, terminated=True, **_numbers(rows, t, x))
        elif rows.X_next is not None:
            model.update(x_next=_row(rows.X_next, t), truncated=bool(cut[t]), **_numbers(rows, t, x))
        elif not rows.last[t]:
            model.update(x_next=_row(rows.X, t + 1), truncated=bool(cut[t + 1]), **_numbers(rows, t, x))
    if rows.terminated[end]:
        return None
    pending = None if rows.X_next is not None else _numbers(rows, end, _copy(_row(rows.X, end)))
    return OpenEnd(model.n_updates, rows.last_episode, pending, bool(rows.y_missing[end]))


def _numbers(rows: Rows, t: int, x: Any) -> dict[str, Any]:
    """Return the arguments of `update` for a row, but for its successor."""
    given: dict[str, Any] = {"x": x, "reward": float(rows.y[t, 0]) if rows.single else rows.y[t].copy()}
    given |= {"discount": float(rows.discount[t]), "importance_ratio": float(rows.ratios[t])}
    for name, values in (("weight", rows.weights), ("trace_coefficient", rows.coefficients)):
        if values is not None:
            given[name] = float(values[t])
    return given


def _row(X: Any, t: int) -> Any:
    """Return a row as an argument of `update`."""
    if not sparse.issparse(X):
        return X[t]
    part = slice(X.indptr[t], X.indptr[t + 1])
    return X.indices[part].astype(np.int64), X.data[part]


def _copy(row: Any) -> Any:
    return tuple(part.copy() for part in row) if isinstance(row, tuple) else row.copy()
