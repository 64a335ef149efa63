"""Rows of episodes that come one after another, put together at the end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstd.errors import InvalidInputError

Array = NDArray[np.float64]


class EpisodeBlock:
    """Rows of one episode.

    Parameters
    ----------
    X : (rows, n) array
        Features; one row more than rewards where the episode ends in a horizon row.
    rewards : (steps,) or (steps, m) array
    terminated : bool
        Whether the last row's successor is terminal.
    """

    def __init__(self, X: Array, rewards: Array, terminated: bool) -> None:
        self.X = X
        self.rewards = rewards
        self.terminated = terminated

    def __len__(self) -> int:
        return len(self.X)


def assembled(blocks: Iterable[EpisodeBlock]) -> dict[str, Any]:
    """Arguments of `Trajectories`, episodes numbered from 0.

    Raises
    ------
    InvalidInputError
        When episodes differ in their numbers of features or rewards.
    """
    kept = list(blocks)
    lengths = np.array([len(block) for block in kept])
    n_rows = int(lengths.sum())
    extra = _reward_shape(kept)
    X = np.empty((n_rows, kept[0].X.shape[1]))
    y = np.full((n_rows, *extra), np.nan)
    terminated = np.zeros(n_rows, dtype=np.bool_)
    row = 0
    for block in kept:
        X[row : row + len(block)] = block.X
        if len(block.rewards):
            y[row : row + len(block.rewards)] = block.rewards
        row += len(block)
        terminated[row - 1] = block.terminated
    arrays = {"X": X, "y": y, "terminated": terminated, "episode": np.repeat(np.arange(len(kept)), lengths)}
    for array in arrays.values():
        array.setflags(write=False)
    return arrays


def _reward_shape(blocks: list[EpisodeBlock]) -> tuple[int, ...]:
    """(m,) or (), from the episodes that have a transition."""
    shapes = [(number, block.rewards.shape[1:]) for number, block in enumerate(blocks) if len(block.rewards)]
    for number, shape in shapes:
        if shape != shapes[0][1]:
            raise InvalidInputError(
                f"Rewards must have the same shape in every episode; episode {shapes[0][0]} has {shapes[0][1]} per "
                f"step, episode {number} has {shape}."
            )
    return shapes[0][1] if shapes else ()
