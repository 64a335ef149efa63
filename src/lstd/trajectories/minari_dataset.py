"""Episodes of a Minari dataset as arrays of the data contract."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstd.errors import InvalidInputError, MissingTerminationWarning, warn
from lstd.trajectories.joining import Episode, assemble
from lstd.trajectories.record import Function, ObservationFeatures, Progress, at
from lstd.types import Array

_NEEDED = ("observations", "rewards", "terminations", "truncations")


def read_dataset(
    dataset: Any,
    features: Function = None,
    reward: Function = None,
    behavior_probability: Function = None,
    progress: Progress = None,
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
            given = np.asarray(behavior_probability(episode))
            _check_length("`behavior_probability`", number, given, episode)
            rows = rows._replace(behavior_probability=list(given))
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


def _read_episode(number: int, episode: Any, phi: ObservationFeatures, reward: Function) -> tuple[Episode, bool]:
    """Read an episode; also returns whether its last step is terminated or truncated, True without steps."""
    missing = next((name for name in _NEEDED if not hasattr(episode, name)), None)
    if missing is not None:
        raise InvalidInputError(
            f"Episode {number} must have `{missing}`, as Minari's episodes have; got {type(episode).__name__}. "
            "Load the dataset with minari.load_dataset."
        )
    n_steps = len(episode.rewards)
    n_observations = _length(number, episode.observations)
    terminated = _ends_with(number, episode, "terminations")
    truncated = _ends_with(number, episode, "truncations")
    rewards = _rewards(number, episode, reward)
    if n_observations == n_steps and not terminated:
        raise InvalidInputError(
            f"Episode {number} must have its final observation, because it did not terminate: one observation more "
            f"than its {n_steps} steps; got {n_observations}. Record it, or set the last of `terminations`."
        )
    if n_observations not in (n_steps, n_steps + 1) or n_observations == 0:
        raise InvalidInputError(
            f"Episode {number} must have one observation more than its {n_steps} steps; got {n_observations}."
        )
    n_rows = n_steps if terminated else n_observations
    X = phi.of_batch(episode.observations, n_rows, lambda row: f"at step {row} of episode {number}")
    actions = getattr(episode, "actions", None)
    if isinstance(actions, (tuple, dict)):
        actions = [at(actions, step) for step in range(n_steps)]
    return Episode(X, rewards, terminated, actions), terminated or truncated or not n_steps


def _ends_with(number: int, episode: Any, name: str) -> bool:
    """Return the last flag; raises InvalidInputError if an earlier flag is True."""
    flags = np.asarray(getattr(episode, name), dtype=np.bool_).reshape(-1)
    n_steps = len(episode.rewards)
    if len(flags) != n_steps:
        raise InvalidInputError(f"Episode {number} must have {n_steps} `{name}`, one per reward; got {len(flags)}.")
    if flags[:-1].any():
        raise InvalidInputError(
            f"`{name}` may be True at the last step of an episode only; episode {number} has True at step "
            f"{flags.argmax()} of {n_steps}. Split it there, or clear the flag if the episode did not end there."
        )
    return bool(flags[-1:].any())


def _rewards(number: int, episode: Any, reward: Function) -> Array:
    """Return the rewards of an episode, or what the function `reward` makes of it; they must be finite."""
    source = "`rewards`"
    given = episode.rewards
    if reward is not None:
        source = "`reward`"
        given = reward(episode)
    try:
        rewards = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"{source} must be numbers; episode {number} has {given!r:.80}.") from error
    _check_length(source, number, rewards, episode, most=2)
    bad = np.argwhere(~np.isfinite(rewards))
    if len(bad):
        step = bad[0, 0]
        raise InvalidInputError(
            f"{source} must be finite; step {step} of episode {number} has {rewards[step]}. Drop that episode first, "
            "with filter_episodes."
        )
    return rewards


def _check_length(source: str, number: int, values: NDArray[Any], episode: Any, most: int = 1) -> None:
    """Refuse values that are not one per step, or have more than `most` dimensions."""
    n_steps = len(episode.rewards)
    if values.shape[:1] != (n_steps,) or values.ndim > most:
        raise InvalidInputError(
            f"{source} must have one entry per step; episode {number} has {n_steps} steps and shape {values.shape}. "
            "Leave out the entry of the reset."
        )


def _length(number: int, observations: Any) -> int:
    """Count the observations; raises InvalidInputError if parts of composite observations differ in number."""
    lengths = set(_lengths(observations))
    if len(lengths) != 1:
        raise InvalidInputError(
            f"Episode {number} must have the same number of observations in every part; got {sorted(lengths)}."
        )
    return lengths.pop()


def _lengths(observations: Any) -> Iterator[int]:
    if isinstance(observations, (dict, tuple)):
        parts = observations.values() if isinstance(observations, dict) else observations
        for part in parts:
            yield from _lengths(part)
    else:
        yield len(observations)
