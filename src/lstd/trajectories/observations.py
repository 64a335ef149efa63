"""Features of observations, and checks of what an environment returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lstd.errors import InvalidInputError, missing_extra
from lstd.types import Array

Function = Callable[[Any], ArrayLike] | None  # of one observation, or of one episode
Progress = Callable[[int, int], None] | None
_OLD = "Wrap it for Gymnasium, for example with shimmy's GymV21CompatibilityV0."


def import_gymnasium() -> Any:
    """Import gymnasium with its vector environments; raises MissingExtraError."""
    try:
        import gymnasium
        import gymnasium.vector.utils
    except ImportError as error:
        task = "Running an environment or flattening its observations"
        raise missing_extra(task, "gymnasium", "gymnasium") from error
    return gymnasium


def check_reset(result: Any) -> Any:
    """Return the observation from a result of `env.reset`; raises InvalidInputError."""
    if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict)):
        raise InvalidInputError(
            f"`env.reset` must return (observation, info), as in Gymnasium; got {type(result).__name__}, as in the "
            f"old package gym. {_OLD}"
        )
    return result[0]


def check_step(result: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
    """Return a result of `env.step` unchanged; raises InvalidInputError."""
    if isinstance(result, tuple) and len(result) == 5 and isinstance(result[4], dict):
        return result
    found = f"{len(result)} values" if isinstance(result, tuple) else type(result).__name__
    remedy = "Check the environment with gymnasium.utils.env_checker.check_env."
    if isinstance(result, tuple) and len(result) == 4:
        found, remedy = f"{found}, as in the old package gym, which does not tell termination from truncation", _OLD
    raise InvalidInputError(
        "`env.step` must return (observation, reward, terminated, truncated, info), as in Gymnasium; "
        f"got {found}. {remedy}"
    )


class ObservationFeatures:
    """Function from one observation to its n features, with checks.

    Without `features`, observations are flattened according to `space`. Raises InvalidInputError when the space cannot
    be flattened into numbers; on a call, when features are not n finite numbers.
    """

    def __init__(self, features: Function, space: Any) -> None:
        self.length: int | None = None
        self._flat = False  # whether features are the numbers of a Box
        self._states: range | None = None  # of a Discrete space, whose features are one-hot
        if features is None:
            self._function, self._source = _flattening(space), f"The observation space {space!s:.80}, flattened,"
            spaces = import_gymnasium().spaces
            self._flat = isinstance(space, spaces.Box)
            if isinstance(space, spaces.Discrete):
                self._states = range(int(space.start), int(space.start + space.n))
        elif callable(features):
            self._function, self._source = features, "`features`"
        else:
            raise InvalidInputError(f"`features` must be a function of one observation, or None; got {features!r:.80}.")

    def __call__(self, observation: Any, where: str) -> Array:
        """Return a copy of the features of one observation, shape (n,); messages end with `where`."""
        if self._states is not None and int(observation) not in self._states:
            raise InvalidInputError(
                f"Observations must be in [{self._states[0]}, {self._states[-1]}], as the space says; got "
                f"{observation} {where}. Pass `features`."
            )
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
                f"{self._source} must give the same number of features each time; got {self.length} first, and "
                f"{len(row)} {where}."
            )
        if not np.isfinite(row).all():
            i = int(np.argmin(np.isfinite(row)))
            raise InvalidInputError(f"{self._source} must give finite features; feature {i} is {row[i]} {where}.")
        return row

    def of_batch(self, observations: Any, n_rows: int, where: Callable[[int], str]) -> Array:
        """Return the features of the first `n_rows` of a batch, which may be a tree of dicts and tuples."""
        if self._flat:
            X = np.array(observations, dtype=np.float64)[:n_rows].reshape(n_rows, -1)
            doubtful = ~np.isfinite(X).all(axis=1)
        elif self._states is not None:
            places = np.asarray(observations)[:n_rows].reshape(n_rows).astype(np.int64) - self._states[0]
            X = (places[:, np.newaxis] == np.arange(len(self._states))).astype(np.float64)
            doubtful = ~X.any(axis=1)
        else:
            return np.stack([self(at(observations, row), where(row)) for row in range(n_rows)])
        row = int(doubtful.argmax())
        self(observations[row], where(row))  # raises if the row breaks a rule; without doubt checks the first one
        return X


def at(observations: Any, row: int) -> Any:
    """Return one observation, or action, of a batch that may be a tree of dicts and tuples."""
    if isinstance(observations, dict):
        return {key: at(part, row) for key, part in observations.items()}
    if isinstance(observations, tuple):
        return tuple(at(part, row) for part in observations)
    return observations[row]


def _flattening(space: Any) -> Callable[[Any], ArrayLike]:
    if space is None:
        raise InvalidInputError("`features` is needed, because the observations have no space; got None.")
    spaces = import_gymnasium().spaces
    if (refused := _not_numeric(space, spaces)) is not None:
        raise InvalidInputError(
            f"`features` is needed, because observations of {type(refused).__name__} have no fixed size; "
            "got None. Pass a function of one observation that returns n numbers."
        )
    if isinstance(space, spaces.Box):
        return lambda observation: np.asarray(observation, dtype=np.float64).reshape(-1)
    return lambda observation: np.asarray(spaces.flatten(space, observation))


def _not_numeric(space: Any, spaces: Any) -> Any:
    """Find the first part of a space that cannot be flattened into numbers; None if all can."""
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        parts = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        return next((bad for bad in (_not_numeric(part, spaces) for part in parts) if bad is not None), None)
    numeric = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
    return None if isinstance(space, numeric) else space
