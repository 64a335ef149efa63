"""The check of the data contract: arrays in, rows in one form out, or an error that names the first bad row."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from lstd.data import parsing
from lstd.data.arguments import as_real, check_length, check_per_row, check_values_known, shown_id
from lstd.data.broken_episodes import warn_of_assumed
from lstd.data.feature_arrays import Features, all_finite, by_name, check_features, check_finite, column_names
from lstd.data.horizon_rows import check_missing_rewards
from lstd.data.ids import first_repeat, last_rows, not_contiguous, plain_texts
from lstd.data.rows import COLUMNS, PerRow, Rows, repeated
from lstd.errors import InvalidInputError, InvalidTypeError
from lstd.types import Array, Flags


def check_rows(
    X: Any, y: Any, *, gamma: float, episode: PerRow = None, terminated: PerRow = None, X_next: Any = None,
    groups: PerRow = None, warn: bool = True, finite: bool = True, sort: bool = False, summed: bool = False,
    **columns: PerRow,
) -> Rows:  # fmt: skip
    """Check the arrays of the data contract and bring them into one form; `columns` are those of `COLUMNS`.

    With `finite=False`, features may be NaN or infinite; use it only if the caller checks the sums. With `sort`,
    episodes are put in order of their `groups`. With `summed`, features of float32 stay as they are, for the caller to
    convert in batches.

    Raises
    ------
    InvalidInputError
        With the argument, the rule, the value found in the first bad row, and the remedy.
    """
    if unknown := columns.keys() - COLUMNS.keys():
        raise InvalidTypeError(
            f"`{min(unknown)}` must not be given: rows have no such column. Leave it out, or correct its name."
        )
    phi = check_features("X", X, finite=finite, single=summed)
    n_rows = phi.shape[0]
    rewards, single = _check_rewards(y, n_rows)
    ids = None if episode is None else _check_episode(episode, n_rows)
    ended = _check_flags("terminated", terminated, n_rows)
    names = column_names("X", X)
    phi_next = None if X_next is None else _check_successors(by_name("X_next", X_next, names), ended, finite, summed)
    if phi_next is not None and phi_next.shape != phi.shape:
        raise InvalidInputError(f"`X_next` must have the shape of `X`, {phi.shape}; got {phi_next.shape}.")
    assumed = ids is not None and terminated is None and phi_next is None and n_rows > 0
    if warn and assumed:
        warn_of_assumed("`episode` was given without `terminated`")
    last = np.ones(n_rows, dtype=np.bool_)
    last[:-1] = _episode_changes(ids, ended)
    horizon = last & ~ended if phi_next is None else np.zeros_like(last)
    known = ~check_missing_rewards(rewards, horizon)
    if not known.all():
        rewards = np.where(np.isnan(rewards), 0.0, rewards)
    checked = {name: _check_column(name, columns.get(name), gamma, horizon, known) for name in COLUMNS}
    if terminated is not None:
        checked["discount"] = np.where(ended, 0.0, checked["discount"])
    rows = Rows.of(
        X=phi, y=rewards, known=known, last=last, terminated=ended, **checked, X_next=phi_next, episode=ids,
        single=single, gamma=gamma, assumed=assumed, names=names,
        groups=None if groups is None else _check_groups(groups, last, ids),
        given=frozenset(name for name in COLUMNS if columns.get(name) is not None),
    )  # fmt: skip
    return _sorted(rows) if sort else rows


def _check_column(name: str, values: PerRow, gamma: float, horizon: Flags, known: Flags) -> Array:
    """Return one number per row, 1 where it is NaN in a `horizon` row; that row is then not `known`."""
    high, usual = COLUMNS[name]
    if values is None:
        return repeated(gamma if usual is None else usual, len(horizon))
    array = check_per_row(name, values, len(horizon), high, may_miss=horizon)
    missing = np.isnan(array)
    known &= ~missing
    return np.where(missing, 1.0, array) if missing.any() else array


def _check_successors(X_next: Any, ended: NDArray[np.bool_], finite: bool, summed: bool) -> Features:
    """Check the features of successors; those of terminal ones are not used, and may be NaN or infinite."""
    phi = check_features("X_next", X_next, finite=False, single=summed)
    if len(ended) == phi.shape[0] and not all_finite(phi[ended]):
        phi = phi.copy()
        if sparse.issparse(phi):
            phi.data[np.repeat(ended, np.diff(phi.indptr))] = 0.0
        else:
            phi[ended] = 0.0
    if finite:
        check_finite("X_next", phi)
    return phi


def _check_rewards(y: Any, n_rows: int) -> tuple[Array, bool]:
    if y is None:
        raise InvalidInputError(
            "`y` must have a reward for every row: fit requires y to be passed, but the target y is None."
        )
    rewards = as_real("y", y)
    if rewards.ndim not in (1, 2) or len(rewards) != n_rows or rewards.shape[1:] == (0,):
        raise InvalidInputError(
            f"`y` must have one reward per row of `X`, shape ({n_rows},) or ({n_rows}, n_rewards); got {rewards.shape}."
        )
    single = rewards.ndim == 1
    return (rewards[:, np.newaxis] if single else rewards), single


def _check_vector(name: str, values: ArrayLike, what: str, n_rows: int) -> NDArray[Any]:
    """Return a vector of ids or flags, of any dtype."""
    check_values_known(name, values)
    try:
        array = np.asarray(values)
    except Exception as error:  # ragged lists; `__array__` may raise anything
        raise InvalidInputError(f"`{name}` must be a vector of {what}s: {error}.") from error
    check_length(name, array, what, n_rows)
    return array


def _check_ids(name: str, values: ArrayLike, n_rows: int) -> NDArray[Any]:
    ids = _check_vector(name, values, "id", n_rows)
    if ids.dtype.names is not None:
        raise InvalidInputError(f"`{name}` must be a vector of ids, not of records; got dtype {ids.dtype}.")
    if (row := parsing.first_true(_missing_ids(ids))) is not None:
        raise InvalidInputError(
            f"`{name}` must have an id on every row; row {row} has {ids[row]}. Fill it in, or drop the episode."
        )
    with _comparing(name, ids):
        return plain_texts(ids) if ids.dtype.kind in "OU" and len(ids) else ids


@contextmanager
def _comparing(name: str, ids: NDArray[Any]) -> Iterator[None]:
    """Refuse ids that cannot be hashed or compared."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"`{name}` must hold ids that can be hashed and compared, such as integers or text; got {ids[0]!r:.80}."
        ) from error


def _check_episode(episode: ArrayLike, n_rows: int) -> NDArray[Any]:
    ids = _check_ids("episode", episode, n_rows)
    with _comparing("episode", ids):
        row = first_repeat(ids)
    if row is not None:
        raise not_contiguous("episode", shown_id(ids[row]), row, where="")
    return ids


def _check_groups(groups: ArrayLike, last: NDArray[np.bool_], ids: NDArray[Any] | None) -> NDArray[Any]:
    """Check ids of groups: every episode must lie in one."""
    names = _check_ids("groups", groups, len(last))
    with _comparing("groups", names):
        within = last_rows(names) & ~last
    if (row := parsing.first_true(within)) is not None:
        of = ", in one episode," if ids is None else f" of episode {shown_id(ids[row])}"
        raise InvalidInputError(
            f"`groups` must be the same on all rows of an episode; rows {row} and {row + 1}{of} have "
            f"{shown_id(names[row])} and {shown_id(names[row + 1])}. Give rows of different groups different ids in "
            "`episode`."
        )
    return names


def _sorted(rows: Rows) -> Rows:
    """Put episodes in order of their groups; those of a group keep their order, and rows that of time."""
    if rows.groups is None:
        return rows
    starts = np.flatnonzero(rows.begins)
    names = rows.groups[starts].tolist()
    with _comparing("groups", rows.groups):
        rank = {name: i for i, name in enumerate(sorted({*names}))}
    runs = np.argsort([rank[name] for name in names], kind="stable")
    if (runs[1:] > runs[:-1]).all():
        return rows
    lengths = np.diff(starts, append=len(rows))[runs]
    order = np.repeat(starts[runs] - np.cumsum(lengths) + lengths, lengths) + np.arange(len(rows))
    check_finite("X", rows.X)  # while row numbers are those of the caller
    if rows.X_next is not None:
        check_finite("X_next", rows.X_next)
    return rows.taken(order).changed(order=order)


def _missing_ids(ids: NDArray[Any]) -> NDArray[np.bool_]:
    """Where an id is NaN, infinite, NaT or None."""
    if ids.dtype.kind in "fcmM":
        return np.asarray(~np.isfinite(ids))
    if ids.dtype.kind == "O":
        return np.array([_is_missing(name) for name in ids], dtype=np.bool_)
    return np.zeros(len(ids), dtype=np.bool_)


def _is_missing(name: Any) -> bool:
    if name is None or type(name).__name__ == "NAType":
        return True
    try:
        return bool(name != name)
    except (TypeError, ValueError):  # an array, which `_check_episode` refuses as an id
        return False


def _check_flags(name: str, flags: PerRow, n_rows: int) -> NDArray[np.bool_]:
    if flags is None:
        return np.zeros(n_rows, dtype=np.bool_)
    array = _check_vector(name, flags, "flag", n_rows)
    if array.dtype.kind not in "biuf":
        raise InvalidInputError(f"`{name}` must hold True and False; got dtype {array.dtype}. Convert it to bool.")
    parsed, fault = parsing.flags(array, name)
    if fault is not None:
        row = fault.row
        raise InvalidInputError(f"`{name}` must hold True and False; row {row} has {array[row]}. Convert it to bool.")
    return parsed


def _episode_changes(ids: NDArray[Any] | None, ended: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether each row but the last is the last one of its episode, (T − 1,)."""
    if ids is None:
        return ended[:-1].copy()
    changes: NDArray[np.bool_] = ids[1:] != ids[:-1]
    if (row := parsing.first_true(ended[:-1] & ~changes)) is not None:
        raise InvalidInputError(
            f"`terminated` may be True on the last row of an episode only; row {row} is followed by a row of the same "
            f"`episode`, {shown_id(ids[row])}. Give the rows after it another id."
        )
    return changes
