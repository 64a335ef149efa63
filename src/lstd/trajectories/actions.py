"""Actions of rows and their probabilities, and the choice of rows by a slice or a mask."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lstd.data.arguments import as_real
from lstd.data.parsing import first_true
from lstd.data.rows import PerRow
from lstd.errors import InvalidInputError
from lstd.types import Array, Flags


def check_actions(actions: ArrayLike, horizon: Flags) -> NDArray[Any]:
    """Return actions, one per row; raises InvalidInputError where one is missing on a row that is no horizon row."""
    try:
        array = np.asarray(actions)
    except Exception as error:  # ragged lists; `__array__` may raise anything
        raise InvalidInputError(f"`actions` must be an array with one action per row: {error}.") from error
    if array.shape[:1] != horizon.shape:
        raise InvalidInputError(f"`actions` must have one action per row, {len(horizon)}; got shape {array.shape}.")
    if array.dtype.kind in "Of":
        missing = array != array if array.dtype.kind == "f" else np.array([one is None or one != one for one in array])
        row = first_true(missing.reshape(len(array), -1).any(axis=1) & ~horizon)
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
    array, most = as_real("behavior_probability", values), np.inf if actions.dtype.kind == "f" else 1.0
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
    if (place := first_true(torn)) is not None:
        raise InvalidInputError(
            f"A mask must keep consecutive rows of an episode; in episode {episode[places[place]]!s} it drops row "
            f"{places[place] + 1} and keeps later ones. Choose whole episodes."
        )
    return places
