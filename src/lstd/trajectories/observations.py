"""Features of observations: the caller's function, or the observation space flattened."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lstd.errors import InvalidInputError
from lstd.trajectories.extras import import_gymnasium

Array = NDArray[np.float64]


class ObservationFeatures:
    """From one observation to its features.

    Parameters
    ----------
    features : callable, optional
        From one observation to n numbers. Default: the observation flattened as its space says.
    space : gymnasium.Space, optional
        Needed when `features` is not given.

    Raises
    ------
    InvalidInputError
        When the space cannot be flattened into numbers, or, on a call, when features are not n finite numbers.
    """

    def __init__(self, features: Callable[[Any], ArrayLike] | None, space: Any) -> None:
        if features is not None and not callable(features):
            raise InvalidInputError(f"`features` must be a function of one observation, or None; got {features!r:.80}.")
        self._function = _flattening(space) if features is None else features
        self._source = "`features`" if features is not None else f"The observation space {space!s:.80}, flattened,"
        self.one_hot: tuple[int, int] | None = None  # start and number of states, of a Discrete space without features
        self.flat = False
        if features is None:
            spaces = import_gymnasium().spaces
            self.flat = isinstance(space, spaces.Box)
            if isinstance(space, spaces.Discrete):
                self.one_hot = int(space.start), int(space.n)
        self.length: int | None = None

    def __call__(self, observation: Any, where: str) -> Array:
        """Features of one observation, shape (n,), always a copy; `where` is for messages."""
        value = self._function(observation)
        try:
            row = np.array(value, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InvalidInputError(f"{self._source} must give numbers; got {value!r:.80} {where}.") from error
        if row.ndim != 1 or row.size == 0:
            raise InvalidInputError(
                f"{self._source} must give features of shape (n,); got shape {row.shape} {where}. Flatten them."
            )
        if self.length is None:
            self.length = len(row)
        if len(row) != self.length:
            raise InvalidInputError(
                f"{self._source} must always give as many features; got {self.length} first, and {len(row)} {where}."
            )
        if not np.isfinite(row).all():
            position = int(np.argmin(np.isfinite(row)))
            raise InvalidInputError(
                f"{self._source} must give finite features; feature {position} is {row[position]} {where}."
            )
        return row


def _flattening(space: Any) -> Callable[[Any], ArrayLike]:
    if space is None:
        raise InvalidInputError("`features` is needed, because the observations come without a space; got None.")
    gymnasium = import_gymnasium()
    spaces = gymnasium.spaces
    refused = _not_numeric(space, spaces)
    if refused is not None:
        raise InvalidInputError(
            f"`features` is needed, because observations of {type(refused).__name__} have no fixed number of numbers; "
            "got None. Pass a function of one observation that returns n numbers."
        )
    if isinstance(space, spaces.Box):
        return lambda observation: np.asarray(observation, dtype=np.float64).reshape(-1)
    return lambda observation: np.asarray(spaces.flatten(space, observation))


def _not_numeric(space: Any, spaces: Any) -> Any:
    """The first part of a space that cannot be flattened into numbers; None where all can."""
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        parts = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        return next((bad for bad in (_not_numeric(part, spaces) for part in parts) if bad is not None), None)
    numeric = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
    return None if isinstance(space, numeric) else space
