"""What `Trajectories` are made of: checks of ids, names, actions and times, and rows put together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from lstd.data.arguments import check_length, check_real, shown_id
from lstd.data.convert import array_of, as_real, check_values_known, column_of_library, labels_of
from lstd.data.follow import Pairs, broken_pairs
from lstd.data.identity import NO_LENGTH, Identity, is_missing
from lstd.data.ids import NO_TIME, Fault, first_true, identities, joined_ids, last_rows
from lstd.data.rows import FACTORS, PerRow
from lstd.errors import InvalidInputError, missing_extra
from lstd.types import Array, Flags

_OF_OBJECTS = "OSUTV"  # kinds of NumPy's types whose values are read as Python objects

# Properties of `Trajectories` that must agree.
_AGREE: dict[str, Callable[[Any], Any]] = {
    "features": lambda part: part.n_features,
    "rewards": lambda part: part.y.shape[1:],
    "feature names": lambda part: part.feature_names,
    "discounts": lambda part: part.discount is not None,
    "groups": lambda part: part.groups is not None,
    "actions": lambda part: (
        None if part.actions is None else (part.actions.dtype.kind in "OSU", *part.actions.shape[1:])
    ),
    "behavior probabilities": lambda part: part.behavior_probability is not None,
    "times": lambda part: None if part.time is None else part.time.dtype.kind in "mM",
}


def join(parts: Sequence[Any], renumber: bool) -> dict[str, Any]:
    """Join the rows of `parts` in order; returns the arguments of `Trajectories`. See `Trajectories.concat`."""
    if not parts:
        raise InvalidInputError("`parts` must hold at least one Trajectories; got none.")
    for what, of in _AGREE.items():
        for number, part in enumerate(parts):
            if of(part) != of(parts[0]):
                raise InvalidInputError(
                    f"`parts` must have the same {what}; part 0 has {of(parts[0])!r}, part {number} {of(part)!r}."
                )
    names = ("X", "y", "terminated", "discount", "actions", "behavior_probability", "time")
    arrays = {name: _joined([getattr(part, name) for part in parts]) for name in names}
    if parts[0].groups is not None:
        arrays["groups"] = joined_ids([part.groups for part in parts])
    for name in FACTORS:
        if all(getattr(part, name) is None for part in parts):
            continue
        columns = []
        for part in parts:
            column = getattr(part, name)
            columns.append(np.ones(len(part)) if column is None else column)
        arrays[name] = np.concatenate(columns)
    if all(part.mean_steps == parts[0].mean_steps for part in parts):
        arrays["mean_steps"] = parts[0].mean_steps
    ids = [part.episode for part in parts]
    return arrays | {"episode": _joined_ids(ids, renumber), "feature_names": parts[0].feature_names}


def _joined(arrays: Sequence[Any]) -> Any:
    if arrays[0] is None:
        return None
    if any(sparse.issparse(array) for array in arrays):
        return sparse.vstack([sparse.csr_array(array) for array in arrays], format="csr")
    return np.concatenate(arrays)


def _joined_ids(ids: Sequence[NDArray[Any]], renumber: bool) -> NDArray[Any]:
    if renumber:
        last = np.concatenate([last_rows(part) for part in ids])
        return np.asarray(np.cumsum(last) - last)
    owner: dict[Identity, int] = {}
    for number, part in enumerate(ids):
        names = part[last_rows(part)]
        for place, key in enumerate(identities(names)):
            if owner.setdefault(key, number) != number:
                raise InvalidInputError(
                    f"`parts` must not share ids of episodes; {shown_id(names[place])} is in parts {owner[key]} and "
                    f"{number}. Pass renumber=True if they are different episodes; else build the Trajectories from "
                    "joined rows."
                )
    return joined_ids([part for part in ids if len(part)] or ids[:1])


class Episode(NamedTuple):
    """Rows of one episode."""

    X: Array  # (T, n) features; one row more than rewards if the episode ends in a horizon row
    rewards: Array  # (steps,) or (steps, m)
    terminated: bool  # whether the successor of the last row is terminal
    actions: Sequence[Any] | None = None  # one per reward
    behavior_probability: Sequence[float] | None = None


def assemble(episodes: Sequence[Episode]) -> dict[str, Any]:
    """Put the rows of episodes together as arguments of `Trajectories`; episodes are numbered from 0.

    Raises InvalidInputError when episodes differ in the shape of their rewards or actions.
    """
    shapes: dict[tuple[int, ...], int] = {}  # of the rewards of a step, with the first episode of each
    for number, episode in enumerate(episodes):
        if len(episode.rewards):
            shapes.setdefault(episode.rewards.shape[1:], number)
    if len(shapes) > 1:
        (one, first), (two, second), *_ = shapes.items()
        raise InvalidInputError(
            f"Rewards must have the same shape in every episode; episode {first} has {one} per step, episode {second} "
            f"has {two}."
        )
    lengths = [len(episode.X) for episode in episodes]
    steps = np.concatenate([np.arange(len(episode.X)) < len(episode.rewards) for episode in episodes])
    y = np.full((sum(lengths), *next(iter(shapes), ())), np.nan)  # NaN in horizon rows
    if shapes:
        y[steps] = np.concatenate([episode.rewards for episode in episodes if len(episode.rewards)])
    terminated = np.zeros(len(y), dtype=np.bool_)
    terminated[np.cumsum(lengths) - 1] = [episode.terminated for episode in episodes]
    arrays: dict[str, Any] = {
        "X": np.concatenate([episode.X for episode in episodes]),
        "y": y,
        "terminated": terminated,
        "episode": np.repeat(np.arange(len(episodes)), lengths),
    }
    for name in ("actions", "behavior_probability"):
        given = [getattr(episode, name) for episode in episodes]
        if any(values is not None for values in given):
            of_steps = [value for values in given if values is not None for value in values]
            arrays[name] = _placed(name, of_steps, steps)
    for array in arrays.values():
        array.setflags(write=False)
    return arrays


def _placed(name: str, values: Sequence[Any], steps: Flags) -> NDArray[Any]:
    """Place the values of steps in rows; those of horizon rows are zero or None."""
    if len(values) != steps.sum():
        raise InvalidInputError(f"`{name}` must be known for all {steps.sum()} steps or for none; got {len(values)}.")
    if any(isinstance(value, (tuple, dict)) for value in values):
        placed = np.empty(len(steps), dtype=object)
        for row, value in zip(np.flatnonzero(steps).tolist(), values, strict=True):
            placed[row] = value
        return placed
    try:
        array = np.stack(values) if values else np.empty(0)
    except ValueError as error:
        raise InvalidInputError(f"`{name}` must have one shape in all steps: {error}.") from error
    placed = np.zeros((len(steps), *array.shape[1:]), dtype=array.dtype)
    placed[steps] = array
    return placed


def check_names(names: Sequence[str], n_features: int) -> tuple[str, ...]:
    """Return the names of features; raises InvalidInputError unless there is one for each."""
    checked = tuple(names)
    if isinstance(names, str) or not all(isinstance(name, str) for name in checked):
        raise InvalidInputError(f"`feature_names` must be a sequence of str; got {names!r:.80}.")
    if len(checked) != n_features:
        raise InvalidInputError(f"`feature_names` must have one name per feature, {n_features}; got {len(checked)}.")
    return checked


def check_mean_steps(steps: Mapping[str, float], names: Sequence[str] | None) -> Mapping[str, float]:
    """Return a read-only copy; raises InvalidInputError unless it has numbers above 0 of named features."""
    if not isinstance(steps, Mapping) or not set(steps) <= set(names or ()):
        raise InvalidInputError(
            f"`mean_steps` must be a dict of names among `feature_names`, as `from_events` makes it; got {steps!r:.80}."
        )
    checked = {}
    for name, number in steps.items():
        checked[name] = check_real("mean_steps", number, 0.0, np.inf, open_low=True)
    return MappingProxyType(checked)


def check_actions(actions: ArrayLike, horizon: Flags) -> NDArray[Any]:
    """Return actions, one per row; raises InvalidInputError where one is missing on a row that is no horizon row.

    In a horizon row, the last one of an episode that was cut off, no action is known.
    """
    try:
        array = labels_of(actions)
    except Exception as error:  # ragged lists; `__array__` may raise anything
        raise InvalidInputError(f"`actions` must be an array with one action per row: {error}.") from error
    if array.shape[:1] != horizon.shape:
        raise InvalidInputError(f"`actions` must have one action per row, {len(horizon)}; got shape {array.shape}.")
    if array.dtype.kind in "Of":  # objects and floats: the kinds that can be missing
        if array.dtype.kind == "f":
            missing = np.isnan(array)
        else:  # entry by entry: a row of several is an array, which is never missing
            missing = np.array([is_missing(entry) for entry in array.ravel()], np.bool_)
        has_none = missing.reshape(len(array), -1).any(axis=1)
        row = first_true(has_none & ~horizon)
        if row is not None:
            raise InvalidInputError(
                f"`actions` must have an action on every row but horizon rows; row {row} has none. Fill it in, or drop "
                "its episode."
            )
    return array


def check_probabilities(values: PerRow, actions: NDArray[Any] | None, horizon: Flags) -> Array | None:
    """Return the probabilities of actions, NaN on horizon rows; in (0, 1], or above 0 if actions are floats."""
    if values is None:
        return None
    if actions is None:
        raise InvalidInputError("`behavior_probability` must come with `actions`, whose probability it is.")
    array = as_real("behavior_probability", values)
    most = np.inf if actions.dtype.kind == "f" else 1.0  # a density, or a probability
    if array.shape != horizon.shape:
        raise InvalidInputError(
            f"`behavior_probability` must have one value per row, shape {horizon.shape}; got {array.shape}."
        )
    row = first_true(~((array > 0.0) & (array <= most) & np.isfinite(array)) & ~horizon)
    if row is not None:
        rule = "above 0 and finite" if most > 1.0 else "in (0, 1]"
        raise InvalidInputError(
            f"`behavior_probability` must be {rule}: the action was taken; row {row} has {array[row]:g}. Correct it, "
            "or drop its episode."
        )
    return np.where(horizon, np.nan, array)


def rows_at(rows: slice | ArrayLike, episode: NDArray[Any]) -> NDArray[np.intp]:
    """Return the places of rows that a slice or a mask chooses; those of an episode must follow one another."""
    if isinstance(rows, slice) and rows.step in (None, 1):
        return np.arange(len(episode))[rows]
    mask = np.asarray(rows)
    if mask.dtype != np.bool_ or mask.shape != episode.shape:
        raise InvalidInputError(
            f"Trajectories are indexed by a slice without a step, or by a mask of shape {episode.shape}; got "
            f"{rows!r:.80}."
        )
    places = np.flatnonzero(mask)
    torn = (np.diff(places) > 1) & (episode[places[1:]] == episode[places[:-1]])
    place = first_true(torn)
    if place is not None:
        raise InvalidInputError(
            f"A mask must keep consecutive rows of an episode; in episode {episode[places[place]]!s} it drops row "
            f"{places[place] + 1} and keeps later ones. Choose whole episodes."
        )
    return places


def check_times(values: ArrayLike, last: Flags) -> NDArray[Any]:
    """Return times (T,), numbers or times of NumPy, which must increase up to the `last` row of each episode."""
    times = parse_times("time", values)
    check_length("time", times, "time", len(last))
    pairs = Pairs(~last[:-1], earlier=times[1:] < times[:-1], at_once=times[1:] == times[:-1])
    for broken in broken_pairs(pairs, lambda argument, row: ""):
        fault = _merged(values, times, last)
        if fault is not None:
            raise InvalidInputError(f"`time` must increase within each episode; row {fault.row} {fault.text}")
        raise broken.error(f"row {broken.row}")
    return times


def _merged(values: Any, times: NDArray[Any], last: Flags) -> Fault | None:
    """Find the first time of a column of a library that differs from one of its episode, but was read as the same."""
    if times.dtype.kind in "mM":  # which are exact
        return None
    column = column_of_library("time", values)
    if column is None and _array_of_times("time", values).dtype.kind in _OF_OBJECTS:
        column, _ = _column_of_objects("time", _array_of_times("time", values))
    if column is None:
        return None
    from lstd.data.parse_columns import merged_times

    episode = np.append(0, np.cumsum(last)[:-1]).astype(np.intp)
    return merged_times(column, times, episode, "time")


def parse_times(name: str, values: Any, kind: np.dtype[Any] | None = None) -> NDArray[Any]:
    """Return times as numbers, or as times of NumPy; with `kind`, those of another array, in its unit.

    Text is numbers or dates, which are microseconds since 1970 in UTC, as are Python objects of several types.
    """
    try:
        times, fault = _parsed(name, values, kind)
    except InvalidInputError:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(f"`{name}` must hold numbers or dates: {error}.") from error
    if fault is not None:
        raise InvalidInputError(f"`{name}` must hold numbers or dates; row {fault.row} {fault.text}")
    if kind is not None and kind.kind not in "mM" and times.dtype.kind in "mM":
        return times.astype(f"{times.dtype.kind}8[us]").astype(np.int64)  # as text of dates is
    return times if times.dtype.kind in "fumM" else times.astype(np.int64)


def _parsed(name: str, values: Any, kind: np.dtype[Any] | None) -> tuple[NDArray[Any], Fault | None]:
    """Return times, and the first that is missing or none."""
    column = column_of_library(name, values)
    if column is not None:
        times, fault = _of_column(name, column)
        if fault is None:
            times = _of_kind(name, values, times, kind)
        return times, fault
    check_values_known(name, values)
    times = _of_kind(name, values, _array_of_times(name, values), kind)
    if times.dtype.kind in "mM":
        return times, _fault_of_moments(name, times)
    if times.dtype.kind in "biu":
        return times, None
    if times.dtype.kind == "f":
        infinite = Fault.first(np.isinf(times), name, "is infinite; correct it.")
        return times, infinite or Fault.first(np.isnan(times), name, NO_TIME)
    column, fault = _column_of_objects(name, times)
    if fault is not None:
        return times, fault
    from lstd.data.parse_columns import times as times_of

    return times_of(column, name)


def _of_kind(name: str, values: Any, times: NDArray[Any], kind: np.dtype[Any] | None) -> NDArray[Any]:
    """Return times in the unit of another array, if that has dates or durations; refuse numbers then."""
    if kind is None or kind.kind not in "mM":
        return times
    if times.dtype.kind in "biuf":
        dates = "dates" if kind.kind == "M" else "durations"
        raise InvalidInputError(f"`{name}` must hold {dates}, as the times of the rows are; got {values}.")
    return times.astype(kind)


def _array_of_times(name: str, values: Any) -> NDArray[Any]:
    """Return what NumPy makes of times, where lists of several types keep their objects."""
    if sparse.issparse(values):
        raise InvalidInputError(
            f"`{name}` must hold numbers or dates; it is a sparse matrix, {type(values).__name__}. Give a vector."
        )
    times = array_of(name, values, "must hold numbers or dates")
    if times.ndim > 1:
        check_length(name, times, "time", len(times))
    return times


def _fault_of_moments(name: str, times: NDArray[Any]) -> Fault | None:
    """Find the first time of NumPy that is missing, or of a unit without a fixed length."""
    unit = np.datetime_data(times.dtype)[0]
    if times.dtype.kind == "m" and unit in ("Y", "M", "generic") and len(times):
        return Fault(0, name, NO_LENGTH)
    return Fault.first(np.isnat(times), name, NO_TIME)


def _column_of_objects(name: str, times: NDArray[Any]) -> tuple[Any, Fault | None]:
    """Return times that are text or Python objects as an Arrow array, and the first that is no time."""
    try:
        from lstd.data.arrow_columns import objects_read
    except ModuleNotFoundError as error:
        raise missing_extra("Reading times that are objects or text", "pyarrow", "data") from error
    return objects_read(times.tolist(), name)


def _of_column(name: str, column: Any) -> tuple[NDArray[Any], Fault | None]:
    """Return times of an Arrow column: of NumPy if its type is one of times, else as columns of tables are parsed."""
    from lstd.data import arrow_columns, parse_columns

    if parse_columns.numpy_unit(column):
        moments = parse_columns.moments_of(arrow_columns.plain(column))
        return moments, Fault.first(np.isnat(moments), name, NO_TIME)
    return parse_columns.times(column, name)
