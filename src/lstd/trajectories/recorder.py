"""Rows of one (sub-)environment, episode after episode, until its budget is spent."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstd.errors import InvalidInputError
from lstd.trajectories.assembly import EpisodeBlock

Array = NDArray[np.float64]


class Recorder:
    """Collects the rows of one stream.

    Parameters
    ----------
    number : int
        Number of the sub-environment, for messages.
    max_episodes, max_steps : int, optional
        Budget; recording stops at whichever is reached first.

    Attributes
    ----------
    blocks : list of EpisodeBlock
        Episodes that are over or were cut off by the budget.
    n_episodes, n_steps : int
        Episodes in `blocks`, and steps recorded.
    """

    def __init__(self, number: int, max_episodes: int | None, max_steps: int | None) -> None:
        self._number = number
        self._max_episodes = max_episodes
        self._max_steps = max_steps
        self._phis: list[Array] = []
        self._rewards: list[Array] = []
        self.blocks: list[EpisodeBlock] = []
        self.n_steps = 0

    @property
    def n_episodes(self) -> int:
        return len(self.blocks)

    @property
    def finished(self) -> bool:
        """Whether the budget is spent; nothing more is to be recorded then."""
        return (self._max_episodes is not None and self.n_episodes >= self._max_episodes) or (
            self._max_steps is not None and self.n_steps >= self._max_steps
        )

    @property
    def where(self) -> str:
        """The present place, for messages."""
        return f"after step {len(self._rewards)} of episode {self.n_episodes} of environment {self._number}"

    def begin(self, phi: Array) -> None:
        """Begin an episode with the features of its first observation, shape (n,)."""
        self._phis = [phi]
        self._rewards = []

    def record(self, reward: Any, arrived: Array | None, terminated: bool, truncated: bool) -> None:
        """Record a step.

        Parameters
        ----------
        reward : float or (m,) array
        arrived : (n,) array or None
            Features of the observation that the step led to; not used where it terminated.
        terminated, truncated : bool
            Where both are True, the episode terminated.
        """
        self._rewards.append(self._checked(reward))
        self.n_steps += 1
        if not terminated:
            assert arrived is not None
            self._phis.append(arrived)
        if terminated or truncated or self.finished:
            self.blocks.append(EpisodeBlock(np.stack(self._phis), np.stack(self._rewards), terminated))
            self._phis, self._rewards = [], []

    def _checked(self, reward: Any) -> Array:
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
