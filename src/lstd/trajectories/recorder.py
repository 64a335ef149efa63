"""Episodes collected step by step, and their rows put together at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lstd.errors import InvalidInputError
from lstd.trajectories.observations import ObservationFeatures

Array = NDArray[np.float64]


class Episode(NamedTuple):
    """Rows of one episode."""

    X: Array  # (T, n) features; one row more than rewards if the episode ends in a horizon row
    rewards: Array  # (steps,) or (steps, m)
    terminated: bool  # whether the successor of the last row is terminal


@dataclass
class Recorder:
    """Rows of one environment, episode after episode, until a budget is spent.

    Parameters
    ----------
    number : int
        Number of the sub-environment, for messages.
    max_episodes, max_steps : int or None
        Recording stops at whichever is reached first.

    Attributes
    ----------
    episodes : list of Episode
        Episodes that are over or were cut off by the budget.
    n_steps : int
        Steps recorded.
    """

    number: int
    max_episodes: int | None
    max_steps: int | None
    episodes: list[Episode] = field(default_factory=list)
    n_steps: int = 0
    _phis: list[Array] = field(default_factory=list)
    _rewards: list[Array] = field(default_factory=list)

    @property
    def finished(self) -> bool:
        """Whether the budget is spent."""
        return (self.max_episodes is not None and len(self.episodes) >= self.max_episodes) or (
            self.max_steps is not None and self.n_steps >= self.max_steps
        )

    @property
    def where(self) -> str:
        """The present place, for messages."""
        return f"after step {len(self._rewards)} of episode {len(self.episodes)} of environment {self.number}"

    def begin(self, phi: Array) -> None:
        """Begin an episode with the features of its first observation, shape (n,)."""
        self._phis, self._rewards = [phi], []

    def record(self, reward: Any, phi_next: Array | None, terminated: bool, truncated: bool) -> None:
        """Record a step.

        Parameters
        ----------
        reward : float or (m,) array
        phi_next : (n,) array or None
            Features of the observation that the step led to; not used if it terminated.
        terminated, truncated : bool
            If both are True, the episode terminated.
        """
        self._rewards.append(self._check_reward(reward))
        self.n_steps += 1
        if not terminated:
            assert phi_next is not None
            self._phis.append(phi_next)
        if terminated or truncated or self.finished:
            self.episodes.append(Episode(np.stack(self._phis), np.stack(self._rewards), terminated))
            self._phis, self._rewards = [], []

    def _check_reward(self, reward: Any) -> Array:
        try:
            value = np.array(reward, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InvalidInputError(f"`env.step` must give a number as reward; got {reward!r:.80}.") from error
        if value.ndim > 1 or not np.isfinite(value).all():
            raise InvalidInputError(
                f"`env.step` must give a finite reward, or a vector of them; got {reward!r:.80} {self.where}. "
                "Check the environment."
            )
        if self._rewards and value.shape != self._rewards[0].shape:
            raise InvalidInputError(
                f"`env.step` must give rewards of one shape; got {self._rewards[0].shape}, then {value.shape} "
                f"{self.where}. Check the environment."
            )
        return value


class Run(NamedTuple):
    """A policy, the environment to run it in, and what to record."""

    env: Any
    policy: Callable[[Any], Any]
    phi: ObservationFeatures
    recorders: list[Recorder]  # one per sub-environment
    seed: int | None  # of the first reset
    report: Callable[[list[Recorder]], None]  # called after each step


def assemble(episodes: Iterable[Episode]) -> dict[str, Any]:
    """Put the rows of episodes together as arguments of `Trajectories`; episodes are numbered from 0.

    Raises
    ------
    InvalidInputError
        When episodes differ in the shape of their rewards.
    """
    kept = list(episodes)
    lengths = [len(episode.X) for episode in kept]
    ends = np.cumsum(lengths)
    y = np.full((int(ends[-1]), *_reward_shape(kept)), np.nan)
    terminated = np.zeros(len(y), dtype=np.bool_)
    for episode, end in zip(kept, ends.tolist(), strict=True):
        first = end - len(episode.X)
        if len(episode.rewards):
            y[first : first + len(episode.rewards)] = episode.rewards
        terminated[end - 1] = episode.terminated
    X = np.concatenate([episode.X for episode in kept])
    arrays = {"X": X, "y": y, "terminated": terminated, "episode": np.repeat(np.arange(len(kept)), lengths)}
    for array in arrays.values():
        array.setflags(write=False)
    return arrays


def _reward_shape(episodes: list[Episode]) -> tuple[int, ...]:
    """Shape (m,) or () of the rewards of a step, from the episodes that have one."""
    shapes = [(number, episode.rewards.shape[1:]) for number, episode in enumerate(episodes) if len(episode.rewards)]
    for number, shape in shapes:
        if shape != shapes[0][1]:
            raise InvalidInputError(
                f"Rewards must have the same shape in every episode; episode {shapes[0][0]} has {shapes[0][1]} per "
                f"step, episode {number} has {shape}."
            )
    return shapes[0][1] if shapes else ()
