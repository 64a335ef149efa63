"""Episodes of a Minari dataset as arrays of the data contract."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lstd.errors import InvalidInputError, MissingTerminationWarning, warn
from lstd.trajectories.observations import ObservationFeatures
from lstd.trajectories.recorded_steps import Episode, assemble
from lstd.types import Array

_NEEDED = ("observations", "rewards", "terminations", "truncations")


def read_dataset(
    dataset: Any,
    features: Callable[[Any], ArrayLike] | None = None,
    reward: Callable[[Any], ArrayLike] | None = None,
    behavior_probability: Callable[[Any], ArrayLike] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Read a dataset and return the arguments of `Trajectories`; see `Trajectories.from_minari`."""
    if isinstance(dataset, (str, bytes)) or not hasattr(dataset, "__iter__"):
        raise InvalidInputError(
            f"`dataset` must be a Minari dataset; got {dataset!r:.80}. Load it with minari.load_dataset."
        )
    for name, function in (("reward", reward), ("behavior_probability", behavior_probability)):
        if function is not None and not callable(function):
            raise InvalidInputError(f"`{name}` must be a function of one episode, or None; got {function!r:.80}.")
    phi = ObservationFeatures(features, getattr(dataset, "observation_space", None))
    episodes: list[Episode] = []
    undecided: list[int] = []
    total = len(dataset) if hasattr(dataset, "__len__") else 0
    for number, episode in enumerate(dataset):
        rows, ended = _read_episode(number, episode, phi, reward)
        if behavior_probability is not None:
            rows = rows._replace(probabilities=_probabilities(number, episode, behavior_probability))
        episodes.append(rows)
        if not ended:
            undecided.append(number)
        if progress is not None:
            progress(number + 1, max(total, number + 1))
    if not episodes:
        raise InvalidInputError("`dataset` must hold at least one episode; got none. Check the filter that made it.")
    if undecided:
        warn(
            f"The last step of {len(undecided)} of {len(episodes)} episodes (first: episode {undecided[0]}) is neither "
            "terminated nor truncated: they are taken as truncated. If they terminated, set `terminations`.",
            MissingTerminationWarning,
        )
    return assemble(episodes)


def _read_episode(
    number: int, episode: Any, phi: ObservationFeatures, reward: Callable[[Any], ArrayLike] | None
) -> tuple[Episode, bool]:
    """Read an episode; also returns whether its last step is terminated or truncated, True without steps."""
    missing = next((name for name in _NEEDED if not hasattr(episode, name)), None)
    if missing is not None:
        raise InvalidInputError(
            f"Episode {number} must have `{missing}`, as Minari's episodes have; got {type(episode).__name__}. "
            "Load the dataset with minari.load_dataset."
        )
    n_steps = len(episode.rewards)
    terminated = _ends_with(number, "terminations", episode.terminations, n_steps)
    truncated = _ends_with(number, "truncations", episode.truncations, n_steps)
    rewards = _rewards(number, episode, reward, n_steps)
    n_observations = _length(number, episode.observations)
    if n_observations == n_steps and not terminated:
        raise InvalidInputError(
            f"Episode {number} must have its final observation, because it did not terminate: one observation more "
            f"than its {n_steps} steps; got {n_observations}. Record it, or set the last of `terminations`."
        )
    if n_observations not in (n_steps, n_steps + 1) or n_observations == 0:
        raise InvalidInputError(
            f"Episode {number} must have one observation more than its {n_steps} steps; got {n_observations}."
        )
    X = _features(number, episode.observations, n_steps if terminated else n_observations, phi)
    actions = getattr(episode, "actions", None)
    if isinstance(actions, (tuple, dict)):
        actions = [_at(actions, step) for step in range(n_steps)]
    return Episode(X, rewards, terminated, actions), terminated or truncated or not n_steps


def _ends_with(number: int, name: str, flags: Any, n_steps: int) -> bool:
    """Return the last flag; raises InvalidInputError if an earlier flag is True."""
    array = np.asarray(flags, dtype=np.bool_).reshape(-1)
    if len(array) != n_steps:
        raise InvalidInputError(f"Episode {number} must have {n_steps} `{name}`, one per reward; got {len(array)}.")
    early = np.flatnonzero(array[:-1])
    if early.size:
        raise InvalidInputError(
            f"`{name}` may be True at the last step of an episode only; episode {number} has True at step {early[0]} "
            f"of {n_steps}. Split it there, or clear the flag if the episode did not end there."
        )
    return bool(array[-1]) if n_steps else False


def _rewards(number: int, episode: Any, reward: Callable[[Any], ArrayLike] | None, n_steps: int) -> Array:
    source = "`rewards`" if reward is None else "`reward`"
    given = episode.rewards if reward is None else reward(episode)
    try:
        rewards = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"{source} must be numbers; episode {number} has {given!r:.80}.") from error
    if rewards.ndim not in (1, 2) or len(rewards) != n_steps:
        raise InvalidInputError(
            f"{source} must have one entry per step; episode {number} has {n_steps} steps and shape {rewards.shape}. "
            "Leave out the entry of the reset."
        )
    bad = np.argwhere(~np.isfinite(rewards))
    if len(bad):
        step = int(bad[0, 0])
        raise InvalidInputError(
            f"{source} must be finite; step {step} of episode {number} has {rewards[step]}. Drop that episode first, "
            "with filter_episodes."
        )
    return rewards


def _probabilities(number: int, episode: Any, function: Callable[[Any], ArrayLike]) -> list[float]:
    given, n_steps = np.asarray(function(episode)), len(episode.rewards)
    if given.shape != (n_steps,):
        raise InvalidInputError(
            f"`behavior_probability` must have one entry per step; episode {number} has {n_steps} steps and shape "
            f"{given.shape}."
        )
    return list(given)


def _features(number: int, observations: Any, n_rows: int, phi: ObservationFeatures) -> Array:
    """Compute the features of the first `n_rows` observations, shape (n_rows, n)."""
    if phi.flat:
        X = np.array(observations, dtype=np.float64)[:n_rows].reshape(n_rows, -1)
        bad = np.argwhere(~np.isfinite(X))
        first = int(bad[0, 0]) if len(bad) else 0
        phi(observations[first], f"at step {first} of episode {number}")  # raises if the row breaks a rule
        return X
    if phi.one_hot is not None:
        start, n = phi.one_hot
        states = np.asarray(observations)[:n_rows].reshape(n_rows).astype(np.int64) - start
        outside = (states < 0) | (states >= n)
        if outside.any():
            step = int(np.argmax(outside))
            raise InvalidInputError(
                f"Observations must be in [{start}, {start + n - 1}], as the space says; got {states[step] + start} "
                f"at step {step} of episode {number}. Pass `features`."
            )
        X = np.zeros((n_rows, n))
        X[np.arange(n_rows), states] = 1.0
        return X
    return np.stack([phi(_at(observations, row), f"at step {row} of episode {number}") for row in range(n_rows)])


def _at(observations: Any, row: int) -> Any:
    """Return one observation of a batch that may be a tree of dicts and tuples."""
    if isinstance(observations, dict):
        return {key: _at(part, row) for key, part in observations.items()}
    if isinstance(observations, tuple):
        return tuple(_at(part, row) for part in observations)
    return observations[row]


def _length(number: int, observations: Any) -> int:
    """Count the observations; raises InvalidInputError if parts of composite observations differ in number."""
    if isinstance(observations, (dict, tuple)):
        parts = observations.values() if isinstance(observations, dict) else observations
        lengths = {_length(number, part) for part in parts}
        if len(lengths) != 1:
            raise InvalidInputError(
                f"Episode {number} must have the same number of observations in every part; got {sorted(lengths)}."
            )
        return lengths.pop()
    return len(observations)
