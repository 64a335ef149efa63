"""Observations that are not of their space: Gymnasium and Minari refuse them alike, by the step and the remedy."""

from types import SimpleNamespace

import numpy as np
import pytest

from lstd import Trajectories
from lstd.errors import InvalidInputError

gym = pytest.importorskip("gymnasium")
from gymnasium import spaces  # noqa: E402

BOX = spaces.Box(-1, 1, (2,))
ROW = np.zeros(2, np.float32)
DICT = spaces.Dict({"a": BOX, "b": spaces.Discrete(3)})
TUPLE = spaces.Tuple([BOX, spaces.Discrete(3)])
# A space, an observation that is of it, and one that is not.
CASES = {
    "a key is missing": (DICT, {"a": ROW, "b": 0}, {"a": ROW}),
    "no dict": (DICT, {"a": ROW, "b": 0}, ROW),
    "a part is missing": (TUPLE, (ROW, 0), (ROW,)),
    "text in place of numbers": (BOX, ROW, "x"),
    "an object": (BOX, ROW, object()),
    "text in place of a state": (spaces.Discrete(3), 0, "a"),
    "a state outside": (spaces.Discrete(3), 0, 7),
}


class Environment(gym.Env):
    """One whose observation after the first step is another."""

    action_space = spaces.Discrete(2)

    def __init__(self, space, first, later):
        self.observation_space, self.first, self.later = space, first, later

    def reset(self, *, seed=None, options=None):
        return self.first, {}

    def step(self, action):
        return self.later, 1.0, False, True, {}


@pytest.mark.parametrize("name", CASES)
def test_gymnasium_names_an_observation_that_is_not_of_its_space(name):
    with pytest.raises(InvalidInputError, match=r"Observations must be .* after step 0 of episode 0 .*ass `features`"):
        Trajectories.from_gymnasium(Environment(*CASES[name]), policy=lambda _: 0, n_episodes=1)


@pytest.mark.parametrize("name", ["a key is missing", "a state outside", "text in place of numbers"])
def test_minari_names_an_observation_that_is_not_of_its_space(name):
    space, first, later = CASES[name]
    batch = np.array([first, later], object if isinstance(later, str) else None)
    if isinstance(first, dict):
        batch = {"a": np.stack([ROW, ROW])}
    episode = SimpleNamespace(
        observations=batch, actions=np.zeros(1), rewards=np.ones(1), terminations=[False], truncations=[True]
    )

    class Dataset(list):
        observation_space = space

    with pytest.raises(InvalidInputError, match=r"Observations must be .* at step [01] of episode 0"):
        Trajectories.from_minari(Dataset([episode]))
