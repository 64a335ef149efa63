"""Episodes recorded step by step, and their rows put together at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lstd.errors import InvalidInputError
from lstd.trajectories.observations import ObservationFeatures
from lstd.types import Array


class Episode(NamedTuple):
    """Rows of one episode."""

    X: Array  # (T, n) features; one row more than rewards if the episode ends in a horizon row
    rewards: Array  # (steps,) or (steps, m)
    terminated: bool  # whether the successor of the last row is terminal
    actions: Sequence[Any] | None = None  # one per reward
    probabilities: Sequence[float] | None = None


@dataclass
class Recorder:
    """Recorder of one environment, for at most `max_episodes` and at most `max_steps`; None for no limit."""

    number: int  # of the sub-environment, for messages
    max_episodes: int | None
    max_steps: int | None
    episodes: list[Episode] = field(default_factory=list)  # complete, or cut off by a limit
    n_steps: int = 0  # recorded so far
    _phis: list[Array] = field(default_factory=list)  # of the current episode
    _steps: list[tuple[Array, Any, float | None]] = field(default_factory=list)  # reward, action and its probability

    @property
    def finished(self) -> bool:
        """Whether a limit is reached."""
        return (self.max_episodes is not None and len(self.episodes) >= self.max_episodes) or (
            self.max_steps is not None and self.n_steps >= self.max_steps
        )

    @property
    def where(self) -> str:
        """Where the recording is now, for messages."""
        return f"after step {len(self._steps)} of episode {len(self.episodes)} of environment {self.number}"

    def begin(self, phi: Array) -> None:
        """Begin an episode with the features of its first observation, shape (n,)."""
        self._phis, self._steps = [phi], []

    def record(self, reward: Any, phi_next: Array | None, over: bool, action: Any, probability: float | None) -> None:
        """Record a step.

        `phi_next`, (n,), are the features of the observation after it; None if the episode terminated. `over` says
        whether the episode terminated or was truncated. The environment may reuse the memory of `action`.
        """
        action = action if isinstance(action, (tuple, dict)) else np.array(action)
        self._steps.append((self._check_reward(reward), action, probability))
        self.n_steps += 1
        if phi_next is not None:
            self._phis.append(phi_next)
        if over or self.finished:
            rewards, actions, given = zip(*self._steps, strict=True)
            probabilities = [one for one in given if one is not None] or None
            self.episodes.append(
                Episode(np.stack(self._phis), np.stack(rewards), phi_next is None, actions, probabilities)
            )
            self._phis, self._steps = [], []

    def _check_reward(self, reward: Any) -> Array:
        try:
            value = np.array(reward, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InvalidInputError(f"`env.step` must give a number as reward; got {reward!r:.80}.") from error
        if value.ndim > 1 or not np.isfinite(value).all():
            raise InvalidInputError(
                f"`env.step` must give a finite reward, or a vector of finite rewards; got {reward!r:.80} "
                f"{self.where}. Check the environment."
            )
        if self._steps and value.shape != (first := self._steps[0][0].shape):
            raise InvalidInputError(
                f"`env.step` must give rewards of one shape; got {first}, then {value.shape} "
                f"{self.where}. Check the environment."
            )
        return value


class Run(NamedTuple):
    """A policy, its environment, and what to record."""

    env: Any
    policy: Callable[[Any], Any]
    phi: ObservationFeatures
    recorders: list[Recorder]  # one per sub-environment
    seed: int | None  # of the first reset
    report: Callable[[], None]  # called after each step

    def act(self, observation: Any) -> tuple[Any, Any]:
        """Return the action for an observation, and its probability or None."""
        chosen = self.policy(observation)
        if not (isinstance(chosen, tuple) and len(chosen) == 2):
            return chosen, None
        space = getattr(self.env, "action_space", None)
        shape = getattr(space, "shape", None)
        # An action may itself be a tuple of two: it has the form that the space asks for.
        pair = isinstance(chosen[0], (tuple, dict)) if shape is None else np.shape(chosen[0]) == shape
        return chosen if pair or space is None else (chosen, None)


def _placed(name: str, of_episodes: Sequence[Any], episodes: Sequence[Episode]) -> NDArray[Any]:
    """Place the values of steps in rows; those of horizon rows are zero or None."""
    flat = [value for values in of_episodes for value in (() if values is None else values)]
    full = [np.arange(len(episode.X)) < len(episode.rewards) for episode in episodes]
    rows = np.flatnonzero(np.concatenate(full))
    if len(flat) != len(rows):
        raise InvalidInputError(f"`{name}` must be known for all {len(rows)} steps or for none; got {len(flat)}.")
    if any(isinstance(value, (tuple, dict)) for value in flat):
        placed = np.empty(sum(map(len, full)), dtype=object)
        for row, value in zip(rows.tolist(), flat, strict=True):
            placed[row] = value
        return placed
    try:
        values = np.stack(flat) if flat else np.empty(0)
    except ValueError as error:
        raise InvalidInputError(f"`{name}` must have one shape in all steps: {error}.") from error
    placed = np.zeros((sum(map(len, full)), *values.shape[1:]), dtype=values.dtype)
    placed[rows] = values
    return placed


def assemble(episodes: Sequence[Episode]) -> dict[str, Any]:
    """Put the rows of episodes together as arguments of `Trajectories`; episodes are numbered from 0.

    Raises InvalidInputError when episodes differ in the shape of their rewards.
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
    blank = np.full((1, *next(iter(shapes), ())), np.nan)  # of a horizon row
    rewards = [
        part
        for one in episodes
        for part in (one.rewards.reshape(-1, *blank.shape[1:]), blank[: len(one.X) - len(one.rewards)])
    ]
    terminated = np.zeros(sum(lengths), dtype=np.bool_)
    terminated[np.cumsum(lengths) - 1] = [episode.terminated for episode in episodes]
    arrays: dict[str, Any] = {
        "X": np.concatenate([episode.X for episode in episodes]),
        "y": np.concatenate(rewards),
        "terminated": terminated,
        "episode": np.repeat(np.arange(len(episodes)), lengths),
    }
    for name, of_episodes in (
        ("actions", [episode.actions for episode in episodes]),
        ("behavior_probability", [episode.probabilities for episode in episodes]),
    ):
        if any(values is not None for values in of_episodes):
            arrays[name] = _placed(name, of_episodes, episodes)
    for array in arrays.values():
        array.setflags(write=False)
    return arrays
