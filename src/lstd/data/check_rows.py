"""The check of the data contract: arrays in, rows in one form out, or an error that names the first bad row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from lstd.data.arguments import check_length, check_per_row, says_no_ends, shown_id
from lstd.data.convert import as_real, check_values_known, column_of_library, to_flags
from lstd.data.doubts import assumed_cut
from lstd.data.feature_arrays import (
    Features,
    all_finite,
    by_name,
    check_features,
    check_finite,
    column_names,
    in_form_of,
)
from lstd.data.follow import Pairs, broken_by_missing, broken_pairs, next_begins
from lstd.data.identity import NO_VALUE, order_of
from lstd.data.ids import first_repeat, first_true, identities, in_one_form, last_rows, no_flag, not_contiguous, quoting
from lstd.data.rows import COLUMNS, PerRow, Rows
from lstd.errors import InvalidInputError, InvalidTypeError, MissingTerminationWarning
from lstd.errors import warn as give_warning
from lstd.types import Array, FeaturesLike, Flags


def check_rows(
    X: FeaturesLike,
    y: Any,
    *,
    gamma: float,
    episode: PerRow = None,
    terminated: PerRow = None,
    X_next: FeaturesLike | None = None,
    groups: PerRow = None,
    warn: bool = True,
    finite: bool = True,
    sort: bool = False,
    summed: bool = False,
    **columns: PerRow,
) -> Rows:
    """Check the arrays of the data contract and bring them into one form; `columns` are those of `COLUMNS`.

    With `finite=False`, features may be NaN or infinite; use it only if the caller checks the sums. With `sort`,
    episodes are put in order of their `groups`. With `summed`, features of float32 stay as they are, for the caller to
    convert in batches.

    Raises
    ------
    InvalidInputError
        With the argument, the rule, the value found in the first bad row, and the remedy.
    """
    unknown = columns.keys() - COLUMNS.keys()
    if unknown:
        raise InvalidTypeError(
            f"`{min(unknown)}` must not be given: rows have no such column. Leave it out, or correct its name."
        )
    phi = check_features("X", X, finite=finite, single=summed)
    n_rows = phi.shape[0]
    names = None if type(X) is np.ndarray else column_names("X", X)
    ids = None if episode is None else _check_episode(episode, n_rows)
    ended = np.zeros(n_rows, np.bool_)
    if terminated is not None and not says_no_ends(terminated):
        ended = _check_flags("terminated", terminated, n_rows)
    last = _ends_of_episodes(ids, ended)
    phi_next = None
    if X_next is not None:
        successors = _check_successors(by_name("X_next", X_next, names), ended, finite, summed)
        if successors.shape != phi.shape:
            raise InvalidInputError(f"`X_next` must have the shape of `X`, {phi.shape}; got {successors.shape}.")
        phi_next = in_form_of(phi, successors)
    assumed = ids is not None and terminated is None and phi_next is None and n_rows > 0
    if warn and assumed:
        give_warning(assumed_cut(), MissingTerminationWarning)
    missing: dict[str, Flags] = {}  # of columns of which some values are
    rewards, single, is_complete = _check_rewards(y, n_rows)
    if not is_complete:
        missing["y"] = np.asarray(np.isnan(rewards).any(axis=1))
    numbers = {}
    for name, column in COLUMNS.items():
        values = columns.get(name)
        if values is not None:
            numbers[name] = check_per_row(name, values, n_rows, column.high, may_miss=True)
            if not all_finite(numbers[name]):
                missing[name] = np.isnan(numbers[name])
    names_of_groups = None
    if groups is not None:
        names_of_groups = check_ids("groups", groups, n_rows)
    _check_pairs(last, ended, ids, names_of_groups)
    _check_known(missing, last, ended, successors=phi_next is not None)
    rows = Rows.built(
        phi,
        rewards,
        numbers,
        gamma=gamma,
        terminated=ended,
        last=last,
        X_next=phi_next,
        episode=ids,
        single=single,
        assumed=assumed,
        names=names,
        groups=names_of_groups,
    )
    if sort and rows.groups is not None:
        return _sorted(rows)
    return rows


def _check_successors(X_next: FeaturesLike, ended: Flags, finite: bool, summed: bool) -> Features:
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


def _check_rewards(y: Any, n_rows: int) -> tuple[Array, bool, bool]:
    """Return rewards, (T, m), NaN where they are missing, whether they were given as a vector, and are complete."""
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
    if single:
        rewards = rewards[:, np.newaxis]
    if all_finite(rewards):
        return rewards, single, True
    row = first_true(np.isinf(rewards).any(axis=1))
    if row is not None:
        found = rewards[row, 0] if single else rewards[row].tolist()
        raise InvalidInputError(
            f"`y` must be finite where it has a value; row {row} has {found}. Correct or impute it: dropping rows "
            "inside an episode loses rewards and ends."
        )
    return rewards, single, False


def _check_vector(name: str, values: ArrayLike, what: str, n_rows: int, of: str = "X") -> NDArray[Any]:
    """Return a vector of ids or flags, of any dtype."""
    check_values_known(name, values)
    try:
        array = np.asarray(values)
    except Exception as error:  # ragged lists; `__array__` may raise anything
        raise InvalidInputError(f"`{name}` must be a vector of {what}s: {error}.") from error
    check_length(name, array, what, n_rows, of)
    return array


def _check_flags(name: str, values: Any, n_rows: int) -> Flags:
    """Return flags, (T,): booleans, numbers that are 0 and 1, and words for true and false."""
    flags = to_flags(name, values)
    check_length(name, flags, "flag", n_rows)
    if flags.dtype != np.bool_:
        row = first_true((flags != 0) & (flags != 1))
        if row is not None:
            raise InvalidInputError(f"`{name}` must hold True and False; row {row} {no_flag(flags[row].item())}")
    return np.asarray(flags == 1)  # never the array that was given


def check_ids(name: str, values: ArrayLike, n_rows: int, of: str = "X") -> NDArray[Any]:
    """Return ids whose elements are equal where ids are one, one for each row of the argument `of`."""
    column = column_of_library(name, values)
    if column is not None:
        return _ids_of_column(name, column, n_rows, of)
    if isinstance(values, (list, tuple)):  # NumPy would make one type of all
        values = np.fromiter(values, dtype=object, count=len(values))
    given = _check_vector(name, values, "id", n_rows, of)
    if given.dtype.names is not None:
        raise InvalidInputError(f"`{name}` must be a vector of ids, not of records; got dtype {given.dtype}.")
    if given.dtype.kind == "V":
        given = given.astype(object)
    ids, fault = in_one_form(given, name)
    if fault is not None:
        text = quoting(fault.text, given[fault.row])
        raise InvalidInputError(f"`{name}` must have an id on every row; row {fault.row} {text}")
    return ids


def _ids_of_column(name: str, column: Any, n_rows: int, of: str) -> NDArray[Any]:
    """Return the ids of a column of Arrow, one for each row of the argument `of`."""
    from lstd.data import parse_columns

    check_length(name, np.empty(len(column)), "id", n_rows, of)
    ids, fault = parse_columns.ids(column, name)
    if fault is not None:
        text = fault.text
        if text.startswith(NO_VALUE):
            text = quoting(text, column[fault.row].as_py())
        raise InvalidInputError(f"`{name}` must have an id on every row; row {fault.row} {text}")
    return ids.per_row(n_rows)


def _check_episode(episode: ArrayLike, n_rows: int) -> NDArray[Any]:
    """Check ids of episodes: the rows of each must follow one another."""
    ids = check_ids("episode", episode, n_rows)
    row = first_repeat(ids)
    if row is not None:
        raise not_contiguous("episode", shown_id(ids[row]), row, where="")
    return ids


def _ends_of_episodes(ids: NDArray[Any] | None, ended: Flags) -> Flags:
    """Return whether each row is the last one of its episode, (T,), as the last of all is."""
    other_id = None
    if ids is not None:
        other_id = ids[1:] != ids[:-1]
    last = np.ones(len(ended), np.bool_)
    last[:-1] = next_begins(other_id, ended[:-1])
    return last


def _check_pairs(last: Flags, ended: Flags, episode: NDArray[Any] | None, groups: NDArray[Any] | None) -> None:
    """Apply the rules about a row and the next one; `last` are the last rows of episodes, (T,)."""
    if episode is None and groups is None:
        return  # an episode ends with each row that terminates
    torn = None
    if groups is not None:
        torn = last_rows(groups)[:-1]

    def shown(argument: str, row: int) -> str:
        ids = episode if argument == "episode" else groups
        if ids is None:
            return ""
        return shown_id(ids[row])

    for broken in broken_pairs(Pairs(~last[:-1], terminated=ended[:-1], torn=torn), shown):
        raise broken.error(f"row {broken.row}")


def _check_known(missing: Mapping[str, Flags], last: Flags, ended: Flags, *, successors: bool) -> None:
    """Refuse `missing` rewards and other numbers of transitions, (T,) by name, where a row must have them."""
    for name, rows in missing.items():
        broken = broken_by_missing(name, rows, ~last, ended, flag="`terminated`", successors=successors)
        if broken is not None:
            raise broken.error(f"row {broken.row}")


def _sorted(rows: Rows) -> Rows:
    """Put episodes in order of their groups; those of a group keep their order, and rows that of time."""
    assert rows.groups is not None
    starts = np.flatnonzero(rows.begins)
    keys = [*map(order_of, identities(rows.groups[starts]))]
    runs = np.array(sorted(range(len(keys)), key=keys.__getitem__), np.intp)
    if (runs[1:] > runs[:-1]).all():
        return rows
    lengths = np.diff(starts, append=len(rows))[runs]
    order = np.repeat(starts[runs] - np.cumsum(lengths) + lengths, lengths) + np.arange(len(rows))
    check_finite("X", rows.X, rows.names)  # while row numbers are those of the caller
    if rows.X_next is not None:
        check_finite("X_next", rows.X_next, rows.names)
    return rows.taken(order).changed(order=order)
