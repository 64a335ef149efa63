"""Final observations under SameStep autoreset that an environment has overwritten are refused."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from lstd import Trajectories
from lstd.errors import InvalidInputError

gym = pytest.importorskip("gymnasium")
from gymnasium import spaces  # noqa: E402
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv  # noqa: E402

BOX = spaces.Box(-np.inf, np.inf, (1,), np.float64)
DICT = spaces.Dict({"place": BOX, "kind": spaces.Discrete(3)})


class Counter(gym.Env):
    """Observes 100, 101, 102 and is cut off, then 200, 201, 202, and so on, with `reuse` all in one buffer."""

    action_space = spaces.Discrete(2)

    def __init__(self, reuse=True, space=BOX, length=2, rising=True):
        self.observation_space = space
        self._reuse, self._length, self._rising = reuse, length, rising
        self._buffer, self._episode = np.zeros(1), 0

    def _seen(self):
        self._buffer[0] = 100.0 * (self._episode if self._rising else 1) + self._step
        place = self._buffer if self._reuse else self._buffer.copy()
        return {"place": place, "kind": 1} if self.observation_space is DICT else place

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._episode, self._step = self._episode + 1, 0
        return self._seen(), {}

    def step(self, action):
        self._step += 1
        return self._seen(), 1.0, False, self._step == self._length, {}


def first(observation):
    return np.reshape(observation["place"] if isinstance(observation, dict) else observation, 1)


def collected(vector, arguments, mode, n_episodes=4, space=BOX, **options):
    envs = vector([lambda one=one: Counter(space=space, **one) for one in arguments], autoreset_mode=mode, **options)
    try:
        zeros = np.zeros(len(arguments), dtype=int)
        return Trajectories.from_gymnasium(envs, lambda x: zeros, features=first, n_episodes=n_episodes)
    finally:
        envs.close()


@pytest.mark.parametrize("vector", [SyncVectorEnv, AsyncVectorEnv])
@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("space", [BOX, DICT], ids=["box", "dict"])
@pytest.mark.parametrize("n_episodes", [2, 9])
def test_one_buffer_is_refused(vector, copy, space, n_episodes):
    with pytest.raises(InvalidInputError, match=r"AutoresetMode\.NEXT_STEP, or have it return copies"):
        collected(vector, [{}, {}], AutoresetMode.SAME_STEP, n_episodes, space, copy=copy)


OTHER_WAYS = [(mode, reuse) for mode in AutoresetMode for reuse in (True, False)]
OTHER_WAYS.remove((AutoresetMode.SAME_STEP, True))  # the one that is refused


@pytest.mark.parametrize(("mode", "reuse"), OTHER_WAYS)
def test_all_other_ways_are_right(mode, reuse):
    data = collected(SyncVectorEnv, [{"reuse": reuse}], mode, 3)
    assert_array_equal(data.X[:, 0], [100, 101, 102, 200, 201, 202, 300, 301, 302])
    assert_array_equal(data.horizon, [False, False, True] * 3)


@pytest.mark.parametrize("n_episodes", [2, 9])
def test_one_part_that_is_overwritten_is_refused_and_one_that_never_changes_is_not(n_episodes):
    class Parts(Counter):
        def _seen(self):
            seen = super()._seen()
            return {"goal": np.ones(2), "place": seen, "step": np.array([float(self._step)])}

    space = spaces.Dict({"goal": spaces.Box(0, 1, (2,), np.float64), "place": BOX, "step": BOX})

    def collect(reuse):
        envs = SyncVectorEnv([lambda: Parts(reuse=reuse, space=space)], autoreset_mode=AutoresetMode.SAME_STEP)
        return Trajectories.from_gymnasium(envs, lambda x: [0], features=first, n_episodes=n_episodes)

    with pytest.raises(InvalidInputError, match=r"their parts \['place'\] were equal"):
        collect(True)
    assert collect(False).X[2, 0] == 102.0


def test_one_of_several_with_a_buffer_is_found():
    with pytest.raises(InvalidInputError, match=r"all 3 .* after step 1 of episode 2 of environment 1"):
        collected(SyncVectorEnv, [{"reuse": False}, {}], AutoresetMode.SAME_STEP, 9)


def test_equal_by_chance_is_let_through():
    class Loop(Counter):
        """Goes round in a loop of two, and is cut off after two steps and three by turns."""

        def _seen(self):
            self._length = 2 + self._episode % 2
            return np.array([float(self._step % 2)])

    envs = SyncVectorEnv([Loop], autoreset_mode=AutoresetMode.SAME_STEP)
    data = Trajectories.from_gymnasium(envs, lambda x: [0], n_episodes=4)
    assert_array_equal(data.X[:, 0], [0, 1, 0, 1, 0, 1, 0] * 2)


def test_states_cannot_be_overwritten():
    class Wall(gym.Env):
        observation_space, action_space = spaces.Discrete(2), spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            return 1, {}

        def step(self, action):
            return 1, 1.0, False, True, {}

    envs = SyncVectorEnv([Wall], autoreset_mode=AutoresetMode.SAME_STEP)
    assert Trajectories.from_gymnasium(envs, lambda x: [0], n_episodes=5).n_episodes == 5
